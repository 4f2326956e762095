// The data types of the interface as the types of the tensor graph. The backend's import and the
// legacy API's graphs translate with these functions alone, so that both refuse the same types in
// the same words.
#pragma once

#include "api/spec/cudnn_types.h"
#include "ir/base/result.h"
#include "ir/dtype.h"

namespace kiln::api {

// The graph's type of a tensor element; the error names the type that Kiln has no tensors of.
Result<DType> ElementType(cudnnDataType_t type);
// The graph's type of a computation; the error names the type that Kiln does not compute in.
Result<DType> ComputeType(cudnnDataType_t type);
// A compute type that moves elements of `type` unchanged, for operations that declare none.
cudnnDataType_t MovingType(cudnnDataType_t type);

}  // namespace kiln::api
