// The text of one wgmma instruction as a member function of a skeleton's configuration.
#pragma once

#include <string>
#include <vector>

#include "ir/tile/tile.h"

namespace kiln::cuda_codegen {

// using accumulator, kElementBytes, kLeftMajor, kRightMajor, and
// multiply(acc, left, right, accumulate): acc = left * right (+ acc where `accumulate`).
std::vector<std::string> WgmmaLines(const tile::Call::Wgmma& wgmma, bool left_in_registers);

}  // namespace kiln::cuda_codegen
