// The functions of the backend API. Reference 5.2.1 to 5.2.7; graphs of CUDA since 9.5.
#include "api/backend/backend.h"

#include "api/entry/entry.h"

namespace api = kiln::api;

extern "C" {

KILN_EXPORT cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t descriptorType,
                                                       cudnnBackendDescriptor_t* descriptor) {
  return api::Entry(
      "cudnnBackendCreateDescriptor",
      [&] { return api::CreateDescriptor(api::Number(descriptorType), descriptor); },
      descriptorType, descriptor);
}

KILN_EXPORT cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return api::Entry(
      "cudnnBackendDestroyDescriptor", [&] { return api::DestroyDescriptor(descriptor); },
      descriptor);
}

KILN_EXPORT cudnnStatus_t cudnnBackendInitialize(cudnnBackendDescriptor_t descriptor) {
  return api::Entry(
      "cudnnBackendInitialize", [&] { return api::InitializeDescriptor(descriptor); }, descriptor);
}

KILN_EXPORT cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return api::Entry(
      "cudnnBackendFinalize", [&] { return api::FinalizeDescriptor(descriptor); }, descriptor);
}

KILN_EXPORT cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                                   cudnnBackendAttributeName_t attributeName,
                                                   cudnnBackendAttributeType_t attributeType,
                                                   int64_t elementCount,
                                                   const void* arrayOfElements) {
  return api::Entry(
      "cudnnBackendSetAttribute",
      [&] {
        return api::SetAttribute(descriptor, api::Number(attributeName), api::Number(attributeType),
                                 elementCount, arrayOfElements);
      },
      descriptor, attributeName, attributeType, elementCount, arrayOfElements);
}

KILN_EXPORT cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                                   cudnnBackendAttributeName_t attributeName,
                                                   cudnnBackendAttributeType_t attributeType,
                                                   int64_t requestedElementCount,
                                                   int64_t* elementCount, void* arrayOfElements) {
  return api::Entry(
      "cudnnBackendGetAttribute",
      [&] {
        return api::GetAttribute(descriptor, api::Number(attributeName), api::Number(attributeType),
                                 requestedElementCount, elementCount, arrayOfElements);
      },
      descriptor, attributeName, attributeType, requestedElementCount, elementCount,
      arrayOfElements);
}

KILN_EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle,
                                              cudnnBackendDescriptor_t executionPlan,
                                              cudnnBackendDescriptor_t variantPack) {
  return api::Entry(
      "cudnnBackendExecute", [&] { return api::ExecutePlan(handle, executionPlan, variantPack); },
      handle, executionPlan, variantPack);
}

#if CUDNN_MAJOR >= 9

KILN_EXPORT cudnnStatus_t cudnnGetExecutionPlanWorkspaceSize(cudnnHandle_t handle,
                                                             cudnnBackendDescriptor_t executionPlan,
                                                             cudnnBackendDescriptor_t variantPack,
                                                             size_t* workspaceSizeInBytes) {
  return api::Entry(
      "cudnnGetExecutionPlanWorkspaceSize",
      [&] {
        return api::PlanWorkspaceSize(handle, executionPlan, variantPack, workspaceSizeInBytes);
      },
      handle, executionPlan, variantPack, workspaceSizeInBytes);
}

KILN_EXPORT cudnnStatus_t cudnnBackendPopulateCudaGraph(cudnnHandle_t handle,
                                                        cudnnBackendDescriptor_t executionPlan,
                                                        cudnnBackendDescriptor_t variantPack,
                                                        cudaGraph_t graph) {
  return api::Entry(
      "cudnnBackendPopulateCudaGraph",
      [&] { return api::PopulateCudaGraph(handle, executionPlan, variantPack, graph); }, handle,
      executionPlan, variantPack, graph);
}

KILN_EXPORT cudnnStatus_t cudnnBackendUpdateCudaGraph(cudnnHandle_t handle,
                                                      cudnnBackendDescriptor_t executionPlan,
                                                      cudnnBackendDescriptor_t variantPack,
                                                      cudaGraph_t graph) {
  return api::Entry(
      "cudnnBackendUpdateCudaGraph",
      [&] { return api::UpdateCudaGraph(handle, executionPlan, variantPack, graph); }, handle,
      executionPlan, variantPack, graph);
}

#endif

}  // extern "C"
