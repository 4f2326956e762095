#include "compiler/engines/reduction/rows_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "compiler/kernel/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::NodeId;
using graph::Tensor;
using graph::TensorId;

constexpr int kWarp = 32;
constexpr int kMostVectors = 8;      // of a row that a thread has
constexpr int kVectorsInFlight = 4;  // that a thread wants to have read at once
constexpr int kMostThreads = 1024;
constexpr int64_t kRegisters = 65536;  // of a multiprocessor
constexpr int kOtherRegisters = 32;    // of a thread, beside what it holds
constexpr int kMostResident = 8;       // blocks of a multiprocessor that walk all rows
constexpr int64_t kSharedBytes = 40 << 10;
// Limits of blocks whose rows go through a ring in shared memory.
constexpr int kLeastOfRing = 256, kTeamOfRing = 512;  // threads
constexpr int64_t kVectorsOfRing = 2;                 // that a thread wants of a row
constexpr int kColumnsOfRing = 64, kRegistersOfRing = 64, kMostOfRing = 4;
constexpr int64_t kRingBytes = 200 << 10;
constexpr int kThreadsWithSums = 512;  // of a block, several teams
constexpr int64_t kMostVectorsOfLongRows = 16, kLeastChunkOfLongRows = 8;
// The most turns of blocks that read ahead: where blocks have more rows than these one after the
// other, others compute while one reads.
constexpr int64_t kTurnsToReadAhead = 4;
constexpr int kTeamToReadAhead = 128;  // of long rows few are under way: the next is read ahead
// Limits of rows side by side: bytes of neighbours that are read together, and threads.
constexpr int64_t kLineBytes = 128, kSectorBytes = 32;
constexpr int kLeastThreads = 128;
constexpr int64_t kWantedThreads = 1024;  // of a multiprocessor

// Functions that take about ten instructions and more.
constexpr ScalarOp kCostly[] = {
    ScalarOp::kDiv,  ScalarOp::kMod,   ScalarOp::kPow,   ScalarOp::kAtan2,
    ScalarOp::kSqrt, ScalarOp::kRsqrt, ScalarOp::kRecip, ScalarOp::kExp,
    ScalarOp::kLog,  ScalarOp::kLog1p, ScalarOp::kExpm1, ScalarOp::kSin,
    ScalarOp::kCos,  ScalarOp::kTan,   ScalarOp::kTanh,  ScalarOp::kErf};

class Planner {
 public:
  Planner(const Group& group, bool keeps) : keeps_(keeps) {
    plan_.row = PlanReduce(group);
    producers_ = graph::Producers(g());
  }

  RowsPlan Plan() {
    FindLevels();
    const int last = *std::ranges::max_element(levels_);
    plan_.stages.resize(static_cast<size_t>(last) + 1);
    for (size_t r = 0; r < plan_.row.reduces.size(); ++r)
      plan_.stages[levels_[OperandOf(r)]].reduces.push_back(r);
    for (const TensorId y : plan_.row.outputs) {
      if (std::ranges::find(plan_.row.others, producers_[y]) != plan_.row.others.end()) continue;
      (IsWide(y) ? plan_.wide_outputs : plan_.row_outputs).push_back(y);
    }
    kept_.assign(g().tensors.size(), 0);
    for (size_t r = 0; r < plan_.row.reduces.size(); ++r) plan_.costly |= IsCostly(OperandOf(r));
    for (size_t i = 0; i < plan_.stages.size(); ++i) {
      RowsPlan::Stage& stage = plan_.stages[i];
      GatherStage(stage);
      if (keeps_) FindKept(i);
    }
    FindMoments();
    FindHeld();
    plan_.lanes = plan_.row.inner_is_reduced ? LanesOf(plan_.row) : 1;
    plan_.vectors = plan_.row.length / plan_.lanes;
    return std::move(plan_);
  }

 private:
  const Graph& g() const { return plan_.row.group.graph; }
  TensorId OperandOf(size_t r) const { return g().nodes[plan_.row.reduces[r]].inputs[0]; }

  // Along some reduced dim.
  bool IsWide(TensorId id) const {
    const Tensor& t = g()[id];
    const int64_t missing = g()[plan_.row.input].rank() - t.rank();
    return std::ranges::any_of(plan_.row.reduced,
                               [&](int64_t d) { return d >= missing && t.dims[d - missing] != 1; });
  }

  // Finds the number of reductions that stand one after the other before a tensor is known.
  void FindLevels() {
    levels_.assign(g().tensors.size(), 0);
    const auto is_row_reduction = [&](const graph::Node& node) {
      const auto n = static_cast<NodeId>(&node - g().nodes.data());
      return std::ranges::find(plan_.row.reduces, n) != plan_.row.reduces.end();
    };
    for (const graph::Node& node : g().nodes) {
      int level = 0;
      for (const TensorId x : node.inputs)
        if (x != graph::kAbsent) level = std::max(level, levels_[x]);
      level += is_row_reduction(node);
      for (const TensorId y : node.outputs) levels_[y] = level;
    }
  }

  // Returns what it has come by.
  std::vector<char> GatherStage(RowsPlan::Stage& stage) {
    std::vector<char> seen(g().tensors.size(), 0);
    for (const size_t r : stage.reduces) Gather(OperandOf(r), stage, seen);
    if (stage.reduces.empty()) {
      for (const TensorId y : plan_.wide_outputs) Gather(y, stage, seen);
      for (const NodeId n : plan_.row.others) Gather(g().nodes[n].inputs[0], stage, seen);
    }
    std::ranges::sort(stage.quotients);
    return seen;
  }

  // Operands of the stage that later ones need, where they take long to compute again.
  void FindKept(size_t stage) {
    for (const size_t r : plan_.stages[stage].reduces) {
      const TensorId operand = OperandOf(r);
      if (kept_[operand] != 0 || !IsCostly(operand)) continue;
      for (size_t later = stage + 1; later < plan_.stages.size() && kept_[operand] == 0; ++later) {
        RowsPlan::Stage unused{.reduces = plan_.stages[later].reduces};
        kept_[operand] = GatherStage(unused)[operand];
      }
      if (kept_[operand] != 0) plan_.stages[stage].keeps.push_back(operand);
    }
  }
  bool IsCostly(TensorId operand) const {
    std::vector<char> seen(g().tensors.size(), 0);
    std::vector<TensorId> pending = {operand};
    while (!pending.empty()) {
      const TensorId id = pending.back();
      pending.pop_back();
      if (id == graph::kAbsent || seen[id] != 0 || kept_[id] != 0 || !IsWide(id)) continue;
      seen[id] = 1;
      if (producers_[id] < 0 || g().nodes[producers_[id]].op != GraphOp::kMap) continue;
      const graph::Node& node = g().nodes[producers_[id]];
      const auto& map = node.As<graph::MapAttrs>();
      if (!map.identity && std::ranges::find(kCostly, map.op) != std::end(kCostly)) return true;
      std::ranges::copy(node.inputs, std::back_inserter(pending));
    }
    return false;
  }

  // x / s for all x of a row: x * (1 / s) where nothing wide that leaves is exact to f32.
  bool IsQuotient(const graph::Node& node) const {
    const auto& map = node.As<graph::MapAttrs>();
    return !map.identity && map.op == ScalarOp::kDiv && node.compute == DType::kF32 &&
           !g()[node.inputs[1]].by_value && !IsWide(node.inputs[1]) && IsWide(node.inputs[0]) &&
           std::ranges::all_of(plan_.wide_outputs,
                               [&](TensorId y) { return SizeOf(g()[y].dtype) <= 2; });
  }

  // Gathers what a wide tensor is computed from.
  void Gather(TensorId id, RowsPlan::Stage& stage, std::vector<char>& seen) {
    if (id == graph::kAbsent || seen[id] != 0) return;
    seen[id] = 1;
    if (g()[id].by_value) return;
    if (!IsWide(id)) return stage.row_values.push_back(id);
    const NodeId producer = producers_[id];
    if (producer < 0 || kept_[id] != 0 || g().nodes[producer].op != GraphOp::kMap)
      return stage.leaves.push_back(id);
    if (IsQuotient(g().nodes[producer])) stage.quotients.push_back(producer);
    for (const TensorId x : g().nodes[producer].inputs) Gather(x, stage, seen);
  }

  void FindMoments() {
    const std::vector<std::optional<Moment>> moments = MomentsOf(plan_.row);
    for (const std::optional<Moment>& moment : moments)
      if (moment && IsShifted(plan_.row, moment->sum)) plan_.shifted.push_back(moment->sum);
    for (size_t i = 1; i < plan_.stages.size(); ++i) {
      RowsPlan::Stage& stage = plan_.stages[i];
      if (stage.reduces.size() != 1 || !stage.keeps.empty()) continue;
      const std::optional<Moment>& moment = moments[stage.reduces[0]];
      const auto& before = plan_.stages[i - 1].reduces;
      if (moment && std::ranges::find(before, moment->sum) != before.end() &&
          stage.row_values == std::vector<TensorId>{moment->mean})
        stage.moment = moment;
    }
  }

  void FindHeld() {
    const int64_t elements = NumElements(g()[plan_.row.input].dims);
    for (const RowsPlan::Stage& stage : plan_.stages)
      for (const TensorId leaf : stage.leaves)
        if (NumElements(g()[leaf].dims) == elements && kept_[leaf] == 0 && !plan_.IsHeld(leaf))
          plan_.held.push_back(leaf);
  }

  const bool keeps_;
  RowsPlan plan_;
  std::vector<NodeId> producers_;
  std::vector<int> levels_;
  std::vector<char> kept_;
};

// Threads that take a whole row of so many vectors, of those sizes that fit: those that leave few
// idle, with about as many vectors as are wanted.
int TeamFor(int64_t vectors, int wanted, const std::function<bool(int64_t)>& fits) {
  if (vectors <= int64_t{wanted} * kWarp) {
    const int64_t half = CeilDiv(std::max<int64_t>(vectors, 1), 2);
    const int team =
        static_cast<int>(std::min<uint64_t>(kWarp, std::bit_ceil(static_cast<uint64_t>(half))));
    if (fits(team)) return team;
  }
  int best = kMostThreads;
  double least = std::numeric_limits<double>::infinity();
  for (int team = 2 * kWarp; team <= kMostThreads; team *= 2) {
    const int64_t each = CeilDiv(vectors, team);
    if (each > kMostVectors || !fits(team)) continue;
    const double idle = static_cast<double>(each * team) / static_cast<double>(vectors);
    const double uneven = std::abs(static_cast<double>(each - wanted));
    const double cost = idle + 0.05 * uneven;
    if (cost < least) least = cost, best = team;
  }
  return best;
}

}  // namespace

bool RowsPlan::IsHeld(TensorId leaf) const { return std::ranges::find(held, leaf) != held.end(); }

int64_t RowsPlan::BytesOfRow() const {
  int64_t bytes = 0;
  for (const TensorId leaf : held) bytes += row.length * SizeOf(row.group.graph[leaf].dtype);
  return bytes;
}

int64_t RowsPlan::LeastChunk() const {
  const Graph& g = row.group.graph;
  const std::vector<NodeId> producers = graph::Producers(g);
  int64_t least = 16;
  for (const TensorId leaf : held) {
    const int64_t bytes = lanes * SizeOf(g[leaf].dtype);
    const bool is_copied =
        producers[leaf] < 0 && !g[leaf].by_value && WalkOf(g[leaf], row.inner) == Walk::kContiguous;
    if (!is_copied || (bytes != 4 && bytes != 8 && bytes != 16)) return 0;
    least = std::min(least, bytes);
  }
  return least;
}

int64_t RowsPlan::RegistersFor(int64_t count, int64_t rows) const {
  int64_t bytes = 0;
  for (const TensorId leaf : held)
    bytes += rows * count * lanes * SizeOf(row.group.graph[leaf].dtype);
  return bytes / 4;
}
int64_t RowsPlan::RegistersToWalk(int64_t count, int64_t rows) const {
  return 2 * RegistersFor(count, rows) + count * lanes * columns();
}

int64_t RowsPlan::ColumnBytes() const {
  std::set<DType> types;
  for (const NodeId n : row.others) types.insert(AccumulatorType(row.group.graph.nodes[n]));
  int64_t bytes = 0;
  for (const DType type : types) bytes += SizeOf(type);
  return bytes;
}

int RowsShape::TeamsToPublish(const RowsPlan& plan) const {
  return static_cast<int>(kSharedBytes /
                          std::max<int64_t>(ColumnsOfTeam(plan) * plan.ColumnBytes(), 1));
}

int LanesOf(const ReducePlan& row) {
  int lanes = row.collapsed ? WidestVector(row.group, row.inner) : 1;
  while (row.extent(row.inner) % lanes != 0) lanes /= 2;
  return lanes;
}

RowsPlan PlanRows(const Group& group, bool keeps) { return Planner(group, keeps).Plan(); }

// True if blocks walk rows that they have for themselves, though they sum up no columns.
bool ReadsAhead(const RowsPlan& plan, const RowsShape& shape) {
  return !shape.streams && !plan.costly && shape.team == shape.threads &&
         shape.team >= kTeamToReadAhead && shape.team < kMostThreads && shape.rows == 1;
}

// Rows of which threads have registers for the columns alone.
bool FindRing(const RowsPlan& plan, const RowsKnobs& knobs, RowsShape& shape) {
  if (knobs.threads != 0 || knobs.vectors != 0 || knobs.rows != 0 || plan.LeastChunk() != 16)
    return false;
  RowsShape found;
  const auto wanted = std::bit_ceil(static_cast<uint64_t>(CeilDiv(plan.vectors, kVectorsOfRing)));
  found.team = found.threads = static_cast<int>(std::min<uint64_t>(wanted, kTeamOfRing));
  const int64_t each = CeilDiv(plan.vectors, int64_t{found.team});
  const int64_t columns = each * plan.lanes * plan.columns();
  const bool idles = each * found.team * 8 > plan.vectors * 9;
  if (found.team < kLeastOfRing || each > kMostVectors || columns > kColumnsOfRing ||
      (idles && !shape.streams))
    return false;
  found.vectors = static_cast<int>(each);
  const int64_t registers = found.threads * (columns + kRegistersOfRing);
  found.resident = static_cast<int>(std::clamp<int64_t>(kRegisters / registers, 1, kMostResident));
  const int64_t rows = kRingBytes / std::max<int64_t>(plan.BytesOfRow(), 1);
  found.ring = static_cast<int>(std::min<int64_t>(rows / found.resident, kMostOfRing));
  if (found.ring < 2) return false;
  shape = found;
  return true;
}

// Rows that a block has no registers for, but room in shared memory.
bool FindLongRows(const RowsPlan& plan, const RowsKnobs& knobs, const Target& target,
                  RowsShape& shape) {
  const int64_t each = CeilDiv(plan.vectors, int64_t{kMostThreads});
  if (knobs.threads != 0 || knobs.vectors != 0 || knobs.rows != 0 || target.sm_version < 80 ||
      plan.LeastChunk() < kLeastChunkOfLongRows || each > kMostVectorsOfLongRows)
    return false;
  RowsShape found = {.threads = kMostThreads,
                     .team = kMostThreads,
                     .vectors = static_cast<int>(each),
                     .resident = 1,
                     .ring = 2};
  while (found.ring > 0 && found.SharedBytes(plan) > target.shared_limit()) --found.ring;
  if (found.ring == 0) return false;
  shape = found;
  return true;
}

RowsShape Choose(const RowsPlan& plan, const RowsKnobs& knobs) {
  RowsShape shape;
  // Threads of large blocks have few registers.
  const bool sums = plan.columns() > 0;
  const auto fits = [&](int64_t size) {
    const int64_t each = CeilDiv(plan.vectors, size);
    if (!sums) return plan.RegistersFor(each) <= (size > 512 ? 32 : 64);
    return plan.RegistersToWalk(each) <= (size > 512 ? 32 : size > 256 ? 96 : 128);
  };
  int64_t team = knobs.vectors == 0
                     ? TeamFor(plan.vectors, kVectorsInFlight, fits)
                     : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(
                           CeilDiv(std::max<int64_t>(plan.vectors, 1), knobs.vectors))));
  const int64_t most = knobs.threads == 0 ? kMostThreads : knobs.threads;
  team = std::min(team, most);
  while (!fits(team) && team < most) team *= 2;
  shape.team = static_cast<int>(team);
  shape.threads = knobs.threads != 0 ? knobs.threads : std::max(shape.team, 4 * kWarp);
  const int64_t each = CeilDiv(plan.vectors, team);
  shape.streams = each > kMostVectors || !fits(team);
  // Registers for two sums of each column leave few for what is read ahead.
  if (sums && (shape.streams || plan.columns() > 1) && FindRing(plan, knobs, shape)) return shape;
  shape.vectors = static_cast<int>(
      std::clamp<int64_t>(each, 1, shape.streams ? kVectorsInFlight : kMostVectors));
  if (knobs.rows != 0)
    shape.rows = shape.streams ? 1 : knobs.rows;
  else if (shape.team <= kWarp)
    shape.rows = std::max(1, kVectorsInFlight / shape.vectors);
  if (!sums && !ReadsAhead(plan, shape)) return shape;
  // Teams of a block leave their sums in shared memory.
  while (sums && shape.threads > std::max(shape.team, kWarp) &&
         2 * shape.TeamsToPublish(plan) < shape.threads / shape.team)
    shape.threads /= 2;
  // Rows that are read ahead have to last as long as memory takes: all registers are worth having.
  const int64_t registers = plan.RegistersToWalk(shape.vectors, shape.rows) + kOtherRegisters;
  shape.resident = static_cast<int>(
      std::clamp<int64_t>(kRegisters / (shape.threads * registers), 1, kMostResident));
  return shape;
}

// Each block leaves a row of sums: blocks of one multiprocessor are joined, as many as have rows.
void JoinBlocks(const RowsPlan& plan, const Target& target, RowsShape& shape) {
  const int64_t tiles = CeilDiv(plan.row.rows, shape.rows_of_block());
  const int64_t blocks = CeilDiv(tiles, int64_t{target.multiprocessors});
  const int64_t teams = shape.threads / shape.team;
  const int64_t room = std::min<int64_t>({shape.resident, blocks, kThreadsWithSums / shape.threads,
                                          2 * shape.TeamsToPublish(plan) / teams});
  const auto joined = static_cast<int>(std::max<int64_t>(room, 1));
  shape.threads *= joined;
  shape.resident /= joined;
}

int64_t LargestElement(const RowsPlan& plan) {
  int64_t size = 1;
  for (const TensorId leaf : plan.held)
    size = std::max<int64_t>(size, SizeOf(plan.row.group.graph[leaf].dtype));
  return size;
}
// As many rows as make whole lines of memory, or fewer where that leaves multiprocessors idle, down
// to whole sectors.
int64_t RowsAbreast(const RowsPlan& plan, const Target& target) {
  const int64_t size = LargestElement(plan);
  int64_t abreast = kLineBytes / size;
  while (abreast * size > kSectorBytes && CeilDiv(plan.row.rows, abreast) < target.multiprocessors)
    abreast /= 2;
  const auto rows = static_cast<uint64_t>(std::max<int64_t>(plan.row.rows, 1));
  return std::min<int64_t>(abreast, static_cast<int64_t>(std::bit_ceil(rows)));
}

// Teams that fill the device, or that hold a row.
RowsShape ChooseSideBySide(const RowsPlan& plan, const Target& target, const RowsKnobs& knobs) {
  const int64_t most = knobs.threads == 0 ? kMostThreads : knobs.threads;
  const int64_t abreast = std::min(RowsAbreast(plan, target), most);
  // Elements are read one by one: of small ones a thread has more on their way.
  const int64_t most_vectors = kMostVectors * std::max<int64_t>(4 / LargestElement(plan), 1);
  const auto holds = [&](int64_t team) {
    const int64_t each = CeilDiv(plan.vectors, team);
    return each <= most_vectors && plan.RegistersFor(each) <= 64;
  };
  const int64_t widest = std::min<int64_t>(
      most / abreast, static_cast<int64_t>(std::bit_ceil(
                          static_cast<uint64_t>(std::max<int64_t>(plan.vectors, 1)))));
  int64_t team = 1;
  if (knobs.vectors != 0)
    while (team < widest && CeilDiv(plan.vectors, team) > knobs.vectors) team *= 2;
  else
    while (team < widest && plan.row.rows * team < kWantedThreads * target.multiprocessors)
      team *= 2;
  if (knobs.vectors == 0 && holds(std::max<int64_t>(widest, team)))
    while (!holds(team)) team *= 2;
  RowsShape shape{.team = static_cast<int>(team), .side_by_side = true};
  shape.threads = knobs.threads != 0
                      ? knobs.threads
                      : static_cast<int>(std::max<int64_t>(team * abreast, kLeastThreads));
  const int64_t each = CeilDiv(plan.vectors, team);
  shape.streams = !holds(team);
  shape.vectors = static_cast<int>(
      std::clamp<int64_t>(each, 1, shape.streams ? kVectorsInFlight : most_vectors));
  // Teams of more than one thread combine their rows in shared memory.
  if (knobs.rows != 0 && team == 1 && !shape.streams) shape.rows = knobs.rows;
  return shape;
}

RowsShape ShapeOf(const RowsPlan& plan, const Target& target, const RowsKnobs& knobs) {
  if (!plan.row.inner_is_reduced) return ChooseSideBySide(plan, target, knobs);
  RowsShape shape = Choose(plan, knobs);
  if (plan.columns() > 0) {
    const bool fits = target.sm_version >= 80 && shape.SharedBytes(plan) <= target.shared_limit();
    if (shape.ring > 0 && !fits) shape = {.streams = true};
    if (shape.ring == 0 && !shape.streams && knobs.threads == 0) JoinBlocks(plan, target, shape);
    return shape;
  }
  if (shape.streams) FindLongRows(plan, knobs, target, shape);
  if (shape.resident == 0 || shape.ring > 0) return shape;
  const int64_t tiles = CeilDiv(plan.row.rows, shape.rows_of_block());
  const int64_t most = int64_t{shape.resident} * target.multiprocessors;
  if (tiles <= most || tiles > kTurnsToReadAhead * most) shape.resident = 0;
  return shape;
}

}  // namespace kiln::compiler
