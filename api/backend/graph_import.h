// GraphImport: from operations over tensor descriptors to a graph::Graph. Tensors are matched by
// uid; operations may come in any order. Used by the operation graph's finalize, through
// Operation::Import.
//
// A tensor that one operation reads and writes (in place, or beta * y) becomes two tensors of one
// uid: the version before the operation and the one after.
//
// A vectorised layout, NCHW with 4 or 32 channels together, is memory of one more dim; operations
// see the plain tensor that a transpose and a reshape make of it, or that they make it of. So is
// F8_128x4, the order in which tensor cores read scales.
//   memory [N, C/4, H, W, 4]  <->  [N, C/4, 4, H, W]  <->  [N, C, H, W]
#pragma once

#include <initializer_list>
#include <map>
#include <string_view>
#include <vector>

#include "api/backend/tensor.h"
#include "ir/graph/graph.h"

namespace kiln::api {

// The core's type of a tensor element; an error names the type that Kiln does not compute with yet.
Result<DType> ElementType(cudnnDataType_t type);
// The same for the type of a computation.
Result<DType> ComputeType(cudnnDataType_t type);
// A type to move elements of `type` through unchanged, for operations that declare no type of their
// own.
cudnnDataType_t MovingType(cudnnDataType_t type);

class GraphImport {
 public:
  // The operand, null where an optional one is absent.
  using Operand = const TensorDesc*;

  // One operation with one node. Trailing absent inputs are dropped.
  Status Add(graph::GraphOp op, std::vector<Operand> inputs, std::vector<Operand> outputs,
             cudnnDataType_t compute, graph::Attrs attrs);

  // For operations that need more than one node:
  Result<graph::TensorId> Tensor(const TensorDesc& tensor);
  // What the tensor holds before the graph runs, beside Tensor, which some operation writes.
  Result<graph::TensorId> Previous(const TensorDesc& tensor);
  graph::TensorId Temporary(DType dtype, Dims dims, Dims strides);
  void AddNode(graph::GraphOp op, std::vector<graph::TensorId> inputs,
               std::vector<graph::TensorId> outputs, DType compute, graph::Attrs attrs);

  // Sorted and verified.
  Result<graph::Graph> Finish();

 private:
  struct Entry {
    Ref<TensorDesc> copy;
    graph::TensorId id = graph::kAbsent;
    graph::TensorId previous = graph::kAbsent;
  };
  // A plain tensor that operations see, and the memory that holds it otherwise: a transpose by
  // `order` makes of the memory's dims the plain dims, each as one or more that a reshape joins.
  struct Layout {
    graph::TensorId plain = graph::kAbsent, memory = graph::kAbsent;
    Dims order;
  };
  Result<Entry*> Find(const TensorDesc& tensor);
  Result<graph::TensorId> AddTensor(const TensorDesc& tensor, const char* suffix);
  static Layout VectorLayout(const TensorDesc& tensor, graph::Tensor& memory);
  static Result<Layout> TileLayout(const TensorDesc& tensor, graph::Tensor& memory);
  static Result<Layout> Int8x32Layout(const TensorDesc& tensor, graph::Tensor& memory);
  void Convert(const Layout& layout, bool is_written);
  Result<graph::Tensor> Convert(const TensorDesc& tensor) const;

  graph::Graph graph_;
  std::map<int64_t, Entry> by_uid_;
  std::vector<Layout> layouts_;
  std::map<graph::TensorId, graph::TensorId> ragged_;  // tensor → its offsets
};

}  // namespace kiln::api
