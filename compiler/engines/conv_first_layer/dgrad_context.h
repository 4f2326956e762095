// Structs that the parts of the first layer's dgrad kernel (conv_first_layer/dgrad.cc) share. That
// file makes these structs and hands them along the way of the data: dgrad_stages.h (dy to shared
// memory), dgrad_panel.h (w to shared memory), dgrad.cc (products), dgrad_results.h (sums to dx).
#pragma once

#include "compiler/engines/conv_first_layer/dgrad.h"
#include "compiler/kernel/loops.h"

namespace kiln::compiler {

constexpr int kDgradWarps = 4, kDgradThreads = kWarpLanes * kDgradWarps;
constexpr int64_t kDgradVector = 8;  // elements of 16 bits in 16 bytes

struct DgradContext {
  KernelBuilder& b;
  const Group& group;
  const ConvShape& shape;
  const FirstLayerDgradPlan& p;
  DType type, made_type;  // of operands; of results that wait to be stored

  bool is_flat() const { return shape.spatial == 1; }
  int64_t vectors() const { return p.chunk / kDgradVector; }  // of a pixel
  int64_t chunk_steps() const { return p.chunk / 16; }        // products of a stage along filters
  // The elements of the panel for one of them, at one column of the window.
  int64_t step_elements() const { return p.row.window * p.sets * 128; }
  // f32 accumulators that each thread holds, and the first of those of a fragment.
  int64_t accumulators() const { return p.rows * p.tiles * p.sets * 4; }
  int64_t SumAt(int64_t row, int64_t tile, int64_t set) const {
    return ((row * p.tiles + tile) * p.sets + set) * 4;
  }
};

// A lane, its row g and column pair t4 in fragments, and its warp's first place of a piece.
struct DgradLane {
  tile::Expr lane, g, t4, warp_row, warp_col;
};

// A piece of the coarse grid: its image, its first place, and whether the block has it to make.
struct DgradPiece {
  tile::Expr image, first_row, first_col, exists;
};

// The pieces of a block, one a step.
class DgradPieces {
 public:
  // Makes the kernel's arguments.
  DgradPieces(const DgradContext& context, tile::Expr steps, tile::Expr grid);
  DgradPiece At(tile::Block& out, const tile::Expr& step) const;

 private:
  DgradContext x_;
  tile::Expr steps_, grid_, pieces_, row_blocks_, col_blocks_;
};

}  // namespace kiln::compiler
