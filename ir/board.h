// Board: a GPU as its vendor's data sheet states it. `TargetFromArch` and `TargetFromBoard` make
// targets of these rows, and cost models (compiler/machine) take from them the clock and the memory
// rate of a board that they find by its name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace kiln {

struct Board {
  std::string_view name;  // as the driver spells it
  int sm_version;
  int multiprocessors;
  double clock;             // Hz, boost
  double bytes_per_second;  // of memory
  int64_t l2_bytes;
};

// All boards by architecture; the first of each is its usual board.
std::span<const Board> Boards();

// The row of that name; null where there is none.
const Board* BoardNamed(std::string_view name, int sm_version);

// The usual board of the newest architecture in the table that is not newer than `sm_version`; of
// the oldest one where all are.
const Board& UsualBoard(int sm_version);

}  // namespace kiln
