// segments: sums, means, maxima and minima of rows in segments (`segment_reduce`: the edges of each
// node of a graph), and the segment of each place (`segment_ids`).
//
// Takes: every such group, of any type, on every device.
//
// How: a thread has neighbours of a row of y and walks the places of its segment in order, rows of
// four of them on their way by copies of 16 bytes, through a gather and the maps that rows are
// computed by; places of a last round that are behind the end read its last one again. A place of
// `segment_ids` looks its segment up among the offsets by halving. No sum depends on the order in
// which threads run. engine.h shows the loops.
//
// Wins: always, since no other engine takes such groups. A segment is one thread's of each vector,
// however long it is, which is slow for few long segments.
//
// Declines: a group without segments.
#include "compiler/engines/segments/engine.h"

#include "compiler/engines/engine_of.h"
#include "compiler/engines/knob_types.h"
#include "compiler/engines/segments/kernels.h"
#include "compiler/machine/machine.h"

namespace kiln::compiler {
namespace {

constexpr int kThreadsDomain[] = {256, 128, 512};
constexpr int kPlacesDomain[] = {4, 1, 2, 8};
constexpr KnobRow kKnobs[] = {
    {.name = "threads", .cudnn_type = kKnobBlockSize, .domain = kThreadsDomain},
    {.name = "places", .cudnn_type = kKnobArraySizePerThread, .domain = kPlacesDomain},
};
enum { kThreads, kPlaces };

bool IsReduce(const Group& group) {
  return group.graph.nodes.back().op == graph::GraphOp::kSegmentReduce;
}

struct SegmentsPlan {
  const Group& group;
  const Target& target;
  Machine machine;
  double bytes;  // that are moved

  std::vector<std::vector<int>> Choices() const { return NeighbouringKnobs(kKnobs); }
  Estimate EstimateOf(std::span<const int> knobs) const {
    constexpr double kShare = 0.7;  // of a copy's rate
    // With few places little is on its way, and with many some are behind the end of their segment.
    constexpr double kAlone = 0.3, kBehind = 0.02;
    const double places = knobs[kPlaces];
    return {.seconds =
                StreamSeconds(machine, bytes * (1 + kAlone / places + kBehind * places), kShare)};
  }
  Result<Lowered> Lower(std::span<const int> knobs) const {
    if (IsReduce(group)) return LowerSegmentReduce(group, target, knobs[kThreads], knobs[kPlaces]);
    return LowerSegmentIds(group, target, knobs[kThreads]);
  }
};

// A row for each place: most of them come from the L2 cache.
double BytesOf(const Group& group) {
  const graph::Graph& g = group.graph;
  const graph::Node& node = g.nodes.back();
  auto bytes = static_cast<double>(FloorBytes(group));
  if (IsReduce(group) && RowsOf(node) != graph::kAbsent) {
    const graph::Tensor &x = g[node.inputs[0]], &rows = g[RowsOf(node)];
    const int64_t row = NumElements(x.dims) / std::max<int64_t>(x.dims[0], 1);
    bytes +=
        static_cast<double>(NumElements(rows.dims)) * static_cast<double>(row) * SizeOf(x.dtype);
  }
  return bytes;
}

Result<SegmentsPlan> PlanOf(const Group& group, const Target& target) {
  if (group.kind == GroupKind::kSegments)
    return SegmentsPlan{group, target, MachineOf(target), BytesOf(group)};
  return Status::Text(Code::kUnsupportedGraphPattern, "the group has no segments");
}

}  // namespace

const Engine kSegmentsEngine =
    EngineOf<PlanOf>({.name = "segments", .version = 1, .knobs = kKnobs});

}  // namespace kiln::compiler
