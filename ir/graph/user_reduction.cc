#include "ir/graph/user_reduction.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "ir/graph/eval.h"
#include "ir/graph/speller.h"

namespace kiln::graph {
namespace {

using M = PointwiseMode;
using Ids = std::vector<TensorId>;

// A run is so long that its result is stored (compiler/group_limits.h), as every run of runs would
// compute it again.
constexpr int64_t kShortestRun = 8, kNodesOfRun = 64;
// The most nodes of a spelled reduction: a graph of that size takes the passes seconds.
constexpr int64_t kMostNodes = 32768;

// ---- the sub-graph

TensorId ByUid(const Graph& g, int64_t uid) {
  for (size_t i = 0; i < g.tensors.size(); ++i)
    if (g.tensors[i].uid == uid) return static_cast<TensorId>(i);
  return kAbsent;
}

bool IsAmong(const std::vector<int64_t>& uids, int64_t uid) {
  return std::ranges::find(uids, uid) != uids.end();
}

DType Held(DType dtype) { return dtype == DType::kB1 ? DType::kBool : dtype; }

// Copies of the sub-graph's nodes on tensors of some extents.
class Combiner {
 public:
  Combiner(Graph& graph, const UserReduction& parts) : graph_(graph), parts_(parts) {}

  Ids Apply(const Ids& accumulators, const Ids& currents, const Dims& dims) {
    const Graph& g = parts_.combine;
    given_.assign(g.tensors.size(), kAbsent);
    at_.assign(g.tensors.size(), kAbsent);
    const auto bind = [&](const std::vector<int64_t>& uids, const Ids& ids) {
      for (size_t i = 0; i < uids.size(); ++i)
        if (const TensorId id = ByUid(g, uids[i]); id != kAbsent)
          given_[static_cast<size_t>(id)] = ids[i];
    };
    bind(parts_.accumulators, accumulators);
    bind(parts_.currents, currents);
    for (const Node& node : g.nodes) {
      Speller nodes(graph_, node.compute);
      Ids inputs;
      for (const TensorId id : node.inputs)
        inputs.push_back(id == kAbsent ? kAbsent : Operand(id, dims));
      const bool is_whole = std::ranges::any_of(
          inputs, [&](TensorId id) { return id != kAbsent && graph_[id].dims == dims; });
      const TensorId to =
          nodes.Temporary({Held(g[node.outputs[0]].dtype), is_whole ? dims : Dims(dims.size(), 1)});
      nodes.Node(GraphOp::kPointwise, std::move(inputs), to, node.compute, node.attrs);
      at_[static_cast<size_t>(node.outputs[0])] = to;
    }
    Ids results;
    for (size_t i = 0; i < parts_.outputs.size(); ++i)
      results.push_back(Whole(Cast(Operand(ByUid(g, parts_.outputs[i]), dims), parts_.types[i]),
                              currents[i], dims));
    return results;
  }

  TensorId Cast(TensorId x, DType dtype) {
    if (Held(graph_[x].dtype) == dtype) return x;
    return Speller(graph_, dtype).Pointwise(M::kIdentity, {x}, {dtype, graph_[x].dims});
  }

 private:
  // One value for all elements, as often as `like` has them: a selection between it and itself.
  TensorId Whole(TensorId x, TensorId like, const Dims& dims) {
    if (graph_[x].dims == dims) return x;
    const DType dtype = Held(graph_[x].dtype);
    const TensorId all = Speller(graph_, graph_[like].dtype)
                             .Pointwise(M::kCmpEq, {like, like}, {DType::kBool, dims});
    return Speller(graph_, MovingType(dtype))
        .Pointwise(M::kBinarySelect, {x, x, all}, {dtype, dims});
  }

  TensorId Operand(TensorId id, const Dims& dims) {
    TensorId& there = at_[static_cast<size_t>(id)];
    if (there != kAbsent) return there;
    const Tensor& t = parts_.combine[id];
    if (const TensorId given = given_[static_cast<size_t>(id)]; given != kAbsent) {
      there = Cast(given, Held(t.dtype));
      return there;
    }
    if (t.is_constant()) {
      there = Speller(graph_, t.dtype).Number(*t.value, {t.dtype, dims});
      return there;
    }
    there = parts_.others.at(t.uid);
    const Dims ones(dims.size(), 1);
    if (graph_[there].dims.size() == ones.size()) return there;
    Speller views(graph_, MovingType(t.dtype));
    const TensorId reshaped = views.Temporary({Held(t.dtype), ones});
    views.Node(GraphOp::kReshape, {there}, reshaped, MovingType(t.dtype), ReshapeAttrs{});
    there = reshaped;
    return there;
  }

  Graph& graph_;
  const UserReduction& parts_;
  Ids given_, at_;  // of the sub-graph's tensors: what is bound, what is there
};

Status CheckNode(const Graph& g, const Node& node) {
  const bool is_map = node.op == GraphOp::kPointwise && node.outputs.size() == 1 &&
                      node.As<PointwiseAttrs>().mode != M::kGenIndex;
  if (is_map) return {};
  return Status::Error(Code::kNotSupported,
                       "tensor {} of the sub-graph is made by an operation that a reduction does "
                       "not combine with: pointwise ones do, but for an index",
                       g[node.outputs[0]].uid);
}

Status CheckUids(const UserReduction& parts) {
  std::vector<int64_t> operands = parts.accumulators;
  operands.insert(operands.end(), parts.currents.begin(), parts.currents.end());
  std::ranges::sort(operands);
  if (const auto twice = std::ranges::adjacent_find(operands); twice != operands.end())
    return Status::Error(Code::kBadParam, "tensor {} of the sub-graph is two of its operands",
                         *twice);
  for (const Node& node : parts.combine.nodes) {
    RETURN_IF_ERROR(CheckNode(parts.combine, node));
    const int64_t uid = parts.combine[node.outputs[0]].uid;
    if (IsAmong(operands, uid))
      return Status::Error(Code::kBadParam,
                           "the sub-graph writes tensor {}, which is an operand of it", uid);
  }
  for (const int64_t uid : parts.outputs)
    if (ByUid(parts.combine, uid) == kAbsent)
      return Status::Error(Code::kBadParam, "the sub-graph has no tensor {}, its output", uid);
  return {};
}

// ---- acc op f(x)

struct Plain {
  ReductionMode reduction;
  PointwiseMode map;  // with the initial value
};

std::optional<Plain> PlainOf(PointwiseMode mode) {
  switch (mode) {
    case M::kAdd:
    case M::kAddSquare:
      return Plain{ReductionMode::kAdd, M::kAdd};
    case M::kMul:
      return Plain{ReductionMode::kMul, M::kMul};
    case M::kMin:
      return Plain{ReductionMode::kMin, M::kMin};
    case M::kMax:
      return Plain{ReductionMode::kMax, M::kMax};
    default:
      return std::nullopt;
  }
}

// An output as `op` of its accumulator and of what no accumulator reaches.
struct PlainOutput {
  Plain op;
  NodeId node;
  TensorId f;
  bool square;
};

std::optional<std::vector<PlainOutput>> PlainOutputs(const UserReduction& parts) {
  const Graph& g = parts.combine;
  std::vector<char> reached(g.tensors.size(), 0);
  for (const int64_t uid : parts.accumulators)
    if (const TensorId id = ByUid(g, uid); id != kAbsent) reached[static_cast<size_t>(id)] = 1;
  for (const Node& node : g.nodes)
    for (const TensorId id : node.inputs)
      if (id != kAbsent && reached[static_cast<size_t>(id)] != 0)
        reached[static_cast<size_t>(node.outputs[0])] = 1;
  const std::vector<NodeId> writers = Producers(g);
  std::vector<PlainOutput> outputs;
  for (size_t i = 0; i < parts.outputs.size(); ++i) {
    const NodeId writer = writers[static_cast<size_t>(ByUid(g, parts.outputs[i]))];
    if (writer < 0) return std::nullopt;
    const Node& node = g.nodes[static_cast<size_t>(writer)];
    const auto& attrs = node.As<PointwiseAttrs>();
    const std::optional<Plain> op = PlainOf(attrs.mode);
    const TensorId accumulator = ByUid(g, parts.accumulators[i]);
    if (!op || attrs.alpha1 != 1 || attrs.alpha2 != 1 || !IsFloat(node.compute) ||
        !IsFloat(parts.types[i]))
      return std::nullopt;
    const bool square = attrs.mode == M::kAddSquare;
    const bool is_second = !square && node.inputs[1] == accumulator;
    if (!is_second && node.inputs[0] != accumulator) return std::nullopt;
    const TensorId f = node.inputs[is_second ? 0 : 1];
    if (reached[static_cast<size_t>(f)] != 0) return std::nullopt;
    outputs.push_back({*op, writer, f, square});
  }
  return outputs;
}

void SpellPlain(Graph& graph, const UserReduction& parts, const std::vector<PlainOutput>& plain) {
  const Dims dims = graph[parts.x[0]].dims, kept = graph[parts.y[0]].dims;
  // Each f as an output of a sub-graph of its own, which has what makes it alone.
  UserReduction maps = parts;
  for (size_t i = 0; i < plain.size(); ++i) {
    maps.outputs[i] = parts.combine[plain[i].f].uid;
    maps.types[i] = Held(parts.combine[plain[i].f].dtype);
  }
  std::vector<char> wanted(parts.combine.tensors.size(), 0);
  for (const PlainOutput& p : plain) wanted[static_cast<size_t>(p.f)] = 1;
  std::vector<Node> nodes;
  for (auto node = parts.combine.nodes.rbegin(); node != parts.combine.nodes.rend(); ++node) {
    if (wanted[static_cast<size_t>(node->outputs[0])] == 0) continue;
    for (const TensorId id : node->inputs)
      if (id != kAbsent) wanted[static_cast<size_t>(id)] = 1;
    nodes.push_back(*node);
  }
  maps.combine.nodes.assign(nodes.rbegin(), nodes.rend());
  // An f that is a constant or another tensor of one element counts as often as there are elements.
  Combiner combiner(graph, maps);
  const Ids f = combiner.Apply(parts.x, parts.x, dims);
  for (size_t i = 0; i < plain.size(); ++i) {
    const Node& node = parts.combine.nodes[static_cast<size_t>(plain[i].node)];
    Speller math(graph, node.compute);
    const Speller::Form each{node.compute, dims}, reduced{node.compute, kept};
    TensorId value = f[i];
    if (plain[i].square) value = math.Pointwise(M::kMul, {value, value}, each);
    const TensorId sum = math.Temporary(reduced);
    math.ReductionTo(sum, plain[i].op.reduction, value);
    math.PointwiseTo(parts.y[i], plain[i].op.map, {sum, math.Number(parts.init[i], reduced)});
  }
}

// ---- associative or not

// Numbers that an operand of the type may be.
std::vector<double> Samples(const UserReduction& parts, DType type, size_t count,
                            std::mt19937_64& random) {
  constexpr double kAround[] = {1, -1, 0.5, 2};  // of a number at which the operator may bend
  std::vector<double> constants = {0, 1};
  for (const Tensor& t : parts.combine.tensors)
    if (t.is_constant() && std::isfinite(*t.value))
      for (const double factor : kAround) constants.push_back(*t.value * factor);
  for (const Node& node : parts.combine.nodes) {
    const auto& attrs = node.As<PointwiseAttrs>();
    for (const double clip : {attrs.relu_lower, attrs.relu_upper})
      if (std::isfinite(clip))
        for (const double factor : kAround) constants.push_back(clip * factor);
  }
  std::vector<double> samples(count);
  for (double& sample : samples) {
    const double uniform = std::uniform_real_distribution<double>(-1, 1)(random);
    switch (random() % 4) {
      case 0:
        sample = std::round(3 * uniform);
        break;
      case 1:
        sample = 4 * uniform;
        break;
      case 2:
        sample = 1000 * uniform;
        break;
      default:
        sample = constants[random() % constants.size()];
    }
    if (type == DType::kBool) sample = sample > 0 ? 1 : 0;
    if (IsInteger(type)) sample = std::round(sample);
  }
  return samples;
}

// The sub-graph with exact floats.
UserReduction InDoubles(UserReduction parts) {
  const auto widen = [](DType& type) {
    if (IsFloat(type)) type = DType::kF64;
  };
  for (Tensor& t : parts.combine.tensors) widen(t.dtype);
  for (Node& node : parts.combine.nodes) widen(node.compute);
  for (DType& type : parts.types) widen(type);
  return parts;
}

bool Agree(double a, double b) { return std::abs(a - b) <= 1e-9 * (1 + std::abs(a) + std::abs(b)); }

bool IsAssociative(const UserReduction& client) {
  constexpr int64_t kTriples = 512;
  if (!client.others.empty()) return false;  // their values are not known
  const UserReduction parts = InDoubles(client);
  const Dims dims = {kTriples};
  Graph g;
  TensorValues values;
  std::mt19937_64 random(1);
  const auto operands = [&] {
    Ids ids;
    for (const DType type : parts.types) {
      ids.push_back(g.AddTensor({.name = "x",
                                 .uid = std::ssize(g.tensors),
                                 .dtype = type,
                                 .dims = dims,
                                 .strides = {1}}));
      values[ids.back()] = Samples(parts, type, kTriples, random);
    }
    return ids;
  };
  const Ids a = operands(), b = operands(), c = operands();
  Combiner combine(g, parts);
  const Ids left = combine.Apply(combine.Apply(a, b, dims), c, dims);
  const Ids right = combine.Apply(a, combine.Apply(b, c, dims), dims);
  if (!Verify(g).ok() || !Evaluate(g, values).ok()) return false;
  int64_t finite = 0;
  for (int64_t t = 0; t < kTriples; ++t) {
    bool is_finite = true, agrees = true;
    for (size_t i = 0; i < left.size(); ++i) {
      const double l = values[left[i]][static_cast<size_t>(t)],
                   r = values[right[i]][static_cast<size_t>(t)];
      is_finite = is_finite && std::isfinite(l) && std::isfinite(r);
      agrees = agrees && Agree(l, r);
    }
    if (!is_finite) continue;
    if (!agrees) return false;
    ++finite;
  }
  return finite >= kTriples / 2;
}

// ---- steps

class Folder {
 public:
  Folder(Graph& graph, const UserReduction& parts)
      : graph_(graph), parts_(parts), combine_(graph, parts) {}

  // Each x as [kept, reduced], the last of the reduced dims fastest.
  Ids Flattened() {
    Ids flat;
    for (size_t i = 0; i < parts_.x.size(); ++i) {
      const Dims dims = graph_[parts_.x[i]].dims;
      Dims permutation;
      for (int64_t d = 0; d < std::ssize(dims); ++d)
        if (!IsReduced(d)) permutation.push_back(d);
      permutation.insert(permutation.end(), parts_.dims.begin(), parts_.dims.end());
      Speller nodes(graph_, parts_.types[i]);
      TensorId x = parts_.x[i];
      if (!std::ranges::is_sorted(permutation)) x = nodes.Transpose(x, permutation);
      x = Reshaped(x, {Kept(), Reduced()});
      flat.push_back(combine_.Cast(x, parts_.types[i]));
    }
    return flat;
  }

  Ids InOrder(const Ids& x) {
    Ids sum = Initial();
    for (int64_t i = 0; i < Reduced(); ++i)
      sum = combine_.Apply(sum, Slices(x, i, 1, 1), {Kept(), 1});
    return sum;
  }

  // Runs of neighbours, then runs of their results and of the elements that were left over.
  Ids InRuns(Ids x) {
    const auto nodes = static_cast<int64_t>(parts_.combine.nodes.size());
    const int64_t run = kShortestRun + kNodesOfRun / std::max<int64_t>(nodes, 1);
    int64_t count = Reduced();
    while (count >= run) {
      const int64_t whole = count / run, rest = count % run;
      const Ids results = Run(x, run, run, whole);
      x = rest == 0 ? results : Joined(results, Slices(x, whole * run, 1, rest));
      count = whole + rest;
    }
    return combine_.Apply(Initial(), Run(x, count, 1, 1), {Kept(), 1});
  }

  void Store(const Ids& sums) {
    for (size_t i = 0; i < sums.size(); ++i)
      Speller(graph_, parts_.types[i])
          .PointwiseTo(parts_.y[i], M::kIdentity, {Reshaped(sums[i], graph_[parts_.y[i]].dims)});
  }

  int64_t Reduced() const {
    int64_t count = 1;
    for (const int64_t d : parts_.dims) count *= graph_[parts_.x[0]].dims[static_cast<size_t>(d)];
    return count;
  }

 private:
  bool IsReduced(int64_t d) const { return std::ranges::find(parts_.dims, d) != parts_.dims.end(); }
  int64_t Kept() const {
    int64_t count = 1;
    for (const int64_t extent : graph_[parts_.y[0]].dims) count *= extent;
    return count;
  }

  TensorId Reshaped(TensorId x, const Dims& dims) {
    if (graph_[x].dims == dims) return x;
    const DType dtype = graph_[x].dtype;
    Speller views(graph_, MovingType(dtype));
    const TensorId to = views.Temporary({Held(dtype), dims});
    views.Node(GraphOp::kReshape, {x}, to, MovingType(dtype), ReshapeAttrs{});
    return to;
  }

  Ids Initial() {
    Ids initial;
    for (size_t i = 0; i < parts_.init.size(); ++i)
      initial.push_back(
          Speller(graph_, parts_.types[i]).Number(parts_.init[i], {parts_.types[i], {Kept(), 1}}));
    return initial;
  }

  // `count` places of each, `step` apart, from `start` on.
  Ids Slices(const Ids& x, int64_t start, int64_t step, int64_t count) {
    Ids slices;
    for (const TensorId id : x) {
      const DType dtype = graph_[id].dtype;
      Speller views(graph_, MovingType(dtype));
      const TensorId to = views.Temporary({dtype, {Kept(), count}});
      views.Node(GraphOp::kSlice, {id}, to, MovingType(dtype),
                 SliceAttrs{.start = {0, start}, .step = {1, step}});
      slices.push_back(to);
    }
    return slices;
  }

  // `count` runs of `length` neighbours, `step` apart.
  Ids Run(const Ids& x, int64_t length, int64_t step, int64_t count) {
    Ids sum = Slices(x, 0, step, count);
    for (int64_t j = 1; j < length; ++j)
      sum = combine_.Apply(sum, Slices(x, j, step, count), {Kept(), count});
    return sum;
  }

  Ids Joined(const Ids& first, const Ids& second) {
    Ids joined;
    for (size_t i = 0; i < first.size(); ++i) {
      const DType type = parts_.types[i];
      Speller nodes(graph_, type);
      const int64_t count = graph_[first[i]].dims[1] + graph_[second[i]].dims[1];
      const TensorId to = nodes.Temporary({type, {Kept(), count}});
      nodes.Node(GraphOp::kConcat, {first[i], second[i]}, to, MovingType(type),
                 ConcatAttrs{.axis = 1});
      joined.push_back(to);
    }
    return joined;
  }

  Graph& graph_;
  const UserReduction& parts_;
  Combiner combine_;
};

}  // namespace

Result<std::vector<int64_t>> OthersOf(const UserReduction& parts) {
  RETURN_IF_ERROR(CheckUids(parts));
  const Graph& g = parts.combine;
  const std::vector<NodeId> writers = Producers(g);
  std::vector<int64_t> others;
  for (const Node& node : g.nodes)
    for (const TensorId id : node.inputs) {
      if (id == kAbsent || writers[static_cast<size_t>(id)] >= 0 || g[id].is_constant()) continue;
      const Tensor& t = g[id];
      if (IsAmong(parts.accumulators, t.uid) || IsAmong(parts.currents, t.uid) ||
          IsAmong(others, t.uid))
        continue;
      if (t.is_virtual)
        return Status::Error(Code::kBadParam,
                             "nothing writes tensor {} of the sub-graph, which is virtual and none "
                             "of its operands",
                             t.uid);
      if (NumElements(t.dims) != 1)
        return Status::Error(Code::kNotSupported,
                             "tensor {} of the sub-graph has {} elements; beside its operands it "
                             "reads single ones",
                             t.uid, NumElements(t.dims));
      others.push_back(t.uid);
    }
  return others;
}

Status SpellUserReduction(Graph& graph, const UserReduction& parts) {
  if (const auto plain = PlainOutputs(parts)) {
    SpellPlain(graph, parts, *plain);
    return {};
  }
  Folder folder(graph, parts);
  const int64_t count = folder.Reduced();
  const auto nodes = static_cast<int64_t>(parts.combine.nodes.size() + 2 * parts.x.size());
  const bool in_runs = count > 1 && IsAssociative(parts);
  if (!in_runs && count > kMostNodes / nodes)
    return Status::Error(Code::kNotSupported,
                         "a reduction of {} elements keeps their order, as its operator is not "
                         "associative as far as "
                         "Kiln sees; it takes up to {} of them",
                         count, kMostNodes / nodes);
  const Ids x = folder.Flattened();
  folder.Store(in_runs ? folder.InRuns(x) : folder.InOrder(x));
  return {};
}

}  // namespace kiln::graph
