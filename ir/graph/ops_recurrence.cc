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

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// What an LSTM uses of a cell, and the derivative of that.
double Use(const RecurrenceAttrs& a, double c) {
  if (!a.clip) return c;
  if (std::isnan(c)) return a.clip_propagates_nan ? c : a.clip_lower;
  return std::clamp(c, a.clip_lower, a.clip_upper);
}
double UseSlope(const RecurrenceAttrs& a, double c) {
  return !a.clip || (c >= a.clip_lower && c <= a.clip_upper) ? 1 : 0;
}

// Where sequence b of direction d is at step s, and what it has kept there.
struct Place {
  int64_t time, row;  // row: time, sequence and direction as one index
};
Place PlaceOf(const LoopShape& shape, int64_t s, int64_t b, int64_t d, int64_t length) {
  const int64_t time = d == 1 && s < length ? length - 1 - s : s;
  return {.time = time, .row = (time * shape.batch + b) * shape.directions + d};
}

// sum over columns of matrix[row][column] * state[column].
double Dot(Values matrix, int64_t row, int64_t columns, const std::vector<double>& state) {
  double sum = 0;
  for (int64_t c = 0; c < columns; ++c)
    sum += matrix[row * columns + c] * state[static_cast<size_t>(c)];
  return sum;
}

// One sequence in one direction.
class SequenceLoop {
 public:
  SequenceLoop(const LoopShape& shape, const LoopOperands& in, const LoopResults& out, int64_t b,
               int64_t d)
      : s_(shape),
        in_(in),
        out_(out),
        b_(b),
        d_(d),
        gates_(BlocksOf(shape.attrs.cell).gates),
        kept_(BlocksOf(shape.attrs.cell).kept),
        h_(static_cast<size_t>(shape.projected), 0),
        c_(static_cast<size_t>(shape.hidden), 0) {}

  void Run() {
    const int64_t length = LengthOf(in_.lengths, b_, s_.steps);
    const int64_t state = d_ * s_.batch + b_;
    for (int64_t p = 0; p < s_.projected && in_.hx; ++p) h_[p] = in_.hx[state * s_.projected + p];
    for (int64_t j = 0; j < s_.hidden && in_.cx; ++j) c_[j] = in_.cx[state * s_.hidden + j];
    for (int64_t step = 0; step < s_.steps; ++step) {
      const Place at = PlaceOf(s_, step, b_, d_, length);
      if (step < length)
        Step(at);
      else
        Pad(at);
    }
    for (int64_t p = 0; p < s_.projected && out_.hy; ++p)
      out_.hy[state * s_.projected + p] = length > 0 ? h_[p] : 0;
    for (int64_t j = 0; j < s_.hidden && out_.cy; ++j)
      out_.cy[state * s_.hidden + j] = length > 0 ? c_[j] : 0;
  }

 private:
  void Step(const Place& at) {
    const int64_t rows = gates_ * s_.hidden;
    Values x = in_.xg + at.row * rows;
    std::vector<double> h(static_cast<size_t>(s_.hidden));
    for (int64_t j = 0; j < s_.hidden; ++j) {
      double a[4];
      for (int64_t g = 0; g < gates_; ++g) {
        const int64_t row = d_ * rows + g * s_.hidden + j;
        a[g] = Dot(in_.r, row, s_.projected, h_) + (in_.bias ? in_.bias[row] : 0);
      }
      double kept[4];
      h[j] = RoundTo(s_.type, Cell(x + j, a, j, kept));
      for (int64_t k = 0; k < kept_ && out_.gates; ++k)
        out_.gates[(at.row * kept_ + k) * s_.hidden + j] = kept[k];
      if (out_.cells) out_.cells[at.row * s_.hidden + j] = c_[j];
      if (out_.hidden) out_.hidden[at.row * s_.hidden + j] = h[j];
    }
    if (!s_.is_projected) h_ = h;
    for (int64_t p = 0; p < s_.projected && s_.is_projected; ++p)
      h_[p] = RoundTo(s_.type, Dot(in_.projection, d_ * s_.projected + p, s_.hidden, h));
    for (int64_t p = 0; p < s_.projected && out_.y; ++p) out_.y[at.row * s_.projected + p] = h_[p];
  }

  // The new state of unit j; x has its blocks H apart.
  double Cell(Values x, const double* a, int64_t j, double* kept) {
    const int64_t block = s_.hidden;
    switch (s_.attrs.cell) {
      case RnnCell::kRelu:
        kept[0] = x[0] + a[0];
        if (kept[0] < 0) kept[0] = 0;
        return kept[0];
      case RnnCell::kTanh:
        kept[0] = std::tanh(x[0] + a[0]);
        return kept[0];
      case RnnCell::kLstm:
        for (int64_t g = 0; g < 4; ++g) {
          const double before = x[g * block] + a[g];
          kept[g] = g == 2 ? std::tanh(before) : Sigmoid(before);
        }
        c_[j] = kept[1] * Use(s_.attrs, c_[j]) + kept[0] * kept[2];
        return kept[3] * std::tanh(Use(s_.attrs, c_[j]));
      case RnnCell::kGru:
        kept[0] = Sigmoid(x[0] + a[0]);
        kept[1] = Sigmoid(x[block] + a[1]);
        kept[2] = std::tanh(x[2 * block] + kept[0] * a[2]);
        kept[3] = a[2];
        return (1 - kept[1]) * kept[2] + kept[1] * h_[j];
    }
    return 0;
  }

  void Pad(const Place& at) {
    const auto clear = [&](double* to, int64_t count) {
      if (to != nullptr) std::fill_n(to + at.row * count, count, 0);
    };
    clear(out_.y, s_.projected);
    clear(out_.gates, kept_ * s_.hidden);
    clear(out_.cells, s_.hidden);
    clear(out_.hidden, s_.hidden);
  }

  const LoopShape& s_;
  const LoopOperands& in_;
  const LoopResults& out_;
  int64_t b_, d_, gates_, kept_;
  std::vector<double> h_, c_;
};

// The gradient of one sequence in one direction.
class SequenceGrad {
 public:
  SequenceGrad(const LoopShape& shape, const LoopGradOperands& in, const LoopGradResults& out,
               int64_t b, int64_t d)
      : s_(shape),
        in_(in),
        out_(out),
        b_(b),
        d_(d),
        length_(LengthOf(in.lengths, b, shape.steps)),
        blocks_(BlocksOf(shape.attrs.cell)),
        dh_(static_cast<size_t>(shape.projected), 0),
        dc_(static_cast<size_t>(shape.hidden), 0) {}

  void Run() {
    const int64_t state = d_ * s_.batch + b_;
    for (int64_t p = 0; p < s_.projected && in_.dhy; ++p)
      dh_[p] = in_.dhy[state * s_.projected + p];
    for (int64_t j = 0; j < s_.hidden && in_.dcy; ++j) dc_[j] = in_.dcy[state * s_.hidden + j];
    for (int64_t step = s_.steps - 1; step >= 0; --step) {
      if (step < length_)
        Step(step);
      else
        Pad(PlaceOf(s_, step, b_, d_, length_));
    }
    for (int64_t p = 0; p < s_.projected && out_.dhx; ++p)
      out_.dhx[state * s_.projected + p] = length_ > 0 ? dh_[p] : 0;
    for (int64_t j = 0; j < s_.hidden && out_.dcx; ++j)
      out_.dcx[state * s_.hidden + j] = length_ > 0 ? dc_[j] : 0;
  }

 private:
  void Step(int64_t step) {
    const Place at = PlaceOf(s_, step, b_, d_, length_);
    const int64_t hidden = s_.hidden, count = blocks_.gradients * hidden;
    std::vector<double> dh(static_cast<size_t>(hidden));
    for (int64_t p = 0; p < s_.projected; ++p) dh_[p] += in_.dy[at.row * s_.projected + p];
    if (s_.is_projected)
      Unproject(at, dh);
    else
      dh = dh_;
    std::vector<double> gradient(static_cast<size_t>(count)),
        direct(static_cast<size_t>(hidden), 0);
    for (int64_t j = 0; j < hidden; ++j) {
      double slopes[4];
      direct[j] = Cell(step, at, j, dh[j], slopes);
      for (int64_t k = 0; k < blocks_.gradients; ++k)
        gradient[k * hidden + j] = RoundTo(s_.type, slopes[k]);
    }
    std::ranges::copy(gradient, out_.dgates + at.row * count);
    for (int64_t p = 0; p < s_.projected; ++p) {
      double sum = s_.attrs.cell == RnnCell::kGru ? direct[p] : 0;
      for (int64_t g = 0; g < blocks_.gates; ++g) {
        // A GRU's new gate has another gradient for the state than for the input.
        const int64_t block = s_.attrs.cell == RnnCell::kGru && g == 2 ? 3 : g;
        for (int64_t j = 0; j < hidden; ++j)
          sum += in_.r[((d_ * blocks_.gates + g) * hidden + j) * s_.projected + p] *
                 gradient[block * hidden + j];
      }
      dh_[p] = sum;
    }
  }

  void Unproject(const Place& at, std::vector<double>& dh) {
    for (int64_t p = 0; p < s_.projected; ++p) {
      dh_[p] = RoundTo(s_.type, dh_[p]);
      if (out_.dprojected) out_.dprojected[at.row * s_.projected + p] = dh_[p];
    }
    for (int64_t j = 0; j < s_.hidden; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < s_.projected; ++p)
        sum += in_.projection[(d_ * s_.projected + p) * s_.hidden + j] * dh_[p];
      dh[j] = sum;
    }
  }

  // `values` [T,B,D,width] or the initial state [D,B,width], one step before.
  double Before(Values values, Values initial, int64_t width, int64_t step, int64_t j) const {
    if (step > 0) return values[PlaceOf(s_, step - 1, b_, d_, length_).row * width + j];
    return initial ? initial[(d_ * s_.batch + b_) * width + j] : 0;
  }

  // Fills the gradients of unit j; returns that of the state before which no matrix carries.
  double Cell(int64_t step, const Place& at, int64_t j, double dh, double* slopes) {
    const int64_t hidden = s_.hidden;
    Values kept = in_.gates + at.row * blocks_.kept * hidden + j;
    const auto k = [&](int64_t block) { return kept[block * hidden]; };
    switch (s_.attrs.cell) {
      case RnnCell::kRelu:
        slopes[0] = k(0) > 0 ? dh : 0;
        return 0;
      case RnnCell::kTanh:
        slopes[0] = dh * (1 - k(0) * k(0));
        return 0;
      case RnnCell::kLstm: {
        const double c = in_.cells[at.row * hidden + j];
        const double before = Before(in_.cells, in_.cx, hidden, step, j);
        const double t = std::tanh(Use(s_.attrs, c));
        const double dc = dc_[j] + dh * k(3) * (1 - t * t) * UseSlope(s_.attrs, c);
        slopes[0] = dc * k(2) * k(0) * (1 - k(0));
        slopes[1] = dc * Use(s_.attrs, before) * k(1) * (1 - k(1));
        slopes[2] = dc * k(0) * (1 - k(2) * k(2));
        slopes[3] = dh * t * k(3) * (1 - k(3));
        dc_[j] = dc * k(1) * UseSlope(s_.attrs, before);
        return 0;
      }
      case RnnCell::kGru: {
        const double before = Before(in_.y, in_.hx, hidden, step, j);
        slopes[2] = dh * (1 - k(1)) * (1 - k(2) * k(2));
        slopes[1] = dh * (before - k(2)) * k(1) * (1 - k(1));
        slopes[0] = slopes[2] * k(3) * k(0) * (1 - k(0));
        slopes[3] = slopes[2] * k(0);
        return dh * k(1);
      }
    }
    return 0;
  }

  void Pad(const Place& at) {
    const int64_t count = blocks_.gradients * s_.hidden;
    std::fill_n(out_.dgates + at.row * count, count, 0);
    if (out_.dprojected) std::fill_n(out_.dprojected + at.row * s_.projected, s_.projected, 0);
  }

  const LoopShape& s_;
  const LoopGradOperands& in_;
  const LoopGradResults& out_;
  int64_t b_, d_, length_;
  CellBlocks blocks_;
  std::vector<double> dh_, dc_;
};

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

int64_t LengthOf(Values lengths, int64_t b, int64_t steps) {
  if (lengths == nullptr) return steps;
  return std::clamp<int64_t>(static_cast<int64_t>(lengths[b]), 0, steps);
}

void RunLoop(const LoopShape& shape, const LoopOperands& in, const LoopResults& out) {
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t d = 0; d < shape.directions; ++d) SequenceLoop(shape, in, out, b, d).Run();
}

void RunLoopGrad(const LoopShape& shape, const LoopGradOperands& in, const LoopGradResults& out) {
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t d = 0; d < shape.directions; ++d) SequenceGrad(shape, in, out, b, d).Run();
}

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
