// WorkspacePlan: places for buffers that live over ranges of steps. First fit by address, 256-byte
// aligned; buffers whose ranges do not overlap may share bytes. Deterministic. Used by emit.
#pragma once

#include <cstdint>
#include <vector>

namespace kiln::compiler {

struct LiveBuffer {
  int64_t bytes = 0;
  int first_step = 0, last_step = 0;  // inclusive
  int64_t offset = 0;                 // the answer
};

// Fills every offset; returns the bytes in all.
int64_t PlaceBuffers(std::vector<LiveBuffer>& buffers);

}  // namespace kiln::compiler
