// CudaKernel: a kernel on one GPU, loaded in each context that it is launched in. Programs reset
// devices and make contexts of their own, while plans and caches hold kernels for as long as the
// process: so a kernel keeps its cubin and loads it where it is launched.
//
//   entry, cubin ─┬─ context 1: module, function      looked at first: the last one, without a lock
//                 └─ context 7: module, function
//
// Modules end with their context. What was loaded in one that died is forgotten, not unloaded.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ir/target.h"
#include "runtime/cuda/cuda_context.h"
#include "runtime/device.h"

namespace kiln::runtime {

// A kernel's function in a context.
struct FunctionInContext {
  ContextRef context;
  CuModule module = nullptr;
  CuFunction function = nullptr;
};

class CudaKernel final : public LoadedKernel {
 public:
  // A limit above the number of contexts that a program uses side by side. Beyond it, the one that
  // was used longest ago is forgotten; its module stays until its context ends.
  static constexpr size_t kMostContexts = 16;

  // `arch` is the cubin's, for sentences. `driver` and `target` must outlive the kernel.
  CudaKernel(const Driver& driver, const Target& target, std::string entry, std::string arch,
             std::shared_ptr<const std::string> cubin)
      : driver_(driver),
        target_(target),
        entry_(std::move(entry)),
        arch_(std::move(arch)),
        cubin_(std::move(cubin)) {}

  const std::string& entry() const { return entry_; }

  // The function, if `context_id` is the context that was asked for last; else null. Costs three
  // loads.
  CuFunction LastIn(uint64_t context_id) const {
    if (context_id == 0 || last_id_.load(std::memory_order_acquire) != context_id) return nullptr;
    const CuFunction function = last_function_.load(std::memory_order_acquire);
    return last_id_.load(std::memory_order_acquire) == context_id ? function : nullptr;
  }
  // The function in a living context, loaded where it is not there yet.
  Result<FunctionInContext> In(const ContextRef& context) const;
  // Loads the function once more, whatever is there: drivers without ids do not tell a context from
  // its successor at the same address.
  Result<FunctionInContext> LoadAnew(const ContextRef& context) const;
  // Keeps what LoadAnew brought in the place of what was there.
  void Replace(const FunctionInContext& function) const;
  // The context and module of `function`; nothing if it is none of this kernel's.
  std::optional<FunctionInContext> Find(CuFunction function) const;
  size_t contexts() const;

 private:
  void Keep(const FunctionInContext& function) const;  // under mutex_
  void PutFirst(const FunctionInContext& function) const;
  Status LoadModule(FunctionInContext& made) const;
  void AllowLargeLaunches(CuFunction function) const;

  const Driver& driver_;
  const Target& target_;
  const std::string entry_, arch_;
  const std::shared_ptr<const std::string> cubin_;
  // Written under mutex_, the id first as 0: a reader that meets a change sees another id.
  mutable std::atomic<uint64_t> last_id_ = 0;
  mutable std::atomic<CuFunction> last_function_ = nullptr;
  mutable std::mutex mutex_;                          // guards what follows, and loading
  mutable std::vector<FunctionInContext> functions_;  // the last used at the end
};

}  // namespace kiln::runtime
