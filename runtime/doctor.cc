// Doctor: what was found, what was loaded, and why something is missing. Declared in
// device_select.h; each part is one function, in the order in which a launch needs them.
#include "ir/base/env.h"
#include "runtime/cpu_plugin.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/device_select.h"

namespace kiln::runtime {
namespace {

using Lines = std::vector<DoctorLine>;
using State = DoctorLine::State;

void Add(Lines& lines, State state, std::string_view subject, std::string detail) {
  lines.push_back({.state = state, .subject = std::string(subject), .detail = std::move(detail)});
}

std::string CudaVersion(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

void ExamineEnvironment(Lines& lines) {
  for (const std::string& text : EnvWarnings()) Add(lines, State::kNote, "environment", text);
}

void ExamineDriver(Lines& lines) {
  auto driver = ProcessDriver();
  if (!driver.ok()) return Add(lines, State::kMissing, "CUDA driver", driver.status().message());
  Add(lines, State::kGood, "CUDA driver",
      fmt::format("{}, CUDA {}", (*driver)->path, CudaVersion((*driver)->version)));
  int count = 0;
  if (CuResult r = (*driver)->DeviceGetCount(&count); r != kCuSuccess || count == 0) {
    return Add(lines, State::kMissing, "GPU", fmt::format("none ({})", (*driver)->Describe(r)));
  }
  for (int i = 0; i < count; ++i) {
    auto target = CudaTarget(**driver, i);
    std::string subject = fmt::format("GPU {}", i);
    if (!target.ok()) {
      Add(lines, State::kMissing, subject, target.status().message());
      continue;
    }
    Add(lines, State::kGood, subject,
        fmt::format("{}, {}, {} SMs, {} KiB shared memory a block, {} MiB L2", target->name,
                    target->arch, target->multiprocessors, target->shared_bytes_per_block >> 10,
                    target->l2_bytes >> 20));
  }
}

void ExamineNvrtc(Lines& lines) {
  auto nvrtc = ProcessNvrtc();
  if (!nvrtc.ok()) return Add(lines, State::kMissing, "NVRTC", nvrtc.status().message());
  std::string archs;
  for (int arch : (*nvrtc)->SupportedArchs()) archs += fmt::format(" sm_{}", arch);
  Add(lines, State::kGood, "NVRTC",
      fmt::format("{}, {}.{}, compiles for{}", (*nvrtc)->path(), (*nvrtc)->major(),
                  (*nvrtc)->minor(), archs));
  auto driver = ProcessDriver();
  if (driver.ok() && (*nvrtc)->major() > (*driver)->version / 1000) {
    Add(lines, State::kMissing, "NVRTC",
        fmt::format("a driver of CUDA {} does not load the code of NVRTC {}; install NVRTC {} or a "
                    "newer driver",
                    CudaVersion((*driver)->version), (*nvrtc)->major(), (*driver)->version / 1000));
  }
}

void ExamineCache(Lines& lines) {
  KernelCache& cache = ProcessKernelCache();
  if (!cache.disk().usable()) {
    return Add(lines, State::kNote, "kernel cache",
               fmt::format("in memory only: {}", cache.disk().status().message()));
  }
  const int64_t limit = EnvInt(Env::kCacheSizeMb);
  int64_t bytes = 0;
  auto entries = cache.List();
  for (const CacheEntry& entry : entries) bytes += entry.bytes;
  Add(lines, State::kGood, "kernel cache",
      fmt::format("{}, {} kernels, {:.1f} of {} MiB", cache.disk().directory(), entries.size(),
                  static_cast<double>(bytes) / (1 << 20),
                  limit < 0 ? "any number of"
                            : fmt::format("{:.6g}", static_cast<double>(limit) / (1 << 20))));
  if (Status writable = cache.disk().CheckWritable(); !writable.ok()) {
    Add(lines, State::kNote, "kernel cache", fmt::format("read only: {}", writable.message()));
  }
}

void ExamineCpu(Lines& lines) {
  auto plugin = ProcessCpuPlugin();
  if (!plugin.ok()) return Add(lines, State::kMissing, "CPU plug-in", plugin.status().message());
  const Target& target = plugin->device->target();
  Add(lines, State::kGood, "CPU plug-in",
      fmt::format("{}, {}, {} threads", plugin->path, target.name, target.multiprocessors));
}

void ExamineChoice(Lines& lines) {
  auto device = DefaultDevice();
  if (!device.ok()) return Add(lines, State::kMissing, "device", device.status().message());
  Add(lines, State::kGood, "device",
      fmt::format("{} ({}), KILN_DEVICE={}", (*device)->target().name, (*device)->target().arch,
                  GetEnv(Env::kDevice)));
}

}  // namespace

std::vector<DoctorLine> Doctor() {
  Lines lines;
  for (auto examine :
       {ExamineEnvironment, ExamineDriver, ExamineNvrtc, ExamineCache, ExamineCpu, ExamineChoice}) {
    examine(lines);
  }
  return lines;
}

}  // namespace kiln::runtime
