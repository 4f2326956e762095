// Lowered: the kernels that an engine makes of a group, and launches whose arguments still name
// tensors of the group; `emit` resolves them to the caller's pointers and to places in the
// workspace.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/tensor_map.h"
#include "ir/tile/tile.h"

namespace kiln::compiler {

struct LoweredArg {
  enum class Kind : uint8_t {
    kTensor,      // pointer to tensor `id` of the group's graph
    kScratch,     // pointer to scratch buffer `id` of the group
    kScalar,      // `bits`, of the parameter's type
    kByValue,     // the host scalar tensor `id`, converted to the parameter's type
    kTensorMap,   // tensor_maps[bits] of the launch, over tensor `id`
    kScratchMap,  // the same over scratch buffer `id`
    kPeerRank,    // as in ir/program.h: of the `bits` parameters in front of it
    kPeerLimit,
    kFault,
  };
  Kind kind = Kind::kScalar;
  int id = 0;
  uint64_t bits = 0;
};

struct LoweredLaunch {
  int kernel = 0;
  std::array<int64_t, 3> grid = {1, 1, 1};
  std::vector<LoweredArg> args = {};  // one for each parameter of the kernel
  std::vector<TensorMapSpec> tensor_maps = {};
};

struct Lowered {
  std::vector<tile::Kernel> kernels;
  std::vector<LoweredLaunch> launches;
  std::vector<int64_t> scratch_bytes;  // workspace that only this group uses
};

}  // namespace kiln::compiler
