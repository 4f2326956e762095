#pragma once
// The shared part of the skeletons of softmax(q k) v, whoever multiplies and loads:
// attention_shape, the tiles of an attention (attention_tiles), and a thread's work on its part of
// 16 rows of scores (attention_rows).
//
//   S = score(S)                scale, bias, masks, whatever the graph has
//   m, l                        maximum and sum of exp(S - m) by rows, O scaled where m grows
//   P = weight(exp(S - m))      to 16 bits, in place: the accumulator's layout is the operand's.
//                               Of f32 operands (kF32) as they are
//   O / l → finish;  rows(max, sum) → statistics
//
// Element e of an accumulator, of wgmma and of mma.sync alike, is row lane / 4 + 8 * (e / 2 % 2) of
// the warp's 16, column 8 * (e / 4) + 2 * (lane % 4) + e % 2; four lanes share a row. Elements 8k
// .. 8k + 7 are the A fragment of step k of the next product, two to a register.
//
// Functions, with `batch` the number of the head among all, and places inside of the scores:
//   score(value, beside, distance, batch, row, column, result out)   beside: what lies there in a
//                              tensor that is copied with the keys, as a bias may be; distance:
//                              column - row as f32, which would take long to convert
//   inside(…)                  the same, of places that the known masks let through; with kFolded
//                              before the product with `factor`
//   factor(batch, result out)  that number; 1 without kFolded
//                              kTilted: products start from result[1] for each place of distance,
//                              so that value has what inside(…) makes of distances already; where
//                              that cannot be, both results are 0, and score adds it to value
//                              kReads: some of these read memory by place
//                              kIntervals: where result[4] of limits is not 0, a row sees the keys
//                              from result[0] up to result[1], whose score is what inside is, and
//                              others are -inf; kBegins: not all rows see the first key
//   limits(batch, first, last, result out)   of rows first .. last: no row sees keys before
//                              result[0] or from result[1] on, every row sees all that known masks
//                              hide elsewhere from result[2] up to result[3]
//   weight(value, batch, row, column, bits, result out)   kWeightsInside: it is more than the value
//                              where known masks let through, too; the second result is what
//                              largest_weight is the largest of, by its absolute value (kPeaks 1)
//   random(batch, row, column, result out)   with kRandom, of columns that are multiples of 8: the
//                              place, seed and offset of the random half word that `bits` is;
//                              the seven columns behind have the halves behind it, low ones first
//   finish(value, batch, row, column, result out)   the second result is of largest_result
//                              (kPeaks 2)
//   rows(batch, row, max, sum)
//   first(batch, row, result out)   maximum and sum of a row before its first key: with kSink those
//                              of its sink, a score that has no value
//
// A positive factor of all scores costs nothing: maxima are taken before it, and it joins the
// multiply-add of the exponential. Blocks that need masks take scores as they are.
//
// The multiply-add subtracts a maximum that was multiplied by log2(e) and rounded: where that is
// large, as with a mask of -1e9 or of a type's lowest value, what rounding left is a power of two
// of its own. A warp that has such a maximum subtracts before it multiplies, as the graph does.
//
// With kTails the keys of a sequence end where a number in memory says. What lies behind them may
// be anything, NaN too, and a weight of 0 does not hide that: values that no row of a tile sees are
// zeroes in shared memory.
//
// With kEight weights are rounded to 8 bits, which is done behind the division by the sum: scores
// are computed twice, first for maxima and sums alone (finish_sums ends that). kEightResult: so is
// the result, and leaves as f16. eight_bits.cuh says which numbers these are.
//
// A row that sees no key has the maximum -inf, the sum 0 and results of 0 (ir/graph/sdpa.h).

#include "codegen/cuda/device/attention/attention_layout.cuh"
#include "codegen/cuda/device/numbers/eight_bits.cuh"
#include "codegen/cuda/device/numbers/pairs.cuh"
#include "codegen/cuda/device/numbers/philox.cuh"

struct attention_shape {
#define NUMBER(name) int name;
#define FORWARD_NUMBER(name) int name;
#define TILES_NUMBER(name) int name;
#define TILES_INT(name, value) int name = value;
#define SHARED_INT(name, value) int name = value;
#include "codegen/cuda/device/attention/attention.def"
};

// A tile is kRows queries of one head, blocks have kKeys keys.
template <int kRows, int kKeys>
struct attention_tiles {
  // Heads go in sections; in one the last rows come first, which see most where a mask is causal.
  struct place {
    int row, batch, outer, inner;
  };
  static __device__ inline place place_of(const attention_shape& s, int tile) {
    const int part = tile / (s.section * s.query_tiles);
    const int in_part = tile - part * s.section * s.query_tiles;
    const int heads = min(s.section, s.batches - part * s.section), i = in_part / heads;
    const int head = part * s.section + in_part - i * heads, of_images = head / s.images;
    place p;
    p.outer = of_images / s.inner;
    p.inner = of_images - p.outer * s.inner;
    p.outer = p.outer * s.images + head - of_images * s.images;
    p.batch = p.outer * s.inner + p.inner;
    p.row = (s.query_tiles - 1 - i) * kRows;
    return p;
  }
  // The blocks that rows from `row` on see, [first, end), never none; the keys that all see; and
  // where those that any sees end.
  struct range {
    int first, end, inside_first, inside_end, seen_end;
    bool any;  // some row may see a key
  };
  template <class Limits>
  static __device__ inline range range_of(const attention_shape& s, const Limits& limits, int batch,
                                          int row, int rows) {
    const int from = min(row, s.queries - 1), to = min(row + rows, s.queries) - 1;
    int result[5];
    limits(batch, from, max(from, to), result);
    range r;
    r.first = max(result[0], 0) / kKeys;
    r.end = (min(result[1], s.keys) + kKeys - 1) / kKeys;
    r.first = min(r.first, (s.keys - 1) / kKeys);
    r.end = max(r.end, r.first + 1);
    r.inside_first = result[2];
    r.inside_end = min(result[3], s.keys);
    r.seen_end = max(min(result[1], s.keys), 0);
    r.any = max(result[0], 0) < r.seen_end;
    return r;
  }
};

// A thread's part of 16 rows: of blocks of C::kKeys scores, and of C::kWidth results.
template <class C, class F>
struct attention_rows {
  static constexpr float kLog2e = 1.44269504f;
  static __device__ inline float exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  static __device__ inline float infinity() { return __int_as_float(0x7f800000); }

  using layout = attention_layout<C::kF32 != 0>;
  static constexpr int kScores = C::kKeys / 2;    // registers of S
  static constexpr int kResults = C::kWidth / 2;  // of O

  const F* f;
  const attention_shape* s;
  unsigned thread;  // its last two bits are its place among the four that share a row
  // State of the tile that is being made:
  int batch, row;                // this thread's first row; the other one is 8 below
  int inside_first, inside_end;  // blocks that need no masks
  bool bounded;                  // with kIntervals: rows see the keys between their limits alone
  float factor;                  // of scores
  float tilt;                    // what products start from for each place of distance
  float score[kScores], result[kResults];
  float max_low, max_high, sum_low, sum_high;
  float share_low, share_high;           // of sums in weights, as log2, with kEight
  float largest_weight, largest_result;  // of this thread's, with kPeaks
  unsigned weights[C::kF32 ? kScores : kScores / 2];

  // Is called before the first tile. An initialiser would make loops of how a skeleton clears the
  // arrays here, and leave these in memory.
  __device__ inline void begin_largest() { largest_weight = largest_result = -infinity(); }
  // A factor that is not positive joins no exponential.
  __device__ inline void take_factor() {
    if constexpr (C::kFolded) {
      float y[C::kTilted ? 2 : 1];
      f->factor(batch, y);
      factor = y[0];
      if constexpr (C::kTilted) tilt = y[1];
      if (!(factor > 0)) inside_end = 0;
    }
    if constexpr (C::kIntervals != 0) {
      int keys[5];
      f->limits(batch, 0, 0, keys);
      bounded = keys[4] != 0 && (!C::kFolded || factor > 0);
    }
  }
  // True if known masks let all of a block through, so that the functions for that serve. Functions
  // that read memory have one loop: registers are few, and compares cost little beside that.
  __device__ inline bool is_inside(int block) const {
    return !C::kReads && block >= inside_first && block < inside_end;
  }
  // The function of skeletons in which nothing lies beside scores.
  struct nothing {
    __device__ inline void operator()(int, unsigned (&)[4]) const {}
  };
  // Returns what the scores are to be multiplied by. `beside(k, to)` has pairs of what lies beside
  // elements 8k .. 8k + 7, for k one after another.
  template <class Beside = nothing>
  __device__ inline float take_scores(int block, const Beside& beside = {}) {
    if (is_inside(block)) return take_scores_where<true>(block, beside);
    if constexpr (C::kIntervals != 0)
      if (bounded) return take_seen_scores(block, beside);
    return take_scores_where<false>(block, beside);
  }
  // The elements of a row that are seen in a block: a thread has columns 8i and 8i + 1 from its own
  // on, which are bits 2i and 2i + 1.
  struct seen {
    static constexpr int kWords = (C::kKeys / 4 + 31) / 32;
    unsigned words[kWords];
    __device__ inline bool has(int e) const {
      const int bit = e / 4 * 2 + e % 2;
      return (words[bit / 32] >> bit % 32 & 1) != 0;
    }
  };
  static __device__ inline int elements_before(int columns) {
    const int in_block = min(max(columns, 0), C::kKeys);
    return in_block / 8 * 2 + min(in_block % 8, 2);
  }
  static __device__ inline unsigned lowest_bits(int count) {
    return count >= 32 ? ~0u : (1u << max(count, 0)) - 1;
  }
  __device__ inline seen seen_of(int of_row, int column) {
    int keys[5];
    f->limits(batch, of_row, of_row, keys);
    const int end = elements_before(keys[1] - column);
    const int first = C::kBegins ? elements_before(keys[0] - column) : 0;
    seen s;
#pragma unroll
    for (int i = 0; i < seen::kWords; ++i)
      s.words[i] = lowest_bits(end - 32 * i) & ~lowest_bits(first - 32 * i);
    return s;
  }
  // of(e, score, beside, distance, column) → scores, all of a block.
  template <class Beside, class Of>
  __device__ inline void each_score(int column, const Beside& beside, const Of& of) {
    const float low = float(column - at_row(0)), high = float(column - at_row(2));
#pragma unroll
    for (int k = 0; k < kScores / 8; ++k) {
      unsigned pairs[4] = {0, 0, 0, 0};
      beside(k, pairs);
#pragma unroll
      for (int e = 8 * k; e < 8 * k + 8; ++e) {
        float of_pair[2];
        unpack_pair<C::kBesideBf16>(pairs[e % 8 / 2], of_pair[0], of_pair[1]);
        const int further = 8 * (e / 4) + e % 2;
        score[e] = of(e, of_pair[e % 2], (e & 2 ? high : low) + float(further), column + further);
      }
    }
  }
  // Sets the scores to what the product of a block starts from.
  __device__ inline void start_scores(int block) {
    if constexpr (C::kTilted) {
      const int column = column_of(block);
      const float low = tilt * float(column - at_row(0)), high = tilt * float(column - at_row(2));
#pragma unroll
      for (int e = 0; e < kScores; ++e)
        score[e] = fmaf(tilt, float(8 * (e / 4) + e % 2), e & 2 ? high : low);
    }
  }
  __device__ inline float inside_score(int e, float beside, float distance, int column) const {
    float y[1];
    f->inside(score[e], beside, distance, batch, at_row(e), column, y);
    return y[0];
  }
  // The first column of this thread in a block; that of functions that read memory, which get
  // places that there are.
  __device__ inline int column_of(int block) const { return block * C::kKeys + 2 * (thread % 4); }
  __device__ inline int known(int column) const {
    return C::kReads ? min(column, s->keys - 1) : column;
  }
  // The scores of a block where rows are bounded; none of what is hidden is asked for.
  template <class Beside = nothing>
  __device__ inline float take_seen_scores(int block, const Beside& beside = {}) {
    const int column = column_of(block);
    const seen low = seen_of(at_row(0), column), high = seen_of(at_row(2), column);
    each_score(column, beside, [&](int e, float of, float distance, int c) {
      const float x = inside_score(e, of, distance, known(c));
      return (e & 2 ? high : low).has(e) ? x : -infinity();
    });
    return C::kFolded ? factor : 1.f;
  }
  template <bool inside, class Beside = nothing>
  __device__ inline float take_scores_where(int block, const Beside& beside = {}) {
    const int column = column_of(block);
    if constexpr (inside) {
      each_score(column, beside, [&](int e, float of, float distance, int c) {
        return inside_score(e, of, distance, c);
      });
      return C::kFolded ? factor : 1.f;
    }
    each_score(column, beside, [&](int e, float of, float distance, int c) {
      float y[1];
      f->score(score[e], of, distance, batch, at_row(e), known(c), y);
      return y[0];
    });
    if ((block + 1) * C::kKeys <= s->keys) return 1.f;
    const int room = s->keys - column;
#pragma unroll
    for (int e = 0; e < kScores; ++e)
      if (8 * (e / 4) + e % 2 >= room) score[e] = -infinity();
    return 1.f;
  }
  __device__ inline int at_row(int e) const { return min(e & 2 ? row + 8 : row, s->queries - 1); }

  static __device__ inline float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
  }
  static __device__ inline float row_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
  }

  // Starts the rows, before the first key.
  __device__ inline void begin_rows() {
    if constexpr (C::kSink) {
      float low[2], high[2];
      f->first(batch, at_row(0), low);
      f->first(batch, at_row(2), high);
      max_low = low[0];
      max_high = high[0];
      sum_low = thread % 4 == 0 ? low[1] : 0.f;  // four threads add up the sum of a row
      sum_high = thread % 4 == 0 ? high[1] : 0.f;
    } else {
      max_low = max_high = -infinity();
      sum_low = sum_high = 0;
    }
  }

  // Exponentials are 2^(score * slope - low), in the other row 2^(score * slope - high).
  struct exponent {
    float slope, low, high;
  };
  // The limit above which exponents of the largest score are off by more than 2^-10.
  static constexpr float kLarge = 4096.f;

  // Turns scores into maxima; returns by the factors what O and the sums of before lose.
  template <bool starts>
  __device__ inline exponent take_maxima(float times, float& factor_low, float& factor_high) {
    float x[4] = {score[0], score[1], score[2], score[3]};
#pragma unroll
    for (int e = 4; e < kScores; ++e) x[e % 4] = fmaxf(x[e % 4], score[e]);
    const float before_low = max_low, before_high = max_high;
    max_low = row_max(fmaxf(x[0], x[1])) * times;
    max_high = row_max(fmaxf(x[2], x[3])) * times;
    if constexpr (!starts) {
      max_low = fmaxf(max_low, before_low);
      max_high = fmaxf(max_high, before_high);
      factor_low = exp2((before_low - finite(max_low)) * kLog2e);
      factor_high = exp2((before_high - finite(max_high)) * kLog2e);
    }
    return {times * kLog2e, finite(max_low) * kLog2e, finite(max_high) * kLog2e};
  }
  // The maximum to subtract: where nothing has been seen yet, -inf must not meet itself.
  static __device__ inline float finite(float max) { return max == -infinity() ? 0.f : max; }
  static __device__ inline bool is_large(const exponent& x) {
    return fmaxf(fabsf(x.low), fabsf(x.high)) > kLarge;
  }
  // Subtracts the maxima first; all lanes of a warp do so where is_large of one of them.
  __device__ inline void subtract_maxima(float times, exponent& x) {
#pragma unroll
    for (int e = 0; e < kScores; ++e)
      score[e] = __fmul_rn(score[e], times) - finite(e & 2 ? max_high : max_low);
    x = {kLog2e, 0.f, 0.f};
  }
  __device__ inline void take_powers(const exponent& of) {
#pragma unroll
    for (int e = 0; e < kScores; ++e)
      score[e] = exp2(fmaf(score[e], of.slope, e & 2 ? -of.high : -of.low));
  }
  // Turns scores into exponentials and their sums.
  template <bool starts>
  __device__ inline void take_exponentials(const exponent& of, float factor_low,
                                           float factor_high) {
    take_powers(of);
    float x[4] = {score[0], score[1], score[2], score[3]};
#pragma unroll
    for (int e = 4; e < kScores; ++e) x[e % 4] += score[e];
    sum_low = starts ? x[0] + x[1] : fmaf(sum_low, factor_low, x[0] + x[1]);
    sum_high = starts ? x[2] + x[3] : fmaf(sum_high, factor_high, x[2] + x[3]);
  }
  template <bool starts>
  __device__ inline void softmax(float times, float& factor_low, float& factor_high) {
    exponent x = take_maxima<starts>(times, factor_low, factor_high);
    if (__any_sync(~0u, is_large(x))) subtract_maxima(times, x);
    take_exponentials<starts>(x, factor_low, factor_high);
  }

  // Takes the scores once more, when maxima and sums are those of all keys.
  __device__ inline void softmax_again(float times) {
    exponent x = {times * kLog2e, finite(max_low) * kLog2e, finite(max_high) * kLog2e};
    if (__any_sync(~0u, is_large(x))) subtract_maxima(times, x);
    x.low -= share_low;
    x.high -= share_high;
    take_powers(x);
  }
  static __device__ inline float log2(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  __device__ inline void finish_sums() {
    float low, high;
    finish_rows(low, high);
    share_low = low == 0.f ? 0.f : log2(low);
    share_high = high == 0.f ? 0.f : log2(high);
  }

  // `most`: the largest absolute values of the thread's two rows. A branch beside each element
  // would wait for it.
  template <bool inside>
  __device__ inline float weight_of(int e, int block, unsigned bits, float (&most)[2]) const {
    if constexpr (inside ? !C::kWeightsInside : !C::kWeights) return score[e];
    const int column = block * C::kKeys + 2 * (thread % 4) + 8 * (e / 4) + e % 2;
    float y[C::kPeaks & 1 ? 2 : 1];
    f->weight(score[e], batch, at_row(e), inside ? column : min(column, s->keys - 1),
              (long long)bits, y);
    const bool is_one = inside || column < s->keys;  // inside, all columns are
    if constexpr (C::kPeaks & 1) {
      float& of_row = most[e / 2 % 2];
      const float value = is_one ? y[1] : 0.f;  // a selection: an absolute value would be a branch
      of_row = fmaxf(of_row, fabsf(value));
    }
    return is_one ? y[0] : 0.f;
  }
  __device__ inline void take_largest(const float (&most)[2]) {
    if constexpr (C::kPeaks & 1)
      largest_weight = fmaxf(largest_weight, fmaxf(row < s->queries ? most[0] : 0.f,
                                                   row + 8 < s->queries ? most[1] : 0.f));
  }
  static __device__ inline unsigned pack_weights(float low, float high) {
    if constexpr (C::kEight)
      return round_pair_8<C::kEight>(low, high);
    else
      return pack_pair<C::kPackBf16>(low, high);
  }
  // Puts elements e and e + 1 where the next product's left operand has them.
  __device__ inline void put_weights(int e, float low, float high) {
    if constexpr (C::kF32) {
      weights[layout::left_order(e)] = layout::word_of(low, C::kF32 == 1);
      weights[layout::left_order(e + 1)] = layout::word_of(high, C::kF32 == 1);
    } else {
      weights[e / 2] = pack_weights(low, high);
    }
  }
  // Words become those of a lane's number among four, of the four lanes one after another.
  static __device__ inline void exchange_words(unsigned (&words)[4], unsigned lane) {
#pragma unroll
    for (int by = 1; by < 4; by *= 2) {
      const bool is_second = (lane & by) != 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (i & by) continue;
        const unsigned other = __shfl_xor_sync(~0u, is_second ? words[i] : words[i + by], by);
        (is_second ? words[i] : words[i + by]) = other;
      }
    }
  }
  // Makes the random bits of elements 8k .. 8k + 7, a word for two. Four threads have eight
  // neighbours of two rows, twice: each makes those of one row and hands the others their word.
  template <bool inside>
  __device__ inline void take_random(int k, int block, unsigned (&words)[4]) const {
    const int own = thread % 4;
    const int at = block * C::kKeys + 16 * k + own / 2 * 8;
    const int column = inside ? at : min(at, s->keys - 8);
    long long of[3];
    f->random(batch, at_row(own % 2 * 2), column, of);
    const random_words made = philox_words((unsigned long long)(of[0]) >> 3, of[1], of[2]);
    words[0] = made.x;
    words[1] = made.y;
    words[2] = made.z;
    words[3] = made.w;
    exchange_words(words, own);
  }
  template <bool inside>
  __device__ inline void take_weights(int block) {
    constexpr bool is_random = C::kRandom && (inside ? C::kWeightsInside : C::kWeights);
    float most[2] = {0.f, 0.f};
#pragma unroll
    for (int k = 0; k < kScores / 8; ++k) {
      unsigned words[4] = {0, 0, 0, 0};
      if constexpr (is_random) take_random<inside>(k, block, words);
#pragma unroll
      for (int e = 8 * k; e < 8 * k + 8; e += 2) {
        const unsigned word = words[e % 8 / 2];
        put_weights(e, weight_of<inside>(e, block, word & 0xffff, most),
                    weight_of<inside>(e + 1, block, word >> 16, most));
      }
    }
    take_largest(most);
  }
  // Takes weights as bytes for wgmma: 4 columns of a row in a register (attention_bytes_sm90.cuh).
  template <bool inside>
  __device__ inline void take_byte_weights_where(int block) {
    constexpr bool is_random = C::kRandom && (inside ? C::kWeightsInside : C::kWeights);
    float most[2] = {0.f, 0.f};
#pragma unroll
    for (int k = 0; k < kScores / 8; ++k) {
      unsigned words[4] = {0, 0, 0, 0}, pairs[4];
      if constexpr (is_random) take_random<inside>(k, block, words);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        pairs[i] = narrow_pair_8<C::kEight>(
            weight_of<inside>(8 * k + 2 * i, block, words[i] & 0xffff, most),
            weight_of<inside>(8 * k + 2 * i + 1, block, words[i] >> 16, most));
      weights[2 * k] = pairs[0] | pairs[2] << 16;
      weights[2 * k + 1] = pairs[1] | pairs[3] << 16;
    }
    take_largest(most);
  }
  __device__ inline void take_byte_weights(int block) {
    constexpr bool kMayHide = C::kIntervals && !C::kWeightsInside && !C::kReads;
    if (is_inside(block) || (kMayHide && bounded))  // as in take_seen_weights
      take_byte_weights_where<true>(block);
    else
      take_byte_weights_where<false>(block);
  }
  // Takes weights where hidden scores are -inf: their weights are 0, whatever stands for them.
  __device__ inline void take_seen_weights(int block) {
    take_weights<!C::kWeightsInside && !C::kReads>(block);
  }
  __device__ inline void take_weights(int block) {
    if (C::kWeights && !C::kWeightsInside && !is_inside(block))
      take_weights<false>(block);
    else
      take_weights<C::kWeightsInside == 0>(block);
  }
  __device__ inline void scale_result(float low, float high) {
#pragma unroll
    for (int e = 0; e < kResults; ++e) result[e] *= e & 2 ? high : low;
  }

  // The results are sums over all keys now: statistics go out, and results lose the sum as `low`
  // and `high` say.
  __device__ inline void finish_rows(float& low, float& high) {
    sum_low = row_sum(sum_low);
    sum_high = row_sum(sum_high);
    low = sum_low == 0.f ? 0.f : 1.f / sum_low;  // 0: no key was seen
    high = sum_high == 0.f ? 0.f : 1.f / sum_high;
    if (thread % 4 == 0) {
      if (row < s->queries) f->rows(batch, row, max_low, sum_low);
      if (row + 8 < s->queries) f->rows(batch, row + 8, max_high, sum_high);
    }
  }
  __device__ inline float finished(int e) {
    if constexpr (!C::kFinish) return result[e];
    const int column = layout::result_column(e, thread);
    const int own = e & 2 ? row + 8 : row, at = min(own, s->queries - 1);
    float y[C::kPeaks & 2 ? 2 : 1];
    f->finish(result[e], batch, at, min(column, s->columns - 1), y);
    if constexpr (C::kPeaks & 2) {
      const float value = own < s->queries && column < s->columns ? y[1] : 0.f;
      largest_result = fmaxf(largest_result, fabsf(value));
    }
    return y[0];
  }
  // Eight neighbours of a row, in pairs of f16.
  __device__ inline void finish_8(const float (&x)[8], int at, int column, unsigned* to) {
    float finished[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float y[C::kPeaks & 2 ? 2 : 1];
      f->finish(x[i], batch, at, min(column + i, s->columns - 1), y);
      if constexpr (C::kPeaks & 2) {
        const float value = column + i < s->columns ? y[1] : 0.f;
        largest_result = fmaxf(largest_result, fabsf(value));
      }
      finished[i] = y[0];
    }
#pragma unroll
    for (int i = 0; i < 8; i += 2)
      to[i / 2] = round_pair_8<C::kEightResult>(finished[i], finished[i + 1]);
  }
  // Two neighbours of a row as they are stored.
  __device__ inline unsigned finished_pair(int e) {
    if constexpr (C::kEightResult)
      return round_pair_8<C::kEightResult>(finished(e), finished(e + 1));
    else
      return pack_pair<C::kPackBf16>(finished(e), finished(e + 1));
  }
};

template <class Score, class Inside, class Factor, class Limits, class Weight, class Random,
          class Finish, class Rows, class First>
struct attention_functions {
  const Score& score;
  const Inside& inside;
  const Factor& factor;
  const Limits& limits;
  const Weight& weight;
  const Random& random;
  const Finish& finish;
  const Rows& rows;
  const First& first;
};
