// Module: the state that the passes transform. One struct carries all forms; `form` says which of
// its parts are valid.
//
//   kApi       graph: as the client gave it, composite ops
//   kPrimitive graph: maps, reduces, contractions, views only
//   kGrouped   groups: each node of the graph that is computed stands in a group, in launch order
//   kTiled     each group has its engine, its tile kernels and their launches
//   kProgram   program: texts and numbers, nothing of the graph is needed any more
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/lowered.h"
#include "ir/graph/graph.h"
#include "ir/program.h"
#include "ir/target.h"

namespace kiln::compiler {

enum class Form : uint8_t { kApi, kPrimitive, kGrouped, kTiled, kProgram };

enum class GroupKind : uint8_t {
  kPointwise,
  kReduce,
  kContract,
  kAttention,
  kWindow,
  kRows,
  kRecurrence,
  kProducts,
  kSegments,
  kPeers
};

// uid of a constant that passes made: kLiteral stands as a literal in the kernel, kLaunchNumber
// depends on extents (a count) and is passed at launch, so that it does not become part of the
// kernel.
inline constexpr int64_t kLiteralUid = -1;
inline constexpr int64_t kLaunchNumberUid = -2;

// The work of one engine: a self-contained graph. Its inputs are tensors of the module's graph or
// results of earlier groups; its outputs are the tensors that somebody outside needs. Inside, all
// others are virtual.
struct Group {
  GroupKind kind = GroupKind::kPointwise;
  graph::Graph graph = {};
  std::vector<graph::TensorId> outer =
      {};  // outer[i]: the module graph's tensor of graph.tensors[i]
  // True if materialise made the group: it stores an operand of a contraction, or moves its
  // results. Such a group never leads.
  bool moves_data = false;
  // True if least workspace is asked for: engines that need none take what others would be faster
  // at.
  bool stores_little = false;
  // Sentences of partition and materialise that say why it is a group of its own, and stored or
  // read as it is.
  std::vector<std::string> why = {};
  // Filled by pick-engine and lower:
  int engine = -1;
  std::vector<int> knobs = {};             // values, in the order of the engine's rows
  double cost = 0;                         // seconds, by the engine's model
  double least_cost = 0;                   // of the cheapest configuration, chosen or not
  std::vector<std::string> declined = {};  // "engine: reason" of the engines that were asked before
  Lowered lowered = {};
};

// A way to run a group.
struct Candidate {
  int engine = -1;              // index in Engines()
  std::vector<int> knobs = {};  // a value for each row
  double seconds = 0;           // by the engine's model, which follows from the rest

  bool operator==(const Candidate& other) const {
    return engine == other.engine && knobs == other.knobs;
  }
};

// A function that knows of a group better than the model: by a tuning record. The candidate is
// legal and supported.
using Advisor = std::function<std::optional<Candidate>(const Group&)>;

struct KnobSetting {
  std::string name;
  int value = 0;
  bool operator==(const KnobSetting&) const = default;
};

// A request for the most expensive group; -1 leaves the choice to the model. Two requests are for
// all groups: as little workspace as the engines can do with, rather than the least time; or the
// least time with so many bytes of workspace at most, -1 for any number.
struct EngineChoice {
  int engine = -1;
  std::vector<KnobSetting> knobs = {};
  bool least_workspace = false;
  int64_t workspace_limit = -1;
  bool operator==(const EngineChoice&) const = default;
};

struct Module {
  Form form = Form::kApi;
  graph::Graph graph = {};
  std::vector<Group> groups = {};
  std::vector<std::string> why = {};  // no engine takes some nodes as one, in sentences
  Program program = {};
};

// The treatment of f32 inputs by the engines of a plan: they take them as they are, round them to
// TF32, or multiply them in Winograd's coordinates, where a result has the errors of its whole
// tile. Clients can tell by notes who does not take them as they are.
enum class Inputs : uint8_t { kExact, kRounded, kWinograd };
inline constexpr Inputs kAllInputs[] = {Inputs::kExact, Inputs::kRounded, Inputs::kWinograd};

struct PassContext {
  Target target = {};
  EngineChoice choice = {};
  int groups_for = -1;  // the engine that is asked for: one that takes attention whole gets it so
  Inputs inputs = Inputs::kExact;  // of the engine that is chosen
  Advisor advisor = {};            // for every group that `choice` does not speak of
  // The ways to keep to a limit of the workspace: scratch of a group, -1 for any, and whether
  // operands and results of contractions may be stored in other layouts on their way.
  int64_t scratch_limit = -1;
  bool stores_layouts = true;
};

}  // namespace kiln::compiler
