// collapse: a group of maps and reduces with fewer dims for the same work. Drops dims of extent 1,
// orders the rest by the strides of one leading tensor, and merges neighbours that every tensor
// walks as one:
//
//   y[8,64,56,56] NHWC = x * s[1,64,1,1]     →     y[25088,64] = x * s[1,64]
//   y[8,64,56,56] NCHW = x + z               →     y[1605632]  = x + z
//   sum over N,H,W of x[8,64,56,56] NHWC     →     sum over dim 0 of x[25088,64]
//
// Kernels then depend on few layout classes, and inner loops are long. Called first by the
// pointwise and reduce engines.
#pragma once

#include <optional>

#include "compiler/module.h"

namespace kiln::compiler {

// False if some node addresses dims one by one (views, concat, iota): the group is then left as it
// is.
bool CanCollapse(const Group& group);

// The group over merged dims, all tensors of one rank. `lead` gives the order of the dims.
Group Collapse(const Group& group, graph::TensorId lead);

// True if a node gives the place of an element among all, or is a view that leaves elements in
// their order.
bool IsPlaceOrView(const graph::Graph& graph, const graph::Node& node);

// A group of maps, and of places of elements as reshaped iotas give them (random numbers), over one
// dim: where all tensors in memory lie there in row-major order without gaps, or have one element.
std::optional<Group> Flatten(const Group& group);

}  // namespace kiln::compiler
