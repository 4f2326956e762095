// AttentionFunctions: the functions that the skeletons of attention call, from the group's graph.
//
//   score(value: f32, beside: f32, distance: f32, batch, row, column, result: f32[1] out) {
//     let mul_1 = value * scale;  let ge_1 = row >= column;  let select_1 = select(ge_1, mul_1,
//     fill) store result[0] = select_1
//   }
//   inside(…)   the same without the masks whose bounds are known: mul_1
//   factor(batch, result out)   with FactorOf: scale, and inside(…) is `value` itself
//   random(batch, row, column, result: i64[3] out) { place, seed and offset of dropout's bits }
//   first(batch, row, result: f32[2] out) { the sink and 1, or -inf and 0 }
//   limits(batch, first, last, result: i32[5] out) { … end = fill == -inf ? last + 1 : keys … }
//
// `batch` counts all dims before the last two, row-major; row and column are places of the scores
// (of finish: of the result).
#pragma once

#include "compiler/engines/attention/moves.h"
#include "compiler/kernel/kernel_builder.h"
#include "compiler/patterns/attention.h"
#include "compiler/patterns/attention_tilt.h"
#include "compiler/patterns/graph_view.h"

namespace kiln::compiler {

// The place of a value of rows and columns: `batch` counts the dims of `tensor` before the last
// two.
Index ScoreIndex(KernelBuilder& b, tile::Block& out, graph::TensorId tensor,
                 const tile::Expr& batch, const tile::Expr& row, const tile::Expr& column);
// The index of an operand's dims before the last two, for a head of the result, some of which share
// one of the operand's.
HeadIndex SharedHeads(KernelBuilder& b, const Attention& attention, graph::TensorId operand);
// True if the random bits of eight neighbours of a row are those of one call of Philox: halves by
// their place in a row-major tensor whose rows are whole calls.
bool SharesPhilox(const graph::Graph& graph, const RandomHalf& random);
// The value that weights of 8 bits are before selections of 0 in their place.
graph::TensorId FirstRounded(const graph::Graph& graph, graph::TensorId weight);
// The value before it was rounded to a type of 16 or 8 bits, where that was the last thing done:
// the caller rounds two at a time.
tile::Expr Unrounded(tile::Block& out, tile::Expr value);
// Adds limits, of scores with these masks. `says_only`: it has a fifth result, which is 1 where
// what stands for hidden scores is -inf.
void AddLimits(KernelBuilder& b, graph::TensorId scores, const std::vector<ScoreMask>& masks,
               tile::Call& call, bool says_only = false);
// Adds function factor; it is 1 where there is none.
void AddFactor(KernelBuilder& b, graph::TensorId scores, const std::optional<ScoreFactor>& factor,
               tile::Call& call);

class AttentionFunctions {
 public:
  AttentionFunctions(KernelBuilder& b, const Attention& attention)
      : b_(b), a_(attention), g_(b.graph()) {}

  // Adds score, inside, limits, weight, random, finish, rows and first, and the constants that go
  // with them. `beside`: the tensor whose value at a score's place the skeleton hands to score and
  // inside. `of_head`: rows are those of a head, as functions of rows other than score want them.
  // `starts`: products may start from a multiple of the distance (attention_tilt.h).
  void Add(tile::Call& call, graph::TensorId beside = graph::kAbsent, bool of_head = true,
           bool starts = false);
  // Adds those of the functions that see results alone: finish, rows and first.
  void AddResults(tile::Call& call);

 private:
  struct Element;  // a function of one value and its place
  // Parameters that a function has beside a value and its place.
  enum class Extra : uint8_t { kNone, kOfScore, kBits };
  Element Begin(const char* name, Extra extra = Extra::kNone, int results = 1) const;
  Index At(tile::Block& out, graph::TensorId tensor, const tile::Expr& batch, const tile::Expr& row,
           const tile::Expr& column) const;
  void AddScore(tile::Call& call, bool inside);
  struct Tilt {
    tile::Expr factor, serving, start, rest;
  };
  Tilt TiltAt(ValueScope& values, tile::Block& out, const Index& at) const;
  void AddTiltedFactor(tile::Call& call) const;
  void BindDistances(ValueScope& values, const Element& element, const Index& at) const;
  bool WriteWeight(Element& element, graph::TensorId bits, bool inside);
  void AddWeight(tile::Call& call);
  void AddRandom(tile::Call& call, graph::TensorId bits);
  void AddFinish(tile::Call& call);
  void AddRows(tile::Call& call);
  void AddFirst(tile::Call& call);
  DType t() const { return b_.index_type(); }

  KernelBuilder& b_;
  const Attention& a_;
  const graph::Graph& g_;
  graph::TensorId beside_ = graph::kAbsent;
  std::optional<ScoreTilt> tilt_;
};

}  // namespace kiln::compiler
