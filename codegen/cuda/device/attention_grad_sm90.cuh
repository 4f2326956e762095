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
// kBias: dS' are added to `bias_sums`, too, whose blocks of kKeys by kQueries are in the order of
// fragments: element e of lane l of warp w of group g at 64 kQueries g + e / 4 * 512 + 128 w + 4 l
// + e % 4 of a block; blocks of one head of the bias stand by keys, then by queries. Another kernel
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
  static constexpr int kBesideAt = kStagingAt + 2 * kStagingBytes;
  static constexpr int kBesideBytes = C::kBeside ? kKeys * C::kQueries * 2 : 0;
  static constexpr int kRowsAt = kBesideAt + kStages * kBesideBytes;
  static constexpr int kInfosAt = kRowsAt + 2 * kStages * kRowBytes;  // of the stages' steps
  static constexpr int kLargeAt = kInfosAt + kStages * 16;  // of the rows that a warp reads
  static constexpr int kBarriersAt = kLargeAt + kStages * 8;
  static constexpr int kNumbers = C::kQueries * C::kDepth / 2;  // of dq that a group adds
  struct part_of_group : C {
    static constexpr int kOfVote = 64;  // rows that a warp reads the statistics of
    static constexpr bool kOneLoop = C::kReads != 0;
  };
  using rows = attention_grad_rows<part_of_group>;
  using tiles =
      attention_grad_tiles<kKeys, C::kQueries, C::kOrdered != 0, C::kRotates != 0, C::kParts != 0>;
  using place = typename tiles::place;
  using turn = attention_grad_turns;
  using of_bias = attention_grad_bias<C>;
  template <class Limits>
  using steps = typename tiles::template steps<Limits>;
  static_assert(C::kSharedBytes == kBarriersAt + 176);

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
    __device__ inline unsigned next_full() const { return base + 96; }
    __device__ inline unsigned next_empty() const { return base + 104; }
    __device__ inline unsigned turn() const { return base + 112; }
    __device__ inline unsigned added() const { return base + 120; }
    __device__ inline unsigned next() const { return base + 128; }  // the number of the next tile
    __device__ inline unsigned tile() const { return base + 144; }  // its number, any steps?, key
    __device__ inline unsigned bias_turn() const { return base + 160; }
    __device__ inline unsigned bias_added() const { return base + 168; }
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

  static __device__ inline int load_shared(unsigned at) {
    int v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
  }
  static __device__ inline void store_shared(unsigned at, int v) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(v) : "memory");
  }
  static __device__ inline void store_shared(unsigned at, float v) {
    store_shared(at, __float_as_int(v));
  }
  // Of a step, beside its block by kFlags; kPart: the block has fewer rows.
  // kDead: some rows that the first of the warps reads see no key.
  static constexpr int kInside = 1, kLast = 2, kPart = 4, kDead = 8, kFlags = 16;
  // Of a tile: whether there are steps, and whether no row sees some of its keys.
  static constexpr int kSteps = 1, kUnseen = 2;
  static constexpr int kTurnWarps = C::kOrdered ? 3 - kRowWarps : 0;
  static constexpr int kZeroWarps = C::kOrdered ? 0 : 1;
  static constexpr int kHelpers = kRowWarps + kTurnWarps + kZeroWarps;  // beside the producer
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

  // All lanes of a warp run it; one of them asks for copies.
  template <class F>
  static __device__ inline void produce(const tensor_map& q, const tensor_map& k,
                                        const tensor_map& v, const tensor_map& dy,
                                        const tensor_map& beside, int* turns,
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
      steps<decltype(f.limits)> step(s, f.limits, p);
      bool more = step.next();
      const attention_grad_keys seen = attention_grad_seen(s, f.limits, p.head);
      const bool unseen = seen.first > p.key || seen.end < min(p.key + kKeys, s.keys);
      mbarrier_wait(b.key_empty(), phase);
      if (leads) {
        store_shared(b.tile(), tile);
        store_shared(b.tile() + 4, (more ? kSteps : 0) | (unseen ? kUnseen : 0));
        store_shared(b.tile() + 8, p.key);
        mbarrier_expect(b.key_full(), kKeyBytes);
        load(memory, k, b.key_full(), kKeys, p.key, p.inner, p.outer);
      }
      bool has_values = false;
      const auto values = [&] {
        if (has_values) return;
        has_values = true;
        mbarrier_wait(b.value_empty(), phase);
        if (!leads) return;
        mbarrier_expect(b.value_full(), kKeyBytes);
        load(memory + kValuesAt, v, b.value_full(), kKeys, p.key, p.inner, p.outer);
      };
#pragma unroll 1
      for (; more; more = step.next()) {
        const int row = step.row;
        const int heads = s.inner * (C::kParts ? s.parts : 1) * s.group;
        const int inner = step.batch - p.outer * heads;
        mbarrier_wait(b.query_empty(at.stage), at.phase ^ 1);
        if (leads) {
          mbarrier_expect(b.query_full(at.stage), kQueryBytes + kBesideBytes);
          load(memory + kQueriesAt + at.stage * kQueryBytes, q, b.query_full(at.stage), C::kQueries,
               row, inner, p.outer);
          if constexpr (C::kBeside != 0) {
#pragma unroll
            for (int g = 0; g < 2; ++g)
              tma_load(memory + kBesideAt + at.stage * kBesideBytes + g * (kBesideBytes / 2),
                       beside, b.query_full(at.stage), p.key + g * 64, row,
                       C::kBesideHeads ? inner : 0, C::kBesideImages ? p.outer : 0);
          }
        }
        values();
        mbarrier_wait(b.grad_empty(at.stage), at.phase ^ 1);
        if (leads) {
          mbarrier_expect(b.grad_full(at.stage), kQueryBytes);
          load(memory + kGradsAt + at.stage * kQueryBytes, dy, b.grad_full(at.stage), C::kQueries,
               row, inner, p.outer);
        }
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
          if constexpr (C::kBias) store_shared(info + 12, of_bias::block(s, p, batch, row));
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

  // Waits for the turn of each step, lets the groups add, and passes the turn on: what waits for
  // memory is not on the way of a product. Two warps share this where there are two, so that one
  // waits for the next turn while the other's release waits for what was added.
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

  // A tile's sums are zeroes. What consumers wait for is told when they are done with the tile
  // before, so that they miss no phase.
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

  // ---- consumers

  template <class F>
  struct consumer {
    const F& f;
    const attention_grad_shape& s;
    const tensor_map &dk_map, &dv_map;
    float *sums, *part_sums, *all_bias_sums;
    barriers b;
    unsigned memory, staging, group, thread;
    // Of products over the depth (K-major), and read across it.
    unsigned key_rows, value_rows, query_rows, grad_rows, query_across, grad_across;
    unsigned slopes_across, keys_across;  // low halves of descriptors
    ring at = {};
    rows part;
    float dk[kGrads], dv[kGrads];

    // Numbers of the step that lie in shared memory: they are read where they are needed, since
    // registers are few.
    struct place_in_step {
      const consumer& c;
      int what;
      __device__ inline int key() const {
        return load_shared(c.b.tile() + 8) + c.group * 64 + c.thread / 32 * 16 + c.thread % 32 / 4;
      }
      __device__ inline int query() const {
        return load_shared(c.step_at() + 4) + 2 * (c.thread % 4);
      }
      __device__ inline int batch() const { return load_shared(c.step_at() + 8); }
      __device__ inline bool ends() const {
        return (what & kPart) != 0 || load_shared(c.b.tile() + 8) + kKeys > c.s.keys;
      }
      __device__ inline bool is_large(int i) const {
        return load_shared(c.memory + kLargeAt + (c.at.stage * kRowWarps + i) * 4) != 0;
      }
      __device__ inline unsigned statistics() const {
        return c.memory + kRowsAt + c.at.stage * kRowBytes + c.thread % 4 * 8;
      }
      __device__ inline float* bias_sums(int i) const {
        const long long block = load_shared(c.step_at() + 12);
        return c.all_bias_sums + (block * 2 + c.group) * (64 * C::kQueries) + i * 512 +
               c.thread * 4;
      }
      // Rows of 64 keys of a group; a warp's 16 keys are two pieces of 16 bytes.
      __device__ inline void load_beside(int i, unsigned (&to)[4]) const {
        const unsigned lane = c.thread % 32, row = 8 * i + lane / 16 * 8 + lane % 8;
        const unsigned chunk = c.thread / 32 * 2 + lane / 8 % 2;
        load_transposed(c.memory + kBesideAt + c.at.stage * kBesideBytes +
                            c.group * (kBesideBytes / 2) + row * 128 + ((chunk ^ (lane % 8)) << 4),
                        to[0], to[1], to[2], to[3]);
      }
    };
    __device__ inline unsigned step_at() const { return memory + kInfosAt + at.stage * 16; }
    __device__ inline bool leads() const { return thread == 0; }
    __device__ inline void release(unsigned empty) const {
      if (leads()) mbarrier_arrive(empty);
    }
    // Each warp says that it has read the step's block: the number of a later one, read by a warp
    // that is late, would have its part of dq added elsewhere.
    __device__ inline void release_step(int stage) const {
      __syncwarp();
      if (thread % 32 == 0) mbarrier_arrive(b.query_empty(stage));
    }
    // The group, found anew where a register would wait for the end of a tile.
    static __device__ inline unsigned own_group() { return opaque(threadIdx.x) / 128; }
    static __device__ inline void group_sync() { named_barrier_sync(2 + own_group(), 128); }

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

    __device__ inline void store_slopes() {
      const unsigned key = group * 64 + thread / 32 * 16 + thread % 16;
      const unsigned to = memory + kSlopesAt + at.stage * kSlopeBytes + key * 128;
#pragma unroll
      for (int i = 0; i < C::kQueries / 16; ++i) {
        const unsigned chunk = i % 4 * 2 + thread % 32 / 16;
        store_fragments(to + i / 4 * (kKeys * 128) + ((chunk ^ (key % 8)) << 4), part.slopes[4 * i],
                        part.slopes[4 * i + 1], part.slopes[4 * i + 2], part.slopes[4 * i + 3]);
      }
    }
    __device__ inline void add_queries(const float (&dq)[kColumns / 2], int block) const {
      float* to = sums + (block * 2 + group) * static_cast<long long>(kNumbers) + thread * 4;
#pragma unroll
      for (int i = 0; i < kColumns / 8; ++i) turn::add_quad(to + i * 512, dq + 4 * i);
    }
    // The parity of a step is its stage, of which there are two.
    __device__ inline void add_in_turn(const float (&dq)[kColumns / 2], int block,
                                       int stage) const {
      static_assert(kStages == 2);
      if constexpr (C::kOrdered) mbarrier_wait(b.turn(), stage);
      add_queries(dq, block);
      if constexpr (C::kOrdered) {
        __syncwarp();
        if (thread % 32 == 0) mbarrier_arrive(b.added());
      }
    }

    __device__ inline void take_bias_turn() const {
      if constexpr (of_bias::kInOrder) mbarrier_wait(b.bias_turn(), at.stage);
    }
    __device__ inline void pass_bias_turn() const {
      if constexpr (!of_bias::kInOrder) return;
      __syncwarp();
      if (thread % 32 == 0) mbarrier_arrive(b.bias_added());
    }

    // Rows of 128 bytes, of all panels; then both groups' threads have written theirs.
    template <int count, class Where>
    __device__ inline void zero_where(unsigned to, const Where& where) const {
#pragma unroll 1
      for (unsigned i = group * 128 + thread; i < count * kPanels * 8; i += 256) {
        const unsigned row = i / 8 % count;
        if (where(row)) store_zeroes(to + i / 8 / count * (count * 128) + row * 128 + i % 8 * 16);
      }
    }
    static __device__ inline void store_zeroes(unsigned at) {
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(0) : "memory");
    }
    static __device__ inline void zeroes_stored() {
      fence_for_copies();
      named_barrier_sync(1, 256);
    }
    // Of a block of q or dy that is there: rows that see no key.
    __device__ inline void zero_rows(unsigned blocks_at, int what) const {
      if constexpr (kRowWarps > 1) what |= load_shared(step_at() + 12);
      if ((what & kDead) == 0) return;
      const unsigned of = memory + kRowsAt + at.stage * kRowBytes;
      zero_where<C::kQueries>(memory + blocks_at + at.stage * kQueryBytes, [&](unsigned row) {
        return __int_as_float(load_shared(of + row * 4)) == rows::infinity();
      });
      zeroes_stored();
    }
    // Of k and v, which are there: keys that no row sees.
    __device__ inline void zero_keys() const {
      const place p = tiles::place_of(s, load_shared(b.tile()));
      const attention_grad_keys seen = attention_grad_seen(s, f.limits, p.head);
      const auto is_unseen = [&](unsigned key) {
        const int at_key = p.key + static_cast<int>(key);
        return at_key < seen.first || at_key >= seen.end;
      };
      zero_where<kKeys>(memory, is_unseen);
      zero_where<kKeys>(memory + kValuesAt, is_unseen);
      zeroes_stored();
    }

    // Scores of the next step are multiplied while this one's dq is waited for; behind the last one
    // of a tile scores of whatever is there, since a product in a branch would be waited for.
    __device__ inline void start(bool is_there) {
      if (is_there) {
        mbarrier_wait(b.query_full(at.stage), at.phase);
        zero_rows(kQueriesAt, load_shared(step_at()));
      }
      multiply_rows(part.score, key_rows, query_rows);
    }
    // Of a step whose scores are there; what it says of itself is `what`.
    __device__ inline void step(int what) {
      const bool goes_on = (what & kLast) == 0;
      thread = opaque(thread);  // addresses are made anew: registers are few
      mbarrier_wait(b.grad_full(at.stage), at.phase);
      zero_rows(kGradsAt, what);
      multiply_rows(part.grad, value_rows, grad_rows);
      const place_in_step here = {*this, what};
      const unsigned means = here.statistics() + kStages * kRowBytes;
      part.take_kept(f, s, here);
      if constexpr (rows::kTogether) {
        wgmma_wait<0>();
        pin(part.grad);
        take_bias_turn();
        part.take_both(f, s, here, (what & kInside) != 0, means);
        pass_bias_turn();
        multiply_pairs(dv, part.weights, grad_across);
      } else {
        part.take_weights(f, s, here, (what & kInside) != 0);
        multiply_pairs(dv, part.weights, grad_across);
        wgmma_wait<1>();
        pin(part.grad);
        take_bias_turn();
        part.take_slopes(f, s, here, means);
        pass_bias_turn();
      }
      if (!goes_on) release(b.value_empty());
      store_slopes();
      if constexpr (C::kKeysFirst) multiply_pairs(dk, part.slopes, query_across);
      wgmma_wait<C::kKeysFirst ? 1 : 0>();  // its operand's registers are needed
      pin(dv);
      release(b.grad_empty(at.stage));
      fence_for_copies();
      named_barrier_sync(1, 256);  // slopes of both groups are complete
      float dq[kColumns / 2];
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < kKeys / 16; ++i)
        C::multiply_third(dq, descriptor(slopes_across + at.stage * (kSlopeBytes >> 4) + i * 128),
                          descriptor(keys_across + i * 128), i != 0);
      wgmma_commit();
      if constexpr (!C::kKeysFirst) multiply_pairs(dk, part.slopes, query_across);
      const ring now = at;
      at.advance();
      // At 128 columns dq and the next scores have no room beside each other.
      if constexpr (C::kKeysFirst) start(goes_on);
      constexpr int kAhead = C::kKeysFirst ? 1 : 0;
      wgmma_wait<1 + kAhead>();
      // Read again: until here no register was left for it.
      const int block = load_shared(memory + kInfosAt + now.stage * 16) / kFlags;
      if constexpr (C::kKeysFirst) {
        pin(dk);
        release_step(now.stage);
        wgmma_wait<kAhead>();
      }
      pin(dq);
      add_in_turn(dq, block, now.stage);
      if constexpr (!C::kKeysFirst) {
        start(goes_on);
        wgmma_wait<1>();
        pin(dk);
        release_step(now.stage);
      }
      wgmma_wait<0>();
      pin(part.score);
    }

    __device__ inline void tile(unsigned phase) {
#pragma unroll
      for (int e = 0; e < kGrads; ++e) dk[e] = dv[e] = 0.f;
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
        wgmma_wait<0>();
        pin(part.score);
        int what;
#pragma unroll 1
        do {
          what = load_shared(step_at());
          step(what);
        } while ((what & kLast) == 0);
      }
      const place p = tiles::place_of(s, load_shared(b.tile()));
      if constexpr (C::kParts != 0) {
        group_sync();  // every warp has read the tile's number
        release(b.key_empty());
        if (!any) release(b.value_empty());
        store_part(dk, p, 0);
        store_part(dv, p, 1);
        return;
      }
      if (leads()) tma_store_wait_read<0>();
      group_sync();  // also: every warp has read the tile's number, even without a step
      release(b.key_empty());
      if (!any) release(b.value_empty());
      store(dv, dv_map, 1.f, p);
      if (leads()) tma_store_wait_read<0>();
      group_sync();
      float scale[1] = {1.f};
      f.scale(p.head * s.group, scale);
      store(dk, dk_map, scale[0], p);
    }

    // dk and dv of the parts of a head lie side by side for each tile: in order those of each part,
    // which another kernel adds up, else their sums.
    __device__ inline void store_part(const float (&from)[kGrads], const place& p,
                                      int which) const {
      const int head = C::kOrdered ? p.head : p.head / s.parts;
      const long long number = (head * s.key_tiles + p.index) * 2ll + which;
      float* to = part_sums + (number * 2 + own_group()) * 64 * C::kDepth + thread * 4;
#pragma unroll
      for (int i = 0; i < kGrads / 4; ++i, to += 512) {
        if constexpr (C::kOrdered)
          *reinterpret_cast<float4*>(to) =
              make_float4(from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]);
        else
          turn::add_quad(to, from + 4 * i);
      }
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
        tma_store(map, staging + c * 8192, c * 64, p.key + own_group() * 64, p.inner, p.outer);
      tma_store_commit();
    }
  };

  template <class F>
  static __device__ inline void run(const tensor_map& q, const tensor_map& k, const tensor_map& v,
                                    const tensor_map& dy, const tensor_map& dk,
                                    const tensor_map& dv, const tensor_map& beside, float* sums,
                                    int* turns, float* part_sums, float* bias_sums,
                                    const attention_grad_shape& s, const F& f) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const unsigned memory = shared_address(shared_memory);
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
        produce(q, k, v, dy, beside, turns, s, f, memory, b);
      else if (warp <= kRowWarps)
        produce_rows(s, f, memory, b);
      else if (kZeroWarps > 0 && warp == 3)
        zero(s, sums, turns, b);
      else if (kTurnWarps == 1)
        take_turns<true, true>(s, f, turns, b);
      else if (kTurnWarps == 2 && warp == 2)
        take_turns<true, false>(s, f, turns, b);
      else if (kTurnWarps == 2)
        take_turns<false, true>(s, f, turns, b);
      return;
    }
    take_registers<C::kConsumerRegisters>();
    consumer<F> c = {f,         s,         dk, dv,     sums,
                     part_sums, bias_sums, b,  memory, memory + kStagingAt + group * kStagingBytes,
                     group,     thread};
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
  attention_grad<C>::run(q, k, v, dy, dk, dv, beside, sums, turns, part_sums, bias_sums, shape,
                         functions{score, inside, factor, limits, visible, random, kept, weight,
                                   slope, add_bias, scale, rows});
}
