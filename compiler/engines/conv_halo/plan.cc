// See the header. The model counts clocks of one SM, as that of wgmma_sm90; its numbers are from
// measurements on an H200.
#include "compiler/engines/conv_halo/plan.h"

#include <algorithm>
#include <cmath>

#include "compiler/engines/contraction/epilogue.h"
#include "compiler/engines/contraction/skeleton_functions.h"
#include "compiler/engines/contraction/tiles.h"
#include "compiler/kernel/accumulation.h"
#include "compiler/kernel/map_dims.h"
#include "compiler/machine/machine.h"

namespace kiln::compiler {
namespace {

using graph::Node;
using graph::Tensor;
using graph::TensorId;

template <class... A>
Status Decline(fmt::format_string<A...> format, A&&... args) {
  return Status::Error(Code::kUnsupportedShape, format, std::forward<A>(args)...);
}

constexpr int kPanelRows = 64;         // of wgmma, and 16-bit channels of a 128-byte row
constexpr int kSwizzleUnit = 1024;     // bytes after which a swizzle repeats
constexpr int64_t kMostColumns = 256;  // of wgmma
constexpr int kMostBox = 256;          // elements of a box along a dim
constexpr int kMostBuffers = 6;
constexpr int64_t kStagingBytes = 32 * 68 * 4;  // of conv_halo_sm90's staged output
constexpr int kMostFilterColumns = 5;           // wgrad: accumulators of a row of the filter

constexpr double kClockShare = 16.0 / 17;  // of the machine's: wgmma leaves 1.6 of 1.7 GHz
constexpr double kTensorShare = 0.965, kWgradShare = 0.9;  // of wgmma's rate, in a long run
constexpr double kL2Share = 0.85;  // of what all multiprocessors together are given
constexpr double kStoreClocks = 0.075, kDirectClocks = 0.03;  // of an element of the result
constexpr double kFullClocks = 0.015;                         // more, for each full operand
constexpr double kTileClocks = 200;      // of a tile's own: to wait for it and to hand it on
constexpr double kStartClocks = 3000;    // weights, the first tile, the last store
constexpr double kSliceShare = 0.4261;   // of what the L2 cache gives: 4.5 of an H200's 10.6 TB/s
constexpr double kPrologueClocks = 800;  // of a kernel, before all these

// A spatial axis, counted from the last: w, h, d. A convolution along fewer axes lacks the others.
enum { kW, kH, kD };
struct SpatialDim {
  int64_t dim = -1;  // of a tensor
  int64_t axis = -1;
};
SpatialDim DimOf(const ConvShape& c, int from_last) {
  const int64_t axis = c.spatial - 1 - from_last;
  return axis < 0 ? SpatialDim{} : SpatialDim{axis + 2, axis};
}

MapDim DimOf(const Tensor& t, const SpatialDim& s) {
  if (s.dim < 0) return {1, 0};
  return {t.dims[s.dim], t.strides[s.dim]};
}

class Planner {
 public:
  explicit Planner(const Group& group) : group_(group), g_(group.graph) {}

  Result<HaloPlan> Run() {
    p_.conv = ShapeOf(group_);
    const ConvShape& c = p_.conv;
    p_.type = g_[c.in].dtype;
    p_.is_wgrad = c.is_wgrad();
    p_.most_products = MostProductsAlone(p_.type, WidestOutput(g_));
    for (const TensorId id : {c.x, c.w, c.y})
      if (NumElements(g_[id].dims) == 0) return Decline("{} is empty", g_[id].name);
    RETURN_IF_ERROR(CheckShape());
    Axis(DimOf(c, kD), p_.places_d, p_.filter_d, p_.dilation_d, p_.low_d);
    Axis(DimOf(c, kH), p_.places_h, p_.filter_h, p_.dilation_h, p_.low_h);
    Axis(DimOf(c, kW), p_.places_w, p_.filter_w, p_.dilation_w, p_.low_w);
    p_.images = g_[c.x].dims[0];
    RETURN_IF_ERROR(Depth());
    p_.is_mirrored = c.is_dgrad() != c.flip;
    Status status = p_.is_wgrad ? Wgrad() : FpropOrDgrad();
    RETURN_IF_ERROR(std::move(status));
    return std::move(p_);
  }

 private:
  Status CheckShape() const {
    const ConvShape& c = p_.conv;
    if (!c.is_wgrad() && c.Products() > p_.most_products)
      return Decline("{} products a result; a tile's sum is one chain, of at most {}", c.Products(),
                     p_.most_products);
    if (c.groups != 1) return Decline("{} groups; tiles with a halo have one", c.groups);
    for (int64_t s = 0; s < c.spatial; ++s) {
      if (c.stride[s] != 1)
        return Decline("stride {}: a tap is a shift by whole pixels at stride 1 only", c.stride[s]);
      if ((c.taps[s] - 1) * c.dilation[s] >= kMostBox)
        return Decline("the filter reaches over {} pixels; boxes have {}",
                       (c.taps[s] - 1) * c.dilation[s] + 1, kMostBox);
    }
    return {};
  }

  void Axis(const SpatialDim& s, int64_t& places, int& filter, int& dilation, int64_t& low) const {
    if (s.dim < 0) return;
    const ConvShape& c = p_.conv;
    places = g_[c.is_dgrad() ? c.x : c.y].dims[s.dim];
    filter = static_cast<int>(c.taps[s.axis]);
    dilation = static_cast<int>(c.dilation[s.axis]);
    low = c.is_dgrad() ? c.pad[s.axis] - (c.taps[s.axis] - 1) * c.dilation[s.axis] : -c.pad[s.axis];
  }

  // Depth joins the images, or becomes an axis of its own, along which no place may be without a
  // plane of the filter that lies inside: its tile would have no input.
  Status Depth() {
    const ConvShape& c = p_.conv;
    const int64_t dim = DimOf(c, kD).dim;
    if (dim < 0) return {};
    p_.in_depth = g_[c.is_dgrad() ? c.y : c.x].dims[dim];
    p_.is_deep = p_.filter_d > 1 || p_.low_d != 0 || p_.in_depth != p_.places_d;
    if (!p_.is_deep) {
      p_.images *= p_.places_d;
      p_.places_d = p_.in_depth = 1;
      return {};
    }
    if (p_.is_wgrad) {
      for (int tap = 0; tap < p_.filter_d; ++tap)
        if (const PlaceRange inside = p_.PlacesInside(tap); inside.last <= inside.first)
          return Decline("plane {} of the filter lies in the padding everywhere", tap);
      return {};
    }
    for (int64_t place = 0; place < p_.places_d; ++place) {
      bool is_inside = false;
      for (int tap = 0; tap < p_.filter_d; ++tap) {
        const PlaceRange inside = p_.PlacesInside(tap);
        is_inside |= inside.first <= place && place < inside.last;
      }
      if (!is_inside) return Decline("place {} along depth reads nothing but padding", place);
    }
    return {};
  }

  // {channels, w, h, depth and images}, channels innermost.
  Result<TensorMapSpec> Image(const Tensor& t) const {
    MapDim image{t.dims[0], t.strides[0]};
    if (const int64_t d = DimOf(p_.conv, kD).dim; d >= 0) {
      if (!IsLinear(t, {d, 0}))
        return Decline("depth and images of {} do not lie in one row of memory", t.name);
      image = {t.dims[0] * t.dims[d], LinearStride(t, {d, 0})};
    }
    return MakeMap(t, TensorMapSpec::Kind::kTiled,
                   {{t.dims[1], t.strides[1]},
                    DimOf(t, DimOf(p_.conv, kW)),
                    DimOf(t, DimOf(p_.conv, kH)),
                    image});
  }

  Status FpropOrDgrad() {
    const ConvShape& c = p_.conv;
    const Tensor& w = g_[c.w];
    p_.left_size = c.is_dgrad() ? c.channels : c.filters;
    p_.summed = c.is_dgrad() ? c.filters : c.channels;
    const int64_t bytes = p_.summed * SizeOf(p_.type);
    if (bytes > 128)
      return Decline(
          "{} channels along k are {} bytes of a pixel; one row of shared memory has 128",
          p_.summed, bytes);
    p_.row_bytes = bytes <= 32 ? 32 : bytes <= 64 ? 64 : 128;
    std::vector<int64_t> taps;
    for (int64_t s = c.spatial; s-- > 0;) taps.push_back(s + 2);
    if (!IsLinear(w, taps)) return Decline("the filter's taps do not lie in one row of memory");
    const MapDim of_filters{w.dims[0], w.strides[0]}, of_channels{w.dims[1], w.strides[1]};
    const MapDim outer = c.is_dgrad() ? of_channels : of_filters;
    const MapDim k = c.is_dgrad() ? of_filters : of_channels;
    p_.left_is_outer = k.stride != 1 && k.extent != 1;
    const MapDim tap{NumElements(std::span(w.dims).subspan(2)), LinearStride(w, taps)};
    ASSIGN_OR_RETURN(
        p_.left, MakeMap(w, TensorMapSpec::Kind::kTiled,
                         {p_.left_is_outer ? outer : k, p_.left_is_outer ? k : outer, tap, {}}));
    ASSIGN_OR_RETURN(p_.right, Image(g_[c.in]));
    p_.is_direct = PlanDirect();
    return {};
  }

  bool PlanDirect() {
    const Node& anchor = ContractionOf(group_);
    if (graph::Outputs(g_).size() != 1 || !AppliesByRow(g_, anchor, 1, true)) return false;
    const Tensor& y = g_[graph::Outputs(g_)[0]];
    if (y.dtype != DType::kF16 && y.dtype != DType::kBF16) return false;
    const std::vector<TensorId> full = FullOperands(g_, anchor, 1);
    if (full.size() > (p_.is_deep ? 0 : kMostFullOperands)) return false;
    const auto map = Image(y);
    if (!map.ok() || !CheckStores(*map, y).ok()) return false;
    for (const TensorId id : full) {
      const auto full_map = Image(g_[id]);
      if (!full_map.ok()) return false;
      p_.full_maps.push_back(*full_map);
    }
    p_.out = *map;
    p_.full = full;
    return true;
  }

  Status Wgrad() {
    const ConvShape& c = p_.conv;
    p_.left_size = c.filters;
    p_.summed = c.channels;
    if (c.taps[c.spatial - 1] > kMostFilterColumns)
      return Decline("a filter of {} columns; the accumulators of a row are registers for {}",
                     c.taps[c.spatial - 1], kMostFilterColumns);
    // As few blocks for all rows of the filter as registers allow, then as few idle groups.
    const int most = p_.filter_w <= 3 ? 3 : 2;
    const int sets = static_cast<int>(CeilDiv(p_.filter_h, most));
    p_.wgrad_groups = static_cast<int>(CeilDiv(p_.filter_h, sets));
    ASSIGN_OR_RETURN(p_.left, Image(g_[c.y]));
    ASSIGN_OR_RETURN(p_.right, Image(g_[c.x]));
    return {};
  }

  const Group& group_;
  const graph::Graph& g_;
  HaloPlan p_;
};

// wgmma takes the taps of a filter row at once where they are at most 256 columns.
int TapsOfWgmma(const HaloPlan& plan) { return plan.filter_w <= 4 ? plan.filter_w : 1; }

// The geometry with its tiles over all images, and with the blocks that walk them.
HaloGeometry WithGrid(const HaloPlan& plan, const Target& target, HaloGeometry g) {
  g.strips_h = CeilDiv(plan.places_h, g.rows);
  g.strips_w = CeilDiv(plan.places_w, g.width);
  int64_t places_d = plan.places_d;
  for (int tap = 0; plan.is_wgrad && tap < plan.filter_d; ++tap) {
    const PlaceRange inside = plan.PlacesInside(tap);
    places_d = std::min(places_d, inside.last - inside.first);
  }
  g.tiles = plan.images * places_d * g.strips_h * g.strips_w;
  g.units = plan.is_deep && !plan.is_wgrad ? CeilDiv(g.tiles, 2) : g.tiles;
  int64_t slots = std::max<int64_t>(1, target.multiprocessors / plan.parts());
  // A block's sum is one chain.
  if (plan.is_wgrad) {
    const int64_t products = plan.images * places_d * plan.places_h * plan.places_w;
    slots = std::max(slots, CeilDiv(products, plan.most_products));
  }
  g.blocks = std::min(slots, g.units) * plan.parts();
  return g;
}

}  // namespace

Result<HaloPlan> PlanHalo(const Group& group) { return Planner(group).Run(); }

HaloGeometry GeometryOf(const HaloPlan& plan, const HaloTile& tile, const Target& target) {
  HaloGeometry g{.rows = tile.rows};
  const int64_t width =
      tile.width == 0 ? plan.places_w : std::min<int64_t>(tile.width, plan.places_w);
  g.width = static_cast<int>(std::min<int64_t>(width, 1 << 20));
  g.is_strips = g.width < plan.places_w;
  const int64_t halo_w = int64_t{plan.filter_w - 1} * plan.dilation_w;
  const int64_t rows_of_filter = plan.is_wgrad ? plan.wgrad_groups : plan.filter_h;
  const int64_t halo_h = (rows_of_filter - 1) * plan.dilation_h;
  int64_t pitch = g.width + halo_w;
  int64_t barrier_bytes = 16;
  if (plan.is_wgrad) {
    if (g.is_strips) pitch = AlignUp(pitch, 8);
    g.columns = 64 * TapsOfWgmma(plan);
    g.steps = static_cast<int>(CeilDiv(g.rows * pitch, 16));
    const int64_t dy_rows = int64_t{g.rows} * (g.is_strips ? g.width : pitch);
    const int64_t x_rows = halo_h * pitch + halo_w + int64_t{g.steps} * 16;
    g.load_bytes = (dy_rows + (g.rows + halo_h) * pitch) * 128;
    g.buffer_bytes = int64_t{g.steps} * 2048 + CeilDiv(x_rows, 8) * kSwizzleUnit;
  } else {
    const int64_t columns = AlignUp((g.rows - 1) * pitch + g.width, 8);
    g.columns = static_cast<int>(std::min<int64_t>(columns, 1 << 20));
    g.steps = static_cast<int>(CeilDiv(plan.summed, 16));
    g.load_bytes = (g.rows + halo_h) * pitch * plan.row_bytes;
    // Bytes that taps of the last columns read, and those that the result is stored from.
    const int64_t read = (columns + halo_h * pitch + halo_w) * plan.row_bytes;
    // A result with full operands goes out from the box of the first.
    const int64_t result = (std::max(columns, g.rows * pitch) + 8) * 128;
    if (!plan.full.empty()) g.out_bytes = AlignUp(result, kSwizzleUnit);
    const int64_t stored = !plan.is_direct ? kStagingBytes : plan.full.empty() ? result : 0;
    g.buffer_bytes = AlignUp(std::max({g.load_bytes, read, stored}), kSwizzleUnit);
    g.resident_bytes = int64_t{plan.weight_rows()} * plan.filter_w * kPanelRows * plan.row_bytes;
    barrier_bytes = plan.is_deep ? 16 + 16 * kDeepWeightRows : plan.full.empty() ? 24 : 56;
  }
  const int64_t full_bytes = 2 * static_cast<int64_t>(plan.full.size()) * g.out_bytes;
  g.pitch = static_cast<int>(std::min<int64_t>(pitch, 1 << 20));
  const int64_t room =
      target.shared_bytes_per_block - g.resident_bytes - full_bytes - barrier_bytes;
  g.buffers = static_cast<int>(std::clamp<int64_t>(room / (g.buffer_bytes + 16), 0, kMostBuffers));
  // Each of the two groups has a ring of its own.
  if (plan.is_deep && !plan.is_wgrad) g.buffers -= g.buffers % 2;
  g.shared_bytes = g.resident_bytes + full_bytes + g.buffers * (g.buffer_bytes + 16) +
                   (plan.is_wgrad ? 0 : barrier_bytes - 16);
  return WithGrid(plan, target, g);
}

Status CheckTile(const HaloPlan& plan, const HaloTile& tile, const Target& target) {
  const HaloGeometry g = GeometryOf(plan, tile, target);
  const int64_t rows_of_filter = plan.is_wgrad ? plan.wgrad_groups : plan.filter_h;
  const int64_t box_rows = g.rows + (rows_of_filter - 1) * plan.dilation_h;
  if (g.pitch > kMostBox || box_rows > kMostBox)
    return Decline("a tile of {} x {} pixels with its halo; boxes have {}", box_rows, g.pitch,
                   kMostBox);
  if (!plan.is_wgrad && g.columns > kMostColumns)
    return Decline("{} rows of {} pixels are {} columns; wgmma has {}", g.rows, g.pitch, g.columns,
                   kMostColumns);
  if (plan.is_wgrad && g.steps > 2 * kMostColumns / 16)
    return Decline("{} rows of {} pixels are {} steps of wgmma; at most {} are unrolled", g.rows,
                   g.pitch, g.steps, 2 * kMostColumns / 16);
  const int buffers = plan.is_deep && !plan.is_wgrad ? 4 : 2;
  if (g.buffers < buffers)
    return Decline(
        "{} bytes of weights and {} tiles of {} bytes are more than the {} bytes of shared "
        "memory",
        g.resident_bytes, buffers, g.buffer_bytes, target.shared_bytes_per_block);
  // The kernels step beyond the last by a grid.
  if (g.tiles > INT32_MAX / 2) return Decline("{} tiles; 30 bits count them", g.tiles);
  return {};
}

void HaloBoxes(HaloPlan& plan, const HaloGeometry& g) {
  const int halo_h = ((plan.is_wgrad ? plan.wgrad_groups : plan.filter_h) - 1) * plan.dilation_h;
  const int depth = plan.row_bytes / SizeOf(plan.type);
  plan.right.swizzle_bytes = plan.row_bytes;
  plan.right.box = {depth, g.pitch, g.rows + halo_h, 1, 1};
  if (plan.is_wgrad) {
    plan.left.box = {kPanelRows, g.is_strips ? g.width : g.pitch, g.is_strips ? 1 : g.rows, 1, 1};
    return;
  }
  plan.left.box = {depth, kPanelRows, 1, 1, 1};
  plan.left.swizzle_bytes = plan.row_bytes;
  if (plan.left_is_outer) {
    plan.left.box = {kPanelRows, depth, 1, 1, 1};
    plan.left.swizzle_bytes = 128;
  }
  plan.out.box = {kPanelRows, g.is_strips ? g.width : g.pitch, g.rows, 1, 1};
  for (TensorMapSpec& map : plan.full_maps) map.box = plan.out.box;
}

double HaloSeconds(const HaloPlan& plan, const HaloTile& tile, const Target& target,
                   double floor_bytes) {
  const HaloGeometry g = GeometryOf(plan, tile, target);
  const Machine machine = MachineOf(target);
  const double clock = kClockShare * machine.clock;
  const double launch = machine.StartSeconds() + kPrologueClocks / clock;
  // Planes of a tile; those of a deep filter whose tap lies outside cost nothing.
  double planes = 1;
  if (plan.is_deep && !plan.is_wgrad) {
    planes = 0;
    for (int tap = 0; tap < plan.filter_d; ++tap) {
      const PlaceRange inside = plan.PlacesInside(tap);
      planes += double(std::max<int64_t>(0, inside.last - inside.first)) / double(plan.places_d);
    }
  }
  const double wgmmas =
      plan.is_wgrad ? double(g.steps) * plan.wgrad_groups * plan.filter_w / TapsOfWgmma(plan)
                    : planes * g.steps * plan.filter_h * plan.filter_w;
  // A deep filter's weights come once for two tiles.
  const double weights = plan.is_deep && !plan.is_wgrad ? planes * plan.filter_h * plan.filter_w *
                                                              kPanelRows * plan.row_bytes / 2
                                                        : 0;
  const double loaded = planes * double(g.load_bytes) + weights;
  const double tensor = wgmmas * kPanelRows * g.columns * 16 / machine.wgmma.f16;
  const double shared = (wgmmas * (kPanelRows + g.columns) * 32 + loaded) / machine.shared_bytes;
  const double main = std::max({tensor / (plan.is_wgrad ? kWgradShare : kTensorShare),
                                loaded / (kL2Share * machine.l2_bytes), shared}) +
                      kTileClocks;
  const double blocks_of_part = double(g.blocks) / plan.parts();
  const double turns = std::ceil(double(g.units) / blocks_of_part);
  double clocks = kStartClocks, sum = 0;  // of the slices, by a kernel of its own
  if (plan.is_wgrad) {
    clocks += turns * main;
    const double slices =
        blocks_of_part * double(plan.left_size) * plan.taps() * plan.panels() * kPanelRows * 4;
    sum = 2 * slices / (kSliceShare * machine.l2_share() * machine.multiprocessors) + launch;
  } else {
    const double element = plan.is_direct
                               ? kDirectClocks + kFullClocks * static_cast<double>(plan.full.size())
                               : kStoreClocks;
    const double store = element * kPanelRows * g.columns;
    clocks += plan.is_deep ? turns * (2 * main + store)
                           : turns * std::max(main, (main + store) / 2) + store;
  }
  return std::max(clocks / clock, floor_bytes / machine.memory) + launch + sum;
}

}  // namespace kiln::compiler
