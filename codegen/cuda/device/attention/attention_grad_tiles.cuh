#pragma once
// attention_grad_shape, the tiles and their steps (attention_grad_tiles), and the additions to dq:
// which tile and which steps a block of attention's gradients has, and where and in what order it
// adds.
//
//   tile     kKeys keys of one head of k and v, and a part of the heads of q that share it; its
//            steps: blocks of kQueries queries of these, of which some see some of the keys
//
// `sums` of dq are in the order of fragments, so that a warp adds 512 bytes in a row: element e of
// lane l of warp w of part m of a block is at (m * elements of a part) + e / 4 * 512 + 128 w + 4 l
// + e % 4. A part is half of the columns, or of the rows. Another kernel makes dq of it; zeroes
// come first: before the kernel, or of all but the first section while it makes the one before
// (attention_grad_zeroes).
//
// kOrdered: tiles of a head add to a block of dq in the order of their keys, the last first:
// turns[1 + block] counts those that have. turns[0] is the next tile: blocks take tiles in order,
// so that who waits for its turn waits for one that runs, even if some blocks of the grid have not
// started. All turns are 0 at the start.
struct attention_grad_shape {
#define NUMBER(name) int name;
#define TILES_NUMBER(name) int name;
#define TILES_INT(name, value) int name = value;
#define GRAD_NUMBER(name) int name;
#define GRAD_INT(name, value) int name = value;
#include "codegen/cuda/device/attention/attention.def"
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

// The number of heads in a section.
__device__ inline int attention_grad_heads(const attention_grad_shape& s, int part) {
  return min(s.section, s.batches - part * s.section);
}

// kImagesFirst: a head's tiles of all images come before those of the next one, so that what they
// read, and add to, together is still in L2. (Zeroes made ahead want sums of a section in a row.)
// kAll: all blocks of queries are steps, whether they see a key or not.
template <int kKeys, int kQueries, bool kOrdered, bool kRotates, bool kParts, bool kImagesFirst,
          bool kAll = false>
struct attention_grad_tiles {
  static_assert(kOrdered || !kImagesFirst);
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
    if constexpr (kImagesFirst) {
      const int of_head = s.images * (kParts ? s.parts : 1), inner = p.head / of_head;
      const int in_head = p.head - inner * of_head, outer = kParts ? in_head / s.parts : in_head;
      p.head = (outer * s.inner + inner) * (kParts ? s.parts : 1) +
               (kParts ? in_head - outer * s.parts : 0);
    }
    const int shared = kParts ? p.head / s.parts : p.head;
    p.outer = shared / s.inner;
    p.inner = shared - p.outer * s.inner;
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
    // True if rows of a block see some of the keys; `result` gets all that they see.
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
      const bool sees_some = sees(batch, row, result) || kAll;
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

// Additions to dq in memory, and the turns in which their blocks take them.
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

// Sums of a bias's gradient, in blocks as large as a step of 128 keys. More than two of them would
// depend on their order: kInOrder, of other heads those with lower numbers come first. Who is known
// to be the first, kFirstStores, stores and does not add.
template <class C>
struct attention_grad_bias {
  static constexpr bool kInOrder = C::kBias && C::kOrdered && (C::kBiasHeads || C::kBiasBatches);
  static constexpr bool kFirstStores = kInOrder || !(C::kBiasHeads || C::kBiasBatches);
  static __device__ inline int heads(const attention_grad_shape& s) {  // of q, of one image
    return s.inner * (C::kParts ? s.parts : 1) * s.group;
  }
  // The block that a step adds to.
  template <class Place>
  static __device__ inline int block(const attention_grad_shape& s, const Place& p, int batch,
                                     int row) {
    static_assert(!C::kBias || C::kQueries == 64);
    const int of = C::kBiasHeads ? (C::kBiasBatches ? 0 : p.outer)
                                 : (C::kBiasBatches ? batch - p.outer * heads(s) : batch);
    return (of * s.key_tiles + p.index) * s.query_tiles + row / C::kQueries;
  }
  // The number of steps that add to it before this one.
  template <class Place, class Step>
  static __device__ inline int before(const attention_grad_shape& s, const Place& p,
                                      const Step& step) {
    if constexpr (C::kBiasHeads && C::kBiasBatches) return step.count_before(step.batch, 1);
    if constexpr (C::kBiasHeads) return step.count_before(step.batch - p.outer * heads(s), 1);
    return step.count_before(p.outer, heads(s));
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
