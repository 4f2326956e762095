// Facts for a run with other devices: which of the peers' buffers is this device's own, how long
// kernels wait, and what the fault word says when they waited too long (ir/peers.h has its values).
// Used by Executable and by the session.
#pragma once

#include <span>

#include "ir/base/result.h"
#include "runtime/device.h"

namespace kiln::runtime {

// The rank whose buffer lies on `device`. An error unless exactly one does.
Result<int> RankOf(const Device& device, std::span<void* const> buffers);

// KILN_PEER_TIMEOUT_MS in nanoseconds.
int64_t PeerLimitNanoseconds();

// The fault word's value as a sentence; OK for 0.
Status StatusOfFault(int32_t fault);

}  // namespace kiln::runtime
