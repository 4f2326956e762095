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
  int left_tiles, right_tiles;  // of one batch; left ones counted in clusters
  int batches = 1, splits = 1;
  int slices = 1;       // parts of the sum over k that go through memory
  divisor whole_tiles;  // of the result: each slice has as many
  divisor batch_tiles;  // of one batch
  // Left tiles are walked in bands of `raster`, right advancing inside a band: L2 holds what they
  // read. The last band may have fewer.
  divisor band_tiles, raster, last_raster;
  int last_band;
  int k_steps, tap_steps = 1;  // blocks along k, in all and of one tap
  // contract_stream_sm90: who has the steps of all tiles, and how many; the first `longer_workers`
  // have one more. `tile_steps` is k_steps.
  divisor workers, tile_steps;
  int worker_steps, longer_workers, worker_tiles;
  // Batch (outer, inner) of an operand is that of the result divided by these.
  int inner_batches = 1;
  int left_outer = 1, left_inner = 1, right_outer = 1, right_inner = 1;
  // Pixels: extents of the places, place → coordinate is place * step + low.
  divisor places_w, places_h, places_d;
  int step_w = 1, step_h = 1, step_d = 1;
  int low_w = 0, low_h = 0, low_d = 0;
  int group_channels = 0;  // of the pixel operand, from group to group
  // Taps: counts, offset from one to the next, and their index in the filter.
  divisor taps_w = {1, 0, 0}, taps_h = {1, 0, 0}, taps_d = {1, 0, 0};
  int offset_w = 1, offset_h = 1, offset_d = 1;
  int filter_first = 0, filter_w = 1, filter_h = 0, filter_d = 0;
  divisor tap_panels;  // wgrad: panels of 64 channels of one tap
  // dgrad by phases: place i of phase f is i * phases + f in the result. Tap r of a filter of
  // `size` taps reaches the phase if f + pad - r * dilation is a multiple of the stride `phases`:
  // every period-th one. `bias` is a multiple of the stride that keeps this from being negative.
  divisor phases, phases_w, phases_h, phases_d;
  int images;
  divisor turn;  // regions that the clusters make at a time
  divisor period_w, period_h, period_d;
  int pad_w, pad_h, pad_d;
  int dilation_w, dilation_h, dilation_d;
  int size_w, size_h, size_d;
  int bias_w, bias_h, bias_d;
  int unit_w, unit_h, unit_d;  // filter index from tap r to r - 1
  int fill_steps;              // of a region's products for each of its phases without taps
};
