// WorkspacePlan: places for buffers that live over ranges of steps. First fit by address, 256-byte
// aligned; buffers whose ranges do not overlap may share bytes. Deterministic. Used by emit, and by
// those who only ask how much a plan needs.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "compiler/module.h"

namespace kiln::compiler {

struct LiveBuffer {
  int64_t bytes = 0;
  int first_step = 0, last_step = 0;  // inclusive
  int64_t offset = 0;                 // the answer
};

// Fills every offset; returns the bytes in all.
int64_t PlaceBuffers(std::vector<LiveBuffer>& buffers);

// The places of the tensors between groups, and of what groups use by themselves.
struct WorkspaceLayout {
  int64_t bytes = 0;
  std::map<graph::TensorId, int64_t> intermediates;  // tensor of the module's graph → offset
  std::vector<std::vector<int64_t>> scratch;         // offsets, by group
};
WorkspaceLayout LayOutWorkspace(const Module& module);

}  // namespace kiln::compiler
