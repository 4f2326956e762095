#include "api/legacy/calls/attn_problem.h"

#include <algorithm>
#include <limits>

#include "api/legacy/plans/host_values.h"
#include "include/v9/cudnn_adv.h"

namespace kiln::api::legacy {
namespace {

constexpr int64_t kPartAlignment = 256;  // bytes
constexpr int64_t kMostElements = std::numeric_limits<int32_t>::max();

static_assert(CUDNN_SEQDATA_TIME_DIM == 0 && CUDNN_SEQDATA_BATCH_DIM == 1 &&
              CUDNN_SEQDATA_BEAM_DIM == 2);
constexpr RowAxis kAxisOf[] = {kTime, kBatch, kBeam};

std::array<int64_t, 3> ExtentsOf(const SeqData& data) {
  return {data.Extent(CUDNN_SEQDATA_BATCH_DIM), data.Extent(CUDNN_SEQDATA_BEAM_DIM),
          data.Extent(CUDNN_SEQDATA_TIME_DIM)};
}

std::array<RowAxis, 3> OrderOf(const SeqData& data) {
  std::array<RowAxis, 3> order;
  for (size_t i = 0; i < order.size(); ++i) order[i] = kAxisOf[data.axes[i]];
  return order;
}

// ---- checks

Status CheckEach(const AttnDesc& desc, const SeqData& data, const char* name, int64_t width,
                 int64_t most_steps) {
  if (!data.is_set()) return Status::Error(Code::kBadParam, "{} was not set", name);
  if (data.type != desc.type)
    return Status::Error(Code::kBadParam, "{} has data type {}, the layer {}", name, data.type,
                         desc.type);
  if (data.Extent(CUDNN_SEQDATA_VECT_DIM) != width)
    return Status::Error(Code::kBadParam, "{} has vectors of {}; the layer's have {} elements",
                         name, data.Extent(CUDNN_SEQDATA_VECT_DIM), width);
  const auto [batch, beam, steps] = ExtentsOf(data);
  if (batch > desc.most_batch || beam > desc.most_beam || steps > most_steps)
    return Status::Error(Code::kBadParam,
                         "{} has batch {}, beam {} and {} steps; the layer was set for {}, {} and "
                         "{} at most",
                         name, batch, beam, steps, desc.most_batch, desc.most_beam, most_steps);
  return {};
}

Status CheckPair(const SeqData& a, const SeqData& b, const char* names) {
  if (ExtentsOf(a) == ExtentsOf(b) && a.lengths == b.lengths) return {};
  return Status::Error(Code::kBadParam, "{} differ in extents or lengths: {}, and {}", names,
                       Text(a), Text(b));
}

Status CheckSequences(const AttnDesc& desc, const AttnSequences& s) {
  if (!desc.is_set()) return Status::Text(Code::kBadParam, "the attention descriptor was not set");
  RETURN_IF_ERROR(CheckEach(desc, *s.q, "qDesc", desc.Size(Projected::kQ), desc.most_queries));
  RETURN_IF_ERROR(CheckEach(desc, *s.k, "kDesc", desc.Size(Projected::kK), desc.most_keys));
  RETURN_IF_ERROR(CheckEach(desc, *s.v, "vDesc", desc.Size(Projected::kV), desc.most_keys));
  RETURN_IF_ERROR(CheckEach(desc, *s.o, "oDesc", desc.OutputSize(), desc.most_queries));
  for (const SeqData* other : {s.k, s.v, s.o})
    if (other->axes != s.q->axes)
      return Status::Text(Code::kBadParam, "the sequences' axes are in different orders");
  RETURN_IF_ERROR(CheckPair(*s.q, *s.o, "qDesc and oDesc"));
  RETURN_IF_ERROR(CheckPair(*s.k, *s.v, "kDesc and vDesc"));
  const auto [batch, beam, keys] = ExtentsOf(*s.k);
  if (batch != ExtentsOf(*s.q)[kBatch])
    return Status::Error(Code::kBadParam, "there are queries of {} batches and keys of {}",
                         ExtentsOf(*s.q)[kBatch], batch);
  if (beam == 1) return {};
  return Status::Error(Code::kBadParam, "the keys' beam is {}; all queries of a beam share 1",
                       beam);
}

// ---- windows

// The rule that gives min(max(key, 0), keys) of each step, if there is one.
WindowBound RuleOf(std::span<const int32_t> window, int64_t keys, bool is_low, bool may_shift) {
  const auto clamped = [&](int64_t key) { return std::clamp<int64_t>(key, 0, keys); };
  const int64_t none = is_low ? 0 : keys;
  if (std::ranges::all_of(window, [&](int32_t key) { return clamped(key) == none; })) return {};
  const auto steps = std::ssize(window);
  const auto fits = [&](int64_t shift) {
    for (int64_t t = 0; t < steps; ++t)
      if (clamped(t + shift) != clamped(window[static_cast<size_t>(t)])) return false;
    return true;
  };
  // A step whose key is inside gives the shift; without one all keys are 0, or all, or one number
  // changes to the other.
  std::array<int64_t, 3> shifts = {-steps, keys, keys};
  for (int64_t t = steps; t-- > 0;) {
    const int64_t key = clamped(window[static_cast<size_t>(t)]);
    if (key > 0) shifts[2] = key - t;
    if (key > 0 && key < keys) shifts.fill(key - t);
  }
  for (const int64_t shift : shifts)
    if (may_shift && fits(shift))
      return {.kind = steps == 1 ? WindowBound::Kind::kOne : WindowBound::Kind::kShifted,
              .key = static_cast<int32_t>(shift)};
  return {.kind = WindowBound::Kind::kPlaces};
}

}  // namespace

// ---- memory

Result<AttnMemory> AttnMemory::Of(const AttnDesc& d) {
  if (!d.is_set()) return Status::Text(Code::kBadParam, "the attention descriptor was not set");
  bool is_too_large = false;
  const auto times = [&](std::initializer_list<int64_t> factors) {
    int64_t product = 1;
    for (const int64_t factor : factors) {
      is_too_large |= factor > kMostElements / product;
      product = is_too_large ? 1 : product * factor;
    }
    return product;
  };
  const int64_t queries = times({d.most_batch, d.most_beam, d.most_queries}),
                keys = times({d.most_batch, d.most_keys});
  const int64_t q_width = d.heads * d.Width(Projected::kQ),
                v_width = d.heads * d.Width(Projected::kV);
  const std::array<int64_t, 4> vectors = {times({queries, q_width}), times({keys, q_width}),
                                          times({keys, v_width}), times({queries, v_width})};
  const int64_t copies =
      std::max({times({queries, d.Size(Projected::kQ)}), times({keys, d.Size(Projected::kK)}),
                times({keys, d.Size(Projected::kV)}), times({queries, d.OutputSize()})});
  const int64_t element = ElementBytes(d.type);
  const int64_t stats = times({queries, d.heads}) * (d.type == CUDNN_DATA_DOUBLE ? 8 : 4);
  ASSIGN_OR_RETURN(const int64_t weights, WeightElements(d));
  if (is_too_large || weights > kMostElements)
    return Status::Error(Code::kNotSupported,
                         "batch {}, beam {}, {} queries, {} keys and {} heads make vectors or "
                         "weights of more elements than 32 bits count",
                         d.most_batch, d.most_beam, d.most_queries, d.most_keys, d.heads);
  AttnMemory m;
  const auto take = [](int64_t& end, int64_t bytes) {
    const Part part = {.offset = end, .bytes = bytes};
    end += (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
    return part;
  };
  const int64_t spread = int64_t{4} * d.most_beam * d.most_queries;
  m.lo = take(m.work_bytes, std::max(spread, HostValuesBytes(d.most_queries)));
  m.hi = take(m.work_bytes, m.lo.bytes);
  m.host_lo = take(m.work_bytes, HostValuesBytes(d.most_queries));
  m.host_hi = take(m.work_bytes, m.host_lo.bytes);
  m.staged.offset = m.work_bytes;
  for (size_t i = 0; i < 4; ++i) m.inference[i] = take(m.work_bytes, vectors[i] * element);
  m.work_bytes = std::max(m.work_bytes, m.staged.offset + copies * element);
  m.work_bytes = (m.work_bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  m.staged.bytes = m.work_bytes - m.staged.offset;
  m.words = take(m.reserve_bytes, 2 * kDropoutStateBytes);
  m.query_lengths = take(m.reserve_bytes, int64_t{4} * d.most_batch * d.most_beam);
  m.key_lengths = take(m.reserve_bytes, int64_t{4} * d.most_batch);
  for (size_t i = 0; i < 4; ++i) m.training[i] = take(m.reserve_bytes, vectors[i] * element);
  m.stats = take(m.reserve_bytes, stats);
  for (size_t i = 0; i < 3; ++i) m.gradients[i] = take(m.reserve_bytes, vectors[i] * element);
  return m;
}

// ---- the problem

Result<AttnProblem> AttnProblem::Of(const AttnDesc& desc, const AttnSequences& s, int step) {
  RETURN_IF_ERROR(CheckSequences(desc, s));
  AttnProblem p;
  p.desc_ = &desc;
  const auto order = OrderOf(*s.q);
  auto extents = ExtentsOf(*s.q);
  p.queries_ = PackedRows(extents, order);
  p.keys_ = p.staged_keys_ = PackedRows(ExtentsOf(*s.k), order);
  p.full_queries_ = s.q->is_full();
  p.full_keys_ = s.k->is_full();
  if (step >= extents[kTime])
    return Status::Error(Code::kBadParam, "currIdx is {}; there are {} steps", step,
                         extents[kTime]);
  if (step >= 0) {
    p.step_ = step;
    p.first_row_ = step * p.queries_.strides[kTime];
    extents[kTime] = p.queries_.extents[kTime] = 1;
  }
  // Beam and time become one dim: they stay side by side, in the client's order if they are.
  const bool side_by_side = order[1] != kBatch || p.RowsAreSteps();
  p.staged_queries_ = PackedRows(extents, side_by_side ? order : std::array{kBatch, kBeam, kTime});
  p.time_is_inner_ =
      p.staged_queries_.strides[kTime] < p.staged_queries_.strides[kBeam] || extents[kBeam] == 1;
  return p;
}

int64_t AttnProblem::heads() const {
  const bool differ = desc_->post_dropout != nullptr ||
                      std::ranges::any_of(desc_->projected, [](int32_t size) { return size > 0; });
  return differ ? desc_->heads : 1;
}

int64_t AttnProblem::StagedWidth(Projected what) const {
  return heads() * desc_->Width(what == Projected::kO ? Projected::kV : what);
}

bool AttnProblem::IsDirect(Projected what) const {
  const bool of_keys = what == Projected::kK || what == Projected::kV;
  return !desc_->has(what) && heads() == 1 && all_full(what) && (of_keys || queries_merge());
}

Padding AttnProblem::PaddingOf(Projected what, const void* lengths) const {
  if (all_full(what)) return {};
  const bool of_keys = what == Projected::kK || what == Projected::kV;
  return {.lengths = lengths, .per_beam = !of_keys, .step = of_keys ? std::nullopt : step_};
}

HeadVectors AttnProblem::Vectors(Projected what, const Rows& rows, void* data) const {
  const int64_t width = StagedWidth(what), each = width / heads();
  const auto& [batch, beam, time] = rows.extents;
  const int64_t step = time == 1   ? rows.strides[kBeam]
                       : beam == 1 ? rows.strides[kTime]
                                   : std::min(rows.strides[kBeam], rows.strides[kTime]);
  return {.desc = DescOf(desc_->type, {batch, heads(), beam * time, each},
                         {rows.strides[kBatch] * width, each, step * width, 1}),
          .data = data};
}

HeadVectors AttnProblem::Stats(void* data) const {
  const int64_t vectors = queries_.extents[kBeam] * queries_.extents[kTime];
  const int type = desc_->type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  return {.desc = DescOf(type, {queries_.extents[kBatch], heads(), vectors, 1},
                         {heads() * vectors, vectors, 1, 1}),
          .data = data};
}

Status AttnProblem::TakeWindows(AttnCalls& calls, const AttnMemory& memory, const int* lo,
                                const int* hi, void* work, AttendOp& op) const {
  const auto first = static_cast<size_t>(step_.value_or(0));
  const auto count = static_cast<size_t>(queries_.extents[kTime]);
  ASSIGN_OR_RETURN(op.lo, BoundOf(calls, {lo + first, count}, true, At(work, memory.host_lo),
                                  At(work, memory.lo)));
  ASSIGN_OR_RETURN(op.hi, BoundOf(calls, {hi + first, count}, false, At(work, memory.host_hi),
                                  At(work, memory.hi)));
  return {};
}

Result<WindowBound> AttnProblem::BoundOf(AttnCalls& calls, std::span<const int32_t> window,
                                         bool is_low, void* host, void* spread) const {
  WindowBound bound = RuleOf(window, keys(), is_low, RowsAreSteps());
  if (bound.kind != WindowBound::Kind::kPlaces) return bound;
  const int64_t beams = queries_.extents[kBeam];
  bound.places = beams == 1 ? host : spread;
  if (!calls.measures()) RETURN_IF_ERROR(WriteHostValues(calls.handle(), window, host));
  if (beams > 1) {
    RETURN_IF_ERROR(RunSpread(calls, host, spread, queries_.extents[kTime], beams, time_is_inner_));
  }
  return bound;
}

// ---- what else the calls check

Status CheckWork(const AttnMemory& memory, const void* work, size_t bytes) {
  RETURN_IF_ERROR(CheckPlace(work, "the work space"));
  if (bytes >= static_cast<size_t>(memory.work_bytes)) return {};
  return Status::Error(Code::kBadParam, "the work space has {} bytes; at least {} are needed",
                       bytes, memory.work_bytes);
}

Status CheckReserve(const AttnMemory& memory, const void* reserve, size_t bytes) {
  RETURN_IF_ERROR(NotNull(reserve, "the reserve space"));
  if (bytes >= static_cast<size_t>(memory.reserve_bytes)) return {};
  return Status::Error(Code::kBadParam, "the reserve space has {} bytes; {} are needed", bytes,
                       memory.reserve_bytes);
}

Status CheckWeights(const AttnDesc& desc, const void* weights, size_t bytes) {
  ASSIGN_OR_RETURN(const int64_t elements, WeightElements(desc));
  const int64_t needed = elements * ElementBytes(desc.type);
  if (needed == 0) return {};
  RETURN_IF_ERROR(NotNull(weights, "the buffer of weights"));
  if (bytes >= static_cast<size_t>(needed)) return {};
  return Status::Error(Code::kBadParam, "the weights have {} bytes; {} were given", needed, bytes);
}

Result<const DropoutDesc*> DropoutOf(const void* object) {
  const DropoutDesc* none = nullptr;
  if (object == nullptr) return none;
  ASSIGN_OR_RETURN(const DropoutDesc* desc, Get<DropoutDesc>(object));
  if (desc->dropout == 0) return none;
  if (desc->states == nullptr)
    return Status::Text(Code::kBadParam, "the dropout descriptor has no states");
  return desc;
}

}  // namespace kiln::api::legacy
