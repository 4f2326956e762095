// The ctc engine: connectionist temporal classification (ir/graph/ops_ctc.cc), on every device.
//
//   samples   where each sample's labels begin, and whether a path fits it; by a warp each
//   links     for each label the next equal one, so that symbols are summed in a fixed order
//   softmax   largest logit and ln of the sum of a frame's exponentials; by a warp each
//   paths     alpha and beta, by a block for each sample and direction, over all its frames
//   gradient  probabilities less the shares of the paths; by a warp for each frame of a sample
//
// Sums over paths are logarithms. So that they keep their last bits over thousands of frames, each
// frame has an offset, whole numbers that are taken off all its states. No sum depends on the order
// in which threads run.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kCtcEngine;

}  // namespace kiln::compiler
