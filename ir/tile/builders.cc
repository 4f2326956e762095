// Builders of tile expressions. They fold what is known, so that engines may write index arithmetic
// in full generality and still get `bx * 256 + tx` where a stride is 1. Every fold is exact: on
// floats only x*1, x/1 and x-0 (x+0 would lose the sign of -0), and constants only through
// operations that round correctly. An integer constant takes the type of the other operand, and i32
// beside i64 widens. Called by engines.
#include <cmath>
#include <span>
#include <utility>

#include "ir/base/check.h"
#include "ir/tile/tile.h"

namespace kiln::tile {
namespace {

Expr Make(ExprNode node) { return std::make_shared<const ExprNode>(std::move(node)); }

bool IsConst(const Expr& e) { return e->kind == ExprKind::kInt || e->kind == ExprKind::kFloat; }
bool IsIntegral(DType t) { return IsInteger(t) || t == DType::kBool; }
bool IsFloatConst(const Expr& e, double value) {
  return e->kind == ExprKind::kFloat && e->float_value == value &&
         std::signbit(e->float_value) == std::signbit(value);
}
// The constant `value` of any type; as an int it is never confused with a float.
bool IsNumber(const Expr& e, int value) {
  return kiln::tile::IsConst(e, value) || IsFloatConst(e, value);
}

// Operations whose f64 result, rounded once more to f32, is the correctly rounded f32 result.
bool FoldsExactly(ScalarOp op) {
  switch (op) {
    case ScalarOp::kAdd:
    case ScalarOp::kSub:
    case ScalarOp::kMul:
    case ScalarOp::kDiv:
    case ScalarOp::kMin:
    case ScalarOp::kMax:
    case ScalarOp::kMinNan:
    case ScalarOp::kMaxNan:
    case ScalarOp::kNeg:
    case ScalarOp::kAbs:
    case ScalarOp::kCeil:
    case ScalarOp::kFloor:
    case ScalarOp::kSqrt:
    case ScalarOp::kRecip:
    case ScalarOp::kEq:
    case ScalarOp::kNe:
    case ScalarOp::kGt:
    case ScalarOp::kGe:
    case ScalarOp::kLt:
    case ScalarOp::kLe:
    case ScalarOp::kAnd:
    case ScalarOp::kOr:
    case ScalarOp::kNot:
      return true;
    default:
      return false;
  }
}

int64_t WrapTo(DType type, int64_t value) {
  return type == DType::kI32    ? static_cast<int32_t>(value)
         : type == DType::kBool ? value != 0
                                : value;
}

DType ResultType(ScalarOp op, const std::vector<Expr>& args) {
  if (Info(op).result == ScalarResult::kBool) return DType::kBool;
  return args[op == ScalarOp::kSelect ? 1 : 0]->type;
}

// The type in which integer operands meet: that of the variables among them, i64 where those
// differ.
DType MeetingType(std::span<const Expr> args) {
  bool fixed = false;
  DType meet = args[0]->type;
  for (const Expr& arg : args) {
    if (arg->kind == ExprKind::kInt) continue;
    meet = fixed && meet != arg->type ? DType::kI64 : arg->type;
    fixed = true;
  }
  if (fixed) return meet;
  for (const Expr& arg : args)
    if (arg->type == DType::kI64) meet = DType::kI64;
  return meet;
}

void Unify(ScalarOp op, std::span<Expr> args) {
  bool same = true, integer = true;
  for (const Expr& arg : args) {
    same = same && arg->type == args[0]->type;
    integer = integer && IsInteger(arg->type);
  }
  if (same) return;
  CHECK(integer, "{} of {} and {}", Info(op).text, Print(args[0]), Print(args.back()));
  const DType meet = MeetingType(args);
  for (Expr& arg : args)
    arg = arg->kind == ExprKind::kInt ? Int(arg->int_value, meet) : Cast(meet, arg);
}

Expr FoldConstants(ScalarOp op, DType type, const std::vector<Expr>& args) {
  double f[3] = {};
  int64_t n[3] = {};
  for (size_t i = 0; i < args.size(); ++i) {
    f[i] = args[i]->kind == ExprKind::kFloat ? args[i]->float_value
                                             : static_cast<double>(args[i]->int_value);
    n[i] = args[i]->int_value;
  }
  if (IsIntegral(args[0]->type))
    return Int(WrapTo(type, EvalScalarInt(op, n[0], n[1], n[2])), type);
  if (!FoldsExactly(op)) return nullptr;
  const double value = EvalScalar(op, f[0], f[1], f[2]);
  return type == DType::kBool ? Bool(value != 0) : Float(value, type);
}

// The simpler equal of op(a, b), or null.
Expr FoldIdentity(ScalarOp op, const Expr& a, const Expr& b) {
  const bool integral = IsIntegral(a->type);
  switch (op) {
    case ScalarOp::kAdd:
      if (integral && IsNumber(b, 0)) return a;
      if (integral && IsNumber(a, 0)) return b;
      return nullptr;
    case ScalarOp::kSub:
      return IsNumber(b, 0) ? a : nullptr;
    case ScalarOp::kMul:
      if (IsNumber(b, 1)) return a;
      if (IsNumber(a, 1)) return b;
      if (integral && (IsNumber(a, 0) || IsNumber(b, 0))) return Int(0, a->type);
      return nullptr;
    case ScalarOp::kDiv:
      if (integral && IsNumber(a, 0)) return a;
      return IsNumber(b, 1) ? a : nullptr;
    case ScalarOp::kMod:
      if (integral && IsNumber(a, 0)) return a;
      return integral && IsNumber(b, 1) ? Int(0, a->type) : nullptr;
    case ScalarOp::kAnd:
      if (IsNumber(a, 0) || IsNumber(b, 1)) return a;
      if (IsNumber(a, 1) || IsNumber(b, 0)) return b;
      return nullptr;
    case ScalarOp::kOr:
      if (IsNumber(a, 1) || IsNumber(b, 0)) return a;
      if (IsNumber(a, 0) || IsNumber(b, 1)) return b;
      return nullptr;
    default:
      return nullptr;
  }
}

}  // namespace

Expr Int(int64_t value, DType type) {
  CHECK(type == DType::kI32 || type == DType::kI64 || type == DType::kBool,
        "integer constant of {}", Info(type).text);
  CHECK(WrapTo(type, value) == value, "{} does not fit in {}", value, Info(type).text);
  return Make({.kind = ExprKind::kInt, .type = type, .int_value = value});
}

Expr Float(double value, DType type) {
  CHECK(type == DType::kF32 || type == DType::kF64, "float constant of {}", Info(type).text);
  return Make({.kind = ExprKind::kFloat, .type = type, .float_value = RoundTo(type, value)});
}

Expr Bool(bool value) { return Int(value, DType::kBool); }

Expr Var(std::string name, DType type) {
  return Make({.kind = ExprKind::kVar, .type = type, .name = std::move(name)});
}

Expr Load(std::string buffer, DType type, Expr index) {
  CHECK(IsInteger(index->type), "index of {}: {}", Info(index->type).text, Print(index));
  return Make({.kind = ExprKind::kLoad,
               .type = type,
               .name = std::move(buffer),
               .args = {std::move(index)}});
}

Expr Op(ScalarOp op, std::vector<Expr> args) {
  CHECK(static_cast<int>(args.size()) == Info(op).arity, "{} takes {} operands, not {}",
        Info(op).text, Info(op).arity, args.size());
  Unify(op, std::span(args).subspan(op == ScalarOp::kSelect ? 1 : 0));
  const DType type = ResultType(op, args);
  if (op == ScalarOp::kSelect) {
    if (IsConst(args[0])) return args[args[0]->int_value != 0 ? 1 : 2];
    if (Equal(args[1], args[2])) return args[1];
  }
  bool constant = op != ScalarOp::kSelect;
  for (const Expr& arg : args) constant = constant && IsConst(arg);
  if (constant) {
    if (Expr folded = FoldConstants(op, type, args)) return folded;
  }
  if ((op == ScalarOp::kCeil || op == ScalarOp::kFloor) && IsInteger(type)) return args[0];
  if (args.size() == 2) {
    if (Expr folded = FoldIdentity(op, args[0], args[1])) return folded;
  }
  return Make({.kind = ExprKind::kOp, .type = type, .op = op, .args = std::move(args)});
}

namespace {

// True if every value of the storage type `narrow` is one of `wide`, so that going there and back
// is nothing.
bool Holds(DType wide, DType narrow) {
  switch (wide) {
    case DType::kF32:
      return IsFloat(narrow) && SizeOf(narrow) < 4;
    case DType::kF64:
      return IsFloat(narrow) && SizeOf(narrow) < 8;
    case DType::kI32:
      return IsInteger(narrow) && SizeOf(narrow) < 4;
    case DType::kI64:
      return IsInteger(narrow) && SizeOf(narrow) < 8;
    default:
      return false;
  }
}

}  // namespace

Expr Cast(DType type, Expr value) {
  if (value->type == type) return value;
  if (value->kind == ExprKind::kCast && value->args[0]->type == type && Holds(value->type, type))
    return value->args[0];
  if (IsConst(value)) {
    const bool from_float = value->kind == ExprKind::kFloat;
    const double number = from_float ? value->float_value : static_cast<double>(value->int_value);
    if (type == DType::kF64 || (type == DType::kF32 && from_float)) return Float(number, type);
    if (type == DType::kF32) return Float(static_cast<float>(value->int_value), type);
    if (type == DType::kBool) return Bool(number != 0);
    if (type == DType::kI64 && !from_float) return Int(value->int_value, type);
    if (type == DType::kI32) return Int(static_cast<int64_t>(RoundTo(type, number)), type);
  }
  return Make({.kind = ExprKind::kCast, .type = type, .args = {std::move(value)}});
}

Expr ShuffleXor(Expr value, int lane_mask) {
  CHECK(lane_mask > 0 && lane_mask < 32, "shuffle with lane mask {}", lane_mask);
  const DType type = value->type;
  return Make({.kind = ExprKind::kShuffle,
               .type = type,
               .int_value = lane_mask,
               .args = {std::move(value)}});
}

Expr operator+(Expr a, Expr b) { return Op(ScalarOp::kAdd, {std::move(a), std::move(b)}); }
Expr operator-(Expr a, Expr b) { return Op(ScalarOp::kSub, {std::move(a), std::move(b)}); }
Expr operator*(Expr a, Expr b) { return Op(ScalarOp::kMul, {std::move(a), std::move(b)}); }
Expr operator/(Expr a, Expr b) { return Op(ScalarOp::kDiv, {std::move(a), std::move(b)}); }
Expr operator%(Expr a, Expr b) { return Op(ScalarOp::kMod, {std::move(a), std::move(b)}); }
Expr Lt(Expr a, Expr b) { return Op(ScalarOp::kLt, {std::move(a), std::move(b)}); }
Expr Ge(Expr a, Expr b) { return Op(ScalarOp::kGe, {std::move(a), std::move(b)}); }
Expr And(Expr a, Expr b) { return Op(ScalarOp::kAnd, {std::move(a), std::move(b)}); }
Expr Select(Expr condition, Expr if_true, Expr if_false) {
  return Op(ScalarOp::kSelect, {std::move(condition), std::move(if_true), std::move(if_false)});
}

bool IsConst(const Expr& e, int64_t value) {
  return e->kind == ExprKind::kInt && e->int_value == value;
}

bool Equal(const Expr& a, const Expr& b) {
  if (a == b) return true;
  const bool same_float = a->float_value == b->float_value &&
                          std::signbit(a->float_value) == std::signbit(b->float_value);
  const bool both_nan = std::isnan(a->float_value) && std::isnan(b->float_value);
  if (a->kind != b->kind || a->type != b->type || a->op != b->op || a->name != b->name ||
      a->int_value != b->int_value || !(same_float || both_nan) || a->args.size() != b->args.size())
    return false;
  for (size_t i = 0; i < a->args.size(); ++i)
    if (!Equal(a->args[i], b->args[i])) return false;
  return true;
}

}  // namespace kiln::tile
