#pragma once
// pack_pair<is_bf16>(low, high): two f32 rounded to bf16 or f16, in one word; unpack_pair: back.
// PTX ISA "cvt", two at a time from sm_80 on.
template <bool is_bf16>
__device__ inline unsigned pack_pair(float low, float high) {
  unsigned packed;
  if constexpr (is_bf16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
template <bool is_bf16>
__device__ inline void unpack_pair(unsigned packed, float& low, float& high) {
  if constexpr (is_bf16) {
    low = __uint_as_float(packed << 16);
    high = __uint_as_float(packed & 0xffff0000);
  } else {
    asm("{ .reg .f16 a, b;\n"
        "mov.b32 {a, b}, %2;\n"
        "cvt.f32.f16 %0, a;\n"
        "cvt.f32.f16 %1, b; }"
        : "=f"(low), "=f"(high)
        : "r"(packed));
  }
}
