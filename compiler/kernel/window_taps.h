// WindowTaps: the work of a window engine's thread from the place of an output to accumulators:
// loops over the taps of a forward window, or over the windows that read an element of dx.
//
//   forward   for t0 in 0..3 { let at0 = start0 + t0
//               if 0 <= at0 < in0 { for t1 … { acc = max(acc, x[…at0, at1…]) } } }
//   backward  for j0 in 0..count0 { let p0 = first0 + j0; let t0 = h - (p0 * stride0 - pad0)
//               for j1 … { if index[…p0, p1…] == t0 * 3 + t1 { acc = acc + dy[…p0, p1…] } } }
//
// `lanes` neighbours along one dim that is not spatial share all of it but the values.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/kernel/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {

class WindowTaps {
 public:
  // `lane_dim` is the dim that lanes lie along; of no meaning where there is one.
  WindowTaps(KernelBuilder& b, const graph::Node& node, int64_t lane_dim, int lanes);

  // Accumulates for the output at `index` (lane 0's).
  void Emit(tile::Block& out, const Index& index);
  // The finished values of a lane, rounded to their tensors.
  tile::Expr Result(const tile::Expr& lane) const;
  tile::Expr FoundIndex(const tile::Expr& lane) const;
  bool has_index() const { return !found_.empty(); }
  // True if maps behind the window read a tensor, as those before it may, too.
  bool IsReadAfter(graph::TensorId leaf) const;

 private:
  struct Tap {          // along one axis
    tile::Expr source;  // the element that is read, of x or of dy
    tile::Expr number;  // in the window
    tile::Expr weight;  // null for 1
    tile::Expr inside;  // forward: whether it lies in x, null for always; else how many do
  };

  const graph::ResampleAttrs& attrs() const { return node_.As<graph::ResampleAttrs>(); }
  bool forward() const { return node_.op == graph::GraphOp::kResampleFwd; }
  bool bilinear() const { return attrs().mode == graph::ResampleMode::kBilinear; }
  bool excludes() const { return attrs().mode == graph::ResampleMode::kAvgExcludePadding; }

  tile::Expr Long(int64_t value, const char* name);  // a length as a coordinate: 0 and 1 literal
  tile::Expr Coordinate(tile::Expr e) const { return tile::Cast(coordinate_, std::move(e)); }
  tile::Expr AsIndex(tile::Expr e) const { return tile::Cast(b_.index_type(), std::move(e)); }
  struct Place {  // of tap 0, and the bilinear weights of taps 0 and 1
    tile::Expr base, left, right;
  };
  Place PlaceOf(tile::Block& out, size_t axis, const tile::Expr& p);
  tile::Expr Inside(size_t axis, const tile::Expr& base) const;  // taps inside x
  tile::Expr Weight(const Place& place, const tile::Expr& number) const;
  tile::Expr Extent(size_t axis, bool of_x) const;

  void Forward(tile::Block& out, const Index& index, size_t axis, std::vector<Tap> taps);
  void Backward(tile::Block& out, const Index& index, size_t axis, std::vector<Tap> taps);
  void Take(tile::Block& out, const Index& index, const std::vector<Tap>& taps);
  // `inside`: a condition on the tap; null for none.
  void TakeMaximum(tile::Block& out, const tile::Expr& lane, const tile::Expr& value,
                   const tile::Expr& number, const tile::Expr& inside);
  void Gather(tile::Block& out, const Index& index, const std::vector<Tap>& taps);
  void Add(tile::Block& out, const tile::Expr& lane, const tile::Expr& value);
  // Writes for name in 0..count { emit(name) }, `most` being the most that count may be. The sum
  // along the innermost axis of windows that add up many taps is one of segments: each has its own
  // accumulator.
  void Serial(tile::Block& out, const char* name, size_t axis, const tile::Expr& count,
              int64_t most, const std::function<void(tile::Block&, const tile::Expr&)>& emit);
  std::string DeclareLanes(tile::Block& out, const char* wish, DType type, const tile::Expr& value);
  tile::Expr Number(const std::vector<Tap>& taps) const;  // of a tap in its window, row-major
  std::vector<graph::TensorId> LeavesOf(graph::TensorId id) const;
  // The window of this group that finds an index; null where memory has it.
  const graph::Node* SearchOf(graph::TensorId index) const;

  KernelBuilder& b_;
  const graph::Node& node_;
  graph::TensorId x_, y_;  // as the forward direction has them
  int64_t lane_dim_;
  int lanes_;
  std::vector<graph::ResampleAxis> axes_;
  graph::PaddingTap padding_;
  DType compute_, coordinate_;
  std::string acc_, found_;
  tile::Expr divisor_;  // of the result; null for 1
  std::vector<Place> places_;
};

}  // namespace kiln::compiler
