// Engine: a way to run a group. An engine is a row of facts and one function, which plans a group
// or declines it; the plan says what configurations there are, what each takes, and lowers the
// group (engine_of.h makes such rows). The registry is an ordered array (registry.cc), whose rows
// plans and kernel caches are written with, so it is append-only. Adding one: a folder beside this
// file, a row at the end of the registry, a case in tests/cases.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compiler/module.h"
#include "ir/base/result.h"

namespace kiln::compiler {

// How much of a knob's value a kernel's text has.
enum class InText {
  kValue,       // another value is another kernel
  kWhetherOne,  // only whether it is 1
  kNothing,     // it is an argument of the launch
};

// One knob: its cuDNN type (a value of cudnnBackendKnobType_t, shown by KNOB_INFO as an index into
// `domain`) and its legal values, default first.
struct KnobRow {
  const char* name;
  int cudnn_type;
  std::span<const int> domain;
  InText in_text = InText::kValue;
};

struct EngineNotes {
  std::span<const int> numerical;   // values of cudnnBackendNumericalNote_t
  std::span<const int> behavioral;  // values of cudnnBackendBehaviorNote_t

  bool HasNumerical(int note) const {
    return std::ranges::find(numerical, note) != numerical.end();
  }
};

// The cost of knobs that make no kernel for a group.
inline constexpr double kNoSeconds = std::numeric_limits<double>::infinity();

// The model's word on one configuration of a group.
struct Estimate {
  double seconds = kNoSeconds;  // for ranking only
  int64_t shared_bytes = 0;     // of a block; 0 where it always fits in 48 KB
};

// A configuration worth considering for a group.
struct Proposal {
  std::vector<int> knobs = {};
  double seconds = kNoSeconds;  // these two are the configuration's Estimate
  int64_t shared_bytes = 0;
  // Rank in which heuristics take proposals where the model sees little difference, lowest first,
  // so that layers and batch sizes share kernels. It never follows from the batch size.
  int preference = kNotPreferred;

  static constexpr int kNotPreferred = std::numeric_limits<int>::max();
};

// A group as one engine runs it, planned once and asked often. It refers to the group and to the
// target, which outlive it. Knobs that it is asked about are legal values, one for each row.
class EnginePlan {
 public:
  virtual ~EnginePlan() = default;

  // The configurations worth asking the model about, with its answers; the engine's defaults for
  // the group first. Without any, the rows' defaults are the one that there is (see Propose).
  virtual std::vector<Proposal> Proposals() const = 0;
  virtual Estimate EstimateOf(std::span<const int> knobs) const = 0;
  // The kernels and launches, or why these knobs make none.
  virtual Result<Lowered> Lower(std::span<const int> knobs) const = 0;
};
using PlanResult = Result<std::unique_ptr<const EnginePlan>>;

struct Engine {
  const char* name;
  int version;  // part of tuning keys: raised when the same knobs make another kernel
  std::span<const KnobRow> knobs;
  EngineNotes notes;
  // The group's plan, or the reason for declining, in a sentence.
  PlanResult (*plan)(const Group& group, const Target& target);
  // Only for clients that name it, whatever its notes say.
  bool on_request = false;
  // For an engine that adds in no fixed order: whether the group is spelled as clients spell what
  // may come out differently each time. Then it is offered by its cost, and clients who want no
  // such engine filter by its note. Null: only on request.
  bool (*any_order)(const Group& group) = nullptr;
};

// Whether a client has to ask for the engine, since its results are not what it gets otherwise: it
// rounds inputs, or sums in no fixed order where the group does not allow for that; or since its
// row says so. Nothing chooses such an engine by itself.
bool OnlyOnRequest(const Engine& engine, const Group& group);
// Whether all that it does differently is to round f32 inputs to TF32, as NVIDIA's library does by
// default: heuristics may offer it, since clients can tell by its notes.
bool OnlyRoundsInputs(const Engine& engine);
// The kind of plans whose groups are made for it.
Inputs InputsOf(const Engine& engine);

// Default value of each knob, in the order of the rows.
std::vector<int> DefaultKnobs(std::span<const KnobRow> rows);
inline std::vector<int> DefaultKnobs(const Engine& engine) { return DefaultKnobs(engine.knobs); }
// Defaults first, then each knob moved alone, then all moved to their last value: choices for few
// knobs that hardly depend on one another.
std::vector<std::vector<int>> NeighbouringKnobs(std::span<const KnobRow> rows);
// Ok where the engine plans the group, or the reason for declining.
Status Supports(const Engine& engine, const Group& group, const Target& target);
// The proposals of a plan of the engine's, or its rows' defaults where it has none. Never empty.
std::vector<Proposal> Propose(const Engine& engine, const EnginePlan& plan);
// Their knobs, which the model chooses from and tuning times (compiler/engines/candidates.h); none
// where the engine declines the group.
std::vector<std::vector<int>> CandidateKnobs(const Engine& engine, const Group& group,
                                             const Target& target);
// Defaults with `settings` applied; an unknown knob or an illegal value is an error that lists the
// legal ones.
Result<std::vector<int>> KnobsWith(const Engine& engine, std::span<const KnobSetting> settings);
// Whether both settings make one kernel of a group.
bool SameText(const Engine& engine, std::span<const int> a, std::span<const int> b);
// Whether the target has the shared memory that a plan of the group needs with these knobs, or the
// sentence that says how much it has.
Status FitsShared(const Engine& engine, const Group& group, const Target& target,
                  std::span<const int> knobs, int64_t shared_bytes);
// "tile=64,unroll=4"
std::string KnobText(std::span<const KnobRow> rows, std::span<const int> values);
inline std::string KnobText(const Engine& engine, std::span<const int> values) {
  return KnobText(engine.knobs, values);
}

// Whether every result is without elements: no engine is run for it.
bool LaunchesNothing(const Group& group);

// Bytes that a group must move at least: each input read once, each output written once.
int64_t FloorBytes(const Group& group);
struct Traffic {
  int64_t read = 0, written = 0;
};
Traffic FloorTraffic(const graph::Graph& graph);

}  // namespace kiln::compiler
