// An NVRTC for the emulated GPU (libcuda.so.1 beside it): the system's NVRTC, asked for PTX of the
// virtual architecture where a cubin is asked for, and the PTX is what it hands out as the cubin.
// Named in KILN_NVRTC; the system's one is found as Kiln finds it, or named in EMULATED_GPU_NVRTC.
// With EMULATED_GPU_DUMP every text that is compiled is kept there, under its program's name.
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/cuda/nvrtc_search.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using Program = void*;
constexpr int kInternalError = 11;  // NVRTC_ERROR_INTERNAL_ERROR

void* OpenSystemLibrary() {
  std::vector<std::string> candidates = kiln::runtime::NvrtcCandidates(13);
  if (const char* named = std::getenv("EMULATED_GPU_NVRTC"); named != nullptr && *named != '\0')
    candidates = {named};
  for (const std::string& path : candidates)
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  std::fprintf(stderr, "the emulated GPU finds no NVRTC to compile with: %s\n", dlerror());
  return nullptr;
}

void* SystemFunction(const char* name) {
  static void* const library = OpenSystemLibrary();
  return library == nullptr ? nullptr : dlsym(library, name);
}

template <class... Args>
int Forward(const char* name, Args... args) {
  const auto function = reinterpret_cast<int (*)(Args...)>(SystemFunction(name));
  return function == nullptr ? kInternalError : function(args...);
}

// Loads the builtins beside the library, which it opens by name alone.
void LoadBuiltins() {
  Dl_info info = {};
  int major = 0, minor = 0;
  void* const symbol = SystemFunction("nvrtcVersion");
  if (symbol == nullptr || dladdr(symbol, &info) == 0) return;
  Forward("nvrtcVersion", &major, &minor);
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return;
  const std::string name = fmt::format("/libnvrtc-builtins.so.{}.{}", major, minor);
  dlopen((path.substr(0, slash) + name).c_str(), RTLD_LAZY | RTLD_LOCAL);
}

std::mutex mutex;
std::map<Program, std::string> names;

}  // namespace

EXPORT const char* nvrtcGetErrorString(int result) {
  const auto function =
      reinterpret_cast<const char* (*)(int)>(SystemFunction("nvrtcGetErrorString"));
  return function == nullptr ? "the emulated GPU finds no NVRTC" : function(result);
}
EXPORT int nvrtcVersion(int* major, int* minor) { return Forward("nvrtcVersion", major, minor); }
EXPORT int nvrtcGetNumSupportedArchs(int* count) {
  return Forward("nvrtcGetNumSupportedArchs", count);
}
EXPORT int nvrtcGetSupportedArchs(int* archs) { return Forward("nvrtcGetSupportedArchs", archs); }
EXPORT int nvrtcCreateProgram(Program* program, const char* text, const char* name, int headers,
                              const char* const* header_texts, const char* const* header_names) {
  static const bool loaded = (LoadBuiltins(), true);
  (void)loaded;
  const int result =
      Forward("nvrtcCreateProgram", program, text, name, headers, header_texts, header_names);
  const std::lock_guard lock(mutex);
  if (result == 0) names[*program] = name == nullptr ? "program" : name;
  return result;
}
EXPORT int nvrtcDestroyProgram(Program* program) {
  {
    const std::lock_guard lock(mutex);
    names.erase(*program);
  }
  return Forward("nvrtcDestroyProgram", program);
}
EXPORT int nvrtcCompileProgram(Program program, int count, const char* const* options) {
  std::vector<std::string> texts(options, options + count);
  std::vector<const char*> pointers;
  for (std::string& text : texts) {
    const size_t real = text.find("=sm_");
    if (text.starts_with("--gpu-architecture=") && real != std::string::npos)
      text.replace(real, 4, "=compute_");
    pointers.push_back(text.c_str());
  }
  // NVRTC keeps what it compiled beside the driver, whose functions for that libcuda.so.1 lacks.
  int major = 0, minor = 0;
  Forward("nvrtcVersion", &major, &minor);
  if (std::pair(major, minor) >= std::pair(12, 9)) pointers.push_back("--no-cache");
  const int result = Forward("nvrtcCompileProgram", program, static_cast<int>(pointers.size()),
                             static_cast<const char* const*>(pointers.data()));
  const char* const folder = std::getenv("EMULATED_GPU_DUMP");
  size_t size = 0;
  if (result != 0 || folder == nullptr || Forward("nvrtcGetPTXSize", program, &size) != 0)
    return result;
  std::string ptx(size, '\0');
  Forward("nvrtcGetPTX", program, ptx.data());
  const std::lock_guard lock(mutex);
  std::ofstream(fmt::format("{}/{}.ptx", folder, names[program])) << ptx.c_str();
  return result;
}
EXPORT int nvrtcGetProgramLogSize(Program program, size_t* size) {
  return Forward("nvrtcGetProgramLogSize", program, size);
}
EXPORT int nvrtcGetProgramLog(Program program, char* log) {
  return Forward("nvrtcGetProgramLog", program, log);
}
EXPORT int nvrtcGetPTXSize(Program program, size_t* size) {
  return Forward("nvrtcGetPTXSize", program, size);
}
EXPORT int nvrtcGetPTX(Program program, char* ptx) { return Forward("nvrtcGetPTX", program, ptx); }
EXPORT int nvrtcGetCUBINSize(Program program, size_t* size) {
  return Forward("nvrtcGetPTXSize", program, size);
}
EXPORT int nvrtcGetCUBIN(Program program, char* cubin) {
  return Forward("nvrtcGetPTX", program, cubin);
}
