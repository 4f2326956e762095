#include "compiler/patterns/attention_factors.h"

#include <set>

#include "compiler/group_limits.h"

namespace kiln::compiler {

using graph::kAbsent;
using graph::Node;
using graph::TensorId;

namespace {

// A step from a value to the operand that it is a multiple of.
struct FactorStep {
  TensorId from = kAbsent, times = kAbsent, by = kAbsent;
};

// The steps that lead on from `id`, the preferred one last.
std::vector<FactorStep> FactorSteps(const GraphView& view, TensorId id) {
  std::vector<FactorStep> steps;
  if (const Node* n = view.Map(id, ScalarOp::kDiv)) {
    steps = {{.from = n->inputs[0], .by = n->inputs[1]}};
  } else if (const Node* n = view.Map(id, ScalarOp::kMul)) {
    steps = {{.from = n->inputs[1], .times = n->inputs[0]},
             {.from = n->inputs[0], .times = n->inputs[1]}};
  } else if (const Node* n = view.Map(id, ScalarOp::kSelect)) {
    if (view.IsZero(n->inputs[2]))
      steps = {{.from = n->inputs[1], .times = n->inputs[0]}};
    else if (view.IsZero(n->inputs[1]))
      steps = {{.from = n->inputs[2], .times = n->inputs[0]}};
  }
  std::erase_if(steps, [&](const FactorStep& s) { return view[s.from].dims != view[id].dims; });
  return steps;
}

}  // namespace

std::optional<Factors> FindExp(const GraphView& view, TensorId id) {
  std::vector<FactorStep> path = {{.from = id}};  // from `id` on, each the last of its alternatives
  std::vector<std::vector<FactorStep>> alternatives;
  std::set<TensorId> seen;
  while (!path.empty()) {
    const TensorId at = path.back().from;
    if (view.Map(at, ScalarOp::kExp) != nullptr) {
      Factors found{.exp = view.Uncast(at)};
      for (size_t i = path.size(); i-- > 1;) {
        if (path[i].times != kAbsent) found.multiplied.push_back(path[i].times);
        if (path[i].by != kAbsent) found.divided.push_back(path[i].by);
      }
      return found;
    }
    const bool is_new = seen.insert(at).second && seen.size() <= kMostGroupNodes;
    alternatives.push_back(is_new ? FactorSteps(view, at) : std::vector<FactorStep>());
    while (!alternatives.empty() && alternatives.back().empty()) {
      alternatives.pop_back();
      path.pop_back();
    }
    if (alternatives.empty()) break;
    path.push_back(alternatives.back().back());
    alternatives.back().pop_back();
  }
  return std::nullopt;
}

}  // namespace kiln::compiler
