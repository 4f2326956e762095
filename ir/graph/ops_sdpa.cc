// Verification and inference of attention as one operation, and of loads through page tables; see
// sdpa.h.
#include <algorithm>

#include "ir/graph/ops.h"
#include "ir/graph/sdpa.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

const Tensor* Find(const Graph& graph, TensorId id) { return id == kAbsent ? nullptr : &graph[id]; }

bool IsIndex(DType type) { return type == DType::kI32 || type == DType::kI64; }

Status ExpectIndex(const Tensor* t, const char* what) {
  if (t == nullptr || IsIndex(t->dtype)) return {};
  return Status::Error(Code::kUnsupportedDataType, "{} %{} is {}; it must be i32 or i64", what,
                       t->name, Info(t->dtype).text);
}

// Each extent 1 or that of `dims`, and no more of them.
Status ExpectBroadcasts(const Tensor* t, const Dims& dims, const char* what) {
  if (t == nullptr) return {};
  bool fits = t->dims.size() <= dims.size();
  for (size_t i = 1; fits && i <= t->dims.size(); ++i) {
    const int64_t own = t->dims[t->dims.size() - i];
    fits = own == 1 || own == dims[dims.size() - i];
  }
  if (fits) return {};
  return Status::Error(Code::kShapeMismatch, "{} {} does not broadcast to {}", what, Shape(*t),
                       DimsText(dims));
}

Status ExpectFloats(const Graph& graph, const std::vector<TensorId>& ids, const char* op) {
  for (const TensorId id : ids) {
    if (id == kAbsent || IsFloat(graph[id].dtype)) continue;
    return Status::Error(Code::kUnsupportedDataType, "%{} is {}; {} computes with floats",
                         graph[id].name, Info(graph[id].dtype).text, op);
  }
  return {};
}

Status VerifyFloatCompute(const Node& node) {
  RETURN_IF_ERROR(CheckCompute(node, false));
  if (IsFloat(node.compute)) return {};
  return Status::Error(Code::kUnsupportedDataType, "{} divides: compute type {} does not serve",
                       Info(node.op).mnemonic, Info(node.compute).text);
}

bool Divides(int64_t part, int64_t whole) { return part == 0 ? whole == 0 : whole % part == 0; }

Status CheckPageTable(const Graph& graph, TensorId id, const Tensor& q, const char* what) {
  const Tensor* table = Find(graph, id);
  if (table == nullptr) return {};
  RETURN_IF_ERROR(ExpectIndex(table, what));
  const bool fits = table->rank() == 4 && table->dims[0] == q.dims[0] && table->dims[1] == 1 &&
                    table->dims[3] == 1;
  if (fits) return {};
  return Status::Error(Code::kShapeMismatch, "{} {} must be [{},1,pages,1]", what, Shape(*table),
                       q.dims[0]);
}

// k or v: [batch, heads that divide q's, keys, depth], or a container and its table.
Status CheckKeys(const Graph& graph, TensorId id, TensorId table, const Tensor& q, int64_t keys,
                 const char* what) {
  const Tensor& t = graph[id];
  RETURN_IF_ERROR(CheckPageTable(graph, table, q, "page table"));
  const int64_t own =
      table == kAbsent ? t.dims[2] : graph[table].dims[2] * t.dims[2];  // 4 dims: checked before
  if (table == kAbsent && t.dims[0] != q.dims[0])
    return Status::Error(Code::kShapeMismatch, "{} {} has {} batches, q {} has {}", what, Shape(t),
                         t.dims[0], Shape(q), q.dims[0]);
  if (!Divides(t.dims[1], q.dims[1]))
    return Status::Error(Code::kShapeMismatch, "the {} heads of {} {} do not divide the {} of q {}",
                         t.dims[1], what, Shape(t), q.dims[1], Shape(q));
  if (own == keys) return {};
  return Status::Error(Code::kShapeMismatch, "{} {} has {} keys, k has {}", what, Shape(t), own,
                       keys);
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Checks the operands that both directions share. `scores` gets [batch, heads, queries, keys].
Status VerifyOperands(const Graph& graph, const Node& node, Dims& scores) {
  RETURN_IF_ERROR(VerifyFloatCompute(node));
  const SdpaOperands in = SdpaOperandsOf(node);
  for (const auto& [id, name] : {std::pair{in.q, "q"}, {in.k, "k"}, {in.v, "v"}}) {
    if (id == kAbsent) return Status::Error(Code::kBadParam, "{} is absent", name);
    if (graph[id].rank() != 4)
      return Status::Error(Code::kShapeMismatch, "{} {} has {} dims, not 4", name, Shape(graph[id]),
                           graph[id].rank());
  }
  const Tensor& q = graph[in.q];
  if ((in.page_table_k == kAbsent) != (in.page_table_v == kAbsent))
    return Status::Text(Code::kBadParam, "k and v have both a page table, or none has one");
  RETURN_IF_ERROR(CheckPageTable(graph, in.page_table_k, q, "page table"));
  const int64_t keys = SdpaKeys(graph, in);
  RETURN_IF_ERROR(CheckKeys(graph, in.k, in.page_table_k, q, keys, "k"));
  RETURN_IF_ERROR(CheckKeys(graph, in.v, in.page_table_v, q, keys, "v"));
  if (graph[in.k].dims[3] != q.dims[3])
    return Status::Error(Code::kShapeMismatch, "k {} and q {} differ in depth", Shape(graph[in.k]),
                         Shape(q));
  scores = {q.dims[0], q.dims[1], q.dims[2], keys};
  RETURN_IF_ERROR(CheckExtents(scores, {}));
  RETURN_IF_ERROR(
      ExpectFloats(graph, {in.q, in.k, in.v, in.scale, in.bias, in.alibi, in.sink}, "attention"));
  const Tensor* scale = Find(graph, in.scale);
  if (scale != nullptr && NumElements(scale->dims) != 1)
    return Status::Error(Code::kShapeMismatch, "the scale {} must have one element", Shape(*scale));
  for (const auto& [id, name] :
       {std::pair{in.seq_q, "the lengths of q"}, std::pair{in.seq_kv, "the lengths of k and v"}}) {
    const Tensor* t = Find(graph, id);
    RETURN_IF_ERROR(ExpectIndex(t, name));
    if (t != nullptr) RETURN_IF_ERROR(ExpectDims(*t, {q.dims[0], 1, 1, 1}, name));
  }
  const Dims heads = {q.dims[0], q.dims[1], 1, 1};
  RETURN_IF_ERROR(ExpectBroadcasts(Find(graph, in.bias), scores, "bias"));
  RETURN_IF_ERROR(ExpectBroadcasts(Find(graph, in.alibi), heads, "alibi slopes"));
  RETURN_IF_ERROR(ExpectBroadcasts(Find(graph, in.sink), heads, "sink"));
  RETURN_IF_ERROR(CheckBlockMask(Find(graph, in.block_mask), scores));
  const auto& attrs = node.As<SdpaAttrs>();
  if (attrs.left >= -1 && attrs.right >= -1) return {};
  return Status::Error(Code::kBadParam, "bounds {} and {} must not be negative, or -1 for none",
                       attrs.left, attrs.right);
}

Dims WithLast(Dims dims, int64_t last) {
  dims.back() = last;
  return dims;
}

bool HasFourDims(const Graph& graph, std::initializer_list<TensorId> ids) {
  return std::ranges::all_of(ids,
                             [&](TensorId id) { return id != kAbsent && graph[id].rank() == 4; });
}

}  // namespace

Status CheckBlockMask(const Tensor* mask, const Dims& scores) {
  if (mask == nullptr) return {};
  if (mask->dtype != DType::kU8)
    return Status::Error(Code::kUnsupportedDataType,
                         "block mask %{} is {}; its bits are those of u8", mask->name,
                         Info(mask->dtype).text);
  const Dims least = {scores[0], scores[1], CeilDiv(scores[2], kMaskBlock),
                      CeilDiv(CeilDiv(scores[3], kMaskBlock), 8)};
  const bool fits = mask->rank() == 4 && mask->dims[0] == least[0] && mask->dims[1] == least[1] &&
                    mask->dims[2] >= least[2] && mask->dims[3] >= least[3];
  if (fits) return {};
  return Status::Error(Code::kShapeMismatch,
                       "block mask {} must be {}: a bit for each {}x{} of the scores {}",
                       Shape(*mask), DimsText(least), kMaskBlock, kMaskBlock, DimsText(scores));
}

SdpaOperands SdpaOperandsOf(const Node& node) {
  const auto in = [&](size_t i) { return OperandOr(node.inputs, i); };
  if (node.op == GraphOp::kSdpaFwd) {
    namespace f = sdpa_fwd;
    return {.q = in(f::kQ),
            .k = in(f::kK),
            .v = in(f::kV),
            .scale = in(f::kScale),
            .seq_q = in(f::kSeqQ),
            .seq_kv = in(f::kSeqKv),
            .page_table_k = in(f::kPageTableK),
            .page_table_v = in(f::kPageTableV),
            .bias = in(f::kBias),
            .alibi = in(f::kAlibi),
            .sink = in(f::kSink),
            .block_mask = in(f::kBlockMask)};
  }
  namespace b = sdpa_bwd;
  return {.q = in(b::kQ),
          .k = in(b::kK),
          .v = in(b::kV),
          .scale = in(b::kScale),
          .seq_q = in(b::kSeqQ),
          .seq_kv = in(b::kSeqKv),
          .page_table_k = kAbsent,
          .page_table_v = kAbsent,
          .bias = in(b::kBias),
          .alibi = in(b::kAlibi),
          .sink = kAbsent,
          .block_mask = kAbsent};
}

int64_t SdpaKeys(const Graph& graph, const SdpaOperands& operands) {
  const int64_t rows = graph[operands.k].dims[2];
  return operands.page_table_k == kAbsent ? rows : graph[operands.page_table_k].dims[2] * rows;
}

bool PagedAlongLast(const Tensor& container, const Tensor& y) {
  const bool first = y.dims[3] == container.dims[3], last = y.dims[2] == container.dims[3];
  return last && (!first || y.strides[3] > y.strides[2]);
}

Status VerifySdpaFwd(const Graph& graph, const Node& node) {
  Dims scores;
  RETURN_IF_ERROR(VerifyOperands(graph, node, scores));
  const Tensor& v = graph[node.inputs[sdpa_fwd::kV]];
  RETURN_IF_ERROR(
      ExpectDims(*OutputOf(graph, node, sdpa_fwd::kO), WithLast(scores, v.dims[3]), "attention"));
  const Tensor* stats = OutputOf(graph, node, sdpa_fwd::kStats);
  if (stats != nullptr) RETURN_IF_ERROR(ExpectDims(*stats, WithLast(scores, 1), "attention"));
  return ExpectFloats(graph, node.outputs, "attention");
}

Status InferSdpaFwd(Graph& graph, const Node& node) {
  const SdpaOperands in = SdpaOperandsOf(node);
  if (!HasFourDims(graph, {in.q, in.v})) return {};  // Verify has the sentence
  const Tensor q = graph[in.q];
  SetDims(graph[node.outputs[sdpa_fwd::kO]], WithLast(q.dims, graph[in.v].dims[3]), &q);
  const TensorId stats = OperandOr(node.outputs, sdpa_fwd::kStats);
  if (stats != kAbsent) SetDims(graph[stats], WithLast(q.dims, 1), nullptr);
  return {};
}

Status VerifySdpaBwd(const Graph& graph, const Node& node) {
  Dims scores;
  RETURN_IF_ERROR(VerifyOperands(graph, node, scores));
  namespace b = sdpa_bwd;
  const Tensor &q = graph[node.inputs[b::kQ]], &k = graph[node.inputs[b::kK]],
               &v = graph[node.inputs[b::kV]];
  const Dims out = WithLast(scores, v.dims[3]);
  for (const auto& [i, name] :
       {std::pair<size_t, const char*>{b::kO, "o"}, {b::kDo, "do"}, {b::kStats, "stats"}}) {
    const Tensor* t = InputOf(graph, node, i);
    if (t == nullptr) return Status::Error(Code::kBadParam, "{} is absent", name);
    RETURN_IF_ERROR(ExpectDims(*t, i == b::kStats ? WithLast(scores, 1) : out, "attention"));
    RETURN_IF_ERROR(ExpectFloats(graph, {node.inputs[i]}, "attention"));
  }
  for (const auto& [i, like] :
       {std::pair<size_t, const Tensor*>{b::kDq, &q}, {b::kDk, &k}, {b::kDv, &v}}) {
    const Tensor* t = OutputOf(graph, node, i);
    if (t == nullptr)
      return Status::Text(Code::kBadParam, "sdpa_bwd writes dq, dk and dv; one is absent");
    RETURN_IF_ERROR(ExpectDims(*t, like->dims, fmt::format("{}", Shape(*like))));
  }
  if (const Tensor* dbias = OutputOf(graph, node, b::kDbias)) {
    const Tensor* bias = InputOf(graph, node, b::kBias);
    if (bias == nullptr) return Status::Text(Code::kBadParam, "dbias is asked for without bias");
    if (bias->rank() != 4)
      return Status::Error(Code::kShapeMismatch, "dbias needs a bias of 4 dims, not {}",
                           Shape(*bias));
    RETURN_IF_ERROR(ExpectDims(*dbias, bias->dims, fmt::format("{}", Shape(*bias))));
  }
  return ExpectFloats(graph, node.outputs, "attention");
}

Status InferSdpaBwd(Graph& graph, const Node& node) {
  namespace b = sdpa_bwd;
  const TensorId like[] = {node.inputs[b::kQ], node.inputs[b::kK], node.inputs[b::kV],
                           OperandOr(node.inputs, b::kBias)};
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kAbsent || like[i] == kAbsent) continue;
    const Tensor t = graph[like[i]];
    SetDims(graph[node.outputs[i]], t.dims, &t);
  }
  return {};
}

Status VerifyPagedCacheLoad(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(CheckCompute(node, true));
  const Tensor& container = *InputOf(graph, node, paged_load::kContainer);
  const Tensor& y = *OutputOf(graph, node, 0);
  const Tensor* table = InputOf(graph, node, paged_load::kPageTable);
  const Tensor* lengths = InputOf(graph, node, paged_load::kLengths);
  if (table == nullptr) return Status::Text(Code::kBadParam, "the page table is absent");
  if (container.rank() != 4 || y.rank() != 4)
    return Status::Error(Code::kShapeMismatch, "{} and {} must have 4 dims", Shape(container),
                         Shape(y));
  RETURN_IF_ERROR(CheckPageTable(graph, node.inputs[paged_load::kPageTable], y, "page table"));
  RETURN_IF_ERROR(ExpectIndex(lengths, "the lengths"));
  if (lengths != nullptr)
    RETURN_IF_ERROR(ExpectDims(*lengths, {y.dims[0], 1, 1, 1}, "the number of batches"));
  const bool along_last = PagedAlongLast(container, y);
  const int64_t depth = y.dims[along_last ? 2 : 3], places = y.dims[along_last ? 3 : 2];
  if (depth != container.dims[3] || y.dims[1] != container.dims[1])
    return Status::Error(Code::kShapeMismatch, "{} has not the heads and the depth of {}", Shape(y),
                         Shape(container));
  if (places <= table->dims[2] * container.dims[2]) return {};
  return Status::Error(Code::kShapeMismatch, "{} has {} places, {} pages of {} rows hold {}",
                       Shape(y), places, table->dims[2], container.dims[2],
                       table->dims[2] * container.dims[2]);
}

Status InferPagedCacheLoad(Graph& graph, const Node& node) {
  const Tensor& container = graph[node.inputs[paged_load::kContainer]];
  const TensorId table = OperandOr(node.inputs, paged_load::kPageTable);
  if (!HasFourDims(graph, {node.inputs[0], table})) return {};
  const Dims& pages = graph[table].dims;
  SetDims(graph[node.outputs[0]],
          {pages[0], container.dims[1], pages[2] * container.dims[2], container.dims[3]}, nullptr);
  return {};
}

}  // namespace kiln::graph
