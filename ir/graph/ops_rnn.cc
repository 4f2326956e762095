#include "ir/graph/ops.h"

namespace kiln::graph {

Status VerifyRnnForward(const Graph& /*graph*/, const Node& /*node*/) {
  return Status::Text(Code::kNotSupported, "not written yet");
}
Status InferRnnForward(Graph& /*graph*/, const Node& /*node*/) { return {}; }
void EvalRnnForward(const EvalArgs& /*args*/) {}

Status VerifyRnnBackwardData(const Graph& /*graph*/, const Node& /*node*/) {
  return Status::Text(Code::kNotSupported, "not written yet");
}
Status InferRnnBackwardData(Graph& /*graph*/, const Node& /*node*/) { return {}; }
void EvalRnnBackwardData(const EvalArgs& /*args*/) {}

Status VerifyRnnBackwardWeights(const Graph& /*graph*/, const Node& /*node*/) {
  return Status::Text(Code::kNotSupported, "not written yet");
}
Status InferRnnBackwardWeights(Graph& /*graph*/, const Node& /*node*/) { return {}; }
void EvalRnnBackwardWeights(const EvalArgs& /*args*/) {}

}  // namespace kiln::graph
