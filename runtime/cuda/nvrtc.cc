// NVRTC: search, binding, compiling. See nvrtc.h.
#include "runtime/cuda/nvrtc.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ir/base/env.h"
#include "ir/base/log.h"
#include "ir/base/write_guard.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/dynamic_library.h"
#include "runtime/cuda/nvrtc_search.h"

namespace kiln::runtime {
namespace {

constexpr int kNvrtcSuccess = 0;
constexpr int kNvrtcCompilationError = 6;

constexpr const char* kOptions[] = {"--std=c++17", "--no-source-include"};
// Leaves out declarations of the CUDA runtime, textures and launches, which no kernel here has:
// half of what is parsed before a kernel's text, behind a lock that all threads share. A cubin is
// the same to the bit. From 12.4 on.
constexpr const char* kMinimal = "--minimal";

// NVRTC 13 keeps kernels in a cache of its own, ~/.nv/ComputeCache, beside ours: the first compile
// of a process waited 0.15 s for it (an empty kernel 0.19 instead of 0.04 s on an H100's host), and
// whatever lies there would be run without the checks that our folders have to pass.
constexpr const char* kNoCache = "--no-cache";

constexpr const char* kAdvice =
    "Install the CUDA toolkit's NVRTC (apt: cuda-nvrtc-13-0, pip: nvidia-cuda-nvrtc) or set "
    "KILN_NVRTC to the path of "
    "libnvrtc.so";

// "sm_90a" → 90; 0 where it is no such name.
int ArchNumber(const std::string& arch) {
  if (!arch.starts_with("sm_")) return 0;
  int number = 0;
  size_t i = 3;
  for (; i < arch.size() && arch[i] >= '0' && arch[i] <= '9'; ++i)
    number = number * 10 + (arch[i] - '0');
  bool has_known_suffix =
      i == arch.size() || (i + 1 == arch.size() && (arch[i] == 'a' || arch[i] == 'f'));
  return has_known_suffix && number < 1000 ? number : 0;
}

// An open file, closed at the end.
class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// The bytes of one file behind those of another.
Status CopyBytes(const File& from, const File& to, const std::string& name) {
  const WriteGuard guard;  // `ulimit -f` counts memory files, too
  struct stat about = {};
  bool fits = from.fd() >= 0 && to.fd() >= 0 && ::fstat(from.fd(), &about) == 0;
  for (off_t at = 0; fits && at < about.st_size;)
    fits = ::sendfile(to.fd(), from.fd(), &at, static_cast<size_t>(about.st_size - at)) > 0;
  if (fits) return {};
  return Status::Error(Code::kPrerequisiteMissing, "{} cannot be copied to memory: {}", name,
                       std::strerror(errno));
}

}  // namespace

// NVRTC's public interface, as declared by us.
struct Nvrtc::Functions {
  using Handle = void*;
  const char* (*GetErrorString)(int result);
  int (*Version)(int* major, int* minor);
  int (*GetNumSupportedArchs)(int* count);
  int (*GetSupportedArchs)(int* archs);
  int (*CreateProgram)(Handle* program, const char* text, const char* name, int header_count,
                       const char* const* headers, const char* const* header_names);
  int (*DestroyProgram)(Handle* program);
  int (*CompileProgram)(Handle program, int option_count, const char* const* options);
  int (*GetProgramLogSize)(Handle program, size_t* size);
  int (*GetProgramLog)(Handle program, char* log);
  int (*GetPtxSize)(Handle program, size_t* size);
  int (*GetPtx)(Handle program, char* ptx);
  int (*GetCubinSize)(Handle program, size_t* size);
  int (*GetCubin)(Handle program, char* cubin);
};

struct Nvrtc::Program {
  const Functions& functions;
  Functions::Handle handle = nullptr;

  ~Program() {
    if (handle != nullptr) functions.DestroyProgram(&handle);
  }
};

Nvrtc::Nvrtc() : functions_(std::make_unique<Functions>()) {}
Nvrtc::~Nvrtc() = default;

std::span<const char* const> Nvrtc::Options() { return kOptions; }

Result<std::unique_ptr<Nvrtc>> Nvrtc::Open(const std::string& path, int driver_version) {
  std::vector<std::string> candidates;
  if (path.empty()) {
    candidates = NvrtcCandidates(driver_version / 1000);
  } else {
    candidates = {path};
  }
  ASSIGN_OR_RETURN(DynamicLibrary library, DynamicLibrary::Open("NVRTC", candidates, kAdvice));
  std::unique_ptr<Nvrtc> nvrtc(new Nvrtc);
  nvrtc->path_ = library.path();
  RETURN_IF_ERROR(nvrtc->Bind(library));
  if (nvrtc->functions_->Version(&nvrtc->major_, &nvrtc->minor_) != kNvrtcSuccess) {
    return Status::Error(Code::kPrerequisiteMissing, "{} does not tell its version", nvrtc->path_);
  }
  nvrtc->LoadBuiltins();
  return nvrtc;
}

Result<std::unique_ptr<Nvrtc>> Nvrtc::OpenCopy() const {
  const File file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  const File memory(::memfd_create("nvrtc", MFD_CLOEXEC));
  RETURN_IF_ERROR(CopyBytes(file, memory, path_));
  // With the process's number, as another's "/proc/self/fd/7" would be taken for this library.
  const std::string paths[] = {fmt::format("/proc/{}/fd/{}", ::getpid(), memory.fd())};
  ASSIGN_OR_RETURN(DynamicLibrary library, DynamicLibrary::Open("a copy of NVRTC", paths, kAdvice));
  std::unique_ptr<Nvrtc> copy(new Nvrtc);
  copy->path_ = path_;
  copy->major_ = major_;
  copy->minor_ = minor_;
  RETURN_IF_ERROR(copy->Bind(library));
  if (copy->functions_->CompileProgram != functions_->CompileProgram) return copy;
  return Status::Error(Code::kPrerequisiteMissing, "the loader takes a copy of {} for itself",
                       path_);
}

Status Nvrtc::Bind(const DynamicLibrary& library) {
  const char* missing = nullptr;
  auto bind = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.Find(symbol));
    if (function == nullptr) missing = symbol;
  };
  bind(functions_->GetErrorString, "nvrtcGetErrorString");
  bind(functions_->Version, "nvrtcVersion");
  bind(functions_->GetNumSupportedArchs, "nvrtcGetNumSupportedArchs");
  bind(functions_->GetSupportedArchs, "nvrtcGetSupportedArchs");
  bind(functions_->CreateProgram, "nvrtcCreateProgram");
  bind(functions_->DestroyProgram, "nvrtcDestroyProgram");
  bind(functions_->CompileProgram, "nvrtcCompileProgram");
  bind(functions_->GetProgramLogSize, "nvrtcGetProgramLogSize");
  bind(functions_->GetProgramLog, "nvrtcGetProgramLog");
  bind(functions_->GetPtxSize, "nvrtcGetPTXSize");
  bind(functions_->GetPtx, "nvrtcGetPTX");
  bind(functions_->GetCubinSize, "nvrtcGetCUBINSize");
  bind(functions_->GetCubin, "nvrtcGetCUBIN");
  if (missing == nullptr) return {};
  return Status::Error(Code::kPrerequisiteMissing,
                       "{} has no function {}: it is not NVRTC 11.2 or later", path_, missing);
}

// NVRTC opens its builtins by name alone and finds them only where the loader would look or they
// are loaded.
void Nvrtc::LoadBuiltins() const {
  size_t slash = path_.rfind('/');
  if (slash == std::string::npos) return;
  std::string builtins =
      fmt::format("{}/libnvrtc-builtins.so.{}.{}", path_.substr(0, slash), major_, minor_);
  if (::dlopen(builtins.c_str(), RTLD_LAZY | RTLD_LOCAL) == nullptr) {
    LOG(kDebug, "{} did not load: {}", builtins, ::dlerror());
  }
}

std::vector<int> Nvrtc::SupportedArchs() const {
  int count = 0;
  if (functions_->GetNumSupportedArchs(&count) != kNvrtcSuccess || count <= 0) return {};
  std::vector<int> archs(static_cast<size_t>(count));
  if (functions_->GetSupportedArchs(archs.data()) != kNvrtcSuccess) return {};
  return archs;
}

Status Nvrtc::CheckArch(const std::string& arch) const {
  std::vector<int> known = SupportedArchs();
  for (int number : known) {
    if (number == ArchNumber(arch)) return {};
  }
  if (known.empty() && ArchNumber(arch) != 0) return {};  // NVRTC itself will say
  std::string list;
  for (int number : known) list += fmt::format("{}sm_{}", list.empty() ? "" : ", ", number);
  return Status::Error(Code::kArchMismatch, "NVRTC {}.{} ({}) does not compile for {}; it knows {}",
                       major_, minor_, path_, arch, list);
}

std::string Nvrtc::ReadLog(const Program& program) const {
  size_t size = 0;
  if (functions_->GetProgramLogSize(program.handle, &size) != kNvrtcSuccess || size <= 1) return {};
  std::string log(size, '\0');
  if (functions_->GetProgramLog(program.handle, log.data()) != kNvrtcSuccess) return {};
  log.resize(size - 1);  // its terminating zero
  while (!log.empty() && log.back() == '\n') log.pop_back();
  return log;
}

Result<NvrtcResult> Nvrtc::Compile(const KernelSource& source, NvrtcOutput output,
                                   std::span<const std::string> extra_options) const {
  RETURN_IF_ERROR(CheckArch(source.arch));
  // PTX is of a virtual architecture, a cubin of a real one.
  bool is_ptx = output == NvrtcOutput::kPtx;
  std::string arch =
      fmt::format("--gpu-architecture={}_{}", is_ptx ? "compute" : "sm", source.arch.substr(3));
  std::vector<const char*> options = {arch.c_str()};
  options.insert(options.end(), std::begin(kOptions), std::end(kOptions));
  if (std::pair(major_, minor_) >= std::pair(12, 4)) options.push_back(kMinimal);
  if (major_ >= 13) options.push_back(kNoCache);
  for (const std::string& option : extra_options) options.push_back(option.c_str());

  const std::string name = source.entry + ".cu";
  Program program{.functions = *functions_};
  auto fail = [&](std::string_view step, int result) {
    return Status::Error(Code::kCompilationFailed, "{}: {}: {}", name, step,
                         functions_->GetErrorString(result));
  };
  if (int r = functions_->CreateProgram(&program.handle, source.text.c_str(), name.c_str(), 0,
                                        nullptr, nullptr)) {
    return fail("nvrtcCreateProgram", r);
  }
  int compiled =
      functions_->CompileProgram(program.handle, static_cast<int>(options.size()), options.data());
  NvrtcResult result{.bytes = {}, .log = ReadLog(program)};
  if (compiled != kNvrtcSuccess) {
    if (compiled != kNvrtcCompilationError && result.log.empty())
      return fail("nvrtcCompileProgram", compiled);
    return Status::Error(Code::kCompilationFailed, "{} does not compile for {}:\n{}", name,
                         source.arch, result.log);
  }
  size_t size = 0;
  int r = is_ptx ? functions_->GetPtxSize(program.handle, &size)
                 : functions_->GetCubinSize(program.handle, &size);
  if (r != kNvrtcSuccess) return fail("reading the size of the result", r);
  result.bytes.resize(size);
  char* bytes = result.bytes.data();
  r = is_ptx ? functions_->GetPtx(program.handle, bytes)
             : functions_->GetCubin(program.handle, bytes);
  if (r != kNvrtcSuccess) return fail("reading the result", r);
  if (is_ptx && !result.bytes.empty() && result.bytes.back() == '\0') result.bytes.pop_back();
  return result;
}

namespace {
std::atomic<bool> process_nvrtc_loaded{false};
}  // namespace

Result<const Nvrtc*> ProcessNvrtc() {
  // Leaked, as the driver is.
  static const auto* opened = [] {
    auto driver = ProcessDriver();
    auto nvrtc = Nvrtc::Open(GetEnv(Env::kNvrtcPath), driver.ok() ? (*driver)->version : 0);
    process_nvrtc_loaded = nvrtc.ok();
    return new Result<std::unique_ptr<Nvrtc>>(std::move(nvrtc));
  }();
  if (!opened->ok()) return opened->status();
  return static_cast<const Nvrtc*>((*opened)->get());
}

bool ProcessNvrtcIsLoaded() { return process_nvrtc_loaded; }

}  // namespace kiln::runtime
