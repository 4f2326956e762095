#pragma once
// half_t: IEEE binary16 as storage. PTX ISA "cvt"; f32 to f16 rounds to nearest even.
struct half_t {
  unsigned short bits;
  half_t() = default;
  __device__ explicit half_t(float v) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v)); }
  __device__ explicit operator float() const {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
    return v;
  }
};
