#pragma once
// Division of integers by what may be zero: it gives zero.
template <class T>
__device__ inline T div_or_zero(T a, T b) {
  return b != 0 ? a / b : 0;
}
template <class T>
__device__ inline T mod_or_zero(T a, T b) {
  return b != 0 ? a % b : 0;
}
