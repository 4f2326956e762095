#pragma once
// The value of the lane whose number is this one's xor `mask`; all lanes of the warp take part.
template <class T>
__device__ inline T shuffle_xor(T v, int mask) {
  return __shfl_xor_sync(0xffffffff, v, mask);
}
