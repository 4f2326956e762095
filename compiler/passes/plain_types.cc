#include "compiler/passes/plain_types.h"

#include <algorithm>
#include <map>
#include <utility>

#include "compiler/passes/narrow_numbers.h"
#include "compiler/passes/primitive_writer.h"
#include "ir/base/check.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::kAbsent;
using graph::Node;
using graph::Tensor;
using graph::TensorId;

class Narrow {
 public:
  explicit Narrow(Graph& graph) : g_(graph) {}

  bool Run() {
    for (Tensor& t : g_.tensors) {
      if (t.is_constant() && IsNarrow(t.dtype)) {
        t.value = RoundTo(t.dtype, *t.value);
        t.dtype = CarrierOf(t.dtype);
      }
      types_.push_back(t.dtype);
    }
    std::vector<Node> nodes = std::exchange(g_.nodes, {});
    bool changed = false;
    for (Node& node : nodes) {
      for (const auto* ids : {&node.inputs, &node.outputs})
        changed |= std::ranges::any_of(*ids, [&](TensorId id) { return IsNarrowTensor(id); });
      Rewrite(std::move(node));
    }
    return changed;
  }

 private:
  // The type that a tensor of the graph had before this pass.
  DType TypeOf(TensorId id) const { return types_[static_cast<size_t>(id)]; }
  bool IsNarrowTensor(TensorId id) const { return id != kAbsent && IsNarrow(TypeOf(id)); }

  void Rewrite(Node node) {
    if (node.op == GraphOp::kScatter || node.op == GraphOp::kRaggedStore)
      if (IsNarrowTensor(node.outputs[0])) return WritePart(std::move(node));
    const bool keeps = MovesOneType(node);
    const DType raw = RawType(node);
    const std::vector<TensorId> results = node.outputs;
    for (TensorId& id : node.outputs)
      if (IsNarrowTensor(id))
        id = VirtualLike(id, IsExact(id, keeps) ? CarrierOf(TypeOf(id)) : raw);
    for (TensorId& id : node.inputs)
      if (IsNarrowTensor(id)) id = Value(id);
    const std::vector<TensorId> made = node.outputs;
    g_.AddNode(std::move(node));
    for (size_t i = 0; i < results.size(); ++i)
      if (IsNarrowTensor(results[i])) Finish(results[i], made[i], IsExact(results[i], keeps));
  }

  // Words of u32 go where the node puts them, and memory is i32 before and after. Packed types
  // are not written in part: VerifyRaggedStore, VerifyScatter.
  void WritePart(Node node) {
    const TensorId memory = node.inputs[2], after = node.outputs[0];
    TensorId& x = node.inputs[0];
    x = WordsOf(g_, IsNarrowTensor(x) ? Value(x) : x, g_[x].name);
    Value(memory);
    g_.AddNode(std::move(node));
    Value(after);
  }

  // The number of a node's operands that it moves without computing.
  static size_t Moved(const Node& node) {
    if (node.op == GraphOp::kConcat) return node.inputs.size();
    return Has(node, graph::kView) || node.op == GraphOp::kGather ? 1 : 0;
  }

  // True for a node that only moves elements of one type, which needs no rounding.
  bool MovesOneType(const Node& node) const {
    for (size_t i = 0; i < Moved(node); ++i)
      if (TypeOf(node.inputs[i]) != TypeOf(node.outputs[0])) return false;
    return Moved(node) > 0;
  }

  // True if a node leaves its result as the carrier's values: of b1 every node does, since it
  // rounds to bool itself.
  bool IsExact(TensorId result, bool keeps) const { return keeps || TypeOf(result) == DType::kB1; }

  // The type of results before they are rounded: one that holds what is moved, or what is computed.
  DType RawType(const Node& node) const {
    if (Moved(node) > 1) return DType::kF64;
    const DType type = Moved(node) == 1 ? TypeOf(node.inputs[0]) : node.compute;
    return type == DType::kBool ? DType::kF32 : ArithmeticType(type);
  }

  TensorId VirtualLike(TensorId id, DType type) {
    Tensor t = g_[id];
    t.uid = -1;
    t.dtype = type;
    t.is_virtual = true;
    return g_.AddTensor(std::move(t));
  }

  // The values of a tensor that nodes read; of one in memory, from its bytes.
  TensorId Value(TensorId id) {
    const auto [at, is_new] = values_.try_emplace(id, kAbsent);
    if (is_new) at->second = ReadNarrow(g_, id);
    return at->second;
  }

  // `raw` rounded to the type of `id`, for readers and, where it is in memory, written there.
  void Finish(TensorId id, TensorId raw, bool is_exact) {
    const NarrowNumbers numbers =
        is_exact ? NarrowNumbers{.value = raw} : RoundNarrow(g_, TypeOf(id), raw, g_[id].name);
    values_[id] = numbers.value;
    if (!g_[id].is_virtual) WriteNarrow(g_, numbers, id);
  }

  Graph& g_;
  std::vector<DType> types_;
  std::map<TensorId, TensorId> values_;
};

}  // namespace

Result<bool> PlainTypes(Module& module, const PassContext&) { return Narrow(module.graph).Run(); }

}  // namespace kiln::compiler
