// The graph of each fused operation (fused_ops.h), from its constant pack.
#include <algorithm>

#include "api/legacy/calls/convolution.h"
#include "api/legacy/calls/fused_ops.h"
#include "api/legacy/plans/places.h"
#include "ir/graph/norm.h"
#include "ir/graph/ops.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;
using graph::kAbsent;
using graph::PointwiseMode;
using graph::TensorId;

// One operation's graph while it is made.
class FusedGraph {
 public:
  FusedGraph(CallGraph& g, const FusedConstPack& pack, const FusedOperands& operands)
      : g_(g), pack_(pack), o_(operands) {}

  Status Make();

 private:
  const TensorDesc& Desc(int label) const { return pack_.tensors[static_cast<size_t>(label)]; }
  Dims DimsOf(int label) const {
    const TensorDesc& desc = Desc(label);
    return Dims(desc.dims.begin(), desc.dims.begin() + desc.rank);
  }
  TensorId Apply(PointwiseMode mode, std::vector<TensorId> inputs) {
    return g_.Pointwise(mode, std::move(inputs), DType::kF32);
  }
  TensorId Rounded(TensorId value, int label);
  Result<TensorId> OrAbsent(int placeholder);

  Status CheckChannels(int desc, int64_t channels, int rank) const;
  Status CheckActivation() const;
  bool Activates() const;

  Result<TensorId> ScaleAndShift(TensorId x, int scale, int bias);
  Result<TensorId> Normalised();
  Result<ConvProblem> Problem(ConvDirection direction, int x, int w, int y) const;
  Status Statistics(TensorId y);

  Result<TensorId> WordsOf(TensorId positive);
  Result<TensorId> MaskOf();
  Result<Dims> OrderOfBits(int label) const;
  TensorId Weights(int64_t bits);

  Status ScaleBiasActivationConvolution();
  Status ScaleBiasActivationWgrad();
  Status Finalize(bool inference);
  Status ConvolutionScaleBiasAddActivation();
  Status ScaleBiasAddActivation();
  Status BackwardActivationAndNorm();

  CallGraph& g_;
  const FusedConstPack& pack_;
  const FusedOperands& o_;
};

// ---- parts

// As the tensor of the label stores it.
TensorId FusedGraph::Rounded(TensorId value, int label) {
  const Result<DType> type = ElementType(Desc(label).type);
  if (!type.ok() || *type == DType::kF32) return value;
  return g_.builder().Apply(GraphOp::kPointwise, {value},
                            graph::PointwiseAttrs{.mode = PointwiseMode::kIdentity},
                            {.dtype = *type, .compute = DType::kF32});
}

Result<TensorId> FusedGraph::OrAbsent(int placeholder) {
  if (!o_.Has(placeholder)) return static_cast<TensorId>(kAbsent);
  return g_.Read(o_[placeholder]);
}

// One number a channel.
Status FusedGraph::CheckChannels(int desc, int64_t channels, int rank) const {
  if (!pack_.is_set[static_cast<size_t>(desc)]) return {};
  const TensorDesc& t = Desc(desc);
  bool fits = t.rank == rank && t.dims[1] == channels;
  for (size_t d = 0; fits && d < static_cast<size_t>(t.rank); ++d) fits = d == 1 || t.dims[d] == 1;
  if (fits) return {};
  return Status::Error(Code::kBadParam, "parameter {} is {}; {} channels in {} dims are wanted",
                       desc, Text(t), channels, rank);
}

Status FusedGraph::CheckActivation() const {
  const int mode = pack_.activation.mode;
  if (!Activates() || mode == CUDNN_ACTIVATION_RELU) return {};
  return Status::Error(Code::kNotSupported, "activation {}; RELU and IDENTITY are possible", mode);
}

bool FusedGraph::Activates() const {
  return pack_.is_set[static_cast<size_t>(CUDNN_PARAM_ACTIVATION_DESC)] &&
         pack_.activation.mode != CUDNN_ACTIVATION_IDENTITY;
}

// Each of the two where it is there.
Result<TensorId> FusedGraph::ScaleAndShift(TensorId x, int scale, int bias) {
  for (const auto& [placeholder, mode] :
       {std::pair{scale, PointwiseMode::kMul}, {bias, PointwiseMode::kAdd}}) {
    if (!o_.Has(placeholder)) continue;
    ASSIGN_OR_RETURN(const TensorId by, g_.Read(o_[placeholder]));
    x = Apply(mode, {x, by});
  }
  return x;
}

// x, scaled, shifted and activated, as a convolution reads it.
Result<TensorId> FusedGraph::Normalised() {
  RETURN_IF_ERROR(CheckActivation());
  const TensorDesc& x_desc = Desc(CUDNN_PARAM_XDESC);
  RETURN_IF_ERROR(CheckSet(x_desc, "CUDNN_PARAM_XDESC"));
  RETURN_IF_ERROR(CheckChannels(CUDNN_PARAM_BN_EQSCALEBIAS_DESC, x_desc.dims[1], x_desc.rank));
  ASSIGN_OR_RETURN(const TensorId x, g_.Read(o_[CUDNN_PARAM_XDATA_PLACEHOLDER]));
  ASSIGN_OR_RETURN(TensorId value, ScaleAndShift(x, CUDNN_PARAM_BN_EQSCALE_PLACEHOLDER,
                                                 CUDNN_PARAM_BN_EQBIAS_PLACEHOLDER));
  if (Activates()) value = Apply(PointwiseMode::kReluFwd, {value});
  return value == x ? x : Rounded(value, CUDNN_PARAM_XDESC);
}

Result<ConvProblem> FusedGraph::Problem(ConvDirection direction, int x, int w, int y) const {
  const ConvProblem problem = {.direction = direction,
                               .x = Desc(x),
                               .w = Desc(w),
                               .y = Desc(y),
                               .conv = pack_.conv,
                               .filter = w == CUDNN_PARAM_WDESC ? pack_.w : pack_.dw};
  RETURN_IF_ERROR(Check(problem, RowOf(direction).any_workspace));
  if (problem.conv.compute != CUDNN_DATA_FLOAT)
    return Status::Error(Code::kNotSupported, "convolutions that compute in data type {}",
                         problem.conv.compute);
  g_.wishes.only_fma = problem.conv.math == CUDNN_FMA_MATH;
  return problem;
}

// The sums over images and places of what was stored in y, and of its squares.
Status FusedGraph::Statistics(TensorId y) {
  const TensorDesc& y_desc = Desc(CUDNN_PARAM_YDESC);
  RETURN_IF_ERROR(CheckChannels(CUDNN_PARAM_YSTATS_DESC, y_desc.dims[1], y_desc.rank));
  const auto write = [&](TensorId value, int placeholder) -> Status {
    if (!o_.Has(placeholder)) return {};
    Dims dims(static_cast<size_t>(y_desc.rank), 1);
    dims[1] = y_desc.dims[1];
    const TensorId sum = g_.builder().Reduction(graph::ReductionMode::kAdd, value, dims,
                                                {.dtype = DType::kF32, .compute = DType::kF32});
    return g_.Write(sum, o_[placeholder]);
  };
  RETURN_IF_ERROR(write(y, CUDNN_PARAM_YSUM_PLACEHOLDER));
  if (!o_.Has(CUDNN_PARAM_YSQSUM_PLACEHOLDER)) return {};
  return write(Apply(PointwiseMode::kMul, {y, y}), CUDNN_PARAM_YSQSUM_PLACEHOLDER);
}

// ---- the mask of an activation
//
// A bit an element, in the order of memory of the packed tensor that it belongs to; the element
// with the lowest address is the lowest bit of the first word.

// The dims from the outermost of the tensor to its innermost.
Result<Dims> FusedGraph::OrderOfBits(int label) const {
  const TensorDesc &t = Desc(label), &mask = Desc(CUDNN_PARAM_ACTIVATION_BITMASK_DESC);
  RETURN_IF_ERROR(CheckSet(mask, "CUDNN_PARAM_ACTIVATION_BITMASK_DESC"));
  if (mask.type != CUDNN_DATA_INT32 && mask.type != CUDNN_DATA_UINT8)
    return Status::Error(Code::kNotSupported,
                         "a mask of data type {}; INT32 and UINT8 are possible", mask.type);
  Dims order;
  for (int64_t d = 0; d < t.rank; ++d) order.push_back(d);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
    const auto key = [&](int64_t d) {
      const auto at = static_cast<size_t>(d);
      return std::pair(-t.strides[at], -t.dims[at]);
    };
    return key(a) < key(b);
  });
  int64_t elements = 1, words = 1;
  for (size_t d = 0; d < static_cast<size_t>(t.rank); ++d) elements *= t.dims[d];
  for (size_t d = 0; d < static_cast<size_t>(mask.rank); ++d) words *= mask.dims[d];
  if (Span(t) != elements || Span(mask) != words)
    return Status::Error(Code::kNotSupported, "a mask {} of {}: both must be packed", Text(mask),
                         Text(t));
  if (words * ElementBytes(mask.type) * 8 != elements)
    return Status::Error(Code::kBadParam, "a mask {} has not a bit for each element of {}",
                         Text(mask), Text(t));
  return order;
}

// 2^i for each of a word's bits: of i's own bits a_k the product of 1 + a_k (2^2^k - 1).
TensorId FusedGraph::Weights(int64_t bits) {
  Dims dims;
  for (int64_t n = 1; n < bits; n *= 2) dims.push_back(2);
  const auto rank = static_cast<int64_t>(dims.size());
  const auto apply = [&](PointwiseMode mode, TensorId a, TensorId b) {
    return g_.Pointwise(mode, {a, b}, DType::kF64);
  };
  TensorId product = g_.Constant(1, rank, DType::kF64);
  double factor = 2;
  for (int64_t k = 0; k < rank; ++k, factor *= factor) {
    const TensorId bit =
        g_.builder().Apply(GraphOp::kIota, {}, graph::IotaAttrs{.axis = rank - 1 - k},
                           {.dtype = DType::kI64, .compute = DType::kI64, .dims = dims});
    const TensorId more =
        apply(PointwiseMode::kMul, bit, g_.Constant(factor - 1, rank, DType::kF64));
    product = apply(PointwiseMode::kMul, product,
                    apply(PointwiseMode::kAdd, more, g_.Constant(1, rank, DType::kF64)));
  }
  return Reshaped(g_, product, {1, bits});
}

// The mask's words, as its memory has them, of a tensor of truths.
Result<TensorId> FusedGraph::WordsOf(TensorId positive) {
  ASSIGN_OR_RETURN(const Dims order, OrderOfBits(CUDNN_PARAM_YDESC));
  const TensorDesc& mask = Desc(CUDNN_PARAM_ACTIVATION_BITMASK_DESC);
  const int64_t bits = int64_t{ElementBytes(mask.type)} * 8,
                words = NumElements(g_.DimsOf(positive)) / bits;
  const auto rank = static_cast<int64_t>(order.size());
  TensorId bit =
      g_.Pointwise(PointwiseMode::kBinarySelect,
                   {g_.Constant(1, rank, DType::kF64), g_.Constant(0, rank, DType::kF64), positive},
                   DType::kF64);
  bit = Reshaped(g_, Transposed(g_, bit, order), {words, bits});
  const TensorId part = g_.Pointwise(PointwiseMode::kMul, {bit, Weights(bits)}, DType::kF64);
  TensorId word = g_.builder().Reduction(graph::ReductionMode::kAdd, part, {words, 1},
                                         {.dtype = DType::kF64, .compute = DType::kF64});
  if (mask.type == CUDNN_DATA_INT32) {  // the highest bit is the sign
    const TensorId is_negative =
        g_.builder().Apply(GraphOp::kPointwise, {word, g_.Constant(0x1p31, 2, DType::kF64)},
                           graph::PointwiseAttrs{.mode = PointwiseMode::kCmpGe},
                           {.dtype = DType::kBool, .compute = DType::kF64});
    const TensorId wrapped =
        g_.Pointwise(PointwiseMode::kSub, {word, g_.Constant(0x1p32, 2, DType::kF64)}, DType::kF64);
    word = g_.Pointwise(PointwiseMode::kBinarySelect, {wrapped, word, is_negative}, DType::kF64);
  }
  return Reshaped(g_, word, DimsOf(CUDNN_PARAM_ACTIVATION_BITMASK_DESC));
}

// 1 where the mask has a bit, else 0, with the extents of dy. Dividing by the weights is exact.
Result<TensorId> FusedGraph::MaskOf() {
  ASSIGN_OR_RETURN(const Dims order, OrderOfBits(CUDNN_PARAM_DYDESC));
  const TensorDesc& mask = Desc(CUDNN_PARAM_ACTIVATION_BITMASK_DESC);
  const int64_t bits = int64_t{ElementBytes(mask.type)} * 8;
  ASSIGN_OR_RETURN(TensorId word, g_.Read(o_[CUDNN_PARAM_ACTIVATION_BITMASK_PLACEHOLDER]));
  word = Reshaped(g_, word, {NumElements(g_.DimsOf(word)), 1});
  const TensorId weights = Weights(bits);
  const auto apply = [&](PointwiseMode mode, TensorId a, TensorId b) {
    return g_.Pointwise(mode, {a, b}, DType::kF64);
  };
  const auto floor = [&](TensorId x) {
    return g_.Pointwise(PointwiseMode::kFloor, {x}, DType::kF64);
  };
  const TensorId shifted = floor(apply(PointwiseMode::kDiv, word, weights)),
                 half = apply(PointwiseMode::kMul, shifted, g_.Constant(0.5, 2, DType::kF64));
  const TensorId twice = apply(PointwiseMode::kMul, floor(half), g_.Constant(2, 2, DType::kF64));
  TensorId bit = apply(PointwiseMode::kSub, shifted, twice);
  Dims in_order, back(order.size());
  const Dims dims = DimsOf(CUDNN_PARAM_DYDESC);
  for (size_t d = 0; d < order.size(); ++d) {
    in_order.push_back(dims[static_cast<size_t>(order[d])]);
    back[static_cast<size_t>(order[d])] = static_cast<int64_t>(d);
  }
  return Transposed(g_, Reshaped(g_, bit, in_order), back);
}

// ---- operations

Status FusedGraph::ScaleBiasActivationConvolution() {
  ASSIGN_OR_RETURN(const ConvProblem problem, Problem(ConvDirection::kForward, CUDNN_PARAM_XDESC,
                                                      CUDNN_PARAM_WDESC, CUDNN_PARAM_YDESC));
  ASSIGN_OR_RETURN(const TensorId x, Normalised());
  ASSIGN_OR_RETURN(const TensorId w, g_.Read(o_[CUDNN_PARAM_WDATA_PLACEHOLDER]));
  const TensorId y = Rounded(Convolve(g_, problem, x, w), CUDNN_PARAM_YDESC);
  RETURN_IF_ERROR(Statistics(y));
  return g_.Write(y, o_[CUDNN_PARAM_YDATA_PLACEHOLDER]);
}

Status FusedGraph::ScaleBiasActivationWgrad() {
  ASSIGN_OR_RETURN(const ConvProblem problem,
                   Problem(ConvDirection::kBackwardFilter, CUDNN_PARAM_XDESC, CUDNN_PARAM_DWDESC,
                           CUDNN_PARAM_DYDESC));
  ASSIGN_OR_RETURN(const TensorId x, Normalised());
  ASSIGN_OR_RETURN(const TensorId dy, g_.Read(o_[CUDNN_PARAM_DYDATA_PLACEHOLDER]));
  return g_.Write(Convolve(g_, problem, x, dy), o_[CUDNN_PARAM_DWDATA_PLACEHOLDER]);
}

Status FusedGraph::Finalize(bool inference) {
  const int like = inference ? CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC : CUDNN_PARAM_YSTATS_DESC;
  RETURN_IF_ERROR(CheckSet(Desc(like), "the descriptor of the statistics"));
  const int64_t channels = Desc(like).dims[1];
  const int rank = Desc(like).rank;
  for (const int desc : {CUDNN_PARAM_YSTATS_DESC, CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC,
                         CUDNN_PARAM_BN_EQSCALEBIAS_DESC})
    RETURN_IF_ERROR(CheckChannels(desc, channels, rank));
  graph::Node node = {.op = GraphOp::kBnFinalize,
                      .compute = DType::kF32,
                      .attrs = graph::BnFinalizeAttrs{.inference = inference}};
  for (const int placeholder :
       {CUDNN_PARAM_YSUM_PLACEHOLDER, CUDNN_PARAM_YSQSUM_PLACEHOLDER,
        CUDNN_PARAM_BN_SCALE_PLACEHOLDER, CUDNN_PARAM_BN_BIAS_PLACEHOLDER,
        CUDNN_PARAM_BN_RUNNING_MEAN_PLACEHOLDER, CUDNN_PARAM_BN_RUNNING_VAR_PLACEHOLDER}) {
    ASSIGN_OR_RETURN(const TensorId input, OrAbsent(placeholder));
    node.inputs.push_back(input);
  }
  node.inputs.push_back(g_.Read(o_.epsilon, rank));
  if (!inference)
    node.inputs.insert(node.inputs.end(), {g_.Read(o_.factor, rank), g_.Read(o_.count, rank)});
  const Operand none;
  const Operand* const results[] = {
      &o_.next_mean,
      &o_.next_variance,
      inference ? &none : &o_[CUDNN_PARAM_BN_SAVED_MEAN_PLACEHOLDER],
      inference ? &none : &o_[CUDNN_PARAM_BN_SAVED_INVSTD_PLACEHOLDER],
      &o_[CUDNN_PARAM_BN_EQSCALE_PLACEHOLDER],
      &o_[CUDNN_PARAM_BN_EQBIAS_PLACEHOLDER]};
  for (const Operand* result : results) {
    const bool is_wanted = result->slot >= 0;
    node.outputs.push_back(is_wanted ? g_.Virtual("finalized", DimsOf(like), DType::kF32)
                                     : static_cast<TensorId>(kAbsent));
  }
  const auto outputs = node.outputs;
  g_.builder().graph().AddNode(std::move(node));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] != kAbsent) RETURN_IF_ERROR(g_.Write(outputs[i], *results[i]));
  }
  return {};
}

// y = activation(scale * convolution + z scale * z + bias).
Status FusedGraph::ConvolutionScaleBiasAddActivation() {
  RETURN_IF_ERROR(CheckActivation());
  ASSIGN_OR_RETURN(const ConvProblem problem, Problem(ConvDirection::kForward, CUDNN_PARAM_XDESC,
                                                      CUDNN_PARAM_WDESC, CUDNN_PARAM_YDESC));
  const TensorDesc& y = Desc(CUDNN_PARAM_YDESC);
  for (const int desc : {CUDNN_PARAM_BN_EQSCALEBIAS_DESC, CUDNN_PARAM_BN_Z_EQSCALEBIAS_DESC})
    RETURN_IF_ERROR(CheckChannels(desc, y.dims[1], y.rank));
  ASSIGN_OR_RETURN(const TensorId x, g_.Read(o_[CUDNN_PARAM_XDATA_PLACEHOLDER]));
  ASSIGN_OR_RETURN(const TensorId w, g_.Read(o_[CUDNN_PARAM_WDATA_PLACEHOLDER]));
  const TensorId convolved = Convolve(g_, problem, x, w);
  ASSIGN_OR_RETURN(TensorId value, ScaleAndShift(convolved, CUDNN_PARAM_BN_EQSCALE_PLACEHOLDER,
                                                 CUDNN_PARAM_BN_Z_EQBIAS_PLACEHOLDER));
  if (o_.Has(CUDNN_PARAM_ZDATA_PLACEHOLDER)) {
    RETURN_IF_ERROR(CheckSameDims(Desc(CUDNN_PARAM_ZDESC), y));
    ASSIGN_OR_RETURN(TensorId z, g_.Read(o_[CUDNN_PARAM_ZDATA_PLACEHOLDER]));
    if (o_.Has(CUDNN_PARAM_BN_Z_EQSCALE_PLACEHOLDER)) {
      ASSIGN_OR_RETURN(const TensorId scale, g_.Read(o_[CUDNN_PARAM_BN_Z_EQSCALE_PLACEHOLDER]));
      z = Apply(PointwiseMode::kMul, {z, scale});
    }
    value = Apply(PointwiseMode::kAdd, {value, z});
  }
  if (Activates()) value = Apply(PointwiseMode::kReluFwd, {value});
  return g_.Write(value, o_[CUDNN_PARAM_YDATA_PLACEHOLDER]);
}

Status FusedGraph::ScaleBiasAddActivation() {
  RETURN_IF_ERROR(CheckActivation());
  const TensorDesc& x_desc = Desc(CUDNN_PARAM_XDESC);
  RETURN_IF_ERROR(CheckSet(x_desc, "CUDNN_PARAM_XDESC"));
  RETURN_IF_ERROR(CheckSameDims(x_desc, Desc(CUDNN_PARAM_YDESC)));
  for (const int desc : {CUDNN_PARAM_BN_EQSCALEBIAS_DESC, CUDNN_PARAM_BN_Z_EQSCALEBIAS_DESC})
    RETURN_IF_ERROR(CheckChannels(desc, x_desc.dims[1], x_desc.rank));
  ASSIGN_OR_RETURN(TensorId value, g_.Read(o_[CUDNN_PARAM_XDATA_PLACEHOLDER]));
  ASSIGN_OR_RETURN(value, ScaleAndShift(value, CUDNN_PARAM_BN_EQSCALE_PLACEHOLDER,
                                        CUDNN_PARAM_BN_EQBIAS_PLACEHOLDER));
  if (o_.Has(CUDNN_PARAM_ZDATA_PLACEHOLDER)) {
    RETURN_IF_ERROR(CheckSameDims(x_desc, Desc(CUDNN_PARAM_ZDESC)));
    ASSIGN_OR_RETURN(TensorId z, g_.Read(o_[CUDNN_PARAM_ZDATA_PLACEHOLDER]));
    ASSIGN_OR_RETURN(z, ScaleAndShift(z, CUDNN_PARAM_BN_Z_EQSCALE_PLACEHOLDER,
                                      CUDNN_PARAM_BN_Z_EQBIAS_PLACEHOLDER));
    value = Apply(PointwiseMode::kAdd, {value, z});
  }
  if (o_.Has(CUDNN_PARAM_ACTIVATION_BITMASK_PLACEHOLDER)) {
    const TensorId positive =
        g_.builder().Apply(GraphOp::kPointwise, {value, g_.Constant(0, x_desc.rank, DType::kF32)},
                           graph::PointwiseAttrs{.mode = PointwiseMode::kCmpGt},
                           {.dtype = DType::kBool, .compute = DType::kF32});
    ASSIGN_OR_RETURN(const TensorId words, WordsOf(positive));
    RETURN_IF_ERROR(g_.Write(words, o_[CUDNN_PARAM_ACTIVATION_BITMASK_PLACEHOLDER]));
  }
  if (Activates()) value = Apply(PointwiseMode::kReluFwd, {value});
  return g_.Write(value, o_[CUDNN_PARAM_YDATA_PLACEHOLDER]);
}

// dz is dy where the activation let x pass: by the mask, or by what the forward direction made of
// x. dx, dscale and dbias are the gradients of a batch norm by dz.
Status FusedGraph::BackwardActivationAndNorm() {
  RETURN_IF_ERROR(CheckActivation());
  const TensorDesc& x_desc = Desc(CUDNN_PARAM_XDESC);
  RETURN_IF_ERROR(CheckSet(x_desc, "CUDNN_PARAM_XDESC"));
  for (const int desc : {CUDNN_PARAM_DYDESC, CUDNN_PARAM_DXDESC})
    RETURN_IF_ERROR(CheckSameDims(x_desc, Desc(desc)));
  RETURN_IF_ERROR(
      CheckChannels(CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC, x_desc.dims[1], x_desc.rank));
  const auto read = [&](int placeholder) { return g_.Read(o_[placeholder]); };
  ASSIGN_OR_RETURN(const TensorId x, read(CUDNN_PARAM_XDATA_PLACEHOLDER));
  ASSIGN_OR_RETURN(TensorId dz, read(CUDNN_PARAM_DYDATA_PLACEHOLDER));
  ASSIGN_OR_RETURN(const TensorId scale, read(CUDNN_PARAM_BN_SCALE_PLACEHOLDER));
  ASSIGN_OR_RETURN(const TensorId mean, read(CUDNN_PARAM_BN_SAVED_MEAN_PLACEHOLDER));
  ASSIGN_OR_RETURN(const TensorId inv_std, read(CUDNN_PARAM_BN_SAVED_INVSTD_PLACEHOLDER));
  if (o_.Has(CUDNN_PARAM_ACTIVATION_BITMASK_PLACEHOLDER)) {
    ASSIGN_OR_RETURN(const TensorId mask, MaskOf());
    dz = Apply(PointwiseMode::kMul, {dz, mask});
  } else if (Activates()) {
    TensorId y = Apply(PointwiseMode::kMul, {Apply(PointwiseMode::kSub, {x, mean}), inv_std});
    ASSIGN_OR_RETURN(
        y, ScaleAndShift(y, CUDNN_PARAM_BN_SCALE_PLACEHOLDER, CUDNN_PARAM_BN_BIAS_PLACEHOLDER));
    dz = Apply(PointwiseMode::kReluBwd, {dz, y});
  }
  if (o_.Has(CUDNN_PARAM_DZDATA_PLACEHOLDER))
    RETURN_IF_ERROR(g_.Write(dz, o_[CUDNN_PARAM_DZDATA_PLACEHOLDER]));
  const Dims statistics = DimsOf(CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC);
  const TensorId dx = g_.Virtual("dbn", DimsOf(CUDNN_PARAM_XDESC), DType::kF32),
                 dscale = g_.Virtual("dscale", statistics, DType::kF32),
                 dbias = g_.Virtual("dbias", statistics, DType::kF32);
  g_.builder().graph().AddNode(
      {.op = GraphOp::kNormBackward,
       .inputs = {x, dz, mean, inv_std, scale},
       .outputs = {dx, dscale, dbias},
       .compute = DType::kF32,
       .attrs = graph::NormBackwardAttrs{.mode = graph::NormMode::kBatch}});
  if (o_.Has(CUDNN_PARAM_BN_DSCALE_PLACEHOLDER))
    RETURN_IF_ERROR(g_.Write(dscale, o_[CUDNN_PARAM_BN_DSCALE_PLACEHOLDER]));
  if (o_.Has(CUDNN_PARAM_BN_DBIAS_PLACEHOLDER))
    RETURN_IF_ERROR(g_.Write(dbias, o_[CUDNN_PARAM_BN_DBIAS_PLACEHOLDER]));
  return g_.Write(dx, o_[CUDNN_PARAM_DXDATA_PLACEHOLDER]);
}

Status FusedGraph::Make() {
  switch (static_cast<cudnnFusedOps_t>(pack_.op)) {
    case CUDNN_FUSED_SCALE_BIAS_ACTIVATION_CONV_BNSTATS:
      return ScaleBiasActivationConvolution();
    case CUDNN_FUSED_SCALE_BIAS_ACTIVATION_WGRAD:
      return ScaleBiasActivationWgrad();
    case CUDNN_FUSED_BN_FINALIZE_STATISTICS_TRAINING:
      return Finalize(false);
    case CUDNN_FUSED_BN_FINALIZE_STATISTICS_INFERENCE:
      return Finalize(true);
    case CUDNN_FUSED_CONV_SCALE_BIAS_ADD_ACTIVATION:
      return ConvolutionScaleBiasAddActivation();
    case CUDNN_FUSED_SCALE_BIAS_ADD_ACTIVATION_GEN_BITMASK:
      return ScaleBiasAddActivation();
    case CUDNN_FUSED_DACTIVATION_FORK_DBATCHNORM:
      return BackwardActivationAndNorm();
  }
  return {};
}

}  // namespace

Status MakeFusedGraph(CallGraph& g, const FusedConstPack& pack, const FusedOperands& operands) {
  return FusedGraph(g, pack, operands).Make();
}

}  // namespace kiln::api::legacy
