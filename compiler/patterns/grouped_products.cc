#include "compiler/patterns/grouped_products.h"

#include <algorithm>
#include <optional>
#include <set>

#include "compiler/patterns/graph_view.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::kAbsent;
using graph::Node;
using graph::NodeId;
using graph::TensorId;

class Finder {
 public:
  explicit Finder(const Graph& g) : g_(g), view_(g) {}

  std::optional<GroupedProduct> ProductOf(NodeId n) {
    const Node& matmul = g_.nodes[static_cast<size_t>(n)];
    if (matmul.op != GraphOp::kMatmul || !IsPlainMatmul(matmul)) return std::nullopt;
    const Node* const transpose = view_.Producer(matmul.inputs[0]);
    const bool is_transposed = transpose != nullptr && transpose->op == GraphOp::kTranspose &&
                               transpose->As<graph::TransposeAttrs>().permutation == Dims{0, 2, 1};
    GroupedProduct product{.left = is_transposed ? transpose->inputs[0] : matmul.inputs[0],
                           .is_turned = !is_transposed,
                           .members = {n}};
    if (!IsRows(product.left) || !IsRows(matmul.inputs[1])) return std::nullopt;
    product.rights = PartsOf(matmul.inputs[1]);
    const std::vector<NodeId>& readers = view_.Readers(matmul.outputs[0]);
    if (readers.size() > 1) return std::nullopt;
    const auto result = ResultOf(matmul.outputs[0], readers.empty() ? -1 : readers[0], product);
    if (!result) return std::nullopt;
    product.result = *result;
    return product;
  }

  // Takes sums of the product's left operand, if nobody has them yet.
  void AddSums(GroupedProduct& product) {
    if (product.is_turned) return;
    for (const NodeId n : view_.Readers(product.left)) {
      const Node& reduce = g_.nodes[static_cast<size_t>(n)];
      if (reduce.op != GraphOp::kReduce || taken_.contains(n) ||
          reduce.As<graph::ReduceAttrs>().combine != graph::Combine::kAdd ||
          g_[reduce.outputs[0]].dims != Dims{1, 1, g_[product.left].dims[2]})
        continue;
      GroupedProduct with = product;
      with.members.push_back(n);
      bool all = !view_.Readers(reduce.outputs[0]).empty();
      for (const NodeId reader : view_.Readers(reduce.outputs[0])) {
        const auto result = ResultOf(reduce.outputs[0], reader, with);
        if (!result) all = false;
        if (!all) break;
        with.sums.push_back(*result);
      }
      if (!all) continue;
      taken_.insert(n);
      product = std::move(with);
    }
  }

 private:
  bool IsRows(TensorId x) const {
    const graph::Tensor& t = g_[x];
    return t.rank() == 3 && t.dims[0] == 1 && !t.by_value && !t.is_constant() &&
           NumElements(t.dims) > 0 && (t.dtype == DType::kF16 || t.dtype == DType::kBF16);
  }

  // x, or the two tensors that stand in it one behind the other.
  std::vector<TensorId> PartsOf(TensorId x) const {
    const Node* const reshape = view_.Producer(x);
    if (reshape == nullptr || reshape->op != GraphOp::kReshape) return {x};
    const Node* const concat = view_.Producer(reshape->inputs[0]);
    if (concat == nullptr || concat->op != GraphOp::kConcat || concat->inputs.size() != 2 ||
        concat->As<graph::ConcatAttrs>().axis != 0 || g_[concat->inputs[0]].rank() != 3 ||
        g_[concat->outputs[0]].dims.back() != g_[x].dims.back())
      return {x};
    return {concat->inputs.begin(), concat->inputs.end()};
  }

  // The result of a sum: itself, or what was there before added to it, rounded and stored.
  std::optional<GroupedResult> ResultOf(TensorId sum, NodeId reader, GroupedProduct& product) {
    GroupedResult result{.stored = sum};
    for (int maps = 0; reader >= 0 && maps < 2; ++maps) {
      const Node& map = g_.nodes[static_cast<size_t>(reader)];
      if (map.op != GraphOp::kMap) break;
      const auto& attrs = map.As<graph::MapAttrs>();
      if (!attrs.identity) {
        const bool adds = attrs.op == ScalarOp::kAdd && result.before == kAbsent &&
                          result.stored == sum && map.inputs.size() == 2;
        if (!adds) return std::nullopt;
        result.before = map.inputs[map.inputs[0] == sum ? 1 : 0];
        if (result.before == sum || g_[result.before].dims != g_[sum].dims) return std::nullopt;
      }
      result.stored = map.outputs[0];
      product.members.push_back(reader);
      if (attrs.identity) break;
      const std::vector<NodeId>& next = view_.Readers(result.stored);
      reader = next.size() == 1 ? next[0] : -1;
    }
    const graph::Tensor& stored = g_[result.stored];
    const DType type = g_[product.left].dtype;
    const bool is_alike = stored.dtype == type && stored.dims == g_[sum].dims &&
                          (result.before == kAbsent || g_[result.before].dtype == type);
    return is_alike ? std::optional(result) : std::nullopt;
  }

  const Graph& g_;
  const GraphView view_;
  std::set<NodeId> taken_;  // reductions
};

}  // namespace

std::vector<GroupedProduct> FindGroupedProducts(const Graph& g) {
  Finder finder(g);
  std::vector<GroupedProduct> all;
  for (size_t n = 0; n < g.nodes.size(); ++n)
    if (auto product = finder.ProductOf(static_cast<NodeId>(n))) all.push_back(*std::move(product));
  for (GroupedProduct& product : all) finder.AddSums(product);
  for (GroupedProduct& product : all) std::ranges::sort(product.members);
  return all;
}

}  // namespace kiln::compiler
