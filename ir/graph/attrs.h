// Attributes of graph operations, as field rows: printing, parsing, comparing and hashing follow
// from them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>

#include "ir/base/any_of.h"
#include "ir/base/fields.h"
#include "ir/scalar.h"
#include "ir/shape.h"

namespace kiln::graph {

// POINTWISE_MODE(Name, "text", cudnn value, inputs, is_backward): see pointwise_modes.def.
enum class PointwiseMode : int32_t {
#define POINTWISE_MODE(Name, ...) k##Name,
#include "ir/graph/pointwise_modes.def"
#undef POINTWISE_MODE
};

struct PointwiseModeInfo {
  const char* text;
  int cudnn_value;
  int inputs;        // 1: x; 2: x, b, or dy, x of a backward mode; 3: x, b, t
  bool is_backward;  // inputs are dy and the forward's x
};
const PointwiseModeInfo& Info(PointwiseMode mode);
std::optional<PointwiseMode> PointwiseModeFromText(std::string_view text);
std::optional<PointwiseMode> PointwiseModeFromCudnn(int value);

// In the order of cudnnReduceTensorOp_t, whose values these are.
enum class ReductionMode : int32_t {
  kAdd,
  kMul,
  kMin,
  kMax,
  kAmax,
  kAvg,
  kNorm1,
  kNorm2,
  kMulNoZeros
};
const char* Text(ReductionMode mode);
std::optional<ReductionMode> ReductionModeFromText(std::string_view text);

// The modes of resampling, with the values of cudnnResampleMode_t and cudnnPaddingMode_t.
enum class ResampleMode : int32_t {
  kNearest,
  kBilinear,
  kAvgIncludePadding,
  kMax,
  kAvgExcludePadding
};
const char* Text(ResampleMode mode);
std::optional<ResampleMode> ResampleModeFromText(std::string_view text);
enum class PaddingMode : int32_t { kZero, kNegInf, kEdge };
const char* Text(PaddingMode mode);
std::optional<PaddingMode> PaddingModeFromText(std::string_view text);

// The kinds of norms in the order of cudnnBackendNormMode_t, whose values these are.
enum class NormMode : int32_t { kLayer, kInstance, kBatch, kGroup, kRms, kAdaLayer };
const char* Text(NormMode mode);
std::optional<NormMode> NormModeFromText(std::string_view text);

// The distributions in the order of cudnnRngDistribution_t, whose values these are.
enum class RngDistribution : int32_t { kBernoulli, kUniform, kNormal };
const char* Text(RngDistribution distribution);
std::optional<RngDistribution> RngDistributionFromText(std::string_view text);

// The modes in the order of cudnnMoeGroupedMatmulMode_t, whose values these are.
enum class MoeMode : int32_t { kNone, kGather, kScatter };
const char* Text(MoeMode mode);
std::optional<MoeMode> MoeModeFromText(std::string_view text);

// The cells and biases of recurrent layers, with the values of cudnnRNNMode_t and
// cudnnRNNBiasMode_t.
enum class RnnCell : int32_t { kRelu, kTanh, kLstm, kGru };
const char* Text(RnnCell cell);
std::optional<RnnCell> RnnCellFromText(std::string_view text);
enum class RnnBias : int32_t { kNone, kSingleInput, kDouble, kSingleRecurrent };
const char* Text(RnnBias bias);
std::optional<RnnBias> RnnBiasFromText(std::string_view text);

// The aggregations of a segment, with the values of cudnnGnnAggOp_t.
enum class SegmentMode : int32_t { kAdd, kMean, kMax, kMin };
const char* Text(SegmentMode mode);
std::optional<SegmentMode> SegmentModeFromText(std::string_view text);

// The associative combiners that `reduce` nodes have.
enum class Combine : int32_t { kAdd, kMul, kMin, kMax };
const char* Text(Combine combine);
std::optional<Combine> CombineFromText(std::string_view text);
ScalarOp ScalarOf(Combine combine);  // min and max drop NaN, as cuDNN's default is
double IdentityOf(Combine combine);  // 0, 1, +inf, -inf

// y = mode(alpha1 * first operand, alpha2 * second operand, third operand); backward modes take dy
// and the forward's x. The formulas are in ops_pointwise.cc.
struct PointwiseAttrs {
  PointwiseMode mode{};
  double alpha1 = 1, alpha2 = 1;
  double relu_lower = 0, relu_upper = std::numeric_limits<double>::infinity(), relu_slope = 0;
  double elu_alpha = 1, softplus_beta = 1, swish_beta = 1;
  bool propagate_nan = false;
  int64_t axis = -1;  // gen_index only
  static constexpr auto Fields() {
    using A = PointwiseAttrs;
    return std::tuple{Field("mode", &A::mode),
                      Field("alpha1", &A::alpha1),
                      Field("alpha2", &A::alpha2),
                      Field("relu_lower", &A::relu_lower),
                      Field("relu_upper", &A::relu_upper),
                      Field("relu_slope", &A::relu_slope),
                      Field("elu_alpha", &A::elu_alpha),
                      Field("softplus_beta", &A::softplus_beta),
                      Field("swish_beta", &A::swish_beta),
                      Field("propagate_nan", &A::propagate_nan),
                      Field("axis", &A::axis)};
  }
};

// Reduces each dim where the output has extent 1 and the input has not. AVG divides by the count.
struct ReductionAttrs {
  ReductionMode mode{};
  bool deterministic = false;
  static constexpr auto Fields() {
    return std::tuple{Field("mode", &ReductionAttrs::mode),
                      Field("deterministic", &ReductionAttrs::deterministic)};
  }
};

// x[N,C,…] -> sum[1,C,1…], sum of squares[1,C,1…], both over all dims but C.
struct GenStatsAttrs {
  static constexpr auto Fields() { return std::tuple{}; }
};

// Inputs: sum, sq_sum, scale, bias, prev_mean, prev_var, epsilon, exp_avg_factor, accum_count; any
// but the first two may be absent. Outputs: updated_mean, updated_var, saved_mean, saved_inv_std,
// eq_scale, eq_bias; any may be absent (see Node::inputs). Reference 9:
// OPERATION_BN_FINALIZE_STATISTICS.
struct BnFinalizeAttrs {
  bool inference =
      false;  // CUDNN_BN_FINALIZE_STATISTICS_INFERENCE: statistics from the running ones
  static constexpr auto Fields() {
    return std::tuple{Field("inference", &BnFinalizeAttrs::inference)};
  }
};

// Weight gradients of a batch norm, and its data gradient as a linear function of dy and x: see
// ops_norm.cc; operands in norm.h.
struct BnBwdWeightsAttrs {
  static constexpr auto Fields() { return std::tuple{}; }
};

// y = (x - mean) * inv_variance * scale + bias; the mode says over which dims the statistics run
// (norm.h). In training they are results; in inference they are operands where they are given, else
// x's own. Reference: OPERATION_NORM_FORWARD.
struct NormForwardAttrs {
  NormMode mode{};
  bool inference = false;  // CUDNN_NORM_FWD_INFERENCE
  static constexpr auto Fields() {
    return std::tuple{Field("mode", &NormForwardAttrs::mode),
                      Field("inference", &NormForwardAttrs::inference)};
  }
};

// The gradients of a norm's training phase.
struct NormBackwardAttrs {
  NormMode mode{};
  static constexpr auto Fields() { return std::tuple{Field("mode", &NormBackwardAttrs::mode)}; }
};

// Blocks of a tensor share one scale each: element i of a dim with blocks of b has scale i / b; the
// last block may be short. Two sizes are those of the last two dims; one is that of the dim, of the
// last two, where the scales are fewer than the elements (BlockSizes in ops.h).
//   dequantize: (x, scale) -> y = x * scale. There may be more scales than blocks: padding.
//   quantize: x -> (y, scale), scale = max |x| of the block / the largest value of y's dtype,
//     rounded up to the scale's dtype (f32 and f64: to the nearest); y = x / scale, and 0 where
//     that scale is 0.
struct BlockScaleAttrs {
  Dims block_size;
  static constexpr auto Fields() {
    return std::tuple{Field("block_size", &BlockScaleAttrs::block_size)};
  }
};

// Attention; operands and formulas are in sdpa.h. Query i sees key j where
//   j <= i + shift + right   and   i + shift - left < j
// shift is 0, or with bottom_right the number of keys less that of queries. -1: no such bound.
struct SdpaAttrs {
  double scale = 1;  // beside the operand of that name
  int64_t left = -1, right = -1;
  bool bottom_right = false;
  static constexpr auto Fields() {
    using A = SdpaAttrs;
    return std::tuple{Field("scale", &A::scale), Field("left", &A::left), Field("right", &A::right),
                      Field("bottom_right", &A::bottom_right)};
  }
};

// container[blocks,H,block,D], page_table[B,1,pages,1], lengths[B,1,1,1] -> y[B,H,S,D], or
// y[B,H,D,S]: place s of batch b is row s % block of container block page_table[b, s / block]; 0
// from lengths[b] on, and where the table names no block.
struct PagedCacheLoadAttrs {
  static constexpr auto Fields() { return std::tuple{}; }
};

// Batches of different lengths, one behind the other in memory[n,1,…]: element i of batch b is at
// offsets[b] + the sum of i_d * strides[d], where that is before offsets[b + 1]; offsets[B+1,1,…].
// strides[0] counts for nothing.
//   ragged_load:  (memory, offsets) -> y[B,…], 0 where there is no place
//   ragged_store: (x[B,…], offsets, memory before) -> memory
struct RaggedAttrs {
  Dims strides;
  static constexpr auto Fields() { return std::tuple{Field("strides", &RaggedAttrs::strides)}; }
};

// Geometry over the spatial dims. x[N,C,spatial…], w[K,C/groups,filter…], y[N,K,out…]; groups
// follow from the extents. out = floor((in + pre + post - dilation*(filter-1) - 1) / stride) + 1.
//   fprop: (x, w) -> y     dgrad: (dy, w) -> dx     wgrad: (x, dy) -> dw
// result = alpha * conv + beta * previous (third input, present iff beta != 0).
struct ConvAttrs {
  Dims pre_padding, post_padding, stride, dilation;
  bool flip = false;  // CUDNN_CONVOLUTION: the filter is rotated; otherwise cross-correlation
  double alpha = 1, beta = 0;
  static constexpr auto Fields() {
    using A = ConvAttrs;
    return std::tuple{Field("pre_padding", &A::pre_padding),
                      Field("post_padding", &A::post_padding),
                      Field("stride", &A::stride),
                      Field("dilation", &A::dilation),
                      Field("flip", &A::flip),
                      Field("alpha", &A::alpha),
                      Field("beta", &A::beta)};
  }
};

// a[…,M,K] x b[…,K,N] -> c[…,M,N]; batch dims broadcast (extent 1), and a batch dim of a that is a
// multiple of b's repeats b (grouped-query heads). Inputs 2..4: M, N, K overrides, i32
// [batch,1,1,1] or absent: of batch b, result rows from M and columns from N on are padding_value,
// and the sum runs over the first K only.
struct MatmulAttrs {
  double padding_value = 0;
  static constexpr auto Fields() {
    return std::tuple{Field("padding_value", &MatmulAttrs::padding_value)};
  }
};

// One scalar primitive over broadcast operands, computed in the node's compute type, rounded to the
// output's.
struct MapAttrs {
  ScalarOp op = ScalarOp::kAdd;  // kFastDiv is not a graph op; a unary cast is `identity` below
  bool identity = false;         // y = x (a cast where the dtypes differ); `op` is then ignored
  static constexpr auto Fields() {
    return std::tuple{Field("op", &MapAttrs::op), Field("identity", &MapAttrs::identity)};
  }
};

// y[i0,…,in] = i_axis.
struct IotaAttrs {
  int64_t axis = 0;
  static constexpr auto Fields() { return std::tuple{Field("axis", &IotaAttrs::axis)}; }
};

struct ReduceAttrs {
  Combine combine{};
  static constexpr auto Fields() { return std::tuple{Field("combine", &ReduceAttrs::combine)}; }
};

// A tensor's memory seen with other dims and strides: y at element offset o is x at element offset
// o, where both address the same set of offsets (always so when both are dense; a transposition by
// strides of a tensor with gaps too): ReshapeKeepsMemory in ops.h. Otherwise the same row-major
// element order.
struct ReshapeAttrs {
  static constexpr auto Fields() { return std::tuple{}; }
};

// y.dims[i] = x.dims[permutation[i]].
struct TransposeAttrs {
  Dims permutation;
  static constexpr auto Fields() {
    return std::tuple{Field("permutation", &TransposeAttrs::permutation)};
  }
};

// y[i] = x[start + i * step] on each dim.
struct SliceAttrs {
  Dims start, step;
  static constexpr auto Fields() {
    return std::tuple{Field("start", &SliceAttrs::start), Field("step", &SliceAttrs::step)};
  }
};

struct ConcatAttrs {
  int64_t axis = 0;
  static constexpr auto Fields() { return std::tuple{Field("axis", &ConcatAttrs::axis)}; }
};

// Windows over the spatial dims of x[N,C,spatial…], one list entry each. Lengths are fractions: all
// of a dim have its `unit` for their denominator. ops_resample.cc has the formulas.
// result = alpha * resampled + beta * previous (the last input, present iff beta != 0).
struct ResampleAttrs {
  ResampleMode mode{};
  PaddingMode padding{};
  bool propagate_nan = false;  // max: a NaN in the window is its maximum; otherwise it is skipped
  Dims window, stride, pre_padding, post_padding, unit;
  double alpha = 1, beta = 0;
  static constexpr auto Fields() {
    using A = ResampleAttrs;
    return std::tuple{Field("mode", &A::mode),
                      Field("padding", &A::padding),
                      Field("propagate_nan", &A::propagate_nan),
                      Field("window", &A::window),
                      Field("stride", &A::stride),
                      Field("pre_padding", &A::pre_padding),
                      Field("post_padding", &A::post_padding),
                      Field("unit", &A::unit),
                      Field("alpha", &A::alpha),
                      Field("beta", &A::beta)};
  }
};

// (x, index) -> y: y[i] = x[i with index[i] in place of i_axis], or 0 where index[i] is outside x.
// Both broadcast to y: index everywhere, x along the other dims.
struct GatherAttrs {
  int64_t axis = 0;
  static constexpr auto Fields() { return std::tuple{Field("axis", &GatherAttrs::axis)}; }
};

// (x, index, before) -> y[n,1,…]: before with y[index[i]] = x[i] where index[i] is inside. In
// place: before and y have one uid. No two elements have the same index.
struct ScatterAttrs {
  static constexpr auto Fields() { return std::tuple{}; }
};

// (before, x, index, x, index, …) -> y: before, and to y[i with index[i] in place of i_axis] each
// x[i] is added whose index is inside, in any order. All x have the same dims, to which each index
// broadcasts; elsewhere than along the axis y has their extents, or 1, where all meet.
struct ScatterAddAttrs {
  int64_t axis = 0;
  static constexpr auto Fields() { return std::tuple{Field("axis", &ScatterAddAttrs::axis)}; }
};

// Rows of x in segments, one result for each: ops_segment.cc.
struct SegmentReduceAttrs {
  SegmentMode mode{};
  static constexpr auto Fields() { return std::tuple{Field("mode", &SegmentReduceAttrs::mode)}; }
};

// The number of the segment that each place stands in: ops_segment.cc.
struct SegmentIdsAttrs {
  static constexpr auto Fields() { return std::tuple{}; }
};

// Random numbers, a function of the row-major place of each element, the seed and the offset
// (inputs 0 and 1, or `seed` and 0 where absent): ops_rng.cc.
struct RngAttrs {
  RngDistribution distribution{};
  int64_t seed = 0;
  double probability = 1;           // bernoulli: of 1
  double minimum = 0, maximum = 1;  // uniform
  double mean = 0, deviation = 1;   // normal
  static constexpr auto Fields() {
    using A = RngAttrs;
    return std::tuple{Field("distribution", &A::distribution), Field("seed", &A::seed),
                      Field("probability", &A::probability),   Field("minimum", &A::minimum),
                      Field("maximum", &A::maximum),           Field("mean", &A::mean),
                      Field("deviation", &A::deviation)};
  }
};

// `lower` and `upper` diagonals beside the main one, stored along `axis`: ops_band.cc.
struct BandAttrs {
  int64_t lower = 0, upper = 0, axis = 0;
  double pad_value = 0;
  static constexpr auto Fields() {
    using A = BandAttrs;
    return std::tuple{Field("lower", &A::lower), Field("upper", &A::upper), Field("axis", &A::axis),
                      Field("pad_value", &A::pad_value)};
  }
};

// (token, weight, first_token_offset, token_index, token_ks) -> y: ops_moe.cc. Only the mode
// scatter reads top_k.
struct MoeGroupedMatmulAttrs {
  MoeMode mode{};
  int64_t top_k = 1;
  static constexpr auto Fields() {
    using A = MoeGroupedMatmulAttrs;
    return std::tuple{Field("mode", &A::mode), Field("top_k", &A::top_k)};
  }
};

// A network of recurrent layers; operands, layout of the weights and formulas are in ops_rnn.cc.
// `hidden` is H; `projected` is P, which is H where nothing is projected. With `clip` an LSTM's
// cell is held between the bounds where it is used; NaN becomes the lower one unless it propagates.
// Dropout is between layers. `padding` is what results have behind the ends of their sequences.
// `steps` is T where x is packed (rank 2), whose extents do not tell it.
struct RnnAttrs {
  RnnCell cell{};
  RnnBias bias = RnnBias::kDouble;
  int64_t layers = 1, hidden = 1, projected = 1, steps = 0;
  bool bidirectional = false, skip_input = false;
  bool clip = false, clip_propagates_nan = false;
  double clip_lower = 0, clip_upper = 0;
  double dropout = 0, padding = 0;
  static constexpr auto Fields() {
    using A = RnnAttrs;
    return std::tuple{Field("cell", &A::cell),
                      Field("bias", &A::bias),
                      Field("layers", &A::layers),
                      Field("hidden", &A::hidden),
                      Field("projected", &A::projected),
                      Field("steps", &A::steps),
                      Field("bidirectional", &A::bidirectional),
                      Field("skip_input", &A::skip_input),
                      Field("clip", &A::clip),
                      Field("clip_propagates_nan", &A::clip_propagates_nan),
                      Field("clip_lower", &A::clip_lower),
                      Field("clip_upper", &A::clip_upper),
                      Field("dropout", &A::dropout),
                      Field("padding", &A::padding)};
  }
};

// One layer's loop over time, both directions side by side, or its gradient: ops_recurrence.cc.
struct RecurrenceAttrs {
  RnnCell cell{};
  int64_t steps = 0;  // as in RnnAttrs
  bool clip = false, clip_propagates_nan = false;
  double clip_lower = 0, clip_upper = 0;
  static constexpr auto Fields() {
    using A = RecurrenceAttrs;
    return std::tuple{Field("cell", &A::cell),
                      Field("steps", &A::steps),
                      Field("clip", &A::clip),
                      Field("clip_propagates_nan", &A::clip_propagates_nan),
                      Field("clip_lower", &A::clip_lower),
                      Field("clip_upper", &A::clip_upper)};
  }
};

// Connectionist temporal classification; operands and formulas are in ops_ctc.cc. With `softmax`
// probs are logits. A sample whose label cannot be aligned has gradient 0, or with
// `skip_infeasible` that of the operand `before`. No label is longer than `max_label`.
struct CtcLossAttrs {
  bool softmax = true, skip_infeasible = false;
  int64_t max_label = 0;
  static constexpr auto Fields() {
    using A = CtcLossAttrs;
    return std::tuple{Field("softmax", &A::softmax), Field("skip_infeasible", &A::skip_infeasible),
                      Field("max_label", &A::max_label)};
  }
};

// Sums over the buffers of peers, whose numbers begin with `first`: ops_peers.cc.
struct PeerReduceAttrs {
  int64_t first = 0;
  static constexpr auto Fields() { return std::tuple{Field("first", &PeerReduceAttrs::first)}; }
};

// The value that a flag is given or waited for: ops_peers.cc.
struct SignalAttrs {
  int64_t value = 0;
  static constexpr auto Fields() { return std::tuple{Field("value", &SignalAttrs::value)}; }
};

struct AllAttrs {
  using Variant =
      std::variant<PointwiseAttrs, ReductionAttrs, GenStatsAttrs, BnFinalizeAttrs,
                   BnBwdWeightsAttrs, NormForwardAttrs, NormBackwardAttrs, BlockScaleAttrs,
                   ConvAttrs, MatmulAttrs, MapAttrs, IotaAttrs, ReduceAttrs, ReshapeAttrs,
                   TransposeAttrs, SliceAttrs, ConcatAttrs, ResampleAttrs, RngAttrs, SdpaAttrs,
                   PagedCacheLoadAttrs, GatherAttrs, BandAttrs, MoeGroupedMatmulAttrs, RaggedAttrs,
                   ScatterAttrs, ScatterAddAttrs, RnnAttrs, RecurrenceAttrs, CtcLossAttrs,
                   SegmentReduceAttrs, SegmentIdsAttrs, PeerReduceAttrs, SignalAttrs>;
};
using Attrs = AnyOf<AllAttrs>;

}  // namespace kiln::graph
