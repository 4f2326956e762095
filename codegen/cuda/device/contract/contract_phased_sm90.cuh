#pragma once
// contract_phased_sm90<Config>(left, right, out…, shape, rows, apply[, store]), or
// contract_phased_sm90<Config>(left, right, shape, store): contract_sm90 for a dgrad by phases.
//
// By tensor map: the places of a phase are pixels of a map of its own, which a store walks as loads
// of pixels do: a box of consecutive places goes where they belong, over the ends of rows. One that
// starts behind the last image is left out.
//
// kFills: phases without taps, of which a filter of one tap and a stride of 2 have three of four,
// get what `store` makes of sums of nothing, from warps of the producer that load nothing:
//
//   producer   warp 0     TMA of tile 0 | of tile 4 | …      counts its steps
//              warps 1-3  store of tiles 1, 2, 3 | 5, 6, 7   no more than their share of these
//   consumers             products and stores of tiles 0 | 4 | …
//
// No product waits for such a store. It waits for its share of steps, lest all stores take the
// memory at once and leave products the time after: a precaution, not timed without.

#include "codegen/cuda/device/contract/contract_shape_sm90.cuh"
#include "codegen/cuda/device/contract/contract_sm90.cuh"
#include "codegen/cuda/device/ptx/tma.cuh"

using contract_phased_shape = contract_shape;

template <class C, int phases>
struct send_phase {
  const tensor_map* maps[phases];
  __device__ inline void operator()(const contract_shape& s, const typename contract<C>::place& p,
                                    unsigned from, int left, int right) const {
    const tensor_map* map = maps[0];
#pragma unroll
    for (int f = 1; f < phases; ++f)
      if (p.split == f) map = maps[f];
    pixel_place at = {};
    const int row = right / s.places_w, plane = row / s.places_h;
    at.w = right - row * s.places_w.value;
    at.h = row - plane * s.places_h.value;
    at.n = plane;
    if constexpr (C::kSpatial == 3) {
      at.n = plane / s.places_d;
      at.d = plane - at.n * s.places_d.value;
    }
    if (at.n < s.images) tma_store_pixels<C::kSpatial>(*map, from, left, at);
  }
};

// An output that fills the tiles without taps as well, by 96 threads. `steps` counts those of the
// block's producer.
template <class C, class Output, class Store>
struct filled_output : Output {
  const Store& store;

  static __device__ inline void wait_for(int* steps, int due, unsigned lane) {
    if (lane == 0)
      while (atomicAdd(steps, 0) < due) __nanosleep(100);
    __syncwarp();
  }

  __device__ inline void fill(const contract_shape& s, int first, int tiles, int step,
                              unsigned rank, int* steps, unsigned thread) const {
    constexpr int kLanes = 4;  // of a column: what depends on it alone is computed once
    constexpr int kColumnsAtOnce = 96 / kLanes;
    const int lane = static_cast<int>(thread % kLanes) * 8;
    const typename C::accumulator none[8] = {};
    int due = 0;
#pragma unroll 1
    for (int tile = first; tile < tiles; tile += step) {
      const typename contract<C>::place p = contract<C>::place_of(s, tile, rank);
      if (p.steps > 0) continue;
#pragma unroll 1
      for (int column = thread / kLanes; column < C::kTileRight; column += kColumnsAtOnce) {
        // A warp has 8 columns, for which it waits together.
        wait_for(steps, due + column / 8 * 8 * s.fill_steps / C::kTileRight, thread % 32);
#pragma unroll
        for (int left = 0; left < C::kTileLeft; left += kLanes * 8)
          store(none, p.batch, p.split, p.left + left + lane, p.right + column);
      }
      due += s.fill_steps;
    }
  }
};
template <class C, class Output>
__device__ inline Output filled(const Output& output) {
  return output;
}
template <class C, class Output, class Store>
__device__ inline filled_output<C, Output, Store> filled(const Output& output, const Store& store) {
  return {output, store};
}

template <class C, int phases, class Rows, class Apply, class... Store>
__device__ inline void contract_phases(const tensor_map& left, const tensor_map& right,
                                       const send_phase<C, phases>& send,
                                       const contract_shape& shape, const Rows& rows,
                                       const Apply& apply, const Store&... store) {
  using output = typename contract<C>::template direct_output<send_phase<C, phases>, Rows, Apply>;
  contract<C>::run(left, right, shape, filled<C>(output{send, rows, apply}, store...));
}

template <class C, class Rows, class Apply, class... Store>
__device__ inline void contract_phased_sm90(const tensor_map& left, const tensor_map& right,
                                            const tensor_map& a, const tensor_map& b,
                                            const contract_shape& shape, const Rows& rows,
                                            const Apply& apply, const Store&... store) {
  contract_phases<C, 2>(left, right, {{&a, &b}}, shape, rows, apply, store...);
}

template <class C, class Rows, class Apply, class... Store>
__device__ inline void contract_phased_sm90(const tensor_map& left, const tensor_map& right,
                                            const tensor_map& a, const tensor_map& b,
                                            const tensor_map& c, const tensor_map& d,
                                            const contract_shape& shape, const Rows& rows,
                                            const Apply& apply, const Store&... store) {
  contract_phases<C, 4>(left, right, {{&a, &b, &c, &d}}, shape, rows, apply, store...);
}

template <class C, class Rows, class Apply, class... Store>
__device__ inline void contract_phased_sm90(const tensor_map& left, const tensor_map& right,
                                            const tensor_map& a, const tensor_map& b,
                                            const tensor_map& c, const tensor_map& d,
                                            const tensor_map& e, const tensor_map& f,
                                            const tensor_map& g, const tensor_map& h,
                                            const contract_shape& shape, const Rows& rows,
                                            const Apply& apply, const Store&... store) {
  contract_phases<C, 8>(left, right, {{&a, &b, &c, &d, &e, &f, &g, &h}}, shape, rows, apply,
                        store...);
}

template <class C, class Store>
__device__ inline void contract_phased_sm90(const tensor_map& left, const tensor_map& right,
                                            const contract_shape& shape, const Store& store) {
  using output = typename contract<C>::template staged_output<Store>;
  contract<C>::run(left, right, shape, filled<C>(output{store}, store));
}
