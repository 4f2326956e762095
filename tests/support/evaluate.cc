// Runs a case through the oracle, op by op. Virtual tensors are rounded to their declared type with
// a bound that also admits an implementation which keeps them unrounded (oracle.h, "rounding").
#include "tests/support/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tests/support/oracle/oracle.h"
#include "tests/support/row_factor.h"

namespace kiln::testing {

namespace {

constexpr std::array<std::string_view, 5> kWindows = {"nearest", "bilinear", "avgpool", "maxpool",
                                                      "avgpool_exclude"};

// The row of kWindows, in the order of the modes; the end where it is none.
size_t WindowMode(const CaseOp& op) {
  std::string_view name = op.name;
  if (name.ends_with("_bwd")) name.remove_suffix(4);
  return static_cast<size_t>(std::ranges::find(kWindows, name) - kWindows.begin());
}

}  // namespace

bool IsWindow(const CaseOp& op) { return WindowMode(op) < kWindows.size(); }

oracle::Window WindowOf(const CaseOp& op, size_t spatial) {
  const std::string padding = op.Word("padding", "zero");
  const Dims ones(spatial, 1), zeros(spatial, 0);
  return {.mode = static_cast<oracle::Window::Mode>(WindowMode(op)),
          .padding = padding == "edge"      ? oracle::Window::Padding::kEdge
                     : padding == "neg_inf" ? oracle::Window::Padding::kNegInf
                                            : oracle::Window::Padding::kZero,
          .propagate_nan = op.Word("nan", "propagate") == "propagate",
          .window = op.List("window", ones),
          .stride = op.List("stride", ones),
          .pre_padding = op.List("pad", zeros),
          .unit = op.List("unit", ones)};
}

Dims WindowOutputDims(const CaseOp& op, const Dims& x) {
  const size_t spatial = x.size() - 2;
  const oracle::Window w = WindowOf(op, spatial);
  const Dims post = op.List("post", w.pre_padding);
  Dims dims = x;
  for (size_t s = 0; s < spatial; ++s) {
    const int64_t room = x[s + 2] * w.unit[s] + w.pre_padding[s] + post[s] - w.window[s];
    dims[s + 2] = room < 0 ? 0 : room / w.stride[s] + 1;
  }
  return dims;
}

namespace {

using oracle::Dense;

class Evaluator {
 public:
  Evaluator(const Case& c, const CaseData& data, const EvaluateOptions& options)
      : case_(c), data_(data), options_(options) {
    values_.resize(c.tensors.size());
    for (size_t i = 0; i < c.tensors.size(); ++i) {
      const CaseTensor& tensor = c.tensors[i];
      if (tensor.by_value) {
        const auto count = static_cast<size_t>(oracle::Count(tensor.dims));
        values_[i] = Dense::Of(
            tensor.dims, std::vector<double>(count, oracle::Round(tensor.dtype, *tensor.by_value)));
      } else if (!c.Produces(static_cast<int>(i))) {
        values_[i] = data.images[i].ToDense();
      }
    }
  }

  std::map<int, Dense> Run() {
    std::map<int, Dense> outputs;
    for (const CaseOp& op : case_.ops) {
      std::vector<Dense> results = Apply(op);
      for (size_t i = 0; i < op.outputs.size(); ++i) {
        const int at = op.outputs[i];
        if (at < 0) continue;
        const CaseTensor& tensor = case_.tensors[static_cast<size_t>(at)];
        if (!tensor.is_virtual) outputs[at] = results[i];
        // Readers see the tensor's type, whether it went through memory or not.
        Dense& seen = values_[static_cast<size_t>(at)] = oracle::RoundTo(tensor.dtype, results[i]);
        const std::optional<DType> rounded =
            HasRowFactor(case_, at) ? tensor.dtype : RoundedForMatmuls(case_, at);
        if (!rounded) continue;
        for (oracle::Value& value : seen.values) value = oracle::MayRound(*rounded, value);
      }
    }
    return outputs;
  }

 private:
  const Dense* In(const CaseOp& op, size_t i) const {
    return i < op.inputs.size() && op.inputs[i] >= 0 ? &values_[static_cast<size_t>(op.inputs[i])]
                                                     : nullptr;
  }
  const CaseTensor& Tensor(int index) const { return case_.tensors[static_cast<size_t>(index)]; }

  std::vector<Dense> Apply(const CaseOp& op) const {
    return IsOnComplex(op) ? std::vector{ApplyComplex(op)} : ApplyReal(op);
  }

  bool IsComplexTensor(int id) const { return id >= 0 && oracle::IsComplex(Tensor(id).dtype); }
  bool IsOnComplex(const CaseOp& op) const {
    const auto is_complex = [&](int id) { return IsComplexTensor(id); };
    return std::ranges::any_of(op.inputs, is_complex) ||
           std::ranges::any_of(op.outputs, is_complex);
  }

  // The operation on other operands, which are real.
  Dense OnReal(const CaseOp& op, const std::vector<Dense>& operands) const {
    Evaluator other = *this;
    for (size_t i = 0; i < operands.size(); ++i)
      other.values_[static_cast<size_t>(op.inputs[i])] = operands[i];
    return other.ApplyReal(op)[0];
  }

  oracle::ComplexParts PartsOf(int id) const {
    const Dense& x = values_[static_cast<size_t>(id)];
    if (IsComplexTensor(id)) return oracle::SplitComplex(x);
    return {.re = x, .im = Dense::Of(x.dims, std::vector<double>(x.values.size()))};
  }

  Dense ApplyComplex(const CaseOp& op) const {
    std::vector<oracle::ComplexParts> in;
    std::vector<Dense> re, im;
    for (const int id : op.inputs) {
      in.push_back(PartsOf(id));
      re.push_back(in.back().re);
      im.push_back(in.back().im);
    }
    const Dims& out = Tensor(op.outputs[0]).dims;
    const DType compute = oracle::PartOf(op.Compute());
    constexpr std::array<std::string_view, 8> kLinear = {
        "identity", "neg", "add", "sub", "reshape", "concat", "reduce_add", "reduce_avg"};
    oracle::ComplexParts y;
    if (std::ranges::find(kLinear, op.name) != kLinear.end()) {
      y = {.re = OnReal(op, re), .im = OnReal(op, im)};
    } else if (op.name == "matmul" || op.name.starts_with("conv_")) {
      const auto product = [&](const Dense& a, const Dense& b) { return OnReal(op, {a, b}); };
      y = {.re = oracle::AddUp(product(re[0], re[1]), product(im[0], im[1]), -1, compute),
           .im = oracle::AddUp(product(re[0], im[1]), product(im[0], re[1]), 1, compute)};
    } else if (op.name == "reduce_mul" || op.name == "reduce_mul_no_zeros") {
      y = oracle::ComplexProduct(in[0], out, op.name != "reduce_mul", compute);
    } else if (op.name.starts_with("reduce_")) {
      y.re = OnReal(op, {oracle::ComplexPointwise("abs", in, in[0].re.dims, compute).re});
      y.im = Dense::Of(out, std::vector<double>(y.re.values.size()));
    } else {
      y = oracle::ComplexPointwise(op.name, in, out, compute);
    }
    return IsComplexTensor(op.outputs[0]) ? oracle::JoinComplex(y) : y.re;
  }

  std::vector<Dense> ApplyReal(const CaseOp& op) const {
    if (const auto* mode = oracle::FindPointwiseMode(op.name)) return {ApplyPointwise(op, *mode)};
    if (op.name.starts_with("conv_")) return {ApplyConv(op)};
    if (op.name.starts_with("reduce_")) return {ApplyReduction(op)};
    if (op.name == "matmul") return {ApplyMatmul(op)};
    if (op.name == "bn_finalize") return ApplyBnFinalize(op);
    if (IsWindow(op)) return ApplyWindow(op);
    if (op.name == "sdpa_fwd") return ApplySdpaForward(op);
    if (op.name == "sdpa_bwd") return ApplySdpaBackward(op);
    if (op.name == "paged_cache_load") {
      const CaseTensor& y = Tensor(op.outputs[0]);
      const bool along_last = y.strides[3] > y.strides[2];
      return {oracle::PagedCacheLoad(*In(op, 0), *In(op, 1), *In(op, 2), y.dims, along_last)};
    }
    if (op.name == "norm_forward") return ApplyNormForward(op);
    if (op.name == "norm_backward") return ApplyNormBackward(op);
    if (op.name == "bn_bwd_weights") {
      auto r = oracle::BnBwdWeights({.x = In(op, 0),
                                     .dy = In(op, 1),
                                     .mean = In(op, 2),
                                     .inv_std = In(op, 3),
                                     .scale = In(op, 4)},
                                    op.Compute());
      return {r.dscale, r.dbias, r.eq_dy_scale, r.eq_x_scale, r.eq_bias};
    }
    if (op.name == "rng") return {ApplyRng(op)};
    if (op.name == "expand_band" || op.name == "contract_band") return {ApplyBand(op)};
    if (op.name == "moe") return {ApplyMoe(op)};
    if (op.name == "moe_bwd") {
      return {oracle::GroupedWeightGradient(*In(op, 0), *In(op, 1), *In(op, 2),
                                            Tensor(op.outputs[0]).dims, PrecisionOf(op))};
    }
    if (op.name.starts_with("rope")) return {ApplyRope(op)};
    if (op.name == "softmax") {
      auto r = oracle::Softmax(*In(op, 0), In(op, 1), op.Number("log2", 0) != 0, op.Compute());
      return {std::move(r.y), std::move(r.stats), std::move(r.max), std::move(r.sum)};
    }
    if (op.name == "band_mask") return {ApplyBandMask(op)};
    if (op.name == "transpose") return {oracle::Transpose(*In(op, 0), op.List("permutation", {}))};
    if (op.name == "slice") {
      const Dims ones(Tensor(op.inputs[0]).dims.size(), 1);
      return {oracle::Slice(*In(op, 0), op.List("start", {}), op.List("step", ones),
                            Tensor(op.outputs[0]).dims)};
    }
    if (op.name == "gen_stats") {
      auto result = oracle::GenStats(*In(op, 0), op.Compute());
      return {std::move(result.sum), std::move(result.sq_sum)};
    }
    if (op.name == "block_scale_dequantize") {
      const Dense &x = *In(op, 0), &scale = *In(op, 1);
      return {
          oracle::BlockScaleDequantize(x, scale, BlocksOf(op, x.dims, scale.dims), op.Compute())};
    }
    if (op.name == "block_scale_quantize") {
      const CaseTensor &y = Tensor(op.outputs[0]), &scale = Tensor(op.outputs[1]);
      auto result =
          oracle::BlockScaleQuantize(*In(op, 0), scale.dims, BlocksOf(op, y.dims, scale.dims),
                                     y.dtype, scale.dtype, op.Compute());
      return {std::move(result.y), std::move(result.scale)};
    }
    if (op.name == "reshape") {
      const CaseTensor &x = Tensor(op.inputs[0]), &y = Tensor(op.outputs[0]);
      // Row-major order of elements, whatever the memory.
      if (op.Word("mode", "view") == "logical")
        return {Dense{.dims = y.dims, .values = In(op, 0)->values}};
      return {oracle::Reshape(*In(op, 0), x.strides, y.dims, y.strides)};
    }
    std::vector<const Dense*> parts;  // concat
    for (size_t i = 0; i < op.inputs.size(); ++i) parts.push_back(In(op, i));
    return {oracle::Concat(parts, static_cast<int64_t>(op.Number("axis", 0)))};
  }

  // block=b: of the one dim, of the last two, that has fewer scales than elements; block=a,b: of
  // the last two.
  static Dims BlocksOf(const CaseOp& op, const Dims& x, const Dims& scale) {
    const Dims sizes = op.List("block", Dims{1});
    Dims blocks(x.size(), 1);
    const size_t last = x.size() - 1;
    if (sizes.size() == 2) {
      blocks[last - 1] = sizes[0];
      blocks[last] = sizes[1];
      return blocks;
    }
    const bool is_last = last == 0 || scale[last] < x[last] || scale[last - 1] >= x[last - 1];
    blocks[is_last ? last : last - 1] = sizes[0];
    return blocks;
  }

  oracle::SdpaParams SdpaParamsOf(const CaseOp& op) const {
    return {.left = static_cast<int64_t>(op.Number("left", -1)),
            .right = static_cast<int64_t>(op.Number("right", -1)),
            .bottom_right = op.Number("bottom_right", 0) != 0,
            .operand_roundoff = PrecisionOf(op).operand_roundoff};
  }

  // Operands: q, k, v, scale, seq_q, seq_kv, page_table_k, page_table_v, bias, alibi, sink.
  std::vector<Dense> ApplySdpaForward(const CaseOp& op) const {
    auto r = oracle::SdpaForward({.q = In(op, 0),
                                  .k = In(op, 1),
                                  .v = In(op, 2),
                                  .scale = In(op, 3),
                                  .seq_q = In(op, 4),
                                  .seq_kv = In(op, 5),
                                  .page_table_k = In(op, 6),
                                  .page_table_v = In(op, 7),
                                  .bias = In(op, 8),
                                  .alibi = In(op, 9),
                                  .sink = In(op, 10),
                                  .block_mask = In(op, 11)},
                                 SdpaParamsOf(op), op.Compute(), Tensor(op.inputs[0]).dtype);
    return {std::move(r.o), std::move(r.stats)};
  }

  // Operands: q, k, v, o, do, stats, scale, seq_q, seq_kv, bias, alibi.
  std::vector<Dense> ApplySdpaBackward(const CaseOp& op) const {
    auto r = oracle::SdpaBackward({.q = In(op, 0),
                                   .k = In(op, 1),
                                   .v = In(op, 2),
                                   .scale = In(op, 6),
                                   .seq_q = In(op, 7),
                                   .seq_kv = In(op, 8),
                                   .bias = In(op, 9),
                                   .alibi = In(op, 10)},
                                  *In(op, 3), *In(op, 4), *In(op, 5), SdpaParamsOf(op),
                                  op.Compute(), Tensor(op.inputs[0]).dtype);
    return {std::move(r.dq), std::move(r.dk), std::move(r.dv), std::move(r.dbias)};
  }

  Dense ApplyBand(const CaseOp& op) const {
    const oracle::Band band{.lower = static_cast<int64_t>(op.Number("lower", 0)),
                            .upper = static_cast<int64_t>(op.Number("upper", 0)),
                            .axis = static_cast<int64_t>(op.Number("axis", 0)),
                            .pad = op.Number("pad_value", 0)};
    const Dims& out = Tensor(op.outputs[0]).dims;
    return op.name == "expand_band" ? oracle::ExpandBand(band, *In(op, 0), out)
                                    : oracle::ContractBand(band, *In(op, 0), out);
  }

  // Operands: x, fill, lengths of q and of k, left bound, shift, cumulated lengths.
  Dense ApplyBandMask(const CaseOp& op) const {
    const std::string comparison = op.Word("compare", "ge");
    return oracle::BandMask({.x = In(op, 0),
                             .fill = In(op, 1),
                             .len_q = In(op, 2),
                             .len_kv = In(op, 3),
                             .left = In(op, 4),
                             .shift = In(op, 5),
                             .cu_q = In(op, 6),
                             .cu_kv = In(op, 7),
                             .comparison = comparison});
  }

  // Operands: tokens, weights, the first token of each expert, index, k.
  Dense ApplyMoe(const CaseOp& op) const {
    const std::string mode = op.Word("mode", "none");
    return oracle::GroupedMatmul({.token = In(op, 0),
                                  .weight = In(op, 1),
                                  .first = In(op, 2),
                                  .gather = mode == "gather" ? In(op, 3) : nullptr,
                                  .scatter = mode == "scatter" ? In(op, 3) : nullptr,
                                  .scatter_k = In(op, 4),
                                  .top_k = static_cast<int64_t>(op.Number("top_k", 1))},
                                 Tensor(op.outputs[0]).dims, PrecisionOf(op));
  }

  // Operands: x (or dy), angles.
  Dense ApplyRope(const CaseOp& op) const {
    const bool is_wide = Tensor(op.inputs[0]).dtype == DType::kF64;
    return oracle::Rope({.x = In(op, 0),
                         .angles = In(op, 1),
                         .scale = static_cast<float>(op.Number("scale", 1)),
                         .rope_dim = static_cast<int64_t>(op.Number("rope_dim", 0)),
                         .is_backward = op.name == "rope_bwd"},
                        is_wide ? DType::kF64 : DType::kF32);
  }

  Dense ApplyRng(const CaseOp& op) const {
    oracle::RandomNumbers r{.distribution = op.Word("distribution", "bernoulli"),
                            .seed = static_cast<int64_t>(op.Number("seed", 0))};
    if (In(op, 0) != nullptr) r.seed = static_cast<int64_t>(In(op, 0)->values[0].v);
    if (In(op, 1) != nullptr) r.offset = static_cast<int64_t>(In(op, 1)->values[0].v);
    if (r.distribution == "bernoulli") {
      r.first = op.Number("probability", 1);
    } else if (r.distribution == "uniform") {
      r.first = op.Number("from", 0);
      r.second = op.Number("to", 1);
    } else {
      r.first = op.Number("mean", 0);
      r.second = op.Number("deviation", 1);
    }
    return oracle::Random(r, Tensor(op.outputs[0]).dims, op.Compute());
  }

  Dense ApplyPointwise(const CaseOp& op, const oracle::PointwiseMode& mode) const {
    const oracle::PointwiseParams params{
        .alpha1 = op.Number("alpha1", 1),
        .alpha2 = op.Number("alpha2", 1),
        .relu_lower = op.Number("lower", 0),
        .relu_upper = op.Number("upper", 1e300),
        .relu_slope = op.Number("slope", 0),
        .elu_alpha = op.Number("elu_alpha", 1),
        .softplus_beta = op.Number("softplus_beta", 1),
        .swish_beta = op.Number("swish_beta", 1),
        .propagate_nan = op.Word("nan", "propagate") == "propagate",
        .axis = static_cast<int64_t>(op.Number("axis", 0)),
    };
    std::vector<const Dense*> operands;
    for (size_t i = 0; i < op.inputs.size(); ++i) operands.push_back(In(op, i));
    return oracle::Pointwise(mode, params, operands, Tensor(op.outputs[0]).dims, op.Compute());
  }

  oracle::Precision PrecisionOf(const CaseOp& op) const {
    const auto both = [&](auto is) {
      return is(Tensor(op.inputs[0]).dtype) && is(Tensor(op.inputs[1]).dtype);
    };
    const bool is_f32 = both([](DType type) { return oracle::PartOf(type) == DType::kF32; });
    const bool is_fp8 =
        both([](DType type) { return type == DType::kE4M3 || type == DType::kE5M2; });
    return {.compute = op.Compute(),
            .operand_roundoff = is_f32 ? options_.contraction_operand_roundoff : 0,
            .sum_roundoff = is_fp8 ? oracle::kFp8SumRoundoff : 0};
  }

  Dense ApplyConv(const CaseOp& op) const {
    const Dims& out = Tensor(op.outputs[0]).dims;
    const Dims ones(out.size() - 2, 1), zeros(out.size() - 2, 0);
    const Dims pad = op.List("pad", zeros);
    const oracle::ConvGeometry geometry{.pre_padding = pad,
                                        .post_padding = op.List("post", pad),
                                        .stride = op.List("stride", ones),
                                        .dilation = op.List("dilation", ones),
                                        .flip = op.Number("flip", 0) != 0};
    Dense previous;
    oracle::Scaling scaling{.alpha = op.Number("alpha", 1), .beta = op.Number("beta", 0)};
    if (scaling.beta != 0) {
      previous = data_.images[static_cast<size_t>(op.outputs[0])].ToDense();
      scaling.previous = &previous;
    }
    const Dense &first = *In(op, 0), &second = *In(op, 1);
    const auto precision = PrecisionOf(op);
    if (op.name == "conv_fprop")
      return oracle::ConvFprop(geometry, first, second, scaling, precision);
    if (op.name == "conv_dgrad")
      return oracle::ConvDgrad(geometry, first, second, out, scaling, precision);
    return oracle::ConvWgrad(geometry, first, second, out, scaling, precision);
  }

  Dense ApplyMatmul(const CaseOp& op) const {
    const oracle::MatmulOverrides overrides{.m = In(op, 2),
                                            .n = In(op, 3),
                                            .k = In(op, 4),
                                            .padding_value = op.Number("padding_value", 0)};
    return oracle::Matmul(*In(op, 0), *In(op, 1), overrides, PrecisionOf(op));
  }

  Dense ApplyReduction(const CaseOp& op) const {
    constexpr std::array<std::string_view, 9> kModes = {
        "add", "mul", "min", "max", "amax", "avg", "norm1", "norm2", "mul_no_zeros"};
    const auto mode =
        std::ranges::find(kModes, std::string_view(op.name).substr(7)) - kModes.begin();
    return oracle::Reduction(static_cast<oracle::Reduce>(mode), *In(op, 0),
                             Tensor(op.outputs[0]).dims, op.Compute());
  }

  // Results: y, index. Operands of the gradient: dy, index, x, y.
  std::vector<Dense> ApplyWindow(const CaseOp& op) const {
    const oracle::Window w = WindowOf(op, Tensor(op.inputs[0]).dims.size() - 2);
    const Dims& out = Tensor(op.outputs[0]).dims;
    if (op.name.ends_with("_bwd"))
      return {oracle::WindowBackward(w, *In(op, 0), In(op, 1), In(op, 2), out, op.Compute())};
    auto result = oracle::WindowForward(w, *In(op, 0), out, op.Compute());
    return {std::move(result.y), std::move(result.index)};
  }

  // Operands: sum, sq_sum, scale, bias, prev_mean, prev_var, epsilon, factor, count.
  std::vector<Dense> ApplyBnFinalize(const CaseOp& op) const {
    const auto scalar = [&](size_t i, double absent) {
      return In(op, i) ? In(op, i)->values[0].v : absent;
    };
    const oracle::BnFinalizeInputs inputs{.sum = In(op, 0),
                                          .sq_sum = In(op, 1),
                                          .scale = In(op, 2),
                                          .bias = In(op, 3),
                                          .prev_mean = In(op, 4),
                                          .prev_var = In(op, 5),
                                          .epsilon = scalar(6, 1e-5),
                                          .factor = scalar(7, 0.1),
                                          .count = scalar(8, 1),
                                          .inference = op.Number("inference", 0) != 0};
    auto r = oracle::BnFinalize(inputs, op.Compute());
    return {r.updated_mean, r.updated_var, r.saved_mean, r.saved_inv_std, r.eq_scale, r.eq_bias};
  }

  oracle::Norm NormModeOf(const CaseOp& op) const {
    return static_cast<oracle::Norm>(NormModeNumber(op));
  }

  // Operands: x, mean, inv_variance, scale, bias, epsilon, factor, running mean and variance,
  // peers.
  std::vector<Dense> ApplyNormForward(const CaseOp& op) const {
    const auto scalar = [&](size_t i) { return In(op, i) ? In(op, i)->values[0].v : 0; };
    oracle::NormForwardInputs inputs{.mode = NormModeOf(op),
                                     .x = In(op, 0),
                                     .mean = In(op, 1),
                                     .inv_variance = In(op, 2),
                                     .scale = In(op, 3),
                                     .bias = In(op, 4),
                                     .running_mean = In(op, 7),
                                     .running_var = In(op, 8),
                                     .stats = {},
                                     .epsilon = scalar(5),
                                     .factor = scalar(6)};
    for (const Dense* given : {inputs.mean, inputs.inv_variance}) {
      if (given != nullptr) inputs.stats = given->dims;
    }
    for (size_t i = 1; i < std::min<size_t>(op.outputs.size(), 3); ++i) {
      if (op.outputs[i] >= 0) inputs.stats = Tensor(op.outputs[i]).dims;
    }
    if (inputs.stats.empty())
      inputs.stats = oracle::NormStats(inputs.mode, inputs.x->dims, inputs.scale, inputs.bias);
    auto r = oracle::NormForward(inputs, op.Compute());
    return {r.y, r.mean, r.inv_variance, r.next_mean, r.next_var};
  }

  // Operands: x, dy, mean, inv_variance, scale, epsilon, peers.
  std::vector<Dense> ApplyNormBackward(const CaseOp& op) const {
    oracle::NormBackwardInputs inputs{.x = In(op, 0),
                                      .dy = In(op, 1),
                                      .mean = In(op, 2),
                                      .inv_variance = In(op, 3),
                                      .scale = In(op, 4),
                                      .weights = {1}};
    if (inputs.scale != nullptr) inputs.weights = inputs.scale->dims;
    auto r = oracle::NormBackward(inputs, op.Compute());
    return {r.dx, r.dscale, r.dbias};
  }

  const Case& case_;
  const CaseData& data_;
  const EvaluateOptions& options_;
  std::vector<Dense> values_;
};

}  // namespace

std::map<int, Dense> Evaluate(const Case& c, const CaseData& data, const EvaluateOptions& options) {
  return Evaluator(c, data, options).Run();
}

std::string CheckRun(const Case& c, const CaseData& before, const CaseData& after,
                     const std::map<int, Dense>& expected, const oracle::Tolerance& tolerance) {
  for (const int input : c.Inputs()) {
    const auto i = static_cast<size_t>(input);
    const std::string error = oracle::CheckUnchanged(before.images[i], after.images[i]);
    if (!error.empty()) return fmt::format("tensor {}: {}", c.tensors[i].name, error);
  }
  for (const int output : c.Outputs()) {
    const auto i = static_cast<size_t>(output);
    const auto comparison = oracle::Compare(expected.at(output), after.images[i], tolerance);
    if (!comparison.ok()) return fmt::format("tensor {}: {}", c.tensors[i].name, comparison.error);
    const std::string gaps = oracle::CheckGaps(before.images[i], after.images[i]);
    if (!gaps.empty()) return fmt::format("tensor {}: {}", c.tensors[i].name, gaps);
  }
  return "";
}

}  // namespace kiln::testing
