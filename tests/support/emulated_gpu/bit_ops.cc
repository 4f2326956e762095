// Shifts, fields of bits, permutations of bytes. PTX ISA 9.7.1 (bfe, bfi) and 9.7.8.
#include <fmt/format.h>

#include <algorithm>

#include "tests/support/emulated_gpu/scalar_kit.h"

namespace kiln::emulated {
namespace {

template <class T, bool is_left>
void RunShift(Warp& w, const Instr& i, Mask lanes) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  ForLanes(lanes, [&](int lane) {
    const T a = Get<T>(w, i.a, lane);
    const uint32_t by = std::min(Get<uint32_t>(w, i.b, lane), kBits);
    T r;
    if (by == kBits)
      r = !is_left && std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : T{0};
    else
      r = is_left ? static_cast<T>(Unsigned<T>(a) << by) : static_cast<T>(a >> by);
    Put<T>(w, i.d, lane, r);
  });
}
template <bool is_left>
void DecodeShift(Decoder& d, Instr& i) {
  i.type = d.LastType();
  i.d = d.Target(0, BitsOf(i.type));
  i.a = d.Source(1, BitsOf(i.type));
  i.b = d.Source(2, 32);
  switch (i.type) {
    case Type::kB16:
    case Type::kU16:
      i.run = &RunShift<uint16_t, is_left>;
      break;
    case Type::kS16:
      i.run = &RunShift<int16_t, is_left>;
      break;
    case Type::kB32:
    case Type::kU32:
      i.run = &RunShift<uint32_t, is_left>;
      break;
    case Type::kS32:
      i.run = &RunShift<int32_t, is_left>;
      break;
    case Type::kB64:
    case Type::kU64:
      i.run = &RunShift<uint64_t, is_left>;
      break;
    case Type::kS64:
      i.run = &RunShift<int64_t, is_left>;
      break;
    default:
      break;
  }
}
// shf: `number` 1 is left; kSaturate is .clamp.
void RunFunnel(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    const uint64_t both =
        static_cast<uint64_t>(Get<uint32_t>(w, i.b, lane)) << 32 | Get<uint32_t>(w, i.a, lane);
    uint32_t by = Get<uint32_t>(w, i.c, lane);
    by = (i.flags & kSaturate) != 0 ? std::min(by, 32u) : by & 31;
    const uint64_t r = i.number == 1 ? (both << by) >> 32 : both >> by;
    Put<uint32_t>(w, i.d, lane, static_cast<uint32_t>(r));
  });
}
void DecodeFunnel(Decoder& d, Instr& i) {
  i.type = Type::kB32;
  Operands(d, i, 3);
  d.Flag("clamp", i, kSaturate);
  i.number = d.Has("l") ? 1 : 0;
  i.run = &RunFunnel;
}
template <class T>
void RunExtractField(Warp& w, const Instr& i, Mask lanes) {
  constexpr int kTop = 8 * sizeof(T) - 1;
  ForLanes(lanes, [&](int lane) {
    const auto a = Unsigned<T>(Get<T>(w, i.a, lane));
    const int from = static_cast<int>(Get<uint32_t>(w, i.b, lane) & 0xff);
    const int length = static_cast<int>(Get<uint32_t>(w, i.c, lane) & 0xff);
    const bool sign =
        std::is_signed_v<T> && length > 0 && (a >> std::min(from + length - 1, kTop) & 1) != 0;
    Unsigned<T> r = 0;
    for (int k = 0; k <= kTop; ++k) {
      const bool bit = k < length && from + k <= kTop ? (a >> (from + k) & 1) != 0 : sign;
      r = static_cast<Unsigned<T>>(r | Unsigned<T>(bit) << k);
    }
    Put<T>(w, i.d, lane, static_cast<T>(r));
  });
}
void DecodeExtractField(Decoder& d, Instr& i) {
  i.type = d.LastType();
  i.d = d.Target(0, BitsOf(i.type));
  i.a = d.Source(1, BitsOf(i.type));
  i.b = d.Source(2, 32);
  i.c = d.Source(3, 32);
  switch (i.type) {
    case Type::kU32:
      i.run = &RunExtractField<uint32_t>;
      break;
    case Type::kS32:
      i.run = &RunExtractField<int32_t>;
      break;
    case Type::kU64:
      i.run = &RunExtractField<uint64_t>;
      break;
    case Type::kS64:
      i.run = &RunExtractField<int64_t>;
      break;
    default:
      break;
  }
}
template <class T>
void RunInsertField(Warp& w, const Instr& i, Mask lanes) {
  constexpr int kBits = 8 * sizeof(T);
  ForLanes(lanes, [&](int lane) {
    const T a = Get<T>(w, i.a, lane);
    T r = Get<T>(w, i.b, lane);
    const int at = static_cast<int>(Get<uint32_t>(w, i.c, lane) & 0xff);
    const int length = static_cast<int>(Get<uint32_t>(w, i.e, lane) & 0xff);
    for (int k = 0; k < length && at + k < kBits; ++k)
      r = (r & ~(T{1} << (at + k))) | (a >> k & 1) << (at + k);
    Put<T>(w, i.d, lane, r);
  });
}
void DecodeInsertField(Decoder& d, Instr& i) {
  i.type = d.LastType();
  const int bits = BitsOf(i.type);
  i.d = d.Target(0, bits);
  i.a = d.Source(1, bits);
  i.b = d.Source(2, bits);
  i.c = d.Source(3, 32);
  i.e = d.Source(4, 32);
  i.run = bits == 64 ? &RunInsertField<uint64_t> : &RunInsertField<uint32_t>;
}
void RunPermute(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    const uint64_t both =
        static_cast<uint64_t>(Get<uint32_t>(w, i.b, lane)) << 32 | Get<uint32_t>(w, i.a, lane);
    const uint32_t selector = Get<uint32_t>(w, i.c, lane);
    uint32_t r = 0;
    for (int k = 0; k < 4; ++k) {
      const uint32_t s = selector >> (4 * k) & 15;
      uint32_t byte = static_cast<uint32_t>(both >> (8 * (s & 7))) & 0xff;
      if ((s & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
      r |= byte << (8 * k);
    }
    Put<uint32_t>(w, i.d, lane, r);
  });
}
void DecodePermute(Decoder& d, Instr& i) {
  if (d.parts().size() > 2) d.Fail("is not known with a mode");
  i.type = Type::kB32;
  Operands(d, i, 3);
  i.run = &RunPermute;
}
void RunLookup(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    const auto a = Get<uint32_t>(w, i.a, lane), b = Get<uint32_t>(w, i.b, lane),
               c = Get<uint32_t>(w, i.c, lane);
    uint32_t r = 0;
    for (int k = 0; k < 8; ++k)
      if ((i.number >> k & 1) != 0)
        r |= ((k & 4) != 0 ? a : ~a) & ((k & 2) != 0 ? b : ~b) & ((k & 1) != 0 ? c : ~c);
    Put<uint32_t>(w, i.d, lane, r);
  });
}
void DecodeLookup(Decoder& d, Instr& i) {
  if (d.Has("BoolOp")) d.Fail("is not known with a predicate");
  i.type = Type::kB32;
  Operands(d, i, 3);
  i.number = d.Number(4);
  i.run = &RunLookup;
}

constexpr OpRow kOps[] = {
    {"shl", &DecodeShift<true>},  {"shr", &DecodeShift<false>}, {"shf", &DecodeFunnel},
    {"bfe", &DecodeExtractField}, {"bfi", &DecodeInsertField},  {"prmt", &DecodePermute},
    {"lop3", &DecodeLookup},
};

}  // namespace

std::span<const OpRow> BitOps() { return kOps; }

}  // namespace kiln::emulated
