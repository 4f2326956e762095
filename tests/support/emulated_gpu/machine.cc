// The order in which things happen: lanes of a warp, warps of a cluster, clusters of a launch.
//
// Warps take turns; each runs until it waits, or has used up its turn. The async proxy works as
// late as it may: one piece of it is done when no warp of the cluster can go on otherwise, so that
// who does not wait for a copy sees what was there before. Clusters begin one after the other; one
// that spins on memory lets others begin beside it, up to as many blocks as the device holds. Some
// may be late: they have a turn when others have had several, so that who overwrites what they have
// not read yet is found.
#include "tests/support/emulated_gpu/machine.h"

#include <fmt/format.h>

#include <algorithm>

namespace kiln::emulated {
namespace {

constexpr int kTurn = 20000;     // instructions
constexpr int kAsksCost = 2000;  // of a turn: a load that may be part of a spin

enum class Turn : uint8_t { kWaits, kSpins, kGoesOn };

bool SelectGroup(Warp& w) {
  Mask runnable = w.live & ~w.waiting & ~w.stalled;
  if ((w.asking & w.live) != 0) runnable &= w.asking;
  if (runnable == 0) return false;
  uint32_t least = ~uint32_t{0};
  for (Mask rest = runnable; rest != 0; rest &= rest - 1)
    least = std::min(least, w.pc[FirstLane(rest)]);
  w.group = 0;
  const Mask chosen = (w.asking & w.live) != 0 ? w.asking : ~Mask{0};
  for (Mask rest = w.live & ~w.waiting & chosen; rest != 0; rest &= rest - 1)
    if (w.pc[FirstLane(rest)] == least) w.group |= Mask{1} << FirstLane(rest);
  w.stalled &= ~w.group;
  w.at = least;
  return true;
}

void StoreGroup(Warp& w, Mask lanes, uint32_t pc) {
  for (; lanes != 0; lanes &= lanes - 1) w.pc[FirstLane(lanes)] = pc;
}

// The lowest place at which other lanes of the warp stand.
uint32_t NextMeeting(const Warp& w) {
  uint32_t least = ~uint32_t{0};
  for (Mask rest = w.live & ~w.waiting & ~w.group; rest != 0; rest &= rest - 1)
    least = std::min(least, w.pc[FirstLane(rest)]);
  return least;
}

// Lanes of a collective instruction of which all members have come; they are served.
Mask ServeMembers(Warp& w, const Instr& i, Mask lanes) {
  Mask served = 0;
  for (Mask rest = lanes; rest != 0;) {
    const Mask members = Get<uint32_t>(w, i.members, FirstLane(rest));
    Mask same = 0;
    for (Mask r = rest; r != 0; r &= r - 1)
      if (Get<uint32_t>(w, i.members, FirstLane(r)) == members) same |= Mask{1} << FirstLane(r);
    rest &= ~same;
    if ((same & ~members) != 0)
      Raise(w, i, FirstLane(same & ~members), kIllegalInstruction,
            fmt::format("the lane is none of the members {:#x}", members));
    if ((members & w.live & ~same) != 0) continue;
    i.run(w, i, same);
    served |= same;
  }
  return served;
}

// Runs a collective; false: the lanes have parted, and another group has to be chosen.
bool RunCollective(Warp& w, const Instr& i, Mask lanes) {
  Mask served;
  if (i.has_members) {
    served = ServeMembers(w, i, lanes);
  } else {
    served = lanes == w.live ? lanes : 0;
    if (served != 0) i.run(w, i, lanes);
  }
  if (served == lanes) return true;
  StoreGroup(w, w.group, w.at + 1);
  StoreGroup(w, lanes & ~served, w.at);
  w.stalled |= lanes & ~served;
  return false;
}

// Lanes leave: what waited for them may go on.
void Exit(Warp& w, Mask lanes) {
  w.live &= ~lanes;
  w.stalled = 0;
  for (Mask rest = lanes; rest != 0; rest &= rest - 1) {
    if (w.bulk == nullptr) break;
    auto& groups = w.bulk[FirstLane(rest)];
    groups.Commit();
    groups.Wait(0, [](PendingWork& work) { work.apply(); });
  }
  w.block->ThreadsLeft(__builtin_popcount(lanes));
}

// Lanes go to their targets, the others on.
bool Branch(Warp& w, const Instr& i, Mask lanes) {
  if (lanes == w.group || lanes == 0) {
    w.at = lanes != 0 ? static_cast<uint32_t>(i.target) : w.at + 1;
    return false;
  }
  StoreGroup(w, w.group & ~lanes, w.at + 1);
  StoreGroup(w, lanes, static_cast<uint32_t>(i.target));
  return true;
}

bool BranchIndexed(Warp& w, const Instr& i, Mask lanes) {
  StoreGroup(w, w.group & ~lanes, w.at + 1);
  for (Mask rest = lanes; rest != 0; rest &= rest - 1) {
    const uint32_t index = Get<uint32_t>(w, i.a, FirstLane(rest));
    if (index >= static_cast<uint32_t>(i.list_size))
      Raise(w, i, FirstLane(rest), kIllegalInstruction,
            fmt::format("target {} of {}", index, i.list_size));
    w.pc[FirstLane(rest)] = w.function->lists[static_cast<size_t>(i.first_list) + index];
  }
  return true;
}

// Runs what may leave lanes waiting; with `together`, once all lanes have come.
bool RunWait(Warp& w, const Instr& i, Mask lanes, bool together) {
  StoreGroup(w, w.group, w.at + 1);
  if (together && lanes != 0 && lanes != w.live) {
    StoreGroup(w, lanes, w.at);
    w.stalled |= lanes;
    return true;
  }
  if (lanes != 0) i.run(w, i, lanes);
  if ((w.group & w.waiting) != 0) return true;
  ++w.at;
  return false;
}

// Runs an instruction that is more than its handler; true where lanes of the group have parted, or
// wait, so that another group has to be chosen.
bool RunControl(Warp& w, const Instr& i, Mask lanes) {
  switch (i.control) {
    case Control::kBranch:
      return Branch(w, i, lanes);
    case Control::kBranchIndexed:
      return BranchIndexed(w, i, lanes);
    case Control::kExit:
      StoreGroup(w, w.group & ~lanes, w.at + 1);
      if (lanes != 0) Exit(w, lanes);
      if (lanes != 0) return true;
      break;
    case Control::kCollective:
      if (lanes != 0 && !RunCollective(w, i, lanes)) return true;
      break;
    case Control::kWait:
    case Control::kWaitTogether:
      return RunWait(w, i, lanes, i.control == Control::kWaitTogether);
    case Control::kNone:
    case Control::kSpin:
      if (lanes != 0) i.run(w, i, lanes);
      break;
  }
  ++w.at;
  return false;
}

Turn RunWarp(Warp& w) {
  const Instr* const instrs = w.function->instrs.data();
  int64_t& steps = w.block->launch->steps;
  int left = kTurn;
  bool spins = false;
  while (SelectGroup(w)) {
    const uint32_t meeting = NextMeeting(w);
    for (bool parted = false; !parted;) {
      const Instr& i = instrs[w.at];
      Mask lanes = w.group;
      if (i.has_guard) lanes &= GetPred(w, i.guard, i.guard_negated);
      if (--left <= 0) {
        StoreGroup(w, w.group, w.at);
        steps += kTurn;
        return spins ? Turn::kSpins : Turn::kGoesOn;
      }
      if (i.touches_sums && w.HasProducts() && lanes != 0) FinishProducts(w, 0);
      if (i.control == Control::kNone) {
        if (lanes != 0) i.run(w, i, lanes);
        ++w.at;
      } else {
        parted = RunControl(w, i, lanes);
        if (i.control == Control::kSpin) {
          left -= i.number > 0 ? static_cast<int>(i.number) : kAsksCost;
          spins = true;
        }
      }
      if (w.at >= meeting && !parted) {
        StoreGroup(w, w.group, w.at);
        parted = true;
      }
    }
  }
  steps += kTurn - left;
  return left == kTurn ? Turn::kWaits : spins ? Turn::kSpins : Turn::kGoesOn;
}

// ---- beginnings

uint64_t SpecialOf(const Block& b, const Warp& w, int lane, const SpecialRegister& special) {
  const Launch& l = *b.launch;
  const std::string& name = special.name;
  const uint32_t thread = static_cast<uint32_t>(w.number * kLanes + lane);
  const auto axis = [&](const char* base) {
    return name.starts_with(base) && name.size() == std::strlen(base) + 2 ? name.back() - 'x' : -1;
  };
  const uint32_t tid[3] = {thread % l.block[0], thread / l.block[0] % l.block[1],
                           thread / l.block[0] / l.block[1]};
  if (const int a = axis("%tid"); a >= 0) return tid[a];
  if (const int a = axis("%ntid"); a >= 0) return l.block[a];
  if (const int a = axis("%ctaid"); a >= 0) return b.index[a];
  if (const int a = axis("%nctaid"); a >= 0) return l.grid[a];
  if (const int a = axis("%clusterid"); a >= 0) return b.index[a] / l.cluster[a];
  if (const int a = axis("%nclusterid"); a >= 0) return l.grid[a] / l.cluster[a];
  if (const int a = axis("%cluster_ctaid"); a >= 0) return b.index[a] % l.cluster[a];
  if (const int a = axis("%cluster_nctaid"); a >= 0) return l.cluster[a];
  if (name == "%cluster_ctarank") return static_cast<uint32_t>(b.rank);
  if (name == "%cluster_nctarank") return l.cluster[0] * l.cluster[1] * l.cluster[2];
  if (name == "%laneid") return static_cast<uint32_t>(lane);
  if (name == "%warpid") return static_cast<uint32_t>(w.number);
  if (name == "%nwarpid") return static_cast<uint32_t>(b.warps.size());
  if (name == "%lanemask_eq") return 1u << lane;
  if (name == "%lanemask_lt") return (1u << lane) - 1;
  if (name == "%lanemask_le") return (2u << lane) - 1;
  if (name == "%lanemask_gt") return ~((2u << lane) - 1);
  if (name == "%lanemask_ge") return ~((1u << lane) - 1);
  if (name == "%smid") return b.index[0] % static_cast<uint32_t>(l.most_blocks);
  if (name == "%nsmid") return static_cast<uint32_t>(l.most_blocks);
  if (name == "%dynamic_smem_size") return l.dynamic_shared_bytes;
  if (name == "%total_smem_size") return static_cast<uint32_t>(b.shared_bytes);
  if (name == "%gridid") return l.number;
  if (name == "@shared") return (static_cast<uint64_t>(b.rank) << kRankShift) + special.number;
  return 0;
}

void BeginWarp(Block& b, Warp& w, int number, int threads) {
  const Function& f = *b.launch->function;
  w.block = &b;
  w.function = &f;
  w.number = number;
  w.registers = b.registers.data() + static_cast<size_t>(number) * f.registers.size();
  std::memcpy(w.registers, f.registers.data(), f.registers.size());
  const int lanes = std::min(kLanes, threads - number * kLanes);
  w.live = lanes == kLanes ? ~Mask{0} : (Mask{1} << lanes) - 1;
  w.local.assign(static_cast<size_t>(f.local_bytes) * kLanes, 0xff);
  for (const SpecialRegister& special : f.specials)
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint64_t value = SpecialOf(b, w, lane, special);
      if (special.bits == 64)
        Put<uint64_t>(w, special.slot, lane, value);
      else
        Put<uint32_t>(w, special.slot, lane, static_cast<uint32_t>(value));
    }
}

std::unique_ptr<Block> BeginBlock(Launch& launch, Cluster& cluster, const uint32_t (&index)[3],
                                  int rank) {
  const Function& f = *launch.function;
  auto made = std::make_unique<Block>();
  Block& b = *made;
  b.launch = &launch;
  b.cluster = &cluster;
  std::copy_n(index, 3, b.index);
  b.rank = rank;
  b.shared_bytes = f.dynamic_shared_at + launch.dynamic_shared_bytes;
  b.shared_memory.assign(static_cast<size_t>(b.shared_bytes) + 1024, 0xff);  // NaN in all types
  const auto at = reinterpret_cast<uint64_t>(b.shared_memory.data());
  b.shared = b.shared_memory.data() + ((at + 1023) / 1024 * 1024 - at);
  const int threads = static_cast<int>(launch.block[0] * launch.block[1] * launch.block[2]);
  const int warps = (threads + kLanes - 1) / kLanes;
  b.living = threads;
  b.registers.resize(static_cast<size_t>(warps) * f.registers.size() + 64);
  b.warps.resize(static_cast<size_t>(warps));
  for (int i = 0; i < warps; ++i) BeginWarp(b, b.warps[static_cast<size_t>(i)], i, threads);
  return made;
}

std::unique_ptr<Cluster> BeginCluster(Launch& launch, uint64_t number) {
  auto made = std::make_unique<Cluster>();
  made->launch = &launch;
  made->lags = launch.lag > 0 &&
               number % static_cast<uint64_t>(launch.lag) + 1 == static_cast<uint64_t>(launch.lag);
  const uint32_t* c = launch.cluster;
  const uint32_t across[2] = {launch.grid[0] / c[0], launch.grid[1] / c[1]};
  const uint32_t first[3] = {static_cast<uint32_t>(number % across[0]) * c[0],
                             static_cast<uint32_t>(number / across[0] % across[1]) * c[1],
                             static_cast<uint32_t>(number / across[0] / across[1]) * c[2]};
  for (uint32_t z = 0; z < c[2]; ++z)
    for (uint32_t y = 0; y < c[1]; ++y)
      for (uint32_t x = 0; x < c[0]; ++x) {
        made->blocks.push_back(BeginBlock(launch, *made, {first[0] + x, first[1] + y, first[2] + z},
                                          static_cast<int>(made->blocks.size())));
        made->living += made->blocks.back()->living;
      }
  return made;
}

// ---- deadlock

std::string Standing(const Warp& w) {
  std::string text;
  for (Mask rest = w.live; rest != 0;) {
    const uint32_t pc = w.pc[FirstLane(rest)];
    Mask same = 0;
    for (Mask r = rest; r != 0; r &= r - 1)
      if (w.pc[FirstLane(r)] == pc) same |= Mask{1} << FirstLane(r);
    rest &= ~same;
    // Behind a barrier, or at an mbarrier that is asked again, or at what all members have to
    // reach.
    const bool behind = (same & w.waiting) != 0 && (same & w.on_mbarrier) == 0;
    const Instr& i = w.function->instrs[pc - (behind && pc > 0 ? 1 : 0)];
    text += fmt::format("\n  block {} {} {}, warp {}, lanes {:#x}: {}", w.block->index[0],
                        w.block->index[1], w.block->index[2], w.number, same,
                        TextOf(*w.block->launch->module, i));
  }
  return text;
}

[[noreturn]] void RaiseDeadlock(const Cluster& cluster, const char* why) {
  constexpr int kMostWarps = 24;
  std::string text = fmt::format("kernel {}: {}", cluster.launch->function->name, why);
  int shown = 0;
  for (const auto& block : cluster.blocks)
    for (const Warp& w : block->warps)
      if (w.live != 0 && shown++ < kMostWarps) text += Standing(w);
  if (shown > kMostWarps) text += fmt::format("\n  and {} warps more", shown - kMostWarps);
  throw Fault{kLaunchTimeout, text};
}

// True when all of its threads have left.
bool RunCluster(Cluster& cluster) {
  constexpr int kRounds = 64;
  for (int round = 0; round < kRounds; ++round) {
    bool goes_on = false, spins = false;
    for (const auto& block : cluster.blocks)
      for (Warp& w : block->warps) {
        if (w.live == 0) continue;
        const Turn turn = RunWarp(w);
        goes_on |= turn == Turn::kGoesOn;
        spins |= turn == Turn::kSpins;
      }
    if (cluster.living == 0) return true;
    if (goes_on) continue;
    if (!cluster.pending.empty()) {
      // The youngest first: copies need not end in the order in which they began.
      const PendingWork work = std::move(cluster.pending.back());
      cluster.pending.pop_back();
      work.apply();
    } else if (!spins) {
      RaiseDeadlock(cluster, "deadlock: none of these can go on");
    } else {
      return false;
    }
  }
  return false;
}

}  // namespace

// ---- waiting

void Warp::Wait(Mask lanes, bool asks_again) {
  waiting |= lanes;
  if (asks_again) {
    on_mbarrier |= lanes;
    asking |= lanes;
    StoreGroup(*this, lanes, at);
  }
}

void Block::Complete(NamedBarrier& barrier) {
  for (auto& [warp, lanes] : barrier.waiting) warp->waiting &= ~lanes;
  barrier.waiting.clear();
  barrier.arrived = barrier.expected = 0;
}

void Block::Arrive(Warp& warp, Mask lanes, int id, int expected, bool waits) {
  NamedBarrier& barrier = barriers[id];
  barrier.arrived += __builtin_popcount(lanes);
  barrier.expected = expected;
  if (waits) {
    barrier.waiting.emplace_back(&warp, lanes);
    warp.Wait(lanes, false);
  }
  if (barrier.arrived >= (expected == 0 ? living : expected)) Complete(barrier);
}

void Block::ThreadsLeft(int count) {
  living -= count;
  cluster->living -= count;
  for (NamedBarrier& barrier : barriers)
    if (barrier.arrived > 0 && barrier.expected == 0 && barrier.arrived >= living)
      Complete(barrier);
  if (!cluster->waiting.empty()) cluster->CompleteBarrier();
}

void Cluster::Wake() {
  for (const auto& block : blocks)
    for (Warp& w : block->warps) {
      w.waiting &= ~w.on_mbarrier;
      w.on_mbarrier = 0;
    }
}

void Cluster::CompleteBarrier() {
  if (arrived < living) return;
  arrived = 0;
  ++phase;
  for (auto& [warp, lanes] : waiting) warp->waiting &= ~lanes;
  waiting.clear();
}

// ---- memory

void Raise(const Warp& warp, const Instr& instr, int lane, int code, const std::string& text) {
  const Block& b = *warp.block;
  throw Fault{code,
              fmt::format("kernel {}, block {} {} {}, thread {} (warp {}, lane {}): {}\n  at {}",
                          b.launch->function->name, b.index[0], b.index[1], b.index[2],
                          warp.number * kLanes + lane, warp.number, lane, text,
                          TextOf(*b.launch->module, instr))};
}

uint8_t* LocateShared(Warp& warp, const Instr& instr, int lane, uint32_t address, int64_t bytes,
                      int64_t align) {
  const uint32_t rank = address >> kRankShift, at = address & ((1u << kRankShift) - 1);
  Cluster& cluster = *warp.block->cluster;
  if (address % static_cast<uint64_t>(align) != 0)
    Raise(warp, instr, lane, kMisalignedAddress,
          fmt::format("address {:#x} of shared memory is no multiple of {}", address, align));
  if (rank >= cluster.blocks.size() || at < kSharedBegin ||
      at - kSharedBegin + bytes > cluster.blocks[rank]->shared_bytes)
    Raise(warp, instr, lane, kIllegalAddress,
          fmt::format("{} bytes at address {:#x} of shared memory, which has {} from {:#x} on",
                      bytes, address, warp.block->shared_bytes,
                      static_cast<uint32_t>(warp.block->rank) << kRankShift | kSharedBegin));
  return cluster.blocks[rank]->shared + (at - kSharedBegin);
}

uint8_t* Locate(Warp& warp, const Instr& instr, int lane, Space space, uint64_t address,
                int64_t bytes, bool writes, int64_t align) {
  Launch& launch = *warp.block->launch;
  if (space == Space::kParam) {
    if (address + static_cast<uint64_t>(bytes) > launch.param_bytes)
      Raise(warp, instr, lane, kIllegalAddress, fmt::format("parameters end before {}", address));
    return launch.params() + address;
  }
  if (space == Space::kGeneric) {
    const uint64_t window = address & kWindowBits;
    if (window == kSharedWindow) space = Space::kSharedCluster;
    if (window == kLocalWindow) space = Space::kLocal;
    if (space != Space::kGeneric) address &= ~kWindowBits;
  }
  if (space == Space::kShared || space == Space::kSharedCluster) {
    const auto at = static_cast<uint32_t>(address);
    if (space == Space::kShared && static_cast<int>(at >> kRankShift) != warp.block->rank)
      Raise(warp, instr, lane, kIllegalAddress,
            fmt::format("address {:#x} is not of this block's shared memory", address));
    return LocateShared(warp, instr, lane, at, bytes, align);
  }
  if (align > 1 && address % static_cast<uint64_t>(align) != 0)
    Raise(warp, instr, lane, kMisalignedAddress,
          fmt::format("address {:#x} is no multiple of {}", address, align));
  if (space == Space::kLocal) {
    const auto of_lane = static_cast<uint64_t>(warp.function->local_bytes);
    if (address + static_cast<uint64_t>(bytes) > of_lane)
      Raise(warp, instr, lane, kIllegalAddress,
            fmt::format("place {} of local memory, which has {} bytes", address, of_lane));
    return warp.local.data() + of_lane * static_cast<uint64_t>(lane) + address;
  }
  if (!launch.near.Has(address, static_cast<uint64_t>(bytes))) {
    const Memory::Range found = launch.memory->Find(address, static_cast<uint64_t>(bytes));
    const auto params = reinterpret_cast<uint64_t>(launch.params());
    const bool is_param =
        address >= params && address + static_cast<uint64_t>(bytes) <= params + launch.param_bytes;
    if (found.end == 0 && (writes || !is_param))
      Raise(warp, instr, lane, kIllegalAddress,
            fmt::format("{} of {} bytes: {}", writes ? "store" : "load", bytes,
                        launch.memory->Describe(address)));
    if (found.end != 0) launch.near = found;
  }
  return reinterpret_cast<uint8_t*>(address);
}

// ---- launches

void Launch::Run() {
  uint64_t clusters = 1;
  for (int a = 0; a < 3; ++a) {
    if (grid[a] % cluster[a] != 0)
      throw Fault{kInvalidValue, fmt::format("kernel {}: {} blocks are no whole clusters of {}",
                                             function->name, grid[a], cluster[a])};
    clusters *= grid[a] / cluster[a];
  }
  const uint64_t of_cluster = uint64_t{cluster[0]} * cluster[1] * cluster[2];
  const uint64_t most = std::max<uint64_t>(1, static_cast<uint64_t>(most_blocks) / of_cluster);
  std::deque<std::unique_ptr<Cluster>> resident;
  constexpr uint64_t kTurnsOfOthers = 4;
  uint64_t next = 0, turn = 0;
  while (next < clusters || !resident.empty()) {
    // One more where all that are here spin.
    if (next < clusters && resident.size() < most) resident.push_back(BeginCluster(*this, next++));
    const size_t before = resident.size();
    const bool all_run = ++turn % kTurnsOfOthers == 0;
    std::erase_if(resident, [&](const auto& c) { return (all_run || !c->lags) && RunCluster(*c); });
    if (steps > most_steps && resident.size() == before)
      RaiseDeadlock(*resident.front(), "it has run for too many instructions; these still do");
  }
}

}  // namespace kiln::emulated
