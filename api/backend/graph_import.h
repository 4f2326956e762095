// GraphImport: from operations over tensor descriptors to a graph::Graph. Tensors are matched by
// uid; operations may come in any order. Used by the operation graph's finalize, through
// Operation::Import.
//
// A tensor that one operation reads and writes (in place, or beta * y) becomes two tensors of one
// uid: the version before the operation and the one after.
//
// Operations see the plain tensor of one whose memory has a layout of its own (ir/graph/
// memory_layout.h).
#pragma once

#include <initializer_list>
#include <map>
#include <string_view>
#include <vector>

#include "api/backend/tensor.h"
#include "api/spec/element_type.h"
#include "ir/graph/graph.h"
#include "ir/graph/memory_layout.h"

namespace kiln::api {

class GraphImport {
 public:
  // The operand, null where an optional one is absent.
  using Operand = const TensorDesc*;

  // One operation with one node. Trailing absent inputs are dropped.
  Status Add(graph::GraphOp op, std::vector<Operand> inputs, std::vector<Operand> outputs,
             cudnnDataType_t compute, graph::Attrs attrs);

  // Operations that need more than one node put them together with these:
  Result<graph::TensorId> Tensor(const TensorDesc& tensor);
  // The value of the tensor that an operation reads which writes `outputs` (null where absent).
  Result<graph::TensorId> Read(const TensorDesc& tensor, std::initializer_list<Operand> outputs);
  // The tensor as the result of an operation.
  Result<graph::TensorId> Write(const TensorDesc& tensor);
  // The tensor of a uid: bound to one that is there, or known from an operation.
  void Bind(int64_t uid, graph::TensorId id);
  Result<graph::TensorId> IdOf(int64_t uid) const;
  // A virtual tensor that operations read and none writes, as the input of a sub-graph is; null
  // where there is none.
  const graph::Tensor* Loose() const;
  // The graph as it grows: ir/graph adds the nodes of what it spells out.
  graph::Graph& graph() { return graph_; }
  // The value that the tensor holds before the graph runs; Tensor is what some operation writes to
  // it.
  Result<graph::TensorId> Previous(const TensorDesc& tensor);
  graph::TensorId Temporary(DType dtype, Dims dims, Dims strides);
  void AddNode(graph::GraphOp op, std::vector<graph::TensorId> inputs,
               std::vector<graph::TensorId> outputs, DType compute, graph::Attrs attrs);

  // Ends the import: the graph is sorted and verified.
  Result<graph::Graph> Finish();

 private:
  struct Entry {
    Ref<TensorDesc> copy;  // null for one that was bound
    graph::TensorId id = graph::kAbsent;
    graph::TensorId previous = graph::kAbsent;
    std::map<Dims, graph::TensorId> turned;  // by permutation, as operations read it
  };
  Result<Entry*> Find(const TensorDesc& tensor);
  graph::TensorId Turned(Entry& entry, const Dims& permutation);
  Result<graph::TensorId> AddTensor(const TensorDesc& tensor, const char* suffix);
  Result<graph::Tensor> Convert(const TensorDesc& tensor) const;

  graph::Graph graph_;
  std::map<int64_t, Entry> by_uid_;
  graph::LaidOutTensors layouts_;
  std::map<graph::TensorId, graph::TensorId> ragged_;  // tensor → its offsets
};

}  // namespace kiln::api
