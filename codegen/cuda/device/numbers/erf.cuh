#pragma once
// erf as x * P(x^2) / Q(x^2) on |x| <= 3.92, beyond which it rounds to +-1: a minimax fit of the
// relative error (2e-8), within 8 ulp in f32. erff is within 2, but selects among coefficients,
// which makes gelu of 16-bit tensors arithmetic-bound. A NaN stays NaN. PTX ISA "rcp": q is at
// least 1, so that flushing denormals changes nothing.
__device__ inline float erf_rational(float x) {
#if __CUDA_ARCH__ >= 800
  float t;
  asm("max.NaN.f32 %0, %1, 0fC07AE148;" : "=f"(t) : "f"(x));
  asm("min.NaN.f32 %0, %0, 0f407AE148;" : "+f"(t));
#else
  const float t = fabsf(x) > 3.92f ? copysignf(3.92f, x) : x;
#endif
  const float s = t * t;
  float p = 0x1.13278cp-19f;
  p = fmaf(p, s, 0x1.2ab87cp-12f);
  p = fmaf(p, s, 0x1.ed9260p-9f);
  p = fmaf(p, s, 0x1.b01e50p-5f);
  p = fmaf(p, s, 0x1.85f45ep-3f);
  p = fmaf(p, s, 0x1.20dd74p+0f);
  float q = 0x1.3f88b0p-15f;
  q = fmaf(q, s, 0x1.30c0e0p-10f);
  q = fmaf(q, s, 0x1.ea8380p-7f);
  q = fmaf(q, s, 0x1.d3647ep-4f);
  q = fmaf(q, s, 0x1.01103cp-1f);
  q = fmaf(q, s, 1.f);
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(q));
  return t * p * r;
}
