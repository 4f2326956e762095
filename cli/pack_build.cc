#include "cli/pack_build.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>

#include "cli/console.h"
#include "cli/units.h"
#include "ir/base/threads.h"
#include "runtime/cache/kernel_cache.h"
#include "runtime/cache/pack.h"
#include "runtime/cache/record_files.h"
#include "runtime/cuda/compiler_memo.h"
#include "runtime/cuda/cuda_compiler.h"
#include "runtime/cuda/nvrtc_pair.h"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// A line on stderr: written over on a terminal, else a new one every few seconds.
class Progress {
 public:
  explicit Progress(std::string what) : what_(std::move(what)) {}
  ~Progress() {
    if (is_open_) WriteRaw(stderr, "\r\x1b[K");
  }
  Progress(const Progress&) = delete;

  void Step(size_t done, size_t of) {
    constexpr std::chrono::seconds kBetweenLines{5};
    const std::lock_guard lock(mutex_);
    most_ = std::max(most_, done);
    const Clock::time_point now = Clock::now();
    if (done != of && now - last_ < (terminal_ ? std::chrono::seconds{0} : kBetweenLines)) return;
    last_ = now;
    if (terminal_) WriteRaw(stderr, "\r\x1b[K");
    PrintError("{} {}/{}, {}{}", what_, most_, of, Left(of), terminal_ ? "" : "\n");
    is_open_ = terminal_;
  }

 private:
  std::string Left(size_t of) const {
    const std::chrono::duration<double> took = Clock::now() - start_;
    if (most_ == of) return TimeText(took.count());
    const double each = took.count() / static_cast<double>(most_);
    return fmt::format("about {:.0f} s left", each * static_cast<double>(of - most_));
  }

  const std::string what_;
  const bool terminal_ = ::isatty(STDERR_FILENO) != 0;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;  // guards what follows
  Clock::time_point last_ = start_;
  size_t most_ = 0;
  bool is_open_ = false;
};

struct Compiled {
  std::vector<runtime::PackItem> items;
  size_t were_there = 0;
};

// The kernels, from `cache` or compiled into it, side by side.
class Compilation {
 public:
  Compilation(runtime::KernelCache& cache, const runtime::Nvrtc& nvrtc)
      : cache_(cache),
        identity_(runtime::CompilerIdentity(nvrtc.major(), nvrtc.minor(), nvrtc.path())),
        major_(static_cast<uint32_t>(nvrtc.major())) {}

  Result<Compiled> Run(const std::vector<KernelSource>& kernels, int jobs) {
    ASSIGN_OR_RETURN(runtime::NvrtcPair* const compilers, runtime::ProcessNvrtcPair());
    Progress progress("compiled");
    Compiled compiled;
    std::vector<std::optional<Result<runtime::PackItem>>> outcomes(kernels.size());
    std::atomic<size_t> done = 0, were_there = 0;
    ForEachTogether(kernels.size(), jobs, [&](size_t i) {
      outcomes[i] = One(*compilers, kernels[i], were_there);
      progress.Step(++done, kernels.size());
    });
    compiled.were_there = were_there;
    for (size_t i = 0; i < kernels.size(); ++i) {
      Result<runtime::PackItem>& outcome = *outcomes[i];
      if (!outcome.ok())
        return std::move(outcome).status().Within(
            fmt::format("kernel {} for {}", kernels[i].entry, kernels[i].arch));
      compiled.items.push_back(*std::move(outcome));
    }
    return compiled;
  }

 private:
  Result<runtime::PackItem> One(runtime::NvrtcPair& compilers, const KernelSource& kernel,
                                std::atomic<size_t>& were_there) {
    const runtime::CacheRequest request = runtime::CubinRequest(kernel, identity_);
    ASSIGN_OR_RETURN(const runtime::CachedKernel cubin,
                     cache_.Get(request, [&]() -> Result<std::string> {
                       ASSIGN_OR_RETURN(runtime::NvrtcResult made,
                                        compilers.Compile(kernel, runtime::NvrtcOutput::kCubin));
                       return std::move(made.bytes);
                     }));
    were_there += cubin.origin == runtime::CachedKernel::Origin::kDisk;
    return runtime::MakePackItem(request, *cubin.payload, major_);
  }

  runtime::KernelCache& cache_;
  const std::string identity_;
  const uint32_t major_;
};

Result<PackPlans> Plan(const PackPlanOptions& options) {
  Progress progress("planned");
  return PlanForPack(options, [&](size_t done, size_t of) { progress.Step(done, of); });
}

Status CheckOutput(const std::string& output) {
  std::error_code error;
  if (!fs::is_directory(output, error)) return {};
  return Status::Error(Code::kInvalidValue, "-o {}: it is a folder; name a file", output);
}

}  // namespace

Status WritePack(const std::string& path, const std::string& bytes) {
  RETURN_IF_ERROR(runtime::ReplaceFile(path, bytes));
  using fs::perms;
  std::error_code error;
  fs::permissions(
      path, perms::owner_read | perms::owner_write | perms::group_read | perms::others_read, error);
  if (!error) return {};
  return Status::Error(Code::kInternal, "cannot make {} readable: {}", path, error.message());
}

Status BuildPack(const PackBuildOptions& options) {
  RETURN_IF_ERROR(CheckOutput(options.output));
  ASSIGN_OR_RETURN(const PackPlans plans, Plan(options.plans));
  for (const std::string& refusal : plans.refused) PrintError("kiln: left out: {}\n", refusal);
  if (plans.refused.size() == plans.graphs) {
    return Status::Error(Code::kNotSupported,
                         "none of {} graphs can be compiled; {} is not written", plans.graphs,
                         options.output);
  }
  ASSIGN_OR_RETURN(const runtime::Nvrtc* const nvrtc, runtime::ProcessNvrtc());
  const std::string partial = options.output + ".partial";
  Compiled compiled;
  {
    runtime::KernelCache cache({.root = partial, .disk_limit_bytes = -1});
    if (!cache.disk().usable()) return Status(cache.disk().status());
    ASSIGN_OR_RETURN(compiled,
                     Compilation(cache, *nvrtc).Run(plans.kernels, PackJobs(options.plans.jobs)));
  }
  const size_t kernels = compiled.items.size();
  ASSIGN_OR_RETURN(const std::string bytes, runtime::MakePack(std::move(compiled.items)));
  RETURN_IF_ERROR(WritePack(options.output, bytes));
  std::error_code ignored;
  fs::remove_all(partial, ignored);
  PrintOut("{} graphs, {} left out; {} kernels, of which {} were there from a build before\n",
           plans.graphs, plans.refused.size(), kernels, compiled.were_there);
  PrintOut("{}: {}\n", options.output, BytesText(static_cast<int64_t>(bytes.size())));
  return {};
}

}  // namespace kiln::cli
