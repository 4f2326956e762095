#include "api/tuning/tuner.h"

#include <algorithm>
#include <thread>

#include "ir/base/log.h"

namespace kiln::api {
namespace {

bool ComputesNothing(const graph::Graph& graph) {
  for (const graph::TensorId id : graph::Outputs(graph))
    if (NumElements(graph[id].dims) > 0) return false;
  return true;
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

void PlanTuner::Tune(const std::vector<compiler::Group>& groups, compiler::Inputs inputs,
                     TuneMode mode, runtime::Stream stream, const TuneEffort& effort) {
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
    compiler::SearchOptions search{
        .inputs = here,
        .patience = effort.patience,
        .top = effort.top,
        .worth_compiling = effort.worth_compiling,
        .jobs = static_cast<int>(std::max(1u, std::thread::hardware_concurrency())),
        .retune = mode == TuneMode::kRetune,
        .confirm = effort.confirm};
    search.deadline = GroupBench::Clock() + effort.seconds;
    const auto result = TuneGroup(device_, group, store_, search, bench, {});
    if (!result.ok()) LOG(kWarn, "tuning: {}", result.status().message());
  }
}

}  // namespace kiln::api
