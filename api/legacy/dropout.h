// cudnnDropoutDescriptor_t, which recurrent networks and attention hold too. Reference 3.2.73.
#pragma once

#include "api/legacy/call.h"

namespace kiln::api::legacy {

struct DropoutDesc {
  static constexpr uint64_t kTag = 0x6b696c6e'64726f70;  // "kilndrop"
  static constexpr std::string_view kName = "cudnnDropoutDescriptor_t";

  float dropout = 0;
  void* states = nullptr;  // seed and offset, i64 each, on the device
  unsigned long long seed = 0;
};

// One i64 on the device, of the rank that elements have.
TensorDesc WordOf(int32_t rank);
// Word `i` of states, 0 the seed and 1 the offset.
inline void* Word(void* memory, size_t i) { return static_cast<int64_t*>(memory) + i; }

// Moves the offset of the states on by `count` elements, behind all work before it in the stream.
Status AdvanceDropout(Handle& handle, const DropoutDesc& desc, int64_t count, int32_t rank);

}  // namespace kiln::api::legacy
