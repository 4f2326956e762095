#pragma once
// peer_signal<Config>(flag, shape): the flag gets its value. What kernels before it have written is
// seen by whoever sees the value: a store that releases carries all that happened before it.

#include "codegen/cuda/device/peers/peer_words.cuh"

template <class C, class T>
__device__ inline void peer_signal(T* flag, const peer_shape& s) {
  if (blockIdx.x == 0 && threadIdx.x == 0) peer_store(flag, (T)s.value);
}
