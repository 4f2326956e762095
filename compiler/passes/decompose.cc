#include "compiler/passes/decompose.h"

#include <algorithm>
#include <concepts>
#include <iterator>
#include <utility>

#include "compiler/passes/decompose_parts.h"
#include "compiler/passes/decompose_ragged.h"
#include "compiler/passes/decompose_sdpa.h"
#include "compiler/passes/pointwise_recipes.h"
#include "compiler/passes/primitive_writer.h"
#include "ir/base/check.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Combine;
using graph::Graph;
using graph::GraphOp;
using graph::kAbsent;
using graph::Node;
using graph::ReductionMode;
using graph::TensorId;

// Comparisons, logic and selection may be declared with compute type bool; their operands are then
// compared in the widest type among them.
DType OperandType(const Graph& g, const Node& node) {
  DType widest = DType::kI32;
  for (TensorId id : node.inputs) {
    const DType t = ArithmeticType(g[id].dtype);
    if (t == DType::kF64) return t;
    if (IsFloat(t))
      widest = DType::kF32;
    else if (t == DType::kI64 && !IsFloat(widest))
      widest = t;
  }
  return widest;
}

void DecomposePointwise(Graph& g, const Node& node) {
  const auto& attrs = node.As<graph::PointwiseAttrs>();
  const TensorId y = node.outputs[0];
  const DType compute =
      node.compute == DType::kBool ? OperandType(g, node) : ArithmeticType(node.compute);
  PrimitiveWriter w(g, compute, g[y].name);
  std::vector<TensorId> in = node.inputs;
  for (TensorId& id : in) {
    if (id != kAbsent && IsBool(g[id].dtype) && !graph::TakesBool(attrs.mode))
      id = w.Cast(id, compute);
  }
  const double alphas[] = {attrs.alpha1, attrs.alpha2};
  for (size_t i = 0; i < std::min<size_t>(in.size(), 2); ++i) {
    if (alphas[i] == 1) continue;
    const TensorId number = IsBool(g[in[i]].dtype) ? w.Cast(in[i], compute) : in[i];
    in[i] = w.Mul(number, w.Number(alphas[i]));
  }
  w.Write(WritePointwise(w, attrs, in), y);
}

// Elements of x that each element of y is made of.
double ReducedCount(const Graph& g, TensorId x, TensorId y) {
  const int64_t kept = NumElements(g[y].dims);
  return kept == 0 ? 0 : static_cast<double>(NumElements(g[x].dims)) / static_cast<double>(kept);
}

void DecomposeReduction(Graph& g, const Node& node) {
  const TensorId x = node.inputs[0], y = node.outputs[0];
  const Dims dims = g[y].dims;
  PrimitiveWriter w(g, ArithmeticType(node.compute), g[y].name);
  const auto abs = [&] { return w.Map(ScalarOp::kAbs, {x}); };
  const auto without_zeros = [&] {
    const TensorId zero = w.Map(ScalarOp::kEq, {x, w.Number(0)});
    return w.Select(zero, w.Number(1), x);
  };
  const TensorId result = [&] {
    switch (node.As<graph::ReductionAttrs>().mode) {
      case ReductionMode::kAdd:
        return w.Reduce(Combine::kAdd, x, dims);
      case ReductionMode::kMul:
        return w.Reduce(Combine::kMul, x, dims);
      case ReductionMode::kMin:
        return w.Reduce(Combine::kMin, x, dims);
      case ReductionMode::kMax:
        return w.Reduce(Combine::kMax, x, dims);
      case ReductionMode::kAmax:
        return w.Reduce(Combine::kMax, abs(), dims);
      case ReductionMode::kAvg: {
        const TensorId sum = w.Reduce(Combine::kAdd, x, dims);
        return w.Div(sum, w.Number(ReducedCount(g, x, y), kLaunchNumberUid));
      }
      case ReductionMode::kNorm1:
        return w.Reduce(Combine::kAdd, abs(), dims);
      case ReductionMode::kNorm2:
        return w.Map(ScalarOp::kSqrt, {w.Reduce(Combine::kAdd, w.Mul(x, x), dims)});
      case ReductionMode::kMulNoZeros:
        return w.Reduce(Combine::kMul, without_zeros(), dims);
    }
    CHECK(false, "reduction mode out of range");
  }();
  w.Write(result, y);
}

void DecomposeGenStats(Graph& g, const Node& node) {
  const TensorId x = node.inputs[0];
  PrimitiveWriter w(g, ArithmeticType(node.compute), g[node.outputs[0]].name);
  w.Write(w.Reduce(Combine::kAdd, x, g[node.outputs[0]].dims), node.outputs[0]);
  w.Write(w.Reduce(Combine::kAdd, w.Mul(x, x), g[node.outputs[1]].dims), node.outputs[1]);
}

// mean and var as ir/graph/ops_bn.cc; each output that is asked for is one expression over them.
void DecomposeBnFinalize(Graph& g, const Node& node) {
  enum { kSum, kSqSum, kScale, kBias, kPrevMean, kPrevVar, kEpsilon, kFactor, kCount };
  enum { kUpdatedMean, kUpdatedVar, kSavedMean, kSavedInvStd, kEqScale, kEqBias };
  const auto in = [&](size_t i) { return i < node.inputs.size() ? node.inputs[i] : kAbsent; };
  const auto out = [&](size_t i) { return i < node.outputs.size() ? node.outputs[i] : kAbsent; };
  PrimitiveWriter w(g, ArithmeticType(node.compute), "bn");
  const bool inference = node.As<graph::BnFinalizeAttrs>().inference;

  const TensorId mean = inference ? in(kPrevMean) : w.Div(in(kSum), in(kCount));
  const bool needs_var = out(kUpdatedVar) != kAbsent || out(kSavedInvStd) != kAbsent ||
                         out(kEqScale) != kAbsent || out(kEqBias) != kAbsent;
  TensorId var = in(kPrevVar);
  if (!inference && needs_var) {
    const TensorId raw = w.Sub(w.Div(in(kSqSum), in(kCount)), w.Mul(mean, mean));
    var = w.Map(ScalarOp::kMaxNan, {raw, w.Number(0)});
  }
  // (1 - f) * previous + f * current
  const auto blend = [&](TensorId previous, TensorId current) {
    return w.Add(w.Mul(w.Sub(w.Number(1), in(kFactor)), previous), w.Mul(in(kFactor), current));
  };
  if (out(kUpdatedMean) != kAbsent) w.Write(blend(in(kPrevMean), mean), out(kUpdatedMean));
  if (out(kUpdatedVar) != kAbsent) {
    const TensorId below = w.Map(ScalarOp::kMax, {w.Sub(in(kCount), w.Number(1)), w.Number(1)});
    w.Write(blend(in(kPrevVar), w.Mul(var, w.Div(in(kCount), below))), out(kUpdatedVar));
  }
  if (out(kSavedMean) != kAbsent) {
    g.AddNode({.op = GraphOp::kMap,
               .inputs = {mean},
               .outputs = {out(kSavedMean)},
               .compute = w.compute(),
               .attrs = graph::MapAttrs{.identity = true},
               .name = ""});
  }
  const auto inv_std = [&] { return w.Map(ScalarOp::kRsqrt, {w.Add(var, in(kEpsilon))}); };
  if (out(kSavedInvStd) != kAbsent) w.Write(inv_std(), out(kSavedInvStd));
  if (out(kEqScale) != kAbsent) w.Write(w.Mul(in(kScale), inv_std()), out(kEqScale));
  if (out(kEqBias) != kAbsent)
    w.Write(w.Sub(in(kBias), w.Mul(mean, w.Mul(in(kScale), inv_std()))), out(kEqBias));
}

// alpha * conv + beta * previous, the contraction itself bare.
void DecomposeConv(Graph& g, Node node) {
  auto attrs = node.As<graph::ConvAttrs>();
  const bool blends = attrs.beta != 0 && node.inputs.size() > 2 && node.inputs[2] != kAbsent;
  const double alpha = std::exchange(attrs.alpha, 1.0), beta = std::exchange(attrs.beta, 0.0);
  const TensorId y = node.outputs[0];
  const TensorId previous = blends ? node.inputs[2] : kAbsent;
  node.inputs.resize(2);
  node.attrs = attrs;
  if (alpha == 1 && !blends) {
    g.AddNode(std::move(node));
    return;
  }
  PrimitiveWriter w(g, ArithmeticType(node.compute), g[y].name);
  graph::Tensor bare = g[y];
  bare.uid = -1;
  bare.is_virtual = true;
  bare.dtype = w.compute();
  node.outputs = {g.AddTensor(std::move(bare))};
  TensorId result = node.outputs[0];
  g.AddNode(std::move(node));
  if (alpha != 1) result = w.Mul(result, w.Number(alpha));
  if (blends) result = w.Add(result, beta == 1 ? previous : w.Mul(previous, w.Number(beta)));
  w.Write(result, y);
}

// The number of elements of an average whose windows, one an image, lie together in memory, and
// have nothing but the image; 0 for other windows.
int64_t ElementsOfImage(const Graph& g, const Node& node) {
  const auto& attrs = node.As<graph::ResampleAttrs>();
  const bool averages = attrs.mode == graph::ResampleMode::kAvgIncludePadding ||
                        attrs.mode == graph::ResampleMode::kAvgExcludePadding;
  const graph::Tensor &x = g[node.inputs[0]], &y = g[node.outputs[0]];
  if (node.op != GraphOp::kResampleFwd || !averages || !IsFloat(node.compute) ||
      NumElements(x.dims) == 0)
    return 0;
  int64_t elements = 1;
  for (const graph::ResampleAxis& a : graph::ResampleAxes(attrs, x.dims, y.dims)) {
    if (a.unit != 1 || a.out != 1 || a.offset != 0 || a.taps != a.in) return 0;
    elements *= a.in;
  }
  return MemoryOrder(x.strides).back() >= 2 && elements > 1 ? elements : 0;
}

// alpha * resampled + beta * previous, the resampling itself bare. The gradient of a maximum
// without an index gets one from x:
//   %y, %i = resample_fwd(%x);  %dx = resample_bwd(%dy, %i)
// An average of all of an image is a sum of its elements, divided.
void DecomposeResample(Graph& g, Node node) {
  auto attrs = node.As<graph::ResampleAttrs>();
  const bool forward = node.op == GraphOp::kResampleFwd;
  const size_t before = forward ? 1 : 4;
  const double alpha = std::exchange(attrs.alpha, 1.0), beta = std::exchange(attrs.beta, 0.0);
  const TensorId previous = before < node.inputs.size() ? node.inputs[before] : kAbsent;
  const TensorId y = node.outputs[0];
  PrimitiveWriter w(g, ArithmeticType(node.compute), g[y].name);
  const auto bare = [&](TensorId like, DType dtype, const char* suffix) {
    graph::Tensor t = g[like];
    t.name = fmt::format("{}_{}", g[y].name, suffix);
    t.uid = -1;
    t.is_virtual = true;
    t.dtype = dtype;
    return g.AddTensor(std::move(t));
  };
  const bool is_max = attrs.mode == graph::ResampleMode::kMax;
  if (!forward && is_max && node.inputs.size() > 1 && node.inputs[1] == kAbsent) {
    const TensorId maxima = bare(node.inputs[0], g[node.inputs[2]].dtype, "max");
    node.inputs[1] = bare(node.inputs[0], DType::kI32, "index");
    g.AddNode({.op = GraphOp::kResampleFwd,
               .inputs = {node.inputs[2]},
               .outputs = {maxima, node.inputs[1]},
               .compute = node.compute,
               .attrs = attrs,
               .name = node.name});
  }
  node.inputs.resize(!forward && is_max ? 2 : 1);
  if (node.outputs.size() > 1 && node.outputs[1] == kAbsent) node.outputs.resize(1);
  node.attrs = attrs;
  const int64_t elements = ElementsOfImage(g, node);
  if (elements == 0 && alpha == 1 && beta == 0) {
    g.AddNode(std::move(node));
    return;
  }
  TensorId result;
  if (elements != 0) {
    const TensorId sum = w.Reduce(Combine::kAdd, node.inputs[0], g[y].dims);
    result = w.Div(sum, w.Number(static_cast<double>(elements)));
  } else {
    result = node.outputs[0] = bare(y, w.compute(), "bare");
    g.AddNode(std::move(node));
  }
  if (alpha != 1) result = w.Mul(result, w.Number(alpha));
  if (beta != 0) result = w.Add(result, beta == 1 ? previous : w.Mul(previous, w.Number(beta)));
  w.Write(result, y);
}

// M and N overrides select the padding value in the result, the K override zeroes a's columns:
//   a' = select(iota(k) < ko, a, 0);  c = select(iota(m) < mo and iota(n) < no, a' x b, padding)
void DecomposeMatmul(Graph& g, Node node) {
  const auto limit = [&](size_t i) {
    return i + 2 < node.inputs.size() ? node.inputs[i + 2] : kAbsent;
  };
  const TensorId mo = limit(0), no = limit(1), ko = limit(2);
  const double padding = node.As<graph::MatmulAttrs>().padding_value;
  node.inputs.resize(2);
  node.attrs = graph::MatmulAttrs{};
  if (mo == kAbsent && no == kAbsent && ko == kAbsent) {
    g.AddNode(std::move(node));
    return;
  }
  const TensorId y = node.outputs[0];
  const int64_t rank = g[y].rank();
  const auto below = [&](int64_t axis, const Dims& dims, TensorId bound) {
    PrimitiveWriter index(g, g[bound].dtype, g[y].name);
    return index.Map(ScalarOp::kLt, {index.Iota(axis, dims), bound});
  };
  PrimitiveWriter w(g, ArithmeticType(node.compute), g[y].name);
  if (ko != kAbsent) {
    // The mask varies per batch of the result, so a is seen with the result's batch dims. An
    // element or 0 is what the operand's type has: engines see the operand that the client has.
    Dims dims = g[y].dims;
    dims[rank - 1] = g[node.inputs[0]].dims[rank - 1];
    const DType type = g[node.inputs[0]].dtype;
    const TensorId masked = w.Select(below(rank - 1, dims, ko), node.inputs[0], w.Number(0));
    g[masked].dtype = type;
    node.inputs[0] = masked;
  }
  if (mo == kAbsent && no == kAbsent) {
    g.AddNode(std::move(node));
    return;
  }
  graph::Tensor bare = g[y];
  bare.uid = -1;
  bare.is_virtual = true;
  bare.dtype = w.compute();
  node.outputs = {g.AddTensor(std::move(bare))};
  const TensorId product = node.outputs[0];
  g.AddNode(std::move(node));
  TensorId inside = kAbsent;
  if (mo != kAbsent) inside = below(rank - 2, g[y].dims, mo);
  if (no != kAbsent) {
    const TensorId columns = below(rank - 1, g[y].dims, no);
    inside = inside == kAbsent ? columns : w.Map(ScalarOp::kAnd, {inside, columns});
  }
  w.Write(w.Select(inside, product, w.Number(padding)), y);
}

bool IsIdentity(const Dims& permutation) { return std::ranges::is_sorted(permutation); }

// The dims in the order of memory; of those with one stride, whose elements overlap, the longer one
// first, so that both tensors of a reshape walk the places that they share alike. Dims of extent 1
// stay where they are.
Dims OrderOfPlaces(const graph::Tensor& t) {
  Dims order = MemoryOrder(t.strides);
  const auto extent = [&](int64_t d) { return t.dims[static_cast<size_t>(d)]; };
  const auto stride = [&](int64_t d) { return t.strides[static_cast<size_t>(d)]; };
  for (auto i = order.begin(); i != order.end(); ++i)
    for (auto j = i + 1; j != order.end() && stride(*j) == stride(*i); ++j)
      if (extent(*i) != 1 && extent(*j) > extent(*i)) std::iter_swap(i, j);
  return order;
}

}  // namespace

// A reshape that keeps the memory is a transpose to memory order, a row-major reshape, and a
// transpose back. From here on every reshape keeps the row-major order of elements, whatever
// strides its tensors get.
void DecomposeReshape(Graph& g, Node node) {
  const TensorId x = node.inputs[0], y = node.outputs[0];
  if (!graph::ReshapeKeepsMemory(g[x], g[y])) {
    g.AddNode(std::move(node));
    return;
  }
  const Dims from = OrderOfPlaces(g[x]), to = OrderOfPlaces(g[y]);
  const auto ordered = [&](TensorId id, const Dims& order) {
    graph::Tensor t = g[id];
    for (size_t d = 0; d < order.size(); ++d) t.dims[d] = g[id].dims[order[d]];
    t.strides = PackedStrides(t.dims);
    t.uid = -1;
    t.is_virtual = true;
    return g.AddTensor(std::move(t));
  };
  if (!IsIdentity(from)) {
    const TensorId in_order = ordered(x, from);
    g.AddNode({.op = GraphOp::kTranspose,
               .inputs = {x},
               .outputs = {in_order},
               .compute = node.compute,
               .attrs = graph::TransposeAttrs{.permutation = from},
               .name = ""});
    node.inputs[0] = in_order;
  }
  if (IsIdentity(to)) {
    g.AddNode(std::move(node));
    return;
  }
  node.outputs[0] = ordered(y, to);
  const TensorId reshaped = node.outputs[0];
  const DType compute = node.compute;
  g.AddNode(std::move(node));
  Dims back(to.size());
  for (size_t d = 0; d < to.size(); ++d) back[to[d]] = static_cast<int64_t>(d);
  g.AddNode({.op = GraphOp::kTranspose,
             .inputs = {reshaped},
             .outputs = {y},
             .compute = compute,
             .attrs = graph::TransposeAttrs{.permutation = back},
             .name = ""});
}

namespace {

using Rule = void (*)(Graph&, Node&&, const PassContext&);

template <auto kWrite>
void Apply(Graph& g, Node&& node, const PassContext& context) {
  if constexpr (std::invocable<decltype(kWrite), Graph&, Node, const PassContext&>)
    kWrite(g, std::move(node), context);
  else
    kWrite(g, std::move(node));
}

// How each composite operation is written; all others are primitives already.
constexpr std::pair<GraphOp, Rule> kRules[] = {
    {GraphOp::kPointwise, Apply<DecomposePointwise>},
    {GraphOp::kReduction, Apply<DecomposeReduction>},
    {GraphOp::kGenStats, Apply<DecomposeGenStats>},
    {GraphOp::kBnFinalize, Apply<DecomposeBnFinalize>},
    {GraphOp::kBnBwdWeights, Apply<DecomposeBnBwdWeights>},
    {GraphOp::kNormForward, Apply<DecomposeNormForward>},
    {GraphOp::kNormBackward, Apply<DecomposeNormBackward>},
    {GraphOp::kBlockScaleDequantize, Apply<DecomposeBlockScaleDequantize>},
    {GraphOp::kBlockScaleQuantize, Apply<DecomposeBlockScaleQuantize>},
    {GraphOp::kSdpaFwd, Apply<DecomposeSdpaFwd>},
    {GraphOp::kSdpaBwd, Apply<DecomposeSdpaBwd>},
    {GraphOp::kRaggedLoad, Apply<DecomposeRaggedLoad>},
    {GraphOp::kRaggedStore, Apply<DecomposeRaggedStore>},
    {GraphOp::kPagedCacheLoad, Apply<DecomposePagedCacheLoad>},
    {GraphOp::kConvFprop, Apply<DecomposeConv>},
    {GraphOp::kConvDgrad, Apply<DecomposeConv>},
    {GraphOp::kConvWgrad, Apply<DecomposeConv>},
    {GraphOp::kRng, Apply<DecomposeRng>},
    {GraphOp::kExpandBandMatrix, Apply<DecomposeExpandBandMatrix>},
    {GraphOp::kContractBandMatrix, Apply<DecomposeContractBandMatrix>},
    {GraphOp::kMoeGroupedMatmul, Apply<DecomposeMoeGroupedMatmul>},
    {GraphOp::kRnnForward, Apply<DecomposeRnnForward>},
    {GraphOp::kRnnBackwardData, Apply<DecomposeRnnBackwardData>},
    {GraphOp::kRnnBackwardWeights, Apply<DecomposeRnnBackwardWeights>},
    {GraphOp::kResampleFwd, Apply<DecomposeResample>},
    {GraphOp::kResampleBwd, Apply<DecomposeResample>},
    {GraphOp::kReshape, Apply<DecomposeReshape>},
    {GraphOp::kMatmul, Apply<DecomposeMatmul>},
};

}  // namespace

Result<bool> Decompose(Module& module, const PassContext& context) {
  Graph& g = module.graph;
  std::vector<Node> nodes = std::exchange(g.nodes, {});
  bool changed = false;
  for (Node& node : nodes) {
    const size_t before = g.nodes.size();
    const GraphOp op = node.op;
    const auto* rule = std::ranges::find(kRules, op, &std::pair<GraphOp, Rule>::first);
    if (rule != std::end(kRules))
      rule->second(g, std::move(node), context);
    else
      g.AddNode(std::move(node));
    changed |= g.nodes.size() != before + 1 || g.nodes.back().op != op;
  }
  module.form = Form::kPrimitive;
  return changed;
}

}  // namespace kiln::compiler
