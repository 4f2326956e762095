// The length of a chain of additions in one accumulator before what it has is folded into another.
// An f32 sum of n terms of one sign grows past its terms: each addition loses up to half a unit in
// the last place of the sum, so that a chain of n is off by up to n * 2^-24, where pairs of pairs
// are off by log2(n) * 2^-24. Chains of at most kMostTerms, or MostProducts, and chains of their
// results, keep sums of a million terms and more within sqrt(n) * 2^-23:
//
//   FMA units, additions   rounded to nearest, errors of either sign: of 4,096 terms some
//                          sqrt(4,096) * 2^-25 in general, 2^-13 where all terms are one number
//   tensor cores           each step of 8 to 32 products is cut off, not rounded, where it is added
//                          to its accumulator: errors of one sign. On an H100 8,192 products of
//                          f16, 512 steps, are off by 6 * 10^-5, and 10^6 of one chain by 6 * 10^-3
//
// Integers lose nothing. CPUs add f32 in f64 where memory is what they wait for (reduce_plan.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "compiler/kernel/kernel_builder.h"

namespace kiln::compiler {

// The terms that an accumulator of FMA units or of additions takes in a row.
constexpr int64_t kMostTerms = 4096;
// The products that an accumulator of tensor cores takes in a row: those of f32 operands are
// TF32's, of which a step has half as many.
int64_t MostProducts(DType operand);
// The products in a row where there is no room for totals (tiles of 128 accumulators a thread,
// engines that have none), of which results of 16 bits can show less: 24,576 are 1,536 steps and
// some 2 * 10^-4, less than half of what rounding the result costs. TF32's own rounding is larger,
// too.
int64_t MostProductsAlone(DType operand, DType result);

// The type of a group's widest result.
DType WidestOutput(const graph::Graph& graph);

// A second set of accumulators beside those that the steps of a main loop add to:
//
//   for step … { acc += … ; if step % 64 == 63 { totals += acc; acc = 0 } }    acc += totals
//
// Only kernels whose sums are too long for one chain have it: registers are what tiles are made of.
class Totals {
 public:
  // Makes totals for `terms` of a sum in steps of `per_step`, of which at most `most` are a chain.
  Totals(KernelBuilder& b, DType type, int64_t terms, int64_t per_step, int64_t most)
      : b_(b), type_(type), every_(Needs(type, terms, most) ? most / per_step : 0) {}
  // True if sums of so many terms are folded. Integers are exact, f64 is exact enough.
  static bool Needs(DType type, int64_t terms, int64_t most) {
    return type == DType::kF32 && terms > most;
  }

  bool exist() const { return every_ > 0; }
  // Declares `size` accumulators; loops over them are bound to `bind`.
  void Declare(tile::Block& out, int64_t size, tile::Bind bind);
  void AfterStep(tile::Block& loop, const tile::Expr& step, const std::string& acc);
  void Finish(tile::Block& out, const std::string& acc);

 private:
  void Each(tile::Block& out, const std::function<void(tile::Block&, const tile::Expr&)>& emit);

  KernelBuilder& b_;
  DType type_;
  int64_t every_;
  int64_t size_ = 0;
  tile::Bind bind_ = tile::Bind::kUnroll;
  std::string totals_;
};

}  // namespace kiln::compiler
