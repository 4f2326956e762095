// A valid call of each function of the legacy API, and of some in further cases ("elu", the
// activation), for tests that spoil one argument at a time. `Visit` is asked for each whether it
// wants the call, before its arguments are made, and is given it with the function's type.
#pragma once

#include "tests/support/valid_arguments.h"

namespace kiln::testing {

// Makes arguments of the wanted calls alone: a handle takes a second on a GPU. A macro, since a
// name and its type are wanted at once.
#define VALID_CALL(function, named_case, ...) \
  if (visit.Wants(#function, named_case)) visit.template Visit<decltype(function)>(__VA_ARGS__)

template <class Visitor>
void VisitObjects(ValidArguments& a, Visitor& visit) {
  VALID_CALL(cudnnCreate, "", a.Place<cudnnHandle_t>(0));
  VALID_CALL(cudnnCreateActivationDescriptor, "", a.Place<cudnnActivationDescriptor_t>(0));
  VALID_CALL(cudnnCreateConvolutionDescriptor, "", a.Place<cudnnConvolutionDescriptor_t>(0));
  VALID_CALL(cudnnCreateDropoutDescriptor, "", a.Place<cudnnDropoutDescriptor_t>(0));
  VALID_CALL(cudnnCreateFilterDescriptor, "", a.Place<cudnnFilterDescriptor_t>(0));
  VALID_CALL(cudnnCreateFusedOpsConstParamPack, "", a.Place<cudnnFusedOpsConstParamPack_t>(0),
             a.ops);
  VALID_CALL(cudnnCreateFusedOpsPlan, "", a.Place<cudnnFusedOpsPlan_t>(0), a.ops);
  VALID_CALL(cudnnCreateFusedOpsVariantParamPack, "", a.Place<cudnnFusedOpsVariantParamPack_t>(0),
             a.ops);
  VALID_CALL(cudnnCreateLRNDescriptor, "", a.Place<cudnnLRNDescriptor_t>(0));
  VALID_CALL(cudnnCreateOpTensorDescriptor, "", a.Place<cudnnOpTensorDescriptor_t>(0));
  VALID_CALL(cudnnCreatePoolingDescriptor, "", a.Place<cudnnPoolingDescriptor_t>(0));
  VALID_CALL(cudnnCreateReduceTensorDescriptor, "", a.Place<cudnnReduceTensorDescriptor_t>(0));
  VALID_CALL(cudnnCreateSpatialTransformerDescriptor, "",
             a.Place<cudnnSpatialTransformerDescriptor_t>(0));
  VALID_CALL(cudnnCreateTensorDescriptor, "", a.Place<cudnnTensorDescriptor_t>(0));
  VALID_CALL(cudnnCreateTensorTransformDescriptor, "",
             a.Place<cudnnTensorTransformDescriptor_t>(0));
  VALID_CALL(cudnnDestroy, "", a.NewHandle());
  VALID_CALL(cudnnDestroyActivationDescriptor, "",
             a.NewUnowned<cudnnActivationDescriptor_t>("ActivationDescriptor"));
  VALID_CALL(cudnnDestroyConvolutionDescriptor, "",
             a.NewUnowned<cudnnConvolutionDescriptor_t>("ConvolutionDescriptor"));
  VALID_CALL(cudnnDestroyDropoutDescriptor, "",
             a.NewUnowned<cudnnDropoutDescriptor_t>("DropoutDescriptor"));
  VALID_CALL(cudnnDestroyFilterDescriptor, "",
             a.NewUnowned<cudnnFilterDescriptor_t>("FilterDescriptor"));
  VALID_CALL(cudnnDestroyFusedOpsConstParamPack, "",
             a.NewFused<cudnnFusedOpsConstParamPack_t>("FusedOpsConstParamPack"));
  VALID_CALL(cudnnDestroyFusedOpsPlan, "", a.NewFused<cudnnFusedOpsPlan_t>("FusedOpsPlan"));
  VALID_CALL(cudnnDestroyFusedOpsVariantParamPack, "",
             a.NewFused<cudnnFusedOpsVariantParamPack_t>("FusedOpsVariantParamPack"));
  VALID_CALL(cudnnDestroyLRNDescriptor, "", a.NewUnowned<cudnnLRNDescriptor_t>("LRNDescriptor"));
  VALID_CALL(cudnnDestroyOpTensorDescriptor, "",
             a.NewUnowned<cudnnOpTensorDescriptor_t>("OpTensorDescriptor"));
  VALID_CALL(cudnnDestroyPoolingDescriptor, "",
             a.NewUnowned<cudnnPoolingDescriptor_t>("PoolingDescriptor"));
  VALID_CALL(cudnnDestroyReduceTensorDescriptor, "",
             a.NewUnowned<cudnnReduceTensorDescriptor_t>("ReduceTensorDescriptor"));
  VALID_CALL(cudnnDestroySpatialTransformerDescriptor, "",
             a.NewUnowned<cudnnSpatialTransformerDescriptor_t>("SpatialTransformerDescriptor"));
  VALID_CALL(cudnnDestroyTensorDescriptor, "",
             a.NewUnowned<cudnnTensorDescriptor_t>("TensorDescriptor"));
  VALID_CALL(cudnnDestroyTensorTransformDescriptor, "",
             a.NewUnowned<cudnnTensorTransformDescriptor_t>("TensorTransformDescriptor"));
}

template <class Visitor>
void VisitSettersA(ValidArguments& a, Visitor& visit) {
  VALID_CALL(cudnnRestoreDropoutDescriptor, "", a.other_dropout, a.handle(), 0.5, a.Device(0),
             a.states_bytes, 7);
  VALID_CALL(cudnnSetActivationDescriptor, "", a.other_activation, CUDNN_ACTIVATION_RELU,
             CUDNN_NOT_PROPAGATE_NAN, 0.5);
  VALID_CALL(cudnnSetActivationDescriptorSwishBeta, "", a.other_activation, 0.5);
  VALID_CALL(cudnnSetConvolution2dDescriptor, "", a.other_conv, 1, 1, 1, 1, 1, 1,
             CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
  VALID_CALL(cudnnSetConvolutionGroupCount, "", a.other_conv, 1);
  VALID_CALL(cudnnSetConvolutionMathType, "", a.other_conv, CUDNN_DEFAULT_MATH);
  VALID_CALL(cudnnSetConvolutionNdDescriptor, "", a.other_conv, 2, a.ones, a.ones, a.ones,
             CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
  VALID_CALL(cudnnSetDropoutDescriptor, "", a.other_dropout, a.handle(), 0.5, a.Device(0),
             a.states_bytes, 7);
  VALID_CALL(cudnnSetFilter4dDescriptor, "", a.other_w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 16, 8,
             3, 3);
  VALID_CALL(cudnnSetFilterNdDescriptor, "", a.other_w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 4,
             a.w_dims);
  VALID_CALL(cudnnSetLRNDescriptor, "", a.other_lrn, 5, 1e-4, 0.75, 2);
  VALID_CALL(cudnnSetOpTensorDescriptor, "", a.other_add, CUDNN_OP_TENSOR_ADD, CUDNN_DATA_FLOAT,
             CUDNN_NOT_PROPAGATE_NAN);
  VALID_CALL(cudnnSetPooling2dDescriptor, "", a.other_pool, CUDNN_POOLING_MAX,
             CUDNN_NOT_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2);
  VALID_CALL(cudnnSetPoolingNdDescriptor, "", a.other_pool, CUDNN_POOLING_MAX,
             CUDNN_NOT_PROPAGATE_NAN, 2, a.twos, a.zeros, a.twos);
}

template <class Visitor>
void VisitSettersB(ValidArguments& a, Visitor& visit) {
  VALID_CALL(cudnnSetReduceTensorDescriptor, "", a.other_sum, CUDNN_REDUCE_TENSOR_ADD,
             CUDNN_DATA_FLOAT, CUDNN_NOT_PROPAGATE_NAN, CUDNN_REDUCE_TENSOR_NO_INDICES,
             CUDNN_32BIT_INDICES);
  VALID_CALL(cudnnSetSpatialTransformerNdDescriptor, "", a.other_grid, CUDNN_SAMPLER_BILINEAR,
             CUDNN_DATA_FLOAT, 4, a.x_dims);
  VALID_CALL(cudnnSetTensor4dDescriptor, "", a.other, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 8, 16,
             16);
  VALID_CALL(cudnnSetTensor4dDescriptorEx, "", a.other, CUDNN_DATA_FLOAT, 2, 8, 16, 16, 2048, 256,
             16, 1);
  VALID_CALL(cudnnSetTensorNdDescriptor, "", a.other, CUDNN_DATA_FLOAT, 4, a.x_dims, a.x_strides);
  VALID_CALL(cudnnSetTensorNdDescriptorEx, "", a.other, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 4,
             a.x_dims);
  VALID_CALL(cudnnSetTensorTransformDescriptor, "", a.transforms[0], 4, CUDNN_TENSOR_NCHW, a.zeros,
             a.zeros, a.folds, CUDNN_TRANSFORM_FOLD);
}

template <class Visitor>
void VisitGettersA(ValidArguments& a, Visitor& visit) {
  VALID_CALL(cudnnGetActivationDescriptor, "", a.activations[CUDNN_ACTIVATION_RELU],
             a.Place<cudnnActivationMode_t>(0), a.Place<cudnnNanPropagation_t>(1),
             a.Place<double>(2));
  VALID_CALL(cudnnGetActivationDescriptorSwishBeta, "", a.activations[CUDNN_ACTIVATION_RELU],
             a.Place<double>(0));
  VALID_CALL(cudnnGetCallback, "", a.Place<unsigned int>(0), a.Place<void*>(1),
             a.Place<cudnnCallback_t>(2));
  VALID_CALL(cudnnGetConvolution2dDescriptor, "", a.conv, a.Place<int>(0), a.Place<int>(1),
             a.Place<int>(2), a.Place<int>(3), a.Place<int>(4), a.Place<int>(5),
             a.Place<cudnnConvolutionMode_t>(6), a.Place<cudnnDataType_t>(7));
  VALID_CALL(cudnnGetConvolution2dForwardOutputDim, "", a.conv, a.x, a.w, a.Place<int>(0),
             a.Place<int>(1), a.Place<int>(2), a.Place<int>(3));
  VALID_CALL(cudnnGetConvolutionGroupCount, "", a.conv, a.Place<int>(0));
  VALID_CALL(cudnnGetConvolutionMathType, "", a.conv, a.Place<cudnnMathType_t>(0));
  VALID_CALL(cudnnGetConvolutionNdDescriptor, "", a.conv, 2, a.Place<int>(0), a.Place<int>(1),
             a.Place<int>(2), a.Place<int>(3), a.Place<cudnnConvolutionMode_t>(4),
             a.Place<cudnnDataType_t>(5));
  VALID_CALL(cudnnGetConvolutionNdForwardOutputDim, "", a.conv, a.x, a.w, 4, a.Place<int>(0));
  VALID_CALL(cudnnGetDropoutDescriptor, "", a.dropout, a.handle(), a.Place<float>(0),
             a.Place<void*>(1), a.Place<unsigned long long>(2));
  VALID_CALL(cudnnGetFilter4dDescriptor, "", a.w, a.Place<cudnnDataType_t>(0),
             a.Place<cudnnTensorFormat_t>(1), a.Place<int>(2), a.Place<int>(3), a.Place<int>(4),
             a.Place<int>(5));
  VALID_CALL(cudnnGetFilterNdDescriptor, "", a.w, 4, a.Place<cudnnDataType_t>(0),
             a.Place<cudnnTensorFormat_t>(1), a.Place<int>(2), a.Place<int>(3));
  VALID_CALL(cudnnGetFilterSizeInBytes, "", a.w, a.Place<size_t>(0));
  VALID_CALL(cudnnGetLRNDescriptor, "", a.lrn, a.Place<unsigned int>(0), a.Place<double>(1),
             a.Place<double>(2), a.Place<double>(3));
}

template <class Visitor>
void VisitGettersB(ValidArguments& a, Visitor& visit) {
  VALID_CALL(cudnnGetOpTensorDescriptor, "", a.add, a.Place<cudnnOpTensorOp_t>(0),
             a.Place<cudnnDataType_t>(1), a.Place<cudnnNanPropagation_t>(2));
  VALID_CALL(cudnnGetPooling2dDescriptor, "", a.poolings[CUDNN_POOLING_MAX],
             a.Place<cudnnPoolingMode_t>(0), a.Place<cudnnNanPropagation_t>(1), a.Place<int>(2),
             a.Place<int>(3), a.Place<int>(4), a.Place<int>(5), a.Place<int>(6), a.Place<int>(7));
  VALID_CALL(cudnnGetPooling2dForwardOutputDim, "", a.poolings[CUDNN_POOLING_MAX], a.x,
             a.Place<int>(0), a.Place<int>(1), a.Place<int>(2), a.Place<int>(3));
  VALID_CALL(cudnnGetPoolingNdDescriptor, "", a.poolings[CUDNN_POOLING_MAX], 2,
             a.Place<cudnnPoolingMode_t>(0), a.Place<cudnnNanPropagation_t>(1), a.Place<int>(2),
             a.Place<int>(3), a.Place<int>(4), a.Place<int>(5));
  VALID_CALL(cudnnGetPoolingNdForwardOutputDim, "", a.poolings[CUDNN_POOLING_MAX], a.x, 4,
             a.Place<int>(0));
  VALID_CALL(cudnnGetProperty, "", MAJOR_VERSION, a.Place<int>(0));
  VALID_CALL(cudnnGetReduceTensorDescriptor, "", a.sum, a.Place<cudnnReduceTensorOp_t>(0),
             a.Place<cudnnDataType_t>(1), a.Place<cudnnNanPropagation_t>(2),
             a.Place<cudnnReduceTensorIndices_t>(3), a.Place<cudnnIndicesType_t>(4));
  VALID_CALL(cudnnGetReductionIndicesSize, "", a.handle(), a.sum, a.x, a.summed,
             a.Place<size_t>(0));
  VALID_CALL(cudnnGetReductionWorkspaceSize, "", a.handle(), a.sum, a.x, a.summed,
             a.Place<size_t>(0));
  VALID_CALL(cudnnGetStream, "", a.handle(), a.Place<cudaStream_t>(0));
  VALID_CALL(cudnnGetTensor4dDescriptor, "", a.x, a.Place<cudnnDataType_t>(0), a.Place<int>(1),
             a.Place<int>(2), a.Place<int>(3), a.Place<int>(4), a.Place<int>(5), a.Place<int>(6),
             a.Place<int>(7), a.Place<int>(8));
  VALID_CALL(cudnnGetTensorNdDescriptor, "", a.x, 4, a.Place<cudnnDataType_t>(0), a.Place<int>(1),
             a.Place<int>(2), a.Place<int>(3));
  VALID_CALL(cudnnGetTensorSizeInBytes, "", a.x, a.Place<size_t>(0));
  VALID_CALL(cudnnGetTensorTransformDescriptor, "", a.transform, 4, a.Place<cudnnTensorFormat_t>(0),
             a.Place<int32_t>(1), a.Place<int32_t>(2), a.Place<uint32_t>(3),
             a.Place<cudnnFoldingDirection_t>(4));
}

template <class Visitor>
void VisitAlgorithmsA(ValidArguments& a, Visitor& visit) {
  VALID_CALL(cudnnFindConvolutionBackwardDataAlgorithm, "", a.handle(), a.w, a.y, a.conv, a.x, 4,
             a.Place<int>(0), a.Place<cudnnConvolutionBwdDataAlgoPerf_t>(1));
  VALID_CALL(cudnnFindConvolutionBackwardDataAlgorithmEx, "", a.handle(), a.w, a.Device(0), a.y,
             a.Device(1), a.conv, a.x, a.Device(2), 4, a.Place<int>(0),
             a.Place<cudnnConvolutionBwdDataAlgoPerf_t>(1), a.Device(3), a.kBytes);
  VALID_CALL(cudnnFindConvolutionBackwardFilterAlgorithm, "", a.handle(), a.x, a.y, a.conv, a.w, 4,
             a.Place<int>(0), a.Place<cudnnConvolutionBwdFilterAlgoPerf_t>(1));
  VALID_CALL(cudnnFindConvolutionBackwardFilterAlgorithmEx, "", a.handle(), a.x, a.Device(0), a.y,
             a.Device(1), a.conv, a.w, a.Device(2), 4, a.Place<int>(0),
             a.Place<cudnnConvolutionBwdFilterAlgoPerf_t>(1), a.Device(3), a.kBytes);
  VALID_CALL(cudnnFindConvolutionForwardAlgorithm, "", a.handle(), a.x, a.w, a.conv, a.y, 4,
             a.Place<int>(0), a.Place<cudnnConvolutionFwdAlgoPerf_t>(1));
  VALID_CALL(cudnnFindConvolutionForwardAlgorithmEx, "", a.handle(), a.x, a.Device(0), a.w,
             a.Device(1), a.conv, a.y, a.Device(2), 4, a.Place<int>(0),
             a.Place<cudnnConvolutionFwdAlgoPerf_t>(1), a.Device(3), a.kBytes);
  VALID_CALL(cudnnGetConvolutionBackwardDataAlgorithmMaxCount, "", a.handle(), a.Place<int>(0));
  VALID_CALL(cudnnGetConvolutionBackwardDataAlgorithm_v7, "", a.handle(), a.w, a.y, a.conv, a.x, 4,
             a.Place<int>(0), a.Place<cudnnConvolutionBwdDataAlgoPerf_t>(1));
  VALID_CALL(cudnnGetConvolutionBackwardDataWorkspaceSize, "", a.handle(), a.w, a.y, a.conv, a.x,
             CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, a.Place<size_t>(0));
  VALID_CALL(cudnnGetConvolutionBackwardFilterAlgorithmMaxCount, "", a.handle(), a.Place<int>(0));
  VALID_CALL(cudnnGetConvolutionBackwardFilterAlgorithm_v7, "", a.handle(), a.x, a.y, a.conv, a.w,
             4, a.Place<int>(0), a.Place<cudnnConvolutionBwdFilterAlgoPerf_t>(1));
  VALID_CALL(cudnnGetConvolutionBackwardFilterWorkspaceSize, "", a.handle(), a.x, a.y, a.conv, a.w,
             CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, a.Place<size_t>(0));
  VALID_CALL(cudnnGetConvolutionForwardAlgorithmMaxCount, "", a.handle(), a.Place<int>(0));
  VALID_CALL(cudnnGetConvolutionForwardAlgorithm_v7, "", a.handle(), a.x, a.w, a.conv, a.y, 4,
             a.Place<int>(0), a.Place<cudnnConvolutionFwdAlgoPerf_t>(1));
}

template <class Visitor>
void VisitAlgorithmsB(ValidArguments& a, Visitor& visit) {
  VALID_CALL(cudnnGetConvolutionForwardWorkspaceSize, "", a.handle(), a.x, a.w, a.conv, a.y,
             CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, a.Place<size_t>(0));
}

template <class Visitor>
void VisitRewriting(ValidArguments& a, Visitor& visit) {
  VALID_CALL(cudnnFusedOpsExecute, "", a.handle(), a.plan, a.variant_pack);
  VALID_CALL(cudnnGetConvolutionReorderType, "", a.conv, a.Place<cudnnReorderType_t>(0));
  VALID_CALL(cudnnGetFoldedConvBackwardDataDescriptors, "", a.handle(), a.w, a.y, a.conv, a.x,
             CUDNN_TENSOR_NCHW, a.other_w, a.other, a.other_conv, a.another, a.transforms[0],
             a.transforms[1], a.transforms[2], a.transforms[3]);
  VALID_CALL(cudnnGetFusedOpsConstParamPackAttribute, "", a.const_pack, CUDNN_PARAM_XDESC, a.other,
             a.Place<int>(0));
  VALID_CALL(cudnnGetFusedOpsVariantParamPackAttribute, "", a.variant_pack, CUDNN_PTR_XDATA,
             a.Place<void>(0));
  VALID_CALL(cudnnIm2Col, "", a.handle(), a.x, a.Device(0), a.w, a.conv, a.Device(1));
  VALID_CALL(cudnnMakeFusedOpsPlan, "", a.handle(), a.plan, a.const_pack, a.Place<size_t>(0));
  VALID_CALL(cudnnReorderFilterAndBias, "", a.handle(), a.w32, CUDNN_DEFAULT_REORDER, a.Device(0),
             a.Device(1), 1, a.Device(2), a.Device(3));
  VALID_CALL(cudnnSetConvolutionReorderType, "", a.other_conv, CUDNN_DEFAULT_REORDER);
  VALID_CALL(cudnnSetFusedOpsConstParamPackAttribute, "", a.const_pack, CUDNN_PARAM_XDESC, a.x);
  VALID_CALL(cudnnSetFusedOpsVariantParamPackAttribute, "", a.variant_pack, CUDNN_PTR_XDATA,
             a.Device(0));
  VALID_CALL(cudnnReorderFilterAndBias, "nobias", a.handle(), a.w32, CUDNN_DEFAULT_REORDER,
             a.Device(0), a.Device(1), 0, a.Device(2), a.Device(3));
}

#if CUDNN_MAJOR == 9
template <class Visitor>
void VisitSequences(ValidArguments& a, Visitor& visit) {
  VALID_CALL(cudnnCausalConv1dBackward, "", nullptr, a.Device(0), a.Device(1), a.Device(2),
             a.Device(3), a.Device(4), a.Device(5), a.Device(6), 2, 3, 5, 4, CUDNN_DATA_FLOAT,
             CUDNN_DATA_FLOAT, CUDNN_CAUSAL_CONV1D_ACTIVATION_SILU);
  VALID_CALL(cudnnCausalConv1dForward, "", nullptr, a.Device(0), a.Device(1), a.Device(2),
             a.Device(3), 2, 3, 5, 4, CUDNN_DATA_FLOAT, CUDNN_CAUSAL_CONV1D_ACTIVATION_SILU);
  VALID_CALL(cudnnCausalConv1dNwhBackward, "", nullptr, a.Device(0), a.Device(1), a.Device(2),
             a.Device(3), a.Device(4), a.Device(5), a.Device(6), 2, 3, 5, 4, CUDNN_DATA_FLOAT,
             CUDNN_DATA_FLOAT, CUDNN_CAUSAL_CONV1D_ACTIVATION_SILU);
  VALID_CALL(cudnnCausalConv1dNwhForward, "", nullptr, a.Device(0), a.Device(1), a.Device(2),
             a.Device(3), 2, 3, 5, 4, CUDNN_DATA_FLOAT, CUDNN_CAUSAL_CONV1D_ACTIVATION_SILU);
}

template <class Visitor>
void VisitLongSequences(ValidArguments& a, Visitor& visit) {
  VALID_CALL(cudnnB2BCausalConv1dBackward, "", nullptr, a.Device(0), a.Device(1), a.Device(2),
             a.Device(3), a.Device(4), a.Device(5), a.Device(6), a.Device(7), a.Device(8),
             a.Device(9), 2, 3, 5, 4, 4, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT);
  VALID_CALL(cudnnB2BCausalConv1dForward, "", nullptr, a.Device(0), a.Device(1), a.Device(2),
             a.Device(3), a.Device(4), a.Device(5), 2, 3, 5, 4, 4, CUDNN_DATA_FLOAT);
  VALID_CALL(cudnnFFTCausalConv1dBackward, "", nullptr, a.Device(0), a.Device(1), a.Device(2),
             a.Device(3), a.Device(4), 1, 2, 128, 128, CUDNN_DATA_FLOAT);
  VALID_CALL(cudnnFFTCausalConv1dForward, "", nullptr, a.Device(0), a.Device(1), a.Device(2), 1, 2,
             128, 128, CUDNN_DATA_FLOAT);
  VALID_CALL(cudnnLongFFTCausalConv1dBackward, "", nullptr, a.Device(0), a.Device(1), a.Device(2),
             1, 1, 4096, 4096, CUDNN_DATA_FLOAT, a.Device(3), a.kBytes, a.Device(4), a.kBytes);
  VALID_CALL(cudnnLongFFTCausalConv1dForward, "", nullptr, a.Device(0), a.Device(1), a.Device(2), 1,
             1, 4096, 4096, CUDNN_DATA_FLOAT, a.Device(3), a.kBytes, a.Device(4), a.kBytes);
  VALID_CALL(cudnnLongFFTCausalConv1dGetBufferSizes, "", 1, 1, 4096, 4096, CUDNN_DATA_FLOAT,
             a.Place<size_t>(0), a.Place<size_t>(1));
}

// Three nodes into two, without edges but for the memory of five.
template <class Visitor>
void VisitGraphs(ValidArguments& a, Visitor& visit) {
  cudnnGnnCscGraph_t graph = {};
  graph.cscOffsets = a.Device(0);
  graph.cscIndices = a.Device(1);
  graph.mapCscToCoo = a.Device(2);
  graph.mapRevToCoo = a.Device(3);
  graph.cscRevOffsets = a.Device(4);
  graph.nSrcNodes = 3;
  graph.nDstNodes = 2;
  graph.nIndices = 5;
  graph.idxType = CUDNN_DATA_INT32;
  const cudnnGnnCscGraph_t* const g = &graph;
  const cudnnGnnMhaParams_t heads = {CUDNN_GNN_ACT_LEAKY_RELU, 0.2f, 2, 1};
  const cudnnGnnMhaParams_t* const params = &heads;
  const auto floats = [&](size_t i) { return static_cast<const float*>(a.Device(i)); };
  VALID_CALL(cudnnGnnAggSimpleBackward, "", nullptr, g, a.Device(5), a.Device(6), a.Device(7),
             a.Device(8), a.Device(9), 4, 3, 2, CUDNN_DATA_FLOAT, CUDNN_GNN_AGG_MAX);
  VALID_CALL(cudnnGnnAggSimpleForward, "", nullptr, g, a.Device(5), a.Device(6), a.Device(7),
             a.Device(8), a.Device(9), 4, 3, 2, CUDNN_DATA_FLOAT, CUDNN_GNN_AGG_MAX);
  VALID_CALL(cudnnGnnMhaGatBackward, "", nullptr, g, a.Device(5), a.Device(6), a.Device(6),
             a.Device(7), a.Device(8), a.Device(9), floats(9), floats(9), a.Device(10),
             a.Device(11), a.Device(12), a.Device(13), a.Device(14), a.Device(15), a.Device(15), 4,
             2, params, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT);
  VALID_CALL(cudnnGnnMhaGatForward, "", nullptr, g, a.Device(5), a.Device(6), a.Device(7),
             a.Device(8), floats(9), a.Device(10), a.Device(11), 4, 2, params, CUDNN_DATA_FLOAT);
  VALID_CALL(cudnnGnnMhaGatV2Backward, "", nullptr, g, a.Device(5), a.Device(6), a.Device(6),
             a.Device(7), a.Device(8), a.Device(9), a.Device(9), floats(9), floats(9), a.Device(10),
             a.Device(11), a.Device(12), a.Device(13), a.Device(14), a.Device(15), a.Device(15), 4,
             params, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT);
  VALID_CALL(cudnnGnnMhaGatV2Forward, "", nullptr, g, a.Device(5), a.Device(6), a.Device(7),
             a.Device(8), floats(9), a.Device(10), a.Device(11), a.Device(12), 4, params,
             CUDNN_DATA_FLOAT);
}
#endif

template <class Visitor>
void VisitNormSizes(ValidArguments& a, Visitor& visit) {
  VALID_CALL(cudnnGetBatchNormalizationBackwardExWorkspaceSize, "", a.handle(),
             CUDNN_BATCHNORM_SPATIAL, CUDNN_BATCHNORM_OPS_BN, a.x, a.x, a.x, a.x, a.x, a.channels,
             a.activations[CUDNN_ACTIVATION_RELU], a.Place<size_t>(0));
  VALID_CALL(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize, "", a.handle(),
             CUDNN_BATCHNORM_SPATIAL, CUDNN_BATCHNORM_OPS_BN, a.x, a.x, a.x, a.channels,
             a.activations[CUDNN_ACTIVATION_RELU], a.Place<size_t>(0));
  VALID_CALL(cudnnGetBatchNormalizationTrainingExReserveSpaceSize, "", a.handle(),
             CUDNN_BATCHNORM_SPATIAL, CUDNN_BATCHNORM_OPS_BN, a.activations[CUDNN_ACTIVATION_RELU],
             a.x, a.Place<size_t>(0));
  VALID_CALL(cudnnGetNormalizationBackwardWorkspaceSize, "", a.handle(), CUDNN_NORM_PER_CHANNEL,
             CUDNN_NORM_OPS_NORM, CUDNN_NORM_ALGO_STANDARD, a.x, a.x, a.x, a.x, a.x, a.channels,
             a.activations[CUDNN_ACTIVATION_RELU], a.channels, a.Place<size_t>(0), 1);
  VALID_CALL(cudnnGetNormalizationForwardTrainingWorkspaceSize, "", a.handle(),
             CUDNN_NORM_PER_CHANNEL, CUDNN_NORM_OPS_NORM, CUDNN_NORM_ALGO_STANDARD, a.x, a.x, a.x,
             a.channels, a.activations[CUDNN_ACTIVATION_RELU], a.channels, a.Place<size_t>(0), 1);
  VALID_CALL(cudnnGetNormalizationTrainingReserveSpaceSize, "", a.handle(), CUDNN_NORM_PER_CHANNEL,
             CUDNN_NORM_OPS_NORM, CUDNN_NORM_ALGO_STANDARD, a.activations[CUDNN_ACTIVATION_RELU],
             a.x, a.Place<size_t>(0), 1);
  VALID_CALL(cudnnGetBatchNormalizationBackwardExWorkspaceSize, "act", a.handle(),
             CUDNN_BATCHNORM_SPATIAL_PERSISTENT, CUDNN_BATCHNORM_OPS_BN_ACTIVATION, a.half, a.half,
             a.half, a.half, a.half, a.channels, a.activations[CUDNN_ACTIVATION_RELU],
             a.Place<size_t>(0));
  VALID_CALL(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize, "act", a.handle(),
             CUDNN_BATCHNORM_SPATIAL_PERSISTENT, CUDNN_BATCHNORM_OPS_BN_ACTIVATION, a.half, a.half,
             a.half, a.channels, a.activations[CUDNN_ACTIVATION_RELU], a.Place<size_t>(0));
  VALID_CALL(cudnnGetBatchNormalizationTrainingExReserveSpaceSize, "act", a.handle(),
             CUDNN_BATCHNORM_SPATIAL_PERSISTENT, CUDNN_BATCHNORM_OPS_BN_ACTIVATION,
             a.activations[CUDNN_ACTIVATION_RELU], a.half, a.Place<size_t>(0));
  VALID_CALL(cudnnGetBatchNormalizationBackwardExWorkspaceSize, "add", a.handle(),
             CUDNN_BATCHNORM_SPATIAL_PERSISTENT, CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION, a.half,
             a.half, a.half, a.half, a.half, a.channels, a.activations[CUDNN_ACTIVATION_RELU],
             a.Place<size_t>(0));
  VALID_CALL(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize, "add", a.handle(),
             CUDNN_BATCHNORM_SPATIAL_PERSISTENT, CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION, a.half,
             a.half, a.half, a.channels, a.activations[CUDNN_ACTIVATION_RELU], a.Place<size_t>(0));
  VALID_CALL(cudnnGetBatchNormalizationTrainingExReserveSpaceSize, "add", a.handle(),
             CUDNN_BATCHNORM_SPATIAL_PERSISTENT, CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION,
             a.activations[CUDNN_ACTIVATION_RELU], a.half, a.Place<size_t>(0));
}

template <class Visitor>
void VisitNormsA(ValidArguments& a, Visitor& visit) {
  VALID_CALL(cudnnBatchNormalizationBackward, "", a.handle(), CUDNN_BATCHNORM_SPATIAL, &a.one,
             &a.zero, &a.one, &a.zero, a.x, a.Device(0), a.x, a.Device(1), a.x, a.Device(2),
             a.channels, a.Device(3), a.Device(4), a.Device(5), 1e-3, a.Device(6), a.Device(7));
  VALID_CALL(cudnnBatchNormalizationBackwardEx, "", a.handle(), CUDNN_BATCHNORM_SPATIAL,
             CUDNN_BATCHNORM_OPS_BN, &a.one, &a.zero, &a.one, &a.zero, a.x, a.Device(0), a.x,
             a.Device(1), a.x, a.Device(2), a.x, a.Device(3), a.x, a.Device(4), a.channels,
             a.Device(5), a.Device(6), a.Device(7), a.Device(8), 1e-3, a.Device(9), a.Device(10),
             a.activations[CUDNN_ACTIVATION_RELU], a.Device(11), a.kBytes, a.Device(12), a.kBytes);
  VALID_CALL(cudnnBatchNormalizationForwardInference, "", a.handle(), CUDNN_BATCHNORM_SPATIAL,
             &a.one, &a.zero, a.x, a.Device(0), a.x, a.Device(1), a.channels, a.Device(2),
             a.Device(3), a.Device(4), a.Device(5), 1e-3);
  VALID_CALL(cudnnBatchNormalizationForwardTraining, "", a.handle(), CUDNN_BATCHNORM_SPATIAL,
             &a.one, &a.zero, a.x, a.Device(0), a.x, a.Device(1), a.channels, a.Device(2),
             a.Device(3), 0.5, a.Device(4), a.Device(5), 1e-3, a.Device(6), a.Device(7));
  VALID_CALL(cudnnBatchNormalizationForwardTrainingEx, "", a.handle(), CUDNN_BATCHNORM_SPATIAL,
             CUDNN_BATCHNORM_OPS_BN, &a.one, &a.zero, a.x, a.Device(0), a.x, a.Device(1), a.x,
             a.Device(2), a.channels, a.Device(3), a.Device(4), 0.5, a.Device(5), a.Device(6), 1e-3,
             a.Device(7), a.Device(8), a.activations[CUDNN_ACTIVATION_RELU], a.Device(9), a.kBytes,
             a.Device(10), a.kBytes);
  VALID_CALL(cudnnDeriveNormTensorDescriptor, "", a.other, a.another, a.x, CUDNN_NORM_PER_CHANNEL,
             1);
  VALID_CALL(cudnnDivisiveNormalizationBackward, "", a.handle(), a.lrn,
             CUDNN_DIVNORM_PRECOMPUTED_MEANS, &a.one, a.x, a.Device(0), a.Device(1), a.Device(2),
             a.Device(3), a.Device(4), &a.zero, a.x, a.Device(5), a.Device(6));
  VALID_CALL(cudnnDivisiveNormalizationForward, "", a.handle(), a.lrn,
             CUDNN_DIVNORM_PRECOMPUTED_MEANS, &a.one, a.x, a.Device(0), a.Device(1), a.Device(2),
             a.Device(3), &a.zero, a.x, a.Device(4));
  VALID_CALL(cudnnLRNCrossChannelBackward, "", a.handle(), a.lrn, CUDNN_LRN_CROSS_CHANNEL_DIM1,
             &a.one, a.x, a.Device(0), a.x, a.Device(1), a.x, a.Device(2), &a.zero, a.x,
             a.Device(3));
  VALID_CALL(cudnnLRNCrossChannelForward, "", a.handle(), a.lrn, CUDNN_LRN_CROSS_CHANNEL_DIM1,
             &a.one, a.x, a.Device(0), &a.zero, a.x, a.Device(1));
  VALID_CALL(cudnnNormalizationBackward, "", a.handle(), CUDNN_NORM_PER_CHANNEL,
             CUDNN_NORM_OPS_NORM, CUDNN_NORM_ALGO_STANDARD, &a.one, &a.zero, &a.one, &a.zero, a.x,
             a.Device(0), a.x, a.Device(1), a.x, a.Device(2), a.x, a.Device(3), a.x, a.Device(4),
             a.channels, a.Device(5), a.Device(6), a.Device(7), a.Device(8), 1e-3, a.channels,
             a.Device(9), a.Device(10), a.activations[CUDNN_ACTIVATION_RELU], a.Device(11),
             a.kBytes, a.Device(12), a.kBytes, 1);
  VALID_CALL(cudnnNormalizationForwardInference, "", a.handle(), CUDNN_NORM_PER_CHANNEL,
             CUDNN_NORM_OPS_NORM, CUDNN_NORM_ALGO_STANDARD, &a.one, &a.zero, a.x, a.Device(0),
             a.channels, a.Device(1), a.Device(2), a.channels, a.Device(3), a.Device(4), a.x,
             a.Device(5), a.activations[CUDNN_ACTIVATION_RELU], a.x, a.Device(6), 1e-3, 1);
  VALID_CALL(cudnnNormalizationForwardTraining, "", a.handle(), CUDNN_NORM_PER_CHANNEL,
             CUDNN_NORM_OPS_NORM, CUDNN_NORM_ALGO_STANDARD, &a.one, &a.zero, a.x, a.Device(0),
             a.channels, a.Device(1), a.Device(2), 0.5, a.channels, a.Device(3), a.Device(4), 1e-3,
             a.Device(5), a.Device(6), a.activations[CUDNN_ACTIVATION_RELU], a.x, a.Device(7), a.x,
             a.Device(8), a.Device(9), a.kBytes, a.Device(10), a.kBytes, 1);
  VALID_CALL(cudnnBatchNormalizationBackwardEx, "act", a.handle(),
             CUDNN_BATCHNORM_SPATIAL_PERSISTENT, CUDNN_BATCHNORM_OPS_BN_ACTIVATION, &a.one, &a.zero,
             &a.one, &a.zero, a.half, a.Device(0), a.half, a.Device(1), a.half, a.Device(2), a.half,
             a.Device(3), a.half, a.Device(4), a.channels, a.Device(5), a.Device(6), a.Device(7),
             a.Device(8), 1e-3, a.Device(9), a.Device(10), a.activations[CUDNN_ACTIVATION_RELU],
             a.Device(11), a.kBytes, a.Device(12), a.kBytes);
}

template <class Visitor>
void VisitNormsB(ValidArguments& a, Visitor& visit) {
  VALID_CALL(cudnnBatchNormalizationForwardTrainingEx, "act", a.handle(),
             CUDNN_BATCHNORM_SPATIAL_PERSISTENT, CUDNN_BATCHNORM_OPS_BN_ACTIVATION, &a.one, &a.zero,
             a.half, a.Device(0), a.half, a.Device(1), a.half, a.Device(2), a.channels, a.Device(3),
             a.Device(4), 0.5, a.Device(5), a.Device(6), 1e-3, a.Device(7), a.Device(8),
             a.activations[CUDNN_ACTIVATION_RELU], a.Device(9), a.kBytes, a.Device(10), a.kBytes);
  VALID_CALL(cudnnNormalizationBackward, "act", a.handle(), CUDNN_NORM_PER_CHANNEL,
             CUDNN_NORM_OPS_NORM_ACTIVATION, CUDNN_NORM_ALGO_PERSIST, &a.one, &a.zero, &a.one,
             &a.zero, a.half, a.Device(0), a.half, a.Device(1), a.half, a.Device(2), a.half,
             a.Device(3), a.half, a.Device(4), a.channels, a.Device(5), a.Device(6), a.Device(7),
             a.Device(8), 1e-3, a.channels, a.Device(9), a.Device(10),
             a.activations[CUDNN_ACTIVATION_RELU], a.Device(11), a.kBytes, a.Device(12), a.kBytes,
             1);
  VALID_CALL(cudnnNormalizationForwardTraining, "act", a.handle(), CUDNN_NORM_PER_CHANNEL,
             CUDNN_NORM_OPS_NORM_ACTIVATION, CUDNN_NORM_ALGO_PERSIST, &a.one, &a.zero, a.half,
             a.Device(0), a.channels, a.Device(1), a.Device(2), 0.5, a.channels, a.Device(3),
             a.Device(4), 1e-3, a.Device(5), a.Device(6), a.activations[CUDNN_ACTIVATION_RELU],
             a.half, a.Device(7), a.half, a.Device(8), a.Device(9), a.kBytes, a.Device(10),
             a.kBytes, 1);
  VALID_CALL(cudnnBatchNormalizationBackwardEx, "add", a.handle(),
             CUDNN_BATCHNORM_SPATIAL_PERSISTENT, CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION, &a.one,
             &a.zero, &a.one, &a.zero, a.half, a.Device(0), a.half, a.Device(1), a.half,
             a.Device(2), a.half, a.Device(3), a.half, a.Device(4), a.channels, a.Device(5),
             a.Device(6), a.Device(7), a.Device(8), 1e-3, a.Device(9), a.Device(10),
             a.activations[CUDNN_ACTIVATION_RELU], a.Device(11), a.kBytes, a.Device(12), a.kBytes);
  VALID_CALL(cudnnBatchNormalizationForwardTrainingEx, "add", a.handle(),
             CUDNN_BATCHNORM_SPATIAL_PERSISTENT, CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION, &a.one,
             &a.zero, a.half, a.Device(0), a.half, a.Device(1), a.half, a.Device(2), a.channels,
             a.Device(3), a.Device(4), 0.5, a.Device(5), a.Device(6), 1e-3, a.Device(7),
             a.Device(8), a.activations[CUDNN_ACTIVATION_RELU], a.Device(9), a.kBytes, a.Device(10),
             a.kBytes);
  VALID_CALL(cudnnNormalizationBackward, "add", a.handle(), CUDNN_NORM_PER_CHANNEL,
             CUDNN_NORM_OPS_NORM_ADD_ACTIVATION, CUDNN_NORM_ALGO_PERSIST, &a.one, &a.zero, &a.one,
             &a.zero, a.half, a.Device(0), a.half, a.Device(1), a.half, a.Device(2), a.half,
             a.Device(3), a.half, a.Device(4), a.channels, a.Device(5), a.Device(6), a.Device(7),
             a.Device(8), 1e-3, a.channels, a.Device(9), a.Device(10),
             a.activations[CUDNN_ACTIVATION_RELU], a.Device(11), a.kBytes, a.Device(12), a.kBytes,
             1);
  VALID_CALL(cudnnNormalizationForwardTraining, "add", a.handle(), CUDNN_NORM_PER_CHANNEL,
             CUDNN_NORM_OPS_NORM_ADD_ACTIVATION, CUDNN_NORM_ALGO_PERSIST, &a.one, &a.zero, a.half,
             a.Device(0), a.channels, a.Device(1), a.Device(2), 0.5, a.channels, a.Device(3),
             a.Device(4), 1e-3, a.Device(5), a.Device(6), a.activations[CUDNN_ACTIVATION_RELU],
             a.half, a.Device(7), a.half, a.Device(8), a.Device(9), a.kBytes, a.Device(10),
             a.kBytes, 1);
}

template <class Visitor>
void VisitRnnDescriptors(ValidArguments& a, Visitor& visit) {
  VALID_CALL(cudnnBuildRNNDynamic, "", a.handle(), a.rnn, 2);
  VALID_CALL(cudnnCreateRNNDataDescriptor, "", a.Place<cudnnRNNDataDescriptor_t>(0));
  VALID_CALL(cudnnCreateRNNDescriptor, "", a.Place<cudnnRNNDescriptor_t>(0));
  VALID_CALL(cudnnDestroyRNNDataDescriptor, "",
             a.NewUnowned<cudnnRNNDataDescriptor_t>("RNNDataDescriptor"));
  VALID_CALL(cudnnDestroyRNNDescriptor, "", a.NewUnowned<cudnnRNNDescriptor_t>("RNNDescriptor"));
  VALID_CALL(cudnnGetRNNDataDescriptor, "", a.rnn_x, a.Place<cudnnDataType_t>(0),
             a.Place<cudnnRNNDataLayout_t>(1), a.Place<int>(2), a.Place<int>(3), a.Place<int>(4), 2,
             a.Place<int>(5), a.Place<void>(6));
  VALID_CALL(cudnnGetRNNDescriptor_v8, "", a.rnn, a.Place<cudnnRNNAlgo_t>(0),
             a.Place<cudnnRNNMode_t>(1), a.Place<cudnnRNNBiasMode_t>(2),
             a.Place<cudnnDirectionMode_t>(3), a.Place<cudnnRNNInputMode_t>(4),
             a.Place<cudnnDataType_t>(5), a.Place<cudnnDataType_t>(6), a.Place<cudnnMathType_t>(7),
             a.Place<int32_t>(8), a.Place<int32_t>(9), a.Place<int32_t>(10), a.Place<int32_t>(11),
             a.Place<cudnnDropoutDescriptor_t>(12), a.Place<uint32_t>(13));
  VALID_CALL(cudnnGetRNNTempSpaceSizes, "", a.handle(), a.rnn, CUDNN_FWD_MODE_TRAINING, a.rnn_x,
             a.Place<size_t>(0), a.Place<size_t>(1));
  VALID_CALL(cudnnGetRNNWeightParams, "", a.handle(), a.rnn, 0, a.kBytes, a.Device(0), 0, a.other,
             a.Place<void*>(0), a.another, a.Place<void*>(1));
  VALID_CALL(cudnnGetRNNWeightSpaceSize, "", a.handle(), a.rnn, a.Place<size_t>(0));
  VALID_CALL(cudnnRNNGetClip_v8, "", a.rnn, a.Place<cudnnRNNClipMode_t>(0),
             a.Place<cudnnNanPropagation_t>(1), a.Place<double>(2), a.Place<double>(3));
  VALID_CALL(cudnnRNNGetClip_v9, "", a.rnn, a.Place<cudnnRNNClipMode_t>(0), a.Place<double>(1),
             a.Place<double>(2));
  VALID_CALL(cudnnRNNSetClip_v8, "", a.other_rnn, CUDNN_RNN_CLIP_MINMAX, CUDNN_PROPAGATE_NAN, -1.0,
             1.0);
  VALID_CALL(cudnnRNNSetClip_v9, "", a.other_rnn, CUDNN_RNN_CLIP_MINMAX, -1.0, 1.0);
  VALID_CALL(cudnnSetRNNDataDescriptor, "", a.other_rnn_data, CUDNN_DATA_FLOAT,
             CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, 4, 2, 8, a.rnn_lengths, &a.zero);
  VALID_CALL(cudnnSetRNNDescriptor_v8, "", a.other_rnn, CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM,
             CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT,
             CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, 8, 8, 8, 1, a.other_dropout, 0u);
}

template <class Visitor>
void VisitRnnCalls(ValidArguments& a, Visitor& visit) {
  VALID_CALL(cudnnRNNBackwardData_v8, "", a.handle(), a.rnn,
             reinterpret_cast<const int32_t*>(a.Device(14)), a.rnn_y, a.Device(0), a.Device(1),
             a.rnn_x, a.Device(2), a.rnn_states, a.Device(3), a.Device(4), a.Device(5),
             a.rnn_states, a.Device(6), a.Device(7), a.Device(8), a.kBytes, a.Device(9), a.kBytes,
             a.Device(10), a.kBytes, a.Device(11));
  VALID_CALL(cudnnRNNBackwardWeights_v8, "", a.handle(), a.rnn, CUDNN_WGRAD_MODE_ADD,
             reinterpret_cast<const int32_t*>(a.Device(14)), a.rnn_x, a.Device(0), a.rnn_states,
             a.Device(1), a.rnn_y, a.Device(2), a.kBytes, a.Device(3), a.kBytes, a.Device(4),
             a.kBytes, a.Device(5));
  VALID_CALL(cudnnRNNForward, "", a.handle(), a.rnn, CUDNN_FWD_MODE_TRAINING,
             reinterpret_cast<const int32_t*>(a.Device(14)), a.rnn_x, a.Device(0), a.rnn_y,
             a.Device(1), a.rnn_states, a.Device(2), a.Device(3), a.rnn_states, a.Device(4),
             a.Device(5), a.kBytes, a.Device(6), a.kBytes, a.Device(7), a.kBytes, a.Device(8));
}

template <class Visitor>
void VisitComputingA(ValidArguments& a, Visitor& visit) {
  VALID_CALL(cudnnActivationBackward, "", a.handle(), a.activations[CUDNN_ACTIVATION_RELU], &a.one,
             a.x, a.Device(0), a.x, a.Device(1), a.x, a.Device(2), &a.zero, a.x, a.Device(3));
  VALID_CALL(cudnnActivationForward, "", a.handle(), a.activations[CUDNN_ACTIVATION_RELU], &a.one,
             a.x, a.Device(0), &a.zero, a.x, a.Device(1));
  VALID_CALL(cudnnAddTensor, "", a.handle(), &a.one, a.channels, a.Device(0), &a.zero, a.x,
             a.Device(1));
  VALID_CALL(cudnnConvolutionBackwardBias, "", a.handle(), &a.one, a.y, a.Device(0), &a.zero,
             a.bias, a.Device(1));
  VALID_CALL(cudnnConvolutionBackwardData, "", a.handle(), &a.one, a.w, a.Device(0), a.y,
             a.Device(1), a.conv, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, a.Device(2), a.kBytes, &a.zero,
             a.x, a.Device(3));
  VALID_CALL(cudnnConvolutionBackwardFilter, "", a.handle(), &a.one, a.x, a.Device(0), a.y,
             a.Device(1), a.conv, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, a.Device(2), a.kBytes,
             &a.zero, a.w, a.Device(3));
  VALID_CALL(cudnnConvolutionBiasActivationForward, "", a.handle(), &a.one, a.x, a.Device(0), a.w,
             a.Device(1), a.conv, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, a.Device(2),
             a.kBytes, &a.zero, a.y, a.Device(3), a.bias, a.Device(4),
             a.activations[CUDNN_ACTIVATION_RELU], a.y, a.Device(5));
  VALID_CALL(cudnnConvolutionForward, "", a.handle(), &a.one, a.x, a.Device(0), a.w, a.Device(1),
             a.conv, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, a.Device(2), a.kBytes,
             &a.zero, a.y, a.Device(3));
  VALID_CALL(cudnnDeriveBNTensorDescriptor, "", a.other, a.x, CUDNN_BATCHNORM_SPATIAL);
  VALID_CALL(cudnnDropoutBackward, "", a.handle(), a.dropout, a.x, a.Device(0), a.x, a.Device(1),
             a.Device(2), a.reserve_bytes);
  VALID_CALL(cudnnDropoutForward, "", a.handle(), a.dropout, a.x, a.Device(0), a.x, a.Device(1),
             a.Device(2), a.reserve_bytes);
  VALID_CALL(cudnnDropoutGetReserveSpaceSize, "", a.x, a.Place<size_t>(0));
  VALID_CALL(cudnnDropoutGetStatesSize, "", a.handle(), a.Place<size_t>(0));
  VALID_CALL(cudnnInitTransformDest, "", a.transform, a.x, a.other, a.Place<size_t>(0));
}

template <class Visitor>
void VisitComputingB(ValidArguments& a, Visitor& visit) {
  VALID_CALL(cudnnOpTensor, "", a.handle(), a.add, &a.one, a.x, a.Device(0), &a.one, a.x,
             a.Device(1), &a.zero, a.x, a.Device(2));
  VALID_CALL(cudnnPoolingBackward, "", a.handle(), a.poolings[CUDNN_POOLING_MAX], &a.one, a.pooled,
             a.Device(0), a.pooled, a.Device(1), a.x, a.Device(2), &a.zero, a.x, a.Device(3));
  VALID_CALL(cudnnPoolingForward, "", a.handle(), a.poolings[CUDNN_POOLING_MAX], &a.one, a.x,
             a.Device(0), &a.zero, a.pooled, a.Device(1));
  VALID_CALL(cudnnQueryRuntimeError, "", a.handle(), a.Place<cudnnStatus_t>(0),
             CUDNN_ERRQUERY_RAWCODE, a.Place<cudnnRuntimeTag_t>(1));
  VALID_CALL(cudnnReduceTensor, "", a.handle(), a.sum, a.Device(0), 0, a.Device(1), a.kBytes,
             &a.one, a.x, a.Device(2), &a.zero, a.summed, a.Device(3));
  VALID_CALL(cudnnScaleTensor, "", a.handle(), a.x, a.Device(0), &a.one);
  VALID_CALL(cudnnSetCallback, "", 0, nullptr, nullptr);
  VALID_CALL(cudnnSetStream, "", a.handle(), nullptr);
  VALID_CALL(cudnnSetTensor, "", a.handle(), a.x, a.Device(0), &a.one);
  VALID_CALL(cudnnSoftmaxBackward, "", a.handle(), CUDNN_SOFTMAX_ACCURATE,
             CUDNN_SOFTMAX_MODE_CHANNEL, &a.one, a.x, a.Device(0), a.x, a.Device(1), &a.zero, a.x,
             a.Device(2));
  VALID_CALL(cudnnSoftmaxForward, "", a.handle(), CUDNN_SOFTMAX_ACCURATE,
             CUDNN_SOFTMAX_MODE_CHANNEL, &a.one, a.x, a.Device(0), &a.zero, a.x, a.Device(1));
  VALID_CALL(cudnnSpatialTfGridGeneratorBackward, "", a.handle(), a.grid, a.Device(0), a.Device(1));
  VALID_CALL(cudnnSpatialTfGridGeneratorForward, "", a.handle(), a.grid, a.Device(0), a.Device(1));
  VALID_CALL(cudnnSpatialTfSamplerBackward, "", a.handle(), a.grid, &a.one, a.x, a.Device(0),
             &a.zero, a.x, a.Device(1), &a.one, a.x, a.Device(2), a.Device(3), &a.zero,
             a.Device(4));
}

template <class Visitor>
void VisitComputingC(ValidArguments& a, Visitor& visit) {
  VALID_CALL(cudnnSpatialTfSamplerForward, "", a.handle(), a.grid, &a.one, a.x, a.Device(0),
             a.Device(1), &a.zero, a.x, a.Device(2));
  VALID_CALL(cudnnTransformFilter, "", a.handle(), a.transform_w, &a.one, a.w, a.Device(0), &a.zero,
             a.folded_w, a.Device(1));
  VALID_CALL(cudnnTransformTensor, "", a.handle(), &a.one, a.x, a.Device(0), &a.zero, a.x,
             a.Device(1));
  VALID_CALL(cudnnTransformTensorEx, "", a.handle(), a.transform, &a.one, a.x, a.Device(0), &a.zero,
             a.folded, a.Device(1));
  VALID_CALL(cudnnActivationBackward, "sigmoid", a.handle(), a.activations[0], &a.one, a.x,
             a.Device(0), a.x, a.Device(1), a.x, a.Device(2), &a.zero, a.x, a.Device(3));
  VALID_CALL(cudnnActivationBackward, "tanh", a.handle(), a.activations[2], &a.one, a.x,
             a.Device(0), a.x, a.Device(1), a.x, a.Device(2), &a.zero, a.x, a.Device(3));
  VALID_CALL(cudnnActivationBackward, "elu", a.handle(), a.activations[4], &a.one, a.x, a.Device(0),
             a.x, a.Device(1), a.x, a.Device(2), &a.zero, a.x, a.Device(3));
  VALID_CALL(cudnnPoolingBackward, "avg_in", a.handle(), a.poolings[1], &a.one, a.pooled,
             a.Device(0), a.pooled, a.Device(1), a.x, a.Device(2), &a.zero, a.x, a.Device(3));
  VALID_CALL(cudnnPoolingBackward, "avg_ex", a.handle(), a.poolings[2], &a.one, a.pooled,
             a.Device(0), a.pooled, a.Device(1), a.x, a.Device(2), &a.zero, a.x, a.Device(3));
}

template <class Visitor>
void VisitCtc(ValidArguments& a, Visitor& visit) {
  const cudnnCTCLossAlgo_t algorithm = CUDNN_CTC_LOSS_ALGO_DETERMINISTIC;
  VALID_CALL(cudnnCreateCTCLossDescriptor, "", a.Place<cudnnCTCLossDescriptor_t>(0));
  VALID_CALL(cudnnDestroyCTCLossDescriptor, "",
             a.NewUnowned<cudnnCTCLossDescriptor_t>("CTCLossDescriptor"));
  VALID_CALL(cudnnSetCTCLossDescriptor, "", a.other_ctc, CUDNN_DATA_FLOAT);
  VALID_CALL(cudnnSetCTCLossDescriptorEx, "", a.other_ctc, CUDNN_DATA_FLOAT,
             CUDNN_LOSS_NORMALIZATION_SOFTMAX, CUDNN_PROPAGATE_NAN);
  VALID_CALL(cudnnSetCTCLossDescriptor_v8, "", a.other_ctc, CUDNN_DATA_FLOAT,
             CUDNN_LOSS_NORMALIZATION_SOFTMAX, CUDNN_PROPAGATE_NAN, 2);
  VALID_CALL(cudnnSetCTCLossDescriptor_v9, "", a.other_ctc, CUDNN_DATA_FLOAT,
             CUDNN_LOSS_NORMALIZATION_SOFTMAX, CUDNN_CTC_SKIP_OOB_GRADIENTS, 2);
  VALID_CALL(cudnnGetCTCLossDescriptor, "", a.ctc, a.Place<cudnnDataType_t>(0));
  VALID_CALL(cudnnGetCTCLossDescriptorEx, "", a.ctc, a.Place<cudnnDataType_t>(0),
             a.Place<cudnnLossNormalizationMode_t>(1), a.Place<cudnnNanPropagation_t>(2));
  VALID_CALL(cudnnGetCTCLossDescriptor_v8, "", a.ctc, a.Place<cudnnDataType_t>(0),
             a.Place<cudnnLossNormalizationMode_t>(1), a.Place<cudnnNanPropagation_t>(2),
             a.Place<int>(3));
  VALID_CALL(cudnnGetCTCLossDescriptor_v9, "", a.ctc, a.Place<cudnnDataType_t>(0),
             a.Place<cudnnLossNormalizationMode_t>(1), a.Place<cudnnCTCGradMode_t>(2),
             a.Place<int>(3));
  VALID_CALL(cudnnGetCTCLossWorkspaceSize, "", a.handle(), a.logits, a.logits, a.ones, a.twos,
             a.twos, algorithm, a.ctc, a.Place<size_t>(0));
  VALID_CALL(cudnnGetCTCLossWorkspaceSize_v8, "", a.handle(), algorithm, a.ctc, a.logits, a.logits,
             a.Place<size_t>(0));
  VALID_CALL(cudnnCTCLoss, "", a.handle(), a.logits, a.Device(0), a.ones, a.twos, a.twos,
             a.Device(1), a.logits, a.Device(2), algorithm, a.ctc, a.Device(3), a.kBytes);
  VALID_CALL(cudnnCTCLoss_v8, "", a.handle(), algorithm, a.ctc, a.logits, a.Device(0), a.ones,
             a.twos, a.twos, a.Device(1), a.logits, a.Device(2), a.kBytes, a.Device(3));
}

template <class Visitor>
void VisitAttentionDescriptors(ValidArguments& a, Visitor& visit) {
  VALID_CALL(cudnnCreateAttnDescriptor, "", a.Place<cudnnAttnDescriptor_t>(0));
  VALID_CALL(cudnnCreateSeqDataDescriptor, "", a.Place<cudnnSeqDataDescriptor_t>(0));
  VALID_CALL(cudnnDestroyAttnDescriptor, "", a.NewUnowned<cudnnAttnDescriptor_t>("AttnDescriptor"));
  VALID_CALL(cudnnDestroySeqDataDescriptor, "",
             a.NewUnowned<cudnnSeqDataDescriptor_t>("SeqDataDescriptor"));
  VALID_CALL(cudnnSetAttnDescriptor, "", a.other_attention, CUDNN_ATTN_DISABLE_PROJ_BIASES, 2, 1.0,
             CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, a.dropout, a.dropout, 8, 8, 8,
             4, 4, 4, 8, 4, 4, 2, 1);
  VALID_CALL(cudnnSetSeqDataDescriptor, "", a.other_sequences, CUDNN_DATA_FLOAT, 4,
             a.sequence_dims.data(), a.sequence_axes.data(), a.sequence_lengths.size(),
             a.sequence_lengths.data(), &a.one);
  VALID_CALL(cudnnGetAttnDescriptor, "", a.attention, a.Place<unsigned>(0), a.Place<int>(1),
             a.Place<double>(2), a.Place<cudnnDataType_t>(3), a.Place<cudnnDataType_t>(4),
             a.Place<cudnnMathType_t>(5), a.Place<cudnnDropoutDescriptor_t>(6),
             a.Place<cudnnDropoutDescriptor_t>(7), a.Place<int>(8), a.Place<int>(9),
             a.Place<int>(10), a.Place<int>(11), a.Place<int>(12), a.Place<int>(13),
             a.Place<int>(14), a.Place<int>(15), a.Place<int>(15), a.Place<int>(15),
             a.Place<int>(15));
  VALID_CALL(cudnnGetSeqDataDescriptor, "", a.sequences, a.Place<cudnnDataType_t>(0),
             a.Place<int>(1), 4, a.Place<int>(2), a.Place<cudnnSeqDataAxis_t>(3),
             a.Place<size_t>(4), 2, a.Place<int>(5), a.Place<float>(6));
}

template <class Visitor>
void VisitAttention(ValidArguments& a, Visitor& visit) {
  VALID_CALL(cudnnGetMultiHeadAttnBuffers, "", a.handle(), a.attention, a.Place<size_t>(0),
             a.Place<size_t>(1), a.Place<size_t>(2));
  VALID_CALL(cudnnGetMultiHeadAttnWeights, "", a.handle(), a.attention, CUDNN_MH_ATTN_Q_WEIGHTS,
             a.kBytes, a.Device(0), a.other, a.Place<void*>(0));
  VALID_CALL(cudnnMultiHeadAttnForward, "", a.handle(), a.attention, -1, a.zeros, a.twos,
             a.Lengths(0), a.Lengths(1), a.sequences, a.Device(2), a.Device(3), a.sequences,
             a.Device(4), a.sequences, a.Device(5), a.sequences, a.Device(6), a.kBytes, a.Device(7),
             a.kBytes, a.Device(8), a.kBytes, a.Device(9));
  VALID_CALL(cudnnMultiHeadAttnBackwardData, "", a.handle(), a.attention, a.zeros, a.twos,
             a.Lengths(0), a.Lengths(1), a.sequences, a.Device(2), a.sequences, a.Device(3),
             a.Device(4), a.sequences, a.Device(5), a.Device(6), a.sequences, a.Device(7),
             a.Device(8), a.kBytes, a.Device(9), a.kBytes, a.Device(10), a.kBytes, a.Device(11));
  VALID_CALL(cudnnMultiHeadAttnBackwardWeights, "", a.handle(), a.attention, CUDNN_WGRAD_MODE_ADD,
             a.sequences, a.Device(2), a.sequences, a.Device(3), a.sequences, a.Device(4),
             a.sequences, a.Device(5), a.kBytes, a.Device(6), a.Device(7), a.kBytes, a.Device(8),
             a.kBytes, a.Device(9));
}

template <class Visitor>
void VisitLegacyCalls(ValidArguments& a, Visitor& visit) {
  VisitObjects(a, visit);
  VisitSettersA(a, visit);
  VisitSettersB(a, visit);
  VisitGettersA(a, visit);
  VisitGettersB(a, visit);
  VisitAlgorithmsA(a, visit);
  VisitAlgorithmsB(a, visit);
  VisitRewriting(a, visit);
#if CUDNN_MAJOR == 9
  VisitSequences(a, visit);
  VisitLongSequences(a, visit);
  VisitGraphs(a, visit);
#endif
  VisitNormSizes(a, visit);
  VisitNormsA(a, visit);
  VisitNormsB(a, visit);
  VisitRnnDescriptors(a, visit);
  VisitRnnCalls(a, visit);
  VisitComputingA(a, visit);
  VisitComputingB(a, visit);
  VisitComputingC(a, visit);
  VisitCtc(a, visit);
  VisitAttentionDescriptors(a, visit);
  VisitAttention(a, visit);
}

}  // namespace kiln::testing
