#pragma once
// 32-bit operands of contract_sm90, which wgmma takes from shared memory along k only, and as TF32:
// panels of right are turned there, left goes through registers. Where an f32 is to count with all
// its bits it becomes two TF32 numbers, its terms, and a product becomes three (kTerms).

#include "codegen/cuda/device/contract/contract_shape_sm90.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"
#include "codegen/cuda/device/ptx/tma.cuh"
#include "codegen/cuda/device/ptx/wgmma.cuh"

__device__ inline unsigned load_word(unsigned from) {
  unsigned word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}
__device__ inline void store_words(unsigned to, const unsigned* words) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]),
               "r"(words[2]), "r"(words[3])
               : "memory");
}

// An f32 as high + low. Huge ones are cut off, not to overflow by rounding. Infinity is 1 and
// infinity: its products with finite numbers have no 0 * infinity that f32 has not.
__device__ inline void split_f32(unsigned bits, unsigned& high, unsigned& low) {
  const unsigned size = bits & 0x7fffffff;
  high = (size < 0x7f7ff000 ? bits + 0x1000 : bits) & 0xffffe000;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(low) : "f"(__uint_as_float(bits) - __uint_as_float(high)));
  if (size >= 0x7f800000) {
    high = size == 0x7f800000 ? (bits & 0x80000000) | 0x3f800000 : 0x7fffe000;
    low = bits;
  }
}
// Stores four neighbours along k; where they have two terms, low ones so much further.
template <int terms>
__device__ inline void store_terms(unsigned to, unsigned to_low, const unsigned* words) {
  if constexpr (terms == 1) {
    store_words(to, words);
  } else {
    unsigned high[4], low[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) split_f32(words[e], high[e], low[e]);
    store_words(to, high);
    store_words(to + to_low, low);
  }
}

// A panel: 32 neighbours of right by the k of one stage. A warp turns it in its place: rows of 128
// bytes, one for each k, become 32 rows along k. Both are swizzled over their widths. A lane has
// one of the 32 neighbours: it reads words of a row, and writes 16 bytes of its own, so that no two
// lanes meet in a bank.
template <int row_bytes, int terms>
__device__ inline void turn_panel(unsigned panel, unsigned to_low, unsigned lane) {
  constexpr unsigned kDepth = row_bytes / 4;
  unsigned values[kDepth];
#pragma unroll
  for (unsigned k = 0; k < kDepth; ++k)
    values[k] = load_word(panel + k * 128 + ((lane / 4 ^ k % 8) << 4) + lane % 4 * 4);
  __syncwarp();
#pragma unroll
  for (unsigned k = 0; k < kDepth; k += 4) {
    const unsigned at = lane * row_bytes + k * 4;
    store_terms<terms>(panel + (at ^ (at >> 7 & (row_bytes / 16 - 1)) << 4), to_low, values + k);
  }
}
// Splits a panel that lies along k already.
template <int row_bytes>
__device__ inline void split_panel(unsigned panel, unsigned to_low, unsigned lane) {
#pragma unroll
  for (int at = 0; at < 32 * row_bytes; at += 512) {
    unsigned words[4];
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(panel + at + lane * 16)
                 : "memory");
    store_terms<2>(panel + at + lane * 16, to_low, words);
  }
}

// The share of warp 0, 1 or 2 in the panels of right of all stages. Every warp waits for every
// stage: none is ahead by more than a ring.
template <class T>
__device__ inline void prepare_right(const contract_shape& s, int first, int tiles, int step,
                                     unsigned rank, unsigned right, unsigned barriers, int warp,
                                     unsigned lane) {
  constexpr int kWarps = 3, kPanels = T::kPanels, kRowBytes = T::config::kRowBytes;
  constexpr unsigned kToLow = T::kRightBytes * T::config::kStages;
  typename T::ring r;
  int panel = warp;
#pragma unroll 1
  for (int tile = first; tile < tiles; tile += step) {
    const int steps = T::place_of(s, tile, rank).steps;
#pragma unroll 1
    for (int i = 0; i < steps; ++i, r.advance(), panel -= kPanels) {
      mbarrier_wait(T::loaded(barriers, r.stage), r.phase);
#pragma unroll 1
      for (; panel < kPanels; panel += kWarps) {
        const unsigned at = right + r.stage * T::kRightBytes + panel * T::kPanelBytes;
        if constexpr (T::kTurns)
          turn_panel<kRowBytes, T::config::kTerms>(at, kToLow, lane);
        else
          split_panel<kRowBytes>(at, kToLow, lane);
        fence_for_copies();
        __syncwarp();
        if (lane == 0) mbarrier_arrive(barriers + 8 * r.stage);
      }
    }
  }
}

// The part of left that a thread has in registers: of the k steps of a piece, of all blocks of 64
// rows, the 4 elements that wgmma wants of it.
template <class T>
struct left_piece {
  using C = typename T::config;
  static constexpr int kSteps = C::kRowBytes / 32, kPieces = kSteps > 1 ? 2 : 1;
  static constexpr int kStepsOfPiece = kSteps / kPieces;
  static constexpr bool kTwo = C::kTerms == 2;
  unsigned high[kStepsOfPiece][T::kBlocks][4], low[kTwo ? kStepsOfPiece : 1][T::kBlocks][4];

  // The thread's first element of a stage; others differ in the swizzled chunk, and by constants.
  static __device__ inline unsigned place(unsigned left, unsigned lane, unsigned warp) {
    const unsigned k = lane % 4;
    if constexpr (T::kMovesRows) {
      const unsigned chunk = lane / 16 * 4 + warp % 2 * 2;
      return left + warp / 2 * T::kPanelBytes + k * 128 + ((chunk ^ k) << 4) + lane / 4 % 4 * 4;
    } else {
      const unsigned row = (warp * 16 + lane / 4) * C::kRowBytes;
      return left + row + ((row >> 7 & (C::kRowBytes / 16 - 1)) << 4) + k * 4;
    }
  }
  __device__ inline void load(unsigned stage, int piece) {
#pragma unroll
    for (int kk = 0; kk < kStepsOfPiece; ++kk)
#pragma unroll
      for (int i = 0; i < T::kBlocks; ++i)
#pragma unroll
        for (unsigned e = 0; e < 4; ++e) {  // the next rows, the next 4 k
          const int step = piece * kStepsOfPiece + kk;
          unsigned from;
          if constexpr (T::kMovesRows)
            from = (stage ^ (e % 2 * 16 + e / 2 * 64)) + step * 1024 + i * 2 * T::kPanelBytes +
                   e / 2 * 512;
          else
            from = (stage ^ (step * 32 + e / 2 * 16)) + (i * 64 + e % 2 * 8) * C::kRowBytes;
          const unsigned word = load_word(from);
          if constexpr (kTwo)
            split_f32(word, high[kk][i][e], low[kk][i][e]);
          else
            high[kk][i][e] = word;
        }
  }
  __device__ inline void multiply(typename T::accumulators& acc, unsigned long long right,
                                  bool accumulate) const {
    constexpr int kToLow = (T::kRightBytes * C::kStages) >> 4;
    // Products of low terms first: what is cut off a sum is less where the sum is small.
    if constexpr (kTwo) {
#pragma unroll
      for (int kk = 0; kk < kStepsOfPiece; ++kk)
#pragma unroll
        for (int i = 0; i < T::kBlocks; ++i) {
          C::multiply(acc[i], low[kk][i], right + kk * 2, accumulate || kk > 0);
          C::multiply(acc[i], high[kk][i], right + kToLow + kk * 2, 1);
        }
    }
#pragma unroll
    for (int kk = 0; kk < kStepsOfPiece; ++kk)
#pragma unroll
      for (int i = 0; i < T::kBlocks; ++i)
        C::multiply(acc[i], high[kk][i], right + kk * 2, kTwo || accumulate || kk > 0);
  }
};

// Multiplies a tile whose left goes through registers. A stage goes in two pieces, and the next
// one's elements are read while the tensor cores have the last one. Tensor cores cut off what they
// add, which over a long sum counts: sums of two terms are those of one step, and added up as f32,
// as are longer ones of one (kFolds).
template <class T>
__device__ inline void multiply_from_registers(typename T::accumulators& acc,
                                               const typename T::place& p, unsigned left,
                                               unsigned long long right, unsigned barriers,
                                               typename T::ring& r, unsigned thread, bool is_last) {
  using C = typename T::config;
  using piece_of_left = left_piece<T>;
  constexpr bool kTwo = C::kTerms == 2, kParts = kTwo || C::kFolds > 0;
  constexpr int kPieces = piece_of_left::kPieces, kPart = kTwo ? 1 : C::kFolds;
  constexpr int kRightPiece = piece_of_left::kStepsOfPiece * 2;
  const unsigned place = piece_of_left::place(left, thread % 32, thread / 32);
  piece_of_left pieces[kPieces];
  typename T::accumulators part;
  const auto load_first = [&] {
    mbarrier_wait(T::loaded(barriers, r.stage), r.phase);
    pieces[0].load(place + r.stage * T::kLeftBytes, 0);
  };
  if constexpr (kParts) clear_sums(acc);
  if (p.steps > 0) load_first();
  int previous = -1, step = 0;
  const auto release_previous = [&] {
    if (previous >= 0) T::release(barriers + 8 * (C::kStages + previous), thread);
    previous = -1;
  };
#pragma unroll 1
  while (step < p.steps) {
    const int end = kParts ? min(step + kPart, p.steps) : p.steps;
    bool accumulate = false;
#pragma unroll 1
    for (; step < end; ++step) {
      const int stage = r.stage;
      if (T::kPrepares) mbarrier_wait(barriers + 8 * stage, r.phase);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        if (piece > 0) {
          wgmma_wait<1>();  // the registers of the piece are free
          release_previous();
          pieces[piece].load(place + stage * T::kLeftBytes, piece);
        }
        wgmma_fence();
        pieces[piece].multiply(kParts ? part : acc,
                               right + stage * (T::kRightBytes >> 4) + piece * kRightPiece,
                               piece > 0 || accumulate);
        wgmma_commit();
      }
      accumulate = true;
      previous = stage;
      r.advance();
      const bool is_end = step + 1 == p.steps;
      if constexpr (C::kPingPong)
        if (is_end) T::pass_turn(is_last);
      wgmma_wait<kPieces - 1>();  // the registers of the first piece are free
      if constexpr (kPieces == 1) release_previous();
      if (!is_end) load_first();
    }
    wgmma_wait<0>();
    release_previous();
    if constexpr (kParts) add_sums(acc, part);
  }
  if constexpr (C::kPingPong && C::kMayBeEmpty)
    if (p.steps == 0) T::pass_turn(is_last);
}
