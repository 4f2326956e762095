// ORC's side of the CPU target: one session, one JITDylib a kernel. The only file of runtime/ that
// includes LLVM.
#include "runtime/cpu/jit.h"

#include <llvm/Config/llvm-config.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/DiagnosticHandler.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include <atomic>

#include "codegen/llvm/emit.h"
#include "codegen/llvm/target.h"
#include "ir/base/log.h"
#include "runtime/cpu/host_symbols.h"

namespace kiln::runtime {
namespace {

// LLVM speaks to stderr unless someone listens: "loop not vectorized" is worth a line to those who
// ask.
class LogDiagnostics final : public llvm::DiagnosticHandler {
 public:
  explicit LogDiagnostics(std::string kernel) : kernel_(std::move(kernel)) {}

  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (!LogEnabled(Severity::kDebug)) return true;
    std::string text;
    llvm::raw_string_ostream stream(text);
    llvm::DiagnosticPrinterRawOStream printer(stream);
    info.print(printer);
    LOG(kDebug, "{}: {}", kernel_, text);
    return true;
  }

 private:
  std::string kernel_;
};

Status FromLlvm(llvm::Error error, std::string_view what) {
  return Status::Error(Code::kCompilationFailed, "{}: {}", what, llvm::toString(std::move(error)));
}

}  // namespace

struct Jit::Impl {
  llvm_codegen::HostDescription host;
  llvm_codegen::EmitOptions options;
  std::unique_ptr<llvm::orc::LLJIT> orc;
  llvm::orc::JITDylib* symbols = nullptr;  // what kernels may call
  std::atomic<int64_t> dylibs{0};

  Status DefineSymbols(const VectorMath& vector_math);
  Result<std::unique_ptr<llvm::Module>> Optimized(const tile::Kernel& kernel,
                                                  llvm::LLVMContext& context,
                                                  llvm::TargetMachine& machine) const;
};

namespace {

class LinkedCode final : public Jit::Code {
 public:
  LinkedCode(std::shared_ptr<Jit> jit, llvm::orc::LLJIT& orc, llvm::orc::JITDylib& dylib,
             CpuFunction function)
      : jit_(std::move(jit)), orc_(orc), dylib_(&dylib) {
    function_ = function;
  }

  ~LinkedCode() override {
    if (llvm::Error error = orc_.getExecutionSession().removeJITDylib(*dylib_)) {
      LOG(kWarn, "a CPU kernel's code was not freed: {}", llvm::toString(std::move(error)));
    }
  }

 private:
  std::shared_ptr<Jit> jit_;  // keeps orc_ alive
  llvm::orc::LLJIT& orc_;
  llvm::orc::JITDylibSP dylib_;
};

}  // namespace

Jit::Jit() : impl_(std::make_unique<Impl>()) {}
Jit::~Jit() = default;

Result<std::shared_ptr<Jit>> Jit::Create(const Options& options) {
  std::shared_ptr<Jit> jit(new Jit());
  Impl& impl = *jit->impl_;
  ASSIGN_OR_RETURN(impl.host, llvm_codegen::DescribeHost());
  const llvm_codegen::HostDescription& host = impl.host;
  VectorMath vector_math;
  if (options.use_vector_math) {
    vector_math = FindVectorMath(llvm_codegen::HasFeature(host, "avx2"),
                                 llvm_codegen::HasFeature(host, "avx512f"));
  }
  impl.options.vector_functions = vector_math.functions;
  impl.options.native_half = options.use_native_half && (llvm_codegen::HasFeature(host, "f16c") ||
                                                         host.triple.starts_with("aarch64"));

  auto orc = llvm::orc::LLJITBuilder().create();
  if (!orc) return FromLlvm(orc.takeError(), "LLVM's just-in-time compiler does not start");
  impl.orc = std::move(*orc);
  RETURN_IF_ERROR(impl.DefineSymbols(vector_math));

  jit->compiler_ = "LLVM " LLVM_VERSION_STRING;
  jit->processor_ = fmt::format("{} {} {}", host.triple, host.cpu, host.features);
  for (const llvm_codegen::VectorFunction& f : vector_math.functions)
    jit->vector_functions_ += f.vector + " ";
  return jit;
}

Status Jit::Impl::DefineSymbols(const VectorMath& vector_math) {
  symbols = &orc->getExecutionSession().createBareJITDylib("<host>");
  llvm::orc::SymbolMap map;
  const auto add = [&](llvm::StringRef name, void* address) {
    map[orc->mangleAndIntern(name)] = {
        llvm::orc::ExecutorAddr::fromPtr(address),
        llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  };
  for (const HostSymbol& symbol : HostSymbols()) add(symbol.name, symbol.address);
  for (size_t i = 0; i < vector_math.functions.size(); ++i)
    add(vector_math.functions[i].vector, vector_math.addresses[i]);
  if (llvm::Error error = symbols->define(llvm::orc::absoluteSymbols(std::move(map)))) {
    return FromLlvm(std::move(error), "the host's symbols");
  }
  return {};
}

Result<std::unique_ptr<llvm::Module>> Jit::Impl::Optimized(const tile::Kernel& kernel,
                                                           llvm::LLVMContext& context,
                                                           llvm::TargetMachine& machine) const {
  context.setDiagnosticHandler(std::make_unique<LogDiagnostics>(kernel.name));
  ASSIGN_OR_RETURN(std::unique_ptr<llvm::Module> module,
                   llvm_codegen::Emit(kernel, context, options));
  llvm_codegen::Optimize(*module, machine);
  return module;
}

Result<std::string> Jit::CompileObject(const tile::Kernel& kernel) const {
  llvm::LLVMContext context;
  ASSIGN_OR_RETURN(std::unique_ptr<llvm::TargetMachine> machine,
                   llvm_codegen::MakeTargetMachine(impl_->host));
  ASSIGN_OR_RETURN(std::unique_ptr<llvm::Module> module,
                   impl_->Optimized(kernel, context, *machine));
  return llvm_codegen::EmitObject(*module, *machine);
}

Result<std::string> Jit::OptimizedText(const tile::Kernel& kernel) const {
  llvm::LLVMContext context;
  ASSIGN_OR_RETURN(std::unique_ptr<llvm::TargetMachine> machine,
                   llvm_codegen::MakeTargetMachine(impl_->host));
  ASSIGN_OR_RETURN(std::unique_ptr<llvm::Module> module,
                   impl_->Optimized(kernel, context, *machine));
  std::string text;
  llvm::raw_string_ostream stream(text);
  module->print(stream, nullptr);
  return text;
}

Result<std::shared_ptr<Jit::Code>> Jit::Link(const std::string& object, const std::string& entry) {
  llvm::orc::LLJIT& orc = *impl_->orc;
  // Names of dylibs are unique in a session, those of kernels are not: one may be loaded twice.
  llvm::orc::JITDylib& dylib = orc.getExecutionSession().createBareJITDylib(
      fmt::format("{}#{}", entry, impl_->dylibs.fetch_add(1)));
  dylib.addToLinkOrder(*impl_->symbols);
  const auto discard = [&](llvm::Error error) {
    Status status = FromLlvm(std::move(error), entry);
    llvm::consumeError(orc.getExecutionSession().removeJITDylib(dylib));
    return status;
  };
  if (llvm::Error error =
          orc.addObjectFile(dylib, llvm::MemoryBuffer::getMemBufferCopy(object, entry))) {
    return discard(std::move(error));
  }
  llvm::Expected<llvm::orc::ExecutorAddr> address = orc.lookup(dylib, entry);
  if (!address) return discard(address.takeError());
  return std::shared_ptr<Code>(
      std::make_shared<LinkedCode>(shared_from_this(), orc, dylib, address->toPtr<CpuFunction>()));
}

}  // namespace kiln::runtime
