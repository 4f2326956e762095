// The entry layer: the exported functions, compiled once against each generation's public headers.
// It knows nothing: it refuses arguments that must not be NULL, by api/spec/nulls.tsv, gives the
// others to the core, and turns statuses into the generation's.
#pragma once

#include <cudnn.h>

#include <cstring>
#include <initializer_list>
#include <utility>

#include "api/lifecycle/call.h"

#define KILN_EXPORT __attribute__((visibility("default")))

namespace kiln::api {

template <class F, class... Arguments>
cudnnStatus_t Entry(const char* function, F&& body, const Arguments&... arguments) noexcept {
  return static_cast<cudnnStatus_t>(RunEntry(function, std::forward<F>(body), arguments...));
}

// A pointer of a client's that must not be NULL, and the status where it is.
struct Argument {
  const void* pointer;
  const char* name;
  Code code;
};
// The first of them that is NULL, as the failure of the call.
inline Status NullArgument(std::initializer_list<Argument> arguments) {
  for (const Argument& argument : arguments) {
    if (argument.pointer == nullptr)
      return Status::Error(argument.code, "{} is NULL", argument.name);
  }
  return {};
}

// The number that a client passed for an enumeration. It may be none of the constants, so it is not
// read as one.
template <class E>
int Number(const E& value) {
  static_assert(sizeof(E) == sizeof(int));
  int number;
  std::memcpy(&number, &value, sizeof(number));
  return number;
}

}  // namespace kiln::api
