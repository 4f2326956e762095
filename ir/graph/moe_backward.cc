#include "ir/graph/moe_backward.h"

#include "ir/graph/speller.h"

namespace kiln::graph {
namespace {

// A boolean [E, T, 1]: true where row t is one of expert e. The group of a row is one less than the
// number of groups that begin at it or before, -1 before the first.
TensorId SpellOwn(Graph& graph, const MoeBackwardParts& parts) {
  using M = PointwiseMode;
  const DType dtype = graph[parts.first_token_offset].dtype;
  const int64_t rows = graph[parts.token].dims[1], experts = graph[parts.dweight].dims[0],
                groups = graph[parts.first_token_offset].dims[0];
  Speller at(graph, dtype), bits(graph, DType::kBool);
  const auto index_along = [&](int64_t axis, const Dims& dims) {
    const TensorId to = at.Temporary({.dtype = dtype, .dims = dims});
    at.Node(GraphOp::kIota, {}, to, dtype, IotaAttrs{.axis = axis});
    return to;
  };
  const Dims of_rows = {1, rows, 1};
  const Speller::Form row{.dtype = dtype, .dims = of_rows},
      all{.dtype = dtype, .dims = {groups, rows, 1}},
      own{.dtype = DType::kBool, .dims = {experts, rows, 1}};
  const TensorId begun =
      at.Pointwise(M::kCmpLe, {parts.first_token_offset, index_along(1, of_rows)},
                   {.dtype = DType::kBool, .dims = all.dims});
  const TensorId counted =
      at.Pointwise(M::kBinarySelect, {at.Number(1, all), at.Number(0, all), begun}, all);
  const TensorId count = at.Temporary(row);
  at.ReductionTo(count, ReductionMode::kAdd, counted);
  const TensorId group = at.Pointwise(M::kSub, {count, at.Number(1, row)}, row);
  const TensorId expert = index_along(0, {experts, 1, 1});
  if (groups == experts) return at.Pointwise(M::kCmpEq, {expert, group}, own);
  const TensorId turned =
      at.Pointwise(M::kFloorMod, {group, at.Number(static_cast<double>(experts), row)}, row);
  const TensorId has_group =
      at.Pointwise(M::kCmpGe, {group, at.Number(0, row)}, {.dtype = DType::kBool, .dims = of_rows});
  return bits.Pointwise(M::kLogicalAnd, {at.Pointwise(M::kCmpEq, {expert, turned}, own), has_group},
                        own);
}

}  // namespace

Status CheckMoeBackward(const Graph& graph, const MoeBackwardParts& parts) {
  for (const TensorId id : {parts.token, parts.doutput, parts.first_token_offset, parts.dweight}) {
    if (id == kAbsent)
      return Status::Text(Code::kBadParam,
                          "tokens, the gradient of the output, the first tokens or the result is "
                          "absent");
    if (graph[id].rank() != 3)
      return Status::Error(Code::kShapeMismatch, "%{} has {} dims, not 3", graph[id].name,
                           graph[id].rank());
  }
  const Dims &token = graph[parts.token].dims, &doutput = graph[parts.doutput].dims;
  const Dims &first = graph[parts.first_token_offset].dims, &dweight = graph[parts.dweight].dims;
  const bool fits = token[0] == 1 && doutput[0] == 1 && token[1] == doutput[1] &&
                    dweight[1] == token[2] && dweight[2] == doutput[2];
  if (!fits)
    return Status::Error(Code::kShapeMismatch,
                         "tokens {}, the gradient of their output {} and that of the weights {} "
                         "must be 1xTxK, 1xTxN and ExKxN",
                         DimsText(token), DimsText(doutput), DimsText(dweight));
  if (dweight[0] < 1 || first[0] < 1 || first[0] % dweight[0] != 0 || first[1] != 1 ||
      first[2] != 1)
    return Status::Error(Code::kShapeMismatch,
                         "the first tokens {} must be one for each of {} experts, or of each batch",
                         DimsText(first), dweight[0]);
  const DType counts = graph[parts.first_token_offset].dtype;
  if (counts != DType::kI32 && counts != DType::kI64)
    return Status::Error(Code::kUnsupportedDataType,
                         "the first tokens are {}; they are counted by i32 or i64",
                         Info(counts).text);
  if (IsFloat(parts.compute)) return {};
  return Status::Error(Code::kUnsupportedDataType, "products of {} are not those of a gradient",
                       Info(parts.compute).text);
}

void SpellMoeBackward(Graph& graph, const MoeBackwardParts& parts) {
  using M = PointwiseMode;
  const TensorId own = SpellOwn(graph, parts);
  Speller at(graph, parts.compute);
  // Selects `x` where `chosen` holds, else 0.
  const auto only = [&](TensorId x, TensorId chosen) {
    Speller::Form form{.dtype = graph[x].dtype, .dims = graph[x].dims};
    const DType moving = MovingType(form.dtype);
    form.dims[0] = graph[chosen].dims[0];
    Speller values(graph, moving);
    const TensorId zero = values.Number(0, {.dtype = moving, .dims = form.dims});
    return values.Pointwise(M::kBinarySelect, {x, zero, chosen}, form);
  };
  const Dims turned = {0, 2, 1};
  const TensorId token = only(at.Transpose(parts.token, turned), at.Transpose(own, turned));
  at.Node(GraphOp::kMatmul, {token, only(parts.doutput, own)}, parts.dweight, parts.compute,
          MatmulAttrs{});
}

}  // namespace kiln::graph
