// Printing of expressions. Operators come from scalar_text.cc, casts from the rules below: every
// cast rounds as RoundTo (ir/dtype.h) does, so a conversion that would round twice goes through
// round_odd.
#include "codegen/cuda/expr_text.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "ir/base/check.h"

namespace kiln::cuda_codegen {
namespace {

using tile::Expr;
using tile::ExprKind;
using tile::ExprNode;

bool IsSmallFloat(DType t) { return IsFloat(t) && SizeOf(t) <= 2; }

std::string Decimal(double value, DType type) {
  std::string text =
      type == DType::kF32 ? fmt::format("{}", static_cast<float>(value)) : fmt::format("{}", value);
  if (text.find_first_of(".e") == text.npos) text += type == DType::kF32 ? "." : ".0";
  if (text.ends_with(".0") && type == DType::kF32) text.pop_back();
  return type == DType::kF32 ? text + "f" : text;
}

// The function that makes an integer of another type; empty where C++'s own conversion is exact.
std::string_view IntConversion(DType from, DType to) {
  const bool widens = Info(from).bits < Info(to).bits || from == DType::kBool;
  if (!IsFloat(from) && widens &&
      !(Info(from).kind == DTypeKind::kInt && Info(to).kind == DTypeKind::kUint))
    return "";
  switch (to) {
    case DType::kI8:
      return "to_i8";
    case DType::kU8:
      return "to_u8";
    case DType::kI32:
      return "to_i32";
    case DType::kI64:
      return "to_i64";
    default:
      break;
  }
  CHECK(false, "no conversion to {}", Info(to).text);
}

// `x` converted by the type's name: int(x), and (long long)x for names of several words.
std::string Construct(DType to, const std::string& any, const std::string& unary, int& precedence) {
  const std::string_view name = Info(to).cuda;
  const bool one_word = name.find(' ') == name.npos;
  precedence = one_word ? kPrimary : kUnary;
  return one_word ? fmt::format("{}({})", name, any) : fmt::format("({}){}", name, unary);
}

}  // namespace

std::string IntLiteral(int64_t value, DType type) {
  if (type == DType::kBool) return value != 0 ? "true" : "false";
  const char* suffix = type == DType::kI64 ? "ll" : "";
  const int64_t least = type == DType::kI64 ? std::numeric_limits<int64_t>::min()
                                            : std::numeric_limits<int32_t>::min();
  // C++ has no negative literals: the magnitude of the least integer would overflow.
  if (value == least) return fmt::format("({}{} - 1)", value + 1, suffix);
  return fmt::format("{}{}", value, suffix);
}

std::string FloatLiteral(double value, DType type) {
  if (std::isfinite(value)) return Decimal(value, type);
  const char* sign = !std::isnan(value) && value < 0 ? "-" : "";
  if (type == DType::kF32)
    return fmt::format("{}__int_as_float({})", sign,
                       std::isnan(value) ? "0x7fffffff" : "0x7f800000");
  return fmt::format("{}__longlong_as_double({})", sign,
                     std::isnan(value) ? "0x7fffffffffffffff" : "0x7ff0000000000000");
}

std::string ExprPrinter::Text(const Expr& e, int least) const {
  int precedence = kPrimary;
  std::string text;
  switch (e->kind) {
    case ExprKind::kInt:
      text = IntLiteral(e->int_value, e->type);
      break;
    case ExprKind::kFloat:
      text = FloatLiteral(e->float_value, e->type);
      break;
    case ExprKind::kVar:
      text = e->name;
      break;
    case ExprKind::kLoad:
      text = Element(e->name, e->args[0]);
      break;
    case ExprKind::kOp:
      text = Operation(*e, precedence);
      break;
    case ExprKind::kCast:
      text = CastText(*e, precedence);
      break;
    case ExprKind::kShuffle:
      text = fmt::format("shuffle_xor({}, {})", Text(e->args[0]), e->int_value);
      break;
  }
  if (text.starts_with('-')) precedence = std::min<int>(precedence, kUnary);
  return precedence < least ? "(" + text + ")" : text;
}

std::string ExprPrinter::Exponent(const Expr& e) const {
  const bool is_difference =
      e->kind == ExprKind::kOp && e->op == ScalarOp::kSub && e->type == DType::kF32;
  if (!is_difference) return "";
  return fmt::format("__fsub_rn({}, {})", Text(e->args[0]), Text(e->args[1]));
}

std::string ExprPrinter::Element(const std::string& buffer, const Expr& index) const {
  const auto scalar = scalars_.find(buffer);
  if (scalar == scalars_.end()) return fmt::format("{}[{}]", buffer, Text(index));
  return scalar->second == 1 ? buffer : ElementName(buffer, index->int_value);
}

std::string ExprPrinter::ElementName(const std::string& buffer, int64_t i) {
  return fmt::format("{}_at{}", buffer, i);
}

std::string ExprPrinter::Address(const std::string& buffer, const Expr& index) const {
  return tile::IsConst(index, 0) ? buffer : fmt::format("{} + {}", buffer, Text(index, kSum));
}

std::string ExprPrinter::Operation(const ExprNode& e, int& precedence) const {
  const Expr& first = e.args[e.op == ScalarOp::kSelect ? 1 : 0];
  const ScalarText& row = TextOf(e.op);
  std::string_view text = first->type == DType::kF32   ? row.f32
                          : first->type == DType::kF64 ? row.f64
                                                       : row.integer;
  CHECK(!text.empty(), "{} of {}", Info(e.op).text, Info(first->type).text);
  if (text == "{0}") return Text(first, kPrimary);  // floor of an integer
  if (const std::string apart = e.op == ScalarOp::kExp ? Exponent(first) : ""; !apart.empty())
    return fmt::format("expf({})", apart);
  const bool integer = !IsFloat(first->type);
  const Expr& last = e.args.back();
  if (integer && last->kind == ExprKind::kInt) {
    if (e.op == ScalarOp::kDiv && last->int_value != 0) text = "{0} / {1}";
    if (e.op == ScalarOp::kMod && last->int_value != 0) text = "{0} % {1}";
    const bool negative =
        last->int_value < 0 && last->int_value > std::numeric_limits<int32_t>::min();
    if (e.op == ScalarOp::kAdd && negative) {
      precedence = kSum;
      return fmt::format("{} - {}", Text(first, kSum), IntLiteral(-last->int_value, last->type));
    }
  }
  precedence = PrecedenceOf(text);
  return Fill(text, e, precedence);
}

// An operand that starts the text may bind as loosely as the operator, which groups from the left;
// any other has to bind more tightly, and between the parentheses of a call everything may stand.
std::string ExprPrinter::Fill(std::string_view text, const ExprNode& e, int precedence) const {
  const bool call = precedence == kPrimary;
  const auto operand = [&](size_t i) {
    const bool leads = i == 0 && text.starts_with("{0}") && e.op != ScalarOp::kSelect;
    const bool product = e.op == ScalarOp::kFma && i < 2;  // of an integer {0} * {1} + {2}
    return Text(e.args[i], call ? kAny : product ? kUnary : leads ? precedence : precedence + 1);
  };
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '{') {
      out += text[at];
      continue;
    }
    out += operand(static_cast<size_t>(text[at + 1] - '0'));
    at += 2;  // to the '}'
  }
  return out;
}

std::string ExprPrinter::CastText(const ExprNode& e, int& precedence) const {
  const Expr& operand = e.args[0];
  const DType to = e.type;
  if (to == operand->type) return Text(operand, kPrimary);
  DType from = operand->type;
  std::string any = Text(operand), unary = Text(operand, kUnary);
  if (IsSmallFloat(from)) {  // these convert to float only
    any = unary = fmt::format("float({})", any);
    from = DType::kF32;
    precedence = kPrimary;
    if (to == DType::kF32) return any;
  }
  if (to == DType::kBool) {
    precedence = kEquality;
    const std::string left = from == operand->type ? Text(operand, kEquality) : any;
    return fmt::format("{} != {}", left,
                       IsFloat(from) ? FloatLiteral(0, from) : IntLiteral(0, DType::kI32));
  }
  if (IsSmallFloat(to)) {
    if (from == DType::kI32 || from == DType::kI64)
      any = fmt::format("round_odd(double({}))", any);
    else if (from == DType::kF64)
      any = fmt::format("round_odd({})", any);
    else if (from != DType::kF32)
      any = fmt::format("float({})", any);
    precedence = kPrimary;
    return fmt::format("{}({})", Info(to).cuda, any);
  }
  const std::string_view function = IsFloat(to) ? "" : IntConversion(from, to);
  if (function.empty()) return Construct(to, any, unary, precedence);
  precedence = kPrimary;
  return fmt::format("{}({})", function, any);
}

std::string ExprPrinter::Compound(const tile::Store& s) const {
  const ExprNode& v = *s.value;
  if (v.kind != ExprKind::kOp || v.args.size() != 2) return "";
  const ExprNode& left = *v.args[0];
  if (left.kind != ExprKind::kLoad || left.name != s.buffer || !tile::Equal(left.args[0], s.index))
    return "";
  const char* op = v.op == ScalarOp::kAdd   ? "+="
                   : v.op == ScalarOp::kSub ? "-="
                   : v.op == ScalarOp::kMul ? "*="
                                            : nullptr;
  return op == nullptr ? "" : fmt::format("{} {}", op, Text(v.args[1]));
}

}  // namespace kiln::cuda_codegen
