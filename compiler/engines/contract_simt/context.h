// SimtContext: the facts that the parts of contract_simt's GPU kernel have in common. gpu.cc makes
// these structs and hands them along the way of the data: panel.h (memory to panels), gpu.cc
// (panels to sums), epilogue.h (sums to the result).
#pragma once

#include "compiler/engines/contract_simt/schedules.h"
#include "compiler/kernel/loops.h"

namespace kiln::compiler {

// A panel's row is padded by so many elements: the transposing store of 2 x 16 (or 8 x 4) places of
// k and rows then meets each bank once.
constexpr int kSimtPadding = 4;

struct SimtContext {
  KernelBuilder& b;
  const Contraction& c;
  TileShape shape;  // of the tile; k is the depth of a panel
  SimtPatch patch;

  // The distance of a thread's pieces along each axis.
  int stride_m() const { return shape.m / (patch.per_m / patch.lane); }
  int stride_n() const { return shape.n / (patch.per_n / patch.lane); }
  int warps_n() const { return patch.across(shape.n) / patch.lanes_n; }
  // The place of element `slot` of a thread's pieces, from the thread's first place on.
  tile::Expr Spread(const tile::Expr& slot, int stride) const {
    return slot / b.Idx(patch.lane) * b.Idx(stride) + slot % b.Idx(patch.lane);
  }
};

// The tile that a block makes.
struct SimtBlock {
  Index batch;
  tile::Expr batch_number, tile_row;
  tile::Expr first_m, first_n;
  tile::Expr m_size, n_size, k_size;  // of the whole axes
};

// A thread's lane and warp, and its first place in the tile.
struct SimtThread {
  tile::Expr lane, warp, m, n;
};

}  // namespace kiln::compiler
