// AttentionGradProblem: what the engines of attention's gradients know of their group, whatever
// multiplies and loads; and AttentionGradSums, the kernels beside theirs: zeroes for what is added
// to, and dq from the sums, which lie in the order of fragments
// (codegen/cuda/device/attention_grad_rows.cuh).
#pragma once

#include <algorithm>

#include "compiler/engines/attention_grad.h"
#include "compiler/engines/attention_problem.h"

namespace kiln::compiler {

struct AttentionGradProblem {
  AttentionGrad grad = {};
  bool reads = false;        // anything but operands and what rows have lies in memory by places
  int depth = 0, width = 0;  // of rows of q and k, of dy and v, in whole panels
  int queries_tile = 0, keys_tile = 0;
  int64_t queries = 0, keys = 0, inner = 1, outer = 1, group = 1;
  bool hides_blocks = false;  // some mask has known bounds
  int64_t section = 1;        // heads of k and v whose tiles are made at one time
  int64_t query_tiles() const { return CeilDiv(queries, queries_tile); }
  int64_t key_tiles() const { return CeilDiv(keys, keys_tile); }
  int64_t heads() const { return inner * outer; }                     // of k and v
  int64_t blocks() const { return heads() * group * query_tiles(); }  // of dq
  // Of a bias's gradient: elements, and turns at most.
  int64_t bias_sums = 0;
  int64_t bias_turns() const {
    return bias_sums == 0 ? 0 : std::max(inner * group, outer) * query_tiles() * key_tiles();
  }
  int64_t sums() const { return blocks() * queries_tile * depth; }
};

// Without tiles. Rows of at most `most_depth`, in whole panels of `panel`; or why not.
Result<AttentionGradProblem> AttentionGradProblemOf(const Group& group, int64_t most_depth,
                                                    int panel);

// Sections of about so many bytes of q, dy and sums, with a tile for every multiprocessor.
void TakeSection(AttentionGradProblem& problem, int64_t bytes, const Target& target);

// The numbers of attention_grad_shape.
void AddAttentionGradShape(KernelBuilder& b, const AttentionGradProblem& problem, tile::Call& call);

// Products, and bytes of sums, of all blocks that no mask hides, at these speeds.
double AttentionGradSeconds(const AttentionGradProblem& problem, double flops_per_second,
                            double bytes_per_second);

// Clients who want the same bits each time have dq made as it is stored; the others give f32 sums
// room in memory, into which NVIDIA's library adds in any order.
bool KeepsSums(const Group& group);

// Kernels of the sums over rows that belong to the gradients, appended.
void AddRowSums(const Group& group, const AttentionGrad& grad, const Target& target,
                Lowered& lowered);

// What of the sums is zero when the skeleton starts.
enum class Zeroes { kAll, kFirstSection };

// The kernels before and after the skeleton, which adds to scratch buffers.
class AttentionGradSums {
 public:
  static constexpr int kTurns = 0, kSums = 1, kBiasSums = 2;  // scratch buffers

  AttentionGradSums(const Group& group, const Target& target, const AttentionGradProblem& problem,
                    const char* engine, bool is_ordered, Zeroes zeroes)
      : group_(group),
        g_(group.graph),
        target_(target),
        plan_(problem),
        engine_(engine),
        turns_(1 + (is_ordered                        ? problem.blocks() + problem.bias_turns()
                    : zeroes == Zeroes::kFirstSection ? CeilDiv(problem.heads(), problem.section)
                                                      : 0)),
        sums_(problem.sums()),
        zeroes_(zeroes == Zeroes::kAll ? sums_ : sums_ / problem.heads() * problem.section) {}

  void AddScratch(Lowered& lowered) const {
    lowered.scratch_bytes = {turns_ * 4, sums_ * 4};
    if (plan_.bias_sums > 0) lowered.scratch_bytes.push_back(plan_.bias_sums * 4);
  }
  void AddBiasZeroes(Lowered& lowered) const;
  void AddBiasConversion(Lowered& lowered) const;
  void AddZeroes(Lowered& lowered) const;
  void AddConversion(Lowered& lowered) const;

 private:
  template <class F>
  void AddEach(KernelBuilder& b, int64_t count, Lowered& lowered, F&& body) const;
  KernelBuilder Builder(const char* what) const;
  tile::Expr ScaleOf(KernelBuilder& b, tile::Block& out, const tile::Expr& head) const;
  void StoreRow(KernelBuilder& b, tile::Block& out, graph::TensorId to, const Index& at,
                const std::string& from) const;

  const Group& group_;
  const graph::Graph& g_;
  const Target& target_;
  const AttentionGradProblem& plan_;
  const char* engine_;
  const int64_t turns_, sums_, zeroes_;
};

}  // namespace kiln::compiler
