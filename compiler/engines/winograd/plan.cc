#include "compiler/engines/winograd/plan.h"

#include <algorithm>
#include <limits>

#include "compiler/engines/contraction/epilogue_reductions.h"
#include "compiler/engines/contraction/tiles.h"
#include "ir/graph/builder.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;
using graph::TensorId;

constexpr int64_t kTaps = 3;
// A result that is the sum of few products beside large ones of its tile has their errors. In a
// simulation, errors were 7 times what an f32 sum in order may have with one product at each point,
// 0.5 with 4, 0.12 with 16.
constexpr int64_t kShortestSum = 16;

template <class... A>
Status Decline(fmt::format_string<A...> format, A&&... args) {
  return Status::Error(Code::kUnsupportedShape, format, std::forward<A>(args)...);
}

Status CheckGeometry(const Group& group, const ConvShape& s) {
  if (s.spatial != 2) return Decline("{} spatial dims, not 2", s.spatial);
  for (int64_t axis = 0; axis < s.spatial; ++axis) {
    if (s.taps[axis] != kTaps || s.stride[axis] != 1 || s.dilation[axis] != 1)
      return Decline("{} taps, stride {} and dilation {} along axis {}; they must be 3, 1 and 1",
                     s.taps[axis], s.stride[axis], s.dilation[axis], axis);
  }
  if (s.groups != 1) return Decline("{} groups, not 1", s.groups);
  for (const TensorId id : {s.x, s.w, s.y})
    if (NumElements(group.graph[id].dims) == 0) return Decline("{} is empty", group.graph[id].name);
  return {};
}

Status CheckGroup(const Group& group) {
  if (!IsConvolution(group))
    return Status::Error(Code::kUnsupportedGraphPattern, "the group has no convolution");
  const graph::Node& anchor = ContractionOf(group);
  for (const TensorId id : anchor.inputs) {
    if (group.graph[id].dtype != DType::kF32)
      return Status::Error(Code::kUnsupportedDataType, "{} is {}, not f32", group.graph[id].name,
                           Info(group.graph[id].dtype).text);
  }
  if (ArithmeticType(anchor.compute) != DType::kF32)
    return Status::Error(Code::kUnsupportedDataType, "compute type {} is not f32",
                         Info(anchor.compute).text);
  if (CountReductions(group) != 0)
    return Status::Error(Code::kUnsupportedGraphPattern, "the result is reduced on its way");
  return {};
}

// [16, rows, columns] of a matrix product, from [point][row][column] in memory.
struct View {
  Dims dims, strides;
};
View ViewOf(const WinogradMatrix& m, bool tiles_first) {
  View v{.dims = {kWinogradPoints, m.channels, m.tiles},
         .strides = {m.point_stride(), m.pitch(), 1}};
  if (!m.tiles_inside) std::swap(v.strides[1], v.strides[2]);
  if (tiles_first) {
    std::swap(v.dims[1], v.dims[2]);
    std::swap(v.strides[1], v.strides[2]);
  }
  return v;
}

Result<Group> ProductOf(const WinogradPlan& plan, bool wgrad) {
  graph::GraphBuilder b("winograd");
  const View a = ViewOf(plan.a, false), x = ViewOf(plan.b, wgrad), out = ViewOf(plan.out, false);
  const TensorId left = b.Input("a", DType::kF32, a.dims, a.strides);
  const TensorId right = b.Input("b", DType::kF32, x.dims, x.strides);
  const TensorId y = b.Apply(graph::GraphOp::kMatmul, {left, right}, graph::MatmulAttrs{}, {});
  b.Output(y, "y", DType::kF32, out.strides);
  Group group{.kind = GroupKind::kContract};
  ASSIGN_OR_RETURN(group.graph, b.Finish());
  return group;
}

}  // namespace

bool WinogradPlan::wide() const {
  const int64_t most = std::max({a.elements(), b.elements(), out.elements()});
  return most > std::numeric_limits<int32_t>::max() || IndexType(product.graph) == DType::kI64;
}

Result<WinogradPlan> PlanWinograd(const Group& group) {
  RETURN_IF_ERROR(CheckGroup(group));
  WinogradPlan plan{.shape = ShapeOf(group)};
  const ConvShape& s = plan.shape;
  RETURN_IF_ERROR(CheckGeometry(group, s));
  const graph::Graph& g = group.graph;
  // The tensor that tiles of 2x2 cover: results, or the dy of a wgrad.
  const Tensor& covered = g[s.is_dgrad() ? s.x : s.y];
  plan.tiles_h = CeilDiv(covered.dims[2], 2);
  plan.tiles_w = CeilDiv(covered.dims[3], 2);
  plan.first_h = s.is_dgrad() ? s.pad[0] - (kTaps - 1) : -s.pad[0];
  plan.first_w = s.is_dgrad() ? s.pad[1] - (kTaps - 1) : -s.pad[1];
  plan.pixels = s.is_dgrad() ? s.y : s.x;
  plan.other = s.is_wgrad() ? s.y : s.w;
  const int64_t tiles = covered.dims[0] * plan.tiles_h * plan.tiles_w;
  const int64_t summed = s.is_dgrad() ? s.filters : s.channels;
  const int64_t made = s.is_dgrad() ? s.channels : s.filters;
  const auto pixels_of = [&](TensorId id, int64_t channels) {
    return WinogradMatrix{
        .tiles_inside = !ChannelsLast(g[id]), .channels = channels, .tiles = tiles};
  };
  const int64_t sum = s.is_wgrad() ? tiles : summed;
  if (sum < kShortestSum)
    return Decline("{} products are summed at each point, fewer than {}", sum, kShortestSum);
  plan.b = pixels_of(plan.pixels, summed);
  if (s.is_wgrad()) {
    plan.a = pixels_of(plan.other, made);
    plan.out = {.tiles_inside = true, .channels = made, .tiles = summed};
  } else {
    plan.a = {.tiles_inside = true, .channels = made, .tiles = summed};
    plan.out = pixels_of(s.out, made);
  }
  ASSIGN_OR_RETURN(plan.product, ProductOf(plan, s.is_wgrad()));
  return plan;
}

}  // namespace kiln::compiler
