#include "compiler/engines/rows/across_rows.h"

#include <algorithm>
#include <functional>

#include "compiler/kernel/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kWarp = 32;

const graph::Node& ColumnOf(const RowsPlan& plan, size_t c) {
  return plan.row.group.graph.nodes[plan.row.others[c]];
}

DType ColumnType(const RowsPlan& plan, size_t c) { return AccumulatorType(ColumnOf(plan, c)); }

}  // namespace

DType RowsColumns::TypeOf(size_t c) const { return ColumnType(plan_, c); }
const graph::Node& RowsColumns::node(size_t c) const { return ColumnOf(plan_, c); }
Expr RowsColumns::Combined(size_t c, Expr a, Expr b) const {
  return CombineTwo(node(c), std::move(a), std::move(b));
}

void RowsColumns::Declare(Block& out) {
  const DType t = b_.index_type();
  const int size = shape_.vectors * plan_.lanes;
  for (size_t c = 0; c < plan_.row.others.size(); ++c) {
    sums_.push_back(b_.Name("column"));
    out.push_back({tile::Alloc{sums_[c], TypeOf(c), tile::Space::kReg, size}});
    const std::string i = b_.Name("i");
    Block set;
    set.push_back({tile::Store{sums_[c], tile::Var(i, t), IdentityOf(node(c))}});
    out.push_back({tile::For{i, t, b_.Idx(size), Bind::kUnroll, std::move(set)}});
  }
}

void RowsColumns::Add(Block& out, ValueScope& values, const Index& index, const Expr& slot) {
  for (size_t c = 0; c < sums_.size(); ++c) {
    const TensorId operand = node(c).inputs[0];
    const Expr value = tile::Cast(
        TypeOf(c),
        values.Value(operand, BroadcastIndex(b_, plan_.row.group.graph[operand], index)));
    out.push_back(
        {tile::Store{sums_[c], slot, Combined(c, tile::Load(sums_[c], TypeOf(c), slot), value)}});
  }
}

void RowsColumns::Publish(Block& out, const Expr& lane, int64_t blocks, Lowered& lowered) {
  const bool alone = shape_.team == shape_.threads;
  length_ = b_.Arg("length", plan_.row.length);
  for (size_t c = 0; c < sums_.size(); ++c) {
    const int scratch = static_cast<int>(lowered.scratch_bytes.size());
    lowered.scratch_bytes.push_back(blocks * plan_.row.length * SizeOf(TypeOf(c)));
    scratch_.push_back(b_.Scratch(scratch, TypeOf(c), false));
    if (alone)
      PublishTeam(out, c, lane);
    else
      PublishBlock(out, c, lane);
  }
}

// One team is the block: its threads store what they have.
void RowsColumns::PublishTeam(Block& out, size_t c, const Expr& lane) {
  const DType t = b_.index_type();
  const Expr row = tile::Var("bx", t) * length_;
  const std::string v = b_.Name("v");
  Block body, inside;
  const Expr vector = b_.Let(body, "vector", tile::Var(v, t) * b_.Idx(shape_.team) + lane);
  const Expr at = b_.Let(inside, "column_at", row + vector * b_.Idx(plan_.lanes));
  WideCopy(inside, TypeOf(c), scratch_[c], at, sums_[c], tile::Var(v, t) * b_.Idx(plan_.lanes),
           plan_.lanes);
  body.push_back({tile::If{tile::Lt(vector, vectors_), std::move(inside), {}}});
  out.push_back({tile::For{v, t, b_.Idx(shape_.vectors), Bind::kUnroll, std::move(body)}});
}

// A column's sums in shared memory, a row of `pitch` for each team; `lane` is the thread's in its
// team.
struct RowsColumns::TeamRows {
  std::string name;
  DType type;
  Expr lane;
  int64_t pitch;
};

void RowsColumns::EachVector(Block& to, const TeamRows& rows, const Expr& from,
                             const std::function<void(Block&, const Expr&, const Expr&)>& emit) {
  const DType t = b_.index_type();
  const std::string v = b_.Name("v");
  Block body;
  const Expr vector = tile::Var(v, t) * b_.Idx(shape_.team) + rows.lane;
  const Expr at =
      b_.Let(body, "column_at", from * b_.Idx(rows.pitch) + vector * b_.Idx(plan_.lanes));
  emit(body, at, tile::Var(v, t) * b_.Idx(plan_.lanes));
  to.push_back({tile::For{v, t, b_.Idx(shape_.vectors), Bind::kUnroll, std::move(body)}});
}

void RowsColumns::LeaveSums(Block& to, const TeamRows& rows, size_t c, const Expr& from) {
  EachVector(to, rows, from, [&](Block& body, const Expr& at, const Expr& slot) {
    WideCopy(body, rows.type, rows.name, at, sums_[c], slot, plan_.lanes);
  });
}

void RowsColumns::TakeSums(Block& to, const TeamRows& rows, size_t c, const Expr& from) {
  EachVector(to, rows, from, [&](Block& body, const Expr& at, const Expr& slot) {
    for (int l = 0; l < plan_.lanes; ++l) {
      const Expr mine = tile::Load(sums_[c], rows.type, slot + b_.Idx(l));
      const Expr other = tile::Load(rows.name, rows.type, at + b_.Idx(l));
      body.push_back({tile::Store{sums_[c], slot + b_.Idx(l), Combined(c, mine, other)}});
    }
  });
}

// The column's rows of `teams` teams in shared memory, which one column after another has.
RowsColumns::TeamRows RowsColumns::ShareRows(Block& out, size_t c, const Expr& lane, int teams) {
  const DType type = TypeOf(c);
  const int64_t pitch = shape_.ColumnsOfTeam(plan_);
  if (shared_.contains(type)) {
    out.push_back({tile::Barrier{}});  // the column before has been read
  } else {
    shared_[type] = b_.Name("columns");
    out.push_back({tile::Alloc{shared_[type], type, tile::Space::kShared, int64_t{teams} * pitch}});
  }
  return {.name = shared_[type], .type = type, .lane = lane, .pitch = pitch};
}

// Stores the sums of `teams` rows where the block's partial results are.
void RowsColumns::StoreTotals(Block& out, const TeamRows& rows, size_t c, int teams) {
  const DType t = b_.index_type();
  const std::string turn = b_.Name("turn");
  Block body, inside;
  const Expr at =
      b_.Let(body, "at", tile::Var(turn, t) * b_.Idx(shape_.threads) + tile::Var("tx", t));
  Expr total = tile::Load(rows.name, rows.type, at);
  for (int team = 1; team < teams; ++team)
    total = Combined(c, total,
                     tile::Load(rows.name, rows.type, at + b_.Idx(int64_t{team} * rows.pitch)));
  inside.push_back({tile::Store{scratch_[c], tile::Var("bx", t) * length_ + at, total}});
  body.push_back({tile::If{tile::Lt(at, length_), std::move(inside), {}}});
  const Expr turns = b_.Idx(CeilDiv(rows.pitch, shape_.threads));
  out.push_back({tile::For{turn, t, turns, Bind::kUnroll, std::move(body)}});
}

// Teams meet in shared memory: the second half of them leaves its sums there and the first half
// takes them in where the rows of all do not fit.
void RowsColumns::PublishBlock(Block& out, size_t c, const Expr& lane) {
  const int most = shape_.TeamsToPublish(plan_), all = shape_.threads / shape_.team;
  int teams = all;
  const TeamRows rows = ShareRows(out, c, lane, std::min(teams, most));
  const Expr team = b_.Let(out, "team", tile::Var("tx", b_.index_type()) / b_.Idx(shape_.team));
  if (teams > most) {
    const int left = (teams + 1) / 2, given = teams - left;
    Block gives, takes;
    LeaveSums(gives, rows, c, team - b_.Idx(left));
    TakeSums(takes, rows, c, team);
    const Expr is_given = tile::And(tile::Ge(team, b_.Idx(left)), tile::Lt(team, b_.Idx(teams)));
    out.push_back({tile::If{is_given, std::move(gives), {}}});
    out.push_back({tile::Barrier{}});
    out.push_back({tile::If{tile::Lt(team, b_.Idx(given)), std::move(takes), {}}});
    out.push_back({tile::Barrier{}});
    teams = left;
  }
  Block last;
  LeaveSums(last, rows, c, team);
  if (teams < all)
    out.push_back({tile::If{tile::Lt(team, b_.Idx(teams)), std::move(last), {}}});
  else
    std::ranges::move(last, std::back_inserter(out));
  out.push_back({tile::Barrier{}});
  StoreTotals(out, rows, c, teams);
}

// ---- the second kernel

namespace {

constexpr int kWalkers = 32, kWalkersPitch = kWarp + 1;

// The second kernel as it is written: its threads' places, and by column the names of partial
// results, of a thread's sum, and of the sums of all walkers.
struct ColumnSums {
  const RowsPlan& plan;
  KernelBuilder& b;
  Expr lane = {}, walker = {};
  Expr length = {}, parts = {};  // of a row; rows of partial results
  Expr existing = {};            // the thread's column, or the last one
  std::vector<std::string> scratch = {}, sums = {}, shared = {};
  size_t count() const { return sums.size(); }
  DType type(size_t c) const { return ColumnType(plan, c); }
  Expr Mine(size_t c) const { return tile::Load(sums[c], type(c), b.Idx(0)); }
};

ColumnSums DeclareColumns(KernelBuilder& b, const RowsPlan& plan, int64_t blocks, int first_scratch,
                          Block& body) {
  const Expr tx = tile::Var("tx", b.index_type()), bx = tile::Var("bx", b.index_type());
  ColumnSums s{.plan = plan, .b = b};
  s.lane = b.Let(body, "lane", tx % b.Idx(kWarp));
  s.walker = b.Let(body, "walker", tx / b.Idx(kWarp));
  s.length = b.Arg("length", plan.row.length);
  s.parts = b.Arg("parts", blocks);
  const Expr column = b.Let(body, "column", bx * b.Idx(kWarp) + s.lane);
  s.existing = b.Let(body, "existing", tile::Op(ScalarOp::kMin, {column, s.length - b.Idx(1)}));
  for (size_t c = 0; c < plan.row.others.size(); ++c) {
    const DType type = ColumnType(plan, c);
    s.scratch.push_back(b.Scratch(first_scratch + static_cast<int>(c), type, true));
    s.sums.push_back(b.Name("sum"));
    s.shared.push_back(b.Name("walkers"));
    body.push_back({tile::Alloc{s.sums[c], type, tile::Space::kReg, 1}});
    body.push_back({tile::Store{s.sums[c], b.Idx(0), IdentityOf(ColumnOf(plan, c))}});
    body.push_back(
        {tile::Alloc{s.shared[c], type, tile::Space::kShared, kWalkers * kWalkersPitch}});
  }
  return s;
}

void AddTo(const ColumnSums& s, Block& out, size_t c, const Expr& value) {
  out.push_back(
      {tile::Store{s.sums[c], s.b.Idx(0), CombineTwo(ColumnOf(s.plan, c), s.Mine(c), value)}});
}

// Reads all, then combines in order; `exists`: of each place, or empty where all do.
void AddPlaces(const ColumnSums& s, Block& out, const std::vector<Expr>& places,
               const std::vector<Expr>& exists) {
  std::vector<Expr> values;
  for (size_t p = 0; p < places.size(); ++p) {
    const Expr at = s.b.Let(out, "at", places[p] * s.length + s.existing);
    for (size_t c = 0; c < s.count(); ++c) {
      Expr part = tile::Load(s.scratch[c], s.type(c), at);
      if (!exists.empty()) part = tile::Select(exists[p], part, IdentityOf(ColumnOf(s.plan, c)));
      values.push_back(s.b.Let(out, "part", part));
    }
  }
  for (size_t i = 0; i < values.size(); ++i) AddTo(s, out, i % s.count(), values[i]);
}

// Each walker adds up every kWalkers-th partial result, all read at once where they are few.
void WalkPartials(const ColumnSums& s, int64_t blocks, Block& body) {
  constexpr int kUnroll = 4;
  constexpr int64_t kMostHeld = 12;  // partial results of a thread
  const int64_t turns = CeilDiv(blocks, int64_t{kWalkers});
  if (turns * static_cast<int64_t>(s.count()) > kMostHeld) {
    UnrolledWalk(
        s.b, body, s.b.Idx(0), s.parts, kWalkers, s.walker, kUnroll,
        [&](Block& out, const std::vector<Expr>& places) { AddPlaces(s, out, places, {}); });
    return;
  }
  std::vector<Expr> places, exists;
  for (int64_t turn = 0; turn < turns; ++turn) {
    places.push_back(s.b.Let(body, "place", s.walker + s.b.Idx(turn * kWalkers)));
    exists.push_back(tile::Lt(places.back(), s.parts));
  }
  AddPlaces(s, body, places, exists);
}

// Each warp combines the walkers' sums of one column.
void CombineWalkers(const ColumnSums& s, Block& body) {
  KernelBuilder& b = s.b;
  for (size_t c = 0; c < s.count(); ++c)
    body.push_back({tile::Store{s.shared[c], s.walker * b.Idx(kWalkersPitch) + s.lane, s.Mine(c)}});
  body.push_back({tile::Barrier{}});
  for (size_t c = 0; c < s.count(); ++c) {
    const Expr other = tile::Load(s.shared[c], s.type(c), s.lane * b.Idx(kWalkersPitch) + s.walker);
    body.push_back({tile::Store{s.sums[c], b.Idx(0), other}});
    for (int mask = kWarp / 2; mask > 0; mask /= 2)
      AddTo(s, body, c, tile::ShuffleXor(s.Mine(c), mask));
  }
}

void StoreColumns(const ColumnSums& s, Block& body) {
  KernelBuilder& b = s.b;
  const graph::Graph& g = s.plan.row.group.graph;
  Block store, inside;
  const Expr result =
      b.Let(store, "result", tile::Var("bx", b.index_type()) * b.Idx(kWarp) + s.walker);
  const Index index = UnravelDims(b, inside, s.plan.row, s.plan.row.reduced, result, 1, "r");
  for (size_t c = 0; c < s.count(); ++c) {
    const TensorId y = ColumnOf(s.plan, c).outputs[0];
    const DType type = g[y].dtype;
    inside.push_back({tile::Store{b.Pointer(y), b.Offset(y, BroadcastIndex(b, g[y], index)),
                                  tile::Cast(type, RoundThrough(type, s.Mine(c)))}});
  }
  store.push_back({tile::If{tile::Lt(result, s.length), std::move(inside), {}}});
  const Expr first = tile::Op(ScalarOp::kEq, {s.lane, b.Idx(0)});
  body.push_back({tile::If{first, std::move(store), {}}});
}

}  // namespace

// A block has 32 columns: 32 warps walk the partial results, which they read all at once where they
// are few, then each combines one column.
void CombineColumns(const RowsPlan& plan, const Target& target, int64_t blocks, Lowered& lowered) {
  constexpr int kThreads = kWalkers * kWarp;
  KernelBuilder b(plan.row.group, target, "rows, second kernel: combines the columns of blocks");
  for (const char* reserved : {"bx", "tx"}) b.Name(reserved);
  const int first_scratch = static_cast<int>(lowered.scratch_bytes.size() - plan.row.others.size());
  Block body;
  const ColumnSums sums = DeclareColumns(b, plan, blocks, first_scratch, body);
  WalkPartials(sums, blocks, body);
  CombineWalkers(sums, body);
  StoreColumns(sums, body);
  const int64_t grid = CeilDiv(plan.row.length, int64_t{kWarp});
  b.Finish(BlockAndThread(b.index_type(), b.Arg("blocks", grid), kThreads, std::move(body)),
           {grid, 1, 1}, kThreads, lowered);
}

}  // namespace kiln::compiler
