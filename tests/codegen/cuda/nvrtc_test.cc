// Everything the emitter can print, compiled by NVRTC for three generations: every scalar operation
// on every type it takes, every pair of types in a cast, and random kernels. Skipped where there is
// no NVRTC.
#include "runtime/cuda/nvrtc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "codegen/cuda/device.h"
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

// The words of a line of PTX: "mov.u64", "%rd92", "__cudart_i2opi_f".
std::vector<std::string> WordsOf(const std::string& line) {
  constexpr std::string_view kSeparators = " \t,;[]{}+";
  std::vector<std::string> words(1);
  for (const char c : line) {
    if (kSeparators.find(c) == kSeparators.npos)
      words.back() += c;
    else if (!words.back().empty())
      words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

// Loads by ld.global.nc of what is no table of CUDA's mathematical functions: their coefficients
// are of the module, and nobody writes them. An address in a table is the table's, moved or with
// something added.
std::vector<std::string> ConstantLoads(const std::string& ptx) {
  std::vector<std::string> loads;
  std::set<std::string> in_tables;
  std::istringstream lines(ptx);
  for (std::string line; std::getline(lines, line);) {
    if (line == "}") in_tables.clear();  // registers are of a function
    const std::vector<std::string> words = WordsOf(line);
    if (words.size() < 3) continue;
    const auto is_in_table = [&](const std::string& word) {
      return word.starts_with("__cudart_") || in_tables.contains(word);
    };
    if (words[0] == "mov.u64" || words[0] == "add.s64") {
      if (std::any_of(words.begin() + 2, words.end(), is_in_table)) in_tables.insert(words[1]);
    } else if (line.find(".nc") != line.npos) {
      if (std::none_of(words.begin() + 1, words.end(), is_in_table)) loads.push_back(line);
    }
  }
  return loads;
}

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
    for (const std::string& load : ConstantLoads(ptx)) ADD_FAILURE() << load << "\n" << ptx;
    // Nor is it asked of each address where it lies.
    for (const char* access : {" ld.v", " ld.u", " ld.b", " ld.f", " st.v", " st.u", " st.b"})
      EXPECT_EQ(ptx.find(access), std::string::npos) << access << "\n" << ptx;
  }

  const runtime::Nvrtc* nvrtc_ = nullptr;
};

// A device file includes all that it needs.
TEST_F(NvrtcTest, EachDeviceFileCompilesWithWhatItIncludes) {
  const std::span<const DeviceFile> files = DeviceFiles();
  ASSERT_GT(files.size(), 70U);
  for (const DeviceFile& file : files) {
    std::string text;
    for (const int needed : file.needs) text.append(files[needed].text).append("\n");
    const auto result = nvrtc_->Compile(
        {.kind = SourceKind::kCuda, .entry = "file", .text = text, .arch = "sm_90a"},
        runtime::NvrtcOutput::kPtx);
    EXPECT_TRUE(result.ok()) << file.name << ": " << result.status().message();
  }
}

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
                                        {DType::kI32, 23},
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
