// ContractTiles: the parts that the tiled contraction engines share. It knows which tile of which
// batch a block makes, an operand's element with its prologue or zero, and the epilogue at one
// place of the output.
#pragma once

#include <string>
#include <string_view>

#include "compiler/engines/contraction/contraction.h"
#include "compiler/engines/engine.h"
#include "compiler/kernel/loops.h"

namespace kiln::compiler {

// The contraction of a group that has one.
const graph::Node& ContractionOf(const Group& group);

struct TileShape {
  int m, n, k;
};

// The seconds of the whole tiles, inside the output or not, in waves over the SMs, each of which
// does `flops_per_multiprocessor` on one tile.
double TiledSeconds(const Group& group, const Target& target, const TileShape& shape,
                    double flops_per_multiprocessor);

// The price that an engine whose threads hold neighbouring channels pays for results of a
// convolution whose memory has other neighbours, and for tensors of that size and layout that the
// epilogue reads. `channels_last` says which neighbours threads hold: channels, or pixels.
double ScatteredSeconds(const Group& group, const Target& target, bool channels_last = true);

// A function that does more with an element of the result that is inside.
using ElementVisitor = std::function<void(tile::Block& out, ValueScope& values, const Index& at)>;

// Writes the epilogue at a place of `result` that is inside: the accumulator through the group's
// maps to its outputs. `values` is a scope over `out`.
void StoreOutputs(KernelBuilder& b, tile::Block& out, ValueScope& values, graph::TensorId result,
                  const Index& at, const tile::Expr& accumulator, const ElementVisitor& visit = {});

class ContractTiles {
 protected:
  // `swapped` makes the transposed product, see Swapped.
  ContractTiles(const Group& group, const Target& target, const TileShape& shape,
                const std::string& description, bool swapped = false);

  DType t() const { return b_.index_type(); }
  tile::Expr Var(const std::string& name) const { return tile::Var(name, t()); }

  // Writes for name in 0..extent { fill(body, variable) }.
  template <class F>
  void Loop(tile::Block& out, const std::string& wish, tile::Expr extent, tile::Bind bind,
            F&& fill) {
    compiler::Loop(b_, out, wish, std::move(extent), bind, fill);
  }

  // Finds which tile this block makes, and makes the sizes parameters.
  tile::Block Prepare();
  // Makes the grid around a body that one block (of `threads`; 1 on the CPU) executes; "bz" counts
  // the slices of k where there are several.
  Lowered Finish(tile::Block body, int threads, int64_t slices = 1, int min_blocks = 0);

  // Writes `at` = operand A (or B) at row `row` (a column of B) and depth `k`, after its prologue;
  // 0 outside of the operand and in the padding. The buffer holds `type`.
  void StageElement(tile::Block& out, bool is_a, const tile::Expr& row, const tile::Expr& k,
                    DType type, const std::string& buffer, const tile::Expr& at);
  // The element's place in its tensor, with what guards it; statements go to `read`, which is only
  // executed where row and k are in range.
  Operand Locate(tile::Block& read, bool is_a, const tile::Expr& row, const tile::Expr& k);
  // The element's place from indices that are known, which UnravelRow and UnravelDepth make.
  Operand LocateAt(tile::Block& read, bool is_a, const Index& row, const Index& k) {
    return is_a ? c_.at_a(read, batch_, row, k) : c_.at_b(read, batch_, k, row);
  }
  Index UnravelRow(tile::Block& out, bool is_a, const tile::Expr& row);
  Index UnravelDepth(tile::Block& out, const tile::Expr& k);
  tile::Expr InRange(bool is_a, const tile::Expr& row, const tile::Expr& k) const;

  using Taken = ElementVisitor;

  // Writes the epilogue: the accumulator at (m, n), if that is inside, through the group's maps to
  // its outputs.
  void StoreElement(tile::Block& out, const tile::Expr& m, const tile::Expr& n,
                    const tile::Expr& accumulator, const Taken& taken = {});

  tile::Expr Zero(DType type) const { return ZeroOf(type); }

  const Group& group_;
  TileShape shape_;
  KernelBuilder b_;
  Contraction c_{};
  tile::Expr tile_row_;  // number of this block's tile along m
  tile::Expr first_m_, first_n_, m_size_, n_size_, k_size_;
  tile::Expr batch_number_;  // row-major over the batch axis
  Index batch_;
  int64_t tiles_m_ = 0, tiles_n_ = 0;
};

// Split-K in its deterministic form: slice s of k leaves its accumulators, in the accumulator's
// type, in a scratch buffer [slices][batch][m][n] (or [n][m] where the output lies so), and a
// second kernel adds the slices in order and runs the epilogue.
class ContractCombine : private ContractTiles {
 public:
  ContractCombine(const Group& group, const Target& target, const char* engine, int64_t slices,
                  bool columns_outside);
  // Appends the scratch buffer and the second kernel.
  void Lower(Lowered& lowered);

 private:
  int64_t slices_;
  bool columns_outside_;
};

// The number of slices that fill the target where `blocks` do not, each at least `least_steps` of
// `steps` long and none of them empty. `wanted` above 0 asks for a number.
int64_t ChooseSlices(const Target& target, const ContractionSizes& size, int64_t blocks,
                     int64_t steps, int64_t least_steps, int wanted);
// The steps of each slice but the last.
inline int64_t StepsOfSlice(int64_t steps, int64_t slices) { return CeilDiv(steps, slices); }

}  // namespace kiln::compiler
