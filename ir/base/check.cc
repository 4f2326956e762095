// The end of a failed CHECK: abort for tests and debuggers, else an exception that the entry
// wrapper of the API (api/lifecycle/call.h) and the CLI's main turn into an answer. Called by the
// CHECK macro alone.
#include "ir/base/check.h"

#include <cstdio>
#include <cstdlib>

#include "ir/base/env.h"

namespace kiln {

void FailCheck(const char* file, int line, const char* condition, const std::string& detail) {
  std::string sentence = fmt::format("{}:{}: check failed: {}", file, line, condition);
  if (!detail.empty()) sentence += fmt::format(": {}", detail);
  if (EnvFlag(Env::kAbortOnCheck)) {
    std::fprintf(stderr, "kiln: %s\n", sentence.c_str());
    std::abort();
  }
  throw CheckFailure(sentence);
}

}  // namespace kiln
