// Engines of a graph, their knobs, configurations and their ranking: the descriptors of
// reference 9.2.2 to 9.2.4 and 9.2.6 to 9.2.9. What engines there are is the session's affair.
#pragma once

#include <mutex>
#include <optional>

#include "api/backend/device.h"
#include "api/backend/operation_graph.h"

namespace kiln::api {

// A knob of an engine; the library fills this kind and the next two.
struct KnobInfoDesc : DescriptorOf<CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR> {
  cudnnBackendKnobType_t knob = CUDNN_KNOB_TYPE_COUNTS;
  int64_t maximum = 0, minimum = 0, stride = 1;
  static std::span<const AttrRow> Rows();
};

struct LayoutInfoDesc : DescriptorOf<CUDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR> {
  int64_t uid = -1;
  std::vector<cudnnBackendLayoutType_t> types;
  static std::span<const AttrRow> Rows();
};

// A kind that exists in the interface alone: no engine has intermediates that outlive an execution.
struct IntermediateInfoDesc : DescriptorOf<CUDNN_BACKEND_INTERMEDIATE_INFO_DESCRIPTOR> {
  int64_t uid = -1, size = 0;
  std::vector<int64_t> dependent_uids;
  std::vector<cudnnBackendAttributeName_t> dependent_attributes;
  static std::span<const AttrRow> Rows();
};

struct KnobChoiceDesc : DescriptorOf<CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR> {
  cudnnBackendKnobType_t knob = CUDNN_KNOB_TYPE_COUNTS;
  int64_t value = 0;
  static std::span<const AttrRow> Rows();
};

// The global index is a place in the list of engines that take this graph on this device
// (Session::EnginesOf): 0 is the plan in which the compiler chooses, so that it always exists, and
// every index below CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT finalizes. The list keeps the
// order of a registry that only grows at its end.
struct EngineDesc : DescriptorOf<CUDNN_BACKEND_ENGINE_DESCRIPTOR> {
  Ref<OperationGraphDesc> operation_graph;
  int64_t index = -1;            // as the client set it
  int32_t sm_count_target = -1;  // the most multiprocessors that it takes; none where not positive
  bool disable_cluster_cooperative = false;
  int32_t shared_memory_limit = 0;  // bytes; Kiln's engines go by the device's own limit
  Ref<DevicePropDesc> device;
  // After finalize:
  std::shared_ptr<Session> session;
  int64_t engine = kCompilersChoice;  // what the index stands for, as EngineConfig has it
  std::string name;
  std::vector<Ref<KnobInfoDesc>> knobs;
  std::vector<Ref<LayoutInfoDesc>> layouts;
  std::vector<cudnnBackendNumericalNote_t> numerical_notes;
  std::vector<cudnnBackendBehaviorNote_t> behavior_notes;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  // Does the rest of Finalize, for an engine that is known by its row.
  Status Describe(int64_t engine_row);
};

struct EngineConfigDesc : DescriptorOf<CUDNN_BACKEND_ENGINECFG_DESCRIPTOR> {
  Ref<EngineDesc> engine;
  std::vector<Ref<KnobChoiceDesc>> choices;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  EngineConfig Config() const;
  // The footprint is asked for each candidate of a ranking, so it is computed at the first
  // question.
  Result<Footprint> NeedsOf() const;

 private:
  mutable std::mutex mutex_;
  mutable std::optional<Result<Footprint>> needs_;
};

struct EngineHeurDesc : DescriptorOf<CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR> {
  Ref<OperationGraphDesc> operation_graph;
  cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_INSTANT;
  int32_t sm_count_target = -1;
  int32_t shared_memory_limit = 0;  // handed to the engines of the results
  Ref<DevicePropDesc> device;
  std::vector<Ref<EngineConfigDesc>> results;  // after finalize, best first

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
};

// A finalised configuration, as the ranking and restored plans need it.
Result<Ref<EngineConfigDesc>> MakeConfig(const Ref<EngineDesc>& engine, const EngineConfig& config);
struct EngineSettings {
  Ref<OperationGraphDesc> operation_graph;
  Ref<DevicePropDesc> device = {};
  int32_t sm_count_target = -1;
  int32_t shared_memory_limit = 0;
};
// `engine` as in EngineConfig.
Result<Ref<EngineDesc>> MakeEngine(const EngineSettings& settings, int64_t engine);
// The session that an engine with these settings makes kernels for.
Result<std::shared_ptr<Session>> SessionOf(const EngineSettings& settings);

}  // namespace kiln::api
