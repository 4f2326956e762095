#include "compiler/engines/columns/plan.h"

#include <algorithm>
#include <bit>

#include "compiler/engines/reduction/moments.h"
#include "compiler/kernel/accumulation.h"
#include "compiler/kernel/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::TensorId;

constexpr int kWarp = 32;
constexpr int kMostLanes = 8;
constexpr int kUnroll = 4;               // places that a thread has in flight
constexpr int64_t kRegisters = 65536;    // of a multiprocessor
constexpr int64_t kThreads = 2048;       // likewise
constexpr int64_t kOtherRegisters = 32;  // of a thread, beside what it holds
constexpr int kThreadsAcross = 128, kThreadsToReduce = 512, kThreadsToStore = 256;  // of a block
constexpr int kTilesToStore = 4;                                                    // of a block
constexpr int64_t kMostWaves = 4;                                                   // of blocks
constexpr double kTolerance = 1.01;  // that fewer splits may cost

// Moments move to the stage of their sum; a stage that is left without reductions goes.
void MoveMoments(ColumnsPlan& plan) {
  auto& stages = plan.chain.stages;
  const auto stage_of = [&](size_t r) {
    return std::ranges::find_if(stages, [&](const RowsPlan::Stage& s) {
      return std::ranges::find(s.reduces, r) != s.reduces.end();
    });
  };
  for (size_t r = 0; r < plan.sum_of.size(); ++r) {
    if (!plan.IsMoment(r)) continue;
    std::erase(stage_of(r)->reduces, r);
    stage_of(static_cast<size_t>(plan.sum_of[r]))->reduces.push_back(r);
  }
  for (size_t s = stages.size() - 1; s-- > 0;)
    if (stages[s].reduces.empty()) stages.erase(stages.begin() + static_cast<ptrdiff_t>(s));
}

// Tensors that wide ones are computed from, where some of them are in memory.
class Sources {
 public:
  Sources(const ColumnsPlan& plan, std::vector<TensorId> stored)
      : row_(plan.chain.row),
        g_(plan.graph()),
        producers_(graph::Producers(g_)),
        stored_(std::move(stored)),
        seen_(g_.tensors.size(), 0) {}

  void Add(TensorId id) {
    if (id == graph::kAbsent || seen_[static_cast<size_t>(id)]++ != 0 || g_[id].by_value) return;
    const graph::NodeId producer = producers_[static_cast<size_t>(id)];
    const bool is_stored = std::ranges::find(stored_, id) != stored_.end();
    if (!IsWide(id)) return row_values.push_back(id);
    if (is_stored || producer < 0 || g_.nodes[static_cast<size_t>(producer)].op != GraphOp::kMap)
      return leaves.push_back(id);
    for (const TensorId x : g_.nodes[static_cast<size_t>(producer)].inputs) Add(x);
  }
  int64_t Bytes() const {
    int64_t bytes = 0;
    for (const TensorId id : leaves) bytes += NumElements(g_[id].dims) * SizeOf(g_[id].dtype);
    return bytes;
  }
  // All of it in memory before the first reduction.
  bool IsInput() const {
    const auto is_input = [&](TensorId id) { return producers_[static_cast<size_t>(id)] < 0; };
    return std::ranges::all_of(leaves, is_input) && std::ranges::all_of(row_values, is_input);
  }

  std::vector<TensorId> leaves, row_values;

 private:
  bool IsWide(TensorId id) const {
    const int64_t missing = g_[row_.input].rank() - g_[id].rank();
    return std::ranges::any_of(row_.reduced, [&](int64_t d) {
      return d >= missing && g_[id].dims[static_cast<size_t>(d - missing)] != 1;
    });
  }

  const ReducePlan& row_;
  const Graph& g_;
  const std::vector<graph::NodeId> producers_;
  const std::vector<TensorId> stored_;
  std::vector<char> seen_;
};

// Finds results that the first of two passes stores, if that saves the second one reads.
void FindEarly(ColumnsPlan& plan) {
  auto& stages = plan.chain.stages;
  const Graph& g = plan.graph();
  if (stages.size() != 2 || plan.lanes == 1) return;
  std::vector<TensorId> early, others;
  for (const TensorId y : plan.chain.wide_outputs) {
    Sources of(plan, {});
    of.Add(y);
    const bool is_read = std::ranges::all_of(of.leaves, [&](TensorId leaf) {
      return std::ranges::find(stages[0].leaves, leaf) != stages[0].leaves.end();
    });
    const bool fits = of.IsInput() && is_read && g[y].dims == g[plan.chain.row.input].dims &&
                      WalkOf(g[y], plan.chain.row.inner) == Walk::kContiguous;
    (fits ? early : others).push_back(y);
  }
  if (early.empty() || others.empty()) return;
  Sources now(plan, {}), then(plan, early);
  for (const TensorId y : plan.chain.wide_outputs) now.Add(y);
  for (const TensorId y : others) then.Add(y);
  if (then.Bytes() >= now.Bytes()) return;
  stages[1].leaves = then.leaves;
  stages[1].row_values = then.row_values;
  plan.chain.wide_outputs = others;
  plan.early = early;
}

// Registers that a thread holds of a pass.
int64_t RegistersOf(const ColumnsPlan& plan, size_t s, int unroll) {
  const RowsPlan::Stage& stage = plan.chain.stages[s];
  const Graph& g = plan.graph();
  int64_t bytes = 0;
  for (const TensorId leaf : stage.leaves)
    bytes += int64_t{unroll} * plan.lanes * SizeOf(g[leaf].dtype);
  for (const TensorId y : stage.reduces.empty() ? plan.chain.wide_outputs : plan.early)
    bytes += plan.lanes * SizeOf(g[y].dtype);
  const auto values = static_cast<int64_t>(stage.row_values.size());
  const auto sums = static_cast<int64_t>(stage.reduces.size());
  return bytes / 4 + sums * plan.lanes + values * (plan.across ? plan.lanes : 1) + kOtherRegisters;
}

// As few splits as keep all multiprocessors busy to the end.
int64_t ChooseSplits(int64_t blocks, int64_t tiles, int64_t slots) {
  const int64_t most = std::clamp<int64_t>(kMostWaves * slots / std::max<int64_t>(blocks, 1), 1,
                                           std::max<int64_t>(tiles, 1));
  const auto turns = [&](int64_t s) {
    return static_cast<double>(CeilDiv(blocks * s, slots) * (CeilDiv(tiles, s) + 1));
  };
  double least = turns(1);
  for (int64_t s = 2; s <= most; ++s) least = std::min(least, turns(s));
  int64_t s = 1;
  while (turns(s) > kTolerance * least) ++s;
  return s;
}

}  // namespace

bool ColumnsPlan::HasMoment(size_t r) const {
  return std::ranges::find(sum_of, static_cast<int>(r)) != sum_of.end();
}

std::vector<size_t> ColumnsPlan::InOrder(size_t stage) const {
  std::vector<size_t> order = chain.stages[stage].reduces;
  std::ranges::stable_partition(order, [&](size_t r) { return !IsMoment(r); });
  return order;
}

ColumnsPlan PlanColumns(const Group& group) {
  ColumnsPlan plan{.chain = PlanRows(group), .sum_of = {}};
  for (const std::optional<Moment>& moment : MomentsOf(plan.chain.row))
    plan.sum_of.push_back(moment ? static_cast<int>(moment->sum) : -1);
  MoveMoments(plan);
  plan.across = !plan.chain.row.inner_is_reduced;
  plan.lanes = std::min(LanesOf(plan.chain.row), kMostLanes);
  FindEarly(plan);
  return plan;
}

ColumnsShape ShapeOf(const ColumnsPlan& plan, const Target& target, size_t stage,
                     const ColumnsKnobs& knobs) {
  const ReducePlan& row = plan.chain.row;
  ColumnsShape shape;
  const bool stores = plan.chain.stages[stage].reduces.empty();
  shape.threads = plan.across ? kThreadsAcross : stores ? kThreadsToStore : kThreadsToReduce;
  if (knobs.threads != 0) shape.threads = knobs.threads;
  shape.unroll = knobs.unroll != 0 ? knobs.unroll : kUnroll;
  if (plan.across) {
    shape.vectors = row.extent(row.inner) / plan.lanes;
    shape.width = static_cast<int>(
        std::min<uint64_t>(static_cast<uint64_t>(std::min(kWarp, shape.threads / plan.lanes)),
                           std::bit_ceil(static_cast<uint64_t>(shape.vectors))));
    shape.tiles = CeilDiv(shape.vectors, int64_t{shape.width});
    shape.blocks = shape.tiles * (row.rows / row.extent(row.inner));
    shape.places = row.length;
  } else {
    shape.blocks = row.rows;
    shape.places = row.length / plan.lanes;
  }
  shape.walkers = shape.threads / shape.width;
  shape.full = shape.places / shape.tile();
  const int64_t registers = shape.threads * RegistersOf(plan, stage, shape.unroll);
  shape.resident =
      static_cast<int>(std::clamp<int64_t>(kRegisters / registers, 1, kThreads / shape.threads));
  const int64_t tiles = CeilDiv(shape.places, int64_t{shape.tile()});
  if (stores) {
    shape.stores = static_cast<int>(std::clamp<int64_t>(
        tiles * shape.blocks / (int64_t{shape.resident} * target.multiprocessors), 1,
        kTilesToStore));
    shape.splits = std::max<int64_t>(CeilDiv(tiles, int64_t{shape.stores}), 1);
    return shape;
  }
  shape.splits =
      knobs.splits != 0
          ? std::clamp<int64_t>(knobs.splits, 1, std::max<int64_t>(shape.full, 1))
          : ChooseSplits(shape.blocks, tiles, int64_t{shape.resident} * target.multiprocessors);
  shape.splits = std::max(shape.splits, CeilDiv(tiles * shape.unroll, kMostTerms));
  return shape;
}

}  // namespace kiln::compiler
