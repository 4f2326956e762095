#include "api/lifecycle/call_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "api/backend/attr.h"
#include "api/backend/backend.h"
#include "api/lifecycle/call_log_contents.h"
#include "api/lifecycle/call_log_values.h"

namespace kiln::api {
namespace {

// Names and types stand in kWords from a place on.
struct ParameterRow {
  uint16_t name, type;
  Form form;
  Scalar scalar;
  int8_t at, add;
};
struct FunctionRow {
  uint16_t name;
  uint16_t first, count;
};

#include "api/spec/arguments.inc"

using Values = std::span<const uint64_t>;

// More are no argument but data.
constexpr size_t kMostElements = size_t{1} << 16;

// ---- elements of backend attributes

// A row says what an attribute type's elements are; objects, fractions and text are written apart.
struct ElementRow {
  int tag;
  std::string_view type;
  Scalar scalar;
};

template <class T>
constexpr ElementRow Element(std::string_view type, Scalar scalar = Scalar::kEnum) {
  return {.tag = WireOf<T>::kTag, .type = type, .scalar = scalar};
}

constexpr ElementRow kElements[] = {
    Element<int64_t>("int64_t", Scalar::kInt64),
    Element<int32_t>("int32_t", Scalar::kInt32),
    Element<double>("double", Scalar::kDouble),
    Element<float>("float", Scalar::kFloat),
    Element<cudnnDataType_t>("cudnnDataType_t"),
    Element<cudnnConvolutionMode_t>("cudnnConvolutionMode_t"),
    Element<cudnnPointwiseMode_t>("cudnnPointwiseMode_t"),
    Element<cudnnNanPropagation_t>("cudnnNanPropagation_t"),
    Element<cudnnBackendHeurMode_t>("cudnnBackendHeurMode_t"),
    Element<cudnnBackendKnobType_t>("cudnnBackendKnobType_t"),
    Element<cudnnBackendNumericalNote_t>("cudnnBackendNumericalNote_t"),
    Element<cudnnBackendBehaviorNote_t>("cudnnBackendBehaviorNote_t"),
    Element<cudnnBackendLayoutType_t>("cudnnBackendLayoutType_t"),
    Element<cudnnBackendAttributeName_t>("cudnnBackendAttributeName_t"),
    Element<cudnnReduceTensorOp_t>("cudnnReduceTensorOp_t"),
    Element<cudnnGenStatsMode_t>("cudnnGenStatsMode_t"),
    Element<cudnnBnFinalizeStatsMode_t>("cudnnBnFinalizeStatsMode_t"),
    Element<cudnnSignalMode_t>("cudnnSignalMode_t"),
    Element<cudnnMoeGroupedMatmulMode_t>("cudnnMoeGroupedMatmulMode_t"),
    Element<cudnnRngDistribution_t>("cudnnRngDistribution_t"),
    Element<cudnnResampleMode_t>("cudnnResampleMode_t"),
    Element<cudnnPaddingMode_t>("cudnnPaddingMode_t"),
    Element<cudnnBackendNormMode_t>("cudnnBackendNormMode_t"),
    Element<cudnnBackendNormFwdPhase_t>("cudnnBackendNormFwdPhase_t"),
    Element<cudnnBackendTensorReordering_t>("cudnnBackendTensorReordering_t"),
    Element<cudnnBackendReshapeMode_t>("cudnnBackendReshapeMode_t"),
    Element<cudnnBackendOperationGraphMode_t>("cudnnBackendOperationGraphMode_t"),
    Element<cudnnCudaGraphRetention_t>("cudnnCudaGraphRetention_t"),
};

size_t ElementBytes(int tag) {
  if (tag == CUDNN_TYPE_BOOLEAN || tag == CUDNN_TYPE_CHAR) return 1;
  if (tag == CUDNN_TYPE_HANDLE || tag == CUDNN_TYPE_VOID_PTR ||
      tag == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    return sizeof(void*);
  if (tag == CUDNN_TYPE_FRACTION) return sizeof(cudnnFraction_t);
  const auto row = std::ranges::find(kElements, tag, &ElementRow::tag);
  return row == std::end(kElements) ? 0 : BytesOf(row->scalar);
}

using Memory = std::span<const unsigned char>;

void AddElement(CallLines& lines, int tag, const Memory& memory, size_t i) {
  const std::string name = fmt::format("[{}]", i);
  if (tag == CUDNN_TYPE_FRACTION) {
    lines.Value(name, "cudnnFraction_t",
                fmt::format("{}/{}", std::bit_cast<int64_t>(BitsAt(memory, 2 * i, 8)),
                            std::bit_cast<int64_t>(BitsAt(memory, 2 * i + 1, 8))));
    return;
  }
  const uint64_t bits = BitsAt(memory, i, ElementBytes(tag));
  if (tag == CUDNN_TYPE_BOOLEAN) return lines.Value(name, "bool", bits != 0 ? "true" : "false");
  if (tag == CUDNN_TYPE_VOID_PTR) return lines.Address(name, "dev", bits);
  if (tag == CUDNN_TYPE_BACKEND_DESCRIPTOR) return lines.Object(name, BackendKind(bits), bits);
  if (tag == CUDNN_TYPE_HANDLE) return lines.Object(name, "cudnnHandle_t", bits);
  const auto row = std::ranges::find(kElements, tag, &ElementRow::tag);
  lines.Number(name, row->type, row->scalar, bits);
}

std::string Quoted(const Memory& text) {
  std::string quoted = "\"";
  for (const unsigned char c : text) {
    if (c == '"' || c == '\\')
      quoted += {'\\', static_cast<char>(c)};
    else if (c < 0x20 || c >= 0x7f)
      quoted += fmt::format("\\x{:02x}", c);
    else
      quoted += static_cast<char>(c);
  }
  return quoted + "\"";
}

// The elements that the call will read: none where it refuses attribute, type or count.
void AddElements(CallLines& lines, std::string_view argument, const Values& values) {
  const auto [descriptor, attribute, type, count, array] =
      std::array{values[0], values[1], values[2], values[3], values[4]};
  const auto tag = static_cast<int>(type);
  const auto n = static_cast<size_t>(count);
  const size_t bytes = ElementBytes(tag);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): looked up among our objects, never followed
  const auto* object = reinterpret_cast<const void*>(descriptor);
  if (bytes != 0 && n <= kMostElements &&
      ReadsElements(object, static_cast<int>(attribute), tag, std::bit_cast<int64_t>(count))) {
    if (const auto memory = ReadMemory(array, n * bytes)) {
      if (tag == CUDNN_TYPE_CHAR) return lines.Value(argument, "char", Quoted(*memory));
      for (size_t i = 0; i < n; ++i) AddElement(lines, tag, *memory, i);
      return;
    }
  }
  lines.Address(argument, "host", array);
}

// Results of GetAttribute: what stands there is only of interest where it is the client's
// descriptors, which the call fills.
void AddFilled(CallLines& lines, std::string_view argument, const Values& values) {
  const auto [tag, requested, array] = std::array{values[2], values[3], values[5]};
  lines.Address(argument, "host", array);
  if (tag != CUDNN_TYPE_BACKEND_DESCRIPTOR || requested > kMostElements) return;
  if (const auto memory = ReadMemory(array, requested * sizeof(void*)))
    for (size_t i = 0; i < requested; ++i)
      AddElement(lines, CUDNN_TYPE_BACKEND_DESCRIPTOR, *memory, i);
}

// ---- arguments

// A factor, or an element of a tensor, of a data type as text; nothing for a type whose numbers
// have no C type.
std::optional<std::string> ElementText(int type, uint64_t address) {
  const bool wide = type == CUDNN_DATA_DOUBLE || type == CUDNN_DATA_INT64;
  const auto memory = ReadMemory(address, wide ? 8 : 4);
  if (!memory) return std::nullopt;
  const uint64_t bits = BitsAt(*memory, 0, memory->size());
  switch (type) {
    case CUDNN_DATA_FLOAT:
      return FactorText(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    case CUDNN_DATA_DOUBLE:
      return FactorText(std::bit_cast<double>(bits));
    case CUDNN_DATA_INT32:
      return NumberText("int", Scalar::kInt32, bits);
    case CUDNN_DATA_INT64:
      return NumberText("int64_t", Scalar::kInt64, bits);
    default:
      return std::nullopt;
  }
}

std::optional<int> TypeNamedBy(std::span<const Parameter> parameters, const Values& values,
                               const Parameter& p) {
  if (p.at < 0) return std::nullopt;
  const auto at = static_cast<size_t>(p.at);
  if (parameters[at].scalar == Scalar::kEnum) return static_cast<int>(values[at]);
  return DataTypeOf(values[at]);
}

// A number behind a void pointer, whose type another argument says.
void AddNumber(CallLines& lines, std::span<const Parameter> parameters, const Values& values,
               size_t i) {
  const Parameter& p = parameters[i];
  std::optional<int> type = TypeNamedBy(parameters, values, p);
  if (type && p.form == Form::kFactor && *type != CUDNN_DATA_DOUBLE) type = CUDNN_DATA_FLOAT;
  if (!type) return lines.Address(p.name, "host", values[i]);
  const std::string_view name = ConstantName("cudnnDataType_t", *type);
  if (values[i] == 0) return lines.Value(p.name, name, AddressText(0));
  if (const auto text = ElementText(*type, values[i])) return lines.Value(p.name, name, *text);
  lines.Address(p.name, "host", values[i]);
}

void AddArray(CallLines& lines, const Parameter& p, const Values& values, uint64_t address) {
  const int64_t most = p.form == Form::kDims ? CUDNN_DIM_MAX : int64_t{kMostElements};
  const int64_t count = static_cast<int32_t>(values[static_cast<size_t>(p.at)]) + p.add;
  if (address == 0) return lines.Value(p.name, p.type, AddressText(0));
  const size_t bytes = BytesOf(p.scalar);
  if (count >= 0 && count <= most) {
    const auto n = static_cast<size_t>(count);
    if (const auto memory = ReadMemory(address, n * bytes)) {
      std::string text;
      for (size_t i = 0; i < n; ++i)
        text += (i == 0 ? "" : ",") + NumberText(p.type, p.scalar, BitsAt(*memory, i, bytes));
      return lines.Value(p.name, p.type, "[" + text + "]");
    }
  }
  lines.Address(p.name, "host", address);
}

void AddArgument(CallLines& lines, std::span<const Parameter> parameters, const Values& values,
                 size_t i) {
  const Parameter& p = parameters[i];
  const uint64_t value = values[i];
  switch (p.form) {
    case Form::kValue:
      return lines.Number(p.name, p.type, p.scalar, value);
    case Form::kObject:
      return lines.Object(
          p.name, p.type == "cudnnBackendDescriptor_t" ? BackendKind(value) : p.type, value);
    case Form::kRead:
      return AddObject(lines, p.name, p.type, value);
    case Form::kMade:
    case Form::kHost:
      return lines.Address(p.name, "host", value);
    case Form::kDevice:
      return lines.Address(p.name, "dev", value);
    case Form::kArray:
    case Form::kDims:
      return AddArray(lines, p, values, value);
    case Form::kFactor:
    case Form::kElement:
      return AddNumber(lines, parameters, values, i);
    case Form::kElements:
      return AddElements(lines, p.name, values);
    case Form::kFilled:
      return AddFilled(lines, p.name, values);
  }
}

}  // namespace

std::optional<std::vector<Parameter>> ParametersOf(std::string_view function) {
  const auto name = [](const FunctionRow& row) { return std::string_view(kWords + row.name); };
  const auto row = std::ranges::lower_bound(kFunctions, function, {}, name);
  if (row == std::end(kFunctions) || name(*row) != function) return std::nullopt;
  std::vector<Parameter> parameters;
  for (const ParameterRow& p : std::span(kParameters).subspan(row->first, row->count))
    parameters.push_back({kWords + p.name, kWords + p.type, p.form, p.scalar, p.at, p.add});
  return parameters;
}

std::string ArgumentLines(std::string_view function, std::span<const uint64_t> values) {
  CallLines lines;
  const auto parameters = ParametersOf(function);
  if (!parameters || parameters->size() != values.size()) return {};
  for (size_t i = 0; i < values.size(); ++i) AddArgument(lines, *parameters, values, i);
  return lines.Take();
}

std::string MadeLines(std::string_view function, std::span<const uint64_t> values) {
  CallLines lines;
  const auto parameters = ParametersOf(function);
  if (!parameters || parameters->size() != values.size()) return {};
  for (size_t i = 0; i < values.size(); ++i) {
    const Parameter& p = (*parameters)[i];
    if (p.form != Form::kMade) continue;
    const uint64_t count = p.at < 0 ? 1 : values[static_cast<size_t>(p.at)];
    if (count > kMostElements) continue;
    if (const auto memory = ReadMemory(values[i], count * sizeof(void*)))
      for (size_t j = 0; j < count; ++j)
        lines.Object(p.name, p.type, BitsAt(*memory, j, sizeof(void*)));
  }
  return lines.Take();
}

}  // namespace kiln::api
