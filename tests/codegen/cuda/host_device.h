// Names that the prelude and emitted kernels take from CUDA, for the host's compiler: tests run
// their portable forms on the CPU. __CUDA_ARCH__ is one that has none of the newer instructions.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

#define __CUDA_ARCH__ 700
#define __device__
#define __global__
#define __launch_bounds__(...)

using std::abs, std::max, std::min;

inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(uint64_t{a} * b >> 32);
}
inline unsigned __float_as_uint(float v) { return std::bit_cast<unsigned>(v); }
inline float __uint_as_float(unsigned v) { return std::bit_cast<float>(v); }
inline float __int_as_float(int v) { return std::bit_cast<float>(v); }
inline double __longlong_as_double(long long v) { return std::bit_cast<double>(v); }

inline float __double2float_rz(double v) {
  const float f = static_cast<float>(v);
  return std::fabs(f) > std::fabs(v) ? std::nextafterf(f, 0.f) : f;
}

// As PTX's cvt.rni does: saturating, NaN to 0 (the prelude relies on it for f32 to s32 only).
template <class T>
T RoundToInt(double v) {
  if (std::isnan(v)) return 0;
  const double limit = std::ldexp(1.0, std::numeric_limits<T>::digits);
  if (v >= limit) return std::numeric_limits<T>::max();
  if (v < -limit) return std::numeric_limits<T>::min();
  return static_cast<T>(std::nearbyint(v));
}
inline int __float2int_rn(float v) { return RoundToInt<int>(v); }
inline int __double2int_rn(double v) { return RoundToInt<int>(v); }
inline long long __float2ll_rn(float v) { return RoundToInt<long long>(v); }
inline long long __double2ll_rn(double v) { return RoundToInt<long long>(v); }
