// AttentionGradSums: the kernels beside the skeletons of attention's gradients: zeroes for what is
// added to, and the conversion of sums, which lie in the order of fragments
// (codegen/cuda/device/attention/attention_grad_tiles.cuh).
#pragma once

#include <string>

#include "compiler/engines/attention/grad_problem.h"

namespace kiln::compiler {

// Appends the kernels of the sums over rows that belong to the gradients.
void AddRowSums(const Group& group, const AttentionGrad& grad, const Target& target,
                Lowered& lowered);

// The sums that are zero when the skeleton starts.
enum class Zeroes { kAll, kFirstSection };

// The kernels before and after the skeleton, which adds to scratch buffers.
class AttentionGradSums {
 public:
  // Scratch buffers, of which the last are there where something is summed.
  static constexpr int kTurns = 0, kSums = 1, kBiasSums = 2;
  // The buffer of the sums of dq.
  static std::string Sums(KernelBuilder& b, const AttentionGradProblem& plan, bool is_const) {
    return plan.sums_in_place ? b.Pointer(plan.grad.dq) : b.Scratch(kSums, DType::kF32, is_const);
  }
  static int PartSums(const AttentionGradProblem& plan) { return plan.bias_sums > 0 ? 3 : 2; }
  // The number of the first scratch buffer behind them.
  static int Others(const AttentionGradProblem& plan) {
    return PartSums(plan) + (plan.part_sums() > 0 ? 1 : 0);
  }

  AttentionGradSums(const Group& group, const Target& target, const AttentionGradProblem& problem,
                    const char* engine, bool is_ordered, Zeroes zeroes)
      : group_(group),
        g_(group.graph),
        target_(target),
        plan_(problem),
        engine_(engine),
        turns_(1 + (is_ordered ? problem.blocks() + problem.bias_turns()
                    : zeroes == Zeroes::kFirstSection
                        ? CeilDiv(problem.part_heads(), problem.section)
                        : 0)),
        sums_(problem.is_wide && !problem.sums_in_place ? AlignUp(problem.sums(), kZeroesOfBlock)
                                                        : problem.sums()),
        zeroes_(zeroes == Zeroes::kAll ? sums_ : sums_ / problem.part_heads() * problem.section) {}

  void AddScratch(Lowered& lowered) const {
    lowered.scratch_bytes = {turns_ * 4, plan_.sums_in_place ? 0 : sums_ * 4};
    for (const int64_t more : {plan_.bias_sums, plan_.part_sums()})
      if (more > 0) lowered.scratch_bytes.push_back(AlignUp(more, kZeroesOfBlock) * 4);
  }
  void AddBiasZeroes(Lowered& lowered) const;
  // Make a bias's gradient of its sums: from elements as they lie, or from the order of fragments.
  void AddBiasConversion(Lowered& lowered) const;
  void AddBiasFragments(Lowered& lowered) const;
  void AddZeroes(Lowered& lowered) const;
  // Adds the values that the largest absolute values of slopes and results begin with, for 8 bits.
  void AddLargestStarts(Lowered& lowered) const;
  void AddConversion(Lowered& lowered) const;
  // Makes dk and dv from those of parts.
  void AddPartConversions(Lowered& lowered) const;

 private:
  static constexpr int64_t kZeroesOfBlock = 4096;  // that a block of threads stores
  void AddRowsAsTheyAre(Lowered& lowered) const;
  tile::Block StoreZeroes(KernelBuilder& b, const std::string& sums) const;
  void StoreBias(KernelBuilder& b, tile::Block& out, const Index& at, const tile::Expr& column,
                 const std::string& from) const;
  struct Fragments;  // sums in the order of fragments, and where they go
  struct FragmentPlace;
  struct FragmentRow;
  void AddRowsFrom(KernelBuilder& b, const Fragments& from, Lowered& lowered) const;
  // Whether the result takes the place of the sums.
  bool AreInPlace(const Fragments& from) const;
  // Thread `number` stores its two rows; `largest` names the register of their largest value.
  void StoreFragment(KernelBuilder& b, tile::Block& out, const Fragments& from,
                     const tile::Expr& number, const std::string& largest) const;
  FragmentPlace PlaceOf(KernelBuilder& b, tile::Block& out, const Fragments& from,
                        const tile::Expr& number) const;
  tile::Block StoreHalf(KernelBuilder& b, const Fragments& from, const FragmentRow& row,
                        const std::string& largest) const;
  void FinishSum(KernelBuilder& b, tile::Block& out, const Fragments& from, const Index& row, int c,
                 const tile::Expr& sum, const std::string& to, const std::string& largest) const;
  void LoadFragments(KernelBuilder& b, tile::Block& out, const Fragments& from,
                     const tile::Expr& block, const tile::Expr& in_block,
                     const std::string& to) const;
  // `first` and `last` are what all threads do before and after.
  template <class F>
  void AddEach(KernelBuilder& b, int64_t count, Lowered& lowered, F&& body, tile::Block first = {},
               tile::Block last = {}) const;
  // Writes a kernel by whole blocks of so many threads, which all run the body.
  template <class F>
  void AddWhole(KernelBuilder& b, int64_t count, int threads, Lowered& lowered, F&& body) const;
  KernelBuilder Builder(const char* what) const;
  tile::Expr ScaleOf(KernelBuilder& b, tile::Block& out, const tile::Expr& head) const;
  void StoreRow(KernelBuilder& b, tile::Block& out, graph::TensorId to, const Index& at,
                const std::string& from) const;
  void ScatterRow(KernelBuilder& b, tile::Block& out, const graph::Node& scatter, const Index& at,
                  const std::string& from) const;

  const Group& group_;
  const graph::Graph& g_;
  const Target& target_;
  const AttentionGradProblem& plan_;
  const char* engine_;
  const int64_t turns_, sums_, zeroes_;
};

}  // namespace kiln::compiler
