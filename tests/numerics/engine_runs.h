// EngineRuns: every engine that takes a case's leading group, with a sample of its configurations,
// each against the oracle. Compiling and running are two steps, since the first is for many threads
// and the second is not.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/engines/engine.h"
#include "runtime/executable.h"
#include "tests/support/cases.h"
#include "tests/support/evaluate.h"

namespace kiln::testing {

// The number of configurations of an engine that a case gets: the engine's first, some of those
// that have a knob at its end (other ones from case to case), and random ones.
struct Sample {
  int extremes = 2, random = 2;
};

// One way to run a case.
struct EngineRun {
  int engine = -1;
  std::vector<int> knobs;
  std::unique_ptr<runtime::Executable> executable;
  std::string failure;  // empty when all is right

  std::string Name() const;  // "wgmma_sm90 tile_left=128,…"
};

compiler::EngineChoice ChoiceOf(const EngineRun& run);

class CaseRuns {
 public:
  // Lists the runs; nothing is compiled. `number` is the case's, for the choice of extremes.
  CaseRuns(runtime::Device& device, const Case& c, uint64_t seed, size_t number, Sample sample);

  const Case& problem() const { return case_; }
  std::vector<EngineRun>& runs() { return runs_; }
  // The error of the case itself, in words.
  const std::string& error() const { return error_; }

  // For many threads at once, with different runs.
  void Compile(EngineRun& run) const;
  // The oracle's results; before Run.
  void Evaluate();
  // Errors of more than `scale` of what the oracle allows are wrong; of more than all of it without
  // this call.
  void Tighten(double scale) { tolerance_.scale = scale; }
  // One thread. False when the device is lost.
  bool Run(EngineRun& run);

  const CaseData& data() const { return before_; }
  // Against the oracle; empty when all is right.
  std::string Check(const EngineRun& run, const CaseData& after) const;

 private:
  class Memory;
  void List(const compiler::Group& group, uint64_t seed, size_t number, Sample sample);
  Status Execute(const EngineRun& run, CaseData& after) const;

  runtime::Device& device_;
  const Case& case_;
  graph::Graph graph_;
  CaseData before_;
  std::map<int, oracle::Dense> exact_, rounded_;  // expected; with f32 operands rounded to TF32
  bool rounds_ = false;                           // an engine among the runs does so
  oracle::Tolerance tolerance_;
  std::vector<EngineRun> runs_;
  std::string error_;
};

// Configurations of an engine for a group, as `sample` says; none that does not fit the target.
std::vector<std::vector<int>> SampleKnobs(const compiler::Engine& engine,
                                          const compiler::Group& group, const Target& target,
                                          uint64_t seed, size_t number, Sample sample);

}  // namespace kiln::testing
