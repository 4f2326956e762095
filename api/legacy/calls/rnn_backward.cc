// cudnnRNNBackwardData_v8 and cudnnRNNBackwardWeights_v8, and what the forms of 8 share with them.
// Reference 8.2.18 and 8.2.21.
#include "api/legacy/calls/rnn_call.h"
#include "api/legacy/functions.h"
#include "ir/graph/ops.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;

void* GradientsIn(const RnnProblem& problem, const RnnSpace& reserve) {
  return static_cast<std::byte*>(reserve.data) + problem.GradientOffset();
}

Result<const RnnDesc*> NetworkOf(void* rnn) {
  ASSIGN_OR_RETURN(const RnnDesc* desc, Get<RnnDesc>(rnn));
  RETURN_IF_ERROR(CheckSet(*desc));
  RETURN_IF_ERROR(CheckSetByV8(*desc));
  return desc;
}

}  // namespace

Status RnnBackwardData(Handle& handle, const RnnBackwardDataArgs& a) {
  ASSIGN_OR_RETURN(RnnProblem p, RnnProblem::Make(*a.rnn, true, *a.x_desc, *a.y_desc));
  const bool has_cells = p.attrs.cell == graph::RnnCell::kLstm;
  RETURN_IF_ERROR(NotNull(a.y, "y"));
  RETURN_IF_ERROR(NotNull(a.dy, "dy"));
  RETURN_IF_ERROR(NotNull(a.dx, "dx"));
  RETURN_IF_ERROR(CheckState(a.hx, p.hidden, "hx"));
  RETURN_IF_ERROR(CheckState(a.dhy, p.hidden, "dhy"));
  RETURN_IF_ERROR(CheckState(a.dhx, p.hidden, "dhx"));
  if (has_cells) {
    RETURN_IF_ERROR(CheckState(a.cx, p.cell, "cx"));
    RETURN_IF_ERROR(CheckState(a.dcy, p.cell, "dcy"));
    RETURN_IF_ERROR(CheckState(a.dcx, p.cell, "dcx"));
  }
  RETURN_IF_ERROR(CheckWeights(p, a.weights, a.weight_bytes));
  RETURN_IF_ERROR(CheckReserve(p, a.reserve));
  ASSIGN_OR_RETURN(const RnnSizes sizes, RnnSizesOf(handle, *a.rnn, true, *a.x_desc));
  ASSIGN_OR_RETURN(const Workspace workspace,
                   PrepareWork(handle, p, *a.x_desc, a.work, sizes.work));
  p.attrs.padding = a.x_desc->FillValue();
  RnnCall call(handle, "cudnnRNNBackwardData", p, GraphOp::kRnnBackwardData);
  call.In(p.y, a.y);
  call.In(p.y, a.dy);
  call.In(p.weights, a.weights);
  call.In(p.reserve, a.reserve.data);
  call.In(p.hidden, a.hx.data, a.hx.data != nullptr);
  call.In(p.cell, a.cx.data, has_cells && a.cx.data != nullptr);
  call.In(p.hidden, a.dhy.data, a.dhy.data != nullptr);
  call.In(p.cell, a.dcy.data, has_cells && a.dcy.data != nullptr);
  call.In(p.lengths, a.work.data, p.has_lengths);
  call.Out(p.x, a.dx);
  call.Out(p.gradients, GradientsIn(p, a.reserve));
  call.Out(p.hidden, a.dhx.data, a.dhx.data != nullptr);
  call.Out(p.cell, a.dcx.data, has_cells && a.dcx.data != nullptr);
  return call.Run(workspace, a.seconds);
}

Status RnnBackwardWeights(Handle& handle, const RnnBackwardWeightsArgs& a) {
  ASSIGN_OR_RETURN(const RnnProblem p, RnnProblem::Make(*a.rnn, true, *a.x_desc, *a.y_desc));
  RETURN_IF_ERROR(NotNull(a.x, "x"));
  RETURN_IF_ERROR(NotNull(a.y, "y"));
  RETURN_IF_ERROR(CheckState(a.hx, p.hidden, "hx"));
  RETURN_IF_ERROR(CheckWeights(p, a.weights, a.weight_bytes));
  RETURN_IF_ERROR(CheckReserve(p, a.reserve));
  ASSIGN_OR_RETURN(const RnnSizes sizes, RnnSizesOf(handle, *a.rnn, true, *a.x_desc));
  ASSIGN_OR_RETURN(const Workspace workspace,
                   PrepareWork(handle, p, *a.x_desc, a.work, sizes.work));
  RnnCall call(handle, "cudnnRNNBackwardWeights", p, GraphOp::kRnnBackwardWeights);
  call.In(p.x, a.x);
  call.In(p.y, a.y);
  call.In(p.reserve, a.reserve.data);
  call.In(p.gradients, GradientsIn(p, a.reserve));
  call.In(p.hidden, a.hx.data, a.hx.data != nullptr);
  call.In(p.lengths, a.work.data, p.has_lengths);
  call.In(p.weights, a.weights, a.adds);
  call.Out(p.weights, a.weights);
  return call.Run(workspace, a.seconds);
}

Status RNNBackwardData_v8(void* handle, void* rnn, const int32_t*, void* y_desc, const void* y,
                          const void* dy, void* x_desc, void* dx, void* h_desc, const void* hx,
                          const void* dhy, void* dhx, void* c_desc, const void* cx, const void* dcy,
                          void* dcx, size_t weight_bytes, const void* weights, size_t work_bytes,
                          void* work, size_t reserve_bytes, void* reserve) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  RnnBackwardDataArgs args;
  ASSIGN_OR_RETURN(args.rnn, NetworkOf(rnn));
  ASSIGN_OR_RETURN(args.x_desc, RnnDataFrom(x_desc, "xDesc"));
  ASSIGN_OR_RETURN(args.y_desc, RnnDataFrom(y_desc, "yDesc"));
  const bool has_cells = args.rnn->cell == CUDNN_LSTM;
  ASSIGN_OR_RETURN(const TensorDesc* const hidden,
                   StateDesc(h_desc, hx != nullptr || dhy != nullptr || dhx != nullptr));
  ASSIGN_OR_RETURN(
      const TensorDesc* const cell,
      StateDesc(c_desc, has_cells && (cx != nullptr || dcy != nullptr || dcx != nullptr)));
  args.y = y;
  args.dy = dy;
  args.dx = dx;
  args.hx = {hidden, hx};
  args.dhy = {hidden, dhy};
  args.dhx = {hidden, dhx};
  args.cx = {cell, cx};
  args.dcy = {cell, dcy};
  args.dcx = {cell, dcx};
  args.weights = weights;
  args.weight_bytes = weight_bytes;
  args.work = {work, work_bytes};
  args.reserve = {reserve, reserve_bytes};
  return RnnBackwardData(*h, args);
}

Status RNNBackwardWeights_v8(void* handle, void* rnn, int mode, const int32_t*, void* x_desc,
                             const void* x, void* h_desc, const void* hx, void* y_desc,
                             const void* y, size_t weight_bytes, void* weights, size_t work_bytes,
                             void* work, size_t reserve_bytes, void* reserve) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  RnnBackwardWeightsArgs args;
  ASSIGN_OR_RETURN(args.rnn, NetworkOf(rnn));
  RETURN_IF_ERROR(CheckEnum(mode, CUDNN_WGRAD_MODE_SET, "cudnnWgradMode_t"));
  ASSIGN_OR_RETURN(args.x_desc, RnnDataFrom(x_desc, "xDesc"));
  ASSIGN_OR_RETURN(args.y_desc, RnnDataFrom(y_desc, "yDesc"));
  ASSIGN_OR_RETURN(const TensorDesc* const hidden, StateDesc(h_desc, hx != nullptr));
  args.adds = mode == CUDNN_WGRAD_MODE_ADD;
  args.x = x;
  args.y = y;
  args.hx = {hidden, hx};
  args.weights = weights;
  args.weight_bytes = weight_bytes;
  args.work = {work, work_bytes};
  args.reserve = {reserve, reserve_bytes};
  return RnnBackwardWeights(*h, args);
}

}  // namespace kiln::api::legacy
