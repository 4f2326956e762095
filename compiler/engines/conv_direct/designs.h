// The designs of conv_direct (conv_direct/engine.h), and what its cost model needs to know of them.
#pragma once

#include "compiler/engines/conv_direct/tiles.h"

namespace kiln::compiler {

// One half of the k of a product: the channels of one register set at column tap `s`; set -1 is
// empty.
struct DirectMmaSource {
  int64_t s;
  int set;  // k-th of those that an output set takes
};
struct DirectMmaFragment {
  int64_t kd, r, phase;
  DirectMmaSource source[2];
};
// The products of one output at each of its taps, of phase `phase` along its row.
struct DirectMmaPlan {
  int sets = 1;
  std::vector<DirectMmaFragment> fragments = {};
};
DirectMmaPlan MmaPlanOf(const ConvShape& shape, int run);
// The shared memory of a block.
int64_t MmaSharedBytes(const DirectMmaPlan& plan);

Lowered LowerDirectMma(const Group& group, const Target& target, const ConvShape& shape,
                       const DirectKnobs& knobs);
Lowered LowerDirectSimt(const Group& group, const Target& target, const ConvShape& shape,
                        const DirectKnobs& knobs);

// Lowers depthwise wgrad, in f32.
Lowered LowerDirectWgrad(const Group& group, const Target& target, const ConvShape& shape,
                         const DirectKnobs& knobs);
// The channels that a thread of it owns.
int WgradLanesOf(const Group& group, const ConvShape& shape);

// The plan for 1 to 32 channels a group, as many filters, on tensor cores
// (conv_direct/wgrad_mma.cc).
struct WgradMmaPlan {
  int64_t rows = 1, columns = 1, images = 1;  // of outputs, in a piece
  int64_t staged_rows = 1, staged_columns = 1, pixels = 0;
  // Pixels from one staged row or image to the next: more than they have where 8 outputs one after
  // the other would else read x from the same banks.
  int64_t row_pitch = 1, image_pitch = 1;
  int64_t row_groups = 1, column_blocks = 1, image_groups = 1;
  int64_t tap_sets = 1, taps_of_set = 1;  // blocks that share the taps
  int64_t tiles = 2;                      // of 8 channels, that 16 filters meet
  int64_t row_warps = 0;  // that take a filter row and half of the channels each; 0: they share k
  int64_t splits = 1, slabs = 1, resident = 1;  // blocks of a multiprocessor
  bool fits = false;                            // shared memory

  int64_t pieces() const { return row_groups * column_blocks * image_groups; }
  int64_t shared_bytes = 0;
  int64_t warps() const { return row_warps > 0 ? row_warps : 4; }
  int64_t parts() const { return row_warps > 0 ? 1 : 2; }   // of k
  int64_t halves() const { return row_warps > 0 ? 2 : 1; }  // of the filters, of a warp
  int64_t products_of_k() const {                           // of a slab
    return tap_sets * taps_of_set * tiles * 2 * (row_warps > 0 ? row_warps : 1);
  }
};
WgradMmaPlan WgradMmaPlanOf(const Group& group, const Target& target, const ConvShape& shape,
                            const DirectKnobs& knobs);
// True if the design takes the problem.
bool TakesWgradMma(const Group& group, const Target& target, const ConvShape& shape);
Lowered LowerDirectWgradMma(const Group& group, const Target& target, const ConvShape& shape,
                            const DirectKnobs& knobs);

// The output and input channels that a thread of the SIMT design owns.
struct SimtLanes {
  int made, read;
};
SimtLanes SimtLanesOf(const Group& group, const ConvShape& shape);

}  // namespace kiln::compiler
