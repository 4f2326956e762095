#include "api/backend/reduction.h"

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
    Refused(CUDNN_ATTR_OPERATION_REDUCTION_GROUP_OFFSET_DESC,
            "Kiln reduces no groups that begin at offsets yet"),
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
  for (size_t i = 0; i < x->dims.size(); ++i) {
    if (x->dims[i] % y->dims[i] == 0) continue;
    return Status::Error(Code::kBadParam, "dimension {} of x {} cannot be reduced to that of y {}",
                         i, x->Text(), y->Text());
  }
  return {};
}

// Groups of a dim, which cuDNN's reductions take, too, are split off when the graph is finished.
Status OperationReductionDesc::Import(GraphImport& import) const {
  graph::ReductionAttrs attrs{.mode = static_cast<graph::ReductionMode>(reduction->op),
                              .deterministic = reduction->deterministic};
  return import.Add(graph::GraphOp::kReduction, {x.get()}, {y.get()}, reduction->compute_type,
                    attrs);
}

}  // namespace kiln::api
