// The CPU device. See cpu_device.h.
#include "runtime/cpu/cpu_device.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "ir/base/env.h"
#include "ir/base/log.h"
#include "ir/base/threads.h"
#include "ir/tile/tools.h"
#include "runtime/cache/build_id.h"

namespace kiln::runtime {

// `seconds_per_block` is what the launching thread last measured; it decides whether a launch is
// worth waking other threads. A wrong guess costs time, never correctness, so it is a relaxed
// atomic.
class CpuKernel final : public LoadedKernel {
 public:
  explicit CpuKernel(std::shared_ptr<Jit::Code> code) : code_(std::move(code)) {}
  CpuFunction function() const { return code_->function(); }

  mutable std::atomic<float> seconds_per_block{0};  // 0: not known yet

 private:
  std::shared_ptr<Jit::Code> code_;
};

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kAllocationAlignment = 256;  // as a GPU's allocator gives
constexpr double kWorthWakingSeconds = 15e-6;
// So that an unlucky thread does not hold up the rest for long.
constexpr int64_t kPartsPerThread = 4;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "cpu";
}

Target DescribeTarget(int threads) {
  Target target{
      .kind = TargetKind::kCpu,
      .arch = "native",
      .name = ProcessorName(),
      .sm_version = 0,
      .multiprocessors = threads,
  };
  const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (l2 > 0) target.l2_bytes = l2;
  return target;
}

// One launch, as the thread pool sees it.
struct Task {
  CpuFunction function;
  void** args;
  int64_t grid[3];
  std::thread::id caller;
  double caller_seconds = 0;  // written by the caller's thread only, as is the next
  int64_t caller_blocks = 0;

  static void Run(void* context, int64_t begin, int64_t end) {
    Task& task = *static_cast<Task*>(context);
    if (std::this_thread::get_id() != task.caller)
      return task.function(task.args, task.grid, begin, end);
    const Clock::time_point start = Clock::now();
    task.function(task.args, task.grid, begin, end);
    task.caller_seconds += SecondsSince(start);
    task.caller_blocks += end - begin;
  }
};

}  // namespace

CpuDevice::Options CpuDevice::OptionsFromEnv() {
  return {.threads = static_cast<int>(EnvInt(Env::kCpuThreads)),
          .cache = KernelCache::OptionsFromEnv(),
          .jit = {}};
}

Result<std::unique_ptr<CpuDevice>> CpuDevice::Create(const Options& options) {
  ASSIGN_OR_RETURN(std::shared_ptr<Jit> jit, Jit::Create(options.jit));
  Options filled = options;
  filled.threads = options.threads > 0 ? CappedThreads(options.threads) : Cores();
  if (filled.threads < options.threads) {
    LOG(kInfo, "the CPU target has {} threads, four for each core, in the place of {}",
        filled.threads, options.threads);
  }
  return std::unique_ptr<CpuDevice>(new CpuDevice(filled, std::move(jit)));
}

CpuDevice::CpuDevice(const Options& options, std::shared_ptr<Jit> jit)
    : target_(DescribeTarget(options.threads)),
      jit_(std::move(jit)),
      cache_(options.cache),
      pool_(ThreadPool::ForProcess(options.threads)) {}

Result<std::shared_ptr<LoadedKernel>> CpuDevice::Load(const KernelSource& source) {
  if (source.kind != SourceKind::kTileIr) {
    return Status::Error(Code::kNotSupported,
                         "{}: the CPU runs tile IR, and this kernel is CUDA source", source.entry);
  }
  std::shared_ptr<Slot> slot;
  {
    const Hash128 key = FieldHasher().Add(source.entry).Add(source.text).Finish();
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Slot>& entry = slots_[key];
    if (!entry) entry = std::make_shared<Slot>();
    slot = entry;
  }
  const std::lock_guard lock(slot->mutex);
  if (std::shared_ptr<CpuKernel> kernel = slot->kernel.lock())
    return std::shared_ptr<LoadedKernel>(std::move(kernel));
  ASSIGN_OR_RETURN(std::shared_ptr<CpuKernel> kernel, CompileAndLink(source));
  slot->kernel = kernel;
  return std::shared_ptr<LoadedKernel>(std::move(kernel));
}

CacheRequest CpuDevice::RequestFor(const KernelSource& source) const {
  return {
      .fields = {{"library", BuildId()},
                 {"compiler", jit_->compiler()},
                 {"arch", jit_->processor()},
                 {"vector_functions", jit_->vector_functions()},
                 {"entry", source.entry}},
      .source = source.text,
      .source_file = "kernel.tile",
      .payload_file = "kernel.o",
  };
}

Result<std::shared_ptr<CpuKernel>> CpuDevice::CompileAndLink(const KernelSource& source) {
  const auto compile = [&]() -> Result<std::string> {
    const Clock::time_point start = Clock::now();
    ASSIGN_OR_RETURN(const tile::Kernel kernel, tile::Parse(source.text));
    RETURN_IF_ERROR(tile::Verify(kernel));
    if (kernel.name != source.entry) {
      return Status::Error(Code::kBadParam, "the source of {} holds the kernel {}", source.entry,
                           kernel.name);
    }
    ASSIGN_OR_RETURN(std::string object, jit_->CompileObject(kernel));
    compiles_.fetch_add(1);
    LOG(kInfo, "compiled {} for the CPU in {:.1f} ms", source.entry, 1e3 * SecondsSince(start));
    return object;
  };
  Result<CachedKernel> object = cache_.Get(RequestFor(source), compile);
  if (!object.ok()) return std::move(object).status().Within(source.entry);
  ASSIGN_OR_RETURN(std::shared_ptr<Jit::Code> code, jit_->Link(*object->payload, source.entry));
  return std::make_shared<CpuKernel>(std::move(code));
}

Status CpuDevice::Launch(const LoadedKernel& kernel, const LaunchShape& shape, void** args,
                         Stream) {
  const auto& cpu_kernel = static_cast<const CpuKernel&>(kernel);
  Task task{.function = cpu_kernel.function(),
            .args = args,
            .grid = {shape.grid[0], shape.grid[1], shape.grid[2]},
            .caller = std::this_thread::get_id()};
  const int64_t blocks = task.grid[0] * task.grid[1] * task.grid[2];
  if (blocks == 0) return {};

  const float known = cpu_kernel.seconds_per_block.load(std::memory_order_relaxed);
  const bool inline_run = known > 0 && known * static_cast<double>(blocks) < kWorthWakingSeconds;
  const int64_t parts = inline_run ? 1 : pool_.threads() * kPartsPerThread;
  pool_.ParallelFor(0, blocks, (blocks + parts - 1) / parts, &Task::Run, &task);
  if (task.caller_blocks > 0) {
    const double measured = task.caller_seconds / static_cast<double>(task.caller_blocks);
    cpu_kernel.seconds_per_block.store(static_cast<float>(measured), std::memory_order_relaxed);
  }
  return {};
}

Result<void*> CpuDevice::Allocate(int64_t bytes) {
  if (bytes < 0) return Status::Error(Code::kBadParam, "allocation of {} bytes", bytes);
  const size_t rounded =
      (static_cast<size_t>(bytes) / kAllocationAlignment + 1) * kAllocationAlignment;
  void* memory = std::aligned_alloc(kAllocationAlignment, rounded);
  if (!memory)
    return Status::Error(Code::kDeviceAllocationFailed, "{} bytes of memory are not to be had",
                         bytes);
  return memory;
}

void CpuDevice::Free(void* pointer) { std::free(pointer); }

Status CpuDevice::CopyIn(void* device, const void* host, int64_t bytes) {
  if (bytes > 0) std::memcpy(device, host, static_cast<size_t>(bytes));
  return {};
}

Status CpuDevice::CopyOut(void* host, const void* device, int64_t bytes) {
  return CopyIn(host, device, bytes);
}

Status CpuDevice::CopyWithin(void* to, const void* from, int64_t bytes) {
  return CopyIn(to, from, bytes);
}

Status CpuDevice::Fill(void* device, std::byte value, int64_t bytes) {
  std::memset(device, static_cast<int>(value), static_cast<size_t>(bytes));
  return {};
}

Result<double> CpuDevice::Measure(std::function<Status()> run, int repeats, Stream) {
  RETURN_IF_ERROR(run());
  std::vector<double> seconds;
  for (int i = 0; i < std::max(repeats, 1); ++i) {
    const Clock::time_point start = Clock::now();
    RETURN_IF_ERROR(run());
    seconds.push_back(SecondsSince(start));
  }
  const auto middle = seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

Result<std::string> CpuDevice::LlvmText(const std::string& tile_text) const {
  ASSIGN_OR_RETURN(const tile::Kernel kernel, tile::Parse(tile_text));
  RETURN_IF_ERROR(tile::Verify(kernel));
  return jit_->OptimizedText(kernel);
}

}  // namespace kiln::runtime
