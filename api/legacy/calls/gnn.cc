#include "api/legacy/calls/gnn.h"

#include <algorithm>

namespace kiln::api::legacy::gnn {
namespace {

using graph::GraphOp;
using graph::TensorId;

Status CheckCount(int64_t count, std::string_view name) {
  if (count < 0) return Status::Error(Code::kBadParam, "the graph's {} is {}", name, count);
  if (count < INT32_MAX) return {};
  return Status::Error(Code::kNotSupported, "the graph's {} is {}: less than {} are possible", name,
                       count, INT32_MAX);
}

TensorDesc ListDesc(int64_t count, int type, int rank) {
  TensorDesc desc = {.type = type, .rank = rank};
  for (size_t d = 0; d < static_cast<size_t>(rank); ++d) desc.dims[d] = desc.strides[d] = 1;
  desc.dims[0] = static_cast<int32_t>(count);
  return desc;
}

}  // namespace

Result<Graph> GraphOf(const void* csc_graph) {
  RETURN_IF_ERROR(NotNull(csc_graph, "graph"));
  const auto& g = *static_cast<const cudnnGnnCscGraph_t*>(csc_graph);
  RETURN_IF_ERROR(CheckCount(g.nSrcNodes, "nSrcNodes"));
  RETURN_IF_ERROR(CheckCount(g.nDstNodes, "nDstNodes"));
  RETURN_IF_ERROR(CheckCount(g.nIndices, "nIndices"));
  const int index = static_cast<int>(g.idxType);
  if (index != CUDNN_DATA_INT32 && index != CUDNN_DATA_INT64)
    return Status::Error(Code::kBadParam,
                         "the graph's idxType is {}: CUDNN_DATA_INT32 and INT64 are possible",
                         index);
  const int64_t edges = g.nDstNodes == 0 ? 0 : g.nIndices;
  if (g.nDstNodes > 0) RETURN_IF_ERROR(NotNull(g.cscOffsets, "the graph's cscOffsets"));
  if (edges > 0) RETURN_IF_ERROR(NotNull(g.cscIndices, "the graph's cscIndices"));
  const bool is_reversed = edges > 0 && g.cscRevOffsets != nullptr && g.mapRevToCoo != nullptr;
  return Graph{.shape = {.sources = g.nSrcNodes,
                         .destinations = g.nDstNodes,
                         .edges = edges,
                         .index = index,
                         .has_rows = edges > 0 && g.mapCscToCoo != nullptr,
                         .is_reversed = is_reversed},
               .offsets = g.cscOffsets,
               .indices = g.cscIndices,
               .rows = g.mapCscToCoo,
               .reverse_offsets = g.cscRevOffsets,
               .reverse_rows = g.mapRevToCoo};
}

Status CheckType(int type, std::string_view name) {
  for (const int possible : {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16})
    if (type == possible) return {};
  return Status::Error(Code::kBadParam, "{} is {}: float, half and bfloat16 are possible", name,
                       type);
}

Status Needs(const void* pointer, int64_t count, std::string_view name) {
  return count == 0 ? Status() : NotNull(pointer, name);
}

Status Matches(const void* pointer, int64_t dim, int64_t count, std::string_view name,
               std::string_view dim_name) {
  if (dim == 0 && pointer != nullptr)
    return Status::Error(Code::kBadParam, "{} is there, and {} is 0", name, dim_name);
  if (dim == 0 || pointer != nullptr || count == 0) return {};
  return Status::Error(Code::kBadParam, "{} is NULL, and {} is {}", name, dim_name, dim);
}

Status CheckDim(int64_t dim, int64_t least, std::string_view name) {
  if (dim >= least) return {};
  return Status::Error(Code::kBadParam, "{} is {}; it is {} or more", name, dim, least);
}

TensorDesc Described(int type, std::initializer_list<int64_t> dims,
                     std::initializer_list<int64_t> strides) {
  TensorDesc desc = {.type = type, .rank = static_cast<int32_t>(dims.size())};
  std::ranges::transform(dims, desc.dims.begin(),
                         [](int64_t n) { return static_cast<int32_t>(n); });
  std::ranges::transform(strides, desc.strides.begin(),
                         [](int64_t n) { return static_cast<int32_t>(n); });
  return desc;
}

// ---- lists

Lists::Lists(Call& call, const Graph& graph, int rank)
    : shape_(graph.shape),
      rank_(rank),
      offsets_desc_(ListDesc(shape_.destinations + 1, shape_.index, rank)),
      edges_desc_(ListDesc(shape_.edges, shape_.index, rank)),
      reverse_desc_(ListDesc(shape_.sources + 1, shape_.index, rank)) {
  call.Add(shape_);
  offsets_ = call.Derived(offsets_desc_, graph.offsets);
  indices_ = call.Derived(edges_desc_, graph.indices);
  if (shape_.has_rows != 0) rows_ = call.Derived(edges_desc_, graph.rows);
  if (shape_.is_reversed == 0) return;
  reverse_offsets_ = call.Derived(reverse_desc_, graph.reverse_offsets);
  reverse_rows_ = call.Derived(edges_desc_, graph.reverse_rows);
}

Dims Lists::ListDims(int64_t count) const {
  Dims dims(static_cast<size_t>(rank_), 1);
  dims[0] = count;
  return dims;
}

Status Lists::Make(CallGraph& g) {
  ASSIGN_OR_RETURN(offsets_id_, g.Read(offsets_));
  ASSIGN_OR_RETURN(indices_id_, g.Read(indices_));
  std::vector<TensorId> inputs = {offsets_id_};
  destinations_ = g.Virtual("destination", ListDims(shape_.edges), DType::kI32);
  std::vector<TensorId> outputs = {destinations_};
  sources_ = indices_id_;
  if (rows_.slot >= 0) {
    ASSIGN_OR_RETURN(rows_id_, g.Read(rows_));
    const DType type = g.builder().graph()[indices_id_].dtype;
    sources_ = g.Virtual("source", ListDims(shape_.edges), type);
    inputs.insert(inputs.end(), {rows_id_, indices_id_});
    outputs.push_back(sources_);
  }
  g.builder().graph().AddNode({.op = GraphOp::kSegmentIds,
                               .inputs = std::move(inputs),
                               .outputs = std::move(outputs),
                               .compute = DType::kI32,
                               .attrs = graph::SegmentIdsAttrs{},
                               .name = "edges"});
  if (shape_.is_reversed == 0) return {};
  ASSIGN_OR_RETURN(reverse_offsets_id_, g.Read(reverse_offsets_));
  ASSIGN_OR_RETURN(reverse_rows_id_, g.Read(reverse_rows_));
  return {};
}

TensorId Lists::At(CallGraph& g, TensorId x, TensorId index) const {
  const DType type = g.builder().graph()[x].dtype;
  Dims dims = g.DimsOf(x);
  dims[0] = g.DimsOf(index)[0];
  return g.builder().Apply(GraphOp::kGather, {x, index}, graph::GatherAttrs{.axis = 0},
                           {.dtype = type, .compute = kiln::MovingType(type), .dims = dims});
}

TensorId Lists::FirstRows(CallGraph& g, TensorId x, int64_t count) const {
  if (g.DimsOf(x)[0] == count) return x;
  const TensorId place =
      g.builder().Apply(GraphOp::kIota, {}, graph::IotaAttrs{.axis = 0},
                        {.dtype = DType::kI32, .compute = DType::kI32, .dims = ListDims(count)});
  return At(g, x, place);
}

TensorId Lists::Segments(CallGraph& g, graph::SegmentMode mode, TensorId x, TensorId offsets,
                         TensorId rows, std::vector<TensorId> into) const {
  if (into.empty()) {
    Dims dims = g.DimsOf(x);
    dims[0] = g.DimsOf(offsets)[0] - 1;
    into = {g.Virtual("segments", dims, DType::kF32)};
  }
  const TensorId y = into[0];
  std::vector<TensorId> inputs = {x, offsets};
  if (rows != graph::kAbsent) inputs.push_back(rows);
  g.builder().graph().AddNode({.op = GraphOp::kSegmentReduce,
                               .inputs = std::move(inputs),
                               .outputs = std::move(into),
                               .compute = DType::kF32,
                               .attrs = graph::SegmentReduceAttrs{.mode = mode},
                               .name = "segments"});
  return y;
}

TensorId Lists::ReduceRows(CallGraph& g, graph::SegmentMode mode, TensorId x,
                           std::vector<TensorId> into) const {
  return Segments(g, mode, x, offsets_id_, rows_id_, std::move(into));
}

TensorId Lists::ReduceSources(CallGraph& g, graph::SegmentMode mode, TensorId x,
                              std::vector<TensorId> into) const {
  return Segments(g, mode, x, offsets_id_, indices_id_, std::move(into));
}

TensorId Lists::Counts(CallGraph& g) const {
  const DType type = g.builder().graph()[offsets_id_].dtype;
  const auto from = [&](int64_t first) {
    Dims start(static_cast<size_t>(rank_), 0);
    start[0] = first;
    const Dims step(start.size(), 1);
    return g.builder().Apply(
        GraphOp::kSlice, {offsets_id_}, graph::SliceAttrs{.start = start, .step = step},
        {.dtype = type, .compute = type, .dims = ListDims(shape_.destinations)});
  };
  const TensorId count = g.Pointwise(graph::PointwiseMode::kSub, {from(1), from(0)}, type);
  return g.Pointwise(graph::PointwiseMode::kIdentity, {count}, DType::kF32);
}

TensorId Lists::ReduceOut(CallGraph& g, TensorId x, TensorId start) const {
  if (shape_.is_reversed != 0)
    return Segments(g, graph::SegmentMode::kAdd, x, reverse_offsets_id_, reverse_rows_id_, {});
  Dims dims = g.DimsOf(x);
  dims[0] = shape_.sources;
  return g.builder().Apply(GraphOp::kScatterAdd, {start, x, sources_},
                           graph::ScatterAddAttrs{.axis = 0},
                           {.dtype = DType::kF32, .compute = DType::kF32, .dims = dims});
}

}  // namespace kiln::api::legacy::gnn
