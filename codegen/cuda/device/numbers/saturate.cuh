#pragma once
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
