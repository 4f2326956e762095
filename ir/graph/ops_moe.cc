// A matmul of tokens with the weights of their experts:
//
//   y[0, r, :] = token[0, source(r), :] * weight[expert(slot(r)), :, :]
//
// Slots are the rows of the routed order, in which an expert's tokens stand together: group g, of
// expert g % experts, has those from first_token_offset[g] on, up to the next group's first. There
// are as many groups as experts, or as often as there are batches. Offsets do not fall.
//   none      slot(r) = source(r) = r
//   gather    slot(r) = r, source(r) = token_index[r]
//   scatter   slot(r) = source(r) = the s for which token_index[s] * top_k + token_ks[s] = r
// Rows that have no slot, no token or no expert are 0.
#include <algorithm>

#include "ir/graph/ops.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

constexpr size_t kToken = 0, kWeight = 1, kOffset = 2, kIndex = 3, kKs = 4;

Status VerifyIntegers(const Tensor* t, const Dims& dims, const char* name) {
  if (t == nullptr) return Status::Error(Code::kBadParam, "the {} is absent", name);
  if (t->dtype != DType::kI32 && t->dtype != DType::kI64)
    return Status::Error(Code::kUnsupportedDataType, "the {} %{} is {}, not i32 or i64", name,
                         t->name, Info(t->dtype).text);
  return ExpectDims(*t, dims, name);
}

}  // namespace

Status VerifyMoeGroupedMatmul(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(CheckCompute(node, false));
  RETURN_IF_ERROR(RejectBool(graph, node));
  const auto& a = node.As<MoeGroupedMatmulAttrs>();
  const Tensor *token = InputOf(graph, node, kToken), *weight = InputOf(graph, node, kWeight);
  if (token == nullptr || weight == nullptr)
    return Status::Text(Code::kBadParam, "it has tokens and weights");
  if (token->rank() != 3 || weight->rank() != 3 || token->dims[0] != 1 ||
      token->dims[2] != weight->dims[1]) {
    return Status::Error(Code::kShapeMismatch,
                         "tokens {} and weights {} are not 1xMxK and ExKxN for one K",
                         Shape(*token), Shape(*weight));
  }
  const Tensor* offset = InputOf(graph, node, kOffset);
  const int64_t experts = weight->dims[0];
  const bool has_batches = offset != nullptr && offset->rank() == 3 && experts > 0 &&
                           offset->dims[0] > 0 && offset->dims[0] % experts == 0;
  RETURN_IF_ERROR(VerifyIntegers(offset, {has_batches ? offset->dims[0] : experts, 1, 1},
                                 "first token of each expert"));
  int64_t rows = token->dims[1];
  if (a.mode == MoeMode::kGather) {
    const Tensor* index = InputOf(graph, node, kIndex);
    if (index != nullptr && index->rank() == 3) rows = index->dims[1];
  }
  if (a.mode != MoeMode::kNone)
    RETURN_IF_ERROR(VerifyIntegers(InputOf(graph, node, kIndex), {1, rows, 1}, "token index"));
  if (a.mode == MoeMode::kScatter) {
    RETURN_IF_ERROR(VerifyIntegers(InputOf(graph, node, kKs), {1, rows, 1}, "token's k"));
    if (a.top_k < 1) return Status::Error(Code::kBadParam, "top_k is {}, not positive", a.top_k);
  }
  return ExpectDims(*OutputOf(graph, node, 0), {1, rows, weight->dims[2]},
                    "tokens times the weights of their experts");
}

Status InferMoeGroupedMatmul(Graph& graph, const Node& node) {
  const Tensor *token = InputOf(graph, node, kToken), *weight = InputOf(graph, node, kWeight),
               *index = InputOf(graph, node, kIndex);
  if (token == nullptr || weight == nullptr || token->rank() != 3 || weight->rank() != 3)
    return {};  // Verify has the sentence
  const bool gathers = node.As<MoeGroupedMatmulAttrs>().mode == MoeMode::kGather;
  const Tensor& rows = gathers && index != nullptr && index->rank() == 3 ? *index : *token;
  SetDims(graph[node.outputs[0]], {1, rows.dims[1], weight->dims[2]}, nullptr);
  return {};
}

void EvalMoeGroupedMatmul(const EvalArgs& args) {
  const auto& a = args.node.As<MoeGroupedMatmulAttrs>();
  const Dims& weight = InputOf(args.graph, args.node, kWeight)->dims;
  const int64_t experts = weight[0], depth = weight[1], columns = weight[2],
                groups = InputOf(args.graph, args.node, kOffset)->dims[0],
                tokens = InputOf(args.graph, args.node, kToken)->dims[1],
                rows = OutputOf(args.graph, args.node, 0)->dims[1];
  const auto integer = [&](size_t input, int64_t i) {
    return static_cast<int64_t>((*args.inputs[input])[static_cast<size_t>(i)]);
  };
  std::vector<int64_t> slots(static_cast<size_t>(rows), -1);
  for (int64_t s = 0; s < rows; ++s) {
    const int64_t r =
        a.mode == MoeMode::kScatter ? integer(kIndex, s) * a.top_k + integer(kKs, s) : s;
    if (r >= 0 && r < rows) slots[static_cast<size_t>(r)] = s;
  }
  std::ranges::fill(*args.outputs[0], 0);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t slot = slots[static_cast<size_t>(r)];
    int64_t group = -1;
    for (int64_t g = 0; slot >= 0 && g < groups; ++g) group += integer(kOffset, g) <= slot;
    const int64_t expert = group < 0 ? -1 : group % experts;
    const int64_t source = a.mode == MoeMode::kGather ? integer(kIndex, r) : slot;
    if (expert < 0 || source < 0 || source >= tokens) continue;
    double* y = args.outputs[0]->data() + r * columns;
    for (int64_t k = 0; k < depth; ++k) {
      const double factor = (*args.inputs[kToken])[static_cast<size_t>(source * depth + k)];
      const double* row = args.inputs[kWeight]->data() + (expert * depth + k) * columns;
      for (int64_t n = 0; n < columns; ++n) y[n] += factor * row[n];
    }
  }
  if (!IsInteger(args.node.compute)) return;
  for (double& value : *args.outputs[0])
    value = static_cast<double>(ToComputeInt(args.node.compute, value));
}

}  // namespace kiln::graph
