#include "api/legacy/descriptors/rnn_descriptor.h"

#include <algorithm>

#include "api/legacy/functions.h"
#include "api/lifecycle/handle.h"
#include "api/spec/generation.h"
#include "api/spec/names.h"
#include "ir/dtype.h"

namespace kiln::api::legacy {
namespace {

std::string TypeName(int type) { return NameOf(static_cast<cudnnDataType_t>(type)); }

// A row is a type of data, a precision of arithmetic that it takes, and the first generation of
// cuDNN that has the pair.
struct PrecisionRow {
  int type, precision, first_generation;
};
constexpr PrecisionRow kPrecisions[] = {
    {CUDNN_DATA_HALF, CUDNN_DATA_FLOAT, 8},     {CUDNN_DATA_HALF, CUDNN_DATA_HALF, 8},
    {CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, 8},    {CUDNN_DATA_DOUBLE, CUDNN_DATA_DOUBLE, 8},
    {CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT, 9},
};

Status CheckPrecision(int type, int precision) {
  for (const PrecisionRow& row : kPrecisions) {
    if (row.type == type && row.precision == precision &&
        ThisGeneration().major >= row.first_generation)
      return {};
  }
  return Status::Error(Code::kNotSupported, "data of type {} with arithmetic in {}", TypeName(type),
                       TypeName(precision));
}

Status CheckModes(const RnnDesc& d) {
  RETURN_IF_ERROR(CheckEnum(d.algo, CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H, "cudnnRNNAlgo_t"));
  RETURN_IF_ERROR(CheckEnum(d.cell, CUDNN_GRU, "cudnnRNNMode_t"));
  RETURN_IF_ERROR(CheckEnum(d.bias, CUDNN_RNN_SINGLE_REC_BIAS, "cudnnRNNBiasMode_t"));
  RETURN_IF_ERROR(CheckEnum(d.direction, CUDNN_BIDIRECTIONAL, "cudnnDirectionMode_t"));
  RETURN_IF_ERROR(CheckEnum(d.input_mode, CUDNN_SKIP_INPUT, "cudnnRNNInputMode_t"));
  return CheckEnum(d.math, CUDNN_FMA_MATH, "cudnnMathType_t");
}

Status CheckPositive(int value, std::string_view name) {
  if (value > 0) return {};
  return Status::Error(Code::kBadParam, "{} is {}; it has to be positive", name, value);
}

Status CheckBias(const RnnDesc& d) {
  if (d.bias == CUDNN_RNN_DOUBLE_BIAS || d.algo == CUDNN_RNN_ALGO_STANDARD) return {};
  return Status::Error(
      Code::kNotSupported,
      "bias mode {} with a persistent algorithm; CUDNN_RNN_DOUBLE_BIAS is possible", d.bias);
}

Status CheckProjection(const RnnDesc& d) {
  if (d.projected > d.hidden)
    return Status::Error(Code::kNotSupported, "a projection to {} elements from {} hidden ones",
                         d.projected, d.hidden);
  if (d.projected == d.hidden) return {};
  if (d.cell != CUDNN_LSTM)
    return Status::Error(Code::kNotSupported,
                         "a projection to {} elements; LSTM cells alone have one", d.projected);
  if (d.algo != CUDNN_RNN_ALGO_STANDARD)
    return Status::Error(Code::kNotSupported,
                         "a projection with algorithm {}; CUDNN_RNN_ALGO_STANDARD has one", d.algo);
  return {};
}

Status CheckPersistent(const RnnDesc& d) {
  if (d.algo != CUDNN_RNN_ALGO_STANDARD && d.math_precision == CUDNN_DATA_HALF)
    return Status::Error(Code::kNotSupported,
                         "arithmetic in half with algorithm {}; CUDNN_RNN_ALGO_STANDARD has it",
                         d.algo);
  const bool is_static =
      d.algo == CUDNN_RNN_ALGO_PERSIST_STATIC || d.algo == CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H;
  if (!is_static || d.type != CUDNN_DATA_DOUBLE) return {};
  return Status::Error(Code::kNotSupported, "data of type double with algorithm {}", d.algo);
}

Status CheckV8(const RnnDesc& d) {
  RETURN_IF_ERROR(CheckModes(d));
  RETURN_IF_ERROR(CheckPositive(d.input, "inputSize"));
  RETURN_IF_ERROR(CheckPositive(d.hidden, "hiddenSize"));
  RETURN_IF_ERROR(CheckPositive(d.projected, "projSize"));
  RETURN_IF_ERROR(CheckPositive(d.layers, "numLayers"));
  if ((d.flags & ~unsigned{CUDNN_RNN_PADDED_IO_ENABLED}) != 0)
    return Status::Error(Code::kBadParam, "auxFlags is {:#x}; CUDNN_RNN_PADDED_IO_ENABLED or 0",
                         d.flags);
  RETURN_IF_ERROR(CheckPrecision(d.type, d.math_precision));
  RETURN_IF_ERROR(CheckBias(d));
  RETURN_IF_ERROR(CheckPersistent(d));
  return CheckProjection(d);
}

Result<RnnDesc*> Rnn(void* object) { return Get<RnnDesc>(object); }

Result<RnnDesc*> Rnn(void* handle, void* object) {
  RETURN_IF_ERROR(HandleFrom(handle).status());
  return Get<RnnDesc>(object);
}

Status SetClip(RnnDesc& desc, int mode, int nan, double lower, double upper) {
  if (!(lower <= upper))
    return Status::Error(Code::kBadParam, "clipping to {} … {}; bounds in this order are possible",
                         lower, upper);
  desc.clip_mode = mode;
  desc.clip_nan = nan;
  desc.clip_lower = lower;
  desc.clip_upper = upper;
  return {};
}

}  // namespace

Status CheckSet(const RnnDesc& desc) {
  if (desc.set_by != RnnDesc::kNever) return {};
  return Status::Text(Code::kBadParam, "the RNN descriptor was not set");
}

Status CheckSetByV8(const RnnDesc& desc) {
  if (desc.set_by == RnnDesc::kV8) return {};
  return Status::Text(Code::kNotInitialized,
                      "the RNN descriptor was not set by cudnnSetRNNDescriptor_v8");
}

graph::RnnAttrs AttrsOf(const RnnDesc& desc) {
  static constexpr graph::RnnBias kBiases[] = {graph::RnnBias::kNone, graph::RnnBias::kSingleInput,
                                               graph::RnnBias::kDouble,
                                               graph::RnnBias::kSingleRecurrent};
  static constexpr graph::RnnCell kCells[] = {graph::RnnCell::kRelu, graph::RnnCell::kTanh,
                                              graph::RnnCell::kLstm, graph::RnnCell::kGru};
  const bool clips = desc.clip_mode == CUDNN_RNN_CLIP_MINMAX && desc.cell == CUDNN_LSTM;
  graph::RnnAttrs attrs = {.cell = kCells[desc.cell],
                           .bias = kBiases[desc.bias],
                           .layers = desc.layers,
                           .hidden = desc.hidden,
                           .projected = desc.projected,
                           .bidirectional = desc.direction == CUDNN_BIDIRECTIONAL,
                           .skip_input = desc.input_mode == CUDNN_SKIP_INPUT};
  if (!clips) return attrs;
  attrs.clip = true;
  attrs.clip_propagates_nan = desc.clip_nan == CUDNN_PROPAGATE_NAN;
  // cuDNN applies the limits as floats, whatever the data's type. NOTE: GCC 12 at -O2 drops a pair
  // of casts to float and back.
  attrs.clip_lower = RoundTo(DType::kF32, desc.clip_lower);
  attrs.clip_upper = RoundTo(DType::kF32, desc.clip_upper);
  return attrs;
}

Result<int64_t> WeightElements(const graph::RnnAttrs& a, int64_t input) {
  constexpr double kMost = 1e15;
  const auto real = [](int64_t n) { return static_cast<double>(n); };
  const double columns = real(std::max(input, 2 * a.projected)) + real(a.projected) + 2;
  const double bound = 5 * real(a.hidden) * columns * 2 * real(a.layers);
  if (bound <= kMost) return graph::RnnWeightElements(a, input);
  return Status::Error(Code::kNotSupported, "a network of about {} parameters", bound);
}

int64_t PseudoLayers(const RnnDesc& desc) {
  return int64_t{desc.layers} * (desc.direction == CUDNN_BIDIRECTIONAL ? 2 : 1);
}

Status CreateRNNDescriptor(void** out) { return CreateDescriptor<RnnDesc>(out); }
Status DestroyRNNDescriptor(void* object) { return DestroyDescriptor<RnnDesc>(object); }

Status SetRNNDescriptor_v8(void* object, int algo, int cell, int bias, int direction,
                           int input_mode, int type, int math_precision, int math, int32_t input,
                           int32_t hidden, int32_t projected, int32_t layers, void* dropout,
                           uint32_t flags) {
  ASSIGN_OR_RETURN(RnnDesc * desc, Rnn(object));
  const RnnDesc made = {.set_by = RnnDesc::kV8,
                        .algo = algo,
                        .cell = cell,
                        .bias = bias,
                        .direction = direction,
                        .input_mode = input_mode,
                        .type = type,
                        .math_precision = math_precision,
                        .math = math,
                        .input = input,
                        .hidden = hidden,
                        .projected = projected,
                        .layers = layers,
                        .flags = flags,
                        .dropout = dropout};
  RETURN_IF_ERROR(CheckV8(made));
  *desc = made;
  return {};
}

Status GetRNNDescriptor_v8(void* object, int* algo, int* cell, int* bias, int* direction,
                           int* input_mode, int* type, int* math_precision, int* math,
                           int32_t* input, int32_t* hidden, int32_t* projected, int32_t* layers,
                           void** dropout, uint32_t* flags) {
  ASSIGN_OR_RETURN(const RnnDesc* desc, Rnn(object));
  RETURN_IF_ERROR(CheckSetByV8(*desc));
  Store(algo, desc->algo);
  Store(cell, desc->cell);
  Store(bias, desc->bias);
  Store(direction, desc->direction);
  Store(input_mode, desc->input_mode);
  Store(type, desc->type);
  Store(math_precision, desc->math_precision);
  Store(math, desc->math);
  Store(input, desc->input);
  Store(hidden, desc->hidden);
  Store(projected, desc->projected);
  Store(layers, desc->layers);
  Store(dropout, desc->dropout);
  Store(flags, desc->flags);
  return {};
}

// ---- 8 alone: a network by its properties ----

Status SetRNNDescriptor_v6(void* handle, void* object, int hidden, int layers, void* dropout,
                           int input_mode, int direction, int cell, int algo, int math_precision) {
  ASSIGN_OR_RETURN(RnnDesc * desc, Rnn(handle, object));
  RnnDesc made = *desc;
  made.set_by = RnnDesc::kV6;
  made.algo = algo;
  made.cell = cell;
  made.direction = direction;
  made.input_mode = input_mode;
  made.math_precision = math_precision;
  made.hidden = made.projected = hidden;
  made.layers = layers;
  made.dropout = dropout;
  RETURN_IF_ERROR(CheckModes(made));
  RETURN_IF_ERROR(CheckPositive(hidden, "hiddenSize"));
  RETURN_IF_ERROR(CheckPositive(layers, "numLayers"));
  if (math_precision != CUDNN_DATA_HALF && math_precision != CUDNN_DATA_FLOAT &&
      math_precision != CUDNN_DATA_DOUBLE)
    return Status::Error(Code::kNotSupported,
                         "arithmetic in {}; half, float or double are possible",
                         TypeName(math_precision));
  *desc = made;
  return {};
}

Status GetRNNDescriptor_v6(void* handle, void* object, int* hidden, int* layers, void** dropout,
                           int* input_mode, int* direction, int* cell, int* algo,
                           int* math_precision) {
  ASSIGN_OR_RETURN(const RnnDesc* desc, Rnn(handle, object));
  for (const void* place :
       {static_cast<void*>(hidden), static_cast<void*>(layers), static_cast<void*>(dropout),
        static_cast<void*>(input_mode), static_cast<void*>(direction), static_cast<void*>(cell),
        static_cast<void*>(algo), static_cast<void*>(math_precision)})
    RETURN_IF_ERROR(NotNull(place, "the place for a property"));
  *hidden = desc->hidden;
  *layers = desc->layers;
  *dropout = desc->dropout;
  *input_mode = desc->input_mode;
  *direction = desc->direction;
  *cell = desc->cell;
  *algo = desc->algo;
  *math_precision = desc->math_precision;
  return {};
}

Status SetRNNMatrixMathType(void* object, int math) {
  ASSIGN_OR_RETURN(RnnDesc * desc, Rnn(object));
  RETURN_IF_ERROR(CheckEnum(math, CUDNN_FMA_MATH, "cudnnMathType_t"));
  desc->math = math;
  return {};
}

Status GetRNNMatrixMathType(void* object, int* math) {
  ASSIGN_OR_RETURN(const RnnDesc* desc, Rnn(object));
  RETURN_IF_ERROR(NotNull(math, "the place for the math type"));
  *math = desc->math;
  return {};
}

Status SetRNNBiasMode(void* object, int bias) {
  ASSIGN_OR_RETURN(RnnDesc * desc, Rnn(object));
  RETURN_IF_ERROR(CheckEnum(bias, CUDNN_RNN_SINGLE_REC_BIAS, "cudnnRNNBiasMode_t"));
  RnnDesc made = *desc;
  made.bias = bias;
  RETURN_IF_ERROR(CheckBias(made));
  *desc = made;
  return {};
}

Status GetRNNBiasMode(void* object, int* bias) {
  ASSIGN_OR_RETURN(const RnnDesc* desc, Rnn(object));
  RETURN_IF_ERROR(NotNull(bias, "the place for the bias mode"));
  *bias = desc->bias;
  return {};
}

Status SetRNNPaddingMode(void* object, unsigned int padding) {
  ASSIGN_OR_RETURN(RnnDesc * desc, Rnn(object));
  if (padding > CUDNN_RNN_PADDED_IO_ENABLED)
    return Status::Error(Code::kBadParam, "{} is no cudnnRNNPaddingMode_t", padding);
  desc->flags = padding;
  return {};
}

Status GetRNNPaddingMode(void* object, unsigned int* padding) {
  ASSIGN_OR_RETURN(const RnnDesc* desc, Rnn(object));
  RETURN_IF_ERROR(NotNull(padding, "the place for the padding mode"));
  *padding = desc->flags;
  return {};
}

Status SetRNNProjectionLayers(void* handle, void* object, int recurrent, int output) {
  ASSIGN_OR_RETURN(RnnDesc * desc, Rnn(handle, object));
  if (recurrent < 0 || output < 0)
    return Status::Error(Code::kBadParam, "projections to {} and {} elements", recurrent, output);
  RnnDesc made = *desc;
  made.projected = recurrent == 0 ? desc->hidden : recurrent;
  made.output_projection = output;
  RETURN_IF_ERROR(CheckProjection(made));
  *desc = made;
  return {};
}

Status GetRNNProjectionLayers(void* handle, void* object, int* recurrent, int* output) {
  ASSIGN_OR_RETURN(const RnnDesc* desc, Rnn(handle, object));
  RETURN_IF_ERROR(NotNull(recurrent, "the place for recProjSize"));
  RETURN_IF_ERROR(NotNull(output, "the place for outProjSize"));
  *recurrent = desc->projected;
  *output = desc->output_projection;
  return {};
}

// ---- clipping ----

Status RNNSetClip_v8(void* object, int mode, int nan, double lower, double upper) {
  ASSIGN_OR_RETURN(RnnDesc * desc, Rnn(object));
  return SetClip(*desc, mode, nan, lower, upper);
}

Status RNNSetClip_v9(void* object, int mode, double lower, double upper) {
  return RNNSetClip_v8(object, mode, CUDNN_PROPAGATE_NAN, lower, upper);
}

Status RNNSetClip(void* handle, void* object, int mode, int nan, double lower, double upper) {
  RETURN_IF_ERROR(HandleFrom(handle).status());
  return RNNSetClip_v8(object, mode, nan, lower, upper);
}

Status RNNGetClip_v8(void* object, int* mode, int* nan, double* lower, double* upper) {
  ASSIGN_OR_RETURN(const RnnDesc* desc, Rnn(object));
  Store(mode, desc->clip_mode);
  Store(nan, desc->clip_nan);
  Store(lower, desc->clip_lower);
  Store(upper, desc->clip_upper);
  return {};
}

Status RNNGetClip_v9(void* object, int* mode, double* lower, double* upper) {
  return RNNGetClip_v8(object, mode, nullptr, lower, upper);
}

Status RNNGetClip(void* handle, void* object, int* mode, int* nan, double* lower, double* upper) {
  RETURN_IF_ERROR(HandleFrom(handle).status());
  for (const void* place : {static_cast<void*>(mode), static_cast<void*>(nan),
                            static_cast<void*>(lower), static_cast<void*>(upper)})
    RETURN_IF_ERROR(NotNull(place, "the place for a property"));
  return RNNGetClip_v8(object, mode, nan, lower, upper);
}

}  // namespace kiln::api::legacy
