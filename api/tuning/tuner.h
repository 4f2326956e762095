// Tuner: the search (compiler/tune/search.h) on a device with the records of a store. Called when a
// plan is made under KILN_TUNE=on-miss or retune, and by `kiln tune`.
#pragma once

#include <mutex>
#include <set>

#include "api/tuning/group_bench.h"
#include "api/tuning/record_store.h"

namespace kiln::api {

// Measures one group and stores each result at once. `on_step` may be null; it is called after the
// record is stored.
Result<compiler::SearchResult> TuneGroup(
    runtime::Device& device, const compiler::Group& group, RecordStore& store,
    const compiler::SearchOptions& search, const BenchOptions& bench,
    const std::function<void(const compiler::SearchStep&)>& on_step);

// What a session does by itself, for each problem once a process.
class PlanTuner {
 public:
  PlanTuner(runtime::Device& device, RecordStore& store) : device_(device), store_(store) {}
  // Of on-miss: groups that have no record; of retune: all. Failures are lines in the log, since a
  // plan is made without. One thread measures at a time. Of rounded inputs: groups that have
  // engines for them.
  void Tune(const std::vector<compiler::Group>& groups, compiler::Inputs inputs, TuneMode mode,
            runtime::Stream stream);

 private:
  runtime::Device& device_;
  RecordStore& store_;
  std::mutex mutex_;
  std::set<std::string> done_;  // problems
};

}  // namespace kiln::api
