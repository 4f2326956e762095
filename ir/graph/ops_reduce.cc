// Reductions: `reduction` (cudnnReduceTensorOp_t) and `reduce` (the associative combiners that it
// is decomposed to). Each dim where the output has extent 1 is reduced. A reduction over nothing
// gives the identity of its combiner: 0, 1, +inf, -inf; so amax of nothing is -inf, and the average
// of nothing is NaN.
#include <cmath>

#include "ir/graph/loops.h"
#include "ir/graph/ops.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

struct ReductionRow {
  Combine combine;
  double (*prepare)(double x);
};

double Keep(double x) { return x; }
double Magnitude(double x) { return std::fabs(x); }

// In the order of ReductionMode; avg and norm2 have a last step on the result, in EvalReduction.
constexpr ReductionRow kRows[] = {
    {Combine::kAdd, Keep},
    {Combine::kMul, Keep},
    {Combine::kMin, Keep},
    {Combine::kMax, Keep},
    {Combine::kMax, Magnitude},
    {Combine::kAdd, Keep},
    {Combine::kAdd, Magnitude},
    {Combine::kAdd, [](double x) { return x * x; }},
    {Combine::kMul, [](double x) { return x == 0 ? 1.0 : x; }},
};

Status VerifyReducedDims(const Graph& graph, const Node& node) {
  const Tensor& x = *InputOf(graph, node, 0);
  const Tensor& y = *OutputOf(graph, node, 0);
  RETURN_IF_ERROR(CheckCompute(node, false));
  RETURN_IF_ERROR(RejectBool(graph, node));
  if (x.rank() != y.rank()) {
    return Status::Error(
        Code::kShapeMismatch,
        "{} has {} dims, its reduction {} has {}: reduced dims stay, with extent 1", Shape(x),
        x.rank(), Shape(y), y.rank());
  }
  for (size_t d = 0; d < x.dims.size(); ++d) {
    if (y.dims[d] == 1 || y.dims[d] == x.dims[d]) continue;
    return Status::Error(Code::kShapeMismatch,
                         "dim {} of {} must be {} (kept) or 1 (reduced), as {} says", d, Shape(y),
                         x.dims[d], Shape(x));
  }
  return {};
}

Status InferReducedDims(const Graph& graph, const Node& node) {
  const Tensor& y = *OutputOf(graph, node, 0);
  if (!y.dims.empty()) return {};
  return Status::Error(Code::kBadParam,
                       "%{} has no extents: a reduction's output says which dims are reduced",
                       y.name);
}

template <class F>
void EvalCombine(const EvalArgs& args, Combine combine, F&& prepare) {
  const Dims& x_dims = InputOf(args.graph, args.node, 0)->dims;
  const std::vector<double>& x = *args.inputs[0];
  std::vector<double>& y = *args.outputs[0];
  const ScalarOp op = ScalarOf(combine);
  y.assign(y.size(), IdentityOf(combine));
  const std::array<Dims, 2> steps = {
      PackedStrides(x_dims), BroadcastSteps(OutputOf(args.graph, args.node, 0)->dims, x_dims)};
  ForEachRow<2>(
      x_dims, steps,
      [&](const std::array<int64_t, 2>& at, int64_t count, const std::array<int64_t, 2>& step) {
        const double* in = x.data() + at[0];
        double* out = y.data() + at[1];
        if (combine == Combine::kAdd) {
          for (int64_t i = 0; i < count; ++i) out[i * step[1]] += prepare(in[i * step[0]]);
          return;
        }
        for (int64_t i = 0; i < count; ++i) {
          out[i * step[1]] = EvalScalar(op, out[i * step[1]], prepare(in[i * step[0]]));
        }
      });
}

void WrapIntegers(const EvalArgs& args) {
  if (!IsInteger(args.node.compute)) return;
  for (double& value : *args.outputs[0]) {
    if (std::isfinite(value))
      value = static_cast<double>(ToComputeInt(args.node.compute, std::trunc(value)));
  }
}

}  // namespace

Status VerifyReduction(const Graph& graph, const Node& node) {
  return VerifyReducedDims(graph, node);
}
Status VerifyReduce(const Graph& graph, const Node& node) { return VerifyReducedDims(graph, node); }

Status InferReduction(Graph& graph, const Node& node) {
  RETURN_IF_ERROR(InferReducedDims(graph, node));
  SetDims(graph[node.outputs[0]], {}, &graph[node.inputs[0]]);
  return {};
}
Status InferReduce(Graph& graph, const Node& node) { return InferReduction(graph, node); }

void EvalReduction(const EvalArgs& args) {
  const ReductionMode mode = args.node.As<ReductionAttrs>().mode;
  const ReductionRow& row = kRows[static_cast<size_t>(mode)];
  EvalCombine(args, row.combine, row.prepare);
  std::vector<double>& y = *args.outputs[0];
  if (mode == ReductionMode::kAvg && !y.empty()) {
    const double count =
        static_cast<double>(args.inputs[0]->size()) / static_cast<double>(y.size());
    for (double& value : y) value /= count;
  }
  if (mode == ReductionMode::kNorm2) {
    for (double& value : y) value = std::sqrt(value);
  }
  WrapIntegers(args);
}

void EvalReduce(const EvalArgs& args) {
  EvalCombine(args, args.node.As<ReduceAttrs>().combine, Keep);
  WrapIntegers(args);
}

}  // namespace kiln::graph
