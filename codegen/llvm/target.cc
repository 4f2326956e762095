// The host's target machine, the O3 pipeline, and object emission; called by runtime/cpu for every
// kernel that the cache does not have.
#include "codegen/llvm/target.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>

#include <map>
#include <mutex>

namespace kiln::llvm_codegen {

Result<HostDescription> DescribeHost() {
  static std::once_flag once;
  static bool missing = false;
  std::call_once(once, [] {
    missing = llvm::InitializeNativeTarget() || llvm::InitializeNativeTargetAsmPrinter();
  });
  if (missing)
    return Status::Error(Code::kNotSupported,
                         "this build of LLVM has no code generator for the host");

  HostDescription host{.triple = llvm::sys::getProcessTriple(),
                       .cpu = llvm::sys::getHostCPUName().str(),
                       .features = {}};
  std::map<std::string, bool> sorted;
  for (const auto& feature : llvm::sys::getHostCPUFeatures())
    sorted[feature.getKey().str()] = feature.getValue();
  for (const auto& [name, present] : sorted) {
    host.features += (host.features.empty() ? "" : ",") + std::string(present ? "+" : "-") + name;
  }
  return host;
}

bool HasFeature(const HostDescription& host, const std::string& feature) {
  return ("," + host.features + ",").find(",+" + feature + ",") != std::string::npos;
}

Result<std::unique_ptr<llvm::TargetMachine>> MakeTargetMachine(const HostDescription& host) {
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(host.triple, error);
  if (!target)
    return Status::Error(Code::kNotSupported, "LLVM has no target {}: {}", host.triple, error);
  std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
      host.triple, host.cpu, host.features, llvm::TargetOptions(), llvm::Reloc::PIC_, std::nullopt,
      llvm::CodeGenOptLevel::Aggressive, /*JIT=*/true));
  if (!machine)
    return Status::Error(Code::kNotSupported, "LLVM cannot generate code for {}", host.triple);
  return machine;
}

void Optimize(llvm::Module& module, llvm::TargetMachine& machine) {
  module.setTargetTriple(machine.getTargetTriple().str());
  module.setDataLayout(machine.createDataLayout());

  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = tuning.SLPVectorization = true;
  // Engines write tiles of registers as they want them, so that more copies of a loop's body bring
  // no speed, and a fifth of the time to compile is theirs.
  tuning.LoopInterleaving = tuning.LoopUnrolling = false;
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3).run(module, modules);
}

Result<std::string> EmitObject(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile)) {
    return Status::Error(Code::kCompilationFailed, "LLVM cannot emit an object file for {}",
                         machine.getTargetTriple().str());
  }
  passes.run(module);
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace kiln::llvm_codegen
