#include "api/backend/graph_import.h"

#include <algorithm>
#include <optional>

#include "ir/graph/builder.h"
#include "ir/graph/complex.h"
#include "ir/graph/verify_util.h"

namespace kiln::api {
namespace {

std::optional<DType> CoreType(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_FLOAT:
      return DType::kF32;
    case CUDNN_DATA_DOUBLE:
      return DType::kF64;
    case CUDNN_DATA_HALF:
      return DType::kF16;
    case CUDNN_DATA_BFLOAT16:
      return DType::kBF16;
    case CUDNN_DATA_FP8_E4M3:
      return DType::kE4M3;
    case CUDNN_DATA_FP8_E5M2:
      return DType::kE5M2;
    case CUDNN_DATA_FP8_E8M0:
      return DType::kE8M0;
    case CUDNN_DATA_INT8:
      return DType::kI8;
    case CUDNN_DATA_UINT8:
      return DType::kU8;
    case CUDNN_DATA_INT32:
      return DType::kI32;
    case CUDNN_DATA_INT64:
      return DType::kI64;
    case CUDNN_DATA_BOOLEAN:
      return DType::kBool;
    case CUDNN_DATA_FP4_E2M1:
      return DType::kE2M1;
    case CUDNN_DATA_INT4:
      return DType::kI4;
    case CUDNN_DATA_UINT4:
      return DType::kU4;
    case CUDNN_DATA_UINT32:
      return DType::kU32;
    case CUDNN_DATA_COMPLEX_FP32:
      return DType::kC64;
    case CUDNN_DATA_COMPLEX_FP64:
      return DType::kC128;
    default:
      return std::nullopt;
  }
}

}  // namespace

Result<DType> ElementType(cudnnDataType_t type) {
  if (auto core = CoreType(type)) return *core;
  return Status::Error(Code::kUnsupportedDataType, "Kiln has no tensors of {}", NameOf(type));
}

Result<DType> ComputeType(cudnnDataType_t type) {
  if (type == CUDNN_DATA_FAST_FLOAT_FOR_FP8) return DType::kF32;
  if (auto core = CoreType(type)) return *core;
  return Status::Error(Code::kUnsupportedDataType, "Kiln does not compute in {}", NameOf(type));
}

cudnnDataType_t MovingType(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_INT8:
    case CUDNN_DATA_UINT8:
    case CUDNN_DATA_FP8_E4M3:
    case CUDNN_DATA_FP8_E5M2:
    case CUDNN_DATA_FP8_E8M0:
    case CUDNN_DATA_FP4_E2M1:
    case CUDNN_DATA_INT4:
    case CUDNN_DATA_UINT4:
      return CUDNN_DATA_FLOAT;  // holds every value of theirs
    case CUDNN_DATA_UINT32:
      return CUDNN_DATA_INT64;
    default:
      return type;
  }
}

Result<graph::Tensor> GraphImport::Convert(const TensorDesc& t) const {
  Result<DType> dtype = ElementType(t.data_type);
  if (!dtype.ok()) return std::move(dtype).status().Within(t.Text());
  return graph::Tensor{
      .name = t.uid < 0 ? fmt::format("tn{}", -(t.uid + 1)) : fmt::format("t{}", t.uid),
      .uid = t.uid,
      .dtype = *dtype,
      .dims = Dims(t.dims.begin(), t.dims.end()),
      .strides = Dims(t.strides.begin(), t.strides.end()),
      .alignment = t.alignment,
      .is_virtual = t.is_virtual,
      .by_value = t.by_value,
      .value = std::nullopt};
}

Result<GraphImport::Entry*> GraphImport::Find(const TensorDesc& tensor) {
  auto found = by_uid_.find(tensor.uid);
  if (found != by_uid_.end()) {
    if (found->second.copy->SameAs(tensor)) return &found->second;
    return Status::Error(Code::kDuplicatedEntries, "{} and {} share a uid but differ",
                         found->second.copy->Text(), tensor.Text());
  }
  ASSIGN_OR_RETURN(const graph::TensorId id, AddTensor(tensor, ""));
  Entry entry{.copy = std::make_shared<const TensorDesc>(tensor), .id = id};
  if (tensor.ragged_offset != nullptr && !tensor.is_virtual) {
    ASSIGN_OR_RETURN(ragged_[id], Tensor(*tensor.ragged_offset));
  }
  return &by_uid_.emplace(tensor.uid, std::move(entry)).first->second;
}

// The memory of a vectorised layout: [N, C/4, H, W, 4] of NCHW in vectors of 4.
GraphImport::Layout GraphImport::VectorLayout(const TensorDesc& t, graph::Tensor& memory) {
  const auto rank = static_cast<int64_t>(memory.dims.size());
  for (int64_t& stride : memory.strides) stride *= t.vector_count;
  memory.dims.push_back(t.vector_count);
  memory.strides.push_back(1);
  Layout layout;
  for (int64_t d = 0; d < rank; ++d) {
    layout.order.push_back(d);
    if (d == t.vector_dim) layout.order.push_back(rank);
  }
  return layout;
}

// The memory of scales as tensor cores read them: tiles of 128 by 4, the 4 along the contiguous
// dim; element (m, k) of a tile at (m % 32) * 16 + m / 32 * 4 + k. So it is [M/128, K/4, 32, 4, 4].
Result<GraphImport::Layout> GraphImport::TileLayout(const TensorDesc& t, graph::Tensor& memory) {
  const size_t rank = memory.dims.size();
  const bool is_last = rank >= 2 && t.strides[rank - 1] == 1;
  const size_t narrow = is_last ? rank - 1 : rank - 2, wide = is_last ? rank - 2 : rank - 1;
  if (rank < 2 || t.strides[narrow] != 1 || t.strides[wide] != t.dims[narrow] ||
      t.dims[wide] % 128 != 0 || t.dims[narrow] % 4 != 0) {
    return Status::Error(Code::kUnsupportedLayout,
                         "{} is no whole tiles of 128 by 4 in its last two dimensions", t.Text());
  }
  const auto tile = static_cast<int64_t>(rank - 2);
  const int64_t columns = t.dims[narrow] / 4;
  memory.dims.resize(rank - 2);
  memory.strides.resize(rank - 2);
  for (const auto& [extent, stride] : {std::pair{t.dims[wide] / 128, columns * 512},
                                       {columns, int64_t{512}},
                                       {int64_t{32}, int64_t{16}},
                                       {int64_t{4}, int64_t{4}},
                                       {int64_t{4}, int64_t{1}}}) {
    memory.dims.push_back(extent);
    memory.strides.push_back(stride);
  }
  Layout layout;
  for (int64_t d = 0; d < tile; ++d) layout.order.push_back(d);
  const Dims of_wide = {tile, tile + 3, tile + 2}, of_narrow = {tile + 1, tile + 4};
  for (const Dims* dims : {is_last ? &of_wide : &of_narrow, is_last ? &of_narrow : &of_wide})
    layout.order.insert(layout.order.end(), dims->begin(), dims->end());
  return layout;
}

// What cudnnReorderFilterAndBias makes of int8 filters and of biases, for IMMA's fragments. With
// output channels o = 8 a + 2 b + c of [O/8, 4, 2] and input channels i = 32 d + 4 e + f of
// [I/32, 8, 4] a filter is [I/32, spatial…, O/8, 2, 8, 4, 4] of d, …, a, c, e, b, f. A bias, which
// has one dim that is not 1, is [O/32, 2, 4, 4] of [O/32, 4, 2, 4].
Result<GraphImport::Layout> GraphImport::Int8x32Layout(const TensorDesc& t, graph::Tensor& memory) {
  const Dims plain = t.PlainDims();
  const auto rank = static_cast<int64_t>(plain.size());
  const bool is_bias = rank >= 2 && NumElements(plain) == plain[1];
  if (rank < 2 || plain[1] % 32 != 0 || (!is_bias && plain[0] % 32 != 0)) {
    return Status::Error(Code::kUnsupportedLayout,
                         "{} in the order INT8x32 has channels that are no multiple of 32",
                         t.Text());
  }
  Layout layout;
  if (is_bias) {
    memory.dims = {plain[1] / 32, 2, 4, 4};
    layout.order = {0, 2, 1, 3};
  } else {
    memory.dims = {plain[1] / 32};
    memory.dims.insert(memory.dims.end(), plain.begin() + 2, plain.end());
    const int64_t o = rank - 1;
    memory.dims.insert(memory.dims.end(), {plain[0] / 8, 2, 8, 4, 4});
    layout.order = {o, o + 3, o + 1, 0, o + 2, o + 4};
    for (int64_t d = 1; d < o; ++d) layout.order.push_back(d);
  }
  memory.strides = PackedStrides(memory.dims);
  return layout;
}

Result<graph::TensorId> GraphImport::AddTensor(const TensorDesc& tensor, const char* suffix) {
  ASSIGN_OR_RETURN(graph::Tensor memory, Convert(tensor));
  memory.name += suffix;
  const bool has_tiles = tensor.reordering == CUDNN_TENSOR_REORDERING_F8_128x4;
  const bool has_fragments = tensor.reordering == CUDNN_TENSOR_REORDERING_INT8x32;
  // F16x16 is for what one graph stores and another reads, in an order that is the library's own;
  // ours is that of the strides.
  if (tensor.vector_count == 1 && !has_tiles && !has_fragments)
    return graph_.AddTensor(std::move(memory));
  if (tensor.vector_count != 1 && has_tiles) {
    return Status::Error(Code::kUnsupportedLayout, "{} holds vectors in tiles", tensor.Text());
  }
  graph::Tensor plain = memory;
  plain.name += "_plain";
  plain.uid = -1;
  plain.dims = tensor.PlainDims();
  plain.strides = PackedStrides(plain.dims);
  plain.is_virtual = true;
  const graph::TensorId id = graph_.AddTensor(std::move(plain));
  if (tensor.is_virtual) return id;
  Layout layout;
  if (has_tiles) {
    ASSIGN_OR_RETURN(layout, TileLayout(tensor, memory));
  } else if (has_fragments) {
    ASSIGN_OR_RETURN(layout, Int8x32Layout(tensor, memory));
  } else {
    layout = VectorLayout(tensor, memory);
  }
  if (memory.dims.size() > graph::kMaxRank) {
    return Status::Error(Code::kUnsupportedLayout, "{}: memory of {} dimensions", tensor.Text(),
                         memory.dims.size());
  }
  layout.plain = id;
  layout.memory = graph_.AddTensor(std::move(memory));
  layouts_.push_back(std::move(layout));
  return id;
}

// What operations write goes to memory, everything else comes from there.
void GraphImport::Convert(const Layout& layout, bool is_written) {
  using graph::GraphOp;
  const DType dtype = graph_[layout.plain].dtype, moving = kiln::MovingType(dtype);
  Dims split, back(layout.order.size());
  for (size_t d = 0; d < layout.order.size(); ++d) {
    const auto from = static_cast<size_t>(layout.order[d]);
    split.push_back(graph_[layout.memory].dims[from]);
    back[from] = static_cast<int64_t>(d);
  }
  Dims strides = PackedStrides(split);
  const graph::TensorId middle = Temporary(dtype, std::move(split), std::move(strides));
  if (is_written) {
    AddNode(GraphOp::kReshape, {layout.plain}, {middle}, moving, graph::ReshapeAttrs{});
    AddNode(GraphOp::kTranspose, {middle}, {layout.memory}, moving,
            graph::TransposeAttrs{.permutation = std::move(back)});
  } else {
    AddNode(GraphOp::kTranspose, {layout.memory}, {middle}, moving,
            graph::TransposeAttrs{.permutation = layout.order});
    AddNode(GraphOp::kReshape, {middle}, {layout.plain}, moving, graph::ReshapeAttrs{});
  }
}

Result<graph::TensorId> GraphImport::Tensor(const TensorDesc& tensor) {
  ASSIGN_OR_RETURN(Entry * entry, Find(tensor));
  return entry->id;
}

Result<graph::TensorId> GraphImport::Previous(const TensorDesc& tensor) {
  ASSIGN_OR_RETURN(Entry * entry, Find(tensor));
  if (tensor.is_virtual) {
    return Status::Error(Code::kBadParam,
                         "{} is virtual: an operation cannot read it before it writes it",
                         tensor.Text());
  }
  if (tensor.ragged_offset != nullptr) {
    return Status::Error(Code::kNotSupported, "{} is ragged: it cannot be read and written",
                         tensor.Text());
  }
  if (entry->previous == graph::kAbsent) {
    ASSIGN_OR_RETURN(entry->previous, AddTensor(tensor, "_before"));
  }
  return entry->previous;
}

graph::TensorId GraphImport::Temporary(DType dtype, Dims dims, Dims strides) {
  graph::Tensor tensor{.name = fmt::format("tmp{}", graph_.tensors.size()),
                       .uid = -1,
                       .dtype = dtype,
                       .dims = std::move(dims),
                       .strides = std::move(strides),
                       .is_virtual = true,
                       .value = std::nullopt};
  return graph_.AddTensor(std::move(tensor));
}

void GraphImport::AddNode(graph::GraphOp op, std::vector<graph::TensorId> inputs,
                          std::vector<graph::TensorId> outputs, DType compute, graph::Attrs attrs) {
  graph_.AddNode(graph::Node{.op = op,
                             .inputs = std::move(inputs),
                             .outputs = std::move(outputs),
                             .compute = compute,
                             .attrs = std::move(attrs),
                             .name = {}});
}

Status GraphImport::Add(graph::GraphOp op, std::vector<Operand> inputs,
                        std::vector<Operand> outputs, cudnnDataType_t compute, graph::Attrs attrs) {
  ASSIGN_OR_RETURN(DType type, ComputeType(compute));
  while (!inputs.empty() && inputs.back() == nullptr) inputs.pop_back();
  auto is_written = [&](Operand in) {
    return std::ranges::any_of(outputs,
                               [&](Operand out) { return out != nullptr && out->uid == in->uid; });
  };
  std::vector<graph::TensorId> in_ids, out_ids;
  for (Operand in : inputs) {
    if (in == nullptr) {
      in_ids.push_back(graph::kAbsent);
      continue;
    }
    ASSIGN_OR_RETURN(graph::TensorId id, is_written(in) ? Previous(*in) : Tensor(*in));
    in_ids.push_back(id);
  }
  for (Operand out : outputs) {
    if (out == nullptr) {
      out_ids.push_back(graph::kAbsent);
      continue;
    }
    if (out->by_value) {
      return Status::Error(Code::kBadParam, "{} is passed by value and cannot be written",
                           out->Text());
    }
    ASSIGN_OR_RETURN(graph::TensorId id, Tensor(*out));
    out_ids.push_back(id);
  }
  AddNode(op, std::move(in_ids), std::move(out_ids), type, std::move(attrs));
  return {};
}

Result<graph::Graph> GraphImport::Finish() {
  RETURN_IF_ERROR(graph::MakeRagged(graph_, ragged_));
  const std::vector<graph::NodeId> writers = graph::Producers(graph_);
  for (const Layout& layout : layouts_)
    Convert(layout, writers[static_cast<size_t>(layout.plain)] >= 0);
  RETURN_IF_ERROR(graph::Normalize(graph_));
  graph::NarrowReductions(graph_);
  RETURN_IF_ERROR(graph::SplitGroupedReductions(graph_));
  RETURN_IF_ERROR(graph::SplitComplex(graph_));
  RETURN_IF_ERROR(graph::Verify(graph_));
  return std::move(graph_);
}

}  // namespace kiln::api
