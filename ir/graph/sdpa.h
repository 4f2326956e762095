// Attention as one operation: the operands of `sdpa_fwd`, `sdpa_bwd` and `paged_cache_load`, and
// what follows from their extents. Verify, Infer and Eval are in ops_sdpa.cc and ops_sdpa_eval.cc,
// the same as primitives in compiler/passes/decompose_sdpa.cc.
//
//   score  = scale * q kᵀ + bias + slope * (j - i)       q[B,H,Sq,D], k[B,Hk,Skv,D], Hk divides H
//   score  = -inf where query i does not see key j       the bounds of SdpaAttrs, i < seq_q[b],
//                                                        j < seq_kv[b], and bit c % 8 of
//                                                        mask[b, h, i / 128, c / 8] with
//                                                        c = j / 128
//   max    = the largest score of the row, and sink      NaN is dropped; no sink from seq_q[b] on
//   weight = exp(score - max) / (sum of exp + exp(sink - max))
//   o      = weight v                                    v[B,Hv,Skv,Dv]
//   stats  = max + log(that sum)
//
// With page tables k and v are containers of `paged_cache_load`; Skv is then pages * block.
//
// Backward, with weight = exp(score - stats) and 0 where nothing is seen:
//   dv = weightᵀ do,   ds = weight * (do vᵀ - rowsum(do * o)),   dbias = sums of ds,
//   dq = scale * ds k, dk = scale * dsᵀ q;   dk and dv are sums over the heads that share them.
//
// A row sees no key where all its scores are -inf, whatever makes them so: lengths (also of 0),
// bounds, blocks, a bias of -inf, or several of these. Then
//   o = 0,   stats = -inf, or sink where the row is a query that has one,
//   and with stats = -inf its dq and its part of dk, dv and dbias are 0.
// A row from seq_q[b] on is no query: it sees no key and has no sink. The rule holds for attention
// that is spelled out as well (spelled_attention.h), in every engine, and in what runs unfused.
#pragma once

#include "ir/graph/graph.h"

namespace kiln::graph {

namespace sdpa_fwd {
enum Input : size_t {
  kQ,
  kK,
  kV,
  kScale,
  kSeqQ,
  kSeqKv,
  kPageTableK,
  kPageTableV,
  kBias,
  kAlibi,
  kSink,
  kBlockMask,
  kInputs
};
enum Output : size_t { kO, kStats };
}  // namespace sdpa_fwd

namespace sdpa_bwd {
enum Input : size_t { kQ, kK, kV, kO, kDo, kStats, kScale, kSeqQ, kSeqKv, kBias, kAlibi, kInputs };
enum Output : size_t { kDq, kDk, kDv, kDbias };
}  // namespace sdpa_bwd

namespace paged_load {
enum Input : size_t { kContainer, kPageTable, kLengths };
}  // namespace paged_load

// An operand's id, kAbsent where it is absent or left off the end.
inline TensorId OperandOr(const std::vector<TensorId>& ids, size_t i) {
  return i < ids.size() ? ids[i] : kAbsent;
}

// The block mask, u8 [B, H, blocks of queries, bytes], has a bit for each square of scores: 1 where
// queries of the block see keys of the block, the lowest bit of a byte for the first of 8 blocks of
// keys. NVIDIA documents it nowhere; cudnn-frontend's test of it (test/python) has this reference.
inline constexpr int64_t kMaskBlock = 128;
// Checks that the mask has a bit for each block of these scores. Bits of further blocks are
// nobody's.
Status CheckBlockMask(const Tensor* mask, const Dims& scores);

// The operands of an sdpa node, the same for both directions.
struct SdpaOperands {
  TensorId q, k, v, scale, seq_q, seq_kv, page_table_k, page_table_v, bias, alibi, sink, block_mask;
};
SdpaOperands SdpaOperandsOf(const Node& node);

// The number of keys of an sdpa node: the extent of k, or of its page table.
int64_t SdpaKeys(const Graph& graph, const SdpaOperands& operands);

// True if the places of y, the result of paged_cache_load, lie along its last dim. Where the
// extents allow both, they lie along the dim with the larger stride.
bool PagedAlongLast(const Tensor& container, const Tensor& y);

}  // namespace kiln::graph
