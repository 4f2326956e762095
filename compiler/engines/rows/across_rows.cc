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

// Teams meet in shared memory: the second half of them leaves its sums there and the first half
// takes them in where the rows of all do not fit.
void RowsColumns::PublishBlock(Block& out, size_t c, const Expr& lane) {
  const DType t = b_.index_type(), type = TypeOf(c);
  const Expr tx = tile::Var("tx", t);
  const int64_t pitch = shape_.ColumnsOfTeam(plan_);
  const int most = shape_.TeamsToPublish(plan_);
  int teams = shape_.threads / shape_.team;
  if (shared_.contains(type)) {
    out.push_back({tile::Barrier{}});  // the column before has been read
  } else {
    shared_[type] = b_.Name("columns");
    out.push_back({tile::Alloc{shared_[type], type, tile::Space::kShared,
                               int64_t{std::min(teams, most)} * pitch}});
  }
  const std::string& shared = shared_[type];
  const Expr team = b_.Let(out, "team", tx / b_.Idx(shape_.team));
  // Calls emit for each vector of the thread: where it is in the row that the team has `from`
  // there.
  const auto each = [&](Block& to, const Expr& from,
                        const std::function<void(Block&, const Expr&, const Expr&)>& emit) {
    const std::string v = b_.Name("v");
    Block body;
    const Expr vector = tile::Var(v, t) * b_.Idx(shape_.team) + lane;
    const Expr at = b_.Let(body, "column_at", from * b_.Idx(pitch) + vector * b_.Idx(plan_.lanes));
    emit(body, at, tile::Var(v, t) * b_.Idx(plan_.lanes));
    to.push_back({tile::For{v, t, b_.Idx(shape_.vectors), Bind::kUnroll, std::move(body)}});
  };
  const auto leave = [&](Block& to, const Expr& from) {
    each(to, from, [&](Block& body, const Expr& at, const Expr& slot) {
      WideCopy(body, type, shared, at, sums_[c], slot, plan_.lanes);
    });
  };
  if (teams > most) {
    const int left = (teams + 1) / 2, given = teams - left;
    Block gives, takes;
    leave(gives, team - b_.Idx(left));
    each(takes, team, [&](Block& body, const Expr& at, const Expr& slot) {
      for (int l = 0; l < plan_.lanes; ++l) {
        const Expr mine = tile::Load(sums_[c], type, slot + b_.Idx(l));
        body.push_back({tile::Store{sums_[c], slot + b_.Idx(l),
                                    Combined(c, mine, tile::Load(shared, type, at + b_.Idx(l)))}});
      }
    });
    const Expr is_given = tile::And(tile::Ge(team, b_.Idx(left)), tile::Lt(team, b_.Idx(teams)));
    out.push_back({tile::If{is_given, std::move(gives), {}}});
    out.push_back({tile::Barrier{}});
    out.push_back({tile::If{tile::Lt(team, b_.Idx(given)), std::move(takes), {}}});
    out.push_back({tile::Barrier{}});
    teams = left;
  }
  Block last;
  leave(last, team);
  if (teams < shape_.threads / shape_.team)
    out.push_back({tile::If{tile::Lt(team, b_.Idx(teams)), std::move(last), {}}});
  else
    std::ranges::move(last, std::back_inserter(out));
  out.push_back({tile::Barrier{}});
  const std::string turn = b_.Name("turn");
  Block body, inside;
  const Expr at = b_.Let(body, "at", tile::Var(turn, t) * b_.Idx(shape_.threads) + tx);
  Expr total = tile::Load(shared, type, at);
  for (int team = 1; team < teams; ++team)
    total = Combined(c, total, tile::Load(shared, type, at + b_.Idx(int64_t{team} * pitch)));
  inside.push_back({tile::Store{scratch_[c], tile::Var("bx", t) * length_ + at, total}});
  body.push_back({tile::If{tile::Lt(at, length_), std::move(inside), {}}});
  const Expr turns = b_.Idx(CeilDiv(pitch, shape_.threads));
  out.push_back({tile::For{turn, t, turns, Bind::kUnroll, std::move(body)}});
}

// A block has 32 columns: 32 warps walk the partial results, which they read all at once where they
// are few, then each combines one column.
void CombineColumns(const RowsPlan& plan, const Target& target, int64_t blocks, Lowered& lowered) {
  constexpr int kWalkers = 32, kThreads = kWalkers * kWarp, kUnroll = 4, kPitch = kWarp + 1;
  constexpr int64_t kMostHeld = 12;  // partial results of a thread
  KernelBuilder b(plan.row.group, target, "rows, second kernel: combines the columns of blocks");
  for (const char* reserved : {"bx", "tx"}) b.Name(reserved);
  const DType t = b.index_type();
  const size_t count = plan.row.others.size();
  const int first_scratch = static_cast<int>(lowered.scratch_bytes.size() - count);
  Block body;
  const Expr tx = tile::Var("tx", t), bx = tile::Var("bx", t);
  const Expr lane = b.Let(body, "lane", tx % b.Idx(kWarp));
  const Expr walker = b.Let(body, "walker", tx / b.Idx(kWarp));
  const Expr length = b.Arg("length", plan.row.length), parts = b.Arg("parts", blocks);
  const Expr column = b.Let(body, "column", bx * b.Idx(kWarp) + lane);
  const Expr existing =
      b.Let(body, "existing", tile::Op(ScalarOp::kMin, {column, length - b.Idx(1)}));
  std::vector<std::string> scratch, sums, shared;
  for (size_t c = 0; c < count; ++c) {
    const DType type = ColumnType(plan, c);
    scratch.push_back(b.Scratch(first_scratch + static_cast<int>(c), type, true));
    sums.push_back(b.Name("sum"));
    shared.push_back(b.Name("walkers"));
    body.push_back({tile::Alloc{sums[c], type, tile::Space::kReg, 1}});
    body.push_back({tile::Store{sums[c], b.Idx(0), IdentityOf(ColumnOf(plan, c))}});
    body.push_back({tile::Alloc{shared[c], type, tile::Space::kShared, kWalkers * kPitch}});
  }
  const auto mine = [&](size_t c) { return tile::Load(sums[c], ColumnType(plan, c), b.Idx(0)); };
  const auto add = [&](Block& out, size_t c, const Expr& value) {
    out.push_back({tile::Store{sums[c], b.Idx(0), CombineTwo(ColumnOf(plan, c), mine(c), value)}});
  };
  // Reads all, then combines in order; `exists`: of each place, or empty where all do.
  const auto visit = [&](Block& out, const std::vector<Expr>& places,
                         const std::vector<Expr>& exists) {
    std::vector<Expr> values;
    for (size_t p = 0; p < places.size(); ++p) {
      const Expr at = b.Let(out, "at", places[p] * length + existing);
      for (size_t c = 0; c < count; ++c) {
        Expr part = tile::Load(scratch[c], ColumnType(plan, c), at);
        if (!exists.empty()) part = tile::Select(exists[p], part, IdentityOf(ColumnOf(plan, c)));
        values.push_back(b.Let(out, "part", part));
      }
    }
    for (size_t i = 0; i < values.size(); ++i) add(out, i % count, values[i]);
  };
  const int64_t turns = CeilDiv(blocks, int64_t{kWalkers});
  if (turns * static_cast<int64_t>(count) <= kMostHeld) {
    std::vector<Expr> places, exists;
    for (int64_t turn = 0; turn < turns; ++turn) {
      places.push_back(b.Let(body, "place", walker + b.Idx(turn * kWalkers)));
      exists.push_back(tile::Lt(places.back(), parts));
    }
    visit(body, places, exists);
  } else {
    UnrolledWalk(b, body, b.Idx(0), parts, kWalkers, walker, kUnroll,
                 [&](Block& out, const std::vector<Expr>& places) { visit(out, places, {}); });
  }
  for (size_t c = 0; c < count; ++c)
    body.push_back({tile::Store{shared[c], walker * b.Idx(kPitch) + lane, mine(c)}});
  body.push_back({tile::Barrier{}});
  for (size_t c = 0; c < count; ++c) {
    const Expr other = tile::Load(shared[c], ColumnType(plan, c), lane * b.Idx(kPitch) + walker);
    body.push_back({tile::Store{sums[c], b.Idx(0), other}});
    for (int mask = kWarp / 2; mask > 0; mask /= 2) add(body, c, tile::ShuffleXor(mine(c), mask));
  }
  Block store;
  const Expr result = b.Let(store, "result", bx * b.Idx(kWarp) + walker);
  Block inside;
  const Index index = UnravelDims(b, inside, plan.row, plan.row.reduced, result, 1, "r");
  for (size_t c = 0; c < count; ++c) {
    const TensorId y = ColumnOf(plan, c).outputs[0];
    const DType type = plan.row.group.graph[y].dtype;
    inside.push_back(
        {tile::Store{b.Pointer(y), b.Offset(y, BroadcastIndex(b, plan.row.group.graph[y], index)),
                     tile::Cast(type, RoundThrough(type, mine(c)))}});
  }
  store.push_back({tile::If{tile::Lt(result, length), std::move(inside), {}}});
  const Expr first = tile::Op(ScalarOp::kEq, {lane, b.Idx(0)});
  body.push_back({tile::If{first, std::move(store), {}}});
  const int64_t grid = CeilDiv(plan.row.length, int64_t{kWarp});
  b.Finish(BlockAndThread(t, b.Arg("blocks", grid), kThreads, std::move(body)), {grid, 1, 1},
           kThreads, lowered);
}

}  // namespace kiln::compiler
