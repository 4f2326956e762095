// Scalar primitives: the table from scalar_ops.def and their meaning in f64 and in exact integers.
// The interpreters of both IR levels evaluate through here, so "what does pow mean" has one answer.
#include "ir/scalar.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include "ir/base/check.h"

namespace kiln {
namespace {

constexpr ScalarOpInfo kScalarOps[] = {
#define SCALAR_OP(Name, text, arity, result) {text, arity, ScalarResult::result},
#include "ir/scalar_ops.def"
#undef SCALAR_OP
};

double PropagateNan(double a, double b, double otherwise) {
  return std::isnan(a) ? a : std::isnan(b) ? b : otherwise;
}

using Eval = double (*)(double, double, double);

// Row i is ScalarOp(i); captureless, so that the table is constant data.
constexpr Eval kEval[] = {
    [](double a, double b, double) { return a + b; },
    [](double a, double b, double) { return a - b; },
    [](double a, double b, double) { return a * b; },
    [](double a, double b, double) { return a / b; },
    [](double a, double b, double) { return std::fmod(a, b); },
    [](double a, double b, double) { return std::pow(a, b); },
    [](double a, double b, double) { return std::fmin(a, b); },
    [](double a, double b, double) { return std::fmax(a, b); },
    [](double a, double b, double) { return PropagateNan(a, b, std::fmin(a, b)); },
    [](double a, double b, double) { return PropagateNan(a, b, std::fmax(a, b)); },
    [](double a, double b, double) { return std::atan2(a, b); },
    [](double a, double, double) { return -a; },
    [](double a, double, double) { return std::fabs(a); },
    [](double a, double, double) { return std::ceil(a); },
    [](double a, double, double) { return std::floor(a); },
    [](double a, double, double) { return std::sqrt(a); },
    [](double a, double, double) { return 1.0 / std::sqrt(a); },
    [](double a, double, double) { return 1.0 / a; },
    [](double a, double, double) { return std::exp(a); },
    [](double a, double, double) { return std::log(a); },
    [](double a, double, double) { return std::log1p(a); },
    [](double a, double, double) { return std::expm1(a); },
    [](double a, double, double) { return std::sin(a); },
    [](double a, double, double) { return std::cos(a); },
    [](double a, double, double) { return std::tan(a); },
    [](double a, double, double) { return std::tanh(a); },
    [](double a, double, double) { return std::erf(a); },
    [](double a, double b, double c) { return std::fma(a, b, c); },
    [](double a, double b, double) { return double(a == b); },
    [](double a, double b, double) { return double(a != b); },
    [](double a, double b, double) { return double(a > b); },
    [](double a, double b, double) { return double(a >= b); },
    [](double a, double b, double) { return double(a < b); },
    [](double a, double b, double) { return double(a <= b); },
    [](double a, double b, double) { return double(a != 0 && b != 0); },
    [](double a, double b, double) { return double(a != 0 || b != 0); },
    [](double a, double, double) { return double(a == 0); },
    [](double a, double b, double c) { return a != 0 ? b : c; },
    [](double a, double b, double c) {
      return double(PhiloxWord(int64_t(a), int64_t(b), int64_t(c)));
    },
    [](double a, double b, double) {
      return double(EvalScalarInt(ScalarOp::kBit, int64_t(a), int64_t(b)));
    },
    [](double a, double b, double c) {
      return double(EvalScalarInt(ScalarOp::kFastDiv, int64_t(a), int64_t(b), int64_t(c)));
    },
};
static_assert(std::size(kEval) == std::size(kScalarOps),
              "one evaluation for each scalar op, in order");

}  // namespace

const ScalarOpInfo& Info(ScalarOp op) { return kScalarOps[static_cast<size_t>(op)]; }

std::optional<ScalarOp> ScalarOpFromText(std::string_view text) {
  const auto* row = std::ranges::find(
      kScalarOps, text, [](const ScalarOpInfo& r) { return std::string_view(r.text); });
  if (row == std::end(kScalarOps)) return std::nullopt;
  return ScalarOp(row - std::begin(kScalarOps));
}

double EvalScalar(ScalarOp op, double a, double b, double c) {
  return kEval[static_cast<size_t>(op)](a, b, c);
}

int64_t EvalScalarInt(ScalarOp op, int64_t a, int64_t b, int64_t c) {
  // Wrap-around like the hardware's, so the arithmetic is done on unsigned values.
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b),
             uc = static_cast<uint64_t>(c);
  const bool divisible = b != 0 && !(b == -1 && a == INT64_MIN);
  switch (op) {
    case ScalarOp::kAdd:
      return static_cast<int64_t>(ua + ub);
    case ScalarOp::kSub:
      return static_cast<int64_t>(ua - ub);
    case ScalarOp::kMul:
      return static_cast<int64_t>(ua * ub);
    case ScalarOp::kFma:
      return static_cast<int64_t>(ua * ub + uc);
    case ScalarOp::kNeg:
      return static_cast<int64_t>(-ua);
    case ScalarOp::kAbs:
      return a < 0 ? static_cast<int64_t>(-ua) : a;
    case ScalarOp::kDiv:
      return divisible ? a / b : 0;
    case ScalarOp::kMod:
      return divisible ? a % b : 0;
    case ScalarOp::kMin:
    case ScalarOp::kMinNan:
      return std::min(a, b);
    case ScalarOp::kMax:
    case ScalarOp::kMaxNan:
      return std::max(a, b);
    case ScalarOp::kCeil:
    case ScalarOp::kFloor:
      return a;
    case ScalarOp::kEq:
      return a == b;
    case ScalarOp::kNe:
      return a != b;
    case ScalarOp::kGt:
      return a > b;
    case ScalarOp::kGe:
      return a >= b;
    case ScalarOp::kLt:
      return a < b;
    case ScalarOp::kLe:
      return a <= b;
    case ScalarOp::kAnd:
      return a != 0 && b != 0;
    case ScalarOp::kOr:
      return a != 0 || b != 0;
    case ScalarOp::kNot:
      return a == 0;
    case ScalarOp::kSelect:
      return a != 0 ? b : c;
    case ScalarOp::kPhilox:
      return PhiloxWord(a, b, c);
    case ScalarOp::kBit:
      return static_cast<int64_t>(ua >> (ub % 32) & 1);
    case ScalarOp::kFastDiv:
      return static_cast<int64_t>((ua * static_cast<uint32_t>(b)) >> c);
    default:
      break;
  }
  // The transcendental ones exist for floats only; the verifiers reject them on integers.
  CHECK(false, "{} has no integer form", Info(op).text);
}

int64_t PhiloxWord(int64_t place, int64_t seed, int64_t offset) {
  const auto low = [](uint64_t v) { return static_cast<uint32_t>(v); };
  const auto high = [](uint64_t v) { return static_cast<uint32_t>(v >> 32); };
  const auto counter = static_cast<uint64_t>(place) >> 2;
  uint32_t c[4] = {low(counter), high(counter), low(static_cast<uint64_t>(offset)),
                   high(static_cast<uint64_t>(offset))};
  uint32_t k0 = low(static_cast<uint64_t>(seed)), k1 = high(static_cast<uint64_t>(seed));
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t next[4] = {high(p1) ^ c[1] ^ k0, low(p1), high(p0) ^ c[3] ^ k1, low(p0)};
    std::copy(std::begin(next), std::end(next), c);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c[place & 3];
}

Magic MagicFor(int64_t divisor) {
  CHECK(divisor > 0 && divisor < (int64_t{1} << 31), "divisor {}", divisor);
  const int log2 = divisor == 1 ? 0 : std::bit_width(static_cast<uint64_t>(divisor - 1));
  const int shift = 31 + log2;
  const uint64_t mul = ((uint64_t{1} << shift) + divisor - 1) / divisor;
  return {static_cast<uint32_t>(mul), static_cast<uint32_t>(shift)};
}

}  // namespace kiln
