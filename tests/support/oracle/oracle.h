// Meaning of each operation of the backend API: plain loops in f64, from the API reference.
//
// Nothing here is shared with the compiler, so that an agreement of the two says something. Each
// function takes and gives Dense tensors: a value and a bound on the error that a correct
// implementation may have (tensor.h). The bound is derived, not guessed, by three rules:
//
//   reductions  e = Σ eᵢ + u · min(n, 4 + 2√n) · Σ|tᵢ|   n terms t, each with its own error eᵢ (for
//               a product |a|·e_b + |b|·e_a + e_a·e_b), u the unit roundoff of the compute type:
//               any order of summation, fused or not.
//   functions   the largest change of f when every operand moves by its error, plus u · (rel·|f| +
//               abs·s) with the factors of the mode's row in pointwise.cc and s = 1 + the largest
//               operand. Where f jumps inside the operands' errors (floor, comparisons) the bound
//               covers both sides.
//   rounding    RoundTo(dtype) moves the value and keeps as bound whatever is farther: the
//               unrounded value or the rounded ends, so that an implementation may keep an
//               intermediate unrounded.
//
// Integer and boolean compute types have u = 0: results must be exact. f64 is summed in long
// double.
#pragma once

#include <span>
#include <string_view>

#include "tests/support/oracle/tensor.h"

namespace kiln::oracle {

// ---- Convolution: x[N, G*C, spatial…], w[G*K, C, filter…], y[N, G*K, out…], 1 to 3 spatial dims.
struct ConvGeometry {
  Dims pre_padding, post_padding, stride, dilation;
  bool flip = false;  // CUDNN_CONVOLUTION: the filter is rotated by 180 degrees
};
Dims ConvOutputDims(const ConvGeometry& geometry, const Dims& x, const Dims& w);

struct Scaling {  // result = alpha * op + beta * previous
  double alpha = 1, beta = 0;
  const Dense* previous = nullptr;
};

// The exactness with which an implementation computes. `operand_roundoff` is for hardware that
// rounds the operands of a contraction first (TF32: 2^-11); 0 where it must not. `sum_roundoff` is
// for tensor cores that add with fewer bits than the compute type: the error in units of the
// largest partial sum that there can be, Σ|tᵢ|.
struct Precision {
  DType compute = DType::kF32;
  double operand_roundoff = 0;
  double sum_roundoff = 0;
};
// Hopper's fp8 tensor cores add with about 14 bits (DeepSeek-V3 Technical Report, section 3.3.2).
// They cut, and errors of one sign add up: up to 1.22 * 2^-13 of Σ|tᵢ| was measured on an H200.
inline constexpr double kFp8SumRoundoff = 0x1p-12;
Dense ConvFprop(const ConvGeometry&, const Dense& x, const Dense& w, const Scaling&, Precision);
Dense ConvDgrad(const ConvGeometry&, const Dense& dy, const Dense& w, const Dims& dx,
                const Scaling&, Precision);
Dense ConvWgrad(const ConvGeometry&, const Dense& x, const Dense& dy, const Dims& dw,
                const Scaling&, Precision);

// ---- Matmul: c[…, M, N] = a[…, M, K] b[…, K, N]. Batch dims broadcast; a batch dim of a that is a
// multiple of b's repeats each entry of b. Overrides have one entry a batch (or one for all): rows
// and columns of c beyond them are padding_value, the sum over K stops there. ----
struct MatmulOverrides {
  const Dense* m = nullptr;
  const Dense* n = nullptr;
  const Dense* k = nullptr;
  double padding_value = 0;
};
Dims MatmulOutputDims(const Dims& a, const Dims& b);
Dense Matmul(const Dense& a, const Dense& b, const MatmulOverrides&, Precision);

// ---- Pointwise: y = f(alpha1 * x, alpha2 * b, t); backward modes take dy and x. ----
struct PointwiseParams {
  double alpha1 = 1, alpha2 = 1;
  double relu_lower = 0, relu_upper = 1e300, relu_slope = 0;
  double elu_alpha = 1, softplus_beta = 1, swish_beta = 1;
  bool propagate_nan = true;  // CUDNN_PROPAGATE_NAN of relu
  int64_t axis = 0;           // gen_index
};

struct PointwiseMode {
  std::string_view name;  // the enumerator without its prefix, lower case
  int cudnn;              // cudnnPointwiseMode_t
  int operands;           // 1: x; 2: x, b or dy, x; 3: x, b, t
  bool backward;
  double (*function)(const PointwiseParams&, double, double, double);
  double rel, abs;  // see above, in units of the unit roundoff
  double jitter;    // operands may be off by jitter * u relatively (mod)
};
std::span<const PointwiseMode> PointwiseModes();
const PointwiseMode* FindPointwiseMode(std::string_view name);

Dims BroadcastDims(std::span<const Dense* const> operands);
Dense Pointwise(const PointwiseMode&, const PointwiseParams&,
                std::span<const Dense* const> operands, const Dims& out, DType compute);

// ---- Reduction over every dim where `out` has extent 1. Min, max and amax skip NaN. ----
enum class Reduce {
  kAdd,
  kMul,
  kMin,
  kMax,
  kAmax,
  kAvg,
  kNorm1,
  kNorm2,
  kMulNoZeros
};  // cudnnReduceTensorOp_t
Dense Reduction(Reduce mode, const Dense& x, const Dims& out, DType compute);

// ---- Batch norm statistics. x[N, C, …] -> sum and sum of squares over all but C. ----
struct GenStatsResult {
  Dense sum, sq_sum;
};
GenStatsResult GenStats(const Dense& x, DType compute);

// Null inputs are absent: scale 1, bias 0. In inference mode the running statistics are the
// statistics.
struct BnFinalizeInputs {
  const Dense *sum = nullptr, *sq_sum = nullptr, *scale = nullptr, *bias = nullptr;
  const Dense *prev_mean = nullptr, *prev_var = nullptr;
  double epsilon = 1e-5, factor = 0.1, count = 1;
  bool inference = false;
};
struct BnFinalizeResult {
  Dense updated_mean, updated_var, saved_mean, saved_inv_std, eq_scale, eq_bias;
};
BnFinalizeResult BnFinalize(const BnFinalizeInputs&, DType compute);

// ---- Random numbers at the row-major place of each element. ----
struct RandomNumbers {
  std::string_view
      distribution;  // bernoulli: probability; uniform: from, to; normal: mean, deviation
  double first = 0, second = 0;
  int64_t seed = 0, offset = 0;
};
uint32_t RandomWord(int64_t place, int64_t seed, int64_t offset);
// Half place % 2 of word place / 2, the low one first.
uint32_t RandomHalf(int64_t place, int64_t seed, int64_t offset);
Dense Random(const RandomNumbers&, const Dims& dims, DType compute);

// ---- Resampling of x[N, C, spatial…]. Lengths of spatial dim s count in 1 / unit[s]. ----
struct Window {
  enum class Mode { kNearest, kBilinear, kAvg, kMax, kAvgExclude } mode = Mode::kMax;
  enum class Padding { kZero, kNegInf, kEdge } padding = Padding::kZero;
  bool propagate_nan = false;
  Dims window, stride, pre_padding, unit;
};
struct WindowResult {
  Dense y, index;
};
// Pooling reads x[p * stride - pre_padding + t] for each t below window; the maximum is the first
// of the largest, in row-major order of t, which is the index. Interpolation reads at
// (p + 1/2) * stride - pre_padding.
WindowResult WindowForward(const Window&, const Dense& x, const Dims& y, DType compute);
// By `index`, where there is one; else the maximum's place is searched in `x`.
Dense WindowBackward(const Window&, const Dense& dy, const Dense* index, const Dense* x,
                     const Dims& dx, DType compute);

// ---- Norms. `stats` are the extents of mean and inv_variance: where they divide x's, the elements
// of x that fall together share a statistic (dims that are 1; the channels of a group norm).
// Weights broadcast to x. Null inputs are absent: scale 1, bias 0. ----
enum class Norm { kLayer, kInstance, kBatch, kGroup, kRms, kAdaLayer };  // cudnnBackendNormMode_t
// The extents that follow where no statistics are passed; not of a group norm.
Dims NormStats(Norm mode, const Dims& x, const Dense* scale, const Dense* bias);

struct NormForwardInputs {
  Norm mode{};
  const Dense* x = nullptr;
  const Dense *mean = nullptr, *inv_variance = nullptr;  // given: inference
  const Dense *scale = nullptr, *bias = nullptr;
  const Dense *running_mean = nullptr, *running_var = nullptr;
  Dims stats;
  double epsilon = 0, factor = 0;
};
struct NormForwardResult {
  Dense y, mean, inv_variance, next_mean, next_var;
};
NormForwardResult NormForward(const NormForwardInputs&, DType compute);

struct NormBackwardInputs {  // no mean: RMS
  const Dense *x = nullptr, *dy = nullptr, *mean = nullptr, *inv_variance = nullptr;
  const Dense* scale = nullptr;
  Dims weights;  // extents of dscale and dbias
};
struct NormBackwardResult {
  Dense dx, dscale, dbias;
};
NormBackwardResult NormBackward(const NormBackwardInputs&, DType compute);

struct BnBwdWeightsInputs {
  const Dense *x = nullptr, *dy = nullptr, *mean = nullptr, *inv_std = nullptr, *scale = nullptr;
};
struct BnBwdWeightsResult {  // dx = eq_dy_scale * dy + eq_x_scale * x + eq_bias
  Dense dscale, dbias, eq_dy_scale, eq_x_scale, eq_bias;
};
BnBwdWeightsResult BnBwdWeights(const BnBwdWeightsInputs&, DType compute);

// ---- Blocks that share scales: element i of a dim with blocks of b has scale i / b. ----
struct BlockQuantized {
  Dense y, scale;
};
Dense BlockScaleDequantize(const Dense& x, const Dense& scale, const Dims& blocks, DType compute);
// scale = max |x| of the block / the largest value of y's type, rounded up to the scale's type.
BlockQuantized BlockScaleQuantize(const Dense& x, const Dims& scale_dims, const Dims& blocks,
                                  DType y_type, DType scale_type, DType compute);

// ---- Attention: o = softmax(scale q kᵀ + bias + slope (j - i)) v by rows, over the keys that a
// query sees; stats = log of the sum of exp(score). Null operands are absent. `type`: what weights
// may be rounded to. A row that sees nothing is 0, its stats -inf. ----
struct SdpaInputs {
  const Dense *q = nullptr, *k = nullptr, *v = nullptr, *scale = nullptr;
  const Dense *seq_q = nullptr, *seq_kv = nullptr, *page_table_k = nullptr, *page_table_v = nullptr;
  const Dense *bias = nullptr, *alibi = nullptr, *sink = nullptr;
  // A bit for 128 queries and 128 keys; the first of 8 blocks of keys is a byte's lowest.
  const Dense* block_mask = nullptr;
};
struct SdpaParams {
  double scale = 1;
  int64_t left = -1, right = -1;  // keys last - left < j <= last + right; -1: no bound
  bool bottom_right = false;      // last: i, or with this i + keys - queries
  double operand_roundoff = 0;    // of what contractions read: TF32
};
struct SdpaForwardResult {
  Dense o, stats;
};
SdpaForwardResult SdpaForward(const SdpaInputs&, const SdpaParams&, DType compute, DType type);
struct SdpaBackwardResult {
  Dense dq, dk, dv, dbias;
};
SdpaBackwardResult SdpaBackward(const SdpaInputs&, const Dense& o, const Dense& grad,
                                const Dense& stats, const SdpaParams&, DType compute, DType type);
// y[b, h, s, d] (or d, s: `along_last`) is row s % block of the container's block table[b, s /
// block]; 0 from lengths[b] on and where there is no such block.
Dense PagedCacheLoad(const Dense& container, const Dense& table, const Dense& lengths,
                     const Dims& out, bool along_last);

// ---- Band matrices: `lower` and `upper` diagonals beside the main one, stored along `axis`. ----
struct Band {
  int64_t lower = 0, upper = 0, axis = 0;
  double pad = 0;
};
Dense ExpandBand(const Band&, const Dense& x, const Dims& out);
Dense ContractBand(const Band&, const Dense& x, const Dims& out);

// ---- Softmax along the last dim; the sink counts as one more x of the row, without a result. ----
struct SoftmaxResult {
  Dense y, stats, max, sum;
};
SoftmaxResult Softmax(const Dense& x, const Dense* sink, bool log2, DType compute);

// ---- x where a comparison of its row's place with its column's holds, else the fill. Null: 0, and
// -inf for the fill. Lengths are one a batch, cumulated ones one more; `left` moves columns,
// `shift` rows. ----
struct BandMaskInputs {
  const Dense *x = nullptr, *fill = nullptr;
  const Dense *len_q = nullptr, *len_kv = nullptr, *left = nullptr, *shift = nullptr;
  const Dense *cu_q = nullptr, *cu_kv = nullptr;
  std::string_view comparison;  // eq, neq, gt, ge, lt, le
};
Dense BandMask(const BandMaskInputs&);

// ---- Tokens times the weights of their experts; null: not routed. ----
struct GroupedTokens {
  const Dense *token = nullptr, *weight = nullptr, *first = nullptr;
  const Dense* gather = nullptr;                         // a source of each row
  const Dense *scatter = nullptr, *scatter_k = nullptr;  // a destination of each row
  int64_t top_k = 1;
};
Dense GroupedMatmul(const GroupedTokens&, const Dims& out, Precision precision);

// ---- The gradient of those weights: dw[e, k, n], over the tokens of each expert. ----
Dense GroupedWeightGradient(const Dense& token, const Dense& doutput, const Dense& first,
                            const Dims& dw, Precision precision);

// ---- Rotary position embedding: pairs of the last rope_dim elements of a row (all where it is 0),
// half of them apart, turned by the angles [places or more, 1…, rope_dim or more] of the row's
// place along the dim before the last, and by their negatives in the gradient. All are scaled. ----
struct Rotation {
  const Dense *x = nullptr, *angles = nullptr;
  double scale = 1;
  int64_t rope_dim = 0;
  bool is_backward = false;
};
Dense Rope(const Rotation&, DType compute);

// ---- Complex numbers: a dim of two parts behind the others, or the parts apart. ----
struct ComplexParts {
  Dense re, im;
};
ComplexParts SplitComplex(const Dense& x);
Dense JoinComplex(const ComplexParts& x);
// mul, add_square, div, reciprocal, abs, exp, cmp_eq, cmp_neq, binary_select.
ComplexParts ComplexPointwise(std::string_view name, std::span<const ComplexParts> operands,
                              const Dims& out, DType compute);
// Over every dim where `out` has extent 1, of all numbers or of those that are not 0.
ComplexParts ComplexProduct(const ComplexParts& x, const Dims& out, bool no_zeros, DType compute);
Dense AddUp(const Dense& a, const Dense& b, double factor, DType compute);  // a + factor * b

// ---- Views and copies. ----
// Both tensors dense in memory: the element at memory offset o stays there. Else: the same
// row-major order.
Dense Reshape(const Dense& x, const Dims& x_strides, const Dims& out, const Dims& out_strides);
Dense Transpose(const Dense& x, const Dims& permutation);  // y.dims[i] = x.dims[permutation[i]]
Dense Slice(const Dense& x, const Dims& start, const Dims& step, const Dims& out);
Dense Concat(std::span<const Dense* const> xs, int64_t axis);
Dense RoundTo(DType dtype, const Dense& x);
// With a bound that holds one rounding to `dtype` on the way, at the value's own scale.
Value MayRound(DType dtype, Value x);

// ---- Shared by the families. ----
// A running sum of terms with errors.
class Accumulator {
 public:
  void Add(double term, double error);
  Value Result(DType compute, double sum_roundoff = 0) const;
  int64_t terms() const { return terms_; }

 private:
  long double sum_ = 0, magnitude_ = 0, error_ = 0;
  int64_t terms_ = 0;
};
Value Finish(long double value, double error,
             DType compute);                                 // overflow and NaN of the compute type
size_t BroadcastIndex(const Dims& dims, const Dims& index);  // row-major, extents 1 stay at 0

}  // namespace kiln::oracle
