// The kernels of the wgmma_sm90 engine: a call of contract_sm90, or of a skeleton like it
// (codegen/cuda/device), and what a call consists of.
//
//   kernel.cc     which skeleton, its configuration, the grid, scratch memory
//   shape.cc      the numbers of a launch
//   epilogue.cc   the functions that take sums to the result
#pragma once

#include "compiler/engines/contract_wgmma/plan.h"
#include "compiler/engines/contract_wgmma/tile.h"
#include "compiler/engines/contraction/epilogue.h"
#include "compiler/engines/contraction/epilogue_reductions.h"

namespace kiln::compiler {

// Writes the kernels for a legal tile.
Lowered LowerSm90(const Group& group, const Target& target, const Sm90Plan& plan,
                  const Sm90Tile& tile);

// ---- what the parts of a kernel have in common

struct Sm90Context {
  KernelBuilder& b;
  const Group& group;  // without its reductions
  const EpilogueReductions& reductions;
  const Contraction& c;
  const Target& target;
  const Sm90Plan& plan;
  const Sm90Tile& tile;

  DType accumulator() const { return plan.type == DType::kI8 ? DType::kI32 : DType::kF32; }
  // True if results go by tensor map, each to the map of its phase.
  bool is_phased() const { return tile.direct && !plan.phases.empty(); }
  EpilogueAxes axes() const;
};

// The neighbours that the skeleton hands over at once where results do not go by tensor map.
constexpr int kSm90Vector = 8;

// Adds the members of the skeleton's shape to the call; returns the number of tiles, in clusters.
int64_t AddSm90Shape(const Sm90Context& x, tile::Call& call);

// Adds the results by tensor maps, and the epilogue as two functions of an accumulator.
void AddSm90DirectOutput(const Sm90Context& x, tile::Call& call);

// Function store(values: f32[8], batch, split, left, right), which takes 8 neighbours of a tile
// through the epilogue:
//
//   if left < left_size and right < right_size {
//     …index of the result from (batch, left, right)…
//     copy bias_r[0..8) <- bias[…];  for l in 0..8 { store y_w[l] = max(values[l] + bias_r[l], 0) }
//     copy y[…] <- y_w[0..8)
//   }
//
// Slices of k leave their partial sums in scratch memory.
tile::Call::Function MakeSm90StoreFunction(const Sm90Context& x, Lowered& lowered);

}  // namespace kiln::compiler
