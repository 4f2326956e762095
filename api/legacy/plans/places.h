// Values of a tensor at other places along one of its dims: padding, folding, columns of windows.
// Places outside the tensor hold 0.
#pragma once

#include "api/legacy/plans/call_graph.h"

namespace kiln::api::legacy {

// offset + the sum of index[d] * steps[d] for every index below `extents`, as one dim: the dim
// `axis` of `rank`.
graph::TensorId PlacesAlong(CallGraph& g, const Dims& extents, const Dims& steps, int64_t offset,
                            int64_t axis, int64_t rank);
// x with the elements at `places`, which lie along `axis`, in place of its own.
graph::TensorId AtPlaces(CallGraph& g, graph::TensorId x, graph::TensorId places, int64_t axis);

// The elements in the order of the dims, wherever the elements lie.
graph::TensorId Reshaped(CallGraph& g, graph::TensorId x, const Dims& dims);
graph::TensorId Transposed(CallGraph& g, graph::TensorId x, const Dims& permutation);

}  // namespace kiln::api::legacy
