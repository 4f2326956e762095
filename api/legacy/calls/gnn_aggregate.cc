// cudnnGnnAggSimple{Forward,Backward} of cudnn_gnn_ops.h (9.26): each destination's sum, mean,
// maximum or minimum over the edges into it, of features of their sources and of their own.
//
//   output[n] = [ over edges e into n: node[source(e)] | over e: edge[row(e)] | concat[n] ]
//
// Each part is a segment_reduce of its own. A destination without edges has zeroes, and -1 as the
// positions of its maxima; a position is the row of the table that has it: a source, or a row of
// edges. Gradients of nodes and of edges are added to what their memory holds, as programs that
// clear it before expect, in f32, and rounded once. Where the graph comes with its reversed lists,
// sums and means of nodes are added in their order, else in any.
#include "api/legacy/calls/gnn.h"
#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;
using graph::PointwiseMode;
using graph::SegmentMode;
using graph::TensorId;

constexpr int kRank = 2;
constexpr Workspace kFromSession = {.is_from_session = true};

struct Problem {
  int32_t node, edge, concat;  // features
  int32_t type, mode;

  int64_t width() const { return int64_t{node} + edge + concat; }
  int64_t aggregated() const { return int64_t{node} + edge; }
  bool has_positions() const { return mode == CUDNN_GNN_AGG_MAX || mode == CUDNN_GNN_AGG_MIN; }
  SegmentMode segment_mode() const { return static_cast<SegmentMode>(mode); }
};

Status Check(const Problem& p) {
  RETURN_IF_ERROR(gnn::CheckDim(p.node, 0, "nodeFeatDim"));
  RETURN_IF_ERROR(gnn::CheckDim(p.edge, 0, "edgeFeatDim"));
  RETURN_IF_ERROR(gnn::CheckDim(p.concat, 0, "concatFeatDim"));
  if (p.aggregated() == 0)
    return Status::Text(Code::kBadParam, "nodeFeatDim and edgeFeatDim are both 0");
  if (p.width() > INT32_MAX)
    return Status::Error(Code::kNotSupported, "{} features are more than {}", p.width(), INT32_MAX);
  RETURN_IF_ERROR(gnn::CheckType(p.type, "dataType"));
  return CheckEnum(p.mode, CUDNN_GNN_AGG_MIN, "cudnnGnnAggOp_t");
}

// Columns `first` and so many behind it of rows of `width`.
TensorDesc Columns(int type, int64_t rows, int64_t columns, int64_t width) {
  return gnn::Described(type, {rows, columns}, {width, 1});
}

int64_t BytesOf(int type) {  // of features, or of an index
  return type == CUDNN_DATA_INT64 ? int64_t{sizeof(int64_t)} : ElementBytes(type);
}

template <class T>
T* At(T* base, int64_t element, int type) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return base == nullptr ? nullptr : static_cast<Byte*>(base) + element * BytesOf(type);
}

struct Pointers {
  const void *node, *edge, *concat;
  void *output, *positions;
};

Status CheckPointers(const Problem& p, const gnn::Shape& shape, const Pointers& at) {
  RETURN_IF_ERROR(
      gnn::Matches(at.node, p.node, shape.sources * p.node, "nodeFeatures", "nodeFeatDim"));
  RETURN_IF_ERROR(
      gnn::Matches(at.edge, p.edge, shape.edges * p.edge, "edgeFeatures", "edgeFeatDim"));
  RETURN_IF_ERROR(gnn::Matches(at.concat, p.concat, shape.destinations * p.concat, "concatFeatures",
                               "concatFeatDim"));
  RETURN_IF_ERROR(gnn::Needs(at.output, shape.destinations, "output"));
  if (!p.has_positions()) return {};
  return gnn::Needs(at.positions, shape.destinations, "outPositions");
}

// One aggregated part: what is read, and where its columns begin.
struct Part {
  TensorDesc from, to, positions;
  Operand x, y, at;
};

class Forward {
 public:
  Forward(Call& call, const Problem& p, const gnn::Graph& graph, const Pointers& at)
      : p_(p), lists_(call, graph, kRank) {
    call.Add(p);
    const gnn::Shape& s = graph.shape;
    if (p.node > 0) Add(call, s, node_, s.sources, p.node, at.node, 0, at);
    if (p.edge > 0) Add(call, s, edge_, s.edges, p.edge, at.edge, p.node, at);
    if (p.concat == 0) return;
    concat_.from = Columns(p.type, s.destinations, p.concat, p.concat);
    concat_.to = Columns(p.type, s.destinations, p.concat, p.width());
    concat_.x = call.Derived(concat_.from, at.concat);
    concat_.y = call.Derived(concat_.to, At(at.output, p.aggregated(), p.type));
  }

  Status Make(CallGraph& g) {
    RETURN_IF_ERROR(lists_.Make(g));
    if (p_.node > 0) RETURN_IF_ERROR(Aggregate(g, node_, true));
    if (p_.edge > 0) RETURN_IF_ERROR(Aggregate(g, edge_, false));
    if (p_.concat == 0) return {};
    ASSIGN_OR_RETURN(const TensorId concat, g.Read(concat_.x));
    return g.Write(concat, concat_.y);
  }

 private:
  void Add(Call& call, const gnn::Shape& s, Part& part, int64_t rows, int64_t columns,
           const void* x, int64_t first, const Pointers& at) {
    part.from = Columns(p_.type, rows, columns, columns);
    part.to = Columns(p_.type, s.destinations, columns, p_.width());
    part.positions = Columns(s.index, s.destinations, columns, p_.aggregated());
    part.x = call.Derived(part.from, x);
    part.y = call.Derived(part.to, At(at.output, first, p_.type));
    if (p_.has_positions())
      part.at = call.Derived(part.positions, At(at.positions, first, s.index));
  }

  Status Aggregate(CallGraph& g, const Part& part, bool of_nodes) const {
    ASSIGN_OR_RETURN(const TensorId x, g.Read(part.x));
    ASSIGN_OR_RETURN(const TensorId y, g.Stored(part.y));
    std::vector<TensorId> into = {y};
    if (part.at.slot >= 0) {
      ASSIGN_OR_RETURN(const TensorId positions, g.Stored(part.at));
      into.push_back(positions);
    }
    if (of_nodes)
      lists_.ReduceSources(g, p_.segment_mode(), x, std::move(into));
    else
      lists_.ReduceRows(g, p_.segment_mode(), x, std::move(into));
    return {};
  }

  const Problem& p_;
  gnn::Lists lists_;
  Part node_, edge_, concat_;
};

// ---- gradients

struct Gradients {
  const void *output, *positions;
  void *node, *edge, *concat;
};

Status CheckGradients(const Problem& p, const gnn::Shape& shape, const Gradients& at) {
  RETURN_IF_ERROR(gnn::Needs(at.output, shape.destinations, "gradOutput"));
  RETURN_IF_ERROR(
      gnn::Matches(at.node, p.node, shape.sources * p.node, "gradNodeFeatures", "nodeFeatDim"));
  RETURN_IF_ERROR(
      gnn::Matches(at.edge, p.edge, shape.edges * p.edge, "gradEdgeFeatures", "edgeFeatDim"));
  RETURN_IF_ERROR(gnn::Matches(at.concat, p.concat, shape.destinations * p.concat,
                               "gradConcatFeatures", "concatFeatDim"));
  if (!p.has_positions()) return {};
  return gnn::Needs(at.positions, shape.destinations, "outPositions");
}

class Backward {
 public:
  Backward(Call& call, const Problem& p, const gnn::Graph& graph, const Gradients& at)
      : p_(p), shape_(graph.shape), lists_(call, graph, kRank) {
    call.Add(p);
    if (p.node > 0) Add(call, node_, shape_.sources, p.node, at.node, 0, at);
    if (p.edge > 0) Add(call, edge_, shape_.edges, p.edge, at.edge, p.node, at);
    if (p.concat == 0) return;
    concat_.from = Columns(p.type, shape_.destinations, p.concat, p.width());
    concat_.to = Columns(p.type, shape_.destinations, p.concat, p.concat);
    concat_.dy = call.Derived(concat_.from, At(at.output, p.aggregated(), p.type));
    concat_.after = call.Derived(concat_.to, at.concat);
  }

  Status Make(CallGraph& g) {
    RETURN_IF_ERROR(lists_.Make(g));
    if (p_.node > 0) RETURN_IF_ERROR(AddOfNodes(g));
    if (p_.edge > 0) {
      ASSIGN_OR_RETURN(const TensorId gradient, OfEdges(g));
      RETURN_IF_ERROR(AddTo(g, edge_, gradient));
    }
    if (p_.concat == 0) return {};
    ASSIGN_OR_RETURN(const TensorId concat, g.Read(concat_.dy));
    return g.Write(concat, concat_.after);
  }

 private:
  struct GradientPart {
    TensorDesc from, to, positions_desc;
    Operand dy, positions, before, after;
  };

  void Add(Call& call, GradientPart& part, int64_t rows, int64_t columns, void* dx, int64_t first,
           const Gradients& at) {
    part.from = Columns(p_.type, shape_.destinations, columns, p_.width());
    part.to = Columns(p_.type, rows, columns, columns);
    part.positions_desc = Columns(shape_.index, shape_.destinations, columns, p_.aggregated());
    part.dy = call.Derived(part.from, At(at.output, first, p_.type));
    if (p_.has_positions())
      part.positions = call.Derived(part.positions_desc, At(at.positions, first, shape_.index));
    part.before = call.Derived(part.to, dx);
    part.after = call.Derived(part.to, dx);
  }

  // dy, of a mean divided by the number of edges.
  Result<TensorId> Scaled(CallGraph& g, const GradientPart& part) const {
    ASSIGN_OR_RETURN(const TensorId dy, g.Read(part.dy));
    if (p_.mode != CUDNN_GNN_AGG_MEAN) return dy;
    const TensorId count = g.Pointwise(
        PointwiseMode::kMax, {lists_.Counts(g), g.Constant(1, kRank, DType::kF32)}, DType::kF32);
    return g.Pointwise(PointwiseMode::kDiv, {dy, count}, DType::kF32);
  }

  // A maximum's gradient goes where the position says: once for each destination. What adds at
  // computed places begins with what f32 memory holds.
  Status AddOfNodes(CallGraph& g) const {
    ASSIGN_OR_RETURN(const TensorId dy, Scaled(g, node_));
    TensorId start = g.Constant(0, kRank, DType::kF32);
    const bool adds_in_place =
        p_.type == CUDNN_DATA_FLOAT && (p_.has_positions() || shape_.is_reversed == 0);
    if (adds_in_place) {
      ASSIGN_OR_RETURN(start, g.Read(node_.before));
    }
    TensorId sum = graph::kAbsent;
    if (p_.has_positions()) {
      ASSIGN_OR_RETURN(const TensorId positions, g.Read(node_.positions));
      sum = g.builder().Apply(
          GraphOp::kScatterAdd, {start, dy, positions}, graph::ScatterAddAttrs{.axis = 0},
          {.dtype = DType::kF32, .compute = DType::kF32, .dims = {shape_.sources, p_.node}});
    } else {
      sum = lists_.ReduceOut(g, lists_.AtDestinations(g, dy), start);
    }
    return adds_in_place ? g.Write(sum, node_.after) : AddTo(g, node_, sum);
  }

  // An edge has one destination, whose gradient is its own; of a maximum where it is the position.
  Result<TensorId> OfEdges(CallGraph& g) const {
    ASSIGN_OR_RETURN(const TensorId dy, Scaled(g, edge_));
    const TensorId mine = lists_.AtDestinations(g, dy);
    if (!p_.has_positions()) return mine;
    ASSIGN_OR_RETURN(const TensorId positions, g.Read(edge_.positions));
    const TensorId row = g.builder().Apply(
        GraphOp::kIota, {}, graph::IotaAttrs{.axis = 0},
        {.dtype = DType::kI64, .compute = DType::kI64, .dims = {shape_.edges, 1}});
    const TensorId chosen =
        g.builder().Apply(GraphOp::kPointwise, {lists_.AtDestinations(g, positions), row},
                          graph::PointwiseAttrs{.mode = PointwiseMode::kCmpEq},
                          {.dtype = DType::kBool, .compute = DType::kI64});
    return g.Pointwise(PointwiseMode::kBinarySelect,
                       {mine, g.Constant(0, kRank, DType::kF32), chosen}, DType::kF32);
  }

  Status AddTo(CallGraph& g, const GradientPart& part, TensorId value) const {
    ASSIGN_OR_RETURN(const TensorId before, g.Read(part.before));
    return g.Write(g.Pointwise(PointwiseMode::kAdd, {before, value}, DType::kF32), part.after);
  }

  const Problem& p_;
  const gnn::Shape& shape_;
  gnn::Lists lists_;
  GradientPart node_, edge_, concat_;
};

}  // namespace

Status GnnAggSimpleForward(void* stream, const void* csc_graph, const void* node_features,
                           const void* edge_features, const void* concat_features, void* output,
                           void* positions, int node_dim, int edge_dim, int concat_dim, int type,
                           int mode) {
  ASSIGN_OR_RETURN(const gnn::Graph graph, gnn::GraphOf(csc_graph));
  const Problem p = {node_dim, edge_dim, concat_dim, type, mode};
  const Pointers at = {node_features, edge_features, concat_features, output, positions};
  RETURN_IF_ERROR(Check(p));
  RETURN_IF_ERROR(CheckPointers(p, graph.shape, at));
  if (graph.shape.destinations == 0) return {};
  ASSIGN_OR_RETURN(Handle handle, HandleOn(stream));
  Call call(handle, "cudnnGnnAggSimpleForward");
  Forward forward(call, p, graph, at);
  return call.Run(kFromSession, [&](CallGraph& g) { return forward.Make(g); });
}

Status GnnAggSimpleBackward(void* stream, const void* csc_graph, const void* grad_output,
                            const void* positions, void* grad_node, void* grad_edge,
                            void* grad_concat, int node_dim, int edge_dim, int concat_dim, int type,
                            int mode) {
  ASSIGN_OR_RETURN(const gnn::Graph graph, gnn::GraphOf(csc_graph));
  const Problem p = {node_dim, edge_dim, concat_dim, type, mode};
  const Gradients at = {grad_output, positions, grad_node, grad_edge, grad_concat};
  RETURN_IF_ERROR(Check(p));
  RETURN_IF_ERROR(CheckGradients(p, graph.shape, at));
  if (graph.shape.destinations == 0) return {};
  ASSIGN_OR_RETURN(Handle handle, HandleOn(stream));
  Call call(handle, "cudnnGnnAggSimpleBackward");
  Backward backward(call, p, graph, at);
  return call.Run(kFromSession, [&](CallGraph& g) { return backward.Make(g); });
}

}  // namespace kiln::api::legacy
