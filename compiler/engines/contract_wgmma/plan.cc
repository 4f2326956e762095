// See the header. Rules of the tensor maps are those of the CUDA driver API
// ("cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col"): 16-byte strides, corners and filter
// offsets of few bits.
#include "compiler/engines/contract_wgmma/plan.h"

#include <algorithm>
#include <numeric>

#include "compiler/engines/contraction/epilogue.h"
#include "compiler/engines/contraction/epilogue_reductions.h"
#include "compiler/engines/contraction/tiles.h"
#include "compiler/kernel/accumulation.h"
#include "compiler/kernel/map_dims.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::GraphOp;
using graph::Node;
using graph::Tensor;
using graph::TensorId;

template <class... A>
Status Decline(fmt::format_string<A...> format, A&&... args) {
  return Status::Error(Code::kUnsupportedShape, format, std::forward<A>(args)...);
}

constexpr int64_t kNarrow = 32, kLong = 128;  // of a matmul's result
constexpr int64_t kSmallestRow = 32;          // bytes of a group's channels that go together

// The dims of pixels, innermost first; with the images behind them.
std::vector<int64_t> PixelDims(const Tensor& t, bool with_images) {
  std::vector<int64_t> dims;
  for (int64_t d = t.rank(); d-- > 2;) dims.push_back(d);
  if (with_images) dims.push_back(0);
  return dims;
}

class Planner {
 public:
  Planner(const Group& group, int terms)
      : group_(group), g_(group.graph), node_(ContractionOf(group)) {
    plan_.terms = terms;
  }

  Result<Sm90Plan> Run() {
    const Tensor& a = g_[node_.inputs[0]];
    plan_.type = a.dtype;
    for (const TensorId id : {node_.inputs[0], node_.inputs[1], node_.outputs[0]})
      if (NumElements(g_[id].dims) == 0) return Decline("{} is empty", g_[id].name);
    Status status = node_.op == GraphOp::kMatmul ? Matmul() : Convolution();
    RETURN_IF_ERROR(std::move(status));
    return std::move(plan_);
  }

 private:
  bool TakesOuter() const { return SizeOf(plan_.type) > 1; }

  // True if a map can have the operand's own axis innermost, false if k, an error if neither.
  Result<bool> IsOuterMajor(const Tensor& t, MapDim outer, MapDim k) const {
    const bool along_k = k.stride == 1 || k.extent == 1;
    if (along_k && (outer.extent == 1 || IsMapAligned(outer.stride, t.dtype))) return false;
    const bool along_outer = outer.stride == 1 || outer.extent == 1;
    if (along_outer && TakesOuter() && (k.extent == 1 || IsMapAligned(k.stride, t.dtype)))
      return true;
    return Decline(
        "{} has strides {} and {} along its own axis and along k: one must be 1{}, the "
        "other a multiple of 16 bytes",
        t.name, outer.stride, k.stride, TakesOuter() ? "" : " (that of k)");
  }

  Result<TensorMapSpec> MatrixMap(const Tensor& t, const Sm90Operand& operand, MapDim outer,
                                  MapDim k, MapDim inner, MapDim last) const {
    std::vector<MapDim> dims = {k, outer, inner, last};
    if (operand.is_outer) std::swap(dims[0], dims[1]);
    return MakeMap(t, TensorMapSpec::Kind::kTiled, dims);
  }

  // ---- matmul

  // The batch dims of an operand as at most two dims of a map, with how many of the result's
  // batches share a matrix.
  struct BatchDims {
    MapDim inner, outer;
    int64_t inner_shared = 1, outer_shared = 1;
  };
  Result<BatchDims> BatchOf(const Tensor& t, const Tensor& y) const {
    BatchDims b;
    const int64_t skipped = y.rank() - t.rank();
    for (int64_t d = 0; d + 2 < y.rank(); ++d) {
      if (y.dims[d] == 1) continue;
      const bool is_inner = d == inner_batch_;
      if (!is_inner && d != outer_batch_)
        return Decline("the result has more than two batch dims above 1");
      const int64_t extent = d < skipped ? 1 : t.dims[d - skipped];
      (is_inner ? b.inner : b.outer) = {extent, extent == 1 ? 0 : t.strides[d - skipped]};
      (is_inner ? b.inner_shared : b.outer_shared) = y.dims[d] / extent;
    }
    return b;
  }

  Status Matmul() {
    const Tensor &a = g_[node_.inputs[0]], &b = g_[node_.inputs[1]], &y = g_[node_.outputs[0]];
    const int64_t m = y.rank() - 2, n = y.rank() - 1, ra = a.rank(), rb = b.rank();
    for (int64_t d = 0; d < m; ++d) {
      if (y.dims[d] == 1) continue;
      outer_batch_ = inner_batch_;
      inner_batch_ = d;
      plan_.batches *= y.dims[d];
    }
    const MapDim a_outer{a.dims[ra - 2], a.strides[ra - 2]}, a_k{a.dims[ra - 1], a.strides[ra - 1]};
    const MapDim b_outer{b.dims[rb - 1], b.strides[rb - 1]}, b_k{b.dims[rb - 2], b.strides[rb - 2]};
    const bool m_is_contiguous = y.strides[n] != 1 && y.strides[m] == 1 && y.dims[n] != 1;
    // A result that is narrow along its contiguous dim: the long operand is left, so that a cluster
    // shares the short one.
    plan_.along_right = y.dims[m_is_contiguous ? m : n] <= kNarrow &&
                        y.dims[m_is_contiguous ? n : m] >= kLong && CountReductions(group_) == 0;
    plan_.left_is_a = m_is_contiguous != plan_.along_right;
    Sm90Operand as{.id = node_.inputs[0]}, bs{.id = node_.inputs[1]};
    ASSIGN_OR_RETURN(as.is_outer, IsOuterMajor(a, a_outer, a_k));
    ASSIGN_OR_RETURN(bs.is_outer, IsOuterMajor(b, b_outer, b_k));
    ASSIGN_OR_RETURN(const BatchDims a_batch, BatchOf(a, y));
    ASSIGN_OR_RETURN(const BatchDims b_batch, BatchOf(b, y));
    ASSIGN_OR_RETURN(TensorMapSpec a_map,
                     MatrixMap(a, as, a_outer, a_k, a_batch.inner, a_batch.outer));
    ASSIGN_OR_RETURN(TensorMapSpec b_map,
                     MatrixMap(b, bs, b_outer, b_k, b_batch.inner, b_batch.outer));
    plan_.left = plan_.left_is_a ? as : bs;
    plan_.right = plan_.left_is_a ? bs : as;
    plan_.left_map = plan_.left_is_a ? a_map : b_map;
    plan_.right_map = plan_.left_is_a ? b_map : a_map;
    plan_.left_size = plan_.left_is_a ? y.dims[m] : y.dims[n];
    plan_.right_size = plan_.left_is_a ? y.dims[n] : y.dims[m];
    plan_.k_steps = CeilDiv(a_k.extent, plan_.depth());
    plan_.all_steps = plan_.k_steps;
    plan_.shape = {{contract::tap_steps, plan_.k_steps}};
    if (plan_.batches > 1) {
      const BatchDims& l = plan_.left_is_a ? a_batch : b_batch;
      const BatchDims& r = plan_.left_is_a ? b_batch : a_batch;
      plan_.shape.insert(plan_.shape.end(), {{contract::inner_batches, y.dims[inner_batch_]},
                                             {contract::left_outer, l.outer_shared},
                                             {contract::left_inner, l.inner_shared},
                                             {contract::right_outer, r.outer_shared},
                                             {contract::right_inner, r.inner_shared}});
    }
    return {};
  }

  // ---- convolution

  // One spatial dim: what the pixel operand walks.
  struct Walk {
    int64_t places = 1, step = 1, low = 0;      // place → coordinate
    int64_t taps = 1, offset = 1;               // tap → coordinate
    int64_t reach = 0;                          // the largest offset of a tap
    int64_t filter_first = 0, filter_step = 1;  // tap → index in the filter
    int64_t phases = 1, phase_taps = 0;         // a strided dgrad's; taps of all phases together
    int64_t tap_phases = 1;                     // phases that have taps
  };

  Status Convolution() {
    plan_.is_conv = true;
    const auto& attrs = node_.As<graph::ConvAttrs>();
    const bool wgrad = node_.op == GraphOp::kConvWgrad, dgrad = node_.op == GraphOp::kConvDgrad;
    x_ = dgrad ? node_.outputs[0] : node_.inputs[0];
    w_ = wgrad ? node_.outputs[0] : node_.inputs[1];
    y_ = wgrad ? node_.inputs[1] : dgrad ? node_.inputs[0] : node_.outputs[0];
    const Tensor &x = g_[x_], &w = g_[w_];
    rank_ = x.rank() - 2;
    plan_.spatial = rank_ == 3 ? 3 : 2;
    groups_ = plan_.batches = x.dims[1] / w.dims[1];
    if (rank_ > 3) return Decline("{} spatial dims; tensor maps of pixels have up to 3", rank_);
    for (int64_t s = 0; s < rank_; ++s) {
      if (attrs.stride[s] > 8 && !dgrad)
        return Decline("stride {}: tensor maps step by up to 8 pixels", attrs.stride[s]);
    }
    return wgrad ? Wgrad(attrs) : FpropOrDgrad(attrs, dgrad);
  }

  // A row of a stage along k holds channels of one tap. A group's are taken whole: the neighbour's
  // would come along, and 0 * NaN is NaN.
  Status ChooseRow(int64_t channels) {
    const int64_t bytes = channels * SizeOf(plan_.type);
    plan_.row_bytes = bytes <= 32 ? 32 : bytes <= 64 ? 64 : 128;
    if (plan_.batches == 1) return {};
    for (const int row : {128, 64, 32}) {
      plan_.row_bytes = row;
      if (bytes % row == 0) return {};
    }
    return Decline("{} channels of a group are {} bytes; rows of 32 bytes need a multiple",
                   channels, bytes);
  }

  Status FpropOrDgrad(const graph::ConvAttrs& attrs, bool dgrad) {
    const Tensor& w = g_[w_];
    const int64_t groups = plan_.batches, filters = w.dims[0] / groups, channels = w.dims[1];
    const int64_t summed = dgrad ? filters : channels;
    plan_.left_size = dgrad ? channels : filters;
    RETURN_IF_ERROR(ChooseRow(summed));
    plan_.left = {.id = w_};
    plan_.right = {.id = dgrad ? y_ : x_};
    const MapDim of_filters{filters, w.strides[0]}, of_channels{channels, w.strides[1]};
    const MapDim outer = dgrad ? of_channels : of_filters, k = dgrad ? of_filters : of_channels;
    ASSIGN_OR_RETURN(plan_.left.is_outer, IsOuterMajor(w, outer, k));
    std::vector<int64_t> taps;
    for (int64_t s = rank_; s-- > 0;) taps.push_back(s + 2);
    if (!IsLinear(w, taps)) return Decline("the filter's taps do not lie in one row of memory");
    const MapDim tap{NumElements(std::span(w.dims).subspan(2)), LinearStride(w, taps)};
    const MapDim group{groups, filters * w.strides[0]};
    ASSIGN_OR_RETURN(const TensorMapSpec left, MatrixMap(w, plan_.left, outer, k, tap, group));
    plan_.left_map = left;
    std::vector<Walk> walks;
    for (int64_t s = 0; s < rank_; ++s)
      walks.push_back(dgrad ? Backward(attrs, s) : Forward(attrs, s));
    return Finish(attrs, walks, summed);
  }

  void Flip(const graph::ConvAttrs& attrs, int64_t s, Walk& walk) const {
    if (!attrs.flip) return;
    walk.filter_first = g_[w_].dims[s + 2] - 1 - walk.filter_first;
    walk.filter_step = -walk.filter_step;
  }

  Walk Forward(const graph::ConvAttrs& attrs, int64_t s) const {
    Walk walk{.places = g_[y_].dims[s + 2],
              .step = attrs.stride[s],
              .low = -attrs.pre_padding[s],
              .taps = g_[w_].dims[s + 2],
              .offset = attrs.dilation[s],
              .reach = (g_[w_].dims[s + 2] - 1) * attrs.dilation[s]};
    walk.phase_taps = walk.taps;
    Flip(attrs, s, walk);
    return walk;
  }

  // Input places h = phase + stride * i. Tap r reaches them if (h + pad - r * dilation) is a
  // multiple of the stride: every (stride / gcd)-th one. From the last such r downwards the
  // coordinate in dy grows. All phases walk the same places, from the lowest coordinate that one of
  // them starts at.
  Walk Backward(const graph::ConvAttrs& attrs, int64_t s) const {
    const int64_t stride = attrs.stride[s], dilation = attrs.dilation[s];
    const int64_t size = g_[w_].dims[s + 2], period = stride / std::gcd(stride, dilation);
    Walk walk{.places = CeilDiv(g_[x_].dims[s + 2], stride),
              .taps = 0,
              .offset = period * dilation / stride,
              .filter_first = size - 1,
              .filter_step = -period,
              .phases = stride,
              .tap_phases = 0};
    int64_t lowest = INT64_MAX, highest = INT64_MIN;
    for (int64_t phase = 0; phase < stride; ++phase) {
      const int64_t from = phase + attrs.pre_padding[s];
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
    Flip(attrs, s, walk);
    return walk;
  }

  // Limits of the encodings: corners are signed bytes in two dims and nibbles in three, filter
  // offsets unsigned.
  Status CheckLimits(const std::vector<Walk>& walks, const Tensor& pixels) const {
    const int64_t corner = plan_.spatial == 3 ? 16 : 128;
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

  // One past the last place's coordinate, counted from the end of the dim.
  static int64_t UpperCorner(const Walk& walk, int64_t extent) {
    return walk.low + (walk.places - 1) * walk.step + 1 - extent;
  }

  // Every place is its own only tap.
  bool IsPointwise(const std::vector<Walk>& walks, const Tensor& t) const {
    for (int64_t s = 0; s < rank_; ++s) {
      const Walk& walk = walks[s];
      if (walk.taps != 1 || walk.phases != 1 || walk.step != 1 || walk.low != 0 ||
          walk.places != t.dims[s + 2])
        return false;
    }
    return true;
  }

  // True if memory has the pixels of all images, or those of each, in one row.
  static bool IsOneMatrix(const Tensor& t) { return IsLinear(t, PixelDims(t, true)); }
  static bool IsMatrixByImage(const Tensor& t) { return IsLinear(t, PixelDims(t, false)); }

  // As how many matrices fprop and dgrad read their pixels; 0: tap by tap.
  int64_t MatricesOf(const std::vector<Walk>& walks, const Tensor& pixels) const {
    if (!IsPointwise(walks, pixels)) return 0;
    const Tensor& out = g_[node_.outputs[0]];
    const int64_t images = pixels.dims[0];
    // An image at a time the result can go out by tensor map.
    const bool divides = plan_.along_right && IsMatrixByImage(out) && !IsOneMatrix(out) &&
                         IsMapAligned(PlacesOf(out), out.dtype);
    if (IsOneMatrix(pixels)) return divides ? images : 1;
    return !ChannelsLast(pixels) && IsMatrixByImage(pixels) ? images : 0;
  }

  static int64_t PlacesOf(const Tensor& t) { return NumElements(std::span(t.dims).subspan(2)); }

  Result<TensorMapSpec> PixelMap(const Tensor& t, const std::vector<Walk>& walks) const {
    RETURN_IF_ERROR(CheckLimits(walks, t));
    std::vector<MapDim> dims = {{t.dims[1], t.strides[1]}};
    for (int64_t s = rank_; s-- > 0;) dims.push_back({t.dims[s + 2], t.strides[s + 2]});
    if (rank_ == 1) dims.push_back({1, 0});
    dims.push_back({t.dims[0], t.strides[0]});
    ASSIGN_OR_RETURN(TensorMapSpec map, MakeMap(t, TensorMapSpec::Kind::kPixels, dims));
    for (int64_t s = 0; s < rank_; ++s) {
      const size_t at = static_cast<size_t>(rank_ - 1 - s);  // w first
      map.lower[at] = static_cast<int32_t>(walks[s].low);
      map.upper[at] = static_cast<int32_t>(UpperCorner(walks[s], t.dims[s + 2]));
      map.element_strides[at + 1] = static_cast<int32_t>(walks[s].step);
    }
    return map;
  }

  // The pixels of one matrix.
  MapDim PixelsOf(const Tensor& t) const {
    const bool one = images_ == 1;
    return {PlacesOf(t) * (one ? t.dims[0] : 1), LinearStride(t, PixelDims(t, one))};
  }

  // A matrix of the pixels and channels of a group, or one an image. wgrad sums over pixels.
  Result<TensorMapSpec> ImageMap(const Tensor& t, const Sm90Operand& operand, int64_t channels,
                                 bool sums_pixels) const {
    const MapDim pixel = PixelsOf(t), channel{channels, t.strides[1]};
    const MapDim image{images_, t.strides[0]};
    const MapDim group{groups_, channels * t.strides[1]};
    return sums_pixels ? MatrixMap(t, operand, channel, pixel, image, group)
                       : MatrixMap(t, operand, pixel, channel, image, group);
  }

  // Members that there are of each spatial dimension.
  void AddWalkMembers(const graph::ConvAttrs& attrs, const std::vector<Walk>& walks,
                      bool with_places) {
    const bool wgrad = node_.op == GraphOp::kConvWgrad, phased = !plan_.phases.empty();
    int64_t filter_scale = 1, filter_first = 0;
    for (int64_t at = 0; at < plan_.spatial; ++at) {
      const int64_t s = rank_ - 1 - at;
      const Walk walk = s >= 0 ? walks[s] : Walk{};
      const auto add = [&](std::span<const ShapeMember> by_dim, int64_t value) {
        plan_.shape.emplace_back(by_dim[at], value);
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
        add(contract::size_whd, s >= 0 ? g_[w_].dims[s + 2] : 1);
        add(contract::unit_whd, walk.filter_step / std::abs(walk.filter_step) * filter_scale);
        add(contract::bias_whd,
            s >= 0 ? AlignUp(g_[w_].dims[s + 2] * attrs.dilation[s], walk.phases) : 1);
        add(contract::period_whd, std::abs(walk.filter_step));
        filter_first += (attrs.flip && s >= 0 ? g_[w_].dims[s + 2] - 1 : 0) * filter_scale;
      } else {
        add(contract::taps_whd, walk.taps);
        filter_first += walk.filter_first * filter_scale;
      }
      if (wgrad) continue;
      add(contract::filter_whd, walk.filter_step * filter_scale);
      if (s >= 0) filter_scale *= g_[w_].dims[s + 2];
    }
    if (!wgrad) plan_.shape.emplace_back(contract::filter_first, filter_first);
  }

  Status Finish(const graph::ConvAttrs& attrs, const std::vector<Walk>& walks, int64_t summed) {
    const Tensor& pixels = g_[plan_.right.id];
    const int64_t tap_steps = CeilDiv(summed, plan_.depth());
    Dims places = {pixels.dims[0]}, phases;
    int64_t taps = 1, all_taps = 1;
    for (const Walk& walk : walks) {
      places.push_back(walk.places);
      phases.push_back(walk.phases);
      taps *= walk.taps;
      all_taps *= walk.phase_taps;
      plan_.tap_phases *= walk.tap_phases;
    }
    plan_.right_size = NumElements(places);
    plan_.k_steps = taps * tap_steps;
    plan_.all_steps = all_taps * tap_steps;
    plan_.shape = {{contract::tap_steps, tap_steps}};
    if (NumElements(phases) > 1) {
      plan_.shape.emplace_back(contract::images, places[0]);
      plan_.places = places;
      plan_.phases = phases;
    }
    const Tensor& out = g_[node_.outputs[0]];
    plan_.along_right =
        plan_.phases.empty() && !ChannelsLast(out) && LinearStride(out, PixelDims(out, false)) == 1;
    const int64_t matrices = MatricesOf(walks, pixels);
    plan_.right.is_pixels = matrices == 0;
    if (plan_.right.is_pixels) {
      if (pixels.dims[1] != 1 && pixels.strides[1] != 1)
        return Decline("{} does not have its channels innermost", pixels.name);
      ASSIGN_OR_RETURN(plan_.right_map, PixelMap(pixels, walks));
      if (plan_.batches > 1) plan_.shape.emplace_back(contract::group_channels, summed);
    } else {
      images_ = plan_.images = matrices;
      const MapDim pixel = PixelsOf(pixels);
      ASSIGN_OR_RETURN(plan_.right.is_outer,
                       IsOuterMajor(pixels, pixel, {summed, pixels.strides[1]}));
      ASSIGN_OR_RETURN(plan_.right_map, ImageMap(pixels, plan_.right, summed, false));
      plan_.right_size = pixel.extent;
    }
    const bool swaps = PutsPixelsLeft();
    if (swaps) PutPixelsLeft();
    if (plan_.images > 1) {
      plan_.batches *= plan_.images;
      for (const ShapeMember& member :
           {contract::inner_batches, swaps ? contract::right_inner : contract::left_inner})
        plan_.shape.emplace_back(member, plan_.images);
    }
    AddWalkMembers(attrs, walks, plan_.right.is_pixels);
    return {};
  }

  // Contiguous pixels of 4 bytes, and a result that can go out as boxes along them: as left
  // operand they go through registers, as right one they would be turned and the result staged.
  bool PutsPixelsLeft() const {
    const std::vector<TensorId> results = graph::Outputs(g_);
    if (!plan_.along_right || !plan_.turns_right() || plan_.right.is_pixels || results.size() != 1)
      return false;
    const Tensor& y = g_[results[0]];
    return SizeOf(y.dtype) == 4 && y.dims == g_[node_.outputs[0]].dims && !IsOneMatrix(y) &&
           IsMatrixByImage(y) && IsMapAligned(PlacesOf(y), y.dtype) &&
           AppliesByRow(g_, node_, y.rank() - 1);
  }

  void PutPixelsLeft() {
    plan_.left_is_a = true;
    plan_.along_right = false;
    std::swap(plan_.left, plan_.right);
    std::swap(plan_.left_map, plan_.right_map);
    std::swap(plan_.left_size, plan_.right_size);
  }

  Status Wgrad(const graph::ConvAttrs& attrs) {
    const Tensor &x = g_[x_], &w = g_[w_], &y = g_[y_];
    const int64_t groups = groups_, filters = w.dims[0] / groups, channels = w.dims[1];
    if (w.dims[1] != 1 && w.strides[1] != 1)
      return Decline("{} does not have its channels innermost", w.name);
    std::vector<Walk> walks;
    for (int64_t s = 0; s < rank_; ++s) walks.push_back(Forward(attrs, s));
    const bool pointwise = IsPointwise(walks, x);
    if (pointwise && !(ChannelsLast(x) && ChannelsLast(y) && IsOneMatrix(y)) &&
        IsMatrixByImage(x) && IsMatrixByImage(y))
      return WgradOfMatrices(channels, filters);
    if (!TakesOuter())
      return Decline("wgrad multiplies along pixels, which wgmma does not take for 8-bit types");
    plan_.left = {.id = x_, .is_pixels = !pointwise || !IsOneMatrix(x), .is_outer = true};
    plan_.right = {.id = y_, .is_outer = true};
    if (!IsOneMatrix(y)) return Decline("the pixels of {} do not lie in one row", y.name);
    ASSIGN_OR_RETURN(plan_.right_map, ImageMap(y, plan_.right, filters, true));
    const int64_t taps = NumElements(std::span(w.dims).subspan(2));
    plan_.padded_channels = AlignUp(channels, plan_.panel());
    plan_.left_size = taps * plan_.padded_channels;
    plan_.right_size = filters;
    plan_.k_steps = CeilDiv(y.dims[0] * NumElements(std::span(y.dims).subspan(2)), plan_.depth());
    plan_.all_steps = plan_.k_steps;
    plan_.shape = {{contract::tap_steps, plan_.k_steps}};
    if (plan_.left.is_pixels) {
      if (x.dims[1] != 1 && x.strides[1] != 1)
        return Decline("{} does not have its channels innermost", x.name);
      // Seen on an H200: groups of 8 and 24 bytes end in "illegal instruction" (715).
      if (groups > 1 && channels * SizeOf(plan_.type) % kSmallestRow != 0)
        return Decline(
            "{} channels of a group are {} bytes; boxes of pixels begin at multiples of {}",
            channels, channels * SizeOf(plan_.type), kSmallestRow);
      ASSIGN_OR_RETURN(plan_.left_map, PixelMap(x, walks));
      if (groups > 1) plan_.shape.emplace_back(contract::group_channels, channels);
      plan_.shape.emplace_back(contract::tap_panels, plan_.padded_channels / plan_.panel());
      AddWalkMembers(attrs, walks, true);
    } else {
      ASSIGN_OR_RETURN(plan_.left_map, ImageMap(x, plan_.left, channels, true));
    }
    return {};
  }

  // A 1x1 wgrad whose operands are matrices, either axis contiguous: images are what taps are
  // elsewhere. The last block of pixels of an image ends in zeros, as maps fill in what is outside.
  Status WgradOfMatrices(int64_t channels, int64_t filters) {
    const Tensor &x = g_[x_], &y = g_[y_];
    if (!IsOneMatrix(x) || !IsOneMatrix(y)) images_ = x.dims[0];
    plan_.left = {.id = x_};
    plan_.right = {.id = y_};
    const MapDim of_x{channels, x.strides[1]}, of_y{filters, y.strides[1]};
    ASSIGN_OR_RETURN(plan_.left.is_outer, IsOuterMajor(x, of_x, PixelsOf(x)));
    ASSIGN_OR_RETURN(plan_.right.is_outer, IsOuterMajor(y, of_y, PixelsOf(y)));
    ASSIGN_OR_RETURN(plan_.left_map, ImageMap(x, plan_.left, channels, true));
    ASSIGN_OR_RETURN(plan_.right_map, ImageMap(y, plan_.right, filters, true));
    plan_.left_size = channels;
    plan_.right_size = filters;
    const int64_t tap_steps = CeilDiv(PixelsOf(y).extent, plan_.depth());
    plan_.k_steps = images_ * tap_steps;
    plan_.all_steps = plan_.k_steps;
    plan_.shape = {{contract::tap_steps, tap_steps}, {contract::taps_whd[0], images_}};
    return {};
  }

  const Group& group_;
  const graph::Graph& g_;
  const Node& node_;
  Sm90Plan plan_;
  int64_t inner_batch_ = -1, outer_batch_ = -1;
  TensorId x_ = -1, w_ = -1, y_ = -1;
  int64_t rank_ = 0, groups_ = 1;
  int64_t images_ = 1;  // that are matrices of their own
};

}  // namespace

Result<Sm90Plan> PlanSm90(const Group& group, int terms) {
  ASSIGN_OR_RETURN(Sm90Plan plan, Planner(group, terms).Run());
  plan.result = WidestOutput(group.graph);
  plan.sums_images = ContractionOf(group).op == GraphOp::kConvWgrad;
  return plan;
}

bool IsBoxType(DType type) {
  return type == DType::kF16 || type == DType::kBF16 || type == DType::kF32 || type == DType::kI32;
}

Result<TensorMapSpec> PlanSm90Matrix(const Group& group, TensorId id, const Sm90Plan& plan) {
  const Tensor& y = group.graph[id];
  if (!plan.phases.empty() || plan.padded_channels != 0)
    return Decline("the result's places do not lie in one row of memory");
  if (!IsBoxType(y.dtype))
    return Decline("{} is {}; boxes of results are of f16, bf16, f32 and i32", y.name,
                   Info(y.dtype).text);
  std::vector<MapDim> dims;
  if (ContractionOf(group).op == GraphOp::kConvWgrad) {
    dims = {{plan.left_size, y.strides[1]},
            {plan.right_size, y.strides[0]},
            {},
            {plan.batches, plan.right_size * y.strides[0]}};
  } else if (plan.is_conv) {
    const std::vector<int64_t> pixels = PixelDims(y, plan.images == 1);
    if (!IsLinear(y, pixels)) return Decline("the pixels of {} do not lie in one row", y.name);
    const int64_t places = plan.left_is_a ? plan.left_size : plan.right_size;
    const int64_t channels = plan.left_is_a ? plan.right_size : plan.left_size;
    dims = {{channels, y.strides[1]},
            {places, LinearStride(y, pixels)},
            {plan.images, y.strides[0]},
            {plan.batches / plan.images, channels * y.strides[1]}};
    if (plan.along_right || plan.left_is_a) std::swap(dims[0], dims[1]);
  } else {
    const int64_t m = y.rank() - 2, n = y.rank() - 1;
    const MapDim rows{y.dims[m], y.strides[m]}, columns{y.dims[n], y.strides[n]};
    dims = plan.left_is_a != plan.along_right ? std::vector<MapDim>{rows, columns}
                                              : std::vector<MapDim>{columns, rows};
    // Batches as place_of counts them: the innermost dim above 1 is the inner one.
    std::vector<MapDim> batch;
    for (int64_t d = m; d-- > 0;)
      if (y.dims[d] != 1) batch.push_back({y.dims[d], y.strides[d]});
    batch.resize(2);
    dims.insert(dims.end(), batch.begin(), batch.end());
  }
  return MakeMap(y, TensorMapSpec::Kind::kTiled, dims);
}

Result<std::vector<TensorMapSpec>> PlanSm90Phases(const Tensor& t, const Sm90Plan& plan) {
  const int64_t count = NumElements(plan.phases), rank = t.rank() - 2;
  if (plan.phases.empty() || (count != 2 && count != 4 && count != 8))
    return Decline("{} phases; stores by map are of 2, 4 and 8", count);
  if (plan.batches > 1) return Decline("a box of channels may reach into the next group's");
  std::vector<TensorMapSpec> maps;
  for (int64_t phase = 0; phase < count; ++phase) {
    std::vector<MapDim> dims = {{plan.left_size, t.strides[1]}};
    int64_t rest = phase, offset = 0;
    for (int64_t s = rank; s-- > 0;) {
      const int64_t phases = plan.phases[s], first = rest % phases;
      // Seen on an H200: places beyond the tensor, which loads may have, end a store with "illegal
      // instruction". So all phases must have the same.
      if (t.dims[s + 2] % phases != 0)
        return Decline("{} has {} places along a stride of {}: phases differ", t.name,
                       t.dims[s + 2], phases);
      dims.push_back({plan.places[s + 1], t.strides[s + 2] * phases});
      offset += first * t.strides[s + 2];
      rest /= phases;
    }
    if (rank == 1) dims.push_back({1, 0});
    dims.push_back({t.dims[0], t.strides[0]});
    ASSIGN_OR_RETURN(TensorMapSpec map, MakeMap(t, TensorMapSpec::Kind::kPixels, dims));
    RETURN_IF_ERROR(CheckStores(map, t));
    map.offset_bytes = offset * SizeOf(t.dtype);
    if (map.offset_bytes % 16 != 0)
      return Decline("phase {} of {} starts at byte {}", phase, t.name, map.offset_bytes);
    maps.push_back(map);
  }
  return maps;
}

void SetBox(TensorMapSpec& map, const Sm90Plan& plan, const Sm90Operand& operand, int rows) {
  const int depth = plan.depth();
  map.swizzle_bytes = operand.is_outer ? 128 : plan.row_bytes;
  if (operand.is_pixels) {
    // wgrad's left walks pixels along k, the others along their own axis.
    map.channels = operand.is_outer ? plan.panel() : depth;
    map.pixels = operand.is_outer ? depth : rows;
    return;
  }
  map.box = {depth, rows, 1, 1, 1};
  if (operand.is_outer) map.box = {plan.panel(), depth, 1, 1, 1};
}

}  // namespace kiln::compiler
