// Arithmetic, lane by lane. PTX ISA, chapters 9.7.1 to 9.7.8. Approximations (rcp.approx, ex2, …)
// are computed in f64 and rounded once.
#include <fmt/format.h>

#include <algorithm>
#include <cfenv>
#include <type_traits>

#include "tests/support/emulated_gpu/decoder.h"
#include "tests/support/emulated_gpu/machine.h"
#include "tests/support/emulated_gpu/numbers.h"

namespace kiln::emulated {
namespace {

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, F16> || std::is_same_v<T, BF16>;
template <class T>
constexpr bool kIsInt = std::is_integral_v<T>;
template <class T>
constexpr bool kIsReal = std::is_floating_point_v<T>;

// ---- of two numbers

template <class T>
using Unsigned = std::make_unsigned_t<T>;

#define INTEGER_OP(Name, expression)          \
  struct Name {                               \
    template <class T>                        \
      requires kIsInt<T>                      \
    static T Do(T a, T b) {                   \
      using U [[maybe_unused]] = Unsigned<T>; \
      return static_cast<T>(expression);      \
    }                                         \
  }
INTEGER_OP(And, a& b);
INTEGER_OP(Or, a | b);
INTEGER_OP(Xor, a ^ b);
INTEGER_OP(Remainder, b == 0 ? a : b == T(-1) && std::is_signed_v<T> ? 0 : a % b);

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

INTEGER_OP(MultiplyLow, U(U(a) * uint64_t(U(b))));
INTEGER_OP(MultiplyHigh, (Wide<T>(a) * Wide<T>(b)) >> (8 * sizeof(T)));

struct Add {
  template <class T>
    requires kIsInt<T>
  static T Do(T a, T b) {
    return static_cast<T>(Unsigned<T>(a) + Unsigned<T>(b));
  }
  template <class T>
    requires kIsReal<T>
  static T Do(T a, T b) {
    return Canonical(a + b);
  }
  template <class T>
    requires kIsHalf<T>
  static T Do(T a, T b) {
    return T::From(double{a.Value()} + b.Value());
  }
};
struct Subtract {
  template <class T>
    requires kIsInt<T>
  static T Do(T a, T b) {
    return static_cast<T>(Unsigned<T>(a) - Unsigned<T>(b));
  }
  template <class T>
    requires kIsReal<T>
  static T Do(T a, T b) {
    return Canonical(a - b);
  }
  template <class T>
    requires kIsHalf<T>
  static T Do(T a, T b) {
    return T::From(double{a.Value()} - b.Value());
  }
};
struct Multiply {  // of floats
  template <class T>
    requires kIsReal<T>
  static T Do(T a, T b) {
    return Canonical(a * b);
  }
  template <class T>
    requires kIsHalf<T>
  static T Do(T a, T b) {
    return T::From(double{a.Value()} * b.Value());
  }
};
struct Divide {
  template <class T>
    requires kIsInt<T>
  static T Do(T a, T b) {
    if (b == 0) return static_cast<T>(-1);  // "unspecified": all ones, as seen
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(-Unsigned<T>(a));
    return static_cast<T>(a / b);
  }
  template <class T>
    requires kIsReal<T>
  static T Do(T a, T b) {
    return Canonical(a / b);
  }
};
template <bool keeps_nan, bool is_max>
struct Extreme {
  template <class T>
    requires kIsInt<T>
  static T Do(T a, T b) {
    return is_max ? std::max(a, b) : std::min(a, b);
  }
  template <class T>
    requires kIsReal<T>
  static T Do(T a, T b) {
    if (a != a || b != b) {
      if (keeps_nan || (a != a && b != b)) return Canonical(a != a ? a : b);
      return a != a ? b : a;
    }
    if (a == b) return std::signbit(a) == is_max ? b : a;  // -0 is less than +0
    return (a < b) == is_max ? b : a;
  }
  template <class T>
    requires kIsHalf<T>
  static T Do(T a, T b) {
    const float x = a.Value(), y = b.Value(), r = Do(x, y);
    if (r != r) return {0x7fff};
    if (x == y) return std::signbit(x) == std::signbit(r) ? a : b;
    return r == x ? a : b;
  }
};
struct CopySign {
  template <class T>
    requires kIsReal<T>
  static T Do(T a, T b) {
    return std::copysign(b, a);
  }
};

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

template <class Op, class T>
void RunTwo(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    if constexpr (kIsInt<T>)
      Put<T>(w, i.d, lane, Op::Do(Get<T>(w, i.a, lane), Get<T>(w, i.b, lane)));
    else
      Put<T>(w, i.d, lane,
             Finish(Op::Do(Flush(Get<T>(w, i.a, lane), i), Flush(Get<T>(w, i.b, lane), i)), i));
  });
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

void Modifiers(Decoder& d, Instr& i) {
  d.Flag("ftz", i, kFlush);
  d.Flag("sat", i, kSaturate);
  d.Flag("NaN", i, kKeepNan);
  d.Flag("relu", i, kRelu);
  i.rounding = d.Has("rz") ? 1 : d.Has("rm") ? 2 : d.Has("rp") ? 3 : 0;
  i.type = d.LastType();
}
void Operands(Decoder& d, Instr& i, int sources) {
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
template <bool is_max>
void DecodeExtreme(Decoder& d, Instr& i) {
  Modifiers(d, i);
  Operands(d, i, 2);
  i.run = (i.flags & kKeepNan) != 0 ? PickTwo<Extreme<true, is_max>>(i.type, i)
                                    : PickTwo<Extreme<false, is_max>>(i.type, i);
}

// ---- logic, of predicates too

template <class Op>
void RunPredicates(Warp& w, const Instr& i, Mask lanes) {
  PutPred(w, i.d, lanes, Op::Do(GetPred(w, i.a, i.negated_a), GetPred(w, i.b, i.negated_b)));
}
template <class Op>
void DecodeLogic(Decoder& d, Instr& i) {
  i.type = d.LastType();
  if (i.type != Type::kPred) return DecodeTwo<Op>(d, i);
  i.d = d.Target(0, 1);
  i.a = d.Predicate(d.text(1), i.negated_a);
  i.b = d.Predicate(d.text(2), i.negated_b);
  i.run = &RunPredicates<Op>;
}

// ---- of one number

#define INTEGER_OF_ONE(Name, expression)      \
  struct Name {                               \
    template <class T>                        \
      requires kIsInt<T>                      \
    static auto Do(T a) {                     \
      using U [[maybe_unused]] = Unsigned<T>; \
      return expression;                      \
    }                                         \
  }
INTEGER_OF_ONE(Not, static_cast<T>(~a));
INTEGER_OF_ONE(CNot, static_cast<T>(a == 0));
INTEGER_OF_ONE(CountOnes, static_cast<uint32_t>(__builtin_popcountll(U(a))));
INTEGER_OF_ONE(LeadingZeros,
               static_cast<uint32_t>(U(a) == 0 ? 8 * sizeof(T)
                                               : static_cast<size_t>(__builtin_clzll(U(a))) -
                                                     (64 - 8 * sizeof(T))));
struct Reverse {
  template <class T>
    requires kIsInt<T>
  static T Do(T a) {
    Unsigned<T> r = 0;
    for (size_t k = 0; k < 8 * sizeof(T); ++k)
      r = static_cast<Unsigned<T>>(r << 1 | (Unsigned<T>(a) >> k & 1));
    return static_cast<T>(r);
  }
};
struct FindHighest {
  template <class T>
    requires kIsInt<T>
  static uint32_t Do(T a) {
    Unsigned<T> v = std::is_signed_v<T> && a < 0 ? Unsigned<T>(~a) : Unsigned<T>(a);
    return v == 0 ? ~0u : 63 - static_cast<uint32_t>(__builtin_clzll(v));
  }
};
// The left shift that brings that bit to the top.
struct ShiftOfHighest {
  template <class T>
    requires kIsInt<T>
  static uint32_t Do(T a) {
    const uint32_t at = FindHighest::Do(a);
    return at == ~0u ? at : static_cast<uint32_t>(8 * sizeof(T)) - 1 - at;
  }
};
struct Absolute {
  template <class T>
    requires kIsInt<T>
  static T Do(T a) {
    return a < 0 ? static_cast<T>(-Unsigned<T>(a)) : a;
  }
  template <class T>
    requires kIsReal<T>
  static T Do(T a) {
    return std::fabs(a);
  }
  template <class T>
    requires kIsHalf<T>
  static T Do(T a) {
    return {static_cast<uint16_t>(a.bits & 0x7fff)};
  }
};
struct Negate {
  template <class T>
    requires kIsInt<T>
  static T Do(T a) {
    return static_cast<T>(-Unsigned<T>(a));
  }
  template <class T>
    requires kIsReal<T>
  static T Do(T a) {
    return -a;
  }
  template <class T>
    requires kIsHalf<T>
  static T Do(T a) {
    return {static_cast<uint16_t>(a.bits ^ 0x8000)};
  }
};
#define REAL_OF_ONE(Name, expression)               \
  struct Name {                                     \
    template <class T>                              \
      requires kIsReal<T>                           \
    static T Do(T v) {                              \
      const double a = v;                           \
      return Canonical(static_cast<T>(expression)); \
    }                                               \
    template <class T>                              \
      requires kIsHalf<T>                           \
    static T Do(T v) {                              \
      const double a = v.Value();                   \
      return T::From(expression);                   \
    }                                               \
  }
REAL_OF_ONE(Reciprocal, 1 / a);
REAL_OF_ONE(ReciprocalRoot, 1 / std::sqrt(a));
REAL_OF_ONE(Sine, std::sin(a));
REAL_OF_ONE(Cosine, std::cos(a));
REAL_OF_ONE(Log2, std::log2(a));
REAL_OF_ONE(Exp2, std::exp2(a));
REAL_OF_ONE(Tanh, std::tanh(a));
struct Root {
  template <class T>
    requires kIsReal<T>
  static T Do(T a) {
    return Canonical(std::sqrt(a));
  }
};

template <class Op, class T>
void RunOne(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    if constexpr (kIsInt<T>)
      Put(w, i.d, lane, Op::Do(Get<T>(w, i.a, lane)));
    else
      Put<T>(w, i.d, lane, Finish(Op::Do(Flush(Get<T>(w, i.a, lane), i)), i));
  });
}
template <class Op, class Half>
void RunOnePair(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    const auto a = Get<Pair<Half>>(w, i.a, lane);
    Put(w, i.d, lane, Pair<Half>{Op::Do(a.low), Op::Do(a.high)});
  });
}
template <class Op, class T>
Handler One(const Instr& i) {
  if constexpr (requires(T a) { Op::Do(a); }) {
    if constexpr (kIsReal<T>)
      if (i.rounding != 0) return &RunRounded<&RunOne<Op, T>>;
    return &RunOne<Op, T>;
  }
  return nullptr;
}
template <class Op, class Half>
Handler OnePair() {
  if constexpr (requires(Half a) { Op::Do(a); }) return &RunOnePair<Op, Half>;
  return nullptr;
}
template <class Op>
Handler PickOne(Type type, const Instr& i) {
  switch (type) {
    case Type::kB16:
    case Type::kU16:
      return One<Op, uint16_t>(i);
    case Type::kS16:
      return One<Op, int16_t>(i);
    case Type::kB32:
    case Type::kU32:
      return One<Op, uint32_t>(i);
    case Type::kS32:
      return One<Op, int32_t>(i);
    case Type::kB64:
    case Type::kU64:
      return One<Op, uint64_t>(i);
    case Type::kS64:
      return One<Op, int64_t>(i);
    case Type::kF32:
      return One<Op, float>(i);
    case Type::kF64:
      return One<Op, double>(i);
    case Type::kF16:
      return One<Op, F16>(i);
    case Type::kBF16:
      return One<Op, BF16>(i);
    case Type::kF16x2:
      return OnePair<Op, F16>();
    case Type::kBF16x2:
      return OnePair<Op, BF16>();
    default:
      return nullptr;
  }
}
template <class Op>
void DecodeOne(Decoder& d, Instr& i) {
  Modifiers(d, i);
  Operands(d, i, 1);
  i.run = PickOne<Op>(i.type, i);
}
// The result is a u32 whatever the source is.
template <class Op>
void DecodeCount(Decoder& d, Instr& i) {
  i.type = d.LastType();
  i.d = d.Target(0, 32);
  i.a = d.Source(1, BitsOf(i.type));
  i.run = PickOne<Op>(i.type, i);
}
void DecodeFindHighest(Decoder& d, Instr& i) {
  return d.Has("shiftamt") ? DecodeCount<ShiftOfHighest>(d, i) : DecodeCount<FindHighest>(d, i);
}
void RunNotPredicate(Warp& w, const Instr& i, Mask lanes) {
  PutPred(w, i.d, lanes, ~GetPred(w, i.a, i.negated_a));
}
void DecodeNot(Decoder& d, Instr& i) {
  if (d.LastType() != Type::kPred) return DecodeOne<Not>(d, i);
  i.d = d.Target(0, 1);
  i.a = d.Predicate(d.text(1), i.negated_a);
  i.run = &RunNotPredicate;
}

// ---- products and sums

template <class T>
void RunMultiplyWide(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    Put<Wide<T>>(w, i.d, lane, Wide<T>(Get<T>(w, i.a, lane)) * Wide<T>(Get<T>(w, i.b, lane)));
  });
}
template <class T>
void RunMadWide(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    using U = std::make_unsigned_t<Wide<T>>;
    const Wide<T> product = Wide<T>(Get<T>(w, i.a, lane)) * Wide<T>(Get<T>(w, i.b, lane));
    Put<Wide<T>>(w, i.d, lane, static_cast<Wide<T>>(U(product) + U(Get<Wide<T>>(w, i.c, lane))));
  });
}
void DecodeMultiply(Decoder& d, Instr& i) {
  Modifiers(d, i);
  if (IsFloat(i.type)) return DecodeTwo<Multiply>(d, i);
  if (!d.Has("wide"))
    return d.Has("hi") ? DecodeTwo<MultiplyHigh>(d, i) : DecodeTwo<MultiplyLow>(d, i);
  const int bits = BitsOf(i.type);
  i.d = d.Target(0, 2 * bits);
  i.a = d.Source(1, bits);
  i.b = d.Source(2, bits);
  switch (i.type) {
    case Type::kU16:
      i.run = &RunMultiplyWide<uint16_t>;
      break;
    case Type::kS16:
      i.run = &RunMultiplyWide<int16_t>;
      break;
    case Type::kU32:
      i.run = &RunMultiplyWide<uint32_t>;
      break;
    case Type::kS32:
      i.run = &RunMultiplyWide<int32_t>;
      break;
    default:
      break;
  }
}

struct Fma {
  template <class T>
    requires kIsReal<T>
  static T Do(T a, T b, T c) {
    return Canonical(std::fma(a, b, c));
  }
  template <class T>
    requires kIsHalf<T>
  static T Do(T a, T b, T c) {
    return T::From(std::fma(double{a.Value()}, b.Value(), c.Value()));
  }
  // The product of two halves is exact in f64.
};
struct MadLow {
  template <class T>
    requires kIsInt<T>
  static T Do(T a, T b, T c) {
    return static_cast<T>(Unsigned<T>(MultiplyLow::Do(a, b)) + Unsigned<T>(c));
  }
};
struct MadHigh {
  template <class T>
    requires kIsInt<T>
  static T Do(T a, T b, T c) {
    return static_cast<T>(Unsigned<T>(MultiplyHigh::Do(a, b)) + Unsigned<T>(c));
  }
};
struct AbsoluteDifference {
  template <class T>
    requires kIsInt<T>
  static T Do(T a, T b, T c) {
    const auto u = a < b ? Unsigned<T>(Unsigned<T>(b) - Unsigned<T>(a))
                         : Unsigned<T>(Unsigned<T>(a) - Unsigned<T>(b));
    return static_cast<T>(u + Unsigned<T>(c));
  }
};

template <class Op, class T>
void RunThree(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    const T a = Get<T>(w, i.a, lane), b = Get<T>(w, i.b, lane), c = Get<T>(w, i.c, lane);
    if constexpr (kIsInt<T>)
      Put<T>(w, i.d, lane, Op::Do(a, b, c));
    else
      Put<T>(w, i.d, lane, Finish(Op::Do(Flush(a, i), Flush(b, i), Flush(c, i)), i));
  });
}
template <class Op, class Half>
void RunThreePairs(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) {
    const auto a = Get<Pair<Half>>(w, i.a, lane), b = Get<Pair<Half>>(w, i.b, lane),
               c = Get<Pair<Half>>(w, i.c, lane);
    Put(w, i.d, lane,
        Pair<Half>{Finish(Op::Do(a.low, b.low, c.low), i),
                   Finish(Op::Do(a.high, b.high, c.high), i)});
  });
}
template <class Op>
Handler PickThreeIntegers(Type type) {
  switch (type) {
    case Type::kU16:
      return &RunThree<Op, uint16_t>;
    case Type::kS16:
      return &RunThree<Op, int16_t>;
    case Type::kU32:
      return &RunThree<Op, uint32_t>;
    case Type::kS32:
      return &RunThree<Op, int32_t>;
    case Type::kU64:
      return &RunThree<Op, uint64_t>;
    case Type::kS64:
      return &RunThree<Op, int64_t>;
    default:
      return nullptr;
  }
}
template <class Op>
void DecodeThreeIntegers(Decoder& d, Instr& i) {
  Modifiers(d, i);
  Operands(d, i, 3);
  i.run = PickThreeIntegers<Op>(i.type);
}
void DecodeFma(Decoder& d, Instr& i) {
  Modifiers(d, i);
  Operands(d, i, 3);
  switch (i.type) {
    case Type::kF32:
      i.run = i.rounding != 0 ? &RunRounded<&RunThree<Fma, float>> : &RunThree<Fma, float>;
      break;
    case Type::kF64:
      i.run = i.rounding != 0 ? &RunRounded<&RunThree<Fma, double>> : &RunThree<Fma, double>;
      break;
    case Type::kF16:
      i.run = &RunThree<Fma, F16>;
      break;
    case Type::kBF16:
      i.run = &RunThree<Fma, BF16>;
      break;
    case Type::kF16x2:
      i.run = &RunThreePairs<Fma, F16>;
      break;
    case Type::kBF16x2:
      i.run = &RunThreePairs<Fma, BF16>;
      break;
    default:
      break;
  }
  if (d.Has("oob")) d.Fail("is not known with .oob");
}
void DecodeMad(Decoder& d, Instr& i) {
  Modifiers(d, i);
  if (IsFloat(i.type)) return DecodeFma(d, i);
  if (d.Has("cc")) d.Fail("is not known with .cc");
  if (!d.Has("wide"))
    return d.Has("hi") ? DecodeThreeIntegers<MadHigh>(d, i) : DecodeThreeIntegers<MadLow>(d, i);
  const int bits = BitsOf(i.type);
  i.d = d.Target(0, 2 * bits);
  i.a = d.Source(1, bits);
  i.b = d.Source(2, bits);
  i.c = d.Source(3, 2 * bits);
  switch (i.type) {
    case Type::kU16:
      i.run = &RunMadWide<uint16_t>;
      break;
    case Type::kS16:
      i.run = &RunMadWide<int16_t>;
      break;
    case Type::kU32:
      i.run = &RunMadWide<uint32_t>;
      break;
    case Type::kS32:
      i.run = &RunMadWide<int32_t>;
      break;
    default:
      break;
  }
}
template <int parts>
void RunDotProduct(Warp& w, const Instr& i, Mask lanes) {
  const auto part = [](uint32_t word, int k, int bits, bool is_signed) -> int64_t {
    const uint32_t v = word >> (k * bits) & ((1u << bits) - 1);
    return is_signed && (v >> (bits - 1)) != 0 ? int64_t{v} - (int64_t{1} << bits) : int64_t{v};
  };
  ForLanes(lanes, [&](int lane) {
    const auto a = Get<uint32_t>(w, i.a, lane), b = Get<uint32_t>(w, i.b, lane);
    int64_t sum = IsSigned(i.type) || IsSigned(i.from) ? Get<int32_t>(w, i.c, lane)
                                                       : int64_t{Get<uint32_t>(w, i.c, lane)};
    for (int k = 0; k < parts; ++k)
      sum += part(a, k, parts == 4 ? 8 : 16, IsSigned(i.from)) *
             part(b, k + (parts == 2 ? static_cast<int>(i.number) : 0), 8, IsSigned(i.type));
    Put<uint32_t>(w, i.d, lane, static_cast<uint32_t>(sum));
  });
}
template <int parts>
void DecodeDotProduct(Decoder& d, Instr& i) {
  const auto types = d.Types();
  i.from = types[0];
  i.type = types[1];
  i.number = d.Has("hi") ? 2 : 0;
  i.d = d.Target(0, 32);
  i.a = d.Source(1, 32);
  i.b = d.Source(2, 32);
  i.c = d.Source(3, 32);
  i.run = &RunDotProduct<parts>;
}

// ---- shifts and fields

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

// ---- comparisons

enum Compare : uint8_t {
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kEqu,
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,
  kNan
};
constexpr std::string_view kCompares[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                          "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
constexpr std::string_view kUnsignedCompares[] = {"lo", "ls", "hi", "hs"};

template <class T>
bool Holds(uint8_t compare, T a, T b) {
  const bool unordered = a != a || b != b;
  switch (compare) {
    case kEq:
      return a == b;
    case kNe:
      return a != b && !unordered;
    case kLt:
      return a < b;
    case kLe:
      return a <= b;
    case kGt:
      return a > b;
    case kGe:
      return a >= b;
    case kEqu:
      return a == b || unordered;
    case kNeu:
      return a != b;
    case kLtu:
      return a < b || unordered;
    case kLeu:
      return a <= b || unordered;
    case kGtu:
      return a > b || unordered;
    case kGeu:
      return a >= b || unordered;
    case kNum:
      return !unordered;
    default:
      return unordered;
  }
}
template <class T>
auto ValueOf(T v) {
  if constexpr (kIsHalf<T>)
    return v.Value();
  else
    return v;
}
Mask Combine(const Warp& w, const Instr& i, Mask holds) {
  if (i.combine == 0) return holds;
  const Mask with = GetPred(w, i.c, i.negated_c);
  return i.combine == 1 ? holds & with : i.combine == 2 ? holds | with : holds ^ with;
}
template <class T>
void RunSetp(Warp& w, const Instr& i, Mask lanes) {
  Mask holds = 0;
  ForLanes(lanes, [&](int lane) {
    const auto a = ValueOf(Flush(Get<T>(w, i.a, lane), i)),
               b = ValueOf(Flush(Get<T>(w, i.b, lane), i));
    holds |= static_cast<Mask>(Holds(i.compare, a, b)) << lane;
  });
  const Mask other = Combine(w, i, ~holds);
  PutPred(w, i.d, lanes, Combine(w, i, holds));
  if ((i.flags & kHasSecond) != 0) PutPred(w, i.e, lanes, other);
}
template <class Half>
void RunSetpPair(Warp& w, const Instr& i, Mask lanes) {
  Mask low = 0, high = 0;
  ForLanes(lanes, [&](int lane) {
    const auto a = Get<Pair<Half>>(w, i.a, lane), b = Get<Pair<Half>>(w, i.b, lane);
    low |= static_cast<Mask>(Holds(i.compare, a.low.Value(), b.low.Value())) << lane;
    high |= static_cast<Mask>(Holds(i.compare, a.high.Value(), b.high.Value())) << lane;
  });
  const Mask other = Combine(w, i, high);
  PutPred(w, i.d, lanes, Combine(w, i, low));
  if ((i.flags & kHasSecond) != 0) PutPred(w, i.e, lanes, other);
}
void DecodeCompare(Decoder& d, Instr& i) {
  const auto& parts = d.parts();
  const auto known = std::ranges::find(kCompares, parts[1]);
  const auto of_unsigned = std::ranges::find(kUnsignedCompares, parts[1]);
  if (known != std::end(kCompares))
    i.compare = static_cast<uint8_t>(known - std::begin(kCompares));
  else if (of_unsigned != std::end(kUnsignedCompares))
    i.compare = static_cast<uint8_t>(kLt + (of_unsigned - std::begin(kUnsignedCompares)));
  else
    d.Fail("has no comparison that is known");
  i.combine = d.Has("and") ? 1 : d.Has("or") ? 2 : d.Has("xor") ? 3 : 0;
}
void DecodeSetp(Decoder& d, Instr& i) {
  Modifiers(d, i);
  DecodeCompare(d, i);
  const auto [first, second] = d.Halves(0);
  i.d = d.TargetOf(first, 1);
  if (!second.empty()) {
    i.e = d.TargetOf(second, 1);
    i.flags |= kHasSecond;
  }
  const int bits = BitsOf(i.type);
  i.a = d.Source(1, bits);
  i.b = d.Source(2, bits);
  if (i.combine != 0) i.c = d.Predicate(d.text(3), i.negated_c);
  switch (i.type) {
    case Type::kB16:
    case Type::kU16:
      i.run = &RunSetp<uint16_t>;
      break;
    case Type::kS16:
      i.run = &RunSetp<int16_t>;
      break;
    case Type::kB32:
    case Type::kU32:
      i.run = &RunSetp<uint32_t>;
      break;
    case Type::kS32:
      i.run = &RunSetp<int32_t>;
      break;
    case Type::kB64:
    case Type::kU64:
      i.run = &RunSetp<uint64_t>;
      break;
    case Type::kS64:
      i.run = &RunSetp<int64_t>;
      break;
    case Type::kF32:
      i.run = &RunSetp<float>;
      break;
    case Type::kF64:
      i.run = &RunSetp<double>;
      break;
    case Type::kF16:
      i.run = &RunSetp<F16>;
      break;
    case Type::kBF16:
      i.run = &RunSetp<BF16>;
      break;
    case Type::kF16x2:
      i.run = &RunSetpPair<F16>;
      break;
    case Type::kBF16x2:
      i.run = &RunSetpPair<BF16>;
      break;
    default:
      break;
  }
}
// set: the truth as a number; pairs of halves give pairs.
template <class T>
void RunSet(Warp& w, const Instr& i, Mask lanes) {
  const uint32_t truth = i.type == Type::kF32 ? BitsAs<uint32_t>(1.f) : ~0u;
  ForLanes(lanes, [&](int lane) {
    const bool holds =
        Holds(i.compare, ValueOf(Get<T>(w, i.a, lane)), ValueOf(Get<T>(w, i.b, lane)));
    Put<uint32_t>(w, i.d, lane, holds ? truth : 0);
  });
}
template <class Half>
void RunSetPair(Warp& w, const Instr& i, Mask lanes) {
  const uint32_t truth = i.type == Type::kF16x2    ? 0x3c00
                         : i.type == Type::kBF16x2 ? 0x3f80
                                                   : 0xffff;
  ForLanes(lanes, [&](int lane) {
    const auto a = Get<Pair<Half>>(w, i.a, lane), b = Get<Pair<Half>>(w, i.b, lane);
    const uint32_t low = Holds(i.compare, a.low.Value(), b.low.Value()) ? truth : 0;
    const uint32_t high = Holds(i.compare, a.high.Value(), b.high.Value()) ? truth : 0;
    Put<uint32_t>(w, i.d, lane, low | high << 16);
  });
}
void DecodeSet(Decoder& d, Instr& i) {
  DecodeCompare(d, i);
  if (i.combine != 0) d.Fail("is not known with a predicate");
  const auto types = d.Types();
  if (types.size() != 2 || BitsOf(types[0]) != 32) d.Fail("is not known with these types");
  i.type = types[0];
  i.from = types[1];
  i.d = d.Target(0, 32);
  i.a = d.Source(1, BitsOf(i.from));
  i.b = d.Source(2, BitsOf(i.from));
  switch (i.from) {
    case Type::kU32:
      i.run = &RunSet<uint32_t>;
      break;
    case Type::kS32:
      i.run = &RunSet<int32_t>;
      break;
    case Type::kF32:
      i.run = &RunSet<float>;
      break;
    case Type::kF16x2:
      i.run = &RunSetPair<F16>;
      break;
    case Type::kBF16x2:
      i.run = &RunSetPair<BF16>;
      break;
    default:
      break;
  }
}
template <class T>
void RunSelect(Warp& w, const Instr& i, Mask lanes) {
  const Mask first = GetPred(w, i.c, i.negated_c);
  ForLanes(lanes, [&](int lane) {
    Put<T>(w, i.d, lane, Get<T>(w, (first >> lane & 1) != 0 ? i.a : i.b, lane));
  });
}
void DecodeSelect(Decoder& d, Instr& i) {
  i.type = d.LastType();
  i.d = d.Target(0, BitsOf(i.type));
  i.a = d.Source(1, BitsOf(i.type));
  i.b = d.Source(2, BitsOf(i.type));
  i.c = d.Predicate(d.text(3), i.negated_c);
  i.run = BitsOf(i.type) == 64   ? &RunSelect<uint64_t>
          : BitsOf(i.type) == 16 ? &RunSelect<uint16_t>
                                 : &RunSelect<uint32_t>;
}
template <class T>
void RunTestProperty(Warp& w, const Instr& i, Mask lanes) {
  Mask holds = 0;
  ForLanes(lanes, [&](int lane) {
    const T a = Get<T>(w, i.a, lane);
    const bool has[] = {std::isfinite(a), std::isinf(a),    !std::isnan(a),
                        std::isnan(a),    std::isnormal(a), std::fpclassify(a) == FP_SUBNORMAL};
    holds |= static_cast<Mask>(has[i.compare]) << lane;
  });
  PutPred(w, i.d, lanes, holds);
}
void DecodeTestProperty(Decoder& d, Instr& i) {
  constexpr std::string_view kProperties[] = {"finite",     "infinite", "number",
                                              "notanumber", "normal",   "subnormal"};
  const auto known = std::ranges::find(kProperties, d.parts()[1]);
  if (known == std::end(kProperties)) d.Fail("has no property that is known");
  i.compare = static_cast<uint8_t>(known - std::begin(kProperties));
  i.type = d.LastType();
  i.d = d.Target(0, 1);
  i.a = d.Source(1, BitsOf(i.type));
  i.run = i.type == Type::kF64 ? &RunTestProperty<double> : &RunTestProperty<float>;
}

constexpr OpRow kOps[] = {
    {"add", &DecodeTwo<Add>},
    {"sub", &DecodeTwo<Subtract>},
    {"mul", &DecodeMultiply},
    {"mad", &DecodeMad},
    {"fma", &DecodeFma},
    {"div", &DecodeTwo<Divide>},
    {"rem", &DecodeTwo<Remainder>},
    {"min", &DecodeExtreme<false>},
    {"max", &DecodeExtreme<true>},
    {"copysign", &DecodeTwo<CopySign>},
    {"and", &DecodeLogic<And>},
    {"or", &DecodeLogic<Or>},
    {"xor", &DecodeLogic<Xor>},
    {"not", &DecodeNot},
    {"cnot", &DecodeOne<CNot>},
    {"abs", &DecodeOne<Absolute>},
    {"neg", &DecodeOne<Negate>},
    {"rcp", &DecodeOne<Reciprocal>},
    {"sqrt", &DecodeOne<Root>},
    {"rsqrt", &DecodeOne<ReciprocalRoot>},
    {"sin", &DecodeOne<Sine>},
    {"cos", &DecodeOne<Cosine>},
    {"lg2", &DecodeOne<Log2>},
    {"ex2", &DecodeOne<Exp2>},
    {"tanh", &DecodeOne<Tanh>},
    {"popc", &DecodeCount<CountOnes>},
    {"clz", &DecodeCount<LeadingZeros>},
    {"bfind", &DecodeFindHighest},
    {"brev", &DecodeOne<Reverse>},
    {"sad", &DecodeThreeIntegers<AbsoluteDifference>},
    {"dp4a", &DecodeDotProduct<4>},
    {"dp2a", &DecodeDotProduct<2>},
    {"shl", &DecodeShift<true>},
    {"shr", &DecodeShift<false>},
    {"shf", &DecodeFunnel},
    {"bfe", &DecodeExtractField},
    {"bfi", &DecodeInsertField},
    {"prmt", &DecodePermute},
    {"lop3", &DecodeLookup},
    {"setp", &DecodeSetp},
    {"set", &DecodeSet},
    {"selp", &DecodeSelect},
    {"testp", &DecodeTestProperty},
};

}  // namespace

std::span<const OpRow> ScalarOps() { return kOps; }

}  // namespace kiln::emulated
