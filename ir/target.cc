// Targets of GPUs that this machine need not have. Used by `kiln dump --arch`, by tests and by
// device-less plans; with a device present, runtime/cuda fills a Target from the driver instead.
#include "ir/target.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <ranges>

#include "ir/base/env.h"
#include "ir/base/threads.h"
#include "ir/board.h"

namespace kiln {
namespace {

struct ArchRow {
  std::string_view arch;
  int sm_version;
  int64_t shared_bytes;  // of one block, opt-in maximum
};

constexpr int64_t kKiB = 1024;

// The letter `a` unlocks an architecture's own instructions (wgmma, tcgen05); its code runs nowhere
// else. A board is compiled for by the last row of its architecture.
constexpr ArchRow kArchs[] = {
    {"sm_70", 70, 96 * kKiB},     {"sm_75", 75, 64 * kKiB},    {"sm_80", 80, 163 * kKiB},
    {"sm_86", 86, 99 * kKiB},     {"sm_89", 89, 99 * kKiB},    {"sm_90", 90, 227 * kKiB},
    {"sm_90a", 90, 227 * kKiB},   {"sm_100", 100, 227 * kKiB}, {"sm_100a", 100, 227 * kKiB},
    {"sm_103a", 103, 227 * kKiB}, {"sm_120", 120, 99 * kKiB},  {"sm_120a", 120, 99 * kKiB},
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

Target TargetOf(const ArchRow& row, const Board& board) {
  return {
      .kind = TargetKind::kCuda,
      .arch = std::string(row.arch),
      .name = std::string(board.name),
      .sm_version = row.sm_version,
      .multiprocessors = board.multiprocessors,
      .shared_bytes_per_block = row.shared_bytes,
      .l2_bytes = board.l2_bytes,
      .minimal_launch = GetEnv(Env::kLaunch) == "minimal",
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
  return TargetOf(*row, UsualBoard(row->sm_version));
}

Result<Target> TargetFromBoard(std::string_view name) {
  const std::span<const Board> boards = Boards();
  const auto board = std::ranges::find(boards, name, &Board::name);
  if (board == boards.end())
    return Status::Error(Code::kInvalidValue, "board '{}' is not known; known are {}", name,
                         fmt::join(boards | std::views::transform(&Board::name), ", "));
  const ArchRow* last = nullptr;
  for (const ArchRow& row : kArchs)
    if (row.sm_version == board->sm_version) last = &row;
  CHECK(last != nullptr, "{} is of no architecture", name);
  return TargetOf(*last, *board);
}

}  // namespace kiln
