/*
 * kiln/cudnn7.h: the names of cuDNN 7 that 8.0 removed, over those that took their place. Include it behind cudnn.h of
 * either generation. cudnnSetRNNDescriptor and cudnnGetRNNDescriptor are not here: Kiln has no recurrent networks.
 */
#ifndef KILN_CUDNN7_H_
#define KILN_CUDNN7_H_

#include <cudnn.h>
#include <stdint.h>

/* What a search may want of the workspace; the limit counts for SPECIFY_WORKSPACE_LIMIT alone. */
typedef enum {
  CUDNN_CONVOLUTION_FWD_NO_WORKSPACE = 0,
  CUDNN_CONVOLUTION_FWD_PREFER_FASTEST = 1,
  CUDNN_CONVOLUTION_FWD_SPECIFY_WORKSPACE_LIMIT = 2,
} cudnnConvolutionFwdPreference_t;

typedef enum {
  CUDNN_CONVOLUTION_BWD_DATA_NO_WORKSPACE = 0,
  CUDNN_CONVOLUTION_BWD_DATA_PREFER_FASTEST = 1,
  CUDNN_CONVOLUTION_BWD_DATA_SPECIFY_WORKSPACE_LIMIT = 2,
} cudnnConvolutionBwdDataPreference_t;

typedef enum {
  CUDNN_CONVOLUTION_BWD_FILTER_NO_WORKSPACE = 0,
  CUDNN_CONVOLUTION_BWD_FILTER_PREFER_FASTEST = 1,
  CUDNN_CONVOLUTION_BWD_FILTER_SPECIFY_WORKSPACE_LIMIT = 2,
} cudnnConvolutionBwdFilterPreference_t;

static inline size_t kiln_workspace_limit(int preference, size_t limit) {
  return preference == 0 ? 0 : preference == 1 ? SIZE_MAX : limit;
}

/* The first algorithm that serves within the limit, of a function that ranks them. */
#define KILN_GET_ALGORITHM(Perf, function, first, second, third, fourth)                         \
  Perf perfs[16];                                                                                \
  int count = 0;                                                                                 \
  const size_t limit = kiln_workspace_limit((int)preference, memoryLimitInBytes);                \
  cudnnStatus_t status;                                                                          \
  if (algo == NULL || (int)preference < 0 || (int)preference > 2) return CUDNN_STATUS_BAD_PARAM; \
  status = function(handle, first, second, third, fourth, 16, &count, perfs);                    \
  if (status != CUDNN_STATUS_SUCCESS) return status;                                             \
  for (int i = 0; i < count; ++i) {                                                              \
    if (perfs[i].status != CUDNN_STATUS_SUCCESS || perfs[i].memory > limit) continue;            \
    *algo = perfs[i].algo;                                                                       \
    return CUDNN_STATUS_SUCCESS;                                                                 \
  }                                                                                              \
  return CUDNN_STATUS_NOT_SUPPORTED

static inline cudnnStatus_t cudnnGetConvolutionForwardAlgorithm(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc, const cudnnFilterDescriptor_t wDesc,
    const cudnnConvolutionDescriptor_t convDesc, const cudnnTensorDescriptor_t yDesc,
    cudnnConvolutionFwdPreference_t preference, size_t memoryLimitInBytes,
    cudnnConvolutionFwdAlgo_t* algo) {
  KILN_GET_ALGORITHM(cudnnConvolutionFwdAlgoPerf_t, cudnnGetConvolutionForwardAlgorithm_v7, xDesc,
                     wDesc, convDesc, yDesc);
}

static inline cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t wDesc, const cudnnTensorDescriptor_t dyDesc,
    const cudnnConvolutionDescriptor_t convDesc, const cudnnTensorDescriptor_t dxDesc,
    cudnnConvolutionBwdDataPreference_t preference, size_t memoryLimitInBytes,
    cudnnConvolutionBwdDataAlgo_t* algo) {
  KILN_GET_ALGORITHM(cudnnConvolutionBwdDataAlgoPerf_t,
                     cudnnGetConvolutionBackwardDataAlgorithm_v7, wDesc, dyDesc, convDesc, dxDesc);
}

static inline cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc, const cudnnTensorDescriptor_t dyDesc,
    const cudnnConvolutionDescriptor_t convDesc, const cudnnFilterDescriptor_t dwDesc,
    cudnnConvolutionBwdFilterPreference_t preference, size_t memoryLimitInBytes,
    cudnnConvolutionBwdFilterAlgo_t* algo) {
  KILN_GET_ALGORITHM(cudnnConvolutionBwdFilterAlgoPerf_t,
                     cudnnGetConvolutionBackwardFilterAlgorithm_v7, xDesc, dyDesc, convDesc,
                     dwDesc);
}

#undef KILN_GET_ALGORITHM

#endif /* KILN_CUDNN7_H_ */
