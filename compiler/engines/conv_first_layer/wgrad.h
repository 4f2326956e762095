// Wgrad of conv_first_layer: see the source.
#pragma once

#include "compiler/engines/conv_first_layer/tiles.h"

namespace kiln::compiler {

// The elements between two pixels of dy in shared memory, against bank conflicts of ldmatrix.
inline constexpr int64_t kFirstLayerDyPad = 8;

// The way in which wgrad cuts the problem beyond the pieces.
struct FirstLayerWgradSizes {
  int64_t columns = 0;   // of the product: filter rows times their chunks of 8 slots
  int64_t per_warp = 0;  // tiles of 8 columns of one warp, an even number
  int64_t tiles = 0;     // of 16 filters, of a block
  int64_t slabs = 0;     // blocks of filters
  int64_t pixels = 0;    // of a piece, whole products of 16
  bool async = false;    // both operands come by asynchronous copies, a piece ahead
  int64_t shared_bytes = 0;
};
FirstLayerWgradSizes WgradSizesOf(const Group& group, const ConvShape& shape,
                                  const FirstLayerPlan& plan);

// `splits` blocks share the pieces of each slab; a second kernel adds what they found, in order.
Lowered LowerFirstLayerWgrad(const Group& group, const Target& target, const ConvShape& shape,
                             const FirstLayerPlan& plan, int64_t splits);

}  // namespace kiln::compiler
