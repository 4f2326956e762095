// The plan of window kernels that go by tiles: how large a tile is, and which extents make none.
#include <algorithm>

#include "compiler/engines/window/links.h"
#include "compiler/engines/window/tiles.h"
#include "compiler/kernel/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::Node;
using graph::PaddingTap;
using graph::ResampleAxis;
using graph::ResampleMode;
using graph::Tensor;
using graph::TensorId;

constexpr int64_t kMostTaps = 8, kMostStride = 4, kMostPadding = 16;  // along one axis
constexpr int kMostLanes = 8;
constexpr int kMostResults = 16;  // of a tile
constexpr int kMostPairs = 160;   // of a tap and a result
constexpr int kMostWhole = 64;    // results where a tile is all of an axis
constexpr int kOverlapping = 4;   // results along an axis whose windows share their sources

int64_t FloorDiv(int64_t a, int64_t b) { return a >= 0 ? a / b : -CeilDiv(-a, b); }

bool IsPlain(const Graph& g) {
  if (g.nodes.size() != 1 || !Has(g.nodes[0], graph::kWindow)) return false;
  const Node& node = g.nodes[0];
  const auto& attrs = node.As<graph::ResampleAttrs>();
  const bool pools = attrs.mode == ResampleMode::kMax ||
                     attrs.mode == ResampleMode::kAvgIncludePadding ||
                     attrs.mode == ResampleMode::kAvgExcludePadding;
  if (!pools || graph::PaddingTapOf(attrs) == PaddingTap::kEdge || node.compute != DType::kF32)
    return false;
  const DType type = g[node.inputs[0]].dtype;
  const bool is_wide = type == DType::kF16 || type == DType::kBF16 || type == DType::kF32;
  const auto fits = [&](TensorId id) {
    return !g[id].by_value && g[id].rank() == g[node.outputs[0]].rank() &&
           NumElements(g[id].dims) != 0;
  };
  return is_wide && std::ranges::all_of(SourcesOf(node), fits) &&
         std::ranges::all_of(graph::Outputs(g), fits);
}

// The sources of an axis whose tiles have so many results.
WindowTiles::Axis LinkAxis(const ResampleAxis& a, bool forward, int tile) {
  WindowTiles::Axis axis{.dim = static_cast<int64_t>(a.dim), .tile = tile};
  const auto step = static_cast<int>(a.step), taps = static_cast<int>(a.taps),
             offset = static_cast<int>(a.offset);
  axis.step = forward ? step * tile : tile / step;
  for (int result = 0; result < tile; ++result) {
    for (int tap = 0; tap < taps; ++tap) {
      if (forward) {
        axis.links.push_back({result, step * result + offset + tap, tap});
      } else if (const int from = result - offset - tap; from - FloorDiv(from, step) * step == 0) {
        axis.links.push_back({result, static_cast<int>(FloorDiv(from, step)), tap});
      }
    }
  }
  std::ranges::stable_sort(axis.links, {}, &WindowTiles::Link::source);
  if (!axis.links.empty()) {
    axis.low = axis.links.front().source;
    axis.high = axis.links.back().source;
  }
  return axis;
}

// Results along the innermost axis: as many as one wide store has.
int TileAlong(const Graph& g, const ResampleAxis& a, bool forward, bool* wide) {
  const Node& node = g.nodes[0];
  const int64_t extent = g[node.outputs[0]].dims[a.dim];
  const int stride = forward ? 1 : static_cast<int>(a.step);
  int widest = 8;
  for (const TensorId id : graph::Outputs(g)) {
    const bool contiguous = WalkOf(g[id], static_cast<int64_t>(a.dim)) == Walk::kContiguous;
    widest = std::min(widest, contiguous ? 16 / SizeOf(g[id].dtype) : 1);
  }
  const int aligned = WidestVector(g, graph::Outputs(g), static_cast<int64_t>(a.dim));
  for (int tile = std::min(widest, aligned); tile > 1; tile /= 2) {
    if (tile % stride != 0 || extent % tile != 0) continue;
    *wide = true;
    return tile;
  }
  *wide = false;
  return stride;
}

// True if all sources come as copies of so many neighbours.
bool ComeInChunks(const Graph& g, int64_t dim, int chunk) {
  const std::vector<TensorId> sources = SourcesOf(g.nodes[0]);
  const int aligned = WidestVector(g, sources, dim);
  return chunk > 1 && (chunk & (chunk - 1)) == 0 && std::ranges::all_of(sources, [&](TensorId id) {
           const int most = 16 / SizeOf(g[id].dtype);
           return WalkOf(g[id], dim) == Walk::kContiguous && g[id].dims[dim] % chunk == 0 &&
                  aligned >= std::min(chunk, most);
         });
}

// True if a gradient's one window along the axis has few elements: a tile is all of them, and no
// other window need be looked for.
bool IsWhole(const Node& node, const ResampleAxis& a) {
  return !IsForward(node) && a.out == 1 && a.in > 1 && a.in <= kMostTaps;
}
void KeepFirst(WindowTiles::Axis& axis) {
  std::erase_if(axis.links, [](const WindowTiles::Link& link) { return link.source != 0; });
  axis.low = axis.high = 0;
}

}  // namespace

std::optional<WindowTiles> PlanWindowTiles(const Group& group) {
  const Graph& g = group.graph;
  if (!IsPlain(g)) return std::nullopt;
  const Node& node = g.nodes[0];
  const bool forward = IsForward(node);
  const TensorId x = forward ? node.inputs[0] : node.outputs[0],
                 y = forward ? node.outputs[0] : node.inputs[0];
  const auto all = graph::ResampleAxes(node.As<graph::ResampleAttrs>(), g[x].dims, g[y].dims);
  WindowTiles tiles;
  tiles.lane_dim = MemoryOrder(g[graph::Outputs(g)[0]].strides).back();
  tiles.along = tiles.lane_dim == static_cast<int64_t>(all.back().dim);
  if (!tiles.along && tiles.lane_dim >= 2) return std::nullopt;
  std::vector<TensorId> ids = SourcesOf(node);
  std::ranges::copy(graph::Outputs(g), std::back_inserter(ids));
  if (!tiles.along) tiles.lanes = std::min(WidestVector(g, ids, tiles.lane_dim), kMostLanes);
  int results = 1, most_results = kMostResults;
  int64_t pairs = 1;
  for (const ResampleAxis& a : all) {
    if (a.unit != 1 || a.taps > kMostTaps || a.step > kMostStride || a.offset > kMostPadding ||
        a.offset < -kMostPadding)
      return std::nullopt;
    const bool whole = IsWhole(node, a) && !(tiles.along && &a == &all.back());
    int tile = forward ? 1 : static_cast<int>(a.step);
    if (tiles.along && &a == &all.back()) {
      tile = TileAlong(g, a, forward, &tiles.wide_store);
    } else if (whole) {
      tile = static_cast<int>(a.in);
      most_results = kMostWhole;
    } else if (a.step == 1 && a.taps > 2 && tiles.lanes == 1 && !IsMax(node) &&
               (forward ? a.out : a.in) > kMostTaps) {
      tile = kOverlapping;
    }
    tiles.axes.push_back(LinkAxis(a, forward, tile));
    if (whole) KeepFirst(tiles.axes.back());
    results *= tile;
    pairs *= static_cast<int64_t>(tiles.axes.back().links.size());
  }
  if (results > most_results || pairs > kMostPairs) return std::nullopt;
  const WindowTiles::Axis& last = tiles.axes.back();
  if (tiles.along && ComeInChunks(g, last.dim, last.step)) tiles.chunk = last.step;
  return tiles;
}

}  // namespace kiln::compiler
