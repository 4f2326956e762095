#pragma once
// recurrence_shape: the numbers of a layer that the skeletons of persistent recurrences
// (recurrence_sm80.cuh, recurrence_projected_sm80.cuh) are told.
struct recurrence_shape {
#define NUMBER(name) int name;
#define FLOAT(name, value) float name = value;
#include "codegen/cuda/device/recurrence/recurrence.def"
};
// And of what its units are projected to.
struct recurrence_projected_shape : recurrence_shape {
#define PROJECTED_NUMBER(name) int name;
#include "codegen/cuda/device/recurrence/recurrence.def"
};
// (n + 1) % 2: the copy of two that round n of a loop leaves to the next one. NVVM makes (n + 1) %
// 2 and 1 - n % 2 a complement and a mask, and where a branch has shown that n is 0, ptxas of CUDA
// 12.8 and 13.0 takes 0 for the complement of 0.
__device__ inline int next_copy(int n) {
  int copy;
  asm("xor.b32 %0, %1, 1;" : "=r"(copy) : "r"(n % 2));
  return copy;
}
