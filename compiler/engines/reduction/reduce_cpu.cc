// The reduce engine's CPU schedules: a block is one task.
//
//   rows     16 accumulators walk a row's innermost dim as vectors, the tail goes one by one
//   columns  a chunk of columns is one register array; every reduced place adds a vector to it
//
// Few rows are split over tasks as on the GPU, with the same second stage.
#include <algorithm>

#include "compiler/engines/reduction/reduce_plan.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kLanes = 16;
constexpr int64_t kColumns = 256;
constexpr int64_t kTasksPerThread = 4;
constexpr int64_t kElementsPerTask = 1 << 14;

// Splits of the outer reduced places (all reduced dims but the innermost, in the row schedule).
int64_t CpuSplits(const Target& target, const ReduceKnobs& knobs, int64_t blocks, int64_t places,
                  int64_t elements_each) {
  if (knobs.splits > 0) return std::clamp<int64_t>(places, 1, knobs.splits);
  const int64_t wanted =
      CeilDiv(kTasksPerThread * target.multiprocessors, std::max<int64_t>(blocks, 1));
  const int64_t worth = places * elements_each / kElementsPerTask;
  return std::clamp<int64_t>(std::min({wanted, worth, places}), 1, 256);
}

struct Walk {
  Expr begin, end;  // of the linear place
};

Walk SplitRange(KernelBuilder& b, Block& body, int64_t places, int64_t splits, const Expr& by) {
  const Expr total = b.Arg("places", places);
  if (splits == 1) return {b.Idx(0), total};
  const Expr chunk = b.Arg("chunk", CeilDiv(places, splits));
  const Expr begin = b.Let(body, "begin", tile::Op(ScalarOp::kMin, {by * chunk, total}));
  return {begin, b.Let(body, "end", tile::Op(ScalarOp::kMin, {begin + chunk, total}))};
}

void StorePartials(KernelBuilder& b, const Accumulators& acc, Block& out, int first_scratch,
                   const Expr& at, const Expr& lane) {
  for (size_t r = 0; r < acc.count(); ++r) {
    const std::string scratch = b.Scratch(first_scratch + static_cast<int>(r), acc.type(r), false);
    out.push_back({tile::Store{scratch, at, acc.Lane(r, lane)}});
  }
}

void FinishBlocks(KernelBuilder& b, Block body, int64_t blocks, int64_t splits, Lowered& lowered) {
  const DType t = b.index_type();
  Block split_level, block_level;
  split_level.push_back(
      {tile::For{"by", t, b.Arg("splits", splits), Bind::kBlockY, std::move(body)}});
  block_level.push_back(
      {tile::For{"bx", t, b.Arg("blocks", blocks), Bind::kBlockX, std::move(split_level)}});
  b.Finish(std::move(block_level), {blocks, splits, 1}, 1, lowered);
}

// A row as its task walks it: outer places, and at each the innermost dim, of which a single long
// row is cut into pieces, which are its places then.
struct RowPlaces {
  std::vector<int64_t> outer;  // reduced dims but the innermost
  int64_t inner_extent, places;
  bool is_cut() const { return places == 1; }
  int64_t piece() const { return is_cut() ? kElementsPerTask : inner_extent; }
  int64_t steps() const { return is_cut() ? CeilDiv(inner_extent, piece()) : places; }
};
RowPlaces PlacesOf(const ReducePlan& plan) {
  std::vector<int64_t> outer = plan.reduced;
  std::erase(outer, plan.inner);
  const int64_t inner_extent = plan.reduced.empty() ? 1 : plan.extent(plan.inner);
  const int64_t places = inner_extent == 0 ? 0 : plan.length / inner_extent;
  return {.outer = std::move(outer), .inner_extent = inner_extent, .places = places};
}

// Adds up one step of a row: vectors of kLanes, and a tail.
Block StepOfRow(KernelBuilder& b, const ReducePlan& plan, const RowPlaces& of, Accumulators& acc,
                const Index& kept, const Expr& begin) {
  const DType t = b.index_type();
  Block loop;
  const Expr place = b.Let(loop, "place", begin + tile::Var("it", t));
  Index index = of.is_cut() ? Index(plan.group.graph[plan.input].dims.size(), b.Idx(0))
                            : UnravelDims(b, loop, plan, of.outer, place, 1, "r");
  for (int64_t d : plan.kept) index[d] = kept[d];
  const Expr extent = plan.reduced.empty() ? b.Idx(1) : b.Extent(plan.input, plan.inner);
  const Expr start = of.is_cut() ? b.Let(loop, "start", place * b.Idx(of.piece())) : b.Idx(0);
  const Expr length =
      of.is_cut()
          ? b.Let(loop, "length", tile::Op(ScalarOp::kMin, {extent - start, b.Idx(of.piece())}))
          : extent;
  const auto add = [&](Block& out, const Expr& element, const Expr& lane) {
    Index at = index;
    if (!plan.reduced.empty()) at[plan.inner] = element;
    ValueScope values(b, out);
    acc.Add(out, values, at, lane);
  };
  const std::string l = b.Name("l");
  Block vector, lanes;
  add(lanes, start + tile::Var("j", t) * b.Idx(kLanes) + tile::Var(l, t), tile::Var(l, t));
  vector.push_back({tile::For{l, t, b.Idx(kLanes), Bind::kVector, std::move(lanes)}});
  loop.push_back({tile::For{"j", t, length / b.Idx(kLanes), Bind::kSerial, std::move(vector)}});
  const std::string tail = b.Name("t");
  Block rest;
  add(rest, start + length / b.Idx(kLanes) * b.Idx(kLanes) + tile::Var(tail, t), b.Idx(0));
  loop.push_back({tile::For{tail, t, length % b.Idx(kLanes), Bind::kSerial, std::move(rest)}});
  return loop;
}

// Row bx, split by: for each outer place, the innermost dim in vectors of kLanes and a tail.
Lowered LowerRows(const ReducePlan& plan, const Target& target, const ReduceKnobs& knobs) {
  Lowered lowered;
  const RowPlaces of = PlacesOf(plan);
  const int64_t splits =
      CpuSplits(target, knobs, plan.rows, of.steps(), std::min(of.piece(), of.inner_extent));
  const int first_scratch = splits > 1 ? AddPartials(plan, target, splits, lowered) : 0;

  KernelBuilder b(plan.group, target,
                  fmt::format("reduce, rows: {} accumulators{}", kLanes,
                              splits > 1 ? ", first of two stages" : ""));
  for (const char* reserved : {"bx", "by", "it", "j"}) b.Name(reserved);
  const DType t = b.index_type();
  const Expr row = tile::Var("bx", t), by = tile::Var("by", t);
  Accumulators acc(b, plan, target, kLanes);
  Block body;
  const Index kept = UnravelDims(b, body, plan, plan.kept, row, 1, "k");
  acc.Declare(body);
  const Walk range = SplitRange(b, body, of.steps(), splits, by);
  Block loop = StepOfRow(b, plan, of, acc, kept, range.begin);
  body.push_back({tile::For{"it", t, range.end - range.begin, Bind::kSerial, std::move(loop)}});
  acc.FoldLanes(body);
  if (splits > 1)
    StorePartials(b, acc, body, first_scratch, row * b.Arg("row_pitch", splits) + by, b.Idx(0));
  else
    acc.StoreResults(body, kept, [&](size_t r) { return acc.Lane(r, b.Idx(0)); });
  FinishBlocks(b, std::move(body), plan.rows, splits, lowered);
  if (splits > 1) LowerCombine(plan, target, first_scratch, splits, true, lowered);
  return lowered;
}

// Block bx: kColumns neighbours of the kept innermost dim at one place of the other kept dims.
Lowered LowerColumns(const ReducePlan& plan, const Target& target, const ReduceKnobs& knobs) {
  Lowered lowered;
  std::vector<int64_t> outer = plan.kept;
  std::erase(outer, plan.inner);
  const int64_t inner_extent = plan.extent(plan.inner);
  const int64_t tiles = CeilDiv(inner_extent, kColumns);
  const int64_t blocks = inner_extent == 0 ? 0 : plan.rows / inner_extent * tiles;
  const int64_t splits =
      CpuSplits(target, knobs, blocks, plan.length, std::min(kColumns, inner_extent));
  const int first_scratch = splits > 1 ? AddPartials(plan, target, splits, lowered) : 0;

  KernelBuilder b(plan.group, target,
                  fmt::format("reduce, columns: {} a task{}", kColumns,
                              splits > 1 ? ", first of two stages" : ""));
  for (const char* reserved : {"bx", "by", "it", "j", "c"}) b.Name(reserved);
  const DType t = b.index_type();
  const Expr by = tile::Var("by", t);
  Accumulators acc(b, plan, target, kColumns);
  Block body;
  const auto tile_of = b.Divide(body, tile::Var("bx", t), b.Arg("tiles", tiles), tiles, "tile");
  Index kept = UnravelDims(b, body, plan, outer, tile_of.quotient, 1, "k");
  const Expr first = b.Let(body, "first", tile_of.remainder * b.Idx(kColumns));
  const Expr width =
      b.Let(body, "width",
            tile::Op(ScalarOp::kMin, {b.Extent(plan.input, plan.inner) - first, b.Idx(kColumns)}));
  acc.Declare(body);
  const Walk range = SplitRange(b, body, plan.length, splits, by);

  Block loop, vector;
  const Expr place = b.Let(loop, "place", range.begin + tile::Var("it", t));
  Index index = UnravelDims(b, loop, plan, plan.reduced, place, 1, "r");
  for (int64_t d : plan.kept) index[d] = kept[d];
  index[plan.inner] = first + tile::Var("j", t);
  ValueScope values(b, vector);
  acc.Add(vector, values, index, tile::Var("j", t));
  loop.push_back({tile::For{"j", t, width, Bind::kVector, std::move(vector)}});
  body.push_back({tile::For{"it", t, range.end - range.begin, Bind::kSerial, std::move(loop)}});

  Block store;
  kept[plan.inner] = first + tile::Var("c", t);
  if (splits > 1) {
    Expr row = b.Idx(0);
    for (int64_t d : plan.kept) row = row * b.Extent(plan.input, d) + kept[d];
    StorePartials(b, acc, store, first_scratch, by * b.Arg("rows", plan.rows) + row,
                  tile::Var("c", t));
  } else {
    acc.StoreResults(store, kept, [&](size_t r) { return acc.Lane(r, tile::Var("c", t)); });
  }
  body.push_back({tile::For{"c", t, width, Bind::kSerial, std::move(store)}});
  FinishBlocks(b, std::move(body), blocks, splits, lowered);
  if (splits > 1) LowerCombine(plan, target, first_scratch, splits, false, lowered);
  return lowered;
}

}  // namespace

Lowered LowerReduceCpu(const ReducePlan& plan, const Target& target, const ReduceKnobs& knobs) {
  const bool columns = !plan.inner_is_reduced && !plan.reduced.empty() && !plan.kept.empty();
  return columns ? LowerColumns(plan, target, knobs) : LowerRows(plan, target, knobs);
}

}  // namespace kiln::compiler
