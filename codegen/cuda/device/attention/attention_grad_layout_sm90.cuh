#pragma once
// attention_grad_layout: the memory that the warps of attention_grad_sm90 share. It has the places
// of a tile's operands and of its steps in shared memory, the barriers beside them, and the flags
// by which a step and a tile describe themselves.

#include "codegen/cuda/device/attention/attention_grad_rows.cuh"
#include "codegen/cuda/device/attention/attention_grad_tiles.cuh"

template <class C>
struct attention_grad_layout {
  static constexpr int kKeys = C::kKeys, kStages = 2;
  static constexpr int kRowWarps = C::kQueries / 64;
  static constexpr int kPanels = C::kDepth / 64;  // that q and k have room for, and dy and v
  static constexpr int kRowPanels = (C::kRows + 63) / 64, kWidthPanels = (C::kWidth + 63) / 64;
  static constexpr int kUsed = C::kRows > C::kWidth ? C::kRows : C::kWidth;  // columns of dk, dv
  // Tiles of 64 keys: the groups share the queries of scores, and each has one result.
  static constexpr bool kIsWide = kKeys == 64;
  static constexpr int kGroupKeys = kIsWide ? 0 : 64;  // from a group's scores to the next one's
  static constexpr int kGroupQueries = kIsWide ? C::kQueries / 2 : 0;
  static constexpr int kOwnQueries = C::kQueries - kGroupQueries;
  static constexpr bool kSplitsColumns = C::kQueries == 64;  // how the groups share dq
  static constexpr int kColumns = kSplitsColumns ? C::kDepth / 2 : C::kDepth;
  static constexpr int kScores = kOwnQueries / 2, kGrads = kUsed / 2;  // registers
  static constexpr int kKeyBytes = kKeys * C::kDepth * 2, kQueryBytes = C::kQueries * C::kDepth * 2;
  static constexpr int kSlopeBytes = kKeys * C::kQueries * 2, kRowBytes = C::kQueries * 4;
  // Panels that one group stages at a time. Results of 64 keys leave by way of the memory of
  // weights and slopes.
  static constexpr int kStagedPanels = kIsWide ? 2 : kPanels;
  static constexpr int kStagingBytes = kStagedPanels * 8192;
  static constexpr int kValuesAt = kKeyBytes;
  static constexpr int kQueriesAt = 2 * kKeyBytes;
  static constexpr int kGradsAt = kQueriesAt + kStages * kQueryBytes;
  static constexpr int kSlopesAt = kGradsAt + kStages * kQueryBytes;
  static constexpr int kWeightsAt = kSlopesAt + kStages * kSlopeBytes;  // in wide ones
  static constexpr int kStagingAt = kIsWide ? kSlopesAt : kWeightsAt;
  static constexpr int kBesideAt = kStagingAt + 2 * kStagingBytes;
  static_assert(!kIsWide || 2 * kStages * kSlopeBytes == 2 * kStagingBytes);
  static constexpr int kBesideBytes = C::kBeside ? kKeys * C::kQueries * 2 : 0;
  static constexpr int kRowsAt = kBesideAt + kStages * kBesideBytes;
  static constexpr int kInfosAt = kRowsAt + 2 * kStages * kRowBytes;  // of the stages' steps
  static constexpr int kLargeAt = kInfosAt + kStages * 16;  // of the rows that a warp reads
  static constexpr int kBarriersAt = kLargeAt + kStages * 8;
  static constexpr int kBytes = kBarriersAt + 176;
  static constexpr int kNumbers = C::kQueries * C::kDepth / 2;  // of dq that a group adds
  struct part_of_group : C {
    static constexpr int kQueries = kOwnQueries;
    static constexpr int kOfVote = kIsWide ? kOwnQueries : 64;  // of the rows that a warp reads
    static constexpr bool kOneLoop = C::kReads != 0;
    static constexpr bool kKeptAhead = true;
  };
  using rows = attention_grad_rows<part_of_group>;
  using tiles = attention_grad_tiles<kKeys, C::kQueries, C::kOrdered != 0, C::kRotates != 0,
                                     C::kParts != 0, C::kImagesFirst != 0>;
  using place = typename tiles::place;
  using turn = attention_grad_turns;
  using of_bias = attention_grad_bias<C>;
  template <class Limits>
  using steps = typename tiles::template steps<Limits>;

  struct barriers {
    unsigned base;
    __device__ inline unsigned query_full(int i) const { return base + 8 * i; }
    __device__ inline unsigned query_empty(int i) const { return base + 16 + 8 * i; }
    __device__ inline unsigned grad_full(int i) const { return base + 32 + 8 * i; }
    __device__ inline unsigned grad_empty(int i) const { return base + 48 + 8 * i; }
    __device__ inline unsigned key_full() const { return base + 64; }
    __device__ inline unsigned value_full() const { return base + 72; }
    __device__ inline unsigned key_empty() const { return base + 80; }
    __device__ inline unsigned value_empty() const { return base + 88; }
    __device__ inline unsigned next_full() const { return base + 96; }
    __device__ inline unsigned next_empty() const { return base + 104; }
    __device__ inline unsigned turn() const { return base + 112; }
    __device__ inline unsigned added() const { return base + 120; }
    __device__ inline unsigned next() const { return base + 128; }  // the number of the next tile
    __device__ inline unsigned tile() const { return base + 144; }  // its number, any steps?, key
    __device__ inline unsigned bias_turn() const { return base + 160; }
    __device__ inline unsigned bias_added() const { return base + 168; }
  };

  struct ring {
    int stage = 0;
    unsigned phase = 0;
    __device__ inline void advance() {
      if (++stage == kStages) {
        stage = 0;
        phase ^= 1;
      }
    }
  };

  static __device__ inline int load_shared(unsigned at) {
    int v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
  }
  static __device__ inline void store_shared(unsigned at, int v) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(v) : "memory");
  }
  static __device__ inline void store_shared(unsigned at, float v) {
    store_shared(at, __float_as_int(v));
  }
  // Flags of a step, whose word is its block times kFlags plus these. kPart: the block has fewer
  // rows. kDead: some rows that the first of the warps reads see no key.
  static constexpr int kInside = 1, kLast = 2, kPart = 4, kDead = 8, kFlags = 16;
  // Flags of a tile: kSteps where there are steps, kUnseen where no row sees some of its keys.
  static constexpr int kSteps = 1, kUnseen = 2;
  static constexpr int kTurnWarps = C::kOrdered ? 3 - kRowWarps : 0;
  static constexpr int kZeroWarps = C::kOrdered ? 0 : 1;
  static constexpr int kHelpers = kRowWarps + kTurnWarps + kZeroWarps;  // beside the producer
  // Hides x from the compiler, so that what is computed of it is not computed before.
  template <class T>
  static __device__ inline T opaque(T x) {
    asm volatile("" : "+r"(x));
    return x;
  }
  template <int count>
  static __device__ inline void pin(float (&x)[count]) {  // no use moves above the wait before it
#pragma unroll
    for (int i = 0; i < count; ++i) asm volatile("" : "+f"(x[i])::"memory");
  }
};
