// compile(): a graph and a target in, a plan out. The session, the CLI and the tests call it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/engines/engine.h"
#include "compiler/pass.h"

namespace kiln::compiler {

// The outcome for one group, for `kiln explain` and the log.
struct GroupReport {
  std::string engine, knobs;
  std::string work;                   // "conv_fprop, mul, add, max"
  std::vector<std::string> why;       // it is a group of its own
  std::vector<std::string> declined;  // "engine: reason"
  std::vector<std::string> kernels;   // entry names, in launch order
  double modelled_seconds = 0;
  int64_t floor_bytes = 0;
  int64_t read_bytes = 0, written_bytes = 0;  // of these
  int64_t scratch_bytes = 0;                  // workspace that only it uses: written, then read
};

struct CompiledPlan {
  Program program;
  int engine = -1;           // of the leading group; -1 for a graph that launches nothing
  std::vector<int> knobs;    // its values
  int64_t shared_bytes = 0;  // the most that one of its kernels uses
  std::vector<GroupReport> groups;
  std::vector<std::string> why;  // nodes that could be one group are several
  // The bytes of each of the client's tensors once: no division into groups could avoid them.
  int64_t floor_bytes = 0;
};

// Compiles a graph. Errors: what is illegal in the graph, or why the chosen engine declines. No
// device is needed.
Result<CompiledPlan> Compile(const graph::Graph& graph, const Target& target,
                             const EngineChoice& choice = {}, const PassObserver& observer = {},
                             const Advisor& advisor = {});

// The groups of a graph in launch order, as pick-engine leaves them by the model alone. `inputs`:
// as of plans whose engine rounds, which may store operands in other layouts. `engine`: the groups
// of plans that ask for it, -1 for those that ask for none. To know which group leads, one that is
// alone needs no pick, which is most of the work.
struct Groups {
  std::vector<Group> all;
  int leading = -1;  // the one that engine choices speak of; -1 where nothing is computed
};
enum class Picks : uint8_t { kAll, kToFindTheLeading };
Result<Groups> GroupsOf(const graph::Graph& graph, const Target& target,
                        Inputs inputs = Inputs::kExact, int engine = -1, Picks picks = Picks::kAll);

// The plan of least workspace: how its leading group is run, the engines of all groups, and the
// bytes that it needs. Found without printing a kernel. Error: what is illegal in the graph.
struct LeastWorkspace {
  int engine = -1;
  std::vector<int> knobs;
  std::vector<int> engines;
  int64_t bytes = 0;
};
Result<LeastWorkspace> LeastWorkspaceOf(const graph::Graph& graph, const Target& target);

// A group by itself as a program, whose tensors have the uids of the group's graph. For tuning,
// which runs groups alone.
Result<Program> CompileGroup(const Group& group, const Target& target, const Candidate& candidate);

// The bytes of all of the kernel's shared buffers, of one block.
int64_t SharedBytes(const tile::Kernel& kernel);

// The group that engine choices speak of; engines are asked about it. None for a graph that
// computes nothing.
Result<std::optional<Group>> LeadingGroupOf(const graph::Graph& graph, const Target& target,
                                            Inputs inputs = Inputs::kExact, int engine = -1);

}  // namespace kiln::compiler
