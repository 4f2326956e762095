#include "compiler/engines/engine.h"

#include <algorithm>

#include "compiler/engines/knob_types.h"

namespace kiln::compiler {

bool OnlyOnRequest(const Engine& engine, const Group& group) {
  if (engine.on_request || engine.notes.HasNumerical(kNoteDownConvertInputs)) return true;
  if (!engine.notes.HasNumerical(kNoteNondeterministic)) return false;
  return engine.any_order == nullptr || !engine.any_order(group);
}

bool OnlyRoundsInputs(const Engine& engine) {
  return engine.notes.HasNumerical(kNoteDownConvertInputs) &&
         !engine.notes.HasNumerical(kNoteNondeterministic);
}

Inputs InputsOf(const Engine& engine) {
  if (engine.notes.HasNumerical(kNoteWinograd)) return Inputs::kWinograd;
  return OnlyRoundsInputs(engine) ? Inputs::kRounded : Inputs::kExact;
}

std::vector<int> DefaultKnobs(std::span<const KnobRow> rows) {
  std::vector<int> values;
  values.reserve(rows.size());
  for (const KnobRow& row : rows) values.push_back(row.domain.front());
  return values;
}

std::vector<std::vector<int>> NeighbouringKnobs(std::span<const KnobRow> rows) {
  const std::vector<int> defaults = DefaultKnobs(rows);
  std::vector<std::vector<int>> all = {defaults};
  for (size_t k = 0; k < rows.size(); ++k) {
    for (int value : rows[k].domain) {
      if (value == defaults[k]) continue;
      all.push_back(defaults);
      all.back()[k] = value;
    }
  }
  std::vector<int> last;
  for (const KnobRow& row : rows) last.push_back(row.domain.back());
  if (std::ranges::find(all, last) == all.end()) all.push_back(std::move(last));
  return all;
}

Status Supports(const Engine& engine, const Group& group, const Target& target) {
  return engine.plan(group, target).status();
}

std::vector<Proposal> Propose(const Engine& engine, const EnginePlan& plan) {
  std::vector<Proposal> all = plan.Proposals();
  if (!all.empty()) return all;
  std::vector<int> knobs = DefaultKnobs(engine);
  const Estimate of = plan.EstimateOf(knobs);
  all.push_back(
      {.knobs = std::move(knobs), .seconds = of.seconds, .shared_bytes = of.shared_bytes});
  return all;
}

std::vector<std::vector<int>> CandidateKnobs(const Engine& engine, const Group& group,
                                             const Target& target) {
  std::vector<std::vector<int>> all;
  const PlanResult plan = engine.plan(group, target);
  if (!plan.ok()) return all;
  for (Proposal& p : Propose(engine, **plan)) all.push_back(std::move(p.knobs));
  return all;
}

Result<std::vector<int>> KnobsWith(const Engine& engine, std::span<const KnobSetting> settings) {
  std::vector<int> values = DefaultKnobs(engine);
  for (const KnobSetting& s : settings) {
    const auto row = std::ranges::find(engine.knobs, s.name,
                                       [](const KnobRow& r) { return std::string(r.name); });
    if (row == engine.knobs.end()) {
      return Status::Error(Code::kBadParam, "engine {} has no knob {}; it has {}", engine.name,
                           s.name, KnobText(engine, DefaultKnobs(engine)));
    }
    if (std::ranges::find(row->domain, s.value) == row->domain.end()) {
      std::string legal;
      for (int v : row->domain) legal += fmt::format("{}{}", legal.empty() ? "" : ", ", v);
      return Status::Error(Code::kBadParam, "engine {}: knob {} has value {}; legal are {}",
                           engine.name, s.name, s.value, legal);
    }
    values[row - engine.knobs.begin()] = s.value;
  }
  return values;
}

Status FitsShared(const Engine& engine, const Group& group, const Target& target,
                  std::span<const int> knobs, int64_t shared_bytes) {
  if (shared_bytes <= target.shared_limit() || !target.is_cuda() || LaunchesNothing(group))
    return {};
  return Status::Error(Code::kSharedMemoryInsufficient,
                       "{} needs {} bytes of shared memory a block; {} has {}{}",
                       KnobText(engine, knobs), shared_bytes, target.arch, target.shared_limit(),
                       target.minimal_launch ? " under KILN_LAUNCH=minimal" : "");
}

bool SameText(const Engine& engine, std::span<const int> a, std::span<const int> b) {
  for (size_t k = 0; k < engine.knobs.size(); ++k) {
    const InText in_text = engine.knobs[k].in_text;
    if (in_text == InText::kValue ? a[k] != b[k]
                                  : in_text == InText::kWhetherOne && (a[k] == 1) != (b[k] == 1))
      return false;
  }
  return true;
}

std::string KnobText(std::span<const KnobRow> rows, std::span<const int> values) {
  std::string text;
  for (size_t i = 0; i < rows.size(); ++i)
    text += fmt::format("{}{}={}", i == 0 ? "" : ",", rows[i].name, values[i]);
  return text;
}

bool LaunchesNothing(const Group& group) {
  return std::ranges::all_of(graph::Outputs(group.graph), [&](graph::TensorId id) {
    return NumElements(group.graph[id].dims) == 0;
  });
}

int64_t FloorBytes(const Group& group) {
  const Traffic traffic = FloorTraffic(group.graph);
  return traffic.read + traffic.written;
}

Traffic FloorTraffic(const graph::Graph& graph) {
  const auto bytes = [&](const std::vector<graph::TensorId>& ids) {
    int64_t sum = 0;
    for (const graph::TensorId id : ids)
      if (!graph[id].by_value) sum += NumElements(graph[id].dims) * SizeOf(graph[id].dtype);
    return sum;
  };
  return {.read = bytes(graph::Inputs(graph)), .written = bytes(graph::Outputs(graph))};
}

}  // namespace kiln::compiler
