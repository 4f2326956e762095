// What is known of GPUs that this machine need not have: one row an architecture, with the numbers
// of its common board (as cuDeviceGetAttribute gives them there). Used by `kiln dump --arch`, by
// tests and by device-less plans; with a device present, runtime/cuda fills a Target from the
// driver instead.
#include "ir/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "ir/base/env.h"
#include "ir/base/threads.h"

namespace kiln {
namespace {

struct ArchRow {
  std::string_view arch;
  std::string_view board;
  int sm_version;
  int multiprocessors;
  int64_t shared_bytes;  // of one block, opt-in maximum
  int64_t l2_bytes;
};

constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * kKiB;

// The letter `a` unlocks an architecture's own instructions (wgmma, tcgen05); its code runs nowhere
// else.
constexpr ArchRow kArchs[] = {
    {"sm_70", "Tesla V100-SXM2-16GB", 70, 80, 96 * kKiB, 6 * kMiB},
    {"sm_75", "Tesla T4", 75, 40, 64 * kKiB, 4 * kMiB},
    {"sm_80", "NVIDIA A100-SXM4-80GB", 80, 108, 163 * kKiB, 40 * kMiB},
    {"sm_86", "NVIDIA GeForce RTX 3090", 86, 82, 99 * kKiB, 6 * kMiB},
    {"sm_89", "NVIDIA GeForce RTX 4090", 89, 128, 99 * kKiB, 72 * kMiB},
    {"sm_90", "NVIDIA H100 80GB HBM3", 90, 132, 227 * kKiB, 50 * kMiB},
    {"sm_90a", "NVIDIA H100 80GB HBM3", 90, 132, 227 * kKiB, 50 * kMiB},
    {"sm_100", "NVIDIA B200", 100, 148, 227 * kKiB, 126 * kMiB},
    {"sm_100a", "NVIDIA B200", 100, 148, 227 * kKiB, 126 * kMiB},
    {"sm_103a", "NVIDIA B300 SXM6 AC", 103, 148, 227 * kKiB, 126 * kMiB},
    {"sm_120", "NVIDIA GeForce RTX 5090", 120, 170, 99 * kKiB, 96 * kMiB},
    {"sm_120a", "NVIDIA GeForce RTX 5090", 120, 170, 99 * kKiB, 96 * kMiB},
};

// Boards of one chip.
constexpr std::string_view kGh100[] = {"NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA H200 NVL",
                                       "NVIDIA H100 NVL", "NVIDIA GH200 480GB"};

Target CpuTarget() {
  const int64_t asked = EnvInt(Env::kCpuThreads);
  return {
      .kind = TargetKind::kCpu,
      .arch = "native",
      .name = "cpu",
      .sm_version = 0,
      .multiprocessors = asked > 0 ? CappedThreads(asked) : Cores(),
  };
}

std::string KnownArchs() {
  std::string names;
  for (const ArchRow& row : kArchs) names += fmt::format("{}, ", row.arch);
  return names + "cpu";
}

}  // namespace

std::vector<std::string_view> KinOf(const Target& target) {
  std::vector<std::string_view> kin;
  if (std::ranges::find(kGh100, target.name) == std::end(kGh100)) return kin;
  std::ranges::copy_if(kGh100, std::back_inserter(kin),
                       [&](std::string_view name) { return name != target.name; });
  return kin;
}

Result<Target> TargetFromArch(std::string_view arch) {
  if (arch == "cpu" || arch == "native") return CpuTarget();
  const auto row = std::ranges::find(kArchs, arch, &ArchRow::arch);
  if (row == std::end(kArchs)) {
    return Status::Error(Code::kInvalidValue, "architecture '{}' is not known; known are {}", arch,
                         KnownArchs());
  }
  return Target{
      .kind = TargetKind::kCuda,
      .arch = std::string(row->arch),
      .name = std::string(row->board),
      .sm_version = row->sm_version,
      .multiprocessors = row->multiprocessors,
      .shared_bytes_per_block = row->shared_bytes,
      .l2_bytes = row->l2_bytes,
      .minimal_launch = GetEnv(Env::kLaunch) == "minimal",
  };
}

}  // namespace kiln
