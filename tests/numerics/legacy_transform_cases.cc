// cudnnTransformTensorEx, cudnnTransformFilter, cudnnIm2Col and cudnnReorderFilterAndBias.
#include <algorithm>

#include "tests/numerics/legacy_cases.h"

namespace kiln::testing {
namespace {

using oracle::Dims;

// ---- padding and folding

struct TransformCase {
  std::string name;
  Layout x = {}, y = {};
  Dims x_dims = {2, 3, 4, 6};
  Dims before = {0, 0, 0, 0}, after = {0, 0, 0, 0}, fold = {1, 1};
  cudnnFoldingDirection_t direction = CUDNN_TRANSFORM_FOLD;
  Factors factors = {1, 0};
  bool filter = false;
};

bool Folds(const TransformCase& t) { return t.direction == CUDNN_TRANSFORM_FOLD; }

int64_t Blocks(const TransformCase& t) {
  int64_t blocks = 1;
  for (const int64_t fold : t.fold) blocks *= fold;
  return blocks;
}

Dims DimsAfter(const TransformCase& t) {
  Dims dims = t.x_dims;
  for (size_t d = 0; d < dims.size(); ++d) {
    const int64_t fold = d < 2 ? 1 : t.fold[d - 2], padding = t.before[d] + t.after[d];
    dims[d] = Folds(t) ? (dims[d] + padding + fold - 1) / fold : dims[d] * fold + padding;
  }
  if (Folds(t)) dims[1] *= Blocks(t);
  if (!Folds(t)) dims[1] = t.x_dims[1] / Blocks(t) + t.before[1] + t.after[1];
  return dims;
}

// The place of x that lands at `index` of y, or one outside of it. Channels of a folded tensor
// count the places of a block slowest; their padding is around all blocks.
Dims Source(const TransformCase& t, const Dims& y_dims, Dims index) {
  const Dims outside(index.size(), -1);
  const int64_t blocks = Blocks(t);
  if (Folds(t)) {
    const int64_t folded = index[1] - t.before[1] * blocks;
    if (folded < 0 || folded >= t.x_dims[1] * blocks) return outside;
    int64_t block = folded / t.x_dims[1];
    index[1] = folded % t.x_dims[1];
    for (size_t d = y_dims.size(); d-- > 2;) {
      index[d] = index[d] * t.fold[d - 2] + block % t.fold[d - 2] - t.before[d];
      block /= t.fold[d - 2];
    }
    index[0] -= t.before[0];
    return index;
  }
  int64_t block = 0;
  index[0] -= t.before[0];
  for (size_t d = 2; d < index.size(); ++d) {
    const int64_t fold = t.fold[d - 2];
    index[d] -= t.before[d];
    if (index[d] < 0 || index[d] >= t.x_dims[d] * fold) return outside;
    block = block * fold + index[d] % fold;
    index[d] /= fold;
  }
  index[1] += block * y_dims[1] - t.before[1] * blocks;
  return index;
}

Dense Transformed(const TransformCase& t, const Dense& x) {
  Dense y{.dims = DimsAfter(t), .values = {}};
  Dims index(y.dims.size(), 0);
  do {
    const Dims from = Source(t, y.dims, index);
    int64_t at = 0;
    bool inside = true;
    for (size_t d = 0; d < from.size(); ++d) {
      inside = inside && from[d] >= 0 && from[d] < x.dims[d];
      at = at * x.dims[d] + from[d];
    }
    y.values.push_back(inside ? x.values[static_cast<size_t>(at)] : oracle::Value{});
  } while (oracle::Next(y.dims, index));
  return y;
}

cudnnFilterDescriptor_t FilterOf(const LegacyContext& c, const Layout& layout, const Dims& dims) {
  auto filter = c.client.New<cudnnFilterDescriptor_t>("Filter");
  const std::vector<int> lengths(dims.begin(), dims.end());
  const cudnnTensorFormat_t format = layout.order == Layout::kNhwc      ? CUDNN_TENSOR_NHWC
                                     : layout.order == Layout::kVectors ? CUDNN_TENSOR_NCHW_VECT_C
                                                                        : CUDNN_TENSOR_NCHW;
  KILN_CALL(c.client, cudnnSetFilterNdDescriptor, filter, layout.type, format,
            static_cast<int>(lengths.size()), lengths.data());
  return filter;
}

cudnnTensorTransformDescriptor_t DescriptorOf(const TransformCase& v, const LegacyContext& c) {
  auto t = c.client.New<cudnnTensorTransformDescriptor_t>("TensorTransform");
  const std::vector<int32_t> before(v.before.begin(), v.before.end()),
      after(v.after.begin(), v.after.end());
  const std::vector<uint32_t> fold(v.fold.begin(), v.fold.end());
  const auto format = v.y.order == Layout::kNhwc ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
  KILN_CALL(c.client, cudnnSetTensorTransformDescriptor, t, static_cast<uint32_t>(v.x_dims.size()),
            format, before.data(), after.data(), fold.data(), v.direction);
  return t;
}

std::string RunTransform(const TransformCase& v, const LegacyContext& c) {
  const auto t = DescriptorOf(v, c);
  const LegacyTensor x = c.Tensor(v.x, v.x_dims, 1), y = c.Tensor(v.y, DimsAfter(v), 2);
  const Factor alpha(v.factors.alpha, v.y.type), beta(v.factors.beta, v.y.type);
  cudnnStatus_t status;
  if (v.filter) {
    status = KILN_CALL(c.client, cudnnTransformFilter, c.handle, t, alpha.get(),
                       FilterOf(c, v.x, v.x_dims), static_cast<const void*>(x.data()), beta.get(),
                       FilterOf(c, v.y, DimsAfter(v)), y.data());
  } else {
    status = KILN_CALL(c.client, cudnnTransformTensorEx, c.handle, t, alpha.get(), x.desc(),
                       static_cast<const void*>(x.data()), beta.get(), y.desc(), y.data());
  }
  const Dense expected = Blended(Transformed(v, x.Before()), v.factors.alpha, v.factors.beta,
                                 y.Before(), FactorType(v.y.type));
  return FirstOf({c.Done(status), y.Check(expected), x.CheckUnchanged()});
}

// The result is as cudnnInitTransformDest describes it.
std::string CheckDescribed(const TransformCase& v, const LegacyContext& c) {
  const auto t = DescriptorOf(v, c);
  const LegacyTensor x = c.Tensor(v.x, v.x_dims, 1);
  auto y = c.client.New<cudnnTensorDescriptor_t>("Tensor");
  size_t bytes = 0;
  const cudnnStatus_t status = KILN_CALL(c.client, cudnnInitTransformDest, t, x.desc(), y, &bytes);
  if (std::string error = c.Done(status); !error.empty()) return error;
  int rank = 0;
  cudnnDataType_t type{};
  std::array<int, CUDNN_DIM_MAX> dims = {}, strides = {};
  KILN_CALL(c.client, cudnnGetTensorNdDescriptor, y, CUDNN_DIM_MAX, &type, &rank, dims.data(),
            strides.data());
  const Dims expected = DimsAfter(v);
  const bool fits = static_cast<size_t>(rank) == expected.size() &&
                    std::equal(expected.begin(), expected.end(), dims.begin());
  return fits ? "" : "cudnnInitTransformDest has other extents";
}

void AddTransform(std::vector<LegacyCase>& cases, const TransformCase& v) {
  const std::string name = std::string(v.filter ? "transform_filter/" : "transform_ex/") + v.name +
                           "_" + Text(v.x) + "_to_" + Text(v.y) + "_" + Text(v.x_dims) + "_" +
                           Text(v.factors);
  cases.push_back({name, [=](const LegacyContext& c) {
                     return FirstOf({RunTransform(v, c), CheckDescribed(v, c)});
                   }});
}

void AddTransforms(std::vector<LegacyCase>& cases, const TransformCase& v) {
  for (const bool filter : {false, true}) {
    TransformCase other = v;
    other.filter = filter;
    AddTransform(cases, other);
  }
}

void AddFolding(std::vector<LegacyCase>& cases) {
  const auto unfold = CUDNN_TRANSFORM_UNFOLD;
  for (const auto type : {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_DOUBLE, CUDNN_DATA_BFLOAT16,
                          CUDNN_DATA_INT8}) {
    const Layout nchw = {type}, nhwc = {type, Layout::kNhwc};
    AddTransforms(cases, {.name = "order", .x = nchw, .y = nhwc});
    AddTransforms(cases, {.name = "fold", .x = nchw, .y = nhwc, .fold = {2, 3}});
    AddTransforms(cases, {.name = "unfold",
                          .x = nhwc,
                          .y = nhwc,
                          .x_dims = {2, 12, 3, 2},
                          .fold = {2, 3},
                          .direction = unfold});
  }
  const Layout f32 = {}, nhwc = {CUDNN_DATA_FLOAT, Layout::kNhwc};
  AddTransforms(cases, {.name = "fold", .x = nhwc, .y = f32, .fold = {1, 3}});
  AddTransforms(cases, {.name = "fold_filled_up", .x_dims = {2, 3, 5, 7}, .fold = {2, 3}});
  AddTransforms(cases, {.name = "fold_padded",
                        .y = nhwc,
                        .x_dims = {2, 3, 5, 7},
                        .before = {0, 0, 1, 2},
                        .after = {0, 1, 0, 3},
                        .fold = {2, 3}});
  AddTransforms(cases, {.name = "pad", .before = {0, 1, 2, 3}, .after = {1, 0, 1, 0}});
  AddTransforms(cases,
                {.name = "crop", .y = nhwc, .before = {0, -1, 0, -2}, .after = {0, 0, -1, 2}});
  for (const Factors& f : kFactors) {
    AddTransforms(cases, {.name = "order", .y = nhwc, .factors = f});
    AddTransforms(cases, {.name = "unfold_cropped",
                          .x_dims = {2, 16, 3, 2},
                          .before = {0, 0, -1, 0},
                          .after = {0, -1, 0, -1},
                          .fold = {2, 2},
                          .direction = unfold,
                          .factors = f});
    AddTransforms(cases, {.name = "unfold",
                          .y = nhwc,
                          .x_dims = {2, 12, 3, 2},
                          .fold = {3, 2},
                          .direction = unfold,
                          .factors = f});
  }
  AddTransforms(cases, {.name = "unfold_padded",
                        .x_dims = {2, 12, 3, 2},
                        .before = {0, 1, -1, 2},
                        .after = {0, 0, 2, -1},
                        .fold = {2, 2},
                        .direction = unfold});
  AddTransforms(
      cases,
      {.name = "fold", .x_dims = {2, 3, 4}, .before = {0, 0, 1}, .after = {0, 0, 1}, .fold = {2}});
  AddTransforms(cases, {.name = "fold",
                        .y = nhwc,
                        .x_dims = {1, 2, 4, 3, 6},
                        .before = {0, 0, 0, 0, 0},
                        .after = {0, 0, 0, 1, 0},
                        .fold = {2, 2, 3}});
  // Tensors that filters cannot be.
  AddTransform(cases, {.name = "fold",
                       .x = {CUDNN_DATA_HALF, Layout::kGaps, 1},
                       .y = {CUDNN_DATA_HALF, Layout::kGaps},
                       .fold = {2, 2}});
  AddTransform(cases, {.name = "order", .x = {CUDNN_DATA_HALF}, .y = nhwc});
}

// ---- columns

struct ColumnsCase {
  Layout x = {};
  Dims x_dims = {2, 3, 5, 6}, w_dims = {4, 3, 3, 2};
  Dims padding = {0, 0}, stride = {1, 1}, dilation = {1, 1};
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
};

// A row for each output place, in the order of N, P, Q, a column for each of C, R, S; rows lie
// along memory.
Dense Columns(const ColumnsCase& v, const Dense& x, const Dims& out) {
  Dense y{.dims = {x.dims[1] * v.w_dims[2] * v.w_dims[3], x.dims[0] * out[2] * out[3]},
          .values = {}};
  const Dims loops = {x.dims[1], v.w_dims[2], v.w_dims[3], x.dims[0], out[2], out[3]};
  Dims i(loops.size(), 0);
  do {
    int64_t at = i[3] * x.dims[1] + i[0];
    bool inside = true;
    for (size_t s = 0; s < 2; ++s) {
      const int64_t tap = v.mode == CUDNN_CONVOLUTION ? v.w_dims[s + 2] - 1 - i[s + 1] : i[s + 1];
      const int64_t place = i[s + 4] * v.stride[s] + tap * v.dilation[s] - v.padding[s];
      inside = inside && place >= 0 && place < x.dims[s + 2];
      at = at * x.dims[s + 2] + place;
    }
    y.values.push_back(inside ? x.values[static_cast<size_t>(at)] : oracle::Value{});
  } while (oracle::Next(loops, i));
  return y;
}

LegacyCase Im2Col(const ColumnsCase& v) {
  std::string name = "im2col/" + Text(v.x) + "_" + Text(v.x_dims) + "_by_" + Text(v.w_dims) + "_p" +
                     Text(v.padding) + "_s" + Text(v.stride) + "_d" + Text(v.dilation);
  if (v.mode == CUDNN_CONVOLUTION) name += "_flipped";
  return {name, [=](const LegacyContext& c) -> std::string {
            auto conv = c.client.New<cudnnConvolutionDescriptor_t>("Convolution");
            const auto compute =
                v.x.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
            const auto at = [](const Dims& d, size_t i) { return static_cast<int>(d[i]); };
            KILN_CALL(c.client, cudnnSetConvolution2dDescriptor, conv, at(v.padding, 0),
                      at(v.padding, 1), at(v.stride, 0), at(v.stride, 1), at(v.dilation, 0),
                      at(v.dilation, 1), v.mode, compute);
            const Dims out = oracle::ConvOutputDims({.pre_padding = v.padding,
                                                     .post_padding = v.padding,
                                                     .stride = v.stride,
                                                     .dilation = v.dilation},
                                                    v.x_dims, v.w_dims);
            const LegacyTensor x = c.Tensor(v.x, v.x_dims, 1);
            const Dense expected = Columns(v, x.Before(), out);
            const LegacyTensor y = c.Tensor({.type = v.x.type}, expected.dims, 2);
            const cudnnStatus_t status = KILN_CALL(
                c.client, cudnnIm2Col, c.handle, x.desc(), static_cast<const void*>(x.data()),
                FilterOf(c, {.type = v.x.type}, v.w_dims), conv, y.data());
            return FirstOf({c.Done(status), y.Check(expected), x.CheckUnchanged()});
          }};
}

// ---- filters and biases for fragments

// The place where the element of NCHW_VECT_C goes: by 32 inputs, tap, 8 outputs, 2, 8, 4 and 4.
int64_t Fragment(const Dims& w, int64_t output, int64_t input, int64_t tap) {
  const int64_t taps = w[2] * w[3];
  int64_t to = (input / 32 * taps + tap) * (w[0] / 8) + output / 8;
  to = (to * 2 + output % 2) * 8 + input % 32 / 4;
  return (to * 4 + output % 8 / 2) * 4 + input % 4;
}

LegacyCase Reorder(const Dims& dims, bool with_bias, cudnnReorderType_t order) {
  const std::string name = "reorder/" + Text(dims) + (with_bias ? "_with_bias" : "") +
                           (order == CUDNN_NO_REORDER ? "_not" : "");
  return {name, [=](const LegacyContext& c) -> std::string {
            const Layout vectors = {CUDNN_DATA_INT8x32, Layout::kVectors};
            const LegacyTensor w = c.Tensor(vectors, dims, 1, "int"),
                               to = c.Tensor({CUDNN_DATA_INT8}, {1, oracle::Count(dims)}, 2),
                               bias = c.Tensor({}, {1, dims[0]}, 3),
                               bias_to = c.Tensor({}, {1, dims[0]}, 4);
            const cudnnStatus_t status =
                KILN_CALL(c.client, cudnnReorderFilterAndBias, c.handle, FilterOf(c, vectors, dims),
                          order, static_cast<const void*>(w.data()), to.data(), with_bias ? 1 : 0,
                          static_cast<const void*>(bias.data()), bias_to.data());
            const Dense before = w.Before(), plain = bias.Before();
            Dense expected = to.Before(), expected_bias = bias_to.Before();
            const int64_t taps = dims[2] * dims[3];
            for (int64_t i = 0; i < oracle::Count(dims); ++i) {
              const int64_t o = i / (dims[1] * taps), n = i / taps % dims[1], tap = i % taps;
              const int64_t vector = ((o * (dims[1] / 32) + n / 32) * taps + tap) * 32 + n % 32;
              const bool moves = order == CUDNN_DEFAULT_REORDER;
              expected.values[static_cast<size_t>(moves ? Fragment(dims, o, n, tap) : vector)] =
                  before.values[static_cast<size_t>(i)];
            }
            for (int64_t o = 0; with_bias && o < dims[0]; ++o) {
              const int64_t at = o / 32 * 32 + o % 8 / 4 * 16 + o % 32 / 8 * 4 + o % 4;
              expected_bias.values[static_cast<size_t>(order == CUDNN_DEFAULT_REORDER ? at : o)] =
                  plain.values[static_cast<size_t>(o)];
            }
            return FirstOf({c.Done(status), to.Check(expected), bias_to.Check(expected_bias),
                            w.CheckUnchanged(), bias.CheckUnchanged()});
          }};
}

}  // namespace

std::vector<LegacyCase> TransformCases() {
  std::vector<LegacyCase> cases;
  AddFolding(cases);
  for (const auto type :
       {CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16}) {
    cases.push_back(Im2Col({.x = {type}}));
    cases.push_back(Im2Col({.x = {type, Layout::kNhwc}, .padding = {1, 2}, .stride = {2, 1}}));
  }
  cases.push_back(Im2Col({.x = {CUDNN_DATA_FLOAT, Layout::kGaps, 1}, .dilation = {2, 3}}));
  cases.push_back(Im2Col({.padding = {2, 1}, .dilation = {1, 2}, .mode = CUDNN_CONVOLUTION}));
  cases.push_back(Im2Col({.x_dims = {1, 1, 1, 1}, .w_dims = {1, 1, 1, 1}}));
  cases.push_back(Reorder({32, 32, 1, 1}, true, CUDNN_DEFAULT_REORDER));
  cases.push_back(Reorder({64, 96, 3, 2}, true, CUDNN_DEFAULT_REORDER));
  cases.push_back(Reorder({96, 64, 1, 1}, false, CUDNN_DEFAULT_REORDER));
  cases.push_back(Reorder({32, 64, 3, 3}, true, CUDNN_NO_REORDER));
  return cases;
}

}  // namespace kiln::testing
