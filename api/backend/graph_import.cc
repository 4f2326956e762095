#include "api/backend/graph_import.h"

#include <algorithm>
#include <optional>

#include "ir/graph/builder.h"

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
    default:
      return std::nullopt;
  }
}

// Properties of the interface that the graph has no form for yet.
Status CheckExpressible(const TensorDesc& t) {
  if (t.vector_count != 1) {
    return Status::Error(Code::kUnsupportedLayout,
                         "{} holds vectors of {} elements; Kiln computes on plain layouts",
                         t.Text(), t.vector_count);
  }
  if (t.reordering != CUDNN_TENSOR_REORDERING_NONE) {
    return Status::Error(Code::kUnsupportedLayout,
                         "{} has reordering mode {}; Kiln computes on plain layouts", t.Text(),
                         static_cast<int>(t.reordering));
  }
  if (t.ragged_offset != nullptr) {
    return Status::Error(Code::kUnsupportedLayout,
                         "{} is ragged; Kiln computes on rectangular tensors", t.Text());
  }
  return {};
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
      return CUDNN_DATA_FLOAT;  // holds every value of theirs
    default:
      return type;
  }
}

Result<graph::Tensor> GraphImport::Convert(const TensorDesc& t) const {
  RETURN_IF_ERROR(CheckExpressible(t));
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
  ASSIGN_OR_RETURN(graph::Tensor converted, Convert(tensor));
  Entry entry{.copy = std::make_shared<const TensorDesc>(tensor),
              .id = graph_.AddTensor(std::move(converted))};
  return &by_uid_.emplace(tensor.uid, std::move(entry)).first->second;
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
  if (entry->previous == graph::kAbsent) {
    graph::Tensor previous = graph_[entry->id];
    previous.name += "_before";
    entry->previous = graph_.AddTensor(std::move(previous));
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
  RETURN_IF_ERROR(graph::Normalize(graph_));
  graph::NarrowReductions(graph_);
  RETURN_IF_ERROR(graph::SplitGroupedReductions(graph_));
  RETURN_IF_ERROR(graph::Verify(graph_));
  return std::move(graph_);
}

}  // namespace kiln::api
