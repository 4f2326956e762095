#include "compiler/passes/materialise.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "compiler/engines/candidates.h"
#include "compiler/engines/contraction/tiles.h"
#include "compiler/passes/divide_group.h"
#include "compiler/passes/group_key.h"
#include "compiler/patterns/memory_places.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::GraphOp;
using graph::Node;
using graph::Tensor;
using graph::TensorId;

// Models err: a division has to promise at least this part of what it replaces.
constexpr double kWorthwhile = 0.9;
constexpr int64_t kWideBytes = 16;

// The model's seconds of groups, asked once of equal ones.
class Model {
 public:
  explicit Model(const PassContext& context) : context_(context) {}
  double Seconds(const Group& group) {
    const auto [known, is_new] = seconds_.try_emplace(GroupKey(group), 0);
    if (is_new) known->second = ModelledSeconds(group, context_.target, context_.inputs);
    return known->second;
  }

 private:
  // Engines never round for a group that only moves data, and Winograd's engines take some of a
  // plan's contractions.
  static double ModelledSeconds(const Group& group, const Target& target, Inputs inputs) {
    if (group.moves_data) inputs = Inputs::kExact;
    const std::vector<Candidate> ranked = RankCandidates(group, target, inputs);
    if (ranked.empty() && inputs == Inputs::kWinograd)
      return ModelledSeconds(group, target, Inputs::kExact);
    return LeastSeconds(ranked);
  }

  const PassContext& context_;
  std::unordered_map<std::string, double> seconds_;  // by GroupKey
};

// Elements of which 16 bytes are made.
int64_t WideElements(const Tensor& t) { return std::max<int64_t>(kWideBytes / SizeOf(t.dtype), 1); }

// Contiguous along `inner`, all other steps whole 16 bytes.
bool LiesWellAlong(const Tensor& t, int64_t inner) {
  if (t.dims[inner] != 1 && t.strides[inner] != 1) return false;
  for (int64_t d = 0; d < t.rank(); ++d)
    if (d != inner && t.dims[d] != 1 && t.strides[d] % WideElements(t) != 0) return false;
  return t.alignment % kWideBytes == 0;
}

// A matrix with `inner` contiguous, its rows and batches padded to whole 16 bytes.
Dims MatrixStrides(const Tensor& t, int64_t inner) {
  const int64_t outer = inner == t.rank() - 1 ? t.rank() - 2 : t.rank() - 1;
  Dims strides(t.dims.size(), 1);
  strides[outer] = AlignUp(std::max<int64_t>(t.dims[inner], 1), WideElements(t));
  int64_t stride = strides[outer] * std::max<int64_t>(t.dims[outer], 1);
  for (int64_t d = t.rank() - 2; d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(t.dims[d], 1);
  }
  return strides;
}

// The layout in which an operand is worth storing; none if it lies well as it is.
Dims WantedStrides(const graph::Graph& g, const Node& anchor, size_t position) {
  const Tensor& t = g[anchor.inputs[position]];
  const bool computed = graph::Producers(g)[anchor.inputs[position]] >= 0;
  if (t.by_value) return {};
  // Products of 16 bits take either axis contiguous, others only k.
  const bool either = SizeOf(t.dtype) == 2;
  if (anchor.op != GraphOp::kMatmul) {
    const bool sums_filters = anchor.op == GraphOp::kConvDgrad && position == 1;
    const int64_t inner = sums_filters && !either ? 0 : 1;
    if (!computed && LiesWellAlong(t, inner)) return {};
    return StridesWithInnermost(static_cast<size_t>(inner), t.dims, WideElements(t));
  }
  const int64_t last = t.rank() - 1, k = position == 0 ? last : last - 1;
  const int64_t other = k == last ? last - 1 : last;
  if (!computed && (LiesWellAlong(t, k) || (either && LiesWellAlong(t, other)))) return {};
  const bool keeps_other = either && t.strides[other] < t.strides[k] && t.dims[other] != 1;
  return MatrixStrides(t, keeps_other ? other : k);
}

bool IsEmpty(const Group& group, const Node& anchor) {
  const auto empty = [&](TensorId id) { return NumElements(group.graph[id].dims) == 0; };
  return std::ranges::any_of(anchor.inputs, empty) || empty(anchor.outputs[0]);
}

// True if the group overwrites a tensor that it reads. What reads the old version must not move
// behind what writes the new one.
bool IsInPlace(const Group& group, const MemoryPlaces& places) {
  const auto uid = [&](TensorId id) { return places.UidOf(group.outer[id]); };
  const std::vector<TensorId> inputs = graph::Inputs(group.graph);
  return std::ranges::any_of(graph::Outputs(group.graph), [&](TensorId y) {
    return std::ranges::any_of(inputs, [&](TensorId x) { return uid(x) >= 0 && uid(x) == uid(y); });
  });
}

// All that could be stored.
Division Everything(const Group& group, const MemoryPlaces& places) {
  Division all;
  const Node& anchor = ContractionOf(group);
  for (size_t position = 0; position < 2; ++position) {
    Dims strides = WantedStrides(group.graph, anchor, position);
    if (!strides.empty()) all.operands.push_back({position, std::move(strides)});
  }
  all.results = MovesResults(group) && !IsInPlace(group, places);
  return all;
}

// Seconds of all parts, or some number above `limit`: engines are not asked about the contraction
// where the rest is too much already.
double SecondsOf(const std::vector<Group>& groups, Model& model, double limit) {
  double seconds = 0;
  for (const bool moves : {true, false})
    for (const Group& group : groups)
      if (group.moves_data == moves && seconds < limit) seconds += model.Seconds(group);
  return seconds;
}

std::string Microseconds(double seconds) { return fmt::format("{:.1f} us", seconds * 1e6); }

// Notes in each part of a divided group what it is there for.
void SayWhy(const DividedGroup& divided, std::vector<Group>& groups, double whole, double parts) {
  for (Group& group : groups) {
    group.why.push_back(
        fmt::format("{}: {} in {} groups, {} in one",
                    group.moves_data ? "moves data for a contraction, which reads and writes it "
                                       "faster in another layout"
                                     : "operands or results are stored in another layout on their "
                                       "way",
                    Microseconds(parts), divided.groups.size(), Microseconds(whole)));
  }
}

// The cheapest way to divide the group; no groups where it is best left as it is.
DividedGroup BestDivision(Group& group, const PassContext& context, Model& model,
                          const graph::Graph& module, const MemoryPlaces& places) {
  if (IsEmpty(group, ContractionOf(group))) return {};
  const auto first = static_cast<TensorId>(module.tensors.size());
  const Division all = Everything(group, places);
  const size_t operands = all.operands.size();
  const unsigned subsets = 1u << (operands + (all.results ? 1 : 0));
  if (subsets == 1) return {};
  if (context.choice.least_workspace || !context.stores_layouts) {
    group.why.push_back(fmt::format("operands and results lie badly, and stay so: {}",
                                    context.choice.least_workspace ? "least workspace is asked for"
                                                                   : "the workspace has a limit"));
    return {};
  }
  DividedGroup best;
  const double whole = model.Seconds(group);
  double least = kWorthwhile * whole;
  // Results last: moving them has to pay by the margin, too, against having them written in place.
  for (unsigned subset = 1; subset < subsets; ++subset) {
    if (subset == 1u << operands && !best.groups.empty()) least *= kWorthwhile;
    Division division{.results = (subset >> operands) != 0};
    for (size_t i = 0; i < operands; ++i)
      if ((subset >> i) & 1) division.operands.push_back(all.operands[i]);
    DividedGroup divided = DivideGroup(group, division, first);
    const double seconds = SecondsOf(divided.groups, model, least);
    if (seconds >= least) continue;
    least = seconds;
    best = std::move(divided);
  }
  if (best.groups.empty()) {
    group.why.push_back(fmt::format(
        "operands or results lie badly; to store them in another layout would gain less than a "
        "tenth of {}",
        Microseconds(whole)));
  } else {
    SayWhy(best, best.groups, whole, least);
  }
  return best;
}

// Operands that are stored on their way, so that a contraction which reads the same takes them from
// there: the states before each step, of which a GRU multiplies two gradients.
class StoredOperands {
 public:
  StoredOperands(const Module& module, const MemoryPlaces& places)
      : places_(places), count_(static_cast<TensorId>(module.graph.tensors.size())) {
    for (const Group& group : module.groups)
      for (const TensorId y : graph::Outputs(group.graph))
        if (const int64_t uid = places.UidOf(group.outer[y]); uid >= 0) written_.insert(uid);
  }

  // Leaves out the groups that store what is stored already.
  void Share(std::vector<Group>& groups) {
    std::map<TensorId, TensorId> same;
    std::erase_if(groups, [&](const Group& group) {
      const std::vector<TensorId> outputs = graph::Outputs(group.graph);
      if (!group.moves_data || outputs.size() != 1 || !IsLasting(group)) return false;
      const TensorId stored = group.outer[outputs[0]];
      const auto [known, is_new] = stored_.try_emplace(KeyOf(group), stored);
      if (!is_new) same[stored] = known->second;
      return !is_new;
    });
    for (Group& group : groups) {
      for (size_t t = 0; t < group.outer.size(); ++t) {
        const auto other = same.find(group.outer[t]);
        if (other == same.end()) continue;
        group.outer[t] = group.graph.tensors[t].uid = other->second;
      }
    }
  }

 private:
  // True if it reads what was there before, and nobody overwrites that.
  bool IsLasting(const Group& group) const {
    return std::ranges::all_of(graph::Inputs(group.graph), [&](TensorId x) {
      const TensorId outer = group.outer[x];
      return outer < count_ && !written_.contains(places_.UidOf(outer));
    });
  }
  static std::string KeyOf(const Group& group) {
    std::string key = GroupKey(group);
    for (const TensorId x : graph::Inputs(group.graph)) key += fmt::format(" {}", group.outer[x]);
    return key;
  }

  const MemoryPlaces& places_;
  const TensorId count_;  // of the module's tensors, those that are made on the way left out
  std::set<int64_t> written_;
  std::map<std::string, TensorId> stored_;
};

}  // namespace

Result<bool> Materialise(Module& module, const PassContext& context) {
  if (!context.target.is_cuda() || context.target.minimal_launch) return false;
  Model model(context);
  const MemoryPlaces places(module);
  StoredOperands stored(module, places);
  std::vector<Group> groups;
  bool changed = false;
  for (Group& group : module.groups) {
    DividedGroup divided;
    if (group.kind == GroupKind::kContract)
      divided = BestDivision(group, context, model, module.graph, places);
    if (divided.groups.empty()) {
      groups.push_back(std::move(group));
      continue;
    }
    changed = true;
    stored.Share(divided.groups);
    for (Tensor& t : divided.tensors) module.graph.AddTensor(std::move(t));
    std::ranges::move(divided.groups, std::back_inserter(groups));
  }
  for (size_t i = 0; changed && i < groups.size(); ++i)
    groups[i].graph.name = fmt::format("group{}", i);
  module.groups = std::move(groups);
  return changed;
}

}  // namespace kiln::compiler
