// Activation, pooling, softmax, LRN and batch normalisation of kiln/miopen.h.
#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "api/miopen/activation_plan.h"
#include "api/miopen/objects.h"

namespace kiln::miopen {
namespace {

// ---- activation

// Plans that a handle keeps; then it begins anew.
constexpr size_t kMostPlans = 256;

bool IsAligned(std::initializer_list<const void*> pointers) {
  uintptr_t bits = 0;
  for (const void* pointer : pointers) bits |= reinterpret_cast<uintptr_t>(pointer);
  return bits % 16 == 0;
}

bool SameShape(miopenTensorDescriptor_t a, miopenTensorDescriptor_t b) {
  return a->type == b->type && std::equal(std::begin(a->dims), std::end(a->dims), b->dims);
}

// ActivationCall is what a call adds to its descriptors. Forward there is no dy.
struct ActivationCall {
  miopenTensorDescriptor_t shape;
  const void *x, *dy;
  void* result;
  const void *alpha, *beta;
};
cudnnStatus_t Activate(miopenHandle_t handle, const miopenActivationDescriptor& mode,
                       const ActivationCall& call, bool backward) {
  if (call.x == nullptr || call.result == nullptr || call.alpha == nullptr ||
      call.beta == nullptr || (backward && call.dy == nullptr))
    return CUDNN_STATUS_BAD_PARAM;
  const auto alpha = static_cast<const float*>(call.alpha),
             beta = static_cast<const float*>(call.beta);
  Activation wanted{.mode = mode.mode,
                    .alpha = mode.alpha,
                    .beta = mode.beta,
                    .power = mode.power,
                    .backward = backward,
                    .scaled = *alpha != 1,
                    .blended = *beta != 0,
                    .aligned = IsAligned({call.x, call.dy, call.result}),
                    .type = call.shape->type};
  std::copy(std::begin(call.shape->dims), std::end(call.shape->dims), wanted.dims);
  const std::vector<uint64_t> key = wanted.Key();
  auto found = handle->plans.find(key);
  if (found == handle->plans.end()) {
    auto plan = std::make_unique<Plan>();
    const cudnnStatus_t status = plan->Make(handle->object, wanted);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (handle->plans.size() >= kMostPlans) handle->plans.clear();
    found = handle->plans.emplace(key, std::move(plan)).first;
  }
  return found->second->Run(handle->object, call.x, call.dy, call.result, alpha, beta);
}

// ---- pooling: by miopenPoolingMode_t
constexpr cudnnPoolingMode_t kPoolings[] = {CUDNN_POOLING_MAX,
                                            CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
                                            CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING};

// ---- batch normalisation: by miopenBatchNormMode_t
constexpr cudnnBatchNormMode_t kNorms[] = {CUDNN_BATCHNORM_PER_ACTIVATION, CUDNN_BATCHNORM_SPATIAL};

// ---- LRN: two tensors of scratch within channels
constexpr size_t kAlignment = 256;
size_t ScratchBytes(const miopenTensorDescriptor& tensor) {
  const size_t bytes = tensor.Elements() * (tensor.type == miopenFloat ? 4 : 2);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace
}  // namespace kiln::miopen

using namespace kiln::miopen;

KILN_EXPORT miopenStatus_t
miopenCreateActivationDescriptor(miopenActivationDescriptor_t* activDesc) {
  return Create(activDesc);
}
KILN_EXPORT miopenStatus_t miopenSetActivationDescriptor(
    const miopenActivationDescriptor_t activDesc, miopenActivationMode_t mode, double activAlpha,
    double activBeta, double activPower) {
  if (!IsBelow(mode, miopenActivationELU + 1)) return miopenStatusBadParm;
  return Call(
      [&] {
        *activDesc = {mode, activAlpha, activBeta, activPower};
        return miopenStatusSuccess;
      },
      activDesc);
}
KILN_EXPORT miopenStatus_t miopenGetActivationDescriptor(
    const miopenActivationDescriptor_t activDesc, miopenActivationMode_t* mode, double* activAlpha,
    double* activBeta, double* activPower) {
  return Call(
      [&] {
        *mode = activDesc->mode;
        *activAlpha = activDesc->alpha, *activBeta = activDesc->beta;
        *activPower = activDesc->power;
        return miopenStatusSuccess;
      },
      activDesc, mode, activAlpha, activBeta, activPower);
}
KILN_EXPORT miopenStatus_t
miopenDestroyActivationDescriptor(miopenActivationDescriptor_t activDesc) {
  return Destroy(activDesc);
}
KILN_EXPORT miopenStatus_t miopenActivationForward(miopenHandle_t handle,
                                                   const miopenActivationDescriptor_t activDesc,
                                                   const void* alpha,
                                                   const miopenTensorDescriptor_t xDesc,
                                                   const void* x, const void* beta,
                                                   const miopenTensorDescriptor_t yDesc, void* y) {
  return Call(
      [&] {
        if (!SameShape(xDesc, yDesc)) return CUDNN_STATUS_BAD_PARAM;
        return Activate(handle, *activDesc, {xDesc, x, nullptr, y, alpha, beta}, false);
      },
      handle, activDesc, xDesc, yDesc);
}
KILN_EXPORT miopenStatus_t miopenActivationBackward(
    miopenHandle_t handle, const miopenActivationDescriptor_t activDesc, const void* alpha,
    const miopenTensorDescriptor_t yDesc, const void*, const miopenTensorDescriptor_t dyDesc,
    const void* dy, const miopenTensorDescriptor_t xDesc, const void* x, const void* beta,
    const miopenTensorDescriptor_t dxDesc, void* dx) {
  return Call(
      [&] {
        for (const miopenTensorDescriptor_t other : {yDesc, dyDesc, dxDesc})
          if (!SameShape(xDesc, other)) return CUDNN_STATUS_BAD_PARAM;
        return Activate(handle, *activDesc, {xDesc, x, dy, dx, alpha, beta}, true);
      },
      handle, activDesc, xDesc, yDesc, dyDesc, dxDesc);
}

KILN_EXPORT miopenStatus_t miopenSoftmaxForward(miopenHandle_t handle, const void* alpha,
                                                const miopenTensorDescriptor_t xDesc, const void* x,
                                                const void* beta,
                                                const miopenTensorDescriptor_t yDesc, void* y) {
  return Call(
      [&] {
        return cudnnSoftmaxForward(handle->object, CUDNN_SOFTMAX_ACCURATE,
                                   CUDNN_SOFTMAX_MODE_CHANNEL, alpha, xDesc->object, x, beta,
                                   yDesc->object, y);
      },
      handle, xDesc, yDesc);
}
KILN_EXPORT miopenStatus_t miopenSoftmaxBackward(miopenHandle_t handle, const void* alpha,
                                                 const miopenTensorDescriptor_t yDesc,
                                                 const void* y,
                                                 const miopenTensorDescriptor_t dyDesc,
                                                 const void* dy, const void* beta,
                                                 const miopenTensorDescriptor_t dxDesc, void* dx) {
  return Call(
      [&] {
        return cudnnSoftmaxBackward(handle->object, CUDNN_SOFTMAX_ACCURATE,
                                    CUDNN_SOFTMAX_MODE_CHANNEL, alpha, yDesc->object, y,
                                    dyDesc->object, dy, beta, dxDesc->object, dx);
      },
      handle, yDesc, dyDesc, dxDesc);
}

KILN_EXPORT miopenStatus_t miopenCreatePoolingDescriptor(miopenPoolingDescriptor_t* poolDesc) {
  return Create(poolDesc);
}
KILN_EXPORT miopenStatus_t miopenSet2dPoolingDescriptor(miopenPoolingDescriptor_t poolDesc,
                                                        miopenPoolingMode_t mode, int windowHeight,
                                                        int windowWidth, int pad_h, int pad_w,
                                                        int u, int v) {
  if (!IsBelow(mode, std::size(kPoolings))) return miopenStatusBadParm;
  return Call(
      [&] {
        const cudnnStatus_t status =
            cudnnSetPooling2dDescriptor(poolDesc->object, kPoolings[mode], CUDNN_PROPAGATE_NAN,
                                        windowHeight, windowWidth, pad_h, pad_w, u, v);
        if (status != CUDNN_STATUS_SUCCESS) return status;
        poolDesc->mode = mode;
        poolDesc->window[0] = windowHeight, poolDesc->window[1] = windowWidth;
        poolDesc->pad[0] = pad_h, poolDesc->pad[1] = pad_w;
        poolDesc->stride[0] = u, poolDesc->stride[1] = v;
        return status;
      },
      poolDesc);
}
KILN_EXPORT miopenStatus_t miopenGet2dPoolingDescriptor(const miopenPoolingDescriptor_t poolDesc,
                                                        miopenPoolingMode_t* mode,
                                                        int* windowHeight, int* windowWidth,
                                                        int* pad_h, int* pad_w, int* u, int* v) {
  return Call(
      [&] {
        *mode = poolDesc->mode;
        *windowHeight = poolDesc->window[0], *windowWidth = poolDesc->window[1];
        *pad_h = poolDesc->pad[0], *pad_w = poolDesc->pad[1];
        *u = poolDesc->stride[0], *v = poolDesc->stride[1];
        return miopenStatusSuccess;
      },
      poolDesc, mode, windowHeight, windowWidth, pad_h, pad_w, u, v);
}
KILN_EXPORT miopenStatus_t miopenGetPoolingForwardOutputDim(
    const miopenPoolingDescriptor_t poolDesc, const miopenTensorDescriptor_t tensorDesc, int* n,
    int* c, int* h, int* w) {
  return Call(
      [&] {
        return cudnnGetPooling2dForwardOutputDim(poolDesc->object, tensorDesc->object, n, c, h, w);
      },
      poolDesc, tensorDesc, n, c, h, w);
}
KILN_EXPORT miopenStatus_t miopenDestroyPoolingDescriptor(miopenPoolingDescriptor_t poolDesc) {
  return Destroy(poolDesc);
}
// The gradient searches the maximum's place again.
KILN_EXPORT miopenStatus_t miopenPoolingGetWorkSpaceSize(const miopenTensorDescriptor_t yDesc,
                                                         size_t* workSpaceSize) {
  return Call(
      [&] {
        *workSpaceSize = 0;
        return miopenStatusSuccess;
      },
      yDesc, workSpaceSize);
}
KILN_EXPORT miopenStatus_t miopenPoolingForward(
    miopenHandle_t handle, const miopenPoolingDescriptor_t poolDesc, const void* alpha,
    const miopenTensorDescriptor_t xDesc, const void* x, const void* beta,
    const miopenTensorDescriptor_t yDesc, void* y, bool, void*, size_t) {
  return Call(
      [&] {
        return cudnnPoolingForward(handle->object, poolDesc->object, alpha, xDesc->object, x, beta,
                                   yDesc->object, y);
      },
      handle, poolDesc, xDesc, yDesc);
}
KILN_EXPORT miopenStatus_t miopenPoolingBackward(
    miopenHandle_t handle, const miopenPoolingDescriptor_t poolDesc, const void* alpha,
    const miopenTensorDescriptor_t yDesc, const void* y, const miopenTensorDescriptor_t dyDesc,
    const void* dy, const miopenTensorDescriptor_t xDesc, const void* x, const void* beta,
    const miopenTensorDescriptor_t dxDesc, void* dx, const void*) {
  return Call(
      [&] {
        return cudnnPoolingBackward(handle->object, poolDesc->object, alpha, yDesc->object, y,
                                    dyDesc->object, dy, xDesc->object, x, beta, dxDesc->object, dx);
      },
      handle, poolDesc, yDesc, dyDesc, xDesc, dxDesc);
}

KILN_EXPORT miopenStatus_t miopenCreateLRNDescriptor(miopenLRNDescriptor_t* lrnDesc) {
  return Create(lrnDesc);
}
KILN_EXPORT miopenStatus_t miopenSetLRNDescriptor(const miopenLRNDescriptor_t lrnDesc,
                                                  miopenLRNMode_t mode, unsigned lrnN,
                                                  double lrnAlpha, double lrnBeta, double lrnK) {
  if (!IsBelow(mode, miopenLRNCrossChannel + 1)) return miopenStatusBadParm;
  return Call(
      [&] {
        const cudnnStatus_t status =
            cudnnSetLRNDescriptor(lrnDesc->object, lrnN, lrnAlpha, lrnBeta, lrnK);
        if (status != CUDNN_STATUS_SUCCESS) return status;
        lrnDesc->mode = mode;
        lrnDesc->n = lrnN;
        lrnDesc->alpha = lrnAlpha, lrnDesc->beta = lrnBeta, lrnDesc->k = lrnK;
        return status;
      },
      lrnDesc);
}
KILN_EXPORT miopenStatus_t miopenGetLRNDescriptor(const miopenLRNDescriptor_t lrnDesc,
                                                  miopenLRNMode_t* mode, unsigned* lrnN,
                                                  double* lrnAlpha, double* lrnBeta, double* lrnK) {
  return Call(
      [&] {
        *mode = lrnDesc->mode;
        *lrnN = lrnDesc->n;
        *lrnAlpha = lrnDesc->alpha, *lrnBeta = lrnDesc->beta, *lrnK = lrnDesc->k;
        return miopenStatusSuccess;
      },
      lrnDesc, mode, lrnN, lrnAlpha, lrnBeta, lrnK);
}
KILN_EXPORT miopenStatus_t miopenDestroyLRNDescriptor(miopenLRNDescriptor_t lrnDesc) {
  return Destroy(lrnDesc);
}
KILN_EXPORT miopenStatus_t miopenLRNGetWorkSpaceSize(const miopenTensorDescriptor_t yDesc,
                                                     size_t* workSpaceSize) {
  return Call(
      [&] {
        *workSpaceSize = 2 * ScratchBytes(*yDesc);
        return miopenStatusSuccess;
      },
      yDesc, workSpaceSize);
}
KILN_EXPORT miopenStatus_t miopenLRNForward(miopenHandle_t handle,
                                            const miopenLRNDescriptor_t lrnDesc, const void* alpha,
                                            const miopenTensorDescriptor_t xDesc, const void* x,
                                            const void* beta, const miopenTensorDescriptor_t yDesc,
                                            void* y, bool, void*) {
  return Call(
      [&] {
        if (lrnDesc->mode == miopenLRNCrossChannel)
          return cudnnLRNCrossChannelForward(handle->object, lrnDesc->object,
                                             CUDNN_LRN_CROSS_CHANNEL_DIM1, alpha, xDesc->object, x,
                                             beta, yDesc->object, y);
        // Not in place the scratch is not touched, so that y may stand for it.
        if (x == y) return CUDNN_STATUS_NOT_SUPPORTED;
        return cudnnDivisiveNormalizationForward(
            handle->object, lrnDesc->object, CUDNN_DIVNORM_PRECOMPUTED_MEANS, alpha, xDesc->object,
            x, nullptr, y, y, beta, yDesc->object, y);
      },
      handle, lrnDesc, xDesc, yDesc);
}
KILN_EXPORT miopenStatus_t miopenLRNBackward(
    miopenHandle_t handle, const miopenLRNDescriptor_t lrnDesc, const void* alpha,
    const miopenTensorDescriptor_t yDesc, const void* y, const miopenTensorDescriptor_t dyDesc,
    const void* dy, const miopenTensorDescriptor_t xDesc, const void* x, const void* beta,
    const miopenTensorDescriptor_t dxDesc, void* dx, const void* workspace) {
  return Call(
      [&] {
        if (lrnDesc->mode == miopenLRNCrossChannel)
          return cudnnLRNCrossChannelBackward(
              handle->object, lrnDesc->object, CUDNN_LRN_CROSS_CHANNEL_DIM1, alpha, yDesc->object,
              y, dyDesc->object, dy, xDesc->object, x, beta, dxDesc->object, dx);
        if (workspace == nullptr || !SameShape(xDesc, dyDesc)) return CUDNN_STATUS_BAD_PARAM;
        char* const first = static_cast<char*>(const_cast<void*>(workspace));
        return cudnnDivisiveNormalizationBackward(
            handle->object, lrnDesc->object, CUDNN_DIVNORM_PRECOMPUTED_MEANS, alpha, xDesc->object,
            x, nullptr, dy, first, first + ScratchBytes(*xDesc), beta, dxDesc->object, dx, nullptr);
      },
      handle, lrnDesc, yDesc, dyDesc, xDesc, dxDesc);
}

KILN_EXPORT miopenStatus_t miopenBatchNormalizationForwardTraining(
    miopenHandle_t handle, miopenBatchNormMode_t bn_mode, void* alpha, void* beta,
    const miopenTensorDescriptor_t xDesc, const void* x, const miopenTensorDescriptor_t yDesc,
    void* y, const miopenTensorDescriptor_t bnScaleBiasMeanVarDesc, void* bnScale, void* bnBias,
    double expAvgFactor, void* resultRunningMean, void* resultRunningVariance, double epsilon,
    void* resultSaveMean, void* resultSaveInvVariance) {
  if (!IsBelow(bn_mode, std::size(kNorms))) return miopenStatusBadParm;
  return Call(
      [&] {
        return cudnnBatchNormalizationForwardTraining(
            handle->object, kNorms[bn_mode], alpha, beta, xDesc->object, x, yDesc->object, y,
            bnScaleBiasMeanVarDesc->object, bnScale, bnBias, expAvgFactor, resultRunningMean,
            resultRunningVariance, epsilon, resultSaveMean, resultSaveInvVariance);
      },
      handle, xDesc, yDesc, bnScaleBiasMeanVarDesc);
}
KILN_EXPORT miopenStatus_t miopenBatchNormalizationForwardInference(
    miopenHandle_t handle, miopenBatchNormMode_t bn_mode, void* alpha, void* beta,
    const miopenTensorDescriptor_t xDesc, const void* x, const miopenTensorDescriptor_t yDesc,
    void* y, const miopenTensorDescriptor_t bnScaleBiasMeanVarDesc, void* bnScale, void* bnBias,
    void* estimatedMean, void* estimatedVariance, double epsilon) {
  if (!IsBelow(bn_mode, std::size(kNorms))) return miopenStatusBadParm;
  return Call(
      [&] {
        return cudnnBatchNormalizationForwardInference(
            handle->object, kNorms[bn_mode], alpha, beta, xDesc->object, x, yDesc->object, y,
            bnScaleBiasMeanVarDesc->object, bnScale, bnBias, estimatedMean, estimatedVariance,
            epsilon);
      },
      handle, xDesc, yDesc, bnScaleBiasMeanVarDesc);
}
KILN_EXPORT miopenStatus_t miopenBatchNormalizationBackward(
    miopenHandle_t handle, miopenBatchNormMode_t bn_mode, const void* alphaDataDiff,
    const void* betaDataDiff, const void* alphaParamDiff, const void* betaParamDiff,
    const miopenTensorDescriptor_t xDesc, const void* x, const miopenTensorDescriptor_t dyDesc,
    const void* dy, const miopenTensorDescriptor_t dxDesc, void* dx,
    const miopenTensorDescriptor_t bnScaleBiasDiffDesc, const void* bnScale,
    void* resultBnScaleDiff, void* resultBnBiasDiff, double epsilon, const void* savedMean,
    const void* savedInvVariance) {
  if (!IsBelow(bn_mode, std::size(kNorms))) return miopenStatusBadParm;
  return Call(
      [&] {
        return cudnnBatchNormalizationBackward(
            handle->object, kNorms[bn_mode], alphaDataDiff, betaDataDiff, alphaParamDiff,
            betaParamDiff, xDesc->object, x, dyDesc->object, dy, dxDesc->object, dx,
            bnScaleBiasDiffDesc->object, bnScale, resultBnScaleDiff, resultBnBiasDiff, epsilon,
            savedMean, savedInvVariance);
      },
      handle, xDesc, dyDesc, dxDesc, bnScaleBiasDiffDesc);
}
