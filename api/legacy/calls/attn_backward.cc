// cudnnMultiHeadAttnBackwardData and …BackwardWeights. Reference 8.2.15 and 8.2.16.
//
//   dh         = rows of dout W_O'       0 where they are padding
//   dq, dk, dv = attention's gradients   of what is staged; kept in the reserve space
//   dqueries … = rows of these W'        or sums over heads where nothing is projected
//   dW         = rows' rows              of sequences and what their projection got
#include "api/legacy/calls/attn_problem.h"
#include "api/legacy/functions.h"
#include "include/v9/cudnn_adv.h"

namespace kiln::api::legacy {
namespace {

constexpr Projected kInputs[] = {Projected::kQ, Projected::kK, Projected::kV};

// Backward checks and holds what both functions read.
class Backward {
 public:
  Backward(AttnCalls& calls, const AttnBackward& b) : calls_(calls), b_(b), p_(b.problem) {}

 protected:
  const AttnDesc& desc() const { return p_.desc(); }
  int64_t element() const { return ElementBytes(desc().type); }
  void* Kept(const AttnMemory::Part& part) const { return At(b_.reserve, part); }
  const void* Input(Projected what) const {
    return what == Projected::kQ ? b_.queries : what == Projected::kK ? b_.keys : b_.values;
  }
  const void* WeightAt(const AttnWeight& weight) const {
    return static_cast<const char*>(b_.weights) + weight.offset * element();
  }
  Status TakeDropout() {
    char* const words = static_cast<char*>(Kept(b_.memory.words));
    ASSIGN_OR_RETURN(const DropoutDesc* attn, DropoutOf(desc().attn_dropout));
    ASSIGN_OR_RETURN(const DropoutDesc* post, DropoutOf(desc().post_dropout));
    if (attn != nullptr) attn_dropout_ = {.dropout = attn->dropout, .words = words};
    if (post != nullptr)
      post_dropout_ = {.dropout = post->dropout, .words = words + kDropoutStateBytes};
    return {};
  }

  AttnCalls& calls_;
  const AttnBackward& b_;
  const AttnProblem& p_;
  DropoutUse attn_dropout_, post_dropout_;
};

class BackwardData : public Backward {
 public:
  using Backward::Backward;

  Status Run() {
    RETURN_IF_ERROR(TakeDropout());
    AttendOp op = {
        .q = Staged(Projected::kQ),
        .k = Staged(Projected::kK),
        .v = Staged(Projected::kV),
        .h = p_.Vectors(Projected::kO, p_.StagedOf(Projected::kO), Kept(b_.memory.training[3])),
        .stats = p_.Stats(Kept(b_.memory.stats)),
        .scale = desc().scale,
        .dropout = attn_dropout_};
    RETURN_IF_ERROR(p_.TakeWindows(calls_, b_.memory, b_.lo, b_.hi, b_.work, op));
    if (!p_.all_full(Projected::kK)) op.key_lengths = b_.key_lengths;
    AttendGradients gradients;
    ASSIGN_OR_RETURN(gradients.dh, OutputGradient());
    gradients.dq = Gradient(Projected::kQ, b_.dqueries);
    gradients.dk = Gradient(Projected::kK, b_.dkeys);
    gradients.dv = Gradient(Projected::kV, b_.dvalues);
    RETURN_IF_ERROR(RunAttentionBackward(calls_, op, gradients));
    RETURN_IF_ERROR(Unproject(Projected::kQ, b_.dqueries));
    RETURN_IF_ERROR(Unproject(Projected::kK, b_.dkeys));
    return Unproject(Projected::kV, b_.dvalues);
  }

 private:
  HeadVectors Staged(Projected what) const {
    if (p_.IsDirect(what)) return p_.Vectors(what, p_.RowsOf(what), const_cast<void*>(Input(what)));
    return p_.Vectors(what, p_.StagedOf(what), Kept(b_.memory.training[static_cast<size_t>(what)]));
  }
  HeadVectors Gradient(Projected what, void* client) const {
    if (p_.IsDirect(what)) return p_.Vectors(what, p_.RowsOf(what), client);
    return p_.Vectors(what, p_.StagedOf(what),
                      Kept(b_.memory.gradients[static_cast<size_t>(what)]));
  }

  // dh, staged in the work space.
  Result<HeadVectors> OutputGradient() {
    RowsOp op = {.name = "cudnnMultiHeadAttn, output's gradient",
                 .type = desc().type,
                 .from = p_.queries(),
                 .to = p_.StagedOf(Projected::kO),
                 .x = b_.dout,
                 .y = At(b_.work, b_.memory.staged),
                 .x_width = desc().OutputSize(),
                 .y_width = p_.StagedWidth(Projected::kO),
                 .padding = p_.PaddingOf(Projected::kO, b_.query_lengths),
                 .dropout_in = post_dropout_};
    if (const AttnWeight w = WeightOf(desc(), Projected::kO); w.is_there()) {
      op.w = WeightAt(w);
      op.w_strides = {1, w.strides[2]};
    }
    RETURN_IF_ERROR(RunRows(calls_, op));
    return p_.Vectors(Projected::kO, op.to, op.y);
  }

  // From the gradient of a projection to that of what was projected.
  Status Unproject(Projected what, void* client) {
    if (p_.IsDirect(what)) return {};
    RowsOp op = {.name = "cudnnMultiHeadAttn, input's gradient",
                 .type = desc().type,
                 .from = p_.StagedOf(what),
                 .to = p_.RowsOf(what),
                 .x = Kept(b_.memory.gradients[static_cast<size_t>(what)]),
                 .y = client,
                 .x_width = p_.StagedWidth(what),
                 .y_width = desc().Size(what)};
    if (const AttnWeight w = WeightOf(desc(), what); w.is_there()) {
      op.w = WeightAt(w);
      op.w_strides = {1, w.strides[2]};
    }
    return RunRows(calls_, op);
  }
};

class BackwardWeights : public Backward {
 public:
  using Backward::Backward;

  Status Run() {
    RETURN_IF_ERROR(TakeDropout());
    for (const Projected what : kInputs) RETURN_IF_ERROR(OfInput(what));
    return OfOutput();
  }

 private:
  Status OfInput(Projected what) {
    if (!desc().has(what)) return {};
    const void* const lengths =
        what == Projected::kQ ? Kept(b_.memory.query_lengths) : Kept(b_.memory.key_lengths);
    ASSIGN_OR_RETURN(const void* const x,
                     AsStaged(what, Input(what), desc().Size(what), lengths, {}));
    return Gradient(what, x, desc().Size(what),
                    Kept(b_.memory.gradients[static_cast<size_t>(what)]), p_.StagedWidth(what));
  }

  Status OfOutput() {
    if (!desc().has(Projected::kO)) return {};
    ASSIGN_OR_RETURN(const void* const dout,
                     AsStaged(Projected::kO, b_.dout, desc().OutputSize(),
                              Kept(b_.memory.query_lengths), post_dropout_));
    return Gradient(Projected::kO, Kept(b_.memory.training[3]), p_.StagedWidth(Projected::kO), dout,
                    desc().OutputSize());
  }

  // The client's rows in the order of staged ones, with 0 in padding: a copy where they are not so.
  Result<const void*> AsStaged(Projected what, const void* rows, int64_t width, const void* lengths,
                               const DropoutUse& dropout) {
    const Rows &from = p_.RowsOf(what), &to = p_.StagedOf(what);
    if (p_.all_full(what) && from.strides == to.strides && dropout.dropout == 0) return rows;
    const RowsOp op = {.name = "cudnnMultiHeadAttn, copy",
                       .type = desc().type,
                       .from = from,
                       .to = to,
                       .x = rows,
                       .y = At(b_.work, b_.memory.staged),
                       .x_width = width,
                       .y_width = width,
                       .padding = p_.PaddingOf(what, lengths),
                       .dropout_out = dropout};
    RETURN_IF_ERROR(RunRows(calls_, op));
    return op.y;
  }

  Status Gradient(Projected what, const void* x, int64_t x_width, const void* dy, int64_t y_width) {
    const auto place = [&](const AttnWeight& weight) -> void* {
      if (!weight.is_there()) return nullptr;
      return static_cast<char*>(b_.dweights) + weight.offset * element();
    };
    return RunWeightGradient(calls_, {.type = desc().type,
                                      .rows = p_.RowsOf(what).count(),
                                      .x_width = x_width,
                                      .y_width = y_width,
                                      .x = x,
                                      .dy = dy,
                                      .dw = place(WeightOf(desc(), what)),
                                      .db = place(BiasOf(desc(), what)),
                                      .adds = b_.adds});
  }
};

}  // namespace

Status RunBackwardData(AttnCalls& calls, const AttnBackward& b) {
  return BackwardData(calls, b).Run();
}
Status RunBackwardWeights(AttnCalls& calls, const AttnBackward& b) {
  return BackwardWeights(calls, b).Run();
}

Status MultiHeadAttnBackwardData(void* handle, void* object, const int* lo, const int* hi,
                                 const int* query_lengths, const int* key_lengths, void* do_desc,
                                 const void* dout, void* dq_desc, void* dqueries,
                                 const void* queries, void* dk_desc, void* dkeys, const void* keys,
                                 void* dv_desc, void* dvalues, const void* values,
                                 size_t weight_bytes, const void* weights, size_t work_bytes,
                                 void* work, size_t reserve_bytes, void* reserve) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const AttnDesc* desc, Get<AttnDesc>(object));
  AttnSequences s;
  ASSIGN_OR_RETURN(s.o, SeqDataFrom(do_desc));
  ASSIGN_OR_RETURN(s.q, SeqDataFrom(dq_desc));
  ASSIGN_OR_RETURN(s.k, SeqDataFrom(dk_desc));
  ASSIGN_OR_RETURN(s.v, SeqDataFrom(dv_desc));
  ASSIGN_OR_RETURN(const AttnProblem problem, AttnProblem::Of(*desc, s, -1));
  ASSIGN_OR_RETURN(const AttnMemory memory, AttnMemory::Of(*desc));
  RETURN_IF_ERROR(CheckWeights(*desc, weights, weight_bytes));
  RETURN_IF_ERROR(CheckWork(memory, work, work_bytes));
  RETURN_IF_ERROR(CheckReserve(memory, reserve, reserve_bytes));
  AttnCalls calls(*h, ScratchBehind(memory, work, work_bytes), desc->math == CUDNN_FMA_MATH);
  return RunBackwardData(calls, {.problem = problem,
                                 .memory = memory,
                                 .lo = lo,
                                 .hi = hi,
                                 .query_lengths = query_lengths,
                                 .key_lengths = key_lengths,
                                 .dout = dout,
                                 .queries = queries,
                                 .keys = keys,
                                 .values = values,
                                 .dqueries = dqueries,
                                 .dkeys = dkeys,
                                 .dvalues = dvalues,
                                 .weights = weights,
                                 .dweights = nullptr,
                                 .adds = false,
                                 .work = work,
                                 .reserve = reserve});
}

Status MultiHeadAttnBackwardWeights(void* handle, void* object, int mode, void* q_desc,
                                    const void* queries, void* k_desc, const void* keys,
                                    void* v_desc, const void* values, void* do_desc,
                                    const void* dout, size_t weight_bytes, const void* weights,
                                    void* dweights, size_t work_bytes, void* work,
                                    size_t reserve_bytes, void* reserve) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const AttnDesc* desc, Get<AttnDesc>(object));
  AttnSequences s;
  ASSIGN_OR_RETURN(s.q, SeqDataFrom(q_desc));
  ASSIGN_OR_RETURN(s.k, SeqDataFrom(k_desc));
  ASSIGN_OR_RETURN(s.v, SeqDataFrom(v_desc));
  ASSIGN_OR_RETURN(s.o, SeqDataFrom(do_desc));
  RETURN_IF_ERROR(CheckEnum(mode, CUDNN_WGRAD_MODE_SET, "cudnnWgradMode_t"));
  ASSIGN_OR_RETURN(const AttnProblem problem, AttnProblem::Of(*desc, s, -1));
  ASSIGN_OR_RETURN(const AttnMemory memory, AttnMemory::Of(*desc));
  RETURN_IF_ERROR(CheckWeights(*desc, weights, weight_bytes));
  RETURN_IF_ERROR(CheckWeights(*desc, dweights, weight_bytes));
  RETURN_IF_ERROR(CheckWork(memory, work, work_bytes));
  RETURN_IF_ERROR(CheckReserve(memory, reserve, reserve_bytes));
  AttnCalls calls(*h, ScratchBehind(memory, work, work_bytes), desc->math == CUDNN_FMA_MATH);
  return RunBackwardWeights(calls, {.problem = problem,
                                    .memory = memory,
                                    .lo = nullptr,
                                    .hi = nullptr,
                                    .query_lengths = nullptr,
                                    .key_lengths = nullptr,
                                    .dout = dout,
                                    .queries = queries,
                                    .keys = keys,
                                    .values = values,
                                    .dqueries = nullptr,
                                    .dkeys = nullptr,
                                    .dvalues = nullptr,
                                    .weights = weights,
                                    .dweights = dweights,
                                    .adds = mode == CUDNN_WGRAD_MODE_ADD,
                                    .work = work,
                                    .reserve = reserve});
}

}  // namespace kiln::api::legacy
