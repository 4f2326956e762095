// ConvShape: a convolution's geometry as numbers, for the engines that make it part of a kernel's
// structure (taps, strides, dilations and paddings are constants in their text; the other extents
// are arguments). Fprop and dgrad are one walk: outputs from inputs.
//
//   fprop  output p reads input p*stride + r*dilation - pad at each tap r
//   dgrad  output h reads input (h + pad - r*dilation) / stride where that divides; outputs whose
//          remainder modulo the stride is the same read the same taps
//
// so with h = u*phases + phase, both read input u*step + offset(phase, tap).
#pragma once

#include <vector>

#include "compiler/kernel/kernel_builder.h"

namespace kiln::compiler {

struct ConvShape {
  graph::GraphOp op{};
  graph::TensorId x = -1, w = -1, y = -1;  // by role: x is what fprop reads
  graph::TensorId in = -1, out = -1;       // of fprop and dgrad: what is walked, what is made
  int64_t groups = 1, channels = 1, filters = 1;  // channels (of x) and filters (of y) a group
  int64_t spatial = 0;
  Dims taps = {}, stride = {}, dilation = {}, pad = {};
  bool flip = false;

  bool is_dgrad() const { return op == graph::GraphOp::kConvDgrad; }
  bool is_wgrad() const { return op == graph::GraphOp::kConvWgrad; }
  // The most products that a result of fprop or dgrad is the sum of.
  int64_t Products() const { return (is_dgrad() ? filters : channels) * NumElements(taps); }
  // The tap's index in w: the filter is rotated in convolution mode.
  int64_t FilterTap(int64_t axis, int64_t tap) const { return flip ? taps[axis] - 1 - tap : tap; }
};

// The convolution of a group that has one; false for a matmul and for groups without a contraction.
bool IsConvolution(const Group& group);
ConvShape ShapeOf(const Group& group);

// True if a tensor is read from memory as it is, and begins at 16 aligned bytes.
bool InMemoryAligned(const Group& group, graph::TensorId id);
// True if neighbours of such a tensor along dim 1 moreover come by `chunk` elements that are 16
// aligned bytes.
bool ComesByPieces(const Group& group, graph::TensorId id, int64_t chunk);

struct TapAt {
  int64_t tap, offset;
};
struct AxisMap {
  int64_t phases = 1, step = 1;
  std::vector<std::vector<TapAt>> taps = {{}};  // of each phase

  // The input that output `at`, counted from a multiple of the phases, reads at `tap`, counted from
  // that multiple's input.
  int64_t InputOf(int64_t at, const TapAt& tap) const { return at / phases * step + tap.offset; }
  const std::vector<TapAt>& TapsOf(int64_t at) const { return taps[at % phases]; }
};
AxisMap MapAxis(const ConvShape& shape, int64_t axis);

}  // namespace kiln::compiler
