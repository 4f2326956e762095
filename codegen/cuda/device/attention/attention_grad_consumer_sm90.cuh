#pragma once
// A consumer group of attention_grad_sm90: what all have (attention_grad_group), and the products
// of one that has half of a tile's keys, with what stands between them (attention_grad_consumer).

#include "codegen/cuda/device/attention/attention_grad_layout_sm90.cuh"
#include "codegen/cuda/device/attention/attention_grad_tiles.cuh"
#include "codegen/cuda/device/numbers/pairs.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"
#include "codegen/cuda/device/ptx/tma.cuh"
#include "codegen/cuda/device/ptx/wgmma.cuh"

// Stores dk and dv from the staging, 64 by 64 at a time, where maps have whole tensors.
template <class C>
struct attention_grad_to_maps {
  static constexpr bool kFinishes = false;
  using place = typename attention_grad_layout<C>::place;
  const tensor_map &dk, &dv;
  struct places {};
  template <bool are_values>
  __device__ inline places find(const attention_grad_shape&, const place&, int) const {
    return {};
  }
  template <bool are_values>
  __device__ inline void store(bool leads, unsigned staging, int column, int row,
                               const attention_grad_shape&, const place& p, const places&) const {
    if (!leads) return;
    tma_store(are_values ? dv : dk, staging, column, row, p.inner, p.outer);
    tma_store_commit();
  }
};

template <class C, class F, class Out>
struct attention_grad_group : attention_grad_layout<C> {
  using of = attention_grad_layout<C>;
  using of::kBesideAt, of::kBesideBytes, of::kDead, of::kGrads, of::kGroupKeys, of::kGroupQueries;
  using of::kInfosAt, of::kIsWide, of::kKeys, of::kLargeAt, of::kNumbers, of::kOwnQueries,
      of::kPart;
  using of::kQueriesAt, of::kQueryBytes, of::kRowBytes, of::kRowPanels, of::kRowWarps, of::kRowsAt;
  using of::kScores, of::kStagedPanels, of::kStages, of::kUsed, of::kValuesAt, of::kWidthPanels;
  using of::load_shared, of::opaque, of::pin;
  using typename of::barriers, typename of::of_bias, typename of::place, typename of::ring;
  using typename of::rows, typename of::tiles, typename of::turn;

  const F& f;
  const attention_grad_shape& s;
  const Out& out;
  float *sums, *part_sums, *all_bias_sums;
  barriers b;
  unsigned memory, staging, group, thread;
  // Operands of products over the depth (K-major), and operands that are read across it.
  unsigned key_rows, value_rows, query_rows, grad_rows, query_across, grad_across;
  unsigned slopes_across, keys_across;  // low halves of descriptors
  ring at = {};
  rows part;

  // Numbers of the step that lie in shared memory: they are read where they are needed, since
  // registers are few.
  struct place_in_step {
    const attention_grad_group& c;
    int what;
    __device__ inline int key() const {
      return load_shared(c.b.tile() + 8) + c.group * kGroupKeys + c.thread / 32 * 16 +
             c.thread % 32 / 4;
    }
    __device__ inline int query() const {
      return load_shared(c.step_at() + 4) + c.group * kGroupQueries + 2 * (c.thread % 4);
    }
    __device__ inline int batch() const { return load_shared(c.step_at() + 8); }
    __device__ inline bool ends() const {
      return (what & kPart) != 0 || load_shared(c.b.tile() + 8) + kKeys > c.s.keys;
    }
    __device__ inline bool is_large(int i) const {
      return load_shared(c.memory + kLargeAt + (c.at.stage * kRowWarps + i) * 4) != 0;
    }
    __device__ inline unsigned statistics() const {
      return c.memory + kRowsAt + c.at.stage * kRowBytes + c.group * (kGroupQueries * 4) +
             c.thread % 4 * 8;
    }
    __device__ inline void add_bias(int i, const float* x) const {
      const int what = load_shared(c.step_at() + 12);  // twice the block, and whether it is new
      const long long block = what / 2 * static_cast<long long>(kKeys * C::kQueries);
      float* const to =
          c.all_bias_sums + block + c.group * (64 * kOwnQueries) + i * 512 + c.thread * 4;
      if (of_bias::kFirstStores && what % 2 != 0)
        *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
      else
        turn::add_quad(to, x);
    }
    // Rows of 64 keys; a warp's 16 keys are two pieces of 16 bytes.
    __device__ inline void load_beside(int i, unsigned (&to)[4]) const {
      const unsigned lane = c.thread % 32;
      const unsigned row = c.group * kGroupQueries + 8 * i + lane / 16 * 8 + lane % 8;
      const unsigned chunk = c.thread / 32 * 2 + lane / 8 % 2;
      load_transposed(c.memory + kBesideAt + c.at.stage * kBesideBytes +
                          c.group * (kGroupKeys * C::kQueries * 2) + row * 128 +
                          ((chunk ^ (lane % 8)) << 4),
                      to[0], to[1], to[2], to[3]);
    }
  };
  __device__ inline unsigned step_at() const { return memory + kInfosAt + at.stage * 16; }
  __device__ inline bool leads() const { return thread == 0; }
  __device__ inline void release(unsigned empty) const {
    if (leads()) mbarrier_arrive(empty);
  }
  // Each warp says that it has read the step's block: the number of a later one, read by a warp
  // that is late, would have its part of dq added elsewhere.
  __device__ inline void release_step(int stage) const {
    __syncwarp();
    if (thread % 32 == 0) mbarrier_arrive(b.query_empty(stage));
  }
  // The group, found anew where a register would wait for the end of a tile.
  static __device__ inline unsigned own_group() { return opaque(threadIdx.x) / 128; }
  static __device__ inline void group_sync() { named_barrier_sync(2 + own_group(), 128); }

  // Their high halves are the same numbers, and sums stay below 2^32: 32-bit arithmetic.
  static __device__ inline unsigned long long descriptor(unsigned low) {
    return (descriptor_layout(128, 0) >> 32 << 32) | low;
  }
  // Multiplies rows over the first `columns` columns of the depth.
  template <int columns>
  __device__ inline void multiply_rows(float (&to)[kScores], unsigned left, unsigned right) {
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < columns / 16; ++i)
      C::multiply(
          to, descriptor(left + i / 4 * (kKeys * 8) + i % 4 * 2),
          descriptor(right + at.stage * (kQueryBytes >> 4) + i / 4 * (C::kQueries * 8) + i % 4 * 2),
          i != 0);
    wgmma_commit();
  }
  // The place of the group's part of the sums of a block.
  __device__ inline float* sums_of(int block) const {
    return sums + (block * 2 + group) * static_cast<long long>(kNumbers) + thread * 4;
  }
  // The parity of a step is its stage, of which there are two.
  template <class Add>
  __device__ inline void add_in_turn(int stage, const Add& add) const {
    static_assert(kStages == 2);
    if constexpr (C::kOrdered) mbarrier_wait(b.turn(), stage);
    add();
    if constexpr (C::kOrdered) {
      __syncwarp();
      if (thread % 32 == 0) mbarrier_arrive(b.added());
    }
  }

  __device__ inline void take_bias_turn() const {
    if constexpr (of_bias::kInOrder) mbarrier_wait(b.bias_turn(), at.stage);
  }
  __device__ inline void pass_bias_turn() const {
    if constexpr (!of_bias::kInOrder) return;
    __syncwarp();
    if (thread % 32 == 0) mbarrier_arrive(b.bias_added());
  }

  // Zeroes the rows of 128 bytes for which `where` holds, in each of the panels; then
  // zeroes_stored() waits until both groups' threads have written theirs.
  template <int count, int panels, class Where>
  __device__ inline void zero_where(unsigned to, const Where& where) const {
#pragma unroll 1
    for (unsigned i = group * 128 + thread; i < count * panels * 8; i += 256) {
      const unsigned row = i / 8 % count;
      if (where(row)) store_zeroes(to + i / 8 / count * (count * 128) + row * 128 + i % 8 * 16);
    }
  }
  static __device__ inline void store_zeroes(unsigned at) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(0) : "memory");
  }
  static __device__ inline void zeroes_stored() {
    fence_for_copies();
    named_barrier_sync(1, 256);
  }
  // Zeroes the rows that see no key in a block of q or dy that has come.
  template <int panels>
  __device__ inline void zero_rows(unsigned blocks_at, int what) const {
    if constexpr (kRowWarps > 1) what |= load_shared(step_at() + 12);
    if ((what & kDead) == 0) return;
    const unsigned of = memory + kRowsAt + at.stage * kRowBytes;
    zero_where<C::kQueries, panels>(memory + blocks_at + at.stage * kQueryBytes, [&](unsigned row) {
      return __int_as_float(load_shared(of + row * 4)) == rows::infinity();
    });
    zeroes_stored();
  }
  // Zeroes the keys that no row sees in k and v, which have come.
  __device__ inline void zero_keys() const {
    const place p = tiles::place_of(s, load_shared(b.tile()));
    const attention_grad_keys seen = attention_grad_seen(s, f.limits, p.head);
    const auto is_unseen = [&](unsigned key) {
      const int at_key = p.key + static_cast<int>(key);
      return at_key < seen.first || at_key >= seen.end;
    };
    zero_where<kKeys, kRowPanels>(memory, is_unseen);
    zero_where<kKeys, kWidthPanels>(memory + kValuesAt, is_unseen);
    zeroes_stored();
  }

  // Scores of the next step are multiplied while this one's dq is waited for; behind the last one
  // of a tile scores of whatever is there, since a product in a branch would be waited for.
  __device__ inline void start(bool is_there) {
    if (is_there) {
      mbarrier_wait(b.query_full(at.stage), at.phase);
      zero_rows<kRowPanels>(kQueriesAt, load_shared(step_at()));
    }
    multiply_rows<C::kRows>(part.score, key_rows, query_rows);
  }

  // Stores parts of dk and dv, by heads and tiles: in order each part has its own, which another
  // kernel adds up, else their sums are kept.
  __device__ inline void store_part(const float (&from)[kGrads], const place& p, int which) const {
    const int head =
        C::kOrdered ? p.head : p.head / (s.parts * (which == 0 ? s.key_pairs : s.value_pairs));
    const long long number = head * s.key_tiles + p.index + (which == 0 ? 0 : s.key_sums);
    const long long rows = kIsWide ? number : number * 2 + own_group();
    float* to = part_sums + rows * 64 * C::kDepth + thread * 4;
#pragma unroll
    for (int i = 0; i < kGrads / 4; ++i, to += 512) {
      if constexpr (C::kOrdered)
        *reinterpret_cast<float4*>(to) =
            make_float4(from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]);
      else
        turn::add_quad(to, from + 4 * i);
    }
  }
  // Stores the results of 64 keys, kStagedPanels at a time.
  template <bool are_values>
  __device__ inline void store(const float (&from)[kGrads], float times, const place& p) {
    constexpr int kPanels = are_values ? kWidthPanels : kRowPanels;
    const int first = p.key + own_group() * kGroupKeys;
    const auto places = out.template find<are_values>(s, p, first);
#pragma unroll
    for (int panel = 0; panel < kPanels; panel += kStagedPanels) {
      if (panel > 0) staging_read();
#pragma unroll
      for (int c = panel; c < panel + kStagedPanels && c < kPanels; ++c)
        stage(staging + (c - panel) * 8192, from, c, times);
      fence_for_copies();
      group_sync();
      for (int c = panel; c < panel + kStagedPanels && c < kPanels; ++c)
        out.template store<are_values>(leads(), staging + (c - panel) * 8192, c * 64, first, s, p,
                                       places);
    }
  }
  // Waits until what was staged has been read.
  __device__ inline void staging_read() const {
    if (leads()) tma_store_wait_read<0>();
    group_sync();
  }
  __device__ inline void stage(unsigned to, const float (&from)[kGrads], int panel, float times) {
    const unsigned row = thread / 32 * 16 + thread % 16;
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      if (panel * 64 + g * 16 >= kUsed) break;
      const float* x = from + panel * 32 + g * 8;
      const unsigned chunk = g * 2 + thread % 32 / 16;
      store_fragments(to + row * 128 + ((chunk ^ (row % 8)) << 4),
                      pack_pair<C::kPackBf16>(x[0] * times, x[1] * times),
                      pack_pair<C::kPackBf16>(x[2] * times, x[3] * times),
                      pack_pair<C::kPackBf16>(x[4] * times, x[5] * times),
                      pack_pair<C::kPackBf16>(x[6] * times, x[7] * times));
    }
  }
};

template <class C, class F, class Out>
struct attention_grad_consumer : attention_grad_group<C, F, Out> {
  using base = attention_grad_group<C, F, Out>;
  using of = attention_grad_layout<C>;
  using base::at, base::b, base::f, base::group, base::memory, base::out, base::part, base::s;
  using base::descriptor, base::grad_across, base::grad_rows, base::group_sync, base::keys_across;
  using base::leads, base::pass_bias_turn, base::query_across, base::release, base::release_step;
  using base::slopes_across, base::staging_read, base::start, base::step_at, base::store_part;
  using base::take_bias_turn, base::thread, base::value_rows, base::zero_keys;
  using of::kColumns, of::kFlags, of::kGrads, of::kGradsAt, of::kInfosAt, of::kInside, of::kKeys;
  using of::kLast, of::kQueryBytes, of::kRowBytes, of::kSlopeBytes, of::kSlopesAt, of::kSteps;
  using of::kStages, of::kUnseen, of::kUsed, of::kWidthPanels, of::load_shared, of::opaque, of::pin;
  using typename base::place_in_step;
  using typename of::place, typename of::ring, typename of::rows, typename of::tiles;
  using typename of::turn;
  float dk[kGrads], dv[kGrads];

  __device__ inline void multiply_pairs(float (&to)[kGrads], const unsigned* left, unsigned right) {
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < C::kQueries / 16; ++i)
      C::multiply_registers(to, left + 4 * i,
                            descriptor(right + at.stage * (kQueryBytes >> 4) + i * 128), 1);
    wgmma_commit();
  }

  __device__ inline void store_slopes() {
    const unsigned key = group * 64 + thread / 32 * 16 + thread % 16;
    const unsigned to = memory + kSlopesAt + at.stage * kSlopeBytes + key * 128;
#pragma unroll
    for (int i = 0; i < C::kQueries / 16; ++i) {
      const unsigned chunk = i % 4 * 2 + thread % 32 / 16;
      store_fragments(to + i / 4 * (kKeys * 128) + ((chunk ^ (key % 8)) << 4), part.slopes[4 * i],
                      part.slopes[4 * i + 1], part.slopes[4 * i + 2], part.slopes[4 * i + 3]);
    }
  }
  // Adds the columns that dq has to the sums of a block.
  __device__ inline void add_queries(const float (&dq)[kColumns / 2], int block) const {
    float* to = base::sums_of(block);
    constexpr int kFirst = kColumns < kUsed ? kColumns : kUsed, kSecond = kUsed - kFirst;
#pragma unroll
    for (int i = 0; i < kColumns / 8; ++i)
      if (!of::kSplitsColumns || i < (group == 0 ? kFirst : kSecond) / 8)
        turn::add_quad(to + i * 512, dq + 4 * i);
  }

  // The next step's random bits take as long as products do, and are made beside them, a half at a
  // time; behind the last step of a tile those of the step before, which nobody asks for.
  __device__ inline unsigned draw_ahead(bool is_there, const ring& before, int first) {
    const ring next = at;
    if (!is_there) at = before;
    constexpr int kHalf = rows::kCalls / 2;
    const unsigned bits =
        rows::template draw<kHalf>(f, s, place_in_step{*this, 0}, 0, first * kHalf);
    at = next;
    return bits;
  }
  // Does a step whose scores are there; `what` holds its flags.
  __device__ inline void step(int what) {
    const bool goes_on = (what & kLast) == 0;
    thread = opaque(thread);  // addresses are made anew: registers are few
    mbarrier_wait(b.grad_full(at.stage), at.phase);
    base::template zero_rows<kWidthPanels>(kGradsAt, what);
    base::template multiply_rows<C::kWidth>(part.grad, value_rows, grad_rows);
    const place_in_step here = {*this, what};
    const unsigned means = here.statistics() + kStages * kRowBytes;
    if constexpr (!rows::kKeptAhead) part.take_kept(f, s, here);
    if constexpr (rows::kTogether) {
      wgmma_wait<0>();
      pin(part.grad);
      take_bias_turn();
      part.take_both(f, s, here, (what & kInside) != 0, means);
      pass_bias_turn();
      multiply_pairs(dv, part.weights, grad_across);
    } else {
      part.take_weights(f, s, here, (what & kInside) != 0);
      multiply_pairs(dv, part.weights, grad_across);
      wgmma_wait<1>();
      pin(part.grad);
      take_bias_turn();
      part.take_slopes(f, s, here, means);
      pass_bias_turn();
    }
    if (!goes_on) release(b.value_empty());
    store_slopes();
    if constexpr (C::kKeysFirst) multiply_pairs(dk, part.slopes, query_across);
    wgmma_wait<C::kKeysFirst ? 1 : 0>();  // its operand's registers are needed
    pin(dv);
    release(b.grad_empty(at.stage));
    fence_for_copies();
    named_barrier_sync(1, 256);  // slopes of both groups are complete
    float dq[kColumns / 2];
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i)
      C::multiply_third(dq, descriptor(slopes_across + at.stage * (kSlopeBytes >> 4) + i * 128),
                        descriptor(keys_across + i * 128), i != 0);
    wgmma_commit();
    if constexpr (!C::kKeysFirst) multiply_pairs(dk, part.slopes, query_across);
    const ring now = at;
    at.advance();
    // At 128 columns dq and the next scores have no room beside each other.
    if constexpr (C::kKeysFirst) start(goes_on);
    unsigned own_bits = 0;
    if constexpr (rows::kKeptAhead) {
      if (goes_on) mbarrier_wait(b.query_full(at.stage), at.phase);
      own_bits = draw_ahead(goes_on, now, 0);
    }
    constexpr int kAhead = C::kKeysFirst ? 1 : 0;
    wgmma_wait<1 + kAhead>();
    // Read again: until here no register was left for it.
    const int block = load_shared(memory + kInfosAt + now.stage * 16) / kFlags;
    if constexpr (C::kKeysFirst) {
      pin(dk);
      release_step(now.stage);
      wgmma_wait<kAhead>();
    }
    pin(dq);
    base::add_in_turn(now.stage, [&] { add_queries(dq, block); });
    if constexpr (!C::kKeysFirst) start(goes_on);
    if constexpr (rows::kKeptAhead) part.share_bits(0, own_bits | draw_ahead(goes_on, now, 1));
    if constexpr (!C::kKeysFirst) {
      wgmma_wait<1>();
      pin(dk);
      release_step(now.stage);
    }
    wgmma_wait<0>();
    pin(part.score);
  }

  __device__ inline void tile(unsigned phase) {
#pragma unroll
    for (int e = 0; e < kGrads; ++e) dk[e] = dv[e] = 0.f;
    if constexpr (Out::kFinishes) part.largest = -rows::infinity();
    const int flags = load_shared(b.tile() + 4);
    const bool any = (flags & kSteps) != 0;
    if constexpr (!C::kOrdered) mbarrier_wait(b.added(), phase);
    if (!any) mbarrier_wait(b.value_full(), phase);
    if (any) {
      if ((flags & kUnseen) != 0) {
        mbarrier_wait(b.value_full(), phase);
        zero_keys();
      }
      start(true);
      if constexpr (rows::kKeptAhead) part.take_kept(f, s, place_in_step{*this, 0});
      mbarrier_wait(b.value_full(), phase);
      wgmma_wait<0>();
      pin(part.score);
      int what;
#pragma unroll 1
      do {
        what = load_shared(step_at());
        step(what);
      } while ((what & kLast) == 0);
    }
    const place p = tiles::place_of(s, load_shared(b.tile()));
    if constexpr (Out::kFinishes) out.add_slopes(part.largest);
    if constexpr (C::kParts != 0) {
      group_sync();  // every warp has read the tile's number
      release(b.key_empty());
      if (!any) release(b.value_empty());
      store_part(dk, p, 0);
      store_part(dv, p, 1);
      return;
    }
    staging_read();  // also: every warp has read the tile's number, even without a step
    release(b.key_empty());
    if (!any) release(b.value_empty());
    if constexpr (Out::kFinishes) {
      out.template finish<true>(*this, dv, p);
      out.template finish<false>(*this, dk, p);
    } else {
      base::template store<true>(dv, 1.f, p);
      staging_read();
      float scale[1] = {1.f};
      f.scale(p.head * s.group, scale);
      base::template store<false>(dk, scale[0], p);
    }
  }
};
