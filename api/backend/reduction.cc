#include "api/backend/reduction.h"

#include "ir/graph/grouped_reduction.h"

namespace kiln::api {
namespace {

constexpr AttrRow kReductionRows[] = {
    Attr<&ReductionDesc::op>(CUDNN_ATTR_REDUCTION_OPERATOR),
    Attr<&ReductionDesc::compute_type>(CUDNN_ATTR_REDUCTION_COMP_TYPE),
    Attr<&ReductionDesc::deterministic>(CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, Use::kOptional),
};

constexpr const char* kUserDefined = "Kiln has no reductions by a client's own operator yet";

constexpr AttrRow kOperationRows[] = {
    Attr<&OperationReductionDesc::x>(CUDNN_ATTR_OPERATION_REDUCTION_XDESC),
    Attr<&OperationReductionDesc::y>(CUDNN_ATTR_OPERATION_REDUCTION_YDESC),
    Attr<&OperationReductionDesc::reduction>(CUDNN_ATTR_OPERATION_REDUCTION_DESC),
    Attr<&OperationReductionDesc::offsets>(CUDNN_ATTR_OPERATION_REDUCTION_GROUP_OFFSET_DESC,
                                           Use::kOptional),
    Refused(CUDNN_ATTR_OPERATION_REDUCTION_DIMS, kUserDefined),
    Refused(CUDNN_ATTR_OPERATION_REDUCTION_INIT_VALUES, kUserDefined),
    Refused(CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH, kUserDefined),
    Refused(CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH_ACCUMULATOR_UIDS, kUserDefined),
    Refused(CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH_CURRENT_UIDS, kUserDefined),
    Refused(CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH_OUTPUT_UIDS, kUserDefined),
    Refused(CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH_COMPUTE_TYPES, kUserDefined),
};

}  // namespace

std::span<const AttrRow> ReductionDesc::Rows() { return kReductionRows; }
std::span<const AttrRow> OperationReductionDesc::Rows() { return kOperationRows; }

Status OperationReductionDesc::Finalize() {
  if (x->dims.size() != y->dims.size()) {
    return Status::Error(Code::kBadParam, "x {} and y {} differ in rank", x->Text(), y->Text());
  }
  if (offsets != nullptr) return CheckGroups();
  for (size_t i = 0; i < x->dims.size(); ++i) {
    if (x->dims[i] % y->dims[i] == 0) continue;
    return Status::Error(Code::kBadParam, "dimension {} of x {} cannot be reduced to that of y {}",
                         i, x->Text(), y->Text());
  }
  return {};
}

Status OperationReductionDesc::CheckGroups() const {
  const size_t rank = x->dims.size();
  bool fits = rank >= 2 && x->dims[0] == 1 && y->dims[1] == 1;
  for (size_t d = 2; fits && d < rank; ++d) fits = y->dims[d] == x->dims[d] || y->dims[d] == 1;
  if (!fits)
    return Status::Error(Code::kBadParam, "x {} must be 1xrowsx… and y {} groupsx1x…", x->Text(),
                         y->Text());
  const int64_t groups = y->dims[0];
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
  graph::ReductionAttrs attrs{.mode = static_cast<graph::ReductionMode>(reduction->op),
                              .deterministic = reduction->deterministic};
  if (offsets != nullptr) {
    graph::GroupedReduction parts{.attrs = attrs};
    ASSIGN_OR_RETURN(parts.x, import.Tensor(*x));
    ASSIGN_OR_RETURN(parts.offsets, import.Tensor(*offsets));
    ASSIGN_OR_RETURN(parts.y, import.Write(*y));
    ASSIGN_OR_RETURN(parts.compute, ComputeType(reduction->compute_type));
    return graph::SpellGroupedReduction(import.graph(), parts);
  }
  return import.Add(graph::GraphOp::kReduction, {x.get()}, {y.get()}, reduction->compute_type,
                    attrs);
}

}  // namespace kiln::api
