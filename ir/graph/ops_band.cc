// Band matrices: `expand_band_matrix` makes a matrix of its diagonals, `contract_band_matrix` takes
// them out again. `axis`, one of the last two dims, is the one along which the band is stored:
// there the band has lower + upper + 1 elements, and the matrix any number. Element (r, c) of the
// matrix has its place in the band as LAPACK stores bands, for either axis:
//
//   axis = columns   band[r, c - r + lower]      axis = rows   band[r - c + upper, c]
//
// Elements of the matrix outside the band, and of the band outside the matrix, are pad_value.
#include "ir/graph/loops.h"
#include "ir/graph/ops.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

Status VerifyBand(const Graph& graph, const Node& node, const Tensor& band, const Tensor& matrix) {
  RETURN_IF_ERROR(CheckCompute(node, true));
  const auto& a = node.As<BandAttrs>();
  const int64_t rank = matrix.rank();
  if (rank < 2 || band.rank() != rank) {
    return Status::Error(Code::kShapeMismatch,
                         "the band {} and the matrix {} must have one rank, of 2 at least",
                         Shape(band), Shape(matrix));
  }
  if (a.axis != rank - 1 && a.axis != rank - 2)
    return Status::Error(Code::kBadParam, "axis {} is none of the last two of {}", a.axis,
                         Shape(matrix));
  const auto axis = static_cast<size_t>(a.axis);
  const bool small = a.lower >= 0 && a.upper >= 0 && a.lower < kMaxExtent && a.upper < kMaxExtent;
  if (!small || band.dims[axis] != a.lower + a.upper + 1) {
    return Status::Error(Code::kBadParam,
                         "a band of {} diagonals below and {} above the main one has not the {} of "
                         "dim {} of {}",
                         a.lower, a.upper, band.dims[axis], axis, Shape(band));
  }
  for (size_t d = 0; d < band.dims.size(); ++d) {
    if (d == axis || band.dims[d] == matrix.dims[d]) continue;
    return Status::Error(Code::kShapeMismatch, "{} and {} must agree in all dims but {}",
                         Shape(band), Shape(matrix), axis);
  }
  const bool has_bool =
      IsBool(InputOf(graph, node, 0)->dtype) || IsBool(OutputOf(graph, node, 0)->dtype);
  if (has_bool) return Status::Text(Code::kUnsupportedDataType, "a band matrix holds numbers");
  return {};
}

// y[…, i, …, j] for i along the other dim and j along the axis is x's element `j + i * sign +
// shift` of the axis.
void Shear(const EvalArgs& args, int64_t sign, int64_t shift) {
  const auto& a = args.node.As<BandAttrs>();
  const Dims& x = InputOf(args.graph, args.node, 0)->dims;
  const Dims& y = OutputOf(args.graph, args.node, 0)->dims;
  const size_t rank = y.size(), axis = static_cast<size_t>(a.axis), other = 2 * rank - 3 - axis;
  const Dims x_strides = PackedStrides(x), y_strides = PackedStrides(y);
  int64_t batches = 1;
  for (size_t d = 0; d + 2 < rank; ++d) batches *= y[d];
  const int64_t x_matrix = x[rank - 1] * x[rank - 2], y_matrix = y[rank - 1] * y[rank - 2];
  for (int64_t n = 0; n < batches; ++n) {
    for (int64_t i = 0; i < y[other]; ++i) {
      for (int64_t j = 0; j < y[axis]; ++j) {
        const int64_t from = j + sign * i + shift;
        const bool is_inside = from >= 0 && from < x[axis];
        const int64_t at = n * x_matrix + i * x_strides[other] + from * x_strides[axis];
        (*args.outputs[0])[static_cast<size_t>(n * y_matrix + i * y_strides[other] +
                                               j * y_strides[axis])] =
            is_inside ? (*args.inputs[0])[static_cast<size_t>(at)] : a.pad_value;
      }
    }
  }
}

}  // namespace

int64_t BandShift(const BandAttrs& attrs, int64_t rank) {
  return attrs.axis == rank - 1 ? attrs.lower : attrs.upper;
}

Status VerifyExpandBandMatrix(const Graph& graph, const Node& node) {
  return VerifyBand(graph, node, *InputOf(graph, node, 0), *OutputOf(graph, node, 0));
}
Status VerifyContractBandMatrix(const Graph& graph, const Node& node) {
  return VerifyBand(graph, node, *OutputOf(graph, node, 0), *InputOf(graph, node, 0));
}

// A matrix is square unless its extents are given.
Status InferExpandBandMatrix(Graph& graph, const Node& node) {
  const Tensor& x = graph[node.inputs[0]];
  const auto axis = static_cast<size_t>(node.As<BandAttrs>().axis);
  const size_t rank = x.dims.size();
  Dims dims = x.dims;
  if (rank >= 2 && (axis == rank - 1 || axis == rank - 2)) dims[axis] = dims[2 * rank - 3 - axis];
  SetDims(graph[node.outputs[0]], dims, nullptr);
  return {};
}
Status InferContractBandMatrix(Graph& graph, const Node& node) {
  const auto& a = node.As<BandAttrs>();
  Dims dims = graph[node.inputs[0]].dims;
  const bool small = a.lower >= 0 && a.upper >= 0 && a.lower < kMaxExtent && a.upper < kMaxExtent;
  if (small && a.axis >= 0 && a.axis < static_cast<int64_t>(dims.size()))
    dims[static_cast<size_t>(a.axis)] = a.lower + a.upper + 1;
  SetDims(graph[node.outputs[0]], dims, nullptr);
  return {};
}

void EvalExpandBandMatrix(const EvalArgs& args) {
  const int64_t rank = OutputOf(args.graph, args.node, 0)->rank();
  Shear(args, -1, BandShift(args.node.As<BandAttrs>(), rank));
}
void EvalContractBandMatrix(const EvalArgs& args) {
  const int64_t rank = OutputOf(args.graph, args.node, 0)->rank();
  Shear(args, 1, -BandShift(args.node.As<BandAttrs>(), rank));
}

}  // namespace kiln::graph
