#pragma once
// 1 / x in f32, within two ulp, with infinities, zeroes, denormals and NaN as IEEE 754 has them. No
// branch, unlike 1.f / x: what a thread computes for one value overlaps with the next, which an
// epilogue with few warps lives on. PTX ISA "rcp": the approximation is within an ulp where neither
// x nor it is denormal, so that x is scaled.
__device__ inline float one_over(float x) {
  const float scale = fabsf(x) < 1.f ? 0x1p64f : 0x1p-64f;
#if __CUDA_ARCH__ >= 800
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x * scale));
#else
  const float r = 1.f / (x * scale);
#endif
  return r * scale;
}
