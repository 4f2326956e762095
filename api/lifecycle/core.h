// The core calls what api/entry calls beside the backend and the legacy API: handles and questions
// to the library. No type of the public headers appears here, since the entry layer is compiled
// against those of its own generation.
#pragma once

#include <cstdint>
#include <string>

#include "ir/base/status.h"

namespace kiln::api {

Status CreateHandle(void** out);
Status DestroyHandle(void* handle);
Status SetStream(void* handle, void* stream);
Status GetStream(void* handle, void** stream);
// Kiln reports nothing asynchronously: the answer is success, at once, in every mode. The caller
// stores it.
Status QueryRuntimeError(void* handle, const void* answer, int mode, const void* tag);

// The sentence of this thread's last failure. Reading it clears it, as cuDNN does.
std::string TakeLastError();

// The number that session.h describes.
int64_t CudaRuntimeVersion();

}  // namespace kiln::api
