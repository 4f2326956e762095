// NVRTC compiles for the architectures that every change must hold on, and says what is wrong in
// words. Where there is no NVRTC, only the sentences are tested.
#include "runtime/cuda/nvrtc.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "ir/base/env.h"
#include "runtime/cuda/nvrtc_search.h"
#include "tests/runtime/cache/temporary_folder.h"

namespace kiln::runtime {
namespace {

KernelSource Saxpy(const std::string& arch) {
  KernelSource source;
  source.entry = "kiln_saxpy";
  source.text = R"(
extern "C" __global__ void kiln_saxpy(float* y, const float* x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
)";
  source.arch = arch;
  return source;
}

class NvrtcTest : public testing::Test {
 protected:
  void SetUp() override {
    auto nvrtc = ProcessNvrtc();
    if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().message();
    nvrtc_ = *nvrtc;
  }
  const Nvrtc* nvrtc_ = nullptr;
};

TEST_F(NvrtcTest, CompilesToCubinsOfTheArchitecture) {
  for (const auto& [arch, number] : {std::pair("sm_80", 80), {"sm_90a", 90}, {"sm_100a", 100}}) {
    auto result = nvrtc_->Compile(Saxpy(arch), NvrtcOutput::kCubin);
    ASSERT_TRUE(result.ok()) << result.status().message();
    ASSERT_GT(result->bytes.size(), sizeof(Elf64_Ehdr));
    EXPECT_EQ(result->bytes.substr(0, 4), "\177ELF");
    EXPECT_NE(result->bytes.find("kiln_saxpy"), std::string::npos);
    // The architecture is in the ELF flags: in the low byte, or since CUDA 13's format in the
    // second one.
    Elf64_Ehdr header;
    std::memcpy(&header, result->bytes.data(), sizeof header);
    int low = header.e_flags & 0xff, second = (header.e_flags >> 8) & 0xff;
    EXPECT_TRUE(low == number || second == number) << arch << " has flags " << header.e_flags;
  }
}

TEST_F(NvrtcTest, MakesPtxForPeople) {
  auto result = nvrtc_->Compile(Saxpy("sm_90a"), NvrtcOutput::kPtx);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_NE(result->bytes.find(".target sm_90a"), std::string::npos);
  EXPECT_NE(result->bytes.find(".visible .entry kiln_saxpy"), std::string::npos);
  EXPECT_EQ(result->bytes.find('\0'), std::string::npos);
}

TEST_F(NvrtcTest, CompilesDeterministically) {
  auto a = nvrtc_->Compile(Saxpy("sm_90a"), NvrtcOutput::kCubin);
  auto b = nvrtc_->Compile(Saxpy("sm_90a"), NvrtcOutput::kCubin);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->bytes, b->bytes);
}

TEST_F(NvrtcTest, AnErrorNamesTheVirtualFileAndLine) {
  KernelSource source = Saxpy("sm_90a");
  source.text = "extern \"C\" __global__ void kiln_saxpy() {\n  undeclared = 1;\n}\n";
  auto result = nvrtc_->Compile(source, NvrtcOutput::kCubin);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kCompilationFailed);
  EXPECT_NE(result.status().message().find("kiln_saxpy.cu(2)"), std::string::npos)
      << result.status().message();
  EXPECT_NE(result.status().message().find("undeclared"), std::string::npos);
}

TEST_F(NvrtcTest, WarningsAreKept) {
  KernelSource source = Saxpy("sm_90a");
  source.text = "extern \"C\" __global__ void kiln_saxpy() { int never_used; }\n";
  auto result = nvrtc_->Compile(source, NvrtcOutput::kCubin);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_NE(result->log.find("never_used"), std::string::npos);
}

TEST_F(NvrtcTest, NoHeaderOfTheMachineIsFound) {
  KernelSource source = Saxpy("sm_90a");
  TemporaryFolder folder;
  std::ofstream(folder.path() + "/stray.h") << "#define STRAY 1\n";
  auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  for (const char* header : {"\"stray.h\"", "<stdio.h>", "<cuda_fp16.h>"}) {
    source.text =
        fmt::format("#include {}\nextern \"C\" __global__ void kiln_saxpy() {{}}\n", header);
    EXPECT_FALSE(nvrtc_->Compile(source, NvrtcOutput::kCubin).ok()) << header;
  }
  std::filesystem::current_path(before);
}

TEST_F(NvrtcTest, AnUnknownArchitectureListsTheKnown) {
  for (const char* arch : {"sm_30", "sm_90z", "compute_90", "", "gfx90a"}) {
    auto result = nvrtc_->Compile(Saxpy(arch), NvrtcOutput::kCubin);
    ASSERT_FALSE(result.ok()) << arch;
    EXPECT_EQ(result.status().code(), Code::kArchMismatch);
    EXPECT_NE(result.status().message().find("sm_90"), std::string::npos)
        << result.status().message();
  }
}

TEST_F(NvrtcTest, ExtraOptionsReachTheCompiler) {
  KernelSource source = Saxpy("sm_90a");
  source.text =
      "#ifndef EXTRA\n#error no EXTRA\n#endif\nextern \"C\" __global__ void kiln_saxpy() {}\n";
  EXPECT_FALSE(nvrtc_->Compile(source, NvrtcOutput::kCubin).ok());
  const std::string options[] = {"-DEXTRA"};
  EXPECT_TRUE(nvrtc_->Compile(source, NvrtcOutput::kCubin, options).ok());
}

// Parsing them is most of what a small kernel costs. NVRTC before 12.4 always declares them.
TEST_F(NvrtcTest, NothingOfTheRuntimeIsDeclared) {
  KernelSource source = Saxpy("sm_90a");
  source.text = "struct cudaDeviceProp {};\n" + source.text;
  auto result = nvrtc_->Compile(source, NvrtcOutput::kCubin);
  const bool can = std::pair(nvrtc_->major(), nvrtc_->minor()) >= std::pair(12, 4);
  EXPECT_EQ(result.ok(), can) << result.status().message();
}

TEST(NvrtcOpenTest, AMissingLibraryIsNamedWithAdvice) {
  auto nvrtc = Nvrtc::Open("/nowhere/libnvrtc.so", 0);
  ASSERT_FALSE(nvrtc.ok());
  for (const char* part : {"/nowhere/libnvrtc.so", "pip: nvidia-cuda-nvrtc", "KILN_NVRTC"}) {
    EXPECT_NE(nvrtc.status().message().find(part), std::string::npos) << nvrtc.status().message();
  }
}

TEST(NvrtcOpenTest, AnotherLibraryIsNamedWithTheFunction) {
  auto nvrtc = Nvrtc::Open("libm.so.6", 0);
  ASSERT_FALSE(nvrtc.ok());
  EXPECT_NE(nvrtc.status().message().find("has no function nvrtc"), std::string::npos);
}

TEST(NvrtcSearchTest, FindsWheelsOfTheUsersEnvironment) {
  TemporaryFolder folder;
  std::string library =
      folder.path() + "/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12";
  std::filesystem::create_directories(std::filesystem::path(library).parent_path());
  std::ofstream(library) << "";
  ::setenv("VIRTUAL_ENV", folder.path().c_str(), 1);
  auto candidates = NvrtcCandidates(0);
  SetPrivilegedForTest(true);
  auto with_raised_privileges = NvrtcCandidates(0);
  SetPrivilegedForTest(false);
  ::unsetenv("VIRTUAL_ENV");
  EXPECT_EQ(std::ranges::find(with_raised_privileges, library), with_raised_privileges.end());
  EXPECT_NE(std::ranges::find(candidates, library), candidates.end());
  EXPECT_EQ(candidates.front(), "libnvrtc.so.13");
  EXPECT_EQ(candidates.back(), "libnvrtc.so");
}

TEST(NvrtcSearchTest, PrefersWhatTheDriverCanLoad) {
  EXPECT_EQ(NvrtcCandidates(12).front(), "libnvrtc.so.12");
  EXPECT_EQ(NvrtcCandidates(13).front(), "libnvrtc.so.13");
  EXPECT_EQ(NvrtcCandidates(14).front(), "libnvrtc.so.13");
}

}  // namespace
}  // namespace kiln::runtime
