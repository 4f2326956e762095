// Buffers of peers in nodes of the tensor graph: which they are, whether they are large enough, and
// their sums in the interpreter. ir/peers.h has their layout. Used by the operations of
// ops_peers.cc, by norms, which go through them, and by `decompose`.
#pragma once

#include <span>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/graph/ops.h"

namespace kiln::graph {

// Operands of `peer_reduce`. The second number may be absent; buffers stand from kPeers on, in the
// order of the ranks.
enum class PeerReduceIn : size_t { kX, kSecond, kPeers };

// The buffers of a norm_forward, norm_backward or peer_reduce, in the order of the ranks.
std::span<const TensorId> PeersOf(const Node& node);

// True if the node adds up sums over GPUs: a norm_forward with statistics of its own, or a
// norm_backward, that has two buffers or more. One buffer is a group of one GPU.
bool MeetsPeers(const Node& node);

// An error unless each buffer is f32 memory of its own with room for numbers 0 .. count-1, and
// there are no more than kMostPeers of them.
Status CheckPeers(const Graph& graph, std::span<const TensorId> peers, int64_t count);

// The interpreter is rank 0: buffer 0 is its own, and the others hold what their ranks published
// for the same call. mine[i] is number first + i. NaN where a buffer lacks the call, as on a GPU
// whose wait timed out.
std::vector<double> SumOverPeers(const EvalArgs& args, const std::vector<double>& mine,
                                 int64_t first);

}  // namespace kiln::graph
