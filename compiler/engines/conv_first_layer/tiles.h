// FirstLayerTiles: what fprop and wgrad of conv_first_layer share. The work is cut into pieces, a
// few rows of one image times up to 128 columns of the output; the input rows under a piece, halo
// and padding included, stand in shared memory as in channels-last memory. What one filter row
// reads for one output is a run of consecutive elements there.
#pragma once

#include <string>

#include "compiler/engines/contraction/conv_shape.h"
#include "compiler/engines/engine.h"

namespace kiln::compiler {

struct FirstLayerKnobs {
  int rows, steps;
};

// How the problem is cut: everything that shared memory and loops are sized by.
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

class FirstLayerTiles {
 protected:
  static constexpr int kWarp = 32, kWarps = 4, kThreads = kWarp * kWarps;
  static constexpr int64_t kChunk = 8, kSlab = 32;

  FirstLayerTiles(const Group& group, const Target& target, const ConvShape& shape,
                  const FirstLayerPlan& plan, const std::string& description);

  DType t() const { return b_.index_type(); }
  tile::Expr Var(const std::string& name) const { return tile::Var(name, t()); }
  template <class F>
  void Loop(tile::Block& out, const std::string& wish, tile::Expr extent, tile::Bind bind,
            F&& fill) {
    const std::string name = b_.Name(wish);
    tile::Block body;
    fill(body, Var(name));
    out.push_back({tile::For{name, t(), std::move(extent), bind, std::move(body)}});
  }
  tile::Expr Zero(DType type) const { return tile::Cast(type, tile::Float(0)); }

  // The rest of the block is about piece `piece`: its place becomes image_, first_row_, first_col_.
  // It exists where `also` is true (null: everywhere).
  void EnterPiece(tile::Block& out, const tile::Expr& piece, const tile::Expr& also = nullptr);
  // Its input rows to shared memory, a pixel a thread.
  void StageRows(tile::Block& body);
  // Starts asynchronous copies of them to element `to` on (plan.wide).
  void StartRows(tile::Block& body, const tile::Expr& to);

  const Group& group_;
  ConvShape shape_;
  FirstLayerPlan p_;
  KernelBuilder b_;
  DType type_;
  tile::Expr image_, first_row_, first_col_, columns_, exists_;
  std::string staged_;

 private:
  void ReadPixel(tile::Block& out, const tile::Expr& place, const tile::Expr& first_h,
                 const tile::Expr& first_w, const std::string& pixel, const tile::Expr& to);

  tile::Expr row_groups_, column_blocks_, pieces_;
};

}  // namespace kiln::compiler
