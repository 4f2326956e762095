// Executables over a device that records: the bytes of every kind of argument, by-value
// conversions, refusals in words, and what a call costs on the host.
#include "runtime/executable.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "ir/peers.h"
#include "runtime/peers.h"
#include "tests/runtime/fake_device.h"

namespace kiln::runtime {
namespace {

constexpr auto kMaxI32 = std::numeric_limits<int32_t>::max();
constexpr auto kMinI32 = std::numeric_limits<int32_t>::min();

ProgramTensor Tensor(int64_t uid, DType type = DType::kF32, bool by_value = false) {
  ProgramTensor tensor;
  tensor.uid = uid;
  tensor.dtype = static_cast<uint8_t>(type);
  tensor.by_value = by_value;
  return tensor;
}

KernelSource Kernel(const std::string& entry, int arg_count) {
  KernelSource source;
  source.entry = entry;
  source.text = fmt::format("{}", arg_count);
  return source;
}

LaunchArg Pointer(int tensor, int64_t offset = 0) {
  LaunchArg arg;
  arg.kind = LaunchArg::Kind::kPointer;
  arg.buffer = {.kind = BufferRef::Kind::kTensor, .index = tensor, .byte_offset = offset};
  return arg;
}

LaunchArg WorkspacePart(int64_t offset) {
  LaunchArg arg = Pointer(0, offset);
  arg.buffer.kind = BufferRef::Kind::kWorkspace;
  return arg;
}

LaunchArg Scalar(uint64_t bits, uint8_t size) {
  LaunchArg arg;
  arg.bits = bits;
  arg.size = size;
  return arg;
}

LaunchArg ByValue(int tensor, DType type) {
  LaunchArg arg = Pointer(tensor);
  arg.kind = LaunchArg::Kind::kByValue;
  arg.value_type = static_cast<uint8_t>(type);
  return arg;
}

Launch MakeLaunch(int kernel, std::vector<LaunchArg> args) {
  Launch launch;
  launch.kernel = kernel;
  launch.grid = {4, 3, 2};
  launch.block = {128, 2, 1};
  launch.dynamic_shared_bytes = 64;
  launch.args = std::move(args);
  return launch;
}

// y = f(x, a, workspace), then z = g(y): two kernels with every kind of argument.
Program TwoKernels() {
  Program program;
  program.tensors = {Tensor(10), Tensor(20), Tensor(30, DType::kF32, /*by_value=*/true)};
  program.kernels = {Kernel("f", 6), Kernel("g", 3)};
  program.launches = {
      MakeLaunch(0, {Pointer(0), Pointer(1, 16), ByValue(2, DType::kF32), WorkspacePart(256),
                     Scalar(7, 4), Scalar(0x123456789abcdef0, 8)}),
      MakeLaunch(1, {WorkspacePart(0), Pointer(1), Scalar(1, 1)})};
  program.workspace_bytes = 512;
  return program;
}

void* At(uintptr_t address) { return reinterpret_cast<void*>(address); }

class ExecutableTest : public testing::Test {
 protected:
  std::string CreateError(Program program) {
    auto executable = Executable::Create(device_, std::move(program));
    return executable.ok() ? "" : executable.status().message();
  }
  FakeDevice device_;
  float a_ = 2.5f;
};

TEST_F(ExecutableTest, MarshalsEveryKindOfArgument) {
  auto executable = Executable::Create(device_, TwoKernels());
  ASSERT_TRUE(executable.ok()) << executable.status().message();
  EXPECT_EQ(device_.loads, 2);
  void* pointers[] = {At(0x1000), At(0x2000), &a_};
  Status status = (*executable)->Execute(pointers, At(0x8000), At(0x55));
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(device_.launches.size(), 2u);
  const RecordedLaunch& f = device_.launches[0];
  EXPECT_EQ(f.entry, "f");
  EXPECT_EQ(f.stream, At(0x55));
  EXPECT_EQ(f.shape.grid, (std::array<uint32_t, 3>{4, 3, 2}));
  EXPECT_EQ(f.shape.block, (std::array<uint32_t, 3>{128, 2, 1}));
  EXPECT_EQ(f.shape.dynamic_shared_bytes, 64u);
  EXPECT_EQ(f.args,
            (std::vector<uint64_t>{0x1000, 0x2010, 0x40200000, 0x8100, 7, 0x123456789abcdef0}));
  EXPECT_EQ(device_.launches[1].entry, "g");
  EXPECT_EQ(device_.launches[1].args, (std::vector<uint64_t>{0x8000, 0x2000, 1}));
}

TEST_F(ExecutableTest, ReadsHostScalarsAtEachCall) {
  auto executable = *Executable::Create(device_, TwoKernels());
  void* pointers[] = {At(0x1000), At(0x2000), &a_};
  ASSERT_TRUE(executable->Execute(pointers, At(0x8000), nullptr).ok());
  a_ = -1.0f;
  ASSERT_TRUE(executable->Execute(pointers, At(0x8000), nullptr).ok());
  EXPECT_EQ(device_.launches[0].args[2], 0x40200000u);
  EXPECT_EQ(device_.launches[2].args[2], 0xbf800000u);
}

// All pairs of storage type and argument type, against the conversions of ir/dtype.h.
TEST_F(ExecutableTest, ConvertsEveryDataType) {
  const double values[] = {
      0,    1,   -1,  2,    3.5,  -2.5, 100,
      -128, 448, 1e9, -1e9, 3e38, 0.1,  std::numeric_limits<double>::infinity()};
  for (int from = 0; from <= static_cast<int>(DType::kBool); ++from) {
    for (DType to : {DType::kF32, DType::kF64, DType::kI32, DType::kI64}) {
      for (double value : values) {
        uint64_t stored = 0, expected = 0;
        StoreValue(static_cast<DType>(from), value, &stored);
        StoreValue(to, LoadValue(static_cast<DType>(from), &stored), &expected);
        EXPECT_EQ(ConvertScalar(static_cast<DType>(from), &stored, to), expected)
            << value << " as " << Info(static_cast<DType>(from)).text << " to " << Info(to).text;
      }
    }
  }
}

TEST_F(ExecutableTest, ConvertsAsWrittenOutByHand) {
  auto bits = [](auto value) {
    uint64_t b = 0;
    std::memcpy(&b, &value, sizeof value);
    return b;
  };
  uint16_t half = 0x3e00, bf16 = 0xbfc0;  // 1.5 and -1.5
  uint8_t e4m3 = 0x3c, boolean = 2;       // 1.5 and true
  EXPECT_EQ(ConvertScalar(DType::kF16, &half, DType::kF32), bits(1.5f));
  EXPECT_EQ(ConvertScalar(DType::kBF16, &bf16, DType::kF64), bits(-1.5));
  EXPECT_EQ(ConvertScalar(DType::kE4M3, &e4m3, DType::kI32), bits(int32_t{2}));
  EXPECT_EQ(ConvertScalar(DType::kBool, &boolean, DType::kI64), bits(int64_t{1}));
  int64_t large = (int64_t{1} << 62) + 1;  // exact in no floating type
  EXPECT_EQ(ConvertScalar(DType::kI64, &large, DType::kI64), bits(large));
  EXPECT_EQ(ConvertScalar(DType::kI64, &large, DType::kI32), bits(kMaxI32));
  large = (int64_t{1} << 24) + 1 + (int64_t{1} << 54);  // through double it would round twice
  EXPECT_EQ(ConvertScalar(DType::kI64, &large, DType::kF32), bits(static_cast<float>(large)));
  large = -large;
  EXPECT_EQ(ConvertScalar(DType::kI64, &large, DType::kI32), bits(kMinI32));
  float nan = std::nanf("");
  EXPECT_EQ(ConvertScalar(DType::kF32, &nan, DType::kI32), 0u);
  int8_t small = -3;
  EXPECT_EQ(ConvertScalar(DType::kI8, &small, DType::kI64), bits(int64_t{-3}));
  EXPECT_EQ(ConvertScalar(DType::kU8, &small, DType::kI64), bits(int64_t{253}));
}

TEST_F(ExecutableTest, ANullPointerIsNamedByUidAndNothingRuns) {
  auto executable = *Executable::Create(device_, TwoKernels());
  const char* sentences[] = {"the pointer of the tensor with uid 10 is null",
                             "the pointer of the tensor with uid 20 is null",
                             "the pointer of the tensor with uid 30 is null"};
  for (int missing = 0; missing < 3; ++missing) {
    void* pointers[] = {At(0x1000), At(0x2000), &a_};
    pointers[missing] = nullptr;
    Status status = executable->Execute(pointers, At(0x8000), nullptr);
    EXPECT_EQ(status.code(), Code::kNullPointer);
    EXPECT_EQ(status.message(), sentences[missing]);
  }
  EXPECT_TRUE(device_.launches.empty());
}

TEST_F(ExecutableTest, AWorkspaceThatIsNullIsRefused) {
  auto executable = *Executable::Create(device_, TwoKernels());
  void* pointers[] = {At(0x1000), At(0x2000), &a_};
  Status status = executable->Execute(pointers, nullptr, nullptr);
  EXPECT_EQ(status.code(), Code::kNullPointer);
  EXPECT_EQ(status.message(), "the workspace is null; the plan needs 512 bytes");
  EXPECT_TRUE(device_.launches.empty());
}

// cudnn-frontend's attention gives what lies behind numbers of its own.
TEST_F(ExecutableTest, AWorkspaceBeginsAtItsFirstAlignedAddress) {
  auto executable = *Executable::Create(device_, TwoKernels());
  void* pointers[] = {At(0x1000), At(0x2000), &a_};
  for (const uintptr_t given : {0x8001, 0x8008, 0x800f, 0x8010}) {
    device_.launches.clear();
    ASSERT_TRUE(executable->Execute(pointers, At(given), nullptr).ok());
    ASSERT_EQ(device_.launches.size(), 2u);
    EXPECT_EQ(device_.launches[1].args[0], 0x8010u) << given;
  }
}

TEST_F(ExecutableTest, AWrongNumberOfPointersIsRefused) {
  auto executable = *Executable::Create(device_, TwoKernels());
  void* pointers[] = {At(0x1000), At(0x2000)};
  Status status = executable->Execute(pointers, At(0x8000), nullptr);
  EXPECT_EQ(status.code(), Code::kInvalidValue);
  EXPECT_EQ(status.message(), "2 pointers for the 3 tensors of the plan");
}

TEST_F(ExecutableTest, AnEmptyTensorMayBeNull) {
  Program program = TwoKernels();
  program.tensors[0].is_empty = true;
  auto executable = *Executable::Create(device_, program);
  void* pointers[] = {nullptr, At(0x2000), &a_};
  EXPECT_TRUE(executable->Execute(pointers, At(0x8000), nullptr).ok());
  EXPECT_EQ(device_.launches[0].args[0], 0u);
}

TEST_F(ExecutableTest, AnEmptyGridIsSkippedAndNeedsNoPointers) {
  for (int axis = 0; axis < 3; ++axis) {
    device_.launches.clear();
    Program program = TwoKernels();
    program.launches[0].grid[static_cast<size_t>(axis)] = 0;
    auto executable = *Executable::Create(device_, program);
    void* pointers[] = {nullptr, At(0x2000), nullptr};  // what only the first launch uses is null
    Status status = executable->Execute(pointers, At(0x8000), nullptr);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(device_.launches.size(), 1u);
    EXPECT_EQ(device_.launches[0].entry, "g");
  }
}

TEST_F(ExecutableTest, AFailedLaunchEndsTheCall) {
  auto executable = *Executable::Create(device_, TwoKernels());
  device_.fail_at = 1;
  void* pointers[] = {At(0x1000), At(0x2000), &a_};
  Status status = executable->Execute(pointers, At(0x8000), nullptr);
  EXPECT_EQ(status.message(), "as asked");
  EXPECT_EQ(device_.launches.size(), 1u);
}

TEST_F(ExecutableTest, LaunchesOfMoreArgumentsThanTheStackHoldsWork) {
  constexpr int kCount = 300;
  Program program;
  program.tensors = {Tensor(1)};
  program.kernels = {Kernel("wide", kCount)};
  std::vector<LaunchArg> args;
  for (int i = 0; i < kCount; ++i) args.push_back(Pointer(0, i));
  program.launches = {MakeLaunch(0, args)};
  auto executable = *Executable::Create(device_, program);
  void* pointers[] = {At(0x1000)};
  ASSERT_TRUE(executable->Execute(pointers, nullptr, nullptr).ok());
  for (uint64_t i = 0; i < kCount; ++i) EXPECT_EQ(device_.launches[0].args[i], 0x1000 + i);
}

TEST_F(ExecutableTest, RefusesBrokenProgramsInWords) {
  auto broken = [&](auto&& change) {
    Program program = TwoKernels();
    change(program);
    return CreateError(std::move(program));
  };
  EXPECT_EQ(broken([](Program& p) { p.launches[1].kernel = 2; }),
            "program: launch 1: kernel 2 does not exist; the program has 2");
  EXPECT_EQ(broken([](Program& p) { p.launches[0].kernel = -1; }),
            "program: launch 0: kernel -1 does not exist; the program has 2");
  EXPECT_EQ(broken([](Program& p) { p.launches[0].args[1].buffer.index = 3; }),
            "program: launch 0: argument 1: tensor 3 does not exist; the program has 3");
  EXPECT_EQ(broken([](Program& p) { p.launches[0].args[3].buffer.byte_offset = 512; }),
            "program: launch 0: argument 3: offset 512 is outside the workspace of 512 bytes");
  EXPECT_EQ(broken([](Program& p) { p.launches[0].args[4].size = 3; }),
            "program: launch 0: argument 4: a scalar of 3 bytes; 1, 4 and 8 are possible");
  EXPECT_EQ(
      broken([](Program& p) { p.launches[0].args[0] = Pointer(2); }),
      "program: launch 0: argument 0: tensor 30 is a host scalar, but the kernel takes a pointer");
  EXPECT_EQ(broken([](Program& p) {
              p.launches[0].args[2].value_type = static_cast<uint8_t>(DType::kF16);
            }),
            "program: launch 0: argument 2: tensor 30: a number of type 2 cannot be passed; f32, "
            "f64, i32 and "
            "i64 can");
  EXPECT_EQ(broken([](Program& p) { p.tensors[1].dtype = 99; }),
            "program: tensor 20 has the unknown data type 99");
  EXPECT_EQ(broken([](Program& p) { p.launches[0].block = {1024, 2, 1}; }),
            "program: launch 0: a block of 1024x2x1 threads; sm_90a allows 1024");
  EXPECT_EQ(broken([](Program& p) { p.launches[0].block = {0, 1, 1}; }),
            "program: launch 0: a block of 0x1x1 threads");
  EXPECT_EQ(broken([](Program& p) { p.launches[0].grid = {1, 65536, 1}; }),
            "program: launch 0: a grid of 1x65536x1 blocks; CUDA allows 2147483647x65535x65535");
  EXPECT_EQ(broken([](Program& p) { p.launches[0].dynamic_shared_bytes = 300000; }),
            "program: launch 0: 300000 bytes of shared memory; sm_90a has 232448 for a block");
  EXPECT_EQ(broken([](Program& p) { p.kernels[1].text.clear(); }), "g: no text");
  EXPECT_EQ(broken([](Program&) {}), "");
}

TEST_F(ExecutableTest, ThreadsExecuteOneExecutable) {
  device_.recording = false;
  auto executable = *Executable::Create(device_, TwoKernels());
  std::atomic<int> failures = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      float a = 1.0f;
      void* pointers[] = {At(0x1000), At(0x2000), &a};
      for (int i = 0; i < 1000; ++i)
        failures += !executable->Execute(pointers, At(0x8000), nullptr).ok();
    });
  }
  threads.clear();
  EXPECT_EQ(failures, 0);
}

#ifndef __SANITIZE_THREAD__  // which makes each access to memory a call
// A measurement, with a bound loose enough for a busy machine and for ASan.
TEST_F(ExecutableTest, HostTimeOfACall) {
  device_.recording = false;
  auto executable = *Executable::Create(device_, TwoKernels());
  void* pointers[] = {At(0x1000), At(0x2000), &a_};
  constexpr int kCalls = 1000000;
  double best_ns = std::numeric_limits<double>::infinity();
  for (int block = 0; block < 10; ++block) {
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls / 10; ++i) {
      if (!executable->Execute(pointers, At(0x8000), nullptr).ok()) FAIL();
    }
    double ns =
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
    best_ns = std::min(best_ns, ns / (kCalls / 10));
  }
  fmt::print("Execute of two kernels with nine arguments: {:.0f} ns of host time\n", best_ns);
#ifdef __OPTIMIZE__
  EXPECT_LT(best_ns, 1000);
#endif
}
#endif  // __SANITIZE_THREAD__

TEST_F(ExecutableTest, AGraphGetsTheLaunchesAsNodesAndOtherPointersInTheirPlace) {
  auto executable = Executable::Create(device_, TwoKernels());
  ASSERT_TRUE(executable.ok()) << executable.status().message();
  void* pointers[] = {At(0x1000), At(0x2000), &a_};
  FakeGraph graph;
  ASSERT_TRUE((*executable)->Populate(pointers, At(0x8000), &graph).ok());
  EXPECT_TRUE(device_.launches.empty()) << "populating runs nothing";
  ASSERT_EQ(graph.size(), 2u);
  ASSERT_TRUE((*executable)->Execute(pointers, At(0x8000), nullptr).ok());
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(graph[i].entry, device_.launches[i].entry);
    EXPECT_EQ(graph[i].args, device_.launches[i].args);
    EXPECT_EQ(graph[i].shape.grid, device_.launches[i].shape.grid);
  }
  EXPECT_EQ((*executable)->Populate(pointers, At(0x8000), &graph).code(), Code::kCudaGraphMismatch)
      << "it is not empty any more";

  const RecordedLaunch* first = &graph[0];
  a_ = -3.0f;
  void* others[] = {At(0x5000), At(0x6000), &a_};
  ASSERT_TRUE((*executable)->Update(others, At(0x9000), &graph).ok());
  ASSERT_TRUE((*executable)->Execute(others, At(0x9000), nullptr).ok());
  EXPECT_EQ(&graph[0], first);
  ASSERT_EQ(graph.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(graph[i].args, device_.launches[i + 2].args);
  EXPECT_NE(device_.launches[2].args, device_.launches[0].args);
}

TEST_F(ExecutableTest, AGraphOfSomethingElseIsNotTouched) {
  auto executable = Executable::Create(device_, TwoKernels());
  ASSERT_TRUE(executable.ok()) << executable.status().message();
  void* pointers[] = {At(0x1000), At(0x2000), &a_};
  FakeGraph graph;
  EXPECT_EQ((*executable)->Update(pointers, At(0x8000), &graph).code(), Code::kCudaGraphMismatch);
  EXPECT_EQ((*executable)->Populate(pointers, nullptr, &graph).code(), Code::kNullPointer);
  EXPECT_TRUE(graph.empty());
  ASSERT_TRUE((*executable)->Populate(pointers, At(0x8000), &graph).ok());
  graph[1].entry = "another";
  const std::vector<uint64_t> before = graph[0].args;
  void* others[] = {At(0x5000), At(0x6000), &a_};
  const Status status = (*executable)->Update(others, At(0x8000), &graph);
  EXPECT_EQ(status.code(), Code::kCudaGraphMismatch);
  EXPECT_EQ(status.message(), "node 1 of the CUDA graph is not the plan's kernel g");
  EXPECT_EQ(graph[0].args, before);
}

LaunchArg OfPeers(LaunchArg::Kind kind, uint64_t bits = 0) {
  LaunchArg arg;
  arg.kind = kind;
  arg.bits = bits;
  return arg;
}

// Three buffers of which the second is this device's, in two launches that share them.
TEST_F(ExecutableTest, TheRankIsThatOfTheBufferOnThisDevice) {
  using Kind = LaunchArg::Kind;
  Program program;
  program.tensors = {Tensor(1), Tensor(2), Tensor(3)};
  program.kernels = {Kernel("reduce", 6)};
  const std::vector<LaunchArg> args = {
      OfPeers(Kind::kFault),    Pointer(0), Pointer(1), Pointer(2), OfPeers(Kind::kPeerRank, 3),
      OfPeers(Kind::kPeerLimit)};
  program.launches = {{.args = args}, {.args = args}};
  const auto executable = Executable::Create(device_, program);
  ASSERT_TRUE(executable.ok()) << executable.status().message();
  std::array<char, 3> memory;
  const std::vector<void*> pointers = {&memory[0], &memory[1], &memory[2]};
  device_.own = &memory[1];
  const Status status = (*executable)->Execute(pointers, nullptr, nullptr);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(device_.launches.size(), 2u);
  for (const RecordedLaunch& launch : device_.launches) {
    EXPECT_EQ(launch.args[0], reinterpret_cast<uint64_t>(&device_.fault));
    EXPECT_EQ(launch.args[2], reinterpret_cast<uint64_t>(&memory[1]));
    EXPECT_EQ(launch.args[4], 1u);
    EXPECT_EQ(launch.args[5], 30'000'000'000u) << "30 s unless KILN_PEER_TIMEOUT_MS says otherwise";
  }
  device_.own = nullptr;
  EXPECT_EQ((*executable)->Execute(pointers, nullptr, nullptr).message(),
            "none of the 3 peers' buffers lies on fake: one is this rank's own");
  device_.own = &memory[0];
  const std::vector<void*> same = {&memory[0], &memory[1], &memory[0]};
  EXPECT_EQ((*executable)->Execute(same, nullptr, nullptr).message(),
            "the peers' buffers 0 and 2 both lie on fake: which one is this rank's is not known");
  EXPECT_EQ(device_.launches.size(), 2u) << "what is refused launches nothing";
}

TEST_F(ExecutableTest, ARankWithoutItsBuffersIsRefused) {
  using Kind = LaunchArg::Kind;
  const auto refusal = [&](std::vector<LaunchArg> args) {
    Program program;
    program.tensors = {Tensor(1), Tensor(2)};
    program.workspace_bytes = 64;
    program.kernels = {Kernel("reduce", static_cast<int>(args.size()))};
    program.launches = {{.args = std::move(args)}};
    return Executable::Create(device_, program).status().message();
  };
  EXPECT_EQ(refusal({Pointer(0), OfPeers(Kind::kPeerRank, 2)}),
            "program: launch 0: argument 1: the rank among 2 buffers, behind 1 arguments");
  EXPECT_EQ(refusal({Pointer(0), OfPeers(Kind::kPeerRank, 0)}),
            "program: launch 0: argument 1: the rank among 0 buffers, behind 1 arguments");
  EXPECT_EQ(refusal({Pointer(0), WorkspacePart(0), OfPeers(Kind::kPeerRank, 2)}),
            "program: launch 0: argument 2: argument 1 is no buffer of a peer");
}

TEST(Peers, FaultsAreSentences) {
  EXPECT_TRUE(StatusOfFault(0).ok());
  EXPECT_EQ(StatusOfFault(kFirstRankFault + 5).code(), Code::kExecutionFailed);
  EXPECT_NE(StatusOfFault(kFirstRankFault + 5).message().find("the sums of rank 5 did not come"),
            std::string::npos);
  EXPECT_NE(StatusOfFault(kSignalFault).message().find("a signal's flag did not get its value"),
            std::string::npos);
}

TEST_F(ExecutableTest, ADeviceWithoutGraphsSaysSo) {
  class Without final : public FakeDevice {
   public:
    bool has_graphs() const override { return false; }
    Result<std::vector<NativeNode>> NodesOf(NativeGraph) override { return NoGraphs(); }
  } device;
  auto executable = Executable::Create(device, TwoKernels());
  ASSERT_TRUE(executable.ok()) << executable.status().message();
  void* pointers[] = {At(0x1000), At(0x2000), &a_};
  FakeGraph graph;
  const Status status = (*executable)->Populate(pointers, At(0x8000), &graph);
  EXPECT_EQ(status.code(), Code::kNotSupported);
  EXPECT_EQ(status.message(), "fake has no CUDA graphs");
}

}  // namespace
}  // namespace kiln::runtime
