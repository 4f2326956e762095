// The plan of a dgrad of conv_first_layer: what it is cut into, what it declines, and its cost
// model.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/engines/conv_first_layer/dgrad.h"
#include "compiler/machine/machine.h"

namespace kiln::compiler {
namespace {

constexpr int kWarps = 4;
constexpr int64_t kVector = 8;             // elements of 16 bits in 16 bytes
constexpr int64_t kMostAccumulators = 32;  // tiles of a warp, 4 registers each
constexpr int64_t kMostPanelTiles = 24;    // of one step, 2 registers each

FirstLayerDgradPlan::Axis AxisOf(const ConvShape& shape, int64_t axis) {
  const AxisMap map = MapAxis(shape, axis);
  FirstLayerDgradPlan::Axis a{.stride = map.phases};
  bool any = false;
  int64_t first = 0, last = 0;
  for (const std::vector<TapAt>& taps : map.taps) {
    for (const TapAt& tap : taps) {
      first = any ? std::min(first, tap.offset) : tap.offset;
      last = any ? std::max(last, tap.offset) : tap.offset;
      any = true;
    }
  }
  a.first = first;
  a.window = last - first + 1;
  return a;
}

// The sets of which a slot has a tap in row `i` of the window.
std::vector<int64_t> UsedSets(const ConvShape& shape, const FirstLayerDgradPlan& p, int64_t i) {
  const AxisMap map = MapAxis(shape, 0);
  std::vector<int64_t> used;
  for (int64_t set = 0; set < p.sets; ++set) {
    bool any = shape.spatial == 1;
    for (int64_t slot = set * 8; slot < set * 8 + 8 && !any; ++slot) {
      const int64_t phase = slot / p.run_slots;
      if (phase >= p.row.stride || slot % p.run_slots >= p.run) continue;
      any = std::ranges::any_of(map.taps[phase],
                                [&](const TapAt& tap) { return tap.offset == p.row.first + i; });
    }
    if (any) used.push_back(set);
  }
  return used;
}

// Places the four warps, for the least to multiply and to read.
void PlaceWarps(FirstLayerDgradPlan& p, int64_t rows, int64_t cols, bool flat) {
  double least = 0;
  int64_t best = 0;
  for (const int64_t warp_rows : {4, 2, 1}) {
    if (flat && warp_rows != 1) continue;
    p.warp_rows = warp_rows;
    p.warp_cols = kWarps / warp_rows;
    const int64_t blocks = CeilDiv(rows, p.block_rows()) * CeilDiv(cols, p.block_cols());
    const double all =
        static_cast<double>(blocks) * (static_cast<double>(p.block_rows() * p.block_cols()) +
                                       0.2 * static_cast<double>(p.staged_pixels()));
    if (best != 0 && all >= least) continue;
    least = all;
    best = warp_rows;
  }
  p.warp_rows = best;
  p.warp_cols = kWarps / best;
  p.row.blocks = CeilDiv(rows, p.block_rows());
  p.col.blocks = CeilDiv(cols, p.block_cols());
}

}  // namespace

FirstLayerDgradPlan DgradPlanOf(const Group& group, const ConvShape& shape,
                                const FirstLayerDgradKnobs& knobs) {
  const graph::Tensor& x = group.graph[shape.x];
  const bool flat = shape.spatial == 1;
  FirstLayerDgradPlan p;
  p.col = AxisOf(shape, shape.spatial - 1);
  if (!flat) p.row = AxisOf(shape, 0);
  p.run = p.col.stride * shape.channels;
  // Whole sets for each phase of rows, where they cost nothing.
  const int64_t whole = AlignUp(p.run, 8);
  p.sets = CeilDiv(p.row.stride * p.run, 8);
  p.run_slots = p.row.stride * whole == p.sets * 8 ? whole : p.run;
  for (int64_t i = 0; i < p.row.window; ++i) p.used.push_back(UsedSets(shape, p, i));

  const int64_t rows = flat ? 1 : CeilDiv(std::max<int64_t>(x.dims[2], 1), p.row.stride);
  const int64_t cols = CeilDiv(std::max<int64_t>(x.dims.back(), 1), p.col.stride);
  const int64_t most = std::max<int64_t>(kMostAccumulators / p.sets, 1);
  p.tiles = std::min<int64_t>(knobs.pixels / 16, most);
  p.rows = flat ? 1 : std::min<int64_t>(knobs.rows, most / p.tiles);
  PlaceWarps(p, rows, cols, flat);
  p.pieces = x.dims[0] * p.row.blocks * p.col.blocks;
  p.made_bytes = x.dtype == DType::kF16 || x.dtype == DType::kBF16 ? 2 : 4;

  // The largest stages of which `blocks` blocks have room.
  const int64_t room = 225 * 1024 / knobs.blocks - 1024;
  for (const int64_t chunk : {64, 32, 16}) {
    p.chunk = chunk;
    p.chunks = CeilDiv(shape.filters, chunk);
    if (p.chunks * chunk == AlignUp(shape.filters, 16) && p.shared_bytes() <= room) break;
  }
  return p;
}

Status CheckFirstLayerDgrad(const Group& group, const ConvShape& shape) {
  constexpr int64_t kMostSets = 8, kMostStride = 4;
  if (std::ranges::any_of(shape.stride, [](int64_t s) { return s > kMostStride; }))
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "the strides are {}; a dgrad takes at most {}",
                         fmt::join(shape.stride, ","), kMostStride);
  if (!ComesByPieces(group, shape.y, kVector))
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "dy is not read from memory in 16 aligned bytes along its channels");
  const FirstLayerDgradPlan p = DgradPlanOf(group, shape, {.pixels = 16, .rows = 2, .blocks = 2});
  if (p.sets > kMostSets)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "{} outputs of a place take {} sets of 8; at most {} have room",
                         p.run * p.row.stride, p.sets, kMostSets);
  if (p.sets * p.row.window > kMostPanelTiles)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "a column of the filter takes {} fragments; at most {} have room",
                         p.sets * p.row.window, kMostPanelTiles);
  return {};
}

double FirstLayerProductCycles(const Target& target) {
  constexpr double kSpeed = 1.024;
  return MachineOf(target).MmaCycles() / kSpeed;
}

double FirstLayerDgradCycles(const Target& target, const FirstLayerDgradPlan& p, int blocks) {
  constexpr double kAsyncCycles = 0.03, kStoreCycles = 0.5;  // of an element
  double products = 0, fragments = 0;
  for (const std::vector<int64_t>& used : p.used) {
    products += static_cast<double>(static_cast<int64_t>(used.size()) * p.rows * p.tiles);
    fragments += static_cast<double>(used.size());
  }
  // Four warps, a tensor core each; all read through one port.
  const auto loads = static_cast<double>((p.rows + p.row.window - 1) * p.tiles);
  const double reads = 4 * (loads * 512 + fragments * 256) / MachineOf(target).shared_bytes;
  const auto steps = static_cast<double>(p.col.window * p.chunks * (p.chunk / 16));
  double piece = steps * (1.2 * std::max(products * FirstLayerProductCycles(target), reads) + 40);
  piece += kAsyncCycles * static_cast<double>(p.staged_pixels() * p.chunks * p.chunk);
  piece += kStoreCycles * static_cast<double>(p.made_elements());
  // A block's waiting is hidden by another block.
  const auto resident =
      std::min<int64_t>(blocks, std::max<int64_t>(226 * 1024 / (p.shared_bytes() + 1024), 1));
  piece *= resident == 1 ? 1.3 : 1;
  const int64_t steps_each =
      CeilDiv(p.pieces, int64_t{blocks} * std::max(target.multiprocessors, 1));
  const double panel = 2.0 * static_cast<double>(p.panel_elements());
  return static_cast<double>(blocks) * (static_cast<double>(steps_each) * piece + panel / 4);
}

}  // namespace kiln::compiler
