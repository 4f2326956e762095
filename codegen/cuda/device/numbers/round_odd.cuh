#pragma once
// A double as a float, inexact results rounded to the neighbour with an odd last bit: rounding once
// more to a narrower type is then the same as rounding the double at once.
__device__ inline float round_odd(double v) {
  const float f = __double2float_rz(v);
  return double(f) == v ? f : __uint_as_float(__float_as_uint(f) | 1);
}
