// Reads env.def's variables once, at the first question, into a table that never changes afterwards
// (ResetEnvForTest apart), so that a question costs an index. Read by every layer; the CLI and the
// API's first handle report EnvErrors.
#include "ir/base/env.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

namespace kiln {
namespace {

constexpr EnvRow kRows[] = {
#define KILN_ENV(Name, variable, default_value, legal, meaning) \
  {variable, default_value, legal, meaning},
#include "ir/base/env.def"
#undef KILN_ENV
};
constexpr size_t kRowCount = std::size(kRows);
constexpr std::string_view kPrefix = "KILN_";

bool IsLegal(const EnvRow& row, std::string_view value) {
  std::string_view rest = row.legal;
  if (rest.empty()) return true;
  while (true) {
    const size_t bar = rest.find('|');
    if (rest.substr(0, bar) == value) return true;
    if (bar == std::string_view::npos) return false;
    rest.remove_prefix(bar + 1);
  }
}

std::string EffectiveValue(const EnvRow& row) {
  const char* set = std::getenv(row.variable);
  return set != nullptr && IsLegal(row, set) ? set : row.default_value;
}

using Values = std::array<std::string, kRowCount>;

// References that GetEnv returned outlive a reset, so tables are kept; only tests make a second
// one.
struct Store {
  std::mutex mutex;
  std::vector<std::unique_ptr<const Values>> tables;
  bool current = false;
};

Store& TheStore() {
  // Never destroyed: threads may log while the process exits.
  static Store* const store = new Store;
  return *store;
}

const Values& CurrentValues() {
  Store& store = TheStore();
  const std::lock_guard lock(store.mutex);
  if (!store.current) {
    auto values = std::make_unique<Values>();
    std::ranges::transform(kRows, values->begin(), EffectiveValue);
    store.tables.push_back(std::move(values));
    store.current = true;
  }
  return *store.tables.back();
}

std::optional<std::string> ErrorOf(std::string_view name, std::string_view value) {
  const auto row = std::ranges::find(kRows, name, &EnvRow::variable);
  if (row == std::end(kRows)) {
    std::string known;
    for (const EnvRow& r : kRows)
      known += fmt::format("{}{}", known.empty() ? "" : ", ", r.variable);
    return fmt::format("{} is no variable of Kiln; known are {}", name, known);
  }
  if (IsLegal(*row, value)) return std::nullopt;
  return fmt::format("{}='{}' is ignored: legal are {}; the default is '{}'", name, value,
                     row->legal, row->default_value);
}

}  // namespace

std::span<const EnvRow> EnvRows() { return kRows; }

const std::string& GetEnv(Env which) { return CurrentValues()[static_cast<size_t>(which)]; }

bool EnvFlag(Env which) { return GetEnv(which) == "1"; }

int64_t EnvInt(Env which) {
  const auto number = [](std::string_view text) -> std::optional<int64_t> {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
  };
  const std::string_view fallback = kRows[static_cast<size_t>(which)].default_value;
  return number(GetEnv(which)).value_or(number(fallback).value_or(0));
}

std::vector<std::string> EnvErrors() {
  std::vector<std::string> errors;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with(kPrefix)) continue;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    if (auto error = ErrorOf(text.substr(0, equals), text.substr(equals + 1))) {
      errors.push_back(*std::move(error));
    }
  }
  std::ranges::sort(errors);
  return errors;
}

void ResetEnvForTest() {
  Store& store = TheStore();
  const std::lock_guard lock(store.mutex);
  store.current = false;
}

}  // namespace kiln
