// RingStages: the ring of input rows in shared memory, and in wgrad the one of dy. A stage has
// `group` input rows with their padding, pixel after pixel, and the rows of dy that begin there.
// Asynchronous copies fill it some stages ahead of what is multiplied.
#pragma once

#include <string>
#include <vector>

#include "compiler/engines/conv_direct/ring_walk.h"

namespace kiln::compiler {

class RingStages {
 public:
  // Allocates the rings and names a thread's share of each row.
  RingStages(const RingContext& context, const RingWalk& walk, const RingThread& thread,
             tile::Block& body);

  const std::string& in_ring() const { return in_.name; }
  const std::string& dy_ring() const { return dy_.name; }
  // Starts the copies of stage `stage`, counted from the beginning of turn `turn`.
  void Start(tile::Block& body, const tile::Expr& turn, int64_t stage) const;
  // The slot of the ring where that stage stands.
  tile::Expr SlotAt(tile::Block& body, const tile::Expr& turn, int64_t stage) const;

 private:
  // A 16-byte chunk of a row of all images.
  struct Chunk {
    tile::Expr exists;  // null: it does
    tile::Expr image, col, channel, to;
  };
  struct Ring {
    graph::TensorId tensor = -1;
    std::string name = {};
    std::vector<Chunk> chunks = {};  // a thread's share of a row
  };
  // The source of a chunk, of which a stage has several rows.
  struct Source {
    tile::Expr from, valid;  // of row 0; whether image, channel and column exist
  };
  std::vector<Chunk> ChunksOf(tile::Block& out, int64_t columns) const;
  std::vector<Source> SourcesOf(tile::Block& body, const Ring& ring, const RingTurn& at,
                                const tile::Expr& first_col) const;
  void StartRow(tile::Block& body, const Ring& ring, const std::vector<Source>& sources,
                const tile::Expr& row, const tile::Expr& has_row, const tile::Expr& to) const;
  void StartDy(tile::Block& body, const RingTurn& at, int64_t first, const tile::Expr& slot) const;

  RingContext x_;
  const RingWalk& walk_;
  tile::Expr split_, first_channel_;
  Ring in_, dy_;
};

}  // namespace kiln::compiler
