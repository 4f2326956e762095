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
// Faults of kernels since the last question: `found` is 0, or the public status of a wait for
// another device that took too long, whose sentence is this thread's last. The answer comes at
// once, in every mode; a kernel that still waits has said nothing. The caller stores it.
Status QueryRuntimeError(void* handle, const void* answer, int mode, const void* tag, int& found);

// The sentence of this thread's last failure. Reading it clears it, as cuDNN does.
std::string TakeLastError();

// The number that session.h describes.
int64_t CudaRuntimeVersion();

}  // namespace kiln::api
