// Arithmetic, lane by lane. PTX ISA, chapters 9.7.1 to 9.7.8. Approximations (rcp.approx, ex2, …)
// are computed in f64 and rounded once.
#include <fmt/format.h>

#include <algorithm>

#include "tests/support/emulated_gpu/scalar_kit.h"

namespace kiln::emulated {
namespace {

// ---- of two numbers
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

constexpr OpRow kOps[] = {
    {"add", &DecodeTwo<Add>},
    {"sub", &DecodeTwo<Subtract>},
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
};

}  // namespace

std::span<const OpRow> ScalarOps() { return kOps; }

}  // namespace kiln::emulated
