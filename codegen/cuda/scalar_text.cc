// The table behind expression printing: the name of each scalar operation in CUDA. The accurate
// functions are named (expf, not __expf); min_nan, bit, fast_div and div_or_zero are in the device
// files of the same purpose.
#include "codegen/cuda/scalar_text.h"

#include <iterator>
#include <unordered_map>

namespace kiln::cuda_codegen {
namespace {

constexpr ScalarText kTexts[] = {
    {ScalarOp::kAdd, "{0} + {1}", "{0} + {1}", "{0} + {1}"},
    {ScalarOp::kSub, "{0} - {1}", "{0} - {1}", "{0} - {1}"},
    {ScalarOp::kMul, "{0} * {1}", "{0} * {1}", "{0} * {1}"},
    {ScalarOp::kDiv, "{0} / {1}", "{0} / {1}", "div_or_zero({0}, {1})"},
    {ScalarOp::kMod, "fmodf({0}, {1})", "fmod({0}, {1})", "mod_or_zero({0}, {1})"},
    {ScalarOp::kPow, "powf({0}, {1})", "pow({0}, {1})", ""},
    {ScalarOp::kMin, "fminf({0}, {1})", "fmin({0}, {1})", "min({0}, {1})"},
    {ScalarOp::kMax, "fmaxf({0}, {1})", "fmax({0}, {1})", "max({0}, {1})"},
    {ScalarOp::kMinNan, "min_nan({0}, {1})", "min_nan({0}, {1})", "min({0}, {1})"},
    {ScalarOp::kMaxNan, "max_nan({0}, {1})", "max_nan({0}, {1})", "max({0}, {1})"},
    {ScalarOp::kAtan2, "atan2f({0}, {1})", "atan2({0}, {1})", ""},
    {ScalarOp::kNeg, "-{0}", "-{0}", "-{0}"},
    {ScalarOp::kAbs, "fabsf({0})", "fabs({0})", "abs({0})"},
    {ScalarOp::kCeil, "ceilf({0})", "ceil({0})", "{0}"},
    {ScalarOp::kFloor, "floorf({0})", "floor({0})", "{0}"},
    {ScalarOp::kSqrt, "sqrtf({0})", "sqrt({0})", ""},
    {ScalarOp::kRsqrt, "rsqrtf({0})", "rsqrt({0})", ""},
    {ScalarOp::kRecip, "one_over({0})", "1.0 / {0}", ""},
    {ScalarOp::kExp, "expf({0})", "exp({0})", ""},
    {ScalarOp::kLog, "logf({0})", "log({0})", ""},
    {ScalarOp::kLog1p, "log1pf({0})", "log1p({0})", ""},
    {ScalarOp::kExpm1, "expm1f({0})", "expm1({0})", ""},
    {ScalarOp::kSin, "sinf({0})", "sin({0})", ""},
    {ScalarOp::kCos, "cosf({0})", "cos({0})", ""},
    {ScalarOp::kTan, "tanf({0})", "tan({0})", ""},
    {ScalarOp::kTanh, "tanhf({0})", "tanh({0})", ""},
    {ScalarOp::kErf, "erf_rational({0})", "erf({0})", ""},
    {ScalarOp::kFma, "fmaf({0}, {1}, {2})", "fma({0}, {1}, {2})", "{0} * {1} + {2}"},
    {ScalarOp::kEq, "{0} == {1}", "{0} == {1}", "{0} == {1}"},
    {ScalarOp::kNe, "{0} != {1}", "{0} != {1}", "{0} != {1}"},
    {ScalarOp::kGt, "{0} > {1}", "{0} > {1}", "{0} > {1}"},
    {ScalarOp::kGe, "{0} >= {1}", "{0} >= {1}", "{0} >= {1}"},
    {ScalarOp::kLt, "{0} < {1}", "{0} < {1}", "{0} < {1}"},
    {ScalarOp::kLe, "{0} <= {1}", "{0} <= {1}", "{0} <= {1}"},
    {ScalarOp::kAnd, "", "", "{0} && {1}"},
    {ScalarOp::kOr, "", "", "{0} || {1}"},
    {ScalarOp::kNot, "", "", "!{0}"},
    {ScalarOp::kSelect, "{0} ? {1} : {2}", "{0} ? {1} : {2}", "{0} ? {1} : {2}"},
    {ScalarOp::kPhilox, "", "", "philox({0}, {1}, {2})"},
    {ScalarOp::kBit, "", "", "bit({0}, {1})"},
    {ScalarOp::kFastDiv, "", "", "fast_div({0}, {1}, {2})"},
};

constexpr bool RowsInEnumOrder() {
  for (size_t i = 0; i < std::size(kTexts); ++i)
    if (kTexts[i].op != ScalarOp(i)) return false;
  return std::size(kTexts) == static_cast<size_t>(ScalarOp::kFastDiv) + 1;
}
static_assert(RowsInEnumOrder(), "kTexts must list the scalar ops in enum order");

struct OperatorRow {
  std::string_view text;
  Precedence precedence;
};

// From the loosest on: the first that occurs is the outermost.
constexpr OperatorRow kOperators[] = {
    {" ? ", kTernary},   {" || ", kOr},     {" && ", kAnd},   {" == ", kEquality},
    {" != ", kEquality}, {" < ", kOrder},   {" <= ", kOrder}, {" > ", kOrder},
    {" >= ", kOrder},    {" + ", kSum},     {" - ", kSum},    {" * ", kProduct},
    {" / ", kProduct},   {" % ", kProduct},
};

Precedence OutermostOf(std::string_view text) {
  for (const OperatorRow& row : kOperators)
    if (text.find(row.text) != text.npos) return row.precedence;
  return text.starts_with('-') || text.starts_with('!') ? kUnary : kPrimary;
}

}  // namespace

const ScalarText& TextOf(ScalarOp op) { return kTexts[static_cast<size_t>(op)]; }

// The precedences of the table's texts are known: a large kernel asks for some ten thousand.
Precedence PrecedenceOf(std::string_view text) {
  static const auto* const kKnown = [] {
    auto* const known = new std::unordered_map<const char*, Precedence>;
    for (const ScalarText& row : kTexts)
      for (const std::string_view of : {row.f32, row.f64, row.integer})
        known->emplace(of.data(), OutermostOf(of));
    return known;
  }();
  const auto known = kKnown->find(text.data());
  return known != kKnown->end() ? known->second : OutermostOf(text);
}

}  // namespace kiln::cuda_codegen
