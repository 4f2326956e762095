// cudnnDropoutDescriptor_t: a probability, a seed, and where the states lie on the device. The
// calls that drop (calls/dropout.h) read it, and so does the API log.
// Reference 3.2.9, 3.2.24, 3.2.34, 3.2.36, 3.2.43 and 3.2.73; cudnnSetDropoutDescriptor, which
// writes the states, is a call.
#pragma once

#include "api/legacy/descriptors/object.h"

namespace kiln::api::legacy {

struct DropoutDesc {
  static constexpr uint64_t kTag = 0x6b696c6e'64726f70;  // "kilndrop"
  static constexpr std::string_view kName = "cudnnDropoutDescriptor_t";

  float dropout = 0;
  void* states = nullptr;
  unsigned long long seed = 0;
};

// The bytes of a seed and an offset, in states and in reserve spaces.
inline constexpr size_t kDropoutStateBytes = 2 * sizeof(int64_t);

// Sets the probability, and states and seed where there are states. Error: `states` has less bytes
// than it takes, or the probability is none.
Status FillDropout(DropoutDesc& desc, float dropout, void* states, size_t bytes,
                   unsigned long long seed);

}  // namespace kiln::api::legacy
