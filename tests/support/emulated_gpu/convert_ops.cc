// cvt, cvta and mov. PTX ISA 9.7.9 "Data Movement and Conversion".
#include <fmt/format.h>

#include <algorithm>

#include "tests/support/emulated_gpu/decoder.h"
#include "tests/support/emulated_gpu/machine.h"
#include "tests/support/emulated_gpu/numbers.h"

namespace kiln::emulated {
namespace {

// ---- integers to integers, without saturation

template <class To, class From>
void RunIntegers(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes,
           [&](int lane) { Put<To>(w, i.d, lane, static_cast<To>(Get<From>(w, i.a, lane))); });
}
// Converts the low bits of a 64-bit register.
template <class To, class From>
void RunLowIntegers(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    Put<To>(w, i.d, lane, static_cast<To>(static_cast<From>(Get<uint64_t>(w, i.a, lane))));
  });
}
template <class To, class From>
Handler Integers(bool is_wide) {
  return is_wide ? &RunLowIntegers<To, From> : &RunIntegers<To, From>;
}
template <class From>
Handler PickTo(Type to, bool is_wide) {
  switch (to) {
    case Type::kU8:
    case Type::kB8:
      return Integers<uint8_t, From>(is_wide);
    case Type::kS8:
      return Integers<int8_t, From>(is_wide);
    case Type::kU16:
    case Type::kB16:
      return Integers<uint16_t, From>(is_wide);
    case Type::kS16:
      return Integers<int16_t, From>(is_wide);
    case Type::kU32:
    case Type::kB32:
      return Integers<uint32_t, From>(is_wide);
    case Type::kS32:
      return Integers<int32_t, From>(is_wide);
    case Type::kU64:
    case Type::kB64:
      return Integers<uint64_t, From>(is_wide);
    case Type::kS64:
      return Integers<int64_t, From>(is_wide);
    default:
      return nullptr;
  }
}
Handler PickIntegers(Type to, Type from, bool is_wide) {
  switch (from) {
    case Type::kU8:
    case Type::kB8:
      return PickTo<uint8_t>(to, is_wide);
    case Type::kS8:
      return PickTo<int8_t>(to, is_wide);
    case Type::kU16:
    case Type::kB16:
      return PickTo<uint16_t>(to, is_wide);
    case Type::kS16:
      return PickTo<int16_t>(to, is_wide);
    case Type::kU32:
    case Type::kB32:
      return PickTo<uint32_t>(to, is_wide);
    case Type::kS32:
      return PickTo<int32_t>(to, is_wide);
    case Type::kU64:
    case Type::kB64:
      return PickTo<uint64_t>(to, is_wide);
    case Type::kS64:
      return PickTo<int64_t>(to, is_wide);
    default:
      return nullptr;
  }
}

// ---- everything else, by way of f64 or a wide integer

struct Limits {
  double least, most;
};
Limits LimitsOf(Type type) {
  const int bits = BitsOf(type);
  if (IsSigned(type)) return {-std::ldexp(1.0, bits - 1), std::ldexp(1.0, bits - 1) - 1};
  return {0, std::ldexp(1.0, bits) - 1};
}

void PutInteger(Warp& w, const Instr& i, int lane, uint64_t bits) {
  switch (i.type) {
    case Type::kU8:
      return Put(w, i.d, lane, static_cast<uint8_t>(bits));
    case Type::kS8:
      return Put(w, i.d, lane, static_cast<int8_t>(bits));
    case Type::kU16:
      return Put(w, i.d, lane, static_cast<uint16_t>(bits));
    case Type::kS16:
      return Put(w, i.d, lane, static_cast<int16_t>(bits));
    case Type::kU32:
    case Type::kS32:
      return Put(w, i.d, lane, static_cast<uint32_t>(bits));
    default:
      return Put(w, i.d, lane, bits);
  }
}

// To an integer: what is too large becomes the largest, and a NaN 0, but from f64 or to 64 bits
// the number with the highest bit alone.
uint64_t ToInteger(Type type, Type from, double v, Rounding rounding) {
  if (v != v)
    return from == Type::kF64 || BitsOf(type) == 64 ? uint64_t{1} << (BitsOf(type) - 1) : 0;
  v = RoundToInteger(v, rounding);
  const Limits limits = LimitsOf(type);
  if (v < limits.least) v = limits.least;
  if (BitsOf(type) == 64) {
    if (IsSigned(type))
      return v >= 0x1p63 ? INT64_MAX : static_cast<uint64_t>(static_cast<int64_t>(v));
    return v >= 0x1p64 ? UINT64_MAX : static_cast<uint64_t>(v);
  }
  if (v > limits.most) v = limits.most;
  return static_cast<uint64_t>(static_cast<int64_t>(v));
}

double FloatAt(const Warp& w, uint32_t slot, int lane, Type type) {
  switch (type) {
    case Type::kF16:
      return Get<F16>(w, slot, lane).Value();
    case Type::kBF16:
      return Get<BF16>(w, slot, lane).Value();
    case Type::kF32:
      return Get<float>(w, slot, lane);
    default:
      return Get<double>(w, slot, lane);
  }
}

const Format& FormatOf(Type type) {
  switch (type) {
    case Type::kF16:
    case Type::kF16x2:
      return kHalf;
    case Type::kBF16:
    case Type::kBF16x2:
      return kBfloat;
    case Type::kE4M3x2:
      return kE4M3;
    case Type::kE5M2x2:
      return kE5M2;
    case Type::kTF32:
      return kTfloat;
    default:
      return kSingle;
  }
}

// One float of at most 32 bits. kSaturate is .satfinite of the narrow formats and .sat of f32.
uint32_t EncodeAs(const Instr& i, Type type, double v) {
  const bool is_sat = (i.flags & kSaturate) != 0;
  if ((i.flags & kRelu) != 0 && v < 0) v = 0;
  const Format& format = FormatOf(type);
  if (is_sat && type != Type::kE4M3x2 && type != Type::kE5M2x2 && (i.flags & kHasSecond) == 0)
    v = v > 0 ? std::min(v, 1.0) : 0;
  uint32_t code = Encode(format, v, static_cast<Rounding>(i.rounding), is_sat);
  if (type == Type::kTF32 && v == v) {  // stands in the upper bits of an f32
    const int bits = format.exponent_bits + format.mantissa_bits;
    code = (code >> bits) << 31 | (code & ((1u << bits) - 1)) << 13;
  }
  return code;
}

__int128 IntegerAt(const Warp& w, uint32_t slot, int lane, Type type) {
  switch (type) {
    case Type::kU8:
      return Get<uint8_t>(w, slot, lane);
    case Type::kS8:
      return Get<int8_t>(w, slot, lane);
    case Type::kU16:
      return Get<uint16_t>(w, slot, lane);
    case Type::kS16:
      return Get<int16_t>(w, slot, lane);
    case Type::kU32:
      return Get<uint32_t>(w, slot, lane);
    case Type::kS32:
      return Get<int32_t>(w, slot, lane);
    case Type::kU64:
      return Get<uint64_t>(w, slot, lane);
    default:
      return Get<int64_t>(w, slot, lane);
  }
}

void PutFloat(Warp& w, const Instr& i, int lane, double v) {
  const uint32_t code = EncodeAs(i, i.type, v);
  if (BitsOf(i.type) == 16) return Put(w, i.d, lane, static_cast<uint16_t>(code));
  if (i.type == Type::kF32 && (i.flags & kFlush) != 0)
    return Put(w, i.d, lane, Flushed(BitsAs<float>(code)));
  Put(w, i.d, lane, code);
}

void FromInteger(Warp& w, const Instr& i, int lane) {
  const __int128 v = IntegerAt(w, i.a, lane, i.from);
  if (!IsFloat(i.type)) {  // saturates
    const int bits = BitsOf(i.type);
    const __int128 most = (static_cast<__int128>(1) << (IsSigned(i.type) ? bits - 1 : bits)) - 1;
    const __int128 least = IsSigned(i.type) ? -most - 1 : 0;
    return PutInteger(w, i, lane, static_cast<uint64_t>(std::clamp(v, least, most)));
  }
  auto magnitude = static_cast<uint64_t>(v < 0 ? -v : v);
  // More than 53 bits would round on the way to a narrow float, too: an odd bit keeps that right.
  if (i.type != Type::kF64 && magnitude >> 53 != 0)
    magnitude = (magnitude & ~uint64_t{0x7ff}) | ((magnitude & 0x7ff) != 0 ? 0x800 : 0);
  const double exact = static_cast<double>(magnitude);
  if (i.type == Type::kF64) return Put(w, i.d, lane, v < 0 ? -exact : exact);
  PutFloat(w, i, lane, v < 0 ? -exact : exact);
}

void FromFloat(Warp& w, const Instr& i, int lane) {
  const auto rounding = static_cast<Rounding>(i.rounding);
  double v = FloatAt(w, i.a, lane, i.from);
  if ((i.flags & kFlush) != 0 && i.from == Type::kF32) v = Flushed(static_cast<float>(v));
  if (!IsFloat(i.type)) return PutInteger(w, i, lane, ToInteger(i.type, i.from, v, rounding));
  if (i.number == 1) v = Canonical(RoundToInteger(v, rounding));  // .rni and its kin
  if (i.type == Type::kF64) return Put(w, i.d, lane, Canonical(v));
  PutFloat(w, i, lane, v);
}

void RunGeneral(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    if (IsFloat(i.from))
      FromFloat(w, i, lane);
    else
      FromInteger(w, i, lane);
  });
}

// f32 to a half and back, which are most of all: the same by the short way.
template <class Half>
void RunWiden(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) { Put(w, i.d, lane, Canonical(Get<Half>(w, i.a, lane).Value())); });
}

template <uint16_t (*bits)(float)>
void RunNarrow(Warp& w, const Instr& i, Mask lanes) {
  const auto a = GetAll<float>(w, i.a);
  ForLanes(lanes, [&](int lane) { Put(w, i.d, lane, bits(a.v[lane])); });
}
template <uint16_t (*bits)(float)>
void RunNarrowPair(Warp& w, const Instr& i, Mask lanes) {
  const auto high = GetAll<float>(w, i.a), low = GetAll<float>(w, i.b);
  ForLanes(lanes, [&](int lane) {
    Put(w, i.d, lane, static_cast<uint32_t>(bits(high.v[lane])) << 16 | bits(low.v[lane]));
  });
}

// Two floats to a pair: the first operand is the upper half.
void RunToPair(Warp& w, const Instr& i, Mask lanes) {
  const int bits = BitsOf(i.type) / 2;
  ForLanes(lanes, [&](int lane) {
    const uint32_t high = EncodeAs(i, i.type, Get<float>(w, i.a, lane));
    const uint32_t low = EncodeAs(i, i.type, Get<float>(w, i.b, lane));
    const uint32_t both = high << bits | low;
    if (bits == 8) return Put(w, i.d, lane, static_cast<uint16_t>(both));
    Put(w, i.d, lane, both);
  });
}
// A pair of fp8 to a pair of halves, or back.
void RunPairToPair(Warp& w, const Instr& i, Mask lanes) {
  const Format& from = FormatOf(i.from);
  const int from_bits = BitsOf(i.from) / 2, bits = BitsOf(i.type) / 2;
  ForLanes(lanes, [&](int lane) {
    const uint32_t a = from_bits == 8 ? Get<uint16_t>(w, i.a, lane) : Get<uint32_t>(w, i.a, lane);
    uint32_t both = 0;
    for (int k = 0; k < 2; ++k)
      both |= EncodeAs(i, i.type, Decode(from, a >> (k * from_bits) & ((1u << from_bits) - 1)))
              << (k * bits);
    if (bits == 8) return Put(w, i.d, lane, static_cast<uint16_t>(both));
    Put(w, i.d, lane, both);
  });
}

bool IsPair(Type type) {
  return type == Type::kF16x2 || type == Type::kBF16x2 || type == Type::kE4M3x2 ||
         type == Type::kE5M2x2;
}

void DecodeCvt(Decoder& d, Instr& i) {
  if (d.parts()[1] == "pack") d.Fail("is not known");
  const auto types = d.Types();
  if (types.size() != 2) d.Fail("has not two types");
  i.type = types[0];
  i.from = types[1];
  d.Flag("ftz", i, kFlush);
  d.Flag("sat", i, kSaturate);
  if (d.Has("satfinite")) i.flags |= kSaturate | kHasSecond;
  d.Flag("relu", i, kRelu);
  constexpr std::string_view kRoundings[][2] = {
      {"rn", "rni"}, {"rz", "rzi"}, {"rm", "rmi"}, {"rp", "rpi"}, {"rna", "rna"}};
  for (uint8_t r = 0; r < 5; ++r) {
    if (d.Has(kRoundings[r][0]) || d.Has(kRoundings[r][1])) i.rounding = r;
    if (r < 4 && d.Has(kRoundings[r][1])) i.number = 1;
  }
  if (IsPair(i.type)) {
    i.d = d.Target(0, BitsOf(i.type));
    i.a = d.Source(1, BitsOf(i.from));
    if (IsPair(i.from)) {
      i.run = &RunPairToPair;
      return;
    }
    if (i.from != Type::kF32) d.Fail("is not known");
    i.b = d.Source(2, 32);
    i.run = &RunToPair;
    if (i.flags == 0 && i.rounding == 0 && i.type == Type::kF16x2) i.run = &RunNarrowPair<HalfBits>;
    if (i.flags == 0 && i.rounding == 0 && i.type == Type::kBF16x2)
      i.run = &RunNarrowPair<BfloatBits>;
    return;
  }
  if (IsPair(i.from)) d.Fail("is not known");
  i.d = d.Target(0, BitsOf(i.type));
  // A register may be wider than the type that is read from it.
  const bool is_wide = d.RegisterBits(d.text(1)) == 64 && BitsOf(i.from) < 64;
  i.a = d.Source(1, is_wide ? 64 : BitsOf(i.from));
  if (!IsFloat(i.type) && !IsFloat(i.from) && (i.flags & kSaturate) == 0) {
    i.run = PickIntegers(i.type, i.from, is_wide);
    return;
  }
  if (is_wide) d.Fail("reads part of a 64-bit register");
  i.run = &RunGeneral;
  if (i.from == Type::kF32 && i.flags == 0 && i.number == 0 && i.rounding == 0) {
    if (i.type == Type::kF16) i.run = &RunNarrow<HalfBits>;
    if (i.type == Type::kBF16) i.run = &RunNarrow<BfloatBits>;
  }
  if (i.type == Type::kF32 && i.flags == 0 && i.number == 0) {
    if (i.from == Type::kF16) i.run = &RunWiden<F16>;
    if (i.from == Type::kBF16) i.run = &RunWiden<BF16>;
  }
}

// ---- cvta

void RunToGeneric(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    uint64_t a = i.a_is_wide ? Get<uint64_t>(w, i.a, lane) : Get<uint32_t>(w, i.a, lane);
    if (i.space == Space::kShared || i.space == Space::kSharedCluster) a |= kSharedWindow;
    if (i.space == Space::kLocal) a |= kLocalWindow;
    if (i.space == Space::kParam) a += reinterpret_cast<uint64_t>(w.block->launch->params());
    Put(w, i.d, lane, a);
  });
}
void RunFromGeneric(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    uint64_t a = Get<uint64_t>(w, i.a, lane);
    if (i.space != Space::kGlobal && i.space != Space::kParam) a &= ~kWindowBits;
    if (i.space == Space::kParam) a -= reinterpret_cast<uint64_t>(w.block->launch->params());
    Put(w, i.d, lane, a);
  });
}
void DecodeCvta(Decoder& d, Instr& i) {
  if (d.LastType() != Type::kU64) d.Fail("is not known but for 64 bits");
  i.space = d.SpaceOf();
  i.a_is_wide = true;
  i.d = d.Target(0, 64);
  i.a = d.Source(1, 64);
  i.run = d.Has("to") ? &RunFromGeneric : &RunToGeneric;
}
void RunIsSpace(Warp& w, const Instr& i, Mask lanes) {
  Mask holds = 0;
  ForLanes(lanes, [&](int lane) {
    const uint64_t window = Get<uint64_t>(w, i.a, lane) & kWindowBits;
    const bool is = i.space == Space::kLocal ? window == kLocalWindow
                    : i.space == Space::kShared || i.space == Space::kSharedCluster
                        ? window == kSharedWindow
                        : window == 0;
    holds |= static_cast<Mask>(is) << lane;
  });
  PutPred(w, i.d, lanes, holds);
}
void DecodeIsSpace(Decoder& d, Instr& i) {
  i.space = d.SpaceOf();
  i.d = d.Target(0, 1);
  i.a = d.Source(1, 64);
  i.run = &RunIsSpace;
}

// ---- mov

template <class T>
void RunMove(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) { Put<T>(w, i.d, lane, Get<T>(w, i.a, lane)); });
}
void RunMovePredicate(Warp& w, const Instr& i, Mask lanes) {
  PutPred(w, i.d, lanes, GetPred(w, i.a, i.negated_a));
}
void RunClock(Warp& w, const Instr& i, Mask lanes) {
  const auto now = static_cast<uint64_t>(++w.block->launch->steps);
  ForLanes(lanes, [&](int lane) {
    if (i.d_is_wide)
      Put(w, i.d, lane, now);
    else
      Put(w, i.d, lane, static_cast<uint32_t>(now));
  });
}
// Narrow parts, the first in the low bits, to one register. `number`: bits of a part.
void RunPack(Warp& w, const Instr& i, Mask lanes) {
  const uint32_t* const parts = w.function->lists.data() + i.first_list;
  ForLanes(lanes, [&](int lane) {
    uint64_t r = 0;
    for (int k = 0; k < i.list_size; ++k) {
      const uint64_t part = Get<uint32_t>(w, parts[k], lane);
      r |= (i.number == 32 ? part : part & ((1u << i.number) - 1)) << (k * i.number);
    }
    if (i.d_is_wide)
      Put(w, i.d, lane, r);
    else
      Put(w, i.d, lane, static_cast<uint32_t>(r));
  });
}
void RunUnpack(Warp& w, const Instr& i, Mask lanes) {
  const uint32_t* const parts = w.function->lists.data() + i.first_list;
  ForLanes(lanes, [&](int lane) {
    const uint64_t a = i.a_is_wide ? Get<uint64_t>(w, i.a, lane) : Get<uint32_t>(w, i.a, lane);
    for (int k = 0; k < i.list_size; ++k) {
      const auto part = static_cast<uint32_t>(a >> (k * i.number));
      Put(w, parts[k], lane, i.number == 32 ? part : part & ((1u << i.number) - 1));
    }
  });
}
void DecodeMov(Decoder& d, Instr& i) {
  i.type = d.LastType();
  const int bits = BitsOf(i.type);
  const std::string& to = d.text(0);
  const std::string& from = d.text(1);
  if (i.type == Type::kPred) {
    i.d = d.Target(0, 1);
    i.a = d.Predicate(from, i.negated_a);
    i.run = &RunMovePredicate;
    return;
  }
  if (bits == 128) d.Fail("is not known of 128 bits");
  if (to.starts_with("{")) {
    i.number = bits / static_cast<int>(Decoder::Split(to).size());
    d.List(to, static_cast<int>(i.number), true, i.first_list, i.list_size);
    i.a = d.Source(1, bits);
    i.a_is_wide = bits == 64;
    i.run = &RunUnpack;
    return;
  }
  i.d = d.Target(0, bits);
  i.d_is_wide = bits == 64;
  if (from.starts_with("{")) {
    i.number = bits / static_cast<int>(Decoder::Split(from).size());
    d.List(from, static_cast<int>(i.number), false, i.first_list, i.list_size);
    i.run = &RunPack;
    return;
  }
  if (from == "%clock" || from == "%clock64" || from == "%globaltimer" ||
      from == "%globaltimer_lo") {
    i.run = &RunClock;
    i.control = Control::kSpin;
    i.number = 100;
    return;
  }
  i.a = d.Source(1, bits);
  i.run = bits == 64 ? &RunMove<uint64_t> : &RunMove<uint32_t>;
}

constexpr OpRow kOps[] = {
    {"cvt", &DecodeCvt},
    {"cvta", &DecodeCvta},
    {"isspacep", &DecodeIsSpace},
    {"mov", &DecodeMov},
};

}  // namespace

std::span<const OpRow> ConvertOps() { return kOps; }

}  // namespace kiln::emulated
