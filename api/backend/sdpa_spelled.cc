// Attention as one operation with what 9.21 and later gave it: a sub-graph between scores and
// softmax, a softmax with a sink and more results, dropout, cumulated lengths, 8-bit floats. It is
// spelled out as cudnn-frontend's composite node spelled it, so that the same engines take it.
#include "api/backend/sdpa.h"
#include "ir/graph/attention_parts.h"
#include "ir/graph/sdpa.h"

namespace kiln::api {
namespace {

using graph::kAbsent;
using graph::TensorId;

// k or v, or what their pages hold, as [B,H,Skv,D], or [B,H,D,Skv] where `along_last`.
Result<TensorId> Loaded(GraphImport& import, const TensorDesc& t, const TensorDesc* table,
                        TensorId lengths, int64_t batches, int64_t places, bool along_last) {
  if (table == nullptr) return import.Tensor(along_last ? Transposed(t) : t);
  const int64_t heads = t.dims[1], depth = t.dims[3];
  ASSIGN_OR_RETURN(const DType dtype, ElementType(t.data_type));
  const int64_t head = places * depth;
  const TensorId y = along_last ? import.Temporary(dtype, {batches, heads, depth, places},
                                                   {heads * head, head, 1, depth})
                                : import.Temporary(dtype, {batches, heads, places, depth},
                                                   {heads * head, head, depth, 1});
  ASSIGN_OR_RETURN(const TensorId container, import.Tensor(t));
  ASSIGN_OR_RETURN(const TensorId pages, import.Tensor(*table));
  ASSIGN_OR_RETURN(const DType compute, ComputeType(MovingType(t.data_type)));
  import.AddNode(graph::GraphOp::kPagedCacheLoad, {container, pages, lengths}, {y}, compute,
                 graph::PagedCacheLoadAttrs{});
  return y;
}

}  // namespace

TensorDesc Transposed(const TensorDesc& k) {
  TensorDesc t = k;
  std::swap(t.dims[2], t.dims[3]);
  std::swap(t.strides[2], t.strides[3]);
  return t;
}

Status ReadAll(GraphImport& import, std::initializer_list<OptionalTensor> tensors) {
  for (const auto& [tensor, id] : tensors)
    if (tensor != nullptr) {
      ASSIGN_OR_RETURN(id, import.Tensor(*tensor));
    }
  return {};
}
Status WriteAll(GraphImport& import, std::initializer_list<OptionalTensor> tensors) {
  for (const auto& [tensor, id] : tensors)
    if (tensor != nullptr) {
      ASSIGN_OR_RETURN(id, import.Write(*tensor));
    }
  return {};
}

Status CheckCumulated(const char* name, const Ref<TensorDesc>& cumulated,
                      const Ref<TensorDesc>& lengths, int64_t batches) {
  if (cumulated == nullptr) return {};
  if (lengths != nullptr)
    return Status::Text(Code::kBadParam, "lengths are given by themselves and cumulated");
  const TensorDesc& t = *cumulated;
  const bool counts = t.data_type == CUDNN_DATA_INT32 || t.data_type == CUDNN_DATA_INT64;
  if (counts && t.dims.size() == 4 && t.dims[0] == batches + 1 && NumElements(t.dims) == t.dims[0])
    return {};
  return Status::Error(Code::kBadParam,
                       "the cumulated lengths of {}, {}, must be integers and {}x1x1x1", name,
                       t.Text(), batches + 1);
}

Status CheckDropout(double p, const Ref<TensorDesc>& seed, const Ref<TensorDesc>& offset) {
  if (!(p >= 0 && p < 1))
    return Status::Error(Code::kBadParam, "{} is no probability to drop weights with", p);
  if (p != 0 && (seed == nullptr || offset == nullptr))
    return Status::Text(Code::kBadParam, "dropout has no seed or no offset");
  return {};
}

Status ScoreOperations::Check() const {
  if ((graph != nullptr) == (input != -1) && (graph != nullptr) == (output != -1)) return {};
  return Status::Text(Code::kBadParam,
                      "a sub-graph and the uids of its input and output belong together");
}

Result<TensorId> ScoreOperations::Import(GraphImport& import, TensorId score) const {
  if (graph == nullptr) return score;
  import.Bind(input, score);
  for (size_t i = 0; i < graph->operations.size(); ++i) {
    Status status = graph->operations[i]->Import(import);
    if (!status.ok())
      return std::move(status).Within(fmt::format("operation {} of the sub-graph", i));
  }
  return import.IdOf(output);
}

bool SdpaForwardDesc::IsSpelled() const {
  const bool has_bytes = descale_q != nullptr || descale_s != nullptr || amax_o != nullptr;
  return subgraph != nullptr || softmax != nullptr || dropout_probability.value != 0 ||
         cu_seq_len_q != nullptr || cu_seq_len_kv != nullptr || has_bytes;
}

Status SdpaForwardDesc::CheckSpelled() const {
  const ScoreOperations between{subgraph, subgraph_input, subgraph_output};
  RETURN_IF_ERROR(between.Check());
  RETURN_IF_ERROR(CheckCumulated("q", cu_seq_len_q, seq_len_q, q->dims[0]));
  RETURN_IF_ERROR(CheckCumulated("k and v", cu_seq_len_kv, seq_len_kv, q->dims[0]));
  RETURN_IF_ERROR(CheckDropout(dropout_probability.value, dropout_seed, dropout_offset));
  if (softmax != nullptr && stats != nullptr)
    return Status::Text(Code::kBadParam, "statistics are the operation's or its softmax's");
  if (!IsSpelled()) return {};
  if (page_table_k != nullptr && seq_len_kv == nullptr && cu_seq_len_kv == nullptr)
    return Status::Text(Code::kNotSupported, "pages have no lengths of k and v");
  if (descale_q != nullptr && descale_q->data_type == CUDNN_DATA_FP8_E8M0)
    return Status::Text(Code::kNotSupported, "Kiln has no attention of blocks with scales yet");
  return {};
}

// Pages may have room for more keys than the scores have: what is between says how many these are.
Result<int64_t> SdpaForwardDesc::Keys() const {
  if (page_table_k == nullptr) return k->dims[2];
  if (softmax != nullptr) return softmax->x->dims[softmax->x->dims.size() - 1];
  if (subgraph == nullptr) return page_table_k->dims[2] * k->dims[2];
  GraphImport probe;
  for (const Ref<Operation>& operation : subgraph->operations)
    RETURN_IF_ERROR(operation->Import(probe));
  ASSIGN_OR_RETURN(const TensorId input, probe.IdOf(subgraph_input));
  return probe.graph()[input].dims.back();
}

Status SdpaForwardDesc::ImportSpelled(GraphImport& import) const {
  graph::AttentionParts parts{.keep = 1 - dropout_probability.value};
  const Ref<TensorDesc> none;
  RETURN_IF_ERROR(ReadAll(import, {{q, parts.q},
                                   {scale, parts.scale},
                                   {seq_len_q, parts.len_q},
                                   {seq_len_kv, parts.len_kv},
                                   {block_mask, parts.block_mask},
                                   {softmax != nullptr ? softmax->sink : none, parts.softmax.sink},
                                   {descale_q, parts.descale_q},
                                   {descale_k, parts.descale_k},
                                   {descale_v, parts.descale_v},
                                   {descale_s, parts.descale_s},
                                   {scale_s, parts.scale_s},
                                   {scale_o, parts.scale_o}}));
  if (parts.keep != 1)
    RETURN_IF_ERROR(ReadAll(import, {{dropout_seed, parts.seed}, {dropout_offset, parts.offset}}));
  for (const auto& [cumulated, id] :
       {std::pair{&cu_seq_len_q, &parts.len_q}, {&cu_seq_len_kv, &parts.len_kv}})
    if (*cumulated != nullptr) {
      ASSIGN_OR_RETURN(const TensorId all, import.Tensor(**cumulated));
      *id = graph::SpellLengths(import.graph(), all);
    }
  const int64_t batches = q->dims[0];
  ASSIGN_OR_RETURN(const int64_t keys, Keys());
  ASSIGN_OR_RETURN(parts.k,
                   Loaded(import, *k, page_table_k.get(), parts.len_kv, batches, keys, true));
  ASSIGN_OR_RETURN(parts.v,
                   Loaded(import, *v, page_table_v.get(), parts.len_kv, batches, keys, false));
  RETURN_IF_ERROR(
      WriteAll(import, {{o, parts.o},
                        {softmax != nullptr ? softmax->stats : stats, parts.softmax.stats},
                        {softmax != nullptr ? softmax->max : none, parts.softmax.max},
                        {softmax != nullptr ? softmax->sum_exp : none, parts.softmax.sum},
                        {parts.keep != 1 ? dropout_dump : none, parts.dump},
                        {amax_s, parts.amax_s},
                        {amax_o, parts.amax_o}}));
  parts.softmax.log2 = softmax != nullptr && softmax->stats_log2;
  const TensorId score = graph::SpellScores(import.graph(), parts);
  if (block_mask != nullptr)
    RETURN_IF_ERROR(
        graph::CheckBlockMask(&import.graph()[parts.block_mask], import.graph()[score].dims));
  const ScoreOperations between{subgraph, subgraph_input, subgraph_output};
  ASSIGN_OR_RETURN(const TensorId modified, between.Import(import, score));
  graph::SpellWeighted(import.graph(), parts, modified);
  return {};
}

}  // namespace kiln::api
