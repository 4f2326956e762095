// CHECK: for bugs of ours, never for a caller's mistake. A failed check throws CheckFailure; the
// entry wrapper of the API turns it into INTERNAL_ERROR with the sentence, and a test run
// (KILN_ABORT_ON_CHECK=1) aborts so that a debugger stops at the place.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace kiln {

struct CheckFailure : std::logic_error {
  using std::logic_error::logic_error;
};

[[noreturn]] void FailCheck(const char* file, int line, const char* condition,
                            const std::string& detail);

}  // namespace kiln

#define CHECK(condition, ...)                                                           \
  do {                                                                                  \
    if (!(condition)) [[unlikely]]                                                      \
      ::kiln::FailCheck(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (0)

#ifdef NDEBUG
#define DCHECK(condition, ...) ((void)0)
#else
#define DCHECK(condition, ...) CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#endif
