#pragma once
__device__ inline unsigned load_word(unsigned from) {
  unsigned word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}
// A panel of an operand with 32-bit elements that lies along its own axis: 32 neighbours along it
// by the k of one stage. wgmma takes such elements along k only, so a warp turns the panel in its
// place: rows of 128 bytes, one for each k, become 32 rows along k. Both are swizzled over their
// widths. A lane has one of the 32 neighbours: it reads words of a row, and writes 16 bytes of its
// own, so that no two lanes meet in a bank.
template <int row_bytes>
__device__ inline void turn_panel(unsigned panel, unsigned lane) {
  constexpr unsigned kDepth = row_bytes / 4;
  unsigned values[kDepth];
#pragma unroll
  for (unsigned k = 0; k < kDepth; ++k)
    values[k] = load_word(panel + k * 128 + ((lane / 4 ^ k % 8) << 4) + lane % 4 * 4);
  __syncwarp();
#pragma unroll
  for (unsigned k = 0; k < kDepth; k += 4) {
    const unsigned at = lane * row_bytes + k * 4;
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(
                     panel + (at ^ (at >> 7 & (row_bytes / 16 - 1)) << 4)),
                 "r"(values[k]), "r"(values[k + 1]), "r"(values[k + 2]), "r"(values[k + 3])
                 : "memory");
  }
}
