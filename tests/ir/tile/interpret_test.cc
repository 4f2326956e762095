// The lockstep interpreter: what kernels compute, and the mistakes it catches that a device would
// not.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ir/tile/tools.h"
#include "tests/ir/tile/kernels.h"
#include "tests/support/pace.h"

namespace kiln::tile {
namespace {

using Buffer = std::vector<double>;

Argument Scalar(int64_t v) { return {.scalar = {.i = v}}; }
Argument Scalar(double v) { return {.scalar = {.f = v}}; }

Status RunText(std::string_view text, std::vector<Argument> args) {
  const Result<Kernel> kernel = Parse(text);
  if (!kernel.ok()) return kernel.status();
  return Interpret(*kernel, args);
}

TEST(TileInterpret, Saxpy) {
  const int n = 300;
  Buffer x(n), y(n), expected(n);
  for (int i = 0; i < n; ++i) {
    x[i] = RoundTo(DType::kBF16, 0.37 * i);
    y[i] = static_cast<float>(1.0 / (i + 1));
    expected[i] = std::fmaf(1.1f, static_cast<float>(x[i]), static_cast<float>(y[i]));
  }
  const Status status =
      RunText(kSaxpy, {{.buffer = &x}, {.buffer = &y}, Scalar(double{1.1f}), Scalar(int64_t{n})});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(y, expected);
}

TEST(TileInterpret, BlockSumThroughShufflesAndSharedMemory) {
  Buffer x(3 * 256), y(3);
  std::mt19937 random(1);
  for (double& v : x) v = static_cast<double>(random() % 1000);
  const Status status = RunText(kBlockSum, {{.buffer = &x}, {.buffer = &y}, Scalar(int64_t{3})});
  ASSERT_TRUE(status.ok()) << status.message();
  for (int b = 0; b < 3; ++b) {
    double sum = 0;
    for (int i = 0; i < 256; ++i) sum += x[b * 256 + i];
    EXPECT_EQ(y[b], sum) << "block " << b;
  }
}

// One thread: `body` may use x (f32), y (f64), n (i32), a (f32).
Status RunSmall(const std::string& body, Buffer& y) {
  Buffer x = {1, 2, 3, 4};
  return RunText("kernel k(x: ptr<f32> const align 16, y: ptr<f64>, n: i32, a: f32) threads 1 {\n" +
                     body + "\n}\n",
                 {{.buffer = &x}, {.buffer = &y}, Scalar(int64_t{5}), Scalar(double{0.1f})});
}

struct ValueRow {
  const char* expr;  // of type f64
  double value;
};

TEST(TileInterpret, ExpressionsHaveTheTypesOfADevice) {
  const ValueRow rows[] = {
      {"cast<f64>(mul(a, a))", double{0.1f * 0.1f}},
      {"mul(cast<f64>(a), cast<f64>(a))", double{0.1f} * double{0.1f}},
      {"cast<f64>(fma(a, a, -0x1.47ae16p-7f))", double{std::fmaf(0.1f, 0.1f, -0x1.47ae16p-7f)}},
      {"cast<f64>(add(2147483647, 1))", -2147483648.0},
      {"cast<f64>(add(2147483647l, 1l))", 2147483648.0},
      {"cast<f64>(div(n, sub(n, 5)))", 0},
      {"cast<f64>(cast<i8>(0x1.2cp+8f))", 127},
      {"cast<f64>(cast<u8>(sub(n, 10)))", 0},
      {"cast<f64>(cast<i32>(4294967296l))", 2147483647},
      {"cast<f64>(cast<i32>(nan))", 0},
      {"cast<f64>(cast<i64>(inf))", 9223372036854775808.0},
      {"cast<f64>(cast<i32>(0x1.4p+1f))", 2},
      {"cast<f64>(cast<e4m3>(0x1p+10f))", 448},
      {"cast<f64>(cast<f16>(0x1.ffdp+15f))", 65504},
      {"cast<f64>(cast<f16>(16777217))", HUGE_VAL},
      {"cast<f64>(cast<bf16>(a))", 0.10009765625},
      {"cast<f64>(cast<f32>(9007199791611905l))",
       9007200328482816.0},  // rounded once, not by way of f64
      {"cast<f64>(select(lt(n, 3), 1, 2))", 2},
      {"cast<f64>(fast_div(1000, -1840700269, 33))", 285},
      {"select(lt(n, 4), cast<f64>(load x[n]), 0x1p+0)", 1},  // the load is not made
      {"cast<f64>(and(lt(n, 4), lt(load x[n], a)))", 0},
      {"cast<f64>(or(gt(n, 4), lt(load x[n], a)))", 1},
      {"cast<f64>(max(nanf, a))", double{0.1f}},
      {"cast<f64>(eq(max_nan(nanf, a), a))", 0},
  };
  for (const ValueRow& row : rows) {
    Buffer y(1);
    const Status status = RunSmall(fmt::format("store y[0] = {}", row.expr), y);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(y[0], row.value) << row.expr;
  }
}

TEST(TileInterpret, SixtyFourBitIntegersAreExact) {
  Buffer y(1);
  const Status status = RunSmall(
      "alloc r : i64[1] reg store r[0] = 9007199254740993l\n"
      "store y[0] = cast<f64>(sub(load r[0], 9007199254740992l))",
      y);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(y[0], 1);
}

TEST(TileInterpret, LoopsAndBranchesDivergePerThread) {
  Buffer y(8);
  const Status status = RunText(R"(kernel k(y: ptr<f32>) threads 8 {
  for t in 0..8 thread_x {
    alloc sum : i32[1] reg
    store sum[0] = 0
    for k in 0..t {
      if eq(mod(k, 2), 0) {
        store sum[0] = add(load sum[0], k)
      } else {
        store sum[0] = add(load sum[0], 100)
      }
    }
    store y[t] = cast<f32>(load sum[0])
  }
})",
                                {{.buffer = &y}});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(y, (Buffer{0, 0, 100, 102, 202, 206, 306, 312}));
}

// Neighbours exchange values through shared memory; `between` stands between the store and the
// load.
Status Exchange(const char* between) {
  Buffer y(64);
  return RunText(fmt::format(R"(kernel k(y: ptr<f32>) threads 64 {{
  alloc s : f32[64] shared
  for t in 0..64 thread_x {{
    store s[t] = cast<f32>(t)
    {}
    store y[t] = load s[sub(63, t)]
  }}
}})",
                             between),
                 {{.buffer = &y}});
}

TEST(TileInterpret, RacesOnSharedMemoryAreErrors) {
  EXPECT_TRUE(Exchange("barrier").ok());
  EXPECT_EQ(Exchange("").message(),
            "store y[t] = load s[sub(63, t)]: race: s[63] was stored by thread 63 and there is no "
            "barrier between "
            "(thread 0 of block 0,0,0)");
  EXPECT_EQ(Exchange("barrier let v = load s[0] : f32 store s[t] = 0x1p+0f").message(),
            "store s[t] = 0x1p+0f: race: s[0] was loaded by another thread and there is no barrier "
            "between "
            "(thread 0 of block 0,0,0)");
  EXPECT_EQ(Exchange("store s[0] = cast<f32>(t)").message(),
            "store s[0] = cast<f32>(t): race: s[0] was stored by another thread and there is no "
            "barrier between "
            "(thread 1 of block 0,0,0)");
}

// Teams of 32 or 64 threads; a barrier of teams orders what a team does, and nothing else.
TEST(TileInterpret, ABarrierOfTeamsOrdersEachTeamAlone) {
  const auto run = [](int team, int mask) {
    Buffer y(128);
    return RunText(fmt::format(R"(kernel k(y: ptr<f32>) threads 128 {{
  alloc s : f32[128] shared
  for t in 0..128 thread_x {{
    for k in 0..2 {{
      store s[t] = cast<f32>(add(t, k))
      barrier of {}
      let other = add(mul(div(t, {}), {}), mod(add(t, 1), {})) : i32
      store y[t] = load s[other]
      barrier of {}
    }}
  }}
}})",
                               team, mask, mask, mask, team),
                   {{.buffer = &y}});
  };
  EXPECT_TRUE(run(32, 32).ok()) << run(32, 32).message();
  EXPECT_TRUE(run(64, 32).ok()) << run(64, 32).message();
  EXPECT_NE(run(32, 64).message().find("race: s[32] was stored by thread 32"), std::string::npos)
      << run(32, 64).message();
}
TEST(TileInterpret, ReadersOfATeamAreOrderedByItsBarrier) {
  const auto run = [](const char* between, const char* writer) {
    Buffer y(64);
    return RunText(fmt::format(R"(kernel k(y: ptr<f32>) threads 64 {{
  alloc s : f32[2] shared
  for t in 0..64 thread_x {{
    if lt(t, 1) {{ store s[0] = 0x1p+0f }}
    barrier
    if lt(t, 32) {{ store y[t] = load s[0] }}
    {}
    if eq(t, {}) {{ store s[0] = 0x1p+1f }}
    barrier of 32
  }}
}})",
                               between, writer),
                   {{.buffer = &y}});
  };
  EXPECT_TRUE(run("barrier of 32", "5").ok()) << run("barrier of 32", "5").message();
  EXPECT_TRUE(run("barrier", "40").ok());
  const std::string race = "race: s[0] was loaded by another thread";
  EXPECT_NE(run("", "5").message().find(race), std::string::npos);
  EXPECT_NE(run("barrier of 32", "40").message().find(race), std::string::npos);
}

struct Failure {
  const char* body;
  const char* message;
};

TEST(TileInterpret, MistakesNameBufferIndexAndThread) {
  const Failure rows[] = {
      {"let v = load x[n] : f32",
       "let v = load x[n] : f32: x[5] is out of bounds: x has 4 elements (thread 0 of block "
       "0,0,0)"},
      {"store y[sub(n, 6)] = 0x0p+0",
       "store y[sub(n, 6)] = 0x0p+0: y[-1] is out of bounds: y has 2 elements (thread 0 of block "
       "0,0,0)"},
      {"alloc r : f32[4] reg let v = load r[2] : f32",
       "let v = load r[2] : f32: r[2] is undefined (thread 0 of block 0,0,0)"},
      {"for k in 0..2 { alloc r : f32[1] reg if eq(k, 0) { store r[0] = a } let v = load r[0] : "
       "f32 }",
       "let v = load r[0] : f32: r[0] is undefined (thread 0 of block 0,0,0)"},
      {"alloc r : f32[4] shared let v = load r[n] : f32",
       "let v = load r[n] : f32: r[5] is out of bounds: r has 4 elements (thread 0 of block "
       "0,0,0)"},
      {"alloc r : f32[4] reg copy r[0] <- x[sub(n, 2)] lanes 2",
       "copy r[0] <- x[sub(n, 2)] lanes 2: x[4] is out of bounds: x has 4 elements (thread 0 of "
       "block 0,0,0)"},
      {"alloc r : f32[4] reg copy r[0] <- x[sub(n, 4)] lanes 2",
       "copy r[0] <- x[sub(n, 4)] lanes 2: x[1] is not aligned for 2 lanes (thread 0 of block "
       "0,0,0)"},
  };
  for (const Failure& row : rows) {
    Buffer y(2);
    EXPECT_EQ(RunSmall(row.body, y).message(), row.message);
  }
}

TEST(TileInterpret, ShufflesNeedEveryLaneTheyRead) {
  Buffer y(64);
  const auto run = [&](const char* condition) {
    return RunText(fmt::format(R"(kernel k(y: ptr<f32>) threads 64 {{
  for b in 0..2 block_y {{
    for t in 0..64 thread_x {{
      if {} {{
        store y[t] = shuffle_xor(cast<f32>(t), 4)
      }}
    }}
  }}
}})",
                               condition),
                   {{.buffer = &y}});
  };
  EXPECT_TRUE(run("lt(t, 32)").ok());
  EXPECT_EQ(y[5], 1);
  EXPECT_EQ(
      run("and(eq(b, 1), ne(t, 37))").message(),
      "store y[t] = shuffle_xor(cast<f32>(t), 4): shuffle_xor reads thread 37, which is not active "
      "(thread 33 of block 0,1,0)");
}

TEST(TileInterpret, ArgumentsAreChecked) {
  EXPECT_EQ(RunText(kSaxpy, {}).message(), "saxpy takes 4 arguments, not 0");
  EXPECT_EQ(RunText(kSaxpy, {Scalar(1.0), Scalar(1.0), Scalar(1.0), Scalar(1.0)}).message(),
            "argument x of saxpy needs a buffer");
}

// A 16x16 times B 16x8 through the fragments of the picture in tile.h, against plain loops.
constexpr const char* kMmaText =
    R"(kernel product(a: ptr<f16> const, b: ptr<f16> const, c: ptr<f32>) threads 32 {
  for tx in 0..32 thread_x {
    let g = div(tx, 4) : i32
    let t = mul(mod(tx, 4), 2) : i32
    alloc x : f16[8] reg
    alloc y : f16[4] reg
    alloc acc : f32[4] reg
    for e in 0..8 unroll {
      let row = add(g, mul(mod(div(e, 2), 2), 8)) : i32
      let column = add(add(t, mod(e, 2)), mul(div(e, 4), 8)) : i32
      store x[e] = load a[add(mul(row, 16), column)]
    }
    for f in 0..4 unroll {
      let depth = add(add(t, mod(f, 2)), mul(div(f, 2), 8)) : i32
      store y[f] = load b[add(mul(depth, 8), g)]
      store acc[f] = 0x1p+0f
    }
    mma acc[0], x[0], y[0]
    for h in 0..4 unroll {
      let m = add(g, mul(div(h, 2), 8)) : i32
      let n = add(t, mod(h, 2)) : i32
      store c[add(mul(m, 8), n)] = load acc[h]
    }
  }
}
)";

TEST(TileInterpret, MmaMultipliesFragments) {
  const Result<Kernel> kernel = Parse(kMmaText);
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  EXPECT_EQ(Print(*kernel), kMmaText);
  std::vector<double> a(16 * 16), b(16 * 8), c(16 * 8, -77);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<double>(i * 7 % 31) - 15;
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<double>(i * 5 % 23) - 11;
  const std::vector<Argument> args = {{.buffer = &a}, {.buffer = &b}, {.buffer = &c}};
  const Status status = Interpret(*kernel, args);
  ASSERT_TRUE(status.ok()) << status.message();
  for (size_t m = 0; m < 16; ++m) {
    for (size_t n = 0; n < 8; ++n) {
      double expected = 1;
      for (size_t k = 0; k < 16; ++k) expected += a[m * 16 + k] * b[k * 8 + n];
      EXPECT_EQ(c[m * 8 + n], expected) << m << "," << n;
    }
  }
}

TEST(TileInterpret, IsFastEnoughForTests) {
  const int blocks = 400;  // about 2.7 million operations of threads
  Buffer x(blocks * 256, 1.0), y(blocks);
  const double begin = testing::ThreadSeconds();
  ASSERT_TRUE(RunText(kBlockSum, {{.buffer = &x}, {.buffer = &y}, Scalar(int64_t{blocks})}).ok());
  const double seconds = testing::ThreadSeconds() - begin;
  EXPECT_EQ(y[blocks - 1], 256);
  EXPECT_LT(seconds, 2.7 * testing::Pace());  // a million a second; ten times that is usual
  RecordProperty("seconds", std::to_string(seconds));
}

}  // namespace
}  // namespace kiln::tile
