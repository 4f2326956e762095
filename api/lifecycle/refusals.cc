#include "api/lifecycle/refusals.h"

#include <cctype>

#include "ir/base/log.h"

namespace kiln::api {
namespace {

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// True for what stands between the numbers of one list: 2x4x1, [1, 2], 0.5, 1e-3.
bool JoinsNumbers(char c) {
  return std::string_view("x,.:[]()-+ e").find(c) != std::string_view::npos;
}

}  // namespace

std::string KindOfReason(std::string_view sentence) {
  std::string kind;
  for (size_t i = 0; i < sentence.size();) {
    const char c = sentence[i];
    if (c == '\'' || c == '"') {
      const size_t end = sentence.find(c, i + 1);
      // An apostrophe of a word ("q's") opens no quotation.
      const bool opens = end != std::string_view::npos && (i == 0 || sentence[i - 1] == ' ');
      if (opens) {
        kind += "''";
        i = end + 1;
        continue;
      }
    }
    if (!IsDigit(c)) {
      kind += c;
      ++i;
      continue;
    }
    kind += '#';
    size_t end = i;
    while (end < sentence.size()) {
      size_t next = end;
      while (next < sentence.size() && JoinsNumbers(sentence[next])) ++next;
      if (next == sentence.size() || !IsDigit(sentence[next])) break;
      end = next + 1;
    }
    i = end;
  }
  return kind;
}

Refusals::Novelty Refusals::Note(std::string_view function, const Status& status) {
  const Hash128 kind = FieldHasher()
                           .Add(function)
                           .Add(static_cast<int64_t>(status.code()))
                           .Add(KindOfReason(status.message()))
                           .Finish();
  const std::lock_guard lock(mutex_);
  if (kinds_.contains(kind) || kinds_.size() >= kMostKinds) return Novelty::kKnown;
  size_t& count = of_function_[std::string(function)];
  if (count >= kMostOfFunction) return Novelty::kKnown;
  kinds_.insert(kind);
  return ++count == kMostOfFunction || kinds_.size() == kMostKinds ? Novelty::kLastOfFunction
                                                                   : Novelty::kNew;
}

void WarnOfRefusal(const char* function, const Status& status, std::string_view status_name) {
  if (!LogEnabled(Severity::kWarn)) return;
  // Leaked, since entry points may be called while static objects of the client are destroyed.
  static Refusals* const refusals = new Refusals;
  const Refusals::Novelty novelty = refusals->Note(function, status);
  if (novelty == Refusals::Novelty::kKnown) return;
  const bool last = novelty == Refusals::Novelty::kLastOfFunction;
  LOG(kWarn, "{}() returned {}: {}{}", function, status_name, status.message(),
      last
          ? " (further refusals are not shown; CUDNN_LOGLEVEL_DBG=1 CUDNN_LOGDEST_DBG=stderr shows "
            "each)"
          : "");
}

}  // namespace kiln::api
