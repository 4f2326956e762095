#pragma once
// attention_layout<wide>: the places of elements in accumulators of attention's products, of
// operands of 16 bits and, `wide`, of f32 on mma.sync (attention_products.cuh says why).
template <bool wide>
struct attention_layout {
  // The place of element e of an accumulator among the words of the left operand that it becomes;
  // two elements share a word of 16 bits each.
  static __device__ constexpr int left_order(int e) {
    return wide ? e / 4 * 4 + (e % 4 == 1 ? 2 : e % 4 == 2 ? 1 : e % 4) : e / 2;
  }
  // An accumulator as a word of the next product's operand.
  static __device__ inline unsigned word_of(float x, bool is_tf32) {
    unsigned word = __float_as_uint(x);
    if (is_tf32) asm("cvt.rna.tf32.f32 %0, %0;" : "+r"(word));
    return word;
  }
  // The column of element e of results, of which wide ones i, i + 4, i + 1 and i + 5 are neighbours
  // for i = 8n and 8n + 2.
  static __device__ inline int result_column(int e, int lane) {
    if constexpr (wide)
      return e / 8 * 16 + lane % 4 * 4 + e % 2 * 2 + e % 8 / 4;
    else
      return 2 * (lane % 4) + 8 * (e / 4) + e % 2;
  }
};
