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
