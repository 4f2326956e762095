#pragma once
// The producer's group of attention_grad_sm90: the warp that asks for blocks, those that read what
// rows have, and those that wait for turns, or make zeroes (attention_grad_producers).

#include "codegen/cuda/device/attention/attention_grad_layout_sm90.cuh"
#include "codegen/cuda/device/attention/attention_grad_tiles.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"
#include "codegen/cuda/device/ptx/tma.cuh"

// Loads blocks by maps of whole tensors. `more` are bytes that are to come beside a block.
template <class C>
struct attention_grad_by_maps {
  using of = attention_grad_layout<C>;
  using place = typename of::place;
  const tensor_map &q, &k, &v, &dy;

  template <int rows, int panels>
  static __device__ inline void load(unsigned to, const tensor_map& map, unsigned full, int more,
                                     int row, int inner, int outer) {
    if (threadIdx.x % 32 != 0) return;
    mbarrier_expect(full, rows * panels * 128 + more);
#pragma unroll
    for (int c = 0; c < panels; ++c)
      tma_load(to + c * rows * 128, map, full, c * 64, row, inner, outer);
  }
  __device__ inline void find(const attention_grad_shape&, const place&) {}
  __device__ inline void find_step(const attention_grad_shape&, int, int) {}
  __device__ inline void keys(unsigned to, unsigned full, const attention_grad_shape& s,
                              const place& p) const {
    load<of::kKeys, of::kRowPanels>(to, k, full, 0, p.key, p.inner / s.key_pairs, p.outer);
  }
  __device__ inline void values(unsigned to, unsigned full, const attention_grad_shape& s,
                                const place& p) const {
    load<of::kKeys, of::kWidthPanels>(to, v, full, 0, p.key, p.inner / s.value_pairs, p.outer);
  }
  // Loads queries of head `inner` of q in image `outer`; the last argument is the same head's
  // number among all.
  __device__ inline void queries(unsigned to, unsigned full, int more, const attention_grad_shape&,
                                 int row, int inner, int outer, int) const {
    load<C::kQueries, of::kRowPanels>(to, q, full, more, row, inner, outer);
  }
  __device__ inline void grads(unsigned to, unsigned full, const attention_grad_shape&, int row,
                               int inner, int outer, int) const {
    load<C::kQueries, of::kWidthPanels>(to, dy, full, 0, row, inner, outer);
  }
};

template <class C>
struct attention_grad_producers : attention_grad_layout<C> {
  using of = attention_grad_layout<C>;
  using typename of::barriers, typename of::of_bias, typename of::place, typename of::ring;
  using typename of::rows, typename of::tiles, typename of::turn;
  template <class Limits>
  using steps = typename of::template steps<Limits>;
  using of::kBesideAt, of::kBesideBytes, of::kGradsAt, of::kInfosAt, of::kKeys, of::kLargeAt;
  using of::kDead, of::kFlags, of::kInside, of::kLast, of::kPart, of::kSteps, of::kUnseen;
  using of::kQueriesAt, of::kQueryBytes, of::kRowBytes, of::kRowWarps, of::kRowsAt, of::kStages;
  using of::kValuesAt, of::load_shared, of::store_shared;

  // All lanes of a warp run it.
  template <class Loads, class F>
  static __device__ inline void produce(Loads loads, const tensor_map& beside, int* turns,
                                        const attention_grad_shape& s, const F& f, unsigned memory,
                                        const barriers& b) {
    const int count = s.batches * s.key_tiles;
    const bool leads = threadIdx.x % 32 == 0;
    const auto take = [&] { return __shfl_sync(~0u, leads ? atomicAdd(turns, 1) : 0, 0); };
    ring at;
#pragma unroll 1
    for (unsigned phase = 1;; phase ^= 1) {
      const int tile = take();
      mbarrier_wait(b.next_empty(), phase);
      if (leads) {
        store_shared(b.next(), tile < count ? tile : -1);
        mbarrier_arrive(b.next_full());
      }
      if (tile >= count) {
        mbarrier_wait(b.key_empty(), phase);
        if (leads) {
          store_shared(b.tile(), -1);
          mbarrier_arrive(b.key_full());
        }
        return;
      }
      const place p = tiles::place_of(s, tile);
      loads.find(s, p);
      steps<decltype(f.limits)> step(s, f.limits, p);
      bool more = step.next();
      const attention_grad_keys seen = attention_grad_seen(s, f.limits, p.head);
      const bool unseen = seen.first > p.key || seen.end < min(p.key + kKeys, s.keys);
      mbarrier_wait(b.key_empty(), phase);
      if (leads) {
        store_shared(b.tile(), tile);
        store_shared(b.tile() + 4, (more ? kSteps : 0) | (unseen ? kUnseen : 0));
        store_shared(b.tile() + 8, p.key);
      }
      loads.keys(memory, b.key_full(), s, p);
      bool has_values = false;
      const auto values = [&] {
        if (has_values) return;
        has_values = true;
        mbarrier_wait(b.value_empty(), phase);
        loads.values(memory + kValuesAt, b.value_full(), s, p);
      };
#pragma unroll 1
      for (; more; more = step.next()) {
        const int row = step.row;
        const int heads = s.inner * (C::kParts ? s.parts : 1) * s.group;
        const int inner = step.batch - p.outer * heads;
        loads.find_step(s, step.batch, row);
        mbarrier_wait(b.query_empty(at.stage), at.phase ^ 1);
        loads.queries(memory + kQueriesAt + at.stage * kQueryBytes, b.query_full(at.stage),
                      kBesideBytes, s, row, inner, p.outer, step.batch);
        if constexpr (C::kBeside != 0) {
          if (leads) {
#pragma unroll
            for (int g = 0; g < kKeys / 64; ++g)
              tma_load(memory + kBesideAt + at.stage * kBesideBytes + g * (C::kQueries * 128),
                       beside, b.query_full(at.stage), p.key + g * 64, row,
                       C::kBesideHeads ? inner : 0, C::kBesideImages ? p.outer : 0);
          }
        }
        values();
        mbarrier_wait(b.grad_empty(at.stage), at.phase ^ 1);
        loads.grads(memory + kGradsAt + at.stage * kQueryBytes, b.grad_full(at.stage), s, row,
                    inner, p.outer, step.batch);
        at.advance();
      }
      values();
    }
  }

  // Calls of_tile(place) for each tile, as soon as the producer has its number.
  template <class F>
  static __device__ inline void each_tile(const attention_grad_shape& s, const barriers& b,
                                          const F& of_tile) {
#pragma unroll 1
    for (unsigned phase = 0;; phase ^= 1) {
      mbarrier_wait(b.next_full(), phase);
      const int tile = load_shared(b.next());
      __syncwarp();
      if (tile < 0) return;
      if (threadIdx.x % 32 == 0) mbarrier_arrive(b.next_empty());
      of_tile(tiles::place_of(s, tile));
    }
  }

  template <class F>
  static __device__ inline void produce_rows(const attention_grad_shape& s, const F& f,
                                             unsigned memory, const barriers& b) {
    const unsigned lane = threadIdx.x % 32;
    const int first = (threadIdx.x % 128 / 32 - 1) * 64 + lane;  // row of a block
    ring at;
    each_tile(s, b, [&](const place& p) {
      steps<decltype(f.limits)> step(s, f.limits, p);
      bool more = step.next();
#pragma unroll 1
      while (more) {
        // Read before the wait: memory is far.
        float values[2][2];
#pragma unroll
        for (int i = 0; i < 2; ++i)
          rows::read_row(f, s, step.batch, step.row + first + i * 32, values[i]);
        const int row = step.row, batch = step.batch;
        // Every lane has two rows.
        bool is_dead = false;
#pragma unroll
        for (int i = 0; i < 2; ++i)
          is_dead =
              is_dead || (row + first + i * 32 < s.queries && values[i][0] == rows::infinity());
        const bool large_first = rows::any_large(values[0][0]);
        const bool is_large = rows::any_large(values[1][0]) || large_first;
        int what = (batch * s.query_tiles + row / C::kQueries) * kFlags;
        if (step.inside) what |= kInside;
        if (row + C::kQueries > s.queries) what |= kPart;
        // The sums of a bias get their block, and whether nobody has added to it.
        int bias_block = 0;
        if constexpr (C::kBias) {
          bias_block = of_bias::block(s, p, batch, row) * 2;
          if constexpr (of_bias::kInOrder)
            bias_block += of_bias::before(s, p, step) == 0 ? 1 : 0;
          else if constexpr (of_bias::kFirstStores)
            bias_block += 1;
        }
        const bool any_dead = __any_sync(~0u, is_dead);
        if (any_dead) what |= kDead;
        more = step.next();
        if (!more) what |= kLast;
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (!is_large) values[i][0] *= rows::kLog2e;
        mbarrier_wait(b.query_empty(at.stage), at.phase ^ 1);
        const unsigned to = memory + kRowsAt + at.stage * kRowBytes + first * 4;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          store_shared(to + i * 128, values[i][0]);
          store_shared(to + kStages * kRowBytes + i * 128, values[i][1]);
        }
        const unsigned info = memory + kInfosAt + at.stage * 16;
        if (first == 0) {
          store_shared(info, what);
          store_shared(info + 4, row);
          store_shared(info + 8, batch);
          if constexpr (C::kBias) store_shared(info + 12, bias_block);
        }
        if (kRowWarps > 1 && first == 64) store_shared(info + 12, what & kDead);
        if (lane == 0)
          store_shared(memory + kLargeAt + (at.stage * kRowWarps + first / 64) * 4,
                       is_large ? 1 : 0);
        __syncwarp();
        if (lane == 0) mbarrier_arrive(b.query_full(at.stage));
        at.advance();
      }
    });
  }

  // Waits for the turn of each step, lets the groups add, and passes the turn on, so that waiting
  // for memory is not on the way of a product. Two warps share this where there are two, so that
  // one waits for the next turn while the other's release waits for what was added.
  template <bool waits, bool passes, class F>
  static __device__ inline void take_turns(const attention_grad_shape& s, const F& f, int* turns,
                                           const barriers& b) {
    const bool leads = threadIdx.x % 32 == 0;
    unsigned phase = 0;
    if (!waits && leads) {  // nothing is added before the first step
      mbarrier_arrive(b.turn());
      if constexpr (of_bias::kInOrder) mbarrier_arrive(b.bias_turn());
    }
    each_tile(s, b, [&](const place& p) {
      steps<decltype(f.limits)> step(s, f.limits, p);
#pragma unroll 1
      for (; step.next(); phase ^= 1) {
        int* own = turns + 1 + step.batch * s.query_tiles + step.row / C::kQueries;
        int* bias = turns + 1 + s.batches * s.group * s.query_tiles;
        if constexpr (of_bias::kInOrder) bias += of_bias::block(s, p, step.batch, step.row);
        if constexpr (of_bias::kInOrder && waits) {
          const int before = of_bias::before(s, p, step);
          if (leads) {
            turn::wait_turn(bias, before);
            mbarrier_arrive(b.bias_turn());
          }
          __syncwarp();
        }
        if constexpr (of_bias::kInOrder && passes) {
          mbarrier_wait(b.bias_added(), phase);
          if (leads) {
            if (!waits) mbarrier_arrive(b.bias_turn());
            turn::pass_turn(bias);
          }
        }
        if constexpr (waits) {
          if (leads) {
            turn::wait_turn(own, step.last_tile - p.index);
            mbarrier_arrive(b.turn());
          }
          __syncwarp();
          if (!passes) mbarrier_wait(b.turn(), phase);
        }
        if constexpr (passes) {
          mbarrier_wait(b.added(), phase);
          if (leads) {
            if (!waits) mbarrier_arrive(b.turn());
            turn::pass_turn(own);
          }
        }
      }
    });
  }

  // Zeroes a tile's sums. Consumers are told only when they are done with the tile before, so that
  // they miss no phase.
  static __device__ inline void zero(const attention_grad_shape& s, float* sums, int* turns,
                                     const barriers& b) {
    using zeroes = attention_grad_zeroes<C::kQueries, C::kDepth, place>;
    unsigned phase = 1;
    each_tile(s, b, [&](const place& p) {
      zeroes::zero_ahead(s, p, sums, turns);
      if (threadIdx.x % 32 == 0) {
        zeroes::wait(s, p, turns);
        mbarrier_wait(b.key_empty(), phase);
        mbarrier_arrive(b.added());
      }
      phase ^= 1;
      __syncwarp();
    });
  }
};
