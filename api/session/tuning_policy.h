// TuningPolicy: what KILN_TUNE means for a session: which rankings follow records, which records
// plans are made with, and when something is measured. It stands between the session and the tuning
// records (api/tuning), so that nothing else of the session asks for the mode.
//
// Safe from many threads: all members are constant or have locks of their own.
#pragma once

#include <memory>

#include "api/session/session.h"
#include "api/tuning/tuner.h"
#include "compiler/compile.h"
#include "compiler/engines/candidates.h"
#include "runtime/device.h"

namespace kiln::api {

class TuningPolicy {
 public:
  // `device`: null where plans are made for a device that is not here; nothing is measured then.
  TuningPolicy(const Target& target, runtime::Device* device);

  bool is_off() const { return mode_ == TuneMode::kOff; }
  // A number that changes with what rankings follow; part of the keys of what is kept of them.
  int64_t epoch() const { return is_off() ? 0 : records_.epoch(); }

  // The candidates for a group, best first, by records or by the model, as the mode has it.
  std::vector<compiler::Candidate> Rank(const compiler::Group& group, RankMode mode,
                                        compiler::Inputs inputs) const;

  // Advice on groups that a choice does not speak of. Without an advisor the model decides.
  struct Advice {
    compiler::Advisor advisor;
    int64_t epoch = 0;
  };
  Advice AdviceForPlans() const;

  // True if making a plan measures what is not on record (on-miss, retune).
  bool MeasuresPlans() const;
  // Measures what is not on record, for a plan that is about to be made. A client that took the
  // model's first choice gets the fastest instead; another choice is the client's own, and stays.
  Status TuneForPlan(const graph::Graph& graph, void* stream, compiler::EngineChoice& choice);
  // Session::Explore of a configuration.
  bool Explore(const graph::Graph& graph, const EngineConfig& config, void* stream);

 private:
  Status Find(const graph::Graph& graph, const EngineConfig& config, void* stream);
  bool IsModelsChoice(const compiler::Group& group, compiler::Inputs inputs,
                      const compiler::EngineChoice& choice) const;

  const Target target_;
  runtime::Device* const device_;
  const TuneMode mode_ = TuneModeFromEnv();
  RecordStore& records_ = RecordStore::OfProcess();
  const std::unique_ptr<PlanTuner> tuner_;  // null without a device
};

}  // namespace kiln::api
