// Recurrent networks as cuDNN 6 had them: data as an array of one tensor descriptor for each step,
// and a network that knows neither the width of its input nor the type of its data.
#pragma once

#include "api/legacy/calls/rnn_call.h"

namespace kiln::api::legacy {

// Gives the packed sequences that the array describes: [n_t, width, 1] for step t, packed, n_t
// falling.
Result<RnnDataDesc> DataOfSteps(int steps, void* const* descs, std::string_view name);

// Gives the network with the width and the type of its input, which cuDNN 6's descriptor lacks.
Result<RnnDesc> NetworkOnData(void* rnn, const RnnDataDesc& x);

// Gives a state; its descriptor is not looked at, and null, if there is no memory.
Result<RnnState> StateOf(void* desc, const void* data);

// Gives the bytes of a filter descriptor that stands for all weights.
Result<size_t> BytesOfWeights(void* filter_desc);

// ---- the arguments of the calls with arrays; cudnnFindRNN… has the same ----

struct V6Data {
  void* const* descs = nullptr;
  const void* data = nullptr;
};
struct V6State {
  void* desc = nullptr;
  const void* data = nullptr;
};
// A V6Forward, like the two structs after it, owns the network and the data's shapes that its
// `args` point to.
struct V6Forward {
  RnnDesc rnn;
  RnnDataDesc x, y;
  RnnForwardArgs args;
};
struct V6BackwardData {
  RnnDesc rnn;
  RnnDataDesc x, y;
  RnnBackwardDataArgs args;
};
struct V6BackwardWeights {
  RnnDesc rnn;
  RnnDataDesc x, y;
  RnnBackwardWeightsArgs args;
};
Status FillForward(V6Forward& out, void* rnn, bool trains, int steps, V6Data x, V6State hx,
                   V6State cx, V6State w, V6Data y, V6State hy, V6State cy, RnnSpace work,
                   RnnSpace reserve);
Status FillBackwardData(V6BackwardData& out, void* rnn, int steps, V6Data y, V6Data dy, V6State dhy,
                        V6State dcy, V6State w, V6State hx, V6State cx, V6Data dx, V6State dhx,
                        V6State dcx, RnnSpace work, RnnSpace reserve);
Status FillBackwardWeights(V6BackwardWeights& out, void* rnn, int steps, V6Data x, V6State hx,
                           V6Data y, V6State dw, RnnSpace work, RnnSpace reserve);

}  // namespace kiln::api::legacy
