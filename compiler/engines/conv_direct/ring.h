// RingPlan: a depthwise convolution through a ring of input rows in shared memory
// (conv_direct/ring.cc) as numbers.
#pragma once

#include "compiler/engines/contraction/conv_shape.h"
#include "compiler/engines/engine.h"

namespace kiln::compiler {

struct RingKnobs {
  int strip = 4;   // neighbouring outputs of a thread
  int lanes = 2;   // channels of it
  int slab = 64;   // channels of a block, at most
  int pieces = 1;  // that the rows of an image are cut into
};

struct RingAxis {
  int64_t taps = 1, stride = 1, dilation = 1, pad = 0;
  int64_t reach() const { return (taps - 1) * dilation; }
};

// The plan of all directions: dgrad of stride 1 is fprop with the filter turned round; wgrad walks
// x as fprop does, and meets dy where that has its outputs.
struct RingPlan {
  graph::TensorId in = -1, out = -1;  // what is walked; what has the places of the outputs
  RingAxis row = {}, col = {};
  bool flip = false, wgrad = false;

  // One input row reaches `live` output rows. After `period` input rows all is as before, `live`
  // output rows further down. A stage of the ring has `group` input rows, a divisor of the period.
  int64_t live = 1, period = 1, group = 1, depth = 2;

  int64_t strip = 1, lanes = 1;
  int64_t chunk = 8;                         // elements of 16 bytes
  int64_t slab = 8, vectors = 1, pitch = 8;  // channels of a block; threads on them; of a pixel
  int64_t strips = 1, images = 1;            // of a block
  int64_t columns = 1, staged_columns = 1;   // outputs of a block; inputs
  int64_t rows = 1;                          // outputs of a unit
  int64_t row_groups = 1, column_blocks = 1, image_groups = 1, slabs = 1;
  int64_t resident = 1, splits = 1;  // blocks of a multiprocessor; blocks that share the units
  int64_t shared_bytes = 0;
  bool fits = false;

  int64_t walkers() const { return strips * images; }
  int64_t threads() const { return vectors * walkers(); }
  int64_t walk() const { return (rows - 1) * row.stride + row.reach() + 1; }  // input rows
  int64_t bodies() const { return CeilDiv(walk(), period); }                  // of a unit
  int64_t units() const { return row_groups * column_blocks * image_groups; }
  int64_t steps() const { return CeilDiv(units(), splits); }
  int64_t taps() const { return row.taps * col.taps; }
  int64_t window() const { return (strip - 1) * col.stride + col.reach() + 1; }
  int64_t in_elements() const { return group * images * staged_columns * pitch; }  // of a stage
  int64_t out_rows() const { return CeilDiv(group, row.stride); }  // that begin in a stage
  int64_t out_elements() const { return wgrad ? out_rows() * images * columns * pitch : 0; }
};

// The tap of an output row that input row `u` of a period meets, and which of the live ones it is;
// `row` counts from the period's first output row and is negative for what began in the last one.
struct RingHit {
  int64_t tap, slot, row;
};
std::vector<RingHit> HitsOf(const RingPlan& plan, int64_t u);

RingPlan RingPlanOf(const Group& group, const Target& target, const ConvShape& shape,
                    const RingKnobs& knobs);
// True if the design takes the problem.
bool TakesRing(const Group& group, const Target& target, const ConvShape& shape);
double RingCost(const Group& group, const Target& target, const RingPlan& plan);
Lowered LowerRing(const Group& group, const Target& target, const ConvShape& shape,
                  const RingPlan& plan);

}  // namespace kiln::compiler
