#include "compiler/machine/machine.h"

#include <algorithm>
#include <iterator>

namespace kiln::compiler {
namespace {

// sm_90 was measured on an H100, memory on an H200 (docs/log), where copies reach 0.86 of
// the vendor's rate; other rows have that share of theirs. Of the others nothing was run: clocks,
// FMA units and GPCs are the vendor's, mma of sm_100 and sm_120 is the H100's, TF32 takes twice as
// long as 16 bits (sm_70 and sm_75 have none), and l2_share is the
// width of the cache's crossbar by the share of it that an H100 reaches.
constexpr Machine kMachines[] = {
    // The CPU target, of which a core is a multiprocessor.
    {.sm_version = 0,
     .bytes_per_second = 1e11,
     .clock = 3e9,
     .mma = 16,
     .mma_tf32 = 8,
     .fma = 2,
     .l2_share = 5e10,
     .gpcs = 1,
     .cluster = 1},
    {.sm_version = 70,
     .bytes_per_second = 0.77e12,
     .clock = 1.4e9,
     .mma = 512,
     .mma_tf32 = 256,
     .fma = 1.25,
     .l2_share = 0.25e11,
     .gpcs = 6,
     .cluster = 1},
    {.sm_version = 75,
     .bytes_per_second = 0.27e12,
     .clock = 1.4e9,
     .mma = 512,
     .mma_tf32 = 256,
     .fma = 1.25,
     .l2_share = 0.25e11,
     .gpcs = 3,
     .cluster = 1},
    {.sm_version = 80,
     .bytes_per_second = 1.75e12,
     .clock = 1.4e9,
     .mma = 1024,
     .mma_tf32 = 512,
     .fma = 1.25,
     .l2_share = 0.5e11,
     .gpcs = 8,
     .cluster = 1},
    {.sm_version = 86,
     .bytes_per_second = 0.8e12,
     .clock = 1.7e9,
     .mma = 512,
     .mma_tf32 = 256,
     .fma = 2.5,
     .l2_share = 0.3e11,
     .gpcs = 7,
     .cluster = 1},
    {.sm_version = 89,
     .bytes_per_second = 0.87e12,
     .clock = 2.4e9,
     .mma = 512,
     .mma_tf32 = 256,
     .fma = 2.5,
     .l2_share = 0.4e11,
     .gpcs = 12,
     .cluster = 1},
    {.sm_version = 90,
     .bytes_per_second = 4.1e12,
     .clock = 1.7e9,
     .mma = 1250,
     .mma_tf32 = 625,
     .fma = 2.5,
     .l2_share = 0.8e11,
     .gpcs = 8,
     .cluster = 16},
    {.sm_version = 100,
     .bytes_per_second = 6.9e12,
     .clock = 1.8e9,
     .mma = 1250,
     .mma_tf32 = 625,
     .fma = 2.5,
     .l2_share = 0.8e11,
     .gpcs = 8,
     .cluster = 16},
    {.sm_version = 120,
     .bytes_per_second = 1.54e12,
     .clock = 2.4e9,
     .mma = 1250,
     .mma_tf32 = 625,
     .fma = 2.5,
     .l2_share = 0.4e11,
     .gpcs = 12,
     .cluster = 8},
};

}  // namespace

const Machine& MachineOf(const Target& target) {
  const auto* const next =
      std::ranges::upper_bound(kMachines, target.sm_version, {}, &Machine::sm_version);
  return next == std::begin(kMachines) ? kMachines[0] : *std::prev(next);
}

double BytesPerSecond(const Target& target) {
  return target.is_cuda() ? MachineOf(target).bytes_per_second : 0;
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
