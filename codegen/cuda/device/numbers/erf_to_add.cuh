#pragma once
// erf for sums that a constant of at least its size is added to, rounded to 16 bits: within 6e-7 of
// it everywhere, where erf_rational keeps its relative error near 0, too. With t = 1 / (1 + p |x|),
//   erf(|x|) = 1 - exp(-x^2) t P(t)
// a minimax fit of the absolute error (1.3e-7), which needs neither clamps nor a second polynomial.
// Infinity gives 1, a NaN stays NaN.
__device__ inline float erf_to_add(float x) {
  const float u = x * 0x1.337cc2p+0f;  // exp(-x^2) is 2^(-u^2)
  const float d = fmaf(fabsf(u), 0x1.17a1bep-2f, 1.f);
#if __CUDA_ARCH__ >= 800
  float t, e;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(d));
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(-u * u));
#else
  const float t = 1.f / d, e = exp2f(-u * u);
#endif
  float p = 0x1.0c3a0cp+0f;
  p = fmaf(p, t, -0x1.6b9012p+0f);
  p = fmaf(p, t, 0x1.63d054p+0f);
  p = fmaf(p, t, -0x1.149b82p-2f);
  p = fmaf(p, t, 0x1.02b252p-2f);
  return copysignf(fmaf(-p * t, e, 1.f), x);
}
