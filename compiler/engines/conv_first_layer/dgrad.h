// Dgrad of conv_first_layer: see the source. Plan and cost: conv_first_layer/dgrad_plan.cc.
#pragma once

#include "compiler/engines/contraction/conv_shape.h"
#include "compiler/engines/engine.h"

namespace kiln::compiler {

struct FirstLayerDgradKnobs {
  int pixels, rows;  // of a warp, on the coarse grid
  int blocks;        // a multiprocessor
};

// The way in which the problem is cut. The coarse grid has a place for each stride x stride
// outputs; `row` and `col` are its axes.
struct FirstLayerDgradPlan {
  struct Axis {
    int64_t stride = 1;
    int64_t first = 0, window = 1;  // a place reads dy from itself + first on
    int64_t blocks = 1;             // along it
  };
  Axis row, col;
  int64_t tiles = 1, rows = 1;  // of a warp: 16 places along a row each, rows of them
  int64_t warp_rows = 1, warp_cols = 1;
  // Neighbouring elements of a row of dx that a place makes, and slots of the product for them.
  int64_t run = 1, run_slots = 1;
  int64_t sets = 1;  // of 8 slots
  // For each row of the window, the sets of which a slot has a tap there.
  std::vector<std::vector<int64_t>> used;
  int64_t chunk = 16, chunks = 1;  // filters of a stage
  int64_t pieces = 0;
  int64_t made_bytes = 0;  // of an element that waits to be stored

  int64_t block_rows() const { return rows * warp_rows; }
  int64_t block_cols() const { return tiles * 16 * warp_cols; }
  int64_t staged_cols() const { return block_cols() + col.window - 1; }
  int64_t staged_pixels() const { return (block_rows() + row.window - 1) * staged_cols(); }
  // Elements of a staged pixel; the rows of ldmatrix fall on different banks.
  int64_t pitch() const { return chunk + 8; }
  int64_t staged_elements() const { return staged_pixels() * pitch(); }
  int64_t panel_elements() const {
    return col.window * row.window * chunks * (chunk / 16) * sets * 128;
  }
  int64_t made_pitch() const { return block_cols() * run; }
  int64_t made_elements() const { return block_rows() * row.stride * made_pitch(); }
  int64_t shared_bytes() const {
    return (2 * staged_elements() + panel_elements()) * 2 + made_elements() * made_bytes + 48;
  }
};
FirstLayerDgradPlan DgradPlanOf(const Group& group, const ConvShape& shape,
                                const FirstLayerDgradKnobs& knobs);

// Ok, or an error that says why the engine declines a dgrad.
Status CheckFirstLayerDgrad(const Group& group, const ConvShape& shape);

// Cycles of a tensor core for one product of mma.sync: those of this engine come a little faster
// than the table of the machine says. FirstLayerDgradCycles are those of the busiest
// multiprocessor.
double FirstLayerProductCycles(const Target& target);
double FirstLayerDgradCycles(const Target& target, const FirstLayerDgradPlan& plan, int blocks);

Lowered LowerFirstLayerDgrad(const Group& group, const Target& target, const ConvShape& shape,
                             const FirstLayerDgradKnobs& knobs);

}  // namespace kiln::compiler
