#include "compiler/engines/attention/runs.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "compiler/engines/attention/functions.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/patterns/attention.h"
#include "compiler/patterns/graph_view.h"

namespace kiln::compiler {

using graph::Graph;
using graph::GraphOp;
using graph::Node;
using graph::TensorId;
using tile::Block;
using tile::Call;
using tile::Expr;

namespace {

constexpr int64_t kVector = 8;     // elements in the 16 bytes that strides are multiples of
constexpr int64_t kHeadsBack = 2;  // the dim of heads, from the last one
constexpr int32_t kBoxColumns = 64;
constexpr int64_t kLeastBox = 8;  // rows of 128 bytes after which the swizzle is the same
constexpr int64_t kPieceByPiece = -(int64_t{1} << 30);

// The difference of a whole number from one place to the next along the dim that is `back` from the
// last.
std::optional<int64_t> StepOf(const GraphView& view, TensorId id, int64_t back) {
  const graph::Tensor& t = view[id];
  if (back >= t.rank() || t.dims[static_cast<size_t>(t.rank() - 1 - back)] == 1) return 0;
  const Node* n = view.Producer(id);
  if (n == nullptr) return std::nullopt;
  if (n->op == GraphOp::kIota) return n->As<graph::IotaAttrs>().axis == t.rank() - 1 - back ? 1 : 0;
  if (n->op != GraphOp::kMap || !IsInteger(t.dtype)) return std::nullopt;
  const auto& map = n->As<graph::MapAttrs>();
  if (map.identity) return StepOf(view, n->inputs[0], back);
  if (map.op != ScalarOp::kAdd && map.op != ScalarOp::kMul) return std::nullopt;
  const auto a = StepOf(view, n->inputs[0], back), b = StepOf(view, n->inputs[1], back);
  if (!a || !b) return std::nullopt;
  if (map.op == ScalarOp::kAdd) return *a + *b;
  if (*a == 0 && *b == 0) return 0;
  const int moving = *a != 0 ? 0 : 1;
  const graph::Tensor& factor = view[n->inputs[static_cast<size_t>(1 - moving)]];
  if (!factor.is_constant() || (*a != 0 && *b != 0)) return std::nullopt;
  return (*a + *b) * static_cast<int64_t>(*factor.value);
}

// select(place < end, place, -1), in rows of neighbours.
std::optional<RowRun> RaggedRun(const GraphView& view, TensorId chosen, TensorId memory,
                                int64_t rows, int64_t places_back, int64_t depth_back) {
  const Node* select = view.Map(chosen, ScalarOp::kSelect);
  const Node* less = select == nullptr ? nullptr : view.Map(select->inputs[0], ScalarOp::kLt);
  if (less == nullptr || less->inputs[0] != select->inputs[1]) return std::nullopt;
  const graph::Tensor& other = view[select->inputs[2]];
  if (!other.is_constant() || *other.value != -1) return std::nullopt;
  const auto step = StepOf(view, less->inputs[0], depth_back);
  const auto stride = StepOf(view, less->inputs[0], places_back);
  const auto head = StepOf(view, less->inputs[0], kHeadsBack);
  const graph::Tensor& end = view[less->inputs[1]];
  const bool is_number =
      std::ranges::all_of(std::vector{places_back, depth_back}, [&](int64_t back) {
        return back < end.rank() && end.dims[static_cast<size_t>(end.rank() - 1 - back)] == 1;
      });
  if (step != 1 || !stride || !head || !is_number ||
      NumElements(view[memory].dims) != view[memory].dims[0] || view[memory].strides[0] != 1)
    return std::nullopt;
  return RowRun{.tensor = memory,
                .rows = rows,
                .stride = *stride,
                .unit = std::gcd(*stride, *head),
                .places = less->inputs[0],
                .end = less->inputs[1]};
}

// The lengths of a condition that says which places along a dim there are, and nothing else.
bool AddLengths(const GraphView& view, TensorId condition, int64_t rank, bool is_last,
                std::vector<TensorId>& lengths) {
  const std::vector<IndexBound> bounds = BoundsOf(view, condition, rank);
  for (const IndexBound& bound : bounds) {
    const int along = is_last ? bound.column : bound.row,
              across = is_last ? bound.row : bound.column;
    const bool is_end = (along == 1 && bound.compare == ScalarOp::kLt) ||
                        (along == -1 && bound.compare == ScalarOp::kGt);
    if (!is_end || across != 0 || bound.offsets.size() != 1 || bound.offsets[0].sign != -along ||
        !IsInteger(view[bound.offsets[0].tensor].dtype))
      return false;
    lengths.push_back(bound.offsets[0].tensor);
  }
  return !bounds.empty();
}

// The dim of pages' places among those of a reshape's operand, where the dims of pages and of
// places in one become one dim.
std::optional<int64_t> DimInPage(const Dims& to, int64_t dim, const Dims& from) {
  const auto behind = [](const Dims& dims, int64_t d) {
    return NumElements(Dims(dims.begin() + d + 1, dims.end()));
  };
  for (int64_t d = 0; d < static_cast<int64_t>(from.size()); ++d) {
    const int64_t extent = from[static_cast<size_t>(d)];
    if (behind(from, d) != behind(to, dim) || extent == 1) continue;
    if (extent == to[static_cast<size_t>(dim)]) return d;
    if (d > 0 && extent * from[static_cast<size_t>(d - 1)] == to[static_cast<size_t>(dim)])
      return d;
  }
  return std::nullopt;
}

// Follows the places of an operand to memory.
class RunFinder {
 public:
  RunFinder(const Graph& g, const OperandRows& rows)
      : g_(g), view_(g), id_(rows.id), dim_(rows.places) {
    run_.rows = g[rows.id].dims[static_cast<size_t>(rows.places)];
  }
  std::optional<RowRun> Find() {
    while (const Node* node = view_.Producer(id_)) {
      if (node->op == GraphOp::kGather && g_[node->inputs[0]].rank() > 0 &&
          NumElements(g_[node->inputs[0]].dims) == g_[node->inputs[0]].dims[0] &&
          view_.Producer(node->inputs[0]) == nullptr)
        return Ragged(*node);
      if (!Step(*node)) return std::nullopt;
    }
    run_.tensor = id_;
    run_.stride = g_[id_].strides[static_cast<size_t>(dim_)];
    return run_;
  }

 private:
  std::optional<RowRun> Ragged(const Node& gather) {
    const int64_t rank = g_[id_].rank();
    if (run_.is_paged || is_moved_ || dim_ < rank - 2) return std::nullopt;
    const int64_t places_back = rank - 1 - dim_;
    auto run = RaggedRun(view_, gather.inputs[1], gather.inputs[0], run_.rows, places_back,
                         1 - places_back);
    if (run) run->lengths = run_.lengths;
    return run;
  }
  bool Step(const Node& node) {
    TensorId source = node.inputs.empty() ? graph::kAbsent : node.inputs[0];
    const auto dim = static_cast<size_t>(dim_);
    if (node.op == GraphOp::kMap) {
      const auto& map = node.As<graph::MapAttrs>();
      if (!map.identity) {
        const int64_t rank = g_[id_].rank();
        const bool is_last = dim_ == rank - 1;
        // Lengths name the places of the operand itself, which pages have left.
        if (map.op != ScalarOp::kSelect || is_moved_ || run_.is_paged || dim_ < rank - 2 ||
            !AddLengths(view_, node.inputs[0], rank, is_last, run_.lengths))
          return false;
        source = node.inputs[1];
      }
    } else if (node.op == GraphOp::kTranspose) {
      const Dims& permutation = node.As<graph::TransposeAttrs>().permutation;
      for (size_t d = 0; d + 2 < permutation.size(); ++d)
        is_moved_ |= permutation[d] != static_cast<int64_t>(d);
      dim_ = permutation[dim];
    } else if (node.op == GraphOp::kSlice) {
      const auto& slice = node.As<graph::SliceAttrs>();
      if (slice.step[dim] != 1 || slice.start[dim] != 0) return false;
    } else if (node.op == GraphOp::kReshape) {
      const auto in_page = DimInPage(g_[id_].dims, dim_, g_[source].dims);
      if (!in_page) return false;
      const int64_t extent = g_[source].dims[static_cast<size_t>(*in_page)];
      if (extent != g_[id_].dims[dim]) {
        if (run_.is_paged) return false;
        run_.is_paged = true;
        run_.rows = extent;
      }
      dim_ = *in_page;
      is_moved_ = true;
    } else if (node.op == GraphOp::kGather) {
      const graph::Tensor& index = g_[node.inputs[1]];
      const int64_t back = g_[id_].rank() - 1 - dim_;
      const bool varies =
          back < index.rank() && index.dims[static_cast<size_t>(index.rank() - 1 - back)] != 1;
      if (node.As<graph::GatherAttrs>().axis == dim_ || varies) return false;
    } else {
      return false;
    }
    id_ = source;
    return true;
  }

  const Graph& g_;
  const GraphView view_;
  TensorId id_;
  int64_t dim_;            // of the places, in `id_`
  bool is_moved_ = false;  // dims are no longer the operand's
  RowRun run_ = {};
};

// With the unit of tensors whose rows lie by strides alone; none where maps cannot have it.
std::optional<RowRun> Checked(const Graph& g, std::optional<RowRun> run) {
  if (!run) return std::nullopt;
  const graph::Tensor& t = g[run->tensor];
  if (!run->is_ragged())
    for (size_t d = 0; d < t.dims.size(); ++d)
      if (t.dims[d] > 1 && t.strides[d] != 1) run->unit = std::gcd(run->unit, t.strides[d]);
  const bool has_map = run->stride > 0 && run->unit > 0 && run->unit % kVector == 0 &&
                       run->stride % run->unit == 0 && t.alignment % 16 == 0 &&
                       SizeOf(t.dtype) == 2;
  return has_map && !t.by_value ? run : std::nullopt;
}

}  // namespace

std::optional<RowRun> RunOf(const Graph& g, const OperandRows& rows) {
  if (NeighboursOf(g, rows.id, rows.depth) == Neighbours::kApart) return std::nullopt;
  return Checked(g, RunFinder(g, rows).Find());
}

std::optional<RowRun> StoreRunOf(const Graph& g, TensorId id, const Node* scatter) {
  const int64_t rank = g[id].rank(), queries = g[id].dims[static_cast<size_t>(rank - 2)];
  if (scatter != nullptr ? !AreScatteredTogether(g, *scatter) : !AreStoredTogether(g, id))
    return std::nullopt;
  if (scatter != nullptr) {
    auto run = RaggedRun(GraphView(g), scatter->inputs[1], scatter->outputs[0], queries, 1, 0);
    if (run) run->is_written = true;
    return Checked(g, run);
  }
  return Checked(g, RowRun{.tensor = id,
                           .rows = queries,
                           .stride = g[id].strides[static_cast<size_t>(rank - 2)],
                           .is_written = true});
}

Result<TensorMapSpec> MapOfRun(const Graph& g, const RowRun& run, int64_t depth) {
  const graph::Tensor& t = g[run.tensor];
  if (run.is_paged && run.rows % kLeastBox != 0)
    return Status::Error(Code::kUnsupportedLayout, "{} has pages of {} places, no multiple of {}",
                         t.name, run.rows, kLeastBox);
  int64_t span = 1;
  for (size_t d = 0; d < t.dims.size(); ++d) span += (t.dims[d] - 1) * t.strides[d];
  TensorMapSpec map{.type = t.dtype};
  map.dims = {depth, 1, CeilDiv(span, run.unit), 1, 1};
  if (map.dims[2] > std::numeric_limits<int32_t>::max() / 2)
    return Status::Error(Code::kUnsupportedLayout,
                         "{} spans {} elements; numbers of rows have 30 bits", t.name, span);
  const int64_t unit = run.unit * SizeOf(t.dtype);
  map.stride_bytes = {run.stride * SizeOf(t.dtype), unit, unit, 0};
  return map;
}

void SetBox(TensorMapSpec& map, const RowRun& run, int64_t rows) {
  const int64_t box = run.is_paged ? std::gcd(run.rows, rows) : rows;
  map.dims[1] = box;
  map.box = {kBoxColumns, static_cast<int32_t>(box), 1, 1, 1};
  if (!run.is_written) return;
  map.dims[2] += box * (run.stride / run.unit);
  map.offset_bytes = -box * map.stride_bytes[0];
}

namespace {

Expr Min(const Expr& a, const Expr& b) { return tile::Op(ScalarOp::kMin, {a, b}); }
Expr Max(const Expr& a, const Expr& b) { return tile::Op(ScalarOp::kMax, {a, b}); }

// The beginning of a run, how many of its rows there are, and whether a map can have it; null: it
// can.
struct Begin {
  Expr offset, count, is_regular;
};

Begin BeginOfRagged(KernelBuilder& b, Block& out, ValueScope& values, const RowRun& run,
                    const OperandRows& rows, const Index& at) {
  const graph::Graph& g = b.graph();
  const DType t = b.index_type();
  const Expr first =
      b.Let(out, "run_first",
            tile::Cast(t, values.Value(run.places, BroadcastIndex(b, g[run.places], at))));
  const Expr end = tile::Cast(t, values.Value(run.end, BroadcastIndex(b, g[run.end], at)));
  const Expr room = b.Let(out, "run_room", Min(end, b.Extent(run.tensor, 0)) - first);
  const Expr stride = b.Arg("run_stride", run.stride), depth = b.Extent(rows.id, rows.depth);
  const Expr count =
      b.Let(out, "run_rows",
            tile::Select(tile::Lt(room, depth), b.Idx(0),
                         Min(Max(room - depth, b.Idx(0)) / stride, b.Idx(run.rows)) + b.Idx(1)));
  const Expr whole = Min(count, b.Extent(rows.id, rows.places));
  // Nothing is left for a part of a row, and the first is at a multiple of the unit.
  const Expr has_part = tile::And(tile::Lt(b.Idx(0), room - count * stride),
                                  tile::Lt(count, b.Extent(rows.id, rows.places)));
  const Expr aligned =
      tile::And(tile::Ge(first, b.Idx(0)),
                tile::Op(ScalarOp::kEq, {Max(first, b.Idx(0)) % b.Idx(run.unit), b.Idx(0)}));
  return {first, whole, tile::And(aligned, tile::Op(ScalarOp::kNot, {has_part}))};
}

}  // namespace

void AddRun(KernelBuilder& b, Call& call, const std::string& name, const RowRun& run,
            const OperandRows& rows, const HeadIndex& heads, int64_t box) {
  const graph::Graph& g = b.graph();
  const DType t = b.index_type();
  Call::Function f{.name = name + "_run", .params = {}, .body = {}};
  const Expr head = AddScalar(b, f, "head", t), row = AddScalar(b, f, "row", t),
             end = AddScalar(b, f, "end", t);
  const std::string result = AddArray(b, f, "result", DType::kI32, 2, true);
  Block& out = f.body;
  Index at = heads(out, head);
  const Expr last = b.Extent(rows.id, rows.places) - b.Idx(1);
  const Expr from = run.is_paged ? b.Let(out, "run_from", Min(row, last)) : b.Idx(0);
  at[static_cast<size_t>(rows.places)] = from;
  at[static_cast<size_t>(rows.depth)] = b.Idx(0);
  ValueScope values(b, out);
  Expr until = end;
  for (const TensorId length : run.lengths)
    until = Min(until, tile::Cast(t, values.Value(length, BroadcastIndex(b, g[length], at))));
  Expr count = until - row, offset, is_regular;
  if (run.is_ragged()) {
    const Begin begin = BeginOfRagged(b, out, values, run, rows, at);
    offset = begin.offset;
    count = Min(until, begin.count) - row;
    is_regular = begin.is_regular;
  } else if (run.tensor == rows.id) {  // the group may make it, as a result
    offset = b.Offset(rows.id, at);
  } else {
    const auto place = *values.PlaceOf(rows.id, at);
    offset = place.offset;
    if (place.inside) count = tile::Select(place.inside, count, b.Idx(0));
  }
  count = b.Let(out, "run_count", Min(Max(count, b.Idx(0)), b.Idx(box)));
  const Expr step = b.Arg("run_step", run.stride / run.unit);
  Expr unit = Max(offset, b.Idx(0)) / b.Idx(run.unit);
  if (!run.is_paged) unit = unit + row * step;
  unit = run.is_written ? unit + count * step : unit - (b.Idx(box) - count) * step;
  unit = b.Let(out, "run_unit", tile::Select(tile::Lt(b.Idx(0), count), unit, b.Idx(0)));
  if (!run.is_written) {
    const Expr is_behind = tile::Ge(unit, b.Idx(0));
    is_regular = is_regular ? tile::And(is_regular, is_behind) : is_behind;
  }
  const Expr move = b.Idx(box) - count - row;
  out.push_back({tile::Store{result, b.Idx(0), tile::Cast(DType::kI32, unit)}});
  out.push_back({tile::Store{
      result, b.Idx(1),
      tile::Cast(DType::kI32,
                 is_regular ? tile::Select(is_regular, move, b.Idx(kPieceByPiece)) : move)}});
  call.functions.push_back(std::move(f));
}

}  // namespace kiln::compiler
