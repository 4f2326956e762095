// Reductions by a client's own operator: attributes that 9.27 gave the reduction, and that NVIDIA's
// 9.28.1 itself answers with NOT_SUPPORTED. What they mean is in ir/graph/user_reduction.h.
#include "api/backend/reduction.h"

namespace kiln::api {

Status OperationReductionDesc::SetInitial(const AttrIn& in) {
  if (y.empty())
    return Status::Text(Code::kBadParam, "initial values are of y's type, and y is not set yet");
  if (in.count != std::ssize(y))
    return Status::Error(Code::kBadParam, "{} initial values for {} results", in.count, y.size());
  std::vector<void*> at(y.size());
  std::vector<double> values(y.size());
  for (size_t i = 0; i < y.size(); ++i) {
    RETURN_IF_ERROR(LoadElement(in.data, static_cast<int64_t>(i), &at[i]));
    if (at[i] == nullptr)
      return Status::Error(Code::kNullPointer, "the pointer to initial value {} is NULL", i);
    ASSIGN_OR_RETURN(const DType dtype, ElementType(y[i]->data_type));
    values[i] = LoadValue(dtype, at[i]);
  }
  initial_at = std::move(at);
  initial = std::move(values);
  return {};
}

Status OperationReductionDesc::CheckUserDims() const {
  const TensorDesc& first = *x[0];
  int64_t last = -1;
  for (const int64_t dim : dims) {
    if (dim <= last || dim >= std::ssize(first.dims))
      return Status::Error(Code::kBadParam,
                           "dim {} to reduce behind {}: they are dims of x {}, ascending", dim,
                           last, first.Text());
    last = dim;
  }
  for (const Ref<TensorDesc>& other : x) {
    if (std::ranges::equal(other->dims, first.dims)) continue;
    return Status::Error(Code::kBadParam, "x {} and x {} of one reduction differ in extents",
                         first.Text(), other->Text());
  }
  for (const Ref<TensorDesc>& to : y) {
    bool fits = to->dims.size() == first.dims.size();
    for (size_t d = 0; fits && d < first.dims.size(); ++d) {
      const bool is_reduced =
          std::ranges::find(dims, static_cast<int64_t>(d)) != std::ranges::end(dims);
      fits = to->dims[d] == (is_reduced ? 1 : first.dims[d]);
    }
    if (fits) continue;
    return Status::Error(Code::kBadParam, "y {} is not x {} with 1 for the reduced dims",
                         to->Text(), first.Text());
  }
  return {};
}

Status OperationReductionDesc::CheckUser() const {
  if (reduction != nullptr || offsets != nullptr)
    return Status::Text(Code::kBadParam,
                        "a reduction has a descriptor (or groups), or a sub-graph, not both");
  const size_t count = y.size();
  if (dims.empty()) return Status::Text(Code::kBadParam, "no dims to reduce are set");
  for (const auto& [size, name] : {std::pair{x.size(), "x"},
                                   {initial.size(), "initial values"},
                                   {accumulators.size(), "accumulators"},
                                   {currents.size(), "current elements"},
                                   {outputs.size(), "outputs"}}) {
    if (size == count) continue;
    return Status::Error(Code::kBadParam, "{} {} for {} results", size, name, count);
  }
  if (!compute_types.empty() && compute_types.size() != count)
    return Status::Error(Code::kBadParam, "{} compute types for {} results", compute_types.size(),
                         count);
  RETURN_IF_ERROR(CheckUserDims());
  ASSIGN_OR_RETURN(const graph::UserReduction parts, Operator());
  return graph::OthersOf(parts).status();
}

Result<graph::UserReduction> OperationReductionDesc::Operator() const {
  GraphImport body;
  for (size_t i = 0; i < subgraph->operations.size(); ++i) {
    Status status = subgraph->operations[i]->Import(body);
    if (!status.ok())
      return std::move(status).Within(fmt::format("operation {} of the sub-graph", i));
  }
  graph::UserReduction parts{.combine = std::move(body.graph()),
                             .accumulators = accumulators,
                             .currents = currents,
                             .outputs = outputs,
                             .init = initial,
                             .types = {},
                             .dims = Dims(dims.begin(), dims.end()),
                             .x = {},
                             .y = {},
                             .others = {}};
  RETURN_IF_ERROR(graph::Normalize(parts.combine));
  for (size_t i = 0; i < y.size(); ++i) {
    ASSIGN_OR_RETURN(const DType type, compute_types.empty() ? ElementType(y[i]->data_type)
                                                             : ComputeType(compute_types[i]));
    parts.types.push_back(type == DType::kB1 ? DType::kBool : type);
  }
  return parts;
}

Status OperationReductionDesc::ImportUser(GraphImport& import) const {
  ASSIGN_OR_RETURN(graph::UserReduction parts, Operator());
  ASSIGN_OR_RETURN(const std::vector<int64_t> others, graph::OthersOf(parts));
  for (const int64_t uid : others) {
    if (const Result<graph::TensorId> known = import.IdOf(uid); known.ok()) {
      parts.others[uid] = *known;
      continue;
    }
    graph::Tensor tensor = *std::ranges::find(parts.combine.tensors, uid, &graph::Tensor::uid);
    tensor.dims = tensor.strides = Dims(x[0]->dims.size(), 1);
    const graph::TensorId id = import.graph().AddTensor(std::move(tensor));
    import.Bind(uid, id);
    parts.others[uid] = id;
  }
  for (const Ref<TensorDesc>& from : x) {
    ASSIGN_OR_RETURN(parts.x.emplace_back(), import.Tensor(*from));
  }
  for (const Ref<TensorDesc>& to : y) {
    ASSIGN_OR_RETURN(parts.y.emplace_back(), import.Write(*to));
  }
  return graph::SpellUserReduction(import.graph(), parts);
}

}  // namespace kiln::api
