// Comparisons and selections. PTX ISA 9.7.5 to 9.7.6, and testp.
#include <fmt/format.h>

#include <algorithm>

#include "tests/support/emulated_gpu/scalar_kit.h"

namespace kiln::emulated {
namespace {

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
    {"setp", &DecodeSetp},
    {"set", &DecodeSet},
    {"selp", &DecodeSelect},
    {"testp", &DecodeTestProperty},
};

}  // namespace

std::span<const OpRow> CompareOps() { return kOps; }

}  // namespace kiln::emulated
