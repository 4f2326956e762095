// The gradients of recurrent networks as primitives; decompose_rnn.cc says what becomes of them.
#include <array>
#include <initializer_list>
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
  WeightGradientWriter(Graph& g, const Node& node, const PassContext& context)
      : BackwardWriter(g, node, node.inputs[In::kX], OperandOr(node.inputs, In::kLengths)),
        node_(node),
        context_(context) {
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
    for (const TensorId bias : biases) Append(bias);
    w_.Write(Concat(std::move(parts_), 0), node_.outputs[0]);
  }

 private:
  TensorId Operand(size_t i) const { return OperandOr(node_.inputs, i); }

  // Blocks of dgates times x [1, T*B, width], transposed: [1, D*count*H, width].
  TensorId Product(TensorId rows_of_gates, TensorId x) {
    return w_.Matmul(w_.Transpose(rows_of_gates, {0, 2, 1}), x);
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

  // True if all products and the sums of biases may be one launch (contract_grouped_sm90): each is
  // one of its own then, of matrices that lie in memory.
  bool GroupsProducts() const {
    const Target& target = context_.target;
    return target.is_cuda() && target.sm_version == 90 && !target.minimal_launch &&
           SizeOf(type_) == 2 && lengths_ == kAbsent && e_.steps > 1;
  }

  // True if one product of x and the states, stored one behind the other, is both gradients of a
  // direction, which lie so in dw. In return x is copied beside the states.
  bool StacksProducts(int64_t layer) const {
    const Target& target = context_.target;
    if (!target.is_cuda() || target.minimal_launch || context_.choice.least_workspace ||
        !context_.stores_layouts || GroupsProducts())
      return false;
    const int64_t width = graph::LayerInput(a_, input_, layer);
    if (!HasInputMatrices(layer) || width != a_.projected || a_.cell == RnnCell::kGru) return false;
    // Tensor cores take operands of 4 bytes along the rows alone: gates are turned, then, for both.
    if (SizeOf(type_) > 2) return true;
    return IsSmall(rows() * width);
  }
  // A copy that stays in the L2 beside what else a product reads costs less than a launch.
  bool IsSmall(int64_t elements) const {
    constexpr int64_t kOfL2 = 16;
    return elements * SizeOf(type_) <= context_.target.l2_bytes / kOfL2;
  }
  // Both directions as one product: [2, count*H, width], of blocks of dgates [2, count*H, T*B] and
  // x [1 or 2, T*B, width].
  TensorId ProductOfBoth(int64_t block, int64_t count, TensorId x) {
    const TensorId part =
        w_.Slice(dgates_, {0, 0, 0, block * a_.hidden}, {e_.steps, e_.batch, 2, count * a_.hidden});
    return BothTransposed(part, count * a_.hidden, x);
  }
  TensorId BothTransposed(TensorId gradient, int64_t width, TensorId x) {
    const TensorId both = w_.Reshape(gradient, {rows(), 2, width});
    return w_.Matmul(w_.Transpose(both, {1, 2, 0}), x);
  }
  // Appends both directions, whose matrices lie by directions: [2, share], joined where dw is.
  void AppendBoth(const std::vector<TensorId>& gradients) {
    int64_t share = 0, begin = 0;
    for (const TensorId gradient : gradients) share += NumElements(g_[gradient].dims) / 2;
    TensorId before = Operand(In::kBefore);
    if (before != kAbsent) before = Part(before, appended_, {2, share});
    std::vector<TensorId> parts;
    for (TensorId gradient : gradients) {
      const Dims dims = g_[gradient].dims;
      const int64_t count = NumElements(dims) / 2;
      if (before != kAbsent)
        gradient = w_.Add(gradient, w_.Reshape(w_.Slice(before, {0, begin}, {2, count}), dims));
      parts.push_back(w_.Reshape(w_.Round(gradient, type_), {2, count}));
      begin += count;
    }
    appended_ += 2 * share;
    parts_.push_back(Flat(Concat(std::move(parts), 1)));
  }
  void MatricesOfBoth(int64_t layer, TensorId x, TensorId y) {
    const bool is_gru = a_.cell == RnnCell::kGru;
    const int64_t width = graph::LayerInput(a_, input_, layer);
    const TensorId before = w_.Reshape(
        Concat({StateBefore(y, layer, 0), StateBefore(y, layer, 1)}, 0), {2, rows(), a_.projected});
    std::vector<TensorId> gradients;
    if (HasInputMatrices(layer))
      gradients.push_back(ProductOfBoth(0, gates_, w_.Reshape(x, {1, rows(), width})));
    gradients.push_back(ProductOfBoth(0, is_gru ? 2 : gates_, before));
    if (is_gru) gradients.push_back(ProductOfBoth(3, 1, before));
    if (graph::IsProjected(a_)) {
      const TensorId gradient =
          Kept(Operand(In::kGradients), GradientsOf(layer).dprojected, a_.projected);
      const TensorId hidden = Kept(Operand(In::kReserve), ReserveOf(layer).hidden, a_.hidden);
      const TensorId both = w_.Reshape(hidden, {rows(), 2, a_.hidden});
      gradients.push_back(BothTransposed(gradient, a_.projected, w_.Transpose(both, {1, 0, 2})));
    }
    AppendBoth(gradients);
  }

  void Matrices(int64_t layer, TensorId x, TensorId y) {
    // Matrices of 4 bytes are turned for the tensor cores, once where products of x and states are
    // one.
    if (directions_ == 2 && SizeOf(type_) == 2 && !GroupsProducts())
      return MatricesOfBoth(layer, x, y);
    // A GRU's new gate has its own gradient of the state, its last block.
    const bool is_gru = a_.cell == RnnCell::kGru;
    const int64_t width = graph::LayerInput(a_, input_, layer);
    for (int64_t d = 0; d < directions_; ++d) {
      if (StacksProducts(layer)) {
        const TensorId before = w_.Reshape(StateBefore(y, layer, d), {1, rows(), a_.projected});
        const TensorId both = Concat({w_.Reshape(x, {1, rows(), width}), before}, 0);
        Append(Product(DirectionOf(d, 0, gates_), both));
      } else {
        if (HasInputMatrices(layer))
          Append(Product(DirectionOf(d, 0, gates_), w_.Reshape(x, {1, rows(), width})));
        if (is_gru)
          AppendProductsOfStates(y, layer, d, {{0, 2}, {3, 1}});
        else
          AppendProductsOfStates(y, layer, d, {{0, gates_}});
      }
      if (!graph::IsProjected(a_)) continue;
      const TensorId gradient =
          Kept(Operand(In::kGradients), GradientsOf(layer).dprojected, a_.projected);
      const TensorId hidden = Kept(Operand(In::kReserve), ReserveOf(layer).hidden, a_.hidden);
      Append(Product(OneDirection(gradient, d), OneDirection(hidden, d)));
    }
  }

  struct GateBlocks {
    int64_t first, count;
  };
  // Appends products of the states before each step. Where there are no initial ones the first step
  // has no part in sums whose operands are memory as it is.
  void AppendProductsOfStates(TensorId y, int64_t layer, int64_t d,
                              std::initializer_list<GateBlocks> all) {
    const bool leaves_first = GroupsProducts() && Operand(In::kHx) == kAbsent;
    const int64_t steps = leaves_first ? e_.steps - 1 : e_.steps;
    const TensorId states = leaves_first ? OthersOf(OwnStates(y, d), d) : StateBefore(y, layer, d);
    const TensorId before = w_.Reshape(states, {1, steps * e_.batch, a_.projected});
    for (const auto [first, count] : all) {
      if (!leaves_first) {
        Append(Product(DirectionOf(d, first, count), before));
        continue;
      }
      const TensorId gates = w_.Slice(dgates_, {d == 0 ? 1 : 0, 0, d, first * a_.hidden},
                                      {steps, e_.batch, 1, count * a_.hidden});
      Append(Product(w_.Reshape(gates, {1, steps * e_.batch, count * a_.hidden}), before));
    }
  }

  // Direction d of [T,B,D,width], as rows.
  TensorId OneDirection(TensorId x, int64_t d) {
    const int64_t width = g_[x].dims[3];
    if (directions_ > 1) x = w_.Slice(x, {0, 0, d, 0}, {e_.steps, e_.batch, 1, width});
    return w_.Reshape(x, {1, rows(), width});
  }
  // Blocks of a direction, one tensor for all: what is multiplied is summed for biases, too.
  TensorId DirectionOf(int64_t d, int64_t block, int64_t count) {
    TensorId& known = of_direction_.try_emplace({dgates_, d, block, count}, kAbsent).first->second;
    if (known != kAbsent) return known;
    const TensorId part =
        w_.Slice(dgates_, {0, 0, d, block * a_.hidden}, {e_.steps, e_.batch, 1, count * a_.hidden});
    return known = w_.Reshape(part, {1, rows(), count * a_.hidden});
  }

  TensorId InitialOf(TensorId hx, int64_t d) {
    return directions_ == 1 ? hx : w_.Slice(hx, {d, 0, 0}, {1, e_.batch, a_.projected});
  }
  // States before each step as whole pieces of memory, 16 bits copied two at a time, for sequences
  // of one length. (An H200, TF32 T 50 B 64 H 512: 98 us with the select below, 109 so.)
  TensorId MovedStates(TensorId y, TensorId hx, int64_t d) {
    const TensorId first = w_.Round(InitialOf(hx, d), type_);
    if (e_.steps == 1) return first;
    const TensorId others = OthersOf(y, d);
    return d == 0 ? Concat({first, others}, 0) : Concat({others, first}, 0);
  }
  // The states that another step follows.
  TensorId OthersOf(TensorId y, int64_t d) {
    return w_.Slice(y, {d == 0 ? 0 : 1, 0, 0}, {e_.steps - 1, e_.batch, a_.projected});
  }
  TensorId OwnStates(TensorId y, int64_t d) {
    if (directions_ == 1) return y;
    return w_.Slice(y, {0, 0, d * a_.projected}, {e_.steps, e_.batch, a_.projected});
  }
  // The state of direction d before each step, [T,B,P]: y one step away, or hx.
  TensorId StateBefore(TensorId y, int64_t layer, int64_t d) {
    const Dims dims = {e_.steps, e_.batch, a_.projected};
    const TensorId own = OwnStates(y, d);
    const TensorId initial = StatesOf(Operand(In::kHx), layer);
    if (lengths_ == kAbsent && initial != kAbsent && SizeOf(type_) == 2)
      return MovedStates(own, initial, d);
    const TensorId time = index_.Iota(0, {e_.steps, 1, 1});
    const TensorId from = index_.Add(time, index_.Number(d == 0 ? -1 : 1));
    const TensorId away = w_.Gather(own, from, 0, dims);
    TensorId first = w_.Number(0);
    if (initial != kAbsent) first = InitialOf(initial, d);
    const TensorId has_before =
        d == 0 ? index_.Map(ScalarOp::kGt, {time, index_.Number(0)}) : IsInside(1);
    TensorId state = w_.Select(has_before, away, first);
    if (lengths_ != kAbsent) state = w_.Select(IsInside(0), state, w_.Number(0));
    return w_.Round(state, type_);
  }

  // Sums of the rows of dgates: each a result of its own, so that what was there before is added
  // where they are summed. A GRU's are by blocks, of which both biases have two in common; or by
  // product, where that sums them.
  void Biases(std::vector<TensorId>& parts) {
    const bool is_gru = a_.cell == RnnCell::kGru;
    for (int64_t d = 0; d < directions_; ++d) {
      const auto sum = [&](int64_t first, int64_t count) {
        return w_.Reduce(Combine::kAdd, DirectionOf(d, first, count), {1, 1, count * a_.hidden});
      };
      std::vector<TensorId> input, recurrent;
      if (is_gru && GroupsProducts()) {
        input = {sum(0, gates_)};
        recurrent = {sum(0, 2), sum(3, 1)};
      } else if (is_gru) {
        for (int64_t block = 0; block < gates_; ++block) input.push_back(sum(block, 1));
        recurrent = {input[0], input[1], sum(gates_, 1)};
      } else {
        input = {sum(0, gates_)};
        recurrent = input;
      }
      if (graph::HasInputBias(a_)) parts.insert(parts.end(), input.begin(), input.end());
      if (graph::HasRecurrentBias(a_))
        parts.insert(parts.end(), recurrent.begin(), recurrent.end());
    }
  }

  const Node& node_;
  const PassContext& context_;
  TensorId dgates_ = kAbsent;  // of the layer, [T,B,D,blocks*H]
  std::map<std::array<int64_t, 4>, TensorId> of_direction_;
  std::vector<TensorId> parts_;  // of dw, one behind the other
  int64_t appended_ = 0;         // elements of them
};

}  // namespace

void DecomposeRnnBackwardData(graph::Graph& g, const graph::Node& node) {
  DataGradientWriter(g, node).Write();
}
void DecomposeRnnBackwardWeights(graph::Graph& g, const graph::Node& node,
                                 const PassContext& context) {
  WeightGradientWriter(g, node, context).Write();
}

}  // namespace kiln::compiler
