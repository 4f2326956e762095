// compile(): a graph and a target in, a plan out. What the session, the CLI and the tests call.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/engines/engine.h"
#include "compiler/pass.h"

namespace kiln::compiler {

// What became of one group, for `kiln explain` and the log.
struct GroupReport {
  std::string engine, knobs;
  std::string work;                   // "conv_fprop, mul, add, max"
  std::vector<std::string> declined;  // "engine: reason"
  std::vector<std::string> kernels;   // entry names, in launch order
  double modelled_seconds = 0;
  int64_t floor_bytes = 0;
};

struct CompiledPlan {
  Program program;
  int engine = -1;           // of the leading group; -1 for a graph that launches nothing
  std::vector<int> knobs;    // its values
  int64_t shared_bytes = 0;  // the most that one of its kernels uses
  std::vector<GroupReport> groups;
};

// Errors: what is illegal in the graph, or why the chosen engine declines. No device is needed.
Result<CompiledPlan> Compile(const graph::Graph& graph, const Target& target,
                             const EngineChoice& choice = {}, const PassObserver& observer = {});

// Of one block, all of the kernel's shared buffers.
int64_t SharedBytes(const tile::Kernel& kernel);

// The group that engine choices speak of, as the passes before pick-engine leave it; for asking
// engines. None for a graph that computes nothing.
Result<std::optional<Group>> LeadingGroupOf(const graph::Graph& graph, const Target& target);

}  // namespace kiln::compiler
