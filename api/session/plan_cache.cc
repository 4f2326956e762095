#include "api/session/plan_cache.h"

#include <unordered_map>

namespace kiln::api {
namespace {

std::string KeyOf(const graph::Canonical& canonical, const Target& target,
                  const compiler::EngineChoice& choice, int64_t advice_epoch) {
  std::string key =
      fmt::format("{} advice{} engine{} least{} limit{}", kiln::api::KeyOf(target), advice_epoch,
                  choice.engine, choice.least_workspace, choice.workspace_limit);
  for (const compiler::KnobSetting& knob : choice.knobs)
    key += fmt::format(" {}={}", knob.name, knob.value);
  return key + "\n" + canonical.text;
}

// The program names its tensors by position in the canonical graph while it is cached.
void RenameToNumbers(Program& program, const std::vector<int64_t>& uids) {
  std::unordered_map<int64_t, int64_t> numbers;
  for (const int64_t uid : uids) numbers.try_emplace(uid, static_cast<int64_t>(numbers.size()));
  for (ProgramTensor& tensor : program.tensors) tensor.uid = numbers.at(tensor.uid);
}

void RenameToUids(Program& program, const std::vector<int64_t>& uids) {
  for (ProgramTensor& tensor : program.tensors) tensor.uid = uids[static_cast<size_t>(tensor.uid)];
}

}  // namespace

std::string KeyOf(const Target& t) {
  return fmt::format(
      "{} {} {} {} sm{} threads{} shared{} registers{} l2 {} clock{} memory{} "
      "minimal{}",
      static_cast<int>(t.kind), t.arch, t.name, t.sm_version, t.multiprocessors,
      t.max_threads_per_block, t.shared_bytes_per_block, t.registers_per_multiprocessor, t.l2_bytes,
      t.clock_hz, t.memory_bytes_per_second, t.minimal_launch);
}

Result<compiler::CompiledPlan> PlanCache::Get(const graph::Graph& graph, const Target& target,
                                              const compiler::EngineChoice& choice,
                                              const compiler::Advisor& advisor,
                                              int64_t advice_epoch) {
  const graph::Canonical canonical = graph::Canonicalize(graph);
  std::string key = KeyOf(canonical, target, choice, advice_epoch);
  std::shared_ptr<const compiler::CompiledPlan> known = plans_.Find(key);
  if (known == nullptr) {
    ASSIGN_OR_RETURN(compiler::CompiledPlan made,
                     compiler::Compile(graph, target, choice, {}, advisor));
    RenameToNumbers(made.program, canonical.uids);
    known = std::make_shared<const compiler::CompiledPlan>(std::move(made));
    plans_.Insert(std::move(key), known);
  }
  compiler::CompiledPlan plan = *known;
  RenameToUids(plan.program, canonical.uids);
  return plan;
}

}  // namespace kiln::api
