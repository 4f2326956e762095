#pragma once
// contract_sm90<Config>(left, right, shape, store), or
// contract_sm90<Config>(left, right, out, shape, rows, apply): the skeleton of every tensor-core
// contraction on sm_90a, result[left][right] = sum over k of left[k] * right[k].
//
//   left   channels, or columns of a matrix: rows of wgmma. A matrix, or the (tap, channel) columns
//          of pixels that wgrad multiplies
//   right  the other axis (pixels, rows of a matrix): columns of wgmma. A matrix, or pixels by
//          im2col
//   k      taps outer, blocks of kDepth channels inner; wgrad: blocks of kDepth pixels, or images
//          outer and blocks of their pixels inner
//
//   producer warp   TMA → ring of kStages stages → consumer warpgroups   wgmma → accumulators
//                                                  → shared memory → store(8 neighbours) → global
//                                                  or apply(value) → shared memory → TMA → global
//
// The result lies in memory along left (kVectorLeft: then neighbours are along left), or along
// right, as NCHW does.
//
// The grid is persistent: a block (a cluster of kCluster blocks along left that share the tile of
// the right operand by multicast) makes tile after tile. Consumers make a tile together
// (kGroupsLeft x kGroupsRight), or each its own, in turns, one storing while the other multiplies
// (kPingPong). Tiles of a strided dgrad's phases without taps are made beside them, by warps of the
// producer that load nothing (kFills). wgmma takes 32-bit operands from shared memory along k only.
// Of those that lie along their own axis, consumers read left into registers, and the same warps
// turn right (f32_operands_sm90.cuh). With few tiles the blocks of a cluster of kSplitCluster make
// parts of the sum over k of one tile, and add them up from one another's shared memory, in their
// order: then the grid has a block for each part.

#include "codegen/cuda/device/contract/contract_shape_sm90.cuh"
#include "codegen/cuda/device/contract/contract_tiles_sm90.cuh"
#include "codegen/cuda/device/contract/f32_operands_sm90.cuh"
#include "codegen/cuda/device/numbers/pairs.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"
#include "codegen/cuda/device/ptx/tma.cuh"
#include "codegen/cuda/device/ptx/wgmma.cuh"

enum { kMatrix, kPixels };  // how an operand is addressed

template <bool is_int>
struct result_word {  // of 4 bytes
  using type = float;
};
template <>
struct result_word<true> {
  using type = int;
};

template <class C>
struct contract : contract_tiles<C> {
  using config = C;
  static constexpr int kGroups = C::kPingPong ? 2 : C::kGroupsLeft * C::kGroupsRight;
  static constexpr int kThreads = 128 * (kGroups + 1);
  static constexpr int kPanel = C::kElementBytes == 4 ? 32 : 64;  // elements of a 128-byte row
  static constexpr int kDepth = C::kRowBytes / C::kElementBytes;
  static constexpr int kPanelBytes = kDepth * 128;
  static constexpr int kLeftBytes =
      C::kLeftMajor == kMajorK ? C::kTileLeft * C::kRowBytes : C::kTileLeft / kPanel * kPanelBytes;
  static constexpr int kRightRows =
      C::kRightMajor == kMajorK ? C::kTileRight : (C::kTileRight + kPanel - 1) / kPanel * kPanel;
  static constexpr int kRightBytes =
      C::kRightMajor == kMajorK ? kRightRows * C::kRowBytes : kRightRows / kPanel * kPanelBytes;
  static constexpr int kLoadedBytes = kLeftBytes + kRightBytes;
  static constexpr int kStageBytes = kLoadedBytes + (C::kTerms == 2 ? kRightBytes : 0);
  static constexpr bool kMovesRows = C::kLeftMajor != kMajorK && C::kElementBytes == 4;
  static constexpr bool kLeftInRegisters = kMovesRows || C::kTerms == 2;
  static constexpr bool kTurns = C::kRightMajor != kMajorK && C::kElementBytes == 4;
  static constexpr bool kPrepares = kTurns || C::kTerms == 2;                // right, for wgmma
  static constexpr bool kRightAlongK = kTurns || C::kRightMajor == kMajorK;  // as wgmma reads it
  static constexpr int kPanels = kRightRows / kPanel;  // of right, where it is prepared
  // Barriers of each stage: it is full, it is empty, and before right is prepared: it has come.
  static constexpr int kBarriers = kPrepares ? 3 : 2;
#define CONSTANT(name, value) static constexpr int name = value;
#include "codegen/cuda/device/contract/contract_sm90.def"
  static constexpr int kStagingBytes =
      C::kBuffers > 0 ? C::kBuffers* kBoxBytes : kChunk* kPitch * 4;
  static constexpr int kStagingAt = (C::kStages * kStageBytes + 1023) / 1024 * 1024;

  using tiles = contract_tiles<C>;
  using tiles::batch_of;
  using tiles::place_of;
  using tiles::taps_of;
  using tiles::tiles_of;
  using typename tiles::batch_place;
  using typename tiles::place;
  using typename tiles::taps;

  template <int stages>
  struct ring_of {
    int stage = 0;
    unsigned phase = 0;
    __device__ inline void advance() {
      if (++stage == stages) {
        stage = 0;
        phase ^= 1;
      }
    }
    __device__ inline void skip(int steps) {
      stage += steps;
      phase ^= (stage / stages) & 1;
      stage %= stages;
    }
  };
  using ring = ring_of<C::kStages>;

  // ---- producer

  // The barrier of a stage that its boxes arrive at.
  static __device__ inline unsigned loaded(unsigned barriers, int stage) {
    return barriers + 8 * ((kPrepares ? 2 * C::kStages : 0) + stage);
  }

  // Loads a box of a matrix: rows of one operand at depth k. Each block of the cluster loads its
  // part of a shared operand for all.
  template <int rows, int major, bool shared>
  static __device__ inline void load_matrix(unsigned to, const tensor_map& map, unsigned full,
                                            int k, int row, int inner, int outer, unsigned rank) {
    constexpr int kPart = shared ? rows / C::kCluster : rows;
    const int first = shared ? static_cast<int>(rank) * kPart : 0;
    constexpr unsigned short kAll = (1 << C::kCluster) - 1;
    if constexpr (major == kMajorK) {
      to += first * C::kRowBytes;
      if constexpr (shared)
        tma_load(to, map, full, k, row + first, inner, outer, kAll);
      else
        tma_load(to, map, full, k, row + first, inner, outer);
    } else {
      to += first / kPanel * kPanelBytes;
#pragma unroll
      for (int p = 0; p < kPart / kPanel; ++p) {
        const int at = row + first + p * kPanel;
        if constexpr (shared)
          tma_load(to + p * kPanelBytes, map, full, at, k, inner, outer, kAll);
        else
          tma_load(to + p * kPanelBytes, map, full, at, k, inner, outer);
      }
    }
  }

  static __device__ inline pixel_place pixel_at(const contract_shape& s, int pixel) {
    pixel_place at = {};
    const int row = pixel / s.places_w, plane = row / s.places_h;
    at.w = (pixel - row * s.places_w.value) * s.step_w + s.low_w;
    at.h = (row - plane * s.places_h.value) * s.step_h + s.low_h;
    at.n = plane;
    if constexpr (C::kSpatial == 3) {
      at.n = plane / s.places_d;
      at.d = (plane - at.n * s.places_d.value) * s.step_d + s.low_d;
    }
    return at;
  }

  static __device__ inline void produce_tile(const contract_shape& s, const place& p,
                                             const tensor_map& left, const tensor_map& right,
                                             unsigned stages, unsigned barriers, ring& r,
                                             unsigned rank, int* steps) {
    const batch_place batch = batch_of(s, p);
    const int left_outer = batch.outer / s.left_outer, left_inner = batch.inner / s.left_inner;
    const int right_outer = batch.outer / s.right_outer, right_inner = batch.inner / s.right_inner;
    constexpr bool kShared = C::kCluster > 1;
    constexpr int kShare = C::kTileRight / C::kCluster;
    constexpr unsigned short kAll = (1 << C::kCluster) - 1;

    // Taps and channel block of the first step.
    const taps all = taps_of(s, p.split);
    int block = p.first_step, tap_w = 0, tap_h = 0, tap_d = 0;
    if constexpr ((C::kSplit || C::kStream) && C::kLeft == kMatrix) {
      const int tap = p.first_step / s.tap_steps;
      block -= tap * s.tap_steps;
      tap_w = tap % s.taps_w;
      tap_h = tap / s.taps_w % s.taps_h;
      tap_d = tap / s.taps_w / s.taps_h;
    }

    pixel_place at = {};
    int channel[C::kTileLeft / kPanel];
    tap_offset offset[C::kTileLeft / kPanel];
    if constexpr (C::kRight == kPixels) {
      at = pixel_at(s, p.right + (kShared ? static_cast<int>(rank) * kShare : 0));
    }
    if constexpr (C::kLeft == kPixels) {
      const int taps = s.taps_w.value * s.taps_h.value * s.taps_d.value;
#pragma unroll
      for (int j = 0; j < C::kTileLeft / kPanel; ++j) {
        const int panel = p.left / kPanel + j, t = min(panel / s.tap_panels, taps - 1);
        const int row = t / s.taps_w, plane = row / s.taps_h;
        channel[j] = panel % s.tap_panels * kPanel + p.batch * s.group_channels;
        offset[j].w = (t - row * s.taps_w.value) * s.offset_w;
        offset[j].h = (row - plane * s.taps_h.value) * s.offset_h;
        offset[j].d = plane * s.offset_d;
      }
    }

#pragma unroll 1
    for (int step = 0; step < p.steps; ++step) {
      const unsigned full = loaded(barriers, r.stage);
      const unsigned empty = barriers + 8 * (C::kStages + r.stage);
      const unsigned to_left = stages + r.stage * kLeftBytes;
      const unsigned to_right = stages + C::kStages * kLeftBytes + r.stage * kRightBytes;
      mbarrier_wait(empty, r.phase ^ 1);
      mbarrier_expect(full, kLoadedBytes);
      const int k = block * kDepth;
      const int filter = all.filter + tap_w * s.filter_w + tap_h * s.filter_h + tap_d * s.filter_d;
      if constexpr (C::kLeft == kMatrix) {
        load_matrix<C::kTileLeft, C::kLeftMajor, false>(to_left, left, full, k, p.left,
                                                        filter + left_inner, left_outer, rank);
      } else {
        at = pixel_at(s, k);
#pragma unroll
        for (int j = 0; j < C::kTileLeft / kPanel; ++j)
          tma_load_pixels<C::kSpatial>(to_left + j * kPanelBytes, left, full, channel[j], at,
                                       offset[j]);
      }
      if constexpr (C::kRight == kMatrix) {
        load_matrix<kRightRows, C::kRightMajor, kShared>(to_right, right, full, k, p.right,
                                                         filter + right_inner, right_outer, rank);
      } else {
        const tap_offset moved = {all.first.w + tap_w * s.offset_w,
                                  all.first.h + tap_h * s.offset_h,
                                  all.first.d + tap_d * s.offset_d};
        const int c = p.batch * s.group_channels + k;
        if constexpr (kShared)
          tma_load_pixels<C::kSpatial>(to_right + rank * kShare * C::kRowBytes, right, full, c, at,
                                       moved, kAll);
        else
          tma_load_pixels<C::kSpatial>(to_right, right, full, c, at, moved);
      }
      if constexpr (C::kFills) atomicAdd(steps, 1);
      block += C::kSplit ? s.splits : 1;
      while (block >= s.tap_steps) {
        block -= s.tap_steps;
        if (++tap_w == all.w) {
          tap_w = 0;
          if (++tap_h == all.h) {
            tap_h = 0;
            ++tap_d;
          }
        }
      }
      r.advance();
    }
  }

  // ---- consumers

  // Wgmma rows of one group: kBlocks times 64; columns: kColumns.
  static constexpr int kGroupsLeft = C::kPingPong ? 1 : C::kGroupsLeft;
  static constexpr int kGroupsRight = C::kPingPong ? 1 : C::kGroupsRight;
  static constexpr int kBlocks = C::kTileLeft / 64 / kGroupsLeft;
  static constexpr int kColumns = C::kTileRight / kGroupsRight;
  // Columns of a box of 64 rows; two boxes of 32 adjoin where results have 4 bytes.
  static constexpr int kColumnsOfBox = kColumns % 64 == 0 && C::kResultBytes == 2 ? 64
                                       : kColumns % 32 == 0                       ? 32
                                                                                  : 16;
  using accumulators = typename C::accumulator[kBlocks][kColumns / 2];

  static __device__ inline void release(unsigned empty, unsigned thread) {
    if constexpr (C::kCluster > 1) {
      if (thread < C::kCluster) mbarrier_arrive_at(empty, thread);
    } else {
      if (thread == 0) mbarrier_arrive(empty);
    }
  }

  // Passes the tensor cores to the other group, if it has a tile.
  static __device__ inline void pass_turn(bool is_last) {
    if (!is_last) named_barrier_arrive(3 + (threadIdx.x < 128 ? 1 : 0), 256);
  }

  static __device__ inline void multiply_tile(accumulators& acc, const place& p,
                                              unsigned long long left, unsigned long long right,
                                              unsigned barriers, ring& r, unsigned thread,
                                              bool is_last) {
    // Encoded steps: along k by 32 bytes of a row or 16 rows of a panel, to the next 64 rows.
    constexpr int kLeftStep = C::kLeftMajor == kMajorK ? 2 : 128;
    constexpr int kRightStep = kRightAlongK ? 2 : 128;
    constexpr int kLeftBlock = (C::kLeftMajor == kMajorK ? 64 * C::kRowBytes : kPanelBytes) >> 4;
    int previous = 0;
    wgmma_chain<C::kFolds, accumulators> chain;
#pragma unroll 1
    for (int step = 0; step < p.steps; ++step) {
      if constexpr (kTurns) mbarrier_wait(loaded(barriers, r.stage), r.phase);  // left, too
      mbarrier_wait(barriers + 8 * r.stage, r.phase);
      wgmma_fence();
#pragma unroll
      for (int kk = 0; kk < C::kRowBytes / 32; ++kk)
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
          C::multiply(acc[i], left + r.stage * (kLeftBytes >> 4) + i * kLeftBlock + kk * kLeftStep,
                      right + r.stage * (kRightBytes >> 4) + kk * kRightStep,
                      (chain.steps | kk) != 0);
      wgmma_commit();
      wgmma_wait<1>();  // the products of the stage before are done: it may be filled again
      if (step > 0) release(barriers + 8 * (C::kStages + previous), thread);
      previous = r.stage;
      r.advance();
      chain.next(acc);
    }
    if constexpr (C::kPingPong) pass_turn(is_last);
    wgmma_wait<0>();
    chain.finish(acc);
    if (!(C::kMayBeEmpty || C::kStream) || p.steps > 0)
      release(barriers + 8 * (C::kStages + previous), thread);
  }

  // Element e of a thread is row first_row + kNextRow * (e / 2 % 2), column 8 * (e / 4) +
  // 2 * (lane % 4) + e % 2. What registers read from panels has its rows in another order, in which
  // no two lanes read one bank: 4 neighbours in one 16-byte chunk, the next 4 lanes 4 chunks
  // further.
  static constexpr int kNextRow = kMovesRows ? 4 : 8;
  static __device__ inline int first_row(int lane, int warp) {
    if constexpr (kMovesRows) return warp / 2 * 32 + lane / 16 * 16 + warp % 2 * 8 + lane / 4 % 4;
    return 16 * warp + lane / 4;
  }

  // Accumulators → staging → store, 64 rows and kChunk columns at a time.
  template <class Store>
  static __device__ inline void store_tile(const accumulators& acc, const place& p, int first_left,
                                           int first_right, typename C::accumulator* staging,
                                           unsigned group, unsigned thread, const Store& store) {
    const int lane = thread % 32, warp = thread / 32;
    typename C::accumulator* const mine = staging + 2 * (lane % 4) * kPitch + first_row(lane, warp);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
      for (int chunk = 0; chunk < kColumns; chunk += kChunk) {
        constexpr int kMost = kColumns < kChunk ? kColumns : kChunk;
        const int here = kColumns - chunk < kChunk ? kColumns - chunk : kChunk;
        // Keeps the compiler from computing the addresses of all chunks at once, for which there
        // are no registers.
        asm volatile("" : "+r"(first_right));
        named_barrier_sync(1 + group, 128);
#pragma unroll
        for (int e = 0; e < kMost / 2; ++e)
          if (e < here / 2)
            mine[(8 * (e / 4) + e % 2) * kPitch + kNextRow * (e / 2 % 2)] =
                C::kMayBeEmpty && p.steps == 0 ? 0 : acc[i][chunk / 2 + e];
        named_barrier_sync(1 + group, 128);
#pragma unroll
        for (int v = 0; v < (kMost * 8 + 127) / 128; ++v) {
          typename C::accumulator values[8];
          int left, right;
          if constexpr (C::kVectorLeft) {
            // Lanes 0..3 take the first halves of a column, 4..7 those of the next: no two in one
            // bank.
            left = (lane % 4 + lane / 8 % 2 * 4) * 8;
            right = lane / 4 % 2 + lane / 16 * 2 + warp * 4 + v * 16;
            if (right >= here) break;
            const float4* from = reinterpret_cast<const float4*>(staging + right * kPitch + left);
            *reinterpret_cast<float4*>(values) = from[0];
            *reinterpret_cast<float4*>(values + 4) = from[1];
          } else {
            // Two lanes to 32 bytes of one place of left: whole sectors of memory.
            left = lane % 16 + warp * 16;
            right = (lane / 16 + v * 2) * 8;
            if (right >= here) break;
#pragma unroll
            for (int e = 0; e < 8; ++e) values[e] = staging[(right + e) * kPitch + left];
          }
          store(values, p.batch, p.split, first_left + i * 64 + left, first_right + chunk + right);
        }
      }
    }
  }

  // The parts of a cluster: each block puts its own into shared memory, where the stages were, and
  // stores an equal share of the columns.
  static constexpr int kSumPitch = C::kTileLeft + 4;
  template <class Store>
  static __device__ inline void sum_parts(const accumulators& acc, const place& p, int group_left,
                                          int group_right, unsigned char* memory, unsigned rank,
                                          const Store& store) {
    using value = typename C::accumulator;
    constexpr int kShare = C::kTileRight / C::kSplitCluster, kVectors = C::kTileLeft / 8;
    static_assert(kSumPitch * C::kTileRight * 4 <= kStagingAt);
    const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
    value* const sums = reinterpret_cast<value*>(memory);
    value* const mine = sums + (group_right * kColumns + 2 * (lane % 4)) * kSumPitch +
                        group_left * kBlocks * 64 + first_row(lane, warp);
    named_barrier_sync(5, 128 * kGroups);  // no group reads the stages any more
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int e = 0; e < kColumns / 2; ++e)
        mine[(8 * (e / 4) + e % 2) * kSumPitch + i * 64 + kNextRow * (e / 2 % 2)] = acc[i][e];
    cluster_sync();
#pragma unroll 1
    for (int v = threadIdx.x; v < kShare * kVectors; v += 128 * kGroups) {
      const int left = v % kVectors * 8, right = rank * kShare + v / kVectors;
      const unsigned from = shared_address(sums + right * kSumPitch + left);
      value values[8] = {};
#pragma unroll
      for (int block = 0; block < C::kSplitCluster; ++block) {
        alignas(16) value part[8];
        *reinterpret_cast<uint4*>(part) = load_from_block(from, block);
        *reinterpret_cast<uint4*>(part + 4) = load_from_block(from + 16, block);
#pragma unroll
        for (int e = 0; e < 8; ++e) values[e] += part[e];
      }
      store(values, p.batch, p.split, p.left + left, p.right + right);
    }
    cluster_sync();  // others may still read this block's part
  }

  template <class Store>
  struct staged_output {
    const Store& store;
    __device__ inline void operator()(const accumulators& acc, const contract_shape&,
                                      const place& p, int group_left, int group_right,
                                      unsigned char* memory, unsigned char* staging, unsigned group,
                                      unsigned thread, unsigned rank) const {
      if constexpr (C::kSplitCluster > 1) {
        sum_parts(acc, p, group_left, group_right, memory, rank, store);
        return;
      }
      const int first_left = p.left + group_left * kBlocks * 64;
      const int first_right = p.right + group_right * kColumns;
      store_tile(acc, p, first_left, first_right,
                 reinterpret_cast<typename C::accumulator*>(staging), group, thread, store);
    }
    __device__ inline void finish(unsigned) const {}
  };

  // 16 columns of fragments → their place in a box, and boxes → global. A row of a box (128 bytes,
  // swizzled) is a column of 64 places of left, or where the result lies along right a place of
  // left with 64 columns.
  static __device__ inline unsigned in_box(unsigned box, int first_column, unsigned lane,
                                           unsigned warp) {
    unsigned row = warp * 16 + lane % 16, chunk = first_column / 8 + lane / 16;
    if constexpr (C::kVectorLeft) {
      row = first_column + lane % 8 + lane / 16 * 8;
      chunk = warp * 2 + lane / 8 % 2;
    }
    return box + row * 128 + ((chunk ^ (row % 8)) << 4);  // 16 bytes: 8 places of left, or columns
  }
  static __device__ inline void store_columns(unsigned box, int first_column, unsigned lane,
                                              unsigned warp, unsigned a, unsigned b, unsigned c,
                                              unsigned d) {
    const unsigned to = in_box(box, first_column, lane, warp);
    if constexpr (C::kVectorLeft)
      store_transposed(to, a, b, c, d);
    else
      store_fragments(to, a, b, c, d);
  }
  static __device__ inline void load_columns(unsigned box, int first_column, unsigned lane,
                                             unsigned warp, unsigned& a, unsigned& b, unsigned& c,
                                             unsigned& d) {
    const unsigned from = in_box(box, first_column, lane, warp);
    if constexpr (C::kVectorLeft)
      load_transposed(from, a, b, c, d);
    else
      load_fragments(from, a, b, c, d);
  }
  static __device__ inline void store_box(const tensor_map& map, unsigned box, int left, int right,
                                          const batch_place& batch) {
    static_assert(C::kVectorLeft || kColumns % 64 == 0);
    tma_store(map, box, C::kVectorLeft ? left : right, C::kVectorLeft ? right : left, batch.inner,
              batch.outer);
  }

  // Accumulators → apply, pair by pair in fragment order → boxes → TMA. The operands of `apply`
  // belong to a row: rows(batch, left) reads them once for a tile.
  struct send_matrix {
    const tensor_map& map;
    __device__ inline void operator()(const contract_shape& s, const place& p, unsigned from,
                                      int left, int right) const {
      store_box(map, from, left, right, batch_of(s, p));
    }
  };
  template <class Send, class Rows, class Apply>
  struct direct_output {
    Send send;
    const Rows& rows;
    const Apply& apply;
    static constexpr int kBoxes = kColumns / kColumnsOfBox;
    static constexpr int kResultColumns = C::kResultBytes == 2 ? 16 : 8;  // stored at once
    // Two buffers take turns, also from one tile to the next if a tile has an even number of boxes.
    static constexpr int kPending = kBlocks * kBoxes % 2 == 0 ? 1 : 0;
    static constexpr int kOperands = C::kOperands > 0 ? C::kOperands : 1;

    using value = typename C::accumulator;

    __device__ inline unsigned pair(value a, value b, const float (&operands)[kOperands]) const {
      float x[1], y[1];
      apply(a, operands, x);
      apply(b, operands, y);
      return pack_pair<C::kPackBf16>(x[0], y[0]);
    }

    // 16 or 8 columns of a box, from `first` on, to the buffer: a row of it is a column, its
    // 16-byte chunks swizzled.
    __device__ inline void put_pairs(unsigned buffer, const value* acc, unsigned first,
                                     const float (&low)[kOperands], const float (&high)[kOperands],
                                     unsigned lane, unsigned warp) const {
      const unsigned a = pair(acc[0], acc[1], low), b = pair(acc[2], acc[3], high);
      const unsigned c = pair(acc[4], acc[5], low), d = pair(acc[6], acc[7], high);
      store_columns(buffer, first, lane, warp, a, b, c, d);
    }
    // Lanes that share a chunk of 4 rows have neighbouring words, the others have other chunks: no
    // two in one bank.
    __device__ inline void put_words(unsigned char* buffer, const value* acc, unsigned first,
                                     const float (&low)[kOperands], const float (&high)[kOperands],
                                     unsigned lane, unsigned warp) const {
      using word = typename result_word<C::kIntResults>::type;
      buffer += warp / 2 * kColumnsOfBox * 128 + lane / 4 % 4 * 4;
      const unsigned chunk = kMovesRows ? lane / 16 * 4 + warp % 2 * 2 : warp % 2 * 4 + lane / 16;
#pragma unroll
      for (unsigned e = 0; e < 4; ++e) {
        const unsigned column = first + 2 * (lane % 4) + e % 2;
        word x[1];
        apply(acc[e], e < 2 ? low : high, x);
        const unsigned at = column * 128 + (((chunk + e / 2 * (kNextRow / 4)) ^ (column % 8)) << 4);
        *reinterpret_cast<word*>(buffer + at) = x[0];
      }
    }

    __device__ inline void operator()(const accumulators& acc, const contract_shape& s,
                                      const place& p, int group_left, int group_right,
                                      unsigned char*, unsigned char* staging, unsigned group,
                                      unsigned thread, unsigned) const {
      const int first_left = p.left + group_left * kBlocks * 64;
      const int first_right = p.right + group_right * kColumns;
      const unsigned lane = thread % 32, warp = thread / 32;
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        float low[kOperands], high[kOperands];
        const int row = first_left + i * 64 + first_row(lane, warp);
        rows(p.batch, row, low);
        rows(p.batch, row + kNextRow, high);
#pragma unroll
        for (int box = 0; box < kBoxes; ++box) {
          unsigned char* const to = staging + (i * kBoxes + box) % 2 * kBoxBytes;
          const unsigned buffer = shared_address(to);
          if (thread == 0) tma_store_wait_read<kPending>();
          named_barrier_sync(1 + group, 128);
#pragma unroll
          for (int first = 0; first < kColumnsOfBox; first += kResultColumns) {
            value from[kResultColumns / 2];
#pragma unroll
            for (int e = 0; e < kResultColumns / 2; ++e)
              from[e] = C::kMayBeEmpty && p.steps == 0
                            ? 0
                            : acc[i][(box * kColumnsOfBox + first) / 2 + e];
            if constexpr (C::kResultBytes == 2)
              put_pairs(buffer, from, first, low, high, lane, warp);
            else
              put_words(to, from, first, low, high, lane, warp);
          }
          fence_for_copies();
          named_barrier_sync(1 + group, 128);
          if (thread == 0) {
#pragma unroll
            for (int part = 0; part < C::kResultBytes / 2; ++part)
              send(s, p, buffer + part * kColumnsOfBox * 128, first_left + i * 64 + part * 32,
                   first_right + box * kColumnsOfBox);
            tma_store_commit();
          }
        }
      }
    }
    __device__ inline void finish(unsigned thread) const {
      if (thread == 0) tma_store_wait();
    }
  };

  // Barriers of an output that has some, from the staging of a group on.
  static __device__ inline unsigned output_barriers(unsigned staging, unsigned group) {
    return staging + (kGroups - group) * kStagingBytes + 16 * C::kStages;
  }

  // With kFills consumers leave out the tiles without taps, which the output's warps make.
  static __device__ inline int with_taps(const contract_shape& s, int tile, int tiles, int step) {
    if constexpr (C::kFills)
      while (tile < tiles && place_of(s, tile, 0).steps == 0) tile += step;
    return tile;
  }

  template <class Output>
  static __device__ inline void run(const tensor_map& left, const tensor_map& right,
                                    const contract_shape& s, Output output) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const unsigned stages = shared_address(shared_memory);
    static_assert(C::kSlot > 0 || C::kSharedBytes == kStagingAt + kGroups * kStagingBytes +
                                                         8 * kBarriers * C::kStages +
                                                         (C::kFills ? 8 : 0));
    static_assert(C::kSlot == 0 || (!kPrepares && !kLeftInRegisters));
    const unsigned barriers = stages + kStagingAt + kGroups * kStagingBytes;
    int* const steps = reinterpret_cast<int*>(shared_memory + C::kSharedBytes - 8);  // kFills'
    const unsigned group = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128;
    if (threadIdx.x == 0) {
      constexpr int kReaders = (C::kPingPong ? 1 : kGroups) * C::kCluster;
      for (int i = 0; i < C::kStages; ++i) {
        mbarrier_init(loaded(barriers, i), 1);
        mbarrier_init(barriers + 8 * (C::kStages + i), kReaders);
        if constexpr (kPrepares) mbarrier_init(barriers + 8 * i, kPanels);
      }
      if constexpr (C::kFills) *steps = 0;
      if constexpr (C::kSlot > 0) output.init(output_barriers(stages + kStagingAt, 0));
      mbarrier_init_done();
    }
    constexpr int kBlocksOfCluster = C::kCluster * C::kSplitCluster;
    static_assert(C::kCluster == 1 || C::kSplitCluster == 1);
    if constexpr (kBlocksOfCluster > 1)
      cluster_sync();
    else
      __syncthreads();
    unsigned rank = 0;
    if constexpr (kBlocksOfCluster > 1) rank = cluster_rank();
    const int tiles = tiles_of(s);
    const int first = blockIdx.x / kBlocksOfCluster, step = gridDim.x / kBlocksOfCluster;
    ring r;
    if (group == kGroups) {
      give_registers<C::kProducerRegisters>();
      if constexpr (C::kSlot > 0) {
        const unsigned of = thread / 32 - 1, at = stages + kStagingAt + of * kStagingBytes;
        if (thread >= 32 && of < kGroups && elect_one())
          output.move(s, first, tiles, step, of, rank, at,
                      output_barriers(at, of) + of * Output::kBarrierBytes);
      }
      if constexpr (kPrepares) {
        if (thread >= 32)
          prepare_right<contract>(s, first, tiles, step, rank, stages + C::kStages * kLeftBytes,
                                  barriers, static_cast<int>(thread / 32) - 1, thread % 32);
      }
      if constexpr (C::kFills) {
        static_assert(!kPrepares && C::kSlot == 0 && C::kVectorLeft);
        if (thread >= 32) output.fill(s, first, tiles, step, rank, steps, thread - 32);
      }
      if (thread < 32 && elect_one()) {
#pragma unroll 1
        for (int tile = first; tile < tiles; tile += step)
          produce_tile(s, place_of(s, tile, rank), left, right, stages, barriers, r, rank, steps);
        if constexpr (C::kFills) atomicExch(steps, 0x7fffffff);
        // Other blocks of the cluster may still arrive at these barriers.
        if constexpr (C::kCluster > 1) {
          for (int i = 0; i < C::kStages; ++i, r.advance())
            mbarrier_wait(barriers + 8 * (C::kStages + r.stage), r.phase ^ 1);
        }
      }
      return;
    }
    take_registers<C::kConsumerRegisters>();
    const int group_left = C::kPingPong ? 0 : group / kGroupsRight;
    const int group_right = C::kPingPong ? 0 : group % kGroupsRight;
    constexpr int kLeftPart = kLeftBytes / kGroupsLeft, kRightPart = kRightBytes / kGroupsRight;
    const unsigned left_rows = stages + group_left * kLeftPart;
    const unsigned long long left_tile =
        descriptor_layout(C::kLeftMajor == kMajorK ? C::kRowBytes : 128, kPanelBytes) |
        descriptor_address(left_rows);
    const unsigned long long right_tile =
        descriptor_layout(kRightAlongK ? C::kRowBytes : 128, kPanelBytes) |
        descriptor_address(stages + C::kStages * kLeftBytes + group_right * kRightPart);
    unsigned char* const staging = shared_memory + kStagingAt + group * kStagingBytes;
    accumulators acc;
    int turn = 0;
#pragma unroll 1
    for (int tile = with_taps(s, first, tiles, step); tile < tiles;
         tile = with_taps(s, tile + step, tiles, step), ++turn) {
      const place p = place_of(s, tile, rank);
      if constexpr (C::kPingPong) {
        if (turn % 2 != group) {
          r.skip(p.steps);
          continue;
        }
        if (turn > 0) named_barrier_sync(3 + group, 256);
      }
      const bool is_last = with_taps(s, tile + step, tiles, step) >= tiles;
      if constexpr (kLeftInRegisters)
        multiply_from_registers<contract>(acc, p, left_rows, right_tile, barriers, r, thread,
                                          is_last);
      else
        multiply_tile(acc, p, left_tile, right_tile, barriers, r, thread, is_last);
      output(acc, s, p, group_left, group_right, shared_memory, staging, group, thread, rank);
    }
    output.finish(thread);
  }
};

template <class C, class Store>
__device__ inline void contract_sm90(const tensor_map& left, const tensor_map& right,
                                     const contract_shape& shape, const Store& store) {
  contract<C>::run(left, right, shape, typename contract<C>::template staged_output<Store>{store});
}

template <class C, class Rows, class Apply>
__device__ inline void contract_sm90(const tensor_map& left, const tensor_map& right,
                                     const tensor_map& out, const contract_shape& shape,
                                     const Rows& rows, const Apply& apply) {
  using send = typename contract<C>::send_matrix;
  using output = typename contract<C>::template direct_output<send, Rows, Apply>;
  contract<C>::run(left, right, shape, output{{out}, rows, apply});
}
