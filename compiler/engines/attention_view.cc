#include "compiler/engines/attention_view.h"

namespace kiln::compiler {

using graph::GraphOp;
using graph::kAbsent;
using graph::Node;
using graph::TensorId;

void AddConjuncts(const GraphView& view, TensorId condition, std::vector<TensorId>& all) {
  if (const Node* both = view.Map(condition, ScalarOp::kAnd))
    for (const TensorId id : both->inputs) AddConjuncts(view, id, all);
  else
    all.push_back(condition);
}

bool SameValue(const GraphView& view, TensorId a, TensorId b) {
  if (a == b) return true;
  if (a == kAbsent || b == kAbsent || view[a].dtype != view[b].dtype ||
      view[a].dims != view[b].dims)
    return false;
  if (view[a].is_constant() && view[b].is_constant()) return *view[a].value == *view[b].value;
  const Node *m = view.Producer(a), *n = view.Producer(b);
  if (m == nullptr || n == nullptr || m->op != n->op || m->inputs.size() != n->inputs.size())
    return false;
  if (m->op == GraphOp::kIota)
    return m->As<graph::IotaAttrs>().axis == n->As<graph::IotaAttrs>().axis;
  if (m->op != GraphOp::kMap || m->compute != n->compute) return false;
  const auto &x = m->As<graph::MapAttrs>(), &y = n->As<graph::MapAttrs>();
  if (x.identity != y.identity || (!x.identity && x.op != y.op)) return false;
  for (size_t i = 0; i < m->inputs.size(); ++i)
    if (!SameValue(view, m->inputs[i], n->inputs[i])) return false;
  return true;
}

}  // namespace kiln::compiler
