#include "compiler/patterns/attention_tilt.h"

#include <algorithm>

#include "ir/graph/ops.h"

namespace kiln::compiler {

using graph::Graph;
using graph::Node;
using graph::TensorId;

namespace {

// A map of two f32 that makes an f32, itself and no cast of it.
const Node* MapOfF32(const GraphView& view, TensorId id, ScalarOp op) {
  const Node* n = view.Map(id, op);
  const bool is_own = n != nullptr && view.Uncast(id) == id && view[id].dtype == DType::kF32 &&
                      ArithmeticType(n->compute) == DType::kF32;
  return is_own ? n : nullptr;
}

bool IsOfHead(const GraphView& view, TensorId id, int64_t rank) {
  const Dims& dims = view[id].dims;
  return std::ssize(dims) == rank && dims.back() == 1 && dims[dims.size() - 2] == 1;
}

// `id` before selections that the masks make superfluous.
TensorId BeforeSpare(const std::vector<ScoreMask>& spare, TensorId id) {
  for (auto mask = spare.rbegin(); mask != spare.rend(); ++mask)
    if (mask->masked == id) id = mask->value;
  return id;
}

}  // namespace

std::optional<std::pair<int, int>> PlacesIn(const GraphView& view, TensorId id) {
  const Node* n = view.Producer(id);
  if (n == nullptr || !IsInteger(view[id].dtype)) return std::nullopt;
  if (n->op == graph::GraphOp::kIota) {
    const int64_t back = view[id].rank() - 1 - n->As<graph::IotaAttrs>().axis;
    if (back > 1) return std::nullopt;
    return back == 0 ? std::pair{0, 1} : std::pair{1, 0};
  }
  if (n->op != graph::GraphOp::kMap) return std::nullopt;
  const auto& map = n->As<graph::MapAttrs>();
  if (map.identity) return PlacesIn(view, n->inputs[0]);
  if (map.op != ScalarOp::kAdd && map.op != ScalarOp::kSub) return std::nullopt;
  const auto a = PlacesIn(view, n->inputs[0]), b = PlacesIn(view, n->inputs[1]);
  if (!a || !b) return std::nullopt;
  const int sign = map.op == ScalarOp::kSub ? -1 : 1;
  return std::pair{a->first + sign * b->first, a->second + sign * b->second};
}

std::optional<ScoreTilt> TiltOf(const Graph& g, const Attention& a) {
  const GraphView view(g);
  if (g[a.product].dtype != DType::kF32) return std::nullopt;
  TensorId id = a.score;
  for (const ScoreMask& mask : MasksOf(g, a)) {
    if (BoundsOf(g, mask).empty() || g[mask.masked].dtype != DType::kF32) return std::nullopt;
    id = mask.value;
  }
  const Node* sum = MapOfF32(view, id, ScalarOp::kAdd);
  if (sum == nullptr) return std::nullopt;
  const int64_t rank = g[a.score].rank();
  const std::vector<ScoreMask> spare = SpareScoreMasks(g, a, true);
  for (const int i : {0, 1}) {
    const Node* scaled = MapOfF32(view, sum->inputs[i], ScalarOp::kMul);
    const Node* sloped = MapOfF32(view, sum->inputs[1 - i], ScalarOp::kMul);
    if (scaled == nullptr || sloped == nullptr) continue;
    for (const int j : {0, 1})
      for (const int k : {0, 1}) {
        const auto places = PlacesIn(view, sloped->inputs[j]);
        if (!places || std::abs(places->first) != 1 || places->second != -places->first ||
            BeforeSpare(spare, scaled->inputs[k]) != a.product ||
            !IsOfHead(view, scaled->inputs[1 - k], rank) ||
            !IsOfHead(view, sloped->inputs[1 - j], rank))
          continue;
        return ScoreTilt{.tilted = id,
                         .factor = scaled->inputs[1 - k],
                         .slope = sloped->inputs[1 - j],
                         .sign = places->second};
      }
  }
  return std::nullopt;
}

}  // namespace kiln::compiler
