#include "compiler/engines/recurrence/loop.h"

#include <algorithm>

#include "compiler/kernel/vectors.h"
#include "ir/base/check.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

// Products that an f32 accumulator adds in a row: the sum of 512 in one chain was off by 13 to 16
// roundings of states (LSTM of 512 hidden elements in PyTorch), and what is off feeds the next
// step.
constexpr int64_t kChain = 64;

using graph::kAbsent;
using graph::Node;
using graph::Tensor;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

// Units side by side in a CPU's registers.
int LanesOf(const Target& target, DType accumulator) {
  if (target.is_cuda()) return 1;
  return accumulator == DType::kF64 ? 4 : 8;
}

// i32 where all tensors and states are small enough.
DType IndexTypeOf(const Group& group, const RecurrenceShape& shape) {
  constexpr int64_t kNarrow = int64_t{1} << 30;
  const int64_t states = shape.directions * shape.batch * shape.hidden * 8,
                weights = shape.directions * shape.hidden * (shape.hidden + 16) * 8;
  return states > kNarrow || weights > kNarrow ? DType::kI64 : IndexType(group.graph);
}

}  // namespace

RecurrenceLoop::RecurrenceLoop(const Group& group, const Target& target,
                               const RecurrenceKnobs& knobs, const char* what)
    : group_(group),
      target_(target),
      knobs_(knobs),
      shape_(RecurrenceShapeOf(group)),
      lanes_(LanesOf(target, shape_.accumulator)),
      b_(group, target,
         fmt::format("recurrence: {} of {}, {} sequences a block, {} threads", what,
                     graph::Text(shape_.attrs.cell), knobs.rows, knobs.threads),
         IndexTypeOf(group, shape_)) {
  for (const char* name : {"bx", "tx"}) b_.Name(name);
  steps_ = b_.Arg("steps", shape_.steps);
  hidden_ = b_.Arg("units", shape_.hidden);
  projected_ = shape_.is_projected ? b_.Arg("projected", shape_.projected) : hidden_;
  DescribeRows();
}

void RecurrenceLoop::DescribeRows() {
  const DType t = b_.index_type();
  const Expr block = tile::Var("bx", t), batch = b_.Arg("batch", shape_.batch);
  Expr tile_row = block;
  d_ = Idx(0);
  if (shape_.directions == 2) {
    d_ = b_.Let(head_, "d", block % Idx(2));
    tile_row = block / Idx(2);
  }
  const Expr first = b_.Let(head_, "b0", tile_row * Idx(knobs_.rows));
  const size_t lengths = shape_.is_grad ? size_t{graph::recurrence_grad::kLengths}
                                        : size_t{graph::recurrence::kLengths};
  ValueScope values(b_, head_);
  for (int i = 0; i < knobs_.rows; ++i) {
    Row row;
    const Expr own = b_.Let(head_, "row", first + Idx(i));
    row.exists = tile::Lt(own, batch);
    row.batch = b_.Let(head_, "b", tile::Op(ScalarOp::kMin, {own, batch - Idx(1)}));
    row.state = b_.Let(head_, "state_row", d_ * batch + row.batch);
    row.length = steps_;
    if (const TensorId id = In(lengths); id != kAbsent) {
      const Expr length = tile::Cast(t, values.Value(id, {row.batch}));
      row.length =
          b_.Let(head_, "length",
                 tile::Op(ScalarOp::kMin, {tile::Op(ScalarOp::kMax, {length, Idx(0)}), steps_}));
    }
    rows_.push_back(std::move(row));
  }
}

RecurrenceLoop::Staged RecurrenceLoop::Stage(TensorId tensor, int64_t depth, int64_t groups,
                                             int64_t units, const Place& place) {
  const int64_t padded = AlignUp(units, lanes_);
  Staged staged{.type = target_.is_cuda() ? group_.graph[tensor].dtype : acc(),
                .depth = depth,
                .groups = groups,
                .units = units};
  const int scratch = static_cast<int>(scratch_bytes_.size());
  const int64_t rows = shape_.directions * depth * groups;
  scratch_bytes_.push_back(std::max<int64_t>(rows * padded, 1) * SizeOf(staged.type));

  KernelBuilder b(group_, target_, "recurrence: weights side by side by units", b_.index_type());
  for (const char* name : {"i", "bx", "tx"}) b.Name(name);
  const DType t = b.index_type();
  const std::string to = b.Scratch(scratch, staged.type, false);
  Block body;
  const Expr padded_arg = b.Arg("padded", padded);
  const Index at = b.Unravel(body, tile::Var("i", t),
                             {b.Arg("directions", shape_.directions), b.Arg("depth", depth),
                              b.Arg("groups", groups), padded_arg},
                             {shape_.directions, depth, groups, padded}, "at");
  const Expr units_arg = b.Arg("units", units);
  const Expr unit = b.Let(body, "unit", tile::Op(ScalarOp::kMin, {at[3], units_arg - b.Idx(1)}));
  ValueScope values(b, body);
  const Expr value = values.Value(tensor, place(at[0], at[1], at[2], unit, units_arg));
  body.push_back({tile::Store{to, tile::Var("i", t), tile::Cast(staged.type, value)}});
  const int threads = target_.is_cuda() ? 256 : 1;
  if (target_.is_cuda()) {
    Append(lowered_, LaunchItems(b, std::move(body), rows * padded, threads));
  } else {
    // A block stages some thousands of elements.
    constexpr int64_t kChunk = 4096;
    const int64_t blocks = CeilDiv(rows * padded, kChunk);
    const Expr start = tile::Var("bx", t) * b.Idx(kChunk), own = tile::Var(b.Name("e"), t);
    body.insert(body.begin(), {tile::Let{"i", start + own}});
    const Expr count =
        tile::Op(ScalarOp::kMin, {b.Arg("count", rows * padded) - start, b.Idx(kChunk)});
    Block chunk, all;
    chunk.push_back({tile::For{own->name, t, count, Bind::kSerial, std::move(body)}});
    all.push_back({tile::For{"bx", t, b.Arg("blocks", blocks), Bind::kBlockX, std::move(chunk)}});
    b.Finish(std::move(all), {blocks, 1, 1}, 1, lowered_);
  }
  staged.pointer = b_.Scratch(scratch, staged.type, true);
  staged.depth_arg = b_.Arg("depth", depth);
  staged.padded_arg = b_.Arg("padded", padded);
  staged.units_arg = b_.Arg("outputs", units);
  return staged;
}

std::string RecurrenceLoop::State(int64_t width, int64_t copies) {
  const int scratch = static_cast<int>(scratch_bytes_.size());
  const int64_t values = shape_.directions * shape_.batch * width * copies;
  scratch_bytes_.push_back(std::max<int64_t>(values, 1) * SizeOf(acc()));
  return b_.Scratch(scratch, acc(), false);
}

TensorId RecurrenceLoop::In(size_t i) const {
  return i < shape_.node->inputs.size() ? shape_.node->inputs[i] : kAbsent;
}
TensorId RecurrenceLoop::Out(size_t i) const {
  return i < shape_.node->outputs.size() ? shape_.node->outputs[i] : kAbsent;
}
bool RecurrenceLoop::IsWritten(TensorId tensor) const {
  return tensor != kAbsent && !group_.graph[tensor].is_virtual;
}

Expr RecurrenceLoop::Read(Block& out, TensorId tensor, const Index& index) {
  ValueScope values(b_, out);
  return tile::Cast(acc(), values.Value(tensor, index));
}

void RecurrenceLoop::Write(Block& out, TensorId tensor, const Index& index, Expr value) {
  if (!IsWritten(tensor)) return;
  out.push_back({tile::Store{b_.Pointer(tensor), b_.Offset(tensor, index),
                             tile::Cast(group_.graph[tensor].dtype, std::move(value))}});
}

void RecurrenceLoop::Barrier(Block& out) const {
  if (knobs_.threads > 1) out.push_back({tile::Barrier{}});
}

RecurrenceLoop::Moment RecurrenceLoop::At(Block& out, const Row& row, const Expr& step) {
  const Expr inside = b_.Let(out, "inside", tile::Lt(step, row.length));
  if (shape_.directions == 1) return {step, inside};
  const Expr turned = tile::And(inside, tile::Op(ScalarOp::kEq, {d_, Idx(1)}));
  return {b_.Let(out, "time", tile::Select(turned, row.length - Idx(1) - step, step)), inside};
}

Expr RecurrenceLoop::Sigmoid(Expr x) const {
  const Expr power = tile::Op(ScalarOp::kExp, {tile::Op(ScalarOp::kNeg, {std::move(x)})});
  return Real(1) / (Real(1) + power);
}

Expr RecurrenceLoop::Use(const Expr& c) const {
  const graph::RecurrenceAttrs& a = shape_.attrs;
  if (!a.clip) return c;
  const ScalarOp most = a.clip_propagates_nan ? ScalarOp::kMaxNan : ScalarOp::kMax,
                 least = a.clip_propagates_nan ? ScalarOp::kMinNan : ScalarOp::kMin;
  return tile::Op(least, {tile::Op(most, {c, Real(a.clip_lower)}), Real(a.clip_upper)});
}

Expr RecurrenceLoop::UseSlope(const Expr& c) const {
  const graph::RecurrenceAttrs& a = shape_.attrs;
  if (!a.clip) return Real(1);
  const Expr inside = tile::And(tile::Op(ScalarOp::kGe, {c, Real(a.clip_lower)}),
                                tile::Op(ScalarOp::kLe, {c, Real(a.clip_upper)}));
  return tile::Select(inside, Real(1), Real(0));
}

void RecurrenceLoop::Product(Block& out, const Staged& matrix, const std::string& state,
                             const std::function<Expr(const Row&)>& base, const Expr& first,
                             const std::string& sums) {
  const DType t = b_.index_type();
  const int64_t groups = matrix.groups, count = knobs_.rows * groups * lanes_;
  // Each of the accumulators, f(place) its new value.
  const auto each = [&](Block& block, const std::string& to, const auto& f) {
    const std::string place = b_.Name("z");
    const Expr z = tile::Var(place, t);
    block.push_back({tile::For{place,
                               t,
                               Idx(count),
                               lanes_ > 1 ? Bind::kVector : Bind::kUnroll,
                               {{tile::Store{to, z, f(z)}}}}});
  };
  const auto zero = [&](const Expr&) { return Real(0); };
  out.push_back({tile::Alloc{sums, acc(), tile::Space::kReg, count}});
  each(out, sums, zero);
  if (acc() != DType::kF32 || matrix.depth < 2 * kChain)
    return AddProducts(out, matrix, state, base, first, sums, {}, matrix.depth_arg);
  const std::string parts = b_.Name("parts"), part = b_.Name("part");
  Block chain;
  chain.push_back({tile::Alloc{parts, acc(), tile::Space::kReg, count}});
  each(chain, parts, zero);
  const Expr from = b_.Let(chain, "from_k", tile::Var(part, t) * Idx(kChain));
  AddProducts(chain, matrix, state, base, first, parts, from,
              tile::Op(ScalarOp::kMin, {matrix.depth_arg - from, Idx(kChain)}));
  each(chain, sums, [&](const Expr& z) { return Load(sums, z) + Load(parts, z); });
  const Expr chains = b_.Arg("chains", CeilDiv(matrix.depth, kChain));
  out.push_back({tile::For{part, t, chains, Bind::kSerial, std::move(chain)}});
}

// Adds the products of `count` places of k, `from` the first of them.
void RecurrenceLoop::AddProducts(Block& out, const Staged& matrix, const std::string& state,
                                 const std::function<Expr(const Row&)>& base, const Expr& first,
                                 const std::string& sums, const Expr& from_k, const Expr& count) {
  const DType t = b_.index_type();
  const int64_t groups = matrix.groups;
  const std::string deep = b_.Name("k");
  std::vector<Expr> bases;
  for (const Row& row : rows_) bases.push_back(b_.Let(out, "base", base(row)));
  Block loop;
  const Expr k =
      from_k ? b_.Let(loop, "at_k", from_k + tile::Var(deep, t)) : Expr(tile::Var(deep, t));
  std::vector<Expr> states;
  for (const Expr& at : bases) states.push_back(b_.Let(loop, "h", Load(state, at + k)));
  const Expr row_of_k =
      b_.Let(loop, "staged", (d_ * matrix.depth_arg + k) * Idx(groups) * matrix.padded_arg + first);
  for (int64_t group = 0; group < groups; ++group) {
    const Expr from = b_.Let(loop, "w_at", row_of_k + Idx(group) * matrix.padded_arg);
    const std::string lane = b_.Name("l");
    const Expr l = tile::Var(lane, t);
    Block lanes;
    const Expr w =
        b_.Let(lanes, "w", tile::Cast(acc(), tile::Load(matrix.pointer, matrix.type, from + l)));
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Expr slot = Idx((static_cast<int64_t>(i) * groups + group) * lanes_) + l;
      lanes.push_back(
          {tile::Store{sums, slot, tile::Op(ScalarOp::kFma, {w, states[i], Load(sums, slot)})}});
    }
    loop.push_back({tile::For{lane, t, Idx(lanes_), Bind::kVector, std::move(lanes)}});
  }
  out.push_back({tile::For{deep, t, count, Bind::kSerial, std::move(loop)}});
}

void RecurrenceLoop::Units(Block& out, int64_t units, const Expr& units_arg, const Staged* matrix,
                           const std::string& state, const std::function<Expr(const Row&)>& base,
                           const Visit& visit) {
  const DType t = b_.index_type();
  const int64_t per_pass = int64_t{knobs_.threads} * lanes_;
  const std::string chunk = b_.Name("chunk");
  Block body;
  Expr place = tile::Var(chunk, t);
  if (knobs_.threads > 1) place = place * Idx(knobs_.threads) + tile::Var("tx", t);
  const Expr first = b_.Let(body, "unit0", place * Idx(lanes_));
  Block inside;
  const std::string sums = b_.Name("sums");
  if (matrix != nullptr) Product(inside, *matrix, state, base, first, sums);
  const int64_t groups = matrix != nullptr ? matrix->groups : 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const std::string lane = b_.Name("lane");
    const Expr l = tile::Var(lane, t);
    Block one;
    Lane at{.unit = b_.Let(one, "j", first + l), .sums = {}};
    for (int64_t group = 0; group < groups; ++group)
      at.sums.push_back(Load(sums, Idx((static_cast<int64_t>(i) * groups + group) * lanes_) + l));
    visit(one, rows_[i], at);
    const Expr count =
        lanes_ == 1 ? Idx(1) : tile::Op(ScalarOp::kMin, {units_arg - first, Idx(lanes_)});
    Block exists;
    exists.push_back(
        {tile::For{lane, t, count, lanes_ == 1 ? Bind::kUnroll : Bind::kVector, std::move(one)}});
    inside.push_back({tile::If{rows_[i].exists, std::move(exists), {}}});
  }
  body.push_back({tile::If{tile::Lt(first, units_arg), std::move(inside), {}}});
  const Expr passes = b_.Arg("chunks", CeilDiv(units, per_pass));
  out.push_back({tile::For{chunk, t, passes, Bind::kSerial, std::move(body)}});
}

Lowered RecurrenceLoop::Finish(Block body) {
  const DType t = b_.index_type();
  const int64_t blocks = CeilDiv(shape_.batch, knobs_.rows) * shape_.directions;
  Block inside = std::move(head_);
  std::ranges::move(body, std::back_inserter(inside));
  const Expr count = b_.Arg("blocks", blocks);
  if (knobs_.threads > 1) {
    inside = BlockAndThread(t, count, knobs_.threads, std::move(inside));
  } else {
    Block all;
    all.push_back({tile::For{"bx", t, count, Bind::kBlockX, std::move(inside)}});
    inside = std::move(all);
  }
  b_.Finish(std::move(inside), {blocks, 1, 1}, knobs_.threads, lowered_);
  lowered_.scratch_bytes = std::move(scratch_bytes_);
  return std::move(lowered_);
}

}  // namespace kiln::compiler
