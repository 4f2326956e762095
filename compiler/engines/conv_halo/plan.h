// HaloPlan: a convolution of stride 1 as conv_halo_sm90 and wgrad_halo_sm90 (codegen/cuda/device)
// run it: tiles of places whose pixels are loaded once, halo and all, and numbered so that a tap is
// a shift by some pixels. Of three spatial axes, depth and images are one dim of memory; planes of
// a filter that is deep are added up one by one, and their weights come anew for each tile.
//
//            left (rows of wgmma, 64)   right (columns)              k
//   fprop    w [filters], resident      x, pixels of a tile          taps, channels
//   dgrad    w [channels], resident     dy, pixels of a tile         taps from the last, filters
//   wgrad    dy [filters]               x [taps of a filter row,     pixels of a tile
//                                       channels]
#pragma once

#include <algorithm>
#include <vector>

#include "compiler/engines/contraction/conv_shape.h"
#include "ir/base/result.h"
#include "ir/target.h"
#include "ir/tensor_map.h"

namespace kiln::compiler {

// The places [first, last) along one axis.
struct PlaceRange {
  int64_t first = 0, last = 0;
};

// The filter rows whose weights a deep filter's kernel holds: one in use, one on its way.
inline constexpr int kDeepWeightRows = 2;

struct HaloPlan {
  ConvShape conv = {};
  DType type = DType::kF16;
  bool is_wgrad = false;
  int64_t most_products = 0;  // of one chain
  bool is_mirrored = false;   // tap t reads the filter's tap from the end
  // Images and depth are one dim where the filter has one plane and no padding before it.
  bool is_deep = false;
  int64_t images = 1, places_d = 1, places_h = 1, places_w = 1;  // of the result; wgrad: of dy
  int64_t in_depth = 1;                                          // of what is read at taps
  int filter_d = 1, filter_h = 1, filter_w = 1;
  int dilation_d = 1, dilation_h = 1, dilation_w = 1;
  int64_t low_d = 0, low_h = 0, low_w = 0;  // place → coordinate of its first tap
  int64_t left_size = 0;                    // rows of the result; wgrad: filters
  int64_t summed = 0;                       // channels along k; wgrad: channels of the result
  int row_bytes = 128;                      // of a pixel in shared memory
  bool left_is_outer = false;               // weights: contiguous along left, not along k
  bool is_direct = false;                   // the result goes out by tensor map
  std::vector<graph::TensorId> full = {};   // operands of the epilogue that come in so
  // Boxes are those of the tile, see HaloBoxes.
  TensorMapSpec left = {}, right = {}, out = {};
  std::vector<TensorMapSpec> full_maps = {};

  int left_tiles() const { return static_cast<int>(CeilDiv(left_size, 64)); }
  int taps() const { return filter_d * filter_h * filter_w; }
  int weight_rows() const { return is_deep ? kDeepWeightRows : filter_h; }
  // The places of the result whose plane of the filter `tap` lies inside.
  PlaceRange PlacesInside(int tap) const {
    const int64_t at = low_d + int64_t{tap} * dilation_d;
    return {std::max<int64_t>(0, -at), std::min(places_d, in_depth - at)};
  }
  // Counts for wgrad: panels of 64 channels, filter rows that a block makes, and blocks for all of
  // them.
  int panels() const { return static_cast<int>(CeilDiv(summed, 64)); }
  int groups() const { return is_wgrad ? wgrad_groups : 2; }
  int sets() const { return filter_d * static_cast<int>(CeilDiv(filter_h, wgrad_groups)); }
  int wgrad_groups = 1;
  // The blocks that a set of tiles needs side by side.
  int parts() const { return is_wgrad ? left_tiles() * panels() * sets() : left_tiles(); }
};

// The plan of a group, or why the convolution has none.
Result<HaloPlan> PlanHalo(const Group& group);

// The places of a tile. A width of 0 is that of the image.
struct HaloTile {
  int rows = 1, width = 0;
  bool operator==(const HaloTile&) const = default;
};

// Numbers that follow from plan and tile.
struct HaloGeometry {
  int rows = 0, width = 0;
  bool is_strips = false;      // narrower than the image
  int pitch = 0;               // from row to row of a tile
  int columns = 0;             // of one wgmma
  int steps = 0;               // along k: of one tap; wgrad: of a tile
  int64_t load_bytes = 0;      // of a tile
  int64_t buffer_bytes = 0;    // in shared memory, of a tile
  int64_t out_bytes = 0;       // of a tile's full operand
  int64_t resident_bytes = 0;  // of all tiles: weights, or a deep filter's rows under way
  int buffers = 0;             // as many as fit
  int64_t shared_bytes = 0;
  int64_t strips_h = 0, strips_w = 0, tiles = 0, blocks = 0;
  int64_t units = 0;  // what blocks take in turns: tiles, pairs of them for a deep filter
};
HaloGeometry GeometryOf(const HaloPlan& plan, const HaloTile& tile, const Target& target);

// An error unless the tile has a kernel; the sentence gives the reason.
Status CheckTile(const HaloPlan& plan, const HaloTile& tile, const Target& target);

// Fills in the boxes of the plan's maps.
void HaloBoxes(HaloPlan& plan, const HaloGeometry& tile);

// Modelled seconds, the sum of splits included; `floor_bytes` is what memory must move at least.
double HaloSeconds(const HaloPlan& plan, const HaloTile& tile, const Target& target,
                   double floor_bytes);

}  // namespace kiln::compiler
