#include "ir/graph/rope.h"

#include "ir/graph/speller.h"

namespace kiln::graph {
namespace {

struct Turn {
  TensorId cos = kAbsent, sin = kAbsent;  // [1…, S, rope_dim / 2]
};

Turn SpellTurn(Graph& graph, Speller& at, const RopeParts& parts) {
  using M = PointwiseMode;
  const auto rank = static_cast<size_t>(graph[parts.x].rank());
  Dims of_places = graph[parts.freqs].dims;
  of_places[0] = graph[parts.x].dims[rank - 2];
  of_places[rank - 1] = parts.rope_dim / 2;
  TensorId angle = at.Slice(parts.freqs, Dims(rank, 0), of_places);
  if (rank > 2) {
    Dims permutation;  // the first dim moves before the last
    for (size_t d = 1; d + 1 < rank; ++d) permutation.push_back(static_cast<int64_t>(d));
    permutation.push_back(0);
    permutation.push_back(static_cast<int64_t>(rank) - 1);
    angle = at.Transpose(angle, permutation);
  }
  const Speller::Form form{.dtype = FloatFor(graph[parts.x]), .dims = graph[angle].dims};
  Turn turn{.cos = at.Pointwise(M::kCos, {angle}, form),
            .sin = at.Pointwise(M::kSin, {angle}, form)};
  if (parts.scale == 1) return turn;
  for (TensorId* factor : {&turn.cos, &turn.sin})
    *factor = at.Pointwise(M::kMul, {*factor, at.Number(parts.scale, form)}, form);
  return turn;
}

}  // namespace

Status CheckRope(const Graph& graph, const RopeParts& parts) {
  if (parts.x == kAbsent || parts.freqs == kAbsent || parts.y == kAbsent)
    return Status::Text(Code::kBadParam, "what is turned, its angles or the result is absent");
  const Tensor &x = graph[parts.x], &freqs = graph[parts.freqs], &y = graph[parts.y];
  for (const Tensor* t : {&x, &freqs, &y})
    if (!IsFloat(t->dtype))
      return Status::Error(Code::kUnsupportedDataType,
                           "%{} is {}; only floating-point types are turned", t->name,
                           Info(t->dtype).text);
  if (parts.y == parts.x || parts.y == parts.freqs)
    return Status::Error(Code::kNotSupported, "elements are not turned where they lie: %{}",
                         y.name);
  if (x.rank() < 2 || y.dims != x.dims)
    return Status::Error(Code::kShapeMismatch,
                         "%{} and %{} must have equal extents, a dim of places before the last one",
                         x.name, y.name);
  const int64_t depth = x.dims.back(), places = x.dims[x.dims.size() - 2];
  if (depth % 2 != 0 || parts.rope_dim < 2 || parts.rope_dim > depth || parts.rope_dim % 2 != 0)
    return Status::Error(
        Code::kBadParam,
        "{} elements to turn; of the last dim of %{}, {}, it may be an even number of 2 to that, "
        "which is even",
        parts.rope_dim, x.name, depth);
  const Dims& angles = freqs.dims;
  bool fits =
      angles.size() == x.dims.size() && angles[0] >= places && angles.back() >= parts.rope_dim;
  for (size_t d = 1; fits && d + 1 < angles.size(); ++d) fits = angles[d] == 1;
  if (fits) return {};
  return Status::Error(Code::kShapeMismatch,
                       "the angles %{} must have {} dims: {} or more places, {} or more elements "
                       "last, and 1 between",
                       freqs.name, x.rank(), places, parts.rope_dim);
}

void SpellRope(Graph& graph, const RopeParts& parts) {
  using M = PointwiseMode;
  const DType compute = FloatFor(graph[parts.x]), dtype = graph[parts.y].dtype;
  Speller at(graph, compute);
  const Dims dims = graph[parts.x].dims;
  const int64_t half = parts.rope_dim / 2, rest = dims.back() - parts.rope_dim;
  const Turn turn = SpellTurn(graph, at, parts);

  Dims part = dims;
  const auto piece = [&](int64_t start, int64_t count) {
    Dims from(dims.size(), 0);
    from.back() = start;
    part.back() = count;
    return at.Slice(parts.x, std::move(from), part);
  };
  std::vector<TensorId> pieces;
  if (rest > 0) {
    TensorId kept = piece(0, rest);
    const Speller::Form form{.dtype = dtype, .dims = part};
    if (parts.scale != 1)
      kept = at.Pointwise(M::kMul, {kept, at.Number(parts.scale, {compute, part})}, form);
    pieces.push_back(kept);
  }
  const TensorId low = piece(rest, half), high = piece(rest + half, half);
  const Speller::Form product{.dtype = compute, .dims = part}, turned{.dtype = dtype, .dims = part};
  const auto combined = [&](M mode, TensorId by_cos, TensorId by_sin) {
    const TensorId a = at.Pointwise(M::kMul, {by_cos, turn.cos}, product);
    const TensorId b = at.Pointwise(M::kMul, {by_sin, turn.sin}, product);
    pieces.push_back(at.Pointwise(mode, {a, b}, turned));
  };
  combined(parts.is_backward ? M::kAdd : M::kSub, low, high);
  combined(parts.is_backward ? M::kSub : M::kAdd, high, low);
  at.Node(GraphOp::kConcat, std::move(pieces), parts.y, MovingType(dtype),
          ConcatAttrs{.axis = graph[parts.x].rank() - 1});
}

}  // namespace kiln::graph
