// WindowNest: windows with maps around them, and windows over what other windows give, whose
// geometry is known when the kernel is written. A thread makes a tile of neighbouring results; each
// value on the way to them is computed once, in registers, at each place of the tile and around it
// where it is needed:
//
//   y = x * power(mean(x * x, 5 places)), tile 4     dx of a maximum, 3 taps, stride 2, tile 4
//     x       -2 … 5, read once                        x       -1 … 7, read once
//     x * x   -2 … 5                                   found   windows 0 1 2, searched once each
//     mean     0 … 3, power 0 … 3                      dx      0 … 3, of the windows that found it
//
// A place of a tensor along an axis is scale * (the tile's number) + an offset, the scale a
// tensor's own: windows of a stride step over their sources.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/module.h"

namespace kiln::compiler {

struct WindowNest {
  struct Axis {
    int64_t dim = 0;
    int tile = 1;  // results
  };
  using Place = std::vector<int>;  // an offset for each axis
  using Value = std::pair<graph::TensorId, Place>;

  std::vector<Axis> axes;  // the innermost dim of memory is the last
  std::map<graph::TensorId, std::vector<int>> scales;
  std::vector<Value> values;  // all that a thread has, sources before what is made of them
};

// Plans a nest. None for other nodes than maps and pooling windows, and where a tile takes too
// much.
std::optional<WindowNest> PlanWindowNest(const Group& group);

Lowered LowerWindowNest(const Group& group, const Target& target, const WindowNest& nest,
                        int threads);

}  // namespace kiln::compiler
