// The parts that all causal convolutions are made of; causal_conv.h says which functions those are.
#include "api/legacy/calls/causal_conv.h"

namespace kiln::api::legacy::causal {

Status CheckExtent(int64_t extent, int64_t least, std::string_view name) {
  if (extent >= least) return {};
  return Status::Error(Code::kBadParam, "{} is {}; it is {} or more", name, extent, least);
}

Status CheckType(int type, std::string_view name) {
  for (const int possible :
       {CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16}) {
    if (type == possible) return {};
  }
  return Status::Error(Code::kNotSupported,
                       "{} is {}: float, double, half and bfloat16 are possible", name, type);
}

Status CheckApart(const void* from, const void* to, std::string_view names) {
  if (from != to) return {};
  return Status::Error(Code::kBadParam, "{} are the same memory", names);
}

Dims DimsOf(const TensorDesc& t) { return Dims(t.dims.begin(), t.dims.begin() + t.rank); }
Dims StridesOf(const TensorDesc& t) { return Dims(t.strides.begin(), t.strides.begin() + t.rank); }

TensorId Convolve(CallGraph& g, GraphOp op, const Taps& taps, std::vector<TensorId> operands,
                  const TensorDesc& result) {
  const DType compute = ComputeType(result);
  graph::ConvAttrs attrs;
  attrs.pre_padding = {taps.taps - 1};
  attrs.post_padding = {0};
  attrs.stride = attrs.dilation = {1};
  attrs.flip = taps.first_is_own;
  return g.builder().Apply(
      op, std::move(operands), attrs,
      {.dtype = compute, .compute = compute, .dims = DimsOf(result), .strides = StridesOf(result)});
}

bool KeepsBits(int type) { return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_DOUBLE; }

Sum SumIn(Call& call, const TensorDesc& desc, const void* memory) {
  return {.before = call.Memory(desc, memory), .after = call.Memory(desc, memory)};
}

Status AddTo(CallGraph& g, const Sum& sum, TensorId value) {
  ASSIGN_OR_RETURN(const TensorId before, g.Read(sum.before));
  return g.Write(
      g.Pointwise(graph::PointwiseMode::kAdd, {before, value}, ComputeType(*sum.after.desc)),
      sum.after);
}

}  // namespace kiln::api::legacy::causal
