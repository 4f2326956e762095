// DgradStages: dy of a piece and its halo in shared memory, pixel after pixel, a chunk of the
// filters at a time, by asynchronous copies a stage ahead.
#pragma once

#include <string>
#include <vector>

#include "compiler/engines/conv_first_layer/dgrad_context.h"

namespace kiln::compiler {

class DgradStages {
 public:
  // The stage that is copied next: a chunk of the filters of a piece, into one of the two slots.
  struct Stage {
    struct Range {  // the staged rows or columns that dy has
      tile::Expr first, end;
    };
    Range rows, cols;
    tile::Expr from, to, valid;
  };

  // A thread stages the same places of every stage. Where they are few, what it knows of them is
  // named in `body`, once.
  DgradStages(const DgradContext& context, std::string array, tile::Block& body);

  // Copies of a thread that can be started one by one; 0 where there are too many.
  size_t kept() const { return kept_.size(); }
  // Chunk `chunk` of the piece, into slot number % 2.
  Stage Enter(tile::Block& out, const DgradPiece& piece, const tile::Expr& chunk,
              const tile::Expr& number) const;
  void StartKept(tile::Block& out, const Stage& stage, size_t turn) const;
  void StartAll(tile::Block& out, const Stage& stage) const;

 private:
  struct Place {
    tile::Expr row, col, from;  // on the staged rows; relative to the first of them in memory
  };
  int64_t turns() const;
  tile::Expr PixelOf(const tile::Expr& turn) const;
  Place PlaceAt(tile::Block& out, const tile::Expr& turn) const;
  Stage::Range RangeOf(tile::Block& out, const tile::Expr& first, int64_t dim) const;
  void Start(tile::Block& out, const Stage& stage, const tile::Expr& turn, const Place& place,
             bool is_last) const;

  DgradContext x_;
  std::string array_;
  std::vector<Place> kept_;
};

}  // namespace kiln::compiler
