// AttentionGradProblem: the facts of their group that the engines of attention's gradients share,
// whatever multiplies and loads.
#pragma once

#include <algorithm>

#include "compiler/engines/attention/problem.h"
#include "compiler/patterns/attention_grad.h"

namespace kiln::compiler {

struct AttentionGradProblem {
  AttentionGrad grad = {};
  bool has_bytes = false;  // operands have 8 bits
  bool reads = false;      // anything but operands and what rows have lies in memory by places
  // The tensor that `reads` is about, where scores before the exponential alone are made of it, of
  // 16 bits and as large as they, as a bias is; or kAbsent.
  graph::TensorId beside = graph::kAbsent;
  int depth = 0, width = 0;  // of rows of q and k, of dy and v, in whole panels
  int queries_tile = 0, keys_tile = 0;
  int64_t queries = 0, keys = 0, inner = 1, outer = 1, group = 1;
  bool hides_blocks = false;  // some mask has known bounds
  int64_t section = 1;        // parts of heads whose tiles are made at one time
  // Pairs that share a head of k, and of v: where these have not as many heads, tiles are those of
  // pairs of them.
  int64_t key_pairs = 1, value_pairs = 1;
  int64_t pairs(bool of_values) const { return of_values ? value_pairs : key_pairs; }
  // The number of parts into which the heads of q that share one of k and v are divided. Each part
  // has tiles of its own, whose dk and dv are added up, so that few heads of k and v are blocks
  // enough: by another kernel, where those of all parts are kept.
  int64_t parts = 1;
  bool keeps_parts = false;
  bool adds_parts() const { return parts > 1 || key_pairs > 1 || value_pairs > 1; }
  int64_t kept_parts(bool of_values) const { return keeps_parts ? parts * pairs(of_values) : 1; }
  int64_t part_heads() const { return heads() * parts; }
  int64_t part_group() const { return group / parts; }
  int64_t query_tiles() const { return CeilDiv(queries, queries_tile); }
  int64_t key_tiles() const { return CeilDiv(keys, keys_tile); }
  int64_t heads() const { return inner * outer; }                     // of k and v, or pairs
  int64_t blocks() const { return heads() * group * query_tiles(); }  // of dq
  // A bias's gradient: its sums, and turns at most. Sums are its elements, or, in the order of
  // fragments, whole blocks of its heads.
  int64_t bias_heads = 0, bias_sums = 0;
  int64_t bias_turns() const {
    return bias_sums == 0 ? 0 : std::max(inner * group, outer) * query_tiles() * key_tiles();
  }
  // Sums of dq lie where its rows of f32 do, whole blocks of both (TakeSumsPlace).
  bool sums_in_place = false;
  // Sums of f32 operands are rows, with the scale in them, and not in the order of fragments; and
  // where a tile has all keys it is alone to store them, so that none are zero before.
  bool is_wide = false, is_alone = false;
  int64_t sum_rows = 0, sum_columns = 0;  // of a head
  int64_t sums() const {
    return is_wide ? heads() * group * sum_rows * sum_columns : blocks() * queries_tile * depth;
  }
  // Parts of dk and dv, where they are added up; blocks of either.
  int64_t part_blocks(bool of_values) const {
    return heads() / pairs(of_values) * kept_parts(of_values) * key_tiles();
  }
  int64_t part_sums() const {
    return adds_parts() ? (part_blocks(false) + part_blocks(true)) * keys_tile * depth : 0;
  }
};

// The problem without tiles, for rows of at most `most_depth`, in whole panels of `panel`; or why
// there is none.
Result<AttentionGradProblem> AttentionGradProblemOf(const Group& group, int64_t most_depth,
                                                    int panel, OperandBits bits = OperandBits::k16);

// Takes the number of parts that takes least time at these speeds: tiles go in waves, partial
// results through memory.
void TakeParts(AttentionGradProblem& problem, const Target& target, double flops_per_second,
               double bytes_per_second);

// Takes sections of about so many bytes of q, dy and sums, with a tile for every multiprocessor.
void TakeSection(AttentionGradProblem& problem, int64_t bytes, const Target& target);

// Blocks of sums of dq need no room of their own where rows of f32 that the client keeps are as
// many, one behind another, and the threads of a block can hold one. Sums that are rows themselves
// need no whole blocks, but of zeroes.
void TakeSumsPlace(AttentionGradProblem& problem, const graph::Graph& graph);

// Adds the numbers of attention_grad_shape.
void AddAttentionGradShape(KernelBuilder& b, const AttentionGradProblem& problem, tile::Call& call);

// The most launches of a gradient: zeroes, sums of rows, the gradients, and what finishes dq.
constexpr int kAttentionGradKernels = 4;
// The seconds of products, and of bytes of sums, of all blocks that no mask hides, at these speeds.
double AttentionGradSeconds(const AttentionGradProblem& problem, double flops_per_second,
                            double bytes_per_second);

// True if the client keeps sums of dq: it stores dq in f32, and once more as another type. Clients
// who want the same bits each time have dq made as it is stored; these give f32 sums room in
// memory, into which NVIDIA's library adds in any order.
bool KeepsSums(const Group& group);

}  // namespace kiln::compiler
