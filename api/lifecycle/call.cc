#include "api/lifecycle/call.h"

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "api/lifecycle/core.h"
#include "api/spec/generation.h"

namespace kiln::api {
namespace {

thread_local std::string last_error;

}  // namespace

int Fail(const char* function, const Status& status) {
  try {
    last_error = fmt::format("{}: {}", function, status.message());
    LogFailure(function, status);
  } catch (const std::bad_alloc&) {
    last_error.clear();  // the status alone has to do
  }
  return ThisGeneration().PublicStatus(status.code());
}

int FailWithoutLog(const Status& status) {
  try {
    last_error = status.message();
  } catch (const std::bad_alloc&) {
    last_error.clear();
  }
  return ThisGeneration().PublicStatus(status.code());
}

Status CurrentExceptionAsStatus() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Status::Text(Code::kHostAllocationFailed, "the host has no memory left");
  } catch (const std::exception& error) {
    return Status::Error(Code::kInternal, "a bug in Kiln: {}", error.what());
  } catch (...) {
    return Status::Text(Code::kInternal, "a bug in Kiln: an exception of unknown type");
  }
}

std::string TakeLastError() { return std::exchange(last_error, {}); }

}  // namespace kiln::api
