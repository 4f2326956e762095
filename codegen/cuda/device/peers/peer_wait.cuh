#pragma once
// peer_wait<Config>(fault, flag, is_set, shape): one thread waits until the flag has the value.
// is_set is 1 then, or 0 after the limit, which `fault` says as well. The kernels behind it read
// what was written before the flag.

#include "codegen/cuda/device/peers/peer_words.cuh"

template <class C, class T>
__device__ inline void peer_wait(int* fault, T* flag, int* is_set, const peer_shape& s) {
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  peer_clock clock{fault, s.limit};
  bool has_value;
  do has_value = peer_load(flag) == (T)s.value;
  while (!has_value && !clock.is_over());
  if (!has_value) peer_store(fault, C::kSignalFault);
  is_set[0] = has_value ? 1 : 0;
}
