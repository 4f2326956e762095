// Sums of squared distances from a mean, which is a sum of the same group. Parts of the elements
// can have both at once, the distances from means of their own, and be joined in any order:
//
//   two parts of n elements each:   m2 = m2_a + m2_b + (mean_a - mean_b)^2 * n / 2
//
// A sum that distances are taken from adds x - s, s being one of its elements, where x has the bits
// for it: f32 data may lie so far from zero that its sum would round away what its elements differ
// by. No element is so far off that what is left would be lost beside its own squared distance. An
// element that is no number, or so large that a distance from it could overflow where the sum of
// the elements does not, is no s: 0 is. So it is where another element is not much nearer to s than
// zero is: sums around zero lose least there.
#pragma once

#include <optional>
#include <vector>

#include "compiler/engines/reduction/reduce_plan.h"

namespace kiln::compiler {

struct Moment {
  size_t sum;            // of row.reduces
  graph::TensorId mean;  // that the distances are taken from: the sum over the elements' number
};

// A moment, or none, for each of row.reduces.
std::vector<std::optional<Moment>> MomentsOf(const ReducePlan& row);

// True if a sum of row.reduces, from whose mean distances are taken, adds x - s.
bool IsShifted(const ReducePlan& row, size_t sum);
// The s of elements of which these are two, or the same one twice; it may be named in `out`.
tile::Expr ShiftOf(KernelBuilder& b, tile::Block& out, const tile::Expr& element,
                   const tile::Expr& other);
// The place of the other element, where every reduced dim of `first` is at its begin.
Index OtherPlace(KernelBuilder& b, const ReducePlan& row, Index first);
// The sum of x, of `elements` elements, from that of x - s.
tile::Expr Unshifted(const tile::Expr& sum, const tile::Expr& shift, const tile::Expr& elements);

// A sum and its moment over some of the elements.
struct MomentPart {
  tile::Expr sum, moment;
};
// Parts of so many elements each, as many as a power of two, become one; likewise those of so many
// neighbouring lanes, which all get the same bits.
MomentPart Joined(KernelBuilder& b, tile::Block& out, std::vector<MomentPart> parts,
                  double elements);
MomentPart JoinedLanes(KernelBuilder& b, tile::Block& out, MomentPart part, int lanes,
                       double elements);

}  // namespace kiln::compiler
