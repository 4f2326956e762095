// PassFrame: the facts that every part of one pass of the columns engine knows, which columns a
// thread has, and how it walks their places. Parts get the frame and ThreadColumns, and return what
// they declare.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compiler/engines/columns/engine.h"
#include "compiler/kernel/loops.h"

namespace kiln::compiler {

struct PassFrame {
  const ColumnsPlan& plan;
  const RowsPlan::Stage& stage;
  const size_t number;  // of the stage
  const ColumnsShape& shape;
  const ColumnsScratch& scratch;
  KernelBuilder& b;
  ColumnsParameters& args;
  const std::vector<size_t> order;  // the stage's reductions
  tile::Expr splits = {}, blocks = {};

  const graph::Graph& graph() const { return plan.graph(); }
  const ReducePlan& row() const { return plan.chain.row; }
  DType type() const { return b.index_type(); }
  DType TypeOf(size_t r) const { return AccumulatorType(plan.reduce(r)); }
  tile::Expr tx() const { return tile::Var("tx", type()); }
  tile::Expr by() const { return tile::Var("by", type()); }
  bool is_first() const { return number == 0; }
  // Every other pass walks backwards, in blocks, too: what was read last may still be in the cache.
  bool is_backward() const { return number % 2 == 1; }
  // The number of columns that a thread has side by side.
  int columns_of_thread() const { return plan.across ? plan.lanes : 1; }
  // The number of a lane's column among those of the thread.
  tile::Expr ColumnOfLane(const tile::Expr& lane) const { return plan.across ? lane : b.Idx(0); }
};

// The columns that a thread has.
struct ThreadColumns {
  tile::Expr walker;       // the thread's place among those that share its columns
  tile::Expr column;       // its first column, in the order of kept dims
  Index kept;              // the index of that column
  tile::Expr lane = {};    // across: the thread's place among those with columns side by side
  tile::Expr exists = {};  // across: whether the thread has columns
  tile::Expr first = {},
             end = {};  // across: the block's columns; those of its outer place end there
};
ThreadColumns FindColumns(const PassFrame& f, tile::Block& out);
// The index of the thread's column that belongs to a lane.
Index IndexOfColumn(const PassFrame& f, const ThreadColumns& columns, const tile::Expr& lane);

// Calls visit(out, places) for the places of the thread's columns, tile after tile; the rest, which
// one split has, comes place by place.
void WalkPlaces(const PassFrame& f, const ThreadColumns& columns, tile::Block& out,
                const std::function<void(tile::Block&, const std::vector<tile::Expr>&)>& visit);

using Arrays = std::map<graph::TensorId, std::string>;  // names of registers

// Values of the thread's columns that the stage computes with. The first pass computes them; later
// ones find them where the kernel before has left them.
Arrays ReadColumnValues(const PassFrame& f, const ThreadColumns& columns, tile::Block& out);

// A place of the thread's columns, and the stage's leaves there.
struct LoadedPlace {
  Index index;
  Arrays leaves;
};
// Reads the leaves of all places before the first use.
std::vector<LoadedPlace> LoadPlaces(const PassFrame& f, const ThreadColumns& columns,
                                    tile::Block& out, const std::vector<tile::Expr>& places);

// All places at one lane: their values and indices.
struct LaneOfPlaces {
  tile::Expr lane;
  std::deque<ValueScope> scopes;
  std::vector<Index> indices;
};
void EachLane(const PassFrame& f, const Arrays& column_values, tile::Block& out,
              const std::vector<LoadedPlace>& places,
              const std::function<void(tile::Block&, LaneOfPlaces&)>& emit);

}  // namespace kiln::compiler
