// cudnnGnnMhaGatBackward and cudnnGnnMhaGatV2Backward of cudnn_gnn_ops.h (9.28).
//
// With g the gradient of y (of a mean over heads divided by their number), m the mask, and
// A = mask * p what forward weighs sources with:
//
//   dp[e]  = mask (sum over j of g[n,h,j] s[h,j] + gradAttention[e])    gradSmScores, second half
//   dl[e]  = p (dp - sum over the edges into n of p dp)                 gradSmScores, first half
//   GAT     r = dl act'(l): of the sum before the activation
//           ds = sum over edges out of A g + w_src sum of r,  dn = w_dst sum over edges into of r,
//           de = w_edge r,  dw = sums of r times features
//   GATv2   r[e,h,j] = dl w act'(a): of the sum before the activation
//           ds = sum over edges out of (A g + r),  dn = sum over edges into of r,
//           de = r,  dw = sum over edges of dl a
//
// The derivative of the activation follows from its stored result. Both gradients of nodes in one
// memory are added up. Sums over the edges out of a source are in the order of the reversed graph
// where the caller has it, and in any order else; all others are in a fixed order. The caller's
// work spaces say which of them it expects, and are not written: what is needed is less, and lent.
#include "api/legacy/calls/gnn_attention.h"
#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace gnn {
namespace {

using graph::SegmentMode;
using graph::TensorId;

struct Gradient {
  int32_t rows_type = CUDNN_DATA_FLOAT, weights_type = CUDNN_DATA_FLOAT;
  int32_t is_shared = 0;  // nodes have one gradient
  int32_t has_weights = 0, has_mask = 0, has_attention = 0;
};

struct Pointers {
  const void *dy, *src, *dst, *edge, *weights, *scores, *activated, *mask, *attention;
  void *dsrc, *ddst, *dedge, *dweights, *dscores, *space, *weight_space;
};

Status CheckPointers(const Attention& a, const Graph& graph, const Pointers& at) {
  const Shape& s = graph.shape;
  RETURN_IF_ERROR(Needs(at.dy, s.destinations, "gradOut"));
  RETURN_IF_ERROR(Needs(at.src, s.sources, "srcFeatures"));
  RETURN_IF_ERROR(Needs(at.dst, s.destinations, "dstFeatures"));
  RETURN_IF_ERROR(Matches(at.edge, a.edge, s.edges, "edgeFeatures", "dimEdge"));
  RETURN_IF_ERROR(NotNull(at.weights, "attnWeights"));
  RETURN_IF_ERROR(Needs(at.scores, s.edges, "smScores"));
  if (a.is_v2 != 0) RETURN_IF_ERROR(Needs(at.activated, s.edges, "actScores"));
  RETURN_IF_ERROR(Needs(at.dsrc, s.sources, "gradSrcFeatures"));
  RETURN_IF_ERROR(Needs(at.ddst, s.destinations, "gradDstFeatures"));
  RETURN_IF_ERROR(Matches(at.dedge, a.edge, s.edges, "gradEdgeFeatures", "the edges' dimension"));
  RETURN_IF_ERROR(Needs(at.dscores, s.edges, "gradSmScores"));
  if ((at.space == nullptr) != (at.weight_space == nullptr))
    return Status::Text(Code::kBadParam,
                        "gradWspaceFeat and gradWspaceWeights are both there or neither is");
  if (at.space == nullptr || s.edges == 0 || s.is_reversed != 0) return {};
  return Status::Text(Code::kBadParam,
                      "work spaces ask for sums in a fixed order, for which the graph has "
                      "cscRevOffsets and mapRevToCoo");
}

Status CheckTypes(const Attention& a, const Gradient& d) {
  for (const int type : {d.rows_type, d.weights_type}) {
    RETURN_IF_ERROR(CheckType(type, "the type of a gradient"));
    if (type == a.type || type == CUDNN_DATA_FLOAT) continue;
    return Status::Error(Code::kBadParam, "a gradient has type {}: dataType, which is {}, or float",
                         type, a.type);
  }
  return {};
}

template <class T>
T* Behind(T* base, int64_t elements, int type) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return base == nullptr ? nullptr : static_cast<Byte*>(base) + elements * ElementBytes(type);
}

class BackwardCall {
 public:
  BackwardCall(Call& call, const Attention& a, const Gradient& d, const Graph& graph,
               const Pointers& at)
      : a_(a), d_(d), shape_(graph.shape), lists_(call, graph, kAttentionRank) {
    call.Add(a);
    call.Add(d);
    AddInputs(call, at);
    AddResults(call, at);
  }

  Status Make(CallGraph& g) {
    RETURN_IF_ERROR(lists_.Make(g));
    const AttentionGraph ops(g, a_);
    ASSIGN_OR_RETURN(dy_, g.Read(dy_memory_));
    if (a_.concatenates == 0 && a_.heads > 1) dy_ = ops.Mul(dy_, ops.Number(1.0 / a_.heads));
    dy_ = lists_.AtDestinations(g, dy_);
    ASSIGN_OR_RETURN(src_, g.Read(src_memory_));
    ASSIGN_OR_RETURN(dst_, g.Read(dst_memory_));
    ASSIGN_OR_RETURN(weights_, g.Read(weights_memory_));
    ASSIGN_OR_RETURN(logits_, g.Read(logits_memory_));
    ASSIGN_OR_RETURN(shares_, g.Read(shares_memory_));
    if (mask_memory_.slot >= 0) {
      ASSIGN_OR_RETURN(mask_, g.Read(mask_memory_));
    }
    ASSIGN_OR_RETURN(const TensorId dlogits, OfLogits(g, ops));
    return a_.is_v2 != 0 ? FinishV2(g, ops, dlogits) : Finish(g, ops, dlogits);
  }

 private:
  void AddInputs(Call& call, const Pointers& at) {
    const int64_t s = shape_.sources, n = shape_.destinations, e = shape_.edges;
    dy_desc_ = ResultDesc(a_, n);
    src_desc_ = RowsDesc(a_.type, s, a_.heads, a_.head());
    dst_desc_ = RowsDesc(a_.type, n, a_.heads, a_.head());
    edge_desc_ = RowsDesc(a_.type, e, a_.heads, a_.edge_head());
    activated_desc_ = RowsDesc(a_.type, e, a_.heads, a_.head());
    weight_desc_ = RowsDesc(a_.type, 1, a_.heads, a_.head());
    edge_weight_desc_ = RowsDesc(a_.type, 1, a_.heads, a_.edge_head());
    heads_desc_ = HeadsDesc(shape_, a_.heads);
    dy_memory_ = call.Derived(dy_desc_, at.dy);
    src_memory_ = call.Derived(src_desc_, at.src);
    dst_memory_ = call.Derived(dst_desc_, at.dst);
    weights_memory_ = call.Derived(weight_desc_, at.weights);
    if (a_.is_v2 != 0) {
      activated_memory_ = call.Derived(activated_desc_, at.activated);
    } else {
      dst_weights_memory_ = call.Derived(weight_desc_, Behind(at.weights, a_.node, a_.type));
      if (a_.edge > 0) {
        edge_memory_ = call.Derived(edge_desc_, at.edge);
        edge_weights_memory_ =
            call.Derived(edge_weight_desc_, Behind(at.weights, 2 * int64_t{a_.node}, a_.type));
      }
    }
    logits_memory_ = call.Derived(heads_desc_, at.scores);
    shares_memory_ = call.Derived(heads_desc_, Behind(at.scores, e * a_.heads, CUDNN_DATA_FLOAT));
    if (at.mask != nullptr) mask_memory_ = call.Derived(heads_desc_, at.mask);
    if (at.attention != nullptr) attention_memory_ = call.Derived(heads_desc_, at.attention);
  }

  void AddResults(Call& call, const Pointers& at) {
    const int64_t s = shape_.sources, n = shape_.destinations, e = shape_.edges;
    const int64_t rows = d_.is_shared != 0 ? std::max(s, n) : s;
    dsrc_desc_ = RowsDesc(d_.rows_type, rows, a_.heads, a_.head());
    ddst_desc_ = RowsDesc(d_.rows_type, n, a_.heads, a_.head());
    dedge_desc_ = RowsDesc(d_.rows_type, e, a_.heads, a_.edge_head());
    dweight_desc_ = RowsDesc(d_.weights_type, 1, a_.heads, a_.head());
    dedge_weight_desc_ = RowsDesc(d_.weights_type, 1, a_.heads, a_.edge_head());
    dsrc_memory_ = call.Derived(dsrc_desc_, at.dsrc);
    if (d_.is_shared == 0) ddst_memory_ = call.Derived(ddst_desc_, at.ddst);
    if (a_.edge > 0) dedge_memory_ = call.Derived(dedge_desc_, at.dedge);
    dlogits_memory_ = call.Derived(heads_desc_, at.dscores);
    dshares_memory_ = call.Derived(heads_desc_, Behind(at.dscores, e * a_.heads, CUDNN_DATA_FLOAT));
    if (at.dweights == nullptr) return;
    dweights_memory_ = call.Derived(dweight_desc_, at.dweights);
    if (a_.is_v2 != 0) return;
    ddst_weights_memory_ =
        call.Derived(dweight_desc_, Behind(at.dweights, a_.node, d_.weights_type));
    if (a_.edge > 0)
      dedge_weights_memory_ = call.Derived(
          dedge_weight_desc_, Behind(at.dweights, 2 * int64_t{a_.node}, d_.weights_type));
  }

  Result<TensorId> Stored(CallGraph& g, TensorId value, const Operand& memory) const {
    RETURN_IF_ERROR(g.Write(value, memory));
    return g.Written();
  }

  TensorId Masked(const AttentionGraph& ops, TensorId x) const {
    return mask_ == graph::kAbsent ? x : ops.Mul(x, mask_);
  }

  Result<TensorId> OfLogits(CallGraph& g, const AttentionGraph& ops) const {
    TensorId dshares = ops.SumOver(ops.Mul(dy_, lists_.AtSources(g, src_)), 2);
    if (attention_memory_.slot >= 0) {
      ASSIGN_OR_RETURN(const TensorId attention, g.Read(attention_memory_));
      dshares = ops.Add(dshares, attention);
    }
    ASSIGN_OR_RETURN(dshares, Stored(g, Masked(ops, dshares), dshares_memory_));
    const TensorId sum = lists_.ReduceRows(g, SegmentMode::kAdd, ops.Mul(shares_, dshares));
    return Stored(g, ops.Mul(shares_, ops.Sub(dshares, lists_.AtDestinations(g, sum))),
                  dlogits_memory_);
  }

  // The share that each edge brings its source as one of the values that attention sums.
  TensorId OfValues(const AttentionGraph& ops) const { return ops.Mul(Masked(ops, shares_), dy_); }

  Status WriteNodes(CallGraph& g, const AttentionGraph& ops, TensorId dsrc, TensorId ddst) const {
    if (d_.is_shared == 0) {
      RETURN_IF_ERROR(g.Write(ddst, ddst_memory_));
      return g.Write(dsrc, dsrc_memory_);
    }
    const int64_t rows = std::max(shape_.sources, shape_.destinations);
    return g.Write(ops.Add(lists_.FirstRows(g, dsrc, rows), lists_.FirstRows(g, ddst, rows)),
                   dsrc_memory_);
  }

  // The gradient of weights that rows of x are multiplied by.
  Status WriteWeights(CallGraph& g, const AttentionGraph& ops, TensorId x, TensorId of_rows,
                      const Operand& memory) const {
    if (memory.slot < 0) return {};
    return g.Write(ops.SumOver(ops.Mul(x, of_rows), 0), memory);
  }

  Status Finish(CallGraph& g, const AttentionGraph& ops, TensorId dlogits) const {
    const TensorId before = ops.Slope(dlogits, logits_);
    const TensorId of_sources = lists_.ReduceOut(g, before, ops.Number(0)),
                   of_destinations = lists_.ReduceRows(g, SegmentMode::kAdd, before);
    ASSIGN_OR_RETURN(const TensorId dst_w, g.Read(dst_weights_memory_));
    const TensorId by_weights = ops.Mul(of_sources, weights_);
    const TensorId dsrc =
        shape_.is_reversed != 0
            ? ops.Add(lists_.ReduceOut(g, OfValues(ops), ops.Number(0)), by_weights)
            : lists_.ReduceOut(g, OfValues(ops), by_weights);
    RETURN_IF_ERROR(WriteNodes(g, ops, dsrc, ops.Mul(of_destinations, dst_w)));
    RETURN_IF_ERROR(WriteWeights(g, ops, src_, of_sources, dweights_memory_));
    RETURN_IF_ERROR(WriteWeights(g, ops, dst_, of_destinations, ddst_weights_memory_));
    if (a_.edge == 0) return {};
    ASSIGN_OR_RETURN(const TensorId edge, g.Read(edge_memory_));
    ASSIGN_OR_RETURN(const TensorId edge_w, g.Read(edge_weights_memory_));
    RETURN_IF_ERROR(g.Write(ops.Mul(before, edge_w), dedge_memory_));
    return WriteWeights(g, ops, edge, before, dedge_weights_memory_);
  }

  Status FinishV2(CallGraph& g, const AttentionGraph& ops, TensorId dlogits) const {
    ASSIGN_OR_RETURN(const TensorId activated, g.Read(activated_memory_));
    const TensorId before = ops.Slope(ops.Mul(dlogits, weights_), activated);
    const TensorId ddst = lists_.ReduceRows(g, SegmentMode::kAdd, before);
    const TensorId dsrc = lists_.ReduceOut(g, ops.Add(OfValues(ops), before), ops.Number(0));
    RETURN_IF_ERROR(WriteNodes(g, ops, dsrc, ddst));
    RETURN_IF_ERROR(WriteWeights(g, ops, activated, dlogits, dweights_memory_));
    return a_.edge == 0 ? Status() : g.Write(before, dedge_memory_);
  }

  const Attention& a_;
  const Gradient& d_;
  const Shape& shape_;
  Lists lists_;
  TensorDesc dy_desc_, src_desc_, dst_desc_, edge_desc_, activated_desc_, weight_desc_,
      edge_weight_desc_, heads_desc_, dsrc_desc_, ddst_desc_, dedge_desc_, dweight_desc_,
      dedge_weight_desc_;
  Operand dy_memory_, src_memory_, dst_memory_, edge_memory_, activated_memory_, weights_memory_,
      dst_weights_memory_, edge_weights_memory_, logits_memory_, shares_memory_, mask_memory_,
      attention_memory_;
  Operand dsrc_memory_, ddst_memory_, dedge_memory_, dweights_memory_, ddst_weights_memory_,
      dedge_weights_memory_, dlogits_memory_, dshares_memory_;
  // Tensors of the CallGraph; dy at each edge's destination.
  TensorId dy_ = graph::kAbsent, src_ = graph::kAbsent, dst_ = graph::kAbsent,
           weights_ = graph::kAbsent, logits_ = graph::kAbsent, shares_ = graph::kAbsent,
           mask_ = graph::kAbsent;
};

Status Backward(const char* function, void* stream, const Graph& graph, const Attention& a,
                Gradient d, const Pointers& at) {
  RETURN_IF_ERROR(CheckAttention(a));
  RETURN_IF_ERROR(CheckTypes(a, d));
  RETURN_IF_ERROR(CheckPointers(a, graph, at));
  d.is_shared = at.dsrc != nullptr && at.dsrc == at.ddst;
  d.has_weights = at.dweights != nullptr;
  d.has_mask = at.mask != nullptr;
  d.has_attention = at.attention != nullptr;
  ASSIGN_OR_RETURN(Handle handle, HandleOn(stream));
  Call call(handle, function);
  BackwardCall backward(call, a, d, graph, at);
  return call.Run(kAttentionWorkspace, [&](CallGraph& g) { return backward.Make(g); });
}

}  // namespace
}  // namespace gnn

Status GnnMhaGatBackward(void* stream, const void* csc_graph, const void* grad_out, const void* src,
                         const void* dst, const void* edge, const void* weights, const void* scores,
                         const float* mask, const float* grad_attention, void* grad_src,
                         void* grad_dst, void* grad_edge, void* grad_weights, void* grad_scores,
                         void* space, void* weight_space, int node_dim, int edge_dim,
                         const void* params, int type, int grad_type, int grad_weight_type) {
  ASSIGN_OR_RETURN(const gnn::Graph graph, gnn::GraphOf(csc_graph));
  gnn::Attention a = {.node = node_dim, .edge = edge_dim, .type = type};
  RETURN_IF_ERROR(gnn::SetParams(params, a));
  return gnn::Backward(
      "cudnnGnnMhaGatBackward", stream, graph, a,
      {.rows_type = grad_type, .weights_type = grad_weight_type},
      {grad_out, src, dst, edge, weights, scores, nullptr, mask, grad_attention, grad_src, grad_dst,
       grad_edge, grad_weights, grad_scores, space, weight_space});
}

Status GnnMhaGatV2Backward(void* stream, const void* csc_graph, const void* grad_out,
                           const void* src, const void* dst, const void* edge, const void* weights,
                           const void* scores, const void* activated, const float* mask,
                           const float* grad_attention, void* grad_src, void* grad_dst,
                           void* grad_edge, void* grad_weights, void* grad_scores, void* space,
                           void* weight_space, int node_dim, const void* params, int type,
                           int grad_type) {
  ASSIGN_OR_RETURN(const gnn::Graph graph, gnn::GraphOf(csc_graph));
  const bool has_edges = edge != nullptr || grad_edge != nullptr;
  gnn::Attention a = {.is_v2 = 1, .node = node_dim, .edge = has_edges ? node_dim : 0, .type = type};
  RETURN_IF_ERROR(gnn::SetParams(params, a));
  return gnn::Backward(
      "cudnnGnnMhaGatV2Backward", stream, graph, a,
      {.rows_type = grad_type, .weights_type = grad_type},
      {grad_out, src, dst, edge, weights, scores, activated, mask, grad_attention, grad_src,
       grad_dst, grad_edge, grad_weights, grad_scores, space, weight_space});
}

}  // namespace kiln::api::legacy
