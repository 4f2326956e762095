// The designs of conv_direct (conv_direct.h), and what its cost model needs to know of them.
#pragma once

#include "compiler/engines/conv_direct_tiles.h"

namespace kiln::compiler {

// Half the k of a product: the channels of one register set at column tap `s`; set -1 is empty.
struct MmaSource {
  int64_t s;
  int set;  // k-th of those that an output set takes
};
struct MmaFragment {
  int64_t kd, r, phase;
  MmaSource source[2];
};
// The products of one output at each of its taps, of phase `phase` along its row.
struct MmaPlan {
  int sets = 1;
  std::vector<MmaFragment> fragments = {};
};
MmaPlan MmaPlanOf(const ConvShape& shape, int run);
// Of a block.
int64_t MmaSharedBytes(const MmaPlan& plan);

Lowered LowerDirectMma(const Group& group, const Target& target, const ConvShape& shape,
                       const DirectKnobs& knobs);
Lowered LowerDirectSimt(const Group& group, const Target& target, const ConvShape& shape,
                        const DirectKnobs& knobs);

// Depthwise only, in f32.
Lowered LowerDirectWgrad(const Group& group, const Target& target, const ConvShape& shape,
                         const DirectKnobs& knobs);
// Channels that a thread of it owns.
int WgradLanesOf(const Group& group, const ConvShape& shape);

// Output and input channels that a thread of the SIMT design owns.
struct SimtLanes {
  int made, read;
};
SimtLanes SimtLanesOf(const Group& group, const ConvShape& shape);

}  // namespace kiln::compiler
