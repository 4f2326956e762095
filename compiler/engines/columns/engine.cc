// columns: chains of reductions along places that do not lie together, or along rows too long for a
// block.
//
// Takes: batch norm in training and its gradients, statistics of channels, and any other chain of
// reductions along the dims of its first one, on GPUs.
//
// How: one pass over memory a stage by all blocks, and a small kernel between two passes. A mean
// and the squared distances from it are one pass. Every other pass walks backwards, since the L2
// cache has what was read last; a result that needs no reduction (a masked gradient) is stored by
// the first pass and read by the second.
//
// Wins: where `rows` declines because of the layout or the length.
//
// Declines: the CPU; reductions along other dims than the first one's; fewer than 32 elements a
// result; more reductions of one pass than are combined at a time.
#include "compiler/engines/columns/engine.h"

#include <algorithm>
#include <utility>

#include "compiler/engines/engine_of.h"
#include "compiler/engines/knob_types.h"
#include "compiler/machine/machine.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

constexpr int kThreadsDomain[] = {0, 128, 256, 512};
constexpr int kUnrollDomain[] = {0, 1, 2, 4, 8};  // places that a thread has in flight
constexpr int kSplitsDomain[] = {0, 1,  2,
                                 5, 32, 256};  // of a column: 0: as many as fill the device
constexpr KnobRow kKnobs[] = {
    {.name = "threads", .cudnn_type = kKnobBlockSize, .domain = kThreadsDomain},
    {.name = "unroll", .cudnn_type = kKnobArraySizePerThread, .domain = kUnrollDomain},
    {.name = "splits", .cudnn_type = kKnobSplitCols, .domain = kSplitsDomain},
};
enum { kThreads, kUnroll, kSplits };

// Partial results of more reductions than these do not fit in the shared memory of their kernel.
constexpr size_t kMostReductions = 4;
// Shorter columns are as well read by kernels that store nothing between.
constexpr int64_t kLeastLength = 32;

template <class... A>
Status Decline(fmt::format_string<A...> format, A&&... args) {
  return Status::Error(Code::kUnsupportedShape, format, std::forward<A>(args)...);
}

ColumnsKnobs Named(std::span<const int> knobs) {
  return {.threads = knobs[kThreads], .unroll = knobs[kUnroll], .splits = knobs[kSplits]};
}

DType ValueType(const ColumnsPlan& plan, graph::TensorId id) {
  return ArithmeticType(plan.graph()[id].dtype);
}

// Passes have the same splits or not: what one leaves for the next is by column.
ColumnsScratch AddScratch(const ColumnsPlan& plan, const std::vector<ColumnsShape>& shapes,
                          Lowered& lowered) {
  ColumnsScratch scratch;
  const auto add = [&](int64_t elements, DType type) {
    lowered.scratch_bytes.push_back(elements * SizeOf(type));
    return static_cast<int>(lowered.scratch_bytes.size()) - 1;
  };
  const auto& stages = plan.chain.stages;
  scratch.parts.resize(plan.sum_of.size());
  scratch.totals.resize(plan.sum_of.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    for (const size_t r : stages[s].reduces) {
      const DType type = AccumulatorType(plan.reduce(r));
      scratch.parts[r] = add(plan.columns() * shapes[s].splits, type);
      scratch.totals[r] = add(plan.columns(), type);
      if (plan.IsShifted(s, r)) scratch.shifts[r] = add(plan.columns(), type);
    }
    if (s == 0) continue;
    for (const graph::TensorId id : stages[s].row_values)
      if (!scratch.values.contains(id))
        scratch.values[id] = add(plan.columns(), ValueType(plan, id));
  }
  return scratch;
}

// Each pass reads what it needs.
double SecondsOf(const ColumnsPlan& plan, const Target& target) {
  constexpr double kShare = 0.95;  // of a copy's rate
  const graph::Graph& g = plan.graph();
  double bytes = 0;
  const auto add = [&](graph::TensorId id) {
    bytes += static_cast<double>(NumElements(g[id].dims) * SizeOf(g[id].dtype));
  };
  for (const RowsPlan::Stage& stage : plan.chain.stages) std::ranges::for_each(stage.leaves, add);
  std::ranges::for_each(plan.chain.wide_outputs, add);
  std::ranges::for_each(plan.early, add);
  const auto launches = static_cast<double>(2 * plan.chain.stages.size());
  const Machine machine = MachineOf(target);
  return machine.StartSeconds() * launches + bytes / (machine.memory * kShare);
}

struct ColumnsEnginePlan {
  const Target& target;
  ColumnsPlan plan;
  double seconds;

  std::vector<std::vector<int>> Choices() const { return NeighbouringKnobs(kKnobs); }
  Estimate EstimateOf(std::span<const int>) const { return {.seconds = seconds}; }
  Result<Lowered> Lower(std::span<const int> knobs) const {
    const size_t count = plan.chain.stages.size();
    std::vector<ColumnsShape> shapes;
    for (size_t s = 0; s < count; ++s) shapes.push_back(ShapeOf(plan, target, s, Named(knobs)));
    Lowered lowered;
    const ColumnsScratch scratch = AddScratch(plan, shapes, lowered);
    for (size_t s = 0; s < count; ++s) {
      LowerColumnsPass(plan, target, s, shapes[s], scratch, lowered);
      if (s + 1 < count) FinishColumns(plan, target, s, shapes[s], scratch, lowered);
    }
    return lowered;
  }
};

Result<ColumnsEnginePlan> PlanOf(const Group& group, const Target& target) {
  if (group.kind != GroupKind::kRows)
    return Status::Error(Code::kUnsupportedGraphPattern, "the group is no chain of reductions");
  if (!target.is_cuda()) return Decline("columns are walked by the blocks of a GPU");
  ColumnsPlan plan = PlanColumns(group);
  if (plan.chain.columns() > 0)
    return Decline("the group has reductions along other dims than its first one's");
  if (plan.chain.row.length < kLeastLength)
    return Decline("{} elements a result; at least {} are worth a pass of their own",
                   plan.chain.row.length, kLeastLength);
  for (const RowsPlan::Stage& stage : plan.chain.stages)
    if (stage.reduces.size() > kMostReductions)
      return Decline("{} reductions of one pass; at most {} are combined at a time",
                     stage.reduces.size(), kMostReductions);
  const double seconds = SecondsOf(plan, target);
  return ColumnsEnginePlan{target, std::move(plan), seconds};
}

}  // namespace

tile::Expr ColumnsParameters::Arg(const std::string& name, int64_t value) {
  tile::Expr& arg = args_[name];
  if (!arg) arg = b_.Arg(name, value);
  return arg;
}

const std::string& ColumnsParameters::Scratch(int number, DType type, bool is_const) {
  std::string& name = scratch_[number];
  if (name.empty()) name = b_.Scratch(number, type, is_const);
  return name;
}

tile::Expr ColumnsParameters::ElementsOf(const tile::Expr& split) {
  const tile::Expr more =
      tile::Select(tile::Lt(split, Owner()), b_.Idx(shape_.tile()),
                   tile::Select(tile::Lt(Owner(), split), b_.Idx(0), Arg("rest", shape_.rest())));
  return (Turns() * b_.Idx(shape_.tile()) + more) * b_.Idx(plan_.elements());
}

const Engine kColumnsEngine = EngineOf<PlanOf>({.name = "columns", .version = 3, .knobs = kKnobs});

}  // namespace kiln::compiler
