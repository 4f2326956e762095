// WgradPixels: dy of a piece in shared memory, pixel after pixel, and where each of these pixels
// reads x. Pixels past the end of a piece are zeros of dy; they read x where a pixel of the piece
// does, so that a NaN reaches only sums that it belongs to.
#pragma once

#include <string>

#include "compiler/engines/conv_first_layer/tiles.h"
#include "compiler/engines/conv_first_layer/wgrad.h"
#include "compiler/kernel/lane_access.h"

namespace kiln::compiler {

class WgradPixels {
 public:
  // The rows and columns of a piece that exist, at least 1.
  struct Counts {
    tile::Expr rows, cols;
  };

  WgradPixels(const FirstLayerContext& context, const FirstLayerWgradSizes& sizes,
              const FirstLayerRows& rows, tile::Expr first_filter);

  // The elements from one pixel of dy to the next: padded against bank conflicts of ldmatrix.
  int64_t pitch() const;
  int64_t elements() const { return s_.pixels * pitch(); }  // of dy, of a piece
  const std::string& dy() const { return dy_; }
  const std::string& places() const { return places_; }

  void Allocate(tile::Block& body, int64_t slots);
  Counts Count(tile::Block& out, const FirstLayerPiece& piece) const;
  // Starts asynchronous copies of dy to element `to` on; or copies it.
  void Start(tile::Block& body, const FirstLayerPiece& piece, const Counts& here,
             const tile::Expr& to) const;
  void Stage(tile::Block& body, const FirstLayerPiece& piece, const Counts& here) const;
  // Fills places[pixel] with where it reads x in a piece's rows.
  void FillPlaces(tile::Block& body, const Counts& here) const;

 private:
  struct Pixel {
    tile::Expr row, col;
  };
  // The source and the target of 8 filters of a pixel, and whether they exist.
  struct Vector {
    tile::Expr number, to, guard;
    Index at;
  };
  int64_t turns() const { return CeilDiv(s_.pixels * s_.tiles * 2, kFirstLayerThreads); }
  Pixel PixelAt(tile::Block& out, const tile::Expr& number) const;
  Vector VectorAt(tile::Block& out, const FirstLayerPiece& piece, const Counts& here,
                  const tile::Expr& i) const;

  FirstLayerContext x_;
  const FirstLayerWgradSizes& s_;
  const FirstLayerRows& rows_;
  LaneAccess read_;
  tile::Expr first_filter_;
  std::string dy_ = {}, places_ = {};
};

}  // namespace kiln::compiler
