// The rows engine's kernel:
//
//   for each row of the team:   held vectors <- x, dy, …          all of them before the first use
//   for each stage:
//     for each row:             accumulate the stage's reductions over the held vectors
//     combine:                  shuffles, and shared memory where a team is more than a warp, or
//                               where neighbouring threads have rows side by side
//   for each row:               the last stage's maps; results go out as vectors
//
// Where sums across rows are wanted (dgamma, dbeta), as many blocks as are resident walk all rows,
// each thread with columns of its own (see rows/across_rows.h), and read the next row ahead: into
// registers, or several rows into shared memory. Where blocks would have a few long rows each, they
// walk, too. Rows that are longer than what a team holds stay in shared memory; those that are too
// long for that are read again by each stage, a few vectors at a time: all but the first reading
// finds them in the L2 cache. Sums have a fixed order, so results are the same from run to run.
#include <algorithm>

#include "compiler/engines/rows/across_rows.h"
#include "compiler/engines/rows/engine.h"
#include "compiler/engines/rows/stages.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

// The grid of a kernel: blocks, and tiles of each of them where they walk.
struct Grid {
  int64_t blocks, turns;
};
Grid GridOf(const RowsPlan& plan, const Target& target, const RowsShape& shape) {
  const int64_t tiles = CeilDiv(plan.row.rows, shape.rows_of_block());
  const int64_t most = int64_t{shape.resident} * target.multiprocessors;
  const int64_t blocks = shape.resident > 0 ? std::min(tiles, most) : tiles;
  return {blocks, CeilDiv(tiles, std::max<int64_t>(blocks, 1))};
}

// All stages of one tile's rows. What they keep of another tile is not defined here: the tile is a
// copy.
void WriteStages(const RowsFrame& f, RowsTotals& totals, Block& body, RowsTile tile,
                 RowsColumns* columns) {
  if (!f.shape.streams && !f.walks()) Hold(f, body, f.plan.held, f.b.Idx(0), tile);
  const std::vector<RowsPlan::Stage>& stages = f.plan.stages;
  for (size_t s = 0; s < stages.size(); ++s) {
    const RowsPlan::Stage& stage = stages[s];
    if (stage.reduces.empty()) {
      StoreStage(f, totals, body, tile, stage, columns);
      continue;
    }
    const bool is_joint = stages[s + 1].moment && f.shape.IsEven(f.plan);
    if (is_joint) ++s;
    tile = ReduceStage(f, totals, body, std::move(tile), stage, is_joint ? &stages[s] : nullptr);
  }
}

// A block that walks: tile after tile, and then the partial results of its columns.
class RowsWalk {
 public:
  RowsWalk(const RowsFrame& f, RowsTotals& totals, Grid grid)
      : f_(f), totals_(totals), grid_(grid), columns_(f.plan, f.shape, f.b, f.vectors) {}

  // The next tile is read into registers while one is computed. Beside columns the last tile has
  // text of its own: a condition on reads would cost registers that are not there.
  void WithRegisters(Block& body, Lowered& lowered) {
    columns_.Declare(body);
    RowsTile tile{.number = f_.bx(), .turn = {}};
    Hold(f_, body, f_.plan.held, f_.b.Idx(0), tile);
    const bool peels = columns() != nullptr;
    const Expr turns = f_.b.Arg("turns", grid_.turns - (peels ? 1 : 0));
    const std::string turn = f_.b.Name("turn");
    tile.turn = tile::Var(turn, type());
    Block loop;
    WriteTurn(loop, tile, peels);
    body.push_back({tile::For{turn, type(), turns, Bind::kSerial, std::move(loop)}});
    if (!peels) return;
    tile.turn = turns;
    tile.number = f_.b.Let(body, "tile", tile.turn * f_.blocks + f_.bx());
    ReadInputs(body, tile);
    WriteStages(f_, totals_, body, tile, columns());
    columns_.Publish(body, f_.lane, grid_.blocks, lowered);
  }

  // Shared memory has the rows that are under way.
  void WithRing(Block& body, Lowered& lowered) {
    columns_.Declare(body);
    RowsTile tile{.number = f_.bx(), .turn = {}};
    for (const TensorId leaf : f_.plan.held) {
      const graph::Tensor& t = f_.graph()[leaf];
      tile.ring[leaf] = f_.b.Name(t.name + "_ring");
      body.push_back({tile::Alloc{tile.ring[leaf], t.dtype, tile::Space::kShared,
                                  f_.shape.ring * f_.plan.row.length}});
    }
    const std::string turn = f_.b.Name("turn");
    tile.turn = tile::Var(turn, type());
    Block loop;
    if (f_.refills())
      RefillRing(body, loop, tile);
    else
      TurnRing(body, loop, tile);
    const Expr turns = f_.b.Arg("turns", grid_.turns);
    body.push_back({tile::For{turn, type(), turns, Bind::kSerial, std::move(loop)}});
    body.push_back({tile::WaitAsync{0}});
    if (columns() != nullptr) columns_.Publish(body, f_.lane, grid_.blocks, lowered);
  }

 private:
  DType type() const { return f_.b.index_type(); }
  RowsColumns* columns() { return f_.plan.columns() > 0 ? &columns_ : nullptr; }

  // One tile, of which `tile` has the operands, while the next one's are read. `all_read`: all
  // blocks have a next one, if only the last row again.
  void WriteTurn(Block& loop, RowsTile tile, bool all_read) {
    tile.number = f_.b.Let(loop, "tile", tile.turn * f_.blocks + f_.bx());
    const Expr next = f_.b.Let(loop, "next", tile.number + f_.blocks);
    const Expr is_there = tile::Lt(next * f_.b.Idx(f_.shape.rows_of_block()), f_.count);
    const auto if_there = [&](Block inside) {
      if (all_read)
        std::ranges::move(inside, std::back_inserter(loop));
      else
        loop.push_back({tile::If{is_there, std::move(inside), {}}});
    };
    ReadInputs(loop, tile);
    Block reads, moves;
    Arrays of_next;
    AllocHeld(f_, loop, f_.plan.held, of_next);
    ReadHeld(f_, reads, next, f_.plan.held, f_.b.Idx(0), of_next);
    if_there(std::move(reads));
    WriteStages(f_, totals_, loop, tile, columns());
    MoveHeld(moves, tile, of_next);
    if_there(std::move(moves));
  }
  // The registers of held leaves take those of the next tile.
  void MoveHeld(Block& moves, const RowsTile& tile, const Arrays& of_next) const {
    EachRow(f_, moves, tile.number, [&](Block& of_row, const Row& row) {
      EachVector(f_, of_row, row, f_.b.Idx(0), [&](Block& of_vector, const Place& place) {
        UnrolledLoop(f_.b, of_vector, "l", f_.plan.lanes, [&](Block& out, const Expr& lane) {
          for (const TensorId leaf : f_.plan.held) {
            const DType type = f_.graph()[leaf].dtype;
            out.push_back({tile::Store{tile.held.at(leaf), place.slot + lane,
                                       tile::Load(of_next.at(leaf), type, place.slot + lane)}});
          }
        });
      });
    });
  }
  // Values of the tile's rows, asked for before the next tile's rows: behind those they would come
  // late.
  void ReadInputs(Block& out, RowsTile& tile) const {
    tile.inputs = AllocRowInputs(f_, out);
    ReadRowInputs(f_, out, tile.number, tile.inputs);
  }

  void TurnRing(Block& body, Block& loop, RowsTile tile) {
    KernelBuilder& b = f_.b;
    const int ring = f_.shape.ring;
    ReadInputs(body, tile);
    for (int ahead = 0; ahead + 1 < ring; ++ahead)
      CopyToRing(f_, body, tile.ring, tile.number + b.Idx(ahead) * f_.blocks, b.Idx(ahead));
    tile.number = b.Let(loop, "tile", tile.turn * f_.blocks + f_.bx());
    const Arrays next_inputs = AllocRowInputs(f_, loop);
    ReadRowInputs(f_, loop, b.Let(loop, "next", tile.number + f_.blocks), next_inputs);
    loop.push_back({tile::WaitAsync{ring - 2}});
    CopyToRing(f_, loop, tile.ring, b.Let(loop, "last", tile.number + b.Idx(ring - 1) * f_.blocks),
               (tile.turn + b.Idx(ring - 1)) % b.Idx(ring));
    tile.ring_at = b.Let(loop, "ring_at", tile.turn % b.Idx(ring) * b.Idx(f_.plan.row.length));
    WriteStages(f_, totals_, loop, tile, columns());
    MoveRowInputs(f_, loop, tile.number, tile.inputs, next_inputs);
  }
  void RefillRing(Block& body, Block& loop, RowsTile tile) {
    CopyToRing(f_, body, tile.ring, tile.number, f_.b.Idx(0));
    tile.ring_at = f_.b.Idx(0);
    tile.number = f_.b.Let(loop, "tile", tile.turn * f_.blocks + f_.bx());
    ReadInputs(loop, tile);
    loop.push_back({tile::WaitAsync{0}});
    WriteStages(f_, totals_, loop, tile, columns());
    loop.push_back({tile::CommitAsync{}});
  }

  const RowsFrame& f_;
  RowsTotals& totals_;
  const Grid grid_;
  RowsColumns columns_;
};

}  // namespace

Lowered LowerRows(const RowsPlan& plan, const Target& target, const RowsShape& shape) {
  Lowered lowered;
  KernelBuilder b(
      plan.row.group, target,
      fmt::format("rows: team={}, lanes={}, vectors={}, rows={}, threads={}{}{}", shape.team,
                  plan.lanes, shape.vectors, shape.rows, shape.threads,
                  shape.streams ? ", streams" : "", shape.side_by_side ? ", abreast" : ""));
  for (const char* reserved : {"bx", "tx"}) b.Name(reserved);
  const Grid grid = GridOf(plan, target, shape);
  RowsFrame f{plan,
              shape,
              b,
              b.Arg("rows", plan.row.rows),
              b.Arg("vectors", plan.vectors),
              b.Arg("blocks", grid.blocks),
              {}};
  Block body;
  f.lane = b.Let(body, "lane",
                 shape.side_by_side ? f.tx() / b.Idx(f.teams()) : f.tx() % b.Idx(shape.team));
  RowsTotals totals(f, body);
  if (shape.ring > 0)
    RowsWalk(f, totals, grid).WithRing(body, lowered);
  else if (f.walks())
    RowsWalk(f, totals, grid).WithRegisters(body, lowered);
  else
    WriteStages(f, totals, body, {.number = f.bx(), .turn = {}}, nullptr);
  b.Finish(BlockAndThread(b.index_type(), f.blocks, shape.threads, std::move(body)),
           {grid.blocks, 1, 1}, shape.threads, lowered, shape.resident);
  if (plan.columns() > 0) CombineColumns(plan, target, grid.blocks, lowered);
  return lowered;
}

}  // namespace kiln::compiler
