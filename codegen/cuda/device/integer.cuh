#pragma once
// Division by numbers that are not constants: of zero it is zero; fast_div takes a divisor's
// multiplier and shift, which the host computes, and 0 <= n < 2^31.
template <class T>
__device__ inline T div_or_zero(T a, T b) { return b != 0 ? a / b : 0; }
template <class T>
__device__ inline T mod_or_zero(T a, T b) { return b != 0 ? a % b : 0; }
__device__ inline int fast_div(int n, int mul, int shift) {
  return int((unsigned long long)(unsigned(n)) * unsigned(mul) >> shift);
}
