// CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR: a device as data, for plans that are made without one; and
// CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR.
#pragma once

#include <mutex>

#include "api/backend/attr.h"
#include "ir/target.h"

namespace kiln::api {

struct OperationGraphDesc;

// A described device: from a handle, from the current device, or from the JSON that another process
// wrote.
struct DevicePropDesc : DescriptorOf<CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR> {
  int32_t device_id = 0;
  HandleRef handle;
  std::string json;  // as set
  Target target;     // after finalize

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
};

// Kiln's kernel cache is one a process and on disk, keyed by what kernels are made of. This is the
// client's name for it, and knows with which configurations plans were made: those whose kernels
// are there come first in the heuristics of graphs with dynamic shapes. Its JSON names them, so
// that a later process finds the same kernels on disk.
struct KernelCacheDesc : DescriptorOf<CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR> {
  Ref<OperationGraphDesc> operation_graph;
  std::string json;  // as set

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  // Called for each plan that is made with the cache.
  void Add(Session& session, const EngineConfig& config) const;
  Result<std::string> Json() const;
  // Revision counts the changes of what the cache holds, EntryCount the configurations.
  int64_t Revision() const;
  int64_t EntryCount() const;

 private:
  mutable std::mutex mutex_;
  mutable std::vector<EngineConfig> configs_;
  mutable int64_t revision_ = 0;
};

}  // namespace kiln::api
