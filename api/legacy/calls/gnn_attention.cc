// cudnnGnnMhaGatForward and cudnnGnnMhaGatV2Forward of cudnn_gnn_ops.h (9.28).
#include "api/legacy/calls/gnn_attention.h"

#include <cmath>

#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace gnn {

using graph::PointwiseMode;
using graph::TensorId;

Status SetParams(const void* params, Attention& a) {
  RETURN_IF_ERROR(NotNull(params, "params"));
  const auto& p = *static_cast<const cudnnGnnMhaParams_t*>(params);
  a.activation = static_cast<int32_t>(p.activation);
  a.alpha = p.activationAlpha;
  a.heads = p.numHeads;
  a.concatenates = p.concatHeads != 0;
  RETURN_IF_ERROR(CheckEnum(a.activation, CUDNN_GNN_ACT_LEAKY_RELU, "cudnnGnnActivationOp_t"));
  if (a.activation == CUDNN_GNN_ACT_LEAKY_RELU && !(a.alpha >= 0 && std::isfinite(a.alpha)))
    return Status::Error(Code::kBadParam,
                         "activationAlpha is {}: the slope of a leaky ReLU is not negative",
                         a.alpha);
  // Alpha says nothing of other activations, so that it is no part of a plan.
  if (a.activation != CUDNN_GNN_ACT_LEAKY_RELU && a.activation != CUDNN_GNN_ACT_SCALAR) a.alpha = 0;
  return CheckDim(a.heads, 1, "numHeads");
}

Status CheckAttention(const Attention& a) {
  RETURN_IF_ERROR(CheckDim(a.node, 1, "dimNode"));
  RETURN_IF_ERROR(CheckDim(a.edge, 0, "dimEdge"));
  for (const auto& [dim, name] : {std::pair(a.node, "dimNode"), std::pair(a.edge, "dimEdge")}) {
    if (dim % a.heads == 0) continue;
    return Status::Error(Code::kBadParam, "{} is {}, no multiple of {} heads", name, dim, a.heads);
  }
  return CheckType(a.type, "dataType");
}

TensorDesc RowsDesc(int type, int64_t rows, int64_t heads, int64_t head) {
  return Described(type, {rows, heads, head}, {heads * head, head, 1});
}

TensorDesc HeadsDesc(const Shape& shape, int64_t heads) {
  return Described(CUDNN_DATA_FLOAT, {shape.edges, heads, 1},
                   {1, std::max<int64_t>(shape.edges, 1), 1});
}

TensorDesc ResultDesc(const Attention& a, int64_t rows) {
  return RowsDesc(a.type, rows, a.concatenates != 0 ? a.heads : 1, a.head());
}

// ---- arithmetic

TensorId AttentionGraph::Map(PointwiseMode mode, std::vector<TensorId> operands) const {
  return g_.Pointwise(mode, std::move(operands), DType::kF32);
}
TensorId AttentionGraph::Add(TensorId x, TensorId y) const {
  return Map(PointwiseMode::kAdd, {x, y});
}
TensorId AttentionGraph::Sub(TensorId x, TensorId y) const {
  return Map(PointwiseMode::kSub, {x, y});
}
TensorId AttentionGraph::Mul(TensorId x, TensorId y) const {
  return Map(PointwiseMode::kMul, {x, y});
}
TensorId AttentionGraph::Number(double value) const {
  return g_.Constant(value, kAttentionRank, DType::kF32);
}

TensorId AttentionGraph::SumOver(TensorId x, size_t dim) const {
  Dims dims = g_.DimsOf(x);
  if (dims[dim] == 1) return x;
  dims[dim] = 1;
  return g_.builder().Reduction(graph::ReductionMode::kAdd, x, dims,
                                {.dtype = DType::kF32, .compute = DType::kF32});
}

TensorId AttentionGraph::Activated(TensorId x) const {
  switch (a_.activation) {
    case CUDNN_GNN_ACT_RELU:
    case CUDNN_GNN_ACT_LEAKY_RELU:
      return g_.Pointwise(
          {.mode = PointwiseMode::kReluFwd, .relu_slope = a_.alpha, .propagate_nan = true}, {x},
          DType::kF32);
    case CUDNN_GNN_ACT_SIGMOID:
      return Map(PointwiseMode::kSigmoidFwd, {x});
    case CUDNN_GNN_ACT_TANH:
      return Map(PointwiseMode::kTanhFwd, {x});
    case CUDNN_GNN_ACT_ELU:
      return Map(PointwiseMode::kEluFwd, {x});
    case CUDNN_GNN_ACT_SCALAR:
      return Mul(x, Number(a_.alpha));
    default:
      return x;
  }
}

// value where y is positive, else value times the factor.
TensorId AttentionGraph::Positive(TensorId y, TensorId value, double or_factor) const {
  const TensorId is_positive =
      g_.builder().Apply(graph::GraphOp::kPointwise, {y, Number(0)},
                         graph::PointwiseAttrs{.mode = PointwiseMode::kCmpGt},
                         {.dtype = DType::kBool, .compute = DType::kF32});
  return Map(PointwiseMode::kBinarySelect, {value, Mul(value, Number(or_factor)), is_positive});
}

TensorId AttentionGraph::Slope(TensorId dy, TensorId y) const {
  switch (a_.activation) {
    case CUDNN_GNN_ACT_RELU:
    case CUDNN_GNN_ACT_LEAKY_RELU:
      return Positive(y, dy, a_.alpha);
    case CUDNN_GNN_ACT_SIGMOID:
      return Mul(dy, Mul(y, Sub(Number(1), y)));
    case CUDNN_GNN_ACT_TANH:
      return Mul(dy, Sub(Number(1), Mul(y, y)));
    case CUDNN_GNN_ACT_ELU:  // 1, or e^x = y + 1
      return Mul(dy, Map(PointwiseMode::kMin, {Add(y, Number(1)), Number(1)}));
    case CUDNN_GNN_ACT_SCALAR:
      return Mul(dy, Number(a_.alpha));
    default:
      return dy;
  }
}

namespace {

struct Pointers {
  const void *src, *dst, *edge, *weights, *mask;
  void *output, *scores, *activated;
};

Status CheckPointers(const Attention& a, const Shape& s, const Pointers& at) {
  RETURN_IF_ERROR(Needs(at.src, s.sources, "srcFeatures"));
  RETURN_IF_ERROR(Needs(at.dst, s.destinations, "dstFeatures"));
  RETURN_IF_ERROR(Matches(at.edge, a.edge, s.edges, "edgeFeatures", "dimEdge"));
  RETURN_IF_ERROR(NotNull(at.weights, "attnWeights"));
  RETURN_IF_ERROR(Needs(at.output, s.destinations, "output"));
  RETURN_IF_ERROR(Needs(at.scores, s.edges, "smScores"));
  return a.is_v2 != 0 ? Needs(at.activated, s.edges, "actScores") : Status();
}

const void* Weights(const Attention& a, const void* all, int64_t first) {
  return static_cast<const std::byte*>(all) + first * ElementBytes(a.type);
}

class ForwardCall {
 public:
  ForwardCall(Call& call, const Attention& a, const Graph& graph, const Pointers& at)
      : a_(a),
        lists_(call, graph, kAttentionRank),
        src_desc_(RowsDesc(a.type, graph.shape.sources, a.heads, a.head())),
        dst_desc_(RowsDesc(a.type, graph.shape.destinations, a.heads, a.head())),
        edge_desc_(RowsDesc(a.type, graph.shape.edges, a.heads, a.edge_head())),
        weight_desc_(RowsDesc(a.type, 1, a.heads, a.head())),
        edge_weight_desc_(RowsDesc(a.type, 1, a.heads, a.edge_head())),
        heads_desc_(HeadsDesc(graph.shape, a.heads)),
        result_desc_(ResultDesc(a, graph.shape.destinations)) {
    call.Add(a);
    call.Add(static_cast<char>(at.mask != nullptr));
    src_ = call.Derived(src_desc_, at.src);
    dst_ = call.Derived(dst_desc_, at.dst);
    if (a.edge > 0) edge_ = call.Derived(edge_desc_, at.edge);
    weights_ = call.Derived(weight_desc_, at.weights);
    if (a.is_v2 == 0) {
      dst_weights_ = call.Derived(weight_desc_, Weights(a, at.weights, a.node));
      if (a.edge > 0)
        edge_weights_ =
            call.Derived(edge_weight_desc_, Weights(a, at.weights, 2 * int64_t{a.node}));
    } else {
      activated_ = call.Derived(src_like_edges(graph), at.activated);
    }
    if (at.mask != nullptr) mask_ = call.Derived(heads_desc_, at.mask);
    const int64_t scores = graph.shape.edges * a.heads;
    logits_ = call.Derived(heads_desc_, at.scores);
    shares_ = call.Derived(heads_desc_, static_cast<const float*>(at.scores) + scores);
    output_ = call.Derived(result_desc_, at.output);
  }

  Status Make(CallGraph& g) {
    RETURN_IF_ERROR(lists_.Make(g));
    const AttentionGraph ops(g, a_);
    ASSIGN_OR_RETURN(const TensorId src, g.Read(src_));
    ASSIGN_OR_RETURN(const TensorId at_source, SourcesOfEdges(g, src));
    ASSIGN_OR_RETURN(const TensorId logits,
                     a_.is_v2 != 0 ? LogitsOfV2(g, ops, at_source) : Logits(g, ops, src));
    ASSIGN_OR_RETURN(TensorId shares, Softmax(g, ops, logits));
    if (mask_.slot >= 0) {
      ASSIGN_OR_RETURN(const TensorId mask, g.Read(mask_));
      shares = ops.Mul(shares, mask);
    }
    return Sum(g, ops, ops.Mul(shares, at_source));
  }

 private:
  const TensorDesc& src_like_edges(const Graph& graph) {
    activated_desc_ = RowsDesc(a_.type, graph.shape.edges, a_.heads, a_.head());
    return activated_desc_;
  }

  Result<TensorId> SourcesOfEdges(CallGraph& g, TensorId src) const {
    return lists_.AtSources(g, src);
  }

  Result<TensorId> Stored(CallGraph& g, TensorId value, const Operand& memory) const {
    RETURN_IF_ERROR(g.Write(value, memory));
    return g.Written();
  }

  // Each end has a number for each node and head, which its edges share.
  Result<TensorId> Logits(CallGraph& g, const AttentionGraph& ops, TensorId src) const {
    const auto scores = [&](TensorId x, TensorId w) { return ops.SumOver(ops.Mul(x, w), 2); };
    ASSIGN_OR_RETURN(const TensorId w, g.Read(weights_));
    ASSIGN_OR_RETURN(const TensorId dst, g.Read(dst_));
    ASSIGN_OR_RETURN(const TensorId dst_w, g.Read(dst_weights_));
    TensorId sum =
        ops.Add(lists_.AtSources(g, scores(src, w)), lists_.AtDestinations(g, scores(dst, dst_w)));
    if (edge_.slot >= 0) {
      ASSIGN_OR_RETURN(const TensorId edge, g.Read(edge_));
      ASSIGN_OR_RETURN(const TensorId edge_w, g.Read(edge_weights_));
      sum = ops.Add(sum, scores(edge, edge_w));
    }
    return Stored(g, ops.Activated(sum), logits_);
  }

  Result<TensorId> LogitsOfV2(CallGraph& g, const AttentionGraph& ops, TensorId at_source) const {
    ASSIGN_OR_RETURN(const TensorId w, g.Read(weights_));
    ASSIGN_OR_RETURN(const TensorId dst, g.Read(dst_));
    TensorId sum = ops.Add(at_source, lists_.AtDestinations(g, dst));
    if (edge_.slot >= 0) {
      ASSIGN_OR_RETURN(const TensorId edge, g.Read(edge_));
      sum = ops.Add(sum, edge);
    }
    const TensorId activated = ops.Activated(sum);
    RETURN_IF_ERROR(g.Write(activated, activated_));
    return Stored(g, ops.SumOver(ops.Mul(activated, w), 2), logits_);
  }

  // Over the edges into a destination.
  Result<TensorId> Softmax(CallGraph& g, const AttentionGraph& ops, TensorId logits) const {
    const TensorId most = lists_.ReduceRows(g, graph::SegmentMode::kMax, logits);
    const TensorId share =
        ops.Map(PointwiseMode::kExp, {ops.Sub(logits, lists_.AtDestinations(g, most))});
    const TensorId sum = lists_.ReduceRows(g, graph::SegmentMode::kAdd, share);
    return Stored(g, ops.Map(PointwiseMode::kDiv, {share, lists_.AtDestinations(g, sum)}), shares_);
  }

  Status Sum(CallGraph& g, const AttentionGraph& ops, TensorId terms) const {
    if (a_.concatenates != 0 || a_.heads == 1) {
      ASSIGN_OR_RETURN(const TensorId y, g.Stored(output_));
      lists_.ReduceRows(g, graph::SegmentMode::kAdd, terms, {y});
      return {};
    }
    const TensorId heads = lists_.ReduceRows(g, graph::SegmentMode::kAdd, terms);
    return g.Write(ops.Mul(ops.SumOver(heads, 1), ops.Number(1.0 / a_.heads)), output_);
  }

  const Attention& a_;
  Lists lists_;
  const TensorDesc src_desc_, dst_desc_, edge_desc_, weight_desc_, edge_weight_desc_, heads_desc_,
      result_desc_;
  TensorDesc activated_desc_;
  Operand src_, dst_, edge_, weights_, dst_weights_, edge_weights_, mask_, logits_, shares_,
      activated_, output_;
};

Status Forward(const char* function, void* stream, const Graph& graph, const Attention& a,
               const Pointers& at) {
  RETURN_IF_ERROR(CheckAttention(a));
  RETURN_IF_ERROR(CheckPointers(a, graph.shape, at));
  if (graph.shape.destinations == 0) return {};
  ASSIGN_OR_RETURN(Handle handle, HandleOn(stream));
  Call call(handle, function);
  ForwardCall forward(call, a, graph, at);
  return call.Run(kAttentionWorkspace, [&](CallGraph& g) { return forward.Make(g); });
}

}  // namespace
}  // namespace gnn

Status GnnMhaGatForward(void* stream, const void* csc_graph, const void* src, const void* dst,
                        const void* edge, const void* weights, const float* mask, void* output,
                        void* scores, int node_dim, int edge_dim, const void* params, int type) {
  ASSIGN_OR_RETURN(const gnn::Graph graph, gnn::GraphOf(csc_graph));
  gnn::Attention a = {.node = node_dim, .edge = edge_dim, .type = type};
  RETURN_IF_ERROR(gnn::SetParams(params, a));
  return gnn::Forward("cudnnGnnMhaGatForward", stream, graph, a,
                      {src, dst, edge, weights, mask, output, scores, nullptr});
}

Status GnnMhaGatV2Forward(void* stream, const void* csc_graph, const void* src, const void* dst,
                          const void* edge, const void* weights, const float* mask, void* output,
                          void* scores, void* activated, int node_dim, const void* params,
                          int type) {
  ASSIGN_OR_RETURN(const gnn::Graph graph, gnn::GraphOf(csc_graph));
  gnn::Attention a = {
      .is_v2 = 1, .node = node_dim, .edge = edge == nullptr ? 0 : node_dim, .type = type};
  RETURN_IF_ERROR(gnn::SetParams(params, a));
  return gnn::Forward("cudnnGnnMhaGatV2Forward", stream, graph, a,
                      {src, dst, edge, weights, mask, output, scores, activated});
}

}  // namespace kiln::api::legacy
