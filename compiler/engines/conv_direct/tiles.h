// ConvDirectTiles: the parts that the two designs of conv_direct share. A worker (a thread, or the
// four lanes of a warp that stand on one row of a fragment) makes `rows` x `cols` neighbouring
// outputs of a few channels. It walks down the input rows that they need; of each it reads a window
// of columns into registers, and every tap takes its inputs from there.
//
//   place    row tile and column block; column blocks run over images, planes and columns, so that
//            small images fill warps as well as large ones
//   taps     are constants: which output takes which window column at which tap is known when the
//            text is written, also in strided dgrad
#pragma once

#include <string>
#include <vector>

#include "compiler/engines/contraction/conv_shape.h"
#include "compiler/engines/engine.h"
#include "compiler/kernel/lane_access.h"
#include "compiler/kernel/loops.h"

namespace kiln::compiler {

struct DirectKnobs {
  int rows, cols, steps, run;
};

// Rows and columns of one worker: the knobs, rounded up to whole periods of the strided walk.
struct DirectSizes {
  int64_t rows = 1, cols = 1;             // of a worker
  int64_t row_tiles = 1, col_blocks = 1;  // of one image plane
  int64_t planes = 1;                     // images times depth
  int64_t places() const { return row_tiles * col_blocks * planes; }
};
DirectSizes SizesFor(const Group& group, const ConvShape& shape, const DirectKnobs& knobs,
                     int64_t col_multiple);

// Distinct inputs that `count` neighbouring outputs read along an axis, ascending.
std::vector<int64_t> WindowOf(const AxisMap& map, int64_t count);

// Index of w for a filter, a channel of its group and taps in walking order (depth, row, column).
Index DirectFilterIndex(const KernelBuilder& b, const ConvShape& shape, tile::Expr filter,
                        tile::Expr channel, int64_t kd, int64_t r, int64_t s);

class ConvDirectTiles {
 protected:
  ConvDirectTiles(const Group& group, const Target& target, const ConvShape& shape,
                  const DirectSizes& sizes, const std::string& description);

  DType t() const { return b_.index_type(); }
  tile::Expr Var(const std::string& name) const { return tile::Var(name, t()); }
  template <class F>
  void Loop(tile::Block& out, const std::string& wish, tile::Expr extent, tile::Bind bind,
            F&& fill) {
    compiler::Loop(b_, out, wish, std::move(extent), bind, fill);
  }

  // The place of a worker, by which its window is addressed.
  struct Place {
    tile::Expr image, depth, row, col;  // first output row and column
    tile::Expr in_row, in_col;          // the input that offset 0 means
    tile::Expr valid;
  };
  // The place of a worker: `block` is linear over (images, depths, column blocks), and `row_tile`
  // counts tiles of rows.
  Place PlaceAt(tile::Block& out, const tile::Expr& row_tile, const tile::Expr& block);

  // Conditions that the window columns exist, as variables; `valid` is part of each.
  std::vector<tile::Expr> ColumnGuards(tile::Block& out, const Place& place,
                                       const tile::Expr& valid);
  // The input plane that a tap of the depth axis reads: its index, and whether it exists (null: it
  // does).
  struct Plane {
    tile::Expr depth, guard;
  };
  Plane PlaneAt(tile::Block& out, const Place& place, int64_t tap);
  tile::Expr RowGuard(const Place& place, int64_t offset, const Plane& plane);
  Index InputIndex(const Place& place, const Plane& plane, const tile::Expr& channel,
                   int64_t row_offset, int64_t col_offset) const;
  // An output's place, and whether it exists.
  Index OutputIndex(const Place& place, const tile::Expr& channel, int64_t i, int64_t j) const;
  tile::Expr OutputGuard(const Place& place, int64_t i, int64_t j);

  int64_t depth_taps() const { return shape_.spatial == 3 ? shape_.taps[0] : 1; }
  int64_t out_channels() const { return group_.graph[shape_.out].dims[1]; }
  int64_t in_channels() const { return group_.graph[shape_.in].dims[1]; }
  tile::Expr Zero(DType type) const { return ZeroOf(type); }

  const Group& group_;
  ConvShape shape_;
  DirectSizes sizes_;
  AxisMap row_map_, col_map_;
  std::vector<int64_t> row_window_, col_window_;
  KernelBuilder b_;

 private:
  int64_t RowDim() const { return shape_.spatial; }  // of a tensor
  int64_t ColDim() const { return shape_.spatial + 1; }
};

}  // namespace kiln::compiler
