// The generic part of the backend API: create, set, get, finalise and execute for every kind of
// descriptor. Called by api/entry, so it names no type of the public headers; what the kinds are is
// in the other files of this folder.
#pragma once

#include <cstdint>

#include "ir/base/status.h"

namespace kiln::api {

Status CreateDescriptor(int type, void** out);
Status DestroyDescriptor(void* descriptor);
// Takes a descriptor back to the state after creation.
Status InitializeDescriptor(void* descriptor);
Status SetAttribute(void* descriptor, int name, int type, int64_t count, const void* elements);
// True if such a call comes as far as to read so many elements, for the API log.
bool ReadsElements(const void* descriptor, int name, int type, int64_t count);
Status GetAttribute(const void* descriptor, int name, int type, int64_t requested, int64_t* count,
                    void* elements);
Status FinalizeDescriptor(void* descriptor);
Status ExecutePlan(const void* handle, const void* plan, const void* variant_pack);
// The workspace of an execution with the shapes that the pack overrides.
Status PlanWorkspaceSize(const void* handle, const void* plan, const void* variant_pack,
                         size_t* bytes);
// Write the nodes of such an execution: into an empty cudaGraph_t, or in the place of those of an
// earlier call.
Status PopulateCudaGraph(const void* handle, const void* plan, const void* variant_pack,
                         void* cuda_graph);
Status UpdateCudaGraph(const void* handle, const void* plan, const void* variant_pack,
                       void* cuda_graph);

}  // namespace kiln::api
