// Batch normalization under both names: cudnnNormalization… and cudnnBatchNormalization… check
// their arguments by themselves, and share the calls that compute.
#pragma once

#include "ir/base/status.h"

namespace kiln::api::legacy {

// A call of inference, as the client has it.
struct NormInference {
  const char* function;
  int mode, ops;
  const void *alpha, *beta;
  void* x_desc;
  const void* x;
  void* z_desc;
  const void* z;
  void* y_desc;
  void* y;
  void* parameter_desc;
  const void *scale, *bias, *mean, *variance;
  void* activation_desc;
  double epsilon;
};
Status RunInference(void* handle, const NormInference& call);

}  // namespace kiln::api::legacy
