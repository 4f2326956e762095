#pragma once
// attention_products<C>: how the skeletons of attention on mma.sync read operands from panels and
// multiply them, for elements of 16 bits and for f32. C::kF32 says which:
//
//   0    16 bits: mma.m16n8k16
//   1    f32 rounded to TF32: mma.m16n8k8
//   2    f32 as the sum of two TF32 numbers, of whose four products the three largest are added:
//        nearly an f32 product. Tensor cores cut off what they add, so that sums are short, and are
//        added to others in f32. An infinity has no second number, and makes NaN
//
// A chunk is 16 bytes of a row, a step two chunks along the dim that is summed over. Rows along
// that dim are read by ldmatrix, whose words are the fragments of either kind. Across it 16 bits
// have ldmatrix.trans, which f32 has not:
//
//   lane 4g + t reads 8 bytes, columns 2g and 2g + 1 of 16, of rows 2t and 2t + 1 of the 8 of a
//   step: its parts of two tiles of the right operand. Row t of the product is row 2t of memory and
//   t + 4 is 2t + 1; column g of tile j is column 2g + j. Sixteen lanes that read together meet all
//   banks.
//
// The left operand has its columns in the same order, which is how accumulators of a product before
// lie (attention_layout). A lane has 4 neighbouring columns of each of its rows of a result, and
// four lanes 64 bytes in a row.

#include "codegen/cuda/device/attention/attention_layout.cuh"
#include "codegen/cuda/device/attention/panels.cuh"
#include "codegen/cuda/device/ptx/load_matrix.cuh"
#include "codegen/cuda/device/ptx/mma.cuh"

template <class C>
struct attention_products : attention_layout<C::kF32 != 0> {
  static constexpr int kBytes = C::kF32 ? 4 : 2;       // of an element
  static constexpr int kHalves = C::kF32 ? 2 : 1;      // panels count elements of 16 bits
  static constexpr int kOfChunk = 16 / kBytes;         // elements
  static constexpr int kStep = 2 * kOfChunk;           // elements
  static constexpr int kAcross = 16 / kOfChunk;        // chunks of two tiles' columns
  static constexpr int kChain = C::kF32 == 2 ? 4 : 0;  // steps of a sum that is cut off; 0: any

  struct left {
    unsigned words[C::kF32 == 2 ? 8 : 4];
  };
  struct right {  // of two tiles
    unsigned words[4], low[C::kF32 == 2 ? 4 : 1];
  };

  static __device__ inline void split(unsigned& word, unsigned& low) {
    const unsigned high = round_tf32(word);
    low = round_tf32(__float_as_uint(__uint_as_float(word) - __uint_as_float(high)));
    word = high;
  }
  // `rounded`: what is rounded to TF32 was so where it lies.
  template <bool rounded>
  static __device__ inline void finish(unsigned (&words)[4], unsigned* low) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (C::kF32 == 1 && !rounded) words[i] = round_tf32(words[i]);
      if constexpr (C::kF32 == 2) split(words[i], low[i]);
    }
  }
  template <bool rounded>
  static __device__ inline left left_of(const unsigned (&from)[4]) {
    unsigned words[4] = {from[0], from[1], from[2], from[3]};
    left x;
    finish<rounded>(words, x.words + 4 * (C::kF32 == 2));
#pragma unroll
    for (int w = 0; w < 4; ++w) x.words[w] = words[w];
    return x;
  }
  template <bool rounded>
  static __device__ inline left left_registers(const unsigned* from) {
    // Terms that compilers keep for other columns would fill the registers.
    if constexpr (C::kF32 == 2)
      return left_of<rounded>({computed_again(from[0]), computed_again(from[1]),
                               computed_again(from[2]), computed_again(from[3])});
    else
      return left_of<rounded>({from[0], from[1], from[2], from[3]});
  }
  // Reads rows along the summed dim.
  template <bool rounded>
  static __device__ inline left left_rows(unsigned from) {
    unsigned words[4];
    matrices<4>::load(words, from);
    return left_of<rounded>(words);
  }
  static __device__ inline right right_rows(unsigned from) {
    right x;
    matrices<4>::load(x.words, from);
    finish<false>(x.words, x.low);
    return x;
  }

  // ---- rows across it
  // The beginning of a lane's address, as panels::first has it.
  template <class Panels>
  static __device__ inline unsigned first_across(unsigned lane) {
    if constexpr (C::kF32)
      return Panels::first(lane % 4 * 2, lane / 8) + lane / 4 % 2 * 8;
    else
      return Panels::first(lane % 16, lane / 16);
  }
  // The row behind an even one: its key differs in the last bit.
  static __device__ inline unsigned row_behind(unsigned from) { return (from ^ 16) + 128; }
  static __device__ inline void load_pair(unsigned& low, unsigned& high, unsigned from) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(low), "=r"(high) : "r"(from));
  }
  static __device__ inline void load_quad(unsigned (&to)[4], unsigned from) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from));
  }
  template <bool rounded>
  static __device__ inline right right_across(unsigned from) {
    right x;
    if constexpr (C::kF32) {
      load_pair(x.words[0], x.words[2], from);
      load_pair(x.words[1], x.words[3], row_behind(from));
    } else {
      matrices<4>::load_transposed(x.words, from);
    }
    finish<rounded>(x.words, x.low);
    return x;
  }

  // sums += left right, of tile j.
  static __device__ inline void multiply(float* sums, const left& a, const right& b, int j) {
    if constexpr (C::kF32 == 0) {
      multiply_16<C::kPackBf16>(sums, a.words, b.words + 2 * j);
    } else {
      if constexpr (C::kF32 == 2) {
        mma_tf32(sums, a.words + 4, b.words + 2 * j);
        mma_tf32(sums, a.words, b.low + 2 * j);
      }
      mma_tf32(sums, a.words, b.words + 2 * j);
    }
  }
  static __device__ inline void multiply(float* sums, const left& a, const right& b) {
    multiply(sums, a, b, 0);
    multiply(sums + 4, a, b, 1);
  }

  // count steps of step(i, sums), of `size` sums in `tiles` rows each, in sums of kChain steps.
  // (Where lambdas are generic, NVRTC takes them for functions of the host.) `rolls`: a step reads
  // memory alone, and the loop stays one, as the text is long and takes long to compile.
  template <int count, int tiles, int size, bool rolls, class Step>
  static __device__ inline void add_steps(float* const (&sums)[tiles], const Step& step) {
    if constexpr (kChain == 0) {
#pragma unroll
      for (int i = 0; i < count; ++i) step(i, sums);
    } else {
#pragma unroll(rolls ? 1 : count)
      for (int first = 0; first < count; first += kChain) {
        float some[tiles][size];
        float* to[tiles];
#pragma unroll
        for (int r = 0; r < tiles; ++r) {
          to[r] = some[r];
#pragma unroll
          for (float& x : some[r]) x = 0;
        }
#pragma unroll
        for (int i = first; i < first + kChain && i < count; ++i) step(i, to);
#pragma unroll
        for (int r = 0; r < tiles; ++r)
#pragma unroll
          for (int e = 0; e < size; ++e) sums[r][e] += some[r][e];
      }
    }
  }
};
