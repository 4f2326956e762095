// Attention: the chain of nodes that computes it, found by structure in a graph of primitives.
//
//   product = matmul(q, k)               k is [.., depth, keys]
//   score   = any maps of product        scale, bias, alibi, masks from iota and compare
//   max     = reduce max(score)          by rows
//   exp     = exp(score - max)           0 for max where that is -inf: the row sees no key
//   sum     = reduce add(exp)
//   weight  = exp / sum                  1 for sum where that is 0; or exp * (1 / sum), or
//                                        exp(score - (max + log(sum)))
//             * anything, selected or 0  dropout, overrides: what does not follow from product
//   out     = matmul(weight, v)          and maps of it, place by place, up to `result`
//   rows    = maps of max and sum        stats, where somebody reads them
//
// A sink, one more score of each row without a value, joins both reductions:
//
//   max     = max(reduce max(score), sink)
//   sum     = reduce add(exp) + exp(sink - max)
//
// The result, and values of rows, may end in a scatter, as ragged tensors do.
//
// Of operands of 8 bits the largest absolute values of weights, behind the division by the sum, and
// of results are stored as well, where they are asked for.
//
// Neither names, nor the order of nodes or of commutative operands matter; casts may stand
// anywhere. Everything that no product or row makes (masks, biases) is an operand: it floats, or
// comes from memory. Nothing between q and `result` is read from outside, but values of rows.
// Partition makes one group of it where an engine takes that; engines describe their group by the
// same function.
#pragma once

#include <optional>
#include <vector>

#include "compiler/patterns/graph_view.h"
#include "ir/graph/graph.h"

namespace kiln::compiler {

struct Attention {
  graph::TensorId q = -1, k = -1, v = -1;
  graph::TensorId product = -1, score = -1, exp = -1, weight = -1, out = -1, result = -1;
  graph::TensorId max = -1, sum = -1;  // with the sink in them
  graph::TensorId sink = -1;           // of rows or of heads; absent: there is none
  graph::TensorId divisor = -1;  // the sum, or what divides instead of it; absent: nothing does
  std::vector<graph::TensorId> rows = {};    // values of rows that are read outside
  std::vector<graph::NodeId> scatters = {};  // of the result, and of values of rows
  // Largest absolute values that are stored beside results of 8 bits: of weights, and of the
  // result.
  std::optional<LargestOf> largest_weight = {}, largest_result = {};
  std::vector<graph::NodeId> members = {};  // ascending; all that depends on the product

  bool Contains(graph::NodeId node) const;
};

// The scatter that stores `value` of an attention, or null: it is stored in its own place.
const graph::Node* ScatterOf(const graph::Graph& graph, const Attention& attention,
                             graph::TensorId value);

// All attention of a graph, in the order of their second product. They share no node.
std::vector<Attention> FindAttention(const graph::Graph& graph);

// A mask on the way from `score` back to the product: select(visible, value, fill), where `fill`
// is one number.
struct ScoreMask {
  graph::TensorId visible = -1;  // the condition
  bool inverted = false;         // select(condition, fill, value)
  graph::TensorId masked = -1, value = -1, fill = -1;
};
// The masks that nothing but masks and casts follows, from the last on.
std::vector<ScoreMask> MasksOf(const graph::Graph& graph, const Attention& attention);

// Factors of all scores, the same for all places of a head, which nothing but masks with known
// bounds follows: scaled = value * factors, the last one first.
struct ScoreFactor {
  graph::TensorId scaled = -1, value = -1;
  std::vector<graph::TensorId> factors = {};
};
std::optional<ScoreFactor> FactorOf(const graph::Graph& graph, const Attention& attention);
// Selections of weights, or 0, that change none of a row with a key: where they choose 0 a mask has
// put -inf for the score. From the first on; `visible` is the condition.
// With `inside`: at places that all masks with known bounds let through, whatever they put
// elsewhere.
std::vector<ScoreMask> SpareWeightMasks(const graph::Graph& graph, const Attention& attention,
                                        bool inside);
// Selections before the scores' masks that change nothing: where they choose something else a mask
// puts -inf, as where a product has an override of its extents and the scores a mask by the same
// length.
std::vector<ScoreMask> SpareScoreMasks(const graph::Graph& graph, const Attention& attention,
                                       bool inside);

// A bound: row * i + column * j + (the sum of `offsets`) compared with 0, where i and j are the
// places along the last two dims.
struct IndexBound {
  ScalarOp compare = ScalarOp::kLt;  // kLt, kLe, kGt or kGe
  int row = 0, column = 0;
  struct Offset {
    graph::TensorId tensor;  // the same for all i and j
    int sign;
  };
  std::vector<Offset> offsets = {};
};
// The bounds whose conjunction a condition is; empty where it is anything else.
std::vector<IndexBound> BoundsOf(const graph::Graph& graph, const ScoreMask& mask);
std::vector<IndexBound> BoundsOf(const GraphView& view, graph::TensorId condition, int64_t rank);

}  // namespace kiln::compiler
