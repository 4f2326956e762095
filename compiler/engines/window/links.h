// Links: the sources that a result of a pooling window has at places that are known as numbers.
#pragma once

#include <vector>

#include "compiler/engines/window/nest.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {

bool IsForward(const graph::Node& window);
bool IsMax(const graph::Node& window);
// The tensors that are read: x, or dy and the index of a maximum.
std::vector<graph::TensorId> SourcesOf(const graph::Node& window);
std::vector<graph::ResampleAxis> AxesOf(const graph::Graph& g, const graph::Node& window);
// True for an axis with one tap that stays where it is.
bool IsIdle(const graph::ResampleAxis& axis);
// The tensor by which a window's results are known.
graph::TensorId RepresentativeOf(const graph::Node& window);

size_t AxisOf(const WindowNest& nest, const graph::ResampleAxis& axis);

struct WindowLink {
  WindowNest::Place source;
  int tap = 0;  // in the window, row-major
};
// The taps of the window at a place, or the windows (and taps) that have the element there, in
// order.
std::vector<WindowLink> LinksOf(const graph::Graph& g, const WindowNest& nest,
                                const graph::Node& window, const WindowNest::Place& at);

}  // namespace kiln::compiler
