// y[c, r] = x[r, c] through 64 KB of shared memory, 128 x 128 elements a block

// n / d for 0 <= n < 2^31, by the multiplier and shift that the host computes for d.
__device__ inline int fast_div(int n, int mul, int shift) {
  return int((unsigned long long)(unsigned(n)) * unsigned(mul) >> shift);
}

// Conversions to integers: to nearest even, saturating, NaN to 0. PTX ISA "cvt": float to integer
// saturates by itself; a NaN gives 0 except from .f64 or to .s64.
__device__ inline int to_i32(int v) { return v; }
__device__ inline int to_i32(float v) { return __float2int_rn(v); }
__device__ inline int to_i32(double v) { return v == v ? __double2int_rn(v) : 0; }
__device__ inline int to_i32(long long v) { return int(max(-2147483648ll, min(2147483647ll, v))); }
__device__ inline long long to_i64(float v) { return v == v ? __float2ll_rn(v) : 0; }
__device__ inline long long to_i64(double v) { return v == v ? __double2ll_rn(v) : 0; }
template <class T>
__device__ inline signed char to_i8(T v) {
  return max(-128, min(127, to_i32(v)));
}
template <class T>
__device__ inline unsigned char to_u8(T v) {
  return max(0, min(255, to_i32(v)));
}

extern "C" __global__ void __launch_bounds__(256) transpose(const float* __restrict__ x,
    float* __restrict__ y, const int rows, const int columns, const int mul_c, const int shift_c,
    const double scale, const bool clamp) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  const int bz = blockIdx.z;
  const int by = blockIdx.y;
  const int bx = blockIdx.x;
  float* const tile = reinterpret_cast<float*>(shared_memory);  // [16384]
  signed char* const seen = reinterpret_cast<signed char*>(shared_memory + 65536);  // [64]
  const int t = threadIdx.x;
  for (int i = 0; i < 64; ++i) {
    const int e = t + i * 256;
    const int r = fast_div(e, mul_c, shift_c);
    tile[e] = x[(by * 128 + r) * columns + bx * 128 - (e - r * -128)];
  }
  __syncthreads();
  if (const int u = threadIdx.x; u < 64) {
    seen[u] = to_i8(u + bz);
  }
  __syncthreads();
  const int w = threadIdx.x;
  for (int i2 = 0; i2 < 64; ++i2) {
    const double v = double(tile[(w * 129 + i2) % 16384]) * scale;
    if (clamp && (v > 128.0 || int(seen[i2 % 64]) == 0)) {
      y[w + i2] = 128.f;
    } else if (!clamp) {
      y[w + i2] = float(v < 0.0 ? -v : v);
    } else {
      y[w + i2] = float(v);
    }
  }
}
