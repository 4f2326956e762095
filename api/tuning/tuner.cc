#include "api/tuning/tuner.h"

#include <algorithm>
#include <cmath>

#include "compiler/compile.h"
#include "ir/base/log.h"
#include "ir/base/threads.h"
#include "runtime/prepare.h"

namespace kiln::api {
namespace {

bool ComputesNothing(const graph::Graph& graph) {
  for (const graph::TensorId id : graph::Outputs(graph))
    if (NumElements(graph[id].dims) > 0) return false;
  return true;
}

bool IsReady(runtime::Device& device, const Program& program) {
  return std::ranges::all_of(program.kernels,
                             [&](const KernelSource& kernel) { return device.IsReady(kernel); });
}

// A budget is spent in this order: what is asked for before what moves data for it, the expensive
// before the cheap.
std::vector<compiler::Group> ByWhatTheyCanWin(std::vector<compiler::Group> groups) {
  std::ranges::stable_sort(groups, [](const compiler::Group& a, const compiler::Group& b) {
    return std::pair(a.moves_data, b.least_cost) < std::pair(b.moves_data, a.least_cost);
  });
  return groups;
}

}  // namespace

Result<compiler::SearchResult> TuneGroup(
    runtime::Device& device, const compiler::Group& group, RecordStore& store,
    compiler::SearchOptions search, const BenchOptions& bench_options,
    const std::function<void(const compiler::SearchStep&)>& on_step) {
  if (ComputesNothing(group.graph)) return compiler::SearchResult{};
  const Target& target = device.target();
  const std::vector<compiler::Record> known =
      store.Known(group, target, compiler::ProblemOf(group, target));
  ASSIGN_OR_RETURN(const std::unique_ptr<GroupBench> bench,
                   GroupBench::Make(device, group, bench_options));
  bench->Expect(search.inputs);
  if (!store.Has(group, target, search.inputs))
    search.first = store.Best(group, target, search.inputs);
  return compiler::Search(group, target, known, search, *bench,
                          [&](const compiler::SearchStep& step) {
                            store.Add(step.record);
                            if (on_step) on_step(step);
                          });
}

void PlanTuner::Find(const std::vector<compiler::Group>& groups, compiler::Inputs inputs,
                     TuneMode mode, runtime::Stream stream, double compile_seconds) {
  double seconds = 0;
  for (const compiler::Group& group : groups) seconds += std::isfinite(group.cost) ? group.cost : 0;
  const SearchBudget budget(seconds, compile_seconds, GroupBench::Clock);
  TuneWithin(ByWhatTheyCanWin(groups), inputs, mode, stream, kToFind, &budget);
}

bool PlanTuner::Limit(const compiler::Group& group, const SearchBudget& budget,
                      compiler::SearchOptions& search) {
  const Target& target = device_.target();
  std::vector<compiler::Candidate> ranked = compiler::RankCandidates(group, target, search.inputs);
  if (search.top > 0 && ranked.size() > static_cast<size_t>(search.top))
    ranked.resize(static_cast<size_t>(search.top));
  const auto wanted = static_cast<size_t>(search.worth_compiling.value_or(search.top));
  const Result<Program> reference = GroupBench::ReferenceOf(group, target);
  if (!reference.ok()) return false;
  ReadyKernels ready{.reference = IsReady(device_, *reference)};
  std::vector<KernelSource> sources = reference->kernels;
  for (size_t i = 0; i < ranked.size() && (i < wanted || ready.candidates < 2); ++i) {
    const Result<Program> program = compiler::CompileGroup(group, target, ranked[i]);
    if (!program.ok()) continue;
    ready.candidates += IsReady(device_, *program);
    if (i < wanted) std::ranges::copy(program->kernels, std::back_inserter(sources));
  }
  const SearchScope scope = budget.ScopeOf(ready, static_cast<int>(wanted));
  if (!scope.is_worthwhile) return false;
  search.worth_compiling = scope.worth_compiling;
  search.deadline = budget.deadline();
  if (scope.worth_compiling > 0) runtime::PrepareTogether(device_, sources);
  return true;
}

void PlanTuner::TuneWithin(const std::vector<compiler::Group>& groups, compiler::Inputs inputs,
                           TuneMode mode, runtime::Stream stream, const TuneEffort& effort,
                           const SearchBudget* budget) {
  const std::lock_guard lock(mutex_);
  for (const compiler::Group& group : groups) {
    const bool takes = !compiler::RankCandidates(group, device_.target(), inputs).empty();
    const auto here = takes ? inputs : compiler::Inputs::kExact;
    if (mode != TuneMode::kRetune && store_.Has(group, device_.target(), here)) continue;
    const std::string problem = fmt::format(
        "{} {}", compiler::ProblemOf(group, device_.target()).hash, static_cast<int>(here));
    if (done_.contains(problem)) continue;
    if (!device_.CanMeasure(stream)) {
      LOG(kInfo, "tuning: nothing is measured while a stream is being captured");
      return;
    }
    done_.insert(problem);
    const BenchOptions bench{.seconds_per_time = effort.seconds_per_time,
                             .rounds = effort.rounds,
                             .compared_bytes = effort.compared_bytes};
    compiler::SearchOptions search{.inputs = here,
                                   .patience = effort.patience,
                                   .top = effort.top,
                                   .worth_compiling = effort.worth_compiling,
                                   .jobs = Cores(),
                                   .retune = mode == TuneMode::kRetune,
                                   .confirm = effort.confirm};
    search.deadline = GroupBench::Clock() + effort.seconds;
    if (budget != nullptr && !Limit(group, *budget, search)) continue;
    const auto result = TuneGroup(device_, group, store_, search, bench, {});
    if (!result.ok()) LOG(kWarn, "tuning: {}", result.status().message());
  }
}

}  // namespace kiln::api
