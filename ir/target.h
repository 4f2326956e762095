// Target: a device described as data. The compiler decides from this alone, so a graph compiles for
// a GPU that this machine does not have (`kiln dump --arch sm_100a`, device-less plans).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/result.h"

namespace kiln {

constexpr int64_t kSharedWithoutAttribute = 48 * 1024;

enum class TargetKind : uint8_t { kCuda, kCpu };

struct Target {
  TargetKind kind = TargetKind::kCuda;
  std::string arch = "sm_90a";  // NVRTC's --gpu-architecture, or "native" on the CPU
  std::string name;             // as the driver spells it; part of tuning keys
  int sm_version = 90;          // 80, 86, 89, 90, 100, 120; 0 on the CPU
  int multiprocessors = 132;    // SMs, or threads of the CPU target
  int max_threads_per_block = 1024;
  int64_t shared_bytes_per_block = 232448;  // opt-in maximum
  int64_t registers_per_multiprocessor = 65536;
  int64_t l2_bytes = 52428800;
  // The most that clock and memory do, as the driver says; 0 where it does not. Cost models prefer
  // the row of the board's name (compiler/machine).
  int64_t clock_hz = 0, memory_bytes_per_second = 0;
  bool minimal_launch = false;  // KILN_LAUNCH=minimal

  // The most shared memory that a block can ask for: above 48 KB a function needs
  // cuFuncSetAttribute first, which a minimal launch does without.
  int64_t shared_limit() const {
    return minimal_launch ? std::min(shared_bytes_per_block, kSharedWithoutAttribute)
                          : shared_bytes_per_block;
  }

  bool is_cuda() const { return kind == TargetKind::kCuda; }
};

// The target of an architecture's usual board: "sm_90a", "sm_80", ...; "cpu" is the CPU target. An
// unknown name is an error that lists the known ones.
Result<Target> TargetFromArch(std::string_view arch);

// The target of a board of the table (ir/board.h), compiled for with all that its architecture has.
Result<Target> TargetFromBoard(std::string_view name);

// Other boards, as the driver spells them, that have the same chip: a plan that is fastest on one
// is mostly fast on all, though memory and clocks differ.
std::vector<std::string_view> KinOf(const Target& target);

}  // namespace kiln
