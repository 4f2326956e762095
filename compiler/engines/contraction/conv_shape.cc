#include "compiler/engines/contraction/conv_shape.h"

#include <algorithm>

#include "compiler/engines/contraction/tiles.h"

namespace kiln::compiler {

using graph::GraphOp;
using graph::Node;

bool IsConvolution(const Group& group) {
  return group.kind == GroupKind::kContract && ContractionOf(group).op != GraphOp::kMatmul;
}

ConvShape ShapeOf(const Group& group) {
  const Node& node = ContractionOf(group);
  const auto& attrs = node.As<graph::ConvAttrs>();
  const graph::Graph& g = group.graph;
  ConvShape s{.op = node.op};
  const graph::TensorId first = node.inputs[0], second = node.inputs[1], made = node.outputs[0];
  s.x = s.is_dgrad() ? made : first;
  s.w = s.is_wgrad() ? made : second;
  s.y = s.is_dgrad() ? first : s.is_wgrad() ? second : made;
  s.in = first;
  s.out = made;
  const Dims &xd = g[s.x].dims, &wd = g[s.w].dims;
  s.groups = wd[1] == 0 ? 1 : std::max<int64_t>(xd[1] / wd[1], 1);
  s.channels = wd[1];
  s.filters = wd[0] / s.groups;
  s.spatial = static_cast<int64_t>(xd.size()) - 2;
  s.taps = Dims(wd.begin() + 2, wd.end());
  s.stride = attrs.stride;
  s.dilation = attrs.dilation;
  s.pad = attrs.pre_padding;
  s.flip = attrs.flip;
  return s;
}

bool InMemoryAligned(const Group& group, graph::TensorId id) {
  const graph::Tensor& t = group.graph[id];
  return graph::Producers(group.graph)[id] < 0 && !t.by_value && t.alignment % 16 == 0;
}

bool ComesByPieces(const Group& group, graph::TensorId id, int64_t chunk) {
  const graph::Tensor& t = group.graph[id];
  if (!InMemoryAligned(group, id) || t.strides[1] != 1 || t.dims[1] % chunk != 0) return false;
  for (int64_t d = 0; d < t.rank(); ++d)
    if (d != 1 && t.dims[d] != 1 && t.strides[d] % chunk != 0) return false;
  return true;
}

AxisMap MapAxis(const ConvShape& shape, int64_t axis) {
  const int64_t stride = shape.stride[axis], dilation = shape.dilation[axis];
  const int64_t pad = shape.pad[axis], taps = shape.taps[axis];
  AxisMap map{.phases = shape.is_dgrad() ? stride : 1, .step = shape.is_dgrad() ? 1 : stride};
  map.taps.assign(map.phases, {});
  for (int64_t phase = 0; phase < map.phases; ++phase) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      if (!shape.is_dgrad()) {
        map.taps[phase].push_back({tap, tap * dilation - pad});
        continue;
      }
      const int64_t at = phase + pad - tap * dilation;
      if (at % stride == 0) map.taps[phase].push_back({tap, at / stride});
    }
  }
  return map;
}

}  // namespace kiln::compiler
