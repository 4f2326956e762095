// See the header. Rules of the tensor maps are those of the CUDA driver API
// ("cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col"): 16-byte strides, corners and filter
// offsets of few bits.
#include "compiler/engines/contract_wgmma/plan.h"

#include <utility>

#include "compiler/engines/contract_wgmma/plan_parts.h"
#include "compiler/engines/contraction/epilogue_reductions.h"
#include "compiler/engines/contraction/tiles.h"
#include "compiler/kernel/accumulation.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::GraphOp;
using graph::Node;
using graph::Tensor;
using graph::TensorId;

constexpr int64_t kNarrow = 32, kLong = 128;  // of a matmul's result

// Which of the result's dims are batches, innermost and around it; -1: none.
struct BatchAxes {
  int64_t inner = -1, outer = -1;
};

// The batch dims of an operand as at most two dims of a map, with how many of the result's batches
// share a matrix.
struct BatchDims {
  MapDim inner, outer;
  int64_t inner_shared = 1, outer_shared = 1;
};
Result<BatchDims> BatchOf(const Tensor& t, const Tensor& y, BatchAxes axes) {
  BatchDims b;
  const int64_t skipped = y.rank() - t.rank();
  for (int64_t d = 0; d + 2 < y.rank(); ++d) {
    if (y.dims[d] == 1) continue;
    const bool is_inner = d == axes.inner;
    if (!is_inner && d != axes.outer)
      return Decline("the result has more than two batch dims above 1");
    const int64_t extent = d < skipped ? 1 : t.dims[d - skipped];
    (is_inner ? b.inner : b.outer) = {extent, extent == 1 ? 0 : t.strides[d - skipped]};
    (is_inner ? b.inner_shared : b.outer_shared) = y.dims[d] / extent;
  }
  return b;
}

// An operand of a matmul as tensor maps read it.
struct MatrixOperand {
  Sm90Operand operand = {};
  BatchDims batch = {};
  TensorMapSpec map = {};
};

// Which operand is left. A result that is narrow along its contiguous dim has the long operand
// left, so that a cluster shares the short one.
Sm90Plan WithSides(const Group& group, const Tensor& y, Sm90Plan plan) {
  const int64_t m = y.rank() - 2, n = y.rank() - 1;
  const bool m_is_contiguous = y.strides[n] != 1 && y.strides[m] == 1 && y.dims[n] != 1;
  plan.along_right = y.dims[m_is_contiguous ? m : n] <= kNarrow &&
                     y.dims[m_is_contiguous ? n : m] >= kLong && CountReductions(group) == 0;
  plan.left_is_a = m_is_contiguous != plan.along_right;
  return plan;
}

// The plan with its operands, and with the launch's numbers of steps and batches.
Sm90Plan WithOperands(const Tensor& y, const MatrixOperand& a, const MatrixOperand& b, int64_t k,
                      BatchAxes axes, Sm90Plan plan) {
  const int64_t m = y.rank() - 2, n = y.rank() - 1;
  const MatrixOperand &left = plan.left_is_a ? a : b, &right = plan.left_is_a ? b : a;
  plan.left = left.operand;
  plan.right = right.operand;
  plan.left_map = left.map;
  plan.right_map = right.map;
  plan.left_size = plan.left_is_a ? y.dims[m] : y.dims[n];
  plan.right_size = plan.left_is_a ? y.dims[n] : y.dims[m];
  plan.k_steps = CeilDiv(k, plan.depth());
  plan.all_steps = plan.k_steps;
  plan.shape = {{contract::tap_steps, plan.k_steps}};
  if (plan.batches > 1)
    plan.shape.insert(plan.shape.end(), {{contract::inner_batches, y.dims[axes.inner]},
                                         {contract::left_outer, left.batch.outer_shared},
                                         {contract::left_inner, left.batch.inner_shared},
                                         {contract::right_outer, right.batch.outer_shared},
                                         {contract::right_inner, right.batch.inner_shared}});
  return plan;
}

Result<Sm90Plan> PlanMatmul(const Group& group, const Node& node, Sm90Plan plan) {
  const graph::Graph& g = group.graph;
  const Tensor &a = g[node.inputs[0]], &b = g[node.inputs[1]], &y = g[node.outputs[0]];
  const int64_t ra = a.rank(), rb = b.rank();
  BatchAxes axes;
  for (int64_t d = 0; d < y.rank() - 2; ++d) {
    if (y.dims[d] == 1) continue;
    axes = {.inner = d, .outer = axes.inner};
    plan.batches *= y.dims[d];
  }
  const MapDim a_outer{a.dims[ra - 2], a.strides[ra - 2]}, a_k{a.dims[ra - 1], a.strides[ra - 1]};
  const MapDim b_outer{b.dims[rb - 1], b.strides[rb - 1]}, b_k{b.dims[rb - 2], b.strides[rb - 2]};
  plan = WithSides(group, y, std::move(plan));
  MatrixOperand as{.operand = {.id = node.inputs[0]}}, bs{.operand = {.id = node.inputs[1]}};
  ASSIGN_OR_RETURN(as.operand.is_outer, IsOuterMajor(a, plan.type, a_outer, a_k));
  ASSIGN_OR_RETURN(bs.operand.is_outer, IsOuterMajor(b, plan.type, b_outer, b_k));
  ASSIGN_OR_RETURN(as.batch, BatchOf(a, y, axes));
  ASSIGN_OR_RETURN(bs.batch, BatchOf(b, y, axes));
  ASSIGN_OR_RETURN(as.map, MatrixMap(a, as.operand, a_outer, a_k, as.batch.inner, as.batch.outer));
  ASSIGN_OR_RETURN(bs.map, MatrixMap(b, bs.operand, b_outer, b_k, bs.batch.inner, bs.batch.outer));
  return WithOperands(y, as, bs, a_k.extent, axes, std::move(plan));
}

}  // namespace

Result<bool> IsOuterMajor(const Tensor& t, DType type, MapDim outer, MapDim k) {
  const bool takes_outer = TakesOuter(type);
  const bool along_k = k.stride == 1 || k.extent == 1;
  if (along_k && (outer.extent == 1 || IsMapAligned(outer.stride, t.dtype))) return false;
  const bool along_outer = outer.stride == 1 || outer.extent == 1;
  if (along_outer && takes_outer && (k.extent == 1 || IsMapAligned(k.stride, t.dtype))) return true;
  return Decline(
      "{} has strides {} and {} along its own axis and along k: one must be 1{}, the "
      "other a multiple of 16 bytes",
      t.name, outer.stride, k.stride, takes_outer ? "" : " (that of k)");
}

Result<TensorMapSpec> MatrixMap(const Tensor& t, const Sm90Operand& operand, MapDim outer, MapDim k,
                                MapDim inner, MapDim last) {
  std::vector<MapDim> dims = {k, outer, inner, last};
  if (operand.is_outer) std::swap(dims[0], dims[1]);
  return MakeMap(t, TensorMapSpec::Kind::kTiled, dims);
}

std::vector<int64_t> PixelDims(const Tensor& t, bool with_images) {
  std::vector<int64_t> dims;
  for (int64_t d = t.rank(); d-- > 2;) dims.push_back(d);
  if (with_images) dims.push_back(0);
  return dims;
}

Result<Sm90Plan> PlanSm90(const Group& group, int terms) {
  const graph::Graph& g = group.graph;
  const Node& node = ContractionOf(group);
  for (const TensorId id : {node.inputs[0], node.inputs[1], node.outputs[0]})
    if (NumElements(g[id].dims) == 0) return Decline("{} is empty", g[id].name);
  Sm90Plan bare{.type = g[node.inputs[0]].dtype, .terms = terms};
  ASSIGN_OR_RETURN(Sm90Plan plan, node.op == GraphOp::kMatmul
                                      ? PlanMatmul(group, node, std::move(bare))
                                      : PlanConvolution(group, node, std::move(bare)));
  plan.result = WidestOutput(g);
  plan.sums_images = node.op == GraphOp::kConvWgrad;
  return plan;
}

bool IsBoxType(DType type) {
  return type == DType::kF16 || type == DType::kBF16 || type == DType::kF32 || type == DType::kI32;
}

Result<TensorMapSpec> PlanSm90Matrix(const Group& group, TensorId id, const Sm90Plan& plan) {
  const Tensor& y = group.graph[id];
  if (!plan.phases.empty() || plan.padded_channels != 0)
    return Decline("the result's places do not lie in one row of memory");
  if (!IsBoxType(y.dtype))
    return Decline("{} is {}; boxes of results are of f16, bf16, f32 and i32", y.name,
                   Info(y.dtype).text);
  std::vector<MapDim> dims;
  if (ContractionOf(group).op == GraphOp::kConvWgrad) {
    dims = {{plan.left_size, y.strides[1]},
            {plan.right_size, y.strides[0]},
            {},
            {plan.batches, plan.right_size * y.strides[0]}};
  } else if (plan.is_conv) {
    const std::vector<int64_t> pixels = PixelDims(y, plan.images == 1);
    if (!IsLinear(y, pixels)) return Decline("the pixels of {} do not lie in one row", y.name);
    const int64_t places = plan.left_is_a ? plan.left_size : plan.right_size;
    const int64_t channels = plan.left_is_a ? plan.right_size : plan.left_size;
    dims = {{channels, y.strides[1]},
            {places, LinearStride(y, pixels)},
            {plan.images, y.strides[0]},
            {plan.batches / plan.images, channels * y.strides[1]}};
    if (plan.along_right || plan.left_is_a) std::swap(dims[0], dims[1]);
  } else {
    const int64_t m = y.rank() - 2, n = y.rank() - 1;
    const MapDim rows{y.dims[m], y.strides[m]}, columns{y.dims[n], y.strides[n]};
    dims = plan.left_is_a != plan.along_right ? std::vector<MapDim>{rows, columns}
                                              : std::vector<MapDim>{columns, rows};
    // Batches as place_of counts them: the innermost dim above 1 is the inner one.
    std::vector<MapDim> batch;
    for (int64_t d = m; d-- > 0;)
      if (y.dims[d] != 1) batch.push_back({y.dims[d], y.strides[d]});
    batch.resize(2);
    dims.insert(dims.end(), batch.begin(), batch.end());
  }
  return MakeMap(y, TensorMapSpec::Kind::kTiled, dims);
}

Result<std::vector<TensorMapSpec>> PlanSm90Phases(const Tensor& t, const Sm90Plan& plan) {
  const int64_t count = NumElements(plan.phases), rank = t.rank() - 2;
  if (plan.phases.empty() || (count != 2 && count != 4 && count != 8))
    return Decline("{} phases; stores by map are of 2, 4 and 8", count);
  if (plan.batches > 1) return Decline("a box of channels may reach into the next group's");
  std::vector<TensorMapSpec> maps;
  for (int64_t phase = 0; phase < count; ++phase) {
    std::vector<MapDim> dims = {{plan.left_size, t.strides[1]}};
    int64_t rest = phase, offset = 0;
    for (int64_t s = rank; s-- > 0;) {
      const int64_t phases = plan.phases[s], first = rest % phases;
      // Seen on an H200: places beyond the tensor, which loads may have, end a store with "illegal
      // instruction". So all phases must have the same.
      if (t.dims[s + 2] % phases != 0)
        return Decline("{} has {} places along a stride of {}: phases differ", t.name,
                       t.dims[s + 2], phases);
      dims.push_back({plan.places[s + 1], t.strides[s + 2] * phases});
      offset += first * t.strides[s + 2];
      rest /= phases;
    }
    if (rank == 1) dims.push_back({1, 0});
    dims.push_back({t.dims[0], t.strides[0]});
    ASSIGN_OR_RETURN(TensorMapSpec map, MakeMap(t, TensorMapSpec::Kind::kPixels, dims));
    RETURN_IF_ERROR(CheckStores(map, t));
    map.offset_bytes = offset * SizeOf(t.dtype);
    if (map.offset_bytes % 16 != 0)
      return Decline("phase {} of {} starts at byte {}", phase, t.name, map.offset_bytes);
    maps.push_back(map);
  }
  return maps;
}

void SetBox(TensorMapSpec& map, const Sm90Plan& plan, const Sm90Operand& operand, int rows) {
  const int depth = plan.depth();
  map.swizzle_bytes = operand.is_outer ? 128 : plan.row_bytes;
  if (operand.is_pixels) {
    // wgrad's left walks pixels along k, the others along their own axis.
    map.channels = operand.is_outer ? plan.panel() : depth;
    map.pixels = operand.is_outer ? depth : rows;
    return;
  }
  map.box = {depth, rows, 1, 1, 1};
  if (operand.is_outer) map.box = {plan.panel(), depth, 1, 1, 1};
}

}  // namespace kiln::compiler
