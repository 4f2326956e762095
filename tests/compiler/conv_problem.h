// Convolutions by their numbers, as graphs: what the tests of the convolution engines are written
// in.
#pragma once

#include <string>

#include "ir/graph/graph.h"

namespace kiln::compiler {

struct ConvProblem {
  std::string name;
  graph::GraphOp op = graph::GraphOp::kConvFprop;
  DType type = DType::kF16;
  int64_t groups = 32, channels = 1, filters = 1;  // the last two of a group
  int64_t images = 2;
  Dims image = {7, 9}, taps = {3, 3};
  Dims pad = {1, 1}, stride = {1, 1}, dilation = {1, 1};
  bool last = true;  // channels innermost in memory
  bool flip = false, fused = false;
  bool followed = false;  // as `fused`, with nothing before the convolution
};

// With `fused`, a scale and an addition before the convolution; a bias, a residual, a second result
// and relu behind it.
graph::Graph Build(const ConvProblem& problem);

}  // namespace kiln::compiler
