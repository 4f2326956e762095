#include "ir/base/nearest.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace kiln {
namespace {

constexpr size_t kLongestName = 100;  // beyond it a name is no misspelling, and the table is large
constexpr size_t kShortestPart = 3;

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

// Letters to insert, remove or change.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

bool IsPart(std::string_view part, std::string_view whole) {
  return part.size() >= kShortestPart && whole.find(part) != std::string_view::npos;
}

}  // namespace

std::string_view Nearest(std::string_view name, std::span<const std::string_view> known) {
  if (name.empty() || name.size() > kLongestName) return {};
  const std::string wanted = Lower(name);
  std::string_view best;
  std::pair least(true, kLongestName);
  for (const std::string_view candidate : known) {
    const std::string other = Lower(candidate);
    const size_t distance = Distance(wanted, other);
    const bool is_near = 3 * distance < std::max(wanted.size(), other.size());
    const bool is_part = IsPart(wanted, other) || IsPart(other, wanted);
    if (!is_near && !is_part) continue;
    if (const std::pair rank(!is_part, distance); rank < least) {
      least = rank;
      best = candidate;
    }
  }
  return best;
}

}  // namespace kiln
