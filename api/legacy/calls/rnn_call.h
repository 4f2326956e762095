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

// The states of all pseudo-layers in one tensor. A call whose `data` is null reads or writes none.
struct RnnState {
  const TensorDesc* desc = nullptr;
  const void* data = nullptr;
};

struct RnnSpace {
  void* data = nullptr;
  size_t bytes = 0;
};

// The arguments of a forward call. `rnn` has the width of its input and the type of its data here,
// even if cudnnSetRNNDescriptor_v6, which knows neither, set it.
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

// The bytes that every call of the mode needs at most on data of these extents, whatever the
// lengths of its sequences.
struct RnnSizes {
  size_t work = 0, reserve = 0;
};
Result<RnnSizes> RnnSizesOf(Handle& handle, const RnnDesc& rnn, bool trains,
                            const RnnDataDesc& x_desc);

// ---- parts of calls ----

// An RnnProblem is a network on data of some extents: its attributes in the graph, and the
// descriptors of all that it reads and writes.
class RnnProblem {
 public:
  // Makes the problem of a call; the failure says which argument does not fit to which.
  static Result<RnnProblem> Make(const RnnDesc& rnn, bool trains, const RnnDataDesc& x_desc,
                                 const RnnDataDesc& y_desc);
  // Makes the problem that sizes hold for: all sequences have x_desc.steps steps. Its graph reads
  // their lengths if `has_lengths`, or if `x_desc` is packed.
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
  // Adds the numbers to the call's key that the plan depends on beside its operands.
  void AddTo(Call& call) const;

 private:
  Status Fill(const RnnDesc& rnn, bool trains, const RnnDataDesc& data, int64_t rows);
};

// An RnnCall runs a graph of one operation of a network. In() and Out() are called in the order of
// its operands and results; one that is not there is absent in the graph.
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
  // Runs the plan. If `seconds` is not null, repeats it with a clock and puts the time of one
  // there.
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

// The checks of arguments follow in the order of the calls. The descriptor of a state is looked at
// only if the state has memory.
Result<const TensorDesc*> StateDesc(const void* object, bool is_needed);
Status CheckState(const RnnState& state, const TensorDesc& wanted, std::string_view name);
Status CheckWeights(const RnnProblem& problem, const void* weights, size_t bytes);
Status CheckReserve(const RnnProblem& problem, const RnnSpace& reserve);
// Puts the lengths into the work space if the problem has any, and gives the plan the rest. Fails
// if the work space has less than `least_bytes`, which RnnSizesOf gives.
Result<Workspace> PrepareWork(Handle& handle, const RnnProblem& problem, const RnnDataDesc& data,
                              const RnnSpace& work, size_t least_bytes);

}  // namespace kiln::api::legacy
