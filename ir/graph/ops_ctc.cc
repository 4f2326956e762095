#include "ir/graph/ops.h"

namespace kiln::graph {

Status VerifyCtcLoss(const Graph& /*graph*/, const Node& /*node*/) {
  return Status::Text(Code::kNotSupported, "not written yet");
}
Status InferCtcLoss(Graph& /*graph*/, const Node& /*node*/) { return {}; }
void EvalCtcLoss(const EvalArgs& /*args*/) {}

}  // namespace kiln::graph
