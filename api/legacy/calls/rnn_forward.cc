// cudnnRNNForward, and what the forms of 8 share with it. Reference 7.2.36.
#include "api/legacy/calls/rnn_call.h"
#include "api/legacy/functions.h"
#include "ir/graph/ops.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;

Status CheckDropout(const RnnProblem& problem) {
  if (problem.dropout == nullptr || problem.dropout->states != nullptr) return {};
  return Status::Error(Code::kBadParam, "dropout of {} between layers, and no states",
                       problem.dropout->dropout);
}

}  // namespace

Status RnnForward(Handle& handle, const RnnForwardArgs& a) {
  ASSIGN_OR_RETURN(RnnProblem p, RnnProblem::Make(*a.rnn, a.trains, *a.x_desc, *a.y_desc));
  const bool has_cells = p.attrs.cell == graph::RnnCell::kLstm;
  RETURN_IF_ERROR(NotNull(a.x, "x"));
  RETURN_IF_ERROR(NotNull(a.y, "y"));
  RETURN_IF_ERROR(CheckState(a.hx, p.hidden, "hx"));
  RETURN_IF_ERROR(CheckState(a.hy, p.hidden, "hy"));
  if (has_cells) {
    RETURN_IF_ERROR(CheckState(a.cx, p.cell, "cx"));
    RETURN_IF_ERROR(CheckState(a.cy, p.cell, "cy"));
  }
  RETURN_IF_ERROR(CheckWeights(p, a.weights, a.weight_bytes));
  if (a.trains) RETURN_IF_ERROR(CheckReserve(p, a.reserve));
  RETURN_IF_ERROR(CheckDropout(p));
  ASSIGN_OR_RETURN(const RnnSizes sizes, RnnSizesOf(handle, *a.rnn, a.trains, *a.x_desc));
  ASSIGN_OR_RETURN(const Workspace workspace,
                   PrepareWork(handle, p, *a.x_desc, a.work, sizes.work));
  p.attrs.padding = a.y_desc->FillValue();
  const bool drops = p.dropout != nullptr;
  auto* const states = static_cast<int64_t*>(drops ? p.dropout->states : nullptr);
  const TensorDesc word = DropoutWordOf(1);
  RnnCall call(handle, "cudnnRNNForward", p, GraphOp::kRnnForward);
  call.In(p.x, a.x);
  call.In(p.weights, a.weights);
  call.In(p.hidden, a.hx.data, a.hx.data != nullptr);
  call.In(p.cell, a.cx.data, has_cells && a.cx.data != nullptr);
  call.In(p.lengths, a.work.data, p.has_lengths);
  call.In(word, states, drops);
  call.In(word, states + (drops ? 1 : 0), drops);
  call.Out(p.y, a.y);
  call.Out(p.hidden, a.hy.data, a.hy.data != nullptr);
  call.Out(p.cell, a.cy.data, has_cells && a.cy.data != nullptr);
  call.Out(p.reserve, a.reserve.data, a.trains);
  RETURN_IF_ERROR(call.Run(workspace, a.seconds));
  return drops ? AdvanceDropoutState(handle, *p.dropout, 1) : Status();
}

Status RNNForward(void* handle, void* rnn, int mode, const int32_t*, void* x_desc, const void* x,
                  void* y_desc, void* y, void* h_desc, const void* hx, void* hy, void* c_desc,
                  const void* cx, void* cy, size_t weight_bytes, const void* weights,
                  size_t work_bytes, void* work, size_t reserve_bytes, void* reserve) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const RnnDesc* desc, Get<RnnDesc>(rnn));
  RETURN_IF_ERROR(CheckSet(*desc));
  RETURN_IF_ERROR(CheckSetByV8(*desc));
  RETURN_IF_ERROR(CheckEnum(mode, CUDNN_FWD_MODE_TRAINING, "cudnnForwardMode_t"));
  RnnForwardArgs args = {.rnn = desc, .trains = mode == CUDNN_FWD_MODE_TRAINING};
  ASSIGN_OR_RETURN(args.x_desc, RnnDataFrom(x_desc, "xDesc"));
  ASSIGN_OR_RETURN(args.y_desc, RnnDataFrom(y_desc, "yDesc"));
  const bool has_cells = desc->cell == CUDNN_LSTM;
  ASSIGN_OR_RETURN(const TensorDesc* const hidden,
                   StateDesc(h_desc, hx != nullptr || hy != nullptr));
  ASSIGN_OR_RETURN(const TensorDesc* const cell,
                   StateDesc(c_desc, has_cells && (cx != nullptr || cy != nullptr)));
  args.x = x;
  args.y = y;
  args.hx = {hidden, hx};
  args.hy = {hidden, hy};
  args.cx = {cell, cx};
  args.cy = {cell, cy};
  args.weights = weights;
  args.weight_bytes = weight_bytes;
  args.work = {work, work_bytes};
  args.reserve = {reserve, reserve_bytes};
  return RnnForward(*h, args);
}

}  // namespace kiln::api::legacy
