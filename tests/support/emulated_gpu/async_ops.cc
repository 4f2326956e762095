// Copies that go on while the thread does: cp.async, bulk copies with and without tensor maps, and
// the mbarriers that tell of them. PTX ISA 9.7.9.25 and 9.7.13.15.
//
// All of them are done as late as may be, loads of the async proxy the youngest first. A cp.async
// reads and writes when its group is waited for. A bulk load is done when no warp of the cluster
// can go on without one; a bulk store reads shared memory when its group is waited for, or when its
// thread leaves.
#include <fmt/format.h>

#include <algorithm>

#include "tests/support/emulated_gpu/decoder.h"
#include "tests/support/emulated_gpu/machine.h"
#include "tests/support/emulated_gpu/numbers.h"
#include "tests/support/emulated_gpu/tensor_map.h"

namespace kiln::emulated {
namespace {

// ---- cp.async

Groups<PendingCopy>& CopiesOf(Warp& w, int lane) {
  if (w.copies == nullptr) w.copies = std::make_unique<Groups<PendingCopy>[]>(kLanes);
  return w.copies[lane];
}
Groups<PendingWork>& BulkOf(Warp& w, int lane) {
  if (w.bulk == nullptr) w.bulk = std::make_unique<Groups<PendingWork>[]>(kLanes);
  return w.bulk[lane];
}

// `b` is the global address and `second_list` its offset; `e` the bytes to read, where kHasSecond.
void RunCopy(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    const int bytes = static_cast<int>(i.number);
    int read = bytes;
    if ((i.flags & kHasSecond) != 0)
      read = std::min(bytes, static_cast<int>(Get<uint32_t>(w, i.e, lane)));
    const uint64_t from =
        Get<uint64_t>(w, i.b, lane) + static_cast<uint64_t>(int64_t{i.second_list});
    uint8_t* const to =
        Locate(w, i, lane, Space::kShared, AddressOf(w, i, lane), bytes, true, bytes);
    if (read > 0) Locate(w, i, lane, Space::kGlobal, from, read, false, 1);
    if (read > 0 && from % static_cast<uint64_t>(bytes) != 0)
      Raise(w, i, lane, kMisalignedAddress,
            fmt::format("address {:#x} is no multiple of {}", from, bytes));
    CopiesOf(w, lane).open.push_back({.to = to, .from = from, .bytes = bytes, .read = read});
  });
}
void Apply(const PendingCopy& copy) {
  std::memset(copy.to, 0, static_cast<size_t>(copy.bytes));
  if (copy.read > 0)
    std::memcpy(copy.to, reinterpret_cast<const void*>(copy.from), static_cast<size_t>(copy.read));
}
void RunCommit(Warp& w, const Instr&, Mask lanes) {
  ForLanes(lanes, [&](int lane) { CopiesOf(w, lane).Commit(); });
}
void RunWaitGroup(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    if (i.number < 0) CopiesOf(w, lane).Commit();  // wait_all
    CopiesOf(w, lane).Wait(static_cast<size_t>(std::max<int64_t>(i.number, 0)), Apply);
  });
}

// ---- mbarriers: phase, arrivals that a phase has, those that are missing, bytes that are missing

struct Barrier {
  static constexpr uint64_t kBits20 = (1 << 20) - 1, kBits22 = (1 << 22) - 1;
  bool phase;
  int64_t expected, missing, bytes;

  static Barrier Read(Warp& w, const Instr& i, int lane, const uint8_t* at) {
    uint64_t v;
    std::memcpy(&v, at, 8);
    if (v >> 63 != 0)
      Raise(w, i, lane, kIllegalInstruction, "the mbarrier has not been initialised");
    const auto bytes = static_cast<int64_t>(v >> 41 & kBits22);
    return {.phase = (v & 1) != 0,
            .expected = static_cast<int64_t>(v >> 1 & kBits20),
            .missing = static_cast<int64_t>(v >> 21 & kBits20),
            .bytes = bytes >= 1 << 21 ? bytes - (1 << 22) : bytes};
  }
  uint64_t Bits() const {
    return static_cast<uint64_t>(phase) | static_cast<uint64_t>(expected) << 1 |
           static_cast<uint64_t>(missing) << 21 | (static_cast<uint64_t>(bytes) & kBits22) << 41;
  }
  void Write(uint8_t* at) const {
    const uint64_t v = Bits();
    std::memcpy(at, &v, 8);
  }
};

// Arrivals and bytes are taken off; a phase that lacks nothing ends.
void Change(Warp& w, const Instr& i, int lane, uint8_t* at, int64_t arrivals, int64_t more_bytes) {
  Barrier b = Barrier::Read(w, i, lane, at);
  b.bytes += more_bytes;
  if (arrivals > b.missing)
    Raise(w, i, lane, kIllegalInstruction,
          fmt::format("{} arrivals at an mbarrier that lacks {} of {}", arrivals, b.missing,
                      b.expected));
  b.missing -= arrivals;
  if (b.missing == 0 && b.bytes == 0) {
    b.phase = !b.phase;
    b.missing = b.expected;
    w.block->cluster->Wake();
  }
  b.Write(at);
}

uint8_t* BarrierAt(Warp& w, const Instr& i, int lane) {
  return Locate(w, i, lane, i.space, AddressOf(w, i, lane), 8, true, 8);
}
void RunInit(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    const auto count = int64_t{Get<uint32_t>(w, i.b, lane)};
    Barrier{.phase = false, .expected = count, .missing = count, .bytes = 0}.Write(
        BarrierAt(w, i, lane));
  });
}
void RunInvalidate(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) { std::memset(BarrierAt(w, i, lane), 0xff, 8); });
}
// `b`: arrivals, where list_size; `c`: bytes, where second_size.
void RunArrive(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    uint8_t* const at = BarrierAt(w, i, lane);
    const uint64_t before = Barrier::Read(w, i, lane, at).Bits();
    const int64_t arrivals = i.list_size != 0 ? Get<uint32_t>(w, i.b, lane) : i.number;
    Change(w, i, lane, at, arrivals, i.second_size != 0 ? Get<uint32_t>(w, i.c, lane) : 0);
    if (i.d_is_wide) Put(w, i.d, lane, before);
  });
}
// Lanes whose phase has not ended wait for one to do so, and ask again; test_wait gives false.
void RunTry(Warp& w, const Instr& i, Mask lanes) {
  Mask done = 0, waits = 0;
  ForLanes(lanes, [&](int lane) {
    const bool phase = Barrier::Read(w, i, lane, BarrierAt(w, i, lane)).phase;
    const bool asked = i.compare == 1 ? (Get<uint32_t>(w, i.b, lane) & 1) != 0
                                      : (Get<uint64_t>(w, i.b, lane) & 1) != 0;
    (phase != asked ? done : waits) |= Mask{1} << lane;
  });
  if (i.control == Control::kSpin) {
    PutPred(w, i.d, lanes, done);
    return;
  }
  PutPred(w, i.d, done, done);
  w.asking &= ~lanes;
  if (waits != 0) w.Wait(waits, true);
}
void DecodeMbarrier(Decoder& d, Instr& i) {
  const std::string_view kind = d.parts()[1];
  i.space = d.SpaceOf();
  if (kind == "init") {
    d.Address(d.text(0), i);
    i.b = d.Source(1, 32);
    i.run = &RunInit;
  } else if (kind == "inval") {
    d.Address(d.text(0), i);
    i.run = &RunInvalidate;
  } else if (kind == "arrive") {
    if (d.Has("noComplete")) d.Fail("is not known");
    if (d.text(0) != "_") {
      i.d = d.Target(0, 64);
      i.d_is_wide = true;
    }
    d.Address(d.text(1), i);
    i.number = 1;
    if (d.Has("expect_tx")) {
      i.c = d.Source(2, 32);
      i.second_size = 1;
    } else if (d.count() > 2) {
      i.b = d.Source(2, 32);
      i.list_size = 1;
    }
    i.run = &RunArrive;
  } else if (kind == "expect_tx") {
    d.Address(d.text(0), i);
    i.c = d.Source(1, 32);
    i.second_size = 1;
    i.run = &RunArrive;
  } else if (kind == "test_wait" || kind == "try_wait") {
    i.d = d.Target(0, 1);
    d.Address(d.text(1), i);
    i.compare = d.Has("parity") ? 1 : 0;
    i.b = d.Source(2, i.compare == 1 ? 32 : 64);
    i.control = kind == "try_wait" ? Control::kWait : Control::kSpin;
    i.run = &RunTry;
  } else {
    d.Fail("is not known");
  }
}

// ---- st.async: words for another block, which count on a barrier there

struct AsyncStore {
  Warp* warp;
  const Instr* instr;
  int lane;
  uint32_t to, barrier;
  std::vector<uint32_t> words;
};

void RunAsyncStore(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    AsyncStore s{.warp = &w,
                 .instr = &i,
                 .lane = lane,
                 .to = static_cast<uint32_t>(AddressOf(w, i, lane)),
                 .barrier = Get<uint32_t>(w, i.c, lane) + static_cast<uint32_t>(i.target),
                 .words = {}};
    const uint32_t* const values = w.function->lists.data() + i.first_list;
    for (int k = 0; k < i.list_size; ++k) s.words.push_back(Get<uint32_t>(w, values[k], lane));
    w.block->cluster->pending.push_back({[s] {
      const auto bytes = static_cast<int64_t>(4 * s.words.size());
      std::memcpy(LocateShared(*s.warp, *s.instr, s.lane, s.to, bytes, bytes), s.words.data(),
                  static_cast<size_t>(bytes));
      Change(*s.warp, *s.instr, s.lane, LocateShared(*s.warp, *s.instr, s.lane, s.barrier, 8, 8), 0,
             -bytes);
    }});
  });
}

// ---- bulk copies

constexpr int kMostCoordinates = 5;

// Operands that one lane asked for a bulk copy with.
struct Bulk {
  Warp* warp;
  const Instr* instr;
  int lane;
  uint32_t shared = 0;  // address in shared::cluster
  uint32_t barrier = 0;
  uint32_t blocks = 0;  // mask of those that get it
  uint64_t global = 0;  // without a map
  int64_t bytes = 0;
  TensorMap map = {};
  int32_t start[kMostCoordinates] = {};
  uint16_t offsets[3] = {};

  uint8_t* Shared(uint32_t address, int64_t size) const {
    return LocateShared(*warp, *instr, lane, address, size, 1);
  }
  uint8_t* Global(uint64_t address, int64_t size, bool writes) const {
    return Locate(*warp, *instr, lane, Space::kGlobal, address, size, writes, 1);
  }
  uint32_t In(uint32_t address, uint32_t rank) const {
    return (address & ((1u << kRankShift) - 1)) | rank << kRankShift;
  }
};

// A 32-bit float as TMA hands it to a map of TF32: rounded to nearest.
uint32_t RoundedToTf32(uint32_t v) {
  if ((v & 0x7f800000) == 0x7f800000) return v;
  return (v + 0x1000) & 0xffffe000;
}

constexpr uint8_t kMapTf32 = 11;

void LoadBox(const Bulk& b, uint32_t rank) {
  const TensorMap& map = b.map;
  const int bytes = map.ElementBytes();
  std::vector<uint8_t> row_bytes(static_cast<size_t>(RowElements(map) * bytes));
  bool is_outside = true;
  ForRows(map, b.start, b.offsets, [&](const BoxRow& row) {
    std::fill(row_bytes.begin(), row_bytes.end(), map.fills_nan != 0 ? 0xff : 0);
    int64_t begin = 0, end = 0;
    InsideOf(map, row, begin, end);
    is_outside &= !row.is_inside;
    if (begin < end)
      std::memcpy(row_bytes.data() + begin * bytes,
                  b.Global(AddressOf(map, row, begin), (end - begin) * bytes, false),
                  static_cast<size_t>((end - begin) * bytes));
    if (map.type == kMapTf32)
      for (size_t at = 0; at + 4 <= row_bytes.size(); at += 4) {
        uint32_t v;
        std::memcpy(&v, row_bytes.data() + at, 4);
        v = RoundedToTf32(v);
        std::memcpy(row_bytes.data() + at, &v, 4);
      }
    for (size_t at = 0; at < row_bytes.size(); at += 16) {
      const size_t piece = std::min<size_t>(16, row_bytes.size() - at);
      const uint32_t to =
          Swizzled(b.In(b.shared, rank) + static_cast<uint32_t>(row.at) + static_cast<uint32_t>(at),
                   map.swizzle);
      std::memcpy(b.Shared(to, static_cast<int64_t>(piece)), row_bytes.data() + at, piece);
    }
  });
  // An H100 reads the map's address then: CUDA_ERROR_ILLEGAL_ADDRESS where nothing is there.
  if (is_outside) b.Global(map.address, bytes, false);
}
void StoreBox(const Bulk& b) {
  const TensorMap& map = b.map;
  const int bytes = map.ElementBytes();
  ForRows(map, b.start, b.offsets, [&](const BoxRow& row) {
    int64_t begin = 0, end = 0;
    InsideOf(map, row, begin, end);
    for (int64_t e = begin; e < end; ++e) {
      const uint32_t from =
          Swizzled(b.shared + static_cast<uint32_t>(row.at + e * bytes), map.swizzle);
      std::memcpy(b.Global(AddressOf(map, row, e), bytes, true), b.Shared(from, bytes),
                  static_cast<size_t>(bytes));
    }
  });
}

void ApplyLoad(const Bulk& b) {
  const int64_t bytes = b.map.magic == TensorMap::kMagic ? b.map.BoxBytes() : b.bytes;
  for (uint32_t rank = 0; rank < b.warp->block->cluster->blocks.size(); ++rank) {
    if ((b.blocks >> rank & 1) == 0) continue;
    if (b.map.magic == TensorMap::kMagic)
      LoadBox(b, rank);
    else
      std::memcpy(b.Shared(b.In(b.shared, rank), bytes), b.Global(b.global, bytes, false),
                  static_cast<size_t>(bytes));
    Change(*b.warp, *b.instr, b.lane, b.Shared(b.In(b.barrier, rank), 8), 0, -bytes);
  }
}

void Align(const Bulk& b, uint64_t address, uint64_t to, const char* what) {
  if (address % to != 0)
    Raise(*b.warp, *b.instr, b.lane, kMisalignedAddress,
          fmt::format("{} {:#x} of a bulk copy is no multiple of {}", what, address, to));
}

// Operands of a row: lists hold the coordinates, then offsets of im2col.
void ReadMap(Bulk& b) {
  Warp& w = *b.warp;
  const Instr& i = *b.instr;
  const uint64_t at = Get<uint64_t>(w, i.b, b.lane);
  Align(b, at, 64, "address of the tensor map");
  std::memcpy(&b.map, Locate(w, i, b.lane, Space::kGeneric, at, 128, false, 64), sizeof b.map);
  if (b.map.magic != TensorMap::kMagic)
    Raise(w, i, b.lane, kIllegalInstruction, fmt::format("no tensor map is at {:#x}", at));
  if (b.map.rank != i.list_size)
    Raise(w, i, b.lane, kIllegalInstruction,
          fmt::format("{} coordinates for a map of rank {}", i.list_size, b.map.rank));
  if ((b.map.is_im2col != 0) != (i.combine != 0))
    Raise(w, i, b.lane, kIllegalInstruction, "im2col and tiled maps are not the same");
  const uint32_t* const coordinates = w.function->lists.data() + i.first_list;
  for (int k = 0; k < i.list_size; ++k) b.start[k] = Get<int32_t>(w, coordinates[k], b.lane);
  const uint32_t* const offsets = w.function->lists.data() + i.second_list;
  for (int k = 0; k < i.second_size; ++k) b.offsets[k] = Get<uint16_t>(w, offsets[k], b.lane);
}

void RunBulkLoad(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    Bulk b{.warp = &w, .instr = &i, .lane = lane};
    b.shared = Get<uint32_t>(w, i.a, lane) + static_cast<uint32_t>(i.offset);
    b.barrier = Get<uint32_t>(w, i.c, lane) + static_cast<uint32_t>(i.target);
    b.blocks =
        (i.flags & kMulticast) != 0 ? Get<uint16_t>(w, i.e, lane) : 1u << (b.shared >> kRankShift);
    if (i.type == Type::kNone) {
      b.global = Get<uint64_t>(w, i.b, lane);
      b.bytes = Get<uint32_t>(w, i.d, lane);
      Align(b, b.global, 16, "global address");
      Align(b, b.shared, 16, "shared address");
      Align(b, static_cast<uint64_t>(b.bytes), 16, "size");
    } else {
      ReadMap(b);
      Align(b, b.shared, 128, "shared address");
    }
    w.block->cluster->pending.push_back({[b] { ApplyLoad(b); }});
  });
}
void RunBulkStore(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    Bulk b{.warp = &w, .instr = &i, .lane = lane};
    b.shared = Get<uint32_t>(w, i.a, lane) + static_cast<uint32_t>(i.offset);
    if (i.type == Type::kNone) {
      b.global = Get<uint64_t>(w, i.b, lane);
      b.bytes = Get<uint32_t>(w, i.d, lane);
      Align(b, b.global, 16, "global address");
      Align(b, b.shared, 16, "shared address");
    } else {
      ReadMap(b);
      Align(b, b.shared, 128, "shared address");
    }
    BulkOf(w, lane).open.push_back({[b] {
      if (b.map.magic == TensorMap::kMagic) return StoreBox(b);
      std::memcpy(b.Global(b.global, b.bytes, true), b.Shared(b.shared, b.bytes),
                  static_cast<size_t>(b.bytes));
    }});
  });
}
void RunBulkCommit(Warp& w, const Instr&, Mask lanes) {
  ForLanes(lanes, [&](int lane) { BulkOf(w, lane).Commit(); });
}
void RunBulkWait(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    BulkOf(w, lane).Wait(static_cast<size_t>(i.number), [](PendingWork& work) { work.apply(); });
  });
}

// "[map, {x, y}]" to the map's register and the list of coordinates.
void MapOperand(Decoder& d, Instr& i, const std::string& text) {
  const auto parts = Decoder::Split(text.substr(1, text.size() - 2));
  if (parts.size() != 2) d.Fail("has no coordinates");
  i.b = d.SourceOf(parts[0], 64);
  d.List(parts[1], 32, false, i.first_list, i.list_size);
}
void SharedOperand(Decoder& d, Instr& i, const std::string& text) {
  d.Address(text, i);
  if (i.a_is_wide) d.Fail("is not known with generic addresses of shared memory");
}
void DecodeBulk(Decoder& d, Instr& i) {
  if (d.Has("commit_group")) {
    i.run = &RunBulkCommit;
    return;
  }
  if (d.Has("wait_group")) {
    i.number = d.Number(0);
    i.run = &RunBulkWait;
    return;
  }
  if (d.Has("prefetch")) {
    i.run = +[](Warp&, const Instr&, Mask) {};
    return;
  }
  const auto& parts = d.parts();
  const bool has_map = d.Has("tensor");
  const size_t space = has_map ? 5 : 3;  // cp.async.bulk[.tensor.4d].TO.FROM
  if (parts.size() < space + 1 || d.Has("L2::cache_hint")) d.Fail("is not known");
  i.type = has_map ? Type::kB8 : Type::kNone;
  const bool stores = parts[space] == "global";
  i.combine = d.Has("im2col") || d.Has("im2col_no_offs") ? 1 : 0;
  if (stores) {
    if (has_map) {
      MapOperand(d, i, d.text(0));
      SharedOperand(d, i, d.text(1));
    } else {
      Instr to;
      d.Address(d.text(0), to);
      if (to.offset != 0) d.Fail("is not known with an offset");
      i.b = to.a;
      SharedOperand(d, i, d.text(1));
      i.d = d.Source(2, 32);
    }
    i.run = &RunBulkStore;
    return;
  }
  if (!parts[space].starts_with("shared") || parts[space + 1] != "global") d.Fail("is not known");
  Instr barrier;
  size_t next = 3;
  if (has_map) {
    SharedOperand(d, i, d.text(0));
    MapOperand(d, i, d.text(1));
    d.Address(d.text(2), barrier);
    if (d.Has("im2col")) d.List(d.text(next++), 16, false, i.second_list, i.second_size);
  } else {
    SharedOperand(d, i, d.text(0));
    Instr from;
    d.Address(d.text(1), from);
    if (from.offset != 0) d.Fail("is not known with an offset");
    i.b = from.a;
    i.d = d.Source(2, 32);
    d.Address(d.text(3), barrier);
    next = 4;
  }
  i.c = barrier.a;
  i.target = static_cast<int>(barrier.offset);
  if (d.Flag("multicast::cluster", i, kMulticast)) i.e = d.Source(next, 16);
  i.run = &RunBulkLoad;
}

void DecodeCp(Decoder& d, Instr& i) {
  if (d.parts()[1] == "reduce") d.Fail("is not known");
  if (d.Has("bulk")) return DecodeBulk(d, i);
  if (d.Has("commit_group")) {
    i.run = &RunCommit;
  } else if (d.Has("wait_group") || d.Has("wait_all")) {
    i.number = d.Has("wait_all") ? -1 : d.Number(0);
    i.run = &RunWaitGroup;
  } else if (d.Has("mbarrier")) {
    d.Fail("is not known");
  } else {
    Instr from;
    d.Address(d.text(1), from);
    d.Address(d.text(0), i);
    i.b = from.a;
    i.second_list = static_cast<int>(from.offset);
    i.number = d.Number(2);
    if (d.count() > 3) {
      i.e = d.Source(3, 32);
      i.flags |= kHasSecond;
    }
    i.run = &RunCopy;
  }
}

}  // namespace

void DecodeAsyncStore(Decoder& d, Instr& i) {
  if (d.SpaceOf() != Space::kSharedCluster || !d.Has("mbarrier::complete_tx::bytes") ||
      BitsOf(d.LastType()) != 32)
    d.Fail("is not known");
  Instr barrier;
  d.Address(d.text(0), i);
  d.List(d.text(1), 32, false, i.first_list, i.list_size);
  d.Address(d.text(2), barrier);
  i.c = barrier.a;
  i.target = static_cast<int>(barrier.offset);
  i.run = &RunAsyncStore;
}

namespace {

constexpr OpRow kOps[] = {
    {"cp", &DecodeCp},
    {"mbarrier", &DecodeMbarrier},
};

}  // namespace

std::span<const OpRow> AsyncOps() { return kOps; }

}  // namespace kiln::emulated
