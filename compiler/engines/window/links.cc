#include "compiler/engines/window/links.h"

#include <algorithm>

#include "ir/base/check.h"

namespace kiln::compiler {

using graph::Graph;
using graph::Node;
using graph::ResampleAxis;
using graph::TensorId;

bool IsForward(const Node& window) { return window.op == graph::GraphOp::kResampleFwd; }
bool IsMax(const Node& window) {
  return window.As<graph::ResampleAttrs>().mode == graph::ResampleMode::kMax;
}

std::vector<TensorId> SourcesOf(const Node& window) {
  if (IsForward(window) || !IsMax(window)) return {window.inputs[0]};
  return {window.inputs[0], window.inputs[1]};
}

std::vector<ResampleAxis> AxesOf(const Graph& g, const Node& window) {
  const TensorId x = IsForward(window) ? window.inputs[0] : window.outputs[0],
                 y = IsForward(window) ? window.outputs[0] : window.inputs[0];
  return graph::ResampleAxes(window.As<graph::ResampleAttrs>(), g[x].dims, g[y].dims);
}

bool IsIdle(const ResampleAxis& axis) {
  return axis.taps == 1 && axis.step == 1 && axis.offset == 0 && axis.in == axis.out;
}

TensorId RepresentativeOf(const Node& window) { return window.outputs[0]; }

size_t AxisOf(const WindowNest& nest, const ResampleAxis& axis) {
  const auto it =
      std::ranges::find(nest.axes, static_cast<int64_t>(axis.dim), &WindowNest::Axis::dim);
  CHECK(it != nest.axes.end(), "dim {} is no axis of the nest", axis.dim);
  return static_cast<size_t>(it - nest.axes.begin());
}

std::vector<WindowLink> LinksOf(const Graph& g, const WindowNest& nest, const Node& window,
                                const WindowNest::Place& at) {
  std::vector<WindowLink> links = {{.source = at}};
  for (const ResampleAxis& a : AxesOf(g, window)) {
    const auto step = static_cast<int>(a.step), taps = static_cast<int>(a.taps),
               offset = static_cast<int>(a.offset);
    std::vector<WindowLink> longer;
    for (const WindowLink& link : links) {
      // Windows in ascending order are taps in descending order.
      for (int i = 0; i < taps; ++i) {
        const int tap = IsForward(window) ? i : taps - 1 - i;
        WindowLink next = link;
        next.tap = link.tap * taps + tap;
        if (!IsIdle(a)) {
          int& place = next.source[AxisOf(nest, a)];
          const int from = place - offset - tap;
          if (IsForward(window)) {
            place = step * place + offset + tap;
          } else {
            const int window_at = (from - (((from % step) + step) % step)) / step;
            if (window_at * step != from) continue;
            place = window_at;
          }
        }
        longer.push_back(std::move(next));
      }
    }
    links = std::move(longer);
  }
  return links;
}

}  // namespace kiln::compiler
