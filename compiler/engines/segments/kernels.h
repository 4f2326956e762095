// The kernels of the segments engine (engine.h).
#pragma once

#include "compiler/kernel/kernel_builder.h"

namespace kiln::compiler {

// Lowers segment_reduce; `places_at_once` places of a segment are on their way at once.
Result<Lowered> LowerSegmentReduce(const Group& group, const Target& target, int threads,
                                   int places_at_once);
Result<Lowered> LowerSegmentIds(const Group& group, const Target& target, int threads);

// The operand `i` of a node that may leave out its last ones, kAbsent where it does.
inline graph::TensorId OperandOf(const graph::Node& node, size_t i) {
  return i < node.inputs.size() ? node.inputs[i] : graph::kAbsent;
}
// The rows of x that segment_reduce has at its places; kAbsent: all, in order.
inline graph::TensorId RowsOf(const graph::Node& segment_reduce) {
  return OperandOf(segment_reduce, 2);
}

// Element `i` of a list of integers, in the type of the list.
tile::Expr ListElement(KernelBuilder& b, tile::Block& out, graph::TensorId list,
                       const tile::Expr& i);

// The rows of x at places of a segment, as values of x's neighbours along the innermost dim.
// Reading comes first, so that several rows are on their way before the first value is asked for.
class SegmentRow {
 public:
  // The reads of row `place` of x, or rows[place]; `index` is that of y's lane 0, `lanes`
  // neighbours.
  SegmentRow(KernelBuilder& b, tile::Block& out, const graph::Node& node, const tile::Expr& place,
             const Index& index, int lanes);

  // Emits what waits for the reads: behind those of all rows.
  void Settle(tile::Block& out);
  // The value of lane `lane`, in x's arithmetic type; statements go to `out`.
  tile::Expr Value(tile::Block& out, const tile::Expr& lane);

 private:
  struct Bound {
    graph::TensorId tensor;
    std::string registers;  // one for each lane; or none:
    tile::Expr value;       // the same for all lanes
  };

  void Prefetch(tile::Block& out, graph::TensorId tensor);
  void PrefetchGather(tile::Block& out, const graph::Node& gather);
  Index LaneIndex(const tile::Expr& lane) const;
  bool is_wide(graph::TensorId tensor) const;

  KernelBuilder& b_;
  graph::TensorId x_;
  std::vector<graph::NodeId> producers_;
  int lanes_;
  Index index_;        // of x, at lane 0
  tile::Expr inside_;  // whether x has the row; null where it always has
  std::vector<Bound> bound_;
  tile::Block late_;
};

}  // namespace kiln::compiler
