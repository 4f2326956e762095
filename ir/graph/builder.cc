// Building graphs in code: see the header.
#include "ir/graph/builder.h"

#include <algorithm>
#include <utility>

#include "ir/graph/complex.h"
#include "ir/graph/ops.h"
#include "ir/graph/side_operands.h"
#include "ir/graph/spelled_attention.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

bool IsGrouped(const Tensor& x, const Tensor& y) {
  if (x.rank() != y.rank() || x.strides.size() != x.dims.size() ||
      y.strides.size() != y.dims.size())
    return false;
  bool grouped = false;
  for (size_t d = 0; d < x.dims.size(); ++d) {
    if (y.dims[d] == 1 || y.dims[d] == x.dims[d]) continue;
    if (y.dims[d] < 1 || x.dims[d] % y.dims[d] != 0) return false;
    grouped = true;
  }
  return grouped;
}

// Splits each grouped dim in two: `outer` groups, and in the reduced tensor extent 1, else `inner`
// elements.
Tensor Split(const Tensor& tensor, const Tensor& x, const Tensor& y, bool reduced) {
  Tensor split;
  split.name = tensor.name + "_grouped";
  split.dtype = tensor.dtype;
  split.is_virtual = true;
  for (size_t d = 0; d < x.dims.size(); ++d) {
    const bool grouped = y.dims[d] != 1 && y.dims[d] != x.dims[d];
    if (!grouped) {
      split.dims.push_back(tensor.dims[d]);
      split.strides.push_back(tensor.strides[d]);
      continue;
    }
    const int64_t inner = reduced ? 1 : x.dims[d] / y.dims[d];
    split.dims.insert(split.dims.end(), {y.dims[d], inner});
    split.strides.insert(split.strides.end(), {inner * tensor.strides[d], tensor.strides[d]});
  }
  return split;
}

Node Reshape(TensorId from, TensorId to, DType compute) {
  Node view;
  view.op = GraphOp::kReshape;
  view.inputs = {from};
  view.outputs = {to};
  view.compute = compute;
  view.attrs = ReshapeAttrs{};
  return view;
}

}  // namespace

TensorId GraphBuilder::Input(std::string name, DType dtype, Dims dims, Dims strides) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.uid = next_uid_++;
  tensor.dtype = dtype;
  tensor.strides = strides.empty() ? PackedStrides(dims) : std::move(strides);
  tensor.dims = std::move(dims);
  return graph_.AddTensor(std::move(tensor));
}

TensorId GraphBuilder::Constant(std::string name, DType dtype, double value, int64_t rank) {
  const TensorId id = ByValue(std::move(name), dtype, rank);
  graph_[id].value = value;
  return id;
}

TensorId GraphBuilder::ByValue(std::string name, DType dtype, int64_t rank) {
  const TensorId id = Input(std::move(name), dtype, Dims(static_cast<size_t>(rank), 1));
  graph_[id].by_value = true;
  return id;
}

TensorId GraphBuilder::NewResult(std::string_view op, const ResultOptions& options) {
  Tensor tensor;
  tensor.name = op;
  tensor.dtype = options.dtype;
  tensor.dims = options.dims;
  tensor.strides = options.strides;
  tensor.is_virtual = true;
  return graph_.AddTensor(std::move(tensor));
}

TensorId GraphBuilder::Apply(GraphOp op, std::vector<TensorId> inputs, Attrs attrs,
                             ResultOptions options) {
  const TensorId result = NewResult(Info(op).mnemonic, options);
  Node node;
  node.op = op;
  node.inputs = std::move(inputs);
  node.outputs = {result};
  node.compute = options.compute;
  node.attrs = std::move(attrs);
  graph_.AddNode(std::move(node));
  // A failure shows again, with its sentence, in Finish.
  (void)Info(op).infer(graph_, graph_.nodes.back());
  return result;
}

TensorId GraphBuilder::Pointwise(PointwiseMode mode, std::vector<TensorId> inputs,
                                 ResultOptions options) {
  PointwiseAttrs attrs;
  attrs.mode = mode;
  return Apply(GraphOp::kPointwise, std::move(inputs), attrs, std::move(options));
}

TensorId GraphBuilder::Reduction(ReductionMode mode, TensorId x, Dims dims, ResultOptions options) {
  options.dims = std::move(dims);
  return Apply(GraphOp::kReduction, {x}, ReductionAttrs{.mode = mode}, std::move(options));
}

void GraphBuilder::Output(TensorId id, const std::string& name, DType dtype, Dims strides) {
  graph_.Rename(id, name);
  Tensor& tensor = graph_[id];
  tensor.uid = next_uid_++;
  tensor.dtype = dtype;
  tensor.is_virtual = false;
  if (!strides.empty()) tensor.strides = std::move(strides);
}

Result<Graph> GraphBuilder::Finish() {
  RETURN_IF_ERROR(Legalize(graph_));
  return std::move(graph_);
}

namespace {

// Verify has not seen the graph yet: what a client left out is absent.
const Tensor* FirstOf(const Graph& graph, const std::vector<TensorId>& ids) {
  return ids.empty() || ids[0] == kAbsent ? nullptr : &graph[ids[0]];
}

// True if there are readers, and each is a pointwise operation whose result has extent 1 in dim d.
bool ReadersAreNarrow(const Graph& graph, const std::vector<NodeId>& readers, size_t d) {
  return !readers.empty() && std::ranges::all_of(readers, [&](NodeId n) {
    const Node& node = graph.nodes[static_cast<size_t>(n)];
    const Tensor* out = FirstOf(graph, node.outputs);
    const bool is_pointwise = node.op == GraphOp::kPointwise && node.outputs.size() == 1;
    return is_pointwise && out != nullptr && out->dims.size() > d && out->dims[d] == 1;
  });
}

}  // namespace

void NarrowReductions(Graph& graph) {
  const std::vector<std::vector<NodeId>> readers = Consumers(graph);
  for (const Node& node : graph.nodes) {
    if (node.op != GraphOp::kReduction) continue;
    const Tensor *x = FirstOf(graph, node.inputs), *y = FirstOf(graph, node.outputs);
    if (x == nullptr || y == nullptr) continue;
    const TensorId id = node.outputs[0];
    const Dims before = y->dims;
    if (!y->is_virtual || before.empty() || before != x->dims) continue;
    Dims dims = before;
    for (size_t d = 0; d < dims.size(); ++d)
      if (dims[d] != 1 && ReadersAreNarrow(graph, readers[static_cast<size_t>(id)], d)) dims[d] = 1;
    if (dims == before) continue;
    graph[id].strides = PackedStrides(dims);
    graph[id].dims = std::move(dims);
  }
}

Status Legalize(Graph& graph) {
  RETURN_IF_ERROR(Normalize(graph));
  NarrowReductions(graph);
  FitSideOperands(graph);
  RETURN_IF_ERROR(InferShapes(graph));
  RETURN_IF_ERROR(SplitGroupedReductions(graph));
  RETURN_IF_ERROR(SplitComplex(graph));
  RETURN_IF_ERROR(Verify(graph));
  SettleSpelledAttention(graph);
  return {};
}

Status SplitGroupedReductions(Graph& graph) {
  std::vector<Node> nodes;
  for (Node& node : graph.nodes) {
    if (node.op != GraphOp::kReduction ||
        !IsGrouped(graph[node.inputs[0]], graph[node.outputs[0]])) {
      nodes.push_back(std::move(node));
      continue;
    }
    const Tensor x = graph[node.inputs[0]];
    const Tensor y = graph[node.outputs[0]];
    RETURN_IF_ERROR(CheckExtents(x.dims, x.strides).Within(fmt::format("%{}", x.name)));
    RETURN_IF_ERROR(CheckExtents(y.dims, y.strides).Within(fmt::format("%{}", y.name)));
    const TensorId x_split = graph.AddTensor(Split(x, x, y, false));
    const TensorId y_split = graph.AddTensor(Split(y, x, y, true));
    nodes.push_back(Reshape(node.inputs[0], x_split, node.compute));
    node.inputs[0] = x_split;
    const TensorId result = std::exchange(node.outputs[0], y_split);
    const DType compute = node.compute;
    nodes.push_back(std::move(node));
    nodes.push_back(Reshape(y_split, result, compute));
  }
  graph.nodes = std::move(nodes);
  return {};
}

namespace {

// The elements that a ragged tensor may have in memory: no more than a rectangle of its extents.
Tensor MemoryOf(const Tensor& rectangle) {
  Tensor memory = rectangle;
  Dims batch = rectangle.dims;
  batch[0] = 1;
  const int64_t each = SpanElements(batch, rectangle.strides) * rectangle.dims[0];
  memory.dims.assign(rectangle.dims.size(), 1);
  memory.dims[0] = std::max(each, SpanElements(rectangle.dims, rectangle.strides));
  memory.strides.assign(rectangle.dims.size(), 1);
  return memory;
}

}  // namespace

Status MakeRagged(Graph& graph, const std::map<TensorId, TensorId>& offsets) {
  const std::vector<NodeId> writers = Producers(graph);
  std::vector<Node> loads;
  for (const auto& [id, places] : offsets) {
    const Tensor rectangle = graph[id];
    if (rectangle.is_virtual) continue;
    if (rectangle.dims.empty() || rectangle.by_value)
      return Status::Error(Code::kBadParam, "%{} {} cannot be ragged", rectangle.name,
                           Shape(rectangle));
    RETURN_IF_ERROR(
        CheckExtents(rectangle.dims, rectangle.strides).Within(fmt::format("%{}", rectangle.name)));
    Tensor memory = MemoryOf(rectangle);
    Node node{.compute = MovingType(rectangle.dtype),
              .attrs = RaggedAttrs{.strides = rectangle.strides}};
    graph.Rename(id, rectangle.name + "_batches");
    graph[id].is_virtual = true;
    graph[id].uid = -1;
    if (writers[static_cast<size_t>(id)] < 0) {
      node.op = GraphOp::kRaggedLoad;
      node.inputs = {graph.AddTensor(std::move(memory)), places};
      node.outputs = {id};
      loads.push_back(std::move(node));
      continue;
    }
    Tensor before = memory;
    before.name += "_before";
    node.op = GraphOp::kRaggedStore;
    node.inputs = {id, places, graph.AddTensor(std::move(before))};
    node.outputs = {graph.AddTensor(std::move(memory))};
    graph.AddNode(std::move(node));
  }
  std::ranges::reverse(loads);
  graph.nodes.insert(graph.nodes.begin(), std::make_move_iterator(loads.begin()),
                     std::make_move_iterator(loads.end()));
  return {};
}

}  // namespace kiln::graph
