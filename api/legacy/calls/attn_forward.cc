// cudnnMultiHeadAttnForward and the sizes of its buffers. Reference 7.2.15 and 7.2.35.
//
//   q, k, v = rows W + b        by sequences, 0 where they are padding; staged in work or reserve
//   h       = attention         attn_graph.h
//   out     = rows W + b        + residual; into the client's memory
//
// Training keeps q, k, v, h, the softmax's statistics, and what dropout drew.
#include <algorithm>

#include "api/legacy/calls/attn_problem.h"
#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace {

constexpr size_t kPostWords = kDropoutStateBytes;  // behind those of the attention's weights

// A source is the place where attention reads q, k or v.
struct Source {
  Projected what;
  const void* data;
  const void* lengths;
};

class Forward {
 public:
  Forward(AttnCalls& calls, const AttnForward& f) : calls_(calls), f_(f), p_(f.problem) {}

  Status Run() {
    RETURN_IF_ERROR(TakeDropout());
    if (is_training()) RETURN_IF_ERROR(KeepLengths());
    AttendOp op = {.scale = p_.desc().scale, .dropout = attn_dropout_};
    ASSIGN_OR_RETURN(op.q, Project({Projected::kQ, f_.queries, f_.query_lengths}));
    ASSIGN_OR_RETURN(op.k, Project({Projected::kK, f_.keys, f_.key_lengths}));
    ASSIGN_OR_RETURN(op.v, Project({Projected::kV, f_.values, f_.key_lengths}));
    RETURN_IF_ERROR(p_.TakeWindows(calls_, f_.memory, f_.lo, f_.hi, f_.work, op));
    if (!p_.all_full(Projected::kK)) op.key_lengths = f_.key_lengths;
    op.h = p_.Vectors(Projected::kO, WritesOut() ? p_.queries() : p_.StagedOf(Projected::kO),
                      WritesOut() ? Client(f_.out, p_.desc().OutputSize()) : StagedAt(3));
    if (is_training()) op.stats = p_.Stats(At(f_.reserve, f_.memory.stats));
    RETURN_IF_ERROR(RunAttention(calls_, op));
    return WritesOut() ? Status() : Output(op.h.data);
  }

 private:
  bool is_training() const { return f_.reserve != nullptr; }
  int64_t element() const { return ElementBytes(p_.desc().type); }
  void* StagedAt(size_t i) const {
    return is_training() ? At(f_.reserve, f_.memory.training[i])
                         : At(f_.work, f_.memory.inference[i]);
  }
  // The rows of the step in the client's queries, residuals or outputs.
  template <class T>
  T* Client(T* data, int64_t width) const {
    if (data == nullptr) return data;
    using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
    return static_cast<Byte*>(data) + p_.first_row() * width * element();
  }
  const void* WeightAt(const AttnWeight& weight) const {
    return static_cast<const char*>(f_.weights) + weight.offset * element();
  }
  // Attention's result is the layer's.
  bool WritesOut() const {
    const AttnDesc& d = p_.desc();
    return !is_training() && p_.heads() == d.heads && !d.has(Projected::kO) &&
           f_.residuals == nullptr && p_.all_full(Projected::kO) && p_.queries_merge();
  }

  Status TakeDropout() {
    if (!is_training()) return {};
    char* const words = static_cast<char*>(At(f_.reserve, f_.memory.words));
    ASSIGN_OR_RETURN(const DropoutDesc* attn, DropoutOf(p_.desc().attn_dropout));
    ASSIGN_OR_RETURN(const DropoutDesc* post, DropoutOf(p_.desc().post_dropout));
    const int64_t vectors = p_.queries().count();
    if (attn != nullptr) {
      attn_dropout_ = {.dropout = attn->dropout, .words = words};
      RETURN_IF_ERROR(Keep(*attn, words, vectors * p_.heads() * p_.keys()));
    }
    if (post == nullptr) return {};
    post_dropout_ = {.dropout = post->dropout, .words = words + kPostWords};
    return Keep(*post, words + kPostWords, vectors * p_.desc().OutputSize());
  }
  // Random numbers come from the copy: the state is behind it at once, for the next to draw, which
  // may be of the same state.
  Status Keep(const DropoutDesc& desc, void* words, int64_t drawn) {
    if (calls_.measures()) return {};
    RETURN_IF_ERROR(KeepDropoutState(calls_.handle(), desc, words));
    return AdvanceDropoutState(calls_.handle(), desc, drawn);
  }

  // BackwardWeights is given no lengths.
  Status KeepLengths() {
    const auto& [batch, beam, time] = p_.queries().extents;
    if (!p_.all_full(Projected::kQ))
      RETURN_IF_ERROR(RunSpread(calls_, f_.query_lengths, At(f_.reserve, f_.memory.query_lengths),
                                batch * beam, 1, true));
    if (!p_.all_full(Projected::kK))
      RETURN_IF_ERROR(
          RunSpread(calls_, f_.key_lengths, At(f_.reserve, f_.memory.key_lengths), batch, 1, true));
    return {};
  }

  Result<HeadVectors> Project(const Source& source) {
    const Projected what = source.what;
    const AttnDesc& d = p_.desc();
    const void* const data =
        what == Projected::kQ ? Client(source.data, d.Size(what)) : source.data;
    if (p_.IsDirect(what)) return p_.Vectors(what, p_.RowsOf(what), const_cast<void*>(data));
    RowsOp op = {.name = "cudnnMultiHeadAttn, input",
                 .type = d.type,
                 .from = p_.RowsOf(what),
                 .to = p_.StagedOf(what),
                 .x = data,
                 .y = StagedAt(static_cast<size_t>(what)),
                 .x_width = d.Size(what),
                 .y_width = p_.StagedWidth(what),
                 .padding = p_.PaddingOf(what, source.lengths)};
    if (const AttnWeight w = WeightOf(d, what); w.is_there()) {
      op.w = WeightAt(w);
      op.w_strides = {w.strides[2], 1};
    }
    if (const AttnWeight bias = BiasOf(d, what); bias.is_there()) op.bias = WeightAt(bias);
    RETURN_IF_ERROR(RunRows(calls_, op));
    return p_.Vectors(what, p_.StagedOf(what), op.y);
  }

  Status Output(const void* h) {
    const AttnDesc& d = p_.desc();
    RowsOp op = {.name = "cudnnMultiHeadAttn, output",
                 .type = d.type,
                 .from = p_.StagedOf(Projected::kO),
                 .to = p_.queries(),
                 .x = h,
                 .y = Client(f_.out, d.OutputSize()),
                 .x_width = p_.StagedWidth(Projected::kO),
                 .y_width = d.OutputSize(),
                 .residual = Client(f_.residuals, d.OutputSize()),
                 .padding = p_.PaddingOf(Projected::kO, f_.query_lengths),
                 .dropout_out = post_dropout_};
    if (const AttnWeight w = WeightOf(d, Projected::kO); w.is_there()) {
      op.w = WeightAt(w);
      op.w_strides = {w.strides[2], 1};
    }
    if (const AttnWeight bias = BiasOf(d, Projected::kO); bias.is_there()) op.bias = WeightAt(bias);
    return RunRows(calls_, op);
  }

  AttnCalls& calls_;
  const AttnForward& f_;
  const AttnProblem& p_;
  DropoutUse attn_dropout_, post_dropout_;
};

// Extents of a problem that a layer may meet.
struct Extents {
  int32_t queries, keys, batch, beam;
};

// A problem of full sequences or of some that end early.
struct SomeProblem {
  SeqData q, k, v, o;
  std::vector<int32_t> lo, hi;

  SomeProblem(const AttnDesc& d, const Extents& e, bool is_full) {
    const auto make = [&](int32_t steps, int32_t beam, int64_t width) {
      SeqData data;
      data.type = d.type;
      data.dims = {steps, e.batch, beam, static_cast<int32_t>(width)};
      data.axes = {1, 2, 0, 3};
      data.lengths.assign(static_cast<size_t>(e.batch) * static_cast<size_t>(beam), steps);
      if (!is_full) data.lengths[0] = 0;
      return data;
    };
    q = make(e.queries, e.beam, d.Size(Projected::kQ));
    o = make(e.queries, e.beam, d.OutputSize());
    k = make(e.keys, 1, d.Size(Projected::kK));
    v = make(e.keys, 1, d.Size(Projected::kV));
    // Windows that follow no rule, where they may.
    lo.assign(static_cast<size_t>(e.queries), 0);
    hi.assign(static_cast<size_t>(e.queries), e.keys);
    if (is_full) return;
    lo.back() = e.keys / 2;
    hi.front() = e.keys / 2 + 1;
  }
};

// The largest, and those of one query, key, batch or beam, whose graphs are of another kind.
std::vector<Extents> ExtremesOf(const AttnDesc& d) {
  const Extents most = {d.most_queries, d.most_keys, d.most_batch, d.most_beam};
  std::vector<Extents> all = {most};
  const auto add = [&](bool one_query, bool one_key, bool one_batch, bool one_beam) {
    const Extents e = {one_query ? 1 : most.queries, one_key ? 1 : most.keys,
                       one_batch ? 1 : most.batch, one_beam ? 1 : most.beam};
    const auto is_same = [&](const Extents& other) {
      return e.queries == other.queries && e.keys == other.keys && e.batch == other.batch &&
             e.beam == other.beam;
    };
    if (std::ranges::none_of(all, is_same)) all.push_back(e);
  };
  add(true, false, false, false);
  add(false, true, false, false);
  add(false, false, true, false);
  add(false, false, false, true);
  add(true, true, false, false);
  add(true, true, true, true);
  return all;
}

// No memory is behind it: only measured.
void* Nowhere() { return reinterpret_cast<void*>(uintptr_t{4096}); }

// Measures the work space that the calls of one problem want.
Status Measure(AttnCalls& calls, const AttnDesc& desc, const AttnMemory& memory,
               const SomeProblem& some, bool is_training) {
  ASSIGN_OR_RETURN(const AttnProblem problem,
                   AttnProblem::Of(desc, {&some.q, &some.k, &some.v, &some.o}, -1));
  AttnForward forward = {.problem = problem,
                         .memory = memory,
                         .lo = some.lo.data(),
                         .hi = some.hi.data(),
                         .query_lengths = Nowhere(),
                         .key_lengths = Nowhere(),
                         .queries = Nowhere(),
                         .residuals = nullptr,
                         .keys = Nowhere(),
                         .values = Nowhere(),
                         .out = Nowhere(),
                         .weights = Nowhere(),
                         .work = Nowhere(),
                         .reserve = nullptr};
  RETURN_IF_ERROR(RunForward(calls, forward));
  if (!is_training) return {};
  forward.reserve = Nowhere();
  RETURN_IF_ERROR(RunForward(calls, forward));
  const AttnBackward backward = {.problem = problem,
                                 .memory = memory,
                                 .lo = some.lo.data(),
                                 .hi = some.hi.data(),
                                 .query_lengths = Nowhere(),
                                 .key_lengths = Nowhere(),
                                 .dout = Nowhere(),
                                 .queries = Nowhere(),
                                 .keys = Nowhere(),
                                 .values = Nowhere(),
                                 .dqueries = Nowhere(),
                                 .dkeys = Nowhere(),
                                 .dvalues = Nowhere(),
                                 .weights = Nowhere(),
                                 .dweights = Nowhere(),
                                 .adds = true,
                                 .work = Nowhere(),
                                 .reserve = Nowhere()};
  RETURN_IF_ERROR(RunBackwardData(calls, backward));
  return RunBackwardWeights(calls, backward);
}

// Plans of problems between the extremes may need so much more than these.
constexpr int64_t kSpareBytes = 64 << 10;

Result<int64_t> PlanBytes(Handle& handle, const AttnDesc& desc, const AttnMemory& memory,
                          bool is_training) {
  AttnCalls calls = AttnCalls::Measuring(handle, desc.math == CUDNN_FMA_MATH);
  for (const Extents& extents : ExtremesOf(desc))
    for (const bool is_full : {true, false})
      RETURN_IF_ERROR(
          Measure(calls, desc, memory, SomeProblem(desc, extents, is_full), is_training));
  return calls.workspace_bytes() + kSpareBytes;
}

}  // namespace

Status RunForward(AttnCalls& calls, const AttnForward& f) { return Forward(calls, f).Run(); }

Status GetMultiHeadAttnBuffers(void* handle, void* object, size_t* weights, size_t* work,
                               size_t* reserve) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const AttnDesc* desc, Get<AttnDesc>(object));
  RETURN_IF_ERROR(NotNull(weights, "the place for the size of the weights"));
  RETURN_IF_ERROR(NotNull(work, "the place for the size of the work space"));
  ASSIGN_OR_RETURN(const AttnMemory memory, AttnMemory::Of(*desc));
  ASSIGN_OR_RETURN(const int64_t elements, WeightElements(*desc));
  ASSIGN_OR_RETURN(const int64_t of_plans, PlanBytes(*h, *desc, memory, reserve != nullptr));
  *weights = static_cast<size_t>(elements * ElementBytes(desc->type));
  *work = static_cast<size_t>(memory.work_bytes + of_plans);
  Store(reserve, static_cast<size_t>(memory.reserve_bytes));
  return {};
}

Status MultiHeadAttnForward(void* handle, void* object, int step, const int* lo, const int* hi,
                            const int* query_lengths, const int* key_lengths, void* q_desc,
                            const void* queries, const void* residuals, void* k_desc,
                            const void* keys, void* v_desc, const void* values, void* o_desc,
                            void* out, size_t weight_bytes, const void* weights, size_t work_bytes,
                            void* work, size_t reserve_bytes, void* reserve) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const AttnDesc* desc, Get<AttnDesc>(object));
  AttnSequences s;
  ASSIGN_OR_RETURN(s.q, SeqDataFrom(q_desc));
  ASSIGN_OR_RETURN(s.k, SeqDataFrom(k_desc));
  ASSIGN_OR_RETURN(s.v, SeqDataFrom(v_desc));
  ASSIGN_OR_RETURN(s.o, SeqDataFrom(o_desc));
  ASSIGN_OR_RETURN(const AttnProblem problem, AttnProblem::Of(*desc, s, step));
  ASSIGN_OR_RETURN(const AttnMemory memory, AttnMemory::Of(*desc));
  RETURN_IF_ERROR(CheckWeights(*desc, weights, weight_bytes));
  RETURN_IF_ERROR(CheckWork(memory, work, work_bytes));
  if (reserve != nullptr || reserve_bytes > 0)
    RETURN_IF_ERROR(CheckReserve(memory, reserve, reserve_bytes));
  if (reserve != nullptr && step >= 0)
    return Status::Error(Code::kBadParam,
                         "currIdx is {} in training, which needs all steps at once", step);
  if (residuals != nullptr && desc->Size(Projected::kQ) != desc->OutputSize())
    return Status::Error(Code::kBadParam, "residuals have vectors of {}, the output of {}",
                         desc->Size(Projected::kQ), desc->OutputSize());
  AttnCalls calls(*h, ScratchBehind(memory, work, work_bytes), desc->math == CUDNN_FMA_MATH);
  return RunForward(calls, {.problem = problem,
                            .memory = memory,
                            .lo = lo,
                            .hi = hi,
                            .query_lengths = query_lengths,
                            .key_lengths = key_lengths,
                            .queries = queries,
                            .residuals = residuals,
                            .keys = keys,
                            .values = values,
                            .out = out,
                            .weights = weights,
                            .work = work,
                            .reserve = reserve});
}

}  // namespace kiln::api::legacy
