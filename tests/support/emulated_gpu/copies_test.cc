// Copies of the emulated GPU that go on while threads do, and products: what is waited for is
// right, and what is not waited for is seen to be missing.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/support/emulated_gpu/kernel_test.h"
#include "tests/support/oracle/dtype.h"

namespace kiln::emulated {
namespace {

using CopiesTest = KernelTest;
using oracle::DType;

constexpr int kTypeF16 = 6;  // CUtensorMapDataType
constexpr const char* kPrelude = R"(
struct alignas(64) map_t { unsigned long long words[16]; };
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void init(unsigned b, int n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(n) : "memory"); }
__device__ void expect(unsigned b, int n) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(n) : "memory"); }
__device__ void wait(unsigned b, int parity) {
  asm volatile("{ .reg .pred done;\nagain: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra.uni again; }" ::"r"(b), "r"(parity) : "memory");
}
)";

std::vector<uint16_t> Halves(size_t size, uint64_t seed, std::vector<double>& values) {
  std::mt19937_64 random(seed);
  std::vector<uint16_t> bits(size);
  values.resize(size);
  for (size_t i = 0; i < size; ++i) {
    oracle::Encode(DType::kF16, static_cast<double>(random() % 2001) / 500 - 2,
                   reinterpret_cast<uint8_t*>(&bits[i]));
    values[i] = oracle::Decode(DType::kF16, reinterpret_cast<const uint8_t*>(&bits[i]));
  }
  return bits;
}

// With the wait, what was copied; without, what was there before.
TEST_F(CopiesTest, CopyAsyncIsLate) {
  std::vector<int> input(128);
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<int>(i);
  const DeviceArray<int> in(input), out(128);
  const std::string text = R"(extern "C" __global__ void f(const int* in, int* out, int waits) {
        __shared__ int4 box[32];
        box[threadIdx.x] = make_int4(-1, -1, -1, -1);
        const int read = threadIdx.x == 5 ? 8 : 16;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((unsigned)__cvta_generic_to_shared(&box[threadIdx.x])), "l"(in + 4 * threadIdx.x), "r"(read) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
        if (waits) asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        const int4 v = box[31 - threadIdx.x];
        reinterpret_cast<int4*>(out)[31 - threadIdx.x] = v;
      })";
  Run(text, {}, in.data(), out.data(), 1);
  input[22] = input[23] = 0;
  EXPECT_EQ(out.values(), input);
  Run(text, {}, in.data(), out.data(), 0);
  EXPECT_EQ(out.values(), std::vector<int>(128, -1));
}

// A box that hangs over all edges, at each swizzle, which the kernel undoes by its own arithmetic.
TEST_F(CopiesTest, TiledBoxes) {
  constexpr int kRows = 9, kColumns = 40;
  std::vector<double> values;
  const DeviceArray<uint16_t> in(Halves(kRows * kColumns, 1, values));
  const std::string text = std::string(kPrelude) + R"(
      extern "C" __global__ void f(const __grid_constant__ map_t map, unsigned short* out, int x, int y, int width, int mask, int waits) {
        extern __shared__ __align__(1024) unsigned char box[];
        __shared__ unsigned long long barrier;
        if (threadIdx.x == 0) {
          init(at(&barrier), 1);
          asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
          expect(at(&barrier), 16 * width);
          asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                       ::"r"(at(box)), "l"(&map), "r"(at(&barrier)), "r"(x), "r"(y) : "memory");
        }
        __syncthreads();
        if (waits) wait(at(&barrier), 0);
        for (int i = threadIdx.x; i < 8 * width; i += 32) {
          const int row = i / (width / 2), byte = i % (width / 2) * 2;
          int place = row * width + byte;
          place ^= (place >> 7 & mask) << 4;
          out[i] = *reinterpret_cast<unsigned short*>(box + place);
        }
        if (!waits) wait(at(&barrier), 0);
      })";
  for (const int swizzle : {0, 1, 2, 3}) {
    const uint32_t width = swizzle == 0 ? 64 : 16u << swizzle;  // bytes
    MapBytes map = {};
    const uint64_t dims[] = {kColumns, kRows}, strides[] = {kColumns * 2};
    const uint32_t box[] = {width / 2, 16}, ones[] = {1, 1};
    ASSERT_EQ(cuTensorMapEncodeTiled(&map, kTypeF16, 2, in.data(), dims, strides, box, ones, 0,
                                     swizzle, 0, 0),
              0);
    for (const auto& [x, y] : {std::pair(-3, -2), std::pair(30, 4), std::pair(8, 0)}) {
      const DeviceArray<uint16_t> out(8 * width);
      Run(text, {.shared_bytes = 4096}, map, out.data(), x, y, static_cast<int>(width),
          (1 << swizzle) - 1, 1);
      const std::vector<uint16_t> got = out.values();
      for (size_t i = 0; i < got.size(); ++i) {
        const int row = y + static_cast<int>(i / (width / 2)),
                  column = x + static_cast<int>(i % (width / 2));
        const bool inside = row >= 0 && row < kRows && column >= 0 && column < kColumns;
        EXPECT_EQ(got[i], inside ? in.data()[row * kColumns + column] : 0)
            << swizzle << ": " << row << ", " << column;
      }
    }
    const DeviceArray<uint16_t> out(8 * width);
    Run(text, {.shared_bytes = 4096}, map, out.data(), 0, 0, static_cast<int>(width),
        (1 << swizzle) - 1, 0);
    EXPECT_EQ(out.values(), std::vector<uint16_t>(8 * width, 0xffff))
        << "the box is there before its wait";
  }
}

// A box that is outside is zeroes, and yet the map's address is read: an H100 was seen to fault.
TEST_F(CopiesTest, BoxesOutsideReadTheAddressOfTheMap) {
  const DeviceArray<uint16_t> in(std::vector<uint16_t>(64 * 8, 1));
  const std::string text = std::string(kPrelude) + R"(
      extern "C" __global__ void f(const __grid_constant__ map_t map, int y) {
        __shared__ __align__(1024) unsigned char box[1024];
        __shared__ unsigned long long barrier;
        if (threadIdx.x != 0) return;
        init(at(&barrier), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        expect(at(&barrier), 1024);
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                     ::"r"(at(box)), "l"(&map), "r"(at(&barrier)), "r"(0), "r"(y) : "memory");
        wait(at(&barrier), 0);
      })";
  constexpr uint64_t kRowBytes = 128, kRowsBefore = 1 << 20;
  const uint64_t dims[] = {64, kRowsBefore + 8}, strides[] = {kRowBytes};
  const uint32_t box[] = {64, 8}, ones[] = {1, 1};
  MapBytes map = {};
  ASSERT_EQ(cuTensorMapEncodeTiled(&map, kTypeF16, 2,
                                   reinterpret_cast<uint8_t*>(in.data()) - kRowsBefore * kRowBytes,
                                   dims, strides, box, ones, 0, 3, 0, 0),
            0);
  Run(text, {}, map, static_cast<int>(kRowsBefore) + 7);
  constexpr CuResult kIllegalAddress = 700;
  const std::string said =
      Complaint(text, {}, kIllegalAddress, map, static_cast<int>(kRowsBefore) + 8);
  EXPECT_TRUE(Contains(said, "in no allocation")) << said;
}

// Pixels of a padded, strided 3x3 convolution, each tap, as a convolution's own loop finds them.
TEST_F(CopiesTest, PixelsOfAConvolution) {
  constexpr int kN = 2, kH = 5, kW = 6, kC = 8, kStride = 2, kPad = 1, kTaps = 3, kPixels = 24;
  constexpr int kP = (kH + 2 * kPad - kTaps) / kStride + 1,
                kQ = (kW + 2 * kPad - kTaps) / kStride + 1;
  std::vector<double> values;
  const DeviceArray<uint16_t> in(Halves(kN * kH * kW * kC, 2, values));
  MapBytes map = {};
  const uint64_t dims[] = {kC, kW, kH, kN}, strides[] = {kC * 2, kW * kC * 2, kH * kW * kC * 2};
  const int lower[] = {-kPad, -kPad}, upper[] = {kPad - (kTaps - 1), kPad - (kTaps - 1)};
  const uint32_t steps[] = {1, kStride, kStride, 1};
  ASSERT_EQ(cuTensorMapEncodeIm2col(&map, kTypeF16, 4, in.data(), dims, strides, lower, upper, kC,
                                    kPixels, steps, 0, 0, 0, 0),
            0);
  const std::string text = std::string(kPrelude) + R"(
      extern "C" __global__ void f(const __grid_constant__ map_t map, unsigned short* out, int q, int p, short s, short r) {
        __shared__ alignas(128) unsigned short box[24 * 8];
        __shared__ unsigned long long barrier;
        if (threadIdx.x == 0) {
          init(at(&barrier), 1);
          expect(at(&barrier), sizeof box);
          asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};"
                       ::"r"(at(box)), "l"(&map), "r"(at(&barrier)), "r"(0), "r"(q), "r"(p), "r"(0), "h"(s), "h"(r) : "memory");
        }
        __syncthreads();
        wait(at(&barrier), 0);
        for (int i = threadIdx.x; i < 24 * 8; i += 32) out[i] = box[i];
      })";
  for (int tap = 0; tap < kTaps * kTaps; ++tap) {
    const int r = tap / kTaps, s = tap % kTaps, first = 2;  // pixels are counted from the third on
    const DeviceArray<uint16_t> out(kPixels * kC);
    Run(text, {}, map, out.data(), first % kQ * kStride - kPad, first / kQ * kStride - kPad,
        static_cast<short>(s), static_cast<short>(r));
    const std::vector<uint16_t> got = out.values();
    for (int i = 0; i < kPixels; ++i) {
      const int pixel = first + i, n = pixel / (kP * kQ), p = pixel / kQ % kP, q = pixel % kQ;
      const int h = p * kStride - kPad + r, w = q * kStride - kPad + s;
      const bool inside = n < kN && h >= 0 && h < kH && w >= 0 && w < kW;
      for (int c = 0; c < kC; ++c)
        EXPECT_EQ(got[static_cast<size_t>(i * kC + c)],
                  inside ? in.data()[((n * kH + h) * kW + w) * kC + c] : 0)
            << "tap " << tap << ", pixel " << pixel;
    }
  }
}

// Each block of a cluster loads half, for both.
TEST_F(CopiesTest, MulticastReachesAllBlocks) {
  std::vector<int> input(64);
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<int>(3 * i);
  const DeviceArray<int> in(input), out(128);
  MapBytes map = {};
  const uint64_t dims[] = {64};
  const uint32_t box[] = {32}, ones[] = {1};
  ASSERT_EQ(cuTensorMapEncodeTiled(&map, 3, 1, in.data(), dims, nullptr, box, ones, 0, 0, 0, 0), 0);
  Run(std::string(kPrelude) + R"(
      extern "C" __global__ void __cluster_dims__(2, 1, 1) f(const __grid_constant__ map_t map, int* out) {
        __shared__ alignas(128) int box[64];
        __shared__ unsigned long long barrier;
        if (threadIdx.x == 0) { init(at(&barrier), 1); expect(at(&barrier), 256); }
        asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
        if (threadIdx.x == 0)
          asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3}], [%2], %4;"
                       ::"r"(at(box) + 128 * blockIdx.x), "l"(&map), "r"(at(&barrier)), "r"(32 * blockIdx.x), "h"((unsigned short)3) : "memory");
        wait(at(&barrier), 0);
        for (int i = threadIdx.x; i < 64; i += 32) out[64 * blockIdx.x + i] = box[i];
        asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
      })",
      {.grid = {2, 1, 1}}, map, out.data());
  const std::vector<int> got = out.values();
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], input[i % 64]);
}

// Words come late, and count on the barrier of the block that gets them.
TEST_F(CopiesTest, AsyncStoresReachTheOtherBlock) {
  const DeviceArray<int> out(std::vector<int>(2, -7));
  Run(std::string(kPrelude) + R"(
      extern "C" __global__ void __cluster_dims__(2, 1, 1) f(int* out) {
        __shared__ alignas(16) int box[4];
        __shared__ unsigned long long barrier;
        if (threadIdx.x == 0) { init(at(&barrier), 1); expect(at(&barrier), 16); }
        asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
        if (threadIdx.x == 0)
          asm volatile("{ .reg .b32 a, b; mapa.shared::cluster.u32 a, %0, %3; mapa.shared::cluster.u32 b, %1, %3;"
                       "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [a], {%2, %2, %2, %2}, [b]; }"
                       ::"r"(at(box)), "r"(at(&barrier)), "r"(5 + blockIdx.x), "r"(1 - blockIdx.x) : "memory");
        wait(at(&barrier), 0);
        if (threadIdx.x == 0) out[blockIdx.x] = box[0] + box[1] + box[2] + box[3];
      })",
      {.grid = {2, 1, 1}}, out.data());
  EXPECT_EQ(out.values(), (std::vector<int>{24, 20}));
}

// The store reads shared memory when it is waited for: who writes it before that has spoiled it.
TEST_F(CopiesTest, StoresAreLate) {
  const DeviceArray<int> out(std::vector<int>(40, -7));
  MapBytes map = {};
  const uint64_t dims[] = {10, 4}, strides[] = {48};
  const uint32_t box[] = {8, 2}, ones[] = {1, 1};
  const DeviceArray<int> memory(std::vector<int>(48, -7));
  ASSERT_EQ(cuTensorMapEncodeTiled(&map, 3, 2, memory.data(), dims, strides, box, ones, 0, 0, 0, 0),
            0);
  const std::string text = std::string(kPrelude) + R"(
      extern "C" __global__ void f(const __grid_constant__ map_t map, int waits) {
        __shared__ alignas(128) int box[16];
        if (threadIdx.x < 16) box[threadIdx.x] = 100 + threadIdx.x;
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        if (threadIdx.x == 0) {
          asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map), "r"(at(box)), "r"(6), "r"(3) : "memory");
          asm volatile("cp.async.bulk.commit_group;" ::: "memory");
          if (waits) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        }
        __syncthreads();
        box[threadIdx.x % 16] = 5;
      })";
  for (const int waits : {1, 0}) {
    Run(text, {}, map, waits);
    const std::vector<int> got = memory.values();
    for (int row = 0; row < 4; ++row)
      for (int column = 0; column < 12; ++column) {
        const bool written = row == 3 && column >= 6 && column < 10;
        const int want = !written ? -7 : waits == 1 ? 100 + column - 6 : 5;
        EXPECT_EQ(got[static_cast<size_t>(row * 12 + column)], want)
            << waits << ": " << row << ", " << column;
      }
  }
}

// ---- products

// D = A B + C of one warp, with fragments by ldmatrix from rows of shared memory.
TEST_F(CopiesTest, ProductsOfAWarp) {
  constexpr int kM = 16, kN = 8, kK = 16;
  std::vector<double> a, b;
  const DeviceArray<uint16_t> left(Halves(kM * kK, 3, a)), right(Halves(kK * kN, 4, b));
  const DeviceArray<float> out(kM * kN);
  Run(R"(extern "C" __global__ void f(const unsigned short* a, const unsigned short* b, float* d) {
        __shared__ alignas(16) unsigned short rows[16 * 16], columns[16 * 8];
        for (int i = threadIdx.x; i < 256; i += 32) rows[i] = a[i];
        for (int i = threadIdx.x; i < 128; i += 32) columns[i] = b[i];
        __syncwarp();
        const int lane = threadIdx.x;
        unsigned x[4], y[2];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"((unsigned)__cvta_generic_to_shared(&rows[lane % 16 * 16 + lane / 16 * 8])));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(y[0]), "=r"(y[1])
                     : "r"((unsigned)__cvta_generic_to_shared(&columns[lane % 16 * 8])));
        float sums[4] = {1, 2, 3, 4};
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
        for (int v = 0; v < 4; ++v) d[(lane / 4 + v / 2 * 8) * 8 + lane % 4 * 2 + v % 2] = sums[v];
      })",
      {}, left.data(), right.data(), out.data());
  const std::vector<float> got = out.values();
  for (int m = 0; m < kM; ++m)
    for (int n = 0; n < kN; ++n) {
      double sum = 1 + 2 * (m / 8) + n % 2;
      for (int k = 0; k < kK; ++k)
        sum += a[static_cast<size_t>(m * kK + k)] * b[static_cast<size_t>(k * kN + n)];
      // 24 bits of it, the rest cut off.
      const double unit = std::ldexp(1, std::ilogb(sum) - 23), want = std::trunc(sum / unit) * unit;
      EXPECT_EQ(got[static_cast<size_t>(m * kN + n)], want) << m << ", " << n;
    }
}

// 64 x N x 64 of a warpgroup, operands by tensor maps with a swizzle of 128 bytes: with k
// contiguous, and with rows (of A) or columns (of B) contiguous; and the next product waits for
// none.
TEST_F(CopiesTest, ProductsOfAWarpgroup) {
  constexpr int kM = 64, kN = 64, kK = 64;
  for (const bool a_is_outer : {false, true})
    for (const bool b_is_outer : {false, true}) {
      std::vector<double> a, b;
      const DeviceArray<uint16_t> left(Halves(kM * kK, 5, a)), right(Halves(kK * kN, 6, b));
      const DeviceArray<float> out(kM * kN);
      MapBytes maps[2] = {};
      for (int k = 0; k < 2; ++k) {
        const uint64_t dims[] = {64, 64}, strides[] = {128};
        const uint32_t box[] = {64, 64}, ones[] = {1, 1};
        ASSERT_EQ(cuTensorMapEncodeTiled(&maps[k], kTypeF16, 2, (k == 0 ? left : right).data(),
                                         dims, strides, box, ones, 0, 3, 0, 0),
                  0);
      }
      std::string registers, outputs;
      for (int e = 0; e < kN / 2; ++e) {
        registers += fmt::format("{}%{}", e == 0 ? "" : ", ", e);
        outputs += fmt::format("{}\"+f\"(d[{}])", e == 0 ? "" : ", ", e);
      }
      const std::string text =
          std::string(kPrelude) + fmt::format(R"(
      extern "C" __global__ void __launch_bounds__(128) f(const __grid_constant__ map_t left, const __grid_constant__ map_t right, float* out) {{
        extern __shared__ __align__(1024) unsigned char box[];
        __shared__ unsigned long long barrier;
        if (threadIdx.x == 0) {{
          init(at(&barrier), 1);
          expect(at(&barrier), 16384);
          asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {{%3, %3}}], [%2];" ::"r"(at(box)), "l"(&left), "r"(at(&barrier)), "r"(0) : "memory");
          asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {{%3, %3}}], [%2];" ::"r"(at(box) + 8192), "l"(&right), "r"(at(&barrier)), "r"(0) : "memory");
        }}
        __syncthreads();
        wait(at(&barrier), 0);
        float d[32];
        for (int e = 0; e < 32; ++e) d[e] = 7;
        const unsigned long long layout = (1ull << 62) | (64ull << 32) | (512ull << 16);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < 4; ++k) {{
          const unsigned long long x = layout | (at(box) + k * {2}) >> 4, y = layout | (at(box) + 8192 + k * {3}) >> 4;
          asm volatile("{{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
                       "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{0}}}, %32, %33, p, 1, 1, {4}, {5}; }}"
                       : {1} : "l"(x), "l"(y), "r"(k));
        }}
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        for (int e = 0; e < 32; ++e)
          out[(warp * 16 + lane / 4 + 8 * (e >> 1 & 1)) * 64 + 8 * (e >> 2) + 2 * (lane & 3) + (e & 1)] = d[e];
      }})",
                                              registers, outputs, a_is_outer ? 2048 : 32,
                                              b_is_outer ? 2048 : 32, a_is_outer ? 1 : 0,
                                              b_is_outer ? 1 : 0);
      Run(text, {.block = {128, 1, 1}, .shared_bytes = 16384}, maps[0], maps[1], out.data());
      const std::vector<float> got = out.values();
      for (int m = 0; m < kM; ++m)
        for (int n = 0; n < kN; ++n) {
          double sum = 0;
          for (int k = 0; k < kK; ++k)
            sum += a[static_cast<size_t>(a_is_outer ? k * kM + m : m * kK + k)] *
                   b[static_cast<size_t>(b_is_outer ? k * kN + n : n * kK + k)];
          ASSERT_NEAR(got[static_cast<size_t>(m * kN + n)], sum, 1e-4)
              << a_is_outer << b_is_outer << ": " << m << ", " << n;
        }
    }
}

}  // namespace
}  // namespace kiln::emulated
