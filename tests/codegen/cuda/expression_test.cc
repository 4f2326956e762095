// C++ makes of the emitted expressions what the interpreter makes of the kernel: precedence,
// conversions, literals and lazy evaluation, on a thousand random expressions and edge values of
// the arguments.
#include <gtest/gtest.h>

#include <cmath>

#include "ir/tile/tools.h"
#include "tests/codegen/cuda/expression_kernels.h"
#include "tests/codegen/cuda/expressions.inc"

namespace kiln::tile {
namespace {

struct Arguments {
  int i, j;
  long long l;
  float a, b;
  double d;
  bool c;
};

constexpr Arguments kArguments[] = {
    {3, 5, 7, 0.5f, -1.25f, 2.0, true},
    {-3, 0, 0, 0.1f, 1e30f, -1e-300, false},
    {2147483647, 1, 1ll << 40, -0.f, 448.f, 1e300, true},
    {100000, 12345, 987654321, 3.14159f, 1e-7f, 0.1, false},
    {-100, 255, 9, -60000.f, 17.5f, 300.5, true},
};

TEST(Expressions, CompiledTextAgreesWithTheInterpreter) {
  for (uint32_t seed = 0; seed < kExpressionKernels; ++seed) {
    const Kernel kernel = ExpressionKernel(seed);
    for (const Arguments& v : kArguments) {
      std::vector<double> expected(kExpressionsEach), got(kExpressionsEach);
      const Argument args[] = {{.buffer = &expected},  {.scalar = {.i = v.i}},
                               {.scalar = {.i = v.j}}, {.scalar = {.i = v.l}},
                               {.scalar = {.f = v.a}}, {.scalar = {.f = v.b}},
                               {.scalar = {.f = v.d}}, {.scalar = {.i = v.c}}};
      const Status status = Interpret(kernel, args);
      ASSERT_TRUE(status.ok()) << status.message();
      kCompiled[seed](got.data(), v.i, v.j, v.l, v.a, v.b, v.d, v.c);
      for (int k = 0; k < kExpressionsEach; ++k) {
        const bool same = got[k] == expected[k] || (std::isnan(got[k]) && std::isnan(expected[k]));
        EXPECT_TRUE(same) << "seed " << seed << ", i = " << v.i << ": compiled " << got[k]
                          << ", interpreted " << expected[k] << "\n"
                          << Print(std::get<Store>(kernel.body[k].node).value);
      }
    }
  }
}

}  // namespace
}  // namespace kiln::tile
