// Structs that the parts of conv_direct's wgrad on tensor cores (conv_direct/wgrad_mma.cc) share.
// That file makes these structs and hands them along the way of the data: wgrad_mma_stages.h
// (operands to shared memory), wgrad_mma_sums.h (products, and sums to scratch memory).
#pragma once

#include "compiler/engines/conv_direct/designs.h"
#include "compiler/kernel/loops.h"

namespace kiln::compiler {

constexpr int64_t kWgradSlab = 32;  // channels of a block
constexpr int64_t kWgradPitch =
    kWgradSlab + 8;                 // elements of a staged pixel, against bank conflicts
constexpr int64_t kWgradChunk = 8;  // elements of 16 bytes

// An axis of one tap for what a 1-D convolution does not have.
struct WgradAxis {
  int64_t taps = 1, stride = 1, dilation = 1, pad = 0;
};
WgradAxis WgradAxisOf(const ConvShape& shape, int64_t axis);

// The blocks of a multiprocessor without a spill: by the sums of a warp, and by the conditions that
// few channels a group take at the end.
int64_t WgradResidentByRegisters(const WgradMmaPlan& p, const ConvShape& shape);

struct WgradMmaContext {
  KernelBuilder& b;
  const Group& group;
  const ConvShape& shape;
  const WgradMmaPlan& p;
  WgradAxis row, col;

  DType type() const { return group.graph[shape.x].dtype; }
  bool is_flat() const { return shape.spatial == 1; }
  // True if warps have a filter row each, and all of k.
  bool by_rows() const { return p.row_warps > 0; }
  int64_t taps() const { return row.taps * col.taps; }
  int threads() const { return static_cast<int>(p.warps() * kWarpLanes); }
  // The rows and columns of the scratch buffer.
  int64_t sum_rows() const { return taps() * shape.channels; }
  int64_t padded_filters() const { return p.slabs * kWgradSlab; }
  // The elements of a piece in shared memory.
  int64_t x_elements() const { return p.images * p.image_pitch * kWgradPitch; }
  int64_t dy_elements() const { return p.pixels * kWgradPitch; }
  // f32 accumulators that each thread holds.
  int64_t accumulators() const { return p.halves() * p.taps_of_set * p.tiles * 4; }
};

// The block's slab, taps and split, and a lane's part of them.
struct WgradMmaThread {
  tile::Expr first_channel, first_tap, split;
  tile::Expr lane, g, t4;               // of a fragment: its row and its column pair
  tile::Expr half, part, channel_half;  // of the filters, of k, and of the channels
  tile::Expr filter_row;                // by rows
};

// One piece, and what of it exists.
struct WgradMmaPiece {
  tile::Expr first_image, first_row, first_col, exists;
  tile::Expr images, rows, cols;
};

struct WgradMmaPixel {
  tile::Expr image, row, col;  // in the piece
};
// Pixel `number` of images of so many rows and columns.
WgradMmaPixel SplitPixel(KernelBuilder& b, tile::Block& out, const tile::Expr& number, int64_t rows,
                         int64_t columns);

}  // namespace kiln::compiler
