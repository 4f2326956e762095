// Symbols of this process that generated code may call. They are resolved from our own address
// space and not by name at run time: a plug-in that was opened RTLD_LOCAL may be the only one that
// has libm.
#pragma once

#include <span>
#include <vector>

#include "codegen/llvm/emit.h"

namespace kiln::runtime {

struct HostSymbol {
  const char* name;
  void* address;
};

// The functions of libm, the memory functions that LLVM calls on its own, and the scratch buffer.
std::span<const HostSymbol> HostSymbols();

// The vector functions of glibc's libmvec that this machine and its processor have; empty without
// them. The addresses of the symbols stand beside them, in the same order.
struct VectorMath {
  std::vector<llvm_codegen::VectorFunction> functions;
  std::vector<void*> addresses;
};
VectorMath FindVectorMath(bool avx2, bool avx512f);

}  // namespace kiln::runtime
