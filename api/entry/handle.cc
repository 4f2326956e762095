// Handles, streams and run-time errors. Reference 3.2.5, 3.2.20, 3.2.58, 3.2.70 and 3.2.89.
#include "api/entry/entry.h"
#include "api/lifecycle/core.h"

namespace api = kiln::api;

extern "C" {

KILN_EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return api::Entry(
      "cudnnCreate", [&] { return api::CreateHandle(reinterpret_cast<void**>(handle)); }, handle);
}

KILN_EXPORT cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return api::Entry("cudnnDestroy", [&] { return api::DestroyHandle(handle); }, handle);
}

KILN_EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t streamId) {
  return api::Entry(
      "cudnnSetStream", [&] { return api::SetStream(handle, streamId); }, handle, streamId);
}

KILN_EXPORT cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* streamId) {
  return api::Entry(
      "cudnnGetStream", [&] { return api::GetStream(handle, reinterpret_cast<void**>(streamId)); },
      handle, streamId);
}

KILN_EXPORT cudnnStatus_t cudnnQueryRuntimeError(cudnnHandle_t handle, cudnnStatus_t* rstatus,
                                                 cudnnErrQueryMode_t mode, cudnnRuntimeTag_t* tag) {
  return api::Entry(
      "cudnnQueryRuntimeError",
      [&] {
        int found = 0;
        kiln::Status status =
            api::QueryRuntimeError(handle, rstatus, api::Number(mode), tag, found);
        if (status.ok()) *rstatus = static_cast<cudnnStatus_t>(found);
        return status;
      },
      handle, rstatus, mode, tag);
}

}  // extern "C"
