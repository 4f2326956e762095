// The CUDA text itself: three kernels against golden files, and how single constructs are spelled.
// To renew a golden file, copy the one that the failure names over it.
#include "codegen/cuda/emit.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "codegen/cuda/device.h"
#include "ir/tile/tools.h"

namespace kiln::cuda_codegen {
namespace {

constexpr const char* kFolder = "tests/codegen/cuda/golden/";

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

class Golden : public testing::TestWithParam<const char*> {};

Result<tile::Kernel> GoldenKernel(const std::string& name) {
  ASSIGN_OR_RETURN(tile::Kernel kernel, tile::Parse(ReadFile(kFolder + name + ".tile")));
  RETURN_IF_ERROR(tile::Verify(kernel));
  return kernel;
}

void ExpectGolden(const std::string& text, const std::string& name) {
  if (text == ReadFile(kFolder + name)) return;
  const char* outputs = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  const std::string path =
      std::string(outputs != nullptr ? outputs : testing::TempDir()) + "/" + name;
  std::ofstream(path) << text;
  ADD_FAILURE() << kFolder << name << " differs from " << path << ":\n" << text;
}

TEST_P(Golden, TextIsUnchanged) {
  const std::string name = GetParam();
  const Result<tile::Kernel> kernel = GoldenKernel(name);
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  ExpectGolden(EmitCuda(*kernel), name + ".cu");
}

TEST(Emit, WhatOverlapsWaitsBeforePointersAreRestricted) {
  const Result<tile::Kernel> kernel = GoldenKernel("softmax");
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  ExpectGolden(EmitCuda(*kernel, {.waits = true, .releases = true}), "softmax_that_overlaps.cu");
}

INSTANTIATE_TEST_SUITE_P(Emit, Golden, testing::Values("elementwise", "softmax", "transpose"));

// The lines inside the kernel's braces, for a body that may use p (f32*), q (f16*), i, j, n (i32),
// l (i64), a, b (f32), d (f64), c, e (bool).
std::string BodyText(const std::string& body) {
  const std::string head =
      "kernel k(p: ptr<f32> align 16, q: ptr<f16> align 16, i: i32, j: i32, n: i32, l: i64, a: "
      "f32, b: f32, d: f64, "
      "c: bool, e: bool) threads 64 {\n";
  const Result<tile::Kernel> kernel = tile::Parse(head + body + "\n}\n");
  if (!kernel.ok()) return kernel.status().message();
  if (const Status status = tile::Verify(*kernel); !status.ok()) return status.message();
  const std::string text = EmitCuda(*kernel);
  const size_t from = text.find(") {\n", text.find("__global__")) + 4;
  return text.substr(from, text.size() - from - 2);
}

struct Spelling {
  const char* body;
  const char* text;
};

constexpr Spelling kSpellings[] = {
    // Parentheses.
    {"let v = add(add(i, j), n) : i32", "  const int v = i + j + n;\n"},
    {"let v = add(i, add(j, n)) : i32", "  const int v = i + (j + n);\n"},
    {"let v = mul(add(i, j), n) : i32", "  const int v = (i + j) * n;\n"},
    {"let v = add(mul(i, j), n) : i32", "  const int v = i * j + n;\n"},
    {"let v = sub(i, sub(j, n)) : i32", "  const int v = i - (j - n);\n"},
    {"let v = mod(mul(i, j), 8) : i32", "  const int v = i * j % 8;\n"},
    {"let v = mod(add(i, j), 8) : i32", "  const int v = (i + j) % 8;\n"},
    {"let v = add(i, mod(j, 8)) : i32", "  const int v = i + j % 8;\n"},
    {"let v = mul(i, div(j, 8)) : i32", "  const int v = i * (j / 8);\n"},
    {"let v = neg(neg(i)) : i32", "  const int v = -(-i);\n"},
    {"let v = neg(add(i, j)) : i32", "  const int v = -(i + j);\n"},
    {"let v = neg(-3) : i32", "  const int v = -(-3);\n"},
    {"let v = add(i, -3) : i32", "  const int v = i - 3;\n"},
    {"let v = fma(add(i, j), j, n) : i32", "  const int v = (i + j) * j + n;\n"},
    {"let v = div(a, recip(b)) : f32", "  const float v = a / one_over(b);\n"},
    {"let v = or(and(c, e), not(c)) : bool", "  const bool v = c && e || !c;\n"},
    {"let v = and(or(c, e), not(lt(i, j))) : bool", "  const bool v = (c || e) && !(i < j);\n"},
    {"let v = eq(lt(i, j), c) : bool", "  const bool v = i < j == c;\n"},
    {"let v = select(c, i, select(e, j, n)) : i32", "  const int v = c ? i : (e ? j : n);\n"},
    {"let v = add(select(c, i, j), n) : i32", "  const int v = (c ? i : j) + n;\n"},
    {"let v = max(add(i, 1), select(c, i, j)) : i32", "  const int v = max(i + 1, c ? i : j);\n"},
    {"let v = floor(add(i, j)) : i32", "  const int v = (i + j);\n"},
    // Literals.
    {"let v = -2147483648 : i32", "  const int v = (-2147483647 - 1);\n"},
    {"let v = -9223372036854775808l : i64",
     "  const long long v = (-9223372036854775807ll - 1);\n"},
    {"let v = add(l, 5l) : i64", "  const long long v = l + 5ll;\n"},
    {"let v = 0x1.99999ap-4f : f32", "  const float v = 0.1f;\n"},
    {"let v = mul(d, 0x1p+1) : f64", "  const double v = d * 2.0;\n"},
    {"let v = 0x1.4484cp+100f : f32", "  const float v = 1.606938e+30f;\n"},
    {"let v = -inff : f32", "  const float v = -__int_as_float(0x7f800000);\n"},
    {"let v = nan : f64", "  const double v = __longlong_as_double(0x7fffffffffffffff);\n"},
    // Integer division.
    {"let v = div(i, 8) : i32", "  const int v = i / 8;\n"},
    {"let v = div(i, n) : i32", "  const int v = div_or_zero(i, n);\n"},
    {"let v = mod(l, 0l) : i64", "  const long long v = mod_or_zero(l, 0ll);\n"},
    // Casts.
    {"let v = cast<f32>(load q[i]) : f32", "  const float v = float(q[i]);\n"},
    {"let v = cast<f64>(load q[i]) : f64", "  const double v = double(float(q[i]));\n"},
    {"let v = cast<i32>(load q[i]) : i32", "  const int v = to_i32(float(q[i]));\n"},
    {"let v = cast<bool>(load q[i]) : bool", "  const bool v = float(q[i]) != 0.f;\n"},
    {"let v = cast<bf16>(load q[i]) : bf16", "  const bf16_t v = bf16_t(float(q[i]));\n"},
    {"let v = cast<f16>(d) : f16", "  const half_t v = half_t(round_odd(d));\n"},
    {"let v = cast<f16>(i) : f16", "  const half_t v = half_t(round_odd(double(i)));\n"},
    {"let v = cast<i64>(add(i, 1)) : i64", "  const long long v = (long long)(i + 1);\n"},
    {"let v = cast<i8>(i) : i8", "  const signed char v = to_i8(i);\n"},
    {"let v = cast<i32>(c) : i32", "  const int v = int(c);\n"},
    {"let v = cast<bool>(add(i, j)) : bool", "  const bool v = i + j != 0;\n"},
    // Statements.
    {"store p[i] = add(load p[i], mul(a, b))", "  p[i] += a * b;\n"},
    {"store p[i] = add(load p[j], a)", "  p[i] = p[j] + a;\n"},
    {"copy p[add(i, 4)] <- p[0] lanes 4", "  copy<16>(p + i + 4, p);\n"},
    {"alloc r : f32[1] reg\nstore r[0] = a\nstore p[0] = load r[0]",
     "  float r = a;\n  p[0] = r;\n"},
    {"alloc r : f32[1] reg\nstore r[i] = a", "  float r[1];\n  r[i] = a;\n"},
    {"alloc r : f16[4] reg\ncopy r[0] <- q[0] lanes 4",
     "  alignas(8) half_t r[4];\n  copy<8>(r, q);\n"},
    {"for k: i64 in 0..l {\n}", "  for (long long k = 0; k < l; ++k) {\n  }\n"},
    {"for k in 0..4 unroll {\n}", "  #pragma unroll\n  for (int k = 0; k < 4; ++k) {\n  }\n"},
    {"if c {\n barrier\n} else {\n if e {\n barrier\n }\n}",
     "  if (c) {\n    __syncthreads();\n  } else if (e) {\n    __syncthreads();\n  }\n"},
    {"for t in 0..32 thread_x {\n store p[t] = a\n}",
     "  if (const int t = threadIdx.x; t < 32) {\n    p[t] = a;\n  }\n"},
};

TEST(Emit, ConstructsReadAsIfWrittenByHand) {
  for (const Spelling& row : kSpellings) EXPECT_EQ(BodyText(row.body), row.text);
}

tile::Kernel WithShared(int64_t floats) {
  tile::Kernel kernel{.name = "k", .threads = 32};
  kernel.body.push_back({tile::Alloc{"s", DType::kF32, tile::Space::kShared, floats}});
  kernel.body.push_back({tile::Alloc{"u", DType::kI8, tile::Space::kShared, 3}});
  return kernel;
}

TEST(Emit, RegistersOfConstantPlacesAreVariables) {
  const std::string two = "alloc t: f32[2] reg\nstore t[0] = a\nstore t[1] = b\n";
  EXPECT_EQ(BodyText(two + "store p[i] = add(load t[0], load t[1])"),
            "  float t_at0, t_at1;\n  t_at0 = a;\n  t_at1 = b;\n  p[i] = t_at0 + t_at1;\n");
  // A place that is computed needs the array, and so does a name that another has.
  EXPECT_EQ(BodyText(two + "store p[i] = load t[mod(i, 2)]"),
            "  float t[2];\n  t[0] = a;\n  t[1] = b;\n  p[i] = t[i % 2];\n");
  EXPECT_EQ(BodyText("let t_at1 = a : f32\n" + two + "store p[i] = t_at1"),
            "  const float t_at1 = a;\n  float t[2];\n  t[0] = a;\n  t[1] = b;\n  p[i] = t_at1;\n");
  const std::string many =
      BodyText("alloc t: f32[40] reg\nstore t[39] = a\nstore p[i] = load t[39]");
  EXPECT_NE(many.find(", t_at11,\n"), std::string::npos) << many;
  for (size_t at = 0; at < many.size(); at = many.find('\n', at) + 1)
    EXPECT_LE(many.find('\n', at) - at, 100u) << many;
}

TEST(Emit, SharedMemoryIsStaticUpTo48Kilobytes) {
  const tile::Kernel small = WithShared(12 * 1024 - 4), large = WithShared(12 * 1024);
  EXPECT_EQ(DynamicSharedBytes(small), 0);
  EXPECT_NE(EmitCuda(small).find("__shared__ __align__(16) float s[12284];"), std::string::npos);
  EXPECT_EQ(DynamicSharedBytes(large), 48 * 1024 + 16);
  EXPECT_NE(EmitCuda(large).find("reinterpret_cast<signed char*>(shared_memory + 49152)"),
            std::string::npos);
}

TEST(Emit, OnlyUsedPartsOfThePreludeAreThere) {
  tile::Kernel kernel{.name = "k", .params = {{.name = "halfway", .type = DType::kF32}}};
  EXPECT_EQ(EmitCuda(kernel),
            "extern \"C\" __global__ void __launch_bounds__(1) k(const float halfway) {\n}\n");
  kernel.params.push_back({.name = "x", .type = DType::kE4M3, .is_pointer = true});
  const std::string text = EmitCuda(kernel);
  EXPECT_NE(text.find("struct e4m3_t"), std::string::npos);
  EXPECT_EQ(text.find("struct half_t"), std::string::npos);
  EXPECT_EQ(text.find("#include"), std::string::npos);
}

// Several names bring one file, and several files need one.
TEST(Emit, APartOfThePreludeIsThereOnce) {
  const std::string all = PreludeFor("fast_div philox contract_sm90 contract_full_sm90 half_t");
  for (const DeviceFile& file : DeviceFiles()) {
    const size_t at = all.find(file.text);
    if (at == std::string::npos) continue;
    EXPECT_EQ(all.find(file.text, at + 1), std::string::npos) << file.name;
  }
  EXPECT_NE(all.find(DeviceText("numbers/fast_div.cuh")), std::string::npos);
}

// An erf of which all reads add a constant of its size, in a kernel that stores 16 bits.
TEST(Emit, ErfOfASumNeedNotKeepItsRelativeError) {
  const auto text = [](const char* type, const char* reads) {
    const Result<tile::Kernel> kernel = tile::Parse(fmt::format(
        "kernel k(x: ptr<f32> const, y: ptr<{0}>) threads 1 {{ let v = erf(load x[0]) : f32 store "
        "y[0] = cast<{0}>({1}) }}",
        type, reads));
    return kernel.ok() ? EmitCuda(*kernel) : kernel.status().message();
  };
  constexpr const char* kText = "const float v = erf_to_add(x[0]);";
  EXPECT_NE(text("bf16", "fma(v, 0x1p-1f, 0x1p-1f)").find(kText), std::string::npos);
  EXPECT_NE(text("f16", "add(v, 0x1p+0f)").find(kText), std::string::npos);
  EXPECT_NE(text("f16", "mul(add(v, 0x1p+0f), fma(v, 0x1p-1f, 0x1p-1f))").find(kText),
            std::string::npos);
  for (const char* reads : {"v", "add(v, 0x1p-1f)", "fma(v, 0x1p+0f, 0x1p-1f)", "sub(0x1p+0f, v)",
                            "mul(v, add(v, 0x1p+0f))", "add(v, v)"})
    EXPECT_NE(text("bf16", reads).find("erf_rational(x[0])"), std::string::npos) << reads;
  EXPECT_NE(text("f32", "add(v, 0x1p+0f)").find("erf_rational(x[0])"), std::string::npos);
}

}  // namespace
}  // namespace kiln::cuda_codegen
