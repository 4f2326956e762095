// The C symbols of libkiln_cpu.so. Callers find them with dlsym, so that nothing links LLVM that
// does not need it; compiled C++ crosses the border (Device), so both sides come from one build.
#pragma once

#include <cstddef>

namespace kiln::runtime {
class Device;
}

extern "C" {
#pragma GCC visibility push(default)

// The CPU device, deleted by its caller, or null and a sentence in `error` (of `error_size` bytes,
// always terminated). The library must stay open until the process ends: its threads do.
kiln::runtime::Device* KilnCpuDeviceCreate(char* error, size_t error_size);

// Writes the optimised LLVM IR of a tile kernel's text, for dumps. 0 on success; *out is freed by
// KilnCpuFreeText.
int KilnCpuEmitLlvm(const char* tile_text, char** out, char* error, size_t error_size);
void KilnCpuFreeText(char* text);

#pragma GCC visibility pop
}  // extern "C"
