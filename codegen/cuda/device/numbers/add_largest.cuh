#pragma once
// add_largest(to, x): `to`, in memory, becomes the largest of itself and the x of a warp. These are
// absolute values, or -infinity for none, and no NaN: as integers they are in the same order, so
// that blocks may come in any. add_largest_of<Config>(to, x, shape): the same as the whole of a
// call from tile IR.
__device__ inline void add_largest(float* to, float x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
  if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<int*>(to), __float_as_int(x));
}

struct add_largest_shape {};
template <class C>
__device__ inline void add_largest_of(float* to, const float* x, const add_largest_shape&) {
  add_largest(to, x[0]);
}
