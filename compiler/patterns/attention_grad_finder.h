// AttentionGradFinder: finds the gradients of attention around one exponential
// (attention_grad.h says what they are made of). attention_grad_finder.cc walks the maps and
// products, attention_grad_members.cc the results and what belongs to the group.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "compiler/patterns/attention_grad.h"
#include "compiler/patterns/attention_grad_operands.h"
#include "compiler/patterns/graph_view.h"

namespace kiln::compiler {

class AttentionGradFinder {
 public:
  using Node = graph::Node;
  using NodeId = graph::NodeId;
  using TensorId = graph::TensorId;

  AttentionGradFinder(const GraphView& view, NodeId exp, bool is_group)
      : view_(view), exp_node_(exp), is_group_(is_group) {}

  std::optional<AttentionGrad> Run();

 private:
  const Dims& dims() const { return view_[a_.exp].dims; }
  bool IsRow(TensorId id) const { return view_[id].dims == RowDims(dims()); }
  bool IsNumber(TensorId id) const { return view_[id].by_value || view_[id].is_constant(); }
  bool IsProduct(TensorId id) const;
  // Walks from the exponential back to the product: masks, the statistics, and any maps before
  // them.
  bool WalkScore();
  // Finds dq, of what follows from the exponential; dk of the same the other way around, and dv.
  bool FindProducts();
  // Walks from what dv is multiplied by to the exponential: selections, and factors of operands.
  bool WalkWeight();
  void TakeZeroMask(TensorId id, const Node& select, std::initializer_list<PlaceBounds*> of);
  // Walks slope * scales, with selections of zeroes.
  bool WalkSlope(TensorId id);
  // Takes slopes that are stored, summed over leading dims: the gradient of a bias.
  void TakeBias(TensorId slope);
  // The operand that is multiplied by a factor that is the same for all places of a head; or -1.
  int ScaledOperand(const Node& mul) const;
  // Finds the other product before the slope, what is subtracted from it, and where the weights
  // come in.
  bool FindInner();
  // Takes a mask of the inner product. Zeroes of weights, on their way into the slope, are zeroes
  // of the slope; those of the inner product change nothing where the weights are zero.
  void TakeInnerMask(TensorId id, const Node& select);
  // True if the products read what the others do.
  bool OperandsAgree() const;
  // Marks all nodes by whether they follow from some of `first`.
  std::vector<char> Dependents(std::initializer_list<NodeId> first) const;
  bool Follows(TensorId id) const;
  bool TakeResults();
  // The tensor that a product is stored as: cast, zero outside bounds; with 8 bits, with more
  // behind that.
  TensorId Stored(TensorId id, PlaceBounds& bounds, GradFinish& finish) const;
  // Walks maps with numbers in memory from a product of 8 bits on; returns the tensor that is
  // stored, or kAbsent.
  TensorId Finished(TensorId id, GradFinish& finish) const;
  // Takes the largest absolute value of what follows from the exponential.
  void TakeLargestSlope();
  bool HasBytes() const { return SizeOf(view_[a_.q].dtype) == 1; }
  // A cast of `stored` that is stored as well, in memory or by a scatter; or kAbsent.
  TensorId StoredToo(TensorId stored) const;
  // Takes places where weights are zero whatever the scores are: for all three results the same. A
  // selection of these zeroes then selects nothing more.
  bool TakeZeroes();
  // Takes a selection of the product, or a number outside bounds of which the scores have masks as
  // well.
  void TakeProductMask();
  // The value `id` without selections that select nothing more.
  TensorId WithoutSpares(TensorId id) const;
  bool IsPlainSlope() const;
  bool CollectMembers();
  // True for nodes that may stand between or after the products: maps, moves of elements,
  // reductions, and the products themselves.
  bool IsMapOrKnown(const Node& n) const;
  // Takes a value that is 1 or 0 at each place, and takes long to compute: random bits.
  void TakeKept();
  // Takes sums of what rows have, where they read the statistics and nothing that is made here.
  void TakeSums();
  bool ReadsStats(TensorId id) const;
  bool IsClosed() const;
  bool IsMade(TensorId id) const {
    const NodeId from = view_.ProducerId(id);
    return from >= 0 && made_[from];
  }

  const GraphView& view_;
  const NodeId exp_node_;
  const bool is_group_;
  AttentionGrad a_;
  TensorId dq_ = graph::kAbsent, dk_ = graph::kAbsent, dv_ = graph::kAbsent,
           slope_ = graph::kAbsent;  // products
  // Bounds outside which the operands that follow from scores, and the results, are zero.
  PlaceBounds of_dq_{view_}, of_dk_{view_}, of_dv_{view_};
  // Selections of zeroes instead of weights and slopes, and of what only weights multiply.
  std::vector<ScoreMask> zero_masks_, inner_masks_;
  // Marks of nodes: those that follow from the exponential; from inner; from a product; members.
  std::vector<char> follows_, from_inner_, made_, member_;
};

}  // namespace kiln::compiler
