// NVRTC by dlopen: CUDA C++ text to a cubin, or to PTX for people. Searched for as
//
//   KILN_NVRTC; libnvrtc.so.{13,12} and libnvrtc.so by the loader; /usr/local/cuda*/lib64;
//   the nvidia/*/lib folders of the Python environments of the running user (PyPI wheels)
//
// The text is self-contained: no header is found, neither of CUDA nor of the machine. Called by
// CudaCompiler.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/base/result.h"
#include "ir/program.h"

namespace kiln::runtime {

enum class NvrtcOutput : uint8_t { kCubin, kPtx };

struct NvrtcResult {
  std::string bytes;
  std::string log;  // warnings of the front end and of ptxas, with <entry>.cu(line)
};

class Nvrtc {
 public:
  // Opens `path` alone where it is not empty, else follows the search above. A driver of
  // `driver_version` (13000 is 13.0; 0: unknown) loads cubins of its own major version and older,
  // so such an NVRTC is tried first.
  static Result<std::unique_ptr<Nvrtc>> Open(const std::string& path, int driver_version);
  ~Nvrtc();

  // Opens the same library once more in this process, with variables and locks of its own (see
  // NvrtcPair). An error where the system allows no copy of a file in memory to be loaded.
  Result<std::unique_ptr<Nvrtc>> OpenCopy() const;

  // The options every kernel is compiled with, after the architecture; part of the cache key.
  static std::span<const char* const> Options();

  // Compiles one source. An arch that this NVRTC does not know is an error that lists those it
  // does.
  Result<NvrtcResult> Compile(const KernelSource& source, NvrtcOutput output,
                              std::span<const std::string> extra_options = {}) const;

  const std::string& path() const { return path_; }
  int major() const { return major_; }
  int minor() const { return minor_; }
  std::vector<int> SupportedArchs() const;  // 75, 80, …; empty where it cannot be asked

 private:
  struct Functions;
  struct Program;

  Nvrtc();
  Status Bind(const class DynamicLibrary& library);
  void LoadBuiltins() const;
  Status CheckArch(const std::string& arch) const;
  std::string ReadLog(const Program& program) const;

  std::unique_ptr<Functions> functions_;
  std::string path_;
  int major_ = 0, minor_ = 0;
};

// The NVRTC of this process (KILN_NVRTC), loaded at the first call.
Result<const Nvrtc*> ProcessNvrtc();
// True if ProcessNvrtc has been called and has found one.
bool ProcessNvrtcIsLoaded();

}  // namespace kiln::runtime
