#include "compiler/engines/contraction/epilogue.h"

#include <algorithm>

#include "compiler/engines/contraction/tiles.h"
#include "compiler/kernel/vectors.h"
#include "ir/graph/ops.h"
#include "ir/tile/visit.h"

namespace kiln::compiler {

using graph::GraphOp;
using graph::Node;
using graph::Tensor;
using graph::TensorId;
using tile::Block;
using tile::Expr;

namespace {

constexpr int kMostLanes = 8;

bool IsMap(const Node& n) { return n.op == GraphOp::kMap; }

// Views move elements to other places: their operands are read one by one.
bool HasViews(const graph::Graph& g) {
  return std::ranges::any_of(
      g.nodes, [](const Node& n) { return !IsMap(n) && !Has(n, graph::kContraction); });
}

// Walks from the results back to the contraction through maps alone, and finds what these take from
// other operations: a bias that is a part of a longer tensor, say.
class ViewedOperands {
 public:
  ViewedOperands(const graph::Graph& g, const Node& contraction)
      : g_(g),
        producers_(graph::Producers(g)),
        product_(contraction.outputs[0]),
        seen_(g.tensors.size()),
        asked_(g.tensors.size()) {
    works_ = std::ranges::all_of(graph::Outputs(g), [&](TensorId id) { return Visit(id); }) &&
             std::ranges::none_of(found_, [&](TensorId id) { return Depends(id); });
  }
  // False where something else than a map stands behind the contraction.
  bool works() const { return works_; }
  const std::vector<TensorId>& found() const { return found_; }

 private:
  bool Visit(TensorId id) {
    if (id == graph::kAbsent || id == product_ || seen_[id] != 0) return true;
    seen_[id] = 1;
    if (producers_[id] < 0) return true;
    const Node& n = g_.nodes[producers_[id]];
    if (Has(n, graph::kContraction)) return false;
    if (IsMap(n)) return std::ranges::all_of(n.inputs, [&](TensorId x) { return Visit(x); });
    found_.push_back(id);
    return true;
  }
  // True if `id` is computed from a product. Each tensor is asked once: one that was had none.
  bool Depends(TensorId id) {
    if (id == graph::kAbsent || asked_[id] != 0) return false;
    asked_[id] = 1;
    if (producers_[id] < 0) return id == product_;
    const Node& n = g_.nodes[producers_[id]];
    return Has(n, graph::kContraction) ||
           std::ranges::any_of(n.inputs, [&](TensorId x) { return Depends(x); });
  }

  const graph::Graph& g_;
  const std::vector<graph::NodeId> producers_;
  const TensorId product_;
  std::vector<char> seen_, asked_;
  std::vector<TensorId> found_;
  bool works_ = false;
};

bool IsRowOperand(const Tensor& t, int64_t dim, int64_t rank) {
  if (t.rank() != rank) return false;
  for (int64_t d = 0; d < rank; ++d)
    if (d != dim && t.dims[d] != 1) return false;
  return true;
}

// True if the spatial dims of a tensor are one, all of them in a row of memory, or have one place.
bool IsFlat(const Tensor& t, const Tensor& y) {
  bool same = t.rank() == y.rank(), one = same;
  for (int64_t d = 2; same && d < y.rank(); ++d) one &= t.dims[d] == 1;
  if (one) return true;
  int64_t stride = 1;
  for (int64_t d = y.rank(); same && d-- > 2;) {
    same = t.dims[d] == y.dims[d] && (t.dims[d] == 1 || t.strides[d] == stride);
    stride *= t.dims[d];
  }
  return same;
}

bool IsFullOperand(const Tensor& t, int64_t dim, const Tensor& y) {
  return t.dims == y.dims && SizeOf(t.dtype) == 2 && IsFloat(t.dtype) &&
         !IsRowOperand(t, dim, y.rank());
}

// Tensors that the epilogue reads as they lie: neither those that only the contraction takes nor
// those that only views take.
std::vector<TensorId> EpilogueInputs(const graph::Graph& g) {
  std::vector<TensorId> inputs = MemoryInputs(g);
  std::erase_if(inputs, [&](TensorId id) {
    return std::ranges::none_of(g.nodes, [&](const Node& n) {
      return IsMap(n) && std::ranges::find(n.inputs, id) != n.inputs.end();
    });
  });
  return inputs;
}

// Results, and what the epilogue reads.
std::vector<TensorId> MovedTensors(const graph::Graph& g) {
  std::vector<TensorId> moved = graph::Outputs(g);
  std::ranges::copy(EpilogueInputs(g), std::back_inserter(moved));
  return moved;
}

}  // namespace

PixelVectors PixelVectorsOf(const graph::Graph& g, const Node& contraction) {
  const Tensor& y = g[contraction.outputs[0]];
  PixelVectors v{.dim = y.rank() - 1};
  const bool is_matmul = contraction.op == GraphOp::kMatmul;
  if (is_matmul && y.strides[v.dim] != 1) --v.dim;
  while (!is_matmul && v.dim > 2 && y.dims[v.dim] == 1) --v.dim;
  const std::vector<TensorId> moved = MovedTensors(g);
  if (HasViews(g) ||
      std::ranges::any_of(moved, [&](TensorId id) { return g[id].rank() != y.rank(); }))
    return v;
  if (is_matmul || !std::ranges::all_of(moved, [&](TensorId id) { return IsFlat(g[id], y); })) {
    v.lanes = std::min(WidestVector(g, moved, v.dim), kMostLanes);
    return v;
  }
  v.flat = NumElements(std::span(y.dims).subspan(2));
  graph::Graph flat = g;
  for (const TensorId id : moved) {
    Tensor& t = flat[id];
    const int64_t places = NumElements(std::span(t.dims).subspan(2));
    std::fill(t.dims.begin() + 2, t.dims.end(), 1);
    t.dims[v.dim] = places;
  }
  v.lanes = std::min(WidestVector(flat, moved, v.dim), kMostLanes);
  return v;
}

std::vector<TensorId> FullOperands(const graph::Graph& g, const Node& contraction, int64_t dim) {
  const Tensor& y = g[contraction.outputs[0]];  // a group may store sums of it alone
  std::vector<TensorId> full = EpilogueInputs(g);
  std::erase_if(full, [&](TensorId id) { return !IsFullOperand(g[id], dim, y); });
  return full;
}

bool AppliesByRow(const graph::Graph& g, const Node& contraction, int64_t dim, bool with_full) {
  const std::vector<TensorId> outputs = graph::Outputs(g);
  const ViewedOperands viewed(g, contraction);
  if (outputs.empty() || !viewed.works()) return false;
  const Tensor& y = g[outputs[0]];
  const auto is_row = [&](TensorId id) { return IsRowOperand(g[id], dim, y.rank()); };
  // Two results go the way of full operands.
  if (outputs.size() > 1 &&
      (!with_full || outputs.size() > kMostFullResults ||
       !std::ranges::all_of(outputs, [&](TensorId id) { return IsFullOperand(g[id], dim, y); })))
    return false;
  return std::ranges::all_of(viewed.found(), is_row) &&
         std::ranges::all_of(EpilogueInputs(g), [&](TensorId id) {
           return is_row(id) || (with_full && IsFullOperand(g[id], dim, y));
         });
}

ContractionEpilogue::ContractionEpilogue(const Group& group, KernelBuilder& b, const Contraction& c,
                                         EpilogueAxes axes)
    : group_(group), b_(b), c_(c), axes_(std::move(axes)) {
  const graph::Graph& g = group.graph;
  const Tensor& y = g[c.out];
  const bool is_matmul = ContractionOf(group).op == GraphOp::kMatmul;
  // An axis that walks several dims has neighbours in memory along the innermost of them.
  dim_ = is_matmul ? (axes_.left_is_a ? y.rank() - 2 : y.rank() - 1)
                   : (axes_.left_is_a ? y.rank() - 1 : 1);
  left_size_ = b.Arg("left_size", axes_.left_size);
  right_size_ = b.Arg("right_size", axes_.right_size);
  padded_channels_ = b.Arg("padded_channels", axes_.padded_channels);
  if (axes_.images > 1) images_ = b.Arg("images", axes_.images);
  for (size_t d = 0; d < axes_.places.size(); ++d) {
    const int64_t extent = axes_.places[d];
    place_extents_.push_back(extent == 1 ? b.Idx(1) : b.Arg(fmt::format("place_n{}", d), extent));
  }
  for (size_t s = 0; s < axes_.phases.size(); ++s) {
    const int64_t phases = axes_.phases[s];
    phases_.push_back(phases == 1 ? b.Idx(1) : b.Arg(fmt::format("phases{}", s), phases));
  }
  inputs_ = EpilogueInputs(g);
  full_inputs_ = FullOperands(g, ContractionOf(group), dim_);
  for (const TensorId id : inputs_)
    if (std::ranges::find(full_inputs_, id) == full_inputs_.end()) row_inputs_.push_back(id);
  const ViewedOperands viewed(g, ContractionOf(group));
  std::ranges::copy(viewed.found(), std::back_inserter(row_inputs_));
  if (axes_.along_right) {
    const PixelVectors v = PixelVectorsOf(g, ContractionOf(group));
    dim_ = v.dim;
    lanes_ = v.lanes;
    flat_ = v.flat;
    if (flat_ > 0) flat_size_ = b.Arg("image_places", flat_);
    return;
  }
  std::vector<TensorId> moved = graph::Outputs(g);
  if (!viewed.works()) return;
  for (const TensorId id : inputs_) {
    if (g[id].rank() != y.rank()) return;
    moved.push_back(id);
  }
  lanes_ = std::min(WidestVector(g, moved, dim_), kMostLanes);
  // A vector must not cross from one group's channels into the next.
  const int64_t left_extent =
      c.batch.size() > 1 && !is_matmul
          ? (axes_.padded_channels > 0 ? c.n.values.back() : axes_.left_size)
          : 0;
  while (lanes_ > 1 && left_extent % lanes_ != 0) lanes_ /= 2;
}

Index ContractionEpilogue::InImage(Block& out, const Expr& place, const Axis& axis,
                                   const Expr& image, const std::string& name) {
  if (!image) return b_.Unravel(out, place, axis.extents, axis.values, name);
  const Index extents(axis.extents.begin() + 1, axis.extents.end());
  Index index =
      b_.Unravel(out, place, extents, Dims(axis.values.begin() + 1, axis.values.end()), name);
  index.insert(index.begin(), image);
  return index;
}

Index ContractionEpilogue::LeftIndex(Block& out, const Expr& left, const Expr& image,
                                     Expr& inside) {
  const Axis& axis = axes_.left_is_a ? c_.m : c_.n;
  if (axes_.padded_channels == 0) {
    inside = tile::Lt(left, left_size_);
    return InImage(out, left, axis, axes_.left_is_a ? image : nullptr, "left");
  }
  // [taps…, channels], each tap's channels padded to whole panels.
  Index extents = axis.extents;
  Dims values = axis.values;
  extents.back() = padded_channels_;
  values.back() = axes_.padded_channels;
  const auto split = b_.Divide(out, left, extents.back(), values.back(), "channel");
  extents.pop_back(), values.pop_back();
  inside = tile::And(tile::Lt(split.remainder, axis.extents.back()), tile::Lt(left, left_size_));
  Index index = b_.Unravel(out, split.quotient, extents, values, "tap");
  index.push_back(split.remainder);
  return index;
}

ContractionEpilogue::BatchPlace ContractionEpilogue::SplitBatch(Block& out, const Expr& batch) {
  if (axes_.images == 1) return {batch, nullptr};
  const auto split = b_.Divide(out, batch, images_, axes_.images, "image");
  return {split.quotient, split.remainder};
}

Index ContractionEpilogue::RightIndex(Block& out, const Expr& right, const Expr& image,
                                      const Expr& phase, Expr& inside) {
  const Axis& axis = axes_.left_is_a ? c_.n : c_.m;
  inside = tile::Lt(right, right_size_);
  if (flat_ > 0) {
    Index index(axis.extents.size(), b_.Idx(0));
    const Index whole = image ? Index{image, right}
                              : b_.Unravel(out, right, {axis.extents[0], flat_size_},
                                           {axis.values[0], flat_}, "right");
    index[0] = whole[0];
    index[dim_ - 1] = whole[1];
    return index;
  }
  if (axes_.phases.empty())
    return InImage(out, right, axis, axes_.left_is_a ? nullptr : image, "right");
  Index index = b_.Unravel(out, right, place_extents_, axes_.places, "right");
  const Index phases = b_.Unravel(out, phase, phases_, axes_.phases, "phase");
  for (size_t s = 0; s < phases.size(); ++s) {
    if (tile::IsConst(phases_[s], 1)) continue;
    index[s + 1] = b_.Let(out, fmt::format("place{}", s), index[s + 1] * phases_[s] + phases[s]);
    inside = tile::And(inside, tile::Lt(index[s + 1], axis.extents[s + 1]));
  }
  return index;
}

void ContractionEpilogue::Rows(Block& out, const Expr& batch, const Expr& left,
                               const std::string& operands) {
  Block inside;
  Expr is_left;
  const BatchPlace at_batch = SplitBatch(axes_.left_is_a ? out : inside, batch);
  const Index l = LeftIndex(out, left, at_batch.image, is_left);
  const Index groups =
      b_.Unravel(inside, at_batch.batch, c_.batch.extents, c_.batch.values, "batch");
  const Axis& right = axes_.left_is_a ? c_.n : c_.m;
  const Index r(right.extents.size(), b_.Idx(0));
  const Index at = axes_.left_is_a ? c_.at_out(groups, l, r) : c_.at_out(groups, r, l);
  ValueScope values(b_, inside);
  for (size_t i = 0; i < row_inputs_.size(); ++i) {
    const Expr slot = b_.Idx(static_cast<int64_t>(i));
    out.push_back({tile::Store{operands, slot, tile::Float(0)}});
    const Tensor& t = group_.graph[row_inputs_[i]];
    inside.push_back({tile::Store{
        operands, slot,
        tile::Cast(DType::kF32, values.Value(row_inputs_[i], BroadcastIndex(b_, t, at)))}});
  }
  if (!row_inputs_.empty()) out.push_back({tile::If{is_left, std::move(inside), {}}});
}

void ContractionEpilogue::Apply(Block& out, const Expr& accumulator, const Registers& registers,
                                const std::vector<TensorId>& also) {
  const graph::Graph& g = group_.graph;
  const TensorId y = graph::Outputs(g)[0];
  // The place of an element does not matter any more.
  const Index at(static_cast<size_t>(g[y].rank()), b_.Idx(0));
  ValueScope values(b_, out);
  const auto bind = [&](const std::vector<TensorId>& inputs, const std::string& from) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Expr value = tile::Load(from, DType::kF32, b_.Idx(static_cast<int64_t>(i)));
      values.Bind(inputs[i], at, tile::Cast(ArithmeticType(g[inputs[i]].dtype), value));
    }
  };
  bind(row_inputs_, registers.operands);
  bind(full_inputs_, registers.full);
  const bool rounds_later = y == c_.out && also.empty();
  values.Bind(c_.out, at, rounds_later ? accumulator : RoundThrough(g[c_.out].dtype, accumulator));
  Expr value = values.Value(y, at);
  // The caller rounds two results at a time: it takes the value before that.
  if (also.empty() && registers.type == DType::kF32 && value->kind == tile::ExprKind::kCast &&
      !out.empty()) {
    const auto* let = std::get_if<tile::Let>(&out.back().node);
    if (let != nullptr && tile::Mentions(value, let->name) &&
        let->value->kind == tile::ExprKind::kCast) {
      value = let->value->args[0];
      out.pop_back();
    }
  }
  out.push_back({tile::Store{registers.result, b_.Idx(0), tile::Cast(registers.type, value)}});
  for (size_t i = 0; i < also.size(); ++i)
    out.push_back({tile::Store{registers.result, b_.Idx(static_cast<int64_t>(i) + 1),
                               tile::Cast(registers.type, values.Value(also[i], at))}});
}

void ContractionEpilogue::Store(Block& out, const Expr& batch, const Expr& left, const Expr& right,
                                int lanes, const std::function<Expr(const Expr&)>& value,
                                const Expr& phase, const Taken& taken) {
  Block inside;
  Expr is_left, is_right;
  const BatchPlace at_batch = SplitBatch(axes_.left_is_a ? out : inside, batch);
  const Index l = LeftIndex(out, left, at_batch.image, is_left);
  // The places of a phase may lie outside: whether they do is known once they are unravelled.
  const Index r =
      RightIndex(axes_.phases.empty() ? inside : out, right, at_batch.image, phase, is_right);
  const Index groups =
      b_.Unravel(inside, at_batch.batch, c_.batch.extents, c_.batch.values, "batch");
  const Index at = axes_.left_is_a ? c_.at_out(groups, l, r) : c_.at_out(groups, r, l);
  LaneLoop loop(b_, inside, inputs_, at, dim_, lanes);
  loop.values().Bind(
      c_.out, loop.index(),
      RoundThrough(group_.graph[c_.out].dtype, value(lanes == 1 ? b_.Idx(0) : loop.lane())));
  if (taken) taken(loop.body(), loop.values(), loop.index(), loop.lane());
  StoreLanes(b_, inside, loop, graph::Outputs(group_.graph), at, dim_, lanes);
  out.push_back({tile::If{tile::And(is_left, is_right), std::move(inside), {}}});
}

}  // namespace kiln::compiler
