#include "api/legacy/plans/call_graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/spec/element_type.h"
#include "ir/graph/memory_layout.h"
#include "ir/graph/ops.h"

namespace kiln::api::legacy {
namespace {

using graph::FragmentsOf;
using graph::GraphOp;
using graph::MemoryLayout;
using graph::PointwiseMode;
using graph::TensorId;

Dims DimsFrom(const Lengths& lengths, int32_t rank) {
  return Dims(lengths.begin(), lengths.begin() + rank);
}

bool IsInterleaved(const TensorDesc& t) { return t.vector > 1 || t.reordered != 0; }

// The layout of a tensor whose memory is in another order than that of its dims.
Result<MemoryLayout> LayoutOf(const TensorDesc& t) {
  Dims dims = DimsFrom(t.dims, t.rank);
  if (t.reordered != 0) {
    const auto what = VectorOf(t.type) == 1 ? FragmentsOf::kBias : FragmentsOf::kFilter;
    Result<MemoryLayout> fragments = graph::FragmentLayout(dims, what);
    if (!fragments.ok())
      return Status::Error(Code::kNotSupported, "{}: {}", Text(t), fragments.status().message());
    return fragments;
  }
  dims[1] /= t.vector;
  return graph::VectorLayout(std::move(dims), DimsFrom(t.strides, t.rank), t.vector, 1);
}

Dims Inverse(const Dims& permutation) {
  Dims inverse(permutation.size());
  for (size_t d = 0; d < permutation.size(); ++d)
    inverse[static_cast<size_t>(permutation[d])] = static_cast<int64_t>(d);
  return inverse;
}

}  // namespace

DType ComputeType(const TensorDesc& tensor) {
  return tensor.type == CUDNN_DATA_DOUBLE ? DType::kF64 : DType::kF32;
}

Result<DType> ElementType(int type) {
  if (VectorOf(type) > 1) type = type == CUDNN_DATA_UINT8x4 ? CUDNN_DATA_UINT8 : CUDNN_DATA_INT8;
  return api::ElementType(static_cast<cudnnDataType_t>(type));
}

Result<graph::Tensor> CallGraph::Memory(const Operand& operand) const {
  const TensorDesc& desc = *operand.desc;
  RETURN_IF_ERROR(CheckSet(desc, "a tensor descriptor"));
  if (VectorOf(desc.type) != desc.vector)
    return Status::Error(Code::kNotSupported, "{}: vectors outside NCHW_VECT_C", Text(desc));
  graph::Tensor tensor;
  ASSIGN_OR_RETURN(tensor.dtype, ElementType(desc.type));
  tensor.name = fmt::format("t{}", operand.slot);
  tensor.uid = operand.slot;
  tensor.alignment = std::max(operand.alignment, SizeOf(tensor.dtype));
  tensor.dims = DimsFrom(desc.dims, desc.rank);
  tensor.strides = DimsFrom(desc.strides, desc.rank);
  if (!IsInterleaved(desc)) return tensor;
  ASSIGN_OR_RETURN(MemoryLayout memory, LayoutOf(desc));
  tensor.dims = std::move(memory.dims);
  tensor.strides = std::move(memory.strides);
  return tensor;
}

Result<TensorId> CallGraph::Read(const Operand& operand) {
  if (const auto known = read_.find(operand.slot); known != read_.end()) return known->second;
  ASSIGN_OR_RETURN(graph::Tensor tensor, Memory(operand));
  const DType dtype = tensor.dtype, moving = kiln::MovingType(dtype);
  TensorId id = builder_.graph().AddTensor(std::move(tensor));
  if (IsInterleaved(*operand.desc)) {
    ASSIGN_OR_RETURN(const MemoryLayout memory, LayoutOf(*operand.desc));
    const Dims plain = DimsFrom(operand.desc->dims, operand.desc->rank), split = memory.Split();
    id = builder_.Apply(
        GraphOp::kTranspose, {id}, graph::TransposeAttrs{.permutation = memory.order},
        {.dtype = dtype, .compute = moving, .dims = split, .strides = PackedStrides(split)});
    id = builder_.Apply(
        GraphOp::kReshape, {id}, graph::ReshapeAttrs{},
        {.dtype = dtype, .compute = moving, .dims = plain, .strides = PackedStrides(plain)});
  }
  read_[operand.slot] = id;
  return id;
}

Result<TensorId> CallGraph::Stored(const Operand& operand) {
  ASSIGN_OR_RETURN(graph::Tensor tensor, Memory(operand));
  return builder_.graph().AddTensor(std::move(tensor));
}

TensorId CallGraph::Read(const Scalar& scalar, int64_t rank) {
  if (const auto known = read_.find(scalar.slot); known != read_.end()) return known->second;
  const TensorId id = builder_.ByValue(fmt::format("s{}", scalar.slot), scalar.type, rank);
  builder_.graph()[id].uid = scalar.slot;
  read_[scalar.slot] = id;
  return id;
}

TensorId CallGraph::Constant(double value, int64_t rank, DType type) {
  const TensorId id = builder_.Constant(fmt::format("c{}", constants_++), type, value, rank);
  builder_.graph()[id].uid = -1;
  return id;
}

TensorId CallGraph::Virtual(std::string name, const Dims& dims, DType type) {
  graph::Tensor tensor{.name = std::move(name), .dtype = type, .dims = dims, .is_virtual = true};
  tensor.strides = PackedStrides(dims);
  return builder_.graph().AddTensor(std::move(tensor));
}

TensorId CallGraph::Pointwise(const graph::PointwiseAttrs& attrs, std::vector<TensorId> inputs,
                              DType compute) {
  return builder_.Apply(GraphOp::kPointwise, std::move(inputs), attrs,
                        {.dtype = compute, .compute = compute});
}

TensorId CallGraph::Pointwise(PointwiseMode mode, std::vector<TensorId> inputs, DType compute) {
  return Pointwise(graph::PointwiseAttrs{.mode = mode}, std::move(inputs), compute);
}

// A contraction rounds its sum once, to the type that it is stored in. The graph is then the one
// that clients of graphs have for it, and so are kernels and tuning records. What adds at computed
// places adds in the client's memory.
bool CallGraph::StoresItself(TensorId value, const graph::Tensor& memory) {
  const graph::Graph& g = builder_.graph();
  const graph::Tensor& sum = g[value];
  if (g.nodes.empty()) return false;
  const graph::Node& last = g.nodes.back();
  const bool sums = graph::Has(last, graph::kContraction) || last.op == GraphOp::kScatterAdd;
  return sums && last.outputs.front() == value && sum.is_virtual && sum.dims == memory.dims &&
         IsFloat(sum.dtype) && IsFloat(memory.dtype) && sum.dtype == last.compute;
}

Status CallGraph::Write(TensorId value, const Operand& operand, const Blend& blend) {
  const DType compute = ComputeType(*operand.desc);
  const auto rank = int64_t{operand.desc->rank};
  if (blend.alpha.slot >= 0)
    value = Pointwise(PointwiseMode::kMul, {value, Read(blend.alpha, rank)}, compute);
  if (blend.beta.slot >= 0) {
    ASSIGN_OR_RETURN(TensorId prior, Read(blend.prior));
    prior = Pointwise(PointwiseMode::kMul, {prior, Read(blend.beta, rank)}, compute);
    value = Pointwise(PointwiseMode::kAdd, {value, prior}, compute);
  }
  ASSIGN_OR_RETURN(graph::Tensor memory, Memory(operand));
  if (StoresItself(value, memory) && !IsInterleaved(*operand.desc)) {
    memory.name = builder_.graph()[value].name;
    builder_.graph()[value] = std::move(memory);
    return {};
  }
  const DType dtype = memory.dtype;
  const bool is_exact = builder_.graph()[value].dtype == dtype;
  const DType moving = is_exact ? kiln::MovingType(dtype) : compute;
  TensorId last = builder_.Apply(GraphOp::kPointwise, {value},
                                 graph::PointwiseAttrs{.mode = PointwiseMode::kIdentity},
                                 {.dtype = dtype, .compute = moving});
  if (IsInterleaved(*operand.desc)) {
    ASSIGN_OR_RETURN(const MemoryLayout order, LayoutOf(*operand.desc));
    const Dims split = order.Split();
    const DType bytes = kiln::MovingType(dtype);
    last = builder_.Apply(
        GraphOp::kReshape, {last}, graph::ReshapeAttrs{},
        {.dtype = dtype, .compute = bytes, .dims = split, .strides = PackedStrides(split)});
    last = builder_.Apply(GraphOp::kTranspose, {last},
                          graph::TransposeAttrs{.permutation = Inverse(order.order)},
                          {.dtype = dtype, .compute = bytes, .dims = memory.dims});
  }
  graph::Tensor& result = builder_.graph()[last];
  if (result.dims != memory.dims)
    return Status::Error(Code::kBadParam, "the result does not have the extents of {}",
                         Text(*operand.desc));
  memory.name = result.name;
  result = std::move(memory);
  return {};
}

// No elementwise op makes a tensor larger than all that it reads: a selection by a condition that
// holds everywhere does.
Status CallGraph::WriteBroadcast(TensorId value, const Operand& operand, const Blend& blend) {
  const Dims dims = DimsFrom(operand.desc->dims, operand.desc->rank);
  if (DimsOf(value) != dims && blend.beta.slot < 0) {
    const DType dtype = builder_.graph()[value].dtype, moving = kiln::MovingType(dtype);
    const auto rank = static_cast<int64_t>(dims.size());
    const Dims all = {NumElements(dims)};
    TensorId place = builder_.Apply(GraphOp::kIota, {}, graph::IotaAttrs{.axis = 0},
                                    {.dtype = DType::kI64, .compute = DType::kI64, .dims = all});
    place = builder_.Apply(GraphOp::kReshape, {place}, graph::ReshapeAttrs{},
                           {.dtype = DType::kI64,
                            .compute = DType::kI64,
                            .dims = dims,
                            .strides = PackedStrides(dims)});
    const TensorId is_place =
        builder_.Apply(GraphOp::kPointwise, {place, Constant(0, rank, DType::kI64)},
                       graph::PointwiseAttrs{.mode = PointwiseMode::kCmpGe},
                       {.dtype = DType::kBool, .compute = DType::kI64});
    value = builder_.Apply(GraphOp::kPointwise, {value, value, is_place},
                           graph::PointwiseAttrs{.mode = PointwiseMode::kBinarySelect},
                           {.dtype = dtype, .compute = moving});
  }
  return Write(value, operand, blend);
}

Status CheckSet(const TensorDesc& tensor, std::string_view name) {
  if (tensor.rank > 0) return {};
  return Status::Error(Code::kBadParam, "{} was not set", name);
}

Status CheckSameDims(const TensorDesc& x, const TensorDesc& y) {
  if (x.rank == y.rank && x.dims == y.dims) return {};
  return Status::Error(Code::kBadParam, "the extents of {} and {} differ", Text(x), Text(y));
}

Status CheckSameType(const TensorDesc& x, const TensorDesc& y) {
  if (x.type == y.type) return {};
  return Status::Error(Code::kBadParam, "the data types of {} and {} differ", Text(x), Text(y));
}

Status CheckSameStrides(const TensorDesc& x, const TensorDesc& y) {
  if (x.strides == y.strides && x.vector == y.vector) return {};
  return Status::Error(Code::kBadParam, "the strides of {} and {} differ", Text(x), Text(y));
}

Status AsNotSupported(Status status) {
  return status.ok() ? status : Status::Text(Code::kNotSupported, status.message());
}

Status CheckFloat(const TensorDesc& tensor) {
  ASSIGN_OR_RETURN(const DType type, ElementType(tensor.type));
  if (IsFloat(type)) return {};
  return Status::Error(Code::kNotSupported, "{}: float, double, half and bfloat16 are possible",
                       Text(tensor));
}

Status CheckInPlace(const void* from, const TensorDesc& x, const void* to, const TensorDesc& y) {
  return from == to ? CheckSameStrides(x, y) : Status();
}

}  // namespace kiln::api::legacy
