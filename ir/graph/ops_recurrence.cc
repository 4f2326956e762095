#include "ir/graph/ops.h"

namespace kiln::graph {

Status VerifyRecurrence(const Graph& /*graph*/, const Node& /*node*/) {
  return Status::Text(Code::kNotSupported, "not written yet");
}
Status InferRecurrence(Graph& /*graph*/, const Node& /*node*/) { return {}; }
void EvalRecurrence(const EvalArgs& /*args*/) {}

Status VerifyRecurrenceGrad(const Graph& /*graph*/, const Node& /*node*/) {
  return Status::Text(Code::kNotSupported, "not written yet");
}
Status InferRecurrenceGrad(Graph& /*graph*/, const Node& /*node*/) { return {}; }
void EvalRecurrenceGrad(const EvalArgs& /*args*/) {}

}  // namespace kiln::graph
