// The gradients of recurrent networks as primitives; decompose_rnn.cc says what becomes of them.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <iterator>
#include <map>

#include "compiler/module.h"
#include "compiler/passes/rnn_writer.h"
#include "ir/graph/sdpa.h"

namespace kiln::compiler {
namespace {

using graph::Combine;
using graph::Graph;
using graph::GraphOp;
using graph::kAbsent;
using graph::Node;
using graph::OperandOr;
using graph::RnnCell;
using graph::TensorId;

// Parts of reserve and gradients, as what reads them sees them.
class BackwardWriter : public RnnWriter {
 public:
  using RnnWriter::RnnWriter;

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

// ---- the gradient of the weights

using Weights = graph::rnn_backward_weights::Input;

class WeightWriter : public BackwardWriter {
 public:
  WeightWriter(Graph& g, const Node& node)
      : BackwardWriter(g, node, node.inputs[Weights::kX],
                       OperandOr(node.inputs, Weights::kLengths)) {
    name_of_ = node.outputs[0];
    input_ = e_.width;
  }
};

// The operation whose gradient is written, and where.
struct WeightGradient {
  WeightWriter& r;
  const Node& node;
  const PassContext& context;

  TensorId Operand(size_t i) const { return OperandOr(node.inputs, i); }
  PrimitiveWriter& w() const { return r.w(); }
  const graph::RnnAttrs& a() const { return r.a(); }
  const graph::RnnExtents& e() const { return r.e(); }
};

// dw: its parts, one behind the other, and how many elements they have.
struct GradientParts {
  std::vector<TensorId> parts;
  int64_t elements = 0;
};

// A layer's operands: its place, input and result, and dgates [T,B,D,blocks*H]. The rows of a
// direction's gates are the same each time they are asked for: what is multiplied is summed for
// biases, too.
struct LayerOperands {
  int64_t layer;
  TensorId x, y, dgates;
  std::map<std::array<int64_t, 3>, TensorId> rows_of = {};  // by direction, block and count
};

struct GateBlocks {
  int64_t first, count;
};

// Whether all products and the sums of biases may be one launch (contract_grouped_sm90): each is
// one of its own then, of matrices that lie in memory.
bool GroupsProducts(WeightGradient of) {
  const Target& target = of.context.target;
  return target.is_cuda() && target.sm_version == 90 && !target.minimal_launch &&
         SizeOf(of.r.type()) == 2 && of.r.lengths() == kAbsent && of.e().steps > 1;
}

// A copy that stays in the L2 beside what else a product reads costs less than a launch.
bool IsSmall(WeightGradient of, int64_t elements) {
  constexpr int64_t kOfL2 = 16;
  return elements * SizeOf(of.r.type()) <= of.context.target.l2_bytes / kOfL2;
}

// Whether one product of x and the states, stored one behind the other, is both gradients of a
// direction, which lie so in dw. In return x is copied beside the states.
bool StacksProducts(WeightGradient of, int64_t layer) {
  const Target& target = of.context.target;
  if (!target.is_cuda() || target.minimal_launch || of.context.choice.least_workspace ||
      !of.context.stores_layouts || GroupsProducts(of))
    return false;
  const int64_t width = graph::LayerInput(of.a(), of.r.input(), layer);
  if (!of.r.HasInputMatrices(layer) || width != of.a().projected || of.a().cell == RnnCell::kGru)
    return false;
  // Tensor cores take operands of 4 bytes along the rows alone: gates are turned, then, for both.
  if (SizeOf(of.r.type()) > 2) return true;
  return IsSmall(of, of.r.rows() * width);
}

// ---- states before each step

TensorId InitialOf(WeightGradient of, TensorId hx, int64_t d) {
  return of.r.directions() == 1 ? hx
                                : of.w().Slice(hx, {d, 0, 0}, {1, of.e().batch, of.a().projected});
}
// The states that another step follows.
TensorId OthersOf(WeightGradient of, TensorId y, int64_t d) {
  return of.w().Slice(y, {d == 0 ? 0 : 1, 0, 0},
                      {of.e().steps - 1, of.e().batch, of.a().projected});
}
// Where all sequences are as long, states are whole pieces of memory, of which 16 bits are copied
// two elements at a time. (An H200, TF32 T 50 B 64 H 512: 98 us with the select below, 109 so.)
TensorId MovedStates(WeightGradient of, TensorId y, TensorId hx, int64_t d) {
  const TensorId first = of.w().Round(InitialOf(of, hx, d), of.r.type());
  if (of.e().steps == 1) return first;
  const TensorId others = OthersOf(of, y, d);
  return d == 0 ? of.r.Concat({first, others}, 0) : of.r.Concat({others, first}, 0);
}
TensorId OwnStates(WeightGradient of, TensorId y, int64_t d) {
  if (of.r.directions() == 1) return y;
  const int64_t width = of.a().projected;
  return of.w().Slice(y, {0, 0, d * width}, {of.e().steps, of.e().batch, width});
}
// The state of direction d before each step, [T,B,P]: y one step away, or hx.
TensorId StateBefore(WeightGradient of, TensorId y, int64_t layer, int64_t d) {
  const Dims dims = {of.e().steps, of.e().batch, of.a().projected};
  const TensorId own = OwnStates(of, y, d);
  const TensorId initial = of.r.StatesOf(of.Operand(Weights::kHx), layer);
  const TensorId lengths = of.r.lengths();
  if (lengths == kAbsent && initial != kAbsent && SizeOf(of.r.type()) == 2)
    return MovedStates(of, own, initial, d);
  PrimitiveWriter &w = of.w(), &index = of.r.index();
  const TensorId time = index.Iota(0, {of.e().steps, 1, 1});
  const TensorId from = index.Add(time, index.Number(d == 0 ? -1 : 1));
  const TensorId away = w.Gather(own, from, 0, dims);
  TensorId first = w.Number(0);
  if (initial != kAbsent) first = InitialOf(of, initial, d);
  const TensorId has_before =
      d == 0 ? index.Map(ScalarOp::kGt, {time, index.Number(0)}) : of.r.IsInside(1);
  TensorId state = w.Select(has_before, away, first);
  if (lengths != kAbsent) state = w.Select(of.r.IsInside(0), state, w.Number(0));
  return w.Round(state, of.r.type());
}

// ---- products of one direction

// Blocks of dgates times x [1, T*B, width], transposed: [1, D*count*H, width].
TensorId Product(WeightGradient of, TensorId rows_of_gates, TensorId x) {
  return of.w().Matmul(of.w().Transpose(rows_of_gates, {0, 2, 1}), x);
}

// The next elements of dw: added to what was there before and rounded as the product has them, so
// that it may write them where they belong.
void Append(WeightGradient of, TensorId gradient, GradientParts& dw) {
  const Dims dims = of.r.g()[gradient].dims;
  if (const TensorId before = of.Operand(Weights::kBefore); before != kAbsent)
    gradient = of.w().Add(gradient, of.r.Part(before, dw.elements, dims));
  dw.elements += NumElements(dims);
  dw.parts.push_back(of.r.Flat(of.w().Round(gradient, of.r.type())));
}

// Direction d of [T,B,D,width], as rows.
TensorId OneDirection(WeightGradient of, TensorId x, int64_t d) {
  const int64_t width = of.r.g()[x].dims[3];
  if (of.r.directions() > 1)
    x = of.w().Slice(x, {0, 0, d, 0}, {of.e().steps, of.e().batch, 1, width});
  return of.w().Reshape(x, {1, of.r.rows(), width});
}

TensorId DirectionOf(WeightGradient of, LayerOperands& l, int64_t d, GateBlocks blocks) {
  const int64_t hidden = of.a().hidden, width = blocks.count * hidden;
  TensorId& known = l.rows_of.try_emplace({d, blocks.first, blocks.count}, kAbsent).first->second;
  if (known != kAbsent) return known;
  const TensorId part = of.w().Slice(l.dgates, {0, 0, d, blocks.first * hidden},
                                     {of.e().steps, of.e().batch, 1, width});
  return known = of.w().Reshape(part, {1, of.r.rows(), width});
}

// Products with the states before each step. Where there are no initial ones the first step has no
// part in sums whose operands are memory as it is.
void AppendProductsOfStates(WeightGradient of, LayerOperands& l, int64_t d,
                            std::initializer_list<GateBlocks> all, GradientParts& dw) {
  const bool leaves_first = GroupsProducts(of) && of.Operand(Weights::kHx) == kAbsent;
  const int64_t steps = leaves_first ? of.e().steps - 1 : of.e().steps;
  const int64_t batch = of.e().batch, hidden = of.a().hidden;
  const TensorId states =
      leaves_first ? OthersOf(of, OwnStates(of, l.y, d), d) : StateBefore(of, l.y, l.layer, d);
  const TensorId before = of.w().Reshape(states, {1, steps * batch, of.a().projected});
  for (const GateBlocks blocks : all) {
    if (!leaves_first) {
      Append(of, Product(of, DirectionOf(of, l, d, blocks), before), dw);
      continue;
    }
    const TensorId gates = of.w().Slice(l.dgates, {d == 0 ? 1 : 0, 0, d, blocks.first * hidden},
                                        {steps, batch, 1, blocks.count * hidden});
    const TensorId rows = of.w().Reshape(gates, {1, steps * batch, blocks.count * hidden});
    Append(of, Product(of, rows, before), dw);
  }
}

// ---- products of both directions

TensorId BothTransposed(WeightGradient of, TensorId gradient, int64_t width, TensorId x) {
  const TensorId both = of.w().Reshape(gradient, {of.r.rows(), 2, width});
  return of.w().Matmul(of.w().Transpose(both, {1, 2, 0}), x);
}
// Both directions as one product: [2, count*H, width], of blocks of dgates [2, count*H, T*B] and x
// [1 or 2, T*B, width].
TensorId ProductOfBoth(WeightGradient of, TensorId dgates, GateBlocks blocks, TensorId x) {
  const int64_t hidden = of.a().hidden, width = blocks.count * hidden;
  const TensorId part = of.w().Slice(dgates, {0, 0, 0, blocks.first * hidden},
                                     {of.e().steps, of.e().batch, 2, width});
  return BothTransposed(of, part, width, x);
}

// Gradients of both directions, whose matrices lie by directions: [2, share], put together where dw
// is.
void AppendBoth(WeightGradient of, const std::vector<TensorId>& gradients, GradientParts& dw) {
  const Graph& g = of.r.g();
  int64_t share = 0, begin = 0;
  for (const TensorId gradient : gradients) share += NumElements(g[gradient].dims) / 2;
  TensorId before = of.Operand(Weights::kBefore);
  if (before != kAbsent) before = of.r.Part(before, dw.elements, {2, share});
  std::vector<TensorId> parts;
  for (TensorId gradient : gradients) {
    const Dims dims = g[gradient].dims;
    const int64_t count = NumElements(dims) / 2;
    if (before != kAbsent)
      gradient =
          of.w().Add(gradient, of.w().Reshape(of.w().Slice(before, {0, begin}, {2, count}), dims));
    parts.push_back(of.w().Reshape(of.w().Round(gradient, of.r.type()), {2, count}));
    begin += count;
  }
  dw.elements += 2 * share;
  dw.parts.push_back(of.r.Flat(of.r.Concat(std::move(parts), 1)));
}

void MatricesOfBoth(WeightGradient of, const LayerOperands& l, GradientParts& dw) {
  const graph::RnnAttrs& a = of.a();
  const bool is_gru = a.cell == RnnCell::kGru;
  const int64_t width = graph::LayerInput(a, of.r.input(), l.layer), rows = of.r.rows();
  const TensorId before = of.w().Reshape(
      of.r.Concat({StateBefore(of, l.y, l.layer, 0), StateBefore(of, l.y, l.layer, 1)}, 0),
      {2, rows, a.projected});
  std::vector<TensorId> gradients;
  if (of.r.HasInputMatrices(l.layer))
    gradients.push_back(
        ProductOfBoth(of, l.dgates, {0, of.r.gates()}, of.w().Reshape(l.x, {1, rows, width})));
  gradients.push_back(ProductOfBoth(of, l.dgates, {0, is_gru ? 2 : of.r.gates()}, before));
  if (is_gru) gradients.push_back(ProductOfBoth(of, l.dgates, {3, 1}, before));
  if (graph::IsProjected(a)) {
    const TensorId gradient = of.r.Kept(of.Operand(Weights::kGradients),
                                        of.r.GradientsOf(l.layer).dprojected, a.projected);
    const TensorId hidden =
        of.r.Kept(of.Operand(Weights::kReserve), of.r.ReserveOf(l.layer).hidden, a.hidden);
    const TensorId both = of.w().Reshape(hidden, {rows, 2, a.hidden});
    gradients.push_back(
        BothTransposed(of, gradient, a.projected, of.w().Transpose(both, {1, 0, 2})));
  }
  AppendBoth(of, gradients, dw);
}

// ---- a layer

void MatricesOfDirection(WeightGradient of, LayerOperands& l, int64_t d, GradientParts& dw) {
  const graph::RnnAttrs& a = of.a();
  const int64_t width = graph::LayerInput(a, of.r.input(), l.layer), rows = of.r.rows();
  const GateBlocks all = {0, of.r.gates()};
  if (StacksProducts(of, l.layer)) {
    const TensorId before =
        of.w().Reshape(StateBefore(of, l.y, l.layer, d), {1, rows, a.projected});
    const TensorId both = of.r.Concat({of.w().Reshape(l.x, {1, rows, width}), before}, 0);
    Append(of, Product(of, DirectionOf(of, l, d, all), both), dw);
  } else {
    if (of.r.HasInputMatrices(l.layer))
      Append(of, Product(of, DirectionOf(of, l, d, all), of.w().Reshape(l.x, {1, rows, width})),
             dw);
    // A GRU's new gate has its own gradient of the state, its last block.
    if (a.cell == RnnCell::kGru)
      AppendProductsOfStates(of, l, d, {{0, 2}, {3, 1}}, dw);
    else
      AppendProductsOfStates(of, l, d, {all}, dw);
  }
  if (!graph::IsProjected(a)) return;
  const TensorId gradient =
      of.r.Kept(of.Operand(Weights::kGradients), of.r.GradientsOf(l.layer).dprojected, a.projected);
  const TensorId hidden =
      of.r.Kept(of.Operand(Weights::kReserve), of.r.ReserveOf(l.layer).hidden, a.hidden);
  Append(of, Product(of, OneDirection(of, gradient, d), OneDirection(of, hidden, d)), dw);
}

void Matrices(WeightGradient of, LayerOperands& l, GradientParts& dw) {
  // Matrices of 4 bytes are turned for the tensor cores, once where products of x and states are
  // one.
  if (of.r.directions() == 2 && SizeOf(of.r.type()) == 2 && !GroupsProducts(of))
    return MatricesOfBoth(of, l, dw);
  for (int64_t d = 0; d < of.r.directions(); ++d) MatricesOfDirection(of, l, d, dw);
}

// Sums of the rows of dgates: each a result of its own, so that what was there before is added
// where they are summed. A GRU's are by blocks, of which both biases have two in common; or by
// product, where that sums them.
std::vector<TensorId> BiasesOf(WeightGradient of, LayerOperands& l) {
  const bool is_gru = of.a().cell == RnnCell::kGru;
  const int64_t gates = of.r.gates();
  std::vector<TensorId> all;
  for (int64_t d = 0; d < of.r.directions(); ++d) {
    const auto sum = [&](int64_t first, int64_t count) {
      return of.w().Reduce(Combine::kAdd, DirectionOf(of, l, d, {first, count}),
                           {1, 1, count * of.a().hidden});
    };
    std::vector<TensorId> input, recurrent;
    if (is_gru && GroupsProducts(of)) {
      input = {sum(0, gates)};
      recurrent = {sum(0, 2), sum(3, 1)};
    } else if (is_gru) {
      for (int64_t block = 0; block < gates; ++block) input.push_back(sum(block, 1));
      recurrent = {input[0], input[1], sum(gates, 1)};
    } else {
      input = {sum(0, gates)};
      recurrent = input;
    }
    if (graph::HasInputBias(of.a())) all.insert(all.end(), input.begin(), input.end());
    if (graph::HasRecurrentBias(of.a())) all.insert(all.end(), recurrent.begin(), recurrent.end());
  }
  return all;
}

void WriteWeightGradient(WeightGradient of) {
  const graph::RnnAttrs& a = of.a();
  const TensorId reserve = of.Operand(Weights::kReserve);
  GradientParts dw;
  std::vector<TensorId> biases;
  TensorId x = of.r.Inside(of.r.Spread(of.Operand(Weights::kX)));
  for (int64_t layer = 0; layer < a.layers; ++layer) {
    const graph::RnnReservePlaces at = of.r.ReserveOf(layer);
    LayerOperands l{.layer = layer, .x = x, .y = kAbsent, .dgates = kAbsent};
    l.y = at.y >= 0 ? of.r.LayerData(reserve, at.y) : of.r.Spread(of.Operand(Weights::kY));
    l.dgates = of.r.Kept(of.Operand(Weights::kGradients), of.r.GradientsOf(layer).dgates,
                         graph::BlocksOf(a.cell).gradients * a.hidden);
    Matrices(of, l, dw);
    if (graph::HasInputBias(a) || graph::HasRecurrentBias(a))
      std::ranges::copy(BiasesOf(of, l), std::back_inserter(biases));
    if (layer + 1 < a.layers) x = of.r.Dropped(l.y, of.r.LayerData(reserve, at.mask));
  }
  for (const TensorId bias : biases) Append(of, bias, dw);
  of.w().Write(of.r.Concat(std::move(dw.parts), 0), of.node.outputs[0]);
}

}  // namespace

void DecomposeRnnBackwardData(graph::Graph& g, const graph::Node& node) {
  DataGradientWriter(g, node).Write();
}
void DecomposeRnnBackwardWeights(graph::Graph& g, const graph::Node& node,
                                 const PassContext& context) {
  WeightWriter writer(g, node);
  WriteWeightGradient({.r = writer, .node = node, .context = context});
}

}  // namespace kiln::compiler
