#include "api/legacy/calls/rnn_call.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "api/legacy/plans/host_values.h"
#include "ir/graph/ops.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;
using graph::TensorId;

constexpr size_t kAlignment = 256;

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

size_t BytesOf(const TensorDesc& t) {
  return static_cast<size_t>(Span(t)) * static_cast<size_t>(ElementBytes(t.type));
}

Result<TensorDesc> Packed(int type, std::initializer_list<int64_t> extents, std::string_view what) {
  TensorDesc t = {.type = type, .rank = static_cast<int32_t>(extents.size())};
  int64_t stride = 1;
  for (int32_t d = t.rank; d-- > 0;) {
    const int64_t extent = extents.begin()[d];
    if (extent <= 0 || stride * extent > INT32_MAX)
      return Status::Error(Code::kNotSupported,
                           "{} of [{}] elements; 2^31 - 1 elements are possible", what,
                           fmt::join(extents, ","));
    t.dims[static_cast<size_t>(d)] = static_cast<int32_t>(extent);
    t.strides[static_cast<size_t>(d)] = static_cast<int32_t>(stride);
    stride *= extent;
  }
  return t;
}

Result<TensorDesc> DataTensor(const RnnDataDesc& d, int64_t rows, int width) {
  if (d.IsPacked()) return Packed(d.type, {rows, width}, "packed RNN data");
  const bool by_batch = d.layout == CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED;
  const int64_t outer = by_batch ? d.batch : d.steps, inner = by_batch ? d.steps : d.batch;
  ASSIGN_OR_RETURN(TensorDesc t, Packed(d.type, {outer, inner, width}, "RNN data"));
  if (!by_batch) return t;
  std::swap(t.dims[0], t.dims[1]);
  std::swap(t.strides[0], t.strides[1]);
  return t;
}

// The input as the network takes it: sizes depend on it, too.
Status CheckInput(const RnnDesc& rnn, const RnnDataDesc& x) {
  if (x.type == rnn.type && x.width == rnn.input) return {};
  return Status::Error(Code::kBadParam,
                       "x is {} wide and has type {}; the network takes {} of type {}", x.width,
                       x.type, rnn.input, rnn.type);
}

// One network's input and output.
Status CheckPair(const RnnDesc& rnn, const graph::RnnAttrs& attrs, const RnnDataDesc& x,
                 const RnnDataDesc& y) {
  RETURN_IF_ERROR(CheckInput(rnn, x));
  if (y.type != rnn.type)
    return Status::Error(Code::kBadParam, "y has type {}, the network type {}", y.type, rnn.type);
  if (x.layout != y.layout)
    return Status::Error(Code::kBadParam, "x has layout {}, y layout {}", x.layout, y.layout);
  if (x.steps != y.steps || x.batch != y.batch || x.lengths != y.lengths)
    return Status::Error(Code::kBadParam,
                         "x has {} sequences of up to {} steps, y {} of up to {}, or their lengths "
                         "differ",
                         x.batch, x.steps, y.batch, y.steps);
  const int64_t out = attrs.projected * graph::DirectionsOf(attrs);
  if (y.width != out)
    return Status::Error(Code::kBadParam, "y is {} wide; the network makes {}", y.width, out);
  const bool is_padded = (rnn.flags & CUDNN_RNN_PADDED_IO_ENABLED) != 0;
  const bool by_step = x.layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
  if (!x.IsPacked() && !is_padded && !(by_step && x.IsFull()))
    return Status::Text(Code::kBadParam,
                        "unpacked data that is not whole sequences, step by step, needs "
                        "CUDNN_RNN_PADDED_IO_ENABLED");
  return {};
}

Status CheckSkip(const RnnDesc& rnn) {
  if (rnn.input_mode != CUDNN_SKIP_INPUT || rnn.input == rnn.hidden) return {};
  return Status::Error(
      Code::kBadParam,
      "CUDNN_SKIP_INPUT with an input of {} elements and {} hidden ones; they have "
      "to be as many",
      rnn.input, rnn.hidden);
}

// A few numbers are kept for each hidden element. Error: they cannot be counted.
Status CheckKept(int64_t pseudo_layers, int64_t rows, int64_t hidden) {
  const double elements =
      static_cast<double>(pseudo_layers) * static_cast<double>(rows) * static_cast<double>(hidden);
  if (elements <= static_cast<double>(INT32_MAX)) return {};
  return Status::Error(Code::kNotSupported,
                       "training on {} hidden elements in all; 2^31 - 1 are possible", elements);
}

// The dropout of a call that drops elements between layers; else null.
Result<const DropoutDesc*> DropoutOf(const RnnDesc& rnn, bool trains) {
  if (!trains || rnn.layers == 1 || rnn.dropout == nullptr) return nullptr;
  ASSIGN_OR_RETURN(const DropoutDesc* desc, Get<DropoutDesc>(rnn.dropout));
  return desc->dropout > 0 ? desc : nullptr;
}

}  // namespace

Status RnnProblem::Fill(const RnnDesc& rnn, bool trains, const RnnDataDesc& data, int64_t rows) {
  RETURN_IF_ERROR(CheckSkip(rnn));
  attrs = AttrsOf(rnn);
  ASSIGN_OR_RETURN(dropout, DropoutOf(rnn, trains));
  if (dropout != nullptr) attrs.dropout = static_cast<double>(dropout->dropout);
  attrs.steps = data.IsPacked() ? data.steps : 0;
  only_fma = rnn.math == CUDNN_FMA_MATH;
  const int64_t batch = data.batch, steps = data.steps, pseudo_layers = PseudoLayers(rnn);
  const auto out = static_cast<int>(attrs.projected * graph::DirectionsOf(attrs));
  ASSIGN_OR_RETURN(x, DataTensor(data, rows, rnn.input));
  ASSIGN_OR_RETURN(y, DataTensor(data, rows, out));
  ASSIGN_OR_RETURN(hidden, Packed(rnn.type, {pseudo_layers, batch, attrs.projected}, "states"));
  ASSIGN_OR_RETURN(cell, Packed(rnn.type, {pseudo_layers, batch, attrs.hidden}, "cells"));
  ASSIGN_OR_RETURN(const int64_t parameters, WeightElements(attrs, rnn.input));
  ASSIGN_OR_RETURN(weights, Packed(rnn.type, {parameters}, "weights"));
  ASSIGN_OR_RETURN(lengths, Packed(CUDNN_DATA_INT32, {batch}, "lengths"));
  if (!trains) return {};
  RETURN_IF_ERROR(CheckKept(pseudo_layers, steps * batch, rnn.hidden));
  ASSIGN_OR_RETURN(reserve, Packed(rnn.type, {graph::RnnReserveElements(attrs, steps, batch)},
                                   "a reserve space"));
  ASSIGN_OR_RETURN(gradients, Packed(rnn.type, {graph::RnnGradientElements(attrs, steps, batch)},
                                     "gradients in a reserve space"));
  return {};
}

Result<RnnProblem> RnnProblem::Make(const RnnDesc& rnn, bool trains, const RnnDataDesc& x_desc,
                                    const RnnDataDesc& y_desc) {
  RETURN_IF_ERROR(CheckPair(rnn, AttrsOf(rnn), x_desc, y_desc));
  RnnProblem problem;
  RETURN_IF_ERROR(problem.Fill(rnn, trains, x_desc, x_desc.Rows()));
  problem.has_lengths = x_desc.IsPacked() || !x_desc.IsFull();
  return problem;
}

Result<RnnProblem> RnnProblem::MakeBound(const RnnDesc& rnn, bool trains, const RnnDataDesc& x_desc,
                                         bool has_lengths) {
  RETURN_IF_ERROR(CheckInput(rnn, x_desc));
  RnnProblem problem;
  RETURN_IF_ERROR(problem.Fill(rnn, trains, x_desc, int64_t{x_desc.steps} * x_desc.batch));
  problem.has_lengths = has_lengths || x_desc.IsPacked();
  return problem;
}

size_t RnnProblem::LengthBytes() const {
  return Aligned(static_cast<size_t>(HostValuesBytes(lengths.dims[0])));
}

size_t RnnProblem::GradientOffset() const { return Aligned(BytesOf(reserve)); }
size_t RnnProblem::ReserveBytes() const { return GradientOffset() + Aligned(BytesOf(gradients)); }

void RnnProblem::AddTo(Call& call) const {
  call.Add(static_cast<int32_t>(attrs.cell));
  call.Add(static_cast<int32_t>(attrs.bias));
  for (const int64_t value : {attrs.layers, attrs.hidden, attrs.projected, attrs.steps})
    call.Add(value);
  for (const bool value :
       {attrs.bidirectional, attrs.skip_input, attrs.clip, attrs.clip_propagates_nan, only_fma})
    call.Add(value);
  for (const double value : {attrs.clip_lower, attrs.clip_upper, attrs.dropout, attrs.padding})
    call.Add(value);
}

Status RnnCall::Make(CallGraph& g) const {
  g.wishes.only_fma = problem_.only_fma;
  graph::Node node;
  node.op = op_;
  node.compute = problem_.compute();
  node.attrs = problem_.attrs;
  for (const Operand& operand : std::span(inputs_).first(input_count_)) {
    node.inputs.push_back(graph::kAbsent);
    if (operand.slot < 0) continue;
    ASSIGN_OR_RETURN(node.inputs.back(), g.Read(operand));
  }
  for (const Operand& operand : std::span(outputs_).first(output_count_)) {
    node.outputs.push_back(graph::kAbsent);
    if (operand.slot < 0) continue;
    ASSIGN_OR_RETURN(node.outputs.back(), g.Stored(operand));
  }
  g.builder().graph().nodes.push_back(std::move(node));
  return {};
}

Status RnnCall::Run(const Workspace& workspace, double* seconds) {
  const auto make = [this](CallGraph& g) { return Make(g); };
  RETURN_IF_ERROR(call_.Run(workspace, make));
  if (seconds == nullptr) return {};
  ASSIGN_OR_RETURN(*seconds, call_.Time(workspace, make));
  return {};
}

Result<int64_t> RnnCall::WorkspaceBytes() {
  return call_.WorkspaceBytes([this](CallGraph& g) { return Make(g); });
}

Result<const TensorDesc*> StateDesc(const void* object, bool is_needed) {
  if (!is_needed) return nullptr;
  ASSIGN_OR_RETURN(const TensorDesc* desc, Get<TensorDesc>(object));
  return desc;
}

Status CheckState(const RnnState& state, const TensorDesc& wanted, std::string_view name) {
  if (state.data == nullptr) return {};
  if (state.desc == nullptr)
    return Status::Error(Code::kBadParam, "{} has memory and no descriptor", name);
  // The type is not looked at, in NVIDIA's 9.19 neither: the reference names extents and strides,
  // and states are numbers of the network's type.
  const TensorDesc& given = *state.desc;
  bool fits = given.rank >= 3;
  for (size_t d = 0; fits && d < static_cast<size_t>(given.rank); ++d) {
    const int32_t extent = d < 3 ? wanted.dims[d] : 1;
    fits = given.dims[d] == extent && (extent == 1 || given.strides[d] == wanted.strides[d]);
  }
  if (fits) return {};
  return Status::Error(Code::kBadParam, "{} is {}; the network has {}", name, Text(given),
                       Text(wanted));
}

Status CheckWeights(const RnnProblem& problem, const void* weights, size_t bytes) {
  RETURN_IF_ERROR(NotNull(weights, "the weight space"));
  if (bytes >= BytesOf(problem.weights)) return {};
  return Status::Error(Code::kBadParam, "{} bytes of weights; the network has {}", bytes,
                       BytesOf(problem.weights));
}

Status CheckReserve(const RnnProblem& problem, const RnnSpace& reserve) {
  if (reserve.bytes < problem.ReserveBytes())
    return Status::Error(Code::kBadParam, "{} bytes of reserve space; {} are needed", reserve.bytes,
                         problem.ReserveBytes());
  return NotNull(reserve.data, "the reserve space");
}

Result<Workspace> PrepareWork(Handle& handle, const RnnProblem& problem, const RnnDataDesc& data,
                              const RnnSpace& work, size_t least_bytes) {
  const size_t taken = problem.LengthBytes();
  if (work.bytes < least_bytes)
    return Status::Error(Code::kBadParam, "{} bytes of work space; {} are needed", work.bytes,
                         least_bytes);
  RETURN_IF_ERROR(CheckPlace(work.data, "the work space"));
  auto* const memory = static_cast<std::byte*>(work.data);
  if (problem.has_lengths) RETURN_IF_ERROR(WriteHostValues(handle, data.lengths, memory));
  return Workspace{.data = memory + taken,
                   .bytes = static_cast<int64_t>(work.bytes - taken),
                   .is_parameter = true};
}

}  // namespace kiln::api::legacy
