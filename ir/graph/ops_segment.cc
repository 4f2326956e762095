// Segments: runs of places whose ends are data, as the edges of each node of a graph in compressed
// form are.
//
//   segment_reduce  x [R,…], offsets [N+1,1,…], [rows] [E,1,…]  ->  y [N,…], [positions] [N,…]
//   segment_ids     offsets [N+1,1,…], [rows] [E,1,…], [x] [E,1,…]  ->  y [E,1,…], [moved] [E,1,…]
//
// Segment n has the places offsets[n] .. offsets[n+1]-1 among 0 .. E-1; offsets do not fall, and
// what of a segment is outside is not there. Place p has row rows[p] of x, or p where there are no
// rows, and then E is R. A row that is outside x is zeroes.
//
//   y[n] = sum, mean, maximum or minimum over the places of n; 0 where n has none. A NaN is larger
//          and smaller than all numbers. positions[n] = the row of the maximum or minimum, at the
//          first place where equal ones meet; -1 where n has no place.
//   y[rows[p]] = the n that p is in; -1 before the first offset, N from the last on, and -1 in rows
//          that no place has. moved[rows[p]] = x[p], or -1. No row has two places.
#include <algorithm>
#include <bit>
#include <cmath>

#include "ir/graph/ops.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

constexpr size_t kX = 0, kOffsets = 1, kRows = 2;              // of segment_reduce
constexpr size_t kIdOffsets = 0, kIdRows = 1, kMovedFrom = 2;  // of segment_ids
constexpr size_t kPositions = 1, kMoved = 1;

// A list of integers: dim 0 alone has more than one.
Status CheckList(const Tensor* t, const char* name) {
  if (t == nullptr) return Status::Error(Code::kBadParam, "the {} are absent", name);
  if (t->dtype != DType::kI32 && t->dtype != DType::kI64)
    return Status::Error(Code::kUnsupportedDataType, "the {} %{} are {}, not i32 or i64", name,
                         t->name, Info(t->dtype).text);
  const bool is_list = t->rank() > 0 && std::all_of(t->dims.begin() + 1, t->dims.end(),
                                                    [](int64_t n) { return n == 1; });
  if (is_list) return {};
  return Status::Error(Code::kShapeMismatch, "the {} {} are no list along dim 0", name, Shape(*t));
}

Status CheckOffsets(const Tensor* offsets) {
  RETURN_IF_ERROR(CheckList(offsets, "offsets"));
  if (offsets->dims[0] > 0) return {};
  return Status::Error(Code::kShapeMismatch, "the offsets {} have no end", Shape(*offsets));
}

Status CheckCount(const Tensor& list, int64_t count, const char* name) {
  if (list.dims[0] == count) return {};
  return Status::Error(Code::kShapeMismatch, "the {} {} are not {}", name, Shape(list), count);
}

Status CheckLike(const Tensor& t, const Tensor& of, const char* name) {
  if (t.dims == of.dims && t.dtype == of.dtype) return {};
  return Status::Error(Code::kShapeMismatch, "{} {} {} has not the type and dims of {} {}", name,
                       Info(t.dtype).text, Shape(t), Info(of.dtype).text, Shape(of));
}

// The segments of a node's operands as numbers.
class Segments {
 public:
  Segments(const EvalArgs& args, size_t offsets, size_t rows, int64_t places)
      : offsets_(*args.inputs[offsets]),
        rows_(rows < args.inputs.size() ? args.inputs[rows] : nullptr),
        places_(places) {}

  int64_t count() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  int64_t Begin(int64_t n) const { return Clamped(offsets_[static_cast<size_t>(n)]); }
  int64_t End(int64_t n) const { return Clamped(offsets_[static_cast<size_t>(n + 1)]); }
  int64_t Row(int64_t place) const {
    return rows_ == nullptr ? place : static_cast<int64_t>((*rows_)[static_cast<size_t>(place)]);
  }
  // Found by halving, so that offsets that fall, which say nothing, say the same everywhere.
  int64_t Of(int64_t place) const {
    size_t found = 0;
    for (size_t step = std::bit_floor(offsets_.size()); step > 0; step /= 2) {
      const size_t next = found + step;
      if (next <= offsets_.size() && offsets_[next - 1] <= static_cast<double>(place)) found = next;
    }
    return static_cast<int64_t>(found) - 1;
  }

 private:
  int64_t Clamped(double offset) const {
    return static_cast<int64_t>(std::clamp(offset, 0.0, static_cast<double>(places_)));
  }

  const std::vector<double>& offsets_;
  const std::vector<double>* rows_;
  int64_t places_;
};

bool Wins(SegmentMode mode, double candidate, double best) {
  if (std::isnan(best)) return false;
  if (std::isnan(candidate)) return true;
  return mode == SegmentMode::kMax ? candidate > best : candidate < best;
}

}  // namespace

Status VerifySegmentReduce(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(CheckCompute(node, false));
  RETURN_IF_ERROR(RejectBool(graph, node));
  if (!IsFloat(node.compute))
    return Status::Error(Code::kUnsupportedDataType, "it computes in floats, not {}",
                         Info(node.compute).text);
  const Tensor *x = InputOf(graph, node, kX), *y = OutputOf(graph, node, 0);
  if (x == nullptr || x->rank() < 1)
    return Status::Text(Code::kBadParam, "there is no x with rows");
  if (!IsFloat(x->dtype))
    return Status::Error(Code::kUnsupportedDataType, "x %{} is {}, no float", x->name,
                         Info(x->dtype).text);
  const Tensor *offsets = InputOf(graph, node, kOffsets), *rows = InputOf(graph, node, kRows);
  RETURN_IF_ERROR(CheckOffsets(offsets));
  if (rows != nullptr) RETURN_IF_ERROR(CheckList(rows, "rows"));
  if (y == nullptr) return Status::Text(Code::kBadParam, "nobody wants y");
  Dims dims = x->dims;
  dims[0] = offsets->dims[0] - 1;
  RETURN_IF_ERROR(ExpectDims(*y, dims, "a row for each segment"));
  const Tensor* positions = OutputOf(graph, node, kPositions);
  if (positions == nullptr) return {};
  const SegmentMode mode = node.As<SegmentReduceAttrs>().mode;
  if (mode != SegmentMode::kMax && mode != SegmentMode::kMin)
    return Status::Error(Code::kBadParam, "{} has no positions: max and min have", Text(mode));
  if (positions->dtype != DType::kI32 && positions->dtype != DType::kI64)
    return Status::Error(Code::kUnsupportedDataType, "the positions %{} are {}, not i32 or i64",
                         positions->name, Info(positions->dtype).text);
  return ExpectDims(*positions, dims, "a position for each result");
}

Status InferSegmentReduce(Graph& graph, const Node& node) {
  const Tensor *x = InputOf(graph, node, kX), *offsets = InputOf(graph, node, kOffsets);
  if (x == nullptr || offsets == nullptr || x->rank() < 1 || offsets->rank() < 1) return {};
  Dims dims = x->dims;
  dims[0] = std::max<int64_t>(offsets->dims[0] - 1, 0);
  for (const TensorId id : node.outputs)
    if (id != kAbsent) SetDims(graph[id], dims, nullptr);
  return {};
}

void EvalSegmentReduce(const EvalArgs& args) {
  const Tensor& x = *InputOf(args.graph, args.node, kX);
  const Tensor* rows = InputOf(args.graph, args.node, kRows);
  const SegmentMode mode = args.node.As<SegmentReduceAttrs>().mode;
  const bool adds = mode == SegmentMode::kAdd || mode == SegmentMode::kMean;
  const Segments segments(args, kOffsets, kRows, (rows == nullptr ? x : *rows).dims[0]);
  const int64_t width = NumElements(Dims(x.dims.begin() + 1, x.dims.end()));
  std::vector<double>* positions =
      args.outputs.size() > kPositions ? args.outputs[kPositions] : nullptr;
  for (int64_t n = 0; n < segments.count(); ++n) {
    const int64_t begin = segments.Begin(n), end = std::max(begin, segments.End(n));
    for (int64_t c = 0; c < width; ++c) {
      double best = 0;
      int64_t position = -1;
      for (int64_t p = begin; p < end; ++p) {
        const int64_t row = segments.Row(p);
        const bool is_inside = row >= 0 && row < x.dims[0];
        const double value =
            is_inside ? (*args.inputs[kX])[static_cast<size_t>(row * width + c)] : 0;
        if (adds) best += value;
        if (adds || (p != begin && !Wins(mode, value, best))) continue;
        best = value;
        position = row;
      }
      if (mode == SegmentMode::kMean && end > begin) best /= static_cast<double>(end - begin);
      (*args.outputs[0])[static_cast<size_t>(n * width + c)] = best;
      if (positions != nullptr)
        (*positions)[static_cast<size_t>(n * width + c)] = static_cast<double>(position);
    }
  }
}

Status VerifySegmentIds(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(CheckOffsets(InputOf(graph, node, kIdOffsets)));
  const Tensor* y = OutputOf(graph, node, 0);
  RETURN_IF_ERROR(CheckList(y, "ids"));
  const Tensor *rows = InputOf(graph, node, kIdRows), *x = InputOf(graph, node, kMovedFrom),
               *moved = OutputOf(graph, node, kMoved);
  if (rows != nullptr) {
    RETURN_IF_ERROR(CheckList(rows, "rows"));
    RETURN_IF_ERROR(CheckCount(*rows, y->dims[0], "rows"));
  }
  if ((x == nullptr) != (moved == nullptr))
    return Status::Text(Code::kBadParam, "x and where it goes are both there or neither is");
  if (x == nullptr) return {};
  if (rows == nullptr)
    return Status::Text(Code::kBadParam, "x stays where it is without rows to move it to");
  RETURN_IF_ERROR(CheckList(x, "moved numbers"));
  RETURN_IF_ERROR(CheckCount(*x, y->dims[0], "moved numbers"));
  return CheckLike(*moved, *x, "what is moved");
}

// The extents of the results are those of rows; without rows nothing says how many places there
// are.
Status InferSegmentIds(Graph& graph, const Node& node) {
  const Tensor* rows = InputOf(graph, node, kIdRows);
  if (rows == nullptr) return {};
  const Dims dims = rows->dims;
  for (const TensorId id : node.outputs)
    if (id != kAbsent) SetDims(graph[id], dims, nullptr);
  return {};
}

void EvalSegmentIds(const EvalArgs& args) {
  const int64_t places = OutputOf(args.graph, args.node, 0)->dims[0];
  const Segments segments(args, kIdOffsets, kIdRows, places);
  std::vector<double>* moved = args.outputs.size() > kMoved ? args.outputs[kMoved] : nullptr;
  std::ranges::fill(*args.outputs[0], -1.0);
  if (moved != nullptr) std::ranges::fill(*moved, -1.0);
  for (int64_t p = 0; p < places; ++p) {
    const int64_t row = segments.Row(p);
    if (row < 0 || row >= places) continue;
    (*args.outputs[0])[static_cast<size_t>(row)] = static_cast<double>(segments.Of(p));
    if (moved != nullptr)
      (*moved)[static_cast<size_t>(row)] = (*args.inputs[kMovedFrom])[static_cast<size_t>(p)];
  }
}

}  // namespace kiln::graph
