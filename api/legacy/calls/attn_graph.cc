#include "api/legacy/calls/attn_graph.h"

#include <algorithm>
#include <limits>

#include "api/legacy/plans/places.h"
#include "ir/graph/ops.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;
using graph::PointwiseMode;
using graph::ReductionMode;
using graph::TensorId;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const Dims kSwapLast = {0, 1, 3, 2};

// ---- nodes

TensorId Matmul(CallGraph& g, TensorId a, TensorId b, DType compute) {
  return g.builder().Apply(GraphOp::kMatmul, {a, b}, graph::MatmulAttrs{},
                           {.dtype = compute, .compute = compute});
}

TensorId Compare(CallGraph& g, PointwiseMode mode, TensorId a, TensorId b) {
  return g.builder().Apply(GraphOp::kPointwise, {a, b}, graph::PointwiseAttrs{.mode = mode},
                           {.dtype = DType::kBool, .compute = DType::kI32});
}

TensorId Both(CallGraph& g, TensorId a, TensorId b) {
  return g.builder().Apply(GraphOp::kPointwise, {a, b},
                           graph::PointwiseAttrs{.mode = PointwiseMode::kLogicalAnd},
                           {.dtype = DType::kBool, .compute = DType::kF32});
}

// Numbers 0, 1, … along one dim, 1 along the others.
TensorId Numbers(CallGraph& g, size_t axis, int64_t count, size_t rank) {
  Dims dims(rank, 1);
  dims[axis] = count;
  return g.builder().Apply(GraphOp::kIota, {}, graph::IotaAttrs{.axis = static_cast<int64_t>(axis)},
                           {.dtype = DType::kI32, .compute = DType::kI32, .dims = dims});
}

// `other` where the condition does not hold.
TensorId Where(CallGraph& g, TensorId condition, TensorId value, double other, DType compute) {
  const auto rank = static_cast<int64_t>(g.DimsOf(value).size());
  return g.Pointwise(PointwiseMode::kBinarySelect,
                     {value, g.Constant(other, rank, compute), condition}, compute);
}

// An operand of a product in the type of memory.
TensorId As(CallGraph& g, TensorId x, int32_t type, DType compute) {
  const Result<DType> dtype = ElementType(type);
  if (!dtype.ok() || g.builder().graph()[x].dtype == *dtype) return x;
  return g.builder().Apply(GraphOp::kPointwise, {x},
                           graph::PointwiseAttrs{.mode = PointwiseMode::kIdentity},
                           {.dtype = *dtype, .compute = compute});
}

// ---- rows

// The rows of both as one dim, if they lie in one order: how many rows apart neighbours are.
std::optional<std::array<int64_t, 2>> StepsOfOne(const Rows& a, const Rows& b) {
  std::array<size_t, 3> axes = {0, 1, 2};
  std::ranges::sort(axes, {}, [&](size_t axis) { return std::pair(-a.strides[axis], axis); });
  int64_t inner = 1;
  std::array<int64_t, 2> steps = {1, 1};
  for (size_t i = axes.size(); i-- > 0;) {
    const size_t axis = axes[i];
    if (a.extents[axis] == 1) continue;
    if (inner == 1) steps = {a.strides[axis], b.strides[axis]};
    if (a.strides[axis] != inner * steps[0] || b.strides[axis] != inner * steps[1])
      return std::nullopt;
    inner *= a.extents[axis];
  }
  return steps;
}

TensorDesc OneDim(int32_t type, int64_t rows, int64_t step, int64_t width) {
  return DescOf(type, {1, rows, width}, {rows * step * width, step * width, 1});
}

// [batch, beam, time, width], or [batch, beam, time, parts, width / parts].
TensorDesc AllDims(int32_t type, const Rows& rows, int64_t width, int64_t parts = 0) {
  const auto& [batch, beam, time] = rows.extents;
  const auto stride = [&](RowAxis axis) { return rows.strides[axis] * width; };
  if (parts == 0)
    return DescOf(type, {batch, beam, time, width},
                  {stride(kBatch), stride(kBeam), stride(kTime), 1});
  return DescOf(type, {batch, beam, time, parts, width / parts},
                {stride(kBatch), stride(kBeam), stride(kTime), width / parts, 1});
}

// A matrix or vector for the rows above it: `strides` of the last two dims.
TensorDesc Matrix(int32_t type, size_t rank, std::array<int64_t, 2> dims,
                  std::array<int64_t, 2> strides) {
  TensorDesc desc = {.type = type, .rank = static_cast<int32_t>(rank)};
  for (size_t d = 0; d < rank; ++d) {
    const bool is_last = d + 2 >= rank;
    desc.dims[d] = is_last ? static_cast<int32_t>(dims[d + 2 - rank]) : 1;
    desc.strides[d] = static_cast<int32_t>(is_last ? strides[d + 2 - rank] : dims[0] * dims[1]);
  }
  return desc;
}

TensorDesc LengthsDesc(const Rows& rows, bool per_beam, size_t rank) {
  TensorDesc desc = {.type = CUDNN_DATA_INT32, .rank = static_cast<int32_t>(rank)};
  desc.dims.fill(1);
  desc.strides.fill(1);
  std::fill(desc.dims.begin() + static_cast<int>(rank), desc.dims.end(), 0);
  std::fill(desc.strides.begin() + static_cast<int>(rank), desc.strides.end(), 0);
  desc.dims[kBatch] = static_cast<int32_t>(rows.extents[kBatch]);
  if (!per_beam) return desc;
  desc.dims[kBeam] = static_cast<int32_t>(rows.extents[kBeam]);
  desc.strides[kBatch] = desc.dims[kBeam];
  return desc;
}

// The descriptors of a RowsOp, which outlive its call, and its operands.
class RowsCall {
 public:
  RowsCall(AttnCalls& calls, const RowsOp& op) : op_(op), call_(calls.handle(), op.name) {
    const bool by_place =
        op.padding.lengths != nullptr || op.dropout_in.dropout > 0 || op.dropout_out.dropout > 0;
    if (op.w == nullptr && op.x_width != op.y_width) {
      const int64_t width = std::min(op.x_width, op.y_width);
      x_desc_ = AllDims(op.type, op.from, op.x_width, op.x_width / width);
      y_desc_ = AllDims(op.type, op.to, op.y_width, op.y_width / width);
    } else if (const auto steps = StepsOfOne(op.from, op.to); steps && !by_place) {
      x_desc_ = OneDim(op.type, op.from.count(), (*steps)[0], op.x_width);
      y_desc_ = OneDim(op.type, op.from.count(), (*steps)[1], op.y_width);
    } else {
      x_desc_ = AllDims(op.type, op.from, op.x_width);
      y_desc_ = AllDims(op.type, op.to, op.y_width);
    }
    const auto rank = static_cast<size_t>(x_desc_.rank);
    w_desc_ = Matrix(op.type, rank, {op.x_width, op.y_width}, op.w_strides);
    bias_desc_ = Matrix(op.type, rank, {1, op.y_width}, {op.y_width, 1});
    lengths_desc_ = LengthsDesc(op.from, op.padding.per_beam, rank);
    word_ = DropoutWordOf(x_desc_.rank);
    AddOperands();
  }

  Status Run(AttnCalls& calls) {
    return calls.Run(call_, [this](CallGraph& g) { return Make(g); });
  }

 private:
  void AddOperands() {
    x_ = call_.Memory(x_desc_, op_.x);
    y_ = call_.Memory(y_desc_, op_.y);
    const auto add = [&](const TensorDesc& desc, const void* data) {
      call_.Add(data != nullptr);
      return data == nullptr ? Operand() : call_.Memory(desc, data);
    };
    w_ = add(w_desc_, op_.w);
    bias_ = add(bias_desc_, op_.bias);
    residual_ = add(y_desc_, op_.residual);
    lengths_ = add(lengths_desc_, op_.padding.lengths);
    call_.Add(op_.padding.step.has_value());
    if (op_.padding.step) step_ = {.slot = call_.Whole(&step_value_).slot, .type = DType::kI64};
    for (const auto& [use, words] :
         {std::pair(&op_.dropout_in, &words_in_), std::pair(&op_.dropout_out, &words_out_)}) {
      call_.Add(use->dropout);
      if (use->dropout > 0) *words = DropoutWordsOf(call_, word_, use->words);
    }
  }

  Status Make(CallGraph& g) {
    const DType compute = ComputeType(x_desc_);
    ASSIGN_OR_RETURN(TensorId value, g.Read(x_));
    if (op_.dropout_in.dropout > 0) {
      ASSIGN_OR_RETURN(value, Dropped(g, value, op_.dropout_in.dropout, compute, words_in_));
      if (op_.w != nullptr) value = As(g, value, op_.type, compute);
    }
    if (op_.w != nullptr) {
      ASSIGN_OR_RETURN(const TensorId w, g.Read(w_));
      value = Matmul(g, value, w, compute);
    } else if (op_.x_width > op_.y_width) {
      Dims dims = g.DimsOf(value);
      dims[3] = 1;
      value = g.builder().Reduction(ReductionMode::kAdd, value, dims,
                                    {.dtype = compute, .compute = compute});
    }
    if (op_.bias != nullptr) {
      ASSIGN_OR_RETURN(const TensorId bias, g.Read(bias_));
      value = g.Pointwise(PointwiseMode::kAdd, {value, bias}, compute);
    }
    if (op_.dropout_out.dropout > 0) {
      ASSIGN_OR_RETURN(value, Dropped(g, value, op_.dropout_out.dropout, compute, words_out_));
    }
    if (op_.padding.lengths != nullptr) {
      ASSIGN_OR_RETURN(const TensorId inside, Inside(g));
      value = Where(g, inside, value, 0, compute);
    }
    if (op_.residual != nullptr) {
      ASSIGN_OR_RETURN(const TensorId residual, g.Read(residual_));
      value = g.Pointwise(PointwiseMode::kAdd, {value, residual}, compute);
    }
    return g.WriteBroadcast(value, y_, {});
  }

  Result<TensorId> Inside(CallGraph& g) {
    const auto rank = static_cast<size_t>(x_desc_.rank);
    ASSIGN_OR_RETURN(const TensorId lengths, g.Read(lengths_));
    if (op_.padding.step)
      return Compare(g, PointwiseMode::kCmpGt, lengths, g.Read(step_, static_cast<int64_t>(rank)));
    return Compare(g, PointwiseMode::kCmpGt, lengths,
                   Numbers(g, kTime, op_.from.extents[kTime], rank));
  }

  const RowsOp& op_;
  Call call_;
  const int64_t step_value_ = op_.padding.step.value_or(0);
  TensorDesc x_desc_, y_desc_, w_desc_, bias_desc_, lengths_desc_, word_;
  Operand x_, y_, w_, bias_, residual_, lengths_;
  Scalar step_;
  DropoutWords words_in_, words_out_;
};

// ---- attention

// Attending holds what both directions compute, and the operands of their calls.
class Attending {
 public:
  Attending(AttnCalls& calls, const AttendOp& op, const char* name)
      : op_(op), call_(calls.handle(), name), compute_(ComputeType(op.q.desc)) {
    const auto rows = op.q.desc.dims[2];
    places_desc_ = DescOf(CUDNN_DATA_INT32, {1, 1, rows, 1}, {rows, rows, 1, 1});
    const auto batch = op.q.desc.dims[0];
    lengths_desc_ = DescOf(CUDNN_DATA_INT32, {batch, 1, 1, 1}, {1, 1, 1, 1});
    number_desc_ = DescOf(CUDNN_DATA_INT32, {1, 1, 1, 1}, {1, 1, 1, 1});
    word_ = DropoutWordOf(4);
  }

  Call& call() { return call_; }
  DType compute() const { return compute_; }
  Operand Memory(const HeadVectors& vectors) { return call_.Memory(vectors.desc, vectors.data); }

  // The operands that are not vectors.
  Status AddOthers() {
    if (compute_ == DType::kF64) {
      ASSIGN_OR_RETURN(scale_, call_.Factor(&op_.scale, op_.q.desc, 1, "smScaler"));
    } else {
      ASSIGN_OR_RETURN(scale_, call_.Factor(&narrow_scale_, op_.q.desc, 1, "smScaler"));
    }
    for (auto& [bound, operand] : bounds_) {
      call_.Add(bound->kind);
      if (bound->kind == WindowBound::Kind::kNone) continue;
      if (bound->kind == WindowBound::Kind::kPlaces) {
        operand.places = call_.Memory(places_desc_, bound->places);
        continue;
      }
      ASSIGN_OR_RETURN(operand.key, call_.Value(&bound->key, number_desc_));
    }
    call_.Add(op_.key_lengths != nullptr);
    if (op_.key_lengths != nullptr) lengths_ = call_.Memory(lengths_desc_, op_.key_lengths);
    call_.Add(op_.dropout.dropout);
    if (op_.dropout.dropout > 0) words_ = DropoutWordsOf(call_, word_, op_.dropout.words);
    return {};
  }

  TensorId Scaled(CallGraph& g, TensorId x) {
    if (scale_.slot < 0) return x;
    return g.Pointwise(PointwiseMode::kMul, {x, g.Read(scale_, 4)}, compute_);
  }

  // Conditions under which a query sees a key.
  Result<std::vector<TensorId>> Conditions(CallGraph& g) {
    std::vector<TensorId> conditions;
    const TensorId column = Numbers(g, 3, op_.k.desc.dims[2], 4);
    for (auto& [bound, operand] : bounds_) {
      if (bound->kind == WindowBound::Kind::kNone) continue;
      const auto mode = bound == &op_.lo ? PointwiseMode::kCmpGe : PointwiseMode::kCmpLt;
      ASSIGN_OR_RETURN(const TensorId key, KeyOf(g, *bound, operand));
      conditions.push_back(Compare(g, mode, column, key));
    }
    if (op_.key_lengths != nullptr) {
      ASSIGN_OR_RETURN(const TensorId lengths, g.Read(lengths_));
      conditions.push_back(Compare(g, PointwiseMode::kCmpLt, column, lengths));
    }
    return conditions;
  }

  // `x` where all conditions hold; 0 where it is hidden.
  TensorId Shown(CallGraph& g, const std::vector<TensorId>& conditions, TensorId x) {
    if (conditions.empty()) return x;
    TensorId all = conditions[0];
    for (size_t i = 1; i < conditions.size(); ++i) all = Both(g, all, conditions[i]);
    return Where(g, all, x, 0, compute_);
  }

  Result<TensorId> WithDropout(CallGraph& g, TensorId x) {
    if (op_.dropout.dropout == 0) return x;
    return Dropped(g, x, op_.dropout.dropout, compute_, words_);
  }

  TensorId OverRows(CallGraph& g, ReductionMode mode, TensorId x) {
    Dims dims = g.DimsOf(x);
    dims.back() = 1;
    return g.builder().Reduction(mode, x, dims, {.dtype = compute_, .compute = compute_});
  }

 private:
  struct BoundOperand {
    Scalar key;
    Operand places;
  };

  Result<TensorId> KeyOf(CallGraph& g, const WindowBound& bound, const BoundOperand& operand) {
    if (bound.kind == WindowBound::Kind::kPlaces) return g.Read(operand.places);
    const TensorId key = g.Read(operand.key, 4);
    if (bound.kind == WindowBound::Kind::kOne) return key;
    const TensorId query = Numbers(g, 2, op_.q.desc.dims[2], 4);
    return g.Pointwise(PointwiseMode::kAdd, {query, key}, DType::kI32);
  }

  const AttendOp& op_;
  Call call_;
  const DType compute_;
  const float narrow_scale_ = static_cast<float>(op_.scale);
  TensorDesc places_desc_, lengths_desc_, number_desc_, word_;
  Scalar scale_;
  std::array<std::pair<const WindowBound*, BoundOperand>, 2> bounds_ = {
      {{&op_.lo, {}}, {&op_.hi, {}}}};
  Operand lengths_;
  DropoutWords words_;
};

struct AttendOperands {
  Operand q, k, v, h, stats;
};

// softmax(scale q k') v, and the statistics where they have a place.
Status MakeAttention(CallGraph& g, Attending& a, const AttendOperands& in, int32_t type) {
  const DType compute = a.compute();
  ASSIGN_OR_RETURN(const TensorId q, g.Read(in.q));
  ASSIGN_OR_RETURN(const TensorId k, g.Read(in.k));
  ASSIGN_OR_RETURN(const TensorId v, g.Read(in.v));
  TensorId score = a.Scaled(g, Matmul(g, q, Transposed(g, k, kSwapLast), compute));
  ASSIGN_OR_RETURN(const std::vector<TensorId> conditions, a.Conditions(g));
  for (const TensorId seen : conditions) score = Where(g, seen, score, -kInfinity, compute);
  const TensorId most = a.OverRows(g, ReductionMode::kMax, score);
  const TensorId exp = g.Pointwise(
      PointwiseMode::kExp, {g.Pointwise(PointwiseMode::kSub, {score, most}, compute)}, compute);
  const TensorId sum = a.OverRows(g, ReductionMode::kAdd, exp);
  if (in.stats.slot >= 0) {
    TensorId log = g.Pointwise(PointwiseMode::kAdd,
                               {most, g.Pointwise(PointwiseMode::kLog, {sum}, compute)}, compute);
    if (!conditions.empty()) {
      const TensorId some =
          g.builder().Apply(GraphOp::kPointwise, {most, g.Constant(-kInfinity, 4, compute)},
                            graph::PointwiseAttrs{.mode = PointwiseMode::kCmpNeq},
                            {.dtype = DType::kBool, .compute = compute});
      log = Where(g, some, log, -kInfinity, compute);
    }
    RETURN_IF_ERROR(g.Write(log, in.stats));
  }
  // Weights of queries that see nothing are 0 / 0 before.
  TensorId weight = a.Shown(g, conditions, g.Pointwise(PointwiseMode::kDiv, {exp, sum}, compute));
  ASSIGN_OR_RETURN(weight, a.WithDropout(g, weight));
  return g.Write(Matmul(g, As(g, weight, type, compute), v, compute), in.h);
}

struct GradientOperands {
  Operand dh, dq, dk, dv;
};

Status MakeGradients(CallGraph& g, Attending& a, const AttendOperands& in,
                     const GradientOperands& gradients, int32_t type) {
  const DType compute = a.compute();
  ASSIGN_OR_RETURN(const TensorId q, g.Read(in.q));
  ASSIGN_OR_RETURN(const TensorId k, g.Read(in.k));
  ASSIGN_OR_RETURN(const TensorId v, g.Read(in.v));
  ASSIGN_OR_RETURN(const TensorId h, g.Read(in.h));
  ASSIGN_OR_RETURN(const TensorId stats, g.Read(in.stats));
  ASSIGN_OR_RETURN(const TensorId dh, g.Read(gradients.dh));
  const TensorId score = a.Scaled(g, Matmul(g, q, Transposed(g, k, kSwapLast), compute));
  ASSIGN_OR_RETURN(const std::vector<TensorId> conditions, a.Conditions(g));
  const TensorId weight =
      a.Shown(g, conditions,
              g.Pointwise(PointwiseMode::kExp,
                          {g.Pointwise(PointwiseMode::kSub, {score, stats}, compute)}, compute));
  const TensorId mean =
      a.OverRows(g, ReductionMode::kAdd, g.Pointwise(PointwiseMode::kMul, {dh, h}, compute));
  ASSIGN_OR_RETURN(const TensorId inner,
                   a.WithDropout(g, Matmul(g, dh, Transposed(g, v, kSwapLast), compute)));
  const TensorId slope = a.Shown(
      g, conditions,
      g.Pointwise(PointwiseMode::kMul,
                  {weight, g.Pointwise(PointwiseMode::kSub, {inner, mean}, compute)}, compute));
  const TensorId scaled = As(g, a.Scaled(g, slope), type, compute);
  RETURN_IF_ERROR(g.Write(Matmul(g, scaled, k, compute), gradients.dq));
  RETURN_IF_ERROR(g.Write(Matmul(g, Transposed(g, scaled, kSwapLast), q, compute), gradients.dk));
  ASSIGN_OR_RETURN(const TensorId dropped, a.WithDropout(g, weight));
  return g.Write(Matmul(g, Transposed(g, As(g, dropped, type, compute), kSwapLast), dh, compute),
                 gradients.dv);
}

}  // namespace

Rows PackedRows(std::array<int64_t, 3> extents, std::array<RowAxis, 3> order) {
  Rows rows = {.extents = extents, .strides = {}};
  int64_t inner = 1;
  for (size_t i = order.size(); i-- > 0;) {
    rows.strides[order[i]] = inner;
    inner *= extents[order[i]];
  }
  return rows;
}

TensorDesc DescOf(int32_t type, std::initializer_list<int64_t> dims,
                  std::initializer_list<int64_t> strides) {
  const auto narrow = [](int64_t x) { return static_cast<int32_t>(x); };
  TensorDesc desc = {.type = type, .rank = static_cast<int32_t>(dims.size())};
  std::ranges::transform(dims, desc.dims.begin(), narrow);
  std::ranges::transform(strides, desc.strides.begin(), narrow);
  return desc;
}

Status RunRows(AttnCalls& calls, const RowsOp& op) { return RowsCall(calls, op).Run(calls); }

Status RunAttention(AttnCalls& calls, const AttendOp& op) {
  Attending a(calls, op, "cudnnMultiHeadAttn, attention");
  AttendOperands in = {.q = a.Memory(op.q),
                       .k = a.Memory(op.k),
                       .v = a.Memory(op.v),
                       .h = a.Memory(op.h),
                       .stats = {}};
  a.call().Add(op.stats.data != nullptr);
  if (op.stats.data != nullptr) in.stats = a.Memory(op.stats);
  RETURN_IF_ERROR(a.AddOthers());
  return calls.Run(a.call(), [&](CallGraph& g) { return MakeAttention(g, a, in, op.q.desc.type); });
}

Status RunAttentionBackward(AttnCalls& calls, const AttendOp& op,
                            const AttendGradients& gradients) {
  Attending a(calls, op, "cudnnMultiHeadAttn, gradients");
  const AttendOperands in = {.q = a.Memory(op.q),
                             .k = a.Memory(op.k),
                             .v = a.Memory(op.v),
                             .h = a.Memory(op.h),
                             .stats = a.Memory(op.stats)};
  const GradientOperands out = {.dh = a.Memory(gradients.dh),
                                .dq = a.Memory(gradients.dq),
                                .dk = a.Memory(gradients.dk),
                                .dv = a.Memory(gradients.dv)};
  RETURN_IF_ERROR(a.AddOthers());
  return calls.Run(a.call(),
                   [&](CallGraph& g) { return MakeGradients(g, a, in, out, op.q.desc.type); });
}

Status RunWeightGradient(AttnCalls& calls, const WeightGradientOp& op) {
  const auto packed = [&](int64_t rows, int64_t width) {
    return DescOf(op.type, {1, rows, width}, {rows * width, width, 1});
  };
  const TensorDesc x_desc = packed(op.rows, op.x_width), dy_desc = packed(op.rows, op.y_width),
                   dw_desc = packed(op.x_width, op.y_width), db_desc = packed(1, op.y_width);
  Call call(calls.handle(), "cudnnMultiHeadAttn, weights");
  const Operand x = call.Memory(x_desc, op.x), dy = call.Memory(dy_desc, op.dy),
                dw = call.Memory(dw_desc, op.dw);
  call.Add(op.db != nullptr);
  const Operand db = op.db == nullptr ? Operand() : call.Memory(db_desc, op.db);
  const DType compute = ComputeType(x_desc);
  const double one = 1, kept = op.adds ? 1 : 0;
  const auto one_narrow = static_cast<float>(one), kept_narrow = static_cast<float>(kept);
  const bool is_wide = compute == DType::kF64;
  const auto blend = [&](const Operand& to) {
    return call.Scaling(is_wide ? static_cast<const void*>(&one) : &one_narrow,
                        is_wide ? static_cast<const void*>(&kept) : &kept_narrow, to);
  };
  ASSIGN_OR_RETURN(const Blend into_dw, blend(dw));
  Blend into_db;
  if (op.db != nullptr) {
    ASSIGN_OR_RETURN(into_db, blend(db));
  }
  return calls.Run(call, [&](CallGraph& g) -> Status {
    ASSIGN_OR_RETURN(const TensorId left, g.Read(x));
    ASSIGN_OR_RETURN(const TensorId right, g.Read(dy));
    RETURN_IF_ERROR(
        g.Write(Matmul(g, Transposed(g, left, {0, 2, 1}), right, compute), dw, into_dw));
    if (op.db == nullptr) return {};
    const TensorId sum = g.builder().Reduction(ReductionMode::kAdd, right, {1, 1, op.y_width},
                                               {.dtype = compute, .compute = compute});
    return g.Write(sum, db, into_db);
  });
}

Status RunSpread(AttnCalls& calls, const void* from, void* to, int64_t steps, int64_t beams,
                 bool time_is_inner) {
  const TensorDesc one = time_is_inner ? DescOf(CUDNN_DATA_INT32, {1, 1, steps}, {steps, steps, 1})
                                       : DescOf(CUDNN_DATA_INT32, {1, steps, 1}, {steps, 1, 1});
  const TensorDesc all =
      time_is_inner ? DescOf(CUDNN_DATA_INT32, {1, beams, steps}, {beams * steps, steps, 1})
                    : DescOf(CUDNN_DATA_INT32, {1, steps, beams}, {beams * steps, beams, 1});
  Call call(calls.handle(), "cudnnMultiHeadAttn, windows");
  const Operand x = call.Memory(one, from), y = call.Memory(all, to);
  return calls.Run(call, [&](CallGraph& g) -> Status {
    ASSIGN_OR_RETURN(const TensorId value, g.Read(x));
    return g.WriteBroadcast(value, y, {});
  });
}

}  // namespace kiln::api::legacy
