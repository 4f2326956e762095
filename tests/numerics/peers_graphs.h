// Batch norm over two ranks, forward and backward, of one part of the batch: graphs of the tests of
// peers. Buffers are p0 and p1.
#pragma once

#include "tests/support/oracle/peers_norm.h"

namespace kiln {

inline constexpr const char* kNormForward = R"(graph g {
  tensor %x uid=1 f32 [3,5,2,3] strides=[30,1,15,5]
  tensor %scale uid=2 f32 [1,5,1,1]
  tensor %bias uid=3 f32 [1,5,1,1]
  tensor %eps uid=4 f32 [1,1,1,1] by_value value=0.001
  tensor %f uid=5 f32 [1,1,1,1] by_value value=0.25
  tensor %rm uid=6 f32 [1,5,1,1]
  tensor %rv uid=7 f32 [1,5,1,1]
  tensor %p0 uid=8 f32 [2,20,1,1]
  tensor %p1 uid=9 f32 [2,20,1,1]
  tensor %y uid=10 f32 [3,5,2,3] strides=[30,1,15,5]
  tensor %m uid=11 f32 [1,5,1,1]
  tensor %i uid=12 f32 [1,5,1,1]
  tensor %nm uid=13 f32 [1,5,1,1]
  tensor %nv uid=14 f32 [1,5,1,1]
  %y, %m, %i, %nm, %nv = norm_forward(%x, _, _, %scale, %bias, %eps, %f, %rm, %rv, %p0, %p1) compute=f32 mode=batch
})";

inline constexpr const char* kNormBackward = R"(graph g {
  tensor %x uid=1 f32 [3,5,2,3] strides=[30,1,15,5]
  tensor %dy uid=2 f32 [3,5,2,3] strides=[30,1,15,5]
  tensor %m uid=3 f32 [1,5,1,1]
  tensor %i uid=4 f32 [1,5,1,1]
  tensor %scale uid=5 f32 [1,5,1,1]
  tensor %p0 uid=6 f32 [2,20,1,1]
  tensor %p1 uid=7 f32 [2,20,1,1]
  tensor %dx uid=8 f32 [3,5,2,3] strides=[30,1,15,5]
  tensor %dscale uid=9 f32 [1,5,1,1]
  tensor %dbias uid=10 f32 [1,5,1,1]
  %dx, %dscale, %dbias = norm_backward(%x, %dy, %m, %i, %scale, _, %p0, %p1) compute=f32 mode=batch
})";

// The part of a rank, whose elements are in row-major order.
inline constexpr oracle::NormExtents kNormExtents = {.batch = 3, .channels = 5, .places = 6};

}  // namespace kiln
