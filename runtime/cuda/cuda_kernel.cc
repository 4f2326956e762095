#include "runtime/cuda/cuda_kernel.h"

#include <algorithm>

namespace kiln::runtime {

Result<FunctionInContext> CudaKernel::In(const ContextRef& context) const {
  // The lock makes one module of a kernel that two threads load at once.
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(functions_, context, &FunctionInContext::context);
  if (known != functions_.end()) {
    std::rotate(known, known + 1, functions_.end());
    PutFirst(functions_.back());
    return functions_.back();
  }
  ASSIGN_OR_RETURN(const FunctionInContext made, LoadAnew(context));
  Keep(made);
  return made;
}

Result<FunctionInContext> CudaKernel::LoadAnew(const ContextRef& context) const {
  FunctionInContext made{.context = context};
  RETURN_IF_ERROR(LoadModule(made).Within(fmt::format("kernel {} ({})", entry_, arch_)));
  return made;
}

void CudaKernel::Replace(const FunctionInContext& function) const {
  const std::lock_guard lock(mutex_);
  Keep(function);
}

void CudaKernel::Keep(const FunctionInContext& function) const {
  // A context at the address of another one comes after its end.
  std::erase_if(functions_, [&](const FunctionInContext& known) {
    return known.context.handle == function.context.handle;
  });
  if (functions_.size() == kMostContexts) functions_.erase(functions_.begin());
  functions_.push_back(function);
  PutFirst(function);
}

void CudaKernel::PutFirst(const FunctionInContext& function) const {
  last_id_.store(0, std::memory_order_release);
  last_function_.store(function.function, std::memory_order_release);
  last_id_.store(function.context.id, std::memory_order_release);
}

std::optional<FunctionInContext> CudaKernel::Find(CuFunction function) const {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(functions_, function, &FunctionInContext::function);
  if (known == functions_.end()) return std::nullopt;
  return *known;
}

size_t CudaKernel::contexts() const {
  const std::lock_guard lock(mutex_);
  return functions_.size();
}

Status CudaKernel::LoadModule(FunctionInContext& made) const {
  const ContextScope scope(driver_, made.context.handle);
  RETURN_IF_ERROR(driver_.Check(scope.result(), "cuCtxPushCurrent"));
  std::optional<RelaxedCapture> relaxed;
  if (!target_.minimal_launch) relaxed.emplace(driver_);

  const CuResult result = driver_.ModuleLoadData(&made.module, cubin_->data());
  if (result == kCuErrorNoBinaryForGpu) {
    return Status::Error(Code::kArchMismatch, "{} ({}) does not run this code: {}", target_.name,
                         target_.arch, driver_.Describe(result));
  }
  RETURN_IF_ERROR(driver_.Check(result, "cuModuleLoadData"));
  RETURN_IF_ERROR(
      driver_.Check(driver_.ModuleGetFunction(&made.function, made.module, entry_.c_str()),
                    "cuModuleGetFunction"));
  if (target_.minimal_launch) return {};
  // Under lazy loading the code would reach the GPU at the first launch, which may be inside a
  // capture.
  if (driver_.FuncLoad != nullptr)
    RETURN_IF_ERROR(driver_.Check(driver_.FuncLoad(made.function), "cuFuncLoad"));
  AllowLargeLaunches(made.function);
  return {};
}

// Dynamic shared memory above 48 KB and clusters of more than 8 blocks have to be allowed for the
// function, once; launching then needs no more than the numbers. A failure shows itself at the
// launch that asks for too much.
void CudaKernel::AllowLargeLaunches(CuFunction function) const {
  int static_bytes = 0;
  if (driver_.FuncGetAttribute(&static_bytes, CuFunctionAttribute::kSharedSizeBytes, function) !=
      kCuSuccess)
    return;
  const int dynamic_bytes = static_cast<int>(target_.shared_bytes_per_block) - static_bytes;
  driver_.FuncSetAttribute(function, CuFunctionAttribute::kMaxDynamicSharedSizeBytes,
                           dynamic_bytes);
  if (target_.sm_version >= 90)
    driver_.FuncSetAttribute(function, CuFunctionAttribute::kNonPortableClusterSizeAllowed, 1);
}

}  // namespace kiln::runtime
