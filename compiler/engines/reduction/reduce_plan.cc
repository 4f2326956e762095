#include "compiler/engines/reduction/reduce_plan.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "compiler/kernel/accumulation.h"
#include "compiler/kernel/collapse.h"
#include "compiler/kernel/vectors.h"
#include "ir/base/check.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {

using graph::GraphOp;
using graph::Tensor;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

ReducePlan PlanReduce(const Group& group) {
  ReducePlan plan;
  const auto first_reduce = [](const Group& g) {
    const auto is_read = [&](const graph::Node& node) {
      return node.op == GraphOp::kReduce &&
             std::ranges::any_of(g.graph.nodes, [&](const graph::Node& reader) {
               return std::ranges::find(reader.inputs, node.outputs[0]) != reader.inputs.end();
             });
    };
    const auto& nodes = g.graph.nodes;
    const auto read = std::ranges::find_if(nodes, is_read);
    return read != nodes.end() ? *read
                               : *std::ranges::find(nodes, GraphOp::kReduce, &graph::Node::op);
  };
  if (CanCollapse(group)) {
    // The largest input that has the whole domain leads; a reduction of scalars only has none.
    const Dims& domain = group.graph[first_reduce(group).inputs[0]].dims;
    TensorId lead = first_reduce(group).inputs[0];
    for (TensorId id : MemoryInputs(group.graph)) {
      if (group.graph[id].dims == domain) {
        lead = id;
        break;
      }
    }
    plan.group = Collapse(group, lead);
    plan.collapsed = true;
  } else {
    plan.group = group;
  }
  const graph::Graph& g = plan.group.graph;
  const Dims result_dims = g[first_reduce(plan.group).outputs[0]].dims;
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    if (g.nodes[n].op != GraphOp::kReduce) continue;
    const bool fits = g[g.nodes[n].outputs[0]].dims == result_dims;
    (fits ? plan.reduces : plan.others).push_back(static_cast<graph::NodeId>(n));
  }
  plan.outputs = graph::Outputs(g);
  plan.input = g.nodes[plan.reduces[0]].inputs[0];
  plan.result = g.nodes[plan.reduces[0]].outputs[0];
  const Tensor &x = g[plan.input], &y = g[plan.result];
  for (int64_t d = 0; d < x.rank(); ++d) {
    if (x.dims[d] == 1) continue;
    const bool reduced = y.dims[d] == 1;
    (reduced ? plan.reduced : plan.kept).push_back(d);
    (reduced ? plan.length : plan.rows) *= x.dims[d];
    plan.inner = d;
    plan.inner_is_reduced = reduced;
  }
  return plan;
}

DType AccumulatorType(const graph::Node& reduce) {
  const DType t = ArithmeticType(reduce.compute);
  return t == DType::kBool ? DType::kI32 : t;
}

DType AccumulatorType(const graph::Node& reduce, const Target& target) {
  const DType t = AccumulatorType(reduce);
  const bool adds = reduce.As<graph::ReduceAttrs>().combine == graph::Combine::kAdd;
  return !target.is_cuda() && adds && t == DType::kF32 ? DType::kF64 : t;
}

Expr CombineTwo(const graph::Node& reduce, Expr a, Expr b) {
  return tile::Op(graph::ScalarOf(reduce.As<graph::ReduceAttrs>().combine),
                  {std::move(a), std::move(b)});
}

Expr IdentityOf(const graph::Node& reduce) {
  return IdentityExpr(reduce.As<graph::ReduceAttrs>().combine, AccumulatorType(reduce));
}

Expr IdentityExpr(graph::Combine combine, DType type) {
  const double identity = graph::IdentityOf(combine);
  if (IsFloat(type)) return tile::Float(identity, type);
  if (identity == std::numeric_limits<double>::infinity())
    return tile::Int(type == DType::kI64 ? INT64_MAX : INT32_MAX, type);
  if (identity == -std::numeric_limits<double>::infinity())
    return tile::Int(type == DType::kI64 ? INT64_MIN : INT32_MIN, type);
  return tile::Int(static_cast<int64_t>(identity), type);
}

Index UnravelDims(KernelBuilder& b, Block& out, const ReducePlan& plan,
                  const std::vector<int64_t>& dims, const Expr& linear, int64_t inner_divisor,
                  const std::string& name) {
  Index extents;
  Dims values;
  for (int64_t d : dims) {
    const bool vectors = d == plan.inner && inner_divisor != 1;
    values.push_back(vectors ? CeilDiv(plan.extent(d), inner_divisor) : plan.extent(d));
    extents.push_back(vectors ? b.Arg("vectors_n", values.back()) : b.Extent(plan.input, d));
  }
  const Index split = b.Unravel(out, linear, extents, values, name);
  Index index(plan.group.graph[plan.input].dims.size(), b.Idx(0));
  for (size_t k = 0; k < dims.size(); ++k) index[dims[k]] = split[k];
  return index;
}

// ---- Accumulators

void Accumulators::Declare(Block& out) {
  for (size_t r = 0; r < count(); ++r) {
    names_.push_back(b_.Name("acc"));
    out.push_back({tile::Alloc{names_[r], type(r), tile::Space::kReg, lanes_}});
    const std::string lane = b_.Name("l");
    Block set;
    const Expr identity = IdentityExpr(node(r).As<graph::ReduceAttrs>().combine, type(r));
    set.push_back({tile::Store{names_[r], tile::Var(lane, b_.index_type()), identity}});
    out.push_back(
        {tile::For{lane, b_.index_type(), b_.Idx(lanes_), Bind::kUnroll, std::move(set)}});
  }
}

Expr Accumulators::Combined(size_t r, Expr a, Expr b) const {
  return CombineTwo(node(r), std::move(a), std::move(b));
}

Expr Accumulators::Lane(size_t r, const Expr& lane) const {
  return tile::Load(names_[r], type(r), lane);
}

Expr Accumulators::Operand(size_t r, ValueScope& values, const Index& index) const {
  const TensorId operand = node(r).inputs[0];
  return tile::Cast(type(r),
                    values.Value(operand, BroadcastIndex(b_, plan_.group.graph[operand], index)));
}

void Accumulators::Add(Block& out, ValueScope& values, const Index& index, const Expr& lane) {
  for (size_t r = 0; r < count(); ++r) {
    const Expr value = Operand(r, values, index);
    out.push_back({tile::Store{names_[r], lane, Combined(r, Lane(r, lane), value)}});
  }
}

void Accumulators::InSegments(
    Block& out, const Expr& begin, const Expr& end, int64_t places, int64_t step,
    const std::function<void(Block&, Accumulators&, const Expr&, const Expr&)>& add) {
  if (CeilDiv(places, step) <= kMostTerms) return add(out, *this, begin, end);
  const std::string segment = b_.Name("segment"), lane = b_.Name("l");
  const int64_t length = kMostTerms * step;
  Block loop, fold;
  const Expr from =
      b_.Let(loop, "from", begin + tile::Var(segment, b_.index_type()) * b_.Idx(length));
  const Expr to = b_.Let(loop, "to", tile::Op(ScalarOp::kMin, {from + b_.Idx(length), end}));
  Accumulators own(b_, plan_, target_, lanes_);
  own.Declare(loop);
  add(loop, own, from, to);
  const Expr at = tile::Var(lane, b_.index_type());
  for (size_t r = 0; r < count(); ++r)
    fold.push_back({tile::Store{names_[r], at, Combined(r, Lane(r, at), own.Lane(r, at))}});
  loop.push_back(
      {tile::For{lane, b_.index_type(), b_.Idx(lanes_), Bind::kUnroll, std::move(fold)}});
  const Expr span = tile::Op(ScalarOp::kMax, {end - begin, b_.Idx(0)});
  out.push_back({tile::For{segment, b_.index_type(), CeilDivExpr(span, length), Bind::kSerial,
                           std::move(loop)}});
}

void Accumulators::FoldLanes(Block& out) {
  for (size_t r = 0; r < count(); ++r) {
    if (lanes_ == 1) continue;
    const std::string lane = b_.Name("l");
    Block fold;
    const Expr l = tile::Var(lane, b_.index_type()) + b_.Idx(1);
    fold.push_back(
        {tile::Store{names_[r], b_.Idx(0), Combined(r, Lane(r, b_.Idx(0)), Lane(r, l))}});
    out.push_back(
        {tile::For{lane, b_.index_type(), b_.Idx(lanes_ - 1), Bind::kUnroll, std::move(fold)}});
  }
}

void Accumulators::StoreResults(Block& out, const Index& kept_index,
                                const std::function<Expr(size_t)>& total) {
  const graph::Graph& g = plan_.group.graph;
  ValueScope values(b_, out);
  for (size_t r = 0; r < count(); ++r) {
    const TensorId result = node(r).outputs[0];
    values.Bind(result, BroadcastIndex(b_, g[result], kept_index),
                RoundThrough(g[result].dtype, total(r)));
  }
  for (TensorId y : plan_.outputs) {
    const Index at = BroadcastIndex(b_, g[y], kept_index);
    out.push_back({tile::Store{b_.Pointer(y), b_.Offset(y, at),
                               tile::Cast(g[y].dtype, values.Value(y, at))}});
  }
}

// ---- two stages

int AddPartials(const ReducePlan& plan, const Target& target, int64_t splits, Lowered& lowered) {
  const int first = static_cast<int>(lowered.scratch_bytes.size());
  for (graph::NodeId n : plan.reduces) {
    const int size = SizeOf(AccumulatorType(plan.group.graph.nodes[n], target));
    lowered.scratch_bytes.push_back(plan.rows * splits * std::max(size, 4));
  }
  return first;
}

namespace {

constexpr int kCombineUnroll = 8;

// Threads of the second stage: one thread a row, or a warp a row where the partials of a row are
// neighbours (on the GPU).
struct CombineThreads {
  bool gpu;
  int threads, per_row;
  int64_t rows_per_block;
};
CombineThreads ThreadsToCombine(const Target& target, bool row_major) {
  const bool gpu = target.is_cuda();
  const int threads = gpu ? 128 : 1, per_row = gpu && row_major ? 32 : 1;
  return {.gpu = gpu,
          .threads = threads,
          .per_row = per_row,
          .rows_per_block = gpu ? threads / per_row : 256};
}

// The place of a row's partial result in scratch memory, by its split.
using PartialPlace = std::function<Expr(const Expr&)>;

// Takes in the partial results of a row: a lane has every per_row-th of them.
void CombinePartials(KernelBuilder& b, const Accumulators& acc, int first_scratch,
                     const Expr& splits, const Expr& lane, int per_row, const PartialPlace& place,
                     Block& body) {
  std::vector<std::string> scratch;
  for (size_t r = 0; r < acc.count(); ++r)
    scratch.push_back(b.Scratch(first_scratch + static_cast<int>(r), acc.type(r), true));
  const auto combine = [&](Block& out, size_t r, const Expr& value) {
    out.push_back(
        {tile::Store{acc.name(r), b.Idx(0), acc.Combined(r, acc.Lane(r, b.Idx(0)), value)}});
  };
  UnrolledWalk(b, body, b.Idx(0), splits, per_row, lane, kCombineUnroll,
               [&](Block& out, const std::vector<Expr>& splits_at) {
                 // Read all, then combine in order.
                 std::vector<Expr> values;
                 for (const Expr& s : splits_at) {
                   const Expr at = b.Let(out, "at", place(s));
                   for (size_t r = 0; r < acc.count(); ++r)
                     values.push_back(b.Let(out, "part", tile::Load(scratch[r], acc.type(r), at)));
                 }
                 for (size_t i = 0; i < values.size(); ++i)
                   combine(out, i % acc.count(), values[i]);
               });
  for (int mask = per_row / 2; mask > 0; mask /= 2)
    for (size_t r = 0; r < acc.count(); ++r)
      combine(body, r, tile::ShuffleXor(acc.Lane(r, b.Idx(0)), mask));
}

void FinishCombine(KernelBuilder& b, const CombineThreads& of, int64_t rows, Block body,
                   Lowered& lowered) {
  const int64_t blocks = CeilDiv(rows, of.rows_per_block);
  const Expr grid = b.Arg("blocks", blocks);
  if (of.gpu) {
    b.Finish(BlockAndThread(b.index_type(), grid, of.threads, std::move(body)), {blocks, 1, 1},
             of.threads, lowered);
    return;
  }
  Block loop, block;
  loop.push_back(
      {tile::For{"tx", b.index_type(), b.Idx(of.rows_per_block), Bind::kSerial, std::move(body)}});
  block.push_back({tile::For{"bx", b.index_type(), grid, Bind::kBlockX, std::move(loop)}});
  b.Finish(std::move(block), {blocks, 1, 1}, 1, lowered);
}

}  // namespace

void LowerCombine(const ReducePlan& plan, const Target& target, int first_scratch, int64_t splits,
                  bool row_major, Lowered& lowered) {
  const CombineThreads of = ThreadsToCombine(target, row_major);
  KernelBuilder b(plan.group, target,
                  fmt::format("reduce, second stage: combines the partial results of each row"));
  for (const char* reserved : {"bx", "tx"}) b.Name(reserved);
  Accumulators acc(b, plan, target, 1);
  const Expr count = b.Arg("rows", plan.rows), split_count = b.Arg("splits", splits);
  const Expr bx = tile::Var("bx", b.index_type()), tx = tile::Var("tx", b.index_type());

  Block body;
  const Expr lane = of.gpu ? b.Let(body, "lane", tx % b.Idx(of.per_row)) : b.Idx(0);
  const Expr row =
      b.Let(body, "row", bx * b.Idx(of.rows_per_block) + (of.gpu ? tx / b.Idx(of.per_row) : tx));
  // Rows past the end read the last row, so that all lanes take part in the shuffles.
  const Expr safe_row = b.Let(body, "safe_row", tile::Op(ScalarOp::kMin, {row, count - b.Idx(1)}));
  acc.Declare(body);
  CombinePartials(
      b, acc, first_scratch, split_count, lane, of.per_row,
      [&](const Expr& s) { return row_major ? safe_row * split_count + s : s * count + safe_row; },
      body);
  Block store;
  const Index kept = UnravelDims(b, store, plan, plan.kept, row, 1, "k");
  acc.StoreResults(store, kept, [&](size_t r) { return acc.Lane(r, b.Idx(0)); });
  const Expr writes =
      of.gpu ? tile::And(tile::Op(ScalarOp::kEq, {lane, b.Idx(0)}), tile::Lt(row, count))
             : tile::Lt(row, count);
  body.push_back({tile::If{writes, std::move(store), {}}});
  FinishCombine(b, of, plan.rows, std::move(body), lowered);
}

}  // namespace kiln::compiler
