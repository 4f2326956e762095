#include "api/backend/reduction.h"

#include "ir/graph/grouped_reduction.h"

namespace kiln::api {
namespace {

constexpr AttrRow kReductionRows[] = {
    Attr<&ReductionDesc::op>(CUDNN_ATTR_REDUCTION_OPERATOR),
    Attr<&ReductionDesc::compute_type>(CUDNN_ATTR_REDUCTION_COMP_TYPE),
    Attr<&ReductionDesc::deterministic>(CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, Use::kOptional),
};

constexpr AttrRow InitialValues() {
  AttrRow row{.name = CUDNN_ATTR_OPERATION_REDUCTION_INIT_VALUES,
              .types = uint64_t{1} << CUDNN_TYPE_VOID_PTR,
              .limit = kAnyCount};
  row.set = [](Descriptor& d, const AttrIn& in, int64_t) {
    return static_cast<OperationReductionDesc&>(d).SetInitial(in);
  };
  row.get = [](const Descriptor& d, const AttrOut& out) {
    return StoreElements(static_cast<const OperationReductionDesc&>(d).initial_at, out);
  };
  return row;
}

constexpr AttrRow kOperationRows[] = {
    Attr<&OperationReductionDesc::x>(CUDNN_ATTR_OPERATION_REDUCTION_XDESC),
    Attr<&OperationReductionDesc::y>(CUDNN_ATTR_OPERATION_REDUCTION_YDESC),
    Attr<&OperationReductionDesc::reduction>(CUDNN_ATTR_OPERATION_REDUCTION_DESC, Use::kOptional),
    Attr<&OperationReductionDesc::offsets>(CUDNN_ATTR_OPERATION_REDUCTION_GROUP_OFFSET_DESC,
                                           Use::kOptional),
    Attr<&OperationReductionDesc::dims>(CUDNN_ATTR_OPERATION_REDUCTION_DIMS, Use::kOptional,
                                        CUDNN_DIM_MAX),
    InitialValues(),
    Attr<&OperationReductionDesc::subgraph>(CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH,
                                            Use::kOptional),
    Attr<&OperationReductionDesc::accumulators>(
        CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH_ACCUMULATOR_UIDS, Use::kOptional),
    Attr<&OperationReductionDesc::currents>(CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH_CURRENT_UIDS,
                                            Use::kOptional),
    Attr<&OperationReductionDesc::outputs>(CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH_OUTPUT_UIDS,
                                           Use::kOptional),
    Attr<&OperationReductionDesc::compute_types>(
        CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH_COMPUTE_TYPES, Use::kOptional),
};

}  // namespace

std::span<const AttrRow> ReductionDesc::Rows() { return kReductionRows; }
std::span<const AttrRow> OperationReductionDesc::Rows() { return kOperationRows; }

Status OperationReductionDesc::Finalize() {
  if (subgraph != nullptr) return CheckUser();
  if (!dims.empty() || !initial.empty() || !accumulators.empty() || !currents.empty() ||
      !outputs.empty() || !compute_types.empty())
    return Status::Text(Code::kBadParam,
                        "dims, initial values, uids and compute types belong to an operator of the "
                        "client's, and no sub-graph is set");
  if (x.size() != 1 || y.size() != 1)
    return Status::Error(Code::kBadParam,
                         "{} x and {} y: only a reduction by a sub-graph has more than one",
                         x.size(), y.size());
  if (reduction == nullptr)
    return Status::Text(Code::kBadParam,
                        "CUDNN_ATTR_OPERATION_REDUCTION_DESC is required and was not set");
  const TensorDesc &from = *x[0], &to = *y[0];
  if (from.dims.size() != to.dims.size())
    return Status::Error(Code::kBadParam, "x {} and y {} differ in rank", from.Text(), to.Text());
  if (offsets != nullptr) return CheckGroups();
  for (size_t i = 0; i < from.dims.size(); ++i) {
    if (from.dims[i] % to.dims[i] == 0) continue;
    return Status::Error(Code::kBadParam, "dimension {} of x {} cannot be reduced to that of y {}",
                         i, from.Text(), to.Text());
  }
  return {};
}

Status OperationReductionDesc::CheckGroups() const {
  const TensorDesc &from = *x[0], &to = *y[0];
  const size_t rank = from.dims.size();
  bool fits = rank >= 2 && from.dims[0] == 1 && to.dims[1] == 1;
  for (size_t d = 2; fits && d < rank; ++d) fits = to.dims[d] == from.dims[d] || to.dims[d] == 1;
  if (!fits)
    return Status::Error(Code::kBadParam, "x {} must be 1xrowsx… and y {} groupsx1x…", from.Text(),
                         to.Text());
  const int64_t groups = to.dims[0];
  const bool counts =
      offsets->data_type == CUDNN_DATA_INT32 || offsets->data_type == CUDNN_DATA_INT64;
  if (counts && offsets->dims.size() == rank && NumElements(offsets->dims) == offsets->dims[0] &&
      (offsets->dims[0] == groups || offsets->dims[0] == groups + 1))
    return {};
  return Status::Error(
      Code::kBadParam,
      "the offsets {} of {} groups must be {} or {} integers along the first of {} "
      "dims",
      offsets->Text(), groups, groups, groups + 1, rank);
}

// Groups of a dim, which cuDNN's reductions take, too, are split off when the graph is finished.
Status OperationReductionDesc::Import(GraphImport& import) const {
  if (subgraph != nullptr) return ImportUser(import);
  graph::ReductionAttrs attrs{.mode = static_cast<graph::ReductionMode>(reduction->op),
                              .deterministic = reduction->deterministic};
  if (offsets != nullptr) {
    graph::GroupedReduction parts{.attrs = attrs};
    ASSIGN_OR_RETURN(parts.x, import.Tensor(*x[0]));
    ASSIGN_OR_RETURN(parts.offsets, import.Tensor(*offsets));
    ASSIGN_OR_RETURN(parts.y, import.Write(*y[0]));
    ASSIGN_OR_RETURN(parts.compute, ComputeType(reduction->compute_type));
    return graph::SpellGroupedReduction(import.graph(), parts);
  }
  return import.Add(graph::GraphOp::kReduction, {x[0].get()}, {y[0].get()}, reduction->compute_type,
                    attrs);
}

}  // namespace kiln::api
