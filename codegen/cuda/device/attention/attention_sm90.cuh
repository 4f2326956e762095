#pragma once
// attention_sm90<Config>(q, k, v, out, beside, shape, score, inside, factor, limits, weight,
// random, finish, rows, first): the skeleton of softmax(q k) v on sm_90a, without a matrix of
// scores in memory. attention_loaded_sm90 (its own file) is the same for operands that tensor maps
// cannot read.
//
//   producer            TMA by one thread, or asynchronous copies by 128 → q of each group, ring of
//                       k blocks, ring of v blocks
//   warp of group g     with kBeside: what lies in memory as the scores do, a bias, for each head
//                       with kBesideHeads, and image with kBesideImages, in panels of 64 columns →
//                       ring of kBesideStages of them
//   consumer group g    rows 64g .. of a tile of 64 * kGroups queries of one head, blocks of kKeys
//                       keys from the last to the first:
//
//     S = q k'            wgmma, both from shared memory              64 x kKeys in registers
//     P, m, l             see attention_rows.cuh, which also says what the functions are
//     O += P v            wgmma, P from registers, v as it lies (MN-major)
//
//   O / l → finish → shared memory → TMA, or the threads of the group
//
// S of one block and O of the block before are in flight together, so that the softmax runs under a
// product. With kPingPong groups take turns to issue products, by named barriers. Operands of 8
// bits (kEight) have steps of their own, attention_bytes_sm90: blocks of keys come twice.
//
// mbarriers: k and v blocks full (producer, with bytes, or all its threads) and empty (one thread a
// group), q of a group full and empty, a group's tile known (producer) where another warp of its
// wants to know, panels beside the scores full and empty (a thread of each warp). Every group goes
// through all blocks of its tile; those that its own rows do not see it only releases. Blocks that
// need no masks have a loop of their own. A tile of which no row sees a key has no blocks.
//
// A group has two slots for what it is to know of a tile, in turns: the producer fills one while
// the group is at the tile before, since bounds may be a chain of loads.

#include "codegen/cuda/device/attention/attention_rows.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"
#include "codegen/cuda/device/ptx/tma.cuh"
#include "codegen/cuda/device/ptx/wgmma.cuh"

template <class C>
struct attention {
  static constexpr int kRows = 64 * C::kGroups;
  using tiles = attention_tiles<kRows, C::kKeys>;
  using place = typename tiles::place;
  using range = typename tiles::range;
  static constexpr int kPanels = C::kDepth / 64;  // 64 columns, 128 bytes, of q and k
  static constexpr int kWidthPanels = C::kWidth / 64;
  static constexpr int kPanelBytes = C::kKeys * 128;
  static constexpr int kQueryBytes = kPanels * 8192;  // of one group
  static constexpr int kKeyBytes = kPanels * kPanelBytes;
  static constexpr int kValueBytes =  // of 8 bits, with keys side by side
      C::kEight ? C::kWidth * C::kKeys : kWidthPanels * kPanelBytes;
  static constexpr int kBoxBytes = 64 * 128;
  static constexpr int kKeysAt = C::kGroups * kQueryBytes;
  static constexpr int kValuesAt = kKeysAt + C::kStages * kKeyBytes;
  static constexpr int kStagingAt = kValuesAt + C::kStages * kValueBytes;
  static constexpr int kBesideAt = kStagingAt + C::kGroups * kBoxBytes;
  static constexpr int kSlotsAt =  // two for each q
      kBesideAt + C::kGroups * C::kBesideStages * kBoxBytes;
  static constexpr int kSlotBytes = 48;
  static constexpr int kBarriersAt = kSlotsAt + C::kGroups * 2 * kSlotBytes;
  static constexpr int kBesideBarriers = C::kBeside ? C::kGroups * (1 + 2 * C::kBesideStages) : 0;
  static constexpr int kBytes =
      kBarriersAt + 8 * (4 * C::kStages + 2 * C::kGroups + kBesideBarriers);
  static_assert(!C::kBeside || C::kKeys % 64 == 0);
  static constexpr bool kSkips = C::kIntervals != 0;

  struct barriers {
    unsigned base;
    __device__ inline unsigned key_full(int i) const { return base + 8 * i; }
    __device__ inline unsigned key_empty(int i) const { return base + 8 * (C::kStages + i); }
    __device__ inline unsigned value_full(int i) const { return base + 8 * (2 * C::kStages + i); }
    __device__ inline unsigned value_empty(int i) const { return base + 8 * (3 * C::kStages + i); }
    __device__ inline unsigned query_full(int g) const { return base + 8 * (4 * C::kStages + g); }
    __device__ inline unsigned query_empty(int g) const {
      return base + 8 * (4 * C::kStages + C::kGroups + g);
    }
    __device__ inline unsigned tile_known(int g) const {
      return base + 8 * (4 * C::kStages + 2 * C::kGroups + g);
    }
    __device__ inline unsigned beside_full(int g, int i) const {
      return tile_known(C::kGroups + g * C::kBesideStages + i);
    }
    __device__ inline unsigned beside_empty(int g, int i) const {
      return beside_full(C::kGroups + g, i);
    }
  };

  template <int stages>
  struct ring_of {
    int stage = 0;
    unsigned phase = 0;
    __device__ inline void advance() {
      if (++stage == stages) {
        stage = 0;
        phase ^= 1;
      }
    }
  };
  using ring = ring_of<C::kStages>;
  using beside_ring = ring_of<C::kBesideStages>;

  // Rounds go back and forth, so that the block that had the longest tile of one gets the shortest
  // of the next.
  static __device__ inline int tile_of(int round) {
    const int at = round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
    return round * gridDim.x + at;
  }

  static __device__ inline int load_shared(unsigned at) {
    int v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
  }
  static __device__ inline void store_shared(unsigned at, int v) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(v) : "memory");
  }

  // ---- producer

  // The mover of operands that maps read, by one thread. Other movers have the same functions.
  struct by_maps {
    const tensor_map &q, &k, &v;
    const attention_shape& s;
    static constexpr int kKeyThreads = 1, kValueThreads = 1, kQueryThreads = 1;  // that say so
    static constexpr bool kHasKeys = true, kHasValues = true;  // queries come with keys

    template <class Run>
    __device__ __forceinline__ void produce(unsigned thread, const Run& run) const {
      if (thread < 32 && elect_one()) run(*this);
    }
    template <int panels>
    static __device__ inline void load(unsigned to, const tensor_map& map, unsigned full,
                                       int panel_bytes, int row, int inner, int outer) {
      mbarrier_expect(full, panels * panel_bytes);
#pragma unroll
      for (int c = 0; c < panels; ++c)
        tma_load(to + c * panel_bytes, map, full, c * 64, row, inner, outer);
    }
    static constexpr bool kHidesTails = false;  // consumers do
    __device__ inline bool leads() const { return true; }
    __device__ inline void begin(const place&, const range&) {}
    __device__ inline void wait(unsigned barrier, unsigned parity) {
      mbarrier_wait(barrier, parity);
    }
    __device__ inline void keys(unsigned to, unsigned full, const place& p, int row) {
      load<kPanels>(to, k, full, kPanelBytes, row, p.inner / s.k_inner, p.outer / s.k_outer);
    }
    __device__ inline void values(unsigned to, unsigned full, const place& p, int row) {
      load<kWidthPanels>(to, v, full, kPanelBytes, row, p.inner / s.v_inner, p.outer / s.v_outer);
    }
    __device__ inline void queries(unsigned to, unsigned full, const place& p, int row) {
      load<kPanels>(to, q, full, 8192, row, p.inner / s.q_inner, p.outer / s.q_outer);
    }
    __device__ inline void end(unsigned full) { mbarrier_arrive(full); }
  };

  template <class Mover>
  struct loads {
    Mover move;
    const attention_shape& s;
    unsigned memory;
    barriers b;
    ring key = {}, value = {};
    unsigned query_phase = 0;

    __device__ inline void keys(const place& p, int block) {
      if constexpr (Mover::kHasKeys) {
        move.wait(b.key_empty(key.stage), key.phase ^ 1);
        move.keys(memory + kKeysAt + key.stage * kKeyBytes, b.key_full(key.stage), p,
                  block * C::kKeys);
        key.advance();
      }
    }
    __device__ inline void values(const place& p, int block) {
      if constexpr (Mover::kHasValues) {
        move.wait(b.value_empty(value.stage), value.phase ^ 1);
        move.values(memory + kValuesAt + value.stage * kValueBytes, b.value_full(value.stage), p,
                    block * C::kKeys);
        value.advance();
      }
    }
    // Writes what a group is to know of its tile into the slot that it has not for the tile before.
    template <class Limits>
    __device__ inline void describe(const place& p, const range& whole, const Limits& limits) {
      if constexpr (!Mover::kHasKeys) return;
      if (!move.leads()) return;
      for (int g = 0; g < C::kGroups; ++g) {
        const int first_row = p.row + g * 64;
        const range own = tiles::range_of(s, limits, p.batch, first_row, 64);
        const unsigned slot = memory + kSlotsAt + (g * 2 + query_phase) * kSlotBytes;
        store_shared(slot, first_row);
        store_shared(slot + 4, p.batch);
        store_shared(slot + 8, p.inner);
        store_shared(slot + 12, p.outer);
        store_shared(slot + 16, whole.first);
        store_shared(slot + 20, whole.end);
        store_shared(slot + 24, min(max(own.end, whole.first + 1), whole.end));
        store_shared(slot + 28, (max(own.inside_first, 0) + C::kKeys - 1) / C::kKeys);
        store_shared(slot + 32, max(own.inside_end, 0) / C::kKeys);
        store_shared(slot + 36, whole.seen_end);
        if constexpr (kSkips) store_shared(slot + 40, whole.any);
        if (kSkips && !whole.any) store_shared(slot + 24, whole.first);  // no panels beside it
      }
    }
    __device__ inline void queries(const place& p, bool any) {
      if constexpr (Mover::kHasKeys) {
        for (int g = 0; g < C::kGroups; ++g) {
          move.wait(b.query_empty(g), query_phase ^ 1);
          if constexpr (C::kBeside != 0)
            if (move.leads()) mbarrier_arrive(b.tile_known(g));
          if (!kSkips || any)
            move.queries(memory + g * kQueryBytes, b.query_full(g), p, p.row + g * 64);
          else
            move.end(b.query_full(g));
        }
        query_phase ^= 1;
      }
    }
    __device__ inline void end() {
      if constexpr (Mover::kHasKeys) {
        for (int g = 0; g < C::kGroups; ++g) {
          move.wait(b.query_empty(g), query_phase ^ 1);
          if (move.leads()) {
            store_shared(memory + kSlotsAt + (g * 2 + query_phase) * kSlotBytes + 4, -1);
            if constexpr (C::kBeside != 0) mbarrier_arrive(b.tile_known(g));
          }
          move.end(b.query_full(g));
        }
      } else {
        move.settle();
      }
    }
    // k of a block goes before v of the block that is multiplied before it.
    template <class Limits>
    __device__ inline void tile(const place& p, const Limits& limits) {
      const range r = tiles::range_of(s, limits, p.batch, p.row, kRows);
      move.begin(p, r);
      describe(p, r, limits);
      if (kSkips && !r.any) return queries(p, false);
      keys(p, r.end - 1);
      queries(p, true);
      if constexpr (C::kEight != 0) {  // keys come twice
#pragma unroll 1
        for (int block = r.end - 2; block >= r.first; --block) keys(p, block);
        keys(p, r.end - 1);
      }
#pragma unroll 1
      for (int block = r.end - 1; block > r.first; --block) {
        keys(p, block - 1);
        values(p, block);
      }
      values(p, r.first);
    }
    template <class Limits>
    __device__ inline void run(const Limits& limits) {
      const int count = s.batches * s.query_tiles;
#pragma unroll 1
      for (int round = 0, tile_at = tile_of(0); tile_at < count; tile_at = tile_of(++round))
        tile(tiles::place_of(s, tile_at), limits);
      end();
    }
  };

  // Loads the tensor beside the scores of a group, for the blocks that the group goes through: by
  // one thread, which no ring of another operand holds up.
  static __device__ inline void produce_beside(const tensor_map& beside, unsigned memory,
                                               const barriers& b, int g) {
    beside_ring at;
#pragma unroll 1
    for (unsigned phase = 0;; phase ^= 1) {
      const unsigned slot = memory + kSlotsAt + (g * 2 + phase) * kSlotBytes;
      mbarrier_wait(b.tile_known(g), phase);
      const int row = load_shared(slot), batch = load_shared(slot + 4);
      const int inner = C::kBesideHeads ? load_shared(slot + 8) : 0;
      const int outer = C::kBesideImages ? load_shared(slot + 12) : 0;
      const int first = load_shared(slot + 16) * C::kKeys;
      int column = load_shared(slot + 24) * C::kKeys;
      mbarrier_arrive(b.query_empty(g));
      if (batch < 0) return;
#pragma unroll 1
      while (column > first) {
        column -= C::kKeys;
#pragma unroll 1
        for (int c = 0; c < C::kKeys; c += 64, at.advance()) {
          const unsigned full = b.beside_full(g, at.stage);
          mbarrier_wait(b.beside_empty(g, at.stage), at.phase ^ 1);
          mbarrier_expect(full, kBoxBytes);
          tma_load(memory + kBesideAt + (g * C::kBesideStages + at.stage) * kBoxBytes, beside, full,
                   column + c, row, inner, outer);
        }
      }
    }
  }

  template <class F>
  struct producer {
    const attention_shape& s;
    const F& f;
    unsigned memory;
    barriers b;
    template <class Mover>
    __device__ __forceinline__ void operator()(const Mover& mover) const {
      loads<Mover> l = {mover, s, memory, b};
      l.run(f.limits);
    }
  };

  // ---- consumers

  template <int count>
  static __device__ inline void pin(float (&x)[count]) {  // no use moves above the wait before it
#pragma unroll
    for (int i = 0; i < count; ++i) asm volatile("" : "+f"(x[i])::"memory");
  }

  // Stores 64 by 64 results from the staging, where a map writes them.
  struct to_map {
    const tensor_map& out;
    struct places {};
    __device__ inline places find(int, int) const { return {}; }
    __device__ inline void wait(bool leads) const {
      if (leads) tma_store_wait_read<0>();
    }
    __device__ inline void store(bool leads, unsigned staging, int column, int first_row, int,
                                 int inner, int outer, const places&) const {
      if (!leads) return;
      tma_store(out, staging, column, first_row, inner, outer);
      tma_store_commit();
    }
    __device__ inline void end(bool leads) const {
      if (leads) tma_store_wait();
    }
  };

  // The ways in which scores of a block come about: all of them let through; of rows that see the
  // keys between two places; by the functions that ask each place.
  enum class Scores { kInside, kSeen, kByFunctions };

  template <class F, class Out, bool clears>
  struct consumer {
    attention_rows<C, F> part;
    const Out& out;
    barriers b;
    unsigned memory, staging, group, thread;
    unsigned query_tile, key_tile, value_tile;  // low halves of descriptors
    ring key = {}, value = {};
    beside_ring beside = {};
    unsigned query_phase = 0;

    __device__ inline bool leads() const { return thread == 0; }
    __device__ inline void release(unsigned empty) const {
      if (leads()) mbarrier_arrive(empty);
    }
    __device__ inline void release_keys() {
      release(b.key_empty(key.stage));
      key.advance();
    }
    __device__ inline void release_values() {
      release(b.value_empty(value.stage));
      value.advance();
    }
    // Barriers 1 .. kGroups: the turn of a group; behind them those of a group alone.
    __device__ inline void take_turn() const {
      if constexpr (C::kPingPong) named_barrier_sync(1 + group, 256);
    }
    __device__ inline void pass_turn() const {
      if constexpr (C::kPingPong) named_barrier_arrive(1 + (group + 1) % C::kGroups, 256);
    }
    __device__ inline void group_sync() const { named_barrier_sync(8 + group, 128); }

    // Pairs of what lies beside elements 8k .. 8k + 7 of the block, four of which are a panel.
    __device__ inline void load_beside(int k, unsigned (&to)[4]) {
      if constexpr (C::kBeside != 0) {
        if (k % 4 == 0) mbarrier_wait(b.beside_full(group, beside.stage), beside.phase);
        const unsigned row = thread / 32 * 16 + thread % 16, chunk = k % 4 * 2 + thread % 32 / 16;
        load_fragments(memory + kBesideAt + (group * C::kBesideStages + beside.stage) * kBoxBytes +
                           row * 128 + ((chunk ^ (row % 8)) << 4),
                       to[0], to[1], to[2], to[3]);
        if (k % 4 < 3) return;
        __syncwarp();
        if (thread % 32 == 0) mbarrier_arrive(b.beside_empty(group, beside.stage));
        beside.advance();
      }
    }
    template <Scores by>
    __device__ inline float take_scores(int block) {
      const auto of = [&](int k, unsigned(&to)[4]) { load_beside(k, to); };
      if constexpr (by == Scores::kSeen)
        return part.take_seen_scores(block, of);
      else
        return part.template take_scores_where < by == Scores::kInside > (block, of);
    }

    // Their high halves are the same numbers, and sums stay below 2^32: 32-bit arithmetic.
    static __device__ inline unsigned long long descriptor(unsigned low) {
      return (descriptor_layout(128, 0) >> 32 << 32) | low;
    }
    __device__ inline void multiply_keys() {
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < C::kDepth / 16; ++i)
        C::multiply(part.score, descriptor(query_tile + i / 4 * (8192 >> 4) + i % 4 * 2),
                    descriptor(key_tile + key.stage * (kKeyBytes >> 4) +
                               i / 4 * (kPanelBytes >> 4) + i % 4 * 2),
                    C::kTilted || i != 0);
      wgmma_commit();
    }
    __device__ inline void multiply_values() {
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < C::kKeys / 16; ++i)
        C::multiply_registers(part.result, part.weights + 4 * i,
                              descriptor(value_tile + value.stage * (kValueBytes >> 4) + i * 128),
                              1);
      wgmma_commit();
    }

    // Zeroes for the values from `seen_end` on of the block that comes next. All groups that read
    // them write them; the last to do so changes nothing that another one reads.
    __device__ inline void clear_tail(int block, int seen_end) {
      const int from = seen_end - block * C::kKeys;
      if (from >= C::kKeys) return;
      mbarrier_wait(b.value_full(value.stage), value.phase);
      const unsigned at = memory + kValuesAt + value.stage * kValueBytes;
      const int row = max(from, 0);
      for (int i = row * 8 + int(thread); i < C::kKeys * 8; i += 128)
#pragma unroll
        for (int c = 0; c < kWidthPanels; ++c)
          asm volatile(
              "st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(at + c * kPanelBytes + i * 16),
              "r"(0)
              : "memory");
      fence_for_copies();
      group_sync();
    }
    template <Scores by>
    __device__ inline void first_block(int block) {
      part.start_scores(block);
      mbarrier_wait(b.key_full(key.stage), key.phase);
      take_turn();
      multiply_keys();
      pass_turn();
      wgmma_wait<0>();
      pin(part.score);
      release_keys();
      float low, high;  // there is no result that loses them
      if constexpr (C::kSink) part.begin_rows();
      const float times =
          part.is_inside(block) ? take_scores<Scores::kInside>(block) : take_scores<by>(block);
      part.template softmax<!C::kSink>(times, low, high);
      if constexpr (by == Scores::kSeen)
        part.take_seen_weights(block);
      else
        part.take_weights(block);
#pragma unroll
      for (float& result : part.result) result = 0;
    }
    template <Scores by>
    __device__ inline void next_block(int block) {
      part.start_scores(block);
      mbarrier_wait(b.key_full(key.stage), key.phase);
      take_turn();
      multiply_keys();
      mbarrier_wait(b.value_full(value.stage), value.phase);
      multiply_values();
      pass_turn();
      wgmma_wait<1>();
      pin(part.score);
      release_keys();
      const float times = take_scores<by>(block);
      float low, high;
      part.template softmax<false>(times, low, high);
      wgmma_wait<0>();
      pin(part.result);
      release_values();
      if constexpr (by == Scores::kSeen)
        part.take_seen_weights(block);
      else
        part.template take_weights<by == Scores::kInside>(block);
      part.scale_result(low, high);
    }

    // All blocks of a tile, down to the first. There is one copy of a masked block: instructions
    // that are met for the first time come from memory, which takes longer than what they do.
    template <Scores by>
    __device__ inline void blocks(int block, int first) {
      first_block<by>(block);
      --block;
#pragma unroll 1
      while (block >= first) {
        if constexpr (!C::kReads) {
          const int until = part.is_inside(block) ? max(part.inside_first, first) : block + 1;
#pragma unroll 1
          for (; block >= until; --block) next_block<Scores::kInside>(block);
          if (block < first) break;
        }
        next_block<by>(block);
        --block;
      }
    }

    __device__ inline int of_slot(int i) const {
      // A shuffle says that all lanes have the same number: loops over it keep uniform registers.
      return __shfl_sync(
          ~0u,
          load_shared(memory + kSlotsAt + (group * 2 + (query_phase ^ 1)) * kSlotBytes + 4 * i), 0);
    }
    // A tile whose rows see no key, of which nothing but queries' barrier was said.
    __device__ inline void take_nothing(float& low, float& high) {
      mbarrier_arrive(b.query_empty(group));
      part.begin_rows();
#pragma unroll
      for (float& result : part.result) result = 0;
      part.finish_rows(low, high);
    }
    // Results of the tile that the slot describes, but for the factors of their rows.
    __device__ inline void take_tile(float& low, float& high) {
      const int first = of_slot(4), end = of_slot(6);
      int block = of_slot(5) - 1;
#pragma unroll 1
      for (; block >= end; --block) {
        take_turn();
        pass_turn();
        mbarrier_wait(b.key_full(key.stage), key.phase);
        mbarrier_wait(b.value_full(value.stage), value.phase);
        group_sync();  // no product holds the warps together here: all must have seen this phase
        release_keys();
        release_values();
      }
      if constexpr (clears) clear_tail(block, of_slot(9));
      if constexpr (C::kIntervals != 0) {
        if (part.bounded)
          blocks<Scores::kSeen>(block, first);
        else
          blocks<Scores::kByFunctions>(block, first);
      } else {
        blocks<Scores::kByFunctions>(block, first);
      }
      mbarrier_arrive(b.query_empty(group));  // by each thread: all of them have read the slot
      mbarrier_wait(b.value_full(value.stage), value.phase);
      multiply_values();
      part.finish_rows(low, high);
      wgmma_wait<0>();
      pin(part.result);
      release_values();
    }
    // False where there is none left.
    __device__ inline bool tile() {
      mbarrier_wait(b.query_full(group), query_phase);
      query_phase ^= 1;
      part.batch = of_slot(1);
      if (part.batch < 0) return false;
      const int first_row = of_slot(0), inner = of_slot(2), outer = of_slot(3);
      part.row = first_row + thread / 32 * 16 + thread % 32 / 4;
      part.inside_first = of_slot(7);
      part.inside_end = of_slot(8);
      part.take_factor();
      float low, high;
      if (kSkips && of_slot(10) == 0)
        take_nothing(low, high);
      else
        take_tile(low, high);
      part.scale_result(low, high);
      store(first_row, inner, outer);
      return true;
    }

    __device__ inline void store(int first_row, int inner, int outer) {
      const auto places = out.find(part.batch, first_row);
#pragma unroll
      for (int c = 0; c < kWidthPanels; ++c) {
        out.wait(leads());
        group_sync();
#pragma unroll
        for (int g = 0; g < 4; ++g) {
          const int e = c * 32 + g * 8;
          const unsigned at = thread / 32 * 16 + thread % 16;
          const unsigned chunk = g * 2 + thread % 32 / 16;
          store_fragments(staging + at * 128 + ((chunk ^ (at % 8)) << 4), part.finished_pair(e),
                          part.finished_pair(e + 2), part.finished_pair(e + 4),
                          part.finished_pair(e + 6));
        }
        fence_for_copies();
        group_sync();
        out.store(leads(), staging, c * 64, first_row, part.batch, inner, outer, places);
      }
    }
  };

  // A group's steps from the first tile to the last. Other classes of steps have the same function.
  struct own_steps {
    template <class Group>
    static __device__ inline void run(Group& group) {
      while (group.tile()) {
      }
    }
  };

  template <class Steps = own_steps, class Mover, class Out, class F>
  static __device__ inline void run(unsigned memory, const Mover& mover, const Out& out,
                                    const tensor_map* beside, const attention_shape& s,
                                    const F& f) {
    const barriers b = {memory + kBarriersAt};
    const unsigned group = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128;
    if (threadIdx.x == 0) {
      for (int i = 0; i < C::kStages; ++i) {
        mbarrier_init(b.key_full(i), Mover::kKeyThreads);
        mbarrier_init(b.value_full(i), Mover::kValueThreads);
        mbarrier_init(b.key_empty(i), C::kGroups);
        mbarrier_init(b.value_empty(i), C::kGroups);
      }
      for (int g = 0; g < C::kGroups; ++g) {
        mbarrier_init(b.query_full(g), Mover::kQueryThreads);
        mbarrier_init(b.query_empty(g), C::kBeside ? 129 : 128);
        if constexpr (C::kBeside != 0) {
          mbarrier_init(b.tile_known(g), 1);
          for (int i = 0; i < C::kBesideStages; ++i) {
            mbarrier_init(b.beside_full(g, i), 1);
            mbarrier_init(b.beside_empty(g, i), 4);
          }
        }
      }
      mbarrier_init_done();
    }
    __syncthreads();
    if (group == C::kGroups) {
      if constexpr (C::kProducerRegisters > 0) give_registers<C::kProducerRegisters>();
      if constexpr (C::kBeside != 0) {  // the last warps, which no mover uses then
        const int of_group = int(thread / 32) - (4 - C::kGroups);
        if (of_group >= 0) {
          if (elect_one()) produce_beside(*beside, memory, b, of_group);
          return;
        }
      }
      mover.produce(thread, producer<F>{s, f, memory, b});
      return;
    }
    if constexpr (C::kConsumerRegisters > 0) take_registers<C::kConsumerRegisters>();
    consumer<F, Out, (C::kTails != 0) && !Mover::kHidesTails> c = {
        {&f, &s, thread}, out, b, memory, memory + kStagingAt + group * kBoxBytes, group, thread};
    const auto low = [](int panel_bytes, unsigned at) {
      return static_cast<unsigned>(descriptor_layout(128, panel_bytes) | descriptor_address(at));
    };
    c.query_tile = low(16, memory + group * kQueryBytes);
    c.key_tile = low(16, memory + kKeysAt);
    c.value_tile = low(kPanelBytes, memory + kValuesAt);
    if (C::kPingPong && group == C::kGroups - 1) named_barrier_arrive(1, 256);
    Steps::run(c);
    out.end(c.leads());
  }
};

template <class C, class Score, class Inside, class Factor, class Limits, class Weight,
          class Random, class Finish, class Rows, class First>
__device__ inline void attention_sm90(const tensor_map& q, const tensor_map& k, const tensor_map& v,
                                      const tensor_map& out, const tensor_map& beside,
                                      const attention_shape& shape, const Score& score,
                                      const Inside& inside, const Factor& factor,
                                      const Limits& limits, const Weight& weight,
                                      const Random& random, const Finish& finish, const Rows& rows,
                                      const First& first) {
  using functions =
      attention_functions<Score, Inside, Factor, Limits, Weight, Random, Finish, Rows, First>;
  using skeleton = attention<C>;
  static_assert(C::kBytes == skeleton::kBytes);
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  skeleton::run(shared_address(shared_memory), typename skeleton::by_maps{q, k, v, shape},
                typename skeleton::to_map{out}, &beside, shape,
                functions{score, inside, factor, limits, weight, random, finish, rows, first});
}
