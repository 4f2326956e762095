// Graph attention, GAT and GATv2, as graphs: what forward (gnn_attention.cc) and its gradients
// (gnn_attention_grad.cc) share.
//
// With heads h, edges e from source s to destination n, and logits l[e,h]:
//
//   GAT     l = act(sum over j of s[h,j] w_src[h,j] + n[h,j] w_dst[h,j] + e[h,j] w_edge[h,j])
//   GATv2   a[e] = act(s + n + e),  l[e,h] = sum over j of a[e,h,j] w[h,j]
//   both    p[e,h] = softmax of l over the edges into n,  y[n,h] = sum over e of p mask s[h]
//
// Logits are what softmax reads, behind the activation. A sum over j of nodes is made once for each
// node, not for each edge. All is computed in f32; a[e] is rounded where it is stored, for the
// gradient.
#pragma once

#include "api/legacy/calls/gnn.h"

namespace kiln::api::legacy::gnn {

constexpr int kAttentionRank = 3;  // rows, heads, features of a head
constexpr Workspace kAttentionWorkspace = {.is_from_session = true};

// The numbers of a call that are part of its key.
struct Attention {
  int32_t is_v2 = 0;
  int32_t node = 0, edge = 0;  // features
  int32_t heads = 1, concatenates = 1;
  int32_t activation = CUDNN_GNN_ACT_LINEAR;
  float alpha = 0;
  int32_t type = CUDNN_DATA_FLOAT;

  int64_t head() const { return node / heads; }
  int64_t edge_head() const { return edge / heads; }
  int64_t result() const { return concatenates != 0 ? node : head(); }
  int64_t weights() const { return is_v2 != 0 ? node : 2 * int64_t{node} + edge; }
};

// Fills what `params` says, and checks all.
Status SetParams(const void* params, Attention& a);
Status CheckAttention(const Attention& a);

// Rows of nodes or edges: [rows, heads, features of a head].
TensorDesc RowsDesc(int type, int64_t rows, int64_t heads, int64_t head);
// A number of each head and edge, of which those of a head lie side by side.
TensorDesc HeadsDesc(const Shape& shape, int64_t heads);
// y, or its gradient: [N, heads, …], or [N, 1, …] of a mean over heads.
TensorDesc ResultDesc(const Attention& a, int64_t rows);

// The arithmetic of all of them, in f32.
class AttentionGraph {
 public:
  AttentionGraph(CallGraph& g, const Attention& a) : g_(g), a_(a) {}

  graph::TensorId Add(graph::TensorId x, graph::TensorId y) const;
  graph::TensorId Sub(graph::TensorId x, graph::TensorId y) const;
  graph::TensorId Mul(graph::TensorId x, graph::TensorId y) const;
  graph::TensorId Map(graph::PointwiseMode mode, std::vector<graph::TensorId> operands) const;
  graph::TensorId Number(double value) const;
  // Sums over one dim.
  graph::TensorId SumOver(graph::TensorId x, size_t dim) const;
  graph::TensorId Activated(graph::TensorId x) const;
  // dy times the derivative of the activation, by its result y.
  graph::TensorId Slope(graph::TensorId dy, graph::TensorId y) const;

 private:
  graph::TensorId Positive(graph::TensorId y, graph::TensorId value, double or_factor) const;

  CallGraph& g_;
  const Attention& a_;
};

}  // namespace kiln::api::legacy::gnn
