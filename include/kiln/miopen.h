/*
 * kiln/miopen.h: the MIOpen calls of AMD's porting guide over Kiln, for programs that were written
 * for them: names, numbers and arguments are MIOpen's. Link with libkiln_miopen.so, which stands on
 * libcudnn.so.9. docs/porting.md says for each row of the guide what Kiln does, and what it does
 * otherwise than MIOpen.
 *
 * Memory is the GPU's, through CUDA, or the host's where KILN_DEVICE=cpu. Factors (alpha, beta) are
 * pointers to floats. A handle is for one thread at a time. Of a failed call
 * cudnnGetLastErrorString (cudnn.h) has a sentence.
 */
#ifndef KILN_MIOPEN_H_
#define KILN_MIOPEN_H_

#include <cudnn.h>
#include <stdbool.h>
#include <stddef.h>

#if defined(__cplusplus)
extern "C" {
#endif

typedef enum {
  miopenStatusSuccess = 0,
  miopenStatusNotInitialized = 1,
  miopenStatusInvalidValue = 2,
  miopenStatusBadParm = 3,
  miopenStatusAllocFailed = 4,
  miopenStatusInternalError = 5,
  miopenStatusNotImplemented = 6,
  miopenStatusUnknownError = 7,
  miopenStatusUnsupportedOp = 8,
} miopenStatus_t;

typedef struct miopenHandle* miopenHandle_t;
typedef struct miopenTensorDescriptor* miopenTensorDescriptor_t;
typedef struct miopenConvolutionDescriptor* miopenConvolutionDescriptor_t;
typedef struct miopenPoolingDescriptor* miopenPoolingDescriptor_t;
typedef struct miopenActivationDescriptor* miopenActivationDescriptor_t;
typedef struct miopenLRNDescriptor* miopenLRNDescriptor_t;
typedef cudaStream_t miopenAcceleratorQueue_t;

/* Tensors are of the first two or of bfloat16. */
typedef enum {
  miopenHalf = 0,
  miopenFloat = 1,
  miopenInt32 = 2,
  miopenInt8 = 3,
  miopenInt8x4 = 4,
  miopenBFloat16 = 5,
  miopenDouble = 6,
} miopenDataType_t;

typedef enum {
  miopenTensorOpAdd = 0,
  miopenTensorOpMul = 1,
  miopenTensorOpMin = 2,
  miopenTensorOpMax = 3,
} miopenTensorOp_t;

/* The last two want a number of groups, which no call of the guide sets: not implemented. */
typedef enum {
  miopenConvolution = 0,
  miopenTranspose = 1,
  miopenGroupConv = 2,
  miopenDepthwise = 3,
} miopenConvolutionMode_t;

typedef enum {
  miopenConvolutionFwdAlgoGEMM = 0,
  miopenConvolutionFwdAlgoDirect = 1,
  miopenConvolutionFwdAlgoFFT = 2,
  miopenConvolutionFwdAlgoWinograd = 3,
  miopenConvolutionFwdAlgoImplicitGEMM = 5,
} miopenConvFwdAlgorithm_t;

typedef enum {
  miopenConvolutionBwdWeightsAlgoGEMM = 0,
  miopenConvolutionBwdWeightsAlgoDirect = 1,
  miopenConvolutionBwdWeightsAlgoWinograd = 3,
  miopenConvolutionBwdWeightsAlgoImplicitGEMM = 5,
} miopenConvBwdWeightsAlgorithm_t;

typedef enum {
  miopenConvolutionBwdDataAlgoGEMM = 0,
  miopenConvolutionBwdDataAlgoDirect = 1,
  miopenConvolutionBwdDataAlgoFFT = 2,
  miopenConvolutionBwdDataAlgoWinograd = 3,
  miopenTransposeBwdDataAlgoGEMM = 4,
  miopenConvolutionBwdDataAlgoImplicitGEMM = 5,
} miopenConvBwdDataAlgorithm_t;

/* What Find measured: milliseconds, and bytes of workspace. */
typedef struct {
  union {
    miopenConvFwdAlgorithm_t fwd_algo;
    miopenConvBwdWeightsAlgorithm_t bwd_weights_algo;
    miopenConvBwdDataAlgorithm_t bwd_data_algo;
  };
  float time;
  size_t memory;
} miopenConvAlgoPerf_t;

/* An average without the padding, and with it. */
typedef enum {
  miopenPoolingMax = 0,
  miopenPoolingAverage = 1,
  miopenPoolingAverageInclusive = 2,
} miopenPoolingMode_t;

typedef enum {
  miopenActivationPASTHRU = 0,  /* x */
  miopenActivationLOGISTIC = 1, /* 1 / (1 + e^-x) */
  miopenActivationTANH = 2,     /* beta * tanh(alpha * x) */
  miopenActivationRELU = 3,     /* max(0, x) */
  miopenActivationSOFTRELU = 4, /* log(1 + e^x) */
  miopenActivationABS = 5,      /* |x| */
  miopenActivationPOWER = 6,    /* (alpha + beta * x) ^ power; 0 where the base is not positive */
  miopenActivationCLIPPEDRELU = 7, /* min(alpha, max(0, x)) */
  miopenActivationLEAKYRELU = 8,   /* x, and alpha * x below 0 */
  miopenActivationELU = 9,         /* x, and alpha * (e^x - 1) below 0 */
} miopenActivationMode_t;

/* Windows of N x N places of a channel, or of N channels. */
typedef enum {
  miopenLRNWithinChannel = 0,
  miopenLRNCrossChannel = 1,
} miopenLRNMode_t;

typedef enum {
  miopenBNPerActivation = 0,
  miopenBNSpatial = 1,
} miopenBatchNormMode_t;

/* ---- Handles ---- */
miopenStatus_t miopenCreate(miopenHandle_t* handle);
miopenStatus_t miopenDestroy(miopenHandle_t handle);
miopenStatus_t miopenSetStream(miopenHandle_t handle, miopenAcceleratorQueue_t streamID);
miopenStatus_t miopenGetStream(miopenHandle_t handle, miopenAcceleratorQueue_t* streamID);

/* ---- Tensors and filters: dense, NCHW ---- */
miopenStatus_t miopenCreateTensorDescriptor(miopenTensorDescriptor_t* tensorDesc);
miopenStatus_t miopenSet4dTensorDescriptor(miopenTensorDescriptor_t tensorDesc,
                                           miopenDataType_t dataType, int n, int c, int h, int w);
miopenStatus_t miopenGet4dTensorDescriptor(miopenTensorDescriptor_t tensorDesc,
                                           miopenDataType_t* dataType, int* n, int* c, int* h,
                                           int* w, int* nStride, int* cStride, int* hStride,
                                           int* wStride);
miopenStatus_t miopenDestroyTensorDescriptor(miopenTensorDescriptor_t tensorDesc);
/* C = op(alpha1 * A, alpha2 * B) + beta * C; B's extents are A's, or 1. */
miopenStatus_t miopenOpTensor(miopenHandle_t handle, miopenTensorOp_t tensorOp, const void* alpha1,
                              const miopenTensorDescriptor_t aDesc, const void* A,
                              const void* alpha2, const miopenTensorDescriptor_t bDesc,
                              const void* B, const void* beta, const miopenTensorDescriptor_t cDesc,
                              void* C);
miopenStatus_t miopenSetTensor(miopenHandle_t handle, const miopenTensorDescriptor_t yDesc, void* y,
                               const void* alpha);
miopenStatus_t miopenScaleTensor(miopenHandle_t handle, const miopenTensorDescriptor_t yDesc,
                                 void* y, const void* alpha);

/* ---- Convolution. Find measures on the call's memory, and overwrites the result ---- */
miopenStatus_t miopenCreateConvolutionDescriptor(miopenConvolutionDescriptor_t* convDesc);
miopenStatus_t miopenInitConvolutionDescriptor(miopenConvolutionDescriptor_t convDesc,
                                               miopenConvolutionMode_t mode, int pad_h, int pad_w,
                                               int u, int v, int dilation_h, int dilation_w);
miopenStatus_t miopenGetConvolutionDescriptor(miopenConvolutionDescriptor_t convDesc,
                                              miopenConvolutionMode_t* mode, int* pad_h, int* pad_w,
                                              int* u, int* v, int* dilation_h, int* dilation_w);
miopenStatus_t miopenGetConvolutionForwardOutputDim(miopenConvolutionDescriptor_t convDesc,
                                                    const miopenTensorDescriptor_t inputTensorDesc,
                                                    const miopenTensorDescriptor_t filterDesc,
                                                    int* n, int* c, int* h, int* w);
miopenStatus_t miopenDestroyConvolutionDescriptor(miopenConvolutionDescriptor_t convDesc);

miopenStatus_t miopenConvolutionForwardGetWorkSpaceSize(
    miopenHandle_t handle, const miopenTensorDescriptor_t wDesc,
    const miopenTensorDescriptor_t xDesc, const miopenConvolutionDescriptor_t convDesc,
    const miopenTensorDescriptor_t yDesc, size_t* workSpaceSize);
miopenStatus_t miopenFindConvolutionForwardAlgorithm(
    miopenHandle_t handle, const miopenTensorDescriptor_t xDesc, const void* x,
    const miopenTensorDescriptor_t wDesc, const void* w,
    const miopenConvolutionDescriptor_t convDesc, const miopenTensorDescriptor_t yDesc, void* y,
    const int requestAlgoCount, int* returnedAlgoCount, miopenConvAlgoPerf_t* perfResults,
    void* workSpace, size_t workSpaceSize, bool exhaustiveSearch);
miopenStatus_t miopenConvolutionForward(miopenHandle_t handle, const void* alpha,
                                        const miopenTensorDescriptor_t xDesc, const void* x,
                                        const miopenTensorDescriptor_t wDesc, const void* w,
                                        const miopenConvolutionDescriptor_t convDesc,
                                        miopenConvFwdAlgorithm_t algo, const void* beta,
                                        const miopenTensorDescriptor_t yDesc, void* y,
                                        void* workSpace, size_t workSpaceSize);
/* y = alpha * (y + b) + beta * y, b with one value a channel. */
miopenStatus_t miopenConvolutionForwardBias(miopenHandle_t handle, const void* alpha,
                                            const miopenTensorDescriptor_t bDesc, const void* b,
                                            const void* beta, const miopenTensorDescriptor_t yDesc,
                                            void* y);

miopenStatus_t miopenConvolutionBackwardDataGetWorkSpaceSize(
    miopenHandle_t handle, const miopenTensorDescriptor_t dyDesc,
    const miopenTensorDescriptor_t wDesc, const miopenConvolutionDescriptor_t convDesc,
    const miopenTensorDescriptor_t dxDesc, size_t* workSpaceSize);
miopenStatus_t miopenFindConvolutionBackwardDataAlgorithm(
    miopenHandle_t handle, const miopenTensorDescriptor_t dyDesc, const void* dy,
    const miopenTensorDescriptor_t wDesc, const void* w,
    const miopenConvolutionDescriptor_t convDesc, const miopenTensorDescriptor_t dxDesc,
    const void* dx, const int requestAlgoCount, int* returnedAlgoCount,
    miopenConvAlgoPerf_t* perfResults, void* workSpace, size_t workSpaceSize,
    bool exhaustiveSearch);
miopenStatus_t miopenConvolutionBackwardData(miopenHandle_t handle, const void* alpha,
                                             const miopenTensorDescriptor_t dyDesc, const void* dy,
                                             const miopenTensorDescriptor_t wDesc, const void* w,
                                             const miopenConvolutionDescriptor_t convDesc,
                                             miopenConvBwdDataAlgorithm_t algo, const void* beta,
                                             const miopenTensorDescriptor_t dxDesc, void* dx,
                                             void* workSpace, size_t workSpaceSize);

miopenStatus_t miopenConvolutionBackwardWeightsGetWorkSpaceSize(
    miopenHandle_t handle, const miopenTensorDescriptor_t dyDesc,
    const miopenTensorDescriptor_t xDesc, const miopenConvolutionDescriptor_t convDesc,
    const miopenTensorDescriptor_t dwDesc, size_t* workSpaceSize);
miopenStatus_t miopenFindConvolutionBackwardWeightsAlgorithm(
    miopenHandle_t handle, const miopenTensorDescriptor_t dyDesc, const void* dy,
    const miopenTensorDescriptor_t xDesc, const void* x,
    const miopenConvolutionDescriptor_t convDesc, const miopenTensorDescriptor_t dwDesc, void* dw,
    const int requestAlgoCount, int* returnedAlgoCount, miopenConvAlgoPerf_t* perfResults,
    void* workSpace, size_t workSpaceSize, bool exhaustiveSearch);
miopenStatus_t miopenConvolutionBackwardWeights(
    miopenHandle_t handle, const void* alpha, const miopenTensorDescriptor_t dyDesc, const void* dy,
    const miopenTensorDescriptor_t xDesc, const void* x,
    const miopenConvolutionDescriptor_t convDesc, miopenConvBwdWeightsAlgorithm_t algo,
    const void* beta, const miopenTensorDescriptor_t dwDesc, void* dw, void* workSpace,
    size_t workSpaceSize);
miopenStatus_t miopenConvolutionBackwardBias(miopenHandle_t handle, const void* alpha,
                                             const miopenTensorDescriptor_t dyDesc, const void* dy,
                                             const void* beta,
                                             const miopenTensorDescriptor_t dbDesc, void* db);

/* ---- Softmax over channels ---- */
miopenStatus_t miopenSoftmaxForward(miopenHandle_t handle, const void* alpha,
                                    const miopenTensorDescriptor_t xDesc, const void* x,
                                    const void* beta, const miopenTensorDescriptor_t yDesc,
                                    void* y);
miopenStatus_t miopenSoftmaxBackward(miopenHandle_t handle, const void* alpha,
                                     const miopenTensorDescriptor_t yDesc, const void* y,
                                     const miopenTensorDescriptor_t dyDesc, const void* dy,
                                     const void* beta, const miopenTensorDescriptor_t dxDesc,
                                     void* dx);

/* ---- Pooling. No workspace is needed: its size is 0 ---- */
miopenStatus_t miopenCreatePoolingDescriptor(miopenPoolingDescriptor_t* poolDesc);
miopenStatus_t miopenSet2dPoolingDescriptor(miopenPoolingDescriptor_t poolDesc,
                                            miopenPoolingMode_t mode, int windowHeight,
                                            int windowWidth, int pad_h, int pad_w, int u, int v);
miopenStatus_t miopenGet2dPoolingDescriptor(const miopenPoolingDescriptor_t poolDesc,
                                            miopenPoolingMode_t* mode, int* windowHeight,
                                            int* windowWidth, int* pad_h, int* pad_w, int* u,
                                            int* v);
miopenStatus_t miopenGetPoolingForwardOutputDim(const miopenPoolingDescriptor_t poolDesc,
                                                const miopenTensorDescriptor_t tensorDesc, int* n,
                                                int* c, int* h, int* w);
miopenStatus_t miopenDestroyPoolingDescriptor(miopenPoolingDescriptor_t poolDesc);
miopenStatus_t miopenPoolingGetWorkSpaceSize(const miopenTensorDescriptor_t yDesc,
                                             size_t* workSpaceSize);
miopenStatus_t miopenPoolingForward(miopenHandle_t handle, const miopenPoolingDescriptor_t poolDesc,
                                    const void* alpha, const miopenTensorDescriptor_t xDesc,
                                    const void* x, const void* beta,
                                    const miopenTensorDescriptor_t yDesc, void* y, bool do_backward,
                                    void* workSpace, size_t workSpaceSize);
miopenStatus_t miopenPoolingBackward(miopenHandle_t handle,
                                     const miopenPoolingDescriptor_t poolDesc, const void* alpha,
                                     const miopenTensorDescriptor_t yDesc, const void* y,
                                     const miopenTensorDescriptor_t dyDesc, const void* dy,
                                     const miopenTensorDescriptor_t xDesc, const void* x,
                                     const void* beta, const miopenTensorDescriptor_t dxDesc,
                                     void* dx, const void* workspace);

/* ---- Activation ---- */
miopenStatus_t miopenCreateActivationDescriptor(miopenActivationDescriptor_t* activDesc);
miopenStatus_t miopenSetActivationDescriptor(const miopenActivationDescriptor_t activDesc,
                                             miopenActivationMode_t mode, double activAlpha,
                                             double activBeta, double activPower);
miopenStatus_t miopenGetActivationDescriptor(const miopenActivationDescriptor_t activDesc,
                                             miopenActivationMode_t* mode, double* activAlpha,
                                             double* activBeta, double* activPower);
miopenStatus_t miopenDestroyActivationDescriptor(miopenActivationDescriptor_t activDesc);
miopenStatus_t miopenActivationForward(miopenHandle_t handle,
                                       const miopenActivationDescriptor_t activDesc,
                                       const void* alpha, const miopenTensorDescriptor_t xDesc,
                                       const void* x, const void* beta,
                                       const miopenTensorDescriptor_t yDesc, void* y);
miopenStatus_t miopenActivationBackward(miopenHandle_t handle,
                                        const miopenActivationDescriptor_t activDesc,
                                        const void* alpha, const miopenTensorDescriptor_t yDesc,
                                        const void* y, const miopenTensorDescriptor_t dyDesc,
                                        const void* dy, const miopenTensorDescriptor_t xDesc,
                                        const void* x, const void* beta,
                                        const miopenTensorDescriptor_t dxDesc, void* dx);

/* ---- Local response normalisation. The gradient within channels alone needs the workspace ---- */
miopenStatus_t miopenCreateLRNDescriptor(miopenLRNDescriptor_t* lrnDesc);
miopenStatus_t miopenSetLRNDescriptor(const miopenLRNDescriptor_t lrnDesc, miopenLRNMode_t mode,
                                      unsigned lrnN, double lrnAlpha, double lrnBeta, double lrnK);
miopenStatus_t miopenGetLRNDescriptor(const miopenLRNDescriptor_t lrnDesc, miopenLRNMode_t* mode,
                                      unsigned* lrnN, double* lrnAlpha, double* lrnBeta,
                                      double* lrnK);
miopenStatus_t miopenDestroyLRNDescriptor(miopenLRNDescriptor_t lrnDesc);
miopenStatus_t miopenLRNGetWorkSpaceSize(const miopenTensorDescriptor_t yDesc,
                                         size_t* workSpaceSize);
miopenStatus_t miopenLRNForward(miopenHandle_t handle, const miopenLRNDescriptor_t lrnDesc,
                                const void* alpha, const miopenTensorDescriptor_t xDesc,
                                const void* x, const void* beta,
                                const miopenTensorDescriptor_t yDesc, void* y, bool do_backward,
                                void* workspace);
miopenStatus_t miopenLRNBackward(miopenHandle_t handle, const miopenLRNDescriptor_t lrnDesc,
                                 const void* alpha, const miopenTensorDescriptor_t yDesc,
                                 const void* y, const miopenTensorDescriptor_t dyDesc,
                                 const void* dy, const miopenTensorDescriptor_t xDesc,
                                 const void* x, const void* beta,
                                 const miopenTensorDescriptor_t dxDesc, void* dx,
                                 const void* workspace);

/* ---- Batch normalisation ---- */
miopenStatus_t miopenDeriveBNTensorDescriptor(miopenTensorDescriptor_t derivedBnDesc,
                                              const miopenTensorDescriptor_t xDesc,
                                              miopenBatchNormMode_t bn_mode);
miopenStatus_t miopenBatchNormalizationForwardTraining(
    miopenHandle_t handle, miopenBatchNormMode_t bn_mode, void* alpha, void* beta,
    const miopenTensorDescriptor_t xDesc, const void* x, const miopenTensorDescriptor_t yDesc,
    void* y, const miopenTensorDescriptor_t bnScaleBiasMeanVarDesc, void* bnScale, void* bnBias,
    double expAvgFactor, void* resultRunningMean, void* resultRunningVariance, double epsilon,
    void* resultSaveMean, void* resultSaveInvVariance);
miopenStatus_t miopenBatchNormalizationForwardInference(
    miopenHandle_t handle, miopenBatchNormMode_t bn_mode, void* alpha, void* beta,
    const miopenTensorDescriptor_t xDesc, const void* x, const miopenTensorDescriptor_t yDesc,
    void* y, const miopenTensorDescriptor_t bnScaleBiasMeanVarDesc, void* bnScale, void* bnBias,
    void* estimatedMean, void* estimatedVariance, double epsilon);
miopenStatus_t miopenBatchNormalizationBackward(
    miopenHandle_t handle, miopenBatchNormMode_t bn_mode, const void* alphaDataDiff,
    const void* betaDataDiff, const void* alphaParamDiff, const void* betaParamDiff,
    const miopenTensorDescriptor_t xDesc, const void* x, const miopenTensorDescriptor_t dyDesc,
    const void* dy, const miopenTensorDescriptor_t dxDesc, void* dx,
    const miopenTensorDescriptor_t bnScaleBiasDiffDesc, const void* bnScale,
    void* resultBnScaleDiff, void* resultBnBiasDiff, double epsilon, const void* savedMean,
    const void* savedInvVariance);

#if defined(__cplusplus)
}
#endif

#endif /* KILN_MIOPEN_H_ */
