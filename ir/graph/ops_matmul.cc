// Matrix products: batched, with broadcast batch dims, grouped heads, and the M, N and K overrides
// of attention.
//
// An override limits one batch: result rows at or beyond M and columns at or beyond N are
// padding_value, and the sum runs over the first K elements of the depth.
#include <algorithm>
#include <array>

#include "ir/graph/loops.h"
#include "ir/graph/ops.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

constexpr const char* kOverrideNames[] = {"M override", "N override", "K override"};

// The result's extent of one batch dim, or none: equal, one of them 1, or a's a multiple of b's.
std::optional<int64_t> BatchExtent(int64_t a, int64_t b) {
  if (a == b || b == 1) return a;
  if (a == 1) return b;
  if (b != 0 && a % b == 0) return a;
  return std::nullopt;
}

Result<Dims> ProductDims(const Tensor& a, const Tensor& b) {
  if (a.rank() < 2 || b.rank() != a.rank()) {
    return Status::Error(Code::kShapeMismatch,
                         "{} and {}: operands of matmul have the same 2 or more dims", Shape(a),
                         Shape(b));
  }
  const size_t batch = a.dims.size() - 2;
  Dims dims(batch);
  for (size_t d = 0; d < batch; ++d) {
    const auto extent = BatchExtent(a.dims[d], b.dims[d]);
    if (!extent) {
      return Status::Error(Code::kShapeMismatch,
                           "batch dim {} of {} must equal that of {}, be 1, or be a multiple of it",
                           d, Shape(a), Shape(b));
    }
    dims[d] = *extent;
  }
  if (a.dims[batch + 1] != b.dims[batch]) {
    return Status::Error(Code::kShapeMismatch, "{} has depth {}, {} has {}", Shape(a),
                         a.dims[batch + 1], Shape(b), b.dims[batch]);
  }
  dims.push_back(a.dims[batch]);
  dims.push_back(b.dims[batch + 1]);
  return dims;
}

Status VerifyOverride(const Tensor& limit, const Tensor& c, const char* name) {
  if (limit.dtype != DType::kI32 && limit.dtype != DType::kI64) {
    return Status::Error(Code::kUnsupportedDataType, "{} %{} is {}, not i32 or i64", name,
                         limit.name, Info(limit.dtype).text);
  }
  const size_t rank = c.dims.size();
  const bool same_rank = limit.dims.size() == rank;
  for (size_t d = 0; same_rank && d < rank; ++d) {
    const bool fits = limit.dims[d] == 1 || (d + 2 < rank && limit.dims[d] == c.dims[d]);
    if (fits) continue;
    return Status::Error(Code::kShapeMismatch, "{} {}: dim {} must be 1{}", name, Shape(limit), d,
                         d + 2 < rank ? fmt::format(" or {}, as in {}", c.dims[d], Shape(c)) : "");
  }
  if (same_rank) return {};
  return Status::Error(Code::kShapeMismatch, "{} {} has {} dims, the result {} has {}", name,
                       Shape(limit), limit.rank(), Shape(c), c.rank());
}

// The offset of an operand's matrix for each batch of the result, in row-major order of the batch
// dims.
std::vector<int64_t> MatrixOffsets(const Dims& dims, const Dims& out_dims) {
  std::vector<int64_t> offsets(1, 0);
  for (size_t d = 0; d + 2 < out_dims.size(); ++d) {
    std::vector<int64_t> next;
    const int64_t repeats = dims[d] == 0 ? 1 : out_dims[d] / dims[d];
    for (const int64_t base : offsets) {
      for (int64_t i = 0; i < out_dims[d]; ++i) {
        next.push_back(base * dims[d] + (dims[d] == 1 ? 0 : i / std::max<int64_t>(repeats, 1)));
      }
    }
    offsets = std::move(next);
  }
  const int64_t matrix = dims[dims.size() - 2] * dims[dims.size() - 1];
  for (int64_t& offset : offsets) offset *= matrix;
  return offsets;
}

struct Extents {
  int64_t m, n, k;
};

// c[m, n] += a[m, k] * b[k, n], all dense; `limit` is what the overrides leave of `full`.
void MultiplyMatrix(const double* a, const double* b, double* c, const Extents& full,
                    const Extents& limit, double padding) {
  for (int64_t m = 0; m < full.m; ++m) {
    double* row = c + m * full.n;
    std::fill(row, row + full.n, m < limit.m ? 0 : padding);
    if (m >= limit.m) continue;
    for (int64_t k = 0; k < limit.k; ++k) {
      const double factor = a[m * full.k + k];
      const double* b_row = b + k * full.n;
      for (int64_t n = 0; n < limit.n; ++n) row[n] += factor * b_row[n];
    }
    std::fill(row + limit.n, row + full.n, padding);
  }
}

}  // namespace

Status VerifyMatmul(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(CheckCompute(node, false));
  RETURN_IF_ERROR(RejectBool(graph, node));
  if (InputOf(graph, node, 0) == nullptr || InputOf(graph, node, 1) == nullptr) {
    return Status::Error(Code::kBadParam, "a matmul has two operands");
  }
  const Tensor& a = *InputOf(graph, node, 0);
  const Tensor& b = *InputOf(graph, node, 1);
  const Tensor& c = *OutputOf(graph, node, 0);
  ASSIGN_OR_RETURN(const Dims dims, ProductDims(a, b));
  RETURN_IF_ERROR(ExpectDims(c, dims, fmt::format("the product of {} and {}", Shape(a), Shape(b))));
  for (size_t i = 0; i < 3; ++i) {
    const Tensor* limit = InputOf(graph, node, 2 + i);
    if (limit != nullptr) RETURN_IF_ERROR(VerifyOverride(*limit, c, kOverrideNames[i]));
  }
  return {};
}

Status InferMatmul(Graph& graph, const Node& node) {
  const Tensor& a = graph[node.inputs[0]];
  const auto dims = ProductDims(a, graph[node.inputs[1]]);
  if (dims.ok()) SetDims(graph[node.outputs[0]], *dims, nullptr);
  return {};  // Verify has the sentence
}

void EvalMatmul(const EvalArgs& args) {
  const Dims& a_dims = InputOf(args.graph, args.node, 0)->dims;
  const Dims& b_dims = InputOf(args.graph, args.node, 1)->dims;
  const Dims& c_dims = OutputOf(args.graph, args.node, 0)->dims;
  const size_t rank = c_dims.size();
  const Extents full = {c_dims[rank - 2], c_dims[rank - 1], a_dims[rank - 1]};
  const auto a_at = MatrixOffsets(a_dims, c_dims);
  const auto b_at = MatrixOffsets(b_dims, c_dims);
  std::array<std::vector<int64_t>, 3> limit_at;
  for (size_t i = 0; i < 3; ++i) {
    if (const Tensor* t = InputOf(args.graph, args.node, 2 + i))
      limit_at[i] = MatrixOffsets(t->dims, c_dims);
  }
  const auto limit = [&](size_t which, size_t batch, int64_t extent) {
    if (limit_at[which].empty()) return extent;
    const double value = (*args.inputs[2 + which])[static_cast<size_t>(limit_at[which][batch])];
    return std::clamp(static_cast<int64_t>(value), int64_t{0}, extent);
  };
  double* c = args.outputs[0]->data();
  for (size_t batch = 0; batch < a_at.size(); ++batch) {
    const Extents limits = {limit(0, batch, full.m), limit(1, batch, full.n),
                            limit(2, batch, full.k)};
    MultiplyMatrix(args.inputs[0]->data() + a_at[batch], args.inputs[1]->data() + b_at[batch],
                   c + static_cast<int64_t>(batch) * full.m * full.n, full, limits,
                   args.node.As<MatmulAttrs>().padding_value);
  }
  if (!IsInteger(args.node.compute)) return;
  for (double& value : *args.outputs[0])
    value = static_cast<double>(ToComputeInt(args.node.compute, value));
}

}  // namespace kiln::graph
