// Random nodes of recurrent networks, of their loops, and of the gradients of both. What a gradient
// reads is as random as all else: no forward pass has made it. And losses of unaligned labels.
#include <algorithm>

#include "ir/graph/rnn.h"
#include "tests/support/random_generator.h"

namespace kiln::graph {

Generator::RandomNetwork Generator::DrawNetwork() {
  RandomNetwork n{.type = Pick({DType::kF32, DType::kF64}),
                  .steps = 1 + Below(3),
                  .batch = 1 + Below(3),
                  .input = 1 + Below(4)};
  RnnAttrs& a = n.attrs;
  a.cell = Pick({RnnCell::kRelu, RnnCell::kTanh, RnnCell::kLstm, RnnCell::kGru});
  a.bias =
      Pick({RnnBias::kNone, RnnBias::kSingleInput, RnnBias::kDouble, RnnBias::kSingleRecurrent});
  a.layers = 1 + Below(2);
  a.hidden = a.projected = 1 + Below(5);
  a.bidirectional = Chance(40);
  if (Chance(20)) {
    a.skip_input = true;
    n.input = a.hidden;
  }
  if (a.cell == RnnCell::kLstm && Chance(40)) a.projected = 1 + Below(a.hidden);
  if (a.cell == RnnCell::kLstm && Chance(30)) {
    a.clip = true;
    a.clip_lower = -2;
    a.clip_upper = 1;
  }
  if (Chance(30)) a.padding = 3;
  return n;
}

TensorId Generator::MaybeLengths(const RandomNetwork& n) {
  return Chance(50) ? NewTensor({n.batch}, DType::kI32) : kAbsent;
}
TensorId Generator::MaybeStates(const RandomNetwork& n, int64_t pseudo_layers, bool cells) {
  if ((cells && n.attrs.cell != RnnCell::kLstm) || Chance(40)) return kAbsent;
  return NewTensor({pseudo_layers, n.batch, cells ? n.attrs.hidden : n.attrs.projected}, n.type);
}

void Generator::AddRnn(GraphOp op) {
  const RandomNetwork n = DrawNetwork();
  const RnnAttrs& a = n.attrs;
  const int64_t directions = DirectionsOf(a), states = a.layers * directions,
                width = directions * a.projected, weights = RnnWeightElements(a, n.input);
  const Dims x = {n.steps, n.batch, n.input}, y = {n.steps, n.batch, width},
             h = {states, n.batch, a.projected},
             reserve = {RnnReserveElements(a, n.steps, n.batch)},
             gradients = {RnnGradientElements(a, n.steps, n.batch)};
  // Rows of a client's data are dense.
  const auto data = [&](const Dims& dims) {
    return builder_.Input("data", n.type, dims,
                          Chance(30) ? Dims{dims[2], dims[0] * dims[2], 1} : PackedStrides(dims));
  };
  const auto flat = [&](const Dims& dims) { return builder_.Input("flat", n.type, dims); };
  const auto result = [&](const char* name, const Dims& dims) {
    return VirtualOf(name, dims, n.type);
  };
  const TensorId lengths = MaybeLengths(n), hx = MaybeStates(n, states, false);
  if (op == GraphOp::kRnnForward) {
    const TensorId cx = MaybeStates(n, states, true);
    AddNode(op, {data(x), flat({weights}), hx, cx, lengths},
            {result("y", y), result("hy", h), kAbsent, result("reserve", reserve)}, n.type, a);
  } else if (op == GraphOp::kRnnBackwardData) {
    const TensorId cx = MaybeStates(n, states, true), dhy = MaybeStates(n, states, false),
                   dcy = MaybeStates(n, states, true);
    AddNode(op, {data(y), data(y), flat({weights}), flat(reserve), hx, cx, dhy, dcy, lengths},
            {result("dx", x), result("gradients", gradients), result("dhx", h)}, n.type, a);
  } else {
    const TensorId before = Chance(50) ? flat({weights}) : kAbsent;
    AddNode(op, {data(x), data(y), flat(reserve), flat(gradients), hx, lengths, before},
            {result("dw", {weights})}, n.type, a);
  }
}

void Generator::AddLoop(bool gradient) {
  const RandomNetwork n = DrawNetwork();
  const RnnAttrs& a = n.attrs;
  const CellBlocks blocks = kiln::graph::BlocksOf(a.cell);
  const int64_t d = DirectionsOf(a);
  const bool is_lstm = a.cell == RnnCell::kLstm, is_projected = IsProjected(a);
  const auto tensor = [&](Dims dims) { return NewTensor(std::move(dims), n.type); };
  const auto kept = [&](int64_t blocks_of_h) {
    return Dims{n.steps, n.batch, d, blocks_of_h * a.hidden};
  };
  const Dims y = {n.steps, n.batch, d * a.projected}, h = {d, n.batch, a.projected};
  const TensorId r = tensor({d, blocks.gates * a.hidden, a.projected}),
                 projection = is_projected ? tensor({d, a.projected, a.hidden}) : kAbsent,
                 hx = MaybeStates(n, d, false), cx = MaybeStates(n, d, true),
                 lengths = MaybeLengths(n);
  const auto result = [&](bool wanted, const char* name, const Dims& dims) {
    return wanted ? VirtualOf(name, dims, n.type) : kAbsent;
  };
  if (!gradient) {
    const TensorId bias = Chance(50) ? tensor({d, blocks.gates * a.hidden}) : kAbsent;
    AddNode(GraphOp::kRecurrence,
            {tensor(kept(blocks.gates)), r, bias, hx, cx, projection, lengths},
            {result(true, "y", y), result(Chance(50), "hy", h), kAbsent,
             result(Chance(50), "gates", kept(blocks.kept)),
             result(is_lstm && Chance(50), "cells", kept(1)),
             result(is_projected && Chance(50), "hidden", kept(1))},
            n.type, LoopAttrs(a));
    return;
  }
  const TensorId dhy = MaybeStates(n, d, false), dcy = MaybeStates(n, d, true);
  AddNode(GraphOp::kRecurrenceGrad,
          {tensor(y), r, tensor(kept(blocks.kept)), tensor(y), is_lstm ? tensor(kept(1)) : kAbsent,
           hx, cx, dhy, dcy, projection, lengths},
          {result(true, "dgates", kept(blocks.gradients)), result(Chance(50), "dhx", h), kAbsent,
           result(is_projected && Chance(50), "dprojected", {n.steps, n.batch, d, a.projected})},
          n.type, LoopAttrs(a));
}

void Generator::AddCtcLoss() {
  const int64_t frames = 1 + Below(6), samples = 1 + Below(3), symbols = 1 + Below(5),
                longest = Below(4);
  const Dims dims = {frames, samples, symbols};
  const DType type = Pick({DType::kF32, DType::kF64});
  const auto integers = [&](int64_t count) { return NewTensor({count}, DType::kI32); };
  const CtcLossAttrs a{.skip_infeasible = Chance(50), .max_label = longest};
  std::vector<TensorId> inputs = {NewTensor(dims, type),
                                  integers(std::max<int64_t>(1, samples * longest)),
                                  integers(samples), integers(samples)};
  const bool has_gradients = Chance(70);
  if (has_gradients && a.skip_infeasible) inputs.push_back(NewTensor(dims, type));
  AddNode(GraphOp::kCtcLoss, std::move(inputs),
          {VirtualOf("costs", {samples}, type),
           has_gradients ? VirtualOf("gradients", dims, type) : kAbsent},
          type, a);
}

}  // namespace kiln::graph
