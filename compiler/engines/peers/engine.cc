// peers: sums over the GPUs of a group (`peer_reduce`, the statistics of batch norm), and flags
// that one GPU sets and another waits for (`signal_set`, `signal_wait`).
//
// Takes: every such group; sums over two ranks or more from sm_80 on.
//
// How: sums by a thread for each number. It writes the number and that of the call, one word of 8
// bytes, into its own GPU's buffer, reads the same words of all others until they carry the call,
// and adds in the order of the ranks. Flags are set and waited for by a thread each, in kernels of
// their own behind or in front of a copy. Waits end after KILN_PEER_TIMEOUT_MS: results are NaN,
// and the device's fault word says who is missing. Device code: codegen/cuda/device/peers.
//
// Wins: always, since no other engine takes such groups.
//
// Declines: other groups; sums over two ranks or more on a CPU, or with KILN_LAUNCH=minimal.
#include "compiler/engines/peers/engine.h"

#include "compiler/engines/engine_of.h"
#include "compiler/engines/peers/kernels.h"
#include "compiler/machine/machine.h"
#include "ir/graph/peers.h"

namespace kiln::compiler {
namespace {

using graph::GraphOp;

struct PeersPlan {
  const Group& group;
  const Target& target;
  double seconds;

  std::vector<std::vector<int>> Choices() const { return {{}}; }
  Estimate EstimateOf(std::span<const int>) const { return {.seconds = seconds}; }
  Result<Lowered> Lower(std::span<const int>) const {
    const GraphOp op = group.graph.nodes.back().op;
    if (op == GraphOp::kPeerReduce) return LowerPeerReduce(group, target);
    return op == GraphOp::kSignalSet ? LowerSignalSet(group, target)
                                     : LowerSignalWait(group, target);
  }
};

// A launch or two, a copy, and a word's way to another GPU and back.
double Seconds(const Group& group, const Target& target) {
  constexpr double kShare = 0.7;             // of a copy's rate
  constexpr double kExchangeSeconds = 3e-6;  // NVLink, there and back
  const Machine machine = MachineOf(target);
  return machine.StartSeconds() + kExchangeSeconds +
         StreamSeconds(machine, static_cast<double>(FloorBytes(group)), kShare);
}

Result<PeersPlan> PlanOf(const Group& group, const Target& target) {
  if (group.kind != GroupKind::kPeers)
    return Status::Text(Code::kUnsupportedGraphPattern, "the group has nothing of other devices");
  const size_t ranks = graph::PeersOf(group.graph.nodes.back()).size();
  if (ranks < 2 || WaitsForPeers(target)) return PeersPlan{group, target, Seconds(group, target)};
  return Status::Error(Code::kArchMismatch, "sums over {} ranks need GPUs from sm_80 on{}, not {}",
                       ranks, target.minimal_launch ? " and KILN_LAUNCH=full" : "", target.name);
}

}  // namespace

const Engine kPeersEngine = EngineOf<PlanOf>({.name = "peers", .version = 1, .knobs = {}});

}  // namespace kiln::compiler
