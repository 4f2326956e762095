#pragma once
// A consumer group of attention_grad_sm90 whose tiles have 64 keys, for rows of more than 128
// (attention_grad_wide): dk and dv of 128 keys would be more than all registers.
//
//     S', D'     64 keys x 32 queries of a block each: the groups share the queries
//     P', dS'    to 16 bits, by way of shared memory
//     dv or dk   64 keys x all columns: group 0 multiplies P' dy, group 1 dS' q, by the same text
//     dq         64 queries x half of the columns; of three panels one and a half, of four one
//                after the other, since registers are few
//
// Two places for P' and dS', which the results leave by, too: a group writes them while the other
// one still multiplies those of the step before.

#include "codegen/cuda/device/attention/attention_grad_consumer_sm90.cuh"
#include "codegen/cuda/device/attention/attention_grad_layout_sm90.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"
#include "codegen/cuda/device/ptx/tma.cuh"
#include "codegen/cuda/device/ptx/wgmma.cuh"

template <class C, class F, class Out>
struct attention_grad_wide : attention_grad_group<C, F, Out> {
  using base = attention_grad_group<C, F, Out>;
  using of = attention_grad_layout<C>;
  using base::at, base::b, base::f, base::group, base::leads, base::memory, base::out, base::part;
  using base::descriptor, base::grad_rows, base::keys_across, base::release, base::release_step;
  using base::s, base::slopes_across, base::staging_read, base::start, base::step_at;
  using base::store_part, base::take_bias_turn, base::thread, base::value_rows, base::zero_keys;
  using of::kColumns, of::kFlags, of::kGrads, of::kGradsAt, of::kInfosAt, of::kInside, of::kKeys;
  using of::kLast, of::kOwnQueries, of::kQueryBytes, of::kRowBytes, of::kSlopeBytes;
  using of::kSlopesAt, of::kSteps, of::kStages, of::kUnseen, of::kWeightsAt, of::kWidthPanels;
  using of::load_shared, of::opaque, of::pin;
  using typename base::place_in_step;
  using typename of::place, typename of::ring, typename of::rows, typename of::tiles;
  using typename of::turn;
  static_assert(C::kQueries == 64 && !Out::kFinishes);
  // Panels of k that a group has whole, one at a time, and half of the one in the middle.
  static constexpr int kWhole = C::kDepth / 128, kHalves = C::kDepth / 64 % 2;
  static_assert(kWhole == 1 || kHalves == 0);
  unsigned left_rows, right_across, halves_across;  // low halves of descriptors
  float result[kGrads];                             // dv of group 0, dk of group 1

  __device__ inline void store_pairs(unsigned panel_at, const unsigned* pairs) const {
    const unsigned key = thread / 32 * 16 + thread % 16;
    const unsigned to = memory + panel_at + at.stage * kSlopeBytes + key * 128;
#pragma unroll
    for (int i = 0; i < kOwnQueries / 16; ++i) {
      const unsigned chunk = group * (kOwnQueries / 8) + i * 2 + thread % 32 / 16;
      store_fragments(to + ((chunk ^ (key % 8)) << 4), pairs[4 * i], pairs[4 * i + 1],
                      pairs[4 * i + 2], pairs[4 * i + 3]);
    }
  }
  __device__ inline void multiply_result() {
    const unsigned left = left_rows + at.stage * (kSlopeBytes >> 4);
    const unsigned right = right_across + at.stage * (kQueryBytes >> 4);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < C::kQueries / 16; ++i)
      C::multiply_second(result, descriptor(left + i * 2), descriptor(right + i * 128), 1);
    wgmma_commit();
  }
  // Columns of one panel, and those of half of one.
  struct query_sums {
    float whole[32], half[kHalves ? 16 : 1];
  };
  __device__ inline void multiply_queries(query_sums& dq, int stage, int panel) {
    const unsigned left = slopes_across + stage * (kSlopeBytes >> 4);
    const unsigned right = keys_across + panel * (kKeys * 128 >> 4);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
      C::multiply_third(dq.whole, descriptor(left + i * 128), descriptor(right + i * 128), i != 0);
      if constexpr (kHalves != 0)
        C::multiply_fourth(dq.half, descriptor(left + i * 128), descriptor(halves_across + i * 128),
                           i != 0);
    }
    wgmma_commit();
  }
  // The second group's half of a panel comes before its whole one, of which dq may have a part.
  __device__ inline void add_queries(const query_sums& dq, int block, int panel) const {
    const int columns = C::kRows - static_cast<int>(group) * 128 - panel * 64;
    float* const to = base::sums_of(block) + panel * (8 * 512);
    float* const whole = to + (kHalves != 0 && group != 0 ? 4 * 512 : 0);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (C::kRows == C::kDepth || i * 8 < columns)
        turn::add_quad(whole + i * 512, dq.whole + 4 * i);
    if constexpr (kHalves != 0) {
      float* const half = to + (group != 0 ? 0 : 8 * 512);
#pragma unroll
      for (int i = 0; i < 4; ++i) turn::add_quad(half + i * 512, dq.half + 4 * i);
    }
  }
  static __device__ inline void pin(query_sums& dq) {
    of::pin(dq.whole);
    if constexpr (kHalves != 0) of::pin(dq.half);
  }

  // Does a step whose scores are there; `what` holds its flags.
  __device__ inline void step(int what) {
    const bool goes_on = (what & kLast) == 0;
    thread = opaque(thread);  // addresses are made anew: registers are few
    mbarrier_wait(b.grad_full(at.stage), at.phase);
    base::template zero_rows<kWidthPanels>(kGradsAt, what);
    base::template multiply_rows<C::kWidth>(part.grad, value_rows, grad_rows);
    const place_in_step here = {*this, what};
    const unsigned means = here.statistics() + kStages * kRowBytes;
    part.take_kept(f, s, here);
    if constexpr (rows::kTogether) {
      wgmma_wait<0>();
      of::pin(part.grad);
      take_bias_turn();
      part.take_both(f, s, here, (what & kInside) != 0, means);
      store_pairs(kWeightsAt, part.weights);
    } else {
      part.take_weights(f, s, here, (what & kInside) != 0);
      store_pairs(kWeightsAt, part.weights);
      wgmma_wait<0>();
      of::pin(part.grad);
      take_bias_turn();
      part.take_slopes(f, s, here, means);
    }
    base::pass_bias_turn();
    if (!goes_on) release(b.value_empty());
    store_pairs(kSlopesAt, part.slopes);
    fence_for_copies();
    named_barrier_sync(1, 256);  // weights and slopes of both groups are complete
    query_sums dq;
    multiply_result();
    multiply_queries(dq, at.stage, 0);
    const ring now = at;
    at.advance();
    start(goes_on);
    wgmma_wait<1>();
    of::pin(result);
    pin(dq);
    const int block = load_shared(memory + kInfosAt + now.stage * 16) / kFlags;
    release(b.grad_empty(now.stage));
    base::release_step(now.stage);
    base::add_in_turn(now.stage, [&] {
      add_queries(dq, block, 0);
#pragma unroll
      for (int panel = 1; panel < kWhole; ++panel) {
        multiply_queries(dq, now.stage, panel);
        wgmma_wait<0>();
        pin(dq);
        add_queries(dq, block, panel);
      }
    });
    wgmma_wait<0>();
    of::pin(part.score);
  }

  __device__ inline void tile(unsigned phase) {
#pragma unroll
    for (int e = 0; e < kGrads; ++e) result[e] = 0.f;
    const int flags = load_shared(b.tile() + 4);
    const bool any = (flags & kSteps) != 0;
    if constexpr (!C::kOrdered) mbarrier_wait(b.added(), phase);
    if (!any) mbarrier_wait(b.value_full(), phase);
    if (any) {
      if ((flags & kUnseen) != 0) {
        mbarrier_wait(b.value_full(), phase);
        zero_keys();
      }
      start(true);
      mbarrier_wait(b.value_full(), phase);
      // Weights and slopes are written where the tile before was staged.
      if (leads()) tma_store_wait_read<0>();
      named_barrier_sync(1, 256);
      wgmma_wait<0>();
      of::pin(part.score);
      int what;
#pragma unroll 1
      do {
        what = load_shared(step_at());
        step(what);
      } while ((what & kLast) == 0);
    }
    const place p = tiles::place_of(s, load_shared(b.tile()));
    // Every warp has read the tile's number; no product reads k, weights or slopes any more.
    if (leads()) tma_store_wait_read<0>();
    named_barrier_sync(1, 256);
    release(b.key_empty());
    if (!any) release(b.value_empty());
    if constexpr (C::kParts != 0) {
      store_part(result, p, group == 0 ? 1 : 0);
    } else if (group == 0) {
      base::template store<true>(result, 1.f, p);
    } else {
      float scale[1] = {1.f};
      f.scale(p.head * s.group, scale);
      base::template store<false>(result, scale[0], p);
    }
  }
};
