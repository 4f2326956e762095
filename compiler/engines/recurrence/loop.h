// RecurrenceLoop: the parts that the kernels of a recurrence and of its gradient share. Weights are
// staged once, in a kernel of their own, so that neighbouring units lie side by side:
//
//   staged[direction][k][group][unit]      groups: the gates of a unit
//   for step in 0..T {                     a block: a direction, `rows` sequences
//     for chunk … { acc[row][group][lane] = sum over k of staged[k] * state[row][k];  cell }
//     barrier
//   }
//
// States live in scratch memory that no other block touches, in the accumulator's type.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/kernel/kernel_builder.h"
#include "compiler/patterns/recurrence_shape.h"
#include "ir/graph/rnn.h"

namespace kiln::compiler {

struct RecurrenceKnobs {
  int rows = 1;     // sequences of a block
  int threads = 1;  // of a block; 1 on the CPU
};

class RecurrenceLoop {
 public:
  RecurrenceLoop(const Group& group, const Target& target, const RecurrenceKnobs& knobs,
                 const char* what);

 protected:
  // A matrix for each direction, [D][depth][groups][padded units] in scratch memory.
  struct Staged {
    std::string pointer;
    DType type = DType::kF32;
    int64_t depth = 0, groups = 1, units = 0;
    tile::Expr depth_arg, padded_arg, units_arg;
  };
  using Place =
      std::function<Index(const tile::Expr& d, const tile::Expr& k, const tile::Expr& group,
                          const tile::Expr& unit, const tile::Expr& units)>;
  Staged Stage(graph::TensorId tensor, int64_t depth, int64_t groups, int64_t units,
               const Place& place);
  // Makes `width` values of the accumulator's type for each direction and sequence, `copies` times.
  std::string State(int64_t width, int64_t copies = 1);

  // One sequence of the block.
  struct Row {
    tile::Expr batch, exists, length;
    tile::Expr state;  // direction * B + sequence, the row of states
  };
  // Calls for units of this thread, `lanes` from `first` on, and for each row: `make` gets what
  // `product` gave (null without), in acc[(row * groups + group) * lanes + lane].
  struct Lane {
    tile::Expr unit;
    std::vector<tile::Expr> sums;  // one a group
  };
  using Visit = std::function<void(tile::Block& out, const Row& row, const Lane& lane)>;
  // One pass over `units`, with the product of `matrix` and the state at `base(row)` before. The
  // visit stands where the row exists.
  void Units(tile::Block& out, int64_t units, const tile::Expr& units_arg, const Staged* matrix,
             const std::string& state, const std::function<tile::Expr(const Row&)>& base,
             const Visit& visit);

  void Barrier(tile::Block& out) const;
  tile::Expr Idx(int64_t value) const { return b_.Idx(value); }
  DType acc() const { return shape_.accumulator; }
  tile::Expr Real(double value) const { return tile::Float(value, acc()); }
  tile::Expr Load(const std::string& buffer, tile::Expr index) const {
    return tile::Load(buffer, acc(), std::move(index));
  }
  tile::Expr Rounded(tile::Expr value) const {
    return tile::Cast(acc(), tile::Cast(shape_.type, std::move(value)));
  }
  // The tensor's value at the index, in the accumulator's type.
  tile::Expr Read(tile::Block& out, graph::TensorId tensor, const Index& index);
  // Writes a result, where somebody asks for it.
  void Write(tile::Block& out, graph::TensorId tensor, const Index& index, tile::Expr value);
  bool IsWritten(graph::TensorId tensor) const;
  graph::TensorId In(size_t i) const;
  graph::TensorId Out(size_t i) const;
  // A row's time at step `step` of its direction, and whether the sequence is that long.
  struct Moment {
    tile::Expr time, is_inside;
  };
  Moment At(tile::Block& out, const Row& row, const tile::Expr& step);
  tile::Expr Sigmoid(tile::Expr x) const;
  tile::Expr Tanh(tile::Expr x) const { return tile::Op(ScalarOp::kTanh, {std::move(x)}); }
  // A cell as an lstm uses it, and whether that moves with it.
  tile::Expr Use(const tile::Expr& c) const;
  tile::Expr UseSlope(const tile::Expr& c) const;

  // Makes the kernel; `body` is the work of a block, whose rows are in rows_.
  Lowered Finish(tile::Block body);

  const Group& group_;
  const Target& target_;
  const RecurrenceKnobs knobs_;
  const RecurrenceShape shape_;
  const int lanes_;  // units that a thread makes side by side
  KernelBuilder b_;
  tile::Expr d_;  // the block's direction
  tile::Expr steps_, hidden_, projected_;
  std::vector<Row> rows_;
  tile::Block head_;  // computes rows_

 private:
  void DescribeRows();
  void Product(tile::Block& out, const Staged& matrix, const std::string& state,
               const std::function<tile::Expr(const Row&)>& base, const tile::Expr& first,
               const std::string& sums);
  void AddProducts(tile::Block& out, const Staged& matrix, const std::string& state,
                   const std::function<tile::Expr(const Row&)>& base, const tile::Expr& first,
                   const std::string& sums, const tile::Expr& from_k, const tile::Expr& count);

  Lowered lowered_;
  std::vector<int64_t> scratch_bytes_;
};

Lowered LowerRecurrence(const Group& group, const Target& target, const RecurrenceKnobs& knobs);
Lowered LowerRecurrenceGrad(const Group& group, const Target& target, const RecurrenceKnobs& knobs);

}  // namespace kiln::compiler
