// MmaPlan: the plan of contract_mma for a group and knob values. Any combination of legal values is
// a legal plan: what does not fit (shared memory, registers, the length of k) is taken back to the
// next that does. Used by the engine's cost model and its schedule. MmaProblem: the part of a plan
// that follows from the group alone, found once.
#pragma once

#include "compiler/engines/contraction/contraction.h"
#include "compiler/engines/engine.h"

namespace kiln::compiler {

// Positions of the knobs of contract_mma.
enum MmaKnob { kMmaTileM, kMmaTileN, kMmaDepth, kMmaStages, kMmaWarps, kMmaSplits, kMmaKnobs };

enum class SplitForm : uint8_t { kOrdered, kAtomic };

// The way of an operand to its panel in shared memory.
enum class OperandPath : uint8_t {
  kDepth,     // 16-byte asynchronous copies along k; panel [rows][k]
  kRows,      // the same along m or n; panel [k][rows], fragments transposed
  kElements,  // through registers, prologue included; panel [rows][k]
};

struct MmaPlan {
  bool swapped = false;      // the transposed product
  DType type = DType::kF16;  // of panels and fragments
  DType accumulator = DType::kF32;
  OperandPath a = OperandPath::kElements, b = OperandPath::kElements;
  int tile_m = 0, tile_n = 0;
  int depth = 0;  // elements of k in a panel
  int stages = 0;
  int warps_m = 0, warps_n = 0;
  int splits = 1;
  SplitForm form = SplitForm::kOrdered;
  bool folds = false;  // the sum of a slice is too long for one chain (accumulation.h)
  // Bytes of shared memory for the places of a row (contract_mma/panel.h, WritePlaces) of each
  // panel.
  int64_t place_bytes_a = 0, place_bytes_b = 0;

  int warps() const { return warps_m * warps_n; }
  int threads() const { return 32 * warps(); }
  int chunk() const { return 16 / SizeOf(type); }  // elements of 16 bytes
  int mma_depth() const { return 2 * chunk(); }
  // A panel's rows are padded by 16 bytes: eight neighbours start in different banks.
  int Pitch(OperandPath path, int rows) const {
    return (path == OperandPath::kRows ? rows : depth) + chunk();
  }
  int64_t PanelElements(OperandPath path, int rows) const {
    return int64_t{path == OperandPath::kRows ? depth : rows} * Pitch(path, rows);
  }
  int64_t StageBytes() const {
    return (PanelElements(a, tile_m) + PanelElements(b, tile_n)) * SizeOf(type);
  }
  int64_t SharedBytes() const {
    return stages * StageBytes() + place_bytes_a * tile_m + place_bytes_b * tile_n;
  }
};

// The type in which tensor cores multiply operands of this type on that target.
DType MmaType(DType operand, const Target& target);

struct MmaProblem {
  MmaPlan plan = {};  // without a tile
  ContractionSizes size = {};
  int reductions = 0;  // of the result
};
MmaProblem MmaProblemOf(const Group& group, const Target& target);

MmaPlan PlanMma(const MmaProblem& problem, const Target& target, std::span<const int> knobs);

}  // namespace kiln::compiler
