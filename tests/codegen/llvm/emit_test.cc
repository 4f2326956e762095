// Statements and whole kernels against the interpreter, what a CPU kernel may not hold, and what
// the optimiser must make of the loops that engines schedule for it.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <sstream>

#include "tests/codegen/llvm/kernel_runner.h"

namespace kiln::test {
namespace {

std::vector<double> Ramp(int64_t count, double step = 1) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(i % 97 - 48) * step);
  return values;
}

void ExpectAgreement(const std::string& text, const std::vector<KernelArgument>& args,
                     std::array<uint32_t, 3> grid = {1, 1, 1}) {
  const auto outcome = RunBoth(text, args, grid);
  ASSERT_TRUE(outcome.ok()) << outcome.status().message();
  EXPECT_EQ(outcome->compiled, outcome->interpreted) << text;
}

TEST(Emit, PointwiseWithWideCopiesAndATail) {
  const std::string text = R"(// y = max(x, 0), in tiles of 2048
kernel relu(x: ptr<f16> const align 16, y: ptr<f16> align 16, n: i32) threads 256 {
  for bx in 0..div(add(n, 2047), 2048) block_x {
    for tx in 0..256 thread_x {
      let i = add(mul(bx, 2048), mul(tx, 8)) : i32
      if lt(i, n) {
        alloc v : f16[8] reg
        copy v[0] <- x[i] lanes 8
        for j in 0..8 unroll {
          store v[j] = cast<f16>(max(cast<f32>(load v[j]), 0x0p+0f))
        }
        copy y[i] <- v[0] lanes 8
      }
    }
  }
}
)";
  ExpectAgreement(
      text,
      {Buffer{DType::kF16, Ramp(5000)}, Buffer{DType::kF16, Ramp(5000)}, Scalar{DType::kI32, 5000}},
      {3, 1, 1});
}

TEST(Emit, GridOfThreeDimensions) {
  const std::string text = R"(kernel grid3(y: ptr<i32>, nx: i32, ny: i32, nz: i32) threads 1 {
  for bz in 0..nz block_z {
    for by in 0..ny block_y {
      for bx in 0..nx block_x {
        let at = add(mul(add(mul(bz, ny), by), nx), bx) : i32
        store y[at] = add(add(mul(bz, 10000), mul(by, 100)), bx)
      }
    }
  }
}
)";
  ExpectAgreement(text,
                  {Buffer{DType::kI32, std::vector<double>(5 * 3 * 4)}, Scalar{DType::kI32, 5},
                   Scalar{DType::kI32, 3}, Scalar{DType::kI32, 4}},
                  {5, 3, 4});
}

TEST(Emit, GridWithoutX) {
  const std::string text = R"(kernel grid_zy(y: ptr<i32>, ny: i32, nz: i32) threads 1 {
  for bz in 0..nz block_z {
    for by in 0..ny block_y {
      store y[add(mul(bz, ny), by)] = add(mul(bz, 100), by)
    }
  }
}
)";
  ExpectAgreement(text,
                  {Buffer{DType::kI32, std::vector<double>(7 * 6)}, Scalar{DType::kI32, 7},
                   Scalar{DType::kI32, 6}},
                  {1, 7, 6});
}

TEST(Emit, SixtyFourBitLoopsBranchesAndScalars) {
  const std::string text =
      R"(kernel mix(x: ptr<f32> const, y: ptr<f64>, n: i64, scale: f32, shift: f64, flip: bool) threads 1 {
  for i: i64 in 0..n {
    let v = mul(load x[i], scale) : f32
    if and(flip, lt(v, 0x0p+0f)) {
      store y[i] = neg(cast<f64>(v))
    } else {
      if ge(i, 10l) {
        store y[i] = add(cast<f64>(v), shift)
      } else {
        store y[i] = cast<f64>(i)
      }
    }
  }
}
)";
  for (const double flip : {0.0, 1.0}) {
    ExpectAgreement(text, {Buffer{DType::kF32, Ramp(300)}, Buffer{DType::kF64, Ramp(300)},
                           Scalar{DType::kI64, 300}, Scalar{DType::kF32, 0.5},
                           Scalar{DType::kF64, 1.25}, Scalar{DType::kBool, flip}});
  }
}

TEST(Emit, MatmulWithRegisterTileAndSharedBuffer) {
  const std::string text =
      R"(kernel matmul(a: ptr<f32> const, b: ptr<f32> const, c: ptr<f32>, m: i32, n: i32, k: i32) threads 1 {
  for by in 0..m block_y {
    for bx in 0..div(add(n, 15), 16) block_x {
      alloc acc : f32[16] reg
      alloc row : f32[64] shared
      for p in 0..k {
        store row[p] = load a[add(mul(by, k), p)]
      }
      for j in 0..16 vector {
        store acc[j] = 0x0p+0f
      }
      for p2 in 0..k {
        for j2 in 0..16 vector {
          let column = add(mul(bx, 16), j2) : i32
          store acc[j2] = fma(load row[p2], select(lt(column, n), load b[add(mul(p2, n), column)], 0x0p+0f), load acc[j2])
        }
      }
      for j3 in 0..16 {
        if lt(add(mul(bx, 16), j3), n) {
          store c[add(mul(by, n), add(mul(bx, 16), j3))] = load acc[j3]
        }
      }
    }
  }
}
)";
  constexpr int kM = 9, kN = 37, kK = 50;
  ExpectAgreement(text,
                  {Buffer{DType::kF32, Ramp(kM * kK)}, Buffer{DType::kF32, Ramp(kK * kN, 0.25)},
                   Buffer{DType::kF32, std::vector<double>(kM * kN)}, Scalar{DType::kI32, kM},
                   Scalar{DType::kI32, kN}, Scalar{DType::kI32, kK}},
                  {(kN + 15) / 16, kM, 1});
}

// A register array made inside a vector loop is private to each iteration though they share its
// memory.
TEST(Emit, PrivateArraysInsideVectorLoops) {
  const std::string text =
      R"(kernel private_array(x: ptr<f32> const, y: ptr<f32>, taps: i32) threads 1 {
  for i in 0..100 vector {
    alloc window : f32[8] reg
    for t in 0..taps {
      store window[t] = mul(load x[add(i, t)], cast<f32>(t))
    }
    alloc sum : f32[1] reg
    store sum[0] = 0x0p+0f
    for t2 in 0..taps {
      store sum[0] = add(load sum[0], load window[sub(sub(taps, 1), t2)])
    }
    store y[i] = load sum[0]
  }
}
)";
  ExpectAgreement(text, {Buffer{DType::kF32, Ramp(120)}, Buffer{DType::kF32, Ramp(100)},
                         Scalar{DType::kI32, 7}});
}

TEST(Emit, BuffersTooLargeForAStack) {
  const std::string text = R"(kernel large(x: ptr<f32> const, y: ptr<f32>, n: i32) threads 1 {
  for bx in 0..4 block_x {
    alloc first : f32[100000] reg
    alloc second : f64[20000] shared
    for i in 0..n vector {
      store first[i] = add(load x[i], cast<f32>(bx))
      store second[i] = cast<f64>(load x[i])
    }
    for j in 0..n {
      store y[add(mul(bx, n), j)] = add(load first[sub(sub(n, 1), j)], cast<f32>(load second[j]))
    }
  }
}
)";
  ExpectAgreement(
      text,
      {Buffer{DType::kF32, Ramp(1000)}, Buffer{DType::kF32, Ramp(4000)}, Scalar{DType::kI32, 1000}},
      {4, 1, 1});
}

TEST(Emit, InPlaceOperation) {
  const std::string text = R"(kernel twice(x: ptr<f32> const, y: ptr<f32>, n: i32) threads 1 {
  for i in 0..n vector {
    store y[i] = mul(load x[i], 0x1p+1f)
  }
}
)";
  std::vector<float> data(1001);
  std::iota(data.begin(), data.end(), 0.0f);
  const auto kernel = TestDevice().Load(
      {.kind = SourceKind::kTileIr, .entry = "twice", .text = text, .arch = "native"});
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  float* pointer = data.data();
  int32_t n = 1001;
  void* args[] = {&pointer, &pointer, &n};
  ASSERT_TRUE(TestDevice()
                  .Launch(**kernel,
                          {.grid = {1, 1, 1}, .block = {1, 1, 1}, .dynamic_shared_bytes = 0}, args,
                          nullptr)
                  .ok());
  for (int i = 0; i < n; ++i) ASSERT_EQ(data[i], 2.0f * static_cast<float>(i));
}

TEST(Emit, LazyOperandsDoNotLoad) {
  const std::string text =
      R"(kernel lazy(x: ptr<f32> const, y: ptr<f32>, z: ptr<bool>, n: i32) threads 1 {
  for i in 0..64 vector {
    let j = sub(i, 3) : i32
    let inside = and(ge(j, 0), lt(j, n)) : bool
    store y[i] = select(inside, load x[j], 0x1p+0f)
    store z[i] = or(not(inside), gt(load x[j], 0x0p+0f))
  }
}
)";
  // The interpreter rejects an access out of bounds, so that it agrees shows that none is demanded.
  ExpectAgreement(text, {Buffer{DType::kF32, Ramp(20)}, Buffer{DType::kF32, Ramp(64)},
                         Buffer{DType::kBool, Ramp(64)}, Scalar{DType::kI32, 20}});
  // A load far outside would fault.
  const std::string far = R"(kernel lazy_far(x: ptr<f32> const, y: ptr<f32>, n: i32) threads 1 {
  for i in 0..64 {
    let j = mul(i, 100000000) : i32
    store y[i] = select(lt(i, n), load x[j], 0x1p+0f)
  }
}
)";
  const auto result = RunCompiled(
      far, {Buffer{DType::kF32, {7}}, Buffer{DType::kF32, Ramp(64)}, Scalar{DType::kI32, 1}});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ((*result)[1][0], 7);
  EXPECT_EQ((*result)[1][63], 1);
}

TEST(Emit, EmptyLoops) {
  const std::string text = R"(kernel empty(y: ptr<f32>, n: i32) threads 1 {
  for i in 0..n vector {
    store y[i] = 0x1p+0f
  }
}
)";
  for (const double n : {0.0, -5.0})
    ExpectAgreement(text, {Buffer{DType::kF32, Ramp(3)}, Scalar{DType::kI32, n}});
}

TEST(Emit, BarriersAndShufflesAreDeclined) {
  const std::string barrier = R"(kernel waits(y: ptr<f32>) threads 32 {
  alloc s : f32[32] shared
  for tx in 0..32 thread_x {
    store s[tx] = cast<f32>(tx)
    barrier
    store y[tx] = load s[sub(31, tx)]
  }
}
)";
  const std::string shuffle = R"(kernel shuffles(y: ptr<f32>) threads 32 {
  for tx in 0..32 thread_x {
    store y[tx] = shuffle_xor(cast<f32>(tx), 1)
  }
}
)";
  for (const auto& [text, word] :
       {std::pair(barrier, "barrier"), std::pair(shuffle, "shuffle_xor")}) {
    const auto result = RunCompiled(text, {Buffer{DType::kF32, Ramp(32)}});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), Code::kNotSupported);
    EXPECT_NE(result.status().message().find(word), std::string::npos) << result.status().message();
  }
}

// ---- what the optimiser makes of it ----

std::string Optimised(const std::string& text) {
  const auto ir = TestDevice().LlvmText(text);
  EXPECT_TRUE(ir.ok()) << ir.status().message();
  return ir.ok() ? *ir : "";
}

// A line of the IR that holds `operation` and a vector of one of the element types.
bool HasVectorsOf(const std::string& ir, const std::vector<std::string>& operations,
                  const std::vector<std::string>& elements) {
  std::istringstream lines(ir);
  for (std::string line; std::getline(lines, line);) {
    for (const std::string& operation : operations) {
      if (line.find(operation) == std::string::npos) continue;
      for (const std::string& element : elements) {
        for (const int lanes : {4, 8, 16, 32}) {
          if (line.find(fmt::format("<{} x {}>", lanes, element)) != std::string::npos) return true;
        }
      }
    }
  }
  return false;
}

TEST(Vectorisation, AdditionBecomesSimd) {
  const std::string ir =
      Optimised(R"(kernel add(a: ptr<f32> const, b: ptr<f32> const, y: ptr<f32>, n: i32) threads 1 {
  for bx in 0..div(add(n, 4095), 4096) block_x {
    for j in 0..min(4096, sub(n, mul(bx, 4096))) vector {
      let i = add(mul(bx, 4096), j) : i32
      store y[i] = add(load a[i], load b[i])
    }
  }
}
)");
  EXPECT_TRUE(HasVectorsOf(ir, {"fadd"}, {"float"})) << ir;
  EXPECT_EQ(ir.find("vector.memcheck"), std::string::npos)
      << "independent iterations need no alias checks";
}

TEST(Vectorisation, ShortLoopsBecomeOneVector) {
  const std::string ir =
      Optimised(R"(kernel axpy8(x: ptr<f32> const, y: ptr<f32>, a: f32) threads 1 {
  for i in 0..1000 {
    for j in 0..8 vector {
      let at = add(mul(i, 8), j) : i32
      store y[at] = add(mul(load x[at], a), load y[at])
    }
  }
}
)");
  EXPECT_TRUE(HasVectorsOf(ir, {"fadd", "fma"}, {"float"})) << ir;
}

TEST(Vectorisation, StorageTypesConvertInSimd) {
  for (const char* type : {"f16", "bf16", "e4m3", "e5m2", "i8", "u8"}) {
    const std::string ir = Optimised(
        fmt::format(R"(kernel scale_{0}(x: ptr<{0}> const, y: ptr<{0}>, n: i32) threads 1 {{
  for i in 0..n vector {{
    store y[i] = cast<{0}>(mul(cast<f32>(load x[i]), 0x1.8p+0f))
  }}
}}
)",
                    type));
    EXPECT_TRUE(HasVectorsOf(ir, {"fmul"}, {"float", "half"})) << type << "\n" << ir;
  }
}

TEST(Vectorisation, MathUsesVectorFunctionsWhereTheyExist) {
  if (!dlopen("libmvec.so.1", RTLD_NOW)) GTEST_SKIP() << "no libmvec.so.1 here";
  const std::string ir =
      Optimised(R"(kernel exp_all(x: ptr<f32> const, y: ptr<f32>, n: i32) threads 1 {
  for i in 0..n vector {
    store y[i] = exp(load x[i])
  }
}
)");
  const std::vector<std::string> forms = {"@_ZGVbN4v_expf", "@_ZGVdN8v_expf", "@_ZGVeN16v_expf"};
  EXPECT_TRUE(HasVectorsOf(ir, forms, {"float"})) << ir;
}

}  // namespace
}  // namespace kiln::test
