#include "api/backend/graph_import.h"

#include <algorithm>

#include "ir/graph/attention_parts.h"
#include "ir/graph/builder.h"
#include "ir/graph/complex.h"
#include "ir/graph/side_operands.h"
#include "ir/graph/verify_util.h"

namespace kiln::api {
namespace {

// The dim of `known` that each dim of `other` is, where the two are the same elements with their
// dims in another order: as cudnn-frontend describes keys, to what makes them and to the product
// that reads them. Empty where they are not, or where the order is the same.
Dims PermutationTo(const TensorDesc& known, const TensorDesc& other) {
  const size_t rank = known.dims.size();
  const bool is_plain = known.vector_count == 1 && !known.by_value &&
                        known.reordering == CUDNN_TENSOR_REORDERING_NONE;
  if (other.dims.size() != rank || !is_plain) return {};
  TensorDesc turned_back = other;
  turned_back.dims = known.dims;
  turned_back.strides = known.strides;
  if (!known.SameAs(turned_back)) return {};
  Dims permutation;
  uint64_t used = 0;
  for (size_t d = 0; d < rank; ++d)
    for (size_t from = 0; from < rank; ++from) {
      if ((used >> from & 1) != 0 || known.dims[from] != other.dims[d] ||
          known.strides[from] != other.strides[d])
        continue;
      used |= uint64_t{1} << from;
      permutation.push_back(static_cast<int64_t>(from));
      break;
    }
  return permutation.size() == rank ? permutation : Dims();
}

Dims Inverse(const Dims& permutation) {
  Dims inverse(permutation.size());
  for (size_t d = 0; d < permutation.size(); ++d)
    inverse[static_cast<size_t>(permutation[d])] = static_cast<int64_t>(d);
  return inverse;
}

}  // namespace

Result<graph::Tensor> GraphImport::Convert(const TensorDesc& t) const {
  Result<DType> dtype = ElementType(t.data_type);
  if (!dtype.ok()) return std::move(dtype).status().Within(t.Text());
  // One bit in memory; one that no memory holds is a value like any other.
  if (t.data_type == CUDNN_DATA_BOOLEAN && !t.is_virtual && !t.by_value) dtype = DType::kB1;
  return graph::Tensor{
      .name = t.uid < 0 ? fmt::format("tn{}", -(t.uid + 1)) : fmt::format("t{}", t.uid),
      .uid = t.uid,
      .dtype = *dtype,
      .dims = Dims(t.dims.begin(), t.dims.end()),
      .strides = Dims(t.strides.begin(), t.strides.end()),
      .alignment = t.alignment,
      .is_virtual = t.is_virtual,
      .by_value = t.by_value,
      .value =
          t.constant.empty() ? std::nullopt : std::optional(LoadValue(*dtype, t.constant.data()))};
}

Result<GraphImport::Entry*> GraphImport::Find(const TensorDesc& tensor) {
  auto found = by_uid_.find(tensor.uid);
  if (found != by_uid_.end()) {
    const Ref<TensorDesc>& known = found->second.copy;
    if (known == nullptr || known->SameAs(tensor) || !PermutationTo(*known, tensor).empty())
      return &found->second;
    return Status::Error(Code::kDuplicatedEntries, "{} and {} share a uid but differ",
                         found->second.copy->Text(), tensor.Text());
  }
  ASSIGN_OR_RETURN(const graph::TensorId id, AddTensor(tensor, ""));
  Entry entry{.copy = std::make_shared<const TensorDesc>(tensor), .id = id};
  if (tensor.ragged_offset != nullptr && !tensor.is_virtual) {
    ASSIGN_OR_RETURN(graph::TensorId offsets, Tensor(*tensor.ragged_offset));
    if (tensor.ragged_multiplier != 1)
      offsets = graph::SpellMultiple(graph_, offsets, tensor.ragged_multiplier);
    ragged_[id] = offsets;
  }
  return &by_uid_.emplace(tensor.uid, std::move(entry)).first->second;
}

Result<graph::TensorId> GraphImport::AddTensor(const TensorDesc& tensor, const char* suffix) {
  ASSIGN_OR_RETURN(graph::Tensor memory, Convert(tensor));
  memory.name += suffix;
  using R = graph::LayoutSpec::Reordering;
  // F16x16 is for what one graph stores and another reads, in an order that is the library's own;
  // ours is that of the strides.
  const bool has_tiles = tensor.reordering == CUDNN_TENSOR_REORDERING_F8_128x4;
  const bool has_fragments = tensor.reordering == CUDNN_TENSOR_REORDERING_INT8x32;
  Result<graph::TensorId> id = layouts_.Add(graph_, std::move(memory),
                                            {.reordering = has_tiles       ? R::kScaleTiles
                                                           : has_fragments ? R::kFragments
                                                                           : R::kNone,
                                             .vector_count = tensor.vector_count,
                                             .vector_dim = tensor.vector_dim});
  if (!id.ok()) return std::move(id).status().Within(tensor.Text());
  return id;
}

Result<graph::TensorId> GraphImport::Tensor(const TensorDesc& tensor) {
  ASSIGN_OR_RETURN(Entry * entry, Find(tensor));
  if (entry->copy == nullptr || entry->copy->SameAs(tensor)) return entry->id;
  return Turned(*entry, PermutationTo(*entry->copy, tensor));
}

graph::TensorId GraphImport::Turned(Entry& entry, const Dims& permutation) {
  const auto [at, is_new] = entry.turned.try_emplace(permutation, graph::kAbsent);
  if (!is_new) return at->second;
  const graph::Tensor& x = graph_[entry.id];
  const DType dtype = x.dtype == DType::kB1 ? DType::kBool : x.dtype;
  Dims dims, strides;
  for (const int64_t from : permutation) {
    dims.push_back(x.dims[static_cast<size_t>(from)]);
    strides.push_back(x.strides[static_cast<size_t>(from)]);
  }
  at->second = Temporary(dtype, std::move(dims), std::move(strides));
  AddNode(graph::GraphOp::kTranspose, {entry.id}, {at->second}, MovingType(dtype),
          graph::TransposeAttrs{.permutation = permutation});
  return at->second;
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
  if (entry->copy != nullptr && !entry->copy->SameAs(tensor)) {
    return Status::Error(Code::kDuplicatedEntries,
                         "{} is read before it is written, and {} has its dims in another order",
                         entry->copy->Text(), tensor.Text());
  }
  if (entry->previous == graph::kAbsent) {
    ASSIGN_OR_RETURN(entry->previous, AddTensor(tensor, "_before"));
  }
  return entry->previous;
}

Result<graph::TensorId> GraphImport::Read(const TensorDesc& tensor,
                                          std::initializer_list<Operand> outputs) {
  const bool is_written = std::ranges::any_of(
      outputs, [&](Operand out) { return out != nullptr && out->uid == tensor.uid; });
  return is_written ? Previous(tensor) : Tensor(tensor);
}

Result<graph::TensorId> GraphImport::Write(const TensorDesc& tensor) {
  if (tensor.by_value) {
    return Status::Error(Code::kBadParam, "{} is passed by value and cannot be written",
                         tensor.Text());
  }
  ASSIGN_OR_RETURN(Entry * entry, Find(tensor));
  if (entry->copy == nullptr || entry->copy->SameAs(tensor)) return entry->id;
  // An operation before this one read it with its dims in another order.
  const Dims permutation = PermutationTo(*entry->copy, tensor);
  const DType dtype = graph_[entry->id].dtype;
  const graph::TensorId written = Temporary(dtype, Dims(tensor.dims.begin(), tensor.dims.end()),
                                            Dims(tensor.strides.begin(), tensor.strides.end()));
  AddNode(graph::GraphOp::kTranspose, {written}, {entry->id}, MovingType(dtype),
          graph::TransposeAttrs{.permutation = Inverse(permutation)});
  return written;
}

void GraphImport::Bind(int64_t uid, graph::TensorId id) {
  by_uid_.insert_or_assign(uid, Entry{.copy = nullptr, .id = id});
}

Result<graph::TensorId> GraphImport::IdOf(int64_t uid) const {
  const auto found = by_uid_.find(uid);
  if (found != by_uid_.end()) return found->second.id;
  return Status::Error(Code::kBadParam, "no operation has a tensor {}", uid);
}

const graph::Tensor* GraphImport::Loose() const {
  const std::vector<graph::NodeId> writers = graph::Producers(graph_);
  for (const graph::Node& node : graph_.nodes)
    for (const graph::TensorId id : node.inputs)
      if (id != graph::kAbsent && graph_[id].is_virtual && writers[static_cast<size_t>(id)] < 0)
        return &graph_[id];
  return nullptr;
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
    ASSIGN_OR_RETURN(graph::TensorId id, Write(*out));
    out_ids.push_back(id);
  }
  AddNode(op, std::move(in_ids), std::move(out_ids), type, std::move(attrs));
  return {};
}

Result<graph::Graph> GraphImport::Finish() {
  RETURN_IF_ERROR(graph::MakeRagged(graph_, ragged_));
  layouts_.Connect(graph_);
  RETURN_IF_ERROR(graph::Normalize(graph_));
  graph::NarrowReductions(graph_);
  graph::FitSideOperands(graph_);
  RETURN_IF_ERROR(graph::SplitGroupedReductions(graph_));
  RETURN_IF_ERROR(graph::SplitComplex(graph_));
  RETURN_IF_ERROR(graph::Verify(graph_));
  return std::move(graph_);
}

}  // namespace kiln::api
