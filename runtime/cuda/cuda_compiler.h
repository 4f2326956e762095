// CUDA text to cubin through the kernel cache. A kernel that is on disk or in a pack needs no
// NVRTC: loading that library costs milliseconds, and a machine that restores plans may have none.
// So the identity of the NVRTC last used is remembered beside the kernels (compilers.txt) and
// believed while its file is unchanged.
//
// Called by CudaDevice, and directly for GPUs that are not here (`kiln dump --arch`, tests).
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ir/base/result.h"
#include "ir/program.h"
#include "runtime/cache/kernel_cache.h"
#include "runtime/cuda/nvrtc.h"

namespace kiln::runtime {

class CudaCompiler {
 public:
  explicit CudaCompiler(KernelCache& cache) : cache_(cache) {}

  // `source.arch` names a real architecture, "sm_90a".
  Result<CachedKernel> Compile(const KernelSource& source);
  // Runs the compiler once in this process, on this thread. Its first run leaves handlers for exit,
  // and threads that compile have to end before these run.
  void Start(const std::string& arch);
  // The kernel from memory, disk or a pack alone.
  std::optional<CachedKernel> Find(const KernelSource& source);
  // Seconds that one kernel takes to compile, about: a running mean over those of this process that
  // had the compiler to themselves, since others wait for one another, or that took less than the
  // mean.
  double seconds_per_kernel() const { return seconds_per_kernel_.load(); }

 private:
  Result<std::string> LoadedIdentity();
  std::string BelievedIdentity();

  Result<NvrtcResult> CompileAndTime(const KernelSource& source);

  KernelCache& cache_;
  std::atomic<double> seconds_per_kernel_ = 0.2;
  std::atomic<int> compiling_ = 0;
  std::atomic<bool> has_run_ = false;
  std::atomic<int64_t> begun_ = 0;
  std::mutex mutex_;
  std::string identity_;  // of the loaded NVRTC, or one that is believed; empty: not known yet
  bool is_loaded_ = false;
};

// The cache's request for the cubin of `source` that `compiler` (compiler_memo.h) makes.
CacheRequest CubinRequest(const KernelSource& source, const std::string& compiler);

// The compiler over the cache that the environment names; lives as long as the process.
CudaCompiler& ProcessCudaCompiler();
KernelCache& ProcessKernelCache();

// The cubin for any architecture that NVRTC knows, with or without a GPU.
Result<std::string> CompileOnly(const KernelSource& source);

}  // namespace kiln::runtime
