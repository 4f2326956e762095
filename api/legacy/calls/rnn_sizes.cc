// Sizes of the work and reserve space of recurrent networks. Reference 7.2.30, 7.2.33 and 8.2.14.
//
// They hold for sequences of all lengths up to the longest: clients ask once, with whole ones.
#include <algorithm>
#include <array>
#include <memory>

#include "api/legacy/calls/rnn_call.h"
#include "api/legacy/calls/rnn_v6.h"
#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;

// Null stands for the pointers of a call that is yet to come; they are taken for aligned.
Result<int64_t> ForwardBytes(Handle& handle, const RnnProblem& p, bool trains, bool has_states) {
  RnnCall call(handle, "size of cudnnRNNForward", p, GraphOp::kRnnForward);
  const bool has_cells = has_states && p.attrs.cell == graph::RnnCell::kLstm,
             drops = p.dropout != nullptr;
  const TensorDesc word = DropoutWordOf(1);
  call.In(p.x, nullptr);
  call.In(p.weights, nullptr);
  call.In(p.hidden, nullptr, has_states);
  call.In(p.cell, nullptr, has_cells);
  call.In(p.lengths, nullptr, p.has_lengths);
  call.In(word, nullptr, drops);
  call.In(word, nullptr, drops);
  call.Out(p.y, nullptr);
  call.Out(p.hidden, nullptr, has_states);
  call.Out(p.cell, nullptr, has_cells);
  call.Out(p.reserve, nullptr, trains);
  return call.WorkspaceBytes();
}

Result<int64_t> DataBytes(Handle& handle, const RnnProblem& p, bool has_states) {
  RnnCall call(handle, "size of cudnnRNNBackwardData", p, GraphOp::kRnnBackwardData);
  const bool has_cells = has_states && p.attrs.cell == graph::RnnCell::kLstm;
  call.In(p.y, nullptr);
  call.In(p.y, nullptr);
  call.In(p.weights, nullptr);
  call.In(p.reserve, nullptr);
  call.In(p.hidden, nullptr, has_states);
  call.In(p.cell, nullptr, has_cells);
  call.In(p.hidden, nullptr, has_states);
  call.In(p.cell, nullptr, has_cells);
  call.In(p.lengths, nullptr, p.has_lengths);
  call.Out(p.x, nullptr);
  call.Out(p.gradients, nullptr);
  call.Out(p.hidden, nullptr, has_states);
  call.Out(p.cell, nullptr, has_cells);
  return call.WorkspaceBytes();
}

// `adds`: to the gradients that were there before; others take their place.
Result<int64_t> WeightBytes(Handle& handle, const RnnProblem& p, bool has_states, bool adds) {
  RnnCall call(handle, "size of cudnnRNNBackwardWeights", p, GraphOp::kRnnBackwardWeights);
  call.In(p.x, nullptr);
  call.In(p.y, nullptr);
  call.In(p.reserve, nullptr);
  call.In(p.gradients, nullptr);
  call.In(p.hidden, nullptr, has_states);
  call.In(p.lengths, nullptr, p.has_lengths);
  call.In(p.weights, nullptr, adds);
  call.Out(p.weights, nullptr);
  return call.WorkspaceBytes();
}

Result<int64_t> MostBytes(Handle& handle, const RnnProblem& p, bool trains) {
  int64_t most = 0;
  for (const bool has_states : {false, true}) {
    ASSIGN_OR_RETURN(int64_t bytes, ForwardBytes(handle, p, trains, has_states));
    most = std::max(most, bytes);
    if (!trains) continue;
    ASSIGN_OR_RETURN(bytes, DataBytes(handle, p, has_states));
    most = std::max(most, bytes);
    for (const bool adds : {false, true}) {
      ASSIGN_OR_RETURN(bytes, WeightBytes(handle, p, has_states, adds));
      most = std::max(most, bytes);
    }
  }
  return most;
}

// Sizes follow from the fields of this key alone.
struct SizesKey {
  const void* session = nullptr;
  std::array<int64_t, 15> numbers = {};
  double dropout = 0;
  bool operator==(const SizesKey&) const = default;
};

// The sizes that a thread asked for lately, since each call checks what it is given, and a model
// has several networks that take turns.
class LateSizes {
 public:
  const RnnSizes* Find(const SizesKey& key) const {
    const auto at = std::ranges::find(entries_, key, &Entry::key);
    return at == entries_.end() ? nullptr : &at->sizes;
  }
  void Keep(const SizesKey& key, const RnnSizes& sizes) {
    entries_[next_] = {key, sizes};
    next_ = (next_ + 1) % entries_.size();
  }

 private:
  struct Entry {
    SizesKey key;
    RnnSizes sizes;
  };
  std::array<Entry, 16> entries_ = {};
  size_t next_ = 0;
};

SizesKey KeyOf(const Handle& handle, const RnnDesc& d, bool trains, const RnnDataDesc& x,
               double dropout) {
  return {.session = handle.session.get(),
          .numbers = {trains, d.cell, d.bias, d.direction, d.input_mode, d.type, d.math, d.input,
                      d.hidden, d.projected, d.layers, d.clip_mode * 2 + d.clip_nan, x.layout,
                      x.steps, x.batch},
          .dropout = dropout};
}

}  // namespace

Result<RnnSizes> RnnSizesOf(Handle& handle, const RnnDesc& rnn, bool trains,
                            const RnnDataDesc& x_desc) {
  // The thread has a pointer and not the object: libraries that are opened late have little room
  // for the objects of threads.
  static thread_local std::unique_ptr<LateSizes> late;
  ASSIGN_OR_RETURN(RnnProblem p, RnnProblem::MakeBound(rnn, trains, x_desc, false));
  const SizesKey key = KeyOf(handle, rnn, trains, x_desc, p.attrs.dropout);
  if (late == nullptr) late = std::make_unique<LateSizes>();
  if (const RnnSizes* const known = late->Find(key)) return *known;
  ASSIGN_OR_RETURN(int64_t most, MostBytes(handle, p, trains));
  p.has_lengths = true;
  ASSIGN_OR_RETURN(const int64_t ragged, MostBytes(handle, p, trains));
  p.attrs.padding = 1;
  ASSIGN_OR_RETURN(const int64_t filled, MostBytes(handle, p, trains));
  most = std::max({most, ragged, filled});
  const RnnSizes sizes = {.work = p.LengthBytes() + static_cast<size_t>(most),
                          .reserve = trains ? p.ReserveBytes() : 0};
  late->Keep(key, sizes);
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

Status GetRNNWorkspaceSize(void* handle, void* rnn, int steps, void* const* x_desc, size_t* bytes) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  RETURN_IF_ERROR(NotNull(bytes, "the place for the size"));
  ASSIGN_OR_RETURN(const RnnDataDesc x, DataOfSteps(steps, x_desc, "xDesc"));
  ASSIGN_OR_RETURN(const RnnDesc desc, NetworkOnData(rnn, x));
  // The size holds for training and inference, since the function does not ask for the mode.
  ASSIGN_OR_RETURN(const RnnSizes training, RnnSizesOf(*h, desc, true, x));
  ASSIGN_OR_RETURN(const RnnSizes inference, RnnSizesOf(*h, desc, false, x));
  *bytes = std::max(training.work, inference.work);
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
