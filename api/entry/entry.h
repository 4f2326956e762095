// The entry layer: the exported functions, compiled once against each generation's public headers. It checks
// nothing and knows nothing: it gives arguments to the core and turns statuses into the generation's.
#pragma once

#include <cudnn.h>

#include <utility>

#include "api/call.h"

#define KILN_EXPORT __attribute__((visibility("default")))

namespace kiln::api {

template <class F>
cudnnStatus_t Entry(const char* function, F&& body) noexcept {
  return static_cast<cudnnStatus_t>(RunEntry(function, std::forward<F>(body)));
}

}  // namespace kiln::api
