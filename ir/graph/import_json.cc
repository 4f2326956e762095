// Guarded access to JSON: see the header.
#include "ir/graph/import_json.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "ir/base/similar_names.h"

namespace kiln::graph {
namespace {

constexpr int kMaxDepth = 64;
constexpr size_t kMaxBytes = size_t{64} << 20;
constexpr size_t kMaxListed = 64;

std::string Position(std::string_view text, size_t at) {
  const std::string_view before = text.substr(0, std::min(at, text.size()));
  const auto line = 1 + std::ranges::count(before, '\n');
  const size_t start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("{}:{}", line, before.size() - start + 1);
}

// The parser and the destructor of the document would recurse.
Status CheckDepth(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quoted) {
      i += text[i] == '\\';
      quoted = i >= text.size() || text[i] != '"';
      continue;
    }
    quoted = text[i] == '"';
    depth += text[i] == '{' || text[i] == '[';
    depth -= text[i] == '}' || text[i] == ']';
    if (depth > kMaxDepth) {
      return Status::Error(Code::kBadParam, "{}: nested deeper than {} levels", Position(text, i),
                           kMaxDepth);
    }
  }
  return {};
}

const nlohmann::json& Null() {
  static const nlohmann::json null;
  return null;
}

// The parser's message without its own position and exception id.
std::string Reason(std::string_view what) {
  for (const std::string_view mark : {"syntax error ", "] "}) {
    const size_t at = what.find(mark);
    if (at != std::string_view::npos) return std::string(what.substr(at + (mark == "] " ? 2 : 0)));
  }
  return std::string(what);
}

struct TypeName {
  std::string_view name;
  DType dtype;
};
constexpr TypeName kTypeNames[] = {
    {"FLOAT", DType::kF32},         {"DOUBLE", DType::kF64},
    {"HALF", DType::kF16},          {"BFLOAT16", DType::kBF16},
    {"INT8", DType::kI8},           {"UINT8", DType::kU8},
    {"INT32", DType::kI32},         {"INT64", DType::kI64},
    {"BOOLEAN", DType::kBool},      {"BYTE_BOOLEAN", DType::kBool},
    {"FP8_E4M3", DType::kE4M3},     {"FP8_E5M2", DType::kE5M2},
    {"FP8_E8M0", DType::kE8M0},     {"FP4_E2M1", DType::kE2M1},
    {"INT4", DType::kI4},           {"UINT4", DType::kU4},
    {"UINT32", DType::kU32},        {"COMPLEX_FP32", DType::kC64},
    {"COMPLEX_FP64", DType::kC128}, {"FAST_FLOAT_FOR_FP8", DType::kF32},
};

}  // namespace

Result<nlohmann::json> ParseJson(std::string_view text) {
  if (text.size() > kMaxBytes) {
    return Status::Error(Code::kBadParam, "{} bytes of JSON, at most {} are read", text.size(),
                         kMaxBytes);
  }
  RETURN_IF_ERROR(CheckDepth(text));
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const size_t at = error.byte > 0 ? error.byte - 1 : 0;
    return Status::Error(Code::kBadParam, "{}: {}", Position(text, at), Reason(error.what()));
  } catch (const nlohmann::json::exception& error) {
    return Status::Error(Code::kBadParam, "{}", Reason(error.what()));
  }
}

JsonRef JsonRef::operator[](std::string_view key) const {
  std::string path = path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
  if (!value_->is_object()) return {Null(), std::move(path)};
  const auto member = value_->find(std::string(key));
  return {member == value_->end() ? Null() : *member, std::move(path)};
}

JsonRef JsonRef::At(size_t index) const {
  return {(*value_)[index], fmt::format("{}[{}]", path_, index)};
}

Status JsonRef::Fail(std::string_view sentence) const {
  return Status::Error(Code::kBadParam, "{}: {}", path_.empty() ? "the document" : path_, sentence);
}

Status JsonRef::Expect(bool condition, std::string_view what) const {
  if (condition) return {};
  std::string text;
  try {
    text = value_->dump();
  } catch (const nlohmann::json::exception&) {
    text = "a string that is not UTF-8";
  }
  if (text.size() > 60) text = text.substr(0, 60) + "…";
  return Fail(is_null() ? fmt::format("is missing, {} is needed", what)
                        : fmt::format("is {}, not {}", text, what));
}

Result<int64_t> JsonRef::Int() const {
  const bool fits = value_->is_number_integer() && !(value_->is_number_unsigned() &&
                                                     value_->get<uint64_t>() > uint64_t{INT64_MAX});
  RETURN_IF_ERROR(Expect(fits, "a whole number"));
  return value_->get<int64_t>();
}

Result<bool> JsonRef::Bool(bool otherwise) const {
  if (is_null()) return otherwise;
  RETURN_IF_ERROR(Expect(value_->is_boolean(), "true or false"));
  return value_->get<bool>();
}

Result<std::string> JsonRef::Text() const {
  RETURN_IF_ERROR(Expect(value_->is_string(), "a string"));
  return value_->get<std::string>();
}

Result<Dims> JsonRef::List() const {
  if (!value_->is_array()) {
    ASSIGN_OR_RETURN(const int64_t only, Int());
    return Dims{only};
  }
  RETURN_IF_ERROR(Expect(value_->size() <= kMaxListed,
                         fmt::format("a list of at most {} numbers", kMaxListed)));
  Dims values;
  for (size_t i = 0; i < value_->size(); ++i) {
    ASSIGN_OR_RETURN(const int64_t value, At(i).Int());
    values.push_back(value);
  }
  return values;
}

Result<DType> DTypeNamed(const JsonRef& json, std::string_view prefix) {
  ASSIGN_OR_RETURN(const std::string text, json.Text());
  const auto* row =
      text.starts_with(prefix)
          ? std::ranges::find(kTypeNames, std::string_view(text).substr(prefix.size()),
                              &TypeName::name)
          : std::end(kTypeNames);
  if (row != std::end(kTypeNames)) return row->dtype;
  return Status::Error(Code::kUnsupportedDataType, "{}: data type {} is not supported", json.path(),
                       text);
}

std::string KnownModeText(std::string_view name, std::span<const std::string_view> known) {
  std::string text = "a known mode", separator = "; near it are ";
  for (const std::string_view mode : SimilarNames(name, known)) {
    text += std::exchange(separator, ", ");
    for (const char c : mode)
      text += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return text;
}

Result<DType> MemoryTypeNamed(const JsonRef& json, std::string_view prefix) {
  if (json.value() == fmt::format("{}BOOLEAN", prefix)) return DType::kB1;
  return DTypeNamed(json, prefix);
}

Result<LayoutSpec::Reordering> ReorderingNamed(const JsonRef& json, std::string_view prefix) {
  if (json.is_null()) return LayoutSpec::Reordering::kNone;
  ASSIGN_OR_RETURN(const std::string text, json.Text());
  std::optional<LayoutSpec::Reordering> found;
  if (text.starts_with(prefix))
    found = ReorderingFromText(std::string_view(text).substr(prefix.size()));
  RETURN_IF_ERROR(json.Expect(
      found.has_value(), fmt::format("{0}NONE, {0}F16x16, {0}F8_128x4 or {0}INT8x32", prefix)));
  return *found;
}

}  // namespace kiln::graph
