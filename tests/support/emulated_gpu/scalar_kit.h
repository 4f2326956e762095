// The common part of the tables of arithmetic: kinds of numbers, modifiers, and handlers that apply
// an operation of two numbers to all lanes. An operation is a struct with functions Do, of the
// types that it takes.
#pragma once

#include <algorithm>
#include <cfenv>
#include <type_traits>

#include "tests/support/emulated_gpu/decoder.h"
#include "tests/support/emulated_gpu/machine.h"
#include "tests/support/emulated_gpu/numbers.h"

namespace kiln::emulated {

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, F16> || std::is_same_v<T, BF16>;
template <class T>
constexpr bool kIsInt = std::is_integral_v<T>;
template <class T>
constexpr bool kIsReal = std::is_floating_point_v<T>;

template <class T>
using Unsigned = std::make_unsigned_t<T>;

template <class T>
struct Twice;
template <>
struct Twice<uint16_t> {
  using Type = uint32_t;
};
template <>
struct Twice<int16_t> {
  using Type = int32_t;
};
template <>
struct Twice<uint32_t> {
  using Type = uint64_t;
};
template <>
struct Twice<int32_t> {
  using Type = int64_t;
};
template <>
struct Twice<uint64_t> {
  using Type = unsigned __int128;
};
template <>
struct Twice<int64_t> {
  using Type = __int128;
};
template <class T>
using Wide = typename Twice<T>::Type;

template <class Op, class T>
constexpr bool kTakesTwo = requires(T a) { Op::Do(a, a); };

template <class T>
T Flush(T v, const Instr& i) {
  if constexpr (std::is_same_v<T, float>)
    if ((i.flags & kFlush) != 0) return Flushed(v);
  return v;
}
template <class T>
T Finish(T v, const Instr& i) {
  if constexpr (kIsReal<T>) {
    if ((i.flags & kSaturate) != 0) v = v > 0 ? std::min(v, T{1}) : T{0};
  } else if constexpr (kIsHalf<T>) {
    if ((i.flags & kRelu) != 0 && v.Value() < 0) v = T::From(0);
  }
  return Flush(v, i);
}

// All lanes are computed, which compilers turn into vectors; those of the mask are kept.
template <class Op, class T>
void RunTwo(Warp& w, const Instr& i, Mask lanes) {
  const auto a = GetAll<T>(w, i.a), b = GetAll<T>(w, i.b);
  Lanes<T> r;
  if (kIsInt<T> || i.flags == 0) {
    for (int lane = 0; lane < kLanes; ++lane) r.v[lane] = Op::Do(a.v[lane], b.v[lane]);
  } else {
    for (int lane = 0; lane < kLanes; ++lane)
      r.v[lane] = Finish(Op::Do(Flush(a.v[lane], i), Flush(b.v[lane], i)), i);
  }
  PutAll(w, i.d, lanes, r);
}
template <class Op, class Half>
void RunTwoPairs(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    const auto a = Get<Pair<Half>>(w, i.a, lane), b = Get<Pair<Half>>(w, i.b, lane);
    Put(w, i.d, lane,
        Pair<Half>{Finish(Op::Do(a.low, b.low), i), Finish(Op::Do(a.high, b.high), i)});
  });
}

// In the rounding mode of the instruction.
template <Handler handler>
void RunRounded(Warp& w, const Instr& i, Mask lanes) {
  constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  std::fesetround(kModes[i.rounding]);
  handler(w, i, lanes);
  std::fesetround(FE_TONEAREST);
}

template <class Op, class T>
Handler Two(const Instr& i) {
  if constexpr (kTakesTwo<Op, T>) {
    if constexpr (kIsReal<T>)
      if (i.rounding != 0) return &RunRounded<&RunTwo<Op, T>>;
    return &RunTwo<Op, T>;
  }
  return nullptr;
}
template <class Op, class Half>
Handler TwoPairs() {
  if constexpr (kTakesTwo<Op, Half>) return &RunTwoPairs<Op, Half>;
  return nullptr;
}

template <class Op>
Handler PickTwo(Type type, const Instr& i) {
  switch (type) {
    case Type::kB16:
    case Type::kU16:
      return Two<Op, uint16_t>(i);
    case Type::kS16:
      return Two<Op, int16_t>(i);
    case Type::kB32:
    case Type::kU32:
      return Two<Op, uint32_t>(i);
    case Type::kS32:
      return Two<Op, int32_t>(i);
    case Type::kB64:
    case Type::kU64:
      return Two<Op, uint64_t>(i);
    case Type::kS64:
      return Two<Op, int64_t>(i);
    case Type::kF32:
      return Two<Op, float>(i);
    case Type::kF64:
      return Two<Op, double>(i);
    case Type::kF16:
      return Two<Op, F16>(i);
    case Type::kBF16:
      return Two<Op, BF16>(i);
    case Type::kF16x2:
      return TwoPairs<Op, F16>();
    case Type::kBF16x2:
      return TwoPairs<Op, BF16>();
    default:
      return nullptr;
  }
}

// ---- decoding of modifiers

inline void Modifiers(Decoder& d, Instr& i) {
  d.Flag("ftz", i, kFlush);
  d.Flag("sat", i, kSaturate);
  d.Flag("NaN", i, kKeepNan);
  d.Flag("relu", i, kRelu);
  i.rounding = d.Has("rz") ? 1 : d.Has("rm") ? 2 : d.Has("rp") ? 3 : 0;
  i.type = d.LastType();
  if (d.Has("cc")) d.Fail("is not known with .cc");
}
inline void Operands(Decoder& d, Instr& i, int sources) {
  const int bits = BitsOf(i.type);
  i.d = d.Target(0, bits);
  i.a = d.Source(1, bits);
  if (sources > 1) i.b = d.Source(2, bits);
  if (sources > 2) i.c = d.Source(3, bits);
}

template <class Op>
void DecodeTwo(Decoder& d, Instr& i) {
  Modifiers(d, i);
  Operands(d, i, 2);
  i.run = PickTwo<Op>(i.type, i);
}
}  // namespace kiln::emulated
