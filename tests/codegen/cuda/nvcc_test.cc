// A dumped kernel compiles with plain nvcc, whose own headers are then in the same text: no name of
// the prelude may collide with theirs. sm_75 takes the prelude's portable forms. A device file
// compiles by itself, as an editor sees it. Skipped where there is no nvcc.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "codegen/cuda/emit.h"
#include "ir/tile/tools.h"
#include "tests/ir/tile/kernels.h"

namespace kiln::cuda_codegen {
namespace {

constexpr const char* kNvcc = "/usr/local/cuda/bin/nvcc";

class NvccTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kNvcc)) GTEST_SKIP() << "no " << kNvcc;
  }

  void ExpectCompiles(const std::string& source, const char* arch) {
    const std::string object = testing::TempDir() + "/kernel.o";
    const std::string command = fmt::format(
        "{} -c -I. -std=c++20 -Werror all-warnings -diag-suppress 177 -arch={} -o {} {}", kNvcc,
        arch, object, source);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
};

TEST_F(NvccTest, GoldenKernelsCompile) {
  for (const char* name : {"elementwise", "softmax", "transpose"})
    ExpectCompiles(fmt::format("tests/codegen/cuda/golden/{}.cu", name), "sm_90a");
}

TEST_F(NvccTest, DeviceFilesCompile) {
  for (const char* name : {"contract/contract_grouped_sm90", "conv/conv_halo_full_sm90",
                           "attention/attention_grad_runs_sm90", "recurrence/recurrence_sm90"}) {
    const std::string source = testing::TempDir() + "/device_file.cu";
    std::ofstream(source) << fmt::format("#include \"codegen/cuda/device/{}.cuh\"\n", name);
    ExpectCompiles(source, "sm_90a");
  }
}

TEST_F(NvccTest, EveryStorageTypeCompilesWithAndWithoutItsInstructions) {
  tile::Kernel kernel = *tile::Parse(tile::kEveryConstruct);
  for (const DType t : {DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2, DType::kI8,
                        DType::kU8, DType::kI64}) {
    const std::string name = fmt::format("more_{}", Info(t).text);
    kernel.params.push_back({.name = name, .type = t, .is_pointer = true});
    kernel.body.insert(
        kernel.body.begin(),
        tile::Stmt{
            tile::Let{name + "_v", tile::Cast(DType::kF64, tile::Load(name, t, tile::Int(0)))}});
  }
  ASSERT_TRUE(tile::Verify(kernel).ok());
  const std::string source = testing::TempDir() + "/kernel.cu";
  std::ofstream(source) << EmitCuda(kernel);
  ExpectCompiles(source, "sm_75");
  ExpectCompiles(source, "sm_100a");
}

}  // namespace
}  // namespace kiln::cuda_codegen
