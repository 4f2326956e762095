// The plans of a training step of ResNet-50 (every distinct convolution of the bench list, forward
// and backward), or of a network's graphs, at any batch size, with what a client gets who takes the
// first configuration of the heuristics. For counting the kernels that a step needs and timing how
// they come about, without a device.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/compile.h"
#include "ir/base/result.h"

namespace kiln::bench {

struct StepProblem {
  std::string name;  // "fprop/l1_3x3"
  graph::Graph graph;
};

// The sections resnet50_*_n256 of `cases`, a text like tests/cases/bench_contract.txt, with
// `images` in place of 256.
Result<std::vector<StepProblem>> StepProblems(std::string_view cases, int64_t images);

// The graphs of a network's file (api/prefetch/known_networks.h) at that batch.
Result<std::vector<StepProblem>> NetworkProblems(const std::string& file, int64_t images);

struct StepPlan {
  std::string name;
  std::string engine, knobs;         // of the group that leads
  std::vector<std::string> kernels;  // entries, in launch order
  double seconds = 0;                // modelled, of the choice
  double least_seconds = 0;          // modelled, of the configuration that the model likes best
};

struct StepPlans {
  std::vector<StepPlan> plans;
  std::map<std::string, KernelSource> kernels;  // by entry, which hashes the text
};

Result<StepPlans> PlanStep(const std::vector<StepProblem>& problems, const Target& target);

// Milliseconds of CPU time in which the models rank the configurations of all leading groups, the
// sum of the least of five of each.
Result<double> RankMilliseconds(const std::vector<StepProblem>& problems, const Target& target);

// Milliseconds of CPU time from each graph to its plan, as a client takes it: heuristics, the first
// configuration, its engine, its plan; no kernel is compiled. Each in sessions that remember
// nothing of the graph; the least of five.
std::vector<double> PlanMilliseconds(const std::vector<StepProblem>& problems);

// The H200 as a description.
Target H200();

}  // namespace kiln::bench
