// A case with dims of extent 1 added to its tensors. Memory and meaning stay the same; only the
// descriptors say it with more dims. NVIDIA's engines are written for NCHW and NHWC tensors of rank
// 4 (matmul: 3): below that they mostly refuse, and some compute the first row alone.
#pragma once

#include <vector>

#include "tests/support/cases.h"

namespace kiln::testing {

enum class PadSide { kFront, kBack };

// Every tensor of lower rank gets dims of 1 up to `rank`; axes of operations move with their dims.
Case PadRank(const Case& c, size_t rank, PadSide side);

// The forms in which NVIDIA's library is offered a case, best first: never empty, all of the same
// meaning. Rows of a matrix [R, C] become [1, 1, R, C], rows of an image, or [R, C, 1, 1], a batch
// of channels: which of them an engine takes differs, most of all for reductions.
std::vector<Case> FormsForNvidia(const Case& c);

}  // namespace kiln::testing
