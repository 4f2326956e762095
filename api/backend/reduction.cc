#include "api/backend/reduction.h"

#include "ir/shape.h"

namespace kiln::api {
namespace {

constexpr AttrRow kReductionRows[] = {
    Attr<&ReductionDesc::op>(CUDNN_ATTR_REDUCTION_OPERATOR),
    Attr<&ReductionDesc::compute_type>(CUDNN_ATTR_REDUCTION_COMP_TYPE),
    Attr<&ReductionDesc::deterministic>(CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, Use::kOptional),
};

constexpr AttrRow kOperationRows[] = {
    Attr<&OperationReductionDesc::x>(CUDNN_ATTR_OPERATION_REDUCTION_XDESC),
    Attr<&OperationReductionDesc::y>(CUDNN_ATTR_OPERATION_REDUCTION_YDESC),
    Attr<&OperationReductionDesc::reduction>(CUDNN_ATTR_OPERATION_REDUCTION_DESC),
};

// The reduction of runs as a reduction of whole dimensions: a dimension of 12 that goes to 3
// becomes 3x4, of which the 4 goes.
struct Split {
  Dims x_dims, x_strides, y_dims;
  bool any = false;
};

Split SplitRuns(const TensorDesc& x, const TensorDesc& y) {
  Split split;
  for (size_t i = 0; i < x.dims.size(); ++i) {
    int64_t run = x.dims[i] / y.dims[i];
    if (y.dims[i] == 1 || run == 1) {
      split.x_dims.push_back(x.dims[i]);
      split.x_strides.push_back(x.strides[i]);
      split.y_dims.push_back(y.dims[i]);
      continue;
    }
    split.any = true;
    split.x_dims.insert(split.x_dims.end(), {y.dims[i], run});
    split.x_strides.insert(split.x_strides.end(), {x.strides[i] * run, x.strides[i]});
    split.y_dims.insert(split.y_dims.end(), {y.dims[i], 1});
  }
  return split;
}

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

Status OperationReductionDesc::Import(GraphImport& import) const {
  graph::ReductionAttrs attrs{.mode = static_cast<graph::ReductionMode>(reduction->op),
                              .deterministic = reduction->deterministic};
  Split split = SplitRuns(*x, *y);
  if (!split.any) {
    return import.Add(graph::GraphOp::kReduction, {x.get()}, {y.get()}, reduction->compute_type,
                      attrs);
  }
  ASSIGN_OR_RETURN(DType x_type, ElementType(x->data_type));
  ASSIGN_OR_RETURN(DType y_type, ElementType(y->data_type));
  ASSIGN_OR_RETURN(DType x_moving, ComputeType(MovingType(x->data_type)));
  ASSIGN_OR_RETURN(DType y_moving, ComputeType(MovingType(y->data_type)));
  ASSIGN_OR_RETURN(DType compute, ComputeType(reduction->compute_type));
  ASSIGN_OR_RETURN(graph::TensorId from, import.Tensor(*x));
  ASSIGN_OR_RETURN(graph::TensorId to, import.Tensor(*y));
  graph::TensorId runs = import.Temporary(x_type, split.x_dims, split.x_strides);
  graph::TensorId reduced = import.Temporary(y_type, split.y_dims, PackedStrides(split.y_dims));
  import.AddNode(graph::GraphOp::kReshape, {from}, {runs}, x_moving, graph::ReshapeAttrs{});
  import.AddNode(graph::GraphOp::kReduction, {runs}, {reduced}, compute, attrs);
  import.AddNode(graph::GraphOp::kReshape, {reduced}, {to}, y_moving, graph::ReshapeAttrs{});
  return {};
}

}  // namespace kiln::api
