// The entry layer: the exported functions, compiled once against each generation's public headers.
// It checks nothing and knows nothing: it gives arguments to the core and turns statuses into the
// generation's.
#pragma once

#include <cudnn.h>

#include <cstring>
#include <utility>

#include "api/call.h"

#define KILN_EXPORT __attribute__((visibility("default")))

namespace kiln::api {

template <class F>
cudnnStatus_t Entry(const char* function, F&& body) noexcept {
  return static_cast<cudnnStatus_t>(RunEntry(function, std::forward<F>(body)));
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
