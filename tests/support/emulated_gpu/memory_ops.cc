// ld, st, atom, red and what orders them. PTX ISA 9.7.9 and 9.7.13. Memory is in one order, that of
// execution; fences do nothing.
#include <fmt/format.h>

#include <algorithm>

#include "tests/support/emulated_gpu/decoder.h"
#include "tests/support/emulated_gpu/machine.h"
#include "tests/support/emulated_gpu/numbers.h"

namespace kiln::emulated {
namespace {

// ---- loads and stores

// An element of T in memory, of a register of 64 bits (wide) or less.
template <class T, bool wide>
void RunLoad(Warp& w, const Instr& i, Mask lanes) {
  const uint32_t* const slots = w.function->lists.data() + i.first_list;
  const int64_t bytes = static_cast<int64_t>(sizeof(T)) * i.list_size;
  ForLanes(lanes, [&](int lane) {
    const uint8_t* const from = Access(w, i, lane, bytes, false);
    for (int k = 0; k < i.list_size; ++k) {
      T v;
      std::memcpy(&v, from + static_cast<size_t>(k) * sizeof(T), sizeof(T));
      if constexpr (wide)
        Put<uint64_t>(w, slots[k], lane, static_cast<uint64_t>(v));
      else
        Put<T>(w, slots[k], lane, v);
    }
  });
}
template <class T, bool wide>
void RunStore(Warp& w, const Instr& i, Mask lanes) {
  const uint32_t* const slots = w.function->lists.data() + i.first_list;
  const int64_t bytes = static_cast<int64_t>(sizeof(T)) * i.list_size;
  ForLanes(lanes, [&](int lane) {
    uint8_t* const to = Access(w, i, lane, bytes, true);
    for (int k = 0; k < i.list_size; ++k) {
      T v;
      if constexpr (wide)
        v = static_cast<T>(Get<uint64_t>(w, slots[k], lane));
      else
        v = Get<T>(w, slots[k], lane);
      std::memcpy(to + static_cast<size_t>(k) * sizeof(T), &v, sizeof(T));
    }
  });
}
template <class T>
Handler Pick(bool loads, bool wide) {
  if (loads) return wide ? &RunLoad<T, true> : &RunLoad<T, false>;
  return wide ? &RunStore<T, true> : &RunStore<T, false>;
}
void DecodeAccess(Decoder& d, Instr& i, bool loads) {
  i.type = d.LastType();
  i.space = d.SpaceOf();
  const std::string& value = d.text(loads ? 0 : 1);
  d.Address(d.text(loads ? 1 : 0), i);
  const std::string first = Decoder::Split(value)[0];
  const int own = d.RegisterBits(first);
  const bool wide = own == 64 || (own == 0 && BitsOf(i.type) == 64);
  if (wide && BitsOf(i.type) == 8 && loads) d.Fail("loads a byte to 64 bits");
  d.List(value, wide ? 64 : 32, loads, i.first_list, i.list_size);
  if (i.list_size != d.VectorSize()) d.Fail("has another number of registers than its vector");
  switch (i.type) {
    case Type::kB8:
    case Type::kU8:
      i.run = Pick<uint8_t>(loads, wide);
      break;
    case Type::kS8:
      i.run = Pick<int8_t>(loads, wide);
      break;
    case Type::kB16:
    case Type::kU16:
    case Type::kF16:
    case Type::kBF16:
      i.run = Pick<uint16_t>(loads, wide);
      break;
    case Type::kS16:
      i.run = Pick<int16_t>(loads, wide);
      break;
    case Type::kS32:
      i.run = Pick<int32_t>(loads, wide);
      break;
    case Type::kB32:
    case Type::kU32:
    case Type::kF32:
    case Type::kF16x2:
    case Type::kBF16x2:
      i.run = Pick<uint32_t>(loads, wide);
      break;
    case Type::kB64:
    case Type::kU64:
    case Type::kS64:
    case Type::kF64:
      i.run = Pick<uint64_t>(loads, true);
      break;
    default:
      break;
  }
  // A thread that asks again and again for what another writes lets others run.
  if (loads && (d.Has("acquire") || d.Has("relaxed") || d.Has("volatile")))
    i.control = Control::kSpin;
}
void DecodeLoad(Decoder& d, Instr& i) { DecodeAccess(d, i, true); }
void DecodeStore(Decoder& d, Instr& i) {
  if (d.parts()[1] == "async") return DecodeAsyncStore(d, i);
  DecodeAccess(d, i, false);
}

// ---- atomics

enum AtomicOp : uint8_t { kAdd, kMin, kMax, kAnd, kOr, kXor, kExch, kCas, kInc, kDec };
constexpr std::string_view kAtomics[] = {"add", "min",  "max", "and", "or",
                                         "xor", "exch", "cas", "inc", "dec"};

template <class T>
T Updated(uint8_t op, T old, T b, T c) {
  if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16>) {
    return op == kAdd ? T::From(double{old.Value()} + b.Value()) : b;
  } else {
    switch (op) {
      case kAdd:
        if constexpr (std::is_floating_point_v<T>)
          return Canonical(old + b);
        else
          return static_cast<T>(static_cast<std::make_unsigned_t<T>>(old) +
                                static_cast<std::make_unsigned_t<T>>(b));
      case kMin:
        return std::min(old, b);
      case kMax:
        return std::max(old, b);
      case kExch:
        return b;
      case kCas:
        return old == b ? c : old;
      case kInc:
        return old >= b ? T{0} : static_cast<T>(old + 1);
      case kDec:
        return old == 0 || old > b ? b : static_cast<T>(old - 1);
      default:
        break;
    }
    if constexpr (std::is_integral_v<T>) {
      if (op == kAnd) return old & b;
      if (op == kOr) return old | b;
      return old ^ b;
    }
    return old;
  }
}
// Vectors (.v2, .v4) and pairs are `number` elements of T, one after the other.
template <class T>
void RunAtomic(Warp& w, const Instr& i, Mask lanes) {
  const uint32_t* const values = w.function->lists.data() + i.first_list;
  const uint32_t* const olds = w.function->lists.data() + i.second_list;
  constexpr int64_t kBytes = sizeof(T);
  const int64_t bytes = kBytes * i.list_size;
  ForLanes(lanes, [&](int lane) {
    uint8_t* const at = Locate(w, i, lane, i.space, AddressOf(w, i, lane), bytes, true, bytes);
    for (int k = 0; k < i.list_size; ++k) {
      T old;
      std::memcpy(&old, at + k * kBytes, sizeof(T));
      const T b = Get<T>(w, values[k], lane);
      const T made = Updated(i.combine, old, b, i.combine == kCas ? Get<T>(w, i.c, lane) : b);
      std::memcpy(at + k * kBytes, &made, sizeof(T));
      if (i.second_size != 0) Put<T>(w, olds[k], lane, old);
    }
  });
}
template <class Half>
void RunAtomicPair(Warp& w, const Instr& i, Mask lanes) {
  const uint32_t* const values = w.function->lists.data() + i.first_list;
  const uint32_t* const olds = w.function->lists.data() + i.second_list;
  ForLanes(lanes, [&](int lane) {
    uint8_t* const at =
        Locate(w, i, lane, i.space, AddressOf(w, i, lane), 4 * i.list_size, true, 4 * i.list_size);
    for (int k = 0; k < i.list_size; ++k) {
      Pair<Half> old;
      std::memcpy(&old, at + 4 * k, 4);
      const auto b = Get<Pair<Half>>(w, values[k], lane);
      const Pair<Half> made = {Updated(i.combine, old.low, b.low, b.low),
                               Updated(i.combine, old.high, b.high, b.high)};
      std::memcpy(at + 4 * k, &made, 4);
      if (i.second_size != 0) Put(w, olds[k], lane, old);
    }
  });
}
void DecodeAtomic(Decoder& d, Instr& i, bool returns) {
  i.type = d.LastType();
  i.space = d.SpaceOf();
  const auto op =
      std::ranges::find_if(kAtomics, [&](std::string_view name) { return d.Has(name); });
  if (op == std::end(kAtomics)) d.Fail("has no operation that is known");
  i.combine = static_cast<uint8_t>(op - std::begin(kAtomics));
  const size_t address = returns ? 1 : 0;
  d.Address(d.text(address), i);
  const int bits = BitsOf(i.type);
  d.List(d.text(address + 1), bits, false, i.first_list, i.list_size);
  if (i.combine == kCas) i.c = d.Source(address + 2, bits);
  if (returns) d.List(d.text(0), bits, true, i.second_list, i.second_size);
  switch (i.type) {
    case Type::kB32:
    case Type::kU32:
      i.run = &RunAtomic<uint32_t>;
      break;
    case Type::kS32:
      i.run = &RunAtomic<int32_t>;
      break;
    case Type::kB64:
    case Type::kU64:
      i.run = &RunAtomic<uint64_t>;
      break;
    case Type::kS64:
      i.run = &RunAtomic<int64_t>;
      break;
    case Type::kF32:
      i.run = &RunAtomic<float>;
      break;
    case Type::kF64:
      i.run = &RunAtomic<double>;
      break;
    case Type::kF16:
      i.run = &RunAtomic<F16>;
      break;
    case Type::kBF16:
      i.run = &RunAtomic<BF16>;
      break;
    case Type::kF16x2:
      i.run = &RunAtomicPair<F16>;
      break;
    case Type::kBF16x2:
      i.run = &RunAtomicPair<BF16>;
      break;
    default:
      break;
  }
  if (returns) {
    i.control = Control::kSpin;
    i.number = 500;
  }
}
void DecodeAtom(Decoder& d, Instr& i) { DecodeAtomic(d, i, true); }
void DecodeRed(Decoder& d, Instr& i) {
  if (d.Has("async")) d.Fail("is not known");
  DecodeAtomic(d, i, false);
}

void RunNothing(Warp&, const Instr&, Mask) {}
void DecodeNothing(Decoder&, Instr& i) { i.run = &RunNothing; }

constexpr OpRow kOps[] = {
    {"ld", &DecodeLoad},
    {"ldu", &DecodeLoad},
    {"st", &DecodeStore},
    {"atom", &DecodeAtom},
    {"red", &DecodeRed},
    {"membar", &DecodeNothing},
    {"fence", &DecodeNothing},
    {"prefetch", &DecodeNothing},
    {"prefetchu", &DecodeNothing},
    {"discard", &DecodeNothing},
    {"applypriority", &DecodeNothing},
};

}  // namespace

std::span<const OpRow> MemoryOps() { return kOps; }

}  // namespace kiln::emulated
