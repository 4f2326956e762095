// The compute calls of recurrent networks, as all forms of the API have them: cudnnRNNForward and
// its like, the arrays of tensor descriptors and the Ex forms of 8 fill these structs, and one core
// checks them and runs the operations of the tensor graph.
//
//   work space     lengths i32 [batch], then what the plan needs
//   reserve space  `reserve`, then `gradients` of ir/graph/rnn.h, each at a multiple of 256 bytes
#pragma once

#include "api/legacy/calls/dropout.h"
#include "api/legacy/descriptors/rnn_descriptor.h"
#include "api/legacy/plans/call.h"

namespace kiln::api::legacy {

// States of pseudo-layers; without memory there are none.
struct RnnState {
  const TensorDesc* desc = nullptr;
  const void* data = nullptr;
};

struct RnnSpace {
  void* data = nullptr;
  size_t bytes = 0;
};

// The network has the width of its input and the type of its data here, whatever set it.
struct RnnForwardArgs {
  const RnnDesc* rnn = nullptr;
  bool trains = false;
  const RnnDataDesc *x_desc = nullptr, *y_desc = nullptr;
  const void* x = nullptr;
  void* y = nullptr;
  RnnState hx, cx, hy, cy;
  const void* weights = nullptr;
  size_t weight_bytes = 0;
  RnnSpace work, reserve;
  double* seconds = nullptr;  // where the search wants to know how long it takes
};
Status RnnForward(Handle& handle, const RnnForwardArgs& args);

struct RnnBackwardDataArgs {
  const RnnDesc* rnn = nullptr;
  const RnnDataDesc *x_desc = nullptr, *y_desc = nullptr;
  const void *y = nullptr, *dy = nullptr;
  void* dx = nullptr;
  RnnState hx, cx, dhy, dcy, dhx, dcx;
  const void* weights = nullptr;
  size_t weight_bytes = 0;
  RnnSpace work, reserve;
  double* seconds = nullptr;  // where the search wants to know how long it takes
};
Status RnnBackwardData(Handle& handle, const RnnBackwardDataArgs& args);

struct RnnBackwardWeightsArgs {
  const RnnDesc* rnn = nullptr;
  bool adds = true;
  const RnnDataDesc *x_desc = nullptr, *y_desc = nullptr;
  const void *x = nullptr, *y = nullptr;
  RnnState hx;
  void* weights = nullptr;  // their gradients
  size_t weight_bytes = 0;
  RnnSpace work, reserve;
  double* seconds = nullptr;  // where the search wants to know how long it takes
};
Status RnnBackwardWeights(Handle& handle, const RnnBackwardWeightsArgs& args);

// Bytes for all calls of the mode on data of these extents, whatever the lengths of its sequences.
struct RnnSizes {
  size_t work = 0, reserve = 0;
};
Result<RnnSizes> RnnSizesOf(Handle& handle, const RnnDesc& rnn, bool trains,
                            const RnnDataDesc& x_desc);

// ---- parts of calls ----

// A network on data of some extents: its attributes in the graph, and the descriptors of what it
// reads and writes.
class RnnProblem {
 public:
  // The problem of a call; the failure says which argument does not fit to which.
  static Result<RnnProblem> Make(const RnnDesc& rnn, bool trains, const RnnDataDesc& x_desc,
                                 const RnnDataDesc& y_desc);
  // The problem that sizes hold for, with sequences of all lengths: `bounds` with lengths or
  // without.
  static Result<RnnProblem> MakeBound(const RnnDesc& rnn, bool trains, const RnnDataDesc& x_desc,
                                      bool has_lengths);

  graph::RnnAttrs attrs;
  const DropoutDesc* dropout = nullptr;  // where the call drops
  bool has_lengths = false, only_fma = false;
  TensorDesc x, y, hidden, cell, weights, lengths, reserve, gradients;

  DType compute() const { return ComputeType(x); }
  size_t LengthBytes() const;     // of the work space
  size_t GradientOffset() const;  // in the reserve space
  size_t ReserveBytes() const;
  // Adds what the plan depends on, beside its operands.
  void AddTo(Call& call) const;

 private:
  Status Fill(const RnnDesc& rnn, bool trains, const RnnDataDesc& data, int64_t rows);
};

// A graph of one operation of a network: operands in its order, then the results.
class RnnCall {
 public:
  RnnCall(Handle& handle, const char* function, const RnnProblem& problem, graph::GraphOp op)
      : call_(handle, function), problem_(problem), op_(op) {
    problem.AddTo(call_);
  }
  void In(const TensorDesc& desc, const void* data, bool is_there = true) {
    inputs_[input_count_++] = is_there ? call_.Memory(desc, data) : Operand();
    call_.Add(static_cast<char>(is_there));
  }
  void Out(const TensorDesc& desc, const void* data, bool is_there = true) {
    outputs_[output_count_++] = is_there ? call_.Memory(desc, data) : Operand();
    call_.Add(static_cast<char>(is_there));
  }
  // `seconds`: where not null, repeats it with a clock.
  Status Run(const Workspace& workspace, double* seconds);
  Result<int64_t> WorkspaceBytes();

 private:
  Status Make(CallGraph& g) const;

  Call call_;
  const RnnProblem& problem_;
  const graph::GraphOp op_;
  std::array<Operand, 9> inputs_;
  std::array<Operand, 4> outputs_;
  size_t input_count_ = 0, output_count_ = 0;
};

// Checks of arguments, in the order of the calls. The descriptor of states counts where there is
// memory of them.
Result<const TensorDesc*> StateDesc(const void* object, bool is_needed);
Status CheckState(const RnnState& state, const TensorDesc& wanted, std::string_view name);
Status CheckWeights(const RnnProblem& problem, const void* weights, size_t bytes);
Status CheckReserve(const RnnProblem& problem, const RnnSpace& reserve);
// Puts the lengths into the work space, where there are any, and gives the plan the rest. Less than
// RnnSizesOf says is refused.
Result<Workspace> PrepareWork(Handle& handle, const RnnProblem& problem, const RnnDataDesc& data,
                              const RnnSpace& work, size_t least_bytes);

}  // namespace kiln::api::legacy
