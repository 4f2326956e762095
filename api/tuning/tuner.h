// Tuner: the search (compiler/tune/search.h) on a device with the records of a store. Called when a
// plan is made under KILN_TUNE=on-miss or retune, and by `kiln tune`.
#pragma once

#include <mutex>
#include <set>

#include "api/tuning/group_bench.h"
#include "api/tuning/record_store.h"
#include "api/tuning/search_budget.h"

namespace kiln::api {

// Measures one group and stores each result at once. `on_step` may be null; it is called after the
// record is stored.
Result<compiler::SearchResult> TuneGroup(
    runtime::Device& device, const compiler::Group& group, RecordStore& store,
    compiler::SearchOptions search, const BenchOptions& bench,
    const std::function<void(const compiler::SearchStep&)>& on_step);

// The effort with which the fastest configuration of a problem is looked for. Programs wait for it;
// `kiln tune` looks further.
struct TuneEffort {
  int patience;
  int top;                             // of the ranked list; 0: all
  std::optional<int> worth_compiling;  // of those: others where their kernels are there; none: all
  double seconds;
  double seconds_per_time;
  int rounds;              // of times
  int64_t compared_bytes;  // of outputs, beyond which windows are
  bool confirm;            // the few fastest, in turns
};
inline constexpr TuneEffort kToPlan = {.patience = 6,
                                       .top = 0,
                                       .worth_compiling = {},
                                       .seconds = 10,
                                       .seconds_per_time = 0.03,
                                       .rounds = 3,
                                       .compared_bytes = int64_t{128} << 20,
                                       .confirm = true};
// The effort of cudnnFind…, which clients call once for each of hundreds of shapes, before the
// first step: for as long as its budget says.
inline constexpr TuneEffort kToFind = {.patience = 4,
                                       .top = 12,
                                       .worth_compiling = 2,
                                       .seconds = 2,
                                       .seconds_per_time = 0.002,
                                       .rounds = 1,
                                       .compared_bytes = int64_t{8} << 20,
                                       .confirm = false};

// PlanTuner measures what a session measures by itself, each problem once a process.
class PlanTuner {
 public:
  PlanTuner(runtime::Device& device, RecordStore& store) : device_(device), store_(store) {}
  // Measures all groups for retune, else those that have no record; with rounded inputs, groups
  // that have engines for them. Failures are lines in the log, since a plan is made without. One
  // thread measures at a time.
  void Tune(const std::vector<compiler::Group>& groups, compiler::Inputs inputs, TuneMode mode,
            runtime::Stream stream, const TuneEffort& effort) {
    TuneWithin(groups, inputs, mode, stream, effort, nullptr);
  }
  // Measures for cudnnFind…; `compile_seconds` is what a kernel costs to compile, 0 where that is
  // next to nothing.
  void Find(const std::vector<compiler::Group>& groups, compiler::Inputs inputs, TuneMode mode,
            runtime::Stream stream, double compile_seconds);

 private:
  void TuneWithin(const std::vector<compiler::Group>& groups, compiler::Inputs inputs,
                  TuneMode mode, runtime::Stream stream, const TuneEffort& effort,
                  const SearchBudget* budget);
  // Fits `search` to what is left of the budget; false where a search would find nothing.
  bool Limit(const compiler::Group& group, const SearchBudget& budget,
             compiler::SearchOptions& search);

  runtime::Device& device_;
  RecordStore& store_;
  std::mutex mutex_;
  std::set<std::string> done_;  // problems
};

}  // namespace kiln::api
