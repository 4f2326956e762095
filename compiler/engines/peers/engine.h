// The peers engine: peer_reduce, signal_set and signal_wait (ir/graph/ops_peers.cc).
//
//   peer_reduce   a thread for each number, which publishes its own and waits for the others'
//   signal_set    y <- x; then a kernel of one thread sets the flag
//   signal_wait   a kernel of one thread waits for the flag; then y <- x, or NaN after the limit
//
// On the CPU and on GPUs without these instructions a flag is an ordinary number, a wait compares
// it once, and one rank alone has sums.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kPeersEngine;

}  // namespace kiln::compiler
