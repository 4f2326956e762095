// Reference 7.2.37, 7.2.38, 8.2.17, 8.2.19, 8.2.20 and 8.2.22 to 8.2.24.
#include "api/legacy/calls/rnn_v6.h"

#include <algorithm>

#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace {

// The Ex forms have arguments for attention that nothing came of.
Status CheckReserved(std::initializer_list<const void*> arguments) {
  if (std::ranges::all_of(arguments, [](const void* p) { return p == nullptr; })) return {};
  return Status::Text(Code::kNotSupported,
                      "an argument that is reserved for attention is not NULL");
}

// A gradient is described beside what it is the gradient of; fill values may differ.
Status CheckGradient(const RnnDataDesc& dy, const RnnDataDesc& y) {
  if (dy.type != y.type || dy.layout != y.layout || dy.width != y.width)
    return Status::Error(
        Code::kBadParam,
        "dy has type {}, layout {} and width {}, y type {}, layout {} and width {}", dy.type,
        dy.layout, dy.width, y.type, y.layout, y.width);
  if (dy.steps == y.steps && dy.lengths == y.lengths) return {};
  return Status::Error(Code::kBadParam,
                       "dy has {} sequences of up to {} steps, y {} of up to {}, or their lengths "
                       "differ",
                       dy.batch, dy.steps, y.batch, y.steps);
}

// BytesOfWeights of a filter descriptor of the network's type.
Result<size_t> WeightBytes(const RnnDesc& network, void* filter_desc) {
  ASSIGN_OR_RETURN(const FilterDesc* const filter, Get<FilterDesc>(filter_desc));
  if (filter->type == network.type) return BytesOfWeights(filter_desc);
  return Status::Error(Code::kBadParam, "the weights have type {}, the network {}", filter->type,
                       network.type);
}

struct ExForward {
  void *x_desc, *hx_desc, *cx_desc, *w_desc, *y_desc, *hy_desc, *cy_desc;
  const void *x, *hx, *cx, *w;
  void *y, *hy, *cy;
};

Status ForwardEx(void* handle, void* rnn, bool trains, const ExForward& a, RnnSpace work,
                 RnnSpace reserve) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  RnnForwardArgs args = {.trains = trains};
  ASSIGN_OR_RETURN(args.x_desc, RnnDataFrom(a.x_desc, "xDesc"));
  ASSIGN_OR_RETURN(args.y_desc, RnnDataFrom(a.y_desc, "yDesc"));
  ASSIGN_OR_RETURN(const RnnDesc desc, NetworkOnData(rnn, *args.x_desc));
  args.rnn = &desc;
  args.x = a.x;
  args.y = a.y;
  ASSIGN_OR_RETURN(args.hx, StateOf(a.hx_desc, a.hx));
  ASSIGN_OR_RETURN(args.hy, StateOf(a.hy_desc, a.hy));
  if (desc.cell == CUDNN_LSTM) {
    ASSIGN_OR_RETURN(args.cx, StateOf(a.cx_desc, a.cx));
    ASSIGN_OR_RETURN(args.cy, StateOf(a.cy_desc, a.cy));
  }
  args.weights = a.w;
  ASSIGN_OR_RETURN(args.weight_bytes, WeightBytes(desc, a.w_desc));
  args.work = work;
  args.reserve = reserve;
  return RnnForward(*h, args);
}

Status ForwardV6(void* handle, void* rnn, bool trains, int steps, V6Data x, V6State hx, V6State cx,
                 V6State w, V6Data y, V6State hy, V6State cy, RnnSpace work, RnnSpace reserve) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  V6Forward call;
  RETURN_IF_ERROR(FillForward(call, rnn, trains, steps, x, hx, cx, w, y, hy, cy, work, reserve));
  return RnnForward(*h, call.args);
}

}  // namespace

Result<RnnDataDesc> DataOfSteps(int steps, void* const* descs, std::string_view name) {
  RETURN_IF_ERROR(NotNull(descs, name));
  if (steps <= 0) return Status::Error(Code::kBadParam, "seqLength is {}", steps);
  ASSIGN_OR_RETURN(const TensorDesc* const first, Get<TensorDesc>(descs[0]));
  std::vector<int32_t> lengths;
  for (int t = 0; t < steps; ++t) {
    ASSIGN_OR_RETURN(const TensorDesc* const step, Get<TensorDesc>(descs[t]));
    const bool is_packed = step->rank == 3 && step->dims[2] == 1 && step->strides[1] == 1 &&
                           step->strides[2] == 1 && step->strides[0] == step->dims[1];
    if (!is_packed)
      return Status::Error(Code::kBadParam,
                           "{} of step {} is {}; a packed one of batch, width and 1 is needed",
                           name, t, Text(*step));
    if (step->type != first->type || step->dims[1] != first->dims[1])
      return Status::Error(Code::kBadParam, "{} of step {} is {}, that of step 0 {}", name, t,
                           Text(*step), Text(*first));
    const auto rows = static_cast<size_t>(step->dims[0]);
    if (t == 0) lengths.resize(rows);
    if (rows > lengths.size() || (t > 0 && lengths[rows - 1] != t))
      return Status::Error(Code::kBadParam, "{} of step {} has more sequences than the step before",
                           name, t);
    std::fill_n(lengths.begin(), rows, t + 1);
  }
  RnnDataDesc data;
  RETURN_IF_ERROR(SetRnnData(data, first->type, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, steps,
                             first->dims[0], first->dims[1], lengths.data(), nullptr));
  return data;
}

Result<RnnDesc> NetworkOnData(void* rnn, const RnnDataDesc& x) {
  ASSIGN_OR_RETURN(const RnnDesc* const desc, Get<RnnDesc>(rnn));
  RETURN_IF_ERROR(CheckSet(*desc));
  RnnDesc network = *desc;
  if (network.set_by == RnnDesc::kV6) {
    network.input = x.width;
    network.type = x.type;
  }
  return network;
}

Result<RnnState> StateOf(void* desc, const void* data) {
  ASSIGN_OR_RETURN(const TensorDesc* const tensor, StateDesc(desc, data != nullptr));
  return RnnState{.desc = tensor, .data = data};
}

Result<size_t> BytesOfWeights(void* filter_desc) {
  RETURN_IF_ERROR(Get<FilterDesc>(filter_desc).status());
  size_t bytes = 0;
  RETURN_IF_ERROR(GetFilterSizeInBytes(filter_desc, &bytes));
  return bytes;
}

Status FillForward(V6Forward& out, void* rnn, bool trains, int steps, V6Data x, V6State hx,
                   V6State cx, V6State w, V6Data y, V6State hy, V6State cy, RnnSpace work,
                   RnnSpace reserve) {
  ASSIGN_OR_RETURN(out.x, DataOfSteps(steps, x.descs, "xDesc"));
  ASSIGN_OR_RETURN(out.y, DataOfSteps(steps, y.descs, "yDesc"));
  ASSIGN_OR_RETURN(out.rnn, NetworkOnData(rnn, out.x));
  RnnForwardArgs& args = out.args;
  args = {.rnn = &out.rnn, .trains = trains, .x_desc = &out.x, .y_desc = &out.y, .x = x.data};
  args.y = const_cast<void*>(y.data);
  ASSIGN_OR_RETURN(args.hx, StateOf(hx.desc, hx.data));
  ASSIGN_OR_RETURN(args.hy, StateOf(hy.desc, hy.data));
  if (out.rnn.cell == CUDNN_LSTM) {
    ASSIGN_OR_RETURN(args.cx, StateOf(cx.desc, cx.data));
    ASSIGN_OR_RETURN(args.cy, StateOf(cy.desc, cy.data));
  }
  args.weights = w.data;
  ASSIGN_OR_RETURN(args.weight_bytes, WeightBytes(out.rnn, w.desc));
  args.work = work;
  args.reserve = reserve;
  return {};
}

Status FillBackwardData(V6BackwardData& out, void* rnn, int steps, V6Data y, V6Data dy, V6State dhy,
                        V6State dcy, V6State w, V6State hx, V6State cx, V6Data dx, V6State dhx,
                        V6State dcx, RnnSpace work, RnnSpace reserve) {
  ASSIGN_OR_RETURN(out.x, DataOfSteps(steps, dx.descs, "dxDesc"));
  ASSIGN_OR_RETURN(out.y, DataOfSteps(steps, y.descs, "yDesc"));
  ASSIGN_OR_RETURN(const RnnDataDesc gradient, DataOfSteps(steps, dy.descs, "dyDesc"));
  RETURN_IF_ERROR(CheckGradient(gradient, out.y));
  ASSIGN_OR_RETURN(out.rnn, NetworkOnData(rnn, out.x));
  RnnBackwardDataArgs& args = out.args;
  args = {.rnn = &out.rnn, .x_desc = &out.x, .y_desc = &out.y, .y = y.data, .dy = dy.data};
  args.dx = const_cast<void*>(dx.data);
  ASSIGN_OR_RETURN(args.hx, StateOf(hx.desc, hx.data));
  ASSIGN_OR_RETURN(args.dhy, StateOf(dhy.desc, dhy.data));
  ASSIGN_OR_RETURN(args.dhx, StateOf(dhx.desc, dhx.data));
  if (out.rnn.cell == CUDNN_LSTM) {
    ASSIGN_OR_RETURN(args.cx, StateOf(cx.desc, cx.data));
    ASSIGN_OR_RETURN(args.dcy, StateOf(dcy.desc, dcy.data));
    ASSIGN_OR_RETURN(args.dcx, StateOf(dcx.desc, dcx.data));
  }
  args.weights = w.data;
  ASSIGN_OR_RETURN(args.weight_bytes, WeightBytes(out.rnn, w.desc));
  args.work = work;
  args.reserve = reserve;
  return {};
}

Status FillBackwardWeights(V6BackwardWeights& out, void* rnn, int steps, V6Data x, V6State hx,
                           V6Data y, V6State dw, RnnSpace work, RnnSpace reserve) {
  ASSIGN_OR_RETURN(out.x, DataOfSteps(steps, x.descs, "xDesc"));
  ASSIGN_OR_RETURN(out.y, DataOfSteps(steps, y.descs, "yDesc"));
  ASSIGN_OR_RETURN(out.rnn, NetworkOnData(rnn, out.x));
  RnnBackwardWeightsArgs& args = out.args;
  args = {.rnn = &out.rnn, .x_desc = &out.x, .y_desc = &out.y, .x = x.data, .y = y.data};
  ASSIGN_OR_RETURN(args.hx, StateOf(hx.desc, hx.data));
  args.weights = const_cast<void*>(dw.data);
  ASSIGN_OR_RETURN(args.weight_bytes, WeightBytes(out.rnn, dw.desc));
  args.work = work;
  args.reserve = reserve;
  return {};
}

// ---- a descriptor for each step ----

Status RNNForwardInference(void* handle, void* rnn, int steps, void* const* x_desc, const void* x,
                           void* hx_desc, const void* hx, void* cx_desc, const void* cx,
                           void* w_desc, const void* w, void* const* y_desc, void* y, void* hy_desc,
                           void* hy, void* cy_desc, void* cy, void* work, size_t work_bytes) {
  return ForwardV6(handle, rnn, false, steps, {x_desc, x}, {hx_desc, hx}, {cx_desc, cx},
                   {w_desc, w}, {y_desc, y}, {hy_desc, hy}, {cy_desc, cy}, {work, work_bytes}, {});
}

Status RNNForwardTraining(void* handle, void* rnn, int steps, void* const* x_desc, const void* x,
                          void* hx_desc, const void* hx, void* cx_desc, const void* cx,
                          void* w_desc, const void* w, void* const* y_desc, void* y, void* hy_desc,
                          void* hy, void* cy_desc, void* cy, void* work, size_t work_bytes,
                          void* reserve, size_t reserve_bytes) {
  return ForwardV6(handle, rnn, true, steps, {x_desc, x}, {hx_desc, hx}, {cx_desc, cx}, {w_desc, w},
                   {y_desc, y}, {hy_desc, hy}, {cy_desc, cy}, {work, work_bytes},
                   {reserve, reserve_bytes});
}

Status RNNBackwardData(void* handle, void* rnn, int steps, void* const* y_desc, const void* y,
                       void* const* dy_desc, const void* dy, void* dhy_desc, const void* dhy,
                       void* dcy_desc, const void* dcy, void* w_desc, const void* w, void* hx_desc,
                       const void* hx, void* cx_desc, const void* cx, void* const* dx_desc,
                       void* dx, void* dhx_desc, void* dhx, void* dcx_desc, void* dcx, void* work,
                       size_t work_bytes, void* reserve, size_t reserve_bytes) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  V6BackwardData call;
  RETURN_IF_ERROR(FillBackwardData(call, rnn, steps, {y_desc, y}, {dy_desc, dy}, {dhy_desc, dhy},
                                   {dcy_desc, dcy}, {w_desc, w}, {hx_desc, hx}, {cx_desc, cx},
                                   {dx_desc, dx}, {dhx_desc, dhx}, {dcx_desc, dcx},
                                   {work, work_bytes}, {reserve, reserve_bytes}));
  return RnnBackwardData(*h, call.args);
}

// The work space is const there, and is written as in all other calls.
Status RNNBackwardWeights(void* handle, void* rnn, int steps, void* const* x_desc, const void* x,
                          void* hx_desc, const void* hx, void* const* y_desc, const void* y,
                          const void* work, size_t work_bytes, void* dw_desc, void* dw,
                          const void* reserve, size_t reserve_bytes) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  V6BackwardWeights call;
  RETURN_IF_ERROR(FillBackwardWeights(call, rnn, steps, {x_desc, x}, {hx_desc, hx}, {y_desc, y},
                                      {dw_desc, dw}, {const_cast<void*>(work), work_bytes},
                                      {const_cast<void*>(reserve), reserve_bytes}));
  return RnnBackwardWeights(*h, call.args);
}

// ---- RNN data descriptors ----

Status RNNForwardInferenceEx(void* handle, void* rnn, void* x_desc, const void* x, void* hx_desc,
                             const void* hx, void* cx_desc, const void* cx, void* w_desc,
                             const void* w, void* y_desc, void* y, void* hy_desc, void* hy,
                             void* cy_desc, void* cy, void* k_desc, const void* keys, void* c_desc,
                             void* c_attn, void* i_desc, void* i_attn, void* q_desc, void* queries,
                             void* work, size_t work_bytes) {
  RETURN_IF_ERROR(CheckReserved({k_desc, keys, c_desc, c_attn, i_desc, i_attn, q_desc, queries}));
  return ForwardEx(
      handle, rnn, false,
      {x_desc, hx_desc, cx_desc, w_desc, y_desc, hy_desc, cy_desc, x, hx, cx, w, y, hy, cy},
      {work, work_bytes}, {});
}

Status RNNForwardTrainingEx(void* handle, void* rnn, void* x_desc, const void* x, void* hx_desc,
                            const void* hx, void* cx_desc, const void* cx, void* w_desc,
                            const void* w, void* y_desc, void* y, void* hy_desc, void* hy,
                            void* cy_desc, void* cy, void* k_desc, const void* keys, void* c_desc,
                            void* c_attn, void* i_desc, void* i_attn, void* q_desc, void* queries,
                            void* work, size_t work_bytes, void* reserve, size_t reserve_bytes) {
  RETURN_IF_ERROR(CheckReserved({k_desc, keys, c_desc, c_attn, i_desc, i_attn, q_desc, queries}));
  return ForwardEx(
      handle, rnn, true,
      {x_desc, hx_desc, cx_desc, w_desc, y_desc, hy_desc, cy_desc, x, hx, cx, w, y, hy, cy},
      {work, work_bytes}, {reserve, reserve_bytes});
}

Status RNNBackwardDataEx(void* handle, void* rnn, void* y_desc, const void* y, void* dy_desc,
                         const void* dy, void* dc_desc, const void* dc_attn, void* dhy_desc,
                         const void* dhy, void* dcy_desc, const void* dcy, void* w_desc,
                         const void* w, void* hx_desc, const void* hx, void* cx_desc,
                         const void* cx, void* dx_desc, void* dx, void* dhx_desc, void* dhx,
                         void* dcx_desc, void* dcx, void* dk_desc, void* dkeys, void* work,
                         size_t work_bytes, void* reserve, size_t reserve_bytes) {
  RETURN_IF_ERROR(CheckReserved({dc_desc, dc_attn, dk_desc, dkeys}));
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  RnnBackwardDataArgs args = {.y = y, .dy = dy, .dx = dx};
  ASSIGN_OR_RETURN(args.x_desc, RnnDataFrom(dx_desc, "dxDesc"));
  ASSIGN_OR_RETURN(args.y_desc, RnnDataFrom(y_desc, "yDesc"));
  ASSIGN_OR_RETURN(const RnnDataDesc* const gradient, RnnDataFrom(dy_desc, "dyDesc"));
  RETURN_IF_ERROR(CheckGradient(*gradient, *args.y_desc));
  ASSIGN_OR_RETURN(const RnnDesc desc, NetworkOnData(rnn, *args.x_desc));
  args.rnn = &desc;
  ASSIGN_OR_RETURN(args.hx, StateOf(hx_desc, hx));
  ASSIGN_OR_RETURN(args.dhy, StateOf(dhy_desc, dhy));
  ASSIGN_OR_RETURN(args.dhx, StateOf(dhx_desc, dhx));
  if (desc.cell == CUDNN_LSTM) {
    ASSIGN_OR_RETURN(args.cx, StateOf(cx_desc, cx));
    ASSIGN_OR_RETURN(args.dcy, StateOf(dcy_desc, dcy));
    ASSIGN_OR_RETURN(args.dcx, StateOf(dcx_desc, dcx));
  }
  args.weights = w;
  ASSIGN_OR_RETURN(args.weight_bytes, WeightBytes(desc, w_desc));
  args.work = {work, work_bytes};
  args.reserve = {reserve, reserve_bytes};
  return RnnBackwardData(*h, args);
}

Status RNNBackwardWeightsEx(void* handle, void* rnn, void* x_desc, const void* x, void* hx_desc,
                            const void* hx, void* y_desc, const void* y, void* work,
                            size_t work_bytes, void* dw_desc, void* dw, void* reserve,
                            size_t reserve_bytes) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  RnnBackwardWeightsArgs args = {.x = x, .y = y};
  ASSIGN_OR_RETURN(args.x_desc, RnnDataFrom(x_desc, "xDesc"));
  ASSIGN_OR_RETURN(args.y_desc, RnnDataFrom(y_desc, "yDesc"));
  ASSIGN_OR_RETURN(const RnnDesc desc, NetworkOnData(rnn, *args.x_desc));
  args.rnn = &desc;
  ASSIGN_OR_RETURN(args.hx, StateOf(hx_desc, hx));
  args.weights = dw;
  ASSIGN_OR_RETURN(args.weight_bytes, WeightBytes(desc, dw_desc));
  args.work = {work, work_bytes};
  args.reserve = {reserve, reserve_bytes};
  return RnnBackwardWeights(*h, args);
}

}  // namespace kiln::api::legacy
