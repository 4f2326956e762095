// Products, and what is added to them. PTX ISA 9.7.1 (mul, mad, sad, dp4a, dp2a) and 9.7.3 (fma).
#include <fmt/format.h>

#include <algorithm>

#include "tests/support/emulated_gpu/scalar_kit.h"

namespace kiln::emulated {
namespace {

struct MultiplyLow {
  template <class T>
    requires kIsInt<T>
  static T Do(T a, T b) {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
};
struct MultiplyHigh {
  template <class T>
    requires kIsInt<T>
  static T Do(T a, T b) {
    return static_cast<T>((Wide<T>(a) * Wide<T>(b)) >> (8 * sizeof(T)));
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
  const auto a = GetAll<T>(w, i.a), b = GetAll<T>(w, i.b), c = GetAll<T>(w, i.c);
  Lanes<T> r;
  if (kIsInt<T> || i.flags == 0) {
    for (int lane = 0; lane < kLanes; ++lane) r.v[lane] = Op::Do(a.v[lane], b.v[lane], c.v[lane]);
  } else {
    for (int lane = 0; lane < kLanes; ++lane)
      r.v[lane] = Finish(Op::Do(Flush(a.v[lane], i), Flush(b.v[lane], i), Flush(c.v[lane], i)), i);
  }
  PutAll(w, i.d, lanes, r);
}
#if defined(__x86_64__)
// fma of all lanes by the instruction of that name, where the host has it.
template <class T>
__attribute__((target("avx2,fma"))) void RunHostFma(Warp& w, const Instr& i, Mask lanes) {
  const auto a = GetAll<T>(w, i.a), b = GetAll<T>(w, i.b), c = GetAll<T>(w, i.c);
  Lanes<T> r;
  for (int lane = 0; lane < kLanes; ++lane) {
    if constexpr (sizeof(T) == 4)
      r.v[lane] = __builtin_fmaf(a.v[lane], b.v[lane], c.v[lane]);
    else
      r.v[lane] = __builtin_fma(a.v[lane], b.v[lane], c.v[lane]);
  }
  for (int lane = 0; lane < kLanes; ++lane) r.v[lane] = Canonical(r.v[lane]);
  PutAll(w, i.d, lanes, r);
}
template <class T>
Handler PlainFma(const Instr& i) {
  if (i.flags == 0 && __builtin_cpu_supports("fma")) return &RunHostFma<T>;
  return &RunThree<Fma, T>;
}
#else
template <class T>
Handler PlainFma(const Instr&) {
  return &RunThree<Fma, T>;
}
#endif
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
      i.run = i.rounding != 0 ? &RunRounded<&RunThree<Fma, float>> : PlainFma<float>(i);
      break;
    case Type::kF64:
      i.run = i.rounding != 0 ? &RunRounded<&RunThree<Fma, double>> : PlainFma<double>(i);
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

constexpr OpRow kOps[] = {
    {"mul", &DecodeMultiply},
    {"mad", &DecodeMad},
    {"fma", &DecodeFma},
    {"sad", &DecodeThreeIntegers<AbsoluteDifference>},
    {"dp4a", &DecodeDotProduct<4>},
    {"dp2a", &DecodeDotProduct<2>},
};

}  // namespace

std::span<const OpRow> ProductOps() { return kOps; }

}  // namespace kiln::emulated
