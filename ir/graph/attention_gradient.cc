#include "ir/graph/attention_gradient.h"

#include "ir/graph/attention_parts.h"
#include "ir/graph/speller.h"

namespace kiln::graph {
namespace {

using M = PointwiseMode;

// A view of x's memory with the last two dims exchanged, as `dtype`.
TensorId Transposed(Graph& graph, TensorId x, DType dtype) {
  Tensor t = graph[x];
  std::swap(t.dims[2], t.dims[3]);
  std::swap(t.strides[2], t.strides[3]);
  const TensorId y = graph.AddTensor({.name = fmt::format("tmp{}", graph.tensors.size()),
                                      .dtype = dtype,
                                      .dims = t.dims,
                                      .strides = t.strides,
                                      .is_virtual = true});
  graph.AddNode({.op = GraphOp::kReshape,
                 .inputs = {x},
                 .outputs = {y},
                 .compute = FloatFor(t),
                 .attrs = ReshapeAttrs{}});
  return y;
}

// Writes nodes on tensors of the score's extents, computed in the score's type.
struct OfScores {
  OfScores(Graph& g, const AttentionGradParts& p, TensorId score)
      : graph(g),
        parts(p),
        form{.dtype = FloatFor(g[score]), .dims = g[score].dims},
        at(g, form.dtype) {}

  TensorId Mul(TensorId x, TensorId by) { return at.Pointwise(M::kMul, {x, by}, form); }
  // Rounded as q, for a product.
  TensorId Rounded(TensorId x) {
    const TensorId y = at.Temporary({.dtype = graph[parts.q].dtype, .dims = form.dims});
    at.PointwiseTo(y, M::kIdentity, {x});
    return y;
  }
  // A product over queries, summed over the heads that share the result's.
  void WriteOfKeys(TensorId of_scores, TensorId by, TensorId to) {
    const std::vector<TensorId> operands =
        Operands({of_scores, by, parts.len_kv, kAbsent, parts.len_q});
    Dims each = graph[by].dims;
    each[2] = form.dims[3];
    if (graph[to].dims == each)
      return at.Node(GraphOp::kMatmul, operands, to, form.dtype, MatmulAttrs{});
    const TensorId of_heads = at.Temporary({.dtype = form.dtype, .dims = each});
    at.Node(GraphOp::kMatmul, operands, of_heads, form.dtype, MatmulAttrs{});
    at.ReductionTo(to, ReductionMode::kAdd, of_heads);
  }

  Graph& graph;
  const AttentionGradParts& parts;
  const Speller::Form form;
  Speller at;
};

// rowsum(dy * o), of which a sink's gradient is made.
TensorId SpellMean(Graph& graph, const AttentionGradParts& parts, DType compute) {
  Speller at(graph, compute);
  Speller::Form rows{.dtype = compute, .dims = graph[parts.o].dims};
  const TensorId product = at.Pointwise(M::kMul, {parts.dy, parts.o}, rows);
  rows.dims.back() = 1;
  const TensorId mean = at.Temporary(rows);
  at.ReductionTo(mean, ReductionMode::kAdd, product);
  if (parts.dsink != kAbsent) {
    const TensorId share =
        at.Pointwise(M::kExp, {at.Pointwise(M::kSub, {parts.sink, parts.stats}, rows)}, rows);
    at.ReductionTo(parts.dsink, ReductionMode::kAdd, at.Pointwise(M::kMul, {share, mean}, rows));
  }
  if (parts.keep == 1) return mean;
  return at.Pointwise(M::kMul, {mean, at.Number(static_cast<float>(parts.keep), rows)}, rows);
}

}  // namespace

TensorId SpellGradScores(Graph& graph, const AttentionGradParts& parts) {
  return SpellScores(graph, {.q = parts.q,
                             .k = parts.k,
                             .scale = parts.scale,
                             .len_q = parts.len_q,
                             .len_kv = parts.len_kv});
}

TensorId SpellSlope(Graph& graph, const AttentionGradParts& parts, TensorId score) {
  OfScores of(graph, parts, score);
  const bool drops = parts.keep != 1;
  TensorId bits = kAbsent, factor = kAbsent;
  if (drops) {
    bits = of.at.Temporary(of.form);
    of.at.Node(GraphOp::kRng, {parts.seed, parts.offset}, bits, DType::kF32,
               RngAttrs{.distribution = RngDistribution::kBernoulli, .probability = parts.keep});
    factor = of.at.Number(static_cast<float>(1 / parts.keep), of.form);
  }
  const TensorId mean = SpellMean(graph, parts, of.form.dtype);
  const TensorId shifted = HidePadding(
      graph, of.at.Pointwise(M::kSub, {score, parts.stats}, of.form), parts.len_q, parts.len_kv);
  const TensorId weight = of.at.Pointwise(M::kExp, {shifted}, of.form);
  TensorId dropped = weight;
  if (drops) dropped = of.Mul(of.Mul(dropped, bits), factor);
  of.WriteOfKeys(Transposed(graph, of.Rounded(dropped), graph[parts.q].dtype), parts.dy, parts.dv);

  TensorId slope = of.at.Temporary(of.form);
  of.at.Node(GraphOp::kMatmul, Operands({parts.dy, parts.v, parts.len_q, parts.len_kv}), slope,
             of.form.dtype, MatmulAttrs{});
  if (drops) slope = of.Mul(slope, bits);
  slope = of.Mul(of.at.Pointwise(M::kSub, {slope, mean}, of.form), weight);
  return drops ? of.Mul(slope, factor) : slope;
}

void SpellOperandGradients(Graph& graph, const AttentionGradParts& parts, TensorId slope) {
  OfScores of(graph, parts, slope);
  const TensorId ds = of.Rounded(parts.scale == kAbsent ? slope : of.Mul(slope, parts.scale));
  of.WriteOfKeys(Transposed(graph, ds, graph[ds].dtype), parts.q, parts.dk);
  of.at.Node(GraphOp::kMatmul,
             Operands({ds, Transposed(graph, parts.k, graph[parts.k].dtype), parts.len_q, kAbsent,
                       parts.len_kv}),
             parts.dq, of.form.dtype, MatmulAttrs{});
}

void SpellBiasGradient(Graph& graph, TensorId slope, TensorId dbias) {
  Speller at(graph, FloatFor(graph[slope]));
  if (graph[slope].dims == graph[dbias].dims)
    at.PointwiseTo(dbias, M::kIdentity, {slope});
  else
    at.ReductionTo(dbias, ReductionMode::kAdd, slope);
}

}  // namespace kiln::graph
