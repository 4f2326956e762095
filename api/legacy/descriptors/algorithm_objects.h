// cudnnAlgorithmDescriptor_t and cudnnAlgorithmPerformance_t, which cuDNN 8 still had for recurrent
// networks: rnn_find.cc fills them.
#pragma once

#include "api/legacy/descriptors/object.h"

namespace kiln::api::legacy {

// cudnnAlgorithm_t is a union of enumerations, which are of one size: its bits are kept.
struct AlgorithmDesc {
  static constexpr uint64_t kTag = 0x6b696c6e'616c676f;  // "kilnalgo"
  static constexpr std::string_view kName = "cudnnAlgorithmDescriptor_t";

  int32_t algorithm = 0;
};

struct AlgorithmPerformance {
  static constexpr uint64_t kTag = 0x6b696c6e'616c7066;  // "kilnalpf"
  static constexpr std::string_view kName = "cudnnAlgorithmPerformance_t";

  void* algorithm = nullptr;  // a descriptor of the client's, or `owned`
  void* owned = nullptr;      // made by a search; goes when the result does
  int32_t status = 0;
  float time = 0;
  size_t memory = 0;
};

// Gives the result a descriptor of its own for the algorithm.
Status OwnAlgorithm(AlgorithmPerformance& result, int algorithm);

}  // namespace kiln::api::legacy
