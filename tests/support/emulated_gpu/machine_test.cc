// Threads of the emulated GPU: lanes that part and meet, barriers, memory of all kinds, and what is
// wrong with a kernel is said and not survived.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "tests/support/emulated_gpu/kernel_test.h"

namespace kiln::emulated {
namespace {

using MachineTest = KernelTest;

constexpr CuResult kIllegalAddress = 700, kTimeout = 702, kIllegalInstruction = 715,
                   kMisaligned = 716;

TEST_F(MachineTest, ThreadsKnowWhoTheyAre) {
  const DeviceArray<int> out(2 * 3 * 2 * 5 * 3 * 2);
  Run(R"(extern "C" __global__ void f(int* out) {
        const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
        out[block * 30 + thread] = 1000 * block + thread;
      })",
      {.grid = {2, 3, 2}, .block = {5, 3, 2}}, out.data());
  const std::vector<int> values = out.values();
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(values[i], static_cast<int>(i / 30 * 1000 + i % 30));
}

// Loops of different lengths, and lanes that leave early; the rest meet for a sum over the warp.
TEST_F(MachineTest, LanesPartAndMeet) {
  const DeviceArray<int> out(64);
  Run(R"(extern "C" __global__ void f(int* out) {
        const int lane = threadIdx.x % 32;
        int n = 0;
        for (int i = 0; i < lane; ++i) n += i % 3 == 0 ? 5 : i;
        if (lane >= 28) return;
        switch (lane % 5) { case 0: n += 1; break; case 1: n += 20; break; case 2: n *= 3; break;
                            case 3: n ^= 77; break; default: n -= 9; }
        for (int m = 2; m > 0; m /= 2) n += __shfl_xor_sync(0x0fffffff, n, m);
        out[threadIdx.x] = n + 1000 * __popc(__ballot_sync(0x0fffffff, n % 2));
      })",
      {.block = {64, 1, 1}}, out.data());
  int n[28], odd = 0;
  for (int lane = 0; lane < 28; ++lane) {
    n[lane] = 0;
    for (int i = 0; i < lane; ++i) n[lane] += i % 3 == 0 ? 5 : i;
    switch (lane % 5) {
      case 0:
        n[lane] += 1;
        break;
      case 1:
        n[lane] += 20;
        break;
      case 2:
        n[lane] *= 3;
        break;
      case 3:
        n[lane] ^= 77;
        break;
      default:
        n[lane] -= 9;
    }
  }
  const std::vector<int> got = out.values();
  int sums[28];
  for (int lane = 0; lane < 28; ++lane) {
    const int first = lane / 4 * 4;
    sums[lane] = n[first] + n[first + 1] + n[first + 2] + n[first + 3];
    odd += sums[lane] & 1;
  }
  for (int lane = 0; lane < 28; ++lane) EXPECT_EQ(got[32 + lane], sums[lane] + 1000 * odd) << lane;
}

TEST_F(MachineTest, WarpsTalkToEachOther) {
  const DeviceArray<unsigned> out(32 * 6);
  Run(R"(extern "C" __global__ void f(unsigned* out) {
        const unsigned lane = threadIdx.x, v = lane * 37 % 8;
        out[lane] = __shfl_up_sync(~0u, lane, 3);
        out[32 + lane] = __shfl_down_sync(~0u, lane, 5, 16);
        out[64 + lane] = __match_any_sync(~0u, v);
        out[96 + lane] = __reduce_max_sync(0xffu << (lane & 24), lane ^ 5);
        out[128 + lane] = __any_sync(0xfu << (lane & 28), lane == 6) | __all_sync(~0u, lane < 32) << 1;
        out[160 + lane] = __shfl_sync(~0u, lane * lane, lane + 1, 8);
      })",
      {}, out.data());
  const std::vector<unsigned> got = out.values();
  for (unsigned lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(got[lane], lane < 3 ? lane : lane - 3);
    EXPECT_EQ(got[32 + lane], lane % 16 + 5 < 16 ? lane + 5 : lane);
    unsigned equal = 0, most = 0;
    for (unsigned other = 0; other < 32; ++other) {
      equal |= static_cast<unsigned>(other * 37 % 8 == lane * 37 % 8) << other;
      if (other / 8 == lane / 8) most = std::max(most, other ^ 5);
    }
    EXPECT_EQ(got[64 + lane], equal);
    EXPECT_EQ(got[96 + lane], most);
    EXPECT_EQ(got[128 + lane], (lane / 4 == 1 ? 1u : 0u) | 2u);
    const unsigned from = lane / 8 * 8 + (lane + 1) % 8;
    EXPECT_EQ(got[160 + lane], from * from);
  }
}

// Constants, tables of a module, arrays of a thread, static and dynamic shared memory, vectors.
TEST_F(MachineTest, MemoryOfAllKinds) {
  const DeviceArray<int> out(64);
  std::vector<int> input(64);
  std::iota(input.begin(), input.end(), 3);
  const DeviceArray<int> in(input);
  Run(R"(__constant__ int table[5] = {10, 20, 30, 40, 50};
        __device__ int counter;
        struct pair { int first; short second; unsigned char third; };
        extern __shared__ int dynamic[];
        extern "C" __global__ void f(const int4* in, pair by_value, int* out) {
          __shared__ short halves[64];
          int own[8];
          const int t = threadIdx.x;
          if (t < 16) reinterpret_cast<int4*>(dynamic)[t] = in[t];
          halves[t] = t - 40;
          __syncthreads();
          for (int i = 0; i < 8; ++i) own[(i * 3 + t) % 8] = i * t;
          int sum = dynamic[63 - t] + halves[(t + 1) % 64] + own[t % 8] + own[(t + 5) % 8];
          sum += table[t % 5] + by_value.first + by_value.second + by_value.third;
          atomicAdd(&counter, t);
          __syncthreads();
          out[t] = sum + counter;
        })",
      {.block = {64, 1, 1}, .shared_bytes = 256}, in.data(),
      uint64_t{7} | uint64_t{0xfff0} << 32 | uint64_t{200} << 48, out.data());
  const std::vector<int> got = out.values();
  for (int t = 0; t < 64; ++t) {
    int own[8];
    for (int i = 0; i < 8; ++i) own[(i * 3 + t) % 8] = i * t;
    const int table[] = {10, 20, 30, 40, 50};
    EXPECT_EQ(got[static_cast<size_t>(t)], input[static_cast<size_t>(63 - t)] + (t + 1) % 64 - 40 +
                                               own[t % 8] + own[(t + 5) % 8] + table[t % 5] + 7 -
                                               16 + 200 + 2016);
  }
}

TEST_F(MachineTest, AtomicsOfManyBlocks) {
  const DeviceArray<int> counts(std::vector<int>(4, 0));
  const DeviceArray<float> sums(std::vector<float>(4, 0.f));
  Run(R"(extern "C" __global__ void f(int* counts, float* sums) {
        const int n = blockIdx.x * blockDim.x + threadIdx.x;
        atomicAdd(&counts[0], n);
        atomicMax(&counts[1], n ^ 0x55);
        if (atomicCAS(&counts[2], 0, 1 + n) == 0) atomicExch(&counts[3], n + 1);
        asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(sums), "f"(1.f), "f"(2.f), "f"(float(n)), "f"(-1.f) : "memory");
      })",
      {.grid = {5, 1, 1}, .block = {40, 1, 1}}, counts.data(), sums.data());
  const std::vector<int> got = counts.values();
  EXPECT_EQ(got[0], 199 * 200 / 2);
  int most = 0;
  for (int n = 0; n < 200; ++n) most = std::max(most, n ^ 0x55);
  EXPECT_EQ(got[1], most);
  EXPECT_EQ(got[2], got[3]);
  EXPECT_EQ(sums.values(), (std::vector<float>{200, 400, 19900, -200}));
}

// Block 0 waits for the flag that the last block sets: all of them have to be there at once.
TEST_F(MachineTest, BlocksWaitForEachOther) {
  const DeviceArray<int> flags(std::vector<int>(8, 0));
  const char* const text = R"(extern "C" __global__ void f(volatile int* flags) {
        if (threadIdx.x == 0) {
          if (blockIdx.x + 1 < gridDim.x) while (flags[blockIdx.x + 1] == 0) {}
          __threadfence();
          flags[blockIdx.x] = 1 + blockIdx.x + (blockIdx.x + 1 < gridDim.x ? flags[blockIdx.x + 1] : 0);
        }
      })";
  Run(text, {.grid = {8, 1, 1}, .block = {64, 1, 1}}, flags.data());
  EXPECT_EQ(flags.values()[0], 36);
}

// Blocks 0 and 2 count by turns; block 1 says what it saw when it had its turn.
TEST_F(MachineTest, BlocksMayBeLate) {
  const char* const text = R"(extern "C" __global__ void f(volatile int* at) {
        if (threadIdx.x != 0) return;
        if (blockIdx.x == 1) { while (at[0] == 0) {} at[1] = at[0]; return; }
        for (int i = blockIdx.x / 2; i < 6; i += 2) { while (at[0] != i) {} at[0] = i + 1; }
      })";
  const auto seen = [&](const char* lag) {
    setenv("EMULATED_GPU_LAG", lag, 1);
    const DeviceArray<int> at(std::vector<int>(2, 0));
    Run(text, {.grid = {3, 1, 1}, .block = {32, 1, 1}}, at.data());
    unsetenv("EMULATED_GPU_LAG");
    EXPECT_EQ(at.values()[0], 6);
    return at.values()[1];
  };
  EXPECT_LE(seen("0"), 2);
  EXPECT_GE(seen("2"), 3);
}

// Barriers with numbers and counts: two producers tell two consumers.
TEST_F(MachineTest, NamedBarriers) {
  const DeviceArray<int> out(64);
  Run(R"(extern "C" __global__ void f(int* out) {
        __shared__ int box[64];
        const int t = threadIdx.x;
        for (int round = 0; round < 3; ++round) {
          if (t < 64) {
            if (round > 0) asm volatile("bar.sync 2, 128;" ::: "memory");
            box[t] = t * 10 + round;
            asm volatile("bar.arrive 1, 128;" ::: "memory");
          } else {
            asm volatile("bar.sync 1, 128;" ::: "memory");
            const int v = box[127 - t];
            out[t - 64] = round == 0 ? v : out[t - 64] + v;
            if (round < 2) asm volatile("bar.arrive 2, 128;" ::: "memory");
          }
        }
      })",
      {.block = {128, 1, 1}}, out.data());
  for (int t = 0; t < 64; ++t) EXPECT_EQ(out.values()[static_cast<size_t>(t)], (63 - t) * 30 + 3);
}

TEST_F(MachineTest, ClustersShareTheirMemory) {
  const DeviceArray<int> out(8);
  Run(R"(extern "C" __global__ void __cluster_dims__(4, 1, 1) f(int* out) {
        __shared__ int own;
        unsigned rank;
        asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
        if (threadIdx.x == 0) own = 100 + blockIdx.x;
        asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
        int there;
        asm volatile("{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %1, %2; ld.shared::cluster.u32 %0, [remote]; }"
                     : "=r"(there) : "r"((unsigned)__cvta_generic_to_shared(&own)), "r"((rank + 1) % 4) : "memory");
        if (threadIdx.x == 0) out[blockIdx.x] = there;
        asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
      })",
      {.grid = {8, 1, 1}}, out.data());
  EXPECT_EQ(out.values(), (std::vector<int>{101, 102, 103, 100, 105, 106, 107, 104}));
}

// ---- faults

TEST_F(MachineTest, LoadsBehindAnAllocation) {
  const DeviceArray<int> memory(10);
  const std::string said =
      Complaint(R"(extern "C" __global__ void f(int* p) { p[threadIdx.x] += 1; })", {},
                kIllegalAddress, memory.data());
  EXPECT_TRUE(Contains(said, "kernel f") && Contains(said, "thread 10") &&
              Contains(said, "load of 4 bytes"))
      << said;
  EXPECT_TRUE(Contains(said, "0 bytes behind the end of one of 40") && Contains(said, "ld.global"))
      << said;
}

TEST_F(MachineTest, SharedMemoryHasAnEnd) {
  const DeviceArray<int> out(1);
  const std::string said = Complaint(
      R"(extern "C" __global__ void f(int* out, int n) { __shared__ int box[32]; box[threadIdx.x + n] = 1; __syncthreads(); *out = box[0]; })",
      {}, kIllegalAddress, out.data(), 4);
  EXPECT_TRUE(Contains(said, "shared memory, which has 128") && Contains(said, "lane 28")) << said;
}

TEST_F(MachineTest, MisalignedAddresses) {
  const DeviceArray<char> memory(64);
  const std::string said = Complaint(
      R"(extern "C" __global__ void f(char* p, int n) { *reinterpret_cast<int2*>(p + n) = make_int2(1, 2); })",
      {}, kMisaligned, memory.data(), 4);
  EXPECT_TRUE(Contains(said, "is no multiple of 8") && Contains(said, "st.global.v2")) << said;
}

TEST_F(MachineTest, UnknownInstructions) {
  ::testing::internal::CaptureStderr();
  const CuFunction function = Load(
      ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry f() {\n.reg .b32 "
      "%r<2>;\nfrobnicate.b32 %r1, 5;\nret;\n}\n");
  EXPECT_EQ(Launch(function, {}), kIllegalInstruction);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(Contains(
      said, "line 6: frobnicate.b32 is an instruction that the emulated GPU does not know"))
      << said;
}

TEST_F(MachineTest, Deadlock) {
  const std::string said = Complaint(R"(extern "C" __global__ void f() {
        if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;" ::: "memory"); else asm volatile("bar.sync 2, 64;" ::: "memory"); })",
                                     {.block = {64, 1, 1}}, kTimeout);
  EXPECT_TRUE(Contains(said, "deadlock") && Contains(said, "warp 0, lanes 0xffffffff") &&
              Contains(said, "bar.sync 2, 64"))
      << said;
}

TEST_F(MachineTest, AnMbarrierThatNobodyArrivesAt) {
  const std::string said = Complaint(R"(extern "C" __global__ void f() {
        __shared__ unsigned long long barrier;
        const unsigned at = (unsigned)__cvta_generic_to_shared(&barrier);
        if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" ::"r"(at) : "memory");
        __syncthreads();
        if (threadIdx.x == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
        asm volatile("{ .reg .pred done;\nagain: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n@!done bra.uni again; }" ::"r"(at) : "memory");
      })",
                                     {}, kTimeout);
  EXPECT_TRUE(Contains(said, "deadlock") && Contains(said, "mbarrier.try_wait")) << said;
}

// Lanes that ask for what another lane of their warp has yet to do leave it no turn; behind it they
// find it done.
TEST_F(MachineTest, LanesThatAskLeaveTheOthersNoTurn) {
  const std::string begin = R"(extern "C" __global__ void f() {
        __shared__ unsigned long long barrier;
        const unsigned at = (unsigned)__cvta_generic_to_shared(&barrier);
        if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
        __syncthreads();
        asm volatile("{ .reg .pred last, done;\nsetp.eq.u32 last, %1, 31;\n)";
  const std::string end = R"(}" ::"r"(at), "r"(threadIdx.x) : "memory");
      })";
  const std::string arrive = R"(@last mbarrier.arrive.shared::cta.b64 _, [%0];\n)";
  const std::string ask = R"(mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n)";
  Run(begin + arrive + R"(bar.warp.sync 0xffffffff;\nagain: )" + ask +
          R"(@!done bra.uni again;\n)" + end,
      {});
  const std::string said =
      Complaint(begin + R"(@last bra leads;\nagain: )" + ask +
                    R"(@!done bra.uni again;\nbra.uni met;\nleads: )" + arrive + "met: " + end,
                {}, kTimeout);
  EXPECT_TRUE(Contains(said, "deadlock") && Contains(said, "lanes 0x80000000")) << said;
}

TEST_F(MachineTest, EndlessLoopsEnd) {
  setenv("EMULATED_GPU_STEPS", "200000", 1);
  const DeviceArray<int> flag(std::vector<int>(1, 0));
  const std::string said =
      Complaint(R"(extern "C" __global__ void f(volatile int* flag) { while (*flag == 0) {} })", {},
                kTimeout, flag.data());
  unsetenv("EMULATED_GPU_STEPS");
  EXPECT_TRUE(Contains(said, "too many instructions")) << said;
}

TEST_F(MachineTest, LanesThatTakeNoPart) {
  const DeviceArray<int> out(32);
  const std::string said = Complaint(R"(extern "C" __global__ void f(int* out) {
        if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffff, threadIdx.x, 20); })",
                                     {}, kIllegalInstruction, out.data());
  EXPECT_TRUE(Contains(said, "lane 20 is asked, which takes no part")) << said;
}

}  // namespace
}  // namespace kiln::emulated
