// Networks of recurrent layers as primitives (operands in ir/graph/rnn.h):
//
//   forward, a layer     %p = matmul(%x[1,T*B,I], W^T[1,I,D*G*H])        %xg = map add(%p, bW)
//                        %y, … = recurrence(%xg, R, bR, …)
//   backward, a layer    %dgates, … = recurrence_grad(%dy, R, …)         %dx = matmul(%dgates, W)
//   gradients of weights %dW = matmul(%dgates^T, %x)   %dR = matmul(%dgates^T, %h before)
//                        %db = reduce add(%dgates)     %dw = concat(…)
//
// The input products of all steps and both directions are one contraction, with the bias in its
// epilogue, and so are dx and dW; only the recurrence itself is a loop. Weights, reserve and
// gradients are read as views. Packed data are spread over [T,B] where they are read and put
// together again at the end, so that no other operation knows of them.
//
// A reshape of a tensor that is dense in another order than that of its dims would keep the memory:
// data that lie batch by batch are transposed before, or seen through a slice.
#include <algorithm>

#include "compiler/passes/decompose_parts.h"
#include "compiler/passes/primitive_writer.h"
#include "ir/graph/rnn.h"
#include "ir/graph/sdpa.h"

namespace kiln::compiler {
namespace {

using graph::Combine;
using graph::Graph;
using graph::GraphOp;
using graph::kAbsent;
using graph::Node;
using graph::OperandOr;
using graph::RnnAttrs;
using graph::RnnBias;
using graph::RnnCell;
using graph::RnnPlace;
using graph::Tensor;
using graph::TensorId;

// What the three operations share: extents, parts of rank-1 tensors, ends of sequences.
class RnnWriter {
 public:
  RnnWriter(Graph& g, const Node& node, TensorId data, TensorId lengths)
      : g_(g),
        a_(node.As<RnnAttrs>()),
        type_(g[data].dtype),
        w_(g, node.compute, g[node.outputs[0]].name),
        index_(g, DType::kI32, g[node.outputs[0]].name),
        lengths_(lengths),
        e_(graph::RnnExtentsOf(a_, g[data], lengths == kAbsent ? nullptr : &g[lengths])),
        memory_rows_(e_.packed ? g[data].dims[0] : 0),
        directions_(graph::DirectionsOf(a_)),
        gates_(graph::BlocksOf(a_.cell).gates) {}

 protected:
  int64_t rows() const { return e_.steps * e_.batch; }
  int64_t columns() const { return directions_ * gates_ * a_.hidden; }
  int64_t y_width() const { return directions_ * a_.projected; }

  TensorId NewVirtual(const char* suffix, DType type, Dims dims) {
    Dims strides = PackedStrides(dims);
    return g_.AddTensor({.name = fmt::format("{}_{}", g_[name_of_].name, suffix),
                         .dtype = type,
                         .dims = std::move(dims),
                         .strides = std::move(strides),
                         .is_virtual = true});
  }

  // Up to 32 at a time: a concat has a limit.
  TensorId Concat(std::vector<TensorId> parts, int64_t axis) {
    constexpr size_t kMost = 16;
    while (parts.size() > 1) {
      std::vector<TensorId> joined;
      for (size_t i = 0; i < parts.size(); i += kMost) {
        const size_t end = std::min(i + kMost, parts.size());
        std::vector<TensorId> some(parts.begin() + static_cast<ptrdiff_t>(i),
                                   parts.begin() + static_cast<ptrdiff_t>(end));
        joined.push_back(some.size() == 1 ? some[0] : ConcatOf(std::move(some), axis));
      }
      parts = std::move(joined);
    }
    return parts[0];
  }

  // ---- parts of rank-1 tensors ----
  TensorId Part(TensorId flat, int64_t offset, Dims dims) {
    const int64_t count = NumElements(dims);
    const bool all = offset == 0 && count == g_[flat].dims[0];
    const TensorId part = all ? flat : w_.Slice(flat, {offset}, {count});
    return w_.Reshape(part, std::move(dims));
  }
  TensorId Flat(TensorId x) { return w_.Reshape(x, {NumElements(g_[x].dims)}); }

  // What begins at `first` of direction 0, and as far behind the same place of direction 1:
  // [D, count]. A direction's share begins at `begin` and has `share` elements.
  TensorId OfDirections(TensorId w, int64_t begin, int64_t share, int64_t first, int64_t count) {
    if (directions_ == 1) return Part(w, first, {1, count});
    const TensorId both = Part(w, begin, {2, share});
    return w_.Slice(both, {0, first - begin}, {2, count});
  }
  // `count` matrices from `id` on, [D, count * rows, columns].
  TensorId Matrices(TensorId w, int64_t layer, int64_t id, int64_t count) {
    const int64_t pl = layer * directions_;
    const auto place = [&](int64_t of, int64_t which) {
      return graph::RnnMatrixPlace(a_, input_, of, which);
    };
    const RnnPlace at = place(pl, id);
    const int64_t head = place(pl, 0).offset < 0 ? gates_ : 0, begin = place(pl, head).offset;
    const int64_t share = directions_ == 1 ? 0 : place(pl + 1, head).offset - begin;
    const TensorId flat = OfDirections(w, begin, share, at.offset, count * at.rows * at.columns);
    return w_.Reshape(flat, {directions_, count * at.rows, at.columns});
  }
  // Biases of the gates from `id` on, [D, G*H]; absent where there are none.
  TensorId Biases(TensorId w, int64_t layer, int64_t id) {
    const int64_t pl = layer * directions_;
    const auto place = [&](int64_t of, int64_t which) {
      return graph::RnnBiasPlace(a_, input_, of, which).offset;
    };
    if (place(pl, id) < 0) return kAbsent;
    const int64_t head = place(pl, 0) < 0 ? gates_ : 0, begin = place(pl, head);
    const int64_t share = directions_ == 1 ? 0 : place(pl + 1, head) - begin;
    return OfDirections(w, begin, share, place(pl, id), gates_ * a_.hidden);
  }
  bool HasInputMatrices(int64_t layer) const { return !a_.skip_input || layer > 0; }

  // Of [L*D,B,width], the layer's.
  TensorId StatesOf(TensorId states, int64_t layer) {
    if (states == kAbsent || a_.layers == 1) return states;
    Dims dims = g_[states].dims;
    dims[0] = directions_;
    return w_.Slice(states, {layer * directions_, 0, 0}, std::move(dims));
  }

  // ---- ends of sequences ----
  // At most T: what lies behind is nowhere.
  TensorId Lengths(Dims dims) {
    const TensorId most = index_.Number(static_cast<double>(e_.steps), kLaunchNumberUid);
    return index_.Map(ScalarOp::kMin, {index_.Reshape(lengths_, std::move(dims)), most});
  }
  // t + ahead < length, [T,B,1].
  TensorId IsInside(int64_t ahead) {
    TensorId time = index_.Iota(0, {e_.steps, 1, 1});
    if (ahead != 0) time = index_.Add(time, index_.Number(static_cast<double>(ahead)));
    const TensorId end = lengths_ == kAbsent
                             ? index_.Number(static_cast<double>(e_.steps), kLaunchNumberUid)
                             : Lengths({1, e_.batch, 1});
    return index_.Map(ScalarOp::kLt, {time, end});
  }
  // x [T,B,width], 0 behind the ends: an operand may hold anything there.
  TensorId Inside(TensorId x) {
    if (lengths_ == kAbsent || e_.packed) return x;
    return w_.Round(w_.Select(IsInside(0), x, w_.Number(0)), type_);
  }
  TensorId PadData(TensorId y) {
    if (lengths_ == kAbsent || e_.packed || a_.padding == 0) return y;
    return w_.Select(IsInside(0), y, w_.Number(a_.padding));
  }
  TensorId PadStates(TensorId states) {
    if (lengths_ == kAbsent || a_.padding == 0) return states;
    const TensorId any = index_.Map(ScalarOp::kGt, {Lengths({1, e_.batch, 1}), index_.Number(0)});
    return w_.Select(any, states, w_.Number(a_.padding));
  }
  bool Pads() const { return lengths_ != kAbsent && a_.padding != 0; }

  // ---- packed data ----
  // The first row of each step, [T,1].
  TensorId FirstRows() {
    const TensorId length = index_.Map(ScalarOp::kMax, {Lengths({1, e_.batch}), index_.Number(0)});
    const TensorId before = index_.Map(ScalarOp::kMin, {length, index_.Iota(0, {e_.steps, 1})});
    return index_.Reduce(Combine::kAdd, before, {e_.steps, 1});
  }
  // x as [T,B,width], row-major; packed rows at their places, 0 elsewhere.
  TensorId Spread(TensorId x) {
    const int64_t width = g_[x].dims.back();
    if (!e_.packed) {
      const bool is_row_major = g_[x].strides == PackedStrides(g_[x].dims);
      return is_row_major ? x : w_.SliceFront(x, g_[x].dims);
    }
    const TensorId row = index_.Add(FirstRows(), index_.Iota(1, {1, e_.batch}));
    const TensorId inside =
        index_.Map(ScalarOp::kLt, {index_.Iota(0, {e_.steps, 1}), Lengths({1, e_.batch})});
    const TensorId place = index_.Select(inside, row, index_.Number(-1));
    const TensorId gathered = w_.Gather(x, index_.Reshape(place, {rows(), 1}), 0, {rows(), width});
    return w_.Reshape(gathered, {e_.steps, e_.batch, width});
  }
  // y [T,B,width] to the result `to`, padded or packed.
  void Store(TensorId y, TensorId to) {
    const int64_t width = g_[to].dims.back();
    if (!e_.packed) return w_.Write(PadData(y), to);
    const Dims all = {memory_rows_, e_.steps};
    const TensorId first = index_.Reshape(FirstRows(), {1, e_.steps});
    const TensorId own = index_.Iota(0, {memory_rows_, 1});
    const TensorId begun = index_.Map(ScalarOp::kLe, {first, own});
    const TensorId zero = index_.Number(0), one = index_.Number(1);
    const TensorId steps =
        index_.Reduce(Combine::kAdd, index_.Select(begun, one, zero), {memory_rows_, 1});
    const TensorId begin =
        index_.Reduce(Combine::kMax, index_.Select(begun, first, zero), {memory_rows_, 1});
    const TensorId batch = index_.Number(static_cast<double>(e_.batch), kLaunchNumberUid);
    const TensorId row =
        index_.Add(index_.Mul(index_.Sub(steps, one), batch), index_.Sub(own, begin));
    w_.Write(w_.Gather(w_.Reshape(y, {rows(), width}), row, 0, {memory_rows_, width}), to);
  }

  // States of all layers, [D,B,width] each.
  void StoreStates(const std::vector<TensorId>& states, TensorId to) {
    if (to == kAbsent || states[0] == to) return;
    w_.Write(PadStates(Concat(states, 0)), to);
  }
  // Where a layer's states go: straight to the result where they are all of it.
  TensorId StateResult(TensorId to, int64_t width) {
    if (to == kAbsent || (a_.layers == 1 && !Pads())) return to;
    return NewVirtual("state", type_, {directions_, e_.batch, width});
  }

  // A layer's y with dropout, the next layer's input: [T,B,D*P].
  TensorId Dropped(TensorId y, TensorId mask) {
    if (mask == kAbsent) return y;
    return w_.Round(w_.Mul(y, Scaled(mask)), type_);
  }
  TensorId Scaled(TensorId mask) {
    const double scale = a_.dropout < 1 ? 1 / (1 - a_.dropout) : 0;
    return w_.Mul(mask, w_.Number(scale));
  }

  Graph& g_;
  const RnnAttrs a_;
  const DType type_;
  PrimitiveWriter w_, index_;
  TensorId lengths_;
  graph::RnnExtents e_;
  int64_t memory_rows_, directions_, gates_;
  int64_t input_ = 0;     // width of the first layer's
  TensorId name_of_ = 0;  // a result, after which intermediates are called

 private:
  TensorId ConcatOf(std::vector<TensorId> parts, int64_t axis) {
    Dims dims = g_[parts[0]].dims;
    for (size_t i = 1; i < parts.size(); ++i) dims[axis] += g_[parts[i]].dims[axis];
    const TensorId y = NewVirtual("concat", g_[parts[0]].dtype, std::move(dims));
    g_.AddNode({.op = GraphOp::kConcat,
                .inputs = std::move(parts),
                .outputs = {y},
                .compute = MovingType(g_[y].dtype),
                .attrs = graph::ConcatAttrs{.axis = axis},
                .name = ""});
    return y;
  }
};

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

// Parts of reserve and gradients, as what reads them sees them.
class BackwardWriter : protected RnnWriter {
 public:
  using RnnWriter::RnnWriter;

 protected:
  TensorId Kept(TensorId reserve, int64_t offset, int64_t width) {
    return Part(reserve, offset, {e_.steps, e_.batch, directions_, width});
  }
  TensorId LayerData(TensorId reserve, int64_t offset) {
    return offset < 0 ? kAbsent : Part(reserve, offset, {e_.steps, e_.batch, y_width()});
  }
  graph::RnnReservePlaces ReserveOf(int64_t layer) const {
    return graph::RnnReserveOf(a_, e_.steps, e_.batch, layer);
  }
  graph::RnnGradientPlaces GradientsOf(int64_t layer) const {
    return graph::RnnGradientsOf(a_, e_.steps, e_.batch, layer);
  }
  // Blocks `first` .. of dgates [T,B,D,blocks*H], as rows [T*B, D*count*H].
  TensorId Blocks(TensorId dgates, int64_t first, int64_t count) {
    if (count != graph::BlocksOf(a_.cell).gradients)
      dgates = w_.Slice(dgates, {0, 0, 0, first * a_.hidden},
                        {e_.steps, e_.batch, directions_, count * a_.hidden});
    return w_.Reshape(dgates, {1, rows(), directions_ * count * a_.hidden});
  }
};

class DataGradientWriter : private BackwardWriter {
  using In = graph::rnn_backward_data::Input;
  using Out = graph::rnn_backward_data::Output;

 public:
  DataGradientWriter(Graph& g, const Node& node)
      : BackwardWriter(g, node, node.inputs[In::kY], OperandOr(node.inputs, In::kLengths)),
        node_(node) {
    name_of_ = node.outputs[Out::kDx];
    input_ = g[name_of_].dims.back();
  }

  void Write() {
    const TensorId reserve = Operand(In::kReserve);
    const int64_t layers = a_.layers;
    std::vector<TensorId> gradients(static_cast<size_t>(layers)), projected, dhx, dcx;
    std::vector<std::vector<TensorId>> parts(static_cast<size_t>(layers));
    dhx.resize(static_cast<size_t>(layers), kAbsent);
    dcx = dhx;
    TensorId dy = Spread(Operand(In::kDy));
    for (int64_t l = layers - 1; l >= 0; --l) {
      dhx[l] = StateResult(Result(Out::kDhx), a_.projected);
      dcx[l] = StateResult(Result(Out::kDcx), a_.hidden);
      const TensorId dgates = Loop(dy, l, dhx[l], dcx[l], parts[l]);
      dy = InputGradient(dgates, l);
      if (l == 0) break;
      if (const TensorId mask = LayerData(reserve, ReserveOf(l - 1).mask); mask != kAbsent)
        dy = w_.Mul(dy, w_.Reshape(Scaled(mask), g_[dy].dims));
      dy = w_.Reshape(w_.Round(dy, type_), {e_.steps, e_.batch, y_width()});
    }
    // Rounded as the product has it, which writes it so.
    if (!e_.packed && !Pads()) dy = w_.Round(dy, type_);
    Store(w_.Reshape(dy, {e_.steps, e_.batch, input_}), Result(Out::kDx));
    StoreStates(dhx, Result(Out::kDhx));
    StoreStates(dcx, Result(Out::kDcx));
    std::vector<TensorId> all;
    for (const std::vector<TensorId>& of_layer : parts)
      for (const TensorId part : of_layer) all.push_back(Flat(part));
    w_.Write(Concat(std::move(all), 0), Result(Out::kGradients));
  }

 private:
  TensorId Operand(size_t i) const { return OperandOr(node_.inputs, i); }
  TensorId Result(size_t i) const { return OperandOr(node_.outputs, i); }

  TensorId Loop(TensorId dy, int64_t layer, TensorId dhx, TensorId dcx,
                std::vector<TensorId>& parts) {
    const TensorId w = Operand(In::kW), reserve = Operand(In::kReserve);
    const graph::RnnReservePlaces at = ReserveOf(layer);
    const auto [gates, kept, gradients] = graph::BlocksOf(a_.cell);
    const bool is_projected = graph::IsProjected(a_);
    parts.push_back(
        NewVirtual("dgates", type_, {e_.steps, e_.batch, directions_, gradients * a_.hidden}));
    const TensorId dgates = parts.back();
    TensorId dprojected = kAbsent;
    if (is_projected) {
      dprojected = NewVirtual("dprojected", type_, {e_.steps, e_.batch, directions_, a_.projected});
      parts.push_back(dprojected);
    }
    const TensorId y = at.y >= 0 ? LayerData(reserve, at.y) : Spread(Operand(In::kY));
    const TensorId r = Matrices(w, layer, gates_, gates_),
                   kept_gates = Kept(reserve, at.gates, kept * a_.hidden),
                   cells = at.cells < 0 ? kAbsent : Kept(reserve, at.cells, a_.hidden),
                   hx = StatesOf(Operand(In::kHx), layer), cx = StatesOf(Operand(In::kCx), layer),
                   dhy = StatesOf(Operand(In::kDhy), layer),
                   dcy = StatesOf(Operand(In::kDcy), layer),
                   projection = is_projected ? Matrices(w, layer, 2 * gates_, 1) : kAbsent;
    g_.AddNode({.op = GraphOp::kRecurrenceGrad,
                .inputs = {dy, r, kept_gates, y, cells, hx, cx, dhy, dcy, projection, lengths_},
                .outputs = {dgates, dhx, dcx, dprojected},
                .compute = node_.compute,
                .attrs = graph::LoopAttrs(a_),
                .name = node_.name});
    return dgates;
  }

  // [1, T*B, width] in the compute type.
  TensorId InputGradient(TensorId dgates, int64_t layer) {
    const TensorId blocks = Blocks(dgates, 0, gates_);
    if (!HasInputMatrices(layer)) {
      const TensorId copies = w_.Reshape(blocks, {rows(), directions_ * gates_, a_.hidden});
      return w_.Reshape(w_.Reduce(Combine::kAdd, copies, {rows(), 1, a_.hidden}),
                        {1, rows(), a_.hidden});
    }
    const int64_t width = graph::LayerInput(a_, input_, layer);
    return w_.Matmul(
        blocks, w_.Reshape(Matrices(Operand(In::kW), layer, 0, gates_), {1, columns(), width}));
  }

  const Node& node_;
};

class WeightGradientWriter : private BackwardWriter {
  using In = graph::rnn_backward_weights::Input;

 public:
  WeightGradientWriter(Graph& g, const Node& node)
      : BackwardWriter(g, node, node.inputs[In::kX], OperandOr(node.inputs, In::kLengths)),
        node_(node) {
    name_of_ = node.outputs[0];
    input_ = e_.width;
  }

  void Write() {
    std::vector<TensorId> biases;
    TensorId x = Inside(Spread(Operand(In::kX)));
    for (int64_t l = 0; l < a_.layers; ++l) {
      const graph::RnnReservePlaces at = ReserveOf(l);
      const TensorId reserve = Operand(In::kReserve);
      const TensorId y = at.y >= 0 ? LayerData(reserve, at.y) : Spread(Operand(In::kY));
      dgates_ = Kept(Operand(In::kGradients), GradientsOf(l).dgates,
                     graph::BlocksOf(a_.cell).gradients * a_.hidden);
      Matrices(l, x, y);
      if (graph::HasInputBias(a_) || graph::HasRecurrentBias(a_)) Biases(biases);
      if (l + 1 < a_.layers) x = Dropped(y, LayerData(reserve, at.mask));
    }
    if (!biases.empty()) Append(Concat(std::move(biases), 0));
    w_.Write(Concat(std::move(parts_), 0), node_.outputs[0]);
  }

 private:
  TensorId Operand(size_t i) const { return OperandOr(node_.inputs, i); }

  // Blocks of dgates times x [1, T*B, width], transposed: [1, D*count*H, width].
  TensorId Product(TensorId rows_of_gates, TensorId x) {
    return w_.Matmul(w_.Transpose(rows_of_gates, {0, 2, 1}), x);
  }
  // Direction d's share of [1, 1, D*columns], flat.
  TensorId Share(TensorId of_all, int64_t d) {
    if (directions_ == 1) return Flat(of_all);
    const int64_t columns = g_[of_all].dims[2] / directions_;
    return Flat(w_.Slice(of_all, {0, 0, d * columns}, {1, 1, columns}));
  }

  // The next elements of dw: added to what was there before and rounded as the product has them,
  // so that it may write them where they belong.
  void Append(TensorId gradient) {
    const Dims dims = g_[gradient].dims;
    if (const TensorId before = Operand(In::kBefore); before != kAbsent)
      gradient = w_.Add(gradient, Part(before, appended_, dims));
    appended_ += NumElements(dims);
    parts_.push_back(Flat(w_.Round(gradient, type_)));
  }

  void Matrices(int64_t layer, TensorId x, TensorId y) {
    // A GRU's new gate has its own gradient of the state, its last block.
    const bool is_gru = a_.cell == RnnCell::kGru;
    for (int64_t d = 0; d < directions_; ++d) {
      if (HasInputMatrices(layer))
        Append(Product(DirectionOf(d, 0, gates_),
                       w_.Reshape(x, {1, rows(), graph::LayerInput(a_, input_, layer)})));
      const TensorId before = w_.Reshape(StateBefore(y, layer, d), {1, rows(), a_.projected});
      Append(Product(DirectionOf(d, 0, is_gru ? 2 : gates_), before));
      if (is_gru) Append(Product(DirectionOf(d, 3, 1), before));
      if (!graph::IsProjected(a_)) continue;
      const TensorId gradient =
          Kept(Operand(In::kGradients), GradientsOf(layer).dprojected, a_.projected);
      const TensorId hidden = Kept(Operand(In::kReserve), ReserveOf(layer).hidden, a_.hidden);
      Append(Product(OneDirection(gradient, d), OneDirection(hidden, d)));
    }
  }

  // Direction d of [T,B,D,width], as rows.
  TensorId OneDirection(TensorId x, int64_t d) {
    const int64_t width = g_[x].dims[3];
    if (directions_ > 1) x = w_.Slice(x, {0, 0, d, 0}, {e_.steps, e_.batch, 1, width});
    return w_.Reshape(x, {1, rows(), width});
  }
  TensorId DirectionOf(int64_t d, int64_t block, int64_t count) {
    const TensorId part =
        w_.Slice(dgates_, {0, 0, d, block * a_.hidden}, {e_.steps, e_.batch, 1, count * a_.hidden});
    return w_.Reshape(part, {1, rows(), count * a_.hidden});
  }

  // The state of direction d before each step, [T,B,P]: y one step away, or hx.
  TensorId StateBefore(TensorId y, int64_t layer, int64_t d) {
    const Dims dims = {e_.steps, e_.batch, a_.projected};
    const TensorId own = directions_ == 1 ? y : w_.Slice(y, {0, 0, d * a_.projected}, dims);
    const TensorId time = index_.Iota(0, {e_.steps, 1, 1});
    const TensorId from = index_.Add(time, index_.Number(d == 0 ? -1 : 1));
    const TensorId away = w_.Gather(own, from, 0, dims);
    TensorId first = w_.Number(0);
    if (const TensorId hx = StatesOf(Operand(In::kHx), layer); hx != kAbsent) {
      first = directions_ == 1 ? hx : w_.Slice(hx, {d, 0, 0}, {1, e_.batch, a_.projected});
    }
    const TensorId has_before =
        d == 0 ? index_.Map(ScalarOp::kGt, {time, index_.Number(0)}) : IsInside(1);
    TensorId state = w_.Select(has_before, away, first);
    if (lengths_ != kAbsent) state = w_.Select(IsInside(0), state, w_.Number(0));
    return w_.Round(state, type_);
  }

  void Biases(std::vector<TensorId>& parts) {
    const auto sums = [&](int64_t first, int64_t count) {
      return w_.Reduce(Combine::kAdd, Blocks(dgates_, first, count),
                       {1, 1, directions_ * count * a_.hidden});
    };
    const bool is_gru = a_.cell == RnnCell::kGru;
    const TensorId all = sums(0, gates_), last = is_gru ? sums(3, 1) : kAbsent;
    for (int64_t d = 0; d < directions_; ++d) {
      if (graph::HasInputBias(a_)) parts.push_back(Share(all, d));
      if (!graph::HasRecurrentBias(a_)) continue;
      if (!is_gru) {
        parts.push_back(Share(all, d));
        continue;
      }
      const TensorId front = Share(all, d);
      parts.push_back(w_.Slice(front, {0}, {2 * a_.hidden}));
      parts.push_back(Share(last, d));
    }
  }

  const Node& node_;
  TensorId dgates_ = kAbsent;    // of the layer, [T,B,D,blocks*H]
  std::vector<TensorId> parts_;  // of dw, one behind the other
  int64_t appended_ = 0;         // elements of them
};

}  // namespace

void DecomposeRnnForward(Graph& g, const Node& node) { ForwardWriter(g, node).Write(); }
void DecomposeRnnBackwardData(Graph& g, const Node& node) { DataGradientWriter(g, node).Write(); }
void DecomposeRnnBackwardWeights(Graph& g, const Node& node) {
  WeightGradientWriter(g, node).Write();
}

}  // namespace kiln::compiler
