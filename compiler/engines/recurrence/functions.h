// RecurrenceFunctions: the functions by which the skeletons of persistent recurrences reach the
// tensors of the group (codegen/cuda/device/recurrence/recurrence_sm80.cuh says what they are).
// With projected states there are those of the layer's units, and then those of the projection; a
// stack has those of a stage, which comes in the place of a direction, and then those of its links.
#pragma once

#include <functional>
#include <string>

#include "compiler/engines/recurrence/loop.h"
#include "compiler/kernel/kernel_builder.h"
#include "compiler/patterns/recurrence_stack.h"

namespace kiln::compiler {

// The type of the values that a cell reads: that of states, or f32.
DType RecurrenceValueType(const graph::Graph& graph, const RecurrenceShape& shape);

class RecurrenceFunctions {
 public:
  RecurrenceFunctions(KernelBuilder& b, const RecurrenceShape& shape,
                      const RecurrenceStack* stack = nullptr)
      : b_(b), shape_(shape), stack_(stack), node_(shape.node) {}
  void Add(tile::Call& call);

 private:
  using Function = tile::Call::Function;

  // The direction, sequence and unit of a function's parameters.
  struct Spot {
    tile::Expr d, batch, unit, stage;
  };
  Spot AddSpot(Function& f) const;
  void AddLength(tile::Call& call);
  // The rows of a matrix, or its columns.
  struct Matrix {
    graph::TensorId id;
    bool is_transposed;
    int64_t depth;
    tile::Expr between_gates;  // rows
  };
  bool IsTurned(const std::function<Matrix()>& matrix);
  void AddWeight(tile::Call& call, const char* name, const std::function<Matrix()>& matrix,
                 bool is_turned = false);
  void ReadTurned(tile::Block& out, const char* name, const Matrix& matrix, const tile::Expr& d,
                  const tile::Expr& unit, const tile::Expr& depth, const std::string& values);
  void ReadWeight(tile::Block& out, const char* name, const Matrix& matrix, const tile::Expr& d,
                  const tile::Expr& unit, const tile::Expr& gate, const tile::Expr& depth,
                  const std::string& values);
  // Calls `body` with In and Out those of each stage from `first` on, and what it writes stands
  // where `stage` is that one.
  void OfStages(tile::Block& out, const tile::Expr& stage,
                const std::function<void(tile::Block&)>& body, size_t first = 0);
  // The link to this stage; null of the first one, and of loops that are no stack.
  const RecurrenceStack::Link* LinkBelow() const;
  void AddLinks(tile::Call& call);
  // The slots that have states: h and c, dh and dc; others are 0 and go nowhere.
  struct States {
    const char *before, *after;
    bool has[2];  // h, c
    int count;
  };
  void AddStates(tile::Call& call, const States& states);
  void AddFixed(tile::Call& call);
  void AddRead(tile::Call& call);
  void AddStore(tile::Call& call);
  void AddProjection(tile::Call& call);
  void ReadForward(tile::Block& out, const Spot& at, const tile::Expr& time,
                   const std::string& values);
  void ReadGradient(tile::Block& out, const Spot& at, const tile::Expr& time,
                    const tile::Expr& step, const std::string& values);
  void ReadBefore(tile::Block& out, const Spot& at, const tile::Expr& time, const tile::Expr& step,
                  const std::string& values, int64_t slot);
  // Values stay as they lie in memory: whoever converts one waits for it.
  void Keep(tile::Block& out, const std::string& values, int64_t slot, graph::TensorId id,
            const Index& index);

  graph::TensorId In(size_t i) const;
  graph::TensorId Out(size_t i) const;
  bool IsWritten(graph::TensorId id) const;
  tile::Expr Read(tile::Block& out, graph::TensorId id, const Index& index);
  void Write(tile::Block& out, graph::TensorId id, const Index& index, tile::Expr value);
  tile::Expr Idx(int64_t value) const { return b_.Idx(value); }
  // Unit of a block of H.
  tile::Expr Blocked(int64_t block, const tile::Expr& unit);

  KernelBuilder& b_;
  const RecurrenceShape& shape_;
  const RecurrenceStack* const stack_;
  const graph::Node* node_;  // the stage's
  size_t stage_ = 0;
  tile::Expr hidden_, steps_;
};

}  // namespace kiln::compiler
