// Recurrent networks.
#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace {

Status NotThere(std::string_view function) {
  return Status::Error(Code::kNotSupported, "{} is not in this library yet", function);
}

}  // namespace

Status BuildRNNDynamic(void*, void*, int) { return NotThere("cudnnBuildRNNDynamic"); }

Status CreatePersistentRNNPlan(void*, int, int, void**) { return NotThere("cudnnCreatePersistentRNNPlan"); }

Status CreateRNNDataDescriptor(void**) { return NotThere("cudnnCreateRNNDataDescriptor"); }

Status CreateRNNDescriptor(void**) { return NotThere("cudnnCreateRNNDescriptor"); }

Status DestroyPersistentRNNPlan(void*) { return NotThere("cudnnDestroyPersistentRNNPlan"); }

Status DestroyRNNDataDescriptor(void*) { return NotThere("cudnnDestroyRNNDataDescriptor"); }

Status DestroyRNNDescriptor(void*) { return NotThere("cudnnDestroyRNNDescriptor"); }

Status FindRNNBackwardDataAlgorithmEx(void*, void*, int, void* const*, const void*, void* const*, const void*, void*, const void*, void*, const void*, void*, const void*, void*, const void*, void*, const void*, void* const*, void*, void*, void*, void*, void*, float, int, int*, void**, void*, size_t, void*, size_t) { return NotThere("cudnnFindRNNBackwardDataAlgorithmEx"); }

Status FindRNNBackwardWeightsAlgorithmEx(void*, void*, int, void* const*, const void*, void*, const void*, void* const*, const void*, float, int, int*, void**, const void*, size_t, void*, void*, const void*, size_t) { return NotThere("cudnnFindRNNBackwardWeightsAlgorithmEx"); }

Status FindRNNForwardInferenceAlgorithmEx(void*, void*, int, void* const*, const void*, void*, const void*, void*, const void*, void*, const void*, void* const*, void*, void*, void*, void*, void*, float, int, int*, void**, void*, size_t) { return NotThere("cudnnFindRNNForwardInferenceAlgorithmEx"); }

Status FindRNNForwardTrainingAlgorithmEx(void*, void*, int, void* const*, const void*, void*, const void*, void*, const void*, void*, const void*, void* const*, void*, void*, void*, void*, void*, float, int, int*, void**, void*, size_t, void*, size_t) { return NotThere("cudnnFindRNNForwardTrainingAlgorithmEx"); }

Status GetRNNBackwardDataAlgorithmMaxCount(void*, void*, int*) { return NotThere("cudnnGetRNNBackwardDataAlgorithmMaxCount"); }

Status GetRNNBackwardWeightsAlgorithmMaxCount(void*, void*, int*) { return NotThere("cudnnGetRNNBackwardWeightsAlgorithmMaxCount"); }

Status GetRNNBiasMode(void*, int*) { return NotThere("cudnnGetRNNBiasMode"); }

Status GetRNNDataDescriptor(void*, int*, int*, int*, int*, int*, int, int*, void*) { return NotThere("cudnnGetRNNDataDescriptor"); }

Status GetRNNDescriptor_v6(void*, void*, int*, int*, void**, int*, int*, int*, int*, int*) { return NotThere("cudnnGetRNNDescriptor_v6"); }

Status GetRNNDescriptor_v8(void*, int*, int*, int*, int*, int*, int*, int*, int*, int32_t*, int32_t*, int32_t*, int32_t*, void**, uint32_t*) { return NotThere("cudnnGetRNNDescriptor_v8"); }

Status GetRNNForwardInferenceAlgorithmMaxCount(void*, void*, int*) { return NotThere("cudnnGetRNNForwardInferenceAlgorithmMaxCount"); }

Status GetRNNForwardTrainingAlgorithmMaxCount(void*, void*, int*) { return NotThere("cudnnGetRNNForwardTrainingAlgorithmMaxCount"); }

Status GetRNNLinLayerBiasParams(void*, void*, int, void*, void*, const void*, int, void*, void**) { return NotThere("cudnnGetRNNLinLayerBiasParams"); }

Status GetRNNLinLayerMatrixParams(void*, void*, int, void*, void*, const void*, int, void*, void**) { return NotThere("cudnnGetRNNLinLayerMatrixParams"); }

Status GetRNNMatrixMathType(void*, int*) { return NotThere("cudnnGetRNNMatrixMathType"); }

Status GetRNNPaddingMode(void*, unsigned int*) { return NotThere("cudnnGetRNNPaddingMode"); }

Status GetRNNParamsSize(void*, void*, void*, size_t*, int) { return NotThere("cudnnGetRNNParamsSize"); }

Status GetRNNProjectionLayers(void*, void*, int*, int*) { return NotThere("cudnnGetRNNProjectionLayers"); }

Status GetRNNTempSpaceSizes(void*, void*, int, void*, size_t*, size_t*) { return NotThere("cudnnGetRNNTempSpaceSizes"); }

Status GetRNNTrainingReserveSize(void*, void*, int, void* const*, size_t*) { return NotThere("cudnnGetRNNTrainingReserveSize"); }

Status GetRNNWeightParams(void*, void*, int32_t, size_t, const void*, int32_t, void*, void**, void*, void**) { return NotThere("cudnnGetRNNWeightParams"); }

Status GetRNNWeightSpaceSize(void*, void*, size_t*) { return NotThere("cudnnGetRNNWeightSpaceSize"); }

Status GetRNNWorkspaceSize(void*, void*, int, void* const*, size_t*) { return NotThere("cudnnGetRNNWorkspaceSize"); }

Status RNNBackwardData(void*, void*, int, void* const*, const void*, void* const*, const void*, void*, const void*, void*, const void*, void*, const void*, void*, const void*, void*, const void*, void* const*, void*, void*, void*, void*, void*, void*, size_t, void*, size_t) { return NotThere("cudnnRNNBackwardData"); }

Status RNNBackwardDataEx(void*, void*, void*, const void*, void*, const void*, void*, const void*, void*, const void*, void*, const void*, void*, const void*, void*, const void*, void*, const void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, size_t, void*, size_t) { return NotThere("cudnnRNNBackwardDataEx"); }

Status RNNBackwardData_v8(void*, void*, const int32_t*, void*, const void*, const void*, void*, void*, void*, const void*, const void*, void*, void*, const void*, const void*, void*, size_t, const void*, size_t, void*, size_t, void*) { return NotThere("cudnnRNNBackwardData_v8"); }

Status RNNBackwardWeights(void*, void*, int, void* const*, const void*, void*, const void*, void* const*, const void*, const void*, size_t, void*, void*, const void*, size_t) { return NotThere("cudnnRNNBackwardWeights"); }

Status RNNBackwardWeightsEx(void*, void*, void*, const void*, void*, const void*, void*, const void*, void*, size_t, void*, void*, void*, size_t) { return NotThere("cudnnRNNBackwardWeightsEx"); }

Status RNNBackwardWeights_v8(void*, void*, int, const int32_t*, void*, const void*, void*, const void*, void*, const void*, size_t, void*, size_t, void*, size_t, void*) { return NotThere("cudnnRNNBackwardWeights_v8"); }

Status RNNForward(void*, void*, int, const int32_t*, void*, const void*, void*, void*, void*, const void*, void*, void*, const void*, void*, size_t, const void*, size_t, void*, size_t, void*) { return NotThere("cudnnRNNForward"); }

Status RNNForwardInference(void*, void*, int, void* const*, const void*, void*, const void*, void*, const void*, void*, const void*, void* const*, void*, void*, void*, void*, void*, void*, size_t) { return NotThere("cudnnRNNForwardInference"); }

Status RNNForwardInferenceEx(void*, void*, void*, const void*, void*, const void*, void*, const void*, void*, const void*, void*, void*, void*, void*, void*, void*, void*, const void*, void*, void*, void*, void*, void*, void*, void*, size_t) { return NotThere("cudnnRNNForwardInferenceEx"); }

Status RNNForwardTraining(void*, void*, int, void* const*, const void*, void*, const void*, void*, const void*, void*, const void*, void* const*, void*, void*, void*, void*, void*, void*, size_t, void*, size_t) { return NotThere("cudnnRNNForwardTraining"); }

Status RNNForwardTrainingEx(void*, void*, void*, const void*, void*, const void*, void*, const void*, void*, const void*, void*, void*, void*, void*, void*, void*, void*, const void*, void*, void*, void*, void*, void*, void*, void*, size_t, void*, size_t) { return NotThere("cudnnRNNForwardTrainingEx"); }

Status RNNGetClip(void*, void*, int*, int*, double*, double*) { return NotThere("cudnnRNNGetClip"); }

Status RNNGetClip_v8(void*, int*, int*, double*, double*) { return NotThere("cudnnRNNGetClip_v8"); }

Status RNNGetClip_v9(void*, int*, double*, double*) { return NotThere("cudnnRNNGetClip_v9"); }

Status RNNSetClip(void*, void*, int, int, double, double) { return NotThere("cudnnRNNSetClip"); }

Status RNNSetClip_v8(void*, int, int, double, double) { return NotThere("cudnnRNNSetClip_v8"); }

Status RNNSetClip_v9(void*, int, double, double) { return NotThere("cudnnRNNSetClip_v9"); }

Status SetPersistentRNNPlan(void*, void*) { return NotThere("cudnnSetPersistentRNNPlan"); }

Status SetRNNAlgorithmDescriptor(void*, void*, void*) { return NotThere("cudnnSetRNNAlgorithmDescriptor"); }

Status SetRNNBiasMode(void*, int) { return NotThere("cudnnSetRNNBiasMode"); }

Status SetRNNDataDescriptor(void*, int, int, int, int, int, const int*, void*) { return NotThere("cudnnSetRNNDataDescriptor"); }

Status SetRNNDescriptor_v6(void*, void*, int, int, void*, int, int, int, int, int) { return NotThere("cudnnSetRNNDescriptor_v6"); }

Status SetRNNDescriptor_v8(void*, int, int, int, int, int, int, int, int, int32_t, int32_t, int32_t, int32_t, void*, uint32_t) { return NotThere("cudnnSetRNNDescriptor_v8"); }

Status SetRNNMatrixMathType(void*, int) { return NotThere("cudnnSetRNNMatrixMathType"); }

Status SetRNNPaddingMode(void*, unsigned int) { return NotThere("cudnnSetRNNPaddingMode"); }

Status SetRNNProjectionLayers(void*, void*, int, int) { return NotThere("cudnnSetRNNProjectionLayers"); }

}  // namespace kiln::api::legacy
