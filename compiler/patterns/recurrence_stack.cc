#include "compiler/patterns/recurrence_stack.h"

#include <algorithm>
#include <map>
#include <optional>

#include "compiler/patterns/graph_view.h"
#include "ir/graph/ops.h"
#include "ir/graph/sdpa.h"

namespace kiln::compiler {
namespace {

namespace fwd = graph::recurrence;
namespace bwd = graph::recurrence_grad;

using graph::Graph;
using graph::GraphOp;
using graph::kAbsent;
using graph::Node;
using graph::NodeId;
using graph::OperandOr;
using graph::TensorId;

bool IsLoop(const Node& node) {
  return node.op == GraphOp::kRecurrence || node.op == GraphOp::kRecurrenceGrad;
}

// A link with the nodes of it, and the stage that it comes from.
struct Found {
  NodeId from = -1;
  RecurrenceStack::Link link = {};
  std::vector<NodeId> members = {};
};

class Finder {
 public:
  explicit Finder(const Graph& g) : g_(g), view_(g) {}

  // The link from another loop that this one reads.
  std::optional<Found> LinkTo(NodeId to) {
    const Node& node = g_.nodes[to];
    if (!IsLoop(node)) return std::nullopt;
    const bool is_grad = node.op == GraphOp::kRecurrenceGrad;
    found_ = {};
    TensorId x = Through(node.inputs[is_grad ? size_t{bwd::kDy} : size_t{fwd::kXg}]);
    if (!(is_grad ? Scaled(x) : Biased(x))) return std::nullopt;
    const Node* product = Own(x);
    if (product == nullptr || product->op != GraphOp::kMatmul || !IsPlainMatmul(*product))
      return std::nullopt;
    found_.link.matrix = product->inputs[1];
    x = Through(product->inputs[0]);
    if (!is_grad && !Scaled(x)) return std::nullopt;
    found_.from = view_.ProducerId(x);
    if (found_.from < 0 || !IsAlike(found_.from, to, x)) return std::nullopt;
    return found_;
  }

 private:
  // The node that makes `x`, which nobody else reads; a member then.
  const Node* Own(TensorId x) {
    const Node* const node = view_.Producer(x);
    if (node == nullptr || !g_[x].is_virtual || view_.Readers(x).size() != 1) return nullptr;
    found_.members.push_back(view_.ProducerId(x));
    return node;
  }
  // `x` before reshapes, casts and, of a GRU's gradient, the first blocks.
  TensorId Through(TensorId x) {
    while (true) {
      const Node* const node = view_.Producer(x);
      if (node == nullptr || !g_[x].is_virtual || view_.Readers(x).size() != 1) return x;
      const bool is_cast = node->op == GraphOp::kMap && node->As<graph::MapAttrs>().identity;
      const bool is_front = node->op == GraphOp::kSlice && IsFront(*node);
      if (node->op != GraphOp::kReshape && !is_cast && !is_front) return x;
      Own(x);
      x = node->inputs[0];
    }
  }
  static bool IsFront(const Node& slice) {
    const auto& a = slice.As<graph::SliceAttrs>();
    return std::ranges::all_of(a.start, [](int64_t at) { return at == 0; }) &&
           std::ranges::all_of(a.step, [](int64_t by) { return by == 1; });
  }
  // x + bias: `x` is what the bias is added to. True where nothing is in the way.
  bool Biased(TensorId& x) {
    const Node* const add = view_.Producer(x);
    if (add == nullptr || add->op != GraphOp::kMap) return add != nullptr;
    const auto& attrs = add->As<graph::MapAttrs>();
    if (attrs.identity || attrs.op != ScalarOp::kAdd || Own(x) == nullptr) return false;
    found_.link.bias = add->inputs[1];
    if (view_.Producer(add->inputs[0]) == nullptr) return false;
    x = Through(add->inputs[0]);
    const Dims& bias = g_[found_.link.bias].dims;
    return bias.size() == 3 && bias[0] == 1 && bias[1] == 1;
  }
  // x * scale, whose scale comes from no loop.
  bool Scaled(TensorId& x) {
    const Node* const mul = view_.Producer(x);
    if (mul == nullptr || mul->op != GraphOp::kMap) return mul != nullptr;
    const auto& attrs = mul->As<graph::MapAttrs>();
    if (attrs.identity || attrs.op != ScalarOp::kMul || Own(x) == nullptr) return false;
    found_.link.scale = mul->inputs[1];
    const Dims dims = g_[x].dims;
    x = Through(mul->inputs[0]);
    const Node* const from = view_.Producer(x);
    return g_[found_.link.scale].dims == dims && dims.size() == 3 && from != nullptr &&
           (from->op == GraphOp::kMatmul || IsLoop(*from));
  }
  // Loops with the same cells and extents, in one direction, of which one has `x` as its result.
  bool IsAlike(NodeId from, NodeId to, TensorId x) const {
    const Node &a = g_.nodes[from], &b = g_.nodes[to];
    const bool is_grad = b.op == GraphOp::kRecurrenceGrad;
    const size_t lengths = is_grad ? size_t{bwd::kLengths} : size_t{fwd::kLengths},
                 projection = is_grad ? size_t{bwd::kProjection} : size_t{fwd::kProjection},
                 blocked = is_grad ? size_t{bwd::kGates} : size_t{fwd::kXg};
    if (a.op != b.op || a.outputs[0] != x || a.compute != b.compute ||
        !FieldsEqual(a.As<graph::RecurrenceAttrs>(), b.As<graph::RecurrenceAttrs>()))
      return false;
    const auto alike = [&](TensorId left, TensorId right) {
      return g_[left].dims == g_[right].dims && g_[left].dtype == g_[right].dtype;
    };
    return OperandOr(a.inputs, lengths) == OperandOr(b.inputs, lengths) &&
           OperandOr(a.inputs, projection) == kAbsent &&
           OperandOr(b.inputs, projection) == kAbsent && g_[b.inputs[blocked]].dims[2] == 1 &&
           g_[a.inputs[blocked]].dims == g_[b.inputs[blocked]].dims &&
           alike(a.inputs[1], b.inputs[1]) && alike(a.outputs[0], b.outputs[0]) &&
           g_[found_.link.matrix].dtype == g_[a.outputs[0]].dtype && IsMatrixOf(b);
  }

  // [1, depth, units of gates]: of what a stage has sent, all of it.
  bool IsMatrixOf(const Node& loop) const {
    const bool is_grad = loop.op == GraphOp::kRecurrenceGrad;
    const Dims &r = g_[loop.inputs[1]].dims, &matrix = g_[found_.link.matrix].dims;
    return matrix == Dims{1, is_grad ? r[1] : r[2], is_grad ? r[2] : r[1]};
  }

  const Graph& g_;
  const GraphView view_;
  Found found_ = {};
};

RecurrenceStack StackOf(const std::vector<const Found*>& links, NodeId first,
                        const std::vector<NodeId>& stages) {
  RecurrenceStack stack{.members = {first}};
  stack.stages.push_back(first);
  for (size_t i = 0; i < links.size(); ++i) {
    stack.links.push_back(links[i]->link);
    stack.stages.push_back(stages[i]);
    std::ranges::copy(links[i]->members, std::back_inserter(stack.members));
    stack.members.push_back(stages[i]);
  }
  std::ranges::sort(stack.members);
  return stack;
}

}  // namespace

std::vector<RecurrenceStack> FindRecurrenceStacks(const Graph& g) {
  Finder finder(g);
  std::map<NodeId, Found> into;
  std::map<NodeId, NodeId> next;
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    if (!IsLoop(g.nodes[n])) continue;
    if (auto found = finder.LinkTo(static_cast<NodeId>(n))) {
      next[found->from] = static_cast<NodeId>(n);
      into.emplace(static_cast<NodeId>(n), *std::move(found));
    }
  }
  std::vector<RecurrenceStack> all;
  for (const auto& [from, second] : next) {
    if (into.contains(from)) continue;
    std::vector<NodeId> stages = {from};
    for (auto at = next.find(from); at != next.end(); at = next.find(at->second))
      stages.push_back(at->second);
    for (size_t size = stages.size(); size >= 2; --size)
      for (size_t first = 0; first + 2 <= stages.size(); first += size) {
        const size_t end = std::min(first + size, stages.size());
        if (end - first < 2) continue;
        std::vector<const Found*> links;
        for (size_t i = first + 1; i < end; ++i) links.push_back(&into.at(stages[i]));
        all.push_back(StackOf(links, stages[first],
                              {stages.begin() + static_cast<ptrdiff_t>(first) + 1,
                               stages.begin() + static_cast<ptrdiff_t>(end)}));
      }
  }
  return all;
}

Result<RecurrenceStack> RecurrenceStackOf(const Group& group) {
  std::vector<RecurrenceStack> found;
  if (group.kind == GroupKind::kRecurrence) found = FindRecurrenceStacks(group.graph);
  const auto loops = static_cast<size_t>(std::ranges::count_if(group.graph.nodes, IsLoop));
  if (found.empty() || found.front().stages.size() != loops)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "the group has no recurrent layers one above the other");
  return std::move(found.front());
}

}  // namespace kiln::compiler
