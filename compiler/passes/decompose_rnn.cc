// Networks of recurrent layers as primitives (operands in ir/graph/rnn.h):
//
//   forward, a layer     %p = matmul(%x[1,T*B,I], W^T[1,I,D*G*H])        %xg = map add(%p, bW)
//                        %y, … = recurrence(%xg, R, bR, …)
//   backward, a layer    %dgates, … = recurrence_grad(%dy, R, …)         %dx = matmul(%dgates, W)
//   gradients of weights %dW = matmul(%dgates^T, %x)   %dR = matmul(%dgates^T, %h before)
//                        %db = reduce add(%dgates)     %dw = concat(…)
//
// The input products of all steps and both directions are one contraction, with the bias in its
// epilogue, and so are dx and dW; only the recurrence itself is a loop. Layers of one direction may
// become one group, with the products between them (compiler/patterns/recurrence_stack.h). Weights,
// reserve and gradients are read as views. Packed data are spread over [T,B] where they are read
// and put together again at the end, so that no other operation knows of them.
//
// A reshape of a tensor that is dense in another order than that of its dims would keep the memory:
// data that lie batch by batch are transposed before, or seen through a slice.
#include "compiler/passes/rnn_writer.h"
#include "ir/graph/sdpa.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::kAbsent;
using graph::Node;
using graph::OperandOr;
using graph::RnnCell;
using graph::TensorId;

class ForwardWriter : private RnnWriter {
  using In = graph::rnn_forward::Input;
  using Out = graph::rnn_forward::Output;

 public:
  ForwardWriter(Graph& g, const Node& node)
      : RnnWriter(g, node, node.inputs[In::kX], OperandOr(node.inputs, In::kLengths)), node_(node) {
    input_ = e_.width;
    name_of_ = node.outputs[0];
  }

  void Write() {
    const TensorId reserve = Result(Out::kReserve), last = Result(Out::kY);
    std::vector<TensorId> kept, hy, cy;
    TensorId masks = reserve != kAbsent && graph::HasDropout(a_) ? Masks() : kAbsent;
    TensorId x = kAbsent, y = kAbsent;
    for (int64_t l = 0; l < a_.layers; ++l) {
      const bool is_last = l + 1 == a_.layers;
      const TensorId xg = InputProducts(x, l);
      y = is_last && !e_.packed && !Pads()
              ? last
              : NewVirtual("y", type_, {e_.steps, e_.batch, y_width()});
      Loop(xg, y, l, kept, hy, cy);
      if (is_last) break;
      TensorId mask = kAbsent;
      if (reserve != kAbsent) kept.push_back(y);
      if (masks != kAbsent) {
        mask = w_.Slice(masks, {l, 0, 0, 0}, {1, e_.steps, e_.batch, y_width()});
        mask = w_.Reshape(mask, {e_.steps, e_.batch, y_width()});
        kept.push_back(mask);
      }
      x = Dropped(y, mask);
    }
    if (y != last) Store(y, last);
    StoreStates(hy, Result(Out::kHy));
    StoreStates(cy, Result(Out::kCy));
    if (reserve == kAbsent) return;
    for (TensorId& part : kept) part = Flat(part);
    w_.Write(Concat(kept, 0), reserve);
  }

 private:
  TensorId Operand(size_t i) const { return OperandOr(node_.inputs, i); }
  TensorId Result(size_t i) const { return OperandOr(node_.outputs, i); }

  // 0 and 1, [L-1,T,B,D*P].
  TensorId Masks() {
    const TensorId masks =
        NewVirtual("mask", type_, {a_.layers - 1, e_.steps, e_.batch, y_width()});
    std::vector<TensorId> inputs = {Operand(In::kSeed)};
    if (Operand(In::kOffset) != kAbsent) inputs.push_back(Operand(In::kOffset));
    DecomposeRng(g_, {.op = GraphOp::kRng,
                      .inputs = std::move(inputs),
                      .outputs = {masks},
                      .compute = DType::kF32,
                      .attrs = graph::RngAttrs{.distribution = graph::RngDistribution::kBernoulli,
                                               .probability = 1 - a_.dropout},
                      .name = ""});
    return masks;
  }

  // xg of a layer, [T,B,D,G*H]; x absent: the network's.
  TensorId InputProducts(TensorId x, int64_t layer) {
    const TensorId bias = Biases(Operand(In::kW), layer, 0);
    if (!HasInputMatrices(layer)) {
      const std::vector<TensorId> copies(static_cast<size_t>(directions_ * gates_),
                                         Spread(Operand(In::kX)));
      const TensorId xg =
          w_.Reshape(Concat(copies, 2), {e_.steps, e_.batch, directions_, gates_ * a_.hidden});
      return bias == kAbsent ? xg : w_.Add(xg, bias);
    }
    // Rows by batches first where they lie so.
    const TensorId data = Operand(In::kX);
    const bool by_batch = x == kAbsent && !e_.packed && IsByBatch(data);
    if (x == kAbsent) x = by_batch ? w_.Transpose(data, {1, 0, 2}) : Spread(data);
    const int64_t width = graph::LayerInput(a_, input_, layer);
    const TensorId matrices =
        w_.Reshape(Matrices(Operand(In::kW), layer, 0, gates_), {1, columns(), width});
    TensorId xg = w_.Matmul(w_.Reshape(x, {1, rows(), width}), w_.Transpose(matrices, {0, 2, 1}));
    if (bias != kAbsent) xg = w_.Add(xg, w_.Reshape(bias, {1, 1, columns()}));
    Dims dims = {e_.steps, e_.batch, directions_, gates_ * a_.hidden};
    if (!by_batch) return w_.Reshape(xg, std::move(dims));
    std::swap(dims[0], dims[1]);
    return w_.Transpose(w_.Reshape(xg, std::move(dims)), {1, 0, 2, 3});
  }
  bool IsByBatch(TensorId x) const {
    const Dims& d = g_[x].dims;
    return g_[x].strides == Dims{d[2], d[0] * d[2], 1} && d[0] > 1 && d[1] > 1;
  }

  void Loop(TensorId xg, TensorId y, int64_t layer, std::vector<TensorId>& kept,
            std::vector<TensorId>& hy, std::vector<TensorId>& cy) {
    const TensorId w = Operand(In::kW);
    const bool trains = Result(Out::kReserve) != kAbsent, is_lstm = a_.cell == RnnCell::kLstm,
               is_projected = graph::IsProjected(a_);
    const auto keep = [&](bool wanted, const char* name, int64_t blocks) {
      if (!trains || !wanted) return kAbsent;
      kept.push_back(
          NewVirtual(name, type_, {e_.steps, e_.batch, directions_, blocks * a_.hidden}));
      return kept.back();
    };
    hy.push_back(StateResult(Result(Out::kHy), a_.projected));
    cy.push_back(StateResult(Result(Out::kCy), a_.hidden));
    const TensorId gates = keep(true, "gates", graph::BlocksOf(a_.cell).kept),
                   cells = keep(is_lstm, "cells", 1), hidden = keep(is_projected, "hidden", 1);
    const TensorId r = Matrices(w, layer, gates_, gates_), bias = Biases(w, layer, gates_),
                   hx = StatesOf(Operand(In::kHx), layer), cx = StatesOf(Operand(In::kCx), layer),
                   projection = is_projected ? Matrices(w, layer, 2 * gates_, 1) : kAbsent;
    g_.AddNode({.op = GraphOp::kRecurrence,
                .inputs = {xg, r, bias, hx, cx, projection, lengths_},
                .outputs = {y, hy.back(), cy.back(), gates, cells, hidden},
                .compute = node_.compute,
                .attrs = graph::LoopAttrs(a_),
                .name = node_.name});
  }

  const Node& node_;
};

}  // namespace

void DecomposeRnnForward(graph::Graph& g, const graph::Node& node) {
  ForwardWriter(g, node).Write();
}

}  // namespace kiln::compiler
