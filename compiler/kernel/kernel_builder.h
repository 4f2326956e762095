// KernelBuilder: the parts that every engine needs to write a tile kernel for a group. Parameters
// with their launch values (extents and strides are arguments), addressing of strided tensors, fast
// division, and the value of any tensor of the group at a symbolic index, where maps, views and
// constants dissolve into expressions:
//
//   Value(%y, [n,c,h,w])  with  %y = map max(%t, 0), %t = map mul(%x, %scale), %scale: [1,C,1,1]
//     let t = mul(cast<f32>(load x[n*x_s0 + c*x_s1 + …]), cast<f32>(load scale[c*scale_s1]))
//     let y = max(t, 0)
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/lowered.h"
#include "compiler/module.h"
#include "ir/target.h"
#include "ir/tile/tile.h"

namespace kiln::compiler {

using Index = std::vector<tile::Expr>;  // one expression for each dim of a tensor

// The type that indices into the graph's tensors are computed in: i32 where it is enough, else i64.
DType IndexType(const graph::Graph& graph);

class KernelBuilder {
 public:
  KernelBuilder(const Group& group, const Target& target, std::string engine)
      : KernelBuilder(group, target, std::move(engine), IndexType(group.graph)) {}
  // Makes a builder for an engine that knows better what it indexes.
  KernelBuilder(const Group& group, const Target& target, std::string engine, DType index_type);

  DType index_type() const { return index_type_; }
  const graph::Graph& graph() const { return group_.graph; }

  // ---- parameters
  //
  // A constant of the index type.
  tile::Expr Idx(int64_t value) const { return tile::Int(value, index_type_); }
  // A new scalar parameter of the index type with this launch value. Names are made unique.
  tile::Expr Arg(const std::string& name, int64_t value);
  // A new scalar parameter of i64, whatever the index type.
  tile::Expr WideArg(const std::string& name, int64_t value);
  // The extent of a dim as a parameter; the same parameter each time. An extent of 1 is the
  // constant 1: whether a dim is 1 is part of a kernel's structure.
  tile::Expr Extent(graph::TensorId tensor, int64_t dim);
  // The stride of a dim as a parameter; 0 for extent 1; the constant 1 where it is 1.
  tile::Expr Stride(graph::TensorId tensor, int64_t dim);
  // A tensor-map parameter over a tensor.
  std::string Map(const std::string& name, graph::TensorId tensor, const TensorMapSpec& map);
  // A tensor-map parameter over a scratch buffer of the group.
  std::string ScratchMap(const std::string& name, int scratch, const TensorMapSpec& map);
  // The pointer parameter of a tensor.
  const std::string& Pointer(graph::TensorId tensor);
  // A scratch buffer of the group (see Lowered::scratch_bytes), as pointer parameter.
  std::string Scratch(int scratch, DType type, bool is_const);

  // A pointer parameter of memory that other devices write meanwhile: never const, and another one
  // at each call.
  std::string SharedPointer(graph::TensorId tensor);
  // Parameters of kernels that wait for other devices, whose values each run has: which of the
  // `count` pointer parameters that came last is this device's own, how many nanoseconds to wait,
  // and where to say that it was too long.
  tile::Expr PeerRank(int count);
  tile::Expr PeerLimit();
  std::string Fault();

  // The quotient and remainder of numerator / extent; `value` is the extent's launch value. 31-bit
  // numerators use the multiply-shift form, whose magic numbers become two parameters.
  struct DivMod {
    tile::Expr quotient, remainder;
  };
  DivMod Divide(tile::Block& out, const tile::Expr& numerator, const tile::Expr& extent,
                int64_t value, const std::string& name);
  // Splits a row-major linear index over dims (outermost first); extents and their launch values
  // side by side.
  Index Unravel(tile::Block& out, tile::Expr linear, const Index& extents, const Dims& values,
                const std::string& name);

  // ---- statements
  //
  // Writes let <name> = value; returns the variable. Constants and variables pass through
  // unchanged.
  tile::Expr Let(tile::Block& out, const std::string& name, tile::Expr value);
  std::string Name(const std::string& wish);  // unique identifier

  // ---- tensors
  //
  // The sum of index * stride.
  tile::Expr Offset(graph::TensorId tensor, const Index& index);

  // Makes the launch: pointers and scalars gathered so far become the kernel's parameters.
  void Finish(tile::Block body, std::array<int64_t, 3> grid, int threads, Lowered& lowered,
              int min_blocks = 0);

 private:
  friend class ValueScope;
  void DropUnused(const tile::Block& body);
  std::string AddMap(const std::string& name, LoweredArg::Kind kind, int id,
                     const TensorMapSpec& map);
  tile::Expr ScalarParam(const std::string& name, DType type, LoweredArg arg);

  const Group& group_;
  const Target& target_;
  std::string engine_;
  DType index_type_;
  std::vector<tile::Param> params_;
  std::vector<LoweredArg> args_;
  std::vector<TensorMapSpec> tensor_maps_;
  std::map<graph::TensorId, std::string> pointers_;
  std::map<std::pair<graph::TensorId, int64_t>, tile::Expr> extents_, strides_;
  std::map<std::string, std::pair<tile::Expr, tile::Expr>> magics_;  // by the extent's text
  std::map<graph::TensorId, tile::Expr> by_value_;
  std::map<std::string, int> names_;
  std::vector<graph::NodeId> producers_;
};

// Values of tensors inside one block of statements. What was computed once is named and used again;
// a value may be bound beforehand (an accumulator, a vector register, a shared tile).
class ValueScope {
 public:
  ValueScope(KernelBuilder& builder, tile::Block& out) : b_(builder), out_(out) {}

  // The value of `tensor` at `index`, in the arithmetic type of the tensor's dtype and rounded to
  // that dtype.
  tile::Expr Value(graph::TensorId tensor, const Index& index);
  // The place of the element that Value would load, for values that are moved but not computed:
  // views, the choice of elements (gather), and 0 in place of some, which are not `inside`. None
  // where the value is anything else, or is rounded on its way.
  struct Place {
    graph::TensorId tensor;  // in memory
    tile::Expr offset;       // of an element that there is
    tile::Expr inside;       // null where it always is
  };
  std::optional<Place> PlaceOf(graph::TensorId tensor, const Index& index);
  // Binds the value at the index that the scope is about, wherever `tensor` is asked at that index.
  void Bind(graph::TensorId tensor, const Index& index, tile::Expr value);

 private:
  tile::Expr Leaf(graph::TensorId tensor, const Index& index);
  tile::Expr NodeValue(const graph::Node& node, const Index& index);
  tile::Expr Moved(const graph::Node& node, tile::Expr value);
  tile::Expr MapValue(const graph::Node& node, const Index& index);
  tile::Expr ConcatValue(const graph::Node& node, const Index& index);
  tile::Expr GatherValue(const graph::Node& node, const Index& index);
  tile::Expr WindowValue(const graph::Node& node, graph::TensorId tensor, const Index& index);
  Index ReshapeIndex(const graph::Node& node, const Index& index);
  // The index of the operand that a view or a gather reads; what is asked of it joins `inside`.
  Index SourceIndex(const graph::Node& node, const Index& index, tile::Expr* inside);

  KernelBuilder& b_;
  tile::Block& out_;
  struct Known {
    Index index;
    tile::Expr value;
  };
  std::map<graph::TensorId, std::vector<Known>> known_;
};

// `value` rounded as storing it to a tensor of `type` and loading it back would.
tile::Expr RoundThrough(DType type, tile::Expr value);

// The index of an operand: where its extent 1 broadcasts, the index is 0; missing leading dims are
// dropped.
Index BroadcastIndex(const KernelBuilder& b, const graph::Tensor& operand, const Index& index);

}  // namespace kiln::compiler
