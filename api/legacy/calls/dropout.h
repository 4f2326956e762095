// Dropout for the calls that have it inside: the state on the device, and the nodes that drop.
// Reference 3.2.9 and 3.2.80.
//
// Random numbers are a function of an element's place, a seed and an offset (ir/graph/ops_rng.cc).
// The states are seed and offset, on the device. A forward call keeps both in its reserve space
// (KeepDropoutState), from which the backward direction makes the mask again, and moves the offset
// on behind what it drew (AdvanceDropoutState).
#pragma once

#include "api/legacy/descriptors/dropout_descriptor.h"
#include "api/legacy/plans/call.h"

namespace kiln::api::legacy {

// The seed or the offset as a tensor of the rank that elements have.
TensorDesc DropoutWordOf(int32_t rank);
struct DropoutWords {
  Operand seed, offset;
};
// The two at `memory`; `word` must live as long as the call.
DropoutWords DropoutWordsOf(Call& call, const TensorDesc& word, void* memory);

// value / (1 - dropout) where the random number of its place says so, else 0.
Result<graph::TensorId> Dropped(CallGraph& g, graph::TensorId value, float dropout, DType compute,
                                const DropoutWords& words);

// Copies seed and offset from the states to `reserve`.
Status KeepDropoutState(Handle& handle, const DropoutDesc& desc, void* reserve);
// Moves the offset of the states on.
Status AdvanceDropoutState(Handle& handle, const DropoutDesc& desc, int64_t elements);

}  // namespace kiln::api::legacy
