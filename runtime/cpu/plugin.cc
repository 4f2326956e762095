// The plug-in's exports; everything else of libkiln_cpu.so is local (exports.map).
#include "runtime/cpu/plugin.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string_view>

#include "runtime/cpu/cpu_device.h"

namespace {

using kiln::Result;
using kiln::runtime::CpuDevice;

void Report(std::string_view message, char* error, size_t error_size) {
  if (!error || error_size == 0) return;
  const size_t length = std::min(message.size(), error_size - 1);
  std::memcpy(error, message.data(), length);
  error[length] = '\0';
}

// The border is C: nothing may be thrown across it.
template <class F>
auto Guarded(F body, decltype(body()) failure, char* error, size_t error_size) {
  try {
    return body();
  } catch (const std::exception& e) {
    Report(e.what(), error, error_size);
    return failure;
  }
}

int EmitLlvm(const char* tile_text, char** out, char* error, size_t error_size) {
  Result<std::unique_ptr<CpuDevice>> device =
      CpuDevice::Create({.threads = 1, .cache = {.root = ""}, .jit = {}});
  if (!device.ok()) {
    Report(device.status().message(), error, error_size);
    return 1;
  }
  const Result<std::string> text = (*device)->LlvmText(tile_text);
  if (!text.ok()) {
    Report(text.status().message(), error, error_size);
    return 1;
  }
  *out = strdup(text->c_str());
  return *out ? 0 : 1;
}

}  // namespace

kiln::runtime::Device* KilnCpuDeviceCreate(char* error, size_t error_size) {
  return Guarded(
      [&]() -> kiln::runtime::Device* {
        Result<std::unique_ptr<CpuDevice>> device = CpuDevice::Create(CpuDevice::OptionsFromEnv());
        if (device.ok()) return (*device).release();
        Report(device.status().message(), error, error_size);
        return nullptr;
      },
      nullptr, error, error_size);
}

int KilnCpuEmitLlvm(const char* tile_text, char** out, char* error, size_t error_size) {
  return Guarded([&] { return EmitLlvm(tile_text, out, error, error_size); }, 1, error, error_size);
}

void KilnCpuFreeText(char* text) { std::free(text); }
