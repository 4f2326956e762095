#include "runtime/cuda/fault_words.h"

#include <algorithm>

namespace kiln::runtime {

Result<int32_t*> FaultWords::In(const ContextRef& context) {
  const std::lock_guard lock(mutex_);
  if (const auto found = std::ranges::find(words_, context, &Word::context); found != words_.end())
    return found->at;
  // Without ids a word of a context that was reset could not be told from one that lives.
  if (driver_.MemAllocHost == nullptr || !contexts_.has_ids())
    return Status::Text(Code::kNotSupported,
                        "waiting for other devices needs a driver of CUDA 12: cuMemAllocHost and "
                        "cuCtxGetId");
  std::erase_if(words_, [&](const Word& word) { return !contexts_.IsAlive(word.context); });
  const ContextScope scope(driver_, context.handle);
  RETURN_IF_ERROR(driver_.Check(scope.result(), "cuCtxPushCurrent"));
  const RelaxedCapture relaxed(driver_);
  void* memory = nullptr;
  RETURN_IF_ERROR(driver_.Check(driver_.MemAllocHost(&memory, sizeof(int32_t)), "cuMemAllocHost"));
  auto* const word = static_cast<int32_t*>(memory);
  *word = 0;
  words_.push_back({.context = context, .at = word});
  has_any_.store(true, std::memory_order_release);
  return word;
}

int32_t FaultWords::Take() {
  if (!has_any_.load(std::memory_order_acquire)) [[likely]]
    return 0;
  const std::lock_guard lock(mutex_);
  for (const Word& word : words_) {
    if (!contexts_.IsAlive(word.context)) continue;
    if (const int32_t fault = std::atomic_ref(*word.at).exchange(0); fault != 0) return fault;
  }
  return 0;
}

}  // namespace kiln::runtime
