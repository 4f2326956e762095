// The object behind cudnnHandle_t: a session and the caller's stream. Plain host data: creating one
// makes no CUDA object.
#pragma once

#include <memory>

#include "api/session/session.h"
#include "ir/base/result.h"

namespace kiln::api {

namespace legacy {
class CallPlans;
}

struct Handle {
  static constexpr uint64_t kTag = 0x6b696c6e'68616e64;  // "kilnhand"

  std::shared_ptr<Session> session;
  void* stream = nullptr;
  legacy::CallPlans* plans = nullptr;  // of the session
};

// The object, or a sentence that says what `handle` is not.
Result<Handle*> HandleFrom(const void* handle);

}  // namespace kiln::api
