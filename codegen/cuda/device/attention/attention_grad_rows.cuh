#pragma once
// attention_grad_rows: a thread's work on its part of 16 keys of scores, in the skeletons of
// attention's gradients, whoever multiplies and loads. attention_grad_tiles.cuh has what else they
// share.
//
//     P' = weight(S'), dS' = (D' - mean of the row) * P', or slope(…)
//
// with scores the other way around, to 16 bits.
//
// Element e of S' is key lane / 4 + 8 * (e / 2 % 2) of the warp's 16, query 8 * (e / 4) + 2 * (lane
// % 4) + e % 2: elements 8k .. 8k + 7 are the A fragment of step k of the next product.
//
// Functions, with `batch` the number of a head of q among all, row a query and column a key:
//   score(value, of_row, beside, batch, row, column, result out)   what is exponentiated, with
//                                   kShifted less the row's statistics, for masks that come after
//                                   it; with kBeside of what lies beside the place, as a bias does
//   inside(…)                       the same, of places that the known masks let through
//   factor(batch, result out)       with kFolded exponentials inside are
//                                   exp(value * factor - of_row)
//   visible(batch, row, column, result out)   with kZeroes whether the exponential counts: 1 or 0;
//                                   asked of places that the known masks do not let through
//   kept(word, batch, …)            with kKept a bit of the place, 1 or 0, that weight and slope
//                                   get; with kRandom made of a half word of Philox
//   random(batch, …, result out)    which one: its place, seed and offset; kRandom neighbours along
//                                   the keys, 1 or 8, share a call
//   weight(value, bit, batch, …)    with kWeights what dv is multiplied by, of the exponential
//   slope(value, bit, product, of_row, grad, mean, batch, …)   with kSlopes dS', of the
//                                   exponential and of D'; kKeepsScores: of the product; and of the
//                                   row's statistics, kSlopesOfRows; with kPeaks 1 the second
//                                   result is what `largest` is the largest of, by its absolute
//                                   value
//                                   kReads: some of these read memory by place; kHides: known
//                                   masks hide places
//   add_bias(value, batch, …)       with kBias, of the second result of slope: adds to the gradient
//                                   of a bias, which is summed over heads (kBiasHeads), batches
//                                   (kBiasBatches) or both; with kBiasQuads the step says where
//                                   four of them are added at a time, as sums of dq are
//   limits(batch, first, last, result out)    as of attention_sm90
//   scale(batch, result out)        what dk and dq are multiplied by in the end
//   rows(batch, row, result out)    statistics and mean of a row
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
// With kEight weights and slopes are rounded to 8 bits on their way (eight_bits.cuh).
//
// A thread's part of 16 keys, of a block of C::kQueries queries. A step says where it is: key() and
// query() of the thread's first element, batch(), ends() where rows or keys do, statistics(), the
// address in shared memory of those of the thread's first row, and is_large(i), the flag of rows i
// * kOfVote and on, the same in all lanes of a warp. With kBeside load_beside(i, to): pairs of what
// lies beside elements 4i .. 4i + 7, as they are in memory. With kBiasQuads add_bias(i, x) adds
// elements 4i .. 4i + 3.

#include "codegen/cuda/device/attention/attention_grad_tiles.cuh"
#include "codegen/cuda/device/attention/attention_layout.cuh"
#include "codegen/cuda/device/numbers/eight_bits.cuh"
#include "codegen/cuda/device/numbers/pairs.cuh"
#include "codegen/cuda/device/numbers/philox.cuh"

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
  // True for a warp if a row of its lanes has large statistics: all stay as they are then, since
  // exponents would be off by more than 2^-10. +inf is no number and not large.
  static __device__ inline bool any_large(float stats) {
    return __any_sync(~0u, fabsf(stats) > 4096.f && fabsf(stats) != infinity());
  }
  // Reads statistics and mean of a row, +inf and 0 for one that sees no key or is none: whatever q
  // and dy hold there counts as 0.
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
  // To 16 bits, or f32 with kF32: the words of the next product's left operand.
  static constexpr int kPairs = C::kF32 ? kScores : kScores / 2;
  unsigned weights[kPairs], slopes[kPairs];
  float largest;  // of this thread's, with kPeaks; -infinity before the first step

  static __device__ inline unsigned pack(float low, float high) {
    if constexpr (C::kEight)
      return round_pair_8<C::kEight>(low, high);
    else
      return pack_pair<C::kPackBf16>(low, high);
  }
  // Elements 4i .. 4i + 3.
  static __device__ inline void put(unsigned* to, int i, const float* of) {
    if constexpr (C::kF32) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        to[attention_layout<true>::left_order(4 * i + e)] =
            attention_layout<true>::word_of(of[e], C::kF32 == 1);
    } else {
      to[2 * i] = pack(of[0], of[1]);
      to[2 * i + 1] = pack(of[2], of[3]);
    }
  }
  static constexpr int kOfSlope = C::kBias || (C::kPeaks & 1) ? 2 : 1;  // results
  __device__ inline void take_largest(bool counts, const float (&of)[kOfSlope]) {
    if constexpr (C::kPeaks & 1) largest = fmaxf(largest, counts ? fabsf(of[1]) : 0.f);
  }

  // Unpacks the values beside elements 4i .. 4i + 3; `pairs` are those of 4i and of the four
  // behind, for even i.
  template <class Step>
  static __device__ inline void take_beside(const Step& step, int i, unsigned (&pairs)[4],
                                            float (&beside)[4]) {
    if constexpr (C::kBeside != 0) {
      if (i % 2 == 0) step.load_beside(i, pairs);
      unpack_pair<C::kBesideBf16>(pairs[i % 2 * 2], beside[0], beside[1]);
      unpack_pair<C::kBesideBf16>(pairs[i % 2 * 2 + 1], beside[2], beside[3]);
    }
  }
  // The place where a score becomes an exponent: its own, unless the slopes want the score.
  __device__ inline float& exponent(int e) { return C::kKeepsScores ? weight[e] : score[e]; }

  // Makes scores as the graph has them; `subtracts`: less the rows' statistics.
  template <class F, class Step>
  __device__ inline void take_scores(const F& f, const attention_grad_shape& s, const Step& step,
                                     bool inside, bool subtracts) {
    const int key = step.key(), query = step.query(), batch = step.batch();
    const unsigned rows = step.statistics();
    unsigned pairs[4];
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
      float beside[4] = {};
      take_beside(step, i, pairs, beside);
      float2 of;
      if (C::kShifted || C::kOneLoop || subtracts) of = load_pair(rows + i * 32);
      const bool is_natural =
          subtracts && (C::kQueries == C::kOfVote || step.is_large(8 * i / C::kOfVote));
#pragma unroll
      for (int e = 4 * i; e < 4 * i + 4; ++e) {
        int at_row = query + 8 * i + e % 2, column = key + (e & 2) * 4;
        if constexpr (C::kReads) at_row = min(at_row, s.queries - 1);
        if constexpr (C::kReads) column = min(column, s.keys - 1);
        float y[1];
        float of_row = 0.f;
        if (C::kShifted || C::kOneLoop || subtracts)
          of_row = (e % 2 ? of.y : of.x) * (is_natural ? 1.f : kLn2);
        if (inside && !subtracts)
          f.inside(score[e], of_row, beside[e % 4], batch, at_row, column, y);
        else
          f.score(score[e], of_row, beside[e % 4], batch, at_row, column, y);
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
  // Turns scores into weights, 16 bits for the product.
  template <class F, class Step>
  __device__ inline void take_weights(const F& f, const attention_grad_shape& s, const Step& step,
                                      bool inside) {
    const bool large = any_rows_large(step);
    float factor[1] = {1.f};
    if constexpr (C::kOneLoop)
      // A branch beside each read waits for it, which is worth it where whole steps have no mask.
      take_scores(f, s, step, C::kHides && !C::kZeroes && inside, large);
    else if (large)
      take_scores(f, s, step, false, true);
    else if (C::kFolded && inside) {
      f.factor(step.batch(), factor);
      if constexpr (C::kKeepsScores) {
#pragma unroll
        for (int e = 0; e < kScores; ++e) weight[e] = score[e];
      }
    } else if (C::kBeside && inside)  // one branch, none beside each element
      take_scores(f, s, step, true, false);
    else
      take_scores(f, s, step, C::kBeside ? false : inside, false);
    if (large)
      take_exponentials(kLog2e, [](int) { return make_float2(0.f, 0.f); });
    else
      take_exponentials(factor[0] * kLog2e,
                        [&](int i) { return load_pair(step.statistics() + i * 32); });
    const bool asks = C::kZeroes && !inside, ends = step.ends();
    if (asks || ends) hide_weights<C::kZeroes != 0>(f, s, step, inside);
    if (kFinishes || asks || ends) finish_weights(f, s, step);
  }
  // True if slopes of exponentials that are 0 may be anything else: slopes that are multiples of
  // the exponentials are not.
  static constexpr bool kHidesSlopes = C::kKeepsScores || C::kSlopesOfRows || C::kReads || C::kBias;
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
  __device__ inline void pack_weights(int i, const float* of) { put(weights, i, of); }
  // Zeroes at places that masks may hide (`asks`), and behind the end of keys; exponentials of rows
  // past the end are 0. A branch beside each question would have its reads made anew for each
  // element.
  template <bool asks, class F, class Step>
  __device__ inline void hide_weights(const F& f, const attention_grad_shape& s, const Step& step,
                                      bool inside) {
    const int key = step.key(), query = step.query(), batch = step.batch();
#pragma unroll
    for (int e = 0; e < kScores; ++e) {
      const int column = key + (e & 2) * 4;
      bool counts = column < s.keys;
      if constexpr (asks) {
        float y[1] = {1.f};
        f.visible(batch, min(query + 8 * (e / 4) + e % 2, s.queries - 1), min(column, s.keys - 1),
                  y);
        counts = counts && (inside || y[0] != 0.f);
      }
      if (!counts) weight[e] = 0.f;
    }
  }
  template <class F, class Step>
  __device__ inline void finish_weights(const F& f, const attention_grad_shape& s,
                                        const Step& step) {
    const int key = step.key(), query = step.query(), batch = step.batch();
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
      float of[4];
#pragma unroll
      for (int e = 4 * i; e < 4 * i + 4; ++e) {
        const int row = min(query + 8 * i + e % 2, s.queries - 1);
        const int column = min(key + (e & 2) * 4, s.keys - 1);
        float y[1] = {weight[e]};
        if constexpr (C::kWeights) f.weight(weight[e], kept(e), batch, row, column, y);
        of[e % 4] = y[0];
      }
      pack_weights(i, of);
    }
  }
  // ---- random bits
  __device__ inline float kept(int e) const {
    // A conversion would take four times as long as a selection.
    return !C::kKept || (bits[e / 32] & 1u << e % 32) != 0 ? 1.f : 0.f;
  }
  // Turns the bits by one, as slopes read them: compilers would keep what weights made of each,
  // which is as many registers.
  __device__ inline void turn_bits() {
    if constexpr (C::kKept) {
#pragma unroll
      for (unsigned& word : bits) word = __funnelshift_l(word, word, 1);
    }
  }
  __device__ inline float kept_turned(int e) const {
    return !C::kKept || (bits[e / 32] & 1u << (e + 1) % 32) != 0 ? 1.f : 0.f;
  }
  // Bits that follow from the place alone may be made before the step comes.
  static constexpr bool kKeptAhead = C::kKeptAhead && C::kRandom == 8 && kScores == 32;
  // Makes the step's bits before weights and slopes, which want no registers yet.
  template <class F, class Step>
  __device__ inline void take_kept(const F& f, const attention_grad_shape& s, const Step& step) {
    if constexpr (C::kRandom == 8)
      take_shared_words(f, s, step);
    else if constexpr (C::kKept)
      take_kept_alone(f, s, step);
  }
  template <class F, class Step>
  __device__ inline void take_kept_alone(const F& f, const attention_grad_shape& s,
                                         const Step& step) {
    const int key = step.key(), query = step.query(), batch = step.batch();
#pragma unroll
    for (unsigned& word : bits) word = 0;
#pragma unroll
    for (int e = 0; e < kScores; ++e) {
      const int row = min(query + 8 * (e / 4) + e % 2, s.queries - 1);
      const int column = min(key + (e & 2) * 4, s.keys - 1);
      long long word = 0;
      if constexpr (C::kRandom) {
        long long of[3];
        f.random(batch, row, column, of);
        word = philox((unsigned long long)(of[0]) >> 1, of[1], of[2]) >> (of[0] & 1) * 16 & 0xffff;
      }
      float bit[1];
      f.kept(word, batch, row, column, bit);
      bits[e / 32] |= (bit[0] != 0.f ? 1u : 0u) << e % 32;
    }
  }
  // Eight lanes have the same queries and neighbouring keys: each calls for an eighth of the
  // elements and hands the others their bits.
  static constexpr int kOfWord = kScores < 32 ? kScores : 32, kCalls = kOfWord / 8;
  template <class F, class Step>
  __device__ inline void take_shared_words(const F& f, const attention_grad_shape& s,
                                           const Step& step) {
    constexpr int kAtOnce = kCalls < 4 ? kCalls : 4;
#pragma unroll
    for (int w = 0; w < kScores / kOfWord; ++w) {
      unsigned own = 0;
#pragma unroll 1
      for (int first = 0; first < kCalls; first += kAtOnce)
        own |= draw<kAtOnce>(f, s, step, w, first);
      share_bits(w, own);
    }
  }
  // Some of the lane's calls for a word of bits: kCalls bits a key. A chain of ten rounds leaves
  // room for others beside it, and round keys are made once for all of them.
  template <int count, class F, class Step>
  static __device__ inline unsigned draw(const F& f, const attention_grad_shape& s,
                                         const Step& step, int w, int first) {
    static_assert(kCalls % count == 0);
    const int part = threadIdx.x % 32 / 4;
    const int key = step.key() & ~7, query = step.query(), batch = step.batch();
    unsigned some = 0;
#pragma unroll
    for (int c = 0; c < count; ++c) {
      const int e = w * kOfWord + part * kCalls + first + c;
      const int row = min(query + 8 * (e / 4) + e % 2, s.queries - 1);
      const int column = min(key + (e & 2) * 4, s.keys - 8);
      long long of[3];
      f.random(batch, row, column, of);
      __builtin_assume(of[0] >= 0);  // a place of 31 bits: what is made of its high half is known
      const random_words words = philox_words((unsigned long long)(of[0]) >> 3, of[1], of[2]);
      const unsigned word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float bit[1];
        f.kept(word[i / 2] >> i % 2 * 16 & 0xffff, batch, row, column + i, bit);
        if (bit[0] != 0.f) some |= 1u << (kCalls * i + c);
      }
    }
    return some << first;
  }
  __device__ inline void share_bits(int w, unsigned own) {
    const int lane = threadIdx.x % 32, part = lane / 4;
    bits[w] = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const unsigned of_lane = __shfl_sync(~0u, own, lane % 4 + 4 * i);
      bits[w] |= (of_lane >> kCalls * part & ((1u << kCalls) - 1)) << i * kCalls;
    }
  }

  // ---- weights and slopes together

  // Beside bits that are made in the step itself, which takes long, the second product is there
  // when weights are made, and so both are made of four elements at a time: no exponential waits
  // for its slope in a register. Scores that slopes read have no room beside exponentials in rows
  // of more than 64.
  static constexpr bool kTogether =
      (C::kKept && !kKeptAhead) || (C::kKeepsScores && C::kDepth > 64);
  template <class F, class Step>
  __device__ inline void take_both(const F& f, const attention_grad_shape& s, const Step& step,
                                   bool inside, unsigned means) {
    if (inside)
      take_both_where<true>(f, s, step, means);
    else
      take_both_where<false>(f, s, step, means);
  }
  template <bool inside, class F, class Step>
  __device__ inline void take_both_where(const F& f, const attention_grad_shape& s,
                                         const Step& step, unsigned means) {
    const int key = step.key(), query = step.query(), batch = step.batch();
    unsigned pairs[4];
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
      float beside[4] = {};
      take_beside(step, i, pairs, beside);
      const float2 of = natural_rows(step, i), mean = load_pair(means + i * 32);
      float w[4], y[4], of_bias[4];
#pragma unroll
      for (int e = 4 * i; e < 4 * i + 4; ++e) {
        const int at_row = query + 8 * i + e % 2, at_key = key + (e & 2) * 4;
        const int row = min(at_row, s.queries - 1), column = min(at_key, s.keys - 1);
        const float of_row = e % 2 ? of.y : of.x, of_mean = e % 2 ? mean.y : mean.x;
        // Rows that are none or see no key have exponentials of 0, whatever is finite.
        bool counts = at_key < s.keys;
        if constexpr (C::kReads || C::kBeside) counts = counts && of_row != infinity();
        float x[1] = {1.f};
        if constexpr (C::kZeroes && !inside) {
          f.visible(batch, row, column, x);
          counts = counts && x[0] != 0.f;
        }
        if constexpr (inside)
          f.inside(score[e], of_row, beside[e % 4], batch, row, column, x);
        else
          f.score(score[e], of_row, beside[e % 4], batch, row, column, x);
        const float value = counts ? exp2((C::kShifted ? x[0] : x[0] - of_row) * kLog2e) : 0.f;
        x[0] = value;
        if constexpr (C::kWeights) f.weight(value, kept(e), batch, row, column, x);
        w[e % 4] = counts ? x[0] : 0.f;
        float both[kOfSlope] = {value * (grad[e] - of_mean)};
        if constexpr (C::kSlopes)
          f.slope(value, kept(e), score[e], of_row, grad[e], of_mean, batch, row, column, both);
        y[e % 4] = value == 0.f ? 0.f : both[0];
        take_largest(value != 0.f, both);
        if constexpr (C::kBias) {
          of_bias[e % 4] = value == 0.f ? 0.f : both[1];
          if (!C::kBiasQuads && value != 0.f) f.add_bias(both[1], batch, row, column);
        }
      }
      if constexpr (C::kBias && C::kBiasQuads) step.add_bias(i, of_bias);
      pack_weights(i, w);
      put(slopes, i, y);
    }
  }

  // Statistics of rows as the graph has them.
  template <class Step>
  static __device__ inline float2 natural_rows(const Step& step, int i) {
    const float2 of = load_pair(step.statistics() + i * 32);
    const float natural = step.is_large(8 * i / C::kOfVote) ? 1.f : kLn2;
    return make_float2(of.x * natural, of.y * natural);
  }
  // `means` is where the means of the thread's rows are.
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
      const float y[] = {w[0] * (x[0] - of.x), w[1] * (x[1] - of.y), w[2] * (x[2] - of.x),
                         w[3] * (x[3] - of.y)};
      put(slopes, i, y);
    }
  }
  template <class F, class Step>
  __device__ inline void take_slopes_of(const F& f, const attention_grad_shape& s, const Step& step,
                                        unsigned means) {
    const int key = step.key(), query = step.query(), batch = step.batch();
    turn_bits();
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
      const float2 mean = load_pair(means + i * 32);
      float2 of = make_float2(0.f, 0.f);
      if constexpr (C::kSlopesOfRows) of = natural_rows(step, i);
      float y[4], of_bias[4];
#pragma unroll
      for (int e = 4 * i; e < 4 * i + 4; ++e) {
        const int row = min(query + 8 * i + e % 2, s.queries - 1);
        const int column = min(key + (e & 2) * 4, s.keys - 1);
        float x[kOfSlope];
        f.slope(weight[e], kept_turned(e), score[e], e % 2 ? of.y : of.x, grad[e],
                e % 2 ? mean.y : mean.x, batch, row, column, x);
        const bool counts = !kHidesSlopes || weight[e] != 0.f;
        y[e % 4] = counts ? x[0] : 0.f;
        take_largest(weight[e] != 0.f, x);
        if constexpr (C::kBias) {
          of_bias[e % 4] = counts ? x[1] : 0.f;
          if (!C::kBiasQuads && weight[e] != 0.f) f.add_bias(x[1], batch, row, column);
        }
      }
      if constexpr (C::kBias && C::kBiasQuads) step.add_bias(i, of_bias);
      put(slopes, i, y);
    }
  }
};

template <class Score, class Inside, class Factor, class Limits, class Visible, class Random,
          class Kept, class Weight, class Slope, class AddBias, class Scale, class Rows>
struct attention_grad_functions {
  const Score& score;
  const Inside& inside;
  const Factor& factor;
  const Limits& limits;
  const Visible& visible;
  const Random& random;
  const Kept& kept;
  const Weight& weight;
  const Slope& slope;
  const AddBias& add_bias;
  const Scale& scale;
  const Rows& rows;
};
