#include "compiler/passes/decompose_sdpa.h"

#include <limits>

#include "compiler/passes/decompose_parts.h"
#include "compiler/passes/primitive_writer.h"
#include "ir/graph/attention_parts.h"
#include "ir/graph/sdpa.h"

namespace kiln::compiler {
namespace {

using graph::Combine;
using graph::Graph;
using graph::kAbsent;
using graph::Node;
using graph::SdpaAttrs;
using graph::SdpaOperands;
using graph::Tensor;
using graph::TensorId;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const Dims kSwapLast = {0, 1, 3, 2};

DType ComputeOf(const Node& node) {
  return node.compute == DType::kF64 ? DType::kF64 : DType::kF32;
}

// The values of a page table and its container: y[batch, head, place, depth], or with the last two
// exchanged. Blocks are a dim of their own:
//   %x[blocks,H,1,block,D], %t[B,1,pages,1,1] -> gather %y[B,H,pages,block,D] -> [B,H,S,D]
TensorId LoadPages(Graph& g, TensorId container, TensorId table, TensorId lengths, int64_t places,
                   bool along_last, std::string name) {  // a copy: tensors move
  PrimitiveWriter w(g, ArithmeticType(g[container].dtype), name);
  TensorId rows = along_last ? w.Transpose(container, kSwapLast) : container;
  const size_t at = along_last ? 3 : 2;  // the dim of places
  const auto split = [&](TensorId id, size_t before) {
    Dims dims = g[id].dims, strides = g[id].strides;
    const auto offset = static_cast<std::ptrdiff_t>(before);
    dims.insert(dims.begin() + offset, 1);
    strides.insert(strides.begin() + offset, 1);
    return w.Reshape(id, std::move(dims), std::move(strides));
  };
  // The table is [B,1,pages,1]; its pages lie along the dim of places.
  const TensorId index = split(along_last ? w.Transpose(table, kSwapLast) : table, at + 1);
  rows = split(rows, at);
  Dims dims = g[rows].dims;
  dims[0] = g[table].dims[0];
  dims[at] = g[table].dims[2];
  TensorId y = w.Gather(rows, index, 0, dims);
  dims[at] *= dims[at + 1];
  dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  y = w.Reshape(y, dims);
  if (dims[at] != places) {
    dims[at] = places;
    y = w.SliceFront(y, dims);
  }
  if (lengths == kAbsent) return y;
  PrimitiveWriter places_writer(g, DType::kI32, name);
  const TensorId inside = places_writer.Map(
      ScalarOp::kLt, {places_writer.Iota(static_cast<int64_t>(at), dims), lengths});
  PrimitiveWriter values(g, w.compute(), name);
  y = values.Select(inside, y, values.Number(0));
  return g[y].dtype == g[container].dtype ? y : values.Cast(y, g[container].dtype);
}

// The computation that both directions share: scores, and which of them are seen.
class Scores {
 public:
  Scores(Graph& g, const Node& node)
      : g_(g),
        attrs_(node.As<SdpaAttrs>()),
        in_(graph::SdpaOperandsOf(node)),
        w_(g, ComputeOf(node), "sdpa"),
        index_(g, DType::kI32, "sdpa") {
    dims_ = g[in_.q].dims;
    dims_[3] = graph::SdpaKeys(g, in_);
    k_ = Loaded(in_.k, in_.page_table_k);
    v_ = Loaded(in_.v, in_.page_table_v);
  }

  PrimitiveWriter& w() { return w_; }
  const SdpaOperands& in() const { return in_; }
  const Dims& dims() const { return dims_; }
  TensorId k() const { return k_; }
  TensorId v() const { return v_; }
  Dims RowDims() const { return {dims_[0], dims_[1], dims_[2], 1}; }
  const std::vector<TensorId>& masks() const { return masks_; }

  TensorId Scaled(TensorId x) {
    if (in_.scale != kAbsent) x = w_.Mul(x, in_.scale);
    return attrs_.scale == 1 ? x : w_.Mul(x, w_.Number(attrs_.scale));
  }

  // Before any mask.
  TensorId Product() {
    TensorId s = Scaled(w_.Matmul(in_.q, w_.Transpose(k_, kSwapLast)));
    if (in_.bias != kAbsent) s = w_.Add(s, in_.bias);
    if (in_.alibi != kAbsent) {
      const TensorId distance = index_.Sub(Column(), Row());
      s = w_.Add(s, w_.Mul(distance, in_.alibi));
    }
    return s;
  }

  // Conditions, in the order in which clients mask: padding, right, left, blocks.
  void FindMasks() {
    if (in_.seq_q != kAbsent) masks_.push_back(index_.Map(ScalarOp::kLt, {Row(), in_.seq_q}));
    if (in_.seq_kv != kAbsent) masks_.push_back(index_.Map(ScalarOp::kLt, {Column(), in_.seq_kv}));
    if (masks_.size() == 2) masks_ = {index_.Map(ScalarOp::kAnd, {masks_[0], masks_[1]})};
    if (attrs_.right >= 0)
      masks_.push_back(index_.Map(ScalarOp::kGe, {Moved(Shifted(Row()), attrs_.right), Column()}));
    if (attrs_.left >= 0)
      masks_.push_back(index_.Map(ScalarOp::kGt, {Moved(Column(), attrs_.left), Shifted(Row())}));
    if (in_.block_mask != kAbsent)
      masks_.push_back(graph::SpellSeenBlocks(g_, in_.block_mask, dims_));
  }

  // The sink of each row; none of rows that are no queries.
  TensorId SinkOfRows() {
    if (in_.sink == kAbsent || in_.seq_q == kAbsent) return in_.sink;
    const TensorId is_query = index_.Map(ScalarOp::kLt, {index_.Iota(2, RowDims()), in_.seq_q});
    return w_.Select(is_query, in_.sink, w_.Number(-kInfinity));
  }

  // All of them; there is one.
  TensorId Visible() {
    TensorId all = masks_[0];
    for (size_t i = 1; i < masks_.size(); ++i) all = index_.Map(ScalarOp::kAnd, {all, masks_[i]});
    return all;
  }

 private:
  TensorId Loaded(TensorId id, TensorId table) {
    if (table == kAbsent) return id;
    return LoadPages(g_, id, table, in_.seq_kv, dims_[3], false, "sdpa");
  }
  TensorId Row() { return index_.Iota(2, dims_); }
  TensorId Column() { return index_.Iota(3, dims_); }
  TensorId Moved(TensorId x, int64_t by) {
    return by == 0 ? x : index_.Add(x, index_.Number(static_cast<double>(by)));
  }
  // Rows counted so that the last one stands at the last key.
  TensorId Shifted(TensorId row) {
    if (!attrs_.bottom_right) return row;
    const auto length = [&](TensorId lengths, int64_t extent) {
      return lengths != kAbsent ? lengths
                                : index_.Number(static_cast<double>(extent), kLaunchNumberUid);
    };
    return index_.Sub(index_.Add(row, length(in_.seq_kv, dims_[3])), length(in_.seq_q, dims_[2]));
  }

  Graph& g_;
  const SdpaAttrs attrs_;
  const SdpaOperands in_;
  PrimitiveWriter w_, index_;
  Dims dims_;
  TensorId k_ = kAbsent, v_ = kAbsent;
  std::vector<TensorId> masks_;
};

// exp(s - max) / sum by rows, the maximum and the sum. Rows that see no key get weights 0 and a sum
// of 0: nothing is subtracted from their scores, and 1 divides them (ir/graph/sdpa.h).
struct Softmax {
  TensorId weight, max, sum;
};

TensorId UnlessEqual(PrimitiveWriter& w, TensorId x, double value, double instead) {
  return w.Select(w.Map(ScalarOp::kEq, {x, w.Number(value)}), w.Number(instead), x);
}

Softmax WriteSoftmax(Scores& scores, TensorId s) {
  PrimitiveWriter& w = scores.w();
  const TensorId sink = scores.SinkOfRows();
  TensorId max = w.Reduce(Combine::kMax, s, scores.RowDims());
  if (sink != kAbsent) max = w.Map(ScalarOp::kMax, {max, sink});
  const TensorId shift = UnlessEqual(w, max, -kInfinity, 0);
  const TensorId exp = w.Map(ScalarOp::kExp, {w.Sub(s, shift)});
  TensorId sum = w.Reduce(Combine::kAdd, exp, scores.RowDims());
  if (sink != kAbsent) sum = w.Add(sum, w.Map(ScalarOp::kExp, {w.Sub(sink, shift)}));
  return {.weight = w.Div(exp, UnlessEqual(w, sum, 0, 1)), .max = max, .sum = sum};
}

// An operand of the second contraction, in the type of q; f64 stays what it is.
TensorId AsOperand(PrimitiveWriter& w, TensorId x, DType type) {
  return w.graph()[x].dtype == type || w.compute() == DType::kF64 ? x : w.Cast(x, type);
}

// Sums of x, which has other readers, over the dims where `y` has extent 1.
void WriteSum(PrimitiveWriter& w, TensorId x, TensorId y) {
  const Dims dims = w.graph()[y].dims;
  w.Write(w.graph()[x].dims == dims ? w.Cast(x, w.compute()) : w.Reduce(Combine::kAdd, x, dims), y);
}

// y[B,Hk,S,D] = a b over all queries, summed over the heads that share one of y's.
void WriteShared(PrimitiveWriter& w, TensorId a, TensorId b, TensorId y) {
  const Dims dims = w.graph()[y].dims;
  const int64_t heads = w.graph()[a].dims[1];
  if (heads == dims[1] || dims[1] == 0) {
    w.Matmul(a, b, y);
    return;
  }
  TensorId each = w.Matmul(a, b);
  Dims groups = {dims[0], dims[1], heads / dims[1], dims[2], dims[3]};
  each = w.Reshape(each, groups);
  groups[2] = 1;
  const TensorId sum = w.Reduce(Combine::kAdd, each, groups);
  // A reshape reads the strides of its result: y, whose strides are anything, takes a copy.
  const TensorId flat = w.Reshape(sum, dims);
  w.Write(w.Cast(flat, w.compute()), y);
}

}  // namespace

void DecomposeSdpaFwd(Graph& g, const Node& node) {
  const TensorId o = node.outputs[graph::sdpa_fwd::kO],
                 stats = graph::OperandOr(node.outputs, graph::sdpa_fwd::kStats);
  Scores scores(g, node);
  PrimitiveWriter& w = scores.w();
  TensorId s = scores.Product();
  scores.FindMasks();
  for (const TensorId visible : scores.masks()) s = w.Select(visible, s, w.Number(-kInfinity));
  const auto [weight, max, sum] = WriteSoftmax(scores, s);
  if (stats != kAbsent) w.Write(w.Add(max, w.Map(ScalarOp::kLog, {sum})), stats);
  w.Matmul(AsOperand(w, weight, g[scores.in().q].dtype), scores.v(), o);
}

void DecomposeSdpaBwd(Graph& g, const Node& node) {
  namespace in = graph::sdpa_bwd;
  const TensorId o = node.inputs[in::kO], grad = node.inputs[in::kDo],
                 stats = node.inputs[in::kStats],
                 dbias = graph::OperandOr(node.outputs, in::kDbias);
  Scores scores(g, node);
  PrimitiveWriter& w = scores.w();
  const DType type = g[scores.in().q].dtype;
  // Rows that see no key have weights of exp(score - inf).
  const TensorId shift = UnlessEqual(w, stats, -kInfinity, kInfinity);
  TensorId weight = w.Map(ScalarOp::kExp, {w.Sub(scores.Product(), shift)});
  scores.FindMasks();
  const bool is_masked = !scores.masks().empty();
  const TensorId visible = is_masked ? scores.Visible() : kAbsent;
  const auto masked = [&](TensorId x) { return is_masked ? w.Select(visible, x, w.Number(0)) : x; };
  weight = masked(weight);
  const TensorId inner = w.Reduce(Combine::kAdd, w.Mul(grad, o), scores.RowDims());
  const TensorId dp = w.Matmul(grad, w.Transpose(scores.v(), kSwapLast));
  const TensorId ds = masked(w.Mul(weight, w.Sub(dp, inner)));
  if (dbias != kAbsent) WriteSum(w, ds, dbias);
  const TensorId scaled = AsOperand(w, scores.Scaled(ds), type);
  w.Matmul(scaled, scores.k(), node.outputs[in::kDq]);
  WriteShared(w, w.Transpose(scaled, kSwapLast), scores.in().q, node.outputs[in::kDk]);
  WriteShared(w, w.Transpose(AsOperand(w, weight, type), kSwapLast), grad, node.outputs[in::kDv]);
}

void DecomposePagedCacheLoad(Graph& g, const Node& node) {
  namespace in = graph::paged_load;
  const TensorId container = node.inputs[in::kContainer], y = node.outputs[0];
  const bool along_last = graph::PagedAlongLast(g[container], g[y]);
  const TensorId loaded = LoadPages(g, container, node.inputs[in::kPageTable],
                                    graph::OperandOr(node.inputs, in::kLengths),
                                    g[y].dims[along_last ? 3 : 2], along_last, g[y].name);
  g.AddNode({.op = graph::GraphOp::kMap,
             .inputs = {loaded},
             .outputs = {y},
             .compute = ArithmeticType(g[container].dtype),
             .attrs = graph::MapAttrs{.identity = true},
             .name = ""});
}

}  // namespace kiln::compiler
