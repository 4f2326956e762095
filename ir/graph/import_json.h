// Reading JSON that nobody vouches for: syntax errors as line:column, depth and size limits, typed
// access that returns sentences with the path of the value. Used by the importers.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "ir/base/result.h"
#include "ir/dtype.h"
#include "ir/graph/memory_layout.h"
#include "ir/shape.h"

namespace kiln::graph {

Result<nlohmann::json> ParseJson(std::string_view text);

// A value with the path that led to it. Holds a reference: the document must live.
class JsonRef {
 public:
  JsonRef(const nlohmann::json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  const nlohmann::json& value() const { return *value_; }
  bool is_null() const { return value_->is_null(); }

  // The member, or null where the object has none.
  JsonRef operator[](std::string_view key) const;
  JsonRef At(size_t index) const;  // of an array
  bool Has(std::string_view key) const { return !(*this)[key].is_null(); }

  Status Fail(std::string_view sentence) const;  // "path: sentence"
  Status Expect(bool condition, std::string_view what) const;
  Result<int64_t> Int() const;
  Result<bool> Bool(bool otherwise) const;  // null gives `otherwise`
  Result<std::string> Text() const;
  Result<Dims> List() const;  // a bare number is a list of one

 private:
  const nlohmann::json* value_;
  std::string path_;
};

// The cudnnDataType_t whose name stands behind `prefix`, as FLOAT behind DATA_.
Result<DType> DTypeNamed(const JsonRef& json, std::string_view prefix);
// The data type of a tensor in memory, where a BOOLEAN is one bit.
Result<DType> MemoryTypeNamed(const JsonRef& json, std::string_view prefix);
// The CUDNN_TENSOR_REORDERING_... whose name stands behind `prefix`; null is NONE.
Result<LayoutSpec::Reordering> ReorderingNamed(const JsonRef& json, std::string_view prefix);

// The end of a sentence, "a known mode", with the nearest of the known ones in capitals, as JSON
// has them.
std::string KnownModeText(std::string_view name, std::span<const std::string_view> known);

}  // namespace kiln::graph
