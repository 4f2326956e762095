// One recurrent layer's loop over time, both directions side by side, and its gradient.
//
//   recurrence       xg [T,B,D,G*H], r [D,G*H,P], [bias] [D,G*H], [hx] [D,B,P], [cx] [D,B,H],
//                    [projection] [D,P,H], [lengths] i32 [B]
//                      -> y [T,B,D*P], [hy] [D,B,P], [cy] [D,B,H], [gates] [T,B,D,kept*H],
//                         [cells] [T,B,D,H], [hidden] [T,B,D,H]
//   recurrence_grad  dy, r, gates, y, [cells], [hx], [cx], [dhy], [dcy], [projection], [lengths]
//                      -> dgates [T,B,D,gradients*H], [dhx], [dcx], [dprojected] [T,B,D,P]
//
// D is 1 or 2; direction 1 runs from the end of each sequence to its beginning. With a = R h +
// bias, by blocks of H, and x the same block of xg:
//
//   relu, tanh  h = act(x + a)                                             kept: h
//   lstm        i, f, o = sigmoid(x + a), g = tanh(x + a), blocks i f g o  kept: i f g o
//               c = f use(c) + i g, h = o tanh(use(c)); use: the clip of the attributes
//   gru         r, z = sigmoid(x + a), n = tanh(x + r a), blocks r z n     kept: r z n, a of n
//               h = (1 - z) n + z h
//
// With a projection h is rounded, kept as `hidden`, and projection h takes its place. States round
// to y's type each step; cells do not. Behind the end of a sequence y and what is kept are 0; hy,
// cy, dhx and dcx of one without steps are 0, too.
//
// dgates are the gradients of x, and for a GRU, as a fourth block, that of n's a; they are rounded
// before they go on to the step before. dprojected is the gradient of what was projected, rounded,
// too. Both are 0 behind the end of a sequence.
#include <algorithm>
#include <cmath>

#include "ir/graph/ops.h"
#include "ir/graph/rnn.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

namespace fwd = recurrence;
namespace bwd = recurrence_grad;

// ---- verify ----

struct Extents {
  int64_t steps, batch, directions, hidden, projected;
};

struct Expected {
  size_t index;
  const char* name;
  Dims dims;
};

Status CheckTensors(const Graph& graph, const Node& node, bool outputs,
                    std::span<const Expected> rows) {
  for (const Expected& row : rows) {
    const Tensor* t = outputs ? OutputOf(graph, node, row.index) : InputOf(graph, node, row.index);
    if (t == nullptr) continue;
    if (!IsFloat(t->dtype) || SizeOf(t->dtype) < 2)
      return Status::Error(Code::kUnsupportedDataType, "{} %{} is {}, none of f64, f32, f16, bf16",
                           row.name, t->name, Info(t->dtype).text);
    RETURN_IF_ERROR(ExpectDims(*t, row.dims, row.name));
  }
  return {};
}

Status CheckLengths(const Tensor* lengths, int64_t batch) {
  if (lengths == nullptr) return {};
  if (lengths->dtype != DType::kI32)
    return Status::Error(Code::kUnsupportedDataType, "lengths %{} are {}, not i32", lengths->name,
                         Info(lengths->dtype).text);
  return ExpectDims(*lengths, {batch}, "the number of sequences");
}

Status CheckComputeType(const Node& node) {
  if (node.compute == DType::kF32 || node.compute == DType::kF64) return {};
  return Status::Error(Code::kUnsupportedDataType, "compute type {} is none of f32, f64",
                       Info(node.compute).text);
}

// `blocked` is xg or gates, whose last dim has `blocks` blocks of H.
Result<Extents> ExtentsOf(const RecurrenceAttrs& a, const Tensor* blocked, const Tensor* r,
                          int64_t blocks, const Tensor* projection) {
  if (blocked == nullptr || r == nullptr || blocked->rank() != 4 || r->rank() != 3)
    return Status::Text(Code::kShapeMismatch,
                        "its first operands are no [T,B,D,G*H] and no matrices [D,G*H,P]");
  const int64_t gates = BlocksOf(a.cell).gates, rows = r->dims[1];
  const Extents e{.steps = blocked->dims[0],
                  .batch = blocked->dims[1],
                  .directions = blocked->dims[2],
                  .hidden = rows / gates,
                  .projected = r->dims[2]};
  const bool fits = (e.directions == 1 || e.directions == 2) && r->dims[0] == e.directions &&
                    rows % gates == 0 && blocked->dims[3] == blocks * e.hidden;
  if (!fits)
    return Status::Error(Code::kShapeMismatch,
                         "{} and {} are not [T,B,D,{}*H] and [D,{}*H,P] for D of 1 or 2 and one H",
                         Shape(*blocked), Shape(*r), blocks, gates);
  if (projection == nullptr && e.projected != e.hidden)
    return Status::Error(Code::kShapeMismatch,
                         "{} multiplies {} states and makes {}, and there is no projection",
                         Shape(*r), e.projected, e.hidden);
  return e;
}

// T may be said, too.
Status CheckSteps(const RecurrenceAttrs& a, const Tensor* blocked) {
  if (a.steps == 0 || blocked == nullptr || blocked->dims[0] == a.steps) return {};
  return Status::Error(Code::kShapeMismatch, "{} steps for {}", a.steps, Shape(*blocked));
}

Status CheckCell(const RecurrenceAttrs& a, bool has_cells, bool has_projection) {
  if (a.cell == RnnCell::kLstm) return {};
  if (has_cells || has_projection)
    return Status::Error(Code::kBadParam, "{} has no {}: an lstm has", Text(a.cell),
                         has_cells ? "cells" : "projection");
  return {};
}

Result<Extents> ForwardExtents(const Graph& graph, const Node& node) {
  const auto& a = node.As<RecurrenceAttrs>();
  return ExtentsOf(a, InputOf(graph, node, fwd::kXg), InputOf(graph, node, fwd::kR),
                   BlocksOf(a.cell).gates, InputOf(graph, node, fwd::kProjection));
}

Result<Extents> GradExtents(const Graph& graph, const Node& node) {
  const auto& a = node.As<RecurrenceAttrs>();
  return ExtentsOf(a, InputOf(graph, node, bwd::kGates), InputOf(graph, node, bwd::kR),
                   BlocksOf(a.cell).kept, InputOf(graph, node, bwd::kProjection));
}

std::vector<Expected> ForwardResults(const RecurrenceAttrs& a, const Extents& e) {
  const int64_t d = e.directions;
  return {{fwd::kY, "y", {e.steps, e.batch, d * e.projected}},
          {fwd::kHy, "hy", {d, e.batch, e.projected}},
          {fwd::kCy, "cy", {d, e.batch, e.hidden}},
          {fwd::kGates, "gates", {e.steps, e.batch, d, BlocksOf(a.cell).kept * e.hidden}},
          {fwd::kCells, "cells", {e.steps, e.batch, d, e.hidden}},
          {fwd::kHidden, "hidden", {e.steps, e.batch, d, e.hidden}}};
}

std::vector<Expected> GradResults(const RecurrenceAttrs& a, const Extents& e) {
  const int64_t d = e.directions;
  return {{bwd::kDgates, "dgates", {e.steps, e.batch, d, BlocksOf(a.cell).gradients * e.hidden}},
          {bwd::kDhx, "dhx", {d, e.batch, e.projected}},
          {bwd::kDcx, "dcx", {d, e.batch, e.hidden}},
          {bwd::kDprojected, "dprojected", {e.steps, e.batch, d, e.projected}}};
}

Status InferResults(Graph& graph, const Node& node, const std::vector<Expected>& rows) {
  for (const Expected& row : rows)
    if (row.index < node.outputs.size() && node.outputs[row.index] != kAbsent)
      SetDims(graph[node.outputs[row.index]], row.dims, nullptr);
  return {};
}

// ---- eval ----

LoopShape ShapeOf(const Node& node, const Extents& e, bool is_projected, DType type) {
  return {.attrs = node.As<RecurrenceAttrs>(),
          .steps = e.steps,
          .batch = e.batch,
          .directions = e.directions,
          .hidden = e.hidden,
          .projected = e.projected,
          .is_projected = is_projected,
          .type = type};
}

Values Operand(const EvalArgs& args, size_t i) {
  return i < args.inputs.size() && args.inputs[i] != nullptr ? args.inputs[i]->data() : nullptr;
}
double* ResultAt(const EvalArgs& args, size_t i) {
  return i < args.outputs.size() && args.outputs[i] != nullptr ? args.outputs[i]->data() : nullptr;
}

}  // namespace

Status VerifyRecurrence(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(CheckComputeType(node));
  const auto& a = node.As<RecurrenceAttrs>();
  RETURN_IF_ERROR(CheckSteps(a, InputOf(graph, node, fwd::kXg)));
  ASSIGN_OR_RETURN(const Extents e, ForwardExtents(graph, node));
  const bool has_cells = InputOf(graph, node, fwd::kCx) != nullptr ||
                         OutputOf(graph, node, fwd::kCy) != nullptr ||
                         OutputOf(graph, node, fwd::kCells) != nullptr;
  const bool is_projected = InputOf(graph, node, fwd::kProjection) != nullptr;
  RETURN_IF_ERROR(CheckCell(a, has_cells, is_projected));
  if (OutputOf(graph, node, fwd::kHidden) != nullptr && !is_projected)
    return Status::Text(Code::kBadParam, "hidden states are kept where they are projected");
  const int64_t d = e.directions, rows = BlocksOf(a.cell).gates * e.hidden;
  const Expected operands[] = {{fwd::kXg, "xg", {e.steps, e.batch, d, rows}},
                               {fwd::kR, "r", {d, rows, e.projected}},
                               {fwd::kBias, "bias", {d, rows}},
                               {fwd::kHx, "hx", {d, e.batch, e.projected}},
                               {fwd::kCx, "cx", {d, e.batch, e.hidden}},
                               {fwd::kProjection, "projection", {d, e.projected, e.hidden}}};
  RETURN_IF_ERROR(CheckTensors(graph, node, false, operands));
  RETURN_IF_ERROR(CheckLengths(InputOf(graph, node, fwd::kLengths), e.batch));
  return CheckTensors(graph, node, true, ForwardResults(a, e));
}

Status InferRecurrence(Graph& graph, const Node& node) {
  const Result<Extents> e = ForwardExtents(graph, node);
  if (!e.ok()) return {};  // Verify has the sentence
  return InferResults(graph, node, ForwardResults(node.As<RecurrenceAttrs>(), *e));
}

void EvalRecurrence(const EvalArgs& args) {
  const Extents e = *ForwardExtents(args.graph, args.node);
  const LoopOperands in{.xg = Operand(args, fwd::kXg),
                        .r = Operand(args, fwd::kR),
                        .bias = Operand(args, fwd::kBias),
                        .hx = Operand(args, fwd::kHx),
                        .cx = Operand(args, fwd::kCx),
                        .projection = Operand(args, fwd::kProjection),
                        .lengths = Operand(args, fwd::kLengths)};
  const LoopResults out{.y = ResultAt(args, fwd::kY),
                        .hy = ResultAt(args, fwd::kHy),
                        .cy = ResultAt(args, fwd::kCy),
                        .gates = ResultAt(args, fwd::kGates),
                        .cells = ResultAt(args, fwd::kCells),
                        .hidden = ResultAt(args, fwd::kHidden)};
  const DType type = OutputOf(args.graph, args.node, fwd::kY)->dtype;
  RunLoop(ShapeOf(args.node, e, in.projection != nullptr, type), in, out);
}

Status VerifyRecurrenceGrad(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(CheckComputeType(node));
  const auto& a = node.As<RecurrenceAttrs>();
  RETURN_IF_ERROR(CheckSteps(a, InputOf(graph, node, bwd::kGates)));
  ASSIGN_OR_RETURN(const Extents e, GradExtents(graph, node));
  for (const size_t i : {size_t{bwd::kDy}, size_t{bwd::kY}})
    if (InputOf(graph, node, i) == nullptr)
      return Status::Text(Code::kBadParam, "dy and y are operands of a gradient");
  const bool is_lstm = a.cell == RnnCell::kLstm;
  if (is_lstm && InputOf(graph, node, bwd::kCells) == nullptr)
    return Status::Text(Code::kBadParam, "the gradient of an lstm needs its cells");
  bool has_cells =
      InputOf(graph, node, bwd::kCells) != nullptr || OutputOf(graph, node, bwd::kDcx) != nullptr;
  for (const size_t i : {size_t{bwd::kCx}, size_t{bwd::kDcy}})
    has_cells = has_cells || InputOf(graph, node, i) != nullptr;
  const bool is_projected = InputOf(graph, node, bwd::kProjection) != nullptr;
  RETURN_IF_ERROR(CheckCell(a, has_cells, is_projected));
  if (OutputOf(graph, node, bwd::kDprojected) != nullptr && !is_projected)
    return Status::Text(Code::kBadParam, "dprojected is a result where there is a projection");
  const int64_t d = e.directions;
  const Dims y = {e.steps, e.batch, d * e.projected}, h = {d, e.batch, e.projected},
             c = {d, e.batch, e.hidden};
  const Expected operands[] = {
      {bwd::kDy, "dy", y},
      {bwd::kY, "y", y},
      {bwd::kCells, "cells", {e.steps, e.batch, d, e.hidden}},
      {bwd::kHx, "hx", h},
      {bwd::kDhy, "dhy", h},
      {bwd::kCx, "cx", c},
      {bwd::kDcy, "dcy", c},
      {bwd::kR, "r", {d, BlocksOf(a.cell).gates * e.hidden, e.projected}},
      {bwd::kGates, "gates", {e.steps, e.batch, d, BlocksOf(a.cell).kept * e.hidden}},
      {bwd::kProjection, "projection", {d, e.projected, e.hidden}}};
  RETURN_IF_ERROR(CheckTensors(graph, node, false, operands));
  RETURN_IF_ERROR(CheckLengths(InputOf(graph, node, bwd::kLengths), e.batch));
  return CheckTensors(graph, node, true, GradResults(a, e));
}

Status InferRecurrenceGrad(Graph& graph, const Node& node) {
  const Result<Extents> e = GradExtents(graph, node);
  if (!e.ok()) return {};  // Verify has the sentence
  return InferResults(graph, node, GradResults(node.As<RecurrenceAttrs>(), *e));
}

void EvalRecurrenceGrad(const EvalArgs& args) {
  const Extents e = *GradExtents(args.graph, args.node);
  const LoopGradOperands in{.dy = Operand(args, bwd::kDy),
                            .r = Operand(args, bwd::kR),
                            .gates = Operand(args, bwd::kGates),
                            .y = Operand(args, bwd::kY),
                            .cells = Operand(args, bwd::kCells),
                            .hx = Operand(args, bwd::kHx),
                            .cx = Operand(args, bwd::kCx),
                            .dhy = Operand(args, bwd::kDhy),
                            .dcy = Operand(args, bwd::kDcy),
                            .projection = Operand(args, bwd::kProjection),
                            .lengths = Operand(args, bwd::kLengths)};
  const LoopGradResults out{.dgates = ResultAt(args, bwd::kDgates),
                            .dhx = ResultAt(args, bwd::kDhx),
                            .dcx = ResultAt(args, bwd::kDcx),
                            .dprojected = ResultAt(args, bwd::kDprojected)};
  const DType type = OutputOf(args.graph, args.node, bwd::kDgates)->dtype;
  RunLoopGrad(ShapeOf(args.node, e, in.projection != nullptr, type), in, out);
}

}  // namespace kiln::graph
