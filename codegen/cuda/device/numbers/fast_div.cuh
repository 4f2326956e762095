#pragma once
// n / d for 0 <= n < 2^31, by the multiplier and shift that the host computes for d.
__device__ inline int fast_div(int n, int mul, int shift) {
  return int((unsigned long long)(unsigned(n)) * unsigned(mul) >> shift);
}
