// Contraction: every contraction as an implicit matrix product, C[m,n] = sum over k of A[m,k] *
// B[k,n], for each batch. The axes are lists of dims; operands and output are addressed through
// index functions, and an operand position that lies in the padding has a guard that is false
// there.
//
//             batch       m              n              k                 A          B
//   matmul    batch dims  M              N              K                 a          b
//   fprop     group       n, p, q        k of group     c of group, r, s  x, guard   w
//   dgrad     group       n, h, w        c of group     k of group, r, s  dy, guard  w
//   wgrad     group       k of group     c of group,    n, p, q           dy         x, guard
//                                        r, s
#pragma once

#include <functional>
#include <vector>

#include "compiler/kernel/kernel_builder.h"

namespace kiln::compiler {

// The dims of one axis, outermost first: extents as expressions, and their launch values.
struct Axis {
  Index extents;
  Dims values;
  int64_t size() const { return NumElements(values); }
};

struct Operand {
  Index index;       // into the tensor
  tile::Expr guard;  // null where the position always exists
};

// For each dim of an axis, the dim of a tensor that it walks one for one, everywhere: a step along
// the axis is a step in the tensor, and no position is in the padding. -1 where that is not so.
struct Walks {
  Dims a_m, a_k, b_k, b_n, out_m, out_n;
};

struct Contraction {
  graph::TensorId a = -1, b = -1, out = -1;
  DType accumulator = DType::kF32;
  Axis batch = {}, m = {}, n = {}, k = {};
  bool a_walks_k = true,
       b_walks_k = true;  // whether neighbours in memory are neighbours along k (else along m, n)
  // Emits what it needs to `out` and returns the operand's place.
  std::function<Operand(tile::Block& out, const Index& batch, const Index& m, const Index& k)>
      at_a = {};
  std::function<Operand(tile::Block& out, const Index& batch, const Index& k, const Index& n)>
      at_b = {};
  std::function<Index(const Index& batch, const Index& m, const Index& n)> at_out = {};
  Walks walks = {};
};

// True if `lanes` neighbours along an axis, from a multiple of `lanes` on, are neighbours in memory
// too, aligned to their size: the tensor can be read or written that many at a time. `walked` is
// the row of Walks for the two.
bool IsWideAlong(const graph::Tensor& tensor, const Axis& axis, const Dims& walked, int lanes);

// True if a tensor of a convolution is contiguous along dim 1.
bool ChannelsLast(const graph::Tensor& t);

Contraction DescribeContraction(KernelBuilder& b, const graph::Node& node);

// The transposed product, C^T = B^T A^T: for an output whose neighbours in memory lie along m.
Contraction Swapped(Contraction c);

// The sizes of the axes alone, for cost models, which ask for every knob value.
struct ContractionSizes {
  int64_t batch, m, n, k;
};
ContractionSizes SizesOf(const graph::Graph& graph, const graph::Node& node);

}  // namespace kiln::compiler
