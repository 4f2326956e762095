// Recurrent networks: operands of `rnn_forward`, `rnn_backward_data`, `rnn_backward_weights`,
// `recurrence` and `recurrence_grad`, and what follows from their attributes. Verify, Infer and
// Eval are in ops_rnn.cc and ops_recurrence.cc, and the _eval.cc beside each; the networks as
// primitives are in compiler/passes/decompose_rnn.cc.
//
// Names: T steps, B sequences, I input width, H hidden, P projected (H where nothing is
// projected), L layers, D directions, G gates of the cell. A pseudo-layer is one direction of a
// layer, layer * D + direction.
//
//   rnn_forward           x, w, [hx], [cx], [lengths], [seed], [offset] -> y, [hy], [cy], [reserve]
//   rnn_backward_data     y, dy, w, reserve, [hx], [cx], [dhy], [dcy], [lengths]
//                           -> dx, gradients, [dhx], [dcx]
//   rnn_backward_weights  x, y, reserve, gradients, [hx], [lengths], [before] -> dw
//
//   x, dx [T,B,I], y, dy [T,B,D*P] of any strides; or packed, [rows,I] and [rows,D*P]: step t has
//   a row for each sequence that is longer than t, and lengths fall.
//   w, dw [elements]: cuDNN's weight space, all matrices before all biases (RnnMatrixPlace).
//   hx, hy [L*D,B,P], cx, cy [L*D,B,H]; lengths i32 [B]; seed, offset: one integer.
//   reserve [RnnReserveElements], gradients [RnnGradientElements]: what a call leaves to the next.
#pragma once

#include "ir/graph/graph.h"

namespace kiln::graph {

namespace rnn_forward {
enum Input : size_t { kX, kW, kHx, kCx, kLengths, kSeed, kOffset };
enum Output : size_t { kY, kHy, kCy, kReserve };
}  // namespace rnn_forward

namespace rnn_backward_data {
enum Input : size_t { kY, kDy, kW, kReserve, kHx, kCx, kDhy, kDcy, kLengths };
enum Output : size_t { kDx, kGradients, kDhx, kDcx };
}  // namespace rnn_backward_data

namespace rnn_backward_weights {
enum Input : size_t { kX, kY, kReserve, kGradients, kHx, kLengths, kBefore };
enum Output : size_t { kDw };
}  // namespace rnn_backward_weights

namespace recurrence {
enum Input : size_t { kXg, kR, kBias, kHx, kCx, kProjection, kLengths, kInputs };
enum Output : size_t { kY, kHy, kCy, kGates, kCells, kHidden, kOutputs };
}  // namespace recurrence

namespace recurrence_grad {
enum Input : size_t {
  kDy,
  kR,
  kGates,
  kY,
  kCells,
  kHx,
  kCx,
  kDhy,
  kDcy,
  kProjection,
  kLengths,
  kInputs
};
enum Output : size_t { kDgates, kDhx, kDcx, kDprojected, kOutputs };
}  // namespace recurrence_grad

// The numbers of blocks of H that a cell has: of weights, of what `recurrence` keeps for its
// gradient, and of the gradient itself. A GRU keeps R h + b of its new gate, too, and gives that a
// gradient.
struct CellBlocks {
  int64_t gates, kept, gradients;
};
CellBlocks BlocksOf(RnnCell cell);

inline int64_t DirectionsOf(const RnnAttrs& a) { return a.bidirectional ? 2 : 1; }
inline bool IsProjected(const RnnAttrs& a) { return a.projected != a.hidden; }
inline bool HasDropout(const RnnAttrs& a) { return a.dropout > 0 && a.layers > 1; }
// The width of a layer's input; `input` for the first one.
int64_t LayerInput(const RnnAttrs& a, int64_t input, int64_t layer);

// ---- the weight space, in elements ----
int64_t RnnWeightElements(const RnnAttrs& a, int64_t input);
struct RnnPlace {
  int64_t offset = -1;  // -1: absent
  int64_t rows = 0, columns = 0;
};
// The place of matrix `id` of a pseudo-layer, row-major: 0 .. G-1 are of the input, G .. 2G-1 of
// the state, 2G is the projection. The G of a kind lie one behind the other.
RnnPlace RnnMatrixPlace(const RnnAttrs& a, int64_t input, int64_t pseudo_layer, int64_t id);
// The place of bias `id`, a column.
RnnPlace RnnBiasPlace(const RnnAttrs& a, int64_t input, int64_t pseudo_layer, int64_t id);
inline bool HasInputBias(const RnnAttrs& a) {
  return a.bias == RnnBias::kDouble || a.bias == RnnBias::kSingleInput;
}
inline bool HasRecurrentBias(const RnnAttrs& a) {
  return a.bias == RnnBias::kDouble || a.bias == RnnBias::kSingleRecurrent;
}

// ---- reserve and gradients, in elements: for each layer, one behind the other
//   reserve    gates [T,B,D,kept*H], cells [T,B,D,H] of an LSTM, hidden [T,B,D,H] where it is
//              projected; then of each layer but the last its y [T,B,D*P], and with dropout the
//              mask of 0 and 1 that the next layer's input had
//   gradients  dgates [T,B,D,gradients*H], dprojected [T,B,D,P] where it is projected
// Sequences are as if they all had T steps, packed or not.
struct RnnReservePlaces {
  int64_t gates = -1, cells = -1, hidden = -1, y = -1, mask = -1;  // -1: absent
};
RnnReservePlaces RnnReserveOf(const RnnAttrs& a, int64_t steps, int64_t batch, int64_t layer);
int64_t RnnReserveElements(const RnnAttrs& a, int64_t steps, int64_t batch);
struct RnnGradientPlaces {
  int64_t dgates = -1, dprojected = -1;
};
RnnGradientPlaces RnnGradientsOf(const RnnAttrs& a, int64_t steps, int64_t batch, int64_t layer);
int64_t RnnGradientElements(const RnnAttrs& a, int64_t steps, int64_t batch);

// Steps, sequences and width of the data of a network: x, y, or a gradient of one of them.
struct RnnExtents {
  int64_t steps = 0, batch = 0, width = 0;
  bool packed = false;
};
RnnExtents RnnExtentsOf(const RnnAttrs& a, const Tensor& data, const Tensor* lengths);

// The attributes of the `recurrence` node that computes one layer.
RecurrenceAttrs LoopAttrs(const RnnAttrs& a);

// ---- the loops themselves, in f64: ops_recurrence_eval.cc ----
struct LoopShape {
  RecurrenceAttrs attrs;
  int64_t steps = 0, batch = 0, directions = 1, hidden = 0, projected = 0;
  bool is_projected = false;
  DType type = DType::kF64;  // what states round to
};
using Values = const double*;  // null: absent
struct LoopOperands {
  Values xg = nullptr, r = nullptr, bias = nullptr, hx = nullptr, cx = nullptr,
         projection = nullptr, lengths = nullptr;
};
struct LoopResults {
  double *y = nullptr, *hy = nullptr, *cy = nullptr, *gates = nullptr, *cells = nullptr,
         *hidden = nullptr;
};
void RunLoop(const LoopShape& shape, const LoopOperands& in, const LoopResults& out);

struct LoopGradOperands {
  Values dy = nullptr, r = nullptr, gates = nullptr, y = nullptr, cells = nullptr, hx = nullptr,
         cx = nullptr, dhy = nullptr, dcy = nullptr, projection = nullptr, lengths = nullptr;
};
struct LoopGradResults {
  double *dgates = nullptr, *dhx = nullptr, *dcx = nullptr, *dprojected = nullptr;
};
void RunLoopGrad(const LoopShape& shape, const LoopGradOperands& in, const LoopGradResults& out);

// The length of sequence b, within 0 .. steps.
int64_t LengthOf(Values lengths, int64_t b, int64_t steps);

}  // namespace kiln::graph
