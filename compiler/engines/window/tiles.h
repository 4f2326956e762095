// WindowTiles: windows whose geometry is known when the kernel is written. A thread makes a tile of
// neighbouring results and reads each source once: all places, and which tap of which window meets
// which result, are numbers.
//
//   forward, 3 taps, stride 2, pad 1, tile 2     backward, tile 2 (the stride)
//     sources  -1 0 1 2 3  of x from 4b on         sources  0 1  of dy from b on
//     result 0 from taps 0 1 2 of -1 0 1           element 0 from tap 1 of source 0
//     result 1 from taps 0 1 2 of  1 2 3           element 1 from tap 2 of 0 and tap 0 of 1
//
// Where channels are innermost a thread has some of them, else a tile lies along the innermost
// axis, and most of its sources are one wide copy.
#pragma once

#include <optional>
#include <vector>

#include "compiler/module.h"

namespace kiln::compiler {

struct WindowTiles {
  struct Link {
    int result, source, tap;  // the first two from where the tile starts
  };
  struct Axis {
    int64_t dim = 0;
    int tile = 1;             // results
    int step = 1;             // sources from one tile to the next
    int low = 0, high = 0;    // sources that are read
    std::vector<Link> links;  // by source
  };
  std::vector<Axis> axes;
  int64_t lane_dim = 0;
  int lanes = 1;           // channels of a thread
  bool along = false;      // a tile lies along the innermost axis
  int chunk = 0;           // along: sources that are one wide copy; 0 for none
  bool wide_store = true;  // along: results are
};

// Plans tiles. None for windows of other kinds: interpolation, maps around the window, integers.
std::optional<WindowTiles> PlanWindowTiles(const Group& group);

Lowered LowerWindowTiles(const Group& group, const Target& target, const WindowTiles& tiles,
                         int threads);

}  // namespace kiln::compiler
