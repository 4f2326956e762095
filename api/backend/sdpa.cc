#include "api/backend/sdpa.h"

#include "ir/shape.h"

namespace kiln::api {
namespace {

using Forward = SdpaForwardDesc;
using Backward = SdpaBackwardDesc;
using Paged = PagedCacheLoadDesc;

// The rows that must be set are kOptional too: cuDNN's status for their absence is its own
// (CheckSet).
constexpr AttrRow kForwardRows[] = {
    Attr<&Forward::q>(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, Use::kOptional),
    Attr<&Forward::k>(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, Use::kOptional),
    Attr<&Forward::v>(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, Use::kOptional),
    Attr<&Forward::o>(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, Use::kOptional),
    Attr<&Forward::stats>(CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, Use::kOptional),
    Attr<&Forward::scale>(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, Use::kOptional),
    Attr<&Forward::block_mask>(CUDNN_ATTR_OPERATION_SDPA_FWD_BLOCK_MASK_DESC, Use::kOptional),
    Attr<&Forward::page_table_k>(CUDNN_ATTR_OPERATION_SDPA_FWD_PAGE_TABLE_KDESC, Use::kOptional),
    Attr<&Forward::page_table_v>(CUDNN_ATTR_OPERATION_SDPA_FWD_PAGE_TABLE_VDESC, Use::kOptional),
    Attr<&Forward::seq_len_q>(CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC, Use::kOptional),
    Attr<&Forward::seq_len_kv>(CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC, Use::kOptional),
    Attr<&Forward::subgraph>(CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH, Use::kOptional),
    Attr<&Forward::subgraph_input>(CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID,
                                   Use::kOptional),
    Attr<&Forward::subgraph_output>(CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID,
                                    Use::kOptional),
    Attr<&Forward::softmax>(CUDNN_ATTR_OPERATION_SDPA_FWD_SOFTMAX_DESC, Use::kOptional),
    Attr<&Forward::dropout_seed>(CUDNN_ATTR_OPERATION_SDPA_FWD_DROPOUT_SEED_DESC, Use::kOptional),
    Attr<&Forward::dropout_offset>(CUDNN_ATTR_OPERATION_SDPA_FWD_DROPOUT_OFFSET_DESC,
                                   Use::kOptional),
    Attr<&Forward::dropout_dump>(CUDNN_ATTR_OPERATION_SDPA_FWD_DROPOUT_RNG_DUMP_DESC,
                                 Use::kOptional),
    Attr<&Forward::dropout_probability>(CUDNN_ATTR_OPERATION_SDPA_FWD_DROPOUT_PROBABILITY,
                                        Use::kOptional),
    Attr<&Forward::unfuse_fma>(CUDNN_ATTR_OPERATION_SDPA_FWD_UNFUSE_FMA, Use::kOptional),
    Attr<&Forward::cu_seq_len_q>(CUDNN_ATTR_OPERATION_SDPA_FWD_CU_SEQ_LEN_QDESC, Use::kOptional),
    Attr<&Forward::cu_seq_len_kv>(CUDNN_ATTR_OPERATION_SDPA_FWD_CU_SEQ_LEN_KVDESC, Use::kOptional),
    Attr<&Forward::descale_q>(CUDNN_ATTR_OPERATION_SDPA_FWD_DESCALE_QDESC, Use::kOptional),
    Attr<&Forward::descale_k>(CUDNN_ATTR_OPERATION_SDPA_FWD_DESCALE_KDESC, Use::kOptional),
    Attr<&Forward::descale_v>(CUDNN_ATTR_OPERATION_SDPA_FWD_DESCALE_VDESC, Use::kOptional),
    Attr<&Forward::descale_s>(CUDNN_ATTR_OPERATION_SDPA_FWD_DESCALE_SDESC, Use::kOptional),
    Attr<&Forward::scale_s>(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALE_SDESC, Use::kOptional),
    Attr<&Forward::scale_o>(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALE_ODESC, Use::kOptional),
    Attr<&Forward::amax_s>(CUDNN_ATTR_OPERATION_SDPA_FWD_AMAX_SDESC, Use::kOptional),
    Attr<&Forward::amax_o>(CUDNN_ATTR_OPERATION_SDPA_FWD_AMAX_ODESC, Use::kOptional),
};

constexpr AttrRow kBackwardRows[] = {
    Attr<&Backward::q>(CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, Use::kOptional),
    Attr<&Backward::k>(CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC, Use::kOptional),
    Attr<&Backward::v>(CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, Use::kOptional),
    Attr<&Backward::o>(CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC, Use::kOptional),
    Attr<&Backward::stats>(CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC, Use::kOptional),
    Attr<&Backward::scale>(CUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC, Use::kOptional),
    Attr<&Backward::seq_len_q>(CUDNN_ATTR_OPERATION_SDPA_BWD_SEQ_LEN_QDESC, Use::kOptional),
    Attr<&Backward::seq_len_kv>(CUDNN_ATTR_OPERATION_SDPA_BWD_SEQ_LEN_KVDESC, Use::kOptional),
    Attr<&Backward::dq>(CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC, Use::kOptional),
    Attr<&Backward::dk>(CUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC, Use::kOptional),
    Attr<&Backward::dv>(CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC, Use::kOptional),
    Attr<&Backward::grad>(CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC, Use::kOptional),
    Attr<&Backward::sink>(CUDNN_ATTR_OPERATION_SDPA_BWD_SINK_DESC, Use::kOptional),
    Attr<&Backward::dsink>(CUDNN_ATTR_OPERATION_SDPA_BWD_DSINK_DESC, Use::kOptional),
    Attr<&Backward::max_total_seq_len_q>(CUDNN_ATTR_OPERATION_SDPA_BWD_MAX_TOTAL_SEQ_LEN_Q,
                                         Use::kOptional),
    Attr<&Backward::max_total_seq_len_kv>(CUDNN_ATTR_OPERATION_SDPA_BWD_MAX_TOTAL_SEQ_LEN_KV,
                                          Use::kOptional),
    Attr<&Backward::subgraph>(CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH, Use::kOptional),
    Attr<&Backward::subgraph_input>(CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_INPUT_UID,
                                    Use::kOptional),
    Attr<&Backward::subgraph_output>(CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_OUTPUT_UID,
                                     Use::kOptional),
    Attr<&Backward::cu_seq_len_q>(CUDNN_ATTR_OPERATION_SDPA_BWD_CU_SEQ_LEN_QDESC, Use::kOptional),
    Attr<&Backward::cu_seq_len_kv>(CUDNN_ATTR_OPERATION_SDPA_BWD_CU_SEQ_LEN_KVDESC, Use::kOptional),
    Attr<&Backward::dropout_seed>(CUDNN_ATTR_OPERATION_SDPA_BWD_DROPOUT_SEED_DESC, Use::kOptional),
    Attr<&Backward::dropout_offset>(CUDNN_ATTR_OPERATION_SDPA_BWD_DROPOUT_OFFSET_DESC,
                                    Use::kOptional),
    Attr<&Backward::dropout_probability>(CUDNN_ATTR_OPERATION_SDPA_BWD_DROPOUT_PROBABILITY,
                                         Use::kOptional),
    Attr<&Backward::dbias>(CUDNN_ATTR_OPERATION_SDPA_BWD_DBIAS_DESC, Use::kOptional),
};

constexpr AttrRow kPagedRows[] = {
    Attr<&Paged::container>(CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_CONTAINER_DESC, Use::kOptional),
    Attr<&Paged::y>(CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_YDESC, Use::kOptional),
    Attr<&Paged::lengths>(CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_SEQUENCE_DESC, Use::kOptional),
    Attr<&Paged::page_table>(CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_PAGE_TABLE_DESC, Use::kOptional),
};

// cuDNN says NOT_FINALIZED where one of these is not set.
Status CheckSet(std::initializer_list<std::pair<const char*, const TensorDesc*>> tensors) {
  for (const auto& [name, t] : tensors)
    if (t == nullptr) return Status::Error(Code::kNotFinalized, "{} is not set", name);
  return {};
}

// cuDNN's operation has no compute type.
cudnnDataType_t ComputeOf(const TensorDesc& q) {
  return q.data_type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

bool IsInteger(const TensorDesc& t) {
  return t.data_type == CUDNN_DATA_INT32 || t.data_type == CUDNN_DATA_INT64;
}

template <class... Extents>
bool HasDims(const TensorDesc& t, Extents... extents) {
  const int64_t wanted[] = {extents...};
  if (t.dims.size() != sizeof...(extents)) return false;
  for (size_t d = 0; d < sizeof...(extents); ++d)
    if (t.dims[d] != wanted[d]) return false;
  return true;
}

Status CheckFourDims(std::initializer_list<const TensorDesc*> tensors) {
  for (const TensorDesc* t : tensors)
    if (t->dims.size() != 4)
      return Status::Error(Code::kBadParam, "{} must have 4 dims, not {}", t->Text(),
                           t->dims.size());
  return {};
}

Status CheckTable(const TensorDesc& t, int64_t batches) {
  const bool fits = t.data_type == CUDNN_DATA_INT32 && t.dims.size() == 4 && t.dims[0] == batches &&
                    t.dims[1] == 1 && t.dims[3] == 1;
  if (fits) return {};
  return Status::Error(Code::kBadParam, "page table {} of {} must be INT32 and {}x1xpagesx1",
                       t.Text(), NameOf(t.data_type), batches);
}

// Batches, heads that divide q's, and the keys of k or v.
Result<int64_t> KeysOf(const TensorDesc& q, const TensorDesc& t, const Ref<TensorDesc>& table) {
  if (t.dims[1] < 1 || q.dims[1] % t.dims[1] != 0)
    return Status::Error(Code::kBadParam, "the {} heads of {} do not divide the {} of q {}",
                         t.dims[1], t.Text(), q.dims[1], q.Text());
  if (table != nullptr) {
    RETURN_IF_ERROR(CheckTable(*table, q.dims[0]));
    return table->dims[2] * t.dims[2];
  }
  if (t.dims[0] == q.dims[0]) return t.dims[2];
  return Status::Error(Code::kBadParam, "{} has {} batches, q {} has {}", t.Text(), t.dims[0],
                       q.Text(), q.dims[0]);
}

}  // namespace

Status CheckLengths(const char* name, const Ref<TensorDesc>& t, int64_t batches) {
  if (t == nullptr) return {};
  if (!IsInteger(*t))
    return Status::Error(Code::kBadParam, "{}, {}, is {}; it counts, so it must be an integer",
                         name, t->Text(), NameOf(t->data_type));
  if (HasDims(*t, batches, 1, 1, 1)) return {};
  return Status::Error(Code::kBadParam, "{}, {}, must be {}x1x1x1", name, t->Text(), batches);
}

std::span<const AttrRow> SdpaForwardDesc::Rows() { return kForwardRows; }
std::span<const AttrRow> SdpaBackwardDesc::Rows() { return kBackwardRows; }
std::span<const AttrRow> PagedCacheLoadDesc::Rows() { return kPagedRows; }

Status SdpaForwardDesc::Finalize() {
  RETURN_IF_ERROR(CheckSet({{"q", q.get()}, {"k", k.get()}, {"v", v.get()}, {"o", o.get()}}));
  RETURN_IF_ERROR(CheckFourDims({q.get(), k.get(), v.get(), o.get()}));
  if ((page_table_k == nullptr) != (page_table_v == nullptr))
    return Status::Text(Code::kBadParam, "k and v have both a page table, or none has one");
  ASSIGN_OR_RETURN(const int64_t keys, KeysOf(*q, *k, page_table_k));
  ASSIGN_OR_RETURN(const int64_t values, KeysOf(*q, *v, page_table_v));
  if (keys != values || k->dims[3] != q->dims[3])
    return Status::Error(Code::kBadParam, "q {}, k {} ({} keys) and v {} ({} keys) do not fit",
                         q->Text(), k->Text(), keys, v->Text(), values);
  if (!HasDims(*o, q->dims[0], q->dims[1], q->dims[2], v->dims[3]))
    return Status::Error(Code::kBadParam, "q {} and v {} do not give o {}", q->Text(), v->Text(),
                         o->Text());
  if (stats != nullptr && !HasDims(*stats, q->dims[0], q->dims[1], q->dims[2], 1))
    return Status::Error(Code::kBadParam, "q {} does not give stats {}", q->Text(), stats->Text());
  if (scale != nullptr && !scale->by_value && !HasDims(*scale, 1, 1, 1, 1))
    return Status::Error(Code::kBadParam, "the scale, {}, must be 1x1x1x1 or by value",
                         scale->Text());
  if (block_mask != nullptr && (block_mask->dims.size() != 4 || block_mask->dims[0] != q->dims[0] ||
                                block_mask->dims[1] != q->dims[1]))
    return Status::Error(Code::kBadParam,
                         "the block mask, {}, has not the batches and heads of q "
                         "{}",
                         block_mask->Text(), q->Text());
  RETURN_IF_ERROR(CheckLengths("the lengths of q", seq_len_q, q->dims[0]));
  RETURN_IF_ERROR(CheckLengths("the lengths of k and v", seq_len_kv, q->dims[0]));
  return CheckSpelled();
}

Status SdpaForwardDesc::Import(GraphImport& import) const {
  if (IsSpelled()) return ImportSpelled(import);
  // Between: a bias, slopes and a sink, which 9.19's operation has not.
  return import.Add(
      graph::GraphOp::kSdpaFwd,
      {q.get(), k.get(), v.get(), scale.get(), seq_len_q.get(), seq_len_kv.get(),
       page_table_k.get(), page_table_v.get(), nullptr, nullptr, nullptr, block_mask.get()},
      {o.get(), stats.get()}, ComputeOf(*q), graph::SdpaAttrs{});
}

// NVIDIA's checks no extents here; the operation graph does, when it is made. What 9.28 added is
// checked.
Status SdpaBackwardDesc::Finalize() {
  RETURN_IF_ERROR(CheckSet({{"q", q.get()},
                            {"k", k.get()},
                            {"v", v.get()},
                            {"o", o.get()},
                            {"do", grad.get()},
                            {"stats", stats.get()},
                            {"dq", dq.get()},
                            {"dk", dk.get()},
                            {"dv", dv.get()}}));
  return CheckSpelled();
}

Status SdpaBackwardDesc::Import(GraphImport& import) const {
  if (IsSpelled()) return ImportSpelled(import);
  return import.Add(graph::GraphOp::kSdpaBwd,
                    {q.get(), k.get(), v.get(), o.get(), grad.get(), stats.get(), scale.get(),
                     seq_len_q.get(), seq_len_kv.get()},
                    {dq.get(), dk.get(), dv.get()}, ComputeOf(*q), graph::SdpaAttrs{});
}

// All four must be there, and cuDNN says BAD_PARAM where one is not.
Status PagedCacheLoadDesc::Finalize() {
  for (const auto& [name, t] : {std::pair{"container", container.get()},
                                {"result", y.get()},
                                {"lengths", lengths.get()},
                                {"page table", page_table.get()}})
    if (t == nullptr) return Status::Error(Code::kBadParam, "the {} is not set", name);
  RETURN_IF_ERROR(CheckFourDims({container.get(), y.get()}));
  RETURN_IF_ERROR(CheckTable(*page_table, y->dims[0]));
  RETURN_IF_ERROR(CheckLengths("the lengths", lengths, y->dims[0]));
  if (y->data_type != container->data_type)
    return Status::Error(Code::kBadParam, "{} is {}, the container {} is {}", y->Text(),
                         NameOf(y->data_type), container->Text(), NameOf(container->data_type));
  const int64_t depth = container->dims[3], room = page_table->dims[2] * container->dims[2];
  const auto holds = [&](size_t place, size_t channel) {
    return y->dims[channel] == depth && y->dims[place] <= room;
  };
  if (y->dims[1] == container->dims[1] && (holds(2, 3) || holds(3, 2))) return {};
  return Status::Error(Code::kBadParam, "{} pages of {} do not give {}", page_table->dims[2],
                       container->Text(), y->Text());
}

Status PagedCacheLoadDesc::Import(GraphImport& import) const {
  return import.Add(graph::GraphOp::kPagedCacheLoad,
                    {container.get(), page_table.get(), lengths.get()}, {y.get()},
                    MovingType(container->data_type), graph::PagedCacheLoadAttrs{});
}

}  // namespace kiln::api
