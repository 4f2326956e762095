#include "api/lifecycle/call_log_contents.h"

#include <bit>

#include "api/backend/descriptor.h"
#include "api/legacy/descriptors/dropout_descriptor.h"
#include "api/legacy/descriptors/modes.h"
#include "api/legacy/descriptors/tensor.h"
#include "api/legacy/descriptors/window.h"
#include "api/lifecycle/handle.h"

namespace kiln::api {
namespace {

using legacy::ActivationDesc;
using legacy::ConvolutionDesc;
using legacy::DropoutDesc;
using legacy::FilterDesc;
using legacy::LrnDesc;
using legacy::OpTensorDesc;
using legacy::PoolingDesc;
using legacy::ReduceTensorDesc;
using legacy::TensorDesc;

// NOLINTNEXTLINE(performance-no-int-to-ptr): looked up among our objects, never followed
const void* At(uint64_t address) { return reinterpret_cast<const void*>(address); }

void Int(CallLines& lines, std::string_view name, int value) {
  lines.Number(name, "int", Scalar::kInt32, static_cast<uint32_t>(value));
}
void Enum(CallLines& lines, std::string_view name, std::string_view type, int value) {
  lines.Number(name, type, Scalar::kEnum, static_cast<uint32_t>(value));
}
void Double(CallLines& lines, std::string_view name, double value) {
  lines.Number(name, "double", Scalar::kDouble, std::bit_cast<uint64_t>(value));
}
template <class Lengths>
void Ints(CallLines& lines, std::string_view name, const Lengths& lengths, int count) {
  lines.Ints(name, std::span(lengths).first(static_cast<size_t>(count)));
}

// Names and order are those of 9.19's log.
void Add(CallLines& lines, const TensorDesc& d) {
  Enum(lines, "dataType", "cudnnDataType_t", d.type);
  Int(lines, "nbDims", d.rank);
  Ints(lines, "dimA", d.dims, d.rank);
  Ints(lines, "strideA", d.strides, d.rank);
}
void Add(CallLines& lines, const FilterDesc& d) {
  Enum(lines, "dataType", "cudnnDataType_t", d.type);
  Int(lines, "nbDims", d.rank);
  Ints(lines, "dimA", d.dims, d.rank);
  Enum(lines, "format", "cudnnTensorFormat_t", d.format);
}
void Add(CallLines& lines, const ConvolutionDesc& d) {
  Enum(lines, "mode", "cudnnConvolutionMode_t", d.mode);
  Enum(lines, "dataType", "cudnnDataType_t", d.compute);
  Enum(lines, "mathType", "cudnnMathType_t", d.math);
  Int(lines, "reorderType", d.reorder);
  Int(lines, "arrayLength", d.spatial);
  Ints(lines, "padA", d.padding, d.spatial);
  Ints(lines, "strideA", d.stride, d.spatial);
  Ints(lines, "dilationA", d.dilation, d.spatial);
  Int(lines, "groupCount", d.groups);
}
void Add(CallLines& lines, const PoolingDesc& d) {
  Enum(lines, "mode", "cudnnPoolingMode_t", d.mode);
  Int(lines, "nbDims", d.spatial);
  Enum(lines, "maxpoolingNanOpt", "cudnnNanPropagation_t", d.nan);
  Ints(lines, "windowDimA", d.window, d.spatial);
  Ints(lines, "paddingA", d.padding, d.spatial);
  Ints(lines, "strideA", d.stride, d.spatial);
}
void Add(CallLines& lines, const ActivationDesc& d) {
  Double(lines, "coef", d.coefficient);
  Enum(lines, "mode", "cudnnActivationMode_t", d.mode);
  Enum(lines, "reluNanOpt", "cudnnNanPropagation_t", d.nan);
}
void Add(CallLines& lines, const LrnDesc& d) {
  Double(lines, "lrnAlpha", d.alpha);
  Double(lines, "lrnBeta", d.beta);
  Double(lines, "lrnK", d.k);
  lines.Number("lrnN", "unsigned", Scalar::kUint32, static_cast<uint32_t>(d.window));
}
void Add(CallLines& lines, const OpTensorDesc& d) {
  Enum(lines, "op", "cudnnOpTensorOp_t", d.op);
  Enum(lines, "compType", "cudnnDataType_t", d.compute);
  Enum(lines, "nanOpt", "cudnnNanPropagation_t", d.nan);
}
void Add(CallLines& lines, const ReduceTensorDesc& d) {
  Enum(lines, "op", "cudnnReduceTensorOp_t", d.op);
  Enum(lines, "compType", "cudnnDataType_t", d.compute);
  Enum(lines, "nanOpt", "cudnnNanPropagation_t", d.nan);
  Enum(lines, "indices", "cudnnReduceTensorIndices_t", d.indices);
  Enum(lines, "indicesType", "cudnnIndicesType_t", d.index_type);
}
void Add(CallLines& lines, const DropoutDesc& d) {
  lines.Number("seed", "size_t", Scalar::kUint64, d.seed);
  lines.Number("dropout", "float", Scalar::kFloat, std::bit_cast<uint32_t>(d.dropout));
}

// True if the object is a D, whose lines were added.
template <class D>
bool Held(CallLines& lines, const void* object) {
  const auto* box = Find<legacy::Boxed<D>>(object);
  if (box == nullptr) return false;
  lines.Indent();
  Add(lines, *box->value);
  lines.Outdent();
  return true;
}

template <class... D>
void AddHeld(CallLines& lines, const void* object) {
  (void)(Held<D>(lines, object) || ...);
}

}  // namespace

void AddObject(CallLines& lines, std::string_view name, std::string_view type, uint64_t address) {
  if (const Handle* handle = Find<Handle>(At(address))) {
    lines.Add(name, fmt::format("type={}; val={}; streamId={:#x}", type, AddressText(address),
                                std::bit_cast<uint64_t>(handle->stream)));
    return;
  }
  lines.Object(name, Find<Shell>(At(address)) ? BackendKind(address) : type, address);
  AddHeld<TensorDesc, FilterDesc, ConvolutionDesc, PoolingDesc, ActivationDesc, LrnDesc,
          OpTensorDesc, ReduceTensorDesc, DropoutDesc>(lines, At(address));
}

std::string_view BackendKind(uint64_t address) {
  constexpr std::string_view kPublic = "cudnnBackendDescriptor_t";
  const Shell* shell = Find<Shell>(At(address));
  if (shell == nullptr) return kPublic;
  const std::string_view name = ConstantName("cudnnBackendDescriptorType_t", shell->kind->type);
  return name.empty() ? kPublic : name;
}

std::optional<int> DataTypeOf(uint64_t address) {
  if (const auto* box = Find<legacy::Boxed<TensorDesc>>(At(address))) return box->value->type;
  if (const auto* box = Find<legacy::Boxed<FilterDesc>>(At(address))) return box->value->type;
  return std::nullopt;
}

}  // namespace kiln::api
