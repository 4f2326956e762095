// The plan of conv_direct's wgrad on tensor cores: how the outputs are cut into pieces, and the
// taps and pieces are dealt to warps and blocks.
#include <algorithm>
#include <bit>

#include "compiler/engines/contraction/tiles.h"
#include "compiler/engines/conv_direct/wgrad_mma_context.h"
#include "compiler/kernel/accumulation.h"

namespace kiln::compiler {
namespace {

constexpr int64_t kMostShared = 100 * 1024;  // so that two blocks are resident

int64_t Reach(const WgradAxis& a, int64_t outputs) {
  return (outputs - 1) * a.stride + (a.taps - 1) * a.dilation + 1;
}

// Short rows: outputs that are 8 apart, and no others, read x from the same banks if the step to
// the next row is as many pixels, modulo 8, as the outputs of a row take; likewise images.
void Spread(WgradMmaPlan& p, const WgradAxis& row, const WgradAxis& col) {
  const auto fit = [](int64_t least, int64_t stride, int64_t wanted) {
    for (int64_t pitch = least; pitch < least + 8; ++pitch)
      if ((pitch * stride - wanted) % 8 == 0) return pitch;
    return least;
  };
  p.row_pitch = fit(p.staged_columns, row.stride, p.columns * col.stride);
  p.image_pitch = fit(p.staged_rows * p.row_pitch, 1, p.rows * p.columns * col.stride);
}

void FitPiece(WgradMmaPlan& p, const WgradAxis& row, const WgradAxis& col) {
  p.staged_rows = Reach(row, p.rows);
  p.staged_columns = Reach(col, p.columns);
  p.row_pitch = p.staged_columns;
  p.image_pitch = p.staged_rows * p.row_pitch;
  if (p.columns < 16 && col.stride % 2 == 1) Spread(p, row, col);
  p.pixels = AlignUp(p.images * p.rows * p.columns, 16 * p.parts());
  const int64_t staged = p.images * p.image_pitch + p.pixels;
  p.shared_bytes = 2 * staged * kWgradPitch * 2;
  if (p.row_warps == 0) p.shared_bytes += 2 * kWarpLanes * p.tiles * 4 * 4;
  p.fits = p.shared_bytes <= kMostShared;
}

}  // namespace

WgradAxis WgradAxisOf(const ConvShape& shape, int64_t axis) {
  if (axis < 0) return {};
  return {shape.taps[axis], shape.stride[axis], shape.dilation[axis], shape.pad[axis]};
}

int64_t WgradResidentByRegisters(const WgradMmaPlan& p, const ConvShape& shape) {
  if (p.row_warps > 0) return 2;
  return p.taps_of_set * p.tiles <= 20 && shape.channels >= 4 ? 3 : 2;
}

WgradMmaPlan WgradMmaPlanOf(const Group& group, const Target& target, const ConvShape& shape,
                            const DirectKnobs& knobs) {
  constexpr int64_t kMostColumns = 64, kMostTiles = 36;  // tiles of a warp, 4 registers each
  const Dims& y = group.graph[shape.y].dims;
  const WgradAxis row = WgradAxisOf(shape, shape.spatial - 2),
                  col = WgradAxisOf(shape, shape.spatial - 1);
  const int64_t images = y[0], rows = shape.spatial == 1 ? 1 : y[2], columns = y.back();
  WgradMmaPlan p;
  p.tiles = shape.channels > 16 ? 4 : 2;
  const int64_t most_taps = p.tiles == 2 ? 15 : kMostTiles / 4;
  p.tap_sets = CeilDiv(row.taps * col.taps, most_taps);
  p.taps_of_set = CeilDiv(row.taps * col.taps, p.tap_sets);
  // Two warps for each filter row, with 16 channels each: 3 taps with all filters are 48 sums.
  if (p.tiles == 4 && col.taps <= 3 && row.taps >= 2 && row.taps <= 4) {
    p.tiles = 2;
    p.row_warps = 2 * row.taps;
    p.tap_sets = 1;
    p.taps_of_set = col.taps;
  }
  p.column_blocks = CeilDiv(columns, kMostColumns);
  p.columns = std::max<int64_t>(CeilDiv(columns, std::max<int64_t>(p.column_blocks, 1)), 1);
  const int64_t wanted = int64_t{knobs.rows} * 64;  // outputs
  p.rows = std::clamp<int64_t>(wanted / p.columns, 1, std::max<int64_t>(rows, 1));
  if (p.rows == rows)
    p.images = std::clamp<int64_t>(wanted / (p.rows * p.columns), 1, std::max<int64_t>(images, 1));
  for (FitPiece(p, row, col); !p.fits; FitPiece(p, row, col)) {
    int64_t& largest = p.images > 1 ? p.images : p.rows > 1 ? p.rows : p.columns;
    if (largest <= 1) break;
    largest = CeilDiv(largest, 2);
  }
  p.row_groups = CeilDiv(rows, p.rows);
  p.column_blocks = CeilDiv(columns, p.columns);
  p.image_groups = CeilDiv(images, p.images);
  p.slabs = CeilDiv(group.graph[shape.y].dims[1], kWgradSlab);
  // Whole waves: blocks have equal work.
  const int64_t registers = WgradResidentByRegisters(p, shape);
  p.resident = std::clamp<int64_t>(target.shared_bytes_per_block / p.shared_bytes, 1, registers);
  const int64_t blocks = std::max<int64_t>(p.resident * knobs.steps / 4, 1) *
                         std::max<int64_t>(target.multiprocessors, 1);
  const int64_t least =
      CeilDiv(p.pieces() * p.pixels, MostProductsAlone(DType::kF16, WidestOutput(group.graph)));
  p.splits =
      std::clamp<int64_t>(std::max(blocks / std::max<int64_t>(p.slabs * p.tap_sets, 1), least), 1,
                          std::max<int64_t>(p.pieces(), 1));
  return p;
}

bool TakesWgradMma(const Group& group, const Target& target, const ConvShape& shape) {
  const graph::Graph& g = group.graph;
  const DType type = g[shape.x].dtype;
  if (target.sm_version < 80 || type != g[shape.y].dtype || shape.spatial > 2) return false;
  if (type != DType::kF16 && type != DType::kBF16) return false;
  if (shape.channels != shape.filters || shape.channels < 1 || shape.channels > kWgradSlab)
    return false;
  if (!std::has_single_bit(static_cast<uint64_t>(shape.channels))) return false;
  if (ArithmeticType(ContractionOf(group).compute) != DType::kF32) return false;
  if (NumElements(g[shape.y].dims) == 0 || NumElements(g[shape.x].dims) == 0) return false;
  return ComesByPieces(group, shape.x, kWgradChunk) && ComesByPieces(group, shape.y, kWgradChunk) &&
         WgradMmaPlanOf(group, target, shape, {.rows = 1, .cols = 1, .steps = 1, .run = 8}).fits;
}

}  // namespace kiln::compiler
