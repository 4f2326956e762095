#pragma once
// mma_f16(acc, a, b) and its kin for bf16, f32, e4m3, e5m2, i8 and u8: one tensor-core product of
// the warp, acc += A x B. PTX ISA "mma.m16n8k16" (k8 of f32, k32 of 8-bit types), sm_80 on, fp8
// sm_89 on. Fragments in words of 32 bits, E elements each, with g = lane / 4 and t = lane % 4:
//
//   A 16x8E      columns Et..   E(t+4)..        B 8Ex8         column g
//   row g            a[0]         a[2]          rows Et..        b[0]
//   row g + 8        a[1]         a[3]          rows E(t+4)..    b[1]
//
//   acc[0..1]: row g, columns 2t,2t+1;  acc[2..3]: row g + 8
//
// mma_f32 rounds its operands to TF32, to nearest, ties away from zero: the tensor core would cut
// them off. What is rounded twice the compiler rounds once. mma_tf32 has rounded operands.
__device__ inline unsigned round_tf32(unsigned v) {
  asm("cvt.rna.tf32.f32 %0, %0;" : "+r"(v));
  return v;
}
template <class T>
__device__ inline void mma_f16(float* acc, const T* a, const T* b) {
  const unsigned* x = reinterpret_cast<const unsigned*>(a);
  const unsigned* y = reinterpret_cast<const unsigned*>(b);
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}
template <class T>
__device__ inline void mma_bf16(float* acc, const T* a, const T* b) {
  const unsigned* x = reinterpret_cast<const unsigned*>(a);
  const unsigned* y = reinterpret_cast<const unsigned*>(b);
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}
__device__ inline void mma_tf32(float* acc, const unsigned* x, const unsigned* y) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}
template <class T>
__device__ inline void mma_f32(float* acc, const T* a, const T* b) {
  const unsigned* x = reinterpret_cast<const unsigned*>(a);
  const unsigned* y = reinterpret_cast<const unsigned*>(b);
  const unsigned left[] = {round_tf32(x[0]), round_tf32(x[1]), round_tf32(x[2]), round_tf32(x[3])};
  const unsigned right[] = {round_tf32(y[0]), round_tf32(y[1])};
  mma_tf32(acc, left, right);
}
template <class T>
__device__ inline void mma_i8(int* acc, const T* a, const T* b) {
  const unsigned* x = reinterpret_cast<const unsigned*>(a);
  const unsigned* y = reinterpret_cast<const unsigned*>(b);
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(acc[0]), "+r"(acc[1]), "+r"(acc[2]), "+r"(acc[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}
template <class T>
__device__ inline void mma_u8(int* acc, const T* a, const T* b) {
  const unsigned* x = reinterpret_cast<const unsigned*>(a);
  const unsigned* y = reinterpret_cast<const unsigned*>(b);
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(acc[0]), "+r"(acc[1]), "+r"(acc[2]), "+r"(acc[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}
#if __CUDA_ARCH__ >= 890
template <class T>
__device__ inline void mma_e4m3(float* acc, const T* a, const T* b) {
  const unsigned* x = reinterpret_cast<const unsigned*>(a);
  const unsigned* y = reinterpret_cast<const unsigned*>(b);
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}
template <class T>
__device__ inline void mma_e5m2(float* acc, const T* a, const T* b) {
  const unsigned* x = reinterpret_cast<const unsigned*>(a);
  const unsigned* y = reinterpret_cast<const unsigned*>(b);
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}
#endif
