#include "api/legacy/call_graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/backend/graph_import.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;
using graph::PointwiseMode;
using graph::TensorId;

Dims DimsFrom(const Lengths& lengths, int32_t rank) {
  return Dims(lengths.begin(), lengths.begin() + rank);
}

// NCHW_VECT_C is memory of one more dim, and the plain tensor what a transpose and a reshape make
// of it: [N, C/v, H, W, v] -> [N, C/v, v, H, W] -> [N, C, H, W].
Dims OrderOfVectors(int64_t rank) {
  Dims order = {0, 1, rank};
  for (int64_t d = 2; d < rank; ++d) order.push_back(d);
  return order;
}

Dims Inverse(const Dims& permutation) {
  Dims inverse(permutation.size());
  for (size_t d = 0; d < permutation.size(); ++d)
    inverse[static_cast<size_t>(permutation[d])] = static_cast<int64_t>(d);
  return inverse;
}

Dims SplitChannels(const Dims& plain, int64_t vector) {
  Dims split = plain;
  split[1] /= vector;
  split.insert(split.begin() + 2, vector);
  return split;
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
  if (desc.vector == 1) return tensor;
  tensor.dims[1] /= desc.vector;
  for (int64_t& stride : tensor.strides) stride *= desc.vector;
  tensor.dims.push_back(desc.vector);
  tensor.strides.push_back(1);
  return tensor;
}

Result<TensorId> CallGraph::Read(const Operand& operand) {
  if (const auto known = read_.find(operand.slot); known != read_.end()) return known->second;
  ASSIGN_OR_RETURN(graph::Tensor tensor, Memory(operand));
  const DType dtype = tensor.dtype, moving = kiln::MovingType(dtype);
  TensorId id = builder_.graph().AddTensor(std::move(tensor));
  if (operand.desc->vector > 1) {
    const Dims plain = DimsFrom(operand.desc->dims, operand.desc->rank);
    const Dims split = SplitChannels(plain, operand.desc->vector);
    const Dims order = OrderOfVectors(operand.desc->rank);
    id = builder_.Apply(
        GraphOp::kTranspose, {id}, graph::TransposeAttrs{.permutation = order},
        {.dtype = dtype, .compute = moving, .dims = split, .strides = PackedStrides(split)});
    id = builder_.Apply(
        GraphOp::kReshape, {id}, graph::ReshapeAttrs{},
        {.dtype = dtype, .compute = moving, .dims = plain, .strides = PackedStrides(plain)});
  }
  read_[operand.slot] = id;
  return id;
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

TensorId CallGraph::Pointwise(const graph::PointwiseAttrs& attrs, std::vector<TensorId> inputs,
                              DType compute) {
  return builder_.Apply(GraphOp::kPointwise, std::move(inputs), attrs,
                        {.dtype = compute, .compute = compute});
}

TensorId CallGraph::Pointwise(PointwiseMode mode, std::vector<TensorId> inputs, DType compute) {
  return Pointwise(graph::PointwiseAttrs{.mode = mode}, std::move(inputs), compute);
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
  const DType dtype = memory.dtype;
  const bool is_exact = builder_.graph()[value].dtype == dtype;
  const DType moving = is_exact ? kiln::MovingType(dtype) : compute;
  TensorId last = builder_.Apply(GraphOp::kPointwise, {value},
                                 graph::PointwiseAttrs{.mode = PointwiseMode::kIdentity},
                                 {.dtype = dtype, .compute = moving});
  if (operand.desc->vector > 1) {
    const Dims split = SplitChannels(DimsOf(last), operand.desc->vector);
    const DType bytes = kiln::MovingType(dtype);
    last = builder_.Apply(
        GraphOp::kReshape, {last}, graph::ReshapeAttrs{},
        {.dtype = dtype, .compute = bytes, .dims = split, .strides = PackedStrides(split)});
    last = builder_.Apply(GraphOp::kTranspose, {last},
                          graph::TransposeAttrs{.permutation = Inverse(OrderOfVectors(rank))},
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
    const TensorId place =
        builder_.Apply(GraphOp::kIota, {}, graph::IotaAttrs{.axis = 0},
                       {.dtype = DType::kI64, .compute = DType::kI64, .dims = dims});
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

}  // namespace kiln::api::legacy
