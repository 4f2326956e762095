// pointwise: groups of maps and views, a vector of outputs a thread.
//
// Takes: every group without contraction, reduction, window, recurrence or segment, of any rank,
// type, strides and device, with several results; views, broadcasts and constants dissolve into
// addresses and expressions.
//
// How: dims are collapsed, then the layout class alone chooses a schedule. On the CPU blocks of the
// outer dims go over threads, and the inner dim is a vector loop.
//
//   vector     all tensors walk the innermost dim with stride 1 or 0: 16-byte copies, one lane loop
//   transpose  some input is contiguous along another dim: 64x64 tiles through shared memory
//              (transpose.cc)
//   strided    anything else: one element a thread, coalesced along the output
//   scatter    what is added at computed places, by atomic additions in any order; elements that
//              share the place of a gather are one thread's (scatter.cc)
//
// Wins: always, since no other engine takes such groups. Plain graphs move bytes at a copy's rate.
//
// Declines: a group that has one of the five anchors, and names it.
#include "compiler/engines/pointwise/engine.h"

#include <algorithm>

#include "compiler/engines/engine_of.h"
#include "compiler/engines/knob_types.h"
#include "compiler/engines/pointwise/scatter.h"
#include "compiler/engines/pointwise/transpose.h"
#include "compiler/kernel/collapse.h"
#include "compiler/kernel/kernel_builder.h"
#include "compiler/kernel/vectors.h"
#include "compiler/machine/machine.h"
#include "ir/base/check.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kThreadsDomain[] = {256, 128, 512};
constexpr int kVectorDomain[] = {0, 1, 2, 4, 8, 16};  // 0: as wide as the layout allows
constexpr int kUnrollDomain[] = {1, 2, 4};
constexpr KnobRow kKnobs[] = {
    {.name = "threads", .cudnn_type = kKnobBlockSize, .domain = kThreadsDomain},
    {.name = "vector", .cudnn_type = kKnobLoadSize, .domain = kVectorDomain},
    {.name = "unroll", .cudnn_type = kKnobArraySizePerThread, .domain = kUnrollDomain},
};
enum { kThreads, kVector, kUnroll };

// The tensor whose elements the group walks.
TensorId WalkedBy(const graph::Graph& g) {
  const graph::Node* scatter = ScatterOf(g);
  return scatter == nullptr ? graph::Outputs(g)[0] : scatter->inputs[0];
}

void StoreOutputs(KernelBuilder& b, Block& out, const std::vector<TensorId>& outputs,
                  const Index& index) {
  if (const graph::Node* scatter = ScatterOf(b.graph()))
    return StoreScattered(b, out, *scatter, index);
  ValueScope values(b, out);
  for (TensorId y : outputs) {
    Expr value = values.Value(y, index);
    out.push_back(
        {tile::Store{b.Pointer(y), b.Offset(y, index), tile::Cast(b.graph()[y].dtype, value)}});
  }
}

// The share of a thread along one of the `dims` of y from the outermost on: as many as leave no
// multiprocessor idle. Not along the innermost dim, where threads side by side have neighbours.
Share ShareAlong(const Tensor& y, const Target& target, const std::function<bool(int64_t)>& fits) {
  constexpr int kMost = 4;
  constexpr int64_t kThreadsOfMultiprocessor = 2048;
  const Dims order = MemoryOrder(y.strides);
  const int64_t threads = kThreadsOfMultiprocessor * target.multiprocessors;
  for (size_t k = 0; k + 1 < order.size(); ++k) {
    const int64_t d = order[k];
    for (int count = kMost; fits(d) && count > 1; --count)
      if (y.dims[d] % count == 0 && NumElements(y.dims) / count >= threads)
        return {.dim = d, .count = count};
  }
  return {};
}

// The tables of places that a node reads or adds at.
std::vector<TensorId> TablesOf(const graph::Node& node) {
  std::vector<TensorId> tables;
  if (node.op == graph::GraphOp::kGather) tables.push_back(node.inputs[1]);
  if (node.op == graph::GraphOp::kScatterAdd)
    for (size_t i = 2; i < node.inputs.size(); i += 2) tables.push_back(node.inputs[i]);
  return tables;
}

// Elements that share computed places: a thread that has several computes the place once. Where
// places follow from both dims of an image, as a turned image's do, threads of a warp have a patch
// of it, which lies in fewer rows of what they read or add to than a row of theirs does.
Share SharedPlaces(const graph::Graph& g, TensorId lead, const Target& target) {
  constexpr int kPatchRows = 4, kPatchColumns = 8;
  const Tensor& y = g[lead];
  std::vector<TensorId> tables;
  for (const graph::Node& node : g.nodes)
    std::ranges::move(TablesOf(node), std::back_inserter(tables));
  std::erase_if(tables, [&](TensorId id) { return g[id].rank() != y.rank(); });
  Share share = ShareAlong(y, target, [&](int64_t d) {
    return std::ranges::any_of(tables, [&](TensorId id) { return g[id].dims[d] == 1; });
  });
  const Dims order = MemoryOrder(y.strides);
  if (order.size() < 2) return share;
  const int64_t row = order[order.size() - 2], column = order.back();
  const bool is_image = std::ranges::any_of(tables, [&](TensorId id) {
    return g[id].dims[row] >= kPatchRows && g[id].dims[column] >= kPatchColumns;
  });
  const bool is_free = share.count == 1 || (share.dim != row && share.dim != column);
  if (is_image && is_free) share.rows = kPatchRows;
  return share;
}

// One element a thread, or a few. Serves groups with views, and layouts that no vector fits.
Lowered LowerStrided(const Group& group, const Target& target, int threads) {
  const std::vector<TensorId> outputs = graph::Outputs(group.graph);
  const TensorId lead = WalkedBy(group.graph);
  const Share share = SharedPlaces(group.graph, lead, target);
  KernelBuilder b(group, target, fmt::format("pointwise, {}, threads={}", Text(share), threads));
  return LowerByElements(b, lead, threads, share, [&](Block& out, const Index& index) {
    StoreOutputs(b, out, outputs, index);
  });
}

// Whether a tensor numbers its elements in row-major order: an iota over all of them, cast between
// integers or reshaped.
bool NumbersElements(const graph::Graph& g, const std::vector<graph::NodeId>& producers,
                     TensorId id) {
  const graph::NodeId from = producers[static_cast<size_t>(id)];
  if (from < 0 || (g[id].dtype != DType::kI32 && g[id].dtype != DType::kI64)) return false;
  const graph::Node& node = g.nodes[static_cast<size_t>(from)];
  if (node.op == graph::GraphOp::kMap)
    return node.As<graph::MapAttrs>().identity && NumbersElements(g, producers, node.inputs[0]);
  if (!IsPlaceOrView(g, node)) return false;
  return node.op == graph::GraphOp::kIota || NumbersElements(g, producers, node.inputs[0]);
}

// Places in 64 bits, as random numbers want them, from the vector's number: compilers then see that
// places of a vector differ in their last bits alone, and that four or eight of them share one
// block of random words. (From `first + l` they do not; nor where a place, which is halved, might
// be negative, hence the maximum.) `vector` is asked for where there are any.
void BindPlaces(KernelBuilder& b, LaneLoop& loop, const Dims& dims, int lanes,
                const std::function<Expr()>& vector) {
  const graph::Graph& g = b.graph();
  const std::vector<graph::NodeId> producers = graph::Producers(g);
  for (const graph::Node& node : g.nodes) {
    const TensorId id = node.outputs[0];
    if (g[id].dtype != DType::kI64 || g[id].dims != dims || !NumbersElements(g, producers, id))
      continue;
    const Expr from = tile::Op(ScalarOp::kMax, {vector(), b.Idx(0)});
    const Expr place = tile::Cast(DType::kI64, from) * tile::Int(lanes, DType::kI64) +
                       tile::Cast(DType::kI64, loop.lane());
    loop.values().Bind(id, loop.index(), b.Let(loop.body(), "place", place));
  }
}

// Maps over places (iota), whose dims cannot be merged: `lanes` neighbours a thread, and several of
// them along a dim where all that is read is the same.
Lowered LowerPlaces(const Group& group, const Target& target, int lanes, int threads) {
  const std::vector<TensorId> outputs = graph::Outputs(group.graph);
  const TensorId lead = WalkedBy(group.graph);
  const Tensor& y = group.graph[lead];
  const std::vector<TensorId> inputs = MemoryInputs(group.graph);
  Share share = ShareAlong(y, target, [&](int64_t d) {
    return !inputs.empty() &&
           std::ranges::all_of(inputs, [&](TensorId id) { return group.graph[id].dims[d] == 1; });
  });
  share.lanes = lanes;
  KernelBuilder b(group, target,
                  fmt::format("pointwise, {} times {} lanes of places, threads={}", share.count,
                              lanes, threads));
  const int64_t inner = y.rank() - 1;
  return LowerByElements(b, lead, threads, share, [&](Block& out, const Index& index) {
    LaneLoop loop(b, out, index, inner, lanes);
    BindPlaces(b, loop, y.dims, lanes, [&] {
      Expr linear = index[0];
      for (int64_t d = 1; d < y.rank(); ++d) linear = linear * b.Extent(lead, d) + index[d];
      return b.Let(out, "vector", linear / b.Idx(lanes));
    });
    StoreLanes(b, out, loop, outputs, index, inner, lanes);
  });
}

// A group whose threads have vectors: `lanes` neighbours of the innermost dim.
struct VectorWalk {
  KernelBuilder& b;
  const std::vector<TensorId>& outputs;
  int lanes;
  Expr count;  // vectors; elements where there is a tail

  const Tensor& y() const { return b.graph()[outputs[0]]; }
  int64_t inner() const { return y().rank() - 1; }
  bool has_tail() const { return y().rank() == 1; }  // else `lanes` divides the innermost extent
};

// The index of the vector's first element, where there are several dims.
Index IndexOfVector(VectorWalk walk, Block& out, const Expr& vector) {
  KernelBuilder& b = walk.b;
  const Tensor& y = walk.y();
  const int64_t inner = walk.inner();
  Index extents;
  Dims values;
  for (int64_t d = 0; d < y.rank(); ++d) {
    extents.push_back(d == inner ? b.Idx(0) : b.Extent(walk.outputs[0], d));
    values.push_back(d == inner ? y.dims[d] / walk.lanes : y.dims[d]);
  }
  if (!y.dims.empty()) extents[inner] = b.Arg("vectors_n", values[inner]);
  Index index = b.Unravel(out, vector, extents, values, "i");
  index[inner] = b.Let(out, "lane0", index[inner] * b.Idx(walk.lanes));
  return index;
}

void StoreVector(VectorWalk walk, Block& out, const Index& index, const Expr& vector) {
  LaneLoop loop(walk.b, out, index, walk.inner(), walk.lanes);
  if (walk.has_tail()) BindPlaces(walk.b, loop, walk.y().dims, walk.lanes, [&] { return vector; });
  StoreLanes(walk.b, out, loop, walk.outputs, index, walk.inner(), walk.lanes);
}

// The vector `at` in a row of several dims.
void StoreWholeVector(VectorWalk walk, Block& out, const Expr& at) {
  Block full;
  const Index index = IndexOfVector(walk, full, at);
  StoreVector(walk, full, index, at);
  out.push_back({tile::If{tile::Lt(at, walk.count), std::move(full), {}}});
}

// The vector `at` of one dim: the last few elements go one by one.
void StoreVectorOrTail(VectorWalk walk, Block& out, const Expr& at) {
  KernelBuilder& b = walk.b;
  const Expr first = b.Let(out, "first", at * b.Idx(walk.lanes));
  Block full, tail, one;
  StoreVector(walk, full, {first}, at);
  const std::string lane = b.Name("t");
  StoreOutputs(b, one, walk.outputs, {first + tile::Var(lane, b.index_type())});
  tail.push_back({tile::For{.var = lane,
                            .type = b.index_type(),
                            .extent = tile::Op(ScalarOp::kMax, {walk.count - first, b.Idx(0)}),
                            .body = std::move(one)}});
  out.push_back({tile::If{tile::Op(ScalarOp::kLe, {first + b.Idx(walk.lanes), walk.count}),
                          std::move(full), std::move(tail)}});
}

// Each thread moves `lanes` neighbours of the innermost dim, `unroll` times.
Lowered LowerVector(const Group& group, const Target& target, int lanes, int threads, int unroll) {
  Lowered lowered;
  KernelBuilder b(
      group, target,
      fmt::format("pointwise, {} lanes, threads={}, unroll={}", lanes, threads, unroll));
  const std::vector<TensorId> outputs = graph::Outputs(group.graph);
  const Tensor& y = group.graph[outputs[0]];
  const int64_t vectors = CeilDiv(NumElements(y.dims), lanes);
  VectorWalk walk{.b = b, .outputs = outputs, .lanes = lanes, .count = {}};
  walk.count = b.Arg("count", walk.has_tail() ? y.dims[0] : vectors);
  b.Name("i");
  const Expr linear = tile::Var("i", b.index_type());
  const int64_t per_block = int64_t{threads} * unroll;
  Block in_thread;
  in_thread.push_back({tile::Let{"i", ThreadLinear(b.index_type(), per_block)}});
  for (int u = 0; u < unroll; ++u) {
    const Expr at = linear + b.Idx(int64_t{u} * threads);
    if (walk.has_tail())
      StoreVectorOrTail(walk, in_thread, at);
    else
      StoreWholeVector(walk, in_thread, at);
  }
  const Expr total = walk.has_tail() ? CeilDivExpr(walk.count, lanes) : walk.count;
  Block body =
      BlockAndThread(b.index_type(), CeilDivExpr(total, per_block), threads, std::move(in_thread));
  b.Finish(std::move(body), {CeilDiv(vectors, per_block), 1, 1}, threads, lowered);
  return lowered;
}

Lowered LowerCpu(const Group& group, const Target& target) {
  KernelBuilder b(group, target, "pointwise, vector loop over the innermost dim");
  const std::vector<TensorId> outputs = graph::Outputs(group.graph);
  const TensorId lead = WalkedBy(group.graph);
  const Bind bind = ScatterOf(group.graph) == nullptr ? Bind::kVector : Bind::kSerial;
  return LowerByChunks(
      b, lead, MemoryOrder(group.graph[lead].strides), bind,
      [&](Block& out, const Index& index) { StoreOutputs(b, out, outputs, index); });
}

// Lanes of a group of maps over places (iota), whose dims cannot be merged; 1 where threads side by
// side would not write side by side, or a view is not one of places or of a single element.
int LanesOfPlaces(const Group& group) {
  const graph::Graph& g = group.graph;
  const Tensor& y = g[WalkedBy(g)];
  const std::vector<graph::NodeId> producers = graph::Producers(g);
  const bool has_lanes = std::ranges::all_of(g.nodes, [&](const graph::Node& node) {
    if (node.op == graph::GraphOp::kMap || node.op == graph::GraphOp::kIota) return true;
    return node.op == graph::GraphOp::kReshape && (NumElements(g[node.inputs[0]].dims) == 1 ||
                                                   NumbersElements(g, producers, node.outputs[0]));
  });
  std::vector<TensorId> moved = MemoryInputs(g);
  std::ranges::copy(graph::Outputs(g), std::back_inserter(moved));
  const bool of_one_rank =
      std::ranges::all_of(moved, [&](TensorId id) { return g[id].rank() == y.rank(); });
  if (!has_lanes || !of_one_rank || y.rank() < 2 || !std::ranges::is_sorted(MemoryOrder(y.strides)))
    return 1;
  return WidestVector(group, y.rank() - 1);
}

// ---- words: groups that only move elements (slices, reshapes and concatenations of whole pieces
// of rows), with neighbours of the innermost dim taken together as one of 4 bytes:
//
//   y[2,800,1760] f16 = concat(x, concat(hx, h))     →     y[2,800,880] i32 = …
//
// Which element a thread moves is computed by dims, so that views have no wide copies.

constexpr int64_t kWordBytes = 4;
constexpr DType kWord = DType::kI32;

// Whether the node leaves neighbours of the innermost dim side by side.
bool MovesRows(const graph::Node& node, int64_t elements) {
  switch (node.op) {
    case graph::GraphOp::kReshape:
    case graph::GraphOp::kConcat:
      return true;
    case graph::GraphOp::kSlice: {
      const auto& slice = node.As<graph::SliceAttrs>();
      return (slice.step.empty() || slice.step.back() == 1) &&
             (slice.start.empty() || slice.start.back() % elements == 0);
    }
    case graph::GraphOp::kMap:
      return node.As<graph::MapAttrs>().identity;
    default:
      return false;
  }
}

bool IsOfWords(const Tensor& t, DType type, int64_t elements) {
  return t.dtype == type && !t.by_value && !t.is_constant() && t.rank() > 0 && t.dims.back() > 0 &&
         t.dims.back() % elements == 0;
}

// Whether rows in memory are words.
bool IsAligned(const Tensor& t, int64_t elements) {
  if (t.strides.back() != 1 || t.alignment % kWordBytes != 0) return false;
  for (int64_t d = 0; d + 1 < t.rank(); ++d)
    if (t.dims[d] != 1 && t.strides[d] % elements != 0) return false;
  return true;
}

// The same group of words; nothing if it computes, or splits a word.
std::optional<Group> AsWords(const Group& group) {
  const graph::Graph& g = group.graph;
  std::vector<TensorId> moved = MemoryInputs(g);
  std::ranges::copy(graph::Outputs(g), std::back_inserter(moved));
  const DType type = g[moved.back()].dtype;
  if (Info(type).bits < 8 || SizeOf(type) >= kWordBytes) return std::nullopt;
  const int64_t elements = kWordBytes / SizeOf(type);
  const bool are_words =
      std::ranges::all_of(g.nodes, [&](const graph::Node& n) { return MovesRows(n, elements); }) &&
      std::ranges::all_of(g.tensors,
                          [&](const Tensor& t) { return IsOfWords(t, type, elements); }) &&
      std::ranges::all_of(moved, [&](TensorId id) { return IsAligned(g[id], elements); });
  if (!are_words) return std::nullopt;
  Group words = group;
  for (Tensor& t : words.graph.tensors) {
    t.dtype = kWord;
    t.dims.back() /= elements;
    for (size_t d = 0; d + 1 < t.strides.size(); ++d) t.strides[d] /= elements;
  }
  for (graph::Node& node : words.graph.nodes) {
    if (node.op != graph::GraphOp::kSlice) continue;
    auto slice = node.As<graph::SliceAttrs>();
    if (!slice.start.empty()) slice.start.back() /= elements;
    node.attrs = std::move(slice);
  }
  return words;
}

bool HasRandomWords(const graph::Graph& g) {
  return std::ranges::any_of(g.nodes, [](const graph::Node& node) {
    return node.op == graph::GraphOp::kMap && node.As<graph::MapAttrs>().op == ScalarOp::kPhilox;
  });
}

Lowered LowerMaps(const Group& group, const Target& target, std::span<const int> knobs) {
  if (const graph::Node* sum = ScatterAddOf(group.graph))
    return LowerScatterAdd(group, target, knobs[kThreads],
                           SharedPlaces(group.graph, sum->inputs[1], target));
  const TensorId lead = WalkedBy(group.graph);
  const bool collapses = CanCollapse(group);
  if (!target.is_cuda()) return LowerCpu(collapses ? Collapse(group, lead) : group, target);
  const std::optional<Group> flat = collapses ? std::nullopt : Flatten(group);
  const bool merged = collapses || flat;
  const Group work = flat ? *flat : collapses ? Collapse(group, lead) : group;
  if (std::optional<TransposeShape> shape; merged && (shape = FindTranspose(work)))
    return LowerTranspose(work, target, *shape);
  int lanes = merged ? WidestVector(work, work.graph[lead].rank() - 1) : LanesOfPlaces(work);
  if (knobs[kVector] != 0) lanes = std::min(lanes, knobs[kVector]);
  if (lanes == 1) {
    const std::optional<Group> words = AsWords(work);
    return LowerStrided(words ? *words : work, target, knobs[kThreads]);
  }
  if (!merged) return LowerPlaces(work, target, lanes, knobs[kThreads]);
  return LowerVector(work, target, lanes, knobs[kThreads], knobs[kUnroll]);
}

struct PointwisePlan {
  const Group& group;
  const Target& target;
  double seconds;

  std::vector<std::vector<int>> Choices() const { return NeighbouringKnobs(kKnobs); }
  Estimate EstimateOf(std::span<const int>) const { return {.seconds = seconds}; }
  Result<Lowered> Lower(std::span<const int> knobs) const {
    constexpr int kThreadsOfMultiprocessor = 2048;
    Lowered lowered = LowerMaps(group, target, knobs);
    // Random words have many short-lived values, of which ptxas keeps more than they need (46
    // registers for dropout) unless it has to leave room for as many threads as there can be. Where
    // that is fewer it ignores the wish.
    if (target.is_cuda() && HasRandomWords(group.graph))
      for (tile::Kernel& kernel : lowered.kernels)
        kernel.min_blocks = kThreadsOfMultiprocessor / kernel.threads;
    return lowered;
  }
};

Result<PointwisePlan> PlanOf(const Group& group, const Target& target) {
  constexpr double kShare = 0.97;  // of a copy's rate
  const bool reduces = group.kind == GroupKind::kReduce || group.kind == GroupKind::kRows;
  if (group.kind != GroupKind::kPointwise)
    return Status::Error(Code::kUnsupportedGraphPattern, "the group has a {}",
                         reduces                                ? "reduction"
                         : group.kind == GroupKind::kWindow     ? "window"
                         : group.kind == GroupKind::kRecurrence ? "recurrence"
                         : group.kind == GroupKind::kSegments   ? "segment"
                         : group.kind == GroupKind::kPeers      ? "part that other devices have"
                                                                : "contraction");
  const auto bytes = static_cast<double>(FloorBytes(group));
  return PointwisePlan{group, target, StreamSeconds(MachineOf(target), bytes, kShare)};
}

}  // namespace

const Engine kPointwiseEngine =
    EngineOf<PlanOf>({.name = "pointwise", .version = 1, .knobs = kKnobs});

}  // namespace kiln::compiler
