// Compiling through the cache: one NVRTC run for many askers, and none for what is on disk.
#include "runtime/cuda/cuda_compiler.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "ir/base/env.h"
#include "runtime/cache/file_io.h"
#include "runtime/cache/pack.h"
#include "runtime/cuda/compiler_memo.h"
#include "runtime/cuda/nvrtc.h"
#include "tests/runtime/cache/temporary_folder.h"

namespace kiln::runtime {
namespace {

using Origin = CachedKernel::Origin;

KernelSource Source(const std::string& entry) {
  KernelSource source;
  source.entry = entry;
  source.text =
      fmt::format("extern \"C\" __global__ void {}(float* x) {{ x[threadIdx.x] = 1; }}\n", entry);
  source.arch = "sm_90a";
  return source;
}

double Milliseconds(const std::function<void()>& work) {
  auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

// Runs `body` in a child with its own environment; its return value is the exit status.
int InAChild(const std::function<int()>& body) {
  pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

// Each test runs in children, since NVRTC, once loaded, stays in the process.
class CudaCompilerTest : public testing::Test {
 protected:
  void SetUp() override {
    bool found = InAChild([] { return ProcessNvrtc().ok() ? 0 : 1; }) == 0;
    if (!found) GTEST_SKIP() << "no NVRTC";
  }
  KernelCache::Options Options() const { return {.root = folder_.path()}; }

  TemporaryFolder folder_;
};

TEST_F(CudaCompilerTest, ThreadsCompileOnce) {
  EXPECT_EQ(InAChild([&] {
              KernelCache cache(Options());
              CudaCompiler compiler(cache);
              std::atomic<int> compiled = 0, failed = 0;
              std::vector<std::jthread> threads;
              for (int i = 0; i < 8; ++i) {
                threads.emplace_back([&] {
                  auto kernel = compiler.Compile(Source("k"));
                  failed += !kernel.ok();
                  compiled += kernel.ok() && kernel->origin == Origin::kCompiled;
                });
              }
              threads.clear();
              return compiled == 1 && failed == 0 ? 0 : 1;
            }),
            0);
}

TEST_F(CudaCompilerTest, ADiskHitLoadsNoNvrtc) {
  auto compile = [&](Origin expected, bool nvrtc_loaded) {
    return InAChild([&] {
      Result<CachedKernel> kernel = Status::Error(Code::kInternal, "not run");
      double ms = Milliseconds([&] {
        KernelCache cache(Options());
        kernel = CudaCompiler(cache).Compile(Source("k"));
      });
      fmt::print("{}: {:.3f} ms\n", expected == Origin::kDisk ? "from disk" : "compiled", ms);
      std::fflush(stdout);
      return kernel.ok() && kernel->origin == expected && ProcessNvrtcIsLoaded() == nvrtc_loaded
                 ? 0
                 : 1;
    });
  };
  EXPECT_EQ(compile(Origin::kCompiled, true), 0);
  EXPECT_EQ(compile(Origin::kDisk, false), 0);
}

TEST_F(CudaCompilerTest, WithoutNvrtcWhatIsOnDiskStillServes) {
  EXPECT_EQ(InAChild([&] {
              KernelCache cache(Options());
              return CudaCompiler(cache).Compile(Source("k")).ok() ? 0 : 1;
            }),
            0);
  EXPECT_EQ(InAChild([&] {
              ::setenv("KILN_NVRTC", "/nowhere/libnvrtc.so", 1);
              ResetEnvForTest();
              KernelCache cache(Options());
              CudaCompiler compiler(cache);
              auto known = compiler.Compile(Source("k"));
              auto unknown = compiler.Compile(Source("other"));
              if (!known.ok() || known->origin != Origin::kDisk) return 1;
              return !unknown.ok() &&
                             unknown.status().message().find("/nowhere") != std::string::npos
                         ? 0
                         : 2;
            }),
            0);
}

// A pack with the kernels of these names, as NVRTC makes them here. Runs in a child, which has
// NVRTC then.
int WritePack(const std::string& path, const std::vector<std::string>& names, int major) {
  KernelCache cache({.root = ""});
  CudaCompiler compiler(cache);
  std::vector<PackItem> items;
  for (const std::string& name : names) {
    const auto cubin = compiler.Compile(Source(name));
    if (!cubin.ok()) return 1;
    auto item = MakePackItem(CubinRequest(Source(name), "nvrtc of another machine"),
                             *cubin->payload, static_cast<uint32_t>(major));
    if (!item.ok()) return 2;
    items.push_back(*std::move(item));
  }
  const auto bytes = MakePack(std::move(items));
  return bytes.ok() && WriteFile(path, *bytes).ok() ? 0 : 3;
}

TEST_F(CudaCompilerTest, WithoutNvrtcWhatIsInAPackServes) {
  const std::string pack = folder_.path() + "/some.pack";
  ASSERT_EQ(InAChild([&] { return WritePack(pack, {"k", "l"}, 13); }), 0);
  EXPECT_EQ(InAChild([&] {
              ::setenv("KILN_NVRTC", "/nowhere/libnvrtc.so", 1);
              ::setenv("KILN_PACKS", pack.c_str(), 1);
              ::setenv("KILN_CACHE_DIR", (folder_.path() + "/cache").c_str(), 1);
              ResetEnvForTest();
              CudaCompiler& compiler = ProcessCudaCompiler();
              for (const char* name : {"k", "l"}) {
                const auto first = compiler.Compile(Source(name));
                const auto again = compiler.Find(Source(name));
                if (!first.ok() || first->origin != Origin::kPack) return 1;
                if (!again || again->origin != Origin::kMemory) return 2;
                if (!first->payload->starts_with("\x7f"
                                                 "ELF"))
                  return 3;
              }
              if (ProcessNvrtcIsLoaded() || !ProcessKernelCache().List().empty()) return 4;
              KernelSource other_arch = Source("k");
              other_arch.arch = "sm_80";
              for (const KernelSource& missing : {Source("m"), other_arch}) {
                const auto none = compiler.Compile(missing);
                if (none.ok() || none.status().message().find("/nowhere") == std::string::npos)
                  return 5;
              }
              return 0;
            }),
            0);
}

TEST_F(CudaCompilerTest, APackIsAskedBeforeNvrtcIsLoaded) {
  const std::string pack = folder_.path() + "/some.pack";
  ASSERT_EQ(InAChild([&] { return WritePack(pack, {"k"}, 13); }), 0);
  // The directory knows no compiler yet, then one that made another kernel.
  for (const bool compiles_another : {false, true}) {
    EXPECT_EQ(InAChild([&] {
                KernelCache::Options options = Options();
                options.packs = {pack};
                KernelCache cache(options);
                const auto kernel = CudaCompiler(cache).Compile(Source("k"));
                if (!kernel.ok() || kernel->origin != Origin::kPack) return 1;
                if (ProcessNvrtcIsLoaded()) return 2;
                if (!compiles_another) return 0;
                const auto other = CudaCompiler(cache).Compile(Source("other"));
                return other.ok() && other->origin == Origin::kCompiled ? 0 : 3;
              }),
              0);
  }
  // The kernel on disk comes first.
  EXPECT_EQ(InAChild([&] {
              KernelCache cache({.root = folder_.path()});
              return CudaCompiler(cache).Compile(Source("k")).ok() ? 0 : 1;
            }),
            0);
  EXPECT_EQ(InAChild([&] {
              KernelCache::Options options = Options();
              options.packs = {pack};
              KernelCache cache(options);
              const auto kernel = CudaCompiler(cache).Compile(Source("k"));
              return kernel.ok() && kernel->origin == Origin::kDisk ? 0 : 1;
            }),
            0);
}

TEST_F(CudaCompilerTest, TheKeyHoldsArchAndText) {
  EXPECT_EQ(InAChild([&] {
              KernelCache cache(Options());
              CudaCompiler compiler(cache);
              KernelSource changed = Source("k");
              KernelSource other_arch = Source("k");
              changed.text += "// another text\n";
              other_arch.arch = "sm_80";
              for (const KernelSource& source : {Source("k"), changed, other_arch}) {
                auto kernel = compiler.Compile(source);
                if (!kernel.ok() || kernel->origin != Origin::kCompiled) return 1;
              }
              return cache.List().size() == 3 ? 0 : 2;
            }),
            0);
}

TEST(CompilerTest, TileIrIsRefusedInWords) {
  KernelCache cache({.root = ""});
  KernelSource source = Source("k");
  source.kind = SourceKind::kTileIr;
  auto kernel = CudaCompiler(cache).Compile(source);
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.status().message(), "kernel k is tile IR, which only the CPU device compiles");
}

TEST(CompilerMemoTest, BelievesWhatIsUnchanged) {
  TemporaryFolder folder;
  std::string library = folder.path() + "/libnvrtc.so.13";
  std::ofstream(library) << "one";
  CompilerChoice choice = {.requested = "", .driver_major = 13};
  EXPECT_EQ(BelievedCompiler(folder.path(), choice), "");
  std::string identity = CompilerIdentity(13, 0, library);
  EXPECT_EQ(identity, "nvrtc 13.0 (3 bytes)");
  RememberCompiler(folder.path(), choice, identity, library);
  RememberCompiler(folder.path(), choice, identity, library);
  EXPECT_EQ(BelievedCompiler(folder.path(), choice), identity);
  EXPECT_EQ(BelievedCompiler(folder.path(), {.requested = library, .driver_major = 13}), "");
  EXPECT_EQ(BelievedCompiler(folder.path(), {.requested = "", .driver_major = 12}), "");

  std::ofstream(library) << "three";  // an update in place
  EXPECT_EQ(BelievedCompiler(folder.path(), choice), "");
  std::string updated = CompilerIdentity(13, 1, library);
  RememberCompiler(folder.path(), choice, updated, library);
  EXPECT_EQ(BelievedCompiler(folder.path(), choice), updated);
  EXPECT_EQ(KnownCompilers(folder.path()), (std::vector<std::string>{updated, identity}));
}

TEST(CompilerMemoTest, GarbageIsIgnored) {
  TemporaryFolder folder;
  std::ofstream(folder.path() + "/compilers.txt") << "\n\t\nnot a record\n\t\t\t\t\t\t\t\n";
  EXPECT_EQ(BelievedCompiler(folder.path(), {}), "");
  EXPECT_TRUE(KnownCompilers(folder.path()).empty());
}

}  // namespace
}  // namespace kiln::runtime
