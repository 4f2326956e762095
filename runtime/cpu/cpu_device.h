// The CPU as a Device: tile IR text is parsed, verified, compiled through the kernel cache and
// linked; a launch shares its blocks out over a thread pool and returns when they are done (the
// stream is ignored). Lives in the plug-in libkiln_cpu.so (plugin.cc), which alone links LLVM.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "ir/base/hash.h"
#include "runtime/cache/kernel_cache.h"
#include "runtime/cpu/jit.h"
#include "runtime/cpu/thread_pool.h"
#include "runtime/device.h"

namespace kiln::runtime {

class CpuKernel;

class CpuDevice final : public Device {
 public:
  struct Options {
    int threads = 0;  // 0: one for each core
    KernelCache::Options cache;
    Jit::Options jit;
  };
  static Options OptionsFromEnv();  // KILN_CPU_THREADS and the kernel cache's
  static Result<std::unique_ptr<CpuDevice>> Create(const Options& options);

  const Target& target() const override { return target_; }
  Result<std::shared_ptr<LoadedKernel>> Load(const KernelSource& source) override;
  Status Launch(const LoadedKernel& kernel, const LaunchShape& shape, void** args,
                Stream stream) override;

  Result<void*> Allocate(int64_t bytes) override;
  void Free(void* pointer) override;
  Status CopyIn(void* device, const void* host, int64_t bytes) override;
  Status CopyOut(void* host, const void* device, int64_t bytes) override;
  Status CopyWithin(void* to, const void* from, int64_t bytes) override;
  Status Fill(void* device, std::byte value, int64_t bytes) override;
  Status Synchronize(Stream) override { return {}; }
  // Measures by wall clock, after one call that warms up.
  Result<double> Measure(std::function<Status()> run, int repeats, Stream stream) override;

  // The optimised LLVM IR of a kernel, for `kiln dump --what llvm`.
  Result<std::string> LlvmText(const std::string& tile_text) const;

  // The number of kernels that were compiled, since they were in neither cache.
  int64_t compiles() const { return compiles_.load(); }

 private:
  // One source's place in the table. Load holds its mutex, so that others wait for the outcome.
  struct Slot {
    std::mutex mutex;
    std::weak_ptr<CpuKernel> kernel;
  };

  CpuDevice(const Options& options, std::shared_ptr<Jit> jit);
  Result<std::shared_ptr<CpuKernel>> CompileAndLink(const KernelSource& source);
  CacheRequest RequestFor(const KernelSource& source) const;

  Target target_;
  std::shared_ptr<Jit> jit_;
  KernelCache cache_;
  ThreadPool& pool_;
  std::atomic<int64_t> compiles_{0};
  std::mutex mutex_;  // guards slots_
  std::map<Hash128, std::shared_ptr<Slot>> slots_;
};

}  // namespace kiln::runtime
