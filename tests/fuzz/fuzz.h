// Helpers that the fuzzers share: a property that does not hold ends the run, with a sentence
// before libFuzzer's.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace kiln::fuzz {

template <class... Args>
void Require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (holds) return;
  fmt::print(stderr, "fuzz: {}\n", fmt::format(format, std::forward<Args>(args)...));
  std::abort();
}

// A refusal has something to say.
inline void RequireSentence(const std::string& message) {
  Require(message.size() > 3, "a refusal without a sentence");
}

}  // namespace kiln::fuzz
