// The words in which kernels say that they waited too long for another device, one for each
// context: pinned host memory, which dies with its context. Used by the CUDA device alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "ir/base/result.h"
#include "runtime/cuda/cuda_context.h"

namespace kiln::runtime {

class FaultWords {
 public:
  FaultWords(const Driver& driver, const ContextPicker& contexts)
      : driver_(driver), contexts_(contexts) {}

  // The context's word, which is allocated at its first call.
  Result<int32_t*> In(const ContextRef& context);
  // Takes the fault out of a word of a living context; 0 where there is none. One atomic load where
  // there are no words.
  int32_t Take();

 private:
  struct Word {
    ContextRef context;
    int32_t* at;
  };

  const Driver& driver_;
  const ContextPicker& contexts_;
  std::atomic<bool> has_any_ = false;
  std::mutex mutex_;
  std::vector<Word> words_;
};

}  // namespace kiln::runtime
