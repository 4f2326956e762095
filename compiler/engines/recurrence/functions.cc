#include "compiler/engines/recurrence/functions.h"

#include <algorithm>
#include <optional>

#include "compiler/kernel/recurrence_members.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/kernel/vectors.h"
#include "compiler/patterns/memory_view.h"

namespace kiln::compiler {

namespace fwd = graph::recurrence;
namespace bwd = graph::recurrence_grad;

using graph::kAbsent;
using graph::RnnCell;
using graph::TensorId;
using tile::Block;
using tile::Call;
using tile::Expr;

namespace {

Expr Min(Expr a, Expr b) { return tile::Op(ScalarOp::kMin, {std::move(a), std::move(b)}); }
Expr Max(Expr a, Expr b) { return tile::Op(ScalarOp::kMax, {std::move(a), std::move(b)}); }

// The place of a matrix that is seen through views, by strides.
std::optional<MemoryPlace> PlaceOfMatrix(const graph::Graph& g, TensorId id) {
  const graph::NodeId from = graph::Producers(g)[static_cast<size_t>(id)];
  if (from < 0) return MemoryPlace{.memory = id, .strides = g[id].strides};
  const graph::Node& node = g.nodes[static_cast<size_t>(from)];
  if (node.inputs.empty()) return std::nullopt;
  const std::optional<MemoryPlace> x = PlaceOfMatrix(g, node.inputs[0]);
  return x ? PlaceOfView(g, node, *x) : std::nullopt;
}

// True if pieces of 16 bytes of its rows, or columns, are aligned.
bool IsWide(const graph::Graph& g, const MemoryPlace& at, const graph::Tensor& matrix, size_t along,
            int lanes) {
  const graph::Tensor& memory = g[at.memory];
  return memory.dtype == matrix.dtype && memory.alignment % 16 == 0 && at.strides[along] == 1 &&
         at.offset % lanes == 0 && at.strides[3 - along] % lanes == 0 &&
         matrix.dims[along] % lanes == 0 && (matrix.dims[0] == 1 || at.strides[0] % lanes == 0);
}

}  // namespace

DType RecurrenceValueType(const graph::Graph& graph, const RecurrenceShape& shape) {
  if (shape.is_grad) return shape.type;
  return graph[shape.node->inputs[fwd::kXg]].dtype == shape.type ? shape.type : DType::kF32;
}

void RecurrenceFunctions::Add(Call& call) {
  hidden_ = b_.Arg("hidden", shape_.hidden);
  steps_ = b_.Arg("most_steps", shape_.steps);
  const bool is_lstm = shape_.attrs.cell == RnnCell::kLstm;
  const bool of_gates = shape_.is_grad && !shape_.is_projected;
  AddLength(call);
  const auto matrix = [&] {
    if (shape_.is_grad && shape_.is_projected)
      return Matrix{In(bwd::kProjection), true, shape_.projected, hidden_};
    return Matrix{In(fwd::kR), of_gates,
                  of_gates ? shape_.blocks.gates * shape_.hidden : shape_.projected, hidden_};
  };
  const bool is_turned = of_gates && IsTurned(matrix);
  call.config.push_back({recurrence::kTurned, is_turned ? 1 : 0});
  AddWeight(call, "weight", matrix, is_turned);
  AddStates(call, {"before", "after", {!shape_.is_projected, is_lstm}, is_lstm ? 2 : 1});
  AddFixed(call);
  AddRead(call);
  AddStore(call);
  // The skeleton takes them in this order.
  std::rotate(call.functions.begin() + 3, call.functions.begin() + 4, call.functions.end());
  if (shape_.is_projected) AddProjection(call);
  if (stack_ != nullptr) AddLinks(call);
}

// Units of the projection have the states h, and multiply h forward, gradients of gates backward.
void RecurrenceFunctions::AddProjection(Call& call) {
  static_assert(size_t{fwd::kR} == size_t{bwd::kR});
  const auto first = static_cast<std::ptrdiff_t>(call.functions.size());
  if (shape_.is_grad)
    AddWeight(call, "project", [&] {
      return Matrix{In(bwd::kR), true, shape_.blocks.gates * shape_.hidden, hidden_};
    });
  else
    AddWeight(call, "project",
              [&] { return Matrix{In(fwd::kProjection), false, shape_.hidden, hidden_}; });
  AddStates(call, {"project_before", "project_after", {true, false}, 1});
  const Expr width = b_.Arg("projected", shape_.projected);
  const auto place = [&](const Spot& at, const Expr& time) {
    return Index{time, at.batch, at.d * width + at.unit};
  };
  const auto add = [&](const char* name, bool with_step, const auto& body) {
    Function f{.name = name, .params = {}, .body = {}};
    const Spot at = AddSpot(f);
    const Expr time = AddScalar(b_, f, "time", b_.index_type());
    if (with_step) AddScalar(b_, f, "step", b_.index_type());
    body(f, at, time);
    call.functions.push_back(std::move(f));
  };
  const DType type = RecurrenceValueType(b_.graph(), shape_);
  add("project_read", true, [&](Function& f, const Spot& at, const Expr& time) {
    const std::string values = AddArray(b_, f, "values", type, 1, true);
    if (shape_.is_grad)
      Keep(f.body, values, 0, In(bwd::kDy), place(at, time));
    else
      f.body.push_back({tile::Store{values, b_.Idx(0), tile::Cast(type, tile::Float(0))}});
  });
  add("project_store", false, [&](Function& f, const Spot& at, const Expr& time) {
    const Expr result =
        tile::Load(AddArray(b_, f, "results", DType::kF32, 1), DType::kF32, b_.Idx(0));
    if (shape_.is_grad)
      Write(f.body, Out(bwd::kDprojected), {time, at.batch, at.d, at.unit}, result);
    else
      Write(f.body, Out(fwd::kY), place(at, time), result);
  });
  // The skeleton takes before, read, store and after in this order.
  std::rotate(call.functions.begin() + first + 2, call.functions.begin() + first + 3,
              call.functions.end());
}

TensorId RecurrenceFunctions::In(size_t i) const {
  return i < node_->inputs.size() ? node_->inputs[i] : kAbsent;
}
TensorId RecurrenceFunctions::Out(size_t i) const {
  return i < node_->outputs.size() ? node_->outputs[i] : kAbsent;
}
bool RecurrenceFunctions::IsWritten(TensorId id) const {
  return id != kAbsent && !b_.graph()[id].is_virtual;
}
Expr RecurrenceFunctions::Read(Block& out, TensorId id, const Index& index) {
  ValueScope values(b_, out);
  return tile::Cast(DType::kF32, values.Value(id, index));
}
void RecurrenceFunctions::Write(Block& out, TensorId id, const Index& index, Expr value) {
  if (!IsWritten(id)) return;
  out.push_back({tile::Store{b_.Pointer(id), b_.Offset(id, index),
                             tile::Cast(b_.graph()[id].dtype, std::move(value))}});
}
Expr RecurrenceFunctions::Blocked(int64_t block, const Expr& unit) {
  return Idx(block) * hidden_ + unit;
}

RecurrenceFunctions::Spot RecurrenceFunctions::AddSpot(Function& f) const {
  const DType t = b_.index_type();
  const Expr d = AddScalar(b_, f, "d", t), batch = AddScalar(b_, f, "batch", t),
             unit = AddScalar(b_, f, "unit", t);
  const bool is_one = shape_.directions == 1 || stack_ != nullptr;
  return {.d = is_one ? Idx(0) : d, .batch = batch, .unit = unit, .stage = d};
}

void RecurrenceFunctions::AddLength(Call& call) {
  Function f{.name = "length", .params = {}, .body = {}};
  const DType t = b_.index_type();
  const Expr batch = AddScalar(b_, f, "batch", t);
  const std::string result = AddArray(b_, f, "result", DType::kI32, 1, true);
  const TensorId lengths = In(shape_.is_grad ? size_t{bwd::kLengths} : size_t{fwd::kLengths});
  Expr length = steps_;
  if (lengths != kAbsent) {
    ValueScope values(b_, f.body);
    length = Min(Max(tile::Cast(t, values.Value(lengths, {batch})), Idx(0)), steps_);
  }
  f.body.push_back({tile::Store{result, b_.Idx(0), tile::Cast(DType::kI32, length)}});
  call.functions.push_back(std::move(f));
}

void RecurrenceFunctions::OfStages(Block& out, const Expr& stage,
                                   const std::function<void(Block&)>& body, size_t first) {
  if (stack_ == nullptr) return body(out);
  const size_t stages = stack_->stages.size();
  Block chain;
  for (size_t s = stages; s-- > first;) {
    stage_ = s;
    node_ = &b_.graph().nodes[static_cast<size_t>(stack_->stages[s])];
    Block own;
    body(own);
    if (s + 1 == stages) {
      chain = std::move(own);
      continue;
    }
    Block both;
    both.push_back({tile::If{tile::Op(ScalarOp::kEq, {stage, Idx(static_cast<int64_t>(s))}),
                             std::move(own), std::move(chain)}});
    chain = std::move(both);
  }
  std::ranges::move(chain, std::back_inserter(out));
}

const RecurrenceStack::Link* RecurrenceFunctions::LinkBelow() const {
  return stack_ == nullptr || stage_ == 0 ? nullptr : &stack_->links[stage_ - 1];
}

// The matrix, biases and scales between stages.
void RecurrenceFunctions::AddLinks(Call& call) {
  const DType t = b_.index_type();
  Function below{.name = "below", .params = {}, .body = {}};
  const Expr before = AddScalar(b_, below, "d", t), row = AddScalar(b_, below, "unit", t),
             gate = AddScalar(b_, below, "gate", t), depth = AddScalar(b_, below, "depth", t);
  const std::string piece =
      AddArray(b_, below, "values", shape_.type, 16 / SizeOf(shape_.type), true);
  const Expr stage = b_.Let(below.body, "stage", before + Idx(1));
  const int64_t sent = (shape_.is_grad ? shape_.blocks.gates : 1) * shape_.hidden;
  OfStages(
      below.body, stage,
      [&](Block& out) {
        ReadWeight(out, "below", {LinkBelow()->matrix, true, sent, hidden_}, Idx(0), row, gate,
                   depth, piece);
      },
      1);
  call.functions.push_back(std::move(below));

  Function fixed{.name = "below_fixed", .params = {}, .body = {}};
  const Expr reader = AddScalar(b_, fixed, "d", t), unit = AddScalar(b_, fixed, "unit", t);
  const std::string values = AddArray(b_, fixed, "values", DType::kF32, shape_.blocks.gates, true);
  OfStages(
      fixed.body, reader,
      [&](Block& out) {
        for (int64_t i = 0; i < shape_.blocks.gates; ++i) {
          const TensorId bias = LinkBelow()->bias;
          const Expr value = bias == kAbsent ? tile::Float(0)
                                             : Read(out, bias, {Idx(0), Idx(0), Blocked(i, unit)});
          out.push_back({tile::Store{values, b_.Idx(i), value}});
        }
      },
      1);
  call.functions.push_back(std::move(fixed));

  Function scale{.name = "scale", .params = {}, .body = {}};
  const Spot at = AddSpot(scale);
  const Expr time = AddScalar(b_, scale, "time", t), batch = b_.Arg("batch", shape_.batch);
  const std::string value = AddArray(b_, scale, "value", DType::kF32, 1, true);
  OfStages(scale.body, at.stage, [&](Block& out) {
    const size_t link = shape_.is_grad ? stage_ - 1 : stage_;
    const bool is_linked = link < stack_->links.size();
    const TensorId by = is_linked ? stack_->links[link].scale : kAbsent;
    Expr factor = tile::Float(1);
    if (by != kAbsent) {
      const bool has_steps = b_.graph()[by].dims[0] == shape_.steps;
      factor = Read(out, by,
                    has_steps ? Index{time, at.batch, at.unit}
                              : Index{Idx(0), time * batch + at.batch, at.unit});
    }
    out.push_back({tile::Store{value, b_.Idx(0), factor}});
  });
  call.functions.push_back(std::move(scale));
}

// True if memory has two units of the transposed matrix of 16 bits side by side, at every stage.
bool RecurrenceFunctions::IsTurned(const std::function<Matrix()>& matrix) {
  bool is_turned = SizeOf(shape_.type) == 2;
  Block none;
  OfStages(none, Idx(0), [&](Block&) {
    const Matrix m = matrix();
    const graph::Tensor& r = b_.graph()[m.id];
    const std::optional<MemoryPlace> place = PlaceOfMatrix(b_.graph(), m.id);
    is_turned = is_turned && m.is_transposed && place && IsWide(b_.graph(), *place, r, 2, 2);
  });
  return is_turned;
}

// 16 bytes of a row or of a column; `is_turned`: of two neighbouring units at one depth.
void RecurrenceFunctions::AddWeight(Call& call, const char* name,
                                    const std::function<Matrix()>& matrix, bool is_turned) {
  Function f{.name = name, .params = {}, .body = {}};
  const DType t = b_.index_type();
  const Expr d = AddScalar(b_, f, "d", t), unit = AddScalar(b_, f, "unit", t),
             gate = AddScalar(b_, f, "gate", t), depth = AddScalar(b_, f, "depth", t);
  const int count = is_turned ? 2 : 16 / static_cast<int>(SizeOf(shape_.type));
  const std::string values = AddArray(b_, f, "values", shape_.type, count, true);
  const bool is_one = shape_.directions == 1 || stack_ != nullptr;
  OfStages(f.body, d, [&](Block& out) {
    const Expr of = is_one ? Idx(0) : d;
    if (is_turned)
      ReadTurned(out, name, matrix(), of, unit, depth, values);
    else
      ReadWeight(out, name, matrix(), of, unit, gate, depth, values);
  });
  call.functions.push_back(std::move(f));
}

void RecurrenceFunctions::ReadTurned(Block& out, const char* name, const Matrix& matrix,
                                     const Expr& d, const Expr& unit, const Expr& depth,
                                     const std::string& values) {
  const MemoryPlace place = *PlaceOfMatrix(b_.graph(), matrix.id);
  const Expr offset = d * Idx(place.strides[0]) +
                      depth * b_.Arg(fmt::format("{}_row_elements", name), place.strides[1]) +
                      unit + b_.Arg(fmt::format("{}_matrix", name), place.offset);
  WideCopy(out, shape_.type, values, b_.Idx(0), b_.Pointer(place.memory), offset, 2);
}

void RecurrenceFunctions::ReadWeight(Block& out, const char* name, const Matrix& matrix,
                                     const Expr& d, const Expr& unit, const Expr& gate,
                                     const Expr& depth, const std::string& values) {
  const graph::Graph& g = b_.graph();
  const TensorId r = matrix.id;
  const int lanes = 16 / SizeOf(shape_.type);
  const std::optional<MemoryPlace> place = PlaceOfMatrix(g, r);
  const size_t along = matrix.is_transposed ? 1 : 2;
  const bool is_wide = place && IsWide(g, *place, g[r], along, lanes);
  const Expr end = b_.Arg(fmt::format("{}_depth_end", name), matrix.depth);
  const Expr row = gate * matrix.between_gates + unit;
  const auto at = [&](const Expr& k) {
    return matrix.is_transposed ? Index{d, k, row} : Index{d, row, k};
  };
  if (is_wide) {
    const Expr offset =
        d * Idx(place->strides[0]) +
        row * b_.Arg(fmt::format("{}_row_elements", name), place->strides[3 - along]) + depth +
        b_.Arg(fmt::format("{}_matrix", name), place->offset);
    WideCopy(out, shape_.type, values, b_.Idx(0), b_.Pointer(place->memory), offset, lanes);
  } else {
    for (int i = 0; i < lanes; ++i) {
      // Loads behind branches would come one after the other.
      const Expr k = b_.Let(out, "k", depth + Idx(i));
      ValueScope scope(b_, out);
      const Expr value = tile::Cast(shape_.type, scope.Value(r, at(Min(k, end - Idx(1)))));
      Block none;
      none.push_back({tile::Store{values, b_.Idx(i), tile::Cast(shape_.type, tile::Float(0))}});
      out.push_back({tile::Store{values, b_.Idx(i), value}});
      out.push_back({tile::If{tile::Ge(k, end), std::move(none), {}}});
    }
  }
}

// before and after: of h and c, of dh and dc.
void RecurrenceFunctions::AddStates(Call& call, const States& states) {
  static constexpr size_t kFirst[2][2] = {{fwd::kHx, fwd::kCx}, {bwd::kDhy, bwd::kDcy}},
                          kLast[2][2] = {{fwd::kHy, fwd::kCy}, {bwd::kDhx, bwd::kDcx}};
  Function before{.name = states.before, .params = {}, .body = {}},
      after{.name = states.after, .params = {}, .body = {}};
  const Spot from = AddSpot(before), to = AddSpot(after);
  const std::string set = AddArray(b_, before, "states", DType::kF32, states.count, true),
                    got = AddArray(b_, after, "states", DType::kF32, states.count);
  const size_t is_grad = shape_.is_grad ? 1 : 0;
  for (int i = 0; i < states.count; ++i) {
    OfStages(before.body, from.stage, [&](Block& out) {
      const TensorId id = In(kFirst[is_grad][i]);
      Expr value = tile::Float(0);
      if (states.has[i] && id != kAbsent) value = Read(out, id, {from.d, from.batch, from.unit});
      out.push_back({tile::Store{set, b_.Idx(i), value}});
    });
    if (states.has[i])
      OfStages(after.body, to.stage, [&](Block& out) {
        Write(out, Out(kLast[is_grad][i]), {to.d, to.batch, to.unit},
              tile::Load(got, DType::kF32, b_.Idx(i)));
      });
  }
  call.functions.push_back(std::move(before));
  call.functions.push_back(std::move(after));
}

void RecurrenceFunctions::AddFixed(Call& call) {
  Function f{.name = "fixed", .params = {}, .body = {}};
  const Expr stage = AddScalar(b_, f, "d", b_.index_type());
  const Expr d = shape_.directions == 1 || stack_ != nullptr ? Idx(0) : stage;
  const Expr unit = AddScalar(b_, f, "unit", b_.index_type());
  const std::string values = AddArray(b_, f, "values", DType::kF32, shape_.blocks.gates, true);
  OfStages(f.body, stage, [&](Block& out) {
    const TensorId bias = shape_.is_grad ? kAbsent : In(fwd::kBias);
    for (int64_t gate = 0; gate < shape_.blocks.gates; ++gate) {
      Expr value = tile::Float(0);
      if (bias != kAbsent) value = Read(out, bias, {d, Blocked(gate, unit)});
      out.push_back({tile::Store{values, b_.Idx(gate), value}});
    }
  });
  call.functions.push_back(std::move(f));
}

void RecurrenceFunctions::AddRead(Call& call) {
  Function f{.name = "read", .params = {}, .body = {}};
  const Spot at = AddSpot(f);
  const DType t = b_.index_type();
  const Expr time = AddScalar(b_, f, "time", t), step = AddScalar(b_, f, "step", t);
  const int64_t more = shape_.attrs.cell == RnnCell::kLstm  ? 2
                       : shape_.attrs.cell == RnnCell::kGru ? 1
                                                            : 0;
  const int64_t count = shape_.is_grad ? 1 + shape_.blocks.kept + more : shape_.blocks.gates;
  const std::string values =
      AddArray(b_, f, "values", RecurrenceValueType(b_.graph(), shape_), count, true);
  OfStages(f.body, at.stage, [&](Block& out) {
    if (shape_.is_grad)
      ReadGradient(out, at, time, step, values);
    else
      ReadForward(out, at, time, values);
  });
  call.functions.push_back(std::move(f));
}

void RecurrenceFunctions::Keep(Block& out, const std::string& values, int64_t slot, TensorId id,
                               const Index& index) {
  ValueScope scope(b_, out);
  out.push_back(
      {tile::Store{values, b_.Idx(slot),
                   tile::Cast(RecurrenceValueType(b_.graph(), shape_), scope.Value(id, index))}});
}

void RecurrenceFunctions::ReadForward(Block& out, const Spot& at, const Expr& time,
                                      const std::string& values) {
  const DType type = RecurrenceValueType(b_.graph(), shape_);
  for (int64_t gate = 0; gate < shape_.blocks.gates; ++gate) {
    if (LinkBelow() != nullptr)  // it comes from the stage below
      out.push_back({tile::Store{values, b_.Idx(gate), tile::Cast(type, tile::Float(0))}});
    else
      Keep(out, values, gate, In(fwd::kXg), {time, at.batch, at.d, Blocked(gate, at.unit)});
  }
}

void RecurrenceFunctions::ReadGradient(Block& out, const Spot& at, const Expr& time,
                                       const Expr& step, const std::string& values) {
  int64_t slot = 0;
  // Gradients from behind come through the projection, or from the stage below.
  if (shape_.is_projected || LinkBelow() != nullptr)
    out.push_back({tile::Store{values, b_.Idx(slot++), tile::Cast(shape_.type, tile::Float(0))}});
  else
    Keep(out, values, slot++, In(bwd::kDy), {time, at.batch, at.d * hidden_ + at.unit});
  for (int64_t block = 0; block < shape_.blocks.kept; ++block)
    Keep(out, values, slot++, In(bwd::kGates), {time, at.batch, at.d, Blocked(block, at.unit)});
  if (shape_.attrs.cell == RnnCell::kLstm)
    Keep(out, values, slot++, In(bwd::kCells), {time, at.batch, at.d, at.unit});
  if (shape_.attrs.cell == RnnCell::kLstm || shape_.attrs.cell == RnnCell::kGru)
    ReadBefore(out, at, time, step, values, slot);
}

// The c of an LSTM or the h of a GRU at the step before, or the initial one.
void RecurrenceFunctions::ReadBefore(Block& out, const Spot& at, const Expr& time, const Expr& step,
                                     const std::string& values, int64_t slot) {
  const bool is_lstm = shape_.attrs.cell == RnnCell::kLstm;
  Expr before = time - Idx(1);
  if (shape_.directions == 2 && stack_ == nullptr)
    before = tile::Select(tile::Op(ScalarOp::kEq, {at.d, Idx(1)}), time + Idx(1), before);
  before = b_.Let(out, "time_before", before);
  Block kept, first;
  if (is_lstm)
    Keep(kept, values, slot, In(bwd::kCells), {before, at.batch, at.d, at.unit});
  else
    Keep(kept, values, slot, In(bwd::kY), {before, at.batch, at.d * hidden_ + at.unit});
  const TensorId initial = In(is_lstm ? size_t{bwd::kCx} : size_t{bwd::kHx});
  if (initial != kAbsent)
    Keep(first, values, slot, initial, {at.d, at.batch, at.unit});
  else
    first.push_back(
        {tile::Store{values, b_.Idx(slot),
                     tile::Cast(RecurrenceValueType(b_.graph(), shape_), tile::Float(0))}});
  out.push_back({tile::If{tile::Lt(Idx(0), step), std::move(kept), std::move(first)}});
}

void RecurrenceFunctions::AddStore(Call& call) {
  Function f{.name = "store", .params = {}, .body = {}};
  const Spot at = AddSpot(f);
  const Expr time = AddScalar(b_, f, "time", b_.index_type());
  const bool is_lstm = shape_.attrs.cell == RnnCell::kLstm;
  const int64_t kept = shape_.blocks.kept,
                count = shape_.is_grad ? shape_.blocks.gradients : 1 + kept + (is_lstm ? 1 : 0);
  const std::string results = AddArray(b_, f, "results", DType::kF32, count);
  const auto result = [&](int64_t i) { return tile::Load(results, DType::kF32, b_.Idx(i)); };
  const auto block = [&](int64_t i) { return Index{time, at.batch, at.d, Blocked(i, at.unit)}; };
  OfStages(f.body, at.stage, [&](Block& out) {
    if (shape_.is_grad) {
      for (int64_t i = 0; i < count; ++i) Write(out, Out(bwd::kDgates), block(i), result(i));
      return;
    }
    if (!shape_.is_projected)
      Write(out, Out(fwd::kY), {time, at.batch, at.d * hidden_ + at.unit}, result(0));
    for (int64_t i = 0; i < kept; ++i) Write(out, Out(fwd::kGates), block(i), result(1 + i));
    if (is_lstm) Write(out, Out(fwd::kCells), block(0), result(1 + kept));
    Write(out, Out(fwd::kHidden), block(0), result(0));
  });
  call.functions.push_back(std::move(f));
}

}  // namespace kiln::compiler
