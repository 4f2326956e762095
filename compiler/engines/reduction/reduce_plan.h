// ReducePlan: a reduce group seen as kept and reduced dims, shared by the GPU and CPU schedules.
#pragma once

#include <functional>
#include <vector>

#include "compiler/kernel/kernel_builder.h"

namespace kiln::compiler {

struct ReducePlan {
  Group group;                           // collapsed where possible
  std::vector<graph::NodeId> reduces;    // all over the same dims
  std::vector<graph::NodeId> others;     // over other dims: none in groups of kind kReduce
  std::vector<graph::TensorId> outputs;  // what the kernel stores
  graph::TensorId input = -1;            // operand of the first reduce: its dims are the domain
  graph::TensorId result = -1;           // result of the first reduce: extent 1 on reduced dims
  std::vector<int64_t> kept, reduced;    // dims, outermost first, extents above 1 only
  int64_t inner = 0;                     // the dim that memory is contiguous along
  bool inner_is_reduced = false;
  bool collapsed = false;        // inputs share the domain's dims, so they may be read as vectors
  int64_t rows = 1, length = 1;  // elements kept, elements reduced into each

  int64_t extent(int64_t dim) const { return group.graph[input].dims[dim]; }
};

// Plans a group. The reductions are those of the dims of the first one whose result is read in the
// group, else of the first one.
ReducePlan PlanReduce(const Group& group);

tile::Expr IdentityExpr(graph::Combine combine, DType type);
// The type that a GPU accumulates a reduction in, the value it starts from, and one step of it.
DType AccumulatorType(const graph::Node& reduce);
tile::Expr IdentityOf(const graph::Node& reduce);
tile::Expr CombineTwo(const graph::Node& reduce, tile::Expr a, tile::Expr b);
// The type of an accumulator for any target: a CPU adds f32 in f64, which costs nothing beside the
// memory that it waits for, and keeps means exact however many elements they have.
DType AccumulatorType(const graph::Node& reduce, const Target& target);

// The accumulators of every reduce of a plan: `lanes` registers each, combined by the node's
// combiner.
class Accumulators {
 public:
  Accumulators(KernelBuilder& b, const ReducePlan& plan, const Target& target, int lanes)
      : b_(b), plan_(plan), target_(target), lanes_(lanes) {}

  size_t count() const { return plan_.reduces.size(); }
  int lanes() const { return lanes_; }
  DType type(size_t r) const { return AccumulatorType(node(r), target_); }
  const std::string& name(size_t r) const { return names_[r]; }
  // Declares the registers and sets them to the identity.
  void Declare(tile::Block& out);
  // The value of the reduce's operand at `index`, in the type of its accumulator.
  tile::Expr Operand(size_t r, ValueScope& values, const Index& index) const;
  // Adds: acc[lane] = combine(acc[lane], value of the reduce's operand at `index`).
  void Add(tile::Block& out, ValueScope& values, const Index& index, const tile::Expr& lane);
  tile::Expr Combined(size_t r, tile::Expr a, tile::Expr b) const;
  tile::Expr Lane(size_t r, const tile::Expr& lane) const;
  // Emits add(out, accumulators, begin, end) for begin .. end, of which each lane adds one in
  // `step` places: at once where these are few, else for one segment of it after the other, each
  // into accumulators of its own, which these then add. `places` is the value of end - begin.
  void InSegments(tile::Block& out, const tile::Expr& begin, const tile::Expr& end, int64_t places,
                  int64_t step,
                  const std::function<void(tile::Block&, Accumulators&, const tile::Expr&,
                                           const tile::Expr&)>& add);
  // Folds all lanes into lane 0, in a fixed order.
  void FoldLanes(tile::Block& out);
  // Binds each reduce's result, rounded to its tensor, and stores the group's outputs at the kept
  // index.
  void StoreResults(tile::Block& out, const Index& kept_index,
                    const std::function<tile::Expr(size_t)>& total);

 private:
  const graph::Node& node(size_t r) const { return plan_.group.graph.nodes[plan_.reduces[r]]; }

  KernelBuilder& b_;
  const ReducePlan& plan_;
  const Target& target_;
  int lanes_;
  std::vector<std::string> names_;
};

// The index over the domain from a linear index over `dims` (outermost first), 0 elsewhere.
// `inner_divisor` divides the extent of plan.inner where it is among them (vectors), and the index
// there counts vectors.
Index UnravelDims(KernelBuilder& b, tile::Block& out, const ReducePlan& plan,
                  const std::vector<int64_t>& dims, const tile::Expr& linear, int64_t inner_divisor,
                  const std::string& name);

// Adds scratch for `splits` partial results of each row, one buffer a reduce; returns the first
// buffer's number.
int AddPartials(const ReducePlan& plan, const Target& target, int64_t splits, Lowered& lowered);

// Writes the second stage: row r's partials stand at [r * splits + s] (row_major) or [s * rows +
// r].
void LowerCombine(const ReducePlan& plan, const Target& target, int first_scratch, int64_t splits,
                  bool row_major, Lowered& lowered);

// The knobs of the two targets' first stages (reduce_gpu.cc, reduce_cpu.cc).
struct ReduceKnobs {
  int threads, splits;  // splits 0: as many as fill the device
};
Lowered LowerReduceGpu(const ReducePlan& plan, const Target& target, const ReduceKnobs& knobs);
Lowered LowerReduceCpu(const ReducePlan& plan, const Target& target, const ReduceKnobs& knobs);

}  // namespace kiln::compiler
