// Compiling through the cache; see cuda_compiler.h.
#include "runtime/cuda/cuda_compiler.h"

#include <chrono>
#include <cmath>

#include "ir/base/env.h"
#include "ir/base/log.h"
#include "runtime/cuda/compiler_memo.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/nvrtc_pair.h"

namespace kiln::runtime {
namespace {

// Bumped when this file compiles the same text to something else. Kiln's own build id is no part of
// the key: the text is self-contained and says all, so that libcudnn.so.8, libcudnn.so.9 and the
// CLI share kernels.
constexpr const char* kLibrary = "kiln cuda 1";

CompilerChoice ThisProcessChoice() {
  auto driver = ProcessDriver();
  return {.requested = GetEnv(Env::kNvrtcPath),
          .driver_major = driver.ok() ? (*driver)->version / 1000 : 0};
}

}  // namespace

CacheRequest CubinRequest(const KernelSource& source, const std::string& compiler) {
  std::string options;
  for (const char* option : Nvrtc::Options())
    options += fmt::format("{}{}", options.empty() ? "" : " ", option);
  CacheRequest request;
  request.fields = {{"library", kLibrary},
                    {kCompilerField, compiler},
                    {"arch", source.arch},
                    {"options", options},
                    {"entry", source.entry}};
  request.source = source.text;
  return request;
}

Result<CachedKernel> CudaCompiler::Compile(const KernelSource& source) {
  if (source.kind != SourceKind::kCuda) {
    return Status::Error(Code::kNotSupported,
                         "kernel {} is tile IR, which only the CPU device compiles", source.entry);
  }
  if (auto found = Find(source)) return *std::move(found);
  ASSIGN_OR_RETURN(const std::string identity, LoadedIdentity());
  return cache_.Get(CubinRequest(source, identity), [&]() -> Result<std::string> {
    ASSIGN_OR_RETURN(NvrtcResult result, CompileAndTime(source));
    if (!result.log.empty()) LOG(kInfo, "{}.cu for {}:\n{}", source.entry, source.arch, result.log);
    return std::move(result.bytes);
  });
}

void CudaCompiler::Start(const std::string& arch) {
  if (has_run_) return;
  const Result<NvrtcPair*> compilers = ProcessNvrtcPair();
  if (!compilers.ok()) return;  // who compiles says so
  (void)(*compilers)
      ->Compile(
          {.entry = "nothing", .text = "extern \"C\" __global__ void nothing() {}\n", .arch = arch},
          NvrtcOutput::kCubin);
  has_run_ = true;
}

Result<NvrtcResult> CudaCompiler::CompileAndTime(const KernelSource& source) {
  ASSIGN_OR_RETURN(NvrtcPair * compilers, ProcessNvrtcPair());
  const int64_t turn = ++begun_;
  const bool begins_alone = compiling_++ == 0;
  const auto begin = std::chrono::steady_clock::now();
  Result<NvrtcResult> result = compilers->Compile(source, NvrtcOutput::kCubin);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  --compiling_;
  has_run_ = true;
  LOG(kDebug, "compiled {} in {:.2f} s", source.entry, took.count());
  constexpr double kWeightOfOne = 0.2;
  const bool was_alone = begins_alone && begun_ == turn;
  if (was_alone || took.count() < seconds_per_kernel_)
    seconds_per_kernel_ = std::lerp(seconds_per_kernel_.load(), took.count(), kWeightOfOne);
  return result;
}

std::optional<CachedKernel> CudaCompiler::Find(const KernelSource& source) {
  if (std::string believed = BelievedIdentity(); !believed.empty()) {
    if (auto found = cache_.Find(CubinRequest(source, believed))) return found;
  }
  // Before NVRTC is loaded, to say who it is.
  if (auto found = cache_.FindInPacks(CubinRequest(source, ""), ThisProcessChoice().driver_major))
    return found;
  if (auto identity = LoadedIdentity(); identity.ok())
    return cache_.Find(CubinRequest(source, *identity));
  // A cubin is good whoever made it.
  for (const std::string& known : KnownCompilers(cache_.disk().directory())) {
    if (auto found = cache_.Find(CubinRequest(source, known))) return found;
  }
  return std::nullopt;
}

std::string CudaCompiler::BelievedIdentity() {
  std::lock_guard lock(mutex_);
  if (identity_.empty() && cache_.disk().usable()) {
    identity_ = BelievedCompiler(cache_.disk().directory(), ThisProcessChoice());
  }
  return identity_;
}

Result<std::string> CudaCompiler::LoadedIdentity() {
  std::lock_guard lock(mutex_);
  if (is_loaded_) return identity_;
  ASSIGN_OR_RETURN(const Nvrtc* nvrtc, ProcessNvrtc());
  identity_ = CompilerIdentity(nvrtc->major(), nvrtc->minor(), nvrtc->path());
  is_loaded_ = true;
  if (cache_.disk().usable()) {
    RememberCompiler(cache_.disk().directory(), ThisProcessChoice(), identity_, nvrtc->path());
  }
  return identity_;
}

KernelCache& ProcessKernelCache() {
  static auto* cache = new KernelCache(KernelCache::OptionsFromEnv());
  return *cache;
}

CudaCompiler& ProcessCudaCompiler() {
  static auto* compiler = new CudaCompiler(ProcessKernelCache());
  return *compiler;
}

Result<std::string> CompileOnly(const KernelSource& source) {
  ASSIGN_OR_RETURN(CachedKernel kernel, ProcessCudaCompiler().Compile(source));
  return *kernel.payload;
}

}  // namespace kiln::runtime
