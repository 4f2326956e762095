#include "api/session/engine_catalog.h"

#include <algorithm>

#include "api/session/knobs.h"
#include "api/spec/cudnn_types.h"
#include "compiler/engines/registry.h"
#include "ir/graph/ops.h"

namespace kiln::api {
namespace {

using compiler::Engine;
using compiler::Group;
using compiler::Groups;

void AddNotes(const Engine& engine, EngineFacts& facts) {
  const auto add = [](std::span<const int> notes, std::vector<int32_t>& all) {
    for (const int note : notes)
      if (std::ranges::find(all, note) == all.end()) all.push_back(note);
  };
  add(engine.notes.numerical, facts.numerical_notes);
  add(engine.notes.behavioral, facts.behavior_notes);
}

}  // namespace

std::vector<int64_t> EngineCatalog::EnginesOf(const graph::Graph& graph) const {
  const std::string text = graph::CanonicalText(graph);
  if (const auto known = engines_of_.Find(text)) return *known;
  std::vector<int64_t> takers = {kCompilersChoice};
  for (int64_t e = 0; e < std::ssize(compiler::Engines()); ++e)
    if (Takes(graph, e).ok()) takers.push_back(e);
  engines_of_.Insert(text, std::make_shared<const std::vector<int64_t>>(takers));
  return takers;
}

Result<EngineFacts> EngineCatalog::Describe(const graph::Graph& graph, int64_t index) const {
  ASSIGN_OR_RETURN(EngineFacts facts, index == kCompilersChoice ? FactsOfCompilersChoice(graph)
                                                                : FactsOfEngine(graph, index));
  if (HasGraphs())
    facts.behavior_notes.push_back(CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API);
  facts.knobs.push_back({.type = CUDNN_KNOB_TYPE_WORKSPACE, .maximum = 1});
  return facts;
}

Status EngineCatalog::Takes(const graph::Graph& graph, int64_t index) const {
  ASSIGN_OR_RETURN(const compiler::EngineChoice choice, ChoiceOf({.engine = index, .knobs = {}}));
  const Engine& engine = EngineAt(choice.engine);
  ASSIGN_OR_RETURN(const std::shared_ptr<const Groups> groups,
                   groups_.Get(graph, InputsOf(choice), choice.engine));
  const Group* const group = LeadingGroups::Leading(*groups);
  if (group == nullptr) return {};
  return compiler::Supports(engine, *group, target_)
      .Within(fmt::format("engine {} declines the graph", engine.name));
}

Result<EngineFacts> EngineCatalog::FactsOfEngine(const graph::Graph& graph, int64_t index) const {
  RETURN_IF_ERROR(Takes(graph, index));
  const Engine& engine = EngineAt(index);
  EngineFacts facts{.name = engine.name};
  AddNotes(engine, facts);
  for (const compiler::KnobRow& row : engine.knobs)
    facts.knobs.push_back(
        {.type = row.cudnn_type, .maximum = static_cast<int64_t>(row.domain.size()) - 1});
  return facts;
}

// The notes of all engines that work in its plans, in the fastest and in that of least workspace:
// clients filter by notes whatever knob they set.
Result<EngineFacts> EngineCatalog::FactsOfCompilersChoice(const graph::Graph& graph) const {
  ASSIGN_OR_RETURN(const Groups groups, compiler::GroupsOf(graph, target_));
  ASSIGN_OR_RETURN(const compiler::LeastWorkspace least,
                   compiler::LeastWorkspaceOf(graph, target_));
  EngineFacts facts{.name = "compiler's choice"};
  for (const Group& group : groups.all) AddNotes(EngineAt(group.engine), facts);
  for (const int engine : least.engines) AddNotes(EngineAt(engine), facts);
  return facts;
}

// A described device is known to be a GPU, and believed to have a driver that is new enough.
bool EngineCatalog::HasGraphs() const {
  return device_ != nullptr ? device_->has_graphs() : target_.is_cuda() && !target_.minimal_launch;
}

}  // namespace kiln::api
