// EpilogueReductions: reductions of a contraction's result inside its group. The kernels that make
// tiles see the group without them (`tile`), and leave for each a partial result of every tile; a
// reduce group of its own, whose input the partial results are, combines these, in a fixed order,
// and runs the maps that follow.
//
//   sums over N, P, Q of y[N,K,P,Q]    tile kernels: partial[pixel tile][k]    then: reduce →
//   [1,K,1,1]
//
// A tile's partial results lie along one of its two axes: the one that the reduction keeps. One
// that keeps neither (an absolute maximum over everything) lies along either, and the reduce group
// sums up that axis, too.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "compiler/engines/contraction/contraction.h"

namespace kiln::compiler {

// The axes of a contraction that a reduction of its result keeps: at most one of m and n.
struct KeptAxes {
  bool batch = false, m = false, n = false;
};

// The kept axes of a reduction to `result` dims; nothing where it does not keep or reduce whole
// axes, or changes nothing.
std::optional<KeptAxes> KeptAxesOf(const graph::Graph& graph, const graph::Node& contraction,
                                   const Dims& result);

// True if a reduction of the contraction's result to these dims should be in its group: the
// engines that take it then are as fast as without it.
bool JoinsContraction(const graph::Graph& graph, const graph::Node& contraction, const Dims& result,
                      const Target& target);

// The number of reductions in a group.
int CountReductions(const Group& group);

struct EpilogueReduction {
  graph::NodeId node = -1;
  graph::TensorId operand = -1, result = -1;
  graph::Combine combine = graph::Combine::kAdd;
  DType type = DType::kF32;  // that it is computed in
  KeptAxes keeps = {};

  tile::Expr Identity() const;
  tile::Expr Combined(tile::Expr a, tile::Expr b) const;
};

class EpilogueReductions {
 public:
  explicit EpilogueReductions(const Group& group);
  EpilogueReductions(const EpilogueReductions&) = delete;
  EpilogueReductions& operator=(const EpilogueReductions&) = delete;

  const Group& group() const { return group_; }
  // The group that tile kernels make: the group itself where nothing is reduced. Tensors keep their
  // ids.
  const Group& tile() const { return list_.empty() ? group_ : tile_; }
  const std::vector<EpilogueReduction>& list() const { return list_; }
  bool empty() const { return list_.empty(); }
  int count() const { return static_cast<int>(list_.size()); }
  // True for nodes that are, or wait for, a reduction.
  bool IsAfter(graph::NodeId n) const { return after_[n] != 0; }

 private:
  const Group& group_;
  Group tile_;
  std::vector<EpilogueReduction> list_;
  std::vector<char> after_;
};

// One axis of the contraction as its tiles cut the result: its size, and how many tiles of a batch
// share each of its places.
struct PartialAxis {
  int64_t size = 0, parts = 1;
};

// The places of partial results: a scratch buffer for each reduction, [parts][kept places] where it
// keeps an axis, else [kept batches][parts].
class PartialResults {
 public:
  // Reductions that keep neither m nor n lie along n if `along_n`.
  PartialResults(const EpilogueReductions& reductions, int64_t batches, const PartialAxis& m,
                 const PartialAxis& n, bool along_n);

  bool IsAlongN(size_t r) const { return layouts_[r].along_n; }
  // Makes the scratch buffers, before the tile kernel stores to them.
  void Allocate(Lowered& lowered);
  // Stores the partial result of reduction r at place `at` of its axis, `part` counting the tiles
  // that share it. The caller sees to it that `at` is inside.
  void Store(KernelBuilder& b, tile::Block& out, size_t r, const tile::Expr& batch,
             const tile::Expr& at, const tile::Expr& part, tile::Expr value);
  // Appends the kernels that combine them.
  void Finish(const Target& target, Lowered& lowered) const;

 private:
  struct Layout {
    bool along_n = false, keeps_axis = false;
    int64_t axis = 0, parts = 1;
    int64_t reduced_of_batch = 1;  // of one batch, where batches are reduced too
    int64_t kept = 1, reduced = 1;
  };
  Group TailOf(size_t r, std::vector<int>& sources) const;

  const EpilogueReductions& reductions_;
  int64_t batches_;
  std::vector<Layout> layouts_;
  int first_scratch_ = 0;
  std::vector<std::string> scratch_;  // in the kernel that stores
};

// The places of a tile along one axis that the threads of a block hold.
struct TileSide {
  int extent = 1;                                           // of the tile
  int slots = 1;                                            // places that one thread holds
  std::function<tile::Expr(const tile::Expr& slot)> place;  // in the tile
  std::vector<int> lane_masks = {};  // lanes that differ in these bits hold the same places
  tile::Expr leads = nullptr;        // whether this lane is the first of them; null: always
  int warps = 1;                     // that hold the same places
  tile::Expr warp = nullptr;         // number of this one among them
  tile::Expr first, size;            // of the tile, of the axis
  tile::Expr part;                   // number of the tile among those that share its places
};

// Partial results of tiles whose accumulators are in registers: each thread combines what it holds,
// then lanes by shuffles, then warps through shared memory.
class TileReductions {
 public:
  TileReductions(const EpilogueReductions& reductions, PartialResults& partial, KernelBuilder& b,
                 int threads)
      : reductions_(reductions), partial_(partial), b_(b), threads_(threads) {}

  // Declares registers, set to the identities.
  void Declare(tile::Block& out, TileSide m, TileSide n);
  // Takes in the element at `index` of the result, which this thread holds in these slots.
  void Add(tile::Block& out, ValueScope& values, const Index& index, const tile::Expr& m_slot,
           const tile::Expr& n_slot);
  void Finish(tile::Block& out, const tile::Expr& batch);

 private:
  const TileSide& SideOf(size_t r) const { return sides_[partial_.IsAlongN(r) ? 1 : 0]; }
  template <class F>
  void Loop(tile::Block& out, const char* wish, int64_t extent, F&& fill);
  void CombineLanes(tile::Block& out, size_t r, const std::string& shared);
  void CombineWarps(tile::Block& out, size_t r, const std::string& shared, const tile::Expr& batch);

  const EpilogueReductions& reductions_;
  PartialResults& partial_;
  KernelBuilder& b_;
  int threads_;
  std::array<TileSide, 2> sides_;
  std::vector<std::string> sums_;
};

}  // namespace kiln::compiler
