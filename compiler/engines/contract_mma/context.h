// MmaContext: the facts that the parts of a contract_mma kernel have in common. kernel.cc makes
// these structs and hands them, by value or by reference, along the way of the data: panel.h
// (memory to fragments), main_loop.h (fragments to sums), epilogue.h (sums to the result).
#pragma once

#include <string>

#include "compiler/engines/contract_mma/plan.h"
#include "compiler/kernel/loops.h"

namespace kiln::compiler {

// The shape of one product of a warp along m and n.
constexpr int kMmaM = 16, kMmaN = 8;

struct MmaContext {
  KernelBuilder& b;
  const Contraction& c;  // the product that is made: transposed where the plan is swapped
  const MmaPlan& plan;

  // The products of a warp along each axis of its part of the tile.
  int warp_tiles_m() const { return plan.tile_m / plan.warps_m / kMmaM; }
  int warp_tiles_n() const { return plan.tile_n / plan.warps_n / kMmaN; }
  // The steps of the tensor cores along k in one panel.
  int k_steps() const { return plan.depth / plan.mma_depth(); }
  // f32 or i32 accumulators that each thread holds.
  int64_t accumulators() const { return int64_t{warp_tiles_m()} * warp_tiles_n() * 4; }
};

// The tile of C that a block makes, and its slice of k.
struct MmaBlock {
  Index batch;
  tile::Expr batch_number;      // row-major over the batch axis
  tile::Expr row, column;       // numbers of the tile along m and n
  tile::Expr first_m, first_n;  // the tile's first place on each axis
  tile::Expr m_size, n_size;    // of the whole axes
  tile::Expr first_k, end_k;    // of the slice
  tile::Expr steps;             // panels of the slice
};

// A thread's lane, and where its warp's part of the tile begins.
struct MmaLane {
  tile::Expr lane, warp_m, warp_n;
};

}  // namespace kiln::compiler
