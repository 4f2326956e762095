// The registry of engines and what follows from their rows.
#include <algorithm>

#include "compiler/engines/attention_engines.h"
#include "compiler/engines/columns.h"
#include "compiler/engines/contract_grouped_sm90.h"
#include "compiler/engines/contract_mma.h"
#include "compiler/engines/contract_simt.h"
#include "compiler/engines/conv_direct.h"
#include "compiler/engines/conv_first_layer.h"
#include "compiler/engines/conv_halo_sm90.h"
#include "compiler/engines/ctc.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/knob_types.h"
#include "compiler/engines/pointwise.h"
#include "compiler/engines/recurrence.h"
#include "compiler/engines/recurrence_sm80.h"
#include "compiler/engines/recurrence_sm90.h"
#include "compiler/engines/recurrence_stack_sm80.h"
#include "compiler/engines/recurrence_steps.h"
#include "compiler/engines/reduce.h"
#include "compiler/engines/rows.h"
#include "compiler/engines/segments/segments.h"
#include "compiler/engines/wgmma_sm90.h"
#include "compiler/engines/window.h"
#include "compiler/engines/winograd.h"
#include "compiler/machine.h"

namespace kiln::compiler {

std::span<const Engine> Engines() {
  // Append only: plans' JSON and kernel caches hold the position, and the API's global indices of a
  // graph's engines follow the order.
  static const Engine kEngines[] = {kPointwiseEngine,
                                    kReduceEngine,
                                    kContractSimtEngine,
                                    kContractMmaEngine,
                                    kWgmmaSm90Engine,
                                    kConvDirectEngine,
                                    kConvFirstLayerEngine,
                                    kContractMmaTf32Engine,
                                    kContractMmaAtomicEngine,
                                    kConvHaloSm90Engine,
                                    kWgmmaSm90Tf32Engine,
                                    kWindowEngine,
                                    kRowsEngine,
                                    kWgmmaSm903xTf32Engine,
                                    kColumnsEngine,
                                    kAttentionSm90Engine,
                                    kAttentionGradSm90Engine,
                                    kAttentionGradSm90AtomicEngine,
                                    kAttentionSm80Engine,
                                    kAttentionGradSm80Engine,
                                    kAttentionGradSm80AtomicEngine,
                                    kWinogradEngine,
                                    kWinogradSm90Engine,
                                    kRecurrenceEngine,
                                    kCtcEngine,
                                    kRecurrenceSm80Engine,
                                    kRecurrenceSm80Tf32Engine,
                                    kAttentionDecodeEngine,
                                    kRecurrenceSm80F32Engine,
                                    kRecurrenceSm90Engine,
                                    kRecurrenceSm90Tf32Engine,
                                    kAttentionBytesSm90Engine,
                                    kAttentionSm80Tf32Engine,
                                    kAttentionSm80F32Engine,
                                    kAttentionGradSm80Tf32Engine,
                                    kAttentionGradSm80F32Engine,
                                    kRecurrenceStackSm80Engine,
                                    kRecurrenceStackSm80Tf32Engine,
                                    kContractGroupedSm90Engine,
                                    kRecurrenceStepsEngine,
                                    kRecurrenceStepsTf32Engine,
                                    kSegmentsEngine};
  return kEngines;
}

int EngineIndex(std::string_view name) {
  const auto engines = Engines();
  const auto it =
      std::ranges::find(engines, name, [](const Engine& e) { return std::string_view(e.name); });
  return it == engines.end() ? -1 : static_cast<int>(it - engines.begin());
}

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

std::vector<int> DefaultKnobs(const Engine& engine) {
  std::vector<int> values;
  for (const KnobRow& row : engine.knobs) values.push_back(row.domain.front());
  return values;
}

std::vector<std::vector<int>> NeighbouringKnobs(const Engine& engine) {
  const std::vector<int> defaults = DefaultKnobs(engine);
  std::vector<std::vector<int>> all = {defaults};
  for (size_t k = 0; k < engine.knobs.size(); ++k) {
    for (int value : engine.knobs[k].domain) {
      if (value == defaults[k]) continue;
      all.push_back(defaults);
      all.back()[k] = value;
    }
  }
  std::vector<int> last;
  for (const KnobRow& row : engine.knobs) last.push_back(row.domain.back());
  if (std::ranges::find(all, last) == all.end()) all.push_back(std::move(last));
  return all;
}

std::vector<std::vector<int>> CandidateKnobs(const Engine& engine, const Group& group,
                                             const Target& target) {
  std::vector<std::vector<int>> all;
  if (engine.candidates != nullptr)
    all = engine.candidates(group, target);
  else if (engine.propose == nullptr)
    all = NeighbouringKnobs(engine);
  else
    for (Proposal& p : engine.propose(group, target)) all.push_back(std::move(p.knobs));
  if (all.empty()) all.push_back(DefaultKnobs(engine));
  return all;
}

std::vector<Proposal> Propose(const Engine& engine, const Group& group, const Target& target) {
  if (engine.propose != nullptr) {
    std::vector<Proposal> all = engine.propose(group, target);
    if (!all.empty()) return all;
  }
  const bool asks_shared =
      engine.shared_bytes != nullptr && target.is_cuda() && !LaunchesNothing(group);
  std::vector<Proposal> all;
  for (std::vector<int>& knobs : CandidateKnobs(engine, group, target)) {
    Proposal p{.knobs = std::move(knobs)};
    if (asks_shared) p.shared_bytes = engine.shared_bytes(group, target, p.knobs);
    if (p.shared_bytes <= target.shared_limit()) p.seconds = engine.cost(group, target, p.knobs);
    all.push_back(std::move(p));
  }
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
                  std::span<const int> knobs) {
  if (engine.shared_bytes == nullptr || !target.is_cuda() || LaunchesNothing(group)) return {};
  return FitsShared(engine, group, target,
                    Proposal{.knobs = {knobs.begin(), knobs.end()},
                             .shared_bytes = engine.shared_bytes(group, target, knobs)});
}

Status FitsShared(const Engine& engine, const Group& group, const Target& target,
                  const Proposal& proposal) {
  const int64_t bytes = proposal.shared_bytes;
  if (bytes <= target.shared_limit() || !target.is_cuda() || LaunchesNothing(group)) return {};
  return Status::Error(Code::kSharedMemoryInsufficient,
                       "{} needs {} bytes of shared memory a block; {} has {}{}",
                       KnobText(engine, proposal.knobs), bytes, target.arch, target.shared_limit(),
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

std::string KnobText(const Engine& engine, std::span<const int> values) {
  std::string text;
  for (size_t i = 0; i < engine.knobs.size(); ++i)
    text += fmt::format("{}{}={}", i == 0 ? "" : ",", engine.knobs[i].name, values[i]);
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

double BytesPerSecond(const Target& target) {
  return target.is_cuda() ? MachineOf(target).bytes_per_second : 0;
}

}  // namespace kiln::compiler
