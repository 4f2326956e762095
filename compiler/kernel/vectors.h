// Vectors: the parts that the GPU schedules of memory-bound engines share. They are how wide a
// group can move memory along a dim, the lane loop with its wide copies, and the block and thread
// loops around a body.
#pragma once

#include <functional>
#include <vector>

#include "compiler/kernel/kernel_builder.h"

namespace kiln::compiler {

// The tensors of the group that live in memory and are read (not scalars).
std::vector<graph::TensorId> MemoryInputs(const graph::Graph& graph);

// The most elements (a power of two) that one thread may move at a time along `dim`: every tensor
// that is contiguous there is aligned for it, and the extent is divisible, except in rank 1, where
// a tail is cheap.
int WidestVector(const Group& group, int64_t dim);
// The widest vector for some of its tensors, all of one rank.
int WidestVector(const graph::Graph& graph, const std::vector<graph::TensorId>& tensors,
                 int64_t dim);

// The lane loop over `lanes` neighbours along `dim`: inputs are read before it (contiguous ones by
// wide copies, broadcast ones once), and are bound to their lane inside it.
class LaneLoop {
 public:
  // `index` is the place of lane 0; reads go to `out`.
  LaneLoop(KernelBuilder& b, tile::Block& out, const Index& index, int64_t dim, int lanes);
  // Makes a loop where not all inputs are read at the index: these are.
  LaneLoop(KernelBuilder& b, tile::Block& out, const std::vector<graph::TensorId>& inputs,
           const Index& index, int64_t dim, int lanes);

  const tile::Expr& lane() const { return lane_; }
  const Index& index() const { return lane_index_; }
  tile::Block& body() { return body_; }
  ValueScope& values() { return inside_; }
  void Close();  // appends the loop to `out`

 private:
  KernelBuilder& b_;
  tile::Block& out_;
  int lanes_;
  std::string name_;
  tile::Expr lane_;
  Index lane_index_;
  tile::Block body_;
  ValueScope inside_;
};

// Inputs along `dim` (contiguous ones by wide copies), the group's maps for each lane, outputs
// back:
//   copy v[0..8) <- x[…];  for l in 0..8 { store w[l] = …v[l]… };  copy y[…] <- w[0..8)
// `index` is the place of lane 0.
void EmitVector(KernelBuilder& b, tile::Block& out, const std::vector<graph::TensorId>& outputs,
                const Index& index, int64_t dim, int lanes);

// Writes the second half of that, for a loop whose inputs are bound already.
void StoreLanes(KernelBuilder& b, tile::Block& out, LaneLoop& lane_loop,
                const std::vector<graph::TensorId>& outputs, const Index& index, int64_t dim,
                int lanes);

// Reads `lanes` neighbours of `tensor` along `dim` into registers; returns their array's name.
std::string LoadVector(KernelBuilder& b, tile::Block& out, graph::TensorId tensor,
                       const Index& index, int lanes);

// Reads regs[slot .. +lanes) = `tensor` at `index` and its neighbours along `dim`, whatever it is
// computed from.
void FetchLanes(KernelBuilder& b, tile::Block& out, graph::TensorId tensor, const Index& index,
                int64_t dim, int lanes, const std::string& regs, const tile::Expr& slot);

// Copies `lanes` elements in pieces of at most 16 bytes.
void WideCopy(tile::Block& out, DType type, const std::string& dst, const tile::Expr& dst_index,
              const std::string& src, const tile::Expr& src_index, int lanes);

// The way in which a tensor of the collapsed group walks a dim.
enum class Walk : uint8_t { kBroadcast, kContiguous, kStrided };
Walk WalkOf(const graph::Tensor& tensor, int64_t dim);

// Walks begin .. end in steps of `stride` threads, `unroll` places at a time so that their loads
// are in flight together; `emit` gets the places that it may read. What is left at the end goes
// place by place.
//   for it in 0..span / (stride*unroll) { emit(begin + (it*unroll + 0)*stride + lane, …) }
//   for rt in 0..rest { if place < end { emit(place) } }
void UnrolledWalk(KernelBuilder& b, tile::Block& body, const tile::Expr& begin,
                  const tile::Expr& end, int stride, const tile::Expr& lane, int unroll,
                  const std::function<void(tile::Block&, const std::vector<tile::Expr>&)>& emit);

// The expression bx * per_block + tx.
tile::Expr ThreadLinear(DType type, int64_t per_block);
// The expression (a + b - 1) / b for a constant b.
tile::Expr CeilDivExpr(const tile::Expr& a, int64_t b);
// Writes a CPU's kernel: element(out, index) for each element of `lead`. Block bx is one chunk of
// the innermost dim at one place of the others, which stand in `order` from the outermost on.
Lowered LowerByChunks(KernelBuilder& b, graph::TensorId lead, const Dims& order, tile::Bind bind,
                      const std::function<void(tile::Block&, const Index&)>& element);
// One thread's share of a tensor: `lanes` neighbours along the innermost dim, and `count` of them
// along `dim`. Both divide extents. A warp has 32 neighbours along the innermost dim, or a patch of
// `rows` times 32 / rows (of one lane) along the two innermost.
struct Share {
  int64_t dim = 0;
  int count = 1;
  int lanes = 1;
  int rows = 1;
};
// The share in words: "3 elements a thread", "one element a thread, 4 rows a warp".
std::string Text(const Share& share);
// Writes a GPU's kernel: element(out, index) for each first lane of `lead`, neighbours in memory by
// neighbouring threads.
Lowered LowerByElements(KernelBuilder& b, graph::TensorId lead, int threads, const Share& share,
                        const std::function<void(tile::Block&, const Index&)>& element);
// Appends the launches of `next` behind those of `lowered`; neither has scratch memory.
void Append(Lowered& lowered, Lowered next);
// Makes a kernel whose threads have an item each, `i` in `body`, of so many.
Lowered LaunchItems(KernelBuilder& b, tile::Block body, int64_t items, int threads);
// Writes for bx in 0..blocks block_x { for tx in 0..threads thread_x { body } }.
tile::Block BlockAndThread(DType type, tile::Expr blocks, int threads, tile::Block body);

}  // namespace kiln::compiler
