// AttentionGradFunctions: the functions that the skeletons of attention's gradients call
// (codegen/cuda/device/attention/attention_grad_rows.cuh says what they are), from the group's
// graph.
#pragma once

#include "compiler/kernel/kernel_builder.h"
#include "compiler/patterns/attention_grad.h"
#include "compiler/patterns/graph_view.h"

namespace kiln::compiler {

// Names of the functions, which nothing else of the kernel may have.
inline constexpr const char* kAttentionGradFunctions[] = {"score",   "inside",   "factor", "limits",
                                                          "visible", "random",   "kept",   "weight",
                                                          "slope",   "add_bias", "scale",  "rows"};

class AttentionGradFunctions {
 public:
  AttentionGradFunctions(KernelBuilder& b, const AttentionGrad& grad)
      : b_(b), a_(grad), g_(b.graph()) {}
  // `bias_sums`: the buffer of the sums of a bias's gradient, where functions add to it. `beside`:
  // what skeletons hand to scores, of what lies in memory as these do.
  void Add(tile::Call& call, std::string bias_sums = {}, graph::TensorId beside = graph::kAbsent);
  // Adds finish_keys and finish_values, for operands of 8 bits.
  void AddFinishes(tile::Call& call);

 private:
  struct Element;  // a function of a score's place
  Element Begin(const char* name, std::initializer_list<const char*> numbers,
                int results = 1) const;
  void AddScore(tile::Call& call, bool inside);
  bool IsShifted() const;
  void BindMasks(ValueScope& values, const Index& at, const std::vector<ScoreMask>& masks) const;
  void BindWeights(ValueScope& values, const Index& at, const Element& e) const;
  void BindSpares(ValueScope& values, const Index& at, graph::TensorId wanted) const;
  void AddVisible(tile::Call& call);
  std::optional<RandomHalf> RandomOfPlaces() const;
  void AddRandom(tile::Call& call);
  void AddKept(tile::Call& call);
  bool AddWeight(tile::Call& call);
  void AddSlope(tile::Call& call);
  void AddBias(tile::Call& call);
  void AddScale(tile::Call& call);
  void AddRows(tile::Call& call);
  void AddFinish(tile::Call& call, const char* name, graph::TensorId result,
                 const GradFinish& finish);
  DType t() const { return b_.index_type(); }

  KernelBuilder& b_;
  const AttentionGrad& a_;
  const graph::Graph& g_;
  std::string bias_sums_ = {};
  graph::TensorId beside_ = graph::kAbsent;
};

}  // namespace kiln::compiler
