// Refusals for people: a program of generation 8 cannot ask why a call was refused, so the first
// refusal of each kind is a warning of Kiln's own log. A kind is a function, a status and a
// sentence whose numbers do not count; a client that tries a hundred shapes and is refused by each
// reads one line.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "ir/base/hash.h"
#include "ir/base/status.h"

namespace kiln::api {

// The kinds that were seen: at most kMostKinds, of which one function has kMostOfFunction, so that
// neither memory nor the log grows with what a program tries.
class Refusals {
 public:
  static constexpr size_t kMostKinds = 64, kMostOfFunction = 8;

  enum class Novelty {
    kKnown,
    kNew,
    kLastOfFunction,  // new, and further ones of this function will be kKnown
  };

  // Thread-safe.
  Novelty Note(std::string_view function, const Status& status);

 private:
  std::mutex mutex_;
  std::unordered_set<Hash128, Hash128Hasher> kinds_;
  std::unordered_map<std::string, size_t> of_function_;
};

// "tensor 7 (2x4x1) has 'NaN'" and "tensor 12 (3x5x5x5) has 'a'" are one reason: numbers, lists of
// them and quoted words are left out.
std::string KindOfReason(std::string_view sentence);

// Writes a warning if the process has met no refusal of this kind yet and KILN_LOG lets it through.
// `status_name` is the public one.
void WarnOfRefusal(const char* function, const Status& status, std::string_view status_name);

}  // namespace kiln::api
