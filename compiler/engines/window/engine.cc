// window: groups around a resampling: pooling, interpolation, and their gradients.
//
// Takes: every such group, with any maps before and after, any layout, 1 to 3 spatial dims, any
// device.
//
// How: a thread makes a tile of neighbouring results (of a gradient: all elements between two
// windows) and reads each source once, with geometry as numbers of the text; maxima of 16 bits are
// found two at a time. Gradients gather from the outputs that read an element, in a fixed order.
//
//   tiles    pooling with nothing around it: window/tiles.h
//   nest     pooling with maps around it, of what is pooled, of maxima searched anew: each value on
//            the way is computed once, in registers (window/nest.h)
//   lanes    channels are contiguous in every tensor: 16-byte copies, a few channels a thread
//   strided  anything else, and the CPU: one element after the other, coalesced along the output
//
// Wins: always, since no other engine takes such groups; 3x3 maxima run at 0.95 of a copy and more.
//
// Declines: a group whose anchor is no window.
#include "compiler/engines/window/engine.h"

#include <algorithm>

#include "compiler/engines/engine_of.h"
#include "compiler/engines/knob_types.h"
#include "compiler/engines/window/nest.h"
#include "compiler/engines/window/tiles.h"
#include "compiler/kernel/kernel_builder.h"
#include "compiler/kernel/vectors.h"
#include "compiler/kernel/window_taps.h"
#include "compiler/machine/machine.h"
#include "ir/base/check.h"

namespace kiln::compiler {
namespace {

using graph::GraphOp;
using graph::Node;
using graph::Tensor;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kThreadsDomain[] = {256, 128, 512};
constexpr int kVectorDomain[] = {0, 1, 2, 4, 8, 16};  // 0: as wide as the layout allows
constexpr int kTilesDomain[] = {1, 0};                // of results, where the window allows it
constexpr KnobRow kKnobs[] = {
    {.name = "threads", .cudnn_type = kKnobBlockSize, .domain = kThreadsDomain},
    {.name = "vector", .cudnn_type = kKnobLoadSize, .domain = kVectorDomain},
    {.name = "tiles", .cudnn_type = kKnobTileSize, .domain = kTilesDomain},
};
enum { kThreads, kVector, kTiles };

bool IsWindow(const Node& node) { return Has(node, graph::kWindow); }

// The last one: those before it are computed again where it reads them.
const Node& WindowOf(const Group& group) {
  const auto& nodes = group.graph.nodes;
  const auto it = std::find_if(nodes.rbegin(), nodes.rend(), IsWindow);
  CHECK(it != nodes.rend(), "a window group without a window");
  return *it;
}

// Whether windows before the last one are at most the search for its index, which has its lanes.
bool SearchesAtMost(const Group& group) {
  const Node& last = WindowOf(group);
  return std::ranges::all_of(group.graph.nodes, [&](const Node& node) {
    if (!IsWindow(node) || &node == &last) return true;
    return last.op == GraphOp::kResampleBwd && last.inputs.size() > 1 && node.outputs.size() > 1 &&
           node.outputs[1] == last.inputs[1];
  });
}

// How many channels (or images) a thread may make, those along the output's innermost dim.
int LanesOf(const Group& group, int64_t dim) {
  const graph::Graph& g = group.graph;
  const int64_t rank = g[WindowOf(group).outputs[0]].rank();
  std::vector<TensorId> ids = MemoryInputs(g);
  std::ranges::copy(graph::Outputs(g), std::back_inserter(ids));
  const bool plain =
      dim < 2 && SearchesAtMost(group) &&
      std::ranges::all_of(
          g.nodes,
          [](const Node& node) { return node.op == GraphOp::kMap || Has(node, graph::kWindow); }) &&
      std::ranges::all_of(ids, [&](TensorId id) { return g[id].rank() == rank; });
  return plain ? WidestVector(g, ids, dim) : 1;
}

// The window at `index` and what follows it, stored.
void EmitPlace(KernelBuilder& b, Block& out, const Group& group, const Index& place, int64_t dim,
               int lanes) {
  const Node& node = WindowOf(group);
  const Index index = BroadcastIndex(b, group.graph[node.outputs[0]], place);
  const std::vector<TensorId> outputs = graph::Outputs(group.graph);
  WindowTaps taps(b, node, dim, lanes);
  taps.Emit(out, index);
  const auto bind = [&](ValueScope& values, const Index& at, const Expr& lane) {
    values.Bind(node.outputs[0], at, taps.Result(lane));
    if (taps.has_index()) values.Bind(node.outputs[1], at, taps.FoundIndex(lane));
  };
  if (lanes == 1) {
    ValueScope values(b, out);
    bind(values, index, b.Idx(0));
    for (TensorId y : outputs) {
      const Expr value = tile::Cast(group.graph[y].dtype, values.Value(y, index));
      out.push_back({tile::Store{b.Pointer(y), b.Offset(y, index), value}});
    }
    return;
  }
  std::vector<TensorId> after = MemoryInputs(group.graph);
  std::erase_if(after, [&](TensorId id) { return !taps.IsReadAfter(id); });
  LaneLoop loop(b, out, after, index, dim, lanes);
  bind(loop.values(), loop.index(), loop.lane());
  StoreLanes(b, out, loop, outputs, index, dim, lanes);
}

Lowered LowerGpu(const Group& group, const Target& target, std::span<const int> knobs) {
  const int threads = knobs[kThreads];
  if (knobs[kTiles] != 0)
    if (const auto tiles = PlanWindowTiles(group))
      return LowerWindowTiles(group, target, *tiles, threads);
  if (knobs[kTiles] != 0)
    if (const auto nest = PlanWindowNest(group))
      return LowerWindowNest(group, target, *nest, threads);
  const TensorId lead = WindowOf(group).outputs[0];
  const Tensor& y = group.graph[lead];
  const std::vector<int64_t> order =
      MemoryOrder(group.graph[graph::Outputs(group.graph)[0]].strides);
  const int64_t inner = order.back();
  int lanes = LanesOf(group, inner);
  if (knobs[kVector] != 0) lanes = std::min(lanes, knobs[kVector]);

  Lowered lowered;
  KernelBuilder b(group, target, fmt::format("window, {} lanes, threads={}", lanes, threads));
  const int64_t total = NumElements(y.dims) / lanes;
  const Expr count = b.Arg("count", total);
  b.Name("i");
  Index extents;
  Dims values;
  for (int64_t d : order) {
    const bool vectors = d == inner && lanes > 1;
    values.push_back(vectors ? y.dims[d] / lanes : y.dims[d]);
    extents.push_back(vectors ? b.Arg("vectors_n", values.back()) : b.Extent(lead, d));
  }
  Block guarded;
  const Index split = b.Unravel(guarded, tile::Var("i", b.index_type()), extents, values, "i");
  Index index(order.size());
  for (size_t k = 0; k < order.size(); ++k) index[order[k]] = split[k];
  if (lanes > 1) index[inner] = b.Let(guarded, "lane0", index[inner] * b.Idx(lanes));
  EmitPlace(b, guarded, group, index, inner, lanes);
  Block in_thread;
  in_thread.push_back({tile::Let{"i", ThreadLinear(b.index_type(), threads)}});
  in_thread.push_back(
      {tile::If{tile::Lt(tile::Var("i", b.index_type()), count), std::move(guarded), {}}});
  Block body =
      BlockAndThread(b.index_type(), CeilDivExpr(count, threads), threads, std::move(in_thread));
  b.Finish(std::move(body), {CeilDiv(total, threads), 1, 1}, threads, lowered);
  return lowered;
}

Lowered LowerCpu(const Group& group, const Target& target) {
  KernelBuilder b(group, target, "window, element by element");
  const Dims order = MemoryOrder(group.graph[graph::Outputs(group.graph)[0]].strides);
  return LowerByChunks(
      b, WindowOf(group).outputs[0], order, Bind::kSerial,
      [&](Block& out, const Index& index) { EmitPlace(b, out, group, index, order.back(), 1); });
}

struct WindowPlan {
  const Group& group;
  const Target& target;
  double seconds;

  std::vector<std::vector<int>> Choices() const { return NeighbouringKnobs(kKnobs); }
  Estimate EstimateOf(std::span<const int>) const { return {.seconds = seconds}; }
  Result<Lowered> Lower(std::span<const int> knobs) const {
    return target.is_cuda() ? LowerGpu(group, target, knobs) : LowerCpu(group, target);
  }
};

Result<WindowPlan> PlanOf(const Group& group, const Target& target) {
  constexpr double kShare = 0.85;  // of a copy's rate
  if (group.kind != GroupKind::kWindow)
    return Status::Text(Code::kUnsupportedGraphPattern, "the group has no window as its anchor");
  const auto bytes = static_cast<double>(FloorBytes(group));
  return WindowPlan{group, target, StreamSeconds(MachineOf(target), bytes, kShare)};
}

}  // namespace

const Engine kWindowEngine = EngineOf<PlanOf>({.name = "window", .version = 4, .knobs = kKnobs});

}  // namespace kiln::compiler
