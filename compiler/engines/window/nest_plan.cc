// The plan of a WindowNest's tile: what it is made of, and how large it is.
#include <algorithm>
#include <set>

#include "compiler/engines/window/links.h"
#include "compiler/engines/window/nest.h"
#include "compiler/kernel/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::Node;
using graph::PaddingTap;
using graph::ResampleMode;
using graph::Tensor;
using graph::TensorId;
using Place = WindowNest::Place;

constexpr int64_t kMostTaps = 8, kMostStride = 4;  // along one axis
constexpr size_t kMostValues = 1600;
// Words of 32 bits that are read into registers. Values that are averaged, or pass through maps,
// are f32 there.
constexpr int64_t kMostWords = 72, kMostNumbers = 64;
constexpr int kTiles[] = {1, 2, 4, 8};
constexpr double kBetter = 0.95;  // of the work, for narrower accesses or larger tiles
constexpr int64_t kEnoughThreads = int64_t{1} << 17;

bool IsPooling(const Graph& g, const Node& node) {
  const auto& attrs = node.As<graph::ResampleAttrs>();
  const bool pools = attrs.mode == ResampleMode::kMax ||
                     attrs.mode == ResampleMode::kAvgIncludePadding ||
                     attrs.mode == ResampleMode::kAvgExcludePadding;
  if (!pools || graph::PaddingTapOf(attrs) == PaddingTap::kEdge || node.compute != DType::kF32)
    return false;
  return std::ranges::all_of(AxesOf(g, node), [&](const graph::ResampleAxis& a) {
    // A place outside must not be taken for the one inside.
    return a.unit == 1 && a.taps <= kMostTaps && a.step <= kMostStride &&
           (IsIdle(a) || (a.in > 1 && a.out > 1));
  });
}

bool Takes(const Graph& g) {
  const std::vector<TensorId> outputs = graph::Outputs(g);
  const int64_t rank = g[outputs[0]].rank();
  const bool nodes = std::ranges::all_of(g.nodes, [&](const Node& node) {
    if (Has(node, graph::kWindow)) return IsPooling(g, node);
    return node.op == GraphOp::kMap || node.op == GraphOp::kIota;
  });
  const auto fits = [&](TensorId id) {
    return g[id].rank() == rank && NumElements(g[id].dims) != 0 && SizeOf(g[id].dtype) <= 4;
  };
  return nodes && std::ranges::all_of(MemoryInputs(g), fits) &&
         std::ranges::all_of(
             outputs, [&](TensorId id) { return fits(id) && g[id].dims == g[outputs[0]].dims; });
}

// Walks from results to sources.
class Tracer {
 public:
  Tracer(const Graph& g, WindowNest& nest) : g_(g), nest_(nest), producers_(graph::Producers(g)) {}

  // False where a tensor has no scale, or too much is needed.
  bool Trace() {
    Place scale, at;
    for (const WindowNest::Axis& axis : nest_.axes) scale.push_back(axis.tile);
    for (const TensorId y : graph::Outputs(g_))
      if (!Scale(y, scale)) return false;
    return EachResult(0, at);
  }

 private:
  bool EachResult(size_t axis, Place& at) {
    if (axis == nest_.axes.size()) {
      return std::ranges::all_of(graph::Outputs(g_), [&](TensorId y) { return Need(y, at); });
    }
    for (int i = 0; i < nest_.axes[axis].tile; ++i) {
      at.push_back(i);
      const bool fits = EachResult(axis + 1, at);
      at.pop_back();
      if (!fits) return false;
    }
    return true;
  }

  const Node* ProducerOf(TensorId id) const {
    const graph::NodeId producer = producers_[static_cast<size_t>(id)];
    return producer < 0 ? nullptr : &g_.nodes[static_cast<size_t>(producer)];
  }

  bool Scale(TensorId id, const Place& scale) {
    if (id == graph::kAbsent || g_[id].by_value) return true;
    const auto [known, is_new] = nest_.scales.try_emplace(id, scale);
    if (!is_new) return known->second == scale;
    const Node* node = ProducerOf(id);
    if (node == nullptr) return true;
    for (const TensorId y : node->outputs)
      if (y != graph::kAbsent && y != id && !nest_.scales.try_emplace(y, scale).second) {
        if (nest_.scales.at(y) != scale) return false;
      }
    if (!Has(*node, graph::kWindow))
      return std::ranges::all_of(node->inputs, [&](TensorId x) { return Scale(x, scale); });
    Place source = scale;
    for (const graph::ResampleAxis& a : AxesOf(g_, *node)) {
      if (IsIdle(a)) continue;
      int& s = source[AxisOf(nest_, a)];
      const auto step = static_cast<int>(a.step);
      if (IsForward(*node))
        s *= step;
      else if (s % step != 0)
        return false;
      else
        s /= step;
    }
    return std::ranges::all_of(SourcesOf(*node), [&](TensorId x) { return Scale(x, source); });
  }

  bool Need(TensorId id, Place at) {
    if (id == graph::kAbsent || g_[id].by_value) return true;
    for (size_t k = 0; k < at.size(); ++k)
      if (g_[id].dims[static_cast<size_t>(nest_.axes[k].dim)] == 1) at[k] = 0;
    const Node* node = ProducerOf(id);
    // A window's results are found together.
    if (node != nullptr && Has(*node, graph::kWindow)) id = RepresentativeOf(*node);
    if (!seen_.insert({id, at}).second) return true;
    if (seen_.size() > kMostValues) return false;
    bool fits = true;
    if (node != nullptr && Has(*node, graph::kWindow)) {
      for (const WindowLink& link : LinksOf(g_, nest_, *node, at))
        for (const TensorId x : SourcesOf(*node)) fits = fits && Need(x, link.source);
    } else if (node != nullptr) {
      for (const TensorId x : node->inputs) fits = fits && Need(x, at);
    }
    nest_.values.push_back({id, std::move(at)});
    return fits;
  }

  const Graph& g_;
  WindowNest& nest_;
  const std::vector<graph::NodeId> producers_;
  std::set<WindowNest::Value> seen_;
};

bool FitsRegisters(const Graph& g, const WindowNest& nest) {
  const std::vector<TensorId> inputs = MemoryInputs(g);
  const bool compares_alone = std::ranges::all_of(
      g.nodes, [](const Node& node) { return Has(node, graph::kWindow) && IsMax(node); });
  int64_t bytes = 0, numbers = 0;
  for (const auto& [id, place] : nest.values) {
    if (std::ranges::find(inputs, id) == inputs.end()) continue;
    bytes += SizeOf(g[id].dtype);
    ++numbers;
  }
  return bytes <= kMostWords * 4 && (compares_alone || numbers <= kMostNumbers);
}

// The strides of gradients along a dim, of which tiles are multiples.
int StepAlong(const Graph& g, int64_t dim) {
  int step = 1;
  for (const Node& node : g.nodes) {
    if (!Has(node, graph::kWindow) || IsForward(node)) continue;
    for (const graph::ResampleAxis& a : AxesOf(g, node))
      if (static_cast<int64_t>(a.dim) == dim && !IsIdle(a)) step *= static_cast<int>(a.step);
  }
  return step;
}

// As many as one wide store has.
int TileInside(const Graph& g, int64_t dim) {
  const std::vector<TensorId> outputs = graph::Outputs(g);
  int widest = WidestVector(g, outputs, dim);
  for (const TensorId id : outputs)
    widest =
        std::min(widest, WalkOf(g[id], dim) == Walk::kContiguous ? 16 / SizeOf(g[id].dtype) : 1);
  const int step = StepAlong(g, dim);
  return widest % step == 0 ? widest : step;
}

// The next narrower tile along the innermost dim; 0 for none.
int Narrower(const Graph& g, int64_t dim, int width) {
  const int half = width / 2;
  return half != 0 && width % 2 == 0 && half % StepAlong(g, dim) == 0 ? half : 0;
}

}  // namespace

std::optional<WindowNest> PlanWindowNest(const Group& group) {
  const Graph& g = group.graph;
  if (!Takes(g)) return std::nullopt;
  const Tensor& y = g[graph::Outputs(g)[0]];
  const int64_t inner = MemoryOrder(y.strides).back();
  std::set<int64_t> dims;
  for (const Node& node : g.nodes)
    if (Has(node, graph::kWindow))
      for (const graph::ResampleAxis& a : AxesOf(g, node))
        if (!IsIdle(a)) dims.insert(static_cast<int64_t>(a.dim));
  dims.erase(inner);
  std::optional<WindowNest> best;
  double best_work = 0;
  for (int width = TileInside(g, inner); width != 0; width = Narrower(g, inner, width)) {
    for (const int tile : kTiles) {
      WindowNest nest;
      for (const int64_t d : dims) {
        const int step = StepAlong(g, d);
        if (tile % step != 0 && tile != 1) continue;
        nest.axes.push_back({.dim = d, .tile = std::max(tile, step)});
      }
      if (nest.axes.size() != dims.size()) continue;
      nest.axes.push_back({.dim = inner, .tile = width});
      int64_t results = 1;
      for (const WindowNest::Axis& axis : nest.axes) results *= axis.tile;
      if (!Tracer(g, nest).Trace() || !FitsRegisters(g, nest)) continue;
      const double work = static_cast<double>(nest.values.size()) / static_cast<double>(results);
      const int64_t threads = NumElements(y.dims) / results;
      if (best && (work >= kBetter * best_work || threads < kEnoughThreads)) continue;
      best = std::move(nest);
      best_work = work;
    }
  }
  return best;
}

}  // namespace kiln::compiler
