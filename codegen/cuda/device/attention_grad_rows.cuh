#pragma once
// What the skeletons of attention's gradients share, whoever multiplies and loads:
// attention_grad_shape, the tiles and their steps (attention_grad_tiles), and what a thread does
// with its part of 16 keys of scores (attention_grad_rows).
//
//   tile     kKeys keys of one head of k and v; its steps: blocks of kQueries queries of all heads
//            that share it, of which some see some of the keys
//
//     P' = weight(S'), dS' = (D' - mean of the row) * P', or slope(…)
//
// with scores the other way around, to 16 bits.
//
// Element e of S' is key lane / 4 + 8 * (e / 2 % 2) of the warp's 16, query 8 * (e / 4) + 2 * (lane
// % 4) + e % 2: elements 8k .. 8k + 7 are the A fragment of step k of the next product.
//
// Functions, with `batch` the number of a head of q among all, row a query and column a key:
//   score(value, of_row, batch, row, column, result out)   what is exponentiated, with kShifted
//                                   less the row's statistics, for masks that come after it
//   inside(…)                       the same, of places that the known masks let through
//   factor(batch, result out)       with kFolded exponentials inside are
//                                   exp(value * factor - of_row)
//   visible(batch, row, column, result out)   with kZeroes whether the exponential counts: 1 or 0;
//                                   asked of places that the known masks do not let through
//   kept(batch, …)                  with kKept a bit of the place, 1 or 0, that weight and slope
//   get weight(value, bit, batch, …)    with kWeights what dv is multiplied by, of the exponential
//   slope(value, bit, product, of_row, grad, mean, batch, …)   with kSlopes dS', of the
//                                   exponential and of D'; kKeepsScores: of the product; and of the
//                                   row's statistics, kSlopesOfRows
//                                   kReads: some of these read memory by place
//   add_bias(value, batch, …)       with kBias, of the second result of slope: adds to the gradient
//                                   of a bias, which is summed over heads (kBiasHeads), batches
//                                   (kBiasBatches) or both
//   limits(batch, first, last, result out)    as of attention_sm90
//   scale(batch, result out)        what dk and dq are multiplied by in the end
//   rows(batch, row, result out)    statistics and mean of a row
//
// `sums` of dq are in the order of fragments, so that a warp adds 512 bytes in a row: element e of
// lane l of warp w of part m of a block is at (m * elements of a part) + e / 4 * 512 + 128 w + 4 l
// + e % 4. A part is half of the columns, or of the rows. Another kernel makes dq of it; zeroes
// come first: before the kernel, or of all but the first section while it makes the one before
// (attention_grad_zeroes).
//
// Rows past the end have the statistics +inf, so that weights are 0, and so have rows that see no
// key, by `rows` (ir/graph/spelled_attention.h) or by limits. Where a block has such rows, what q
// and dy have there is overwritten by zeroes before it is multiplied, and so is what k and v have
// at keys that no row sees: 0 times what is no number would be none. In shared memory statistics
// are multiplied by log2(e), for the multiply-add of the exponential. Of rows with large ones, as a
// mask of -1e9 or of a type's lowest value leaves them, what that product's rounding left would be
// a power of two of its own: where one of kOfVote rows has such, those of all of them stand as they
// are, with a flag, and are subtracted before anything is multiplied.
//
// kOrdered: tiles of a head add
// to a block of dq in the order of their keys, the last first: turns[1 + block] counts those that
// have. turns[0] is the next tile: blocks take tiles in order, so that who waits for its turn waits
// for one that runs, even if some blocks of the grid have not started. All turns are 0 at the
// start.
struct attention_grad_shape {
  int queries, keys;
  int inner, batches;  // heads of k and v of one image, of all
  int group;           // heads of q for each of them
  int key_tiles, query_tiles;
  int section;  // heads whose q and dy stay in L2 together
};

// Keys from first to end are those that some row of the heads that share a head of k and v sees:
// what k and v hold beside them, infinities or no numbers, must not reach what 0 multiplies.
struct attention_grad_keys {
  int first, end;
};
template <class Limits>
__device__ inline attention_grad_keys attention_grad_seen(const attention_grad_shape& s,
                                                          const Limits& limits, int head) {
  attention_grad_keys seen = {s.keys, 0};
#pragma unroll 1
  for (int i = 0; i < s.group; ++i) {
    int of[4];
    limits(head * s.group + i, 0, s.queries - 1, of);
    seen.first = min(seen.first, max(of[0], 0));
    seen.end = max(seen.end, min(of[1], s.keys));
  }
  return seen;
}

// Of a section.
__device__ inline int attention_grad_heads(const attention_grad_shape& s, int part) {
  return min(s.section, s.batches - part * s.section);
}

template <int kKeys, int kQueries, bool kOrdered, bool kRotates>
struct attention_grad_tiles {
  // Heads go in sections; in one the first keys come first, which most rows see under a causal
  // mask. In order: the last keys, which nobody waits for under a causal mask, since a tile's first
  // rows are those that no later keys have.
  struct place {
    int part, in_part;  // section, tile of it
    int key, index, head, outer, inner;
  };
  static __device__ inline place place_of(const attention_grad_shape& s, int tile) {
    place p;
    p.part = tile / (s.section * s.key_tiles);
    p.in_part = tile - p.part * s.section * s.key_tiles;
    const int heads = attention_grad_heads(s, p.part);
    p.index = p.in_part / heads;
    p.head = p.part * s.section + p.in_part - p.index * heads;
    if (kOrdered) p.index = s.key_tiles - 1 - p.index;
    p.outer = p.head / s.inner;
    p.inner = p.head - p.outer * s.inner;
    p.key = p.index * kKeys;
    return p;
  }

  // The blocks of queries, head by head, that see some of a tile's keys. The lanes of a warp ask
  // about 32 at once.
  template <class Limits>
  struct steps {
    const attention_grad_shape& s;
    const Limits& limits;
    int key, head, ahead;  // where the tile's first block is
    int window = -32;      // of the blocks that were asked about
    unsigned seen = 0;     // those of them that are left
    int of_lane = 0;       // last tile that its rows see, and whether they all see all keys
    int batch, row;        // of the step
    int last_tile;         // the last tile that its rows see
    bool inside;           // all of them see all keys
    __device__ inline steps(const attention_grad_shape& s, const Limits& limits, const place& p)
        : s(s), limits(limits), key(p.key), head(p.head) {
      ahead = kRotates ? p.index * (kKeys / kQueries) % s.query_tiles : 0;
    }
    __device__ inline void go_to(int number) {
      const int of_group = number / s.query_tiles;
      int block = number - of_group * s.query_tiles + ahead;
      if (block >= s.query_tiles) block -= s.query_tiles;
      batch = head * s.group + of_group;
      row = block * kQueries;
    }
    // Whether rows of a block see some of the keys; and all that they see.
    __device__ inline bool sees(int of, int at_row, int (&result)[4]) const {
      limits(of, at_row, min(at_row + kQueries, s.queries) - 1, result);
      const int first = max(result[0], 0), end = min(result[1], s.keys);
      return first < end && first < key + kKeys && end > key;
    }
    // The steps at this block of other heads, up to `most` before this one's and `stride` apart,
    // that see some of these keys. The lanes of a warp share them.
    __device__ inline int count_before(int most, int stride) const {
      int count = 0;
#pragma unroll 1
      for (int i = 1; i <= most; i += 32) {
        const int at = i + threadIdx.x % 32;
        int result[4];
        const bool is_one = sees(batch - min(at, most) * stride, row, result) && at <= most;
        count += __popc(__ballot_sync(~0u, is_one));
      }
      return count;
    }
    __device__ inline void ask() {
      const int number = window + threadIdx.x % 32, count = s.query_tiles * s.group;
      go_to(min(number, count - 1));
      int result[4];
      const bool sees_some = sees(batch, row, result);
      const int end = min(result[1], s.keys);
      const bool all = result[2] <= key && min(result[3], s.keys) >= key + kKeys;
      of_lane = max(end - 1, 0) / kKeys * 2 + (all ? 1 : 0);
      seen = __ballot_sync(~0u, sees_some && number < count);
    }
    __device__ inline bool next() {
#pragma unroll 1
      while (seen == 0) {
        window += 32;
        if (window >= s.query_tiles * s.group) return false;
        ask();
      }
      const int lane = __ffs(seen) - 1;
      seen &= seen - 1;
      const int of_step = __shfl_sync(~0u, of_lane, lane);
      last_tile = of_step / 2;
      inside = of_step % 2 != 0;
      go_to(window + lane);
      return true;
    }
  };
};

// What the adders of dq have of each other.
struct attention_grad_turns {
  // PTX ISA "red", "ld.acquire", "red.release".
  static __device__ inline void add_quad(float* to, const float* x) {
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x[0]),
                 "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
#else
#pragma unroll
    for (int i = 0; i < 4; ++i)
      asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to + i), "f"(x[i]) : "memory");
#endif
  }
  static __device__ inline void wait_turn(const int* turn, int count) {
    int v;
    do asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(v) : "l"(turn) : "memory");
    while (v < count);
  }
  static __device__ inline void pass_turn(int* turn) {
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(turn) : "memory");
  }
};

// The sums of the first section are zeroes when the kernel starts. Those of any other one are
// zeroed by the blocks that make tiles of the section before it, a share each: so they are still in
// L2 when they are added to. turns[1 + section] counts the shares. Nobody waits in a circle: a tile
// waits only for blocks that took tiles before it, and these zero at once. All lanes of a warp run
// it.
template <int kQueries, int kDepth, class Place>
struct attention_grad_zeroes {
  static __device__ inline void zero_ahead(const attention_grad_shape& s, const Place& p,
                                           float* sums, int* turns) {
    const int part = p.part + 1;
    if (part * s.section >= s.batches) return;
    constexpr int kOfWarp = 128;  // floats that a warp stores at once
    const int of_head = s.group * s.query_tiles * (kQueries * kDepth / kOfWarp);
    const int count = attention_grad_heads(s, part) * of_head, shares = s.section * s.key_tiles;
    const int share = (count + shares - 1) / shares, first = p.in_part * share;
    float4* at = reinterpret_cast<float4*>(sums) + threadIdx.x % 32 +
                 (static_cast<long long>(part) * s.section * of_head + first) * (kOfWarp / 4);
#pragma unroll 4
    for (int i = first; i < min(first + share, count); ++i, at += kOfWarp / 4)
      *at = make_float4(0.f, 0.f, 0.f, 0.f);
    __syncwarp();
    if (threadIdx.x % 32 == 0) attention_grad_turns::pass_turn(turns + 1 + part);
  }
  static __device__ inline void wait(const attention_grad_shape& s, const Place& p,
                                     const int* turns) {
    if (p.part > 0) attention_grad_turns::wait_turn(turns + 1 + p.part, s.section * s.key_tiles);
  }
};

// A thread's part of 16 keys, of a block of C::kQueries queries. A step says where it is: key() and
// query() of the thread's first element, batch(), ends() where rows or keys do, statistics(), the
// address in shared memory of those of the thread's first row, and is_large(i), the flag of rows i
// * kOfVote and on, the same in all lanes of a warp.
template <class C>
struct attention_grad_rows {
  static constexpr int kScores = C::kQueries / 2;  // registers
  static __device__ inline float exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  static constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f;
  static __device__ inline float infinity() { return __int_as_float(0x7f800000); }
  // Of all lanes of a warp: whether their rows' statistics stay as they are. Above that exponents
  // would be off by more than 2^-10; +inf is no number.
  static __device__ inline bool any_large(float stats) {
    return __any_sync(~0u, fabsf(stats) > 4096.f && fabsf(stats) != infinity());
  }
  // Statistics and mean of a row, +inf and 0 of one that sees no key or is none: whatever q and dy
  // hold there counts as 0.
  template <class F>
  static __device__ inline void read_row(const F& f, const attention_grad_shape& s, int batch,
                                         int row, float (&of)[2]) {
    const int at = min(row, s.queries - 1);
    f.rows(batch, at, of);
    bool sees = row < s.queries && of[0] != infinity();
    if constexpr (C::kZeroes) {
      int keys[4];
      f.limits(batch, at, at, keys);
      sees = sees && max(keys[0], 0) < min(keys[1], s.keys);
    }
    if (sees) return;
    of[0] = infinity();
    of[1] = 0.f;
  }
  static __device__ inline float2 load_pair(unsigned at) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at) : "memory");
    return v;
  }

  float score[kScores], grad[kScores];
  float weight[kScores];  // an accumulator that is written to would take more registers
  unsigned bits[C::kKept ? (kScores + 31) / 32 : 1];
  unsigned weights[kScores / 2], slopes[kScores / 2];  // to 16 bits

  // Where scores become exponents: in their place, unless the slopes want them.
  __device__ inline float& exponent(int e) { return C::kKeepsScores ? weight[e] : score[e]; }

  // Scores as the graph has them; `subtracts`: less the rows' statistics.
  template <class F, class Step>
  __device__ inline void take_scores(const F& f, const attention_grad_shape& s, const Step& step,
                                     bool inside, bool subtracts) {
    const int key = step.key(), query = step.query(), batch = step.batch();
    const unsigned rows = step.statistics();
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
      float2 of;
      if (C::kShifted || subtracts) of = load_pair(rows + i * 32);
      const bool is_natural =
          subtracts && (C::kQueries == C::kOfVote || step.is_large(8 * i / C::kOfVote));
#pragma unroll
      for (int e = 4 * i; e < 4 * i + 4; ++e) {
        int at_row = query + 8 * i + e % 2, column = key + (e & 2) * 4;
        if constexpr (C::kReads) at_row = min(at_row, s.queries - 1);
        if constexpr (C::kReads) column = min(column, s.keys - 1);
        float y[1];
        float of_row = 0.f;
        if (C::kShifted || subtracts) of_row = (e % 2 ? of.y : of.x) * (is_natural ? 1.f : kLn2);
        if (inside && !subtracts)
          f.inside(score[e], of_row, batch, at_row, column, y);
        else
          f.score(score[e], of_row, batch, at_row, column, y);
        if constexpr (C::kShifted)
          exponent(e) = of_row == infinity() ? -infinity() : subtracts ? y[0] : y[0] + of_row;
        else
          exponent(e) = subtracts ? y[0] - of_row : y[0];
      }
    }
  }
  template <class Step>
  static __device__ inline bool any_rows_large(const Step& step) {
    bool any = false;
#pragma unroll
    for (int i = 0; i < C::kQueries / C::kOfVote; ++i) any |= step.is_large(i);
    return any;
  }
  // Scores → weights, 16 bits for the product.
  template <class F, class Step>
  __device__ inline void take_weights(const F& f, const attention_grad_shape& s, const Step& step,
                                      bool inside) {
    const bool large = any_rows_large(step);
    float factor[1] = {1.f};
    if constexpr (C::kOneLoop)
      take_scores(f, s, step, inside, large);
    else if (large)
      take_scores(f, s, step, false, true);
    else if (C::kFolded && inside) {
      f.factor(step.batch(), factor);
      if constexpr (C::kKeepsScores) {
#pragma unroll
        for (int e = 0; e < kScores; ++e) weight[e] = score[e];
      }
    } else
      take_scores(f, s, step, inside, false);
    if (large)
      take_exponentials(kLog2e, [](int) { return make_float2(0.f, 0.f); });
    else
      take_exponentials(factor[0] * kLog2e,
                        [&](int i) { return load_pair(step.statistics() + i * 32); });
    if (kFinishes || step.ends() || (C::kZeroes && !inside)) finish_weights(f, s, step, inside);
  }
  static constexpr bool kFinishes = C::kWeights || C::kKept;  // of all blocks
  template <class Rows>
  __device__ inline void take_exponentials(float slope, const Rows& rows) {
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
      const float2 of = rows(i);
#pragma unroll
      for (int e = 4 * i; e < 4 * i + 4; ++e)
        weight[e] = exp2(fmaf(exponent(e), slope, e % 2 ? -of.y : -of.x));
      if constexpr (!kFinishes) pack_weights(i, weight + 4 * i);
    }
  }
  __device__ inline void pack_weights(int i, const float* of) {
    weights[2 * i] = pack_pair<C::kPackBf16>(of[0], of[1]);
    weights[2 * i + 1] = pack_pair<C::kPackBf16>(of[2], of[3]);
  }
  // What is left to do in some graphs, at places that masks may hide, and at the end of keys and
  // rows.
  template <class F, class Step>
  __device__ inline void finish_weights(const F& f, const attention_grad_shape& s, const Step& step,
                                        bool inside) {
    const int key = step.key(), query = step.query(), batch = step.batch();
    if constexpr (C::kKept) {
#pragma unroll
      for (unsigned& word : bits) word = 0;
    }
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
      float of[4];
#pragma unroll
      for (int e = 4 * i; e < 4 * i + 4; ++e) {
        const int at_row = query + 8 * i + e % 2, column = key + (e & 2) * 4;
        const int row = min(at_row, s.queries - 1), key_of = min(column, s.keys - 1);
        bool counts = at_row < s.queries && column < s.keys;
        if constexpr (C::kZeroes) {
          float y[1] = {1.f};
          if (!inside) f.visible(batch, row, key_of, y);
          counts = counts && y[0] != 0.f;
        }
        if (!counts) weight[e] = 0.f;
        float bit[1] = {1.f}, y[1] = {weight[e]};
        if constexpr (C::kKept) {
          f.kept(batch, row, key_of, bit);
          bits[e / 32] |= (bit[0] != 0.f ? 1u : 0u) << e % 32;
        }
        if constexpr (C::kWeights) f.weight(weight[e], bit[0], batch, row, key_of, y);
        of[e % 4] = counts ? y[0] : 0.f;
      }
      pack_weights(i, of);
    }
  }
  // `at` is where the statistics of the thread's first row are, `means` where their means.
  template <class F, class Step>
  __device__ inline void take_slopes(const F& f, const attention_grad_shape& s, const Step& step,
                                     unsigned means) {
    if constexpr (C::kSlopes)
      take_slopes_of(f, s, step, means);
    else
      take_plain_slopes(means);
  }
  __device__ inline void take_plain_slopes(unsigned means) {
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
      const float2 of = load_pair(means + i * 32);
      const float* w = weight + 4 * i;
      const float* x = grad + 4 * i;
      slopes[2 * i] = pack_pair<C::kPackBf16>(w[0] * (x[0] - of.x), w[1] * (x[1] - of.y));
      slopes[2 * i + 1] = pack_pair<C::kPackBf16>(w[2] * (x[2] - of.x), w[3] * (x[3] - of.y));
    }
  }
  template <class F, class Step>
  __device__ inline void take_slopes_of(const F& f, const attention_grad_shape& s, const Step& step,
                                        unsigned means) {
    const int key = step.key(), query = step.query(), batch = step.batch();
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
      const float2 mean = load_pair(means + i * 32);
      float2 of = make_float2(0.f, 0.f);
      if constexpr (C::kSlopesOfRows) {
        of = load_pair(step.statistics() + i * 32);
        const float natural = step.is_large(8 * i / C::kOfVote) ? 1.f : kLn2;
        of = make_float2(of.x * natural, of.y * natural);
      }
      float y[4];
#pragma unroll
      for (int e = 4 * i; e < 4 * i + 4; ++e) {
        const int row = min(query + 8 * i + e % 2, s.queries - 1);
        const int column = min(key + (e & 2) * 4, s.keys - 1);
        const float bit = C::kKept ? static_cast<float>(bits[e / 32] >> e % 32 & 1) : 1.f;
        float x[C::kBias ? 2 : 1];
        f.slope(weight[e], bit, score[e], e % 2 ? of.y : of.x, grad[e], e % 2 ? mean.y : mean.x,
                batch, row, column, x);
        y[e % 4] = weight[e] == 0.f ? 0.f : x[0];
        if constexpr (C::kBias) {
          if (weight[e] != 0.f) f.add_bias(x[1], batch, row, column);
        }
      }
      slopes[2 * i] = pack_pair<C::kPackBf16>(y[0], y[1]);
      slopes[2 * i + 1] = pack_pair<C::kPackBf16>(y[2], y[3]);
    }
  }
};

template <class Score, class Inside, class Factor, class Limits, class Visible, class Kept,
          class Weight, class Slope, class AddBias, class Scale, class Rows>
struct attention_grad_functions {
  const Score& score;
  const Inside& inside;
  const Factor& factor;
  const Limits& limits;
  const Visible& visible;
  const Kept& kept;
  const Weight& weight;
  const Slope& slope;
  const AddBias& add_bias;
  const Scale& scale;
  const Rows& rows;
};
