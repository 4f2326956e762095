// Networks of recurrent layers: what they take and how large results are (operands in rnn.h). What
// they compute is in ops_rnn_eval.cc.
#include <algorithm>

#include "ir/graph/ops.h"
#include "ir/graph/rnn.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

namespace fwd = rnn_forward;
namespace bwd = rnn_backward_data;
namespace wgt = rnn_backward_weights;

// ---- verify ----

Status CheckAttrs(const RnnAttrs& a) {
  if (a.layers < 1 || a.hidden < 1 || a.projected < 1)
    return Status::Error(Code::kBadParam, "{} layers of {} units, {} projected: each is at least 1",
                         a.layers, a.hidden, a.projected);
  constexpr int64_t kMost = int64_t{1} << 20;
  if (a.layers > kMost || a.hidden > kMost || a.projected > a.hidden)
    return Status::Error(Code::kNotSupported,
                         "{} layers of {} units, {} projected: at most {} layers and units, and no "
                         "more are projected than there are units",
                         a.layers, a.hidden, a.projected, kMost);
  if (IsProjected(a) && a.cell != RnnCell::kLstm)
    return Status::Error(
        Code::kNotSupported,
        "{} of {} units are projected; an lstm's states are, those of a {} have as "
        "many columns as units",
        a.projected, a.hidden, Text(a.cell));
  if (a.clip && (a.cell != RnnCell::kLstm || !(a.clip_lower <= a.clip_upper)))
    return Status::Error(Code::kBadParam, "a {} with a clip from {} to {}", Text(a.cell),
                         a.clip_lower, a.clip_upper);
  if (!(a.dropout >= 0 && a.dropout <= 1))
    return Status::Error(Code::kBadParam, "dropout {} is no probability", a.dropout);
  return {};
}

bool IsDataType(DType type) {
  return type == DType::kF16 || type == DType::kBF16 || type == DType::kF32 || type == DType::kF64;
}

Status CheckLengths(const Tensor* lengths, const RnnExtents& e) {
  if (lengths == nullptr) {
    if (!e.packed) return {};
    return Status::Text(Code::kBadParam, "packed data have lengths");
  }
  if (lengths->dtype != DType::kI32)
    return Status::Error(Code::kUnsupportedDataType, "lengths %{} are {}, not i32", lengths->name,
                         Info(lengths->dtype).text);
  return ExpectDims(*lengths, {e.batch}, "the number of sequences");
}

struct Expected {
  const Tensor* tensor;
  Dims dims;
  const char* because;
};

// Absent tensors are as they should be.
Status CheckTensors(std::span<const Expected> rows, DType type) {
  for (const Expected& row : rows) {
    if (row.tensor == nullptr) continue;
    if (row.tensor->dtype != type)
      return Status::Error(Code::kUnsupportedDataType, "%{} is {}, the data are {}",
                           row.tensor->name, Info(row.tensor->dtype).text, Info(type).text);
    RETURN_IF_ERROR(ExpectDims(*row.tensor, row.dims, row.because));
  }
  return {};
}

// The extents of data and whether data, lengths and compute type go together.
Result<RnnExtents> CheckData(const Node& node, const Tensor* data, const Tensor* lengths) {
  const auto& a = node.As<RnnAttrs>();
  RETURN_IF_ERROR(CheckAttrs(a));
  if (data == nullptr) return Status::Text(Code::kBadParam, "a network has data");
  if (!IsDataType(data->dtype))
    return Status::Error(Code::kUnsupportedDataType, "%{} is {}, none of f64, f32, f16, bf16",
                         data->name, Info(data->dtype).text);
  const bool computes =
      node.compute == DType::kF64 || (node.compute == DType::kF32 && data->dtype != DType::kF64);
  if (!computes)
    return Status::Error(Code::kUnsupportedDataType, "compute type {} for data of {}",
                         Info(node.compute).text, Info(data->dtype).text);
  if (data->rank() != 2 && data->rank() != 3)
    return Status::Error(Code::kShapeMismatch, "{} is neither [T,B,width] nor packed, [rows,width]",
                         Shape(*data));
  const RnnExtents e = RnnExtentsOf(a, *data, lengths);
  if (e.packed ? a.steps < 1 : a.steps != 0 && a.steps != e.steps)
    return Status::Error(Code::kBadParam, "{} steps for {}: packed data say theirs, and no others",
                         a.steps, Shape(*data));
  RETURN_IF_ERROR(CheckLengths(lengths, e));
  if (e.packed && data->dims[0] > e.steps * e.batch)
    return Status::Error(Code::kShapeMismatch, "{} has more rows than {} steps of {} sequences",
                         Shape(*data), e.steps, e.batch);
  return e;
}

// x with another width.
Dims DataDims(const Tensor& x, int64_t width) {
  Dims dims = x.dims;
  dims.back() = width;
  return dims;
}

Status CheckWeights(const RnnAttrs& a, const Tensor* w, int64_t input, DType type, bool exact) {
  if (w == nullptr) return {};
  const int64_t needed = RnnWeightElements(a, input);
  if (w->dtype != type)
    return Status::Error(Code::kUnsupportedDataType, "%{} is {}, the data are {}", w->name,
                         Info(w->dtype).text, Info(type).text);
  const bool fits = w->rank() == 1 && (exact ? w->dims[0] == needed : w->dims[0] >= needed);
  if (fits) return {};
  return Status::Error(Code::kShapeMismatch, "{} is no weight space of {} elements", Shape(*w),
                       needed);
}

Status CheckSkip(const RnnAttrs& a, int64_t input) {
  if (!a.skip_input || input == a.hidden) return {};
  return Status::Error(Code::kShapeMismatch, "an input of width {} is skipped to {} units", input,
                       a.hidden);
}

Status CheckNoCells(const Graph& graph, const Node& node, std::initializer_list<size_t> inputs,
                    std::initializer_list<size_t> outputs) {
  if (node.As<RnnAttrs>().cell == RnnCell::kLstm) return {};
  const bool any =
      std::ranges::any_of(inputs, [&](size_t i) { return InputOf(graph, node, i) != nullptr; }) ||
      std::ranges::any_of(outputs, [&](size_t i) { return OutputOf(graph, node, i) != nullptr; });
  if (!any) return {};
  return Status::Error(Code::kBadParam, "a {} has no cells: an lstm has",
                       Text(node.As<RnnAttrs>().cell));
}

Status CheckScalar(const Tensor* t, const char* name) {
  if (t == nullptr || (NumElements(t->dims) == 1 && IsInteger(t->dtype))) return {};
  return Status::Error(Code::kShapeMismatch, "{} {} is not one integer", name, Shape(*t));
}

Dims StateDims(const RnnAttrs& a, int64_t batch) {
  return {a.layers * DirectionsOf(a), batch, a.projected};
}
Dims CellDims(const RnnAttrs& a, int64_t batch) {
  return {a.layers * DirectionsOf(a), batch, a.hidden};
}

void InferAs(Graph& graph, const Node& node, size_t output, const Dims& dims, const Tensor* like) {
  if (output < node.outputs.size() && node.outputs[output] != kAbsent)
    SetDims(graph[node.outputs[output]], dims, like);
}

}  // namespace

Status VerifyRnnForward(const Graph& graph, const Node& node) {
  const auto& a = node.As<RnnAttrs>();
  const Tensor *x = InputOf(graph, node, fwd::kX), *w = InputOf(graph, node, fwd::kW),
               *reserve = OutputOf(graph, node, fwd::kReserve);
  ASSIGN_OR_RETURN(const RnnExtents e, CheckData(node, x, InputOf(graph, node, fwd::kLengths)));
  if (w == nullptr) return Status::Text(Code::kBadParam, "a network has weights");
  RETURN_IF_ERROR(CheckSkip(a, e.width));
  RETURN_IF_ERROR(CheckWeights(a, w, e.width, x->dtype, false));
  RETURN_IF_ERROR(CheckNoCells(graph, node, {fwd::kCx}, {fwd::kCy}));
  RETURN_IF_ERROR(CheckScalar(InputOf(graph, node, fwd::kSeed), "seed"));
  RETURN_IF_ERROR(CheckScalar(InputOf(graph, node, fwd::kOffset), "offset"));
  if (reserve != nullptr && HasDropout(a) && InputOf(graph, node, fwd::kSeed) == nullptr)
    return Status::Text(Code::kBadParam, "dropout needs a seed");
  const Dims h = StateDims(a, e.batch), c = CellDims(a, e.batch);
  const Expected rows[] = {
      {InputOf(graph, node, fwd::kHx), h, "a state"},
      {InputOf(graph, node, fwd::kCx), c, "a cell"},
      {OutputOf(graph, node, fwd::kY), DataDims(*x, DirectionsOf(a) * a.projected), "its layers"},
      {OutputOf(graph, node, fwd::kHy), h, "a state"},
      {OutputOf(graph, node, fwd::kCy), c, "a cell"},
      {reserve, {RnnReserveElements(a, e.steps, e.batch)}, "what a gradient needs"}};
  return CheckTensors(rows, x->dtype);
}

Status InferRnnForward(Graph& graph, const Node& node) {
  const auto& a = node.As<RnnAttrs>();
  if (InputOf(graph, node, fwd::kX) == nullptr || !CheckAttrs(a).ok()) return {};
  const Tensor x = *InputOf(graph, node, fwd::kX);
  if (x.rank() != 2 && x.rank() != 3) return {};  // Verify has the sentence
  const RnnExtents e = RnnExtentsOf(a, x, InputOf(graph, node, fwd::kLengths));
  InferAs(graph, node, fwd::kY, DataDims(x, DirectionsOf(a) * a.projected), &x);
  InferAs(graph, node, fwd::kHy, StateDims(a, e.batch), nullptr);
  InferAs(graph, node, fwd::kCy, CellDims(a, e.batch), nullptr);
  InferAs(graph, node, fwd::kReserve, {RnnReserveElements(a, e.steps, e.batch)}, nullptr);
  return {};
}

Status VerifyRnnBackwardData(const Graph& graph, const Node& node) {
  const auto& a = node.As<RnnAttrs>();
  const Tensor *y = InputOf(graph, node, bwd::kY), *dx = OutputOf(graph, node, bwd::kDx),
               *gradients = OutputOf(graph, node, bwd::kGradients);
  ASSIGN_OR_RETURN(const RnnExtents e, CheckData(node, y, InputOf(graph, node, bwd::kLengths)));
  for (const size_t i : {bwd::kDy, bwd::kW, bwd::kReserve})
    if (InputOf(graph, node, i) == nullptr)
      return Status::Text(Code::kBadParam, "y, dy, weights and reserve are operands of a gradient");
  if (dx == nullptr || gradients == nullptr || dx->rank() != y->rank())
    return Status::Error(Code::kBadParam, "dx and gradients are results, dx as {} with its width",
                         Shape(*y));
  const int64_t input = dx->dims.back();
  RETURN_IF_ERROR(CheckSkip(a, input));
  RETURN_IF_ERROR(CheckWeights(a, InputOf(graph, node, bwd::kW), input, y->dtype, false));
  RETURN_IF_ERROR(CheckNoCells(graph, node, {bwd::kCx, bwd::kDcy}, {bwd::kDcx}));
  const Dims h = StateDims(a, e.batch), c = CellDims(a, e.batch);
  const Dims data = DataDims(*y, DirectionsOf(a) * a.projected);
  const Expected rows[] = {{y, data, "its layers"},
                           {InputOf(graph, node, bwd::kDy), data, "its layers"},
                           {InputOf(graph, node, bwd::kReserve),
                            {RnnReserveElements(a, e.steps, e.batch)},
                            "what a gradient needs"},
                           {InputOf(graph, node, bwd::kHx), h, "a state"},
                           {InputOf(graph, node, bwd::kCx), c, "a cell"},
                           {InputOf(graph, node, bwd::kDhy), h, "a state"},
                           {InputOf(graph, node, bwd::kDcy), c, "a cell"},
                           {dx, DataDims(*y, input), "y"},
                           {gradients, {RnnGradientElements(a, e.steps, e.batch)}, "all gates"},
                           {OutputOf(graph, node, bwd::kDhx), h, "a state"},
                           {OutputOf(graph, node, bwd::kDcx), c, "a cell"}};
  return CheckTensors(rows, y->dtype);
}

Status InferRnnBackwardData(Graph& graph, const Node& node) {
  const auto& a = node.As<RnnAttrs>();
  if (InputOf(graph, node, bwd::kY) == nullptr || !CheckAttrs(a).ok()) return {};
  const Tensor y = *InputOf(graph, node, bwd::kY);
  if (y.rank() != 2 && y.rank() != 3) return {};  // Verify has the sentence
  Tensor& dx = graph[node.outputs[bwd::kDx]];
  if (dx.dims.empty())
    return Status::Error(Code::kBadParam, "%{} has no extents: its width is nowhere else", dx.name);
  SetDims(dx, dx.dims, &y);
  const RnnExtents e = RnnExtentsOf(a, y, InputOf(graph, node, bwd::kLengths));
  InferAs(graph, node, bwd::kGradients, {RnnGradientElements(a, e.steps, e.batch)}, nullptr);
  InferAs(graph, node, bwd::kDhx, StateDims(a, e.batch), nullptr);
  InferAs(graph, node, bwd::kDcx, CellDims(a, e.batch), nullptr);
  return {};
}

Status VerifyRnnBackwardWeights(const Graph& graph, const Node& node) {
  const auto& a = node.As<RnnAttrs>();
  const Tensor *x = InputOf(graph, node, wgt::kX), *y = InputOf(graph, node, wgt::kY);
  ASSIGN_OR_RETURN(const RnnExtents e, CheckData(node, x, InputOf(graph, node, wgt::kLengths)));
  for (const size_t i : {wgt::kY, wgt::kReserve, wgt::kGradients})
    if (InputOf(graph, node, i) == nullptr)
      return Status::Text(Code::kBadParam,
                          "x, y, reserve and gradients are operands of a gradient of weights");
  RETURN_IF_ERROR(CheckSkip(a, e.width));
  for (const Tensor* w : {OutputOf(graph, node, wgt::kDw), InputOf(graph, node, wgt::kBefore)})
    RETURN_IF_ERROR(CheckWeights(a, w, e.width, x->dtype, true));
  const Expected rows[] = {{y, DataDims(*x, DirectionsOf(a) * a.projected), "its layers"},
                           {InputOf(graph, node, wgt::kReserve),
                            {RnnReserveElements(a, e.steps, e.batch)},
                            "what a gradient needs"},
                           {InputOf(graph, node, wgt::kGradients),
                            {RnnGradientElements(a, e.steps, e.batch)},
                            "all gates"},
                           {InputOf(graph, node, wgt::kHx), StateDims(a, e.batch), "a state"}};
  return CheckTensors(rows, x->dtype);
}

Status InferRnnBackwardWeights(Graph& graph, const Node& node) {
  const auto& a = node.As<RnnAttrs>();
  const Tensor* x = InputOf(graph, node, wgt::kX);
  if (x == nullptr || x->dims.empty() || !CheckAttrs(a).ok()) return {};
  InferAs(graph, node, wgt::kDw, {RnnWeightElements(a, x->dims.back())}, nullptr);
  return {};
}

}  // namespace kiln::graph
