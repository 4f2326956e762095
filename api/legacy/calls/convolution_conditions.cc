#include "api/legacy/calls/convolution_conditions.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace kiln::api::legacy {
namespace {

// Data type configurations of the reference, by the type of all tensors and of the computation.
enum TypeConfig : uint8_t {
  kFloat = 1,
  kDouble = 2,
  kPseudoHalf = 4,
  kTrueHalf = 8,
  kPseudoBfloat16 = 16,
};

// Memory that is dense from a dim inwards; extents of 1 may have any stride.
enum class Packed : uint8_t { kAny, kSpatial, kChannels };

// Extents of the filter.
enum class Taps : uint8_t {
  kAny,
  kPlane,       // none is 1
  kLine,        // one is 1
  kThree,       // 3x3
  kThreeOrFive  // 3x3 or 5x5
};

enum class Dilation : uint8_t {
  kAny,
  kNone,      // 1, even along axes where the filter has one tap
  kInEffect,  // 1 along axes where the filter has taps to spread
};

// All that is said must hold. Along each spatial axis: i and o are extents of x and y, f of the
// filter, p is the padding.
struct Conditions {
  ConvDirection direction;
  int algorithm;
  const char* name;
  int spatial;    // dims
  uint8_t types;  // TypeConfig
  Packed x = Packed::kAny, y = Packed::kAny;
  Dilation dilation = Dilation::kAny;
  int most_stride = 0;  // 0: any
  Taps taps = Taps::kAny;
  int most_taps = 0;                     // f at most; 0: any
  bool covers_padding = false;           // f > p
  int most_input = 0;                    // i + 2 p at most, what is transformed of x; 0: any
  int most_gradient = 0;                 // i + f - 1 at most, what is transformed of dy
  bool gradient_covers_padding = false;  // o > p
  int most_line = 0;                     // one o is 1, and the others at most this; 0: any
};

constexpr auto kForward = ConvDirection::kForward, kData = ConvDirection::kBackwardData,
               kFilter = ConvDirection::kBackwardFilter;
constexpr uint8_t kWinogradOfThree = kFloat | kPseudoHalf | kPseudoBfloat16 | kTrueHalf,
                  kWinogradOfFive = kFloat | kPseudoHalf | kPseudoBfloat16;

// A problem is taken where one row of its algorithm holds. Filters are NCHW in all of them.
constexpr Conditions kConditions[] = {
    {.direction = kForward,
     .algorithm = CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
     .name = "GEMM",
     .spatial = 2,
     .types = kFloat | kDouble | kPseudoHalf | kPseudoBfloat16},
    {.direction = kForward,
     .algorithm = CUDNN_CONVOLUTION_FWD_ALGO_FFT,
     .name = "FFT",
     .spatial = 2,
     .types = kFloat | kPseudoHalf,
     .x = Packed::kSpatial,
     .y = Packed::kSpatial,
     .dilation = Dilation::kNone,
     .most_stride = 1,
     .covers_padding = true,
     .most_input = 256},
    {.direction = kForward,
     .algorithm = CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING,
     .name = "FFT_TILING of a plane",
     .spatial = 2,
     .types = kFloat | kPseudoHalf,
     .x = Packed::kSpatial,
     .y = Packed::kSpatial,
     .dilation = Dilation::kNone,
     .most_stride = 2,
     .taps = Taps::kPlane,
     .most_taps = 32,
     .covers_padding = true},
    {.direction = kForward,
     .algorithm = CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING,
     .name = "FFT_TILING of a line",
     .spatial = 2,
     .types = kFloat | kPseudoHalf | kDouble,
     .x = Packed::kSpatial,
     .y = Packed::kSpatial,
     .dilation = Dilation::kNone,
     .most_stride = 1,
     .taps = Taps::kLine,
     .most_taps = 256,
     .covers_padding = true},
    {.direction = kForward,
     .algorithm = CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING,
     .name = "FFT_TILING of a volume",
     .spatial = 3,
     .types = kFloat | kPseudoHalf | kDouble,
     .x = Packed::kSpatial,
     .y = Packed::kSpatial,
     .dilation = Dilation::kNone,
     .most_stride = 1,
     .most_taps = 16,
     .covers_padding = true},
    {.direction = kForward,
     .algorithm = CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED,
     .name = "WINOGRAD_NONFUSED",
     .spatial = 2,
     .types = kWinogradOfFive,
     .dilation = Dilation::kNone,
     .most_stride = 1,
     .taps = Taps::kThreeOrFive},
    {.direction = kForward,
     .algorithm = CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED,
     .name = "WINOGRAD_NONFUSED",
     .spatial = 2,
     .types = kWinogradOfThree,
     .dilation = Dilation::kNone,
     .most_stride = 1,
     .taps = Taps::kThree},
    {.direction = kData,
     .algorithm = CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT,
     .name = "FFT",
     .spatial = 2,
     .types = kFloat | kPseudoHalf,
     .x = Packed::kSpatial,
     .y = Packed::kChannels,
     .dilation = Dilation::kInEffect,
     .most_stride = 1,
     .covers_padding = true,
     .most_input = 256,
     .most_gradient = 256},
    {.direction = kData,
     .algorithm = CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING,
     .name = "FFT_TILING of a plane",
     .spatial = 2,
     .types = kFloat | kPseudoHalf,
     .x = Packed::kSpatial,
     .y = Packed::kChannels,
     .dilation = Dilation::kNone,
     .most_stride = 2,
     .taps = Taps::kPlane,
     .most_taps = 32,
     .covers_padding = true},
    {.direction = kData,
     .algorithm = CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING,
     .name = "FFT_TILING of a line",
     .spatial = 2,
     .types = kFloat | kPseudoHalf | kDouble,
     .x = Packed::kSpatial,
     .y = Packed::kChannels,
     .dilation = Dilation::kNone,
     .most_stride = 1,
     .taps = Taps::kLine,
     .most_taps = 256,
     .covers_padding = true},
    {.direction = kData,
     .algorithm = CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING,
     .name = "FFT_TILING of a volume",
     .spatial = 3,
     .types = kFloat | kPseudoHalf | kDouble,
     .x = Packed::kSpatial,
     .y = Packed::kChannels,
     .dilation = Dilation::kNone,
     .most_stride = 1,
     .most_taps = 16,
     .covers_padding = true},
    {.direction = kData,
     .algorithm = CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED,
     .name = "WINOGRAD_NONFUSED",
     .spatial = 2,
     .types = kWinogradOfFive,
     .y = Packed::kChannels,
     .dilation = Dilation::kNone,
     .most_stride = 1,
     .taps = Taps::kThreeOrFive},
    {.direction = kData,
     .algorithm = CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED,
     .name = "WINOGRAD_NONFUSED",
     .spatial = 2,
     .types = kWinogradOfThree,
     .y = Packed::kChannels,
     .dilation = Dilation::kNone,
     .most_stride = 1,
     .taps = Taps::kThree},
    {.direction = kFilter,
     .algorithm = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT,
     .name = "FFT",
     .spatial = 2,
     .types = kFloat | kPseudoHalf,
     .x = Packed::kChannels,
     .y = Packed::kChannels,
     .dilation = Dilation::kNone,
     .most_stride = 1,
     .covers_padding = true,
     .most_input = 256,
     .gradient_covers_padding = true},
    {.direction = kFilter,
     .algorithm = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3,
     .name = "ALGO_3 of a plane",
     .spatial = 2,
     .types = kFloat | kDouble | kPseudoHalf | kPseudoBfloat16,
     .x = Packed::kChannels,
     .dilation = Dilation::kNone},
    {.direction = kFilter,
     .algorithm = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3,
     .name = "ALGO_3 of a volume",
     .spatial = 3,
     .types = kFloat | kDouble | kPseudoHalf | kPseudoBfloat16,
     .x = Packed::kChannels,
     .y = Packed::kChannels},
    {.direction = kFilter,
     .algorithm = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED,
     .name = "WINOGRAD_NONFUSED",
     .spatial = 2,
     .types = kWinogradOfFive,
     .x = Packed::kChannels,
     .dilation = Dilation::kNone,
     .most_stride = 1,
     .taps = Taps::kThreeOrFive},
    {.direction = kFilter,
     .algorithm = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED,
     .name = "WINOGRAD_NONFUSED",
     .spatial = 2,
     .types = kWinogradOfThree,
     .x = Packed::kChannels,
     .dilation = Dilation::kNone,
     .most_stride = 1,
     .taps = Taps::kThree},
    {.direction = kFilter,
     .algorithm = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING,
     .name = "FFT_TILING of a line",
     .spatial = 2,
     .types = kFloat | kPseudoHalf | kDouble,
     .x = Packed::kChannels,
     .y = Packed::kChannels,
     .dilation = Dilation::kNone,
     .most_stride = 1,
     .covers_padding = true,
     .gradient_covers_padding = true,
     .most_line = 256},
};

uint8_t ConfigOf(const ConvProblem& p) {
  struct Row {
    int type, compute;
    TypeConfig config;
  };
  static constexpr Row kRows[] = {
      {CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, kFloat},
      {CUDNN_DATA_DOUBLE, CUDNN_DATA_DOUBLE, kDouble},
      {CUDNN_DATA_HALF, CUDNN_DATA_FLOAT, kPseudoHalf},
      {CUDNN_DATA_HALF, CUDNN_DATA_HALF, kTrueHalf},
      {CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT, kPseudoBfloat16},
  };
  for (const Row& row : kRows) {
    if (p.x.type == row.type && p.w.type == row.type && p.y.type == row.type &&
        p.conv.compute == row.compute)
      return row.config;
  }
  return 0;
}

bool IsPacked(const TensorDesc& t, Packed packed) {
  if (packed == Packed::kAny) return true;
  int64_t stride = 1;
  for (size_t d = static_cast<size_t>(t.rank); d-- > (packed == Packed::kChannels ? 1u : 2u);) {
    if (t.dims[d] != 1 && t.strides[d] != stride) return false;
    stride *= t.dims[d];
  }
  return true;
}

bool HasTaps(const Lengths& filter, int spatial, Taps taps) {
  const auto first = filter.begin() + 2, last = first + spatial;
  const auto all = [&](int32_t extent) { return std::count(first, last, extent) == spatial; };
  switch (taps) {
    case Taps::kAny:
      return true;
    case Taps::kPlane:
      return std::count(first, last, 1) == 0;
    case Taps::kLine:
      return std::count(first, last, 1) > 0;
    case Taps::kThree:
      return all(3);
    case Taps::kThreeOrFive:
      return all(3) || all(5);
  }
  return false;
}

// The condition of an axis that does not hold; empty if all do.
std::string MissingAlong(const Conditions& c, const ConvProblem& p, size_t axis) {
  const int i = p.x.dims[axis + 2], f = p.w.dims[axis + 2], o = p.y.dims[axis + 2],
            padding = p.conv.padding[axis], stride = p.conv.stride[axis],
            dilation = p.conv.dilation[axis];
  if (dilation != 1 &&
      (c.dilation == Dilation::kNone || (c.dilation == Dilation::kInEffect && f != 1)))
    return fmt::format("dilation 1, not {}", dilation);
  if (c.most_stride != 0 && stride > c.most_stride)
    return fmt::format("stride {} at most, not {}", c.most_stride, stride);
  if (c.most_taps != 0 && f > c.most_taps)
    return fmt::format("{} taps at most, not {}", c.most_taps, f);
  if (c.covers_padding && f <= padding)
    return fmt::format("more taps than padding, not {} and {}", f, padding);
  if (c.most_input != 0 && i + 2 * padding > c.most_input)
    return fmt::format("{} padded places of x at most, not {}", c.most_input, i + 2 * padding);
  if (c.most_gradient != 0 && i + f - 1 > c.most_gradient)
    return fmt::format("{} padded places of dy at most, not {}", c.most_gradient, i + f - 1);
  if (c.gradient_covers_padding && o <= padding)
    return fmt::format("more places of dy than padding, not {} and {}", o, padding);
  if (c.most_line != 0 && o > c.most_line)
    return fmt::format("{} places of dy at most, not {}", c.most_line, o);
  return {};
}

std::string Missing(const Conditions& c, const ConvProblem& p) {
  if (p.conv.spatial != c.spatial) return fmt::format("{} spatial dims", c.spatial);
  if (p.filter.format != CUDNN_TENSOR_NCHW) return "a filter of NCHW";
  if ((ConfigOf(p) & c.types) == 0)
    return fmt::format("other data types than {} computed in {}", p.x.type, p.conv.compute);
  for (const auto& [tensor, packed] : {std::pair(&p.x, c.x), std::pair(&p.y, c.y)}) {
    if (!IsPacked(*tensor, packed))
      return fmt::format("memory that is dense {}, not {}",
                         packed == Packed::kSpatial ? "in space" : "in channels and space",
                         Text(*tensor));
  }
  if (!HasTaps(p.w.dims, p.conv.spatial, c.taps)) return "other extents of the filter";
  for (size_t axis = 0; axis < static_cast<size_t>(p.conv.spatial); ++axis) {
    if (std::string missing = MissingAlong(c, p, axis); !missing.empty()) return missing;
  }
  const auto first = p.y.dims.begin() + 2;
  if (c.most_line != 0 && std::count(first, first + p.conv.spatial, 1) == 0)
    return "dy with one row or column";
  return {};
}

}  // namespace

Status CheckConditions(const ConvProblem& p, int algorithm) {
  const DirectionRow& row = RowOf(p.direction);
  if (algorithm == row.least_workspace || algorithm == row.any_workspace) return {};
  std::string reasons;
  for (const Conditions& c : kConditions) {
    if (c.direction != p.direction || c.algorithm != algorithm) continue;
    const std::string missing = Missing(c, p);
    if (missing.empty()) return {};
    reasons += fmt::format("; {} takes {}", c.name, missing);
  }
  if (reasons.empty())
    return Status::Error(Code::kNotSupported, "{} takes algorithm {} for no problem, as 9.19",
                         row.function, algorithm);
  return Status::Error(Code::kNotSupported, "algorithm {} of {} with {} and {}{}", algorithm,
                       row.function, Text(p.x), Text(p.filter), reasons);
}

}  // namespace kiln::api::legacy
