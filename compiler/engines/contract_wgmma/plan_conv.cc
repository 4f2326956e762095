// Plans of convolutions (plan.h). Forward and backward data walk pixels on the right; the weights'
// gradient walks those of x on the left, and sums over those of dy.
#include <algorithm>
#include <numeric>

#include "compiler/engines/contract_wgmma/plan_parts.h"
#include "compiler/engines/contraction/epilogue.h"
#include "compiler/engines/contraction/tiles.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::GraphOp;
using graph::Node;
using graph::Tensor;
using graph::TensorId;

constexpr int64_t kSmallestRow = 32;  // bytes of a group's channels that go together

using ShapeMembers = std::vector<std::pair<ShapeMember, int64_t>>;

// A convolution's tensors, by their names in the forward direction.
struct Conv {
  const graph::Graph& g;
  const Node& node;
  TensorId x, w, y;
  const graph::ConvAttrs& attrs() const { return node.As<graph::ConvAttrs>(); }
  bool is_wgrad() const { return node.op == GraphOp::kConvWgrad; }
  bool is_dgrad() const { return node.op == GraphOp::kConvDgrad; }
  const Tensor& out() const { return g[node.outputs[0]]; }
  int64_t rank() const { return g[x].rank() - 2; }
  int64_t groups() const { return g[x].dims[1] / g[w].dims[1]; }
};
Conv ConvOf(const graph::Graph& g, const Node& node) {
  const bool wgrad = node.op == GraphOp::kConvWgrad, dgrad = node.op == GraphOp::kConvDgrad;
  return {.g = g,
          .node = node,
          .x = dgrad ? node.outputs[0] : node.inputs[0],
          .w = wgrad ? node.outputs[0] : node.inputs[1],
          .y = wgrad   ? node.inputs[1]
               : dgrad ? node.inputs[0]
                       : node.outputs[0]};
}

// ---- walks

// One spatial dim: what the pixel operand walks.
struct Walk {
  int64_t places = 1, step = 1, low = 0;      // place → coordinate
  int64_t taps = 1, offset = 1;               // tap → coordinate
  int64_t reach = 0;                          // the largest offset of a tap
  int64_t filter_first = 0, filter_step = 1;  // tap → index in the filter
  int64_t phases = 1, phase_taps = 0;         // a strided dgrad's; taps of all phases together
  int64_t tap_phases = 1;                     // phases that have taps
};

Walk Flipped(const Conv& c, int64_t s, Walk walk) {
  if (!c.attrs().flip) return walk;
  walk.filter_first = c.g[c.w].dims[s + 2] - 1 - walk.filter_first;
  walk.filter_step = -walk.filter_step;
  return walk;
}

Walk Forward(const Conv& c, int64_t s) {
  const graph::ConvAttrs& attrs = c.attrs();
  const int64_t taps = c.g[c.w].dims[s + 2];
  return Flipped(c, s,
                 {.places = c.g[c.y].dims[s + 2],
                  .step = attrs.stride[s],
                  .low = -attrs.pre_padding[s],
                  .taps = taps,
                  .offset = attrs.dilation[s],
                  .reach = (taps - 1) * attrs.dilation[s],
                  .phase_taps = taps});
}

// Input places h = phase + stride * i. Tap r reaches them if (h + pad - r * dilation) is a
// multiple of the stride: every (stride / gcd)-th one. From the last such r downwards the
// coordinate in dy grows. All phases walk the same places, from the lowest coordinate that one of
// them starts at.
Walk Backward(const Conv& c, int64_t s) {
  const int64_t stride = c.attrs().stride[s], dilation = c.attrs().dilation[s];
  const int64_t size = c.g[c.w].dims[s + 2], period = stride / std::gcd(stride, dilation);
  Walk walk{.places = CeilDiv(c.g[c.x].dims[s + 2], stride),
            .taps = 0,
            .offset = period * dilation / stride,
            .filter_first = size - 1,
            .filter_step = -period,
            .phases = stride,
            .tap_phases = 0};
  int64_t lowest = INT64_MAX, highest = INT64_MIN;
  for (int64_t phase = 0; phase < stride; ++phase) {
    const int64_t from = phase + c.attrs().pre_padding[s];
    int64_t taps = 0;
    for (int64_t r = size - 1; r >= 0 && r >= size - period && taps == 0; --r) {
      if ((from - r * dilation) % stride != 0) continue;
      taps = r / period + 1;
      lowest = std::min(lowest, (from - r * dilation) / stride);
      highest = std::max(highest, (from - r * dilation) / stride + (taps - 1) * walk.offset);
    }
    walk.phase_taps += taps;
    walk.taps = std::max(walk.taps, taps);
    walk.tap_phases += taps > 0 ? 1 : 0;
  }
  if (walk.taps > 0) {
    walk.low = lowest;
    walk.reach = highest - lowest;
  }
  return Flipped(c, s, walk);
}

std::vector<Walk> WalksOf(const Conv& c) {
  std::vector<Walk> walks;
  for (int64_t s = 0; s < c.rank(); ++s)
    walks.push_back(c.is_dgrad() ? Backward(c, s) : Forward(c, s));
  return walks;
}

// One past the last place's coordinate, counted from the end of the dim.
int64_t UpperCorner(const Walk& walk, int64_t extent) {
  return walk.low + (walk.places - 1) * walk.step + 1 - extent;
}

// Limits of the encodings: corners are signed bytes in two dims and nibbles in three, filter
// offsets unsigned.
Status CheckLimits(const std::vector<Walk>& walks, const Tensor& pixels) {
  const int64_t corner = walks.size() == 3 ? 16 : 128;
  for (size_t s = 0; s < walks.size(); ++s) {
    const Walk& walk = walks[s];
    const int64_t upper = UpperCorner(walk, pixels.dims[s + 2]);
    if (walk.low < -corner || walk.low >= corner || upper < -corner || upper >= corner)
      return Decline("corners {} and {} of the pixels of {}: {} to {} are possible", walk.low,
                     upper, pixels.name, -corner, corner - 1);
    if (walk.reach >= 2 * corner)
      return Decline("the filter reaches over {} pixels; {} are possible", walk.reach,
                     2 * corner - 1);
  }
  return {};
}

// Every place is its own only tap.
bool IsPointwise(const std::vector<Walk>& walks, const Tensor& t) {
  for (size_t s = 0; s < walks.size(); ++s) {
    const Walk& walk = walks[s];
    if (walk.taps != 1 || walk.phases != 1 || walk.step != 1 || walk.low != 0 ||
        walk.places != t.dims[s + 2])
      return false;
  }
  return true;
}

Result<TensorMapSpec> PixelMap(const Tensor& t, const std::vector<Walk>& walks) {
  const auto rank = static_cast<int64_t>(walks.size());
  RETURN_IF_ERROR(CheckLimits(walks, t));
  std::vector<MapDim> dims = {{t.dims[1], t.strides[1]}};
  for (int64_t s = rank; s-- > 0;) dims.push_back({t.dims[s + 2], t.strides[s + 2]});
  if (rank == 1) dims.push_back({1, 0});
  dims.push_back({t.dims[0], t.strides[0]});
  ASSIGN_OR_RETURN(TensorMapSpec map, MakeMap(t, TensorMapSpec::Kind::kPixels, dims));
  for (int64_t s = 0; s < rank; ++s) {
    const size_t at = static_cast<size_t>(rank - 1 - s);  // w first
    map.lower[at] = static_cast<int32_t>(walks[s].low);
    map.upper[at] = static_cast<int32_t>(UpperCorner(walks[s], t.dims[s + 2]));
    map.element_strides[at + 1] = static_cast<int32_t>(walks[s].step);
  }
  return map;
}

// Members that there are of each spatial dimension.
ShapeMembers WalkMembers(const Conv& c, const std::vector<Walk>& walks, const Sm90Plan& plan,
                         bool with_places) {
  const graph::ConvAttrs& attrs = c.attrs();
  const Dims& filter = c.g[c.w].dims;
  const bool wgrad = c.is_wgrad(), phased = !plan.phases.empty();
  ShapeMembers members;
  int64_t filter_scale = 1, filter_first = 0;
  for (int64_t at = 0; at < plan.spatial; ++at) {
    const int64_t s = c.rank() - 1 - at;
    const Walk walk = s >= 0 ? walks[s] : Walk{};
    const auto add = [&](std::span<const ShapeMember> by_dim, int64_t value) {
      members.emplace_back(by_dim[at], value);
    };
    if (with_places) {
      add(contract::places_whd, walk.places);
      add(contract::step_whd, walk.step);
      add(contract::low_whd, walk.low);
      add(contract::offset_whd, walk.offset);
    }
    if (phased) {
      add(contract::phases_whd, walk.phases);
      add(contract::pad_whd, s >= 0 ? attrs.pre_padding[s] : 0);
      add(contract::dilation_whd, s >= 0 ? attrs.dilation[s] : 1);
      add(contract::size_whd, s >= 0 ? filter[s + 2] : 1);
      add(contract::unit_whd, walk.filter_step / std::abs(walk.filter_step) * filter_scale);
      add(contract::bias_whd, s >= 0 ? AlignUp(filter[s + 2] * attrs.dilation[s], walk.phases) : 1);
      add(contract::period_whd, std::abs(walk.filter_step));
      filter_first += (attrs.flip && s >= 0 ? filter[s + 2] - 1 : 0) * filter_scale;
    } else {
      add(contract::taps_whd, walk.taps);
      filter_first += walk.filter_first * filter_scale;
    }
    if (wgrad) continue;
    add(contract::filter_whd, walk.filter_step * filter_scale);
    if (s >= 0) filter_scale *= filter[s + 2];
  }
  if (!wgrad) members.emplace_back(contract::filter_first, filter_first);
  return members;
}

// ---- pixels as matrices

// Whether memory has the pixels of all images, or those of each, in one row.
bool IsOneMatrix(const Tensor& t) { return IsLinear(t, PixelDims(t, true)); }
bool IsMatrixByImage(const Tensor& t) { return IsLinear(t, PixelDims(t, false)); }

int64_t PlacesOf(const Tensor& t) { return NumElements(std::span(t.dims).subspan(2)); }

// The pixels of one matrix, of so many that the images are.
MapDim PixelsOf(const Tensor& t, int64_t matrices) {
  const bool one = matrices == 1;
  return {PlacesOf(t) * (one ? t.dims[0] : 1), LinearStride(t, PixelDims(t, one))};
}

// A matrix of the pixels and channels of a group, or one an image. wgrad sums over pixels.
Result<TensorMapSpec> ImageMap(const Conv& c, const Tensor& t, const Sm90Operand& operand,
                               int64_t channels, int64_t matrices) {
  const MapDim pixel = PixelsOf(t, matrices), channel{channels, t.strides[1]};
  const MapDim image{matrices, t.strides[0]};
  const MapDim group{c.groups(), channels * t.strides[1]};
  return c.is_wgrad() ? MatrixMap(t, operand, channel, pixel, image, group)
                      : MatrixMap(t, operand, pixel, channel, image, group);
}

Status CheckChannelsInnermost(const Tensor& t) {
  if (t.dims[1] == 1 || t.strides[1] == 1) return {};
  return Decline("{} does not have its channels innermost", t.name);
}

// ---- fprop and dgrad

// A row of a stage along k holds channels of one tap. A group's are taken whole: the neighbour's
// would come along, and 0 * NaN is NaN.
Result<int> RowBytesOf(int64_t channels, const Sm90Plan& plan) {
  const int64_t bytes = channels * SizeOf(plan.type);
  if (plan.batches == 1) return bytes <= 32 ? 32 : bytes <= 64 ? 64 : 128;
  for (const int row : {128, 64, 32})
    if (bytes % row == 0) return row;
  return Decline("{} channels of a group are {} bytes; rows of 32 bytes need a multiple", channels,
                 bytes);
}

// As how many matrices fprop and dgrad read their pixels; 0: tap by tap.
int64_t MatricesOf(const Conv& c, const std::vector<Walk>& walks, const Tensor& pixels,
                   bool along_right) {
  if (!IsPointwise(walks, pixels)) return 0;
  const Tensor& out = c.out();
  const int64_t images = pixels.dims[0];
  // An image at a time the result can go out by tensor map.
  const bool divides = along_right && IsMatrixByImage(out) && !IsOneMatrix(out) &&
                       IsMapAligned(PlacesOf(out), out.dtype);
  if (IsOneMatrix(pixels)) return divides ? images : 1;
  return !ChannelsLast(pixels) && IsMatrixByImage(pixels) ? images : 0;
}

// The plan with its filter on the left.
Result<Sm90Plan> WithFilter(const Conv& c, Sm90Plan plan) {
  const Tensor& w = c.g[c.w];
  const int64_t groups = plan.batches, filters = w.dims[0] / groups, channels = w.dims[1];
  plan.left_size = c.is_dgrad() ? channels : filters;
  ASSIGN_OR_RETURN(plan.row_bytes, RowBytesOf(c.is_dgrad() ? filters : channels, plan));
  plan.left = {.id = c.w};
  plan.right = {.id = c.is_dgrad() ? c.y : c.x};
  const MapDim of_filters{filters, w.strides[0]}, of_channels{channels, w.strides[1]};
  const MapDim outer = c.is_dgrad() ? of_channels : of_filters;
  const MapDim k = c.is_dgrad() ? of_filters : of_channels;
  ASSIGN_OR_RETURN(plan.left.is_outer, IsOuterMajor(w, plan.type, outer, k));
  std::vector<int64_t> taps;
  for (int64_t s = c.rank(); s-- > 0;) taps.push_back(s + 2);
  if (!IsLinear(w, taps)) return Decline("the filter's taps do not lie in one row of memory");
  const MapDim tap{PlacesOf(w), LinearStride(w, taps)};
  const MapDim group{groups, filters * w.strides[0]};
  ASSIGN_OR_RETURN(plan.left_map, MatrixMap(w, plan.left, outer, k, tap, group));
  return plan;
}

// The plan with its numbers of places, phases and steps.
Sm90Plan WithSteps(const std::vector<Walk>& walks, int64_t images, int64_t summed, Sm90Plan plan) {
  const int64_t tap_steps = CeilDiv(summed, plan.depth());
  Dims places = {images}, phases;
  int64_t taps = 1, all_taps = 1;
  for (const Walk& walk : walks) {
    places.push_back(walk.places);
    phases.push_back(walk.phases);
    taps *= walk.taps;
    all_taps *= walk.phase_taps;
    plan.tap_phases *= walk.tap_phases;
  }
  plan.right_size = NumElements(places);
  plan.k_steps = taps * tap_steps;
  plan.all_steps = all_taps * tap_steps;
  plan.shape = {{contract::tap_steps, tap_steps}};
  if (NumElements(phases) > 1) {
    plan.shape.emplace_back(contract::images, places[0]);
    plan.places = places;
    plan.phases = phases;
  }
  return plan;
}

// The plan with its pixels on the right, tap by tap or as matrices.
Result<Sm90Plan> WithPixels(const Conv& c, const std::vector<Walk>& walks, int64_t summed,
                            Sm90Plan plan) {
  const Tensor& pixels = c.g[plan.right.id];
  const int64_t matrices = MatricesOf(c, walks, pixels, plan.along_right);
  plan.right.is_pixels = matrices == 0;
  if (plan.right.is_pixels) {
    RETURN_IF_ERROR(CheckChannelsInnermost(pixels));
    ASSIGN_OR_RETURN(plan.right_map, PixelMap(pixels, walks));
    if (plan.batches > 1) plan.shape.emplace_back(contract::group_channels, summed);
    return plan;
  }
  plan.images = matrices;
  const MapDim pixel = PixelsOf(pixels, matrices);
  ASSIGN_OR_RETURN(plan.right.is_outer,
                   IsOuterMajor(pixels, plan.type, pixel, {summed, pixels.strides[1]}));
  ASSIGN_OR_RETURN(plan.right_map, ImageMap(c, pixels, plan.right, summed, matrices));
  plan.right_size = pixel.extent;
  return plan;
}

// Contiguous pixels of 4 bytes, and a result that can go out as boxes along them: as left operand
// they go through registers, as right one they would be turned and the result staged.
bool PutsPixelsLeft(const Conv& c, const Sm90Plan& plan) {
  const std::vector<TensorId> results = graph::Outputs(c.g);
  if (!plan.along_right || !plan.turns_right() || plan.right.is_pixels || results.size() != 1)
    return false;
  const Tensor& y = c.g[results[0]];
  return SizeOf(y.dtype) == 4 && y.dims == c.out().dims && !IsOneMatrix(y) && IsMatrixByImage(y) &&
         IsMapAligned(PlacesOf(y), y.dtype) && AppliesByRow(c.g, c.node, y.rank() - 1);
}

Sm90Plan WithPixelsLeft(Sm90Plan plan) {
  plan.left_is_a = true;
  plan.along_right = false;
  std::swap(plan.left, plan.right);
  std::swap(plan.left_map, plan.right_map);
  std::swap(plan.left_size, plan.right_size);
  return plan;
}

Result<Sm90Plan> PlanFpropOrDgrad(const Conv& c, Sm90Plan plan) {
  const Dims& filter = c.g[c.w].dims;
  const int64_t summed = c.is_dgrad() ? filter[0] / plan.batches : filter[1];
  ASSIGN_OR_RETURN(plan, WithFilter(c, std::move(plan)));
  const std::vector<Walk> walks = WalksOf(c);
  plan = WithSteps(walks, c.g[plan.right.id].dims[0], summed, std::move(plan));
  const Tensor& out = c.out();
  plan.along_right =
      plan.phases.empty() && !ChannelsLast(out) && LinearStride(out, PixelDims(out, false)) == 1;
  ASSIGN_OR_RETURN(plan, WithPixels(c, walks, summed, std::move(plan)));
  const bool swaps = PutsPixelsLeft(c, plan);
  if (swaps) plan = WithPixelsLeft(std::move(plan));
  if (plan.images > 1) {
    plan.batches *= plan.images;
    for (const ShapeMember& member :
         {contract::inner_batches, swaps ? contract::right_inner : contract::left_inner})
      plan.shape.emplace_back(member, plan.images);
  }
  std::ranges::copy(WalkMembers(c, walks, plan, plan.right.is_pixels),
                    std::back_inserter(plan.shape));
  return plan;
}

// ---- wgrad

// A 1x1 wgrad whose operands are matrices, either axis contiguous: images are what taps are
// elsewhere. The last block of pixels of an image ends in zeros, as maps fill in what is outside.
Result<Sm90Plan> PlanWgradOfMatrices(const Conv& c, int64_t channels, int64_t filters,
                                     Sm90Plan plan) {
  const Tensor &x = c.g[c.x], &y = c.g[c.y];
  const int64_t matrices = IsOneMatrix(x) && IsOneMatrix(y) ? 1 : x.dims[0];
  plan.left = {.id = c.x};
  plan.right = {.id = c.y};
  const MapDim of_x{channels, x.strides[1]}, of_y{filters, y.strides[1]};
  ASSIGN_OR_RETURN(plan.left.is_outer, IsOuterMajor(x, plan.type, of_x, PixelsOf(x, matrices)));
  ASSIGN_OR_RETURN(plan.right.is_outer, IsOuterMajor(y, plan.type, of_y, PixelsOf(y, matrices)));
  ASSIGN_OR_RETURN(plan.left_map, ImageMap(c, x, plan.left, channels, matrices));
  ASSIGN_OR_RETURN(plan.right_map, ImageMap(c, y, plan.right, filters, matrices));
  plan.left_size = channels;
  plan.right_size = filters;
  const int64_t tap_steps = CeilDiv(PixelsOf(y, matrices).extent, plan.depth());
  plan.k_steps = matrices * tap_steps;
  plan.all_steps = plan.k_steps;
  plan.shape = {{contract::tap_steps, tap_steps}, {contract::taps_whd[0], matrices}};
  return plan;
}

// The plan with pixels of x on the left: tap by tap, or as one matrix.
Result<Sm90Plan> WithLeftPixels(const Conv& c, const std::vector<Walk>& walks, int64_t channels,
                                Sm90Plan plan) {
  const Tensor& x = c.g[c.x];
  if (!plan.left.is_pixels) {
    ASSIGN_OR_RETURN(plan.left_map, ImageMap(c, x, plan.left, channels, 1));
    return plan;
  }
  RETURN_IF_ERROR(CheckChannelsInnermost(x));
  // Seen on an H200: groups of 8 and 24 bytes end in "illegal instruction" (715).
  if (c.groups() > 1 && channels * SizeOf(plan.type) % kSmallestRow != 0)
    return Decline("{} channels of a group are {} bytes; boxes of pixels begin at multiples of {}",
                   channels, channels * SizeOf(plan.type), kSmallestRow);
  ASSIGN_OR_RETURN(plan.left_map, PixelMap(x, walks));
  if (c.groups() > 1) plan.shape.emplace_back(contract::group_channels, channels);
  plan.shape.emplace_back(contract::tap_panels, plan.padded_channels / plan.panel());
  std::ranges::copy(WalkMembers(c, walks, plan, true), std::back_inserter(plan.shape));
  return plan;
}

Result<Sm90Plan> PlanWgrad(const Conv& c, Sm90Plan plan) {
  const Tensor &x = c.g[c.x], &w = c.g[c.w], &y = c.g[c.y];
  const int64_t filters = w.dims[0] / c.groups(), channels = w.dims[1];
  RETURN_IF_ERROR(CheckChannelsInnermost(w));
  const std::vector<Walk> walks = WalksOf(c);
  const bool pointwise = IsPointwise(walks, x);
  if (pointwise && !(ChannelsLast(x) && ChannelsLast(y) && IsOneMatrix(y)) && IsMatrixByImage(x) &&
      IsMatrixByImage(y))
    return PlanWgradOfMatrices(c, channels, filters, std::move(plan));
  if (!TakesOuter(plan.type))
    return Decline("wgrad multiplies along pixels, which wgmma does not take for 8-bit types");
  plan.left = {.id = c.x, .is_pixels = !pointwise || !IsOneMatrix(x), .is_outer = true};
  plan.right = {.id = c.y, .is_outer = true};
  if (!IsOneMatrix(y)) return Decline("the pixels of {} do not lie in one row", y.name);
  ASSIGN_OR_RETURN(plan.right_map, ImageMap(c, y, plan.right, filters, 1));
  plan.padded_channels = AlignUp(channels, plan.panel());
  plan.left_size = PlacesOf(w) * plan.padded_channels;
  plan.right_size = filters;
  plan.k_steps = CeilDiv(y.dims[0] * PlacesOf(y), plan.depth());
  plan.all_steps = plan.k_steps;
  plan.shape = {{contract::tap_steps, plan.k_steps}};
  return WithLeftPixels(c, walks, channels, std::move(plan));
}

}  // namespace

Result<Sm90Plan> PlanConvolution(const Group& group, const Node& node, Sm90Plan plan) {
  const Conv c = ConvOf(group.graph, node);
  const int64_t rank = c.rank();
  plan.is_conv = true;
  plan.spatial = rank == 3 ? 3 : 2;
  plan.batches = c.groups();
  if (rank > 3) return Decline("{} spatial dims; tensor maps of pixels have up to 3", rank);
  for (int64_t s = 0; s < rank; ++s) {
    const int64_t stride = c.attrs().stride[s];
    if (stride > 8 && !c.is_dgrad())
      return Decline("stride {}: tensor maps step by up to 8 pixels", stride);
  }
  return c.is_wgrad() ? PlanWgrad(c, std::move(plan)) : PlanFpropOrDgrad(c, std::move(plan));
}

}  // namespace kiln::compiler
