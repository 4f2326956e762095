// Handles and tensors of kiln/miopen.h, and what is common to all functions.
#include "api/miopen/activation_plan.h"
#include "api/miopen/objects.h"

miopenHandle::miopenHandle() = default;
miopenHandle::~miopenHandle() = default;

namespace kiln::miopen {

miopenStatus_t StatusOf(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return miopenStatusSuccess;
    case CUDNN_STATUS_NOT_INITIALIZED:
      return miopenStatusNotInitialized;
    case CUDNN_STATUS_ALLOC_FAILED:
    case CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED:
      return miopenStatusAllocFailed;
    default:
      break;
  }
  // cuDNN's statuses come in thousands.
  constexpr miopenStatus_t kKinds[] = {miopenStatusUnknownError, miopenStatusNotInitialized,
                                       miopenStatusBadParm, miopenStatusUnsupportedOp,
                                       miopenStatusInternalError};
  const size_t kind = static_cast<size_t>(status) / 1000;
  return kind < std::size(kKinds) ? kKinds[kind] : miopenStatusUnknownError;
}

std::optional<cudnnDataType_t> TypeOf(miopenDataType_t type) {
  switch (type) {
    case miopenHalf:
      return CUDNN_DATA_HALF;
    case miopenFloat:
      return CUDNN_DATA_FLOAT;
    case miopenBFloat16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return std::nullopt;
  }
}

namespace {

using OpTensorObject = Object<cudnnOpTensorDescriptor_t, cudnnCreateOpTensorDescriptor,
                              cudnnDestroyOpTensorDescriptor>;

cudnnStatus_t OpTensor(miopenHandle_t handle, cudnnOpTensorOp_t op, const void* alpha1,
                       miopenTensorDescriptor_t a, const void* A, const void* alpha2,
                       miopenTensorDescriptor_t b, const void* B, const void* beta,
                       miopenTensorDescriptor_t c, void* C) {
  const OpTensorObject object;
  const cudnnStatus_t status =
      cudnnSetOpTensorDescriptor(object, op, CUDNN_DATA_FLOAT, CUDNN_PROPAGATE_NAN);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  return cudnnOpTensor(handle->object, object, alpha1, a->object, A, alpha2, b->object, B, beta,
                       c->object, C);
}

// The operations by miopenTensorOp_t.
constexpr cudnnOpTensorOp_t kOps[] = {CUDNN_OP_TENSOR_ADD, CUDNN_OP_TENSOR_MUL, CUDNN_OP_TENSOR_MIN,
                                      CUDNN_OP_TENSOR_MAX};

miopenStatus_t SetDims(miopenTensorDescriptor& tensor, miopenDataType_t type, int n, int c, int h,
                       int w) {
  if (!IsBelow(type, miopenDouble + 1)) return miopenStatusBadParm;
  const auto element = TypeOf(type);
  if (!element) return miopenStatusNotImplemented;
  cudnnStatus_t status =
      cudnnSetTensor4dDescriptor(tensor.object, CUDNN_TENSOR_NCHW, *element, n, c, h, w);
  if (status == CUDNN_STATUS_SUCCESS)
    status = cudnnSetFilter4dDescriptor(tensor.filter, *element, CUDNN_TENSOR_NCHW, n, c, h, w);
  if (status != CUDNN_STATUS_SUCCESS) return StatusOf(status);
  tensor.type = type;
  int d = 0;
  for (const int extent : {n, c, h, w}) tensor.dims[d++] = extent;
  return miopenStatusSuccess;
}

}  // namespace
}  // namespace kiln::miopen

using namespace kiln::miopen;

KILN_EXPORT miopenStatus_t miopenCreate(miopenHandle_t* handle) { return Create(handle); }
KILN_EXPORT miopenStatus_t miopenDestroy(miopenHandle_t handle) { return Destroy(handle); }
KILN_EXPORT miopenStatus_t miopenSetStream(miopenHandle_t handle,
                                           miopenAcceleratorQueue_t streamID) {
  return Call([&] { return cudnnSetStream(handle->object, streamID); }, handle);
}
KILN_EXPORT miopenStatus_t miopenGetStream(miopenHandle_t handle,
                                           miopenAcceleratorQueue_t* streamID) {
  return Call([&] { return cudnnGetStream(handle->object, streamID); }, handle, streamID);
}

KILN_EXPORT miopenStatus_t miopenCreateTensorDescriptor(miopenTensorDescriptor_t* tensorDesc) {
  return Create(tensorDesc);
}
KILN_EXPORT miopenStatus_t miopenSet4dTensorDescriptor(miopenTensorDescriptor_t tensorDesc,
                                                       miopenDataType_t dataType, int n, int c,
                                                       int h, int w) {
  if (tensorDesc == nullptr) return miopenStatusBadParm;
  return Call([&] { return SetDims(*tensorDesc, dataType, n, c, h, w); });
}
KILN_EXPORT miopenStatus_t miopenGet4dTensorDescriptor(miopenTensorDescriptor_t tensorDesc,
                                                       miopenDataType_t* dataType, int* n, int* c,
                                                       int* h, int* w, int* nStride, int* cStride,
                                                       int* hStride, int* wStride) {
  return Call(
      [&] {
        const int* const d = tensorDesc->dims;
        *dataType = tensorDesc->type;
        *n = d[0], *c = d[1], *h = d[2], *w = d[3];
        *nStride = d[1] * d[2] * d[3], *cStride = d[2] * d[3], *hStride = d[3], *wStride = 1;
        return miopenStatusSuccess;
      },
      tensorDesc, dataType, n, c, h, w, nStride, cStride, hStride, wStride);
}
KILN_EXPORT miopenStatus_t miopenDestroyTensorDescriptor(miopenTensorDescriptor_t tensorDesc) {
  return Destroy(tensorDesc);
}

KILN_EXPORT miopenStatus_t miopenOpTensor(miopenHandle_t handle, miopenTensorOp_t tensorOp,
                                          const void* alpha1, const miopenTensorDescriptor_t aDesc,
                                          const void* A, const void* alpha2,
                                          const miopenTensorDescriptor_t bDesc, const void* B,
                                          const void* beta, const miopenTensorDescriptor_t cDesc,
                                          void* C) {
  if (!IsBelow(tensorOp, std::size(kOps))) return miopenStatusBadParm;
  return Call(
      [&] {
        return OpTensor(handle, kOps[tensorOp], alpha1, aDesc, A, alpha2, bDesc, B, beta, cDesc, C);
      },
      handle, aDesc, bDesc, cDesc);
}
KILN_EXPORT miopenStatus_t miopenSetTensor(miopenHandle_t handle,
                                           const miopenTensorDescriptor_t yDesc, void* y,
                                           const void* alpha) {
  return Call([&] { return cudnnSetTensor(handle->object, yDesc->object, y, alpha); }, handle,
              yDesc);
}
KILN_EXPORT miopenStatus_t miopenScaleTensor(miopenHandle_t handle,
                                             const miopenTensorDescriptor_t yDesc, void* y,
                                             const void* alpha) {
  return Call([&] { return cudnnScaleTensor(handle->object, yDesc->object, y, alpha); }, handle,
              yDesc);
}
KILN_EXPORT miopenStatus_t miopenConvolutionForwardBias(miopenHandle_t handle, const void* alpha,
                                                        const miopenTensorDescriptor_t bDesc,
                                                        const void* b, const void* beta,
                                                        const miopenTensorDescriptor_t yDesc,
                                                        void* y) {
  return Call(
      [&] {
        return OpTensor(handle, CUDNN_OP_TENSOR_ADD, alpha, yDesc, y, alpha, bDesc, b, beta, yDesc,
                        y);
      },
      handle, bDesc, yDesc);
}

KILN_EXPORT miopenStatus_t miopenDeriveBNTensorDescriptor(miopenTensorDescriptor_t derivedBnDesc,
                                                          const miopenTensorDescriptor_t xDesc,
                                                          miopenBatchNormMode_t bn_mode) {
  if (derivedBnDesc == nullptr || !IsBelow(bn_mode, miopenBNSpatial + 1))
    return miopenStatusBadParm;
  return Call(
      [&] {
        const int* const x = xDesc->dims;
        const bool spatial = bn_mode == miopenBNSpatial;
        return SetDims(*derivedBnDesc, miopenFloat, 1, x[1], spatial ? 1 : x[2],
                       spatial ? 1 : x[3]);
      },
      xDesc);
}
