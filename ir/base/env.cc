// Reads env.def's variables once, at the first question, into a table that never changes afterwards
// (ResetEnvForTest apart), so that a question costs an index. Read by every layer; the CLI and the
// API's first call report EnvWarnings.
#include "ir/base/env.h"

#include <fmt/format.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "ir/base/similar_names.h"

namespace kiln {
namespace {

using Type = EnvKind::Type;

constexpr EnvKind Text() { return EnvKind::Text(); }
constexpr EnvKind Choice(const char* choices) { return EnvKind::Choice(choices); }
constexpr EnvKind Count(int64_t least, int64_t most) { return EnvKind::Count(least, most); }
constexpr EnvKind Size(const char* default_unit) { return EnvKind::Size(default_unit); }
constexpr EnvKind Minor(int64_t major, int64_t least, int64_t most) {
  return EnvKind::Minor(major, least, most);
}

constexpr EnvRow kRows[] = {
#define KILN_ENV(Name, variable, default_value, kind, meaning) \
  {variable, default_value, kind, meaning},
#include "ir/base/env.def"
#undef KILN_ENV
};
constexpr size_t kRowCount = std::size(kRows);
constexpr std::string_view kPrefix = "KILN_";
constexpr int64_t kAnySize = -1;

std::atomic<bool> privileged_for_test{false};

std::vector<std::string_view> ChoicesOf(const EnvKind& kind) {
  std::vector<std::string_view> choices;
  for (std::string_view rest = kind.choices;;) {
    const size_t bar = rest.find('|');
    choices.push_back(rest.substr(0, bar));
    if (bar == std::string_view::npos) return choices;
    rest.remove_prefix(bar + 1);
  }
}

// "KiB", "kb", "K" and "" alike; the last is the default's.
std::optional<int64_t> BytesOfUnit(std::string_view unit) {
  constexpr std::string_view kLetters = "bkmgt";
  std::string lower(unit);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (lower.empty()) return std::nullopt;
  const size_t power = kLetters.find(lower.front());
  if (power == std::string_view::npos) return std::nullopt;
  const std::string_view rest = std::string_view(lower).substr(1);
  if (!rest.empty() && (power == 0 || (rest != "b" && rest != "ib"))) return std::nullopt;
  return int64_t{1} << (10 * power);
}

std::optional<int64_t> Whole(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Bytes that "512", "512MB" or "1.5 GiB" are.
std::optional<int64_t> SizeOf(std::string_view text, const EnvKind& kind) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string_view number = text.substr(0, digits), unit = text.substr(digits);
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  const std::optional<int64_t> scale =
      BytesOfUnit(digits == text.size() ? kind.default_unit : unit);
  const size_t point = std::min(number.find('.'), number.size());
  const std::optional<int64_t> whole = Whole(number.substr(0, point));
  int64_t bytes = 0;
  if (!scale || !whole || __builtin_mul_overflow(*whole, *scale, &bytes)) return std::nullopt;
  if (point == number.size()) return bytes;
  const std::string_view fraction = number.substr(point + 1);
  if (fraction.empty() || fraction.find('.') != std::string_view::npos) return std::nullopt;
  double part = 0;
  for (size_t i = fraction.size(); i-- > 0;) part = (part + (fraction[i] - '0')) / 10;
  int64_t sum = 0;
  const auto more = static_cast<int64_t>(part * static_cast<double>(*scale));
  return __builtin_add_overflow(bytes, more, &sum) ? std::nullopt : std::optional(sum);
}

// The last number of "9.19", where the first is the kind's. A sign or a zero in front is none.
std::optional<int64_t> MinorOf(std::string_view text, const EnvKind& kind) {
  const std::string before = fmt::format("{}.", kind.major);
  if (!text.starts_with(before)) return std::nullopt;
  text.remove_prefix(before.size());
  const auto number = Whole(text);
  return number && fmt::format("{}", *number) == text ? number : std::nullopt;
}

// The number that the text is, where it is one of this kind and in its range.
std::optional<int64_t> NumberOf(const EnvKind& kind, std::string_view text) {
  if (kind.type == Type::kSize && text == "-1") return kAnySize;
  const auto number = kind.type == Type::kSize    ? SizeOf(text, kind)
                      : kind.type == Type::kMinor ? MinorOf(text, kind)
                                                  : Whole(text);
  if (!number || *number < kind.least || *number > kind.most) return std::nullopt;
  return number;
}

bool IsLegal(const EnvKind& kind, std::string_view value) {
  switch (kind.type) {
    case Type::kText:
      return true;
    case Type::kChoice:
      return std::ranges::count(ChoicesOf(kind), value) > 0;
    case Type::kCount:
    case Type::kSize:
    case Type::kMinor:
      return NumberOf(kind, value).has_value();
  }
  return false;
}

std::string LegalText(const EnvKind& kind, std::string_view value) {
  switch (kind.type) {
    case Type::kText:
      return "any text is legal";
    case Type::kChoice: {
      const auto near = SimilarNames(value, ChoicesOf(kind), 1);
      return fmt::format("legal are {}{}", kind.choices,
                         near.empty() ? "" : fmt::format(", the nearest is {}", near.front()));
    }
    case Type::kCount:
      return fmt::format("legal are whole numbers from {} to {}", kind.least, kind.most);
    case Type::kSize:
      return fmt::format(
          "legal are sizes in {} up to 1024 TB, or with a unit as 512MB or 2GB, and -1 for any",
          kind.default_unit);
    case Type::kMinor:
      return fmt::format("legal are {0}.{1} to {0}.{2}", kind.major, kind.least, kind.most);
  }
  return {};
}

std::string EffectiveValue(const EnvRow& row) {
  const char* set = ForeignEnv(row.variable);
  return set != nullptr && IsLegal(row.kind, set) ? set : row.default_value;
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

std::string UnknownText(std::string_view name) {
  std::vector<std::string_view> known;
  for (const EnvRow& row : kRows) {
    const std::string_view variable = row.variable;
    if (variable.starts_with(kPrefix)) known.push_back(variable.substr(kPrefix.size()));
  }
  const auto near = SimilarNames(name.substr(kPrefix.size()), known, 1);
  return fmt::format("{} is no variable of Kiln and has no effect; {}", name,
                     near.empty() ? "docs/environment.md lists all"
                                  : fmt::format("the nearest is {}{}", kPrefix, near.front()));
}

std::optional<std::string> WarningOf(std::string_view name, std::string_view value) {
  const auto row = std::ranges::find(kRows, name, &EnvRow::variable);
  if (row == std::end(kRows)) return UnknownText(name);
  if (IsPrivileged()) {
    return fmt::format(
        "{} is ignored: this process has more rights than whoever started it (setuid, setgid or "
        "capabilities)",
        name);
  }
  if (IsLegal(row->kind, value)) return std::nullopt;
  return fmt::format("{}='{:.80}' is ignored: {}; the default '{}' counts", name, value,
                     LegalText(row->kind, value), row->default_value);
}

}  // namespace

std::span<const EnvRow> EnvRows() { return kRows; }

const std::string& GetEnv(Env which) { return CurrentValues()[static_cast<size_t>(which)]; }

bool EnvFlag(Env which) { return GetEnv(which) == "1"; }

int64_t EnvInt(Env which) {
  return NumberOf(kRows[static_cast<size_t>(which)].kind, GetEnv(which)).value_or(0);
}

const char* ForeignEnv(const char* variable) {
  return IsPrivileged() ? nullptr : std::getenv(variable);
}

bool IsPrivileged() {
  static const bool is_raised = ::getauxval(AT_SECURE) != 0;
  return is_raised || privileged_for_test.load(std::memory_order_relaxed);
}

std::vector<std::string> EnvWarnings() {
  std::vector<std::string> warnings;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with(kPrefix)) continue;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    if (auto warning = WarningOf(text.substr(0, equals), text.substr(equals + 1))) {
      warnings.push_back(*std::move(warning));
    }
  }
  std::ranges::sort(warnings);
  return warnings;
}

void ResetEnvForTest() {
  Store& store = TheStore();
  const std::lock_guard lock(store.mutex);
  store.current = false;
}

void SetPrivilegedForTest(bool privileged) {
  privileged_for_test.store(privileged);
  ResetEnvForTest();
}

}  // namespace kiln
