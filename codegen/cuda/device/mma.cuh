#pragma once
// mma_f16(acc, a, b), mma_bf16(acc, a, b): one tensor-core product of the warp, acc += A x B, sm_80
// on. PTX ISA "mma.m16n8k16". Fragments, with g = lane / 4 and t = lane % 4:
//
//   A 16x16      columns 2t,2t+1   2t+8,2t+9        B 16x8         column g
//   row g            a[0..1]         a[4..5]        rows 2t,2t+1     b[0..1]
//   row g + 8        a[2..3]         a[6..7]        rows 2t+8,2t+9   b[2..3]
//
//   acc[0..1]: row g, columns 2t,2t+1;  acc[2..3]: row g + 8
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
