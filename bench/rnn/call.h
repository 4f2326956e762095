// Calls of recurrent networks, CTC losses and multi-head attention, ready to be made again and
// again on one library: what bench/rnn times.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/legacy/call.h"

namespace kiln::bench {

// A problem and the calls that it takes, its phases. NVIDIA's library has several algorithms for
// it, the variants; ours is made as the first of them, and runs its best kernels whatever it says.
struct NetworkCall {
  std::string name;  // family/what
  std::vector<std::string> phases;
  std::vector<std::string> variants;
  // For each phase the variant that PyTorch asks for.
  std::vector<size_t> chosen;
  // One launch for each phase. A failure stays in the setup.
  std::function<std::vector<Launch>(CallSetup&, size_t variant)> make;
  // Factor on the differences that count; see LegacyCall::tolerance.
  double tolerance = 1;
  bool are_independent = false;  // else a phase reads what the one before it left
  int64_t steps = 0;             // of all layers, one after the other; 0: there are none
};

std::vector<NetworkCall> NetworkCalls();
// The parts of it.
std::vector<NetworkCall> RecurrentCalls();
std::vector<NetworkCall> CtcCalls();
std::vector<NetworkCall> AttentionCalls();

}  // namespace kiln::bench
