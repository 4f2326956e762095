// The just-in-time compiler: tile kernels → object files → functions in this process. Its header is
// free of LLVM; the object file between the two steps is what the kernel cache keeps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ir/base/result.h"
#include "ir/tile/tile.h"

namespace kiln::runtime {

using CpuFunction = void (*)(void** args, const int64_t* grid, int64_t block_begin,
                             int64_t block_end);

class Jit : public std::enable_shared_from_this<Jit> {
 public:
  // The code of one object, unmapped with the last reference to it.
  class Code {
   public:
    virtual ~Code() = default;
    CpuFunction function() const { return function_; }

   protected:
    CpuFunction function_ = nullptr;
  };

  struct Options {  // false: do without what the host has, for tests of the general way
    bool use_native_half = true;
    bool use_vector_math = true;
  };
  static Result<std::shared_ptr<Jit>> Create(const Options& options);
  ~Jit();

  // The parts of an object's cache key besides its kernel: LLVM's version, the processor and its
  // features, and the vector functions that were found.
  const std::string& compiler() const { return compiler_; }
  const std::string& processor() const { return processor_; }
  const std::string& vector_functions() const { return vector_functions_; }

  // These calls are safe from many threads.
  Result<std::string> CompileObject(const tile::Kernel& kernel) const;
  Result<std::string> OptimizedText(const tile::Kernel& kernel) const;
  Result<std::shared_ptr<Code>> Link(const std::string& object, const std::string& entry);

 private:
  struct Impl;  // jit.cc: the LLVM side
  Jit();

  std::unique_ptr<Impl> impl_;
  std::string compiler_, processor_, vector_functions_;
};

}  // namespace kiln::runtime
