#pragma once
// attention_grad_sm90<Config>(q, k, v, dy, dk, dv, sums, turns, shape, score, inside, factor,
// limits, weight, scale, rows): the skeleton of attention's gradients on sm_90a, all three in one
// kernel, without a matrix of scores in memory.
//
//   producer warp      TMA → k and v of the tile, ring of q and dy blocks
//   rows warps         beside q: what 64 rows each have (statistics), and what the step is
//   consumer group g   keys 64g .. of a tile of 128 keys of one head of k and v, blocks of kQueries
//                      queries of all heads that share it:
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
// Element e of S' is key 16 * warp + lane / 4 + 8 * (e / 2 % 2), query 8 * (e / 4) + 2 * (lane % 4)
// + e % 2: elements 8k .. 8k + 7 are the A fragment of step k of the next product.
//
// Functions, with `batch` the number of a head of q among all, row a query and column a key:
//   score(value, of_row, batch, row, column, result out)   what is exponentiated, with kShifted
//                                   less the row's statistics, for masks that come after it
//   inside(…)                       the same, of places that the known masks let through
//   factor(batch, result out)       with kFolded exponentials inside are exp(value * factor -
//   of_row) weight(value, batch, …)         with kWeights what dv is multiplied by, of the
//   exponential
//                                   kReads: some of these read memory by place
//   limits(batch, first, last, result out)    as of attention_sm90
//   scale(batch, result out)        what dk and dq are multiplied by in the end
//   rows(batch, row, result out)    statistics and mean of a row
//
// `sums` is in the order of fragments, so that a warp adds 512 bytes in a row: element e of thread
// t of group g of block m is at ((m * 2 + g) * numbers of a group) + e / 4 * 512 + 4 t + e % 4.
// attention_grad_sums makes dq of it; attention_grad_zeroes comes first.
//
// Rows past the end have the statistics +inf, so that weights are 0. kOrdered: tiles of a head add
// to a block of dq in the order of their keys: turns[1 + 2 * block + group] counts those that have.
// turns[0] is the next tile: blocks take tiles in order, so that who waits for its turn waits for
// one that runs, even if some blocks of the grid have not started. All turns are 0 at the start.
//
// mbarriers: q (arrivals: producer with bytes, rows warps) and dy blocks full, k and v of the tile
// full, with the tile's number beside k; all of them empty (one thread a group; k also rows warps).
struct attention_grad_shape {
  int queries, keys;
  int inner, batches;  // heads of k and v of one image, of all
  int group;           // heads of q for each of them
  int key_tiles, query_tiles;
  int section;  // heads whose q and dy stay in L2 together
};

template <class C>
struct attention_grad {
  static constexpr int kKeys = 128, kStages = 2;
  static constexpr int kRowWarps = C::kQueries / 64;
  static constexpr int kPanels = C::kDepth / 64;
  static constexpr bool kSplitsColumns = C::kQueries == 64;  // how the groups share dq
  static constexpr int kColumns = kSplitsColumns ? C::kDepth / 2 : C::kDepth;
  static constexpr int kScores = C::kQueries / 2, kGrads = C::kDepth / 2;  // registers
  static constexpr int kKeyBytes = kKeys * C::kDepth * 2, kQueryBytes = C::kQueries * C::kDepth * 2;
  static constexpr int kSlopeBytes = kKeys * C::kQueries * 2, kRowBytes = C::kQueries * 4;
  static constexpr int kStagingBytes = 64 * C::kDepth * 2;  // of one group
  static constexpr int kValuesAt = kKeyBytes;
  static constexpr int kQueriesAt = 2 * kKeyBytes;
  static constexpr int kGradsAt = kQueriesAt + kStages * kQueryBytes;
  static constexpr int kSlopesAt = kGradsAt + kStages * kQueryBytes;
  static constexpr int kStagingAt = kSlopesAt + 2 * kSlopeBytes;
  static constexpr int kRowsAt = kStagingAt + 2 * kStagingBytes;
  static constexpr int kInfosAt = kRowsAt + 2 * kStages * kRowBytes;  // of the stages' steps
  static constexpr int kBarriersAt = kInfosAt + kStages * 16;
  static constexpr int kNumbers = C::kQueries * C::kDepth / 2;  // of dq that a group adds
  static_assert(C::kSharedBytes == kBarriersAt + 128);

  struct barriers {
    unsigned base;
    __device__ inline unsigned query_full(int i) const { return base + 8 * i; }
    __device__ inline unsigned query_empty(int i) const { return base + 16 + 8 * i; }
    __device__ inline unsigned grad_full(int i) const { return base + 32 + 8 * i; }
    __device__ inline unsigned grad_empty(int i) const { return base + 48 + 8 * i; }
    __device__ inline unsigned key_full() const { return base + 64; }
    __device__ inline unsigned value_full() const { return base + 72; }
    __device__ inline unsigned key_empty() const { return base + 80; }
    __device__ inline unsigned value_empty() const { return base + 88; }
    __device__ inline unsigned tile() const {
      return base + 96;
    }  // its number, any steps?, the key
  };

  struct ring {
    int stage = 0;
    unsigned phase = 0;
    __device__ inline void advance() {
      if (++stage == kStages) {
        stage = 0;
        phase ^= 1;
      }
    }
  };

  // Heads go in sections; in one the first keys come first, which most rows see under a causal
  // mask.
  struct place {
    int key, index, head, outer, inner;
  };
  static __device__ inline place place_of(const attention_grad_shape& s, int tile) {
    const int part = tile / (s.section * s.key_tiles);
    const int in_part = tile - part * s.section * s.key_tiles;
    const int heads = min(s.section, s.batches - part * s.section);
    place p;
    p.index = in_part / heads;
    p.head = part * s.section + in_part - p.index * heads;
    p.outer = p.head / s.inner;
    p.inner = p.head - p.outer * s.inner;
    p.key = p.index * kKeys;
    return p;
  }

  // The blocks of queries, head by head, that see some of a tile's keys. `row` is the first query.
  template <class Limits>
  struct steps {
    const attention_grad_shape& s;
    const Limits& limits;
    int key, batch, row, left;  // of the step; how many blocks may be left
    int first_tile = 0;         // the first tile that its rows see
    bool inside = false;        // all of them see all keys
    __device__ inline steps(const attention_grad_shape& s, const Limits& limits, const place& p)
        : s(s), limits(limits), key(p.key), batch(p.head * s.group) {
      const int ahead = C::kRotates ? p.index * 2 % s.query_tiles : 0;
      row = ahead * C::kQueries - C::kQueries;
      left = s.query_tiles * s.group;
    }
    __device__ inline bool next() {
      for (; left > 0;) {
        if (left % s.query_tiles == 0 && left != s.query_tiles * s.group) ++batch;
        --left;
        row += C::kQueries;
        if (row >= s.queries) row = 0;
        int result[4];
        limits(batch, row, min(row + C::kQueries, s.queries) - 1, result);
        const int first = max(result[0], 0), end = min(result[1], s.keys);
        if (first >= end || first >= key + kKeys || end <= key) continue;
        first_tile = first / kKeys;
        inside = result[2] <= key && min(result[3], s.keys) >= key + kKeys;
        return true;
      }
      return false;
    }
  };

  static __device__ inline int load_shared(unsigned at) {
    int v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
  }
  static __device__ inline float2 load_pair(unsigned at) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at) : "memory");
    return v;
  }
  static __device__ inline void store_shared(unsigned at, int v) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(v) : "memory");
  }
  static __device__ inline void store_shared(unsigned at, float v) {
    store_shared(at, __float_as_int(v));
  }
  // PTX ISA "red", "ld.acquire", "red.release".
  static __device__ inline void add_quad(float* to, const float* x) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x[0]),
                 "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
  }
  static __device__ inline void wait_turn(const int* turn, int count) {
    int v;
    do asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(v) : "l"(turn) : "memory");
    while (v < count);
  }
  static __device__ inline void pass_turn(int* turn) {
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(turn) : "memory");
  }
  static __device__ inline float exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  static constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f;
  static constexpr int kInside = 1, kLast = 2, kFlags = 4;  // of a step
  static __device__ inline float infinity() { return __int_as_float(0x7f800000); }
  // What is computed of it is not computed before.
  template <class T>
  static __device__ inline T opaque(T x) {
    asm volatile("" : "+r"(x));
    return x;
  }
  template <int count>
  static __device__ inline void pin(float (&x)[count]) {  // no use moves above the wait before it
#pragma unroll
    for (int i = 0; i < count; ++i) asm volatile("" : "+f"(x[i])::"memory");
  }

  // ---- producer warps

  static __device__ inline void load(unsigned to, const tensor_map& map, unsigned full, int rows,
                                     int row, int inner, int outer) {
#pragma unroll
    for (int c = 0; c < kPanels; ++c)
      tma_load(to + c * rows * 128, map, full, c * 64, row, inner, outer);
  }

  template <class F>
  static __device__ inline void produce(const tensor_map& q, const tensor_map& k,
                                        const tensor_map& v, const tensor_map& dy, int* turns,
                                        const attention_grad_shape& s, const F& f, unsigned memory,
                                        const barriers& b) {
    const int tiles = s.batches * s.key_tiles;
    ring at;
    unsigned phase = 1;
#pragma unroll 1
    for (int tile = atomicAdd(turns, 1); tile < tiles; phase ^= 1) {
      const place p = place_of(s, tile);
      const int next = atomicAdd(turns, 1);
      steps<decltype(f.limits)> step(s, f.limits, p);
      bool more = step.next();
      mbarrier_wait(b.key_empty(), phase);
      store_shared(b.tile(), tile);
      store_shared(b.tile() + 4, more ? 1 : 0);
      store_shared(b.tile() + 8, p.key);
      mbarrier_expect(b.key_full(), kKeyBytes);
      load(memory, k, b.key_full(), kKeys, p.key, p.inner, p.outer);
      bool has_values = false;
      const auto values = [&] {
        if (has_values) return;
        has_values = true;
        mbarrier_wait(b.value_empty(), phase);
        mbarrier_expect(b.value_full(), kKeyBytes);
        load(memory + kValuesAt, v, b.value_full(), kKeys, p.key, p.inner, p.outer);
      };
#pragma unroll 1
      for (; more; more = step.next()) {
        const int row = step.row, inner = step.batch - p.outer * (s.inner * s.group);
        mbarrier_wait(b.query_empty(at.stage), at.phase ^ 1);
        mbarrier_expect(b.query_full(at.stage), kQueryBytes);
        load(memory + kQueriesAt + at.stage * kQueryBytes, q, b.query_full(at.stage), C::kQueries,
             row, inner, p.outer);
        values();
        mbarrier_wait(b.grad_empty(at.stage), at.phase ^ 1);
        mbarrier_expect(b.grad_full(at.stage), kQueryBytes);
        load(memory + kGradsAt + at.stage * kQueryBytes, dy, b.grad_full(at.stage), C::kQueries,
             row, inner, p.outer);
        at.advance();
      }
      values();
      tile = next;
    }
    mbarrier_wait(b.key_empty(), phase);
    store_shared(b.tile(), -1);
    mbarrier_arrive(b.key_full());
  }

  template <class F>
  static __device__ inline void produce_rows(const attention_grad_shape& s, const F& f,
                                             unsigned memory, const barriers& b) {
    const unsigned lane = threadIdx.x % 32;
    const int first = (threadIdx.x % 128 / 32 - 1) * 64 + lane;  // row of a block
    ring at;
#pragma unroll 1
    for (unsigned phase = 0;; phase ^= 1) {
      mbarrier_wait(b.key_full(), phase);
      const int tile = load_shared(b.tile());
      bool more = load_shared(b.tile() + 4) != 0;
      __syncwarp();
      if (tile < 0) return;
      if (lane == 0) mbarrier_arrive(b.key_empty());
      if (!more) continue;
      const place p = place_of(s, tile);
      steps<decltype(f.limits)> step(s, f.limits, p);
      step.next();
#pragma unroll 1
      while (more) {
        // Read before the wait: memory is far.
        float values[2][2];
#pragma unroll
        for (int i = 0; i < 2; ++i)
          f.rows(step.batch, min(step.row + first + i * 32, s.queries - 1), values[i]);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const bool is_there = step.row + first + i * 32 < s.queries;
          values[i][0] = is_there ? values[i][0] * kLog2e : infinity();
          values[i][1] = is_there ? values[i][1] : 0.f;
        }
        const int row = step.row, batch = step.batch, turn = p.index - step.first_tile;
        const int block = batch * s.query_tiles + row / C::kQueries;
        int what = block * kFlags | (step.inside ? kInside : 0);
        more = step.next();
        if (!more) what |= kLast;
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
          store_shared(info + 4, turn);
          store_shared(info + 8, row);
          store_shared(info + 12, batch);
        }
        __syncwarp();
        if (lane == 0) mbarrier_arrive(b.query_full(at.stage));
        at.advance();
      }
    }
  }

  // ---- consumers

  template <class F>
  struct consumer {
    const F& f;
    const attention_grad_shape& s;
    const tensor_map &dk_map, &dv_map;
    float* sums;
    int* turns;
    barriers b;
    unsigned memory, staging, group, thread;
    // Of products over the depth (K-major), and read across it.
    unsigned key_rows, value_rows, query_rows, grad_rows, query_across, grad_across;
    unsigned slopes_across, keys_across;  // low halves of descriptors
    ring at = {};
    float score[kScores], grad[kScores], dk[kGrads], dv[kGrads];
    float weight[kScores];  // an accumulator that is written to would take more registers
    unsigned weights[kScores / 2], slopes[kScores / 2];  // to 16 bits

    __device__ inline unsigned step_at() const { return memory + kInfosAt + at.stage * 16; }
    __device__ inline bool leads() const { return thread == 0; }
    __device__ inline void release(unsigned empty) const {
      if (leads()) mbarrier_arrive(empty);
    }
    __device__ inline void group_sync() const { named_barrier_sync(2 + group, 128); }

    // Their high halves are the same numbers, and sums stay below 2^32: 32-bit arithmetic.
    static __device__ inline unsigned long long descriptor(unsigned low) {
      return (descriptor_layout(128, 0) >> 32 << 32) | low;
    }
    __device__ inline void multiply_rows(float (&to)[kScores], unsigned left, unsigned right) {
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < C::kDepth / 16; ++i)
        C::multiply(to, descriptor(left + i / 4 * (kKeys * 8) + i % 4 * 2),
                    descriptor(right + at.stage * (kQueryBytes >> 4) + i / 4 * (C::kQueries * 8) +
                               i % 4 * 2),
                    i != 0);
      wgmma_commit();
    }
    __device__ inline void multiply_pairs(float (&to)[kGrads], const unsigned* left,
                                          unsigned right) {
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < C::kQueries / 16; ++i)
        C::multiply_registers(to, left + 4 * i,
                              descriptor(right + at.stage * (kQueryBytes >> 4) + i * 128), 1);
      wgmma_commit();
    }

    // Scores as the graph has them.
    __device__ inline void take_scores(bool inside) {
      const int first = load_shared(b.tile() + 8);
      const int row = load_shared(step_at() + 8), batch = load_shared(step_at() + 12);
      const unsigned rows = memory + kRowsAt + at.stage * kRowBytes + thread % 4 * 8;
      const int key = first + group * 64 + thread / 32 * 16 + thread % 32 / 4;
      const int query = row + 2 * (thread % 4);
#pragma unroll
      for (int i = 0; i < kScores / 4; ++i) {
        float2 of;
        if constexpr (C::kShifted) of = load_pair(rows + i * 32);
#pragma unroll
        for (int e = 4 * i; e < 4 * i + 4; ++e) {
          int at_row = query + 8 * i + e % 2, column = key + (e & 2) * 4;
          if constexpr (C::kReads) at_row = min(at_row, s.queries - 1);
          if constexpr (C::kReads) column = min(column, s.keys - 1);
          float y[1];
          const float of_row = C::kShifted ? (e % 2 ? of.y : of.x) * kLn2 : 0.f;
          if (inside)
            f.inside(score[e], of_row, batch, at_row, column, y);
          else
            f.score(score[e], of_row, batch, at_row, column, y);
          score[e] = of_row == infinity() ? -infinity() : y[0] + of_row;
        }
      }
    }
    // Scores → weights, 16 bits for the product.
    __device__ inline void take_weights() {
      const bool inside = (load_shared(step_at()) & kInside) != 0;
      float factor[1] = {1.f};
      if (C::kFolded && inside)
        f.factor(load_shared(step_at() + 12), factor);
      else
        take_scores(inside);
      const float slope = factor[0] * kLog2e;
      const unsigned rows = memory + kRowsAt + at.stage * kRowBytes + thread % 4 * 8;
#pragma unroll
      for (int i = 0; i < kScores / 4; ++i) {
        const float2 of = load_pair(rows + i * 32);
#pragma unroll
        for (int e = 4 * i; e < 4 * i + 4; ++e)
          weight[e] = exp2(fmaf(score[e], slope, e % 2 ? -of.y : -of.x));
        if constexpr (!C::kWeights) pack_weights(i);
      }
      if (C::kWeights || load_shared(b.tile() + 8) + kKeys > s.keys) finish_weights();
    }
    __device__ inline void pack_weights(int i) {
      weights[2 * i] = pack_pair<C::kPackBf16>(weight[4 * i], weight[4 * i + 1]);
      weights[2 * i + 1] = pack_pair<C::kPackBf16>(weight[4 * i + 2], weight[4 * i + 3]);
    }
    // What is left to do in some graphs and at the end of the keys.
    __device__ inline void finish_weights() {
      const int first = load_shared(b.tile() + 8);
      const int row = load_shared(step_at() + 8), batch = load_shared(step_at() + 12);
      const int key = first + group * 64 + thread / 32 * 16 + thread % 32 / 4;
      const int query = row + 2 * (thread % 4);
#pragma unroll
      for (int i = 0; i < kScores / 4; ++i) {
#pragma unroll
        for (int e = 4 * i; e < 4 * i + 4; ++e) {
          const int at_row = query + 8 * i + e % 2, column = key + (e & 2) * 4;
          float y[1] = {weight[e]};
          if constexpr (C::kWeights)
            f.weight(weight[e], batch, min(at_row, s.queries - 1), min(column, s.keys - 1), y);
          weight[e] = at_row < s.queries && column < s.keys ? y[0] : 0.f;
        }
        pack_weights(i);
      }
    }
    __device__ inline void take_slopes() {
      const unsigned means = memory + kRowsAt + (kStages + at.stage) * kRowBytes + thread % 4 * 8;
#pragma unroll
      for (int i = 0; i < kScores / 4; ++i) {
        const float2 of = load_pair(means + i * 32);
        const float* w = weight + 4 * i;
        const float* x = grad + 4 * i;
        slopes[2 * i] = pack_pair<C::kPackBf16>(w[0] * (x[0] - of.x), w[1] * (x[1] - of.y));
        slopes[2 * i + 1] = pack_pair<C::kPackBf16>(w[2] * (x[2] - of.x), w[3] * (x[3] - of.y));
      }
    }
    __device__ inline void store_slopes() {
      const unsigned key = group * 64 + thread / 32 * 16 + thread % 16;
      const unsigned to = memory + kSlopesAt + at.stage * kSlopeBytes + key * 128;
#pragma unroll
      for (int i = 0; i < C::kQueries / 16; ++i) {
        const unsigned chunk = i % 4 * 2 + thread % 32 / 16;
        store_fragments(to + i / 4 * (kKeys * 128) + ((chunk ^ (key % 8)) << 4), slopes[4 * i],
                        slopes[4 * i + 1], slopes[4 * i + 2], slopes[4 * i + 3]);
      }
    }
    __device__ inline void add_queries(const float (&dq)[kColumns / 2], int block) const {
      float* to = sums + (block * 2 + group) * static_cast<long long>(kNumbers) + thread * 4;
#pragma unroll
      for (int i = 0; i < kColumns / 8; ++i) add_quad(to + i * 512, dq + 4 * i);
    }

    __device__ inline void tile(unsigned phase) {
#pragma unroll
      for (int e = 0; e < kGrads; ++e) dk[e] = dv[e] = 0.f;
      mbarrier_wait(b.value_full(), phase);
      int* pending = nullptr;  // the turn to be passed on once all have added
#pragma unroll 1
      for (bool more = load_shared(b.tile() + 4) != 0; more;) {
        thread = opaque(thread);  // addresses are made anew: registers are few
        mbarrier_wait(b.query_full(at.stage), at.phase);
        multiply_rows(score, key_rows, query_rows);
        mbarrier_wait(b.grad_full(at.stage), at.phase);
        multiply_rows(grad, value_rows, grad_rows);
        wgmma_wait<1>();
        pin(score);
        take_weights();
        multiply_pairs(dv, weights, grad_across);
        wgmma_wait<1>();
        pin(grad);
        take_slopes();
        store_slopes();
        if constexpr (C::kKeysFirst) multiply_pairs(dk, slopes, query_across);
        const int what = load_shared(step_at());
        more = (what & kLast) == 0;
        int* turn = nullptr;
        if constexpr (C::kOrdered) {
          turn = turns + 1 + 2 * (what / kFlags) + group;
          if (leads()) wait_turn(turn, load_shared(step_at() + 4));
        }
        fence_for_copies();
        named_barrier_sync(1, 256);  // slopes of both groups are complete
        if constexpr (C::kOrdered) {
          // Whatever the group added before the barrier comes before this release.
          if (leads() && pending != nullptr) pass_turn(pending);
          pending = turn;
        }
        float dq[kColumns / 2];
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < kKeys / 16; ++i)
          C::multiply_third(dq, descriptor(slopes_across + at.stage * (kSlopeBytes >> 4) + i * 128),
                            descriptor(keys_across + i * 128), i != 0);
        wgmma_commit();
        if constexpr (C::kKeysFirst) {
          wgmma_wait<1>();
          pin(dv);
          pin(dk);
          release(b.grad_empty(at.stage));
          release(b.query_empty(at.stage));
          wgmma_wait<0>();
        } else {
          multiply_pairs(dk, slopes, query_across);
          wgmma_wait<2>();
          pin(dv);
          release(b.grad_empty(at.stage));
          wgmma_wait<1>();
        }
        pin(dq);
        add_queries(dq, what / kFlags);
        if constexpr (!C::kKeysFirst) {
          wgmma_wait<0>();
          pin(dk);
          release(b.query_empty(at.stage));
        }
        at.advance();
      }
      const place p = place_of(s, load_shared(b.tile()));
      if (leads()) tma_store_wait_read<0>();
      group_sync();  // also: every warp has read the tile's number, even without a step
      if (C::kOrdered && leads() && pending != nullptr) pass_turn(pending);
      release(b.key_empty());
      release(b.value_empty());
      store(dv, dv_map, 1.f, p);
      if (leads()) tma_store_wait_read<0>();
      group_sync();
      float scale[1] = {1.f};
      f.scale(p.head * s.group, scale);
      store(dk, dk_map, scale[0], p);
    }

    __device__ inline void store(const float (&from)[kGrads], const tensor_map& map, float times,
                                 const place& p) {
      const unsigned row = thread / 32 * 16 + thread % 16;
#pragma unroll
      for (int c = 0; c < kPanels; ++c)
#pragma unroll
        for (int g = 0; g < 4; ++g) {
          const float* x = from + c * 32 + g * 8;
          const unsigned chunk = g * 2 + thread % 32 / 16;
          store_fragments(staging + c * 8192 + row * 128 + ((chunk ^ (row % 8)) << 4),
                          pack_pair<C::kPackBf16>(x[0] * times, x[1] * times),
                          pack_pair<C::kPackBf16>(x[2] * times, x[3] * times),
                          pack_pair<C::kPackBf16>(x[4] * times, x[5] * times),
                          pack_pair<C::kPackBf16>(x[6] * times, x[7] * times));
        }
      fence_for_copies();
      group_sync();
      if (!leads()) return;
      for (int c = 0; c < kPanels; ++c)
        tma_store(map, staging + c * 8192, c * 64, p.key + group * 64, p.inner, p.outer);
      tma_store_commit();
    }
  };

  template <class F>
  static __device__ inline void run(const tensor_map& q, const tensor_map& k, const tensor_map& v,
                                    const tensor_map& dy, const tensor_map& dk,
                                    const tensor_map& dv, float* sums, int* turns,
                                    const attention_grad_shape& s, const F& f) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const unsigned memory = shared_address(shared_memory);
    const barriers b = {memory + kBarriersAt};
    const unsigned group = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128;
    if (threadIdx.x == 0) {
      for (int i = 0; i < kStages; ++i) {
        mbarrier_init(b.query_full(i), 1 + kRowWarps);
        mbarrier_init(b.grad_full(i), 1);
        mbarrier_init(b.query_empty(i), 2);
        mbarrier_init(b.grad_empty(i), 2);
      }
      mbarrier_init(b.key_full(), 1);
      mbarrier_init(b.value_full(), 1);
      mbarrier_init(b.key_empty(), 2 + kRowWarps);
      mbarrier_init(b.value_empty(), 2);
      mbarrier_init_done();
    }
    __syncthreads();
    if (group == 2) {
      give_registers<C::kProducerRegisters>();
      if (thread < 32) {
        if (elect_one()) produce(q, k, v, dy, turns, s, f, memory, b);
      } else if (thread < 32 + 32 * kRowWarps) {
        produce_rows(s, f, memory, b);
      }
      return;
    }
    take_registers<C::kConsumerRegisters>();
    consumer<F> c = {
        f,     s,     dk, dv, sums, turns, b, memory, memory + kStagingAt + group * kStagingBytes,
        group, thread};
    const auto low = [](int panel_bytes, unsigned at) {
      return static_cast<unsigned>(descriptor_layout(128, panel_bytes) | descriptor_address(at));
    };
    constexpr int kQueryPanel = C::kQueries * 128, kKeyPanel = kKeys * 128;
    c.key_rows = low(16, memory + group * 8192);
    c.value_rows = low(16, memory + kValuesAt + group * 8192);
    c.query_rows = low(16, memory + kQueriesAt);
    c.grad_rows = low(16, memory + kGradsAt);
    c.query_across = low(kQueryPanel, memory + kQueriesAt);
    c.grad_across = low(kQueryPanel, memory + kGradsAt);
    // Rows of dq are shared: the groups take panels of slopes. Columns: panels, or halves of one,
    // of k.
    const int panel = group * kKeyPanel;
    c.slopes_across = low(kKeyPanel, memory + kSlopesAt + (kSplitsColumns ? 0 : panel));
    const int half = C::kDepth == 64 ? group * 64 : panel * (C::kDepth / 128);
    c.keys_across = low(kKeyPanel, memory + (kSplitsColumns ? half : 0));
#pragma unroll 1
    for (unsigned phase = 0;; phase ^= 1) {
      mbarrier_wait(b.key_full(), phase);
      if (load_shared(b.tile()) < 0) break;
      c.tile(phase);
    }
    if (c.leads()) tma_store_wait();
  }
};

template <class Score, class Inside, class Factor, class Limits, class Weight, class Scale,
          class Rows>
struct attention_grad_functions {
  const Score& score;
  const Inside& inside;
  const Factor& factor;
  const Limits& limits;
  const Weight& weight;
  const Scale& scale;
  const Rows& rows;
};

template <class C, class Score, class Inside, class Factor, class Limits, class Weight, class Scale,
          class Rows>
__device__ inline void attention_grad_sm90(const tensor_map& q, const tensor_map& k,
                                           const tensor_map& v, const tensor_map& dy,
                                           const tensor_map& dk, const tensor_map& dv, float* sums,
                                           int* turns, const attention_grad_shape& shape,
                                           const Score& score, const Inside& inside,
                                           const Factor& factor, const Limits& limits,
                                           const Weight& weight, const Scale& scale,
                                           const Rows& rows) {
  using functions = attention_grad_functions<Score, Inside, Factor, Limits, Weight, Scale, Rows>;
  attention_grad<C>::run(q, k, v, dy, dk, dv, sums, turns, shape,
                         functions{score, inside, factor, limits, weight, scale, rows});
}
