#pragma once
// contract_tiles<C>: which tile of the result a turn of contract_sm90 makes, which part of the sum
// over k, and which taps of a filter reach it. The order of tiles decides what lies in L2 when it
// is asked for.

#include "codegen/cuda/device/contract/contract_shape_sm90.cuh"
#include "codegen/cuda/device/ptx/tma.cuh"

template <class C>
struct contract_tiles {
  struct place {
    int split, batch, left, right;  // of the parts of a result by split-K, or its phase
    int first_step, steps;
    int worker, first_of_worker;  // contract_stream_sm90: whose steps, the first one of all tiles'
  };

  // The taps of a place along the three dims: how many, the offset of the first, and where it
  // stands in the filter, from which the others follow in equal steps.
  struct taps {
    int w, h, d;
    tap_offset first;
    int filter;
  };
  struct phase_taps {
    int count, offset, filter;
  };
  static __device__ inline phase_taps taps_of_phase(int phase, const divisor& phases, int pad,
                                                    int dilation, int size, const divisor& period,
                                                    int bias, int low, int unit) {
    const int from = phase + pad + bias;
#pragma unroll 1
    for (int r = size - 1; r >= 0 && r >= size - period.value; --r) {
      const int n = from - r * dilation, quotient = n / phases, turns = r / period;
      if (n == quotient * phases.value)
        return {turns + 1, quotient - bias / phases - low, -r * unit};
    }
    return {0, 0, 0};
  }
  static __device__ inline taps taps_of(const contract_shape& s, int phase) {
    if constexpr (!C::kPhased)
      return {s.taps_w.value, s.taps_h.value, s.taps_d.value, {}, s.filter_first};
    const int row = phase / s.phases_w, plane = row / s.phases_h;
    const phase_taps w =
        taps_of_phase(phase - row * s.phases_w.value, s.phases_w, s.pad_w, s.dilation_w, s.size_w,
                      s.period_w, s.bias_w, s.low_w, s.unit_w);
    const phase_taps h =
        taps_of_phase(row - plane * s.phases_h.value, s.phases_h, s.pad_h, s.dilation_h, s.size_h,
                      s.period_h, s.bias_h, s.low_h, s.unit_h);
    phase_taps d = {1, 0, 0};
    if constexpr (C::kSpatial == 3)
      d = taps_of_phase(plane, s.phases_d, s.pad_d, s.dilation_d, s.size_d, s.period_d, s.bias_d,
                        s.low_d, s.unit_d);
    return {w.count,
            h.count,
            d.count,
            {w.offset, h.offset, d.offset},
            s.filter_first + w.filter + h.filter + d.filter};
  }
  struct batch_place {
    int outer, inner;
  };
  static __device__ inline batch_place batch_of(const contract_shape& s, const place& p) {
    if constexpr (!C::kBatched) return {0, 0};
    const int outer = p.batch / s.inner_batches;
    return {outer, p.batch - outer * s.inner_batches};
  }

  // Workers have a number of steps, the first ones one more.
  static __device__ inline int first_step_of(const contract_shape& s, int worker) {
    return worker * s.worker_steps + min(worker, s.longer_workers);
  }

  static __device__ inline int tiles_of(const contract_shape& s) {
    if constexpr (C::kStream) return s.workers.value * s.worker_tiles;
    int tiles = s.left_tiles * s.right_tiles * s.batches;
    if constexpr (C::kSplit) tiles *= s.slices;
    if constexpr (C::kPhased) tiles *= s.phases.value;
    return tiles;
  }

  static __device__ inline place place_of(const contract_shape& s, int tile, int rank) {
    place p = {};
    p.steps = s.k_steps;
    if constexpr (C::kStream) {
      // From the worker's last tile to its first; no steps are left for what comes then.
      const int turn = tile / s.workers;
      p.worker = tile - turn * s.workers.value;
      p.first_of_worker = first_step_of(s, p.worker);
      const int end = first_step_of(s, p.worker + 1);
      tile = (end - 1) / s.tile_steps - turn;
      const int first = tile * s.k_steps;
      p.first_step = max(p.first_of_worker - first, 0);
      p.steps = max(min(end - first, s.k_steps) - p.first_step, 0);
    }
    if constexpr (C::kPhased) {
      // Neighbours make the phases of one region, which read the same pixels. Phases have more or
      // fewer taps: they change places from turn to turn, so that every cluster gets some of each.
      const int region = tile / s.phases;
      p.split = (tile - region * s.phases.value + region / s.turn) % s.phases;
      tile = region;
      const taps t = taps_of(s, p.split);
      p.steps = t.w * t.h * t.d * s.tap_steps;
    }
    int part = 0;  // of the sum over k
    if constexpr (C::kSplit) {
      // Neighbours make one part of neighbouring tiles: they ask for the same boxes at one time,
      // and the L2 is asked once.
      p.split = tile / s.whole_tiles;
      tile -= p.split * s.whole_tiles.value;
      part = p.split * C::kSplitCluster + (C::kSplitCluster > 1 ? rank : 0);
    }
    if constexpr (C::kBatched) {
      p.batch = tile / s.batch_tiles;
      tile -= p.batch * s.batch_tiles.value;
    }
    const int band = tile / s.band_tiles, in_band = tile - band * s.band_tiles.value;
    const divisor& rows = band == s.last_band ? s.last_raster : s.raster;
    const int column = in_band / rows;
    const int neighbour = C::kCluster > 1 ? rank : 0;
    const int row = band * s.raster.value + in_band - column * rows.value;
    p.left = (row * C::kCluster + neighbour) * C::kTileLeft;
    p.right = column * C::kTileRight;
    if constexpr (C::kSplit) {
      // Parts take steps in turns: blocks that run at the same time read what lies together.
      p.first_step = part;
      p.steps = (s.k_steps - part + s.splits - 1) / s.splits;
    }
    return p;
  }
};
