#include "compiler/passes/primitive_writer.h"

#include <algorithm>

#include "ir/graph/ops.h"

namespace kiln::compiler {

using graph::GraphOp;
using graph::Node;
using graph::Tensor;
using graph::TensorId;

TensorId PrimitiveWriter::Virtual(const char* suffix, DType type, Dims dims) {
  Dims strides = PackedStrides(dims);
  return graph_.AddTensor({.name = fmt::format("{}_{}", name_, suffix),
                           .dtype = type,
                           .dims = std::move(dims),
                           .strides = std::move(strides),
                           .is_virtual = true});
}

TensorId PrimitiveWriter::Number(double value, int64_t uid) {
  return graph_.AddTensor({.name = name_ + "_c",
                           .uid = uid,
                           .dtype = compute_,
                           .dims = {1},
                           .strides = {1},
                           .by_value = true,
                           .value = value});
}

TensorId PrimitiveWriter::Map(ScalarOp op, std::initializer_list<TensorId> operands) {
  int64_t rank = 0;
  for (TensorId id : operands) rank = std::max(rank, graph_[id].rank());
  Dims dims(static_cast<size_t>(rank), 1);
  for (TensorId id : operands) {
    const Tensor& t = graph_[id];
    for (int64_t d = 0; d < t.rank(); ++d)
      if (t.dims[d] != 1) dims[d + rank - t.rank()] = t.dims[d];
  }
  const DType type = Info(op).result == ScalarResult::kBool ? DType::kBool : compute_;
  const TensorId y = Virtual(Info(op).text, type, std::move(dims));
  graph_.AddNode({.op = GraphOp::kMap,
                  .inputs = operands,
                  .outputs = {y},
                  .compute = compute_,
                  .attrs = graph::MapAttrs{.op = op},
                  .name = ""});
  return y;
}

TensorId PrimitiveWriter::Cast(TensorId x, DType type) {
  const TensorId y = Round(x, type);
  graph_.nodes.back().compute = MovingType(type);
  return y;
}

TensorId PrimitiveWriter::Round(TensorId x, DType type) {
  const TensorId y = Virtual("cast", type, graph_[x].dims);
  graph_.AddNode({.op = GraphOp::kMap,
                  .inputs = {x},
                  .outputs = {y},
                  .compute = compute_,
                  .attrs = graph::MapAttrs{.identity = true},
                  .name = ""});
  return y;
}

TensorId PrimitiveWriter::Reduce(graph::Combine combine, TensorId x, Dims result_dims) {
  const TensorId y = Virtual(graph::Text(combine), compute_, std::move(result_dims));
  graph_.AddNode({.op = GraphOp::kReduce,
                  .inputs = {x},
                  .outputs = {y},
                  .compute = compute_,
                  .attrs = graph::ReduceAttrs{.combine = combine},
                  .name = ""});
  return y;
}

TensorId PrimitiveWriter::Iota(int64_t axis, Dims dims) {
  const bool wide = dims[static_cast<size_t>(axis)] > INT32_MAX;
  const TensorId y = Virtual("iota", wide ? DType::kI64 : DType::kI32, std::move(dims));
  graph_.AddNode({.op = GraphOp::kIota,
                  .inputs = {},
                  .outputs = {y},
                  .compute = wide ? DType::kI64 : DType::kI32,
                  .attrs = graph::IotaAttrs{.axis = axis},
                  .name = ""});
  return y;
}

std::pair<TensorId, TensorId> PrimitiveWriter::PeerReduce(TensorId x, TensorId second,
                                                          std::vector<TensorId> buffers,
                                                          int64_t first) {
  const auto sum_of = [&](TensorId id) {
    return id == graph::kAbsent ? id : Virtual("over_peers", DType::kF32, graph_[id].dims);
  };
  const TensorId y = sum_of(x), second_y = sum_of(second);
  std::vector<TensorId> inputs = {x, second}, outputs = {y};
  inputs.insert(inputs.end(), buffers.begin(), buffers.end());
  if (second_y != graph::kAbsent) outputs.push_back(second_y);
  graph_.AddNode({.op = GraphOp::kPeerReduce,
                  .inputs = std::move(inputs),
                  .outputs = std::move(outputs),
                  .compute = DType::kF32,
                  .attrs = graph::PeerReduceAttrs{.first = first},
                  .name = ""});
  return {y, second_y};
}

TensorId PrimitiveWriter::Transpose(TensorId x, Dims permutation) {
  const Tensor from = graph_[x];
  Tensor y{.name = name_ + "_view", .dtype = from.dtype, .is_virtual = true};
  for (const int64_t d : permutation) {
    y.dims.push_back(from.dims[d]);
    y.strides.push_back(from.strides[d]);
  }
  return Moved(GraphOp::kTranspose, {x}, std::move(y),
               graph::TransposeAttrs{.permutation = std::move(permutation)});
}

TensorId PrimitiveWriter::Reshape(TensorId x, Dims dims, std::optional<Dims> strides) {
  if (!strides) strides = PackedStrides(dims);
  return Moved(GraphOp::kReshape, {x},
               {.name = name_ + "_view",
                .dtype = graph_[x].dtype,
                .dims = std::move(dims),
                .strides = *std::move(strides),
                .is_virtual = true},
               graph::ReshapeAttrs{});
}

TensorId PrimitiveWriter::SliceFront(TensorId x, Dims dims) {
  Dims start(dims.size(), 0);
  return Slice(x, std::move(start), std::move(dims));
}

TensorId PrimitiveWriter::Slice(TensorId x, Dims start, Dims dims) {
  const size_t rank = dims.size();
  Dims strides = PackedStrides(dims);
  return Moved(GraphOp::kSlice, {x},
               {.name = name_ + "_part",
                .dtype = graph_[x].dtype,
                .dims = std::move(dims),
                .strides = std::move(strides),
                .is_virtual = true},
               graph::SliceAttrs{.start = std::move(start), .step = Dims(rank, 1)});
}

TensorId PrimitiveWriter::Gather(TensorId x, TensorId index, int64_t axis, Dims dims) {
  Dims strides = PackedStrides(dims);
  return Moved(GraphOp::kGather, {x, index},
               {.name = name_ + "_gather",
                .dtype = graph_[x].dtype,
                .dims = std::move(dims),
                .strides = std::move(strides),
                .is_virtual = true},
               graph::GatherAttrs{.axis = axis});
}

TensorId PrimitiveWriter::Moved(GraphOp op, std::vector<TensorId> inputs, Tensor y,
                                graph::Attrs attrs) {
  const DType type = y.dtype;
  const TensorId id = graph_.AddTensor(std::move(y));
  graph_.AddNode({.op = op,
                  .inputs = std::move(inputs),
                  .outputs = {id},
                  .compute = MovingType(type),
                  .attrs = std::move(attrs),
                  .name = ""});
  return id;
}

TensorId PrimitiveWriter::Matmul(TensorId a, TensorId b, TensorId y) {
  if (y == graph::kAbsent) {
    const Tensor &left = graph_[a], &right = graph_[b];
    Dims dims = left.dims;
    for (size_t d = 0; d + 2 < dims.size(); ++d)
      if (dims[d] == 1) dims[d] = right.dims[d];
    dims.back() = right.dims.back();
    y = Virtual("matmul", compute_, std::move(dims));
  }
  graph_.AddNode({.op = GraphOp::kMatmul,
                  .inputs = {a, b},
                  .outputs = {y},
                  .compute = compute_,
                  .attrs = graph::MatmulAttrs{},
                  .name = ""});
  return y;
}

void PrimitiveWriter::Write(TensorId from, TensorId to) {
  if (graph_.nodes.size() > first_node_) {
    Node& last = graph_.nodes.back();
    // A reshape reads the strides of its result: one that a client chose would be another reshape.
    const bool mine = last.outputs.size() == 1 && last.outputs[0] == from &&
                      graph_[from].is_virtual && last.op != GraphOp::kReshape;
    if (mine && graph_[from].dims == graph_[to].dims) {
      last.outputs[0] = to;
      return;
    }
  }
  graph_.AddNode({.op = GraphOp::kMap,
                  .inputs = {from},
                  .outputs = {to},
                  .compute = compute_,
                  .attrs = graph::MapAttrs{.identity = true},
                  .name = ""});
}

}  // namespace kiln::compiler
