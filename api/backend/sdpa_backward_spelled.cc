// The gradient of attention as one operation with what 9.28 gave it: a sub-graph between scores and
// softmax, of which the library makes the derivative, gradients of a bias that it adds and of a
// sink, dropout, cumulated lengths. It is spelled out as cudnn-frontend's composite node spells it,
// so that the same engines take it.
#include <fmt/format.h>

#include <algorithm>

#include "api/backend/sdpa.h"
#include "ir/graph/attention_gradient.h"
#include "ir/graph/attention_parts.h"
#include "ir/graph/pointwise_gradient.h"

namespace kiln::api {

using graph::AttentionGradParts;
using graph::kAbsent;
using graph::TensorId;

bool SdpaBackwardDesc::IsSpelled() const {
  // A sink by itself is in the statistics.
  return subgraph != nullptr || dropout_probability.value != 0 || cu_seq_len_q != nullptr ||
         cu_seq_len_kv != nullptr || dsink != nullptr || dbias != nullptr;
}

Status SdpaBackwardDesc::CheckSpelled() const {
  const ScoreOperations between{subgraph, subgraph_input, subgraph_output};
  RETURN_IF_ERROR(between.Check());
  RETURN_IF_ERROR(CheckDropout(dropout_probability.value, dropout_seed, dropout_offset));
  for (const int64_t most : {max_total_seq_len_q, max_total_seq_len_kv})
    if (most < 0)
      return Status::Error(Code::kBadParam, "{} is no maximum of the lengths of a batch", most);
  if (dsink != nullptr && sink == nullptr)
    return Status::Text(Code::kBadParam, "the gradient of a sink is asked for, and there is none");
  if (dbias != nullptr && subgraph == nullptr)
    return Status::Text(Code::kBadParam,
                        "the gradient of a bias is asked for, and no sub-graph adds one");
  return IsSpelled() ? CheckExtents() : Status();
}

Status SdpaBackwardDesc::CheckExtents() const {
  for (const TensorDesc* t :
       {q.get(), k.get(), v.get(), o.get(), grad.get(), stats.get(), dq.get(), dk.get(), dv.get()})
    if (t->dims.size() != 4)
      return Status::Error(Code::kBadParam, "{} must have 4 dims, not {}", t->Text(),
                           t->dims.size());
  const int64_t batches = q->dims[0], heads = q->dims[1], queries = q->dims[2];
  for (const TensorDesc* t : {k.get(), v.get()})
    if (t->dims[0] != batches || t->dims[1] < 1 || heads % t->dims[1] != 0 ||
        t->dims[2] != k->dims[2])
      return Status::Error(Code::kBadParam, "q {}, k {} and v {} do not fit", q->Text(), k->Text(),
                           v->Text());
  if (k->dims[3] != q->dims[3])
    return Status::Error(Code::kBadParam, "q {} and k {} have other depths", q->Text(), k->Text());
  const auto want = [](const char* name, const Ref<TensorDesc>& t,
                       std::initializer_list<int64_t> dims) -> Status {
    if (t == nullptr || std::ranges::equal(t->dims, dims)) return {};
    return Status::Error(Code::kBadParam, "{}, {}, must be {}", name, t->Text(),
                         fmt::join(dims, "x"));
  };
  const int64_t depth = v->dims[3];
  RETURN_IF_ERROR(want("o", o, {batches, heads, queries, depth}));
  RETURN_IF_ERROR(want("do", grad, {batches, heads, queries, depth}));
  RETURN_IF_ERROR(want("stats", stats, {batches, heads, queries, 1}));
  RETURN_IF_ERROR(want("dq", dq, {batches, heads, queries, q->dims[3]}));
  RETURN_IF_ERROR(want("dk", dk, {batches, k->dims[1], k->dims[2], k->dims[3]}));
  RETURN_IF_ERROR(want("dv", dv, {batches, v->dims[1], v->dims[2], depth}));
  RETURN_IF_ERROR(want("the sink", sink, {1, heads, 1, 1}));
  RETURN_IF_ERROR(want("the gradient of the sink", dsink, {1, heads, 1, 1}));
  if (scale != nullptr && !scale->by_value) RETURN_IF_ERROR(want("the scale", scale, {1, 1, 1, 1}));
  if (dbias != nullptr) {
    const int64_t score[] = {batches, heads, queries, k->dims[2]};
    bool fits = dbias->dims.size() == 4;
    for (size_t d = 0; fits && d < 4; ++d) fits = dbias->dims[d] == score[d] || dbias->dims[d] == 1;
    if (!fits)
      return Status::Error(Code::kBadParam,
                           "the gradient of a bias, {}, does not fit the scores {}", dbias->Text(),
                           fmt::join(score, "x"));
  }
  RETURN_IF_ERROR(CheckLengths("the lengths of q", seq_len_q, batches));
  RETURN_IF_ERROR(CheckLengths("the lengths of k and v", seq_len_kv, batches));
  RETURN_IF_ERROR(CheckCumulated("q", cu_seq_len_q, seq_len_q, batches));
  return CheckCumulated("k and v", cu_seq_len_kv, seq_len_kv, batches);
}

Status SdpaBackwardDesc::ImportSpelled(GraphImport& import) const {
  AttentionGradParts parts{.keep = 1 - dropout_probability.value};
  RETURN_IF_ERROR(ReadAll(import, {{q, parts.q},
                                   {o, parts.o},
                                   {grad, parts.dy},
                                   {stats, parts.stats},
                                   {scale, parts.scale},
                                   {seq_len_q, parts.len_q},
                                   {seq_len_kv, parts.len_kv},
                                   {sink, parts.sink}}));
  if (parts.keep != 1)
    RETURN_IF_ERROR(ReadAll(import, {{dropout_seed, parts.seed}, {dropout_offset, parts.offset}}));
  ASSIGN_OR_RETURN(parts.k, import.Tensor(Transposed(*k)));
  ASSIGN_OR_RETURN(parts.v, import.Tensor(Transposed(*v)));
  for (const auto& [cumulated, id] :
       {std::pair{&cu_seq_len_q, &parts.len_q}, {&cu_seq_len_kv, &parts.len_kv}})
    if (*cumulated != nullptr) {
      ASSIGN_OR_RETURN(const TensorId all, import.Tensor(**cumulated));
      *id = graph::SpellLengths(import.graph(), all);
    }
  TensorId bias_gradient = kAbsent;
  RETURN_IF_ERROR(WriteAll(import, {{dq, parts.dq},
                                    {dk, parts.dk},
                                    {dv, parts.dv},
                                    {dsink, parts.dsink},
                                    {dbias, bias_gradient}}));

  graph::Graph& graph = import.graph();
  const TensorId score = graph::SpellGradScores(graph, parts);
  graph::PointwiseChain chain{.first = graph.nodes.size(), .x = score, .hidden_have_none = true};
  const ScoreOperations between{subgraph, subgraph_input, subgraph_output};
  ASSIGN_OR_RETURN(chain.y, between.Import(import, score));
  if (dbias != nullptr) chain.addend = graph[bias_gradient].dims;
  // The chain ends where the slope's nodes begin.
  chain.last = graph.nodes.size();
  if (graph[chain.y].dims != graph[score].dims)
    return Status::Error(Code::kBadParam,
                         "the sub-graph's result %{} has not the extents of scores",
                         graph[chain.y].name);
  const TensorId slope = chain.dy = graph::SpellSlope(graph, parts, chain.y);
  graph::ChainGradient gradient{.dx = slope};
  if (subgraph != nullptr) {
    Result<graph::ChainGradient> spelled = graph::SpellChainGradient(graph, chain);
    if (!spelled.ok()) return std::move(spelled).status().Within("the derivative of the sub-graph");
    gradient = *spelled;
  }
  if (dbias != nullptr) graph::SpellBiasGradient(graph, gradient.addend, bias_gradient);
  graph::SpellOperandGradients(graph, parts, gradient.dx);
  return {};
}

}  // namespace kiln::api
