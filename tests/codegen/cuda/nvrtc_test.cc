// Everything the emitter can print, compiled by NVRTC for three generations: every scalar operation
// on every type it takes, every pair of types in a cast, and random kernels. Skipped where there is
// no NVRTC.
#include "runtime/cuda/nvrtc.h"

#include <gtest/gtest.h>

#include "codegen/cuda/emit.h"
#include "ir/tile/tools.h"
#include "tests/ir/tile/kernels.h"
#include "tests/ir/tile/random_kernel.h"

namespace kiln::cuda_codegen {
namespace {

using namespace tile;  // NOLINT: made of its nodes

constexpr const char* kArchs[] = {"sm_80", "sm_90a", "sm_100a"};
constexpr ScalarOp kFirstOp = ScalarOp::kAdd, kLastOp = ScalarOp::kFastDiv;
constexpr DType kTypes[] = {DType::kF32,  DType::kF64,  DType::kF16, DType::kBF16,
                            DType::kE4M3, DType::kE5M2, DType::kI8,  DType::kU8,
                            DType::kI32,  DType::kI64,  DType::kBool};

class NvrtcTest : public testing::Test {
 protected:
  void SetUp() override {
    const Result<const runtime::Nvrtc*> nvrtc = runtime::ProcessNvrtc();
    if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().message();
    nvrtc_ = *nvrtc;
  }

  void ExpectCompiles(const Kernel& kernel) {
    const Status status = Verify(kernel);
    ASSERT_TRUE(status.ok()) << status.message() << "\n" << Print(kernel);
    const std::string text = EmitCuda(kernel);
    for (const char* arch : kArchs) {
      const auto result = nvrtc_->Compile(
          {.kind = SourceKind::kCuda, .entry = kernel.name, .text = text, .arch = arch},
          runtime::NvrtcOutput::kCubin);
      ASSERT_TRUE(result.ok()) << arch << ": " << result.status().message() << "\n" << text;
      EXPECT_EQ(result->log.find("error"), std::string::npos) << result->log;
    }
  }

  // The front end and its optimiser move nothing past the wait, and ptxas moves no load but those
  // of what nobody writes: ld.global.nc.
  void ExpectWaitsFirst(const Kernel& kernel) {
    const auto result = nvrtc_->Compile({.kind = SourceKind::kCuda,
                                         .entry = kernel.name,
                                         .text = EmitCuda(kernel, {.waits = true}),
                                         .arch = "sm_90a"},
                                        runtime::NvrtcOutput::kPtx);
    ASSERT_TRUE(result.ok()) << result.status().message();
    const std::string& ptx = result->bytes;
    const size_t wait = ptx.find("griddepcontrol.wait;");
    ASSERT_NE(wait, std::string::npos) << ptx;
    for (const char* access : {"ld.global", "st.global", "atom.global", "red.global", "cp.async"})
      EXPECT_GT(ptx.find(access), wait) << access << "\n" << ptx;
    EXPECT_EQ(ptx.find(".nc"), std::string::npos) << ptx;
    // Nor is it asked of each address where it lies.
    for (const char* access : {" ld.v", " ld.u", " ld.b", " ld.f", " st.v", " st.u", " st.b"})
      EXPECT_EQ(ptx.find(access), std::string::npos) << access << "\n" << ptx;
  }

  const runtime::Nvrtc* nvrtc_ = nullptr;
};

Param Pointer(const std::string& name, DType t) {
  return {.name = name, .type = t, .is_pointer = true};
}

// out[i] = op(a, b, c), for every op that the verifier lets through on the type; the number of them
// in `count`.
Kernel AllOps(DType t, int& count) {
  const DType out = t;
  Kernel kernel{.name = fmt::format("ops_{}", Info(t).text), .threads = 32};
  kernel.params = {Pointer("out", out),
                   {.name = "a", .type = t},
                   {.name = "b", .type = t},
                   {.name = "c", .type = t},
                   {.name = "flag", .type = DType::kBool}};
  count = 0;
  for (int i = static_cast<int>(kFirstOp); i <= static_cast<int>(kLastOp); ++i) {
    const auto op = static_cast<ScalarOp>(i);
    const std::vector<Expr> all = {Var("a", t), Var("b", t), Var("c", t)};
    std::vector<Expr> args(all.begin(), all.begin() + Info(op).arity);
    if (op == ScalarOp::kSelect) args = {Var("flag", DType::kBool), all[0], all[1]};
    Kernel one = kernel;
    one.body = {{Store{"out", Int(i), Cast(out, Op(op, args))}}};
    if (!Verify(one).ok()) continue;
    kernel.body.push_back(one.body[0]);
    ++count;
  }
  return kernel;
}

TEST_F(NvrtcTest, EveryScalarOperationCompilesOnEveryType) {
  const std::pair<DType, int> rows[] = {{DType::kF32, 35},
                                        {DType::kF64, 35},
                                        {DType::kI32, 22},
                                        {DType::kI64, 22},
                                        {DType::kBool, 6}};
  for (const auto& [type, expected] : rows) {
    int count = 0;
    ExpectCompiles(AllOps(type, count));
    EXPECT_EQ(count, expected) << Info(type).text;
  }
}

TEST_F(NvrtcTest, EveryCastCompiles) {
  Kernel kernel{.name = "casts", .threads = 32};
  for (const DType t : kTypes)
    kernel.params.push_back(Pointer(fmt::format("x_{}", Info(t).text), t));
  const size_t pointers = kernel.params.size();
  for (size_t from = 0; from < pointers; ++from) {
    for (size_t to = 0; to < pointers; ++to) {
      const Param &x = kernel.params[from], &y = kernel.params[to];
      kernel.body.push_back({Store{y.name, Int(static_cast<int>(from)),
                                   Cast(y.type, Load(x.name, x.type, Int(99)))}});
    }
  }
  ExpectCompiles(kernel);
}

TEST_F(NvrtcTest, HandWrittenKernelsCompile) {
  for (const std::string_view text : {kEveryConstruct, kBlockSum, kSaxpy})
    ExpectCompiles(*Parse(text));
}

TEST_F(NvrtcTest, RandomKernelsCompile) {
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    ExpectCompiles(RandomKernel(seed));
  }
}

TEST_F(NvrtcTest, NothingIsReadBeforeTheWait) {
  for (const std::string_view text : {kEveryConstruct, kBlockSum, kSaxpy})
    ExpectWaitsFirst(*Parse(text));
  for (uint32_t seed = 1; seed <= 12; ++seed) ExpectWaitsFirst(RandomKernel(seed));
}

}  // namespace
}  // namespace kiln::cuda_codegen
