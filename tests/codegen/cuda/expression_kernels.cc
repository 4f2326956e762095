// The generator draws typed expression trees, built as nodes so that nothing folds.
#include "tests/codegen/cuda/expression_kernels.h"

#include <fmt/format.h>

#include <random>

namespace kiln::tile {
namespace {

class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}

  Expr Of(DType t, int depth) {
    const int what = Below(10);
    if (depth == 0 || what == 0) return Leaf(t);
    if (what == 1)
      return Convert(t, Of(Pick({DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kBool}),
                           depth - 1));
    if (what == 2)
      return Convert(
          t, Convert(Pick({DType::kBF16, DType::kE4M3, DType::kE5M2, DType::kI8, DType::kU8}),
                     Of(Pick({DType::kF32, DType::kF64, DType::kI32, DType::kI64}), depth - 1)));
    if (what == 3)
      return Make(ScalarOp::kSelect, t,
                  {Of(DType::kBool, depth - 1), Of(t, depth - 1), Of(t, depth - 1)});
    if (t == DType::kBool) return Condition(depth);
    if (!IsFloat(t) && Below(3) == 0) return Division(t, depth);
    const ScalarOp op =
        IsFloat(t)
            ? Pick({ScalarOp::kAdd, ScalarOp::kSub, ScalarOp::kMul, ScalarOp::kDiv, ScalarOp::kNeg,
                    ScalarOp::kAbs, ScalarOp::kFma, ScalarOp::kCeil, ScalarOp::kFloor,
                    ScalarOp::kSqrt, ScalarOp::kRecip, ScalarOp::kMod})
            : Pick({ScalarOp::kAdd, ScalarOp::kSub, ScalarOp::kMul, ScalarOp::kNeg, ScalarOp::kMin,
                    ScalarOp::kMax, ScalarOp::kFma, ScalarOp::kFloor, ScalarOp::kAbs});
    return Operation(op, t, t, depth);
  }

 private:
  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  template <class T>
  T Pick(std::initializer_list<T> from) {
    return from.begin()[Below(static_cast<int>(from.size()))];
  }
  static Expr Make(ScalarOp op, DType t, std::vector<Expr> args) {
    return std::make_shared<const ExprNode>(
        ExprNode{.kind = ExprKind::kOp, .type = t, .op = op, .args = std::move(args)});
  }
  static Expr Convert(DType t, Expr e) {
    return std::make_shared<const ExprNode>(
        ExprNode{.kind = ExprKind::kCast, .type = t, .args = {std::move(e)}});
  }

  Expr Operation(ScalarOp op, DType operand, DType result, int depth) {
    std::vector<Expr> args;
    for (int k = 0; k < Info(op).arity; ++k) args.push_back(Of(operand, depth - 1));
    return Make(op, result, std::move(args));
  }

  Expr Condition(int depth) {
    if (Below(2) == 0) {
      const ScalarOp op =
          Pick({ScalarOp::kAnd, ScalarOp::kOr, ScalarOp::kNot, ScalarOp::kEq, ScalarOp::kNe});
      return Operation(op, DType::kBool, DType::kBool, depth);
    }
    const ScalarOp op = Pick(
        {ScalarOp::kEq, ScalarOp::kNe, ScalarOp::kGt, ScalarOp::kGe, ScalarOp::kLt, ScalarOp::kLe});
    return Operation(op, Pick({DType::kF32, DType::kF64, DType::kI32, DType::kI64}), DType::kBool,
                     depth);
  }

  // By a constant, or by a parameter that may be zero.
  Expr Division(DType t, int depth) {
    const Expr by =
        Below(2) == 0 ? Int(Pick({1, 3, 128}), t) : Var(t == DType::kI32 ? "j" : "l", t);
    return Make(Pick({ScalarOp::kDiv, ScalarOp::kMod}), t, {Of(t, depth - 1), by});
  }

  Expr Leaf(DType t) {
    if (t == DType::kBool) return Below(3) == 0 ? Bool(Below(2) == 0) : Var("c", t);
    if (t == DType::kI32)
      return Below(3) == 0 ? Int(Pick({0, 1, -1, 7, 1 << 20, -2147483647 - 1}))
                           : Var(Pick({"i", "j"}), t);
    if (t == DType::kI64) return Below(3) == 0 ? Int(Pick({0, -3, 1 << 30}), t) : Var("l", t);
    if (Below(3) == 0) return Float(Pick({0.0, 1.0, -2.5, 0.1, 1e-40, 3e38}), t);
    return t == DType::kF32 ? Var(Pick({"a", "b"}), t) : Var("d", t);
  }

  std::mt19937 random_;
};

}  // namespace

Kernel ExpressionKernel(uint32_t seed) {
  Generator generator(seed);
  Kernel kernel{.name = fmt::format("expressions_{}", seed)};
  kernel.params = {{.name = "out", .type = DType::kF64, .is_pointer = true},
                   {.name = "i", .type = DType::kI32},
                   {.name = "j", .type = DType::kI32},
                   {.name = "l", .type = DType::kI64},
                   {.name = "a", .type = DType::kF32},
                   {.name = "b", .type = DType::kF32},
                   {.name = "d", .type = DType::kF64},
                   {.name = "c", .type = DType::kBool}};
  for (int k = 0; k < kExpressionsEach; ++k)
    kernel.body.push_back({Store{"out", Int(k), generator.Of(DType::kF64, 6)}});
  return kernel;
}

}  // namespace kiln::tile
