#include "ir/base/similar_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace kiln {
namespace {

constexpr size_t kLongestWord = 100;  // a longer one is no misspelling
constexpr size_t kShortestPart = 2;
constexpr size_t kShort = 3;  // names of so few letters are near others of the same first letter
constexpr size_t kMostListed = 16;

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

// The edit distance: letters to insert, remove or change.
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

// gpu is no misspelling of cpu, f33 is one of f32.
bool IsMisspelled(std::string_view word, std::string_view name, size_t distance) {
  const size_t longest = std::max(word.size(), name.size());
  return 3 * distance <= longest && (longest > kShort || word[0] == name[0]);
}

bool IsPart(std::string_view part, std::string_view whole) {
  return part.size() >= kShortestPart && whole.find(part) != std::string_view::npos;
}

}  // namespace

std::vector<std::string_view> SimilarNames(std::string_view word,
                                           std::span<const std::string_view> known, size_t most) {
  if (word.empty() || word.size() > kLongestWord) return {};
  const std::string wanted = Lower(word);
  std::vector<std::pair<size_t, std::string_view>> near;  // by rank, then in the order of the names
  for (const std::string_view name : known) {
    const std::string other = Lower(name);
    const size_t distance = Distance(wanted, other);
    const bool begins = other.starts_with(wanted) && wanted.size() >= kShortestPart;
    if (begins) {
      near.emplace_back(0, name);
    } else if (IsMisspelled(wanted, other, distance)) {
      near.emplace_back(distance, name);
    } else if (IsPart(wanted, other) || IsPart(other, wanted)) {
      near.emplace_back(kLongestWord + distance, name);
    }
  }
  std::ranges::stable_sort(near, {}, &std::pair<size_t, std::string_view>::first);
  std::vector<std::string_view> names;
  for (const auto& [rank, name] : near)
    if (names.size() < most) names.push_back(name);
  return names;
}

std::string NearestText(std::string_view word, std::span<const std::string_view> known,
                        std::string_view elsewhere) {
  const std::vector<std::string_view> near = SimilarNames(word, known);
  if (!near.empty())
    return fmt::format("; the nearest {} {}", near.size() == 1 ? "is" : "are",
                       fmt::join(near, ", "));
  if (known.size() > kMostListed && !elsewhere.empty()) return fmt::format("; {}", elsewhere);
  return known.empty() ? "" : fmt::format("; there are {}", fmt::join(known, ", "));
}

}  // namespace kiln
