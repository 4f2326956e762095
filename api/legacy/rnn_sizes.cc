// Sizes of the work and reserve space of recurrent networks. Reference 7.2.30, 7.2.33 and 8.2.14.
//
// They hold for sequences of all lengths up to the longest: clients ask once, with whole ones.
#include <algorithm>

#include "api/legacy/functions.h"
#include "api/legacy/rnn_call.h"
#include "api/legacy/rnn_v6.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;

// The pointers of a call that is yet to come are taken for aligned.
Result<int64_t> ForwardBytes(Handle& handle, const RnnProblem& p, bool trains) {
  RnnCall call(handle, "size of cudnnRNNForward", p, GraphOp::kRnnForward);
  const bool has_cells = p.attrs.cell == graph::RnnCell::kLstm, drops = p.dropout != nullptr;
  const TensorDesc word = WordOf(1);
  call.In(p.x, nullptr);
  call.In(p.weights, nullptr);
  call.In(p.hidden, nullptr);
  call.In(p.cell, nullptr, has_cells);
  call.In(p.lengths, nullptr, p.has_lengths);
  call.In(word, nullptr, drops);
  call.In(word, nullptr, drops);
  call.Out(p.y, nullptr);
  call.Out(p.hidden, nullptr);
  call.Out(p.cell, nullptr, has_cells);
  call.Out(p.reserve, nullptr, trains);
  return call.WorkspaceBytes();
}

Result<int64_t> DataBytes(Handle& handle, const RnnProblem& p) {
  RnnCall call(handle, "size of cudnnRNNBackwardData", p, GraphOp::kRnnBackwardData);
  const bool has_cells = p.attrs.cell == graph::RnnCell::kLstm;
  call.In(p.y, nullptr);
  call.In(p.y, nullptr);
  call.In(p.weights, nullptr);
  call.In(p.reserve, nullptr);
  call.In(p.hidden, nullptr);
  call.In(p.cell, nullptr, has_cells);
  call.In(p.hidden, nullptr);
  call.In(p.cell, nullptr, has_cells);
  call.In(p.lengths, nullptr, p.has_lengths);
  call.Out(p.x, nullptr);
  call.Out(p.gradients, nullptr);
  call.Out(p.hidden, nullptr);
  call.Out(p.cell, nullptr, has_cells);
  return call.WorkspaceBytes();
}

Result<int64_t> WeightBytes(Handle& handle, const RnnProblem& p) {
  RnnCall call(handle, "size of cudnnRNNBackwardWeights", p, GraphOp::kRnnBackwardWeights);
  call.In(p.x, nullptr);
  call.In(p.y, nullptr);
  call.In(p.reserve, nullptr);
  call.In(p.gradients, nullptr);
  call.In(p.hidden, nullptr);
  call.In(p.lengths, nullptr, p.has_lengths);
  call.In(p.weights, nullptr);
  call.Out(p.weights, nullptr);
  return call.WorkspaceBytes();
}

}  // namespace

Result<RnnSizes> RnnSizesOf(Handle& handle, const RnnDesc& rnn, bool trains,
                            const RnnDataDesc& x_desc) {
  RnnSizes sizes;
  int64_t most = 0;
  for (const bool has_lengths : {false, true}) {
    if (x_desc.IsPacked() && !has_lengths) continue;
    ASSIGN_OR_RETURN(const RnnProblem p,
                     RnnProblem::MakeBound(rnn, trains, x_desc, has_lengths));
    ASSIGN_OR_RETURN(int64_t bytes, ForwardBytes(handle, p, trains));
    most = std::max(most, bytes);
    sizes.work = p.LengthBytes();
    if (!trains) continue;
    sizes.reserve = p.ReserveBytes();
    ASSIGN_OR_RETURN(bytes, DataBytes(handle, p));
    most = std::max(most, bytes);
    ASSIGN_OR_RETURN(bytes, WeightBytes(handle, p));
    most = std::max(most, bytes);
  }
  sizes.work += static_cast<size_t>(most);
  return sizes;
}

Status GetRNNTempSpaceSizes(void* handle, void* rnn, int mode, void* x_desc, size_t* work,
                            size_t* reserve) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const RnnDesc* desc, Get<RnnDesc>(rnn));
  RETURN_IF_ERROR(CheckSet(*desc));
  RETURN_IF_ERROR(CheckSetByV8(*desc));
  RETURN_IF_ERROR(CheckEnum(mode, CUDNN_FWD_MODE_TRAINING, "cudnnForwardMode_t"));
  ASSIGN_OR_RETURN(const RnnDataDesc* x, RnnDataFrom(x_desc, "xDesc"));
  ASSIGN_OR_RETURN(const RnnSizes sizes,
                   RnnSizesOf(*h, *desc, mode == CUDNN_FWD_MODE_TRAINING, *x));
  Store(work, sizes.work);
  Store(reserve, sizes.reserve);
  return {};
}

// ---- 8 alone: arrays of a tensor descriptor for each step ----

Status GetRNNWorkspaceSize(void* handle, void* rnn, int steps, void* const* x_desc,
                           size_t* bytes) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  RETURN_IF_ERROR(NotNull(bytes, "the place for the size"));
  ASSIGN_OR_RETURN(const RnnDataDesc x, DataOfSteps(steps, x_desc, "xDesc"));
  ASSIGN_OR_RETURN(const RnnDesc desc, NetworkOnData(rnn, x));
  ASSIGN_OR_RETURN(const RnnSizes sizes, RnnSizesOf(*h, desc, true, x));
  *bytes = sizes.work;
  return {};
}

Status GetRNNTrainingReserveSize(void* handle, void* rnn, int steps, void* const* x_desc,
                                 size_t* bytes) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  RETURN_IF_ERROR(NotNull(bytes, "the place for the size"));
  ASSIGN_OR_RETURN(const RnnDataDesc x, DataOfSteps(steps, x_desc, "xDesc"));
  ASSIGN_OR_RETURN(const RnnDesc desc, NetworkOnData(rnn, x));
  ASSIGN_OR_RETURN(const RnnSizes sizes, RnnSizesOf(*h, desc, true, x));
  *bytes = sizes.reserve;
  return {};
}

}  // namespace kiln::api::legacy
