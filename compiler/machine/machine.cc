#include "compiler/machine/machine.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "ir/board.h"

namespace kiln::compiler {
namespace {

// Copies of an H200 reach 4.1 of 4.8 TB/s (docs/log); other boards are thought to reach the
// same share of theirs.
constexpr double kCopyShare = 4.1 / 4.8;

// Seen on an H100 and an H200: no kernel took less than 1.4 us, and none that reads memory less
// than 2 us. Nothing else was measured.
constexpr double kLaunchSeconds = 1.4e-6, kMemorySeconds = 0.6e-6;

constexpr double kSharedBytes = 128;       // 32 banks of 4 bytes
constexpr double kIssuedThreads = 4 * 32;  // four schedulers

struct Arch {
  int sm_version;     // the row is for this one and those up to the next row
  double busy_clock;  // share of the boost clock that is left while all units are busy
  double fma, fma_f64;
  TensorRates mma, wgmma, tcgen05;
  double l2_bytes;
  int gpcs, cluster;
};

// The row of sm_90 was measured on an H100: its clock is 1.7 of 1.98 GHz, mma.sync reaches 0.61 of
// what wgmma does, and a multiprocessor reads 80 GB/s of the L2 cache. Of the others nothing was
// run: FMA units, tensor cores and GPCs are the vendor's, clocks are estimates, mma.sync of sm_100
// is the H100's, and bytes of the L2 cache are the width of its crossbar by the share of it that an
// H100 reaches.
constexpr Arch kArchs[] = {
    {.sm_version = 70,
     .busy_clock = 0.92,
     .fma = 64,
     .fma_f64 = 32,
     .mma = {.f16 = 512},
     .wgmma = {},
     .tcgen05 = {},
     .l2_bytes = 18,
     .gpcs = 6,
     .cluster = 1},
    {.sm_version = 75,
     .busy_clock = 0.88,
     .fma = 64,
     .fma_f64 = 2,
     .mma = {.f16 = 512, .bytes = 1024},
     .wgmma = {},
     .tcgen05 = {},
     .l2_bytes = 18,
     .gpcs = 6,
     .cluster = 1},
    {.sm_version = 80,
     .busy_clock = 1,
     .fma = 64,
     .fma_f64 = 32,
     .mma = {.f16 = 1024, .tf32 = 512, .bytes = 2048, .f64 = 64},
     .wgmma = {},
     .tcgen05 = {},
     .l2_bytes = 36,
     .gpcs = 8,
     .cluster = 1},
    {.sm_version = 86,
     .busy_clock = 1,
     .fma = 128,
     .fma_f64 = 2,
     .mma = {.f16 = 512, .tf32 = 256, .bytes = 1024},
     .wgmma = {},
     .tcgen05 = {},
     .l2_bytes = 18,
     .gpcs = 7,
     .cluster = 1},
    {.sm_version = 89,
     .busy_clock = 0.95,
     .fma = 128,
     .fma_f64 = 2,
     .mma = {.f16 = 512, .tf32 = 256, .bytes = 1024},
     .wgmma = {},
     .tcgen05 = {},
     .l2_bytes = 17,
     .gpcs = 12,
     .cluster = 1},
    {.sm_version = 90,
     .busy_clock = 1.7 / 1.98,
     .fma = 128,
     .fma_f64 = 64,
     .mma = {.f16 = 1250, .tf32 = 625, .bytes = 2500, .f64 = 128},
     .wgmma = {.f16 = 2048, .tf32 = 1024, .bytes = 4096},
     .tcgen05 = {},
     .l2_bytes = 80 / 1.7,
     .gpcs = 8,
     .cluster = 16},
    {.sm_version = 100,
     .busy_clock = 0.92,
     .fma = 128,
     .fma_f64 = 64,
     .mma = {.f16 = 1250, .tf32 = 625, .bytes = 2500, .f64 = 64},
     .wgmma = {},
     .tcgen05 = {.f16 = 4096, .tf32 = 2048, .bytes = 8192},
     .l2_bytes = 44,
     .gpcs = 8,
     .cluster = 16},
    {.sm_version = 120,
     .busy_clock = 1,
     .fma = 128,
     .fma_f64 = 2,
     .mma = {.f16 = 512, .tf32 = 256, .bytes = 1024},
     .wgmma = {},
     .tcgen05 = {},
     .l2_bytes = 17,
     .gpcs = 12,
     .cluster = 8},
};

// The CPU target, of which a core is a multiprocessor. Its memory is that of a copy.
constexpr Machine kCpu = {.sm_version = 0,
                          .multiprocessors = 1,
                          .clock = 3e9,
                          .memory = 1e11,
                          .launch_seconds = kLaunchSeconds,
                          .memory_seconds = kMemorySeconds,
                          .issue = 32,
                          .fma = 32,
                          .fma_f64 = 16,
                          .mma = {},
                          .wgmma = {},
                          .tcgen05 = {},
                          .shared_bytes = kSharedBytes,
                          .l2_bytes = 16,
                          .gpcs = 1,
                          .cluster = 1};

const Arch& ArchOf(int sm_version) {
  const auto* const next = std::ranges::upper_bound(kArchs, sm_version, {}, &Arch::sm_version);
  return next == std::begin(kArchs) ? *next : *std::prev(next);
}

// Figures that a driver can mean: a clock between 0.1 and 10 GHz, memory between 1 GB/s and 100
// TB/s.
double ClockOf(const Target& target, const Board* board) {
  if (board != nullptr) return board->clock;
  const auto told = static_cast<double>(target.clock_hz);
  return told >= 1e8 && told <= 1e10 ? told : UsualBoard(target.sm_version).clock;
}
double MemoryOf(const Target& target, const Board* board) {
  if (board != nullptr) return board->bytes_per_second;
  const auto told = static_cast<double>(target.memory_bytes_per_second);
  return told >= 1e9 && told <= 1e14 ? told : UsualBoard(target.sm_version).bytes_per_second;
}

// GeForce boards since Turing add 16-bit products and those of TF32 in f32 at half of the chip's
// rate; its boards for workstations and servers have all of it.
TensorRates SumsInF32(TensorRates rates, const Target& target) {
  constexpr int kTuring = 75;
  if (target.sm_version < kTuring || target.name.find("GeForce") == std::string_view::npos)
    return rates;
  rates.f16 /= 2;
  rates.tf32 /= 2;
  return rates;
}

}  // namespace

Machine MachineOf(const Target& target) {
  const int multiprocessors = std::max(target.multiprocessors, 1);
  if (!target.is_cuda()) {
    Machine cpu = kCpu;
    cpu.multiprocessors = multiprocessors;
    return cpu;
  }
  const Arch& arch = ArchOf(target.sm_version);
  const Board* board = BoardNamed(target.name, target.sm_version);
  return {.sm_version = arch.sm_version,
          .multiprocessors = multiprocessors,
          .clock = ClockOf(target, board) * arch.busy_clock,
          .memory = MemoryOf(target, board) * kCopyShare,
          .launch_seconds = kLaunchSeconds,
          .memory_seconds = kMemorySeconds,
          .issue = kIssuedThreads,
          .fma = arch.fma,
          .fma_f64 = arch.fma_f64,
          .mma = SumsInF32(arch.mma, target),
          .wgmma = arch.wgmma,
          .tcgen05 = arch.tcgen05,
          .shared_bytes = kSharedBytes,
          .l2_bytes = arch.l2_bytes,
          .gpcs = arch.gpcs,
          .cluster = arch.cluster};
}

double StreamSeconds(const Machine& machine, double bytes, double share) {
  return machine.StartSeconds() + bytes / (machine.memory * share);
}

double ComparedMemory(const Machine& machine) {
  // 4.1 TB/s of an H200's copies, by 132 times 80 GB/s of its L2 cache.
  constexpr double kMemoryOfL2 = 4100.0 / (132 * 80);
  return std::max(machine.memory, kMemoryOfL2 * machine.l2_share() * machine.multiprocessors);
}

double OwnMemorySeconds(const Machine& machine, double bytes, double busy) {
  return std::max(bytes / machine.memory, busy) - std::max(bytes / ComparedMemory(machine), busy);
}

double BytesPerSecond(const Target& target) {
  return target.is_cuda() ? MachineOf(target).memory : 0;
}

Status RunsOnMma(const Target& target) {
  if (target.is_cuda() && target.sm_version >= 80) return {};
  return Status::Error(Code::kArchMismatch, "mma.m16n8k16 needs sm_80 or later, the target is {}",
                       target.arch);
}

Status RunsOnWgmma(const Target& target) {
  if (!target.is_cuda() || target.sm_version != 90)
    return Status::Error(Code::kArchMismatch, "wgmma needs sm_90a, the target is {}", target.arch);
  if (target.minimal_launch)
    return Status::Error(Code::kArchMismatch, "KILN_LAUNCH=minimal allows no tensor maps");
  return {};
}

}  // namespace kiln::compiler
