// rows: chains of reductions along rows with the maps around them, as one kernel.
//
// Takes: norms, softmax and their gradients, however they are spelled, on GPUs; rows along the
// innermost dim. Where no workspace is to be had it takes every chain, rows that lie side by side
// and rows of any length among them.
//
// How: a team of threads (part of a warp, or up to a block) reads a row once and keeps it in
// registers through all its reductions until results are stored. Blocks that have rows one after
// the other (gradients with sums across rows, few long rows) read ahead, into registers or a ring
// in shared memory; longer rows stay in shared memory, or are read again from the L2 cache. Mean
// and variance are one round between threads where all have equally many elements.
//
// Wins: over a kernel a reduction, since a row is read once instead of two or three times.
//
// Declines: the CPU; rows that do not lie along the innermost dim; a value of the row that is
// updated in place; rows that fit neither registers nor the cache, or that are so few that most
// multiprocessors idle; long rows with sums across rows.
#include "compiler/engines/rows/engine.h"

#include <algorithm>
#include <utility>

#include "compiler/engines/engine_of.h"
#include "compiler/engines/knob_types.h"
#include "compiler/machine/machine.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

constexpr int kThreadsDomain[] = {0, 64, 128, 256, 512, 1024};  // 0: as many as suit the row
constexpr int kVectorsDomain[] = {0, 1, 2, 4, 8};               // of a row that a thread keeps
constexpr int kRowsDomain[] = {0, 1, 2, 4};                     // that a team has under way
constexpr KnobRow kKnobs[] = {
    {.name = "threads", .cudnn_type = kKnobBlockSize, .domain = kThreadsDomain},
    {.name = "vectors", .cudnn_type = kKnobArraySizePerThread, .domain = kVectorsDomain},
    {.name = "rows", .cudnn_type = kKnobTileRows, .domain = kRowsDomain},
};
enum { kThreads, kVectors, kRows };

// Bytes of the L2 cache that rows that are read again may take, those of all multiprocessors
// together.
constexpr int64_t kCachedBytes = int64_t{32} << 20;

template <class... A>
Status Decline(fmt::format_string<A...> format, A&&... args) {
  return Status::Error(Code::kUnsupportedShape, format, std::forward<A>(args)...);
}

// A value of the row that is written over while others of its team still read it.
bool WritesOverRowValues(const RowsPlan& plan) {
  const graph::Graph& g = plan.row.group.graph;
  return std::ranges::any_of(plan.row_outputs, [&](graph::TensorId y) {
    return std::ranges::any_of(graph::Inputs(g), [&](graph::TensorId x) {
      return g[y].uid >= 0 && g[x].uid == g[y].uid && !g[x].by_value;
    });
  });
}

RowsKnobs Named(std::span<const int> knobs) {
  return {.threads = knobs[kThreads], .vectors = knobs[kVectors], .rows = knobs[kRows]};
}

// Columns are summed up in registers, so that rows must be, too.
bool MakesKernel(const RowsPlan& plan, const RowsShape& shape) {
  return !shape.streams || plan.columns() == 0;
}

class RowsEnginePlan {
 public:
  RowsEnginePlan(const Group& group, const Target& target, RowsPlan plan)
      : group_(group),
        target_(target),
        machine_(MachineOf(target)),
        plan_(std::move(plan)),
        floor_bytes_(static_cast<double>(FloorBytes(group))) {}

  // Those that make a kernel.
  std::vector<Proposal> Proposals() const {
    std::vector<Proposal> all;
    for (std::vector<int>& knobs : NeighbouringKnobs(kKnobs)) {
      const RowsShape shape = ShapeOf(plan_, target_, Named(knobs));
      if (MakesKernel(plan_, shape))
        all.push_back({.knobs = std::move(knobs),
                       .seconds = Seconds(shape),
                       .shared_bytes = shape.SharedBytes(plan_)});
    }
    return all;
  }

  Estimate EstimateOf(std::span<const int> knobs) const {
    const RowsShape shape = ShapeOf(plan_, target_, Named(knobs));
    return {.seconds = MakesKernel(plan_, shape) ? Seconds(shape) : kNoSeconds,
            .shared_bytes = shape.SharedBytes(plan_)};
  }

  Result<Lowered> Lower(std::span<const int> knobs) const {
    const RowsShape shape = ShapeOf(plan_, target_, Named(knobs));
    if (!MakesKernel(plan_, shape))
      return Decline("{} hold no row of {} elements", KnobText(kKnobs, knobs), plan_.row.length);
    return LowerRows(shape.CanKeep(plan_.lanes) ? PlanRows(group_, true) : plan_, target_, shape);
  }

 private:
  double Seconds(const RowsShape& shape) const;

  const Group& group_;
  const Target& target_;
  Machine machine_;
  RowsPlan plan_;
  double floor_bytes_;
};

double RowsEnginePlan::Seconds(const RowsShape& shape) const {
  constexpr double kShare = 0.95, kStreamedShare = 0.54;  // of a copy's rate
  constexpr double kReduceCycles = 1700;  // of a kernel: until the teams of its last rows agree
  double seconds = floor_bytes_ / (machine_.memory * (shape.streams ? kStreamedShare : kShare));
  if (shape.ring > 0 && plan_.columns() == 0) {  // a multiprocessor has one row at a time
    const int64_t turns = CeilDiv(plan_.row.rows, int64_t{target_.multiprocessors});
    seconds *= static_cast<double>(turns * target_.multiprocessors) /
               static_cast<double>(std::max<int64_t>(plan_.row.rows, 1));
  }
  const double start = machine_.StartSeconds() + machine_.Seconds(kReduceCycles);
  return start * (plan_.columns() == 0 ? 1 : 2) + seconds;
}

Result<RowsEnginePlan> PlanOf(const Group& group, const Target& target) {
  if (group.kind != GroupKind::kRows)
    return Status::Error(Code::kUnsupportedGraphPattern, "the group is no chain along rows");
  if (!target.is_cuda()) return Decline("rows are kept in the registers of a GPU's threads");
  RowsPlan plan = PlanRows(group);
  const bool is_alone = group.stores_little && plan.columns() == 0;
  if (!plan.row.inner_is_reduced && !is_alone)
    return Decline("rows do not lie along the innermost dim of memory");
  if (WritesOverRowValues(plan)) return Decline("a value of the row is updated in place");
  const RowsShape shape = ShapeOf(plan, target, {});
  if (!shape.streams || is_alone) return RowsEnginePlan(group, target, std::move(plan));
  if (plan.columns() > 0)
    return Decline("rows of {} elements leave no registers for sums across rows", plan.row.length);
  int64_t bytes = 0;
  for (const graph::TensorId x : plan.held)
    bytes += plan.row.length * SizeOf(plan.row.group.graph[x].dtype);
  if (bytes * target.multiprocessors > kCachedBytes)
    return Decline("rows of {} elements, {} bytes, fit neither registers nor the cache",
                   plan.row.length, bytes);
  if (plan.row.rows * 2 < target.multiprocessors)
    return Decline("{} rows of {} elements leave most multiprocessors idle", plan.row.rows,
                   plan.row.length);
  return RowsEnginePlan(group, target, std::move(plan));
}

}  // namespace

const Engine kRowsEngine = EngineOf<PlanOf>({.name = "rows", .version = 5, .knobs = kKnobs});

}  // namespace kiln::compiler
