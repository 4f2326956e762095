#pragma once
// Bit k % 32 of n, 0 the lowest: elements of one bit in a byte.
__device__ inline bool bit(int n, int k) { return (unsigned(n) >> (k & 31) & 1u) != 0; }
