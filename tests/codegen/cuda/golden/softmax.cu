// y = softmax(x) over rows of n elements, a block a row

// bf16_t: the upper half of a float as storage. PTX ISA "cvt", cvt.rn.bf16.f32 from sm_80 on.
struct bf16_t {
  unsigned short bits;
  bf16_t() = default;
  __device__ explicit bf16_t(float v) {
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(v));
#else
    const unsigned u = __float_as_uint(v);  // plus half a last place, less a little if even
    bits = v == v ? (u + 0x7fff + (u >> 16 & 1)) >> 16 : 0x7fff;
#endif
  }
  __device__ explicit operator float() const {
#if __CUDA_ARCH__ >= 800
    float v;  // one byte permutation, where a shift would first take pairs of halves apart
    asm("mov.b32 %0, {%1, %2};" : "=f"(v) : "h"((unsigned short)0), "h"(bits));
    return v;
#else
    return __uint_as_float(unsigned(bits) << 16);
#endif
  }
};

// e4m3_t: 4 exponent bits (bias 7), 3 mantissa bits, no infinity, largest 448; conversion
// saturates. PTX ISA "cvt", .e4m3x2 from sm_89 on.
struct e4m3_t {
  unsigned char bits;
  e4m3_t() = default;
  __device__ explicit e4m3_t(float v) {
#if __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.f), "f"(v));
    bits = pair & 0xff;
#else
    const unsigned u = __float_as_uint(v), a = u & 0x7fffffff;
    const float scaled = __uint_as_float(a) * 512.f;  // subnormals are multiples of 2^-9
    const unsigned magnitude = a >= 0x43e00000 ? 0x7e
                               : a >= 0x3c800000
                                   ? ((a + 0x7ffff + (a >> 20 & 1)) >> 20) - (120 << 3)
                                   : __float_as_uint(scaled + 8388608.f) & 0xf;
    bits = a > 0x7f800000 ? 0x7f : (u >> 24 & 0x80) | magnitude;
#endif
  }
  __device__ explicit operator float() const {
    const unsigned sign = unsigned(bits & 0x80) << 24, magnitude = bits & 0x7f;
    const float v = magnitude == 0x7f ? __uint_as_float(0x7fffffff)
                                      : __uint_as_float(magnitude << 20) * 0x1p120f;
    return __uint_as_float(sign | __float_as_uint(v));
  }
};

// Minimum and maximum that keep a NaN, where fmin and fmax drop it. PTX ISA "min.NaN", "max.NaN",
// sm_80 on.
__device__ inline double min_nan(double a, double b) {
  return a != a ? a : b != b ? b : fmin(a, b);
}
__device__ inline double max_nan(double a, double b) {
  return a != a ? a : b != b ? b : fmax(a, b);
}
__device__ inline float min_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(a), "f"(b));
  return a;
#else
  return a != a ? a : b != b ? b : fminf(a, b);
#endif
}
__device__ inline float max_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(a), "f"(b));
  return a;
#else
  return a != a ? a : b != b ? b : fmaxf(a, b);
#endif
}

// The value of the lane whose number is this one's xor `mask`; all lanes of the warp take part.
template <class T>
__device__ inline T shuffle_xor(T v, int mask) {
  return __shfl_xor_sync(0xffffffff, v, mask);
}

extern "C" __global__ void __launch_bounds__(128) softmax_rows(const bf16_t* __restrict__ x,
    e4m3_t* __restrict__ y, const int rows, const int n, const long long stride) {
  const int row = blockIdx.x;
  __shared__ __align__(16) float partial[4];
  const int t = threadIdx.x;
  const long long base = (long long)row * stride;
  float peak = -__int_as_float(0x7f800000);
  for (int k = 0; k < (n - t + 127) / 128; ++k) {
    peak = max_nan(peak, float(x[base + (long long)(t + k * 128)]));
  }
  // within the warps
  peak = max_nan(peak, shuffle_xor(peak, 16));
  peak = max_nan(peak, shuffle_xor(peak, 8));
  peak = max_nan(peak, shuffle_xor(peak, 4));
  peak = max_nan(peak, shuffle_xor(peak, 2));
  peak = max_nan(peak, shuffle_xor(peak, 1));
  if (t % 32 == 0) {
    partial[t / 32] = peak;
  }
  __syncthreads();
  #pragma unroll
  for (int w = 0; w < 4; ++w) {
    peak = max_nan(peak, partial[w]);
  }
  float sum = 0.f;
  for (int k2 = 0; k2 < n; ++k2) {
    sum += expf(__fsub_rn(float(x[base + (long long)k2]), peak));
  }
  for (int k3 = 0; k3 < (n - t + 127) / 128; ++k3) {
    const int c = t + k3 * 128;
    const long long at = base + (long long)c;
    y[at] = e4m3_t(expf(__fsub_rn(float(x[at]), peak)) / sum);
  }
}
