// WinogradPlan: a 3x3 convolution of stride 1 as 16 matrix products. Images are cut into tiles of
// 4x4 that overlap by 2; what a tile gives is linear in it and in the other operand, and in the
// right coordinates (the values of polynomials at 0, 1, -1 and infinity, along both axes) the
// convolution of a tile is 16 products, where the sums that define it have 36:
//
//           pixels (4x4)   other operand        sum over   result         by tile
//   fprop   x              w (3x3 -> 4x4)       channels   y              4x4 -> 2x2
//   dgrad   dy             w, rotated           filters    dx             4x4 -> 2x2
//   wgrad   x              dy (2x2 -> 4x4)      tiles      dw             4x4 -> 3x3, at the end
//
//   wgrad:  dw[k,c] = A' (sum over tiles t of (G dy[k,t] G') * (B' x[c,t] B)) A
//
// A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", 2015. Errors are some
// times those of a sum in order, relative to the tile's largest values; an infinity or NaN of a
// tile reaches all results of the tile, wherever it stands in it.
//
// The operands in these coordinates lie in scratch memory, as the 16 products read them best:
//
//   pixels  channels last [16][tiles][channels], else [16][channels][tiles, to a multiple of 4]
//   dy      likewise
//   w       [16][results' channels][summed channels]
#pragma once

#include "compiler/engines/contraction/conv_shape.h"
#include "ir/base/result.h"

namespace kiln::compiler {

inline constexpr int kWinogradTile = 4;
inline constexpr int kWinogradPoints = kWinogradTile * kWinogradTile;

// The layout of an operand or a result in its coordinates: [point][row][column], columns side by
// side.
struct WinogradMatrix {
  bool tiles_inside = false;  // [channel][tile], else [tile][channel]
  int64_t channels = 0, tiles = 0;
  int64_t rows() const { return tiles_inside ? channels : tiles; }
  int64_t columns() const { return tiles_inside ? tiles : channels; }
  int64_t pitch() const { return AlignUp(columns(), 4); }
  int64_t point_stride() const { return rows() * pitch(); }
  int64_t elements() const { return kWinogradPoints * point_stride(); }
};

struct WinogradPlan {
  ConvShape shape = {};
  graph::TensorId pixels = -1, other = -1;  // the operand of 4x4 tiles, and the other one
  int64_t tiles_h = 0, tiles_w = 0;         // of an image
  int64_t first_h = 0, first_w = 0;         // pixel of the first tile's corner
  // The product: out [m, n] = a [m, k] * b [k, n] at each point. b is pixels; a is w or dy. The
  // matrix of w has `tiles` for the channels that are summed.
  WinogradMatrix a = {}, b = {}, out = {};
  // The product's group, whose tensors are a, b and out in this order.
  Group product = {};

  bool wide() const;  // whether indices need 64 bits
};

// The plan of a group, or why it has none.
Result<WinogradPlan> PlanWinograd(const Group& group);

}  // namespace kiln::compiler
