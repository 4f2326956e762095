#include "ir/graph/attention_parts.h"

#include <limits>
#include <numbers>

#include "ir/graph/sdpa.h"
#include "ir/graph/speller.h"

namespace kiln::graph {

void SpellSoftmax(Graph& graph, const SoftmaxParts& parts) {
  using M = PointwiseMode;
  const DType compute = FloatFor(graph[parts.x]);
  Speller at(graph, compute);
  const Speller::Form all{.dtype = compute, .dims = graph[parts.x].dims};
  Speller::Form rows = all;
  rows.dims.back() = 1;

  const TensorId max = at.Place(parts.max, rows);
  if (parts.sink == kAbsent) {
    at.ReductionTo(max, ReductionMode::kMax, parts.x);
  } else {
    const TensorId of_row = at.Temporary(rows);
    at.ReductionTo(of_row, ReductionMode::kMax, parts.x);
    at.PointwiseTo(max, M::kMax, {of_row, parts.sink});
  }
  const TensorId exp = at.Pointwise(M::kExp, {at.Pointwise(M::kSub, {parts.x, max}, all)}, all);
  const TensorId sum = at.Place(parts.sum, rows);
  if (parts.sink == kAbsent) {
    at.ReductionTo(sum, ReductionMode::kAdd, exp);
  } else {
    const TensorId of_sink =
        at.Pointwise(M::kExp, {at.Pointwise(M::kSub, {parts.sink, max}, rows)}, rows);
    const TensorId of_row = at.Temporary(rows);
    at.ReductionTo(of_row, ReductionMode::kAdd, exp);
    at.PointwiseTo(sum, M::kAdd, {of_row, of_sink});
  }
  if (parts.stats != kAbsent) {
    const TensorId log = at.Pointwise(M::kLog, {sum}, rows);
    if (parts.log2) {
      const TensorId natural = at.Pointwise(M::kAdd, {max, log}, rows);
      at.PointwiseTo(parts.stats, M::kMul, {natural, at.Number(std::numbers::log2e, rows)});
    } else {
      at.PointwiseTo(parts.stats, M::kAdd, {max, log});
    }
  }
  at.PointwiseTo(parts.y, M::kDiv, {exp, sum});
  at.Store(max, parts.max);
  at.Store(sum, parts.sum);
}

void SpellBandMask(Graph& graph, const BandMaskParts& parts) {
  using M = PointwiseMode;
  Speller places(graph, DType::kI32);
  const auto rank = graph[parts.x].rank();
  const Speller::Form index{.dtype = DType::kI32, .dims = graph[parts.x].dims};
  const auto index_along = [&](int64_t axis) {
    const TensorId to = places.Temporary(index);
    places.PointwiseTo(to, PointwiseAttrs{.mode = M::kGenIndex, .axis = axis}, {parts.x});
    return to;
  };
  // A bound may be a float, as cudnn-frontend's is in attention of 8-bit floats.
  const auto type_of = [&](TensorId x) {
    return IsFloat(graph[x].dtype) ? graph[x].dtype : DType::kI32;
  };
  const auto moved = [&](TensorId from, M mode, TensorId by) {
    if (by == kAbsent) return from;
    return Speller(graph, type_of(by))
        .Pointwise(mode, {from, by}, {.dtype = type_of(by), .dims = index.dims});
  };
  TensorId row = index_along(rank - 2), column = index_along(rank - 1);
  const bool is_left = parts.left != kAbsent;
  if (is_left) {
    column = moved(column, M::kAdd, parts.left);
    column = moved(column, M::kSub, parts.len_kv);
    column = moved(column, M::kAdd, parts.len_q);
  } else {
    row = moved(row, M::kAdd, parts.len_kv);
    row = moved(row, M::kSub, parts.len_q);
    row = moved(row, M::kAdd, parts.shift);
  }
  const TensorId moved_one = is_left ? column : row;
  const TensorId holds =
      Speller(graph, type_of(moved_one))
          .Pointwise(parts.comparison,
                     is_left ? std::vector{column, row} : std::vector{row, column},
                     {.dtype = DType::kBool, .dims = index.dims});
  Speller values(graph, FloatFor(graph[parts.x]));
  const TensorId fill =
      parts.fill != kAbsent
          ? parts.fill
          : values.Number(-std::numeric_limits<double>::infinity(),
                          {.dtype = FloatFor(graph[parts.x]), .dims = index.dims});
  values.PointwiseTo(parts.y, M::kBinarySelect, {parts.x, fill, holds});
}

TensorId SpellScores(Graph& graph, const AttentionParts& parts) {
  const DType compute = FloatFor(graph[parts.q]);
  Speller at(graph, compute);
  Speller::Form form{.dtype = compute, .dims = graph[parts.q].dims};
  form.dims.back() = graph[parts.k].dims.back();
  TensorId score = at.Temporary(form);
  at.Node(GraphOp::kMatmul, Operands({parts.q, parts.k, parts.len_q, parts.len_kv}), score, compute,
          MatmulAttrs{});
  for (const TensorId factor : {parts.scale, parts.descale_q, parts.descale_k})
    if (factor != kAbsent) score = at.Pointwise(PointwiseMode::kMul, {score, factor}, form);
  return score;
}

TensorId HidePadding(Graph& graph, TensorId score, TensorId len_q, TensorId len_kv) {
  using M = PointwiseMode;
  if (len_q == kAbsent && len_kv == kAbsent) return score;
  Speller places(graph, DType::kI32);
  const Dims dims = graph[score].dims;
  const Speller::Form bits{.dtype = DType::kBool, .dims = dims};
  const auto below = [&](int64_t axis, TensorId length) {
    const TensorId index = places.Temporary({.dtype = DType::kI32, .dims = dims});
    places.PointwiseTo(index, PointwiseAttrs{.mode = M::kGenIndex, .axis = axis}, {score});
    return places.Pointwise(M::kCmpLt, {index, length}, bits);
  };
  const auto rank = static_cast<int64_t>(dims.size());
  const TensorId row = len_q == kAbsent ? kAbsent : below(rank - 2, len_q);
  const TensorId column = len_kv == kAbsent ? kAbsent : below(rank - 1, len_kv);
  TensorId inside = row == kAbsent ? column : row;
  if (row != kAbsent && column != kAbsent)
    inside = Speller(graph, DType::kBool).Pointwise(M::kLogicalAnd, {row, column}, bits);
  Speller values(graph, FloatFor(graph[score]));
  const Speller::Form form{.dtype = FloatFor(graph[score]), .dims = dims};
  const TensorId fill = values.Number(-std::numeric_limits<double>::infinity(), form);
  return values.Pointwise(M::kBinarySelect, {score, fill, inside}, form);
}

// Blocks, bytes and bits are dims of their own; bit t of byte m is whether m / 2^(t+1) has a
// fraction of a half or more:
//   %m[B,H,R,1,C,1,1] / 2 * %power[…,8,1] -> [B,H,R,128,C,8,128] -> [B,H,R*128,C*8*128] -> the
//   scores'
TensorId SpellSeenBlocks(Graph& graph, TensorId block_mask, const Dims& scores) {
  const Tensor mask = graph[block_mask];
  const Dims &m = mask.dims, &strides = mask.strides;
  const Dims of_bytes = {m[0], m[1], m[2], 1, m[3], 1, 1};
  const Dims blocks = {m[0], m[1], m[2], kMaskBlock, m[3], 8, kMaskBlock};
  const TensorId bytes =
      graph.AddTensor({.name = "blocks",
                       .dtype = mask.dtype,
                       .dims = of_bytes,
                       .strides = {strides[0], strides[1], strides[2], 1, strides[3], 1, 1},
                       .is_virtual = true});
  Speller at(graph, DType::kF32);
  at.Node(GraphOp::kReshape, {block_mask}, bytes, MovingType(mask.dtype), ReshapeAttrs{});
  const auto map = [&](ScalarOp op, std::vector<TensorId> of, const Dims& dims, DType compute) {
    const bool is_bool = Info(op).result == ScalarResult::kBool;
    const TensorId to = at.Temporary({.dtype = is_bool ? DType::kBool : compute, .dims = dims});
    at.Node(GraphOp::kMap, std::move(of), to, compute, MapAttrs{.op = op});
    return to;
  };
  const auto number = [&](double value, DType dtype) {
    return at.Number(value, {.dtype = dtype, .dims = blocks});
  };
  const auto of_blocks = [&](ScalarOp op, std::vector<TensorId> of) {
    return map(op, std::move(of), blocks, DType::kF32);
  };
  const TensorId bit = at.Temporary({.dtype = DType::kI32, .dims = blocks});
  at.Node(GraphOp::kIota, {}, bit, DType::kI32, IotaAttrs{.axis = 5});
  const auto part = [&](int64_t modulus, int64_t from, double factor) {
    const TensorId rest =
        map(ScalarOp::kMod, {bit, number(static_cast<double>(modulus), DType::kI32)}, blocks,
            DType::kI32);
    const TensorId high = map(ScalarOp::kGe, {rest, number(static_cast<double>(from), DType::kI32)},
                              blocks, DType::kI32);
    return of_blocks(ScalarOp::kSelect,
                     {high, number(factor, DType::kF32), number(1, DType::kF32)});
  };
  const TensorId first = of_blocks(ScalarOp::kMul, {part(8, 4, 1. / 16), part(4, 2, 0.25)});
  const TensorId power = of_blocks(ScalarOp::kMul, {first, part(2, 1, 0.5)});
  const TensorId half =
      map(ScalarOp::kMul, {bytes, number(0.5, DType::kF32)}, of_bytes, DType::kF32);
  const TensorId shifted = of_blocks(ScalarOp::kMul, {half, power});
  const TensorId fraction =
      of_blocks(ScalarOp::kSub, {shifted, of_blocks(ScalarOp::kFloor, {shifted})});
  const TensorId seen = of_blocks(ScalarOp::kGe, {fraction, number(0.5, DType::kF32)});

  const Dims whole = {m[0], m[1], m[2] * kMaskBlock, m[3] * 8 * kMaskBlock};
  const TensorId flat = at.Temporary({.dtype = DType::kBool, .dims = whole});
  at.Node(GraphOp::kReshape, {seen}, flat, MovingType(DType::kBool), ReshapeAttrs{});
  return whole == scores ? flat : at.Slice(flat, Dims(scores.size(), 0), scores);
}

TensorId HideBlocks(Graph& graph, TensorId score, TensorId block_mask) {
  if (block_mask == kAbsent) return score;
  const TensorId seen = SpellSeenBlocks(graph, block_mask, Dims(graph[score].dims));
  Speller values(graph, FloatFor(graph[score]));
  const Speller::Form form{.dtype = FloatFor(graph[score]), .dims = graph[score].dims};
  const TensorId fill = values.Number(-std::numeric_limits<double>::infinity(), form);
  return values.Pointwise(PointwiseMode::kBinarySelect, {score, fill, seen}, form);
}

void SpellWeighted(Graph& graph, const AttentionParts& parts, TensorId score) {
  using M = PointwiseMode;
  const DType compute = FloatFor(graph[parts.q]);
  Speller at(graph, compute);
  const Speller::Form form{.dtype = compute, .dims = graph[score].dims};
  // A product takes both operands in q's type.
  const DType operand = graph[parts.q].dtype;
  const auto to_operand = [&](TensorId& x, M mode, TensorId by) {
    const TensorId y = at.Temporary({.dtype = operand, .dims = form.dims});
    at.PointwiseTo(y, mode, by == kAbsent ? std::vector{x} : std::vector{x, by});
    x = y;
  };

  SoftmaxParts softmax = parts.softmax;
  softmax.x =
      HideBlocks(graph, HidePadding(graph, score, parts.len_q, parts.len_kv), parts.block_mask);
  const bool is_last = parts.keep == 1 && parts.amax_s == kAbsent && parts.scale_s == kAbsent;
  softmax.y = at.Temporary({.dtype = is_last ? operand : compute, .dims = form.dims});
  SpellSoftmax(graph, softmax);
  TensorId weight = softmax.y;
  if (parts.keep != 1) {
    const TensorId bits = parts.dump != kAbsent ? parts.dump : at.Temporary(form);
    at.Node(GraphOp::kRng, {parts.seed, parts.offset}, bits, DType::kF32,
            RngAttrs{.distribution = RngDistribution::kBernoulli, .probability = parts.keep});
    weight = at.Pointwise(M::kMul, {weight, bits}, form);
    const TensorId factor = at.Number(static_cast<float>(1 / parts.keep), form);
    if (parts.amax_s == kAbsent && parts.scale_s == kAbsent)
      to_operand(weight, M::kMul, factor);
    else
      weight = at.Pointwise(M::kMul, {weight, factor}, form);
  }
  if (parts.amax_s != kAbsent) at.ReductionTo(parts.amax_s, ReductionMode::kAmax, weight);
  if (parts.scale_s != kAbsent)
    to_operand(weight, M::kMul, parts.scale_s);
  else if (parts.amax_s != kAbsent)
    to_operand(weight, M::kIdentity, kAbsent);

  const bool is_scaled = parts.descale_s != kAbsent || parts.descale_v != kAbsent ||
                         parts.scale_o != kAbsent || parts.amax_o != kAbsent;
  const Speller::Form out{.dtype = compute, .dims = graph[parts.o].dims};
  TensorId o = is_scaled ? at.Temporary(out) : parts.o;
  at.Node(GraphOp::kMatmul, Operands({weight, parts.v, parts.len_q, kAbsent, parts.len_kv}), o,
          compute, MatmulAttrs{});
  if (!is_scaled) return;
  for (const TensorId factor : {parts.descale_s, parts.descale_v})
    if (factor != kAbsent) o = at.Pointwise(M::kMul, {o, factor}, out);
  if (parts.scale_o != kAbsent)
    at.PointwiseTo(parts.o, M::kMul, {o, parts.scale_o});
  else
    at.Store(o, parts.o);
  if (parts.amax_o != kAbsent) at.ReductionTo(parts.amax_o, ReductionMode::kAmax, o);
}

Status CheckLogicalReshape(const Graph& graph, TensorId x, TensorId y) {
  const auto lies = [&](TensorId id) {
    return id != kAbsent && !graph[id].dims.empty() &&
           graph[id].strides.size() == graph[id].dims.size();
  };
  if (lies(x) && lies(y) && x != y) return {};
  return Status::Text(Code::kBadParam,
                      "a reshape by the order of elements wants two tensors with extents and "
                      "strides");
}

void SpellLogicalReshape(Graph& graph, TensorId x, TensorId y) {
  const DType compute = MovingType(graph[x].dtype);
  Speller at(graph, compute);
  // A reshape keeps the memory where it can: between packed tensors that is the order.
  const auto packed = [&](TensorId id) {
    return graph[id].strides == PackedStrides(graph[id].dims);
  };
  TensorId from = x, to = y;
  if (!packed(x)) {
    from = at.Temporary({.dtype = graph[x].dtype, .dims = graph[x].dims});
    at.PointwiseTo(from, PointwiseMode::kIdentity, {x});
  }
  if (!packed(y)) to = at.Temporary({.dtype = graph[y].dtype, .dims = graph[y].dims});
  at.Node(GraphOp::kReshape, {from}, to, compute, ReshapeAttrs{});
  at.Store(to, y);
}

TensorId SpellLengths(Graph& graph, TensorId cumulative) {
  const Tensor all = graph[cumulative];
  Speller at(graph, all.dtype);
  Speller::Form form{.dtype = all.dtype, .dims = all.dims};
  --form.dims[0];
  const auto from = [&](int64_t start) {
    const TensorId to = at.Temporary(form);
    SliceAttrs attrs{.start = Dims(all.dims.size(), 0), .step = Dims(all.dims.size(), 1)};
    attrs.start[0] = start;
    at.Node(GraphOp::kSlice, {cumulative}, to, all.dtype, std::move(attrs));
    return to;
  };
  const TensorId end = from(1);
  return at.Pointwise(PointwiseMode::kSub, {end, from(0)}, form);
}

TensorId SpellMultiple(Graph& graph, TensorId x, int64_t factor) {
  const Tensor all = graph[x];
  Speller at(graph, all.dtype);
  const Speller::Form form{.dtype = all.dtype, .dims = all.dims};
  return at.Pointwise(PointwiseMode::kMul, {x, at.Number(static_cast<double>(factor), form)}, form);
}

}  // namespace kiln::graph
