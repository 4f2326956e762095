// The state of a launch: clusters of blocks of warps, memory, and what is under way. A warp runs
// the lanes that stand at the lowest place first, so that lanes which parted meet again; it runs
// until it has to wait, and then the next one does. See machine.cc for the order.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/emulated_gpu/memory.h"
#include "tests/support/emulated_gpu/program.h"

namespace kiln::emulated {

// CUDA_ERROR_…
constexpr int kInvalidValue = 1, kInvalidPtx = 218, kIllegalAddress = 700, kLaunchTimeout = 702,
              kIllegalInstruction = 715, kMisalignedAddress = 716, kLaunchFailed = 719,
              kCooperativeLaunchTooLarge = 720;

struct Fault {
  int code;
  std::string text;
};

struct Block;
struct Cluster;
struct Launch;

// A generic address is a host address, or lies in a window.
constexpr uint64_t kSharedWindow = uint64_t{1} << 56, kLocalWindow = uint64_t{2} << 56;
constexpr uint64_t kWindowBits = ~((uint64_t{1} << 56) - 1);
// The block's rank in its cluster stands above the place in its shared memory, which begins behind
// what the system has for itself.
constexpr int kRankShift = 24;
constexpr uint32_t kSharedBegin = 1024;

// A copy of cp.async, or a piece of work of the async proxy, that has been asked for.
struct PendingCopy {
  uint8_t* to;
  uint64_t from;  // 0: zeros
  int bytes, read;
};
struct PendingWork {
  std::function<void()> apply;
};
// Groups of one thread: those committed, and the one that is open.
template <class Work>
struct Groups {
  std::deque<std::vector<Work>> committed;
  std::vector<Work> open;

  void Commit() {
    committed.push_back(std::move(open));
    open.clear();
  }
  // Until at most `left` are under way.
  template <class Apply>
  void Wait(size_t left, const Apply& apply) {
    while (committed.size() > left) {
      for (Work& work : committed.front()) apply(work);
      committed.pop_front();
    }
  }
};

struct Warp {
  Block* block = nullptr;
  const Function* function = nullptr;
  uint8_t* registers = nullptr;
  int number = 0;
  Mask live = 0, waiting = 0, stalled = 0;
  Mask on_mbarrier = 0;  // waiting lanes that ask again when a phase ends
  // Lanes that an mbarrier has sent back to ask again. Other lanes of the warp have no turn before
  // they are through: a GPU may run a loop of some lanes for ever while others have something to
  // do.
  Mask asking = 0;
  uint32_t pc[kLanes] = {};
  Mask group = 0;  // lanes that run, at `at`
  uint32_t at = 0;
  int cluster_phase = 0;       // of the cluster's barrier, when the warp arrived last
  std::vector<uint8_t> local;  // of all lanes, one after the other
  std::unique_ptr<Groups<PendingCopy>[]> copies;  // a lane's
  std::unique_ptr<Groups<PendingWork>[]> bulk;    // a lane's
  Groups<PendingWork> products;                   // wgmma

  bool HasProducts() const { return !products.committed.empty() || !products.open.empty(); }
  // Lanes of the group wait; they go on behind the instruction, or ask again.
  void Wait(Mask lanes, bool asks_again);
};

template <class F>
inline void ForLanes(Mask lanes, const F& body) {
  if (lanes == ~Mask{0}) {
    for (int lane = 0; lane < kLanes; ++lane) body(lane);
    return;
  }
  for (; lanes != 0; lanes &= lanes - 1) body(__builtin_ctz(lanes));
}
template <class T>
inline T Get(const Warp& w, uint32_t slot, int lane) {
  T value;
  std::memcpy(&value,
              w.registers + slot + lane * (sizeof(T) <= 4 ? 4 : static_cast<int>(sizeof(T))),
              sizeof(T));
  return value;
}
// Narrow values fill their word, with copies of the sign where they have one.
template <class T>
inline void Put(Warp& w, uint32_t slot, int lane, T value) {
  if constexpr (sizeof(T) >= 4) {
    std::memcpy(w.registers + slot + lane * static_cast<int>(sizeof(T)), &value, sizeof(T));
  } else {
    uint32_t word = 0;
    if constexpr (std::is_signed_v<T> && std::is_integral_v<T>)
      word = static_cast<uint32_t>(static_cast<int32_t>(value));
    else
      std::memcpy(&word, &value, sizeof(T));
    std::memcpy(w.registers + slot + lane * 4, &word, 4);
  }
}
// A register of all lanes at once.
template <class T>
struct Lanes {
  T v[kLanes];
};
template <class T>
inline Lanes<T> GetAll(const Warp& w, uint32_t slot) {
  Lanes<T> all;
  if constexpr (sizeof(T) >= 4) {
    std::memcpy(&all, w.registers + slot, sizeof all);
  } else {
    Lanes<uint32_t> words;
    std::memcpy(&words, w.registers + slot, sizeof words);
    for (int lane = 0; lane < kLanes; ++lane) std::memcpy(&all.v[lane], &words.v[lane], sizeof(T));
  }
  return all;
}
template <class T>
inline void PutAll(Warp& w, uint32_t slot, Mask lanes, const Lanes<T>& all) {
  if constexpr (sizeof(T) >= 4) {
    if (lanes == ~Mask{0}) {
      std::memcpy(w.registers + slot, &all, sizeof all);
      return;
    }
  }
  ForLanes(lanes, [&](int lane) { Put(w, slot, lane, all.v[lane]); });
}
inline Mask GetPred(const Warp& w, uint32_t slot, bool negated = false) {
  Mask value;
  std::memcpy(&value, w.registers + slot, 4);
  return negated ? ~value : value;
}
inline void PutPred(Warp& w, uint32_t slot, Mask lanes, Mask value) {
  const Mask kept = GetPred(w, slot) & ~lanes;
  value = kept | (value & lanes);
  std::memcpy(w.registers + slot, &value, 4);
}
inline int FirstLane(Mask lanes) { return __builtin_ctz(lanes); }

struct NamedBarrier {
  int arrived = 0, expected = 0;  // threads; expected 0: all that live
  std::vector<std::pair<Warp*, Mask>> waiting;
};

struct Block {
  Launch* launch = nullptr;
  Cluster* cluster = nullptr;
  uint32_t index[3] = {};
  int rank = 0;  // in the cluster
  std::vector<uint8_t> shared_memory;
  uint8_t* shared = nullptr;  // address kSharedBegin, aligned to 1024
  int64_t shared_bytes = 0;
  std::vector<Warp> warps;
  std::vector<uint8_t> registers;
  NamedBarrier barriers[16];
  int living = 0;  // threads

  void Arrive(Warp& warp, Mask lanes, int id, int expected, bool waits);
  void Complete(NamedBarrier& barrier);
  void ThreadsLeft(int count);  // exited
};

struct Cluster {
  Launch* launch = nullptr;
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<PendingWork> pending;  // of the async proxy, that a barrier will tell of
  int arrived = 0;                   // at the cluster's barrier
  int phase = 0;
  std::vector<std::pair<Warp*, Mask>> waiting;
  int living = 0;
  bool lags = false;

  void Wake();  // a phase of some mbarrier has ended: who asks shall ask again
  void CompleteBarrier();
};

struct Launch {
  const Module* module = nullptr;
  const Function* function = nullptr;
  uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
  uint32_t dynamic_shared_bytes = 0;
  struct alignas(64) ParamPiece {
    uint8_t bytes[64];
  };
  std::vector<ParamPiece> param_pieces;
  size_t param_bytes = 0;
  int most_blocks = 132;  // resident at a time
  int lag = 0;            // each lag-th cluster is late; 0: none
  int64_t steps = 0, most_steps = 0;
  uint64_t number = 0;
  Memory* memory = nullptr;
  Memory::Range near;  // the range that was used last

  uint8_t* params() { return param_pieces.data()->bytes; }
  // Runs it; throws Fault.
  void Run();
};

// ---- memory as instructions see it

// The host's bytes of an address; throws Fault where there are none, or the address is not aligned.
uint8_t* Locate(Warp& warp, const Instr& instr, int lane, Space space, uint64_t address,
                int64_t bytes, bool writes, int64_t align);
inline uint64_t AddressOf(const Warp& w, const Instr& i, int lane) {
  const uint64_t base = i.a_is_wide ? Get<uint64_t>(w, i.a, lane) : Get<uint32_t>(w, i.a, lane);
  return i.a_is_wide ? base + static_cast<uint64_t>(i.offset)
                     : static_cast<uint32_t>(base + static_cast<uint64_t>(i.offset));
}
// The host's bytes of an address by the short way, where the access is like the last one.
inline uint8_t* Access(Warp& w, const Instr& i, int lane, int64_t bytes, bool writes) {
  const uint64_t address = AddressOf(w, i, lane);
  if ((address & static_cast<uint64_t>(bytes - 1)) == 0) {
    if (i.space == Space::kGlobal &&
        w.block->launch->near.Has(address, static_cast<uint64_t>(bytes)))
      return reinterpret_cast<uint8_t*>(address);
    if (i.space == Space::kShared) {
      const uint64_t at =
          address - (static_cast<uint64_t>(w.block->rank) << kRankShift) - kSharedBegin;
      if (at < static_cast<uint64_t>(w.block->shared_bytes) &&
          at + static_cast<uint64_t>(bytes) <= static_cast<uint64_t>(w.block->shared_bytes))
        return w.block->shared + at;
    }
  }
  return Locate(w, i, lane, i.space, address, bytes, writes, bytes);
}
// Bytes of shared memory at an address of shared::cluster (that of a block has its rank in it).
uint8_t* LocateShared(Warp& warp, const Instr& instr, int lane, uint32_t address, int64_t bytes,
                      int64_t align);
// Computes what of wgmma is under way, but the last `left` groups. Defined in wgmma_ops.cc.
void FinishProducts(Warp& warp, size_t left);

[[noreturn]] void Raise(const Warp& warp, const Instr& instr, int lane, int code,
                        const std::string& text);

}  // namespace kiln::emulated
