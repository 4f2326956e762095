// Convolutions of kiln/miopen.h. A transposed convolution's forward is the other's backward data: x
// and y change places.
#include <algorithm>
#include <array>

#include "api/miopen/objects.h"

namespace kiln::miopen {
namespace {

enum class Direction { kForward, kBackwardData, kBackwardWeights };

// A call's tensors as cuDNN has them: y = conv(x, w).
struct Problem {
  Direction direction;
  miopenTensorDescriptor_t x, w, y;
  miopenConvolutionDescriptor_t conv;
};

struct Memory {
  void *x, *w, *y;
};

void SwapEnds(Problem& p, Memory* memory) {
  std::swap(p.x, p.y);
  if (memory != nullptr) std::swap(memory->x, memory->y);
  if (p.direction == Direction::kBackwardWeights) return;
  p.direction = p.direction == Direction::kForward ? Direction::kBackwardData : Direction::kForward;
}
Problem Untransposed(Problem p, Memory* memory = nullptr) {
  if (p.conv->mode == miopenTranspose) SwapEnds(p, memory);
  return p;
}

// Numbers of MIOpen's algorithms (the same in its three enumerations) and of cuDNN's, by direction.
struct AlgorithmRow {
  int miopen;
  int cudnn[3];
};
constexpr int kNone = -1;
constexpr AlgorithmRow kAlgorithms[] = {
    {miopenConvolutionFwdAlgoGEMM, {CUDNN_CONVOLUTION_FWD_ALGO_GEMM, kNone, kNone}},
    {miopenConvolutionFwdAlgoDirect,
     {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
      CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0}},
    {miopenConvolutionFwdAlgoFFT,
     {CUDNN_CONVOLUTION_FWD_ALGO_FFT, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, kNone}},
    {miopenConvolutionFwdAlgoWinograd,
     {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED,
      CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED,
      CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED}},
    {miopenConvolutionFwdAlgoImplicitGEMM,
     {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1,
      CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1}},
};
int CudnnAlgorithm(Direction direction, int algorithm) {
  for (const AlgorithmRow& row : kAlgorithms)
    if (row.miopen == algorithm) return row.cudnn[static_cast<int>(direction)];
  return kNone;
}
int MiopenAlgorithm(Direction direction, int algorithm) {
  for (const AlgorithmRow& row : kAlgorithms)
    if (row.cudnn[static_cast<int>(direction)] == algorithm) return row.miopen;
  return kNone;
}

// Perf has what cuDNN's three kinds of results have in common.
struct Perf {
  int algorithm;
  float time;
  size_t memory;
};
template <class CudnnPerf, class Ask>
cudnnStatus_t Collect(std::vector<Perf>& perfs, Ask&& ask) {
  std::array<CudnnPerf, 16> results;
  int count = 0;
  const cudnnStatus_t status = ask(static_cast<int>(results.size()), &count, results.data());
  for (int i = 0; status == CUDNN_STATUS_SUCCESS && i < count; ++i) {
    if (results[i].status == CUDNN_STATUS_SUCCESS)
      perfs.push_back({static_cast<int>(results[i].algo), results[i].time, results[i].memory});
  }
  return status;
}

// The algorithms that compute it, by the model alone.
cudnnStatus_t Rank(cudnnHandle_t handle, const Problem& p, std::vector<Perf>& perfs) {
  const auto conv = static_cast<cudnnConvolutionDescriptor_t>(p.conv->object);
  switch (p.direction) {
    case Direction::kForward:
      return Collect<cudnnConvolutionFwdAlgoPerf_t>(perfs, [&](auto... to) {
        return cudnnGetConvolutionForwardAlgorithm_v7(handle, p.x->object, p.w->filter, conv,
                                                      p.y->object, to...);
      });
    case Direction::kBackwardData:
      return Collect<cudnnConvolutionBwdDataAlgoPerf_t>(perfs, [&](auto... to) {
        return cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, p.w->filter, p.y->object, conv,
                                                           p.x->object, to...);
      });
    case Direction::kBackwardWeights:
      break;
  }
  return Collect<cudnnConvolutionBwdFilterAlgoPerf_t>(perfs, [&](auto... to) {
    return cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, p.x->object, p.y->object, conv,
                                                         p.w->filter, to...);
  });
}

// The algorithms by the clock, fastest first.
cudnnStatus_t Time(cudnnHandle_t handle, const Problem& p, const Memory& m, void* workspace,
                   size_t bytes, std::vector<Perf>& perfs) {
  const auto conv = static_cast<cudnnConvolutionDescriptor_t>(p.conv->object);
  switch (p.direction) {
    case Direction::kForward:
      return Collect<cudnnConvolutionFwdAlgoPerf_t>(perfs, [&](auto... to) {
        return cudnnFindConvolutionForwardAlgorithmEx(handle, p.x->object, m.x, p.w->filter, m.w,
                                                      conv, p.y->object, m.y, to..., workspace,
                                                      bytes);
      });
    case Direction::kBackwardData:
      return Collect<cudnnConvolutionBwdDataAlgoPerf_t>(perfs, [&](auto... to) {
        return cudnnFindConvolutionBackwardDataAlgorithmEx(handle, p.w->filter, m.w, p.y->object,
                                                           m.y, conv, p.x->object, m.x, to...,
                                                           workspace, bytes);
      });
    case Direction::kBackwardWeights:
      break;
  }
  return Collect<cudnnConvolutionBwdFilterAlgoPerf_t>(perfs, [&](auto... to) {
    return cudnnFindConvolutionBackwardFilterAlgorithmEx(handle, p.x->object, m.x, p.y->object, m.y,
                                                         conv, p.w->filter, m.w, to..., workspace,
                                                         bytes);
  });
}

cudnnStatus_t Compute(cudnnHandle_t handle, const Problem& p, const Memory& m, int algorithm,
                      const void* alpha, const void* beta, void* workspace, size_t bytes) {
  const auto conv = static_cast<cudnnConvolutionDescriptor_t>(p.conv->object);
  switch (p.direction) {
    case Direction::kForward:
      return cudnnConvolutionForward(handle, alpha, p.x->object, m.x, p.w->filter, m.w, conv,
                                     static_cast<cudnnConvolutionFwdAlgo_t>(algorithm), workspace,
                                     bytes, beta, p.y->object, m.y);
    case Direction::kBackwardData:
      return cudnnConvolutionBackwardData(handle, alpha, p.w->filter, m.w, p.y->object, m.y, conv,
                                          static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm),
                                          workspace, bytes, beta, p.x->object, m.x);
    case Direction::kBackwardWeights:
      break;
  }
  return cudnnConvolutionBackwardFilter(handle, alpha, p.x->object, m.x, p.y->object, m.y, conv,
                                        static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm),
                                        workspace, bytes, beta, p.w->filter, m.w);
}

// As much as the algorithm that wants most: then Find may take any.
miopenStatus_t WorkSpaceSize(miopenHandle_t handle, const Problem& problem, size_t* size) {
  return Call(
      [&] {
        std::vector<Perf> perfs;
        const cudnnStatus_t status = Rank(handle->object, Untransposed(problem), perfs);
        if (status != CUDNN_STATUS_SUCCESS) return status;
        *size = 0;
        for (const Perf& perf : perfs) *size = std::max(*size, perf.memory);
        return status;
      },
      handle, problem.x, problem.w, problem.y, problem.conv, size);
}

miopenStatus_t Find(miopenHandle_t handle, const Problem& problem, Memory memory, int requested,
                    int* returned, miopenConvAlgoPerf_t* results, void* workspace, size_t bytes) {
  if (requested < 1) return miopenStatusBadParm;
  return Call(
      [&] {
        const Problem p = Untransposed(problem, &memory);
        std::vector<Perf> perfs;
        const cudnnStatus_t status = Time(handle->object, p, memory, workspace, bytes, perfs);
        if (status != CUDNN_STATUS_SUCCESS) return status;
        *returned = 0;
        for (const Perf& perf : perfs) {
          const int algorithm = MiopenAlgorithm(p.direction, perf.algorithm);
          if (algorithm == kNone || *returned == requested) continue;
          miopenConvAlgoPerf_t& result = results[(*returned)++];
          result.fwd_algo = static_cast<miopenConvFwdAlgorithm_t>(algorithm);
          result.time = perf.time;
          result.memory = perf.memory;
        }
        return status;
      },
      handle, problem.x, problem.w, problem.y, problem.conv, returned, results);
}

miopenStatus_t Run(miopenHandle_t handle, const Problem& problem, Memory memory, int algorithm,
                   const void* alpha, const void* beta, void* workspace, size_t bytes) {
  return Call(
      [&] {
        const Problem p = Untransposed(problem, &memory);
        const int number = CudnnAlgorithm(p.direction, algorithm);
        if (number == kNone) return miopenStatusUnsupportedOp;
        return StatusOf(Compute(handle->object, p, memory, number, alpha, beta, workspace, bytes));
      },
      handle, problem.x, problem.w, problem.y, problem.conv);
}

void* Mutable(const void* memory) { return const_cast<void*>(memory); }

}  // namespace
}  // namespace kiln::miopen

using namespace kiln::miopen;

KILN_EXPORT miopenStatus_t
miopenCreateConvolutionDescriptor(miopenConvolutionDescriptor_t* convDesc) {
  return Create(convDesc);
}
KILN_EXPORT miopenStatus_t miopenInitConvolutionDescriptor(miopenConvolutionDescriptor_t convDesc,
                                                           miopenConvolutionMode_t mode, int pad_h,
                                                           int pad_w, int u, int v, int dilation_h,
                                                           int dilation_w) {
  if (!IsBelow(mode, miopenDepthwise + 1)) return miopenStatusBadParm;
  if (mode > miopenTranspose) return miopenStatusNotImplemented;
  return Call(
      [&] {
        const cudnnStatus_t status =
            cudnnSetConvolution2dDescriptor(convDesc->object, pad_h, pad_w, u, v, dilation_h,
                                            dilation_w, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
        if (status != CUDNN_STATUS_SUCCESS) return status;
        convDesc->mode = mode;
        convDesc->pad[0] = pad_h, convDesc->pad[1] = pad_w;
        convDesc->stride[0] = u, convDesc->stride[1] = v;
        convDesc->dilation[0] = dilation_h, convDesc->dilation[1] = dilation_w;
        return status;
      },
      convDesc);
}
KILN_EXPORT miopenStatus_t miopenGetConvolutionDescriptor(miopenConvolutionDescriptor_t convDesc,
                                                          miopenConvolutionMode_t* mode, int* pad_h,
                                                          int* pad_w, int* u, int* v,
                                                          int* dilation_h, int* dilation_w) {
  return Call(
      [&] {
        *mode = convDesc->mode;
        *pad_h = convDesc->pad[0], *pad_w = convDesc->pad[1];
        *u = convDesc->stride[0], *v = convDesc->stride[1];
        *dilation_h = convDesc->dilation[0], *dilation_w = convDesc->dilation[1];
        return miopenStatusSuccess;
      },
      convDesc, mode, pad_h, pad_w, u, v, dilation_h, dilation_w);
}
KILN_EXPORT miopenStatus_t miopenGetConvolutionForwardOutputDim(
    miopenConvolutionDescriptor_t convDesc, const miopenTensorDescriptor_t inputTensorDesc,
    const miopenTensorDescriptor_t filterDesc, int* n, int* c, int* h, int* w) {
  return Call(
      [&] {
        if (convDesc->mode == miopenConvolution)
          return StatusOf(cudnnGetConvolution2dForwardOutputDim(
              convDesc->object, inputTensorDesc->object, filterDesc->filter, n, c, h, w));
        const auto extent = [&](int d) {
          return (inputTensorDesc->dims[d + 2] - 1) * convDesc->stride[d] - 2 * convDesc->pad[d] +
                 (filterDesc->dims[d + 2] - 1) * convDesc->dilation[d] + 1;
        };
        if (inputTensorDesc->dims[1] != filterDesc->dims[0] || extent(0) < 1 || extent(1) < 1)
          return miopenStatusBadParm;
        *n = inputTensorDesc->dims[0], *c = filterDesc->dims[1];
        *h = extent(0), *w = extent(1);
        return miopenStatusSuccess;
      },
      convDesc, inputTensorDesc, filterDesc, n, c, h, w);
}
KILN_EXPORT miopenStatus_t
miopenDestroyConvolutionDescriptor(miopenConvolutionDescriptor_t convDesc) {
  return Destroy(convDesc);
}

KILN_EXPORT miopenStatus_t miopenConvolutionForwardGetWorkSpaceSize(
    miopenHandle_t handle, const miopenTensorDescriptor_t wDesc,
    const miopenTensorDescriptor_t xDesc, const miopenConvolutionDescriptor_t convDesc,
    const miopenTensorDescriptor_t yDesc, size_t* workSpaceSize) {
  return WorkSpaceSize(handle, {Direction::kForward, xDesc, wDesc, yDesc, convDesc}, workSpaceSize);
}
KILN_EXPORT miopenStatus_t miopenFindConvolutionForwardAlgorithm(
    miopenHandle_t handle, const miopenTensorDescriptor_t xDesc, const void* x,
    const miopenTensorDescriptor_t wDesc, const void* w,
    const miopenConvolutionDescriptor_t convDesc, const miopenTensorDescriptor_t yDesc, void* y,
    const int requestAlgoCount, int* returnedAlgoCount, miopenConvAlgoPerf_t* perfResults,
    void* workSpace, size_t workSpaceSize, bool) {
  return Find(handle, {Direction::kForward, xDesc, wDesc, yDesc, convDesc},
              {Mutable(x), Mutable(w), y}, requestAlgoCount, returnedAlgoCount, perfResults,
              workSpace, workSpaceSize);
}
KILN_EXPORT miopenStatus_t miopenConvolutionForward(
    miopenHandle_t handle, const void* alpha, const miopenTensorDescriptor_t xDesc, const void* x,
    const miopenTensorDescriptor_t wDesc, const void* w,
    const miopenConvolutionDescriptor_t convDesc, miopenConvFwdAlgorithm_t algo, const void* beta,
    const miopenTensorDescriptor_t yDesc, void* y, void* workSpace, size_t workSpaceSize) {
  return Run(handle, {Direction::kForward, xDesc, wDesc, yDesc, convDesc},
             {Mutable(x), Mutable(w), y}, algo, alpha, beta, workSpace, workSpaceSize);
}

KILN_EXPORT miopenStatus_t miopenConvolutionBackwardDataGetWorkSpaceSize(
    miopenHandle_t handle, const miopenTensorDescriptor_t dyDesc,
    const miopenTensorDescriptor_t wDesc, const miopenConvolutionDescriptor_t convDesc,
    const miopenTensorDescriptor_t dxDesc, size_t* workSpaceSize) {
  return WorkSpaceSize(handle, {Direction::kBackwardData, dxDesc, wDesc, dyDesc, convDesc},
                       workSpaceSize);
}
KILN_EXPORT miopenStatus_t miopenFindConvolutionBackwardDataAlgorithm(
    miopenHandle_t handle, const miopenTensorDescriptor_t dyDesc, const void* dy,
    const miopenTensorDescriptor_t wDesc, const void* w,
    const miopenConvolutionDescriptor_t convDesc, const miopenTensorDescriptor_t dxDesc,
    const void* dx, const int requestAlgoCount, int* returnedAlgoCount,
    miopenConvAlgoPerf_t* perfResults, void* workSpace, size_t workSpaceSize, bool) {
  return Find(handle, {Direction::kBackwardData, dxDesc, wDesc, dyDesc, convDesc},
              {Mutable(dx), Mutable(w), Mutable(dy)}, requestAlgoCount, returnedAlgoCount,
              perfResults, workSpace, workSpaceSize);
}
KILN_EXPORT miopenStatus_t miopenConvolutionBackwardData(
    miopenHandle_t handle, const void* alpha, const miopenTensorDescriptor_t dyDesc, const void* dy,
    const miopenTensorDescriptor_t wDesc, const void* w,
    const miopenConvolutionDescriptor_t convDesc, miopenConvBwdDataAlgorithm_t algo,
    const void* beta, const miopenTensorDescriptor_t dxDesc, void* dx, void* workSpace,
    size_t workSpaceSize) {
  return Run(handle, {Direction::kBackwardData, dxDesc, wDesc, dyDesc, convDesc},
             {dx, Mutable(w), Mutable(dy)}, algo, alpha, beta, workSpace, workSpaceSize);
}

KILN_EXPORT miopenStatus_t miopenConvolutionBackwardWeightsGetWorkSpaceSize(
    miopenHandle_t handle, const miopenTensorDescriptor_t dyDesc,
    const miopenTensorDescriptor_t xDesc, const miopenConvolutionDescriptor_t convDesc,
    const miopenTensorDescriptor_t dwDesc, size_t* workSpaceSize) {
  return WorkSpaceSize(handle, {Direction::kBackwardWeights, xDesc, dwDesc, dyDesc, convDesc},
                       workSpaceSize);
}
KILN_EXPORT miopenStatus_t miopenFindConvolutionBackwardWeightsAlgorithm(
    miopenHandle_t handle, const miopenTensorDescriptor_t dyDesc, const void* dy,
    const miopenTensorDescriptor_t xDesc, const void* x,
    const miopenConvolutionDescriptor_t convDesc, const miopenTensorDescriptor_t dwDesc, void* dw,
    const int requestAlgoCount, int* returnedAlgoCount, miopenConvAlgoPerf_t* perfResults,
    void* workSpace, size_t workSpaceSize, bool) {
  return Find(handle, {Direction::kBackwardWeights, xDesc, dwDesc, dyDesc, convDesc},
              {Mutable(x), dw, Mutable(dy)}, requestAlgoCount, returnedAlgoCount, perfResults,
              workSpace, workSpaceSize);
}
KILN_EXPORT miopenStatus_t miopenConvolutionBackwardWeights(
    miopenHandle_t handle, const void* alpha, const miopenTensorDescriptor_t dyDesc, const void* dy,
    const miopenTensorDescriptor_t xDesc, const void* x,
    const miopenConvolutionDescriptor_t convDesc, miopenConvBwdWeightsAlgorithm_t algo,
    const void* beta, const miopenTensorDescriptor_t dwDesc, void* dw, void* workSpace,
    size_t workSpaceSize) {
  return Run(handle, {Direction::kBackwardWeights, xDesc, dwDesc, dyDesc, convDesc},
             {Mutable(x), dw, Mutable(dy)}, algo, alpha, beta, workSpace, workSpaceSize);
}
KILN_EXPORT miopenStatus_t miopenConvolutionBackwardBias(miopenHandle_t handle, const void* alpha,
                                                         const miopenTensorDescriptor_t dyDesc,
                                                         const void* dy, const void* beta,
                                                         const miopenTensorDescriptor_t dbDesc,
                                                         void* db) {
  return Call(
      [&] {
        return cudnnConvolutionBackwardBias(handle->object, alpha, dyDesc->object, dy, beta,
                                            dbDesc->object, db);
      },
      handle, dyDesc, dbDesc);
}
