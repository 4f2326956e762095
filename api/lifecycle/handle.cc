#include "api/lifecycle/handle.h"

#include <fmt/format.h>

#include "api/lifecycle/object.h"

namespace kiln::api {

Result<Handle*> HandleFrom(const void* handle) {
  if (handle == nullptr) return Status::Text(Code::kNullPointer, "the handle is NULL");
  Handle* object = Find<Handle>(handle);
  if (object != nullptr) return object;
  return Status::Error(Code::kBadParam, "{} is no cuDNN handle, or was destroyed",
                       fmt::ptr(handle));
}

}  // namespace kiln::api
