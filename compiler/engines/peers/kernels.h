// The kernels of the peers engine (engine.h).
#pragma once

#include "compiler/kernel/kernel_builder.h"

namespace kiln::compiler {

// Whether kernels can wait for other GPUs: acquire and release of system scope in device code.
bool WaitsForPeers(const Target& target);

// y = x, through what x is computed by.
Lowered LowerPeerCopy(const Group& group, const Target& target, graph::TensorId x,
                      graph::TensorId y);

Result<Lowered> LowerPeerReduce(const Group& group, const Target& target);
Result<Lowered> LowerSignalSet(const Group& group, const Target& target);
Result<Lowered> LowerSignalWait(const Group& group, const Target& target);

}  // namespace kiln::compiler
