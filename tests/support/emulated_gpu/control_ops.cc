// Branches, barriers and what concerns the whole block. PTX ISA 9.7.12, 9.7.13.
#include <fmt/format.h>

#include "tests/support/emulated_gpu/decoder.h"
#include "tests/support/emulated_gpu/machine.h"

namespace kiln::emulated {
namespace {

void RunNothing(Warp&, const Instr&, Mask) {}
void DecodeNothing(Decoder&, Instr& i) { i.run = &RunNothing; }
void DecodeTogether(Decoder&, Instr& i) {
  i.run = &RunNothing;
  i.control = Control::kCollective;
}

void DecodeBranch(Decoder&, Instr& i) { i.control = Control::kBranch; }
void DecodeIndexedBranch(Decoder& d, Instr& i) {
  i.control = Control::kBranchIndexed;
  i.a = d.Source(0, 32);
}
void DecodeExit(Decoder&, Instr& i) { i.control = Control::kExit; }
void RunTrap(Warp& w, const Instr& i, Mask lanes) {
  Raise(w, i, FirstLane(lanes), kLaunchFailed, "the kernel gives up");
}
void DecodeTrap(Decoder&, Instr& i) { i.run = &RunTrap; }

void DecodeNanosleep(Decoder&, Instr& i) {
  i.run = &RunNothing;
  i.control = Control::kSpin;
  i.number = 1 << 20;
}

// ---- barriers of the block

void RunBarrier(Warp& w, const Instr& i, Mask lanes) {
  const uint32_t id = Get<uint32_t>(w, i.a, FirstLane(lanes));
  const int expected =
      i.list_size == 0 ? 0 : static_cast<int>(Get<uint32_t>(w, i.b, FirstLane(lanes)));
  if (id >= 16)
    Raise(w, i, FirstLane(lanes), kIllegalInstruction, fmt::format("there is no barrier {}", id));
  if (expected % kLanes != 0)
    Raise(w, i, FirstLane(lanes), kIllegalInstruction,
          fmt::format("{} threads are no whole warps", expected));
  const NamedBarrier& barrier = w.block->barriers[id];
  if (barrier.arrived > 0 && barrier.expected != expected)
    Raise(w, i, FirstLane(lanes), kIllegalInstruction,
          fmt::format("{} threads are waited for at barrier {}, by others {}", expected, id,
                      barrier.expected));
  w.block->Arrive(w, lanes, static_cast<int>(id), expected, i.number == 0);
}
void DecodeBarrier(Decoder& d, Instr& i) {
  const auto& parts = d.parts();
  size_t at = 1;
  if (parts.size() > at && parts[at] == "cta") ++at;
  const std::string_view kind = parts.size() > at ? parts[at] : "";
  if (kind == "warp") {
    i.run = &RunNothing;
    i.control = Control::kCollective;
    i.has_members = true;
    i.members = d.Source(0, 32);
    return;
  }
  if (kind != "sync" && kind != "arrive") d.Fail("is not known");
  i.number = kind == "arrive" ? 1 : 0;
  i.a = d.Source(0, 32);
  i.list_size = d.count() > 1 ? 1 : 0;
  if (d.count() > 1) i.b = d.Source(1, 32);
  i.control = parts[0] == "bar" || d.Has("aligned") ? Control::kWaitTogether : Control::kWait;
  i.run = &RunBarrier;
}

// ---- the cluster's barrier

void RunClusterArrive(Warp& w, const Instr&, Mask lanes) {
  Cluster& cluster = *w.block->cluster;
  cluster.arrived += __builtin_popcount(lanes);
  w.cluster_phase = cluster.phase;
  cluster.CompleteBarrier();
}
void RunClusterWait(Warp& w, const Instr&, Mask lanes) {
  Cluster& cluster = *w.block->cluster;
  if (cluster.phase != w.cluster_phase) return;
  cluster.waiting.emplace_back(&w, lanes);
  w.Wait(lanes, false);
}
void DecodeClusterBarrier(Decoder& d, Instr& i) {
  if (d.parts()[1] != "cluster") return DecodeBarrier(d, i);
  const bool arrives = d.Has("arrive");
  i.control = d.Has("aligned") ? Control::kWaitTogether : Control::kWait;
  i.run = arrives ? &RunClusterArrive : &RunClusterWait;
}

void RunMapToBlock(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    const auto rank = Get<uint32_t>(w, i.b, lane);
    if (rank >= w.block->cluster->blocks.size())
      Raise(w, i, lane, kIllegalInstruction, fmt::format("the cluster has no block {}", rank));
    const uint64_t a = i.a_is_wide ? Get<uint64_t>(w, i.a, lane) : Get<uint32_t>(w, i.a, lane);
    const uint64_t there = (a & kWindowBits) | (a & ((1u << kRankShift) - 1)) |
                           static_cast<uint64_t>(rank) << kRankShift;
    if (i.a_is_wide)
      Put(w, i.d, lane, there);
    else
      Put(w, i.d, lane, static_cast<uint32_t>(there));
  });
}
void DecodeMapToBlock(Decoder& d, Instr& i) {
  i.type = d.LastType();
  i.a_is_wide = BitsOf(i.type) == 64;
  i.d = d.Target(0, BitsOf(i.type));
  i.a = d.Source(1, BitsOf(i.type));
  i.b = d.Source(2, 32);
  i.run = &RunMapToBlock;
}

constexpr OpRow kOps[] = {
    {"bra", &DecodeBranch},
    {"brx", &DecodeIndexedBranch},
    {"ret", &DecodeExit},
    {"exit", &DecodeExit},
    {"trap", &DecodeTrap},
    {"brkpt", &DecodeTrap},
    {"nanosleep", &DecodeNanosleep},
    {"bar", &DecodeBarrier},
    {"barrier", &DecodeClusterBarrier},
    {"griddepcontrol", &DecodeNothing},
    {"setmaxnreg", &DecodeTogether},
    {"mapa", &DecodeMapToBlock},
};

}  // namespace

std::span<const OpRow> ControlOps() { return kOps; }

}  // namespace kiln::emulated
