// Tile IR → LLVM IR: one kernel becomes one module with one function
//
//   void <name>(void** args, const int64_t* grid, int64_t block_begin, int64_t block_end)
//
// that runs the blocks [block_begin, block_end) of the grid, numbered x fastest. args[i] points at
// the bytes of the i-th argument, as cuLaunchKernel takes them; grid points at the extents of x, y
// and z. The runtime gives each thread its own range. Called by runtime/cpu; emission decides
// nothing but spelling.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ir/base/result.h"
#include "ir/tile/tile.h"

namespace llvm {
class LLVMContext;
class Module;
}  // namespace llvm

namespace kiln::llvm_codegen {

// A vector form of a libm function that the process can link: `vector` computes `lanes` values of
// `scalar` at once, named and called as the x86-64 vector function ABI says (_ZGVdN8v_expf).
struct VectorFunction {
  std::string scalar;
  std::string vector;
  int lanes = 0;
};

struct EmitOptions {
  bool native_half = false;  // the target converts half <-> float in hardware (F16C, AArch64)
  std::vector<VectorFunction> vector_functions;
};

// The symbol of `void* (int64_t bytes)`, which the process must provide: a 64-byte aligned buffer
// of the calling thread, valid until its next call. Kernels whose buffers are too large for a stack
// ask for one.
inline constexpr char kScratchSymbol[] = "kiln_cpu_scratch";

// Fails with a sentence on what a CPU kernel cannot hold: barriers and shuffles (the threads of a
// block run one after another here), and operations that their type does not have. `kernel` has
// passed tile::Verify.
Result<std::unique_ptr<llvm::Module>> Emit(const tile::Kernel& kernel, llvm::LLVMContext& context,
                                           const EmitOptions& options);

}  // namespace kiln::llvm_codegen
