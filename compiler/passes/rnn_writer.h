// RnnWriter: the parts that the decompositions of the three operations of recurrent networks share
// (decompose_rnn.cc, decompose_rnn_backward.cc).
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/passes/decompose_parts.h"
#include "compiler/passes/primitive_writer.h"
#include "ir/graph/rnn.h"

namespace kiln::compiler {

// Writes extents, parts of rank-1 tensors and ends of sequences for all three operations.
class RnnWriter {
 public:
  RnnWriter(graph::Graph& g, const graph::Node& node, graph::TensorId data, graph::TensorId lengths)
      : g_(g),
        a_(node.As<graph::RnnAttrs>()),
        type_(g[data].dtype),
        w_(g, node.compute, g[node.outputs[0]].name),
        index_(g, DType::kI32, g[node.outputs[0]].name),
        lengths_(lengths),
        e_(graph::RnnExtentsOf(a_, g[data], lengths == graph::kAbsent ? nullptr : &g[lengths])),
        memory_rows_(e_.packed ? g[data].dims[0] : 0),
        directions_(graph::DirectionsOf(a_)),
        gates_(graph::BlocksOf(a_.cell).gates) {}

  graph::Graph& g() { return g_; }
  const graph::RnnAttrs& a() const { return a_; }
  DType type() const { return type_; }
  PrimitiveWriter& w() { return w_; }          // in the compute type
  PrimitiveWriter& index() { return index_; }  // of places
  graph::TensorId lengths() const { return lengths_; }
  const graph::RnnExtents& e() const { return e_; }
  int64_t directions() const { return directions_; }
  int64_t gates() const { return gates_; }
  int64_t input() const { return input_; }
  int64_t rows() const { return e_.steps * e_.batch; }
  int64_t columns() const { return directions_ * gates_ * a_.hidden; }
  int64_t y_width() const { return directions_ * a_.projected; }

  graph::TensorId NewVirtual(const char* suffix, DType type, Dims dims) {
    Dims strides = PackedStrides(dims);
    return g_.AddTensor({.name = fmt::format("{}_{}", g_[name_of_].name, suffix),
                         .dtype = type,
                         .dims = std::move(dims),
                         .strides = std::move(strides),
                         .is_virtual = true});
  }

  // Concatenates up to 16 parts at a time: a concat has a limit.
  graph::TensorId Concat(std::vector<graph::TensorId> parts, int64_t axis) {
    constexpr size_t kMost = 16;
    while (parts.size() > 1) {
      std::vector<graph::TensorId> joined;
      for (size_t i = 0; i < parts.size(); i += kMost) {
        const size_t end = std::min(i + kMost, parts.size());
        std::vector<graph::TensorId> some(parts.begin() + static_cast<ptrdiff_t>(i),
                                          parts.begin() + static_cast<ptrdiff_t>(end));
        joined.push_back(some.size() == 1 ? some[0] : ConcatOf(std::move(some), axis));
      }
      parts = std::move(joined);
    }
    return parts[0];
  }

  // ---- parts of rank-1 tensors ----
  graph::TensorId Part(graph::TensorId flat, int64_t offset, Dims dims) {
    const int64_t count = NumElements(dims);
    const bool all = offset == 0 && count == g_[flat].dims[0];
    const graph::TensorId part = all ? flat : w_.Slice(flat, {offset}, {count});
    return w_.Reshape(part, std::move(dims));
  }
  graph::TensorId Flat(graph::TensorId x) { return w_.Reshape(x, {NumElements(g_[x].dims)}); }

  // The elements that begin at `first` of direction 0, and as far behind the same place of
  // direction 1: [D, count]. A direction's share begins at `begin` and has `share` elements.
  graph::TensorId OfDirections(graph::TensorId w, int64_t begin, int64_t share, int64_t first,
                               int64_t count) {
    if (directions_ == 1) return Part(w, first, {1, count});
    const graph::TensorId both = Part(w, begin, {2, share});
    return w_.Slice(both, {0, first - begin}, {2, count});
  }
  // The `count` matrices from `id` on, [D, count * rows, columns].
  graph::TensorId Matrices(graph::TensorId w, int64_t layer, int64_t id, int64_t count) {
    const int64_t pl = layer * directions_;
    const auto place = [&](int64_t of, int64_t which) {
      return graph::RnnMatrixPlace(a_, input_, of, which);
    };
    const graph::RnnPlace at = place(pl, id);
    const int64_t head = place(pl, 0).offset < 0 ? gates_ : 0, begin = place(pl, head).offset;
    const int64_t share = directions_ == 1 ? 0 : place(pl + 1, head).offset - begin;
    const graph::TensorId flat =
        OfDirections(w, begin, share, at.offset, count * at.rows * at.columns);
    return w_.Reshape(flat, {directions_, count * at.rows, at.columns});
  }
  // The biases of the gates from `id` on, [D, G*H]; absent where there are none.
  graph::TensorId Biases(graph::TensorId w, int64_t layer, int64_t id) {
    const int64_t pl = layer * directions_;
    const auto place = [&](int64_t of, int64_t which) {
      return graph::RnnBiasPlace(a_, input_, of, which).offset;
    };
    if (place(pl, id) < 0) return graph::kAbsent;
    const int64_t head = place(pl, 0) < 0 ? gates_ : 0, begin = place(pl, head);
    const int64_t share = directions_ == 1 ? 0 : place(pl + 1, head) - begin;
    return OfDirections(w, begin, share, place(pl, id), gates_ * a_.hidden);
  }
  bool HasInputMatrices(int64_t layer) const { return !a_.skip_input || layer > 0; }

  // The layer's part of states [L*D,B,width].
  graph::TensorId StatesOf(graph::TensorId states, int64_t layer) {
    if (states == graph::kAbsent || a_.layers == 1) return states;
    Dims dims = g_[states].dims;
    dims[0] = directions_;
    return w_.Slice(states, {layer * directions_, 0, 0}, std::move(dims));
  }

  // ---- ends of sequences ----
  // The lengths, at most T: steps behind are nowhere.
  graph::TensorId Lengths(Dims dims) {
    const graph::TensorId most = index_.Number(static_cast<double>(e_.steps), kLaunchNumberUid);
    return index_.Map(ScalarOp::kMin, {index_.Reshape(lengths_, std::move(dims)), most});
  }
  // The condition t + ahead < length, [T,B,1].
  graph::TensorId IsInside(int64_t ahead) {
    graph::TensorId time = index_.Iota(0, {e_.steps, 1, 1});
    if (ahead != 0) time = index_.Add(time, index_.Number(static_cast<double>(ahead)));
    const graph::TensorId end = lengths_ == graph::kAbsent
                                    ? index_.Number(static_cast<double>(e_.steps), kLaunchNumberUid)
                                    : Lengths({1, e_.batch, 1});
    return index_.Map(ScalarOp::kLt, {time, end});
  }
  // The tensor x [T,B,width], 0 behind the ends: an operand may hold anything there.
  graph::TensorId Inside(graph::TensorId x) {
    if (lengths_ == graph::kAbsent || e_.packed) return x;
    return w_.Round(w_.Select(IsInside(0), x, w_.Number(0)), type_);
  }
  graph::TensorId PadData(graph::TensorId y) {
    if (lengths_ == graph::kAbsent || e_.packed || a_.padding == 0) return y;
    return w_.Select(IsInside(0), y, w_.Number(a_.padding));
  }
  graph::TensorId PadStates(graph::TensorId states) {
    if (lengths_ == graph::kAbsent || a_.padding == 0) return states;
    const graph::TensorId any =
        index_.Map(ScalarOp::kGt, {Lengths({1, e_.batch, 1}), index_.Number(0)});
    return w_.Select(any, states, w_.Number(a_.padding));
  }
  bool Pads() const { return lengths_ != graph::kAbsent && a_.padding != 0; }

  // ---- packed data ----
  // The first row of each step, [T,1].
  graph::TensorId FirstRows() {
    const graph::TensorId length =
        index_.Map(ScalarOp::kMax, {Lengths({1, e_.batch}), index_.Number(0)});
    const graph::TensorId before =
        index_.Map(ScalarOp::kMin, {length, index_.Iota(0, {e_.steps, 1})});
    return index_.Reduce(graph::Combine::kAdd, before, {e_.steps, 1});
  }
  // The tensor x as [T,B,width], row-major; packed rows at their places, 0 elsewhere.
  graph::TensorId Spread(graph::TensorId x) {
    const int64_t width = g_[x].dims.back();
    if (!e_.packed) {
      const bool is_row_major = g_[x].strides == PackedStrides(g_[x].dims);
      return is_row_major ? x : w_.SliceFront(x, g_[x].dims);
    }
    const graph::TensorId row = index_.Add(FirstRows(), index_.Iota(1, {1, e_.batch}));
    const graph::TensorId inside =
        index_.Map(ScalarOp::kLt, {index_.Iota(0, {e_.steps, 1}), Lengths({1, e_.batch})});
    const graph::TensorId place = index_.Select(inside, row, index_.Number(-1));
    const graph::TensorId gathered =
        w_.Gather(x, index_.Reshape(place, {rows(), 1}), 0, {rows(), width});
    return w_.Reshape(gathered, {e_.steps, e_.batch, width});
  }
  // Stores y [T,B,width] to the result `to`, padded or packed.
  void Store(graph::TensorId y, graph::TensorId to) {
    const int64_t width = g_[to].dims.back();
    if (!e_.packed) return w_.Write(PadData(y), to);
    const Dims all = {memory_rows_, e_.steps};
    const graph::TensorId first = index_.Reshape(FirstRows(), {1, e_.steps});
    const graph::TensorId own = index_.Iota(0, {memory_rows_, 1});
    const graph::TensorId begun = index_.Map(ScalarOp::kLe, {first, own});
    const graph::TensorId zero = index_.Number(0), one = index_.Number(1);
    const graph::TensorId steps =
        index_.Reduce(graph::Combine::kAdd, index_.Select(begun, one, zero), {memory_rows_, 1});
    const graph::TensorId begin =
        index_.Reduce(graph::Combine::kMax, index_.Select(begun, first, zero), {memory_rows_, 1});
    const graph::TensorId batch = index_.Number(static_cast<double>(e_.batch), kLaunchNumberUid);
    const graph::TensorId row =
        index_.Add(index_.Mul(index_.Sub(steps, one), batch), index_.Sub(own, begin));
    w_.Write(w_.Gather(w_.Reshape(y, {rows(), width}), row, 0, {memory_rows_, width}), to);
  }

  // Stores the states of all layers, [D,B,width] each.
  void StoreStates(const std::vector<graph::TensorId>& states, graph::TensorId to) {
    if (to == graph::kAbsent || states[0] == to) return;
    w_.Write(PadStates(Concat(states, 0)), to);
  }
  // The tensor that a layer's states go to: straight to the result where they are all of it.
  graph::TensorId StateResult(graph::TensorId to, int64_t width) {
    if (to == graph::kAbsent || (a_.layers == 1 && !Pads())) return to;
    return NewVirtual("state", type_, {directions_, e_.batch, width});
  }

  // A layer's y with dropout, the next layer's input: [T,B,D*P].
  graph::TensorId Dropped(graph::TensorId y, graph::TensorId mask) {
    if (mask == graph::kAbsent) return y;
    return w_.Round(w_.Mul(y, Scaled(mask)), type_);
  }
  graph::TensorId Scaled(graph::TensorId mask) {
    const double scale = a_.dropout < 1 ? 1 / (1 - a_.dropout) : 0;
    return w_.Mul(mask, w_.Number(scale));
  }

 protected:
  graph::Graph& g_;
  const graph::RnnAttrs a_;
  const DType type_;
  PrimitiveWriter w_, index_;
  graph::TensorId lengths_;
  graph::RnnExtents e_;
  int64_t memory_rows_, directions_, gates_;
  int64_t input_ = 0;            // width of the first layer's
  graph::TensorId name_of_ = 0;  // a result, after which intermediates are called

 private:
  graph::TensorId ConcatOf(std::vector<graph::TensorId> parts, int64_t axis) {
    Dims dims = g_[parts[0]].dims;
    for (size_t i = 1; i < parts.size(); ++i) dims[axis] += g_[parts[i]].dims[axis];
    const graph::TensorId y = NewVirtual("concat", g_[parts[0]].dtype, std::move(dims));
    g_.AddNode({.op = graph::GraphOp::kConcat,
                .inputs = std::move(parts),
                .outputs = {y},
                .compute = MovingType(g_[y].dtype),
                .attrs = graph::ConcatAttrs{.axis = axis},
                .name = ""});
    return y;
  }
};

}  // namespace kiln::compiler
