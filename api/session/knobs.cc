#include "api/session/knobs.h"

#include <algorithm>

#include "api/spec/cudnn_types.h"
#include "compiler/engines/registry.h"

namespace kiln::api {
namespace {

using compiler::Engine;
using compiler::EngineChoice;
using compiler::KnobRow;

constexpr KnobValue kLeastWorkspace = {.type = CUDNN_KNOB_TYPE_WORKSPACE, .value = 1};

// Null: the compiler's choice.
Result<const Engine*> EngineOf(const EngineConfig& config) {
  const auto engines = compiler::Engines();
  if (config.engine == kCompilersChoice) return nullptr;
  if (config.engine < 0 || config.engine >= static_cast<int64_t>(engines.size())) {
    return Status::Error(Code::kInvalidValue,
                         "row {} of the engines does not exist; there are rows 0 to {}, and {} for "
                         "the compiler's choice",
                         config.engine, engines.size() - 1, kCompilersChoice);
  }
  return &EngineAt(config.engine);
}

Status SetWorkspace(int64_t value, EngineChoice& choice) {
  if (value != 0 && value != 1) {
    return Status::Error(Code::kBadParam,
                         "the workspace knob has value {}; legal are 0, as much as is fastest, "
                         "and 1, the least",
                         value);
  }
  choice.least_workspace = value == 1;
  return {};
}

Status SetKnob(const Engine* engine, const KnobValue& knob, EngineChoice& choice) {
  if (engine == nullptr)
    return Status::Error(Code::kBadParam,
                         "where the compiler chooses the engines, there is no knob of type {}",
                         knob.type);
  const auto row = std::ranges::find(engine->knobs, knob.type, &KnobRow::cudnn_type);
  if (row == engine->knobs.end())
    return Status::Error(Code::kBadParam, "engine {} has no knob of type {}", engine->name,
                         knob.type);
  if (knob.value < 0 || knob.value >= static_cast<int64_t>(row->domain.size())) {
    return Status::Error(Code::kBadParam, "engine {}: knob {} has value {}; legal are 0 to {}",
                         engine->name, row->name, knob.value, row->domain.size() - 1);
  }
  choice.knobs.push_back({row->name, row->domain[static_cast<size_t>(knob.value)]});
  return {};
}

}  // namespace

const Engine& EngineAt(int64_t index) { return compiler::Engines()[static_cast<size_t>(index)]; }

Result<EngineChoice> ChoiceOf(const EngineConfig& config) {
  ASSIGN_OR_RETURN(const Engine* const engine, EngineOf(config));
  EngineChoice choice{.engine = static_cast<int>(config.engine), .knobs = {}};
  for (const KnobValue& knob : config.knobs)
    RETURN_IF_ERROR(knob.type == CUDNN_KNOB_TYPE_WORKSPACE ? SetWorkspace(knob.value, choice)
                                                           : SetKnob(engine, knob, choice));
  return choice;
}

EngineConfig ConfigOf(int engine_index, std::span<const int> values, bool least_workspace) {
  EngineConfig config{.engine = engine_index, .knobs = {}};
  const Engine& engine = EngineAt(engine_index);
  for (size_t i = 0; i < engine.knobs.size(); ++i) {
    const auto domain = engine.knobs[i].domain;
    config.knobs.push_back({.type = engine.knobs[i].cudnn_type,
                            .value = std::ranges::find(domain, values[i]) - domain.begin()});
  }
  if (least_workspace) config.knobs.push_back(kLeastWorkspace);
  return config;
}

EngineConfig LeastWorkspaceOfAny() { return {.knobs = {kLeastWorkspace}}; }

compiler::Inputs InputsOf(const EngineChoice& choice) {
  if (choice.engine < 0) return compiler::Inputs::kExact;
  return compiler::InputsOf(EngineAt(choice.engine));
}

}  // namespace kiln::api
