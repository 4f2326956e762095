// segment_reduce as kernels; the schedule is in engine.h.
#include <algorithm>
#include <limits>

#include "compiler/engines/segments/kernels.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using graph::GraphOp;
using graph::Node;
using graph::SegmentMode;
using graph::Tensor;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

// Neighbours that a CPU's registers have of a row at a time.
constexpr int kCpuLanes = 16;
// Results of a CPU's task.
constexpr int64_t kCpuItems = 64;

class ReduceKernel {
 public:
  ReduceKernel(const Group& group, const Target& target, int places_at_once, int lanes)
      : node_(group.graph.nodes.back()),
        is_cuda_(target.is_cuda()),
        at_once_(is_cuda_ ? places_at_once : 1),
        lanes_(lanes),
        mode_(node_.As<graph::SegmentReduceAttrs>().mode),
        type_(ArithmeticType(node_.compute)),
        b_(group, target,
           fmt::format("segments, {} of {} neighbours, {} places at once", graph::Text(mode_),
                       lanes, at_once_)) {}

  KernelBuilder& b() { return b_; }
  TensorId y() const { return node_.outputs[0]; }

  // The neighbours from `index` on; `count` of them on a CPU.
  void Emit(Block& out, const Index& index, const Expr& count) {
    index_ = index;
    count_ = count;
    const Expr begin = Bound(out, index[0], "begin"), end = Bound(out, index[0] + b_.Idx(1), "end");
    sums_ = Registers(out, "acc", type_);
    if (has_positions()) best_ = Registers(out, "best", b_.index_type());
    Lanes(out, [&](Block& each, const Expr& lane) {
      each.push_back({tile::Store{sums_, lane, tile::Float(Neutral(), type_)}});
      if (has_positions()) each.push_back({tile::Store{best_, lane, b_.Idx(-1)}});
    });
    Walk(out, begin, end);
    Finish(out, begin, end);
  }

 private:
  using EmitLane = std::function<void(Block&, const Expr&)>;

  bool has_positions() const {
    return node_.outputs.size() > 1 && node_.outputs[1] != graph::kAbsent;
  }
  bool adds() const { return mode_ == SegmentMode::kAdd || mode_ == SegmentMode::kMean; }
  double Neutral() const {
    if (adds()) return 0;
    const double infinity = std::numeric_limits<double>::infinity();
    return mode_ == SegmentMode::kMax ? -infinity : infinity;
  }

  std::string Registers(Block& out, const char* name, DType type) {
    std::string unique = b_.Name(name);
    out.push_back({tile::Alloc{unique, type, tile::Space::kReg, lanes_}});
    return unique;
  }

  void Lanes(Block& out, const EmitLane& emit) {
    if (lanes_ == 1) return emit(out, b_.Idx(0));
    const std::string lane = b_.Name("l");
    Block body;
    emit(body, tile::Var(lane, b_.index_type()));
    out.push_back({tile::For{lane, b_.index_type(), is_cuda_ ? b_.Idx(lanes_) : count_,
                             is_cuda_ ? Bind::kUnroll : Bind::kVector, std::move(body)}});
  }

  // An offset, among the places that there are.
  Expr Bound(Block& out, const Expr& n, const char* name) {
    const bool has_rows = RowsOf(node_) != graph::kAbsent;
    const Expr places = b_.Extent(has_rows ? RowsOf(node_) : node_.inputs[0], 0);
    const Expr offset = ListElement(b_, out, node_.inputs[1], n);
    const Expr zero = tile::Int(0, offset->type), all = tile::Cast(offset->type, places);
    const Expr inside = tile::Op(ScalarOp::kMin, {tile::Op(ScalarOp::kMax, {offset, zero}), all});
    return b_.Let(out, name, tile::Cast(b_.index_type(), inside));
  }

  // Rounds of `at_once_` places. Of the last round some may be behind the end: they read its last
  // place again, which is near, and count for nothing.
  void Walk(Block& out, const Expr& begin, const Expr& end) {
    const std::string round = b_.Name("round");
    Block loop;
    const Expr first =
        b_.Let(loop, "p", begin + tile::Var(round, b_.index_type()) * b_.Idx(at_once_));
    std::vector<Place> places = {{.at = first}};
    for (int u = 1; u < at_once_; ++u) {
      const Expr next = b_.Let(loop, "p", first + b_.Idx(u));
      const Expr safe = tile::Op(ScalarOp::kMin, {next, end - b_.Idx(1)});
      places.push_back({.at = b_.Let(loop, "p_safe", safe),
                        .exists = b_.Let(loop, "is_place", tile::Lt(next, end))});
    }
    Add(loop, places);
    const Expr span = b_.Let(out, "span", tile::Op(ScalarOp::kMax, {end - begin, b_.Idx(0)}));
    out.push_back({tile::For{round, b_.index_type(), CeilDivExpr(span, at_once_), Bind::kSerial,
                             std::move(loop)}});
  }

  struct Place {
    Expr at;
    Expr exists = {};  // null where it always does
  };

  void Add(Block& out, const std::vector<Place>& places) {
    std::vector<SegmentRow> rows;
    for (const Place& place : places)
      rows.emplace_back(b_, out, node_, place.at, index_, is_cuda_ ? lanes_ : 1);
    for (SegmentRow& row : rows) row.Settle(out);
    Lanes(out, [&](Block& each, const Expr& lane) {
      for (size_t k = 0; k < rows.size(); ++k)
        Combine(each, lane, tile::Cast(type_, rows[k].Value(each, lane)), places[k]);
    });
  }

  void Combine(Block& out, const Expr& lane, const Expr& value, const Place& place) {
    const Expr sum = tile::Load(sums_, type_, lane);
    const auto if_there = [&](const Expr& then, const Expr& otherwise) {
      return place.exists ? tile::Select(place.exists, then, otherwise) : then;
    };
    if (!has_positions()) {
      const ScalarOp op = adds()                       ? ScalarOp::kAdd
                          : mode_ == SegmentMode::kMax ? ScalarOp::kMaxNan
                                                       : ScalarOp::kMinNan;
      const Expr counted = if_there(value, tile::Float(Neutral(), type_));
      out.push_back({tile::Store{sums_, lane, tile::Op(op, {sum, counted})}});
      return;
    }
    const Expr x = b_.Let(out, "x", value), most = b_.Let(out, "most", sum),
               best = b_.Let(out, "place_of", tile::Load(best_, b_.index_type(), lane));
    const ScalarOp better = mode_ == SegmentMode::kMax ? ScalarOp::kGt : ScalarOp::kLt;
    const auto either = [](const Expr& a, const Expr& b) {
      return tile::Op(ScalarOp::kOr, {a, b});
    };
    const Expr first = tile::Lt(best, b_.Idx(0));
    const Expr is_nan =
        tile::And(tile::Op(ScalarOp::kNe, {x, x}), tile::Op(ScalarOp::kEq, {most, most}));
    const Expr is_better = either(either(first, tile::Op(better, {x, most})), is_nan);
    const Expr wins =
        b_.Let(out, "wins", place.exists ? tile::And(place.exists, is_better) : is_better);
    out.push_back({tile::Store{sums_, lane, tile::Select(wins, x, most)}});
    out.push_back({tile::Store{best_, lane, tile::Select(wins, place.at, best)}});
  }

  Expr Result(const Expr& lane, const Expr& begin, const Expr& end) {
    const Expr sum = tile::Load(sums_, type_, lane);
    if (mode_ == SegmentMode::kAdd) return sum;
    if (mode_ == SegmentMode::kMean)
      return sum / tile::Cast(type_, tile::Op(ScalarOp::kMax, {end - begin, b_.Idx(1)}));
    return tile::Select(tile::Lt(begin, end), sum, tile::Float(0, type_));
  }

  void Finish(Block& out, const Expr& begin, const Expr& end) {
    StoreLanes(out, y(), [&](Block&, const Expr& lane) { return Result(lane, begin, end); });
    if (!has_positions()) return;
    const TensorId rows = RowsOf(node_);
    StoreLanes(out, node_.outputs[1], [&](Block& each, const Expr& lane) {
      const Expr best = b_.Let(each, "place_of", tile::Load(best_, b_.index_type(), lane));
      if (rows == graph::kAbsent || NumElements(b_.graph()[rows].dims) == 0) return best;
      const Expr safe = b_.Let(each, "safe", tile::Op(ScalarOp::kMax, {best, b_.Idx(0)}));
      const Expr row = ListElement(b_, each, rows, safe);
      return tile::Select(tile::Lt(best, b_.Idx(0)), tile::Int(-1, row->type), row);
    });
  }

  using ValueOfLane = std::function<Expr(Block&, const Expr&)>;
  void StoreLanes(Block& out, TensorId result, const ValueOfLane& value) {
    const Tensor& t = b_.graph()[result];
    const bool wide = is_cuda_ && lanes_ > 1 && t.strides.back() == 1;
    const std::string registers = wide ? Registers(out, "stored", t.dtype) : b_.Pointer(result);
    Lanes(out, [&](Block& each, const Expr& lane) {
      const Expr stored = tile::Cast(t.dtype, value(each, lane));
      Index at = index_;
      if (lanes_ > 1) at.back() = at.back() + lane;
      each.push_back({tile::Store{registers, wide ? lane : b_.Offset(result, at), stored}});
    });
    if (!wide) return;
    const Expr offset = b_.Let(out, "y_at", b_.Offset(result, index_));
    WideCopy(out, t.dtype, b_.Pointer(result), offset, registers, b_.Idx(0), lanes_);
  }

  const Node& node_;
  bool is_cuda_;
  int at_once_, lanes_;
  SegmentMode mode_;
  DType type_;
  KernelBuilder b_;
  Index index_;
  Expr count_;
  std::string sums_, best_;
};

// Tensors that lie side by side along the innermost dim of y: what limits a thread's neighbours.
int LanesOf(const Group& group) {
  constexpr int kMost = 8;
  const graph::Graph& g = group.graph;
  const Node& node = g.nodes.back();
  const Tensor& y = g[node.outputs[0]];
  const int64_t inner = y.rank() - 1;
  if (y.rank() < 2 || y.strides[inner] != 1 || y.dims[inner] == 1) return 1;
  std::vector<TensorId> moved = MemoryInputs(g);
  std::ranges::copy(graph::Outputs(g), std::back_inserter(moved));
  std::erase_if(moved, [&](TensorId id) {
    return g[id].rank() != y.rank() || g[id].dims[inner] != y.dims[inner];
  });
  return std::min(kMost, WidestVector(g, moved, inner));
}

Lowered LowerOnCpu(const Group& group, const Target& target) {
  const Tensor& y = group.graph[group.graph.nodes.back().outputs[0]];
  const bool has_lanes = y.rank() > 1;
  ReduceKernel kernel(group, target, 1, has_lanes ? kCpuLanes : 1);
  KernelBuilder& b = kernel.b();
  const DType t = b.index_type();
  Index extents;
  Dims values;
  for (int64_t d = 0; d < y.rank(); ++d) {
    const bool inner = has_lanes && d + 1 == y.rank();
    values.push_back(inner ? CeilDiv(y.dims[d], kCpuLanes) : y.dims[d]);
    extents.push_back(inner ? b.Arg("pieces", values.back()) : b.Extent(kernel.y(), d));
  }
  const int64_t items = NumElements(values), blocks = CeilDiv(items, kCpuItems);
  b.Name("bx");
  const std::string item = b.Name("item");
  Block each, body;
  const Expr start = b.Let(body, "start", tile::Var("bx", t) * b.Idx(kCpuItems));
  Index index = b.Unravel(each, start + tile::Var(item, t), extents, values, "i");
  Expr count = b.Idx(1);
  if (has_lanes) {
    index.back() = b.Let(each, "first", index.back() * b.Idx(kCpuLanes));
    count = b.Let(each, "neighbours",
                  tile::Op(ScalarOp::kMin,
                           {b.Extent(kernel.y(), y.rank() - 1) - index.back(), b.Idx(kCpuLanes)}));
  }
  kernel.Emit(each, index, count);
  const Expr length = tile::Op(ScalarOp::kMin, {b.Arg("items", items) - start, b.Idx(kCpuItems)});
  body.push_back({tile::For{item, t, length, Bind::kSerial, std::move(each)}});
  Block blocked;
  blocked.push_back({tile::For{"bx", t, b.Arg("blocks", blocks), Bind::kBlockX, std::move(body)}});
  Lowered lowered;
  b.Finish(std::move(blocked), {blocks, 1, 1}, 1, lowered);
  return lowered;
}

}  // namespace

Result<Lowered> LowerSegmentReduce(const Group& group, const Target& target, int threads,
                                   int places_at_once) {
  if (!target.is_cuda()) return LowerOnCpu(group, target);
  const int lanes = LanesOf(group);
  ReduceKernel kernel(group, target, places_at_once, lanes);
  return LowerByElements(
      kernel.b(), kernel.y(), threads, {.lanes = lanes},
      [&](Block& out, const Index& index) { kernel.Emit(out, index, kernel.b().Idx(lanes)); });
}

}  // namespace kiln::compiler
