// The segments engine: segment_reduce and segment_ids (ir/graph/ops_segment.cc), on every device.
//
//   reduce  a thread has neighbours of a row of y, and walks the places of its segment in order,
//           with the rows of several places on their way at once. Rows are read where they lie, by
//           wide copies, also through a gather and before the maps that x is computed by:
//
//             begin, end = offsets[n], offsets[n+1]
//             for p in begin..end by 4 { copy v[0..8) <- x[rows[p], c ..]; acc[l] += f(v[l]) }
//             copy y[n, c ..] <- acc
//
//   ids     a thread has a place, and looks it up among the offsets by halving
//
// So results are summed in the order of their places, whatever the device. A segment is one
// thread's however long it is. On the CPU the neighbours are a vector loop.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kSegmentsEngine;

}  // namespace kiln::compiler
