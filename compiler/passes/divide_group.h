// DivideGroup: a contraction's group as several, with operands and results that are stored on their
// way. `materialise` tries divisions and keeps one where the model says so.
//
//   group      x ── scale, relu ──┐
//              w ─────────────────┴─ conv_fprop ── add bias ── add z ── y
//
//   division   pointwise   x ── scale, relu ── x'                  the prologue, stored
//              pointwise   w ── w'                                 another layout
//              contract    x', w' ── conv_fprop ── add bias ── y'  channels innermost
//              pointwise   y', z ── add z ── y                     in the layout of y and z
//
// Values stay what they were: every tensor keeps its dtype, so it rounds where it did before.
#pragma once

#include <utility>
#include <vector>

#include "compiler/module.h"

namespace kiln::compiler {

struct Division {
  struct Operand {
    size_t position;  // among the contraction's inputs
    Dims strides;     // of the tensor that is written for it
  };
  std::vector<Operand> operands = {};
  // True for a convolution if results whose channels are not innermost are written with channels
  // innermost, and moved afterwards. Maps that read a tensor of the result's size with such a
  // layout are applied then.
  bool results = false;
};

struct DividedGroup {
  std::vector<Group> groups = {};  // in launch order; one does not move data: the contraction
  // The tensors that they hand on to one another; the first is tensor `first` of the module's
  // graph.
  std::vector<graph::Tensor> tensors = {};
};

// The dense strides with dim `inner` innermost, padded to whole `multiple`s of elements.
Dims StridesWithInnermost(size_t inner, const Dims& dims, int64_t multiple);
// True if a division's `results` would have anything to do.
bool MovesResults(const Group& group);

DividedGroup DivideGroup(const Group& group, const Division& division, graph::TensorId first);

}  // namespace kiln::compiler
