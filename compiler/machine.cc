#include "compiler/machine.h"

#include <algorithm>
#include <iterator>

namespace kiln::compiler {
namespace {

// sm_90 was measured on an H100 (docs/perf-log.md). Of the others nothing was run: clocks, FMA
// units and GPCs are the vendor's, mma of sm_100 and sm_120 is the H100's, and l2_share is the
// width of the cache's crossbar by the share of it that an H100 reaches.
constexpr Machine kMachines[] = {
    {.sm_version = 70, .clock = 1.4e9, .mma = 512, .fma = 1.25, .l2_share = 0.25e11, .gpcs = 6},
    {.sm_version = 75, .clock = 1.4e9, .mma = 512, .fma = 1.25, .l2_share = 0.25e11, .gpcs = 3},
    {.sm_version = 80, .clock = 1.4e9, .mma = 1024, .fma = 1.25, .l2_share = 0.5e11, .gpcs = 8},
    {.sm_version = 86, .clock = 1.7e9, .mma = 512, .fma = 2.5, .l2_share = 0.3e11, .gpcs = 7},
    {.sm_version = 89, .clock = 2.4e9, .mma = 512, .fma = 2.5, .l2_share = 0.4e11, .gpcs = 12},
    {.sm_version = 90, .clock = 1.7e9, .mma = 1250, .fma = 2.5, .l2_share = 0.8e11, .gpcs = 8},
    {.sm_version = 100, .clock = 1.8e9, .mma = 1250, .fma = 2.5, .l2_share = 0.8e11, .gpcs = 8},
    {.sm_version = 120, .clock = 2.4e9, .mma = 1250, .fma = 2.5, .l2_share = 0.4e11, .gpcs = 12},
};

}  // namespace

const Machine& MachineOf(const Target& target) {
  const auto* const next =
      std::ranges::upper_bound(kMachines, target.sm_version, {}, &Machine::sm_version);
  return next == std::begin(kMachines) ? kMachines[0] : *std::prev(next);
}

}  // namespace kiln::compiler
