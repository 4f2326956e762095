// The machine that this process runs on, as LLVM sees it, and the way from a module to native code.
#pragma once

#include <memory>
#include <string>

#include "ir/base/result.h"

namespace llvm {
class Module;
class TargetMachine;
}  // namespace llvm

namespace kiln::llvm_codegen {

struct HostDescription {
  std::string triple;
  std::string cpu;       // LLVM's name: znver4, sapphirerapids …
  std::string features;  // "+avx2,-avx512f,…", sorted
};

Result<HostDescription> DescribeHost();
bool HasFeature(const HostDescription& host, const std::string& feature);

// Makes a machine, which serves one thread at a time.
Result<std::unique_ptr<llvm::TargetMachine>> MakeTargetMachine(const HostDescription& host);

// Runs the O3 pipeline with loop and SLP vectorisation.
void Optimize(llvm::Module& module, llvm::TargetMachine& machine);

// The bytes of a relocatable object file.
Result<std::string> EmitObject(llvm::Module& module, llvm::TargetMachine& machine);

}  // namespace kiln::llvm_codegen
