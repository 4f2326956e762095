#pragma once
// 32-bit operands of contract_sm90 that lie along their own axis.
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
// The share of warp 0, 1 or 2 in the panels of right of all stages. Every warp waits for every
// stage: none is ahead by more than a ring.
template <class T>
__device__ inline void turn_tiles(const contract_shape& s, int first, int tiles, int step,
                                  unsigned rank, unsigned right, unsigned barriers, int warp,
                                  unsigned lane) {
  constexpr int kWarps = 3, kPanels = T::kPanels;
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
        turn_panel<T::kDepth * 4>(right + r.stage * T::kRightBytes + panel * T::kPanelBytes, lane);
        fence_for_copies();
        __syncwarp();
        if (lane == 0) mbarrier_arrive(barriers + 8 * r.stage);
      }
    }
  }
}
