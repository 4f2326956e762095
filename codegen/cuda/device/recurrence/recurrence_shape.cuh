#pragma once
// recurrence_shape: the numbers of a layer that the skeletons of persistent recurrences
// (recurrence_sm80.cuh, recurrence_projected_sm80.cuh) are told.
struct recurrence_shape {
  int steps, batch, units;
  int depth, pitch;                 // of a row of the exchange: that is used, elements in memory
  int parts, groups, first_groups;  // groups: of all sequences; first_groups: that run at a time
  int directions;
  float clip_low = 0, clip_high = 0;
};
// And of what its units are projected to.
struct recurrence_projected_shape : recurrence_shape {
  int projected_units, projected_depth, projected_pitch;
};
// (n + 1) % 2: the copy of two that round n of a loop leaves to the next one. NVVM makes (n + 1) %
// 2 and 1 - n % 2 a complement and a mask, and where a branch has shown that n is 0, ptxas of CUDA
// 12.8 and 13.0 takes 0 for the complement of 0.
__device__ inline int next_copy(int n) {
  int copy;
  asm("xor.b32 %0, %1, 1;" : "=r"(copy) : "r"(n % 2));
  return copy;
}
