#pragma once
// contract_grouped_sm90<Config>(maps…, shape, …): contractions that need nothing of one another, in
// one launch. Each is result[left][right] = sum over k of left[k] * right[k], of operands that are
// contiguous in memory along their own axes, and lies in memory along right. A block makes tile
// after tile, of whichever product they are, so that products which have fewer tiles than the GPU
// has multiprocessors fill it together:
//
//   tiles   product 0: 0 1 2 3 4 5 6   product 1: 7 8 9   product 2: 10 11 12 13 …
//
//   maps    six of each product: left and right of the first part of its sum over k and of the
//           second; the result; what was there before, which is added (kAdds)
//   store   (product, left, right, 8 neighbours along right), with kSplitCluster: parts of the sum
//           over k that blocks of a cluster make and add up, in their order
//   keep    (product, left, sum over k of left), with kSums: tiles of the first column multiply
//           left by ones, too
//
// A sum over k has two parts where an operand is two tensors one behind the other. What a part has
// of its last step lies behind the operands, and is zero.
//
// The tiles that are left when all blocks have had as many may be shared (kTail): some neighbouring
// blocks make the steps of one, leave what they have in memory, and the last of them adds it up, in
// their order, as contract_stream_sm90 does.

#include "codegen/cuda/device/contract/contract_sm90.cuh"
#include "codegen/cuda/device/contract/contract_stream_sm90.cuh"
#include "codegen/cuda/device/numbers/pairs.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"
#include "codegen/cuda/device/ptx/tma.cuh"
#include "codegen/cuda/device/ptx/wgmma.cuh"

struct grouped_product {
#define PRODUCT_NUMBER(name) int name;
#define PRODUCT_PAIR(name) int name[2];
#include "codegen/cuda/device/contract/contract_grouped.def"
};
struct contract_grouped_shape {
#define NUMBER(name) int name;
#define INT(name, value) int name = value;
#include "codegen/cuda/device/contract/contract_grouped.def"
  grouped_product products[16];
};

struct nothing_kept {
  template <class... Ignored>
  __device__ inline void operator()(const Ignored&...) const {}
};

template <class C>
struct grouped {
  using base = contract<C>;
  using accumulators = typename base::accumulators;
  using ring = typename base::ring;
  using left_sums = float[base::kBlocks][4];
  enum { kLeftOf, kRightOf, kSecondLeft, kSecondRight, kResult, kBefore, kMapsOfProduct };
  static constexpr int kMaps = C::kProducts * kMapsOfProduct;
  static constexpr int kBand = 8;  // tiles along left whose operands the L2 cache keeps
  static constexpr int kBlocksOfCluster = C::kCluster * C::kSplitCluster;
  static constexpr int kBoxes = base::kColumns / 64, kBoxesOfTile = base::kBlocks * kBoxes;
  static constexpr int kBuffers = 2;
  static constexpr int kOnesAt = base::kStagingAt + base::kGroups * kBuffers * base::kBoxBytes;
  static constexpr int kBarriersAt = kOnesAt + 1024;
  static_assert(C::kSharedBytes == kBarriersAt + 16 * C::kStages + 8 * kBuffers * base::kGroups);
  static_assert(C::kLeftMajor == kMajorOuter && C::kRightMajor == kMajorOuter);
  static_assert(C::kCluster == 1 || C::kSplitCluster == 1);
  static_assert(C::kGroupsRight == 1);

  using maps = const tensor_map* [kMaps];
  struct place {
    int product, left, right;
    int first_steps;        // of the first part
    int first_step, steps;  // of both, what this block makes
    int second_k;
    bool is_summed;
    int share;  // of a shared tile
  };

  // Turns of all blocks: a tile each, then a share of one.
  static __device__ inline int turns_of(const contract_grouped_shape& s) {
    if constexpr (!C::kTail) return s.tiles;
    return s.whole_tiles + (s.tiles - s.whole_tiles) * s.shares;
  }
  static __device__ inline place place_of(const contract_grouped_shape& s, int turn,
                                          unsigned rank) {
    int tile = turn, share = 0, shares = 1;
    if (C::kTail && turn >= s.whole_tiles) {
      const int among = turn - s.whole_tiles;
      shares = s.shares;
      tile = s.whole_tiles + among / shares;
      share = among % shares;
    }
    grouped_product of = s.products[0];
    int product = 0;
#pragma unroll
    for (int p = 1; p < C::kProducts; ++p)
      if (tile >= s.products[p].first_tile) {
        of = s.products[p];
        product = p;
      }
    tile -= of.first_tile;
    const int of_band = kBand * of.right_tiles, band = tile / of_band, in_band = tile % of_band;
    const int rows = min(kBand, of.left_tiles - band * kBand), column = in_band / rows;
    const int row = band * kBand + in_band - column * rows;
    const int neighbour = C::kCluster > 1 ? rank : 0;
    const int steps = of.steps[0] + of.steps[1];
    int first = 0, end = steps;
    if (C::kTail && shares > 1) {
      first = steps * share / shares;
      end = steps * (share + 1) / shares;
    } else if (C::kSplitCluster > 1) {
      first = steps * static_cast<int>(rank) / C::kSplitCluster;
      end = steps * (static_cast<int>(rank) + 1) / C::kSplitCluster;
    }
    return {product,
            (row * C::kCluster + neighbour) * C::kTileLeft,
            column * C::kTileRight,
            of.steps[0],
            first,
            end - first,
            of.second_k,
            of.is_summed != 0 && column == 0,
            share};
  }
  static __device__ inline const tensor_map& map_of(const maps& all, int product, int which) {
    const tensor_map* map = all[which];
#pragma unroll
    for (int p = 1; p < C::kProducts; ++p)
      if (p == product) map = all[p * kMapsOfProduct + which];
    return *map;
  }

  // ---- producer

  static __device__ inline void produce(const maps& all, const place& p, unsigned stages,
                                        unsigned barriers, ring& r, unsigned rank) {
    const tensor_map &left = map_of(all, p.product, kLeftOf),
                     &right = map_of(all, p.product, kRightOf),
                     &second_left = map_of(all, p.product, kSecondLeft),
                     &second_right = map_of(all, p.product, kSecondRight);
    constexpr int kDepth = base::kDepth;
#pragma unroll 1
    for (int step = p.first_step; step < p.first_step + p.steps; ++step) {
      const unsigned full = barriers + 8 * r.stage, empty = full + 8 * C::kStages;
      const unsigned to_left = stages + r.stage * base::kLeftBytes;
      const unsigned to_right =
          stages + C::kStages * base::kLeftBytes + r.stage * base::kRightBytes;
      const bool is_first = step < p.first_steps;
      const int k = (is_first ? step : step - p.first_steps) * kDepth;
      mbarrier_wait(empty, r.phase ^ 1);
      mbarrier_expect(full, base::kLoadedBytes);
      base::template load_matrix<C::kTileLeft, kMajorOuter, false>(
          to_left, is_first ? left : second_left, full, is_first ? k : p.second_k + k, p.left, 0, 0,
          rank);
      base::template load_matrix<base::kRightRows, kMajorOuter, (C::kCluster > 1)>(
          to_right, is_first ? right : second_right, full, k, p.right, 0, 0, rank);
      r.advance();
    }
  }

  // ---- consumers

  template <bool sums>
  static __device__ inline void multiply(accumulators& acc, left_sums& of_left, int steps,
                                         unsigned long long left, unsigned long long right,
                                         unsigned long long ones, unsigned barriers, ring& r,
                                         unsigned thread) {
    // Encoded steps: 16 rows of a panel, and to the next 64 rows of left.
    constexpr int kStep = 128, kLeftBlock = base::kPanelBytes >> 4;
    int previous = 0;
    wgmma_chain<C::kFolds, accumulators> chain;
    wgmma_chain<C::kFolds, left_sums> chain_of_left;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      mbarrier_wait(barriers + 8 * r.stage, r.phase);
      wgmma_fence();
#pragma unroll
      for (int kk = 0; kk < C::kRowBytes / 32; ++kk)
#pragma unroll
        for (int i = 0; i < base::kBlocks; ++i) {
          const unsigned long long rows =
              left + r.stage * (base::kLeftBytes >> 4) + i * kLeftBlock + kk * kStep;
          C::multiply(acc[i], rows, right + r.stage * (base::kRightBytes >> 4) + kk * kStep,
                      (chain.steps | kk) != 0);
          if constexpr (sums)
            C::multiply_second(of_left[i], rows, ones, (chain_of_left.steps | kk) != 0);
        }
      wgmma_commit();
      wgmma_wait<1>();  // the products of the stage before are done: it may be filled again
      if (step > 0) base::release(barriers + 8 * (C::kStages + previous), thread);
      previous = r.stage;
      r.advance();
      chain.next(acc);
      if constexpr (sums) chain_of_left.next(of_left);
    }
    wgmma_wait<0>();
    chain.finish(acc);
    if constexpr (sums) chain_of_left.finish(of_left);
    if (steps > 0) base::release(barriers + 8 * (C::kStages + previous), thread);
  }

  // A box of 64 rows and 64 columns of a group's part of a tile, by its number.
  struct box_place {
    int left, right;
  };
  static __device__ inline box_place box_of(const place& p, int group, int box) {
    return {p.left + (group * base::kBlocks + box / kBoxes) * 64, p.right + box % kBoxes * 64};
  }

  // One thread asks for what was there before, into the buffer where the result leaves from.
  static __device__ inline void ask(const tensor_map& before, const box_place& at, unsigned buffer,
                                    unsigned barrier) {
    mbarrier_expect(barrier, base::kBoxBytes);
    tma_load(buffer, before, barrier, at.right, at.left, 0, 0);
  }

  static __device__ inline unsigned sum_of(float a, float b, unsigned before) {
    if constexpr (C::kAdds) {
      float x, y;
      unpack_pair<C::kPackBf16>(before, x, y);
      a += x;
      b += y;
    }
    return pack_pair<C::kPackBf16>(a, b);
  }

  // Asks for the first boxes while the tile is multiplied. One thread calls this. The tile before
  // has long sent what it left in the buffers.
  static __device__ inline void ask_first(const maps& all, const place& p, int group,
                                          unsigned staging, unsigned barriers) {
    tma_store_wait_read<0>();
    const tensor_map& before = map_of(all, p.product, kBefore);
#pragma unroll
    for (int box = 0; box < kBuffers && box < kBoxesOfTile; ++box)
      ask(before, box_of(p, group, box), staging + box * base::kBoxBytes, barriers + 8 * box);
  }

  // `phases` has a bit of each buffer's barrier.
  static __device__ inline void send(const accumulators& acc, const maps& all, const place& p,
                                     unsigned staging, unsigned barriers, unsigned& phases,
                                     unsigned group, unsigned thread) {
    const tensor_map &out = map_of(all, p.product, kResult),
                     &before = map_of(all, p.product, kBefore);
    const unsigned lane = thread % 32, warp = thread / 32;
#pragma unroll
    for (int box = 0; box < kBoxesOfTile; ++box) {
      const int turn = box % kBuffers;
      const unsigned buffer = staging + turn * base::kBoxBytes, barrier = barriers + 8 * turn;
      if constexpr (C::kAdds) {
        mbarrier_wait(barrier, phases >> turn & 1);
        phases ^= 1u << turn;
      } else {
        if (thread == 0) {
          if (box == 0)
            tma_store_wait_read<0>();
          else
            tma_store_wait_read<kBuffers - 1>();
        }
        named_barrier_sync(1 + group, 128);
      }
#pragma unroll
      for (int first = 0; first < 64; first += 16) {
        const float* const of = acc[box / kBoxes] + box % kBoxes * 32 + first / 2;
        unsigned a = 0, b = 0, c = 0, d = 0;
        if constexpr (C::kAdds) base::load_columns(buffer, first, lane, warp, a, b, c, d);
        base::store_columns(buffer, first, lane, warp, sum_of(of[0], of[1], a),
                            sum_of(of[2], of[3], b), sum_of(of[4], of[5], c),
                            sum_of(of[6], of[7], d));
      }
      fence_for_copies();
      named_barrier_sync(1 + group, 128);
      if (thread != 0) continue;
      const box_place at = box_of(p, group, box);
      tma_store(out, buffer, at.right, at.left, 0, 0);
      tma_store_commit();
      if (C::kAdds && box + kBuffers < kBoxesOfTile) {
        tma_store_wait_read<0>();
        ask(before, box_of(p, group, box + kBuffers), buffer, barrier);
      }
    }
  }

  // Keeps one of the equal columns of a product by ones, in the first of four lanes with a row.
  template <class Keep>
  static __device__ inline void keep_sums(const left_sums& of_left, const place& p, int group,
                                          unsigned thread, const Keep& keep) {
    const int lane = thread % 32, warp = thread / 32;
    if (lane % 4 != 0) return;
#pragma unroll
    for (int i = 0; i < base::kBlocks; ++i) {
      const int left = p.left + (group * base::kBlocks + i) * 64 + base::first_row(lane, warp);
      keep(p.product, left, of_left[i][0]);
      keep(p.product, left + base::kNextRow, of_left[i][2]);
    }
  }

  // The parts of a cluster: each block puts its own where the stages were, and stores an equal
  // share of the rows. Sums of left stand behind the rows of their block.
  static constexpr int kPitch = C::kTileRight + 4;
  template <class Store, class Keep>
  static __device__ inline void sum_parts(const accumulators& acc, const left_sums& of_left,
                                          const place& p, int group, unsigned char* memory,
                                          unsigned rank, const Store& store, const Keep& keep) {
    constexpr int kShare = C::kTileLeft / C::kSplitCluster, kVectors = C::kTileRight / 8;
    static_assert((kPitch + 1) * C::kTileLeft * 4 <= base::kStagingAt);
    const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
    float* const sums = reinterpret_cast<float*>(memory);
    float* const sums_of_left = sums + kPitch * C::kTileLeft;
    named_barrier_sync(5, 128 * base::kGroups);  // no group reads the stages any more
#pragma unroll
    for (int i = 0; i < base::kBlocks; ++i) {
      const int row = (group * base::kBlocks + i) * 64 + base::first_row(lane, warp);
      float* const mine = sums + row * kPitch + 2 * (lane % 4);
#pragma unroll
      for (int e = 0; e < base::kColumns / 2; e += 2)
        *reinterpret_cast<float2*>(mine + e / 2 % 2 * base::kNextRow * kPitch + e / 4 * 8) =
            make_float2(acc[i][e], acc[i][e + 1]);
      if (C::kSums && lane % 4 == 0) {
        sums_of_left[row] = of_left[i][0];
        sums_of_left[row + base::kNextRow] = of_left[i][2];
      }
    }
    cluster_sync();
#pragma unroll 1
    for (int v = threadIdx.x; v < kShare * kVectors; v += 128 * base::kGroups) {
      const int row = rank * kShare + v / kVectors, column = v % kVectors * 8;
      const unsigned from = shared_address(sums + row * kPitch + column);
      float values[8] = {};
#pragma unroll
      for (int block = 0; block < C::kSplitCluster; ++block) {
        alignas(16) float part[8];
        *reinterpret_cast<uint4*>(part) = load_from_block(from, block);
        *reinterpret_cast<uint4*>(part + 4) = load_from_block(from + 16, block);
#pragma unroll
        for (int e = 0; e < 8; ++e) values[e] += part[e];
      }
      store(p.product, p.left + row, p.right + column, values);
    }
    if constexpr (C::kSums) {
      if (p.is_summed && threadIdx.x < kShare / 4) {
        const int row = rank * kShare + threadIdx.x * 4;
        float values[4] = {};
#pragma unroll
        for (int block = 0; block < C::kSplitCluster; ++block) {
          alignas(16) float part[4];
          *reinterpret_cast<uint4*>(part) =
              load_from_block(shared_address(sums_of_left + row), block);
#pragma unroll
          for (int e = 0; e < 4; ++e) values[e] += part[e];
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) keep(p.product, p.left + row + e, values[e]);
      }
    }
    cluster_sync();  // others may still read this block's part
  }

  // Parts of shared tiles that blocks leave in memory: accumulators as contract_stream_sm90 has
  // them, and sums of left, [block][group][64 rows][thread].
  struct shared_tiles {
    using stream = stream_output<base, nothing_kept>;
    using four = typename stream::four;
    four* parts;
    four* sums;
    long long* stamps;

    __device__ inline four* sum_of(int slot, int i, unsigned thread) const {
      return sums + (static_cast<long long>(slot) * base::kBlocks + i) * 128 + thread;
    }
    // Adds a block's part; true where the tile is whole then, and this block's.
    __device__ inline bool take(accumulators& acc, left_sums& of_left, const place& p, int worker,
                                int shares, unsigned rank, unsigned group, unsigned thread) const {
      const stream out{{}, parts, stamps};
      const int mine = stream::slot(worker, rank, group);
      if (p.share < shares - 1) {
        if (C::kSums && p.is_summed) {
#pragma unroll
          for (int i = 0; i < base::kBlocks; ++i)
            *sum_of(mine, i,
                    thread) = {{of_left[i][0], of_left[i][1], of_left[i][2], of_left[i][3]}};
        }
        out.put(acc, mine, group, thread);
        return false;
      }
#pragma unroll 1
      for (int share = shares - 2; share >= 0; --share) {
        const int from = stream::slot(worker - 1 - (shares - 2 - share), rank, group);
        out.add(acc, from, group, thread);
        if (C::kSums && p.is_summed) {
#pragma unroll
          for (int i = 0; i < base::kBlocks; ++i) {
            const four more = *sum_of(from, i, thread);
#pragma unroll
            for (int e = 0; e < 4; ++e) of_left[i][e] += more.v[e];
          }
        }
      }
      return true;
    }
  };

  // A consumer group: where its operands and boxes lie, and how far it is.
  template <class Store, class Keep>
  struct consumer {
    const contract_grouped_shape& s;
    const maps& all;
    const shared_tiles& tail;
    const Store& store;
    const Keep& keep;
    unsigned char* const memory;
    const unsigned stages, barriers, group, thread, rank;
    ring r = {};
    unsigned phases = 0;

    template <bool is_shared>
    __device__ inline void make(int turn, int worker) {
      constexpr int kLeftPart = base::kLeftBytes / base::kGroups;
      const unsigned long long panels = descriptor_layout(128, base::kPanelBytes);
      const unsigned long long left = panels | descriptor_address(stages + group * kLeftPart);
      const unsigned long long right =
          panels | descriptor_address(stages + C::kStages * base::kLeftBytes);
      const unsigned long long ones =
          descriptor_layout(128, 0) | descriptor_address(stages + kOnesAt);
      const unsigned staging = stages + base::kStagingAt + group * kBuffers * base::kBoxBytes;
      const unsigned boxes = barriers + 16 * C::kStages + 8 * kBuffers * group;
      const place p = place_of(s, turn, rank);
      const bool finishes = !is_shared || p.share == s.shares - 1;
      if (C::kAdds && C::kSplitCluster == 1 && thread == 0 && finishes)
        ask_first(all, p, group, staging, boxes);
      accumulators acc;
      left_sums of_left = {};
      if constexpr (!C::kSums)
        multiply<false>(acc, of_left, p.steps, left, right, ones, barriers, r, thread);
      else if (p.is_summed)
        multiply<true>(acc, of_left, p.steps, left, right, ones, barriers, r, thread);
      else
        multiply<false>(acc, of_left, p.steps, left, right, ones, barriers, r, thread);
      if constexpr (is_shared)
        if (!tail.take(acc, of_left, p, worker, s.shares, rank, group, thread)) return;
      if constexpr (C::kSplitCluster > 1) {
        sum_parts(acc, of_left, p, group, memory, rank, store, keep);
      } else {
        send(acc, all, p, staging, boxes, phases, group, thread);
        if (C::kSums && p.is_summed) keep_sums(of_left, p, group, thread, keep);
      }
    }

    // A shared tile comes last, behind the loop: within it ptxas would take what is added to its
    // accumulators for a part of the products, and make these one by one (C7515).
    __device__ inline void run(int first, int next) {
      const int whole = C::kTail ? s.whole_tiles : s.tiles;
      int turn = first;
#pragma unroll 1
      for (; turn < whole; turn += next) make<false>(turn, first);
      if constexpr (C::kTail)
        if (turn < turns_of(s)) make<true>(turn, first);
      if (thread == 0) tma_store_wait();
    }
  };

  // Writes the ones for wgmma, and starts the barriers.
  static __device__ inline void begin(unsigned char* memory, unsigned barriers) {
    if constexpr (C::kSums) {
      constexpr unsigned kPair = C::kPackBf16 ? 0x3f803f80u : 0x3c003c00u;
      for (int i = threadIdx.x; i < 256; i += base::kThreads)
        reinterpret_cast<unsigned*>(memory + kOnesAt)[i] = kPair;
      fence_for_copies();
    }
    if (threadIdx.x == 0) {
      for (int i = 0; i < C::kStages; ++i) {
        mbarrier_init(barriers + 8 * i, 1);
        mbarrier_init(barriers + 8 * (C::kStages + i), base::kGroups * C::kCluster);
      }
      for (int i = 0; i < kBuffers * base::kGroups; ++i)
        mbarrier_init(barriers + 8 * (2 * C::kStages + i), 1);
      mbarrier_init_done();
    }
    if constexpr (kBlocksOfCluster > 1)
      cluster_sync();
    else
      __syncthreads();
  }

  template <class Store, class Keep>
  static __device__ inline void run(const maps& all, const contract_grouped_shape& s,
                                    const shared_tiles& tail, const Store& store,
                                    const Keep& keep) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const unsigned stages = shared_address(shared_memory), barriers = stages + kBarriersAt;
    begin(shared_memory, barriers);
    unsigned rank = 0;
    if constexpr (kBlocksOfCluster > 1) rank = cluster_rank();
    const int first = blockIdx.x / kBlocksOfCluster, next = gridDim.x / kBlocksOfCluster;
    const unsigned group = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128;
    if (group < base::kGroups) {
      take_registers<C::kConsumerRegisters>();
      consumer<Store, Keep>{s,      all,      tail,  store,  keep, shared_memory,
                            stages, barriers, group, thread, rank}
          .run(first, next);
      return;
    }
    give_registers<C::kProducerRegisters>();
    if (thread >= 32 || !elect_one()) return;
    ring r;
#pragma unroll 1
    for (int turn = first, turns = turns_of(s); turn < turns; turn += next)
      produce(all, place_of(s, turn, rank), stages, barriers, r, rank);
    // The other block of the cluster may still arrive at these barriers.
    if constexpr (C::kCluster > 1) {
      for (int i = 0; i < C::kStages; ++i, r.advance())
        mbarrier_wait(barriers + 8 * (C::kStages + r.stage), r.phase ^ 1);
    }
  }
};

// The argument behind `n` others.
template <int n, class First, class... Rest>
__device__ inline const auto& argument(const First& first, const Rest&... rest) {
  if constexpr (n == 0)
    return first;
  else
    return argument<n - 1>(rest...);
}

template <class C, class... Arguments>
__device__ inline void contract_grouped_sm90(const Arguments&... arguments) {
  using skeleton = grouped<C>;
  constexpr int kShape = skeleton::kMaps + (C::kTail ? 3 : 0);
  constexpr int kStore = kShape + 1, kKeep = kStore + (C::kSplitCluster > 1 ? 1 : 0);
  const void* const given[] = {(const void*)&arguments...};
  const tensor_map* all[skeleton::kMaps];
#pragma unroll
  for (int i = 0; i < skeleton::kMaps; ++i) all[i] = static_cast<const tensor_map*>(given[i]);
  typename skeleton::shared_tiles tail = {};
  if constexpr (C::kTail) {
    using four = typename skeleton::shared_tiles::four;
    tail.parts = reinterpret_cast<four*>(argument<skeleton::kMaps>(arguments...));
    tail.sums = reinterpret_cast<four*>(argument<skeleton::kMaps + 1>(arguments...));
    tail.stamps = argument<skeleton::kMaps + 2>(arguments...);
  }
  const contract_grouped_shape& shape = argument<kShape>(arguments...);
  if constexpr (C::kSplitCluster > 1 && C::kSums)
    skeleton::run(all, shape, tail, argument<kStore>(arguments...), argument<kKeep>(arguments...));
  else if constexpr (C::kSplitCluster > 1)
    skeleton::run(all, shape, tail, argument<kStore>(arguments...), nothing_kept{});
  else if constexpr (C::kSums)
    skeleton::run(all, shape, tail, nothing_kept{}, argument<kKeep>(arguments...));
  else
    skeleton::run(all, shape, tail, nothing_kept{}, nothing_kept{});
}
