// Every scalar op on every type it has, against the interpreter: exact where the op is arithmetic,
// within a few units in the last place where it is a function of libm.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "codegen/llvm/math.h"
#include "ir/tile/tools.h"
#include "tests/codegen/llvm/kernel_runner.h"

namespace kiln::test {
namespace {

constexpr DType kComputeTypes[] = {DType::kF32, DType::kF64, DType::kI32, DType::kI64,
                                   DType::kBool};
constexpr int kScalarOps = static_cast<int>(ScalarOp::kFastDiv) + 1;

std::string OpKernel(ScalarOp op, DType type, size_t count) {
  const ScalarOpInfo& info = Info(op);
  const char* operands[] = {"load a[i]", "load b[i]", "load c[i]"};
  std::string args;
  for (int k = 0; k < info.arity; ++k) {
    const bool condition = op == ScalarOp::kSelect && k == 0;
    args += (k > 0 ? ", " : "") + std::string(condition ? "cast<bool>(load a[i])" : operands[k]);
    if (condition && type == DType::kBool) args = operands[0];
  }
  const DType result = info.result == ScalarResult::kBool ? DType::kBool : type;
  return fmt::format(
      R"(kernel op_{0}_{1}(a: ptr<{1}> const, b: ptr<{1}> const, c: ptr<{1}> const, y: ptr<{2}>) threads 1 {{
  for i in 0..{3} vector {{
    store y[i] = {0}({4})
  }}
}}
)",
      info.text, Info(type).text, Info(result).text, count, args);
}

struct Operands {
  std::vector<double> a, b, c;
};

// All pairs and, for ternary ops, a third operand that runs through the list at another pace.
Operands OperandsFor(ScalarOp op, DType type) {
  std::vector<double> values;
  if (type == DType::kBool) {
    values = {0, 1};
  } else if (IsFloat(type)) {
    values = {0.0,    -0.0,    1,     -1,   0.5,      -0.5,      1.5,  2.5,   -2.5,   3,
              -3,     1e-5,    -1e-5, 0.1,  0.7,      -0.7,      5,    -5,    10.25,  -10.25,
              20,     -20,     80,    -80,  88.5,     -88.5,     100,  -100,  700,    -700,
              1234.5, -1234.5, 1e5,   -1e5, 1e-20,    1e-40,     1e30, -1e30, 1e-310, M_PI,
              M_E,    M_PI_2,  0.99,  1.01, INFINITY, -INFINITY, NAN};
    for (double& v : values) v = RoundTo(type, v);
  } else if (op == ScalarOp::kDiv || op == ScalarOp::kMod) {
    values = {0, 1, 2, 3, 7, 10, 64, 1000, 46341, 2147483647};
  } else {
    values = {0,     1,     -1,    2,      -3,         7,           -10,          1000,
              -1000, 46341, 65536, -65537, 2147483647, -2147483647, -2147483648.0};
  }
  Operands operands;
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t j = 0; j < values.size(); ++j) {
      operands.a.push_back(values[i]);
      operands.b.push_back(values[j]);
      operands.c.push_back(values[(i * 3 + j) % values.size()]);
    }
  }
  return operands;
}

double AllowedUlps(ScalarOp op, bool vector_math) {
  if (op == ScalarOp::kMod) return 0;
  if (llvm_codegen::FindMathFunction(op)) return vector_math ? 4 : 2;
  return op == ScalarOp::kRsqrt ? 2 : 0;
}

bool Exists(ScalarOp op, DType type) {
  const auto kernel = tile::Parse(OpKernel(op, type, 1));
  return kernel.ok() && tile::Verify(*kernel).ok();
}

void CheckOp(ScalarOp op, DType type, bool vector_math) {
  const Operands v = OperandsFor(op, type);
  const std::string text = OpKernel(op, type, v.a.size());
  const DType result = Info(op).result == ScalarResult::kBool ? DType::kBool : type;
  const std::vector<KernelArgument> args = {Buffer{type, v.a}, Buffer{type, v.b}, Buffer{type, v.c},
                                            Buffer{result, std::vector<double>(v.a.size())}};
  const auto expected = RunBoth(text, args);
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  const auto compiled =
      RunCompiled(text, args, {1, 1, 1}, TestDevice({.use_vector_math = vector_math}));
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();
  int wrong = 0;
  for (size_t i = 0; i < v.a.size() && wrong < 5; ++i) {
    const double want = expected->interpreted[3][i], got = (*compiled)[3][i];
    const double error = IsFloat(result) ? UlpDistance(result, want, got) : std::fabs(want - got);
    if (error <= AllowedUlps(op, vector_math)) continue;
    ++wrong;
    ADD_FAILURE() << fmt::format("{}<{}>({:a}, {:a}, {:a}) = {:a}, not {:a}: {} ulp", Info(op).text,
                                 Info(type).text, v.a[i], v.b[i], v.c[i], got, want, error);
  }
}

TEST(ScalarOps, AgreeWithTheInterpreter) {
  int checked = 0;
  for (int i = 0; i < kScalarOps; ++i) {
    for (const DType type : kComputeTypes) {
      const auto op = static_cast<ScalarOp>(i);
      if (op == ScalarOp::kFastDiv || !Exists(op, type)) continue;
      CheckOp(op, type, /*vector_math=*/true);
      if (llvm_codegen::FindMathFunction(op)) CheckOp(op, type, /*vector_math=*/false);
      ++checked;
    }
  }
  // 14 ops on the 2 float types, 18 on the 4 number types, eq, ne and select on bool too, and and,
  // or, not on bool alone, philox on i64 alone, bit on i32 alone: no combination may be skipped.
  EXPECT_EQ(checked, 14 * 2 + 18 * 4 + 3 * 5 + 3 + 1 + 1);
}

TEST(ScalarOps, FastDivisionEqualsDivision) {
  const std::string text =
      R"(kernel fast(n: ptr<i32> const, mul: i32, shift: i32, y: ptr<i32>) threads 1 {
  for i in 0..256 vector {
    store y[i] = fast_div(load n[i], mul, shift)
  }
}
)";
  for (const int64_t divisor : {1, 2, 3, 5, 7, 64, 1000, 641, 65535, 1 << 30, 2147483647}) {
    const Magic magic = MagicFor(divisor);
    std::vector<double> n, expected;
    for (int64_t i = 0; i < 256; ++i) {
      const int64_t value = i < 100   ? i
                            : i < 200 ? std::min<int64_t>(divisor * (i % 9) + i % 3, 2147483647)
                                      : 2147483647 - i;
      n.push_back(static_cast<double>(std::max<int64_t>(value - 1, 0)));
      expected.push_back(static_cast<double>(static_cast<int64_t>(n.back()) / divisor));
    }
    const auto outcome =
        RunBoth(text, {Buffer{DType::kI32, n}, Scalar{DType::kI32, double(int32_t(magic.mul))},
                       Scalar{DType::kI32, double(magic.shift)},
                       Buffer{DType::kI32, std::vector<double>(256)}});
    ASSERT_TRUE(outcome.ok()) << outcome.status().message();
    EXPECT_EQ(outcome->compiled[1], expected) << divisor;
  }
}

TEST(ScalarOps, MathOverAWideRange) {
  std::vector<double> x;
  for (int i = 0; i < 40000; ++i) x.push_back(RoundTo(DType::kF32, (i - 20000) * 0.00473));
  for (const ScalarOp op :
       {ScalarOp::kExp, ScalarOp::kExpm1, ScalarOp::kTanh, ScalarOp::kErf, ScalarOp::kSin,
        ScalarOp::kCos, ScalarOp::kTan, ScalarOp::kLog, ScalarOp::kLog1p}) {
    const Buffer in{DType::kF32, x}, out{DType::kF32, std::vector<double>(x.size())};
    const auto compiled = RunCompiled(OpKernel(op, DType::kF32, x.size()), {in, in, in, out});
    ASSERT_TRUE(compiled.ok()) << compiled.status().message();
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      worst = std::fmax(worst, UlpDistance(DType::kF32, RoundTo(DType::kF32, EvalScalar(op, x[i])),
                                           (*compiled)[3][i]));
    }
    EXPECT_LE(worst, 4) << Info(op).text;
    fmt::print("{:6} worst {} ulp\n", Info(op).text, worst);
  }
}

}  // namespace
}  // namespace kiln::test
