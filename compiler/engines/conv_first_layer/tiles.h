// FirstLayerRows: the input rows that fprop and wgrad of conv_first_layer share. The work is cut
// into pieces, a few rows of one image times up to 128 columns of the output; the input rows under
// a piece, halo and padding included, stand in shared memory as in channels-last memory. One filter
// row reads for one output a run of consecutive elements there.
#pragma once

#include <string>

#include "compiler/engines/contraction/conv_shape.h"
#include "compiler/engines/engine.h"
#include "compiler/kernel/loops.h"

namespace kiln::compiler {

struct FirstLayerKnobs {
  int rows, steps;
};

// The way in which the problem is cut: everything that shared memory and loops are sized by.
struct FirstLayerPlan {
  int64_t rows, steps, columns, column_blocks;  // of output, in a piece
  int64_t slabs, sets;                          // blocks of filters; n tiles of each
  int64_t pixel;                                // elements of a staged pixel
  int64_t chunks, products;                     // of a filter row; of an output
  int64_t staged_rows, staged_columns, pitch;
  int64_t row_taps, row_stride, row_dilation, row_pad;
  int64_t stride, dilation, taps, pad;  // along the row
  // Whole rows come 16 bytes at a time. Then a staged row begins `margin` elements before the first
  // pixel's column, and a run `lead` elements after that; slot 0 of a run is its element -shift, so
  // that pairs of slots stand at even places. All 0 otherwise.
  bool wide;
  int64_t margin, lead, shift;

  // Fragments of the filters, in shared memory: whole turns of the chunks that are read at once.
  static constexpr int64_t kChunksAtOnce = 6;
  int64_t panel_elements() const { return AlignUp(products * 2, kChunksAtOnce) * sets * 64; }
  int64_t staged_elements() const { return staged_rows * pitch; }
  // A run is slots shift .. end_slot() of its chunks.
  int64_t end_slot() const { return shift + taps * pixel; }
  int64_t first_place() const { return lead - shift; }  // of the first run's slot 0 in its row
};
FirstLayerPlan PlanOf(const Group& group, const ConvShape& shape, const FirstLayerKnobs& knobs);
int64_t PiecesOf(const Group& group, const ConvShape& shape, const FirstLayerPlan& plan);

constexpr int kFirstLayerWarps = 4, kFirstLayerThreads = kWarpLanes * kFirstLayerWarps;
constexpr int64_t kFirstLayerChunk = 8;  // elements of 16 bits in 16 bytes
constexpr int64_t kFirstLayerSlab = 32;  // filters

// Context that the parts of fprop's and of wgrad's kernel share.
struct FirstLayerContext {
  KernelBuilder& b;
  const Group& group;
  const ConvShape& shape;
  const FirstLayerPlan& p;

  DType type() const { return group.graph[shape.x].dtype; }
  // Row `tap` of the filter, or column, as w has it.
  tile::Expr FilterTap(KernelBuilder& any, const tile::Expr& tap, int64_t count) const {
    return shape.flip ? any.Idx(count - 1) - tap : tap;
  }
};

// A lane, its row g and column pair t4 in fragments, and its warp.
struct FirstLayerLane {
  tile::Expr lane, warp, g, t4;
};
FirstLayerLane EnterLane(KernelBuilder& b, tile::Block& body);

// A piece: its image, the first of its outputs, and whether the block has it to make.
struct FirstLayerPiece {
  tile::Expr image, first_row, first_col, exists;
};

// The input rows under a piece, in shared memory.
class FirstLayerRows {
 public:
  explicit FirstLayerRows(const FirstLayerContext& context) : x_(context) {}

  // Makes room for the rows of `slots` pieces.
  void Allocate(tile::Block& body, int64_t slots);
  const std::string& array() const { return array_; }

  // Piece number `piece`, which exists where `also` is true (null: everywhere).
  FirstLayerPiece Enter(tile::Block& out, const tile::Expr& piece,
                        const tile::Expr& also = nullptr);
  // Columns of a piece, as an argument.
  const tile::Expr& columns() const { return columns_; }

  // Copies the rows, a pixel a thread.
  void Stage(tile::Block& body, const FirstLayerPiece& piece) const;
  // Starts asynchronous copies of them to element `to` on (plan.wide).
  void Start(tile::Block& body, const FirstLayerPiece& piece, const tile::Expr& to) const;

 private:
  struct Origin {  // the input that a piece's first staged pixel is
    tile::Expr h, w;
  };
  void ReadPixel(tile::Block& out, const FirstLayerPiece& piece, const Origin& origin,
                 const tile::Expr& place, const std::string& pixel, const tile::Expr& to) const;

  FirstLayerContext x_;
  std::string array_;
  // Arguments, made when the first piece is entered.
  tile::Expr columns_, row_groups_, column_blocks_, pieces_;
};

}  // namespace kiln::compiler
