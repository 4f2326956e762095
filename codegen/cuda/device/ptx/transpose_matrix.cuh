#pragma once
// transpose_matrix(word): an 8x8 matrix of 16-bit elements, of which lane 4g + t has row g, columns
// 2t and 2t + 1, transposed: column g, rows 2t and 2t + 1. All lanes of the warp take part. PTX ISA
// "movmatrix", sm_75 on.
__device__ inline unsigned transpose_matrix(unsigned word) {
  unsigned transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(word));
  return transposed;
}
