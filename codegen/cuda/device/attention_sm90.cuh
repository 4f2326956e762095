#pragma once
// attention_sm90<Config>(q, k, v, out, shape, score, inside, factor, limits, weight,
// weight_of_none, finish, rows): the skeleton of softmax(q k) v on sm_90a, without a matrix of
// scores in memory.
//
//   producer warp       TMA → q of each group, ring of k blocks, ring of v blocks
//   consumer group g    rows 64g .. of a tile of 64 * kGroups queries of one head, blocks of kKeys
//                       keys from the last to the first:
//
//     S = q k'            wgmma, both from shared memory              64 x kKeys in registers
//     S = score(S)        scale, bias, masks, whatever the graph has
//     m, l                maximum and sum of exp(S - m) by rows, O scaled where m grows
//     P = weight(exp(S - m))      to 16 bits, in place: the accumulator's layout is the operand's
//     O += P v            wgmma, P from registers, v as it lies (MN-major)
//
//   O / l → finish → shared memory → TMA;  rows(max, sum) → statistics
//
// S of one block and O of the block before are in flight together, so that the softmax runs under a
// product. With kPingPong groups take turns to issue products, by named barriers.
//
// Element e of an accumulator is row 16 * warp + lane / 4 + 8 * (e / 2 % 2), column 8 * (e / 4) +
// 2 * (lane % 4) + e % 2; four lanes share a row. Elements 8k .. 8k + 7 are the A fragment of step
// k of the next product, two to a register.
//
// Functions, with `batch` the number of the head among all, and places inside of the scores:
//   score(value, batch, row, column, result out)
//   inside(…)                  the same, of places that the known masks let through; with kFolded
//                              before the product with `factor`
//   factor(batch, result out)  that number; 1 without kFolded
//                              kReads: some of these read memory by place
//   limits(batch, first, last, result out)   of rows first .. last: no row sees keys before
//                              result[0] or from result[1] on, every row sees all that known masks
//                              hide elsewhere from result[2] up to result[3]
//   weight(value, batch, row, column, result out), finish(value, batch, row, column, result out)
//   weight_of_none(…)          with kEmptyRows the weights of a row that sees no key, of NaN
//   rows(batch, row, max, sum)
//
// mbarriers: k and v blocks full (producer, with bytes) and empty (one thread a group), q of a
// group full and empty. Every group goes through all blocks of its tile; those that its own rows do
// not see it only releases.
//
// A positive factor of all scores costs nothing: maxima are taken before it, and it joins the
// multiply-add of the exponential. Blocks that need masks take scores as they are, in a loop of
// their own.
//
// A row without a key has what its formula says: NaN, or what weights are then (they are then 0 or
// NaN, and so is each sum of theirs).
struct attention_shape {
  int queries, keys;
  int columns;         // of v and the result
  int inner, batches;  // heads of one image (inner dim), of all
  int query_tiles;     // of one head
  int section;         // heads whose k and v stay in L2 together
  // Batch (outer, inner) of an operand is that of the result divided by these.
  int q_outer = 1, q_inner = 1, k_outer = 1, k_inner = 1, v_outer = 1, v_inner = 1;
};

template <class C>
struct attention {
  static constexpr int kRows = 64 * C::kGroups;
  static constexpr int kPanels = C::kDepth / 64;  // 64 columns, 128 bytes, of q and k
  static constexpr int kWidthPanels = C::kWidth / 64;
  static constexpr int kPanelBytes = C::kKeys * 128;
  static constexpr int kQueryBytes = kPanels * 8192;  // of one group
  static constexpr int kKeyBytes = kPanels * kPanelBytes;
  static constexpr int kValueBytes = kWidthPanels * kPanelBytes;
  static constexpr int kBoxBytes = 64 * 128;
  static constexpr int kKeysAt = C::kGroups * kQueryBytes;
  static constexpr int kValuesAt = kKeysAt + C::kStages * kKeyBytes;
  static constexpr int kStagingAt = kValuesAt + C::kStages * kValueBytes;
  static constexpr int kSlotsAt = kStagingAt + C::kGroups * kBoxBytes;  // a slot beside each q
  static constexpr int kSlotBytes = 48;
  static constexpr int kBarriersAt = kSlotsAt + C::kGroups * kSlotBytes;
  static constexpr int kScores = C::kKeys / 2;    // registers of S
  static constexpr int kResults = C::kWidth / 2;  // of O
  static_assert(C::kSharedBytes == kBarriersAt + 8 * (4 * C::kStages + 2 * C::kGroups));

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
  };

  struct ring {
    int stage = 0;
    unsigned phase = 0;
    __device__ inline void advance() {
      if (++stage == C::kStages) {
        stage = 0;
        phase ^= 1;
      }
    }
  };

  // Heads go in sections; in one the last rows come first, which see most where a mask is causal.
  struct place {
    int row, batch, outer, inner;
  };
  static __device__ inline place place_of(const attention_shape& s, int tile) {
    const int part = tile / (s.section * s.query_tiles);
    const int in_part = tile - part * s.section * s.query_tiles;
    const int heads = min(s.section, s.batches - part * s.section), i = in_part / heads;
    place p;
    p.batch = part * s.section + in_part - i * heads;
    p.outer = p.batch / s.inner;
    p.inner = p.batch - p.outer * s.inner;
    p.row = (s.query_tiles - 1 - i) * kRows;
    return p;
  }
  // Rounds go back and forth, so that the block that had the longest tile of one gets the shortest
  // of the next.
  static __device__ inline int tile_of(int round) {
    const int at = round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
    return round * gridDim.x + at;
  }

  // The blocks that rows from `row` on see, [first, end), never none; and the keys that all see.
  struct range {
    int first, end, inside_first, inside_end;
  };
  template <class Limits>
  static __device__ inline range range_of(const attention_shape& s, const Limits& limits, int batch,
                                          int row, int rows) {
    const int from = min(row, s.queries - 1), to = min(row + rows, s.queries) - 1;
    int result[4];
    limits(batch, from, max(from, to), result);
    range r;
    r.first = max(result[0], 0) / C::kKeys;
    r.end = (min(result[1], s.keys) + C::kKeys - 1) / C::kKeys;
    r.first = min(r.first, (s.keys - 1) / C::kKeys);
    r.end = max(r.end, r.first + 1);
    r.inside_first = result[2];
    r.inside_end = min(result[3], s.keys);
    return r;
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

  template <int panels>
  static __device__ inline void load(unsigned to, const tensor_map& map, unsigned full,
                                     int panel_bytes, int row, int inner, int outer) {
    mbarrier_expect(full, panels * panel_bytes);
#pragma unroll
    for (int c = 0; c < panels; ++c)
      tma_load(to + c * panel_bytes, map, full, c * 64, row, inner, outer);
  }

  struct loads {
    const tensor_map &q, &k, &v;
    const attention_shape& s;
    unsigned memory;
    barriers b;
    ring key, value;
    unsigned query_phase = 0;

    __device__ inline void keys(const place& p, int block) {
      mbarrier_wait(b.key_empty(key.stage), key.phase ^ 1);
      load<kPanels>(memory + kKeysAt + key.stage * kKeyBytes, k, b.key_full(key.stage), kPanelBytes,
                    block * C::kKeys, p.inner / s.k_inner, p.outer / s.k_outer);
      key.advance();
    }
    __device__ inline void values(const place& p, int block) {
      mbarrier_wait(b.value_empty(value.stage), value.phase ^ 1);
      load<kWidthPanels>(memory + kValuesAt + value.stage * kValueBytes, v,
                         b.value_full(value.stage), kPanelBytes, block * C::kKeys,
                         p.inner / s.v_inner, p.outer / s.v_outer);
      value.advance();
    }
    // A group learns with its queries which tile it makes.
    template <class Limits>
    __device__ inline void queries(const place& p, const range& whole, const Limits& limits) {
      for (int g = 0; g < C::kGroups; ++g) {
        const int first_row = p.row + g * 64;
        const range own = range_of(s, limits, p.batch, first_row, 64);
        mbarrier_wait(b.query_empty(g), query_phase ^ 1);
        const unsigned slot = memory + kSlotsAt + g * kSlotBytes;
        store_shared(slot, first_row);
        store_shared(slot + 4, p.batch);
        store_shared(slot + 8, p.inner);
        store_shared(slot + 12, p.outer);
        store_shared(slot + 16, whole.first);
        store_shared(slot + 20, whole.end);
        store_shared(slot + 24, min(max(own.end, whole.first + 1), whole.end));
        store_shared(slot + 28, (max(own.inside_first, 0) + C::kKeys - 1) / C::kKeys);
        store_shared(slot + 32, max(own.inside_end, 0) / C::kKeys);
        load<kPanels>(memory + g * kQueryBytes, q, b.query_full(g), 8192, first_row,
                      p.inner / s.q_inner, p.outer / s.q_outer);
      }
      query_phase ^= 1;
    }
    __device__ inline void end() {
      for (int g = 0; g < C::kGroups; ++g) {
        mbarrier_wait(b.query_empty(g), query_phase ^ 1);
        store_shared(memory + kSlotsAt + g * kSlotBytes + 4, -1);
        mbarrier_arrive(b.query_full(g));
      }
    }
    // k of a block goes before v of the block that is multiplied before it.
    template <class Limits>
    __device__ inline void tile(const place& p, const Limits& limits) {
      const range r = range_of(s, limits, p.batch, p.row, kRows);
      keys(p, r.end - 1);
      queries(p, r, limits);
#pragma unroll 1
      for (int block = r.end - 1; block > r.first; --block) {
        keys(p, block - 1);
        values(p, block);
      }
      values(p, r.first);
    }
  };

  // ---- consumers

  static constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f;
  template <int count>
  static __device__ inline void pin(float (&x)[count]) {  // no use moves above the wait before it
#pragma unroll
    for (int i = 0; i < count; ++i) asm volatile("" : "+f"(x[i])::"memory");
  }
  static __device__ inline float exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  static __device__ inline float infinity() { return __int_as_float(0x7f800000); }

  template <class F>
  struct consumer {
    const F& f;
    const attention_shape& s;
    const tensor_map& out;
    barriers b;
    unsigned memory, staging, group, thread;
    unsigned query_tile, key_tile, value_tile;  // low halves of descriptors
    ring key = {}, value = {};
    unsigned query_phase = 0;
    // Of the tile that is being made:
    int batch, row;                // this thread's first row; the other one is 8 below
    int inside_first, inside_end;  // blocks that need no masks
    float factor;                  // of scores
    float score[kScores], result[kResults];
    float max_low, max_high, sum_low, sum_high;  // maxima times log2(e)
    unsigned weights[kScores / 2];

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

    // Their high halves are the same numbers, and sums stay below 2^32: 32-bit arithmetic.
    static __device__ inline unsigned long long descriptor(unsigned low) {
      return (descriptor_layout(128, 0) >> 32 << 32) | low;
    }
    __device__ inline void multiply_keys() {
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < C::kDepth / 16; ++i)
        C::multiply(score, descriptor(query_tile + i / 4 * (8192 >> 4) + i % 4 * 2),
                    descriptor(key_tile + key.stage * (kKeyBytes >> 4) +
                               i / 4 * (kPanelBytes >> 4) + i % 4 * 2),
                    i != 0);
      wgmma_commit();
    }
    __device__ inline void multiply_values() {
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < C::kKeys / 16; ++i)
        C::multiply_registers(result, weights + 4 * i,
                              descriptor(value_tile + value.stage * (kValueBytes >> 4) + i * 128),
                              1);
      wgmma_commit();
    }

    // Whether known masks let all of a block through, so that the functions for that serve. What
    // reads memory has one loop: registers are few, and compares cost little beside that.
    __device__ inline bool is_inside(int block) const {
      return !C::kReads && block >= inside_first && block < inside_end;
    }
    // Returns what the scores are to be multiplied by.
    __device__ inline float take_inside_scores(int block) {
      const int column = block * C::kKeys + 2 * (thread % 4);
#pragma unroll
      for (int e = 0; e < kScores; ++e) {
        float y[1];
        f.inside(score[e], batch, at_row(e), column + 8 * (e / 4) + e % 2, y);
        score[e] = y[0];
      }
      return C::kFolded ? factor : 1.f;
    }
    // Functions that read memory get places that there are.
    __device__ inline float take_masked_scores(int block) {
      const int column = block * C::kKeys + 2 * (thread % 4), room = s.keys - column;
#pragma unroll
      for (int e = 0; e < kScores; ++e) {
        const int c = column + 8 * (e / 4) + e % 2;
        float y[1];
        f.score(score[e], batch, at_row(e), C::kReads ? min(c, s.keys - 1) : c, y);
        score[e] = y[0];
      }
      if ((block + 1) * C::kKeys <= s.keys) return 1.f;
#pragma unroll
      for (int e = 0; e < kScores; ++e)
        if (8 * (e / 4) + e % 2 >= room) score[e] = -infinity();
      return 1.f;
    }
    __device__ inline int at_row(int e) const { return min(e & 2 ? row + 8 : row, s.queries - 1); }

    static __device__ inline float row_max(float x) {
      x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
      return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
    }
    static __device__ inline float row_sum(float x) {
      x += __shfl_xor_sync(~0u, x, 1);
      return x + __shfl_xor_sync(~0u, x, 2);
    }

    // Scores → exponentials; the factors that O and the sums of before lose.
    template <bool starts>
    __device__ inline void softmax(float times, float& factor_low, float& factor_high) {
      const float slope = times * kLog2e;
      float x[4] = {score[0], score[1], score[2], score[3]};
#pragma unroll
      for (int e = 4; e < kScores; ++e) x[e % 4] = fmaxf(x[e % 4], score[e]);
      const float before_low = max_low, before_high = max_high;
      max_low = row_max(fmaxf(x[0], x[1])) * slope;
      max_high = row_max(fmaxf(x[2], x[3])) * slope;
      if constexpr (!starts) {
        max_low = fmaxf(max_low, before_low);
        max_high = fmaxf(max_high, before_high);
      }
      // Where nothing has been seen yet, -inf must not meet itself.
      const float low = max_low == -infinity() ? 0.f : max_low;
      const float high = max_high == -infinity() ? 0.f : max_high;
#pragma unroll
      for (int e = 0; e < kScores; ++e)
        score[e] = exp2(fmaf(score[e], slope, e & 2 ? -high : -low));
#pragma unroll
      for (int e = 0; e < 4; ++e) x[e] = score[e];
#pragma unroll
      for (int e = 4; e < kScores; ++e) x[e % 4] += score[e];
      if constexpr (starts) {
        sum_low = x[0] + x[1];
        sum_high = x[2] + x[3];
      } else {
        factor_low = exp2(before_low - low);
        factor_high = exp2(before_high - high);
        sum_low = fmaf(sum_low, factor_low, x[0] + x[1]);
        sum_high = fmaf(sum_high, factor_high, x[2] + x[3]);
      }
    }

    __device__ inline float weight_of(int e, int block) const {
      if constexpr (!C::kWeights) return score[e];
      const int column = block * C::kKeys + 2 * (thread % 4) + 8 * (e / 4) + e % 2;
      const int at = min(e & 2 ? row + 8 : row, s.queries - 1);
      float y[1];
      f.weight(score[e], batch, at, min(column, s.keys - 1), y);
      return column < s.keys ? y[0] : 0.f;
    }
    __device__ inline void take_weights(int block) {
#pragma unroll
      for (int e = 0; e < kScores / 2; ++e)
        weights[e] = pack_pair<C::kPackBf16>(weight_of(2 * e, block), weight_of(2 * e + 1, block));
    }
    __device__ inline void scale_result(float low, float high) {
#pragma unroll
      for (int e = 0; e < kResults; ++e) result[e] *= e & 2 ? high : low;
    }

    // Of O in the end.
    __device__ inline float scale_of(float max, float sum, int at) const {
      if (C::kEmptyRows == 0 || max != -infinity()) return 1.f / sum;
      bool any = false;
      for (int column = thread % 4; column < s.keys && !any; column += 4) {
        float y[1];
        f.weight_of_none(__uint_as_float(0x7fffffff), batch, min(at, s.queries - 1), column, y);
        any = y[0] != 0;
      }
      const unsigned quad = 0xfu << (threadIdx.x % 32 & ~3u);
      return __any_sync(quad, any) ? 1.f / sum : 0.f;
    }

    __device__ inline void first_block(int block) {
      mbarrier_wait(b.key_full(key.stage), key.phase);
      take_turn();
      multiply_keys();
      pass_turn();
      wgmma_wait<0>();
      pin(score);
      release_keys();
      const float times = is_inside(block) ? take_inside_scores(block) : take_masked_scores(block);
      float none;
      softmax<true>(times, none, none);
      take_weights(block);
#pragma unroll
      for (int e = 0; e < kResults; ++e) result[e] = 0;
    }
    template <bool inside>
    __device__ inline void next_block(int block) {
      mbarrier_wait(b.key_full(key.stage), key.phase);
      take_turn();
      multiply_keys();
      mbarrier_wait(b.value_full(value.stage), value.phase);
      multiply_values();
      pass_turn();
      wgmma_wait<1>();
      pin(score);
      release_keys();
      const float times = inside ? take_inside_scores(block) : take_masked_scores(block);
      float low, high;
      softmax<false>(times, low, high);
      wgmma_wait<0>();
      pin(result);
      release_values();
      take_weights(block);
      scale_result(low, high);
    }

    __device__ inline int of_slot(int i) const {
      // The same number in all lanes, as a shuffle says: loops over it keep uniform registers.
      return __shfl_sync(~0u, load_shared(memory + kSlotsAt + group * kSlotBytes + 4 * i), 0);
    }
    // False where there is none left.
    __device__ inline bool tile() {
      mbarrier_wait(b.query_full(group), query_phase);
      query_phase ^= 1;
      batch = of_slot(1);
      if (batch < 0) return false;
      const int first_row = of_slot(0), inner = of_slot(2), outer = of_slot(3);
      const int first = of_slot(4), end = of_slot(6);
      row = first_row + thread / 32 * 16 + thread % 32 / 4;
      inside_first = of_slot(7);
      inside_end = of_slot(8);
      if constexpr (C::kFolded) {
        float y[1];
        f.factor(batch, y);
        factor = y[0];
        if (!(factor > 0)) inside_end = 0;
      }
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
      first_block(block);
      --block;
      const int end_inside = C::kReads ? first : max(inside_end, first);
#pragma unroll 1
      for (; block >= end_inside; --block) next_block<false>(block);
      if constexpr (!C::kReads) {
        const int first_inside = max(inside_first, first);
#pragma unroll 1
        for (; block >= first_inside; --block) next_block<true>(block);
#pragma unroll 1
        for (; block >= first; --block) next_block<false>(block);
      }
      release(b.query_empty(group));
      mbarrier_wait(b.value_full(value.stage), value.phase);
      multiply_values();
      constexpr unsigned kNan = 0x7fffffff;
      sum_low = row_sum(sum_low);  // of all lanes: rows without a key are beside others
      sum_high = row_sum(sum_high);
      if (max_low == -infinity()) sum_low = __uint_as_float(kNan);
      if (max_high == -infinity()) sum_high = __uint_as_float(kNan);
      const float scale_low = scale_of(max_low, sum_low, row);
      const float scale_high = scale_of(max_high, sum_high, row + 8);
      if (thread % 4 == 0) {
        if (row < s.queries) f.rows(batch, row, max_low * kLn2, sum_low);
        if (row + 8 < s.queries) f.rows(batch, row + 8, max_high * kLn2, sum_high);
      }
      wgmma_wait<0>();
      pin(result);
      release_values();
      scale_result(scale_low, scale_high);
      store(first_row, inner, outer);
      return true;
    }

    __device__ inline float finished(int e) const {
      if constexpr (!C::kFinish) return result[e];
      const int column = 2 * (thread % 4) + 8 * (e / 4) + e % 2;
      const int at = min(e & 2 ? row + 8 : row, s.queries - 1);
      float y[1];
      f.finish(result[e], batch, at, min(column, s.columns - 1), y);
      return y[0];
    }
    __device__ inline void store(int first_row, int inner, int outer) {
#pragma unroll
      for (int c = 0; c < kWidthPanels; ++c) {
        if (leads()) tma_store_wait_read<0>();
        group_sync();
#pragma unroll
        for (int g = 0; g < 4; ++g) {
          const int e = c * 32 + g * 8;
          const unsigned at = thread / 32 * 16 + thread % 16;
          const unsigned chunk = g * 2 + thread % 32 / 16;
          store_fragments(staging + at * 128 + ((chunk ^ (at % 8)) << 4),
                          pack_pair<C::kPackBf16>(finished(e), finished(e + 1)),
                          pack_pair<C::kPackBf16>(finished(e + 2), finished(e + 3)),
                          pack_pair<C::kPackBf16>(finished(e + 4), finished(e + 5)),
                          pack_pair<C::kPackBf16>(finished(e + 6), finished(e + 7)));
        }
        fence_for_copies();
        group_sync();
        if (leads()) {
          tma_store(out, staging, c * 64, first_row, inner, outer);
          tma_store_commit();
        }
      }
    }
  };

  template <class F>
  static __device__ inline void run(const tensor_map& q, const tensor_map& k, const tensor_map& v,
                                    const tensor_map& out, const attention_shape& s, const F& f) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const unsigned memory = shared_address(shared_memory);
    const barriers b = {memory + kBarriersAt};
    const unsigned group = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128;
    if (threadIdx.x == 0) {
      for (int i = 0; i < C::kStages; ++i) {
        mbarrier_init(b.key_full(i), 1);
        mbarrier_init(b.value_full(i), 1);
        mbarrier_init(b.key_empty(i), C::kGroups);
        mbarrier_init(b.value_empty(i), C::kGroups);
      }
      for (int g = 0; g < C::kGroups; ++g) {
        mbarrier_init(b.query_full(g), 1);
        mbarrier_init(b.query_empty(g), 1);
      }
      mbarrier_init_done();
    }
    __syncthreads();
    const int tiles = s.batches * s.query_tiles;
    if (group == C::kGroups) {
      if constexpr (C::kProducerRegisters > 0) give_registers<C::kProducerRegisters>();
      if (thread >= 32 || !elect_one()) return;
      loads l = {q, k, v, s, memory, b};
#pragma unroll 1
      for (int round = 0, tile = tile_of(0); tile < tiles; tile = tile_of(++round))
        l.tile(place_of(s, tile), f.limits);
      l.end();
      return;
    }
    if constexpr (C::kConsumerRegisters > 0) take_registers<C::kConsumerRegisters>();
    consumer<F> c = {f, s, out, b, memory, memory + kStagingAt + group * kBoxBytes, group, thread};
    const auto low = [](int panel_bytes, unsigned at) {
      return static_cast<unsigned>(descriptor_layout(128, panel_bytes) | descriptor_address(at));
    };
    c.query_tile = low(16, memory + group * kQueryBytes);
    c.key_tile = low(16, memory + kKeysAt);
    c.value_tile = low(kPanelBytes, memory + kValuesAt);
    if (C::kPingPong && group == C::kGroups - 1) named_barrier_arrive(1, 256);
    while (c.tile()) {
    }
    if (c.leads()) tma_store_wait();
  }
};

template <class Score, class Inside, class Factor, class Limits, class Weight, class WeightOfNone,
          class Finish, class Rows>
struct attention_functions {
  const Score& score;
  const Inside& inside;
  const Factor& factor;
  const Limits& limits;
  const Weight& weight;
  const WeightOfNone& weight_of_none;
  const Finish& finish;
  const Rows& rows;
};

template <class C, class Score, class Inside, class Factor, class Limits, class Weight,
          class WeightOfNone, class Finish, class Rows>
__device__ inline void attention_sm90(const tensor_map& q, const tensor_map& k, const tensor_map& v,
                                      const tensor_map& out, const attention_shape& shape,
                                      const Score& score, const Inside& inside,
                                      const Factor& factor, const Limits& limits,
                                      const Weight& weight, const WeightOfNone& weight_of_none,
                                      const Finish& finish, const Rows& rows) {
  using functions =
      attention_functions<Score, Inside, Factor, Limits, Weight, WeightOfNone, Finish, Rows>;
  attention<C>::run(q, k, v, out, shape,
                    functions{score, inside, factor, limits, weight, weight_of_none, finish, rows});
}
