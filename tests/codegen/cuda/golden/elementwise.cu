// y = relu(alpha * x + bias), 8 elements a thread
//
// engine pointwise, vector 8

// half_t: IEEE binary16 as storage. PTX ISA "cvt"; f32 to f16 rounds to nearest even.
struct half_t {
  unsigned short bits;
  half_t() = default;
  __device__ explicit half_t(float v) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v)); }
  __device__ explicit operator float() const {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
    return v;
  }
};

// Division of integers by what may be zero: it gives zero.
template <class T>
__device__ inline T div_or_zero(T a, T b) {
  return b != 0 ? a / b : 0;
}
template <class T>
__device__ inline T mod_or_zero(T a, T b) {
  return b != 0 ? a % b : 0;
}

// copy<bytes>(to, from): one access of that width; both addresses are aligned to it.
template <int bytes>
struct word;
template <>
struct word<2> {
  using type = unsigned short;
};
template <>
struct word<4> {
  using type = unsigned;
};
template <>
struct word<8> {
  using type = uint2;
};
template <>
struct word<16> {
  using type = uint4;
};
template <int bytes, class T>
__device__ inline void copy(T* to, const T* from) {
  using type = typename word<bytes>::type;
  *reinterpret_cast<type*>(to) = *reinterpret_cast<const type*>(from);
}

extern "C" __global__ void __launch_bounds__(256, 4) relu_bias(const half_t* __restrict__ x,
    const half_t* __restrict__ bias, half_t* __restrict__ y, const int n, const int channels,
    const float alpha) {
  const int bx = blockIdx.x;
  const int tx = threadIdx.x;
  const int i = bx * 2048 + tx * 8;
  if (i < n) {
    alignas(16) half_t v[8];
    copy<16>(v, x + i);
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float b = float(bias[mod_or_zero(i + j, channels)]);
      v[j] = half_t(fmaxf(alpha * float(v[j]) + b, 0.f));
    }
    copy<16>(y + i, v);
  }
}
