// The reduce engine's GPU schedules.
//
//   rows     the contiguous dim is reduced: `team` threads walk one row in vectors, then shuffles
//            (and shared memory where a team is a whole block) combine them
//   columns  the contiguous dim is kept: each thread owns `lanes` columns and walks every n-th row,
//            then the n row walkers of a column combine through shared memory
//
// Few rows do not fill the GPU: the reduced dims are then split over blocks, whose partial results
// a second kernel combines in a fixed order. There are no atomics, so results are the same from run
// to run.
#include <algorithm>
#include <bit>
#include <memory>

#include "compiler/engines/reduction/reduce_plan.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kWarp = 32;
constexpr int64_t kBlocksPerMultiprocessor =
    4;  // resident at once, with what kUnroll loads need in registers
constexpr int64_t kMaxSplits = 1024;
constexpr int64_t kSectorBytes = 32;
constexpr int kThreadsOfFew = 512;  // of blocks that are fewer than multiprocessors
constexpr int kUnroll = 4;          // vectors that a thread has in flight
// Elements of a short row that a thread has at least; most whose reads are written one by one.
constexpr int64_t kShortTurns = 4, kMostShortTurns = 8;

// Vectors that one thread should walk at least, so that the second stage stays small beside the
// first.
constexpr int64_t kVectorsPerThread = 8;

int64_t ChooseSplits(const Target& target, const ReduceKnobs& knobs, int64_t blocks,
                     int64_t steps) {
  if (knobs.splits > 0) return std::min<int64_t>(knobs.splits, std::max<int64_t>(steps, 1));
  const int64_t wanted =
      kBlocksPerMultiprocessor * target.multiprocessors / std::max<int64_t>(blocks, 1);
  return std::clamp<int64_t>(std::min(wanted, steps / kVectorsPerThread), 1, kMaxSplits);
}

// Adds what the loops have read, in order.
void AddAll(Accumulators& acc, std::vector<std::unique_ptr<LaneLoop>>& loops) {
  for (const auto& loop : loops) {
    acc.Add(loop->body(), loop->values(), loop->index(), loop->lane());
    loop->Close();
  }
}

class RowSchedule {
 public:
  RowSchedule(const ReducePlan& plan, const Target& target, const ReduceKnobs& knobs)
      : plan_(plan), target_(target), knobs_(knobs) {
    // Vectors of a row must not cross rows; a rank-1 tensor walks its tail apart, which rows
    // cannot.
    lanes_ = plan.collapsed ? WidestVector(plan.group, plan.inner) : 1;
    while (plan.extent(plan.inner) % lanes_ != 0) lanes_ /= 2;
    // Nothing reduced (all extents 1): every row has one element, read at its own place.
    if (plan.reduced.empty()) lanes_ = 1;
    vectors_ = plan.length / lanes_;
    team_ = TeamSize();
    // Rows that are not divided, and leave multiprocessors idle.
    if (team_ == knobs_.threads && knobs_.splits == 1 && plan.rows < target.multiprocessors)
      team_ = knobs_.threads = std::max(knobs_.threads, kThreadsOfFew);
    rows_per_block_ = knobs_.threads / team_;
    blocks_ = CeilDiv(plan.rows, rows_per_block_);
    splits_ = team_ == knobs_.threads
                  ? ChooseSplits(target, knobs_, blocks_, CeilDiv(vectors_, team_))
                  : 1;
  }

  Lowered Lower() {
    Lowered lowered;
    if (splits_ > 1) first_scratch_ = AddPartials(plan_, target_, splits_, lowered);
    KernelBuilder b(plan_.group, target_,
                    fmt::format("reduce, rows: team={}, lanes={}, threads={}{}", team_, lanes_,
                                knobs_.threads, splits_ > 1 ? ", first of two stages" : ""));
    for (const char* reserved : {"bx", "by", "tx"}) b.Name(reserved);
    Accumulators acc(b, plan_, target_, lanes_);
    Block body = Walk(b, acc);
    CombineTeam(b, acc, body);
    Block thread_level, split_level, block_level;
    const DType t = b.index_type();
    const Expr grid = b.Arg("blocks", blocks_);
    thread_level.push_back(
        {tile::For{"tx", t, b.Idx(knobs_.threads), Bind::kThreadX, std::move(body)}});
    if (splits_ > 1) {
      split_level.push_back(
          {tile::For{"by", t, split_count_, Bind::kBlockY, std::move(thread_level)}});
    } else {
      split_level = std::move(thread_level);
    }
    block_level.push_back({tile::For{"bx", t, grid, Bind::kBlockX, std::move(split_level)}});
    b.Finish(std::move(block_level), {blocks_, splits_, 1}, knobs_.threads, lowered);
    if (splits_ > 1) LowerCombine(plan_, target_, first_scratch_, splits_, true, lowered);
    return lowered;
  }

 private:
  // A warp a row where rows are many or short: no barrier, and enough vectors a thread to keep
  // loads in flight. Else a block a row, which may be split further.
  int TeamSize() const {
    const int64_t warps_to_fill =
        kBlocksPerMultiprocessor * target_.multiprocessors * (knobs_.threads / kWarp);
    const bool is_long =
        vectors_ > 32 * kWarp || (vectors_ > 4 * kWarp && plan_.rows < warps_to_fill);
    if (is_long) return knobs_.threads;
    // Rows that no vector fits are shared by as many threads as have a few elements each.
    if (lanes_ == 1 && vectors_ > kShortTurns && plan_.rows >= warps_to_fill) {
      int team = 1;
      while (team < kWarp && CeilDiv(vectors_, int64_t{2} * team) >= kShortTurns) team *= 2;
      return team;
    }
    return static_cast<int>(std::min<uint64_t>(
        kWarp, std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(vectors_, 1)))));
  }

  // Every thread accumulates its vectors of the row.
  Block Walk(KernelBuilder& b, Accumulators& acc) {
    Block body;
    const DType t = b.index_type();
    const Expr tx = tile::Var("tx", t), bx = tile::Var("bx", t);
    count_ = b.Arg("rows", plan_.rows);
    lane_ = b.Let(body, "lane", tx % b.Idx(team_));
    row_ = b.Let(body, "row", bx * b.Idx(rows_per_block_) + tx / b.Idx(team_));
    const Expr safe_row =
        b.Let(body, "safe_row", tile::Op(ScalarOp::kMin, {row_, count_ - b.Idx(1)}));
    kept_ = UnravelDims(b, body, plan_, plan_.kept, safe_row, 1, "k");
    acc.Declare(body);

    const Expr vectors = b.Arg("vectors", vectors_);
    Expr begin = b.Idx(0), end = vectors;
    if (splits_ > 1) {
      const int64_t chunk_value = CeilDiv(CeilDiv(vectors_, splits_), team_) * team_;
      split_count_ = b.Arg("splits", splits_);
      const Expr chunk = b.Arg("chunk", chunk_value);
      begin = b.Let(body, "begin", tile::Var("by", t) * chunk);
      end = b.Let(body, "end", tile::Op(ScalarOp::kMin, {begin + chunk, vectors}));
    }
    const int64_t turns = CeilDiv(vectors_, team_);
    if (lanes_ == 1 && splits_ == 1 && turns <= kMostShortTurns &&
        vectors_ % (int64_t{team_} * kUnroll) != 0) {
      WalkShort(b, acc, body, turns, vectors);
      acc.FoldLanes(body);
      return body;
    }
    acc.InSegments(
        body, begin, end, CeilDiv(vectors_, splits_), team_,
        [&](Block& segment, Accumulators& own, const Expr& from, const Expr& to) {
          UnrolledWalk(
              b, segment, from, to, team_, lane_, kUnroll,
              [&](Block& out, const std::vector<Expr>& places) {
                std::vector<std::unique_ptr<LaneLoop>> loops;  // all loads first
                for (const Expr& v : places) {
                  Index index = UnravelDims(b, out, plan_, plan_.reduced, v, lanes_, "r");
                  if (plan_.inner_is_reduced)
                    index[plan_.inner] = index[plan_.inner] * b.Idx(lanes_);
                  for (int64_t d : plan_.kept) index[d] = kept_[d];
                  loops.push_back(std::make_unique<LaneLoop>(b, out, index, plan_.inner, lanes_));
                }
                AddAll(own, loops);
              });
        });
    acc.FoldLanes(body);
    return body;
  }

  // Few elements, all read before the first is added; those behind the row's end are its last one,
  // and are not.
  void WalkShort(KernelBuilder& b, Accumulators& acc, Block& body, int64_t turns,
                 const Expr& vectors) {
    struct Turn {
      ValueScope values;
      Index index;
      Expr exists;  // null for always
    };
    std::vector<std::unique_ptr<Turn>> all;
    for (int64_t turn = 0; turn < turns; ++turn) {
      Expr place = lane_ + b.Idx(turn * team_), exists;
      if ((turn + 1) * team_ > vectors_) {
        exists = b.Let(body, "exists", tile::Lt(place, vectors));
        place = tile::Op(ScalarOp::kMin, {place, vectors - b.Idx(1)});
      }
      Index index = UnravelDims(b, body, plan_, plan_.reduced, place, 1, "r");
      for (int64_t d : plan_.kept) index[d] = kept_[d];
      all.push_back(std::make_unique<Turn>(ValueScope(b, body), std::move(index), exists));
      for (size_t r = 0; r < acc.count(); ++r)
        acc.Operand(r, all.back()->values, all.back()->index);
    }
    for (const auto& turn : all) {
      Block add;
      acc.Add(add, turn->values, turn->index, b.Idx(0));
      if (turn->exists)
        body.push_back({tile::If{turn->exists, std::move(add), {}}});
      else
        std::ranges::move(add, std::back_inserter(body));
    }
  }

  void CombineTeam(KernelBuilder& b, Accumulators& acc, Block& body) {
    for (int mask = std::min(team_, kWarp) / 2; mask > 0; mask /= 2) {
      for (size_t r = 0; r < acc.count(); ++r) {
        const Expr mine = acc.Lane(r, b.Idx(0));
        body.push_back({tile::Store{acc.name(r), b.Idx(0),
                                    acc.Combined(r, mine, tile::ShuffleXor(mine, mask))}});
      }
    }
    if (team_ > kWarp) CombineWarps(b, acc, body);
    Block store;
    if (splits_ > 1) {
      for (size_t r = 0; r < acc.count(); ++r) {
        const std::string scratch =
            b.Scratch(first_scratch_ + static_cast<int>(r), acc.type(r), false);
        const Expr at = row_ * split_count_ + tile::Var("by", b.index_type());
        store.push_back({tile::Store{scratch, at, acc.Lane(r, b.Idx(0))}});
      }
    } else {
      acc.StoreResults(store, kept_, [&](size_t r) { return acc.Lane(r, b.Idx(0)); });
    }
    const Expr first = tile::Op(ScalarOp::kEq, {lane_, b.Idx(0)});
    body.push_back({tile::If{tile::And(first, tile::Lt(row_, count_)), std::move(store), {}}});
  }

  // A team of the whole block: warp leaders meet in shared memory, and every thread folds them in
  // order.
  void CombineWarps(KernelBuilder& b, Accumulators& acc, Block& body) {
    const int warps = team_ / kWarp;
    const Expr tx = tile::Var("tx", b.index_type());
    std::vector<std::string> shared;
    Block lead;
    for (size_t r = 0; r < acc.count(); ++r) {
      shared.push_back(b.Name("warp_acc"));
      body.push_back({tile::Alloc{shared[r], acc.type(r), tile::Space::kShared, warps}});
      lead.push_back({tile::Store{shared[r], tx / b.Idx(kWarp), acc.Lane(r, b.Idx(0))}});
    }
    const Expr leader = tile::Op(ScalarOp::kEq, {tx % b.Idx(kWarp), b.Idx(0)});
    body.push_back({tile::If{leader, std::move(lead), {}}});
    body.push_back({tile::Barrier{}});
    for (size_t r = 0; r < acc.count(); ++r) {
      body.push_back(
          {tile::Store{acc.name(r), b.Idx(0), tile::Load(shared[r], acc.type(r), b.Idx(0))}});
      const std::string w = b.Name("w");
      Block fold;
      const Expr other =
          tile::Load(shared[r], acc.type(r), tile::Var(w, b.index_type()) + b.Idx(1));
      fold.push_back(
          {tile::Store{acc.name(r), b.Idx(0), acc.Combined(r, acc.Lane(r, b.Idx(0)), other)}});
      body.push_back(
          {tile::For{w, b.index_type(), b.Idx(warps - 1), Bind::kUnroll, std::move(fold)}});
    }
  }

  const ReducePlan& plan_;
  const Target& target_;
  ReduceKnobs knobs_;
  int lanes_ = 1, team_ = 1, first_scratch_ = 0;
  int64_t vectors_ = 0, rows_per_block_ = 1, blocks_ = 1, splits_ = 1;
  Expr count_, lane_, row_, split_count_;
  Index kept_;
};

class ColumnSchedule {
 public:
  ColumnSchedule(const ReducePlan& plan, const Target& target, const ReduceKnobs& knobs)
      : plan_(plan), target_(target), knobs_(knobs) {
    lanes_ = plan.collapsed ? std::min(WidestVector(plan.group, plan.inner), 8) : 1;
    while (plan.extent(plan.inner) % lanes_ != 0) lanes_ /= 2;
    vectors_ = plan.extent(plan.inner) / lanes_;
    // Few columns: the threads of a warp stand on several rows.
    width_ = static_cast<int>(std::min<uint64_t>(
        kWarp, std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(vectors_, 1)))));
    outer_ = plan.extent(plan.inner) == 0 ? 0 : plan.rows / plan.extent(plan.inner);
    // Columns that are not divided are spread over more blocks, down to whole sectors.
    const int64_t bytes = int64_t{lanes_} * SizeOf(plan.group.graph[plan.input].dtype);
    while (knobs.splits == 1 && width_ > 1 && bytes * width_ > kSectorBytes &&
           CeilDiv(vectors_, width_) * outer_ < target.multiprocessors) {
      width_ /= 2;
      knobs_.threads = std::max(knobs_.threads, kThreadsOfFew);
    }
    walkers_ = knobs_.threads / width_;
    // Columns shorter than a block has walkers, or than one walker has reads in flight: more of
    // them side by side, as long as these blocks fill the device.
    const bool has_few = plan.length <= kUnroll;
    const auto is_short = [&] {
      return walkers_ / 2 >= plan.length || (has_few && walkers_ > 1 && width_ < vectors_);
    };
    while (is_short() && CeilDiv(vectors_, int64_t{2} * width_) * outer_ >=
                             kBlocksPerMultiprocessor * target.multiprocessors) {
      width_ *= 2;
      walkers_ /= 2;
    }
    if (has_few && walkers_ == 1) unroll_ = static_cast<int>(std::max<int64_t>(plan.length, 1));
    tiles_ = CeilDiv(vectors_, width_);
    splits_ = ChooseSplits(target, knobs, tiles_ * outer_, CeilDiv(plan.length, walkers_));
  }

  Lowered Lower() {
    Lowered lowered;
    if (splits_ > 1) first_scratch_ = AddPartials(plan_, target_, splits_, lowered);
    KernelBuilder b(plan_.group, target_,
                    fmt::format("reduce, columns: width={}, lanes={}, threads={}{}", width_, lanes_,
                                knobs_.threads, splits_ > 1 ? ", first of two stages" : ""));
    for (const char* reserved : {"bx", "by", "tx"}) b.Name(reserved);
    Accumulators acc(b, plan_, target_, lanes_);
    Block body = Walk(b, acc);
    CombineWalkers(b, acc, body);
    const DType t = b.index_type();
    const Expr grid = b.Arg("blocks", tiles_ * outer_);
    Block thread_level, split_level, block_level;
    thread_level.push_back(
        {tile::For{"tx", t, b.Idx(knobs_.threads), Bind::kThreadX, std::move(body)}});
    split_level.push_back(
        {tile::For{"by", t, split_count_, Bind::kBlockY, std::move(thread_level)}});
    block_level.push_back({tile::For{"bx", t, grid, Bind::kBlockX, std::move(split_level)}});
    b.Finish(std::move(block_level), {tiles_ * outer_, splits_, 1}, knobs_.threads, lowered);
    if (splits_ > 1) LowerCombine(plan_, target_, first_scratch_, splits_, true, lowered);
    return lowered;
  }

 private:
  Block Walk(KernelBuilder& b, Accumulators& acc) {
    Block body;
    const DType t = b.index_type();
    const Expr tx = tile::Var("tx", t);
    lane_ = b.Let(body, "lane", tx % b.Idx(width_));
    walker_ = b.Let(body, "walker", tx / b.Idx(width_));
    split_count_ = b.Arg("splits", splits_);
    const KernelBuilder::DivMod tile_of =
        b.Divide(body, tile::Var("bx", t), b.Arg("tiles", tiles_), tiles_, "tile");
    vector_ = b.Let(body, "vector", tile_of.remainder * b.Idx(width_) + lane_);
    in_range_ = tile::Lt(vector_, b.Arg("vectors", vectors_));
    std::vector<int64_t> outer_dims = plan_.kept;
    std::erase(outer_dims, plan_.inner);
    kept_ = UnravelDims(b, body, plan_, outer_dims, tile_of.quotient, 1, "k");
    kept_[plan_.inner] = b.Let(body, "column", vector_ * b.Idx(lanes_));
    acc.Declare(body);

    const Expr length = b.Arg("length", plan_.length);
    const int64_t chunk_value = CeilDiv(CeilDiv(plan_.length, splits_), walkers_) * walkers_;
    const Expr chunk = b.Arg("chunk", chunk_value);
    const Expr begin = b.Let(body, "begin", tile::Var("by", t) * chunk);
    const Expr end = b.Let(body, "end", tile::Op(ScalarOp::kMin, {begin + chunk, length}));
    Block walk;
    acc.InSegments(
        walk, begin, end, chunk_value, walkers_,
        [&](Block& segment, Accumulators& own, const Expr& from, const Expr& to) {
          UnrolledWalk(
              b, segment, from, to, walkers_, walker_, unroll_,
              [&](Block& out, const std::vector<Expr>& places) {
                std::vector<std::unique_ptr<LaneLoop>> loops;
                for (const Expr& r : places) {
                  Index index = UnravelDims(b, out, plan_, plan_.reduced, r, 1, "r");
                  for (int64_t d : plan_.kept) index[d] = kept_[d];
                  loops.push_back(std::make_unique<LaneLoop>(b, out, index, plan_.inner, lanes_));
                }
                AddAll(own, loops);
              });
        });
    body.push_back({tile::If{in_range_, std::move(walk), {}}});
    return body;
  }

  // shared[walker][lane * lanes + l]; the first walker folds the others in order and stores. One
  // that has no others just stores.
  void CombineWalkers(KernelBuilder& b, Accumulators& acc, Block& body) {
    const DType t = b.index_type();
    if (walkers_ == 1) {
      const std::string l = b.Name("l");
      Block store;
      StoreTotals(b, acc, store, tile::Var(l, t),
                  [&](size_t r) { return acc.Lane(r, tile::Var(l, t)); });
      Block all;
      all.push_back({tile::For{l, t, b.Idx(lanes_), Bind::kUnroll, std::move(store)}});
      body.push_back({tile::If{in_range_, std::move(all), {}}});
      return;
    }
    const int pitch = width_ * lanes_;
    std::vector<std::string> shared;
    const std::string l = b.Name("l");
    const Expr lv = tile::Var(l, t);
    const Expr slot = lane_ * b.Idx(lanes_) + lv;
    Block publish;
    for (size_t r = 0; r < acc.count(); ++r) {
      shared.push_back(b.Name("walker_acc"));
      body.push_back(
          {tile::Alloc{shared[r], acc.type(r), tile::Space::kShared, int64_t{walkers_} * pitch}});
      publish.push_back({tile::Store{shared[r], walker_ * b.Idx(pitch) + slot, acc.Lane(r, lv)}});
    }
    body.push_back({tile::For{l, t, b.Idx(lanes_), Bind::kUnroll, std::move(publish)}});
    body.push_back({tile::Barrier{}});

    const std::string c = b.Name("c");
    const Expr cv = tile::Var(c, t);
    Block columns;
    std::vector<std::string> totals;
    for (size_t r = 0; r < acc.count(); ++r) {
      totals.push_back(b.Name("total"));
      columns.push_back({tile::Alloc{totals[r], acc.type(r), tile::Space::kReg, 1}});
      const Expr column = lane_ * b.Idx(lanes_) + cv;
      columns.push_back(
          {tile::Store{totals[r], b.Idx(0), tile::Load(shared[r], acc.type(r), column)}});
      const std::string w = b.Name("w");
      const Expr other =
          tile::Load(shared[r], acc.type(r), (tile::Var(w, t) + b.Idx(1)) * b.Idx(pitch) + column);
      Block fold;
      fold.push_back(
          {tile::Store{totals[r], b.Idx(0),
                       acc.Combined(r, tile::Load(totals[r], acc.type(r), b.Idx(0)), other)}});
      columns.push_back({tile::For{w, t, b.Idx(walkers_ - 1),
                                   walkers_ > 8 ? Bind::kSerial : Bind::kUnroll, std::move(fold)}});
    }
    StoreTotals(b, acc, columns, cv,
                [&](size_t r) { return tile::Load(totals[r], acc.type(r), b.Idx(0)); });
    Block store;
    store.push_back({tile::For{c, t, b.Idx(lanes_), Bind::kUnroll, std::move(columns)}});
    const Expr first = tile::Op(ScalarOp::kEq, {walker_, b.Idx(0)});
    body.push_back({tile::If{tile::And(first, in_range_), std::move(store), {}}});
  }

  // Stores the totals of one lane: results, or this block's part of them.
  void StoreTotals(KernelBuilder& b, Accumulators& acc, Block& out, const Expr& lane,
                   const std::function<Expr(size_t)>& total) {
    Index at = kept_;
    at[plan_.inner] = kept_[plan_.inner] + lane;
    if (splits_ == 1) return acc.StoreResults(out, at, total);
    // Row number of the kept index, as the second stage unravels it.
    Expr row = b.Idx(0);
    for (int64_t d : plan_.kept) row = row * b.Extent(plan_.input, d) + at[d];
    const Expr place = row * split_count_ + tile::Var("by", b.index_type());
    for (size_t r = 0; r < acc.count(); ++r)
      out.push_back({tile::Store{
          b.Scratch(first_scratch_ + static_cast<int>(r), acc.type(r), false), place, total(r)}});
  }

  const ReducePlan& plan_;
  const Target& target_;
  ReduceKnobs knobs_;
  int width_ = kWarp, walkers_ = 1, unroll_ = kUnroll, lanes_ = 1, first_scratch_ = 0;
  int64_t vectors_ = 0, tiles_ = 1, outer_ = 1, splits_ = 1;
  Expr lane_, walker_, vector_, in_range_, split_count_;
  Index kept_;
};

}  // namespace

Lowered LowerReduceGpu(const ReducePlan& plan, const Target& target, const ReduceKnobs& knobs) {
  const bool columns = !plan.inner_is_reduced && !plan.reduced.empty();
  return columns ? ColumnSchedule(plan, target, knobs).Lower()
                 : RowSchedule(plan, target, knobs).Lower();
}

}  // namespace kiln::compiler
