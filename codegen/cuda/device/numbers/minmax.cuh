#pragma once
// Minimum and maximum that keep a NaN, where fmin and fmax drop it. PTX ISA "min.NaN", "max.NaN",
// sm_80 on.
__device__ inline double min_nan(double a, double b) {
  return a != a ? a : b != b ? b : fmin(a, b);
}
__device__ inline double max_nan(double a, double b) {
  return a != a ? a : b != b ? b : fmax(a, b);
}
__device__ inline float min_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(a), "f"(b));
  return a;
#else
  return a != a ? a : b != b ? b : fminf(a, b);
#endif
}
__device__ inline float max_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(a), "f"(b));
  return a;
#else
  return a != a ? a : b != b ? b : fmaxf(a, b);
#endif
}
