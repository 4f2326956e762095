// The walk of the depthwise ring kernels (conv_direct/ring.cc): the facts that all their parts have
// in common, where a thread stands, and which rows and columns a turn of the main loop is about.
#pragma once

#include <vector>

#include "compiler/engines/conv_direct/ring.h"
#include "compiler/kernel/loops.h"

namespace kiln::compiler {

struct RingContext {
  KernelBuilder& b;
  const Group& group;
  const ConvShape& shape;
  const RingPlan& p;

  DType type() const { return group.graph[p.in].dtype; }
  int64_t stages() const { return p.period / p.group; }  // of a period
  // The channels of a row of the scratch buffer.
  int64_t padded() const { return AlignUp(p.slabs * p.slab, 32); }
  // True if some strips have columns that are not in the image, or another's.
  bool is_ragged() const {
    return p.strips * p.strip * p.column_blocks != group.graph[p.out].dims[3];
  }
  // Element `l` of a thread's lanes at a place of an array in registers.
  tile::Expr Lane(int64_t place, int64_t l) const { return b.Idx(place * p.lanes + l); }
  // 0 <= i < extent
  tile::Expr Inside(const tile::Expr& i, const tile::Expr& extent) const;
};

// The place of a thread: its block's split and slab of channels, its own channels (a vector of
// them), and which images and columns of a unit it walks.
struct RingThread {
  tile::Expr split, first_channel;
  tile::Expr vector, walker, strip, image;
  tile::Expr channel, has_channel;
};
RingThread EnterThread(const RingContext& x, tile::Block& body);

// A turn of the main loop: a period of rows in a unit.
struct RingTurn {
  tile::Expr exists;      // whether its unit does
  tile::Expr image;       // the unit's first
  tile::Expr out_row;     // the unit's first
  tile::Expr first_row;   // of the period, of outputs, counted from the unit's
  tile::Expr step_row;    // the same of inputs, counted from the unit's
  tile::Expr in_row;      // of the period, in the image
  tile::Expr own, first;  // the column that the block should begin at, and the one that it does
};

// A thread's columns in a turn's unit.
struct RingColumns {
  tile::Expr col;                   // the first, of outputs
  tile::Expr in_place, dy_place;    // where they begin in a row of the rings
  std::vector<tile::Expr> has_col;  // whether each exists; of wgrad, whether it is this strip's
};

class RingWalk {
 public:
  // Makes the kernel's arguments.
  explicit RingWalk(const RingContext& context);

  const tile::Expr& turns() const { return turns_; }
  RingTurn TurnAt(tile::Block& out, const tile::Expr& number, const tile::Expr& split) const;
  RingColumns ColumnsOf(tile::Block& loop, const RingTurn& turn, const RingThread& thread) const;
  // A condition: input row `u` of the period is one that the unit walks.
  tile::Expr IsWalked(const RingTurn& turn, int64_t u) const;
  // A condition: output row `i` of the unit exists.
  tile::Expr HasOutput(const RingTurn& turn, const tile::Expr& i) const;
  // A condition: the output row of a hit exists, which may have begun before the unit.
  tile::Expr HasOutput(const RingTurn& turn, const RingHit& hit) const;

 private:
  RingContext x_;
  tile::Expr splits_, units_, bodies_, turns_, walk_, rows_;
  Index groups_;
};

}  // namespace kiln::compiler
