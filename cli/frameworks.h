// Frameworks that call cuDNN, as facts: which of their objects ask for libcudnn, and what their
// Python opens by path before or after. A fact that not every release has names the text in the
// installed source by which it is seen. Read by `kiln doctor` (clients.h).
#pragma once

#include <cstdint>
#include <span>

namespace kiln::cli {

// The place where a framework's Python looks for a file of its own accord.
enum class PathSource : uint8_t {
  kNone,
  kWheel,        // nvidia/cudnn/lib of the wheels nvidia-cudnn-cu12 and -cu13
  kJitWheel,     // nvidia/cudnn_jit/lib
  kLibraryPath,  // libcudnn.so.9 or libcudnn.so in the folders of LD_LIBRARY_PATH
  kCudnnHome,    // anywhere below $CUDNN_HOME or $CUDNN_PATH
  kCudaHome,     // anywhere below $CUDA_HOME, $CUDA_PATH or /usr/local/cuda
  kCupyFolder,   // $CUPY_CUDA_LIB_PATH or ~/.cupy/cuda_lib
  kByName,       // libcudnn.so, by ld.so
};

enum class OpensWhen : uint8_t {
  kFirst,    // before its objects ask; they are given what is loaded then
  kBinds,    // first, and functions are taken from that very file, whatever else is loaded
  kIfNone,   // where ld.so has found nothing
  kIfAsked,  // where the program calls for it
};

struct OpensByPath {
  const char* file = nullptr;  // of the site; a pattern
  const char* text = nullptr;  // what stands there in a release that does it
  OpensWhen when = OpensWhen::kFirst;
  PathSource sources[4] = {};
  const char* by = nullptr;  // who does it: "jax_plugins"
};

struct Framework {
  const char* name;
  const char* distributions[4];  // the first that is there gives the version
  const char* objects[3];        // in the order in which they are loaded; patterns
  const char* loaders[4];        // what loads those, from the nearest; patterns
  const char* opens;             // by dlopen, where none of the objects has a DT_NEEDED; or null
  const char* opened_since;      // releases before this open cuDNN 8; null for none
  OpensByPath by_path[3];        // the first whose text is found counts
};

std::span<const Framework> Frameworks();

}  // namespace kiln::cli
