// CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR: a device as data, for plans that are made without one; and
// CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR.
#pragma once

#include "api/backend/attr.h"
#include "ir/target.h"

namespace kiln::api {

struct OperationGraphDesc;

// From a handle, from the current device, or from the JSON that another process wrote.
struct DevicePropDesc : DescriptorOf<CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR> {
  int32_t device_id = 0;
  HandleRef handle;
  std::string json;  // as set
  Target target;     // after finalize

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
};

// Kiln's kernel cache is one a process and on disk, keyed by what kernels are made of; this
// descriptor is the client's name for it. Its JSON says which build of Kiln wrote it.
struct KernelCacheDesc : DescriptorOf<CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR> {
  Ref<OperationGraphDesc> operation_graph;
  std::string json;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
};

}  // namespace kiln::api
