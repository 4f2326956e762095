#pragma once
// The numbers that contract_sm90 and its kin take from the launch.

#include "codegen/cuda/device/numbers/fast_div.cuh"

// A number that others are divided by, with the multiplier and shift that do it: a tile's place
// takes a dozen divisions, which would keep the producer of short tiles from the tensor cores.
struct divisor {
  int value, mul, shift;
};
__device__ inline int operator/(int n, const divisor& d) { return fast_div(n, d.mul, d.shift); }
__device__ inline int operator%(int n, const divisor& d) { return n - n / d * d.value; }

// The numbers of a launch of contract_sm90.
struct contract_shape {
#define INT(name, value) int name = value;
#define DIVISOR(name, value) divisor name = {value, 0, 0};
#define INTS(name, w, h, d) int name##_w = w, name##_h = h, name##_d = d;
#define DIVISORS(name, w, h, d) \
  divisor name##_w = {w, 0, 0}, name##_h = {h, 0, 0}, name##_d = {d, 0, 0};
#include "codegen/cuda/device/contract/contract_sm90.def"
};
