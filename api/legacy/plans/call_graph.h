// CallGraph: from the descriptors of a compute call to a graph::Graph. A tensor's uid is the number
// of the operand in the call (call.h). Made once for a key.
#pragma once

#include <map>
#include <vector>

#include "api/legacy/descriptors/tensor.h"
#include "ir/graph/builder.h"

namespace kiln::api::legacy {

// Memory of the client's, or one of its scalars, as an operand of the call.
struct Operand {
  int slot = -1;
  const TensorDesc* desc = nullptr;
  int alignment = 1;  // of the pointer, in bytes; at most 16
};
struct Scalar {
  int slot = -1;
  DType type = DType::kF32;
};

// y = alpha * result + beta * what y held: scalars where they count, and y before the call as an
// operand of its own. Engines that update memory in place take care of readers elsewhere in it;
// here each element is read where it is written, and nowhere else.
struct Blend {
  Scalar alpha, beta;  // without a slot: 1 and 0
  Operand prior;
};

// The type that arithmetic on the tensor happens in: f64 for f64, else f32.
DType ComputeType(const TensorDesc& tensor);
// The type of an element, of a vector's parts. An error names what no computation takes.
Result<DType> ElementType(int type);

// Wishes say what the plan may be, beside what it computes.
struct PlanWishes {
  int64_t workspace_bytes = INT64_MAX;  // at most
  bool least_workspace = false;         // the least that any plan needs
  bool only_fma = false;                // no tensor cores, and operands as they are
  bool keeps_bits = false;              // operands as they are, on whatever units
  bool winograd = false;                // an engine that says it is Winograd's products, if one is
};

class CallGraph {
 public:
  PlanWishes wishes;

  explicit CallGraph(std::string name) : builder_(std::move(name)) {}

  // The value of the memory, with the descriptor's dims. An operand that is read twice is one
  // tensor.
  Result<graph::TensorId> Read(const Operand& operand);
  // A scaling factor, of rank `rank`.
  graph::TensorId Read(const Scalar& scalar, int64_t rank);
  // alpha * value + beta * prior, converted to the operand's type.
  Status Write(graph::TensorId value, const Operand& operand, const Blend& blend = {});
  // The memory as a result that a node stores itself, whose type and extents are the descriptor's.
  Result<graph::TensorId> Stored(const Operand& operand);
  // The value that was written last, as its memory has it.
  graph::TensorId Written() { return builder_.graph().nodes.back().outputs[0]; }
  // Writes a value that has extents of 1 where the operand has others.
  Status WriteBroadcast(graph::TensorId value, const Operand& operand, const Blend& blend);

  graph::TensorId Pointwise(const graph::PointwiseAttrs& attrs, std::vector<graph::TensorId> inputs,
                            DType compute);
  graph::TensorId Pointwise(graph::PointwiseMode mode, std::vector<graph::TensorId> inputs,
                            DType compute);
  graph::TensorId Constant(double value, int64_t rank, DType type);
  // A packed result of a node with more than one.
  graph::TensorId Virtual(std::string name, const Dims& dims, DType type);
  const Dims& DimsOf(graph::TensorId id) { return builder_.graph()[id].dims; }
  graph::GraphBuilder& builder() { return builder_; }

  Result<graph::Graph> Finish() { return builder_.Finish(); }

 private:
  Result<graph::Tensor> Memory(const Operand& operand) const;
  bool StoresItself(graph::TensorId value, const graph::Tensor& memory);

  graph::GraphBuilder builder_;
  std::map<int, graph::TensorId> read_;  // by slot
  int constants_ = 0;
};

// ---- checks

Status CheckSet(const TensorDesc& tensor, std::string_view name);
Status CheckSameDims(const TensorDesc& x, const TensorDesc& y);
Status CheckSameType(const TensorDesc& x, const TensorDesc& y);
Status CheckSameStrides(const TensorDesc& x, const TensorDesc& y);
// The status for functions that have what differs as not supported.
Status AsNotSupported(Status status);
// Checks that the type is float, double, half or bfloat16, which are the types that have gradients.
Status CheckFloat(const TensorDesc& tensor);
// Checks memory that is read and written in place. Error: the two descriptors do not say the same
// of it.
Status CheckInPlace(const void* from, const TensorDesc& x, const void* to, const TensorDesc& y);

}  // namespace kiln::api::legacy
