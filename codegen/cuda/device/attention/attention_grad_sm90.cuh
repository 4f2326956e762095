#pragma once
// attention_grad_sm90<Config>(q, k, v, dy, dk, dv, beside, sums, turns, part_sums, bias_sums,
// shape, score, inside, factor, limits, visible, random, kept, weight, slope, add_bias, scale,
// rows): the skeleton of attention's gradients on sm_90a, all three in one kernel, without a matrix
// of scores in memory.
//
//   producer warp      TMA → k and v of the tile, ring of q and dy blocks; kBeside: with q what
//                      lies in memory as the scores do, a bias, for each head with kBesideHeads and
//                      image with kBesideImages, which consumers read across
//   rows warps         beside q: what 64 rows each have (statistics), and what the step is
//   turns warps        with kOrdered, see below
//   consumer group g   keys 64g .. of a tile of 128 keys of one head of k and v, blocks of kQueries
//                      queries of all heads that share it (tiles of 64 keys:
//                      attention_grad_wide_sm90.cuh):
//
//     S' = k q', P' = weight(S')        scores the other way around, 64 x kQueries in registers
//     D' = v dy', dS' = (D' - mean of the row) * P'
//     dv += P' dy                       wgmma, P' from registers, dy as it lies (MN-major)
//     dk += dS' q                       the same
//     dq  = dS k                        wgmma, dS' from shared memory, both MN-major; the groups
//                                       share rows or columns; added to `sums` in f32
//
//   dk, dv → shared memory → TMA
//
// Rooms in shared memory are those of rows of kDepth, whole panels of 64; q and k have kRows
// columns, dy and v kWidth, multiples of 16.
//
// kBias: dS' are added to `bias_sums`, too, whose blocks of kKeys by kQueries are in the order of
// fragments: element e of lane l of warp w of group g at half a block for g + e / 4 * 512 + 128 w +
// 4 l + e % 4; blocks of one head of the bias stand by keys, then by queries. Another kernel
// makes the gradient of it.
//
// attention_grad_rows.cuh says what the functions are, where sums of dq lie, and whose turn it is
// to add to them. A warp of its own waits and passes turns on, since both take the time of a way to
// memory and back.
//
// Scores of a step are multiplied behind the dq of the step before, so that weights can be computed
// at once.
//
// mbarriers: q (arrivals: producer with bytes, rows warps) and dy blocks full, k and v of the tile
// full, with the tile's number beside k; all of them empty (one thread a group, of q one a warp);
// the number of the next tile for the other warps of the producer's group, full and empty; the turn
// of a step, and what was added (a thread of each warp); the same of its part of a bias's gradient.

#include "codegen/cuda/device/attention/attention_grad_consumer_sm90.cuh"
#include "codegen/cuda/device/attention/attention_grad_layout_sm90.cuh"
#include "codegen/cuda/device/attention/attention_grad_producers_sm90.cuh"
#include "codegen/cuda/device/attention/attention_grad_rows.cuh"
#include "codegen/cuda/device/attention/attention_grad_tiles.cuh"
#include "codegen/cuda/device/attention/attention_grad_wide_sm90.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"
#include "codegen/cuda/device/ptx/tma.cuh"
#include "codegen/cuda/device/ptx/wgmma.cuh"

template <class C>
struct attention_grad : attention_grad_layout<C> {
  using of = attention_grad_layout<C>;
  using producers = attention_grad_producers<C>;
  using of::kBarriersAt, of::kGradsAt, of::kGroupKeys, of::kGroupQueries, of::kHelpers, of::kIsWide;
  using of::kKeys, of::kQueriesAt, of::kRowWarps, of::kSlopesAt, of::kSplitsColumns, of::kStages;
  using of::kStagingAt, of::kStagingBytes, of::kTurnWarps, of::kValuesAt, of::kWeightsAt;
  using of::kZeroWarps, of::load_shared;
  using typename of::barriers;
  template <class F, class Out, bool is_wide>
  struct group_kind {
    using type = attention_grad_consumer<C, F, Out>;
  };
  template <class F, class Out>
  struct group_kind<F, Out, true> {
    using type = attention_grad_wide<C, F, Out>;
  };

  // `memory`: the address of kBytes of shared memory, a multiple of 1024.
  template <class Loads, class Out, class F>
  static __device__ inline void run(unsigned memory, const Loads& loads, const Out& out,
                                    const tensor_map& beside, float* sums, int* turns,
                                    float* part_sums, float* bias_sums,
                                    const attention_grad_shape& s, const F& f) {
    const barriers b = {memory + kBarriersAt};
    const unsigned group = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128;
    if (threadIdx.x == 0) {
      for (int i = 0; i < kStages; ++i) {
        mbarrier_init(b.query_full(i), 1 + kRowWarps);
        mbarrier_init(b.grad_full(i), 1);
        mbarrier_init(b.query_empty(i), 8);
        mbarrier_init(b.grad_empty(i), 2);
      }
      mbarrier_init(b.key_full(), 1);
      mbarrier_init(b.value_full(), 1);
      mbarrier_init(b.key_empty(), 2);
      mbarrier_init(b.value_empty(), 2);
      mbarrier_init(b.next_full(), 1);
      mbarrier_init(b.next_empty(), kHelpers);
      mbarrier_init(b.turn(), max(kTurnWarps, 1));
      mbarrier_init(b.added(), C::kOrdered ? 8 : 1);
      mbarrier_init(b.bias_turn(), max(kTurnWarps, 1));
      mbarrier_init(b.bias_added(), 8);
      mbarrier_init_done();
    }
    __syncthreads();
    if (group == 2) {
      give_registers<C::kProducerRegisters>();
      const unsigned warp = __shfl_sync(~0u, thread / 32, 0);
      if (warp == 0)
        producers::produce(loads, beside, turns, s, f, memory, b);
      else if (warp <= kRowWarps)
        producers::produce_rows(s, f, memory, b);
      else if (kZeroWarps > 0 && warp == 3)
        producers::zero(s, sums, turns, b);
      else if (kTurnWarps == 1)
        producers::template take_turns<true, true>(s, f, turns, b);
      else if (kTurnWarps == 2 && warp == 2)
        producers::template take_turns<true, false>(s, f, turns, b);
      else if (kTurnWarps == 2)
        producers::template take_turns<false, true>(s, f, turns, b);
      return;
    }
    take_registers<C::kConsumerRegisters>();
    typename group_kind<F, Out, kIsWide>::type c = {{{},
                                                     f,
                                                     s,
                                                     out,
                                                     sums,
                                                     part_sums,
                                                     bias_sums,
                                                     b,
                                                     memory,
                                                     memory + kStagingAt + group * kStagingBytes,
                                                     group,
                                                     thread}};
    const auto low = [](int panel_bytes, unsigned at) {
      return static_cast<unsigned>(descriptor_layout(128, panel_bytes) | descriptor_address(at));
    };
    constexpr int kQueryPanel = C::kQueries * 128, kKeyPanel = kKeys * 128;
    const int own_keys = group * (kGroupKeys * 128), own_queries = group * (kGroupQueries * 128);
    c.key_rows = low(16, memory + own_keys);
    c.value_rows = low(16, memory + kValuesAt + own_keys);
    c.query_rows = low(16, memory + kQueriesAt + own_queries);
    c.grad_rows = low(16, memory + kGradsAt + own_queries);
    c.query_across = low(kQueryPanel, memory + kQueriesAt);
    c.grad_across = low(kQueryPanel, memory + kGradsAt);
    // Rows of dq are shared: the groups take panels of slopes. Columns: panels, or halves of one,
    // of k.
    const int panel = group * kKeyPanel;
    c.slopes_across = low(kKeyPanel, memory + kSlopesAt + (kSplitsColumns ? 0 : panel));
    if constexpr (kIsWide) {
      c.keys_across = low(kKeyPanel, memory + group * ((C::kDepth / 64 + 1) / 2 * kKeyPanel));
      c.halves_across = low(kKeyPanel, memory + C::kDepth / 128 * kKeyPanel + group * 64);
      c.left_rows = low(16, memory + (group == 0 ? kWeightsAt : kSlopesAt));
      c.right_across = group == 0 ? c.grad_across : c.query_across;
    } else {
      const int half = C::kDepth == 64 ? group * 64 : panel;
      c.keys_across = low(kKeyPanel, memory + (kSplitsColumns ? half : 0));
    }
#pragma unroll 1
    for (unsigned phase = 0;; phase ^= 1) {
      mbarrier_wait(b.key_full(), phase);
      if (load_shared(b.tile()) < 0) break;
      c.tile(phase);
    }
    if (c.leads()) tma_store_wait();
  }
};

template <class C, class Score, class Inside, class Factor, class Limits, class Visible,
          class Random, class Kept, class Weight, class Slope, class AddBias, class Scale,
          class Rows>
__device__ inline void attention_grad_sm90(
    const tensor_map& q, const tensor_map& k, const tensor_map& v, const tensor_map& dy,
    const tensor_map& dk, const tensor_map& dv, const tensor_map& beside, float* sums, int* turns,
    float* part_sums, float* bias_sums, const attention_grad_shape& shape, const Score& score,
    const Inside& inside, const Factor& factor, const Limits& limits, const Visible& visible,
    const Random& random, const Kept& kept, const Weight& weight, const Slope& slope,
    const AddBias& add_bias, const Scale& scale, const Rows& rows) {
  using functions = attention_grad_functions<Score, Inside, Factor, Limits, Visible, Random, Kept,
                                             Weight, Slope, AddBias, Scale, Rows>;
  using skeleton = attention_grad<C>;
  static_assert(C::kSharedBytes == skeleton::kBytes);
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  skeleton::run(shared_address(shared_memory), attention_grad_by_maps<C>{q, k, v, dy},
                attention_grad_to_maps<C>{dk, dv}, beside, sums, turns, part_sums, bias_sums, shape,
                functions{score, inside, factor, limits, visible, random, kept, weight, slope,
                          add_bias, scale, rows});
}
