// cudnnCTCLossDescriptor_t: the compute type, the normalization and the treatment of the gradient
// of a CTC loss. The loss itself is calls/ctc.cc. Reference 8.2.3 to 8.2.5, 8.2.9 to 8.2.11
// and 8.2.25 to 8.2.27.
#pragma once

#include "api/legacy/descriptors/object.h"
#include "include/v9/cudnn_adv.h"

namespace kiln::api::legacy {

struct CtcLossDesc {
  static constexpr uint64_t kTag = 0x6b696c6e'63746373;  // "kilnctcs"
  static constexpr std::string_view kName = "cudnnCTCLossDescriptor_t";

  int32_t type = CUDNN_DATA_FLOAT;
  int32_t normalization = CUDNN_LOSS_NORMALIZATION_NONE;
  int32_t gradient = CUDNN_NOT_PROPAGATE_NAN;  // or CUDNN_CTC_ZERO_OOB_GRADIENTS, the same number
  int32_t max_label = 0;
};

}  // namespace kiln::api::legacy
