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
#include <functional>
#include <map>
#include <optional>

#include "compiler/engines/rows/across_rows.h"
#include "compiler/engines/rows/engine.h"
#include "compiler/engines/rows/totals.h"
#include "compiler/kernel/accumulation.h"
#include "compiler/kernel/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

class RowsKernel {
 public:
  RowsKernel(const RowsPlan& plan, const Target& target, const RowsShape& shape)
      : plan_(plan),
        shape_(shape),
        b_(plan.row.group, target,
           fmt::format("rows: team={}, lanes={}, vectors={}, rows={}, threads={}{}{}", shape.team,
                       plan.lanes, shape.vectors, shape.rows, shape.threads,
                       shape.streams ? ", streams" : "", shape.side_by_side ? ", abreast" : "")),
        t_(b_.index_type()),
        totals_(plan, shape_, b_) {
    for (const char* reserved : {"bx", "tx"}) b_.Name(reserved);
    const int64_t tiles = CeilDiv(plan.row.rows, shape.rows_of_block());
    const int64_t most = int64_t{shape.resident} * target.multiprocessors;
    blocks_ = walks() ? std::min(tiles, most) : tiles;
    turns_ = CeilDiv(tiles, std::max<int64_t>(blocks_, 1));
    target_ = &target;
  }

  Lowered Lower() {
    Lowered lowered;
    count_ = b_.Arg("rows", plan_.row.rows);
    vectors_ = b_.Arg("vectors", plan_.vectors);
    grid_ = b_.Arg("blocks", blocks_);
    tile_ = tile::Var("bx", t_);
    Block body;
    lane_ = b_.Let(body, "lane",
                   shape_.side_by_side ? tx() / b_.Idx(teams()) : tx() % b_.Idx(shape_.team));
    totals_.Begin(body, lane_);
    if (shape_.ring > 0)
      WalkRing(body, lowered);
    else if (walks())
      Walk(body, lowered);
    else
      Rows(body);
    b_.Finish(BlockAndThread(t_, grid_, shape_.threads, std::move(body)), {blocks_, 1, 1},
              shape_.threads, lowered, shape_.resident);
    if (plan_.columns() > 0) CombineColumns(plan_, *target_, blocks_, lowered);
    return lowered;
  }

 private:
  const graph::Graph& g() const { return plan_.row.group.graph; }
  Expr tx() const { return tile::Var("tx", t_); }
  const graph::Node& node(size_t r) const { return g().nodes[plan_.row.reduces[r]]; }

  int teams() const { return totals_.teams(); }

  // Whether blocks walk all rows.
  bool walks() const { return shape_.resident > 0; }

  // The rows of one tile. What was kept of another is not defined here: each has its own loop.
  void Rows(Block& body) {
    for (const auto& [kept, regs] : keeps_) held_.erase(kept);
    keeps_.clear();
    if (!shape_.streams && !walks()) Hold(body, plan_.held, b_.Idx(0));
    for (size_t s = 0; s < plan_.stages.size(); ++s) {
      const RowsPlan::Stage& stage = plan_.stages[s];
      if (stage.reduces.empty())
        Store(body, stage);
      else if (plan_.stages[s + 1].moment && shape_.IsEven(plan_))
        Reduce(body, stage, &plan_.stages[++s]);
      else
        Reduce(body, stage, nullptr);
    }
  }

  // Tile after tile; the next one is read while one is computed. Beside columns the last tile has
  // text of its own: a condition on reads would cost registers that are not there.
  void Walk(Block& body, Lowered& lowered) {
    RowsColumns columns(plan_, shape_, b_, vectors_);
    if (plan_.columns() > 0) columns_ = &columns;
    columns.Declare(body);
    Hold(body, plan_.held, b_.Idx(0));
    const bool peels = columns_ != nullptr;
    const Expr turns = b_.Arg("turns", turns_ - (peels ? 1 : 0));
    const std::string turn = b_.Name("turn");
    turn_ = tile::Var(turn, t_);
    Block loop;
    WalkTile(loop, peels);
    body.push_back({tile::For{turn, t_, turns, Bind::kSerial, std::move(loop)}});
    if (peels) {
      turn_ = turns;
      tile_ = b_.Let(body, "tile", turn_ * grid_ + tile::Var("bx", t_));
      ReadTileInputs(body);
      Rows(body);
      columns.Publish(body, lane_, blocks_, lowered);
    }
    columns_ = nullptr;
  }
  // `all`: whether all blocks have a next one, if only the last row again.
  void WalkTile(Block& loop, bool all) {
    const std::map<TensorId, std::string> held = held_;
    const Expr tile = b_.Let(loop, "tile", turn_ * grid_ + tile::Var("bx", t_));
    const Expr next = b_.Let(loop, "next", tile + grid_);
    const Expr is_there = tile::Lt(next * b_.Idx(shape_.rows_of_block()), count_);
    const auto if_there = [&](Block inside) {
      if (all)
        std::ranges::move(inside, std::back_inserter(loop));
      else
        loop.push_back({tile::If{is_there, std::move(inside), {}}});
    };
    tile_ = tile;
    ReadTileInputs(loop);
    Block reads, moves;
    tile_ = next;
    AllocHeld(loop, plan_.held);
    ReadHeld(reads, plan_.held, b_.Idx(0));
    if_there(std::move(reads));
    const std::map<TensorId, std::string> of_next = held_;
    held_ = held;
    tile_ = tile;
    Rows(loop);
    EachRow(moves, [&](Block& of_row, const Row& row) {
      EachVector(of_row, row, b_.Idx(0), [&](Block& of_vector, const Place& place) {
        For(of_vector, "l", plan_.lanes, [&](Block& out, const Expr& lane) {
          for (const TensorId leaf : plan_.held)
            out.push_back(
                {tile::Store{held.at(leaf), place.slot + lane,
                             tile::Load(of_next.at(leaf), g()[leaf].dtype, place.slot + lane)}});
        });
      });
    });
    if_there(std::move(moves));
  }
  // Values of the tile's rows, asked for before the next tile's rows: behind those they would come
  // late.
  void ReadTileInputs(Block& out) {
    row_inputs_ = AllocRowInputs(out);
    ReadRowInputs(out, row_inputs_);
  }
  // The same where shared memory has the rows that are under way. Each thread copies what it will
  // read itself, so that it waits for nobody else.
  void WalkRing(Block& body, Lowered& lowered) {
    RowsColumns columns(plan_, shape_, b_, vectors_);
    if (plan_.columns() > 0) columns_ = &columns;
    columns.Declare(body);
    for (const TensorId leaf : plan_.held) {
      ring_[leaf] = b_.Name(g()[leaf].name + "_ring");
      body.push_back({tile::Alloc{ring_[leaf], g()[leaf].dtype, tile::Space::kShared,
                                  shape_.ring * plan_.row.length}});
    }
    const std::string turn = b_.Name("turn");
    turn_ = tile::Var(turn, t_);
    Block loop;
    if (refills())
      RefillRing(body, loop);
    else
      TurnRing(body, loop);
    body.push_back({tile::For{turn, t_, b_.Arg("turns", turns_), Bind::kSerial, std::move(loop)}});
    body.push_back({tile::WaitAsync{0}});
    if (columns_ != nullptr) columns.Publish(body, lane_, blocks_, lowered);
    columns_ = nullptr;
  }
  void TurnRing(Block& body, Block& loop) {
    row_inputs_ = AllocRowInputs(body);
    ReadRowInputs(body, row_inputs_);
    const Expr first = tile_;
    for (int ahead = 0; ahead + 1 < shape_.ring; ++ahead)
      CopyToRing(body, first + b_.Idx(ahead) * grid_, b_.Idx(ahead));
    const Expr tile = b_.Let(loop, "tile", turn_ * grid_ + tile::Var("bx", t_));
    const std::map<TensorId, std::string> next_of_rows = AllocRowInputs(loop);
    tile_ = b_.Let(loop, "next", tile + grid_);
    ReadRowInputs(loop, next_of_rows);
    loop.push_back({tile::WaitAsync{shape_.ring - 2}});
    CopyToRing(loop, b_.Let(loop, "last", tile + b_.Idx(shape_.ring - 1) * grid_),
               (turn_ + b_.Idx(shape_.ring - 1)) % b_.Idx(shape_.ring));
    tile_ = tile;
    ring_at_ = b_.Let(loop, "ring_at", turn_ % b_.Idx(shape_.ring) * b_.Idx(plan_.row.length));
    Rows(loop);
    MoveRowInputs(loop, next_of_rows);
  }
  // Room for one row: the next one's vectors are asked for as this one's are stored.
  bool refills() const { return shape_.ring == 1; }
  void RefillRing(Block& body, Block& loop) {
    CopyToRing(body, tile_, b_.Idx(0));
    ring_at_ = b_.Idx(0);
    tile_ = b_.Let(loop, "tile", turn_ * grid_ + tile::Var("bx", t_));
    ReadTileInputs(loop);
    loop.push_back({tile::WaitAsync{0}});
    Rows(loop);
    loop.push_back({tile::CommitAsync{}});
  }
  void CopyToRing(Block& out, const Expr& tile, const Expr& slot) {
    tile_ = tile;
    const Expr base = b_.Let(out, "ring_to", slot * b_.Idx(plan_.row.length));
    EachRow(out, [&](Block& of_row, const Row& row) {
      EachVector(of_row, row, b_.Idx(0),
                 [&](Block& body, const Place& place) { CopyVector(body, base, row, place); });
    });
    out.push_back({tile::CommitAsync{}});
  }
  void MoveRowInputs(Block& to, const std::map<TensorId, std::string>& next) {
    EachRow(to, [&](Block& out, const Row& row) {
      for (const auto& [id, regs] : row_inputs_)
        out.push_back(
            {tile::Store{regs, row.slot, tile::Load(next.at(id), g()[id].dtype, row.slot)}});
    });
  }

  // ---- loops

  void For(Block& out, const char* name, int count, const std::function<void(Block&, Expr)>& emit) {
    UnrolledLoop(b_, out, name, count, emit);
  }

  // Whether rows of the last tile may not exist.
  bool MayBePast() const { return walks() || shape_.rows_of_block() != 1; }

  // One of the team's rows.
  struct Row {
    Expr slot;    // of the team's rows
    Expr number;  // may be past the last
    Index kept;   // of a row that exists, so that all lanes take part in shuffles
  };
  void EachRow(Block& out, const std::function<void(Block&, const Row&)>& emit) {
    For(out, "u", shape_.rows,
        [&](Block& body, const Expr& u) { emit(body, RowOf(body, tile_, u)); });
  }
  Row RowOf(Block& out, const Expr& tile, const Expr& u) {
    Row row{.slot = u, .number = {}, .kept = {}};
    const Expr first = tile * b_.Idx(shape_.rows_of_block());
    row.number = b_.Let(out, "row", first + u * b_.Idx(teams()) + totals_.TeamOfThread());
    Expr existing = row.number;
    if (MayBePast())
      existing =
          b_.Let(out, "existing", tile::Op(ScalarOp::kMin, {row.number, count_ - b_.Idx(1)}));
    row.kept = UnravelDims(b_, out, plan_.row, plan_.row.kept, existing, 1, "k");
    return row;
  }

  // A vector of a row that this thread has.
  struct Place {
    Index index;        // of its first element
    Expr slot;          // of that element in a held array
    Expr column;        // of that element among those of one row
    Expr in_ring = {};  // of that element in a row of the ring
  };
  void EachVector(Block& out, const Row& row, const Expr& chunk,
                  const std::function<void(Block&, const Place&)>& emit) {
    For(out, "v", shape_.vectors, [&](Block& body, const Expr& v) {
      const Expr at = chunk * b_.Idx(shape_.vectors) + v;
      const Expr vector = b_.Let(body, "vector", at * b_.Idx(shape_.team) + lane_);
      const bool whole = plan_.vectors % (int64_t{shape_.vectors} * shape_.team) == 0;
      Block inside;
      Block& to = whole ? body : inside;
      Place place;
      place.index = UnravelDims(b_, to, plan_.row, plan_.row.reduced, vector, plan_.lanes, "r");
      place.index[plan_.row.inner] = place.index[plan_.row.inner] * b_.Idx(plan_.lanes);
      for (const int64_t d : plan_.row.kept) place.index[d] = row.kept[d];
      place.slot = (row.slot * b_.Idx(shape_.vectors) + v) * b_.Idx(plan_.lanes);
      place.column = v * b_.Idx(plan_.lanes);
      if (shape_.ring > 0) place.in_ring = vector * b_.Idx(plan_.lanes);
      emit(to, place);
      if (!whole) body.push_back({tile::If{tile::Lt(vector, vectors_), std::move(inside), {}}});
    });
  }

  // Into the ring.
  void CopyVector(Block& out, const Expr& base, const Row& row, const Place& place) {
    Index index = place.index;
    for (const int64_t d : plan_.row.kept) index[d] = row.kept[d];
    for (const TensorId leaf : plan_.held)
      out.push_back(
          {tile::CopyAsync{ring_.at(leaf), base + place.in_ring, b_.Pointer(leaf),
                           b_.Offset(leaf, index), plan_.lanes, tile::Lt(row.number, count_)}});
  }

  // Emits for the whole row at once, or for one chunk of it after the other.
  void EachChunk(Block& out, const RowsPlan::Stage& stage,
                 const std::function<void(Block&, const Expr&)>& emit) {
    if (!shape_.streams) return emit(out, b_.Idx(0));
    const std::string var = b_.Name("chunk");
    Block body;
    std::vector<TensorId> needed = plan_.held;
    std::erase_if(needed, [&](TensorId id) {
      return std::ranges::find(stage.leaves, id) == stage.leaves.end();
    });
    Hold(body, needed, tile::Var(var, t_));
    emit(body, tile::Var(var, t_));
    const Expr chunks = CeilDivExpr(vectors_, int64_t{shape_.vectors} * shape_.team);
    out.push_back({tile::For{var, t_, chunks, Bind::kSerial, std::move(body)}});
  }

  // ---- reading

  // Reads all vectors of these leaves.
  void Hold(Block& out, const std::vector<TensorId>& leaves, const Expr& chunk) {
    AllocHeld(out, leaves);
    ReadHeld(out, leaves, chunk);
  }
  void AllocHeld(Block& out, const std::vector<TensorId>& leaves) {
    for (const TensorId leaf : leaves) {
      held_[leaf] = b_.Name(g()[leaf].name + "_r");
      out.push_back({tile::Alloc{held_[leaf], g()[leaf].dtype, tile::Space::kReg,
                                 int64_t{shape_.rows} * shape_.vectors * plan_.lanes}});
    }
  }
  void ReadHeld(Block& out, const std::vector<TensorId>& leaves, const Expr& chunk) {
    EachRow(out, [&](Block& of_row, const Row& row) {
      EachVector(of_row, row, chunk, [&](Block& body, const Place& place) {
        for (const TensorId leaf : leaves) Fetch(body, leaf, place.index, held_[leaf], place.slot);
      });
    });
  }

  // Values of rows that are read, which come ahead beside a ring.
  std::map<TensorId, std::string> AllocRowInputs(Block& out) {
    std::map<TensorId, std::string> regs;
    for (const TensorId id : MemoryInputs(g())) {
      const Tensor& t = g()[id];
      const bool is_row_value =
          t.rank() == g()[plan_.row.input].rank() && NumElements(t.dims) == plan_.row.rows &&
          std::ranges::all_of(plan_.row.reduced, [&](int64_t d) { return t.dims[d] == 1; });
      if (!is_row_value) continue;
      regs[id] = b_.Name(t.name + "_of_row");
      out.push_back({tile::Alloc{regs[id], t.dtype, tile::Space::kReg, shape_.rows}});
    }
    return regs;
  }
  void ReadRowInputs(Block& out, const std::map<TensorId, std::string>& regs) {
    EachRow(out, [&](Block& of_row, const Row& row) {
      for (const auto& [id, to] : regs) {
        const Expr at = b_.Offset(id, BroadcastIndex(b_, g()[id], row.kept));
        of_row.push_back(
            {tile::Store{to, row.slot, tile::Load(b_.Pointer(id), g()[id].dtype, at)}});
      }
    });
  }

  void Fetch(Block& out, TensorId leaf, const Index& index, const std::string& regs,
             const Expr& slot) {
    FetchLanes(b_, out, leaf, index, plan_.row.inner, plan_.lanes, regs, slot);
  }

  void EachLane(Block& out, const Index& index,
                const std::function<void(Block&, const Expr&, const Index&)>& emit) {
    For(out, "l", plan_.lanes, [&](Block& body, const Expr& lane) {
      Index at = index;
      at[plan_.row.inner] = at[plan_.row.inner] + lane;
      emit(body, lane, at);
    });
  }

  // Values of the row, computed in `out` from the reductions so far.
  struct RowValues {
    std::vector<std::pair<TensorId, Expr>> known;
    struct Quotient {
      graph::NodeId node;
      Expr scale, reciprocal;
    };
    std::vector<Quotient> quotients;
  };
  ValueScope RowScope(Block& out, const Row& row) {
    ValueScope values(b_, out);
    for (const auto& [id, regs] : row_inputs_) {
      const Expr value = tile::Load(regs, g()[id].dtype, row.slot);
      values.Bind(id, BroadcastIndex(b_, g()[id], row.kept),
                  tile::Cast(ArithmeticType(g()[id].dtype), value));
    }
    for (const auto& [r, total] : totals_.registers()) {
      const TensorId result = node(r).outputs[0];
      values.Bind(result, BroadcastIndex(b_, g()[result], row.kept),
                  RoundThrough(g()[result].dtype, totals_.Of(r, row.slot)));
    }
    return values;
  }
  RowValues RowValuesFor(Block& out, const Row& row, const RowsPlan::Stage& stage) {
    ValueScope values = RowScope(out, row);
    RowValues result;
    for (const TensorId id : stage.row_values) {
      const Expr value = values.Value(id, BroadcastIndex(b_, g()[id], row.kept));
      result.known.emplace_back(id, b_.Let(out, g()[id].name + "_row", value));
    }
    for (const graph::NodeId n : stage.quotients) {
      const TensorId id = g().nodes[n].inputs[1];
      const Expr value =
          tile::Cast(DType::kF32, values.Value(id, BroadcastIndex(b_, g()[id], row.kept)));
      // The reciprocal of the smallest numbers is none: numerator and denominator are scaled.
      const Expr is_tiny = tile::Lt(tile::Op(ScalarOp::kAbs, {value}), tile::Float(0x1p-100));
      const Expr scale =
          b_.Let(out, "scale", tile::Select(is_tiny, tile::Float(0x1p64), tile::Float(1)));
      result.quotients.push_back(
          {n, scale, b_.Let(out, "reciprocal", tile::Float(1) / (value * scale))});
    }
    return result;
  }

  // Leaves of the stage that are not held, read for one vector: their registers.
  std::map<TensorId, std::string> FetchOthers(Block& out, const RowsPlan::Stage& stage,
                                              const Place& place) {
    std::map<TensorId, std::string> regs;
    for (const TensorId leaf : stage.leaves) {
      if (held_.contains(leaf)) continue;
      regs[leaf] = b_.Name(g()[leaf].name + "_r");
      out.push_back({tile::Alloc{regs[leaf], g()[leaf].dtype, tile::Space::kReg, plan_.lanes}});
      if (const auto ring = ring_.find(leaf); ring != ring_.end())
        WideCopy(out, g()[leaf].dtype, regs[leaf], b_.Idx(0), ring->second,
                 ring_at_ + place.in_ring, plan_.lanes);
      else
        Fetch(out, leaf, place.index, regs[leaf], b_.Idx(0));
    }
    return regs;
  }

  // Everything that the stage's wide tensors are computed from, at one lane of a place.
  void BindLeaves(Block& out, ValueScope& values, const RowsPlan::Stage& stage,
                  const RowValues& of_row, const std::map<TensorId, std::string>& others,
                  const Place& place, const Expr& lane, const Index& at) {
    for (const auto& [id, value] : of_row.known)
      values.Bind(id, BroadcastIndex(b_, g()[id], at), value);
    for (const TensorId leaf : stage.leaves) {
      const Tensor& t = g()[leaf];
      const auto other = others.find(leaf);
      const Expr loaded = other != others.end()
                              ? tile::Load(other->second, t.dtype, lane)
                              : tile::Load(held_.at(leaf), t.dtype, place.slot + lane);
      values.Bind(leaf, BroadcastIndex(b_, t, at), tile::Cast(ArithmeticType(t.dtype), loaded));
    }
    for (const RowValues::Quotient& q : of_row.quotients) {
      const graph::Node& quotient = g().nodes[q.node];
      const TensorId x = quotient.inputs[0], y = quotient.outputs[0];
      const Expr numerator =
          tile::Cast(DType::kF32, values.Value(x, BroadcastIndex(b_, g()[x], at)));
      const Expr value = b_.Let(out, g()[y].name + "_q",
                                tile::Cast(g()[y].dtype, numerator * q.scale * q.reciprocal));
      values.Bind(y, BroadcastIndex(b_, g()[y], at),
                  tile::Cast(ArithmeticType(g()[y].dtype), value));
    }
  }

  // ---- reductions

  // `distances`: the next stage, whose moment is made together with its sum, or null.
  void Reduce(Block& body, const RowsPlan::Stage& stage, const RowsPlan::Stage* distances) {
    RowsTotals::Parts parts;
    for (const size_t r : stage.reduces) totals_.DeclareParts(body, r, parts);
    if (distances == nullptr) ReadShifts(body, stage);
    for (const TensorId kept : stage.keeps) {
      keeps_[kept] = b_.Name(g()[kept].name + "_kept");
      body.push_back({tile::Alloc{keeps_[kept], g()[kept].dtype, tile::Space::kReg,
                                  int64_t{shape_.rows} * shape_.vectors * plan_.lanes}});
    }
    std::map<size_t, Totals> totals = TotalsOf(body, stage);
    EachChunk(body, stage, [&](Block& of_chunk, const Expr& chunk) {
      EachRow(of_chunk, [&](Block& of_row, const Row& row) {
        const RowValues values = RowValuesFor(of_row, row, stage);
        EachVector(of_row, row, chunk, [&](Block& out, const Place& place) {
          Accumulate(out, stage, row, values, place, parts);
        });
      });
      for (auto& [r, of] : totals) of.AfterStep(of_chunk, chunk, parts.at(r));
    });
    for (auto& [r, of] : totals) of.Finish(body, parts.at(r));
    held_.insert(keeps_.begin(), keeps_.end());
    totals_.FoldLanes(body, stage, parts);
    std::optional<RowsTotals::Joint> joint;
    if (distances != nullptr) {
      joint = {.sum = distances->moment->sum, .moment = distances->reduces[0]};
      MeasureDistances(body, *distances, *joint, parts);
    }
    totals_.Combine(body, stage, joint, turn_);
    for (const auto& [r, shifts] : shifts_)
      EachRow(body, [&, r = r](Block& out, const Row& row) {
        totals_.Unshift(out, r, row.slot, Shift(r, row));
      });
    shifts_.clear();
  }

  // Of sums along rows that are read chunk by chunk.
  std::map<size_t, Totals> TotalsOf(Block& body, const RowsPlan::Stage& stage) {
    std::map<size_t, Totals> totals;
    const int64_t vectors = CeilDiv(plan_.vectors, int64_t{shape_.team});
    for (const size_t r : stage.reduces) {
      const bool adds = node(r).As<graph::ReduceAttrs>().combine == graph::Combine::kAdd;
      if (!adds || !shape_.streams || !Totals::Needs(totals_.TypeOf(r), vectors, kMostTerms))
        continue;
      totals.emplace(r, Totals(b_, totals_.TypeOf(r), vectors, shape_.vectors, kMostTerms));
      totals.at(r).Declare(body, int64_t{shape_.rows} * plan_.lanes, Bind::kUnroll);
    }
    return totals;
  }

  // The first element of each row, where the stage adds distances from it. No row has been stored
  // before all of its threads have read it.
  void ReadShifts(Block& body, const RowsPlan::Stage& stage) {
    for (const size_t r : stage.reduces) {
      if (!plan_.IsShifted(r)) continue;
      const TensorId operand = node(r).inputs[0];
      shifts_[r] = b_.Name("shift");
      body.push_back({tile::Alloc{shifts_[r], totals_.TypeOf(r), tile::Space::kReg, shape_.rows}});
      EachRow(body, [&](Block& out, const Row& row) {
        ValueScope values = RowScope(out, row);
        const auto at = [&](const Index& index) {
          return tile::Cast(totals_.TypeOf(r),
                            values.Value(operand, BroadcastIndex(b_, g()[operand], index)));
        };
        const Expr first = at(row.kept), other = at(OtherPlace(b_, plan_.row, row.kept));
        out.push_back({tile::Store{shifts_[r], row.slot, ShiftOf(b_, out, first, other)}});
      });
    }
  }
  Expr Shift(size_t r, const Row& row) const {
    return tile::Load(shifts_.at(r), totals_.TypeOf(r), row.slot);
  }

  // Of the thread's elements, from their own mean.
  void MeasureDistances(Block& body, const RowsPlan::Stage& stage, const RowsTotals::Joint& joint,
                        RowsTotals::Parts& parts) {
    totals_.DeclareParts(body, joint.moment, parts);
    const double elements = static_cast<double>(shape_.vectors) * plan_.lanes;
    EachRow(body, [&](Block& of_row, const Row& row) {
      const Expr sum = totals_.Of(joint.sum, row.slot);
      RowValues values;
      values.known.emplace_back(stage.moment->mean,
                                b_.Let(of_row, "mean_of_thread",
                                       sum * tile::Float(1 / elements, totals_.TypeOf(joint.sum))));
      EachVector(of_row, row, b_.Idx(0), [&](Block& out, const Place& place) {
        Accumulate(out, stage, row, values, place, parts);
      });
    });
    totals_.FoldLanes(body, stage, parts);
  }

  void Accumulate(Block& out, const RowsPlan::Stage& stage, const Row& row, const RowValues& of_row,
                  const Place& place, const RowsTotals::Parts& parts) {
    const auto others = FetchOthers(out, stage, place);
    EachLane(out, place.index, [&](Block& body, const Expr& lane, const Index& at) {
      ValueScope values(b_, body);
      BindLeaves(body, values, stage, of_row, others, place, lane, at);
      for (const size_t r : stage.reduces) {
        const TensorId operand = node(r).inputs[0];
        Expr value = tile::Cast(totals_.TypeOf(r),
                                values.Value(operand, BroadcastIndex(b_, g()[operand], at)));
        if (const auto kept = keeps_.find(operand); kept != keeps_.end())
          body.push_back({tile::Store{kept->second, place.slot + lane,
                                      tile::Cast(g()[operand].dtype, value)}});
        if (shifts_.contains(r)) value = value - Shift(r, row);
        const Expr slot = row.slot * b_.Idx(plan_.lanes) + lane;
        const Expr so_far = tile::Load(parts.at(r), totals_.TypeOf(r), slot);
        body.push_back({tile::Store{parts.at(r), slot, totals_.Combined(r, so_far, value)}});
      }
    });
  }

  // ---- results

  void Store(Block& body, const RowsPlan::Stage& stage) {
    EachChunk(body, stage, [&](Block& of_chunk, const Expr& chunk) {
      EachRow(of_chunk, [&](Block& of_row, const Row& row) {
        const RowValues values = RowValuesFor(of_row, row, stage);
        Block inside;
        std::optional<Row> next;
        if (refills()) next = RowOf(inside, b_.Let(inside, "next", tile_ + grid_), row.slot);
        EachVector(inside, row, chunk, [&](Block& out, const Place& place) {
          StoreVector(out, stage, values, place);
          if (next) CopyVector(out, b_.Idx(0), *next, place);
        });
        IfExists(of_row, row, std::move(inside));
      });
    });
    if (plan_.row_outputs.empty()) return;
    EachRow(body, [&](Block& of_row, const Row& row) {
      Block inside;
      StoreRowValues(inside, row);
      Block by_one;
      by_one.push_back(
          {tile::If{tile::Op(ScalarOp::kEq, {lane_, b_.Idx(0)}), std::move(inside), {}}});
      IfExists(of_row, row, std::move(by_one));
    });
  }

  void IfExists(Block& out, const Row& row, Block inside) {
    if (!MayBePast())
      std::ranges::move(inside, std::back_inserter(out));
    else
      out.push_back({tile::If{tile::Lt(row.number, count_), std::move(inside), {}}});
  }

  void StoreVector(Block& out, const RowsPlan::Stage& stage, const RowValues& of_row,
                   const Place& place) {
    const auto others = FetchOthers(out, stage, place);
    std::map<TensorId, std::string> results;
    for (const TensorId y : plan_.wide_outputs) {
      if (plan_.lanes == 1 || WalkOf(g()[y], plan_.row.inner) != Walk::kContiguous) continue;
      results[y] = b_.Name(g()[y].name + "_w");
      out.push_back({tile::Alloc{results[y], g()[y].dtype, tile::Space::kReg, plan_.lanes}});
    }
    EachLane(out, place.index, [&](Block& body, const Expr& lane, const Index& at) {
      ValueScope values(b_, body);
      BindLeaves(body, values, stage, of_row, others, place, lane, at);
      for (const TensorId y : plan_.wide_outputs) {
        const Index of_y = BroadcastIndex(b_, g()[y], at);
        const Expr value = tile::Cast(g()[y].dtype, values.Value(y, of_y));
        const auto result = results.find(y);
        if (result == results.end())
          body.push_back({tile::Store{b_.Pointer(y), b_.Offset(y, of_y), value}});
        else
          body.push_back({tile::Store{result->second, lane, value}});
      }
      if (columns_ != nullptr) columns_->Add(body, values, at, place.column + lane);
    });
    for (const auto& [y, regs] : results) {
      const Expr to = b_.Let(out, g()[y].name + "_at", b_.Offset(y, place.index));
      WideCopy(out, g()[y].dtype, b_.Pointer(y), to, regs, b_.Idx(0), plan_.lanes);
    }
  }

  void StoreRowValues(Block& out, const Row& row) {
    ValueScope values = RowScope(out, row);
    for (const TensorId y : plan_.row_outputs) {
      const Index at = BroadcastIndex(b_, g()[y], row.kept);
      out.push_back({tile::Store{b_.Pointer(y), b_.Offset(y, at),
                                 tile::Cast(g()[y].dtype, values.Value(y, at))}});
    }
  }

  const RowsPlan& plan_;
  const RowsShape shape_;
  KernelBuilder b_;
  const DType t_;
  RowsTotals totals_;
  const Target* target_ = nullptr;
  int64_t blocks_ = 1, turns_ = 1;
  Expr count_, vectors_, grid_, lane_;
  Expr tile_, turn_;                // of a block that walks: the tile at hand, and how many before
  RowsColumns* columns_ = nullptr;  // while it walks
  std::map<TensorId, std::string> held_;        // registers of held leaves, and of what stages keep
  std::map<TensorId, std::string> keeps_;       // the latter alone
  std::map<TensorId, std::string> ring_;        // shared memory
  Expr ring_at_;                                // of the row at hand
  std::map<size_t, std::string> shifts_;        // registers of sums that add distances from them
  std::map<TensorId, std::string> row_inputs_;  // beside a ring
};

}  // namespace

Lowered LowerRows(const RowsPlan& plan, const Target& target, const RowsShape& shape) {
  return RowsKernel(plan, target, shape).Lower();
}

}  // namespace kiln::compiler
