// RowsFrame: the facts that every part of the rows engine's kernel knows, and the loops that all of
// them write: the rows that a team has under way, the vectors of a row that a thread has, and the
// lanes of a vector. Parts get the frame, and the state of one tile (operands.h) as values.
#pragma once

#include <functional>

#include "compiler/engines/reduction/rows_plan.h"
#include "compiler/kernel/loops.h"

namespace kiln::compiler {

struct RowsFrame {
  const RowsPlan& plan;
  const RowsShape& shape;
  KernelBuilder& b;
  tile::Expr count, vectors, blocks;  // rows, vectors of a row, and blocks: parameters
  tile::Expr lane;                    // the thread's place in its team

  const graph::Graph& graph() const { return plan.row.group.graph; }
  const graph::Node& reduce(size_t r) const { return graph().nodes[plan.row.reduces[r]]; }
  tile::Expr tx() const { return tile::Var("tx", b.index_type()); }
  tile::Expr bx() const { return tile::Var("bx", b.index_type()); }
  int teams() const { return shape.threads / shape.team; }
  // The number of the team that the thread belongs to.
  tile::Expr TeamOfThread() const;
  // The elements of all vectors that a thread has at a time.
  int64_t HeldElements() const { return int64_t{shape.rows} * shape.vectors * plan.lanes; }
  // True if blocks walk all rows.
  bool walks() const { return shape.resident > 0; }
  // True if the ring has room for one row: the next one's vectors are asked for as this one's are
  // stored.
  bool refills() const { return shape.ring == 1; }
  // True if rows of the last tile may not exist.
  bool MayBePast() const { return walks() || shape.rows_of_block() != 1; }
};

// One of the team's rows.
struct Row {
  tile::Expr slot;    // among the team's rows
  tile::Expr number;  // may be past the last
  Index kept;         // of a row that exists, so that all lanes take part in shuffles
};
Row RowOf(const RowsFrame& f, tile::Block& out, const tile::Expr& tile, const tile::Expr& slot);
// Calls emit for the rows that the team has of a tile.
void EachRow(const RowsFrame& f, tile::Block& out, const tile::Expr& tile,
             const std::function<void(tile::Block&, const Row&)>& emit);
// Appends what is done for a row that exists.
void IfExists(const RowsFrame& f, tile::Block& out, const Row& row, tile::Block inside);

// A vector of a row that this thread has.
struct Place {
  Index index;              // of its first element
  tile::Expr slot;          // of that element in a held array
  tile::Expr column;        // of that element among those of one row
  tile::Expr in_ring = {};  // of that element in a row of the ring
};
// Calls emit for the vectors of one chunk of a row; a row that does not stream is one chunk.
void EachVector(const RowsFrame& f, tile::Block& out, const Row& row, const tile::Expr& chunk,
                const std::function<void(tile::Block&, const Place&)>& emit);

// One element of a vector.
struct Element {
  tile::Expr lane;
  Index index;
};
void EachLane(const RowsFrame& f, tile::Block& out, const Index& index,
              const std::function<void(tile::Block&, const Element&)>& emit);

}  // namespace kiln::compiler
