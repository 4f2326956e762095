#pragma once
// recurrence_sm90<Config>(exchange, streamed, counters, shape, length, weight, before, fixed, read,
// store, after): the loop over time of a recurrent layer, and its gradient, on wgmma. It is for
// layers whose products are large: many sequences, or matrices that the chip does not hold.
// recurrence_sm80.cuh says what the functions are, recurrence_cells.cuh what a unit does.
//
//   cluster    kUnits units of one direction and kColumns = 64 * kTiles sequences, through all
//              steps. Its kSplit blocks share the depth of the product, kChunks chunks of 128 bytes
//              each, and then the sequences. `parts` clusters share the units of a group of
//              sequences.
//   producer   one thread: chunks of states, and of the matrix those that have no room in shared
//              memory, come as bulk copies into a ring of kStages slots; other warps of its group
//              bring what large blocks' cells read into a cache
//   consumers  two warpgroups. The states are the left operand, 64 sequences; the matrix, kRows
//              rows unit * kGates + gate, is the right one. With one tile of sequences the groups
//              take chunks in turns.
//
//   for step … {
//     producer: matrices of the first slots; wait until all blocks of the group have arrived;
//               states, and the rest of the matrix
//     sums += states x matrix'                   wgmma, both from shared memory
//     sums → shared memory, where the ring was; all blocks of the cluster wait
//     units: add up the sums of the cluster, cell, exchange[(step + 1) % 2] = new states; arrive
//     store what the step has made, read what the next one needs
//   }
//
// Operands lie in memory as they will in shared memory: chunks of rows of 128 bytes, swizzled, so
// that a copy is contiguous and needs no tensor map. Blocks write the streamed part of the matrix
// so before the first step; those of other groups read it, too, so that their first arrivals go to
// the counters of all groups.
//
//   exchange   [2][directions][groups][kSplit * kChunks][kColumns] of 128 bytes
//   streamed   [directions][parts][kSplit][kChunks - kResident][kRows] of 128 bytes
//   counters   a line of 128 bytes for each direction and group, 0 at first
//
// All blocks of the grid have to be resident together: it is launched cooperatively. What a block
// has written is ordered before what others copy by a proxy fence, the block's barrier and the
// counter's release; by the acquire of who asks, and another proxy fence. A copy of the exchange is
// overwritten when all blocks have arrived that read it one step earlier.

#include "codegen/cuda/device/ptx/bulk.cuh"
#include "codegen/cuda/device/ptx/copy.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"
#include "codegen/cuda/device/ptx/mma.cuh"
#include "codegen/cuda/device/ptx/wgmma.cuh"
#include "codegen/cuda/device/recurrence/recurrence_cells.cuh"
#include "codegen/cuda/device/recurrence/recurrence_shape.cuh"
#include "codegen/cuda/device/recurrence/recurrence_weights.cuh"

template <class C>
struct recurrence_ring {
  static constexpr int kConsumers = 256;  // threads; behind them the producer's warpgroup
  static constexpr int kThreads = kConsumers + 128;
  static constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
  static constexpr int kColumns = 64 * C::kTiles;
  static constexpr int kDepthGroups = 2 / C::kTiles;  // of warpgroups
  static constexpr int kElementBytes = C::kType == 2 ? 4 : 2;
  static constexpr int kVector = 16 / kElementBytes, kChunk = 8 * kVector;
  static constexpr int kStreamed = C::kChunks - C::kResident, kAllChunks = C::kSplit * C::kChunks;
  static constexpr int kMatrixBytes = C::kRows * 128, kStateBytes = kColumns * 128;
  static constexpr int kSlotBytes = kStateBytes + (kStreamed > 0 ? kMatrixBytes : 0);
  static constexpr int kPitch =
      C::kRows % 16 == 0 ? C::kRows + 8 : C::kRows;  // of a sequence's sums
  static constexpr int kSumBytes = kDepthGroups * kColumns * kPitch * 4;
  static constexpr int kSlotsBytes = C::kStages * kSlotBytes;
  static constexpr int kRingBytes =
      ((kSumBytes > kSlotsBytes ? kSumBytes : kSlotsBytes) + 1023) / 1024 * 1024;
  static constexpr int kBarriersAt = kRingBytes + C::kResident * kMatrixBytes;
  static constexpr int kOwnColumns = kColumns / C::kSplit;
  static constexpr int kElements = (C::kUnits * kOwnColumns + kConsumers - 1) / kConsumers;
  static_assert(C::kSharedBytes == kBarriersAt + 16 * C::kStages);
  static_assert(C::kRows % 8 == 0 && C::kRows >= C::kUnits * C::kGates);
  // A thread that waits for a parity has to have seen the phase before end.
  static_assert(kDepthGroups == 1 || C::kStages % 2 == 0 || C::kStages >= C::kChunks);
  using cell = recurrence_cell<C>;

  // Keeps loads in front of what waits, which is where their latency passes.
  static __device__ inline void ask(float& value) { asm volatile("" : "+f"(value)); }
  template <class T>
  static __device__ inline void ask(T& value) {
    asm volatile("" : "+h"(value.bits));
  }

  // A thread's numbers of one unit of one sequence from step to step: with kKeeps 1 the values of
  // the next step, too, and with 2 the results that it stores when others do not wait for it.
  template <class T>
  struct element {
    int length;
    float states[cell::kStates];
    float results[C::kKeeps == 2 ? cell::kResults : 1];
    typename cell::template value<T> values[C::kKeeps > 0 ? cell::kValues : 1];
  };
  // The sequence and the unit that an element belongs to.
  struct spot {
    int column, batch, unit, at;  // at: of sums
    bool exists;
  };

  template <class T, class F>
  struct run {
    const recurrence_shape& s;
    const F& f;
    unsigned char* const shared;
    unsigned char *const exchange, *const streamed;
    int* const counters;
    const unsigned memory;  // address of `shared`
    int rank, part, group, d, first_group;
    unsigned turn = 0;  // slots that have been used
    element<T> own[kElements];
    using value = typename cell::template value<T>;

    __device__ inline run(const recurrence_shape& s, const F& f, unsigned char* shared,
                          unsigned char* exchange, unsigned char* streamed, int* counters)
        : s(s),
          f(f),
          shared(shared),
          exchange(exchange),
          streamed(streamed),
          counters(counters),
          memory(shared_address(shared)) {
      const int block = blockIdx.x;
      rank = block % C::kSplit;
      part = block / C::kSplit % s.parts;
      group = first_group = block / C::kSplit / s.parts % s.first_groups;
      d = block / C::kSplit / s.parts / s.first_groups;
    }

    __device__ inline bool is_producer() const { return threadIdx.x >= kConsumers; }
    __device__ inline int warpgroup() const { return threadIdx.x / 128; }
    __device__ inline int* counter(int of) const { return counters + (d * s.groups + of) * 32; }
    // Arrivals at the group's counter before the first step.
    __device__ inline int blocks() const { return s.parts * C::kSplit; }
    __device__ inline int first_arrivals() const {
      return blocks() * (group < s.first_groups ? s.first_groups : 1);
    }
    __device__ inline unsigned char* states_of(int copy) const {
      return exchange +
             (long long)((copy * s.directions + d) * s.groups + group) * kAllChunks * kStateBytes;
    }
    // A piece of 16 bytes of a row of a chunk; `bytes` are those of a chunk.
    static __device__ inline long long place(int chunk, int row, int piece, int bytes) {
      return (long long)chunk * bytes + row * 128 + ((piece ^ (row % 8)) << 4);
    }
    __device__ inline unsigned full(int slot) const { return memory + kBarriersAt + 8 * slot; }
    __device__ inline unsigned empty(int slot) const {
      return memory + kBarriersAt + 8 * (C::kStages + slot);
    }

    __device__ inline spot spot_of(int q) const { return spot_at(threadIdx.x + q * kConsumers); }
    __device__ inline spot spot_at(int n) const {
      spot p;
      const int unit = n % C::kUnits;
      p.column = n / C::kUnits * C::kSplit + rank;
      p.batch = group * kColumns + p.column;
      p.unit = part * C::kUnits + unit;
      p.at = p.column * kPitch + unit * C::kGates;
      p.exists = n < C::kUnits * kOwnColumns && p.batch < s.batch && p.unit < s.units;
      return p;
    }
    __device__ inline bool is_inside(const spot& p, const element<T>& e, int step) const {
      return p.exists && step < e.length;
    }
    __device__ inline int time(const element<T>& e, int step) const {
      return d == 1 && step < e.length ? e.length - 1 - step : step;
    }

    // ---- the block's matrix, once; what is streamed is shared by the groups of sequences
    __device__ inline uint4 weights(int chunk, int row, int piece) const {
      const int depth = (rank * C::kChunks + chunk) * kChunk + piece * kVector;
      if constexpr (C::kTurned) {
        return turned_weights<T>(f, d, part * C::kUnits + row / 8 * 8,
                                 min(s.units, (part + 1) * C::kUnits), depth - piece % 4 * kVector,
                                 s.depth);
      } else {
        const int unit = part * C::kUnits + row / C::kGates;
        __align__(16) T values[kVector];
        uint4 v = make_uint4(0, 0, 0, 0);
        if (row < C::kGates * C::kUnits && unit < s.units && depth < s.depth) {
          f.weight(d, unit, row % C::kGates, depth, values);
          copy<16>(&v, reinterpret_cast<const uint4*>(values));
          if constexpr (C::kType == 2)
            v = make_uint4(round_tf32(v.x), round_tf32(v.y), round_tf32(v.z), round_tf32(v.w));
        }
        return v;
      }
    }
    // Neighbouring threads read neighbours in memory: pieces of a row, or of a gradient rows. Some
    // pieces are on their way together.
    template <class Chunk>
    __device__ inline void hold_chunks(unsigned char* to, int chunks, const Chunk& chunk_of) const {
      constexpr int kTogether = C::kGradient ? 4 : 8;
      const int pieces = chunks * C::kRows * 8;
#pragma unroll 1
      for (int first = threadIdx.x; first < pieces; first += kTogether * kConsumers) {
        uint4 v[kTogether];
        long long at[kTogether];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          const int n = first + i * kConsumers, rest = n % (C::kRows * 8);
          int row = rest / 8, piece = rest % 8;
          if constexpr (C::kTurned) {  // a warp has eight rows, and four pieces of each
            const int tile = rest / 32;
            row = tile % (C::kRows / 8) * 8 + rest % 32 / 4;
            piece = tile / (C::kRows / 8) * 4 + rest % 4;
          } else if constexpr (C::kGradient) {
            row = rest % C::kRows;
            piece = rest / C::kRows;
          }
          const int chunk = n < pieces ? chunk_of(n / (C::kRows * 8)) : C::kChunks;
          at[i] = chunk < C::kChunks ? place(chunk, row, piece, kMatrixBytes) : -1;
          v[i] = chunk < C::kChunks ? weights(chunk, row, piece) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < kTogether; ++i)
          if (at[i] >= 0) *reinterpret_cast<uint4*>(to + at[i]) = v[i];
      }
    }
    __device__ inline unsigned char* streamed_matrix() const {
      return streamed +
             (long long)((d * s.parts + part) * C::kSplit + rank) * kStreamed * kMatrixBytes;
    }
    __device__ inline void hold() const {
      if constexpr (kStreamed > 0)
        hold_chunks(streamed_matrix(), (kStreamed + s.first_groups - 1) / s.first_groups,
                    [&](int n) {
                      const int chunk = n * s.first_groups + first_group;
                      return chunk < kStreamed ? chunk : C::kChunks;
                    });
      if constexpr (C::kResident > 0)
        hold_chunks(shared + kRingBytes - (long long)kStreamed * kMatrixBytes, C::kResident,
                    [](int n) { return kStreamed + n; });
    }

    // ---- the producer
    __device__ inline void wait(int arrivals) const {
      int arrived;
      do {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                     : "=r"(arrived)
                     : "l"(counter(group))
                     : "memory");
      } while (arrived < arrivals);
      fence_for_bulk();
    }
    // Opens the slot, once it is empty, for the bytes that will come.
    __device__ inline int open(int chunk) const {
      const unsigned use = turn + chunk;
      const int slot = use % C::kStages;
      mbarrier_wait(empty(slot), (use / C::kStages & 1) ^ 1);
      mbarrier_expect(full(slot), state_bytes() + (chunk < kStreamed ? kMatrixBytes : 0));
      return slot;
    }
    __device__ inline void load_matrix(int slot, int chunk) const {
      bulk_load(memory + slot * kSlotBytes + kStateBytes,
                streamed_matrix() + (long long)chunk * kMatrixBytes, kMatrixBytes, full(slot));
    }
    // The bytes of the group's sequences, in eights: no sum that counts has the rest of a slot.
    __device__ inline unsigned state_bytes() const {
      const int left = (s.batch - group * kColumns + 7) / 8 * 8;
      return (left < kColumns ? left : kColumns) * 128;
    }
    __device__ inline void load_states(int slot, int copy, int chunk) const {
      bulk_load(memory + slot * kSlotBytes,
                states_of(copy) + (long long)(rank * C::kChunks + chunk) * kStateBytes,
                state_bytes(), full(slot));
    }
    __device__ inline void load(int copy, int arrivals) const {
      constexpr int kEarly = kStreamed < C::kStages ? kStreamed : C::kStages;
#pragma unroll 1
      for (int i = 0; i < kEarly; ++i) load_matrix(open(i), i);
      wait(arrivals);
#pragma unroll 1
      for (int i = 0; i < C::kChunks; ++i) {
        const int slot = i < kEarly ? (turn + i) % C::kStages : open(i);
        load_states(slot, copy, i);
        if (i >= kEarly && i < kStreamed) load_matrix(slot, i);
      }
    }

    // ---- the consumers
    __device__ inline void product(float (&sums)[C::kRows / 2]) const {
      const unsigned long long layout = descriptor_layout(128, 16);
      const int tile = kDepthGroups == 1 ? warpgroup() : 0;
#pragma unroll
      for (float& sum : sums) sum = 0;
      int before = -1;
#pragma unroll 1
      for (int i = kDepthGroups == 1 ? 0 : warpgroup(); i < C::kChunks; i += kDepthGroups) {
        const unsigned use = turn + i;
        const int slot = use % C::kStages;
        const unsigned at = memory + slot * kSlotBytes;
        const unsigned matrix =
            i < kStreamed ? at + kStateBytes : memory + kRingBytes + (i - kStreamed) * kMatrixBytes;
        const unsigned long long left = layout | descriptor_address(at + tile * 8192),
                                 right = layout | descriptor_address(matrix);
        mbarrier_wait(full(slot), use / C::kStages & 1);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; ++k) C::multiply(sums, left + 2 * k, right + 2 * k, 1);
        wgmma_commit();
        wgmma_wait<1>();  // the products of the slot before are done
        if (before >= 0) release(before);
        before = slot;
      }
      wgmma_wait<0>();
      if (before >= 0) release(before);
    }
    __device__ inline void release(int slot) const {
      if (threadIdx.x % 128 == 0) mbarrier_arrive(empty(slot));
    }
    __device__ inline void keep(const float (&sums)[C::kRows / 2]) const {
      const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
      float* const to = reinterpret_cast<float*>(shared) +
                        (warpgroup() * 64 + warp * 16 + lane / 4) * kPitch + lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < C::kRows / 8; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<float2*>(to + half * 8 * kPitch + j * 8) =
              make_float2(sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]);
    }
    // The sums of a unit's gates, of a block of the cluster.
    __device__ inline void load_sums(float (&to)[C::kGates], int at, int block) const {
      const unsigned from = memory + at * 4;
      if constexpr (C::kGates == 4) {
        const uint4 v = C::kSplit > 1 ? load_from_block(from, block)
                                      : *reinterpret_cast<const uint4*>(shared + at * 4);
        to[0] = __uint_as_float(v.x), to[1] = __uint_as_float(v.y);
        to[2] = __uint_as_float(v.z), to[3] = __uint_as_float(v.w);
      } else {
#pragma unroll
        for (int gate = 0; gate < C::kGates; ++gate)
          to[gate] = C::kSplit > 1 ? load_word_from_block(from + gate * 4, block)
                                   : reinterpret_cast<const float*>(shared)[at + gate];
      }
    }
    static __device__ inline float load_word_from_block(unsigned address, unsigned block) {
      float v;
      asm volatile(
          "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %1, %2;"
          "  ld.shared::cluster.f32 %0, [remote]; }"
          : "=f"(v)
          : "r"(address), "r"(block)
          : "memory");
      return v;
    }
    __device__ inline void add_up(const spot& p, float (&sums)[C::kGates]) const {
      float parts[C::kSplit * kDepthGroups][C::kGates];
#pragma unroll
      for (int i = 0; i < C::kSplit * kDepthGroups; ++i)
        load_sums(parts[i], i % kDepthGroups * kColumns * kPitch + p.at, i / kDepthGroups);
#pragma unroll
      for (int i = 0; i < C::kSplit * kDepthGroups; ++i)
#pragma unroll
        for (int gate = 0; gate < C::kGates; ++gate) sums[gate] += parts[i][gate];
    }

    // ---- units
    __device__ inline void send(int copy, int column, int k, float value) const {
      unsigned char* const to = states_of(copy) +
                                place(k / kChunk, column, k % kChunk / kVector, kStateBytes) +
                                k % kVector * kElementBytes;
      if constexpr (C::kType == 2)
        *reinterpret_cast<unsigned*>(to) = round_tf32(__float_as_uint(value));
      else
        *reinterpret_cast<T*>(to) = T(value);
    }
    __device__ inline void begin() {
#pragma unroll
      for (int q = 0; q < kElements; ++q) {
        element<T>& e = own[q];
        const spot p = spot_of(q);
        e.length = 0;
#pragma unroll
        for (float& state : e.states) state = 0;
        if (!p.exists) continue;
        int length[1];
        f.length(p.batch, length);
        e.length = length[0];
        f.before(d, p.batch, p.unit, e.states);
        if constexpr (!C::kGradient) send(0, p.column, p.unit, e.states[0]);
      }
      // Zeroes the end of rows, which no unit writes and every product reads.
      const int behind = kAllChunks * kChunk - s.depth;
      if (part == s.parts - 1 && rank == C::kSplit - 1)
        for (int n = threadIdx.x; n < 2 * kColumns * behind; n += kConsumers)
          send(n / behind / kColumns, n / behind % kColumns, s.depth + n % behind, 0);
    }
    template <class Values>
    __device__ inline void read_one(const spot& p, const element<T>& e, int step,
                                    Values& values) const {
      if (is_inside(p, e, step)) f.read(d, p.batch, p.unit, time(e, step), step, values);
    }
    __device__ inline void read(int step) {
      if constexpr (C::kKeeps > 0) {
#pragma unroll
        for (int q = 0; q < kElements; ++q) read_one(spot_of(q), own[q], step, own[q].values);
#pragma unroll
        for (element<T>& e : own)
#pragma unroll
          for (auto& v : e.values) ask(v);
      }
    }
    // Cells that read what they need late find it in a cache: the producer's idle warps ask for it
    // while the others multiply.
    __device__ inline void warm(int step) const {
      if constexpr (C::kKeeps == 0) {
        constexpr int kFirst = kConsumers + 32, kWarmers = kThreads - kFirst;
        if (threadIdx.x < kFirst || step < 0) return;
#pragma unroll 2
        for (int n = threadIdx.x - kFirst; n < C::kUnits * kOwnColumns; n += kWarmers) {
          const spot p = spot_at(n);
          if (!p.exists) continue;
          int length[1];
          f.length(p.batch, length);
          element<T> e;
          e.length = length[0];
          if (step >= e.length) continue;
          value values[cell::kValues];
          f.read(d, p.batch, p.unit, time(e, step), step, values);
#pragma unroll
          for (auto& v : values) ask(v);
        }
      }
    }
    template <class Values, class Results>
    __device__ inline void take(const spot& p, element<T>& e, int step, int copy,
                                const float (&sums)[C::kGates], const Values& values,
                                Results& results) const {
      float exchanged[cell::kExchanged], fixed[cell::kFixed];
      if constexpr (!C::kGradient) f.fixed(d, p.unit, fixed);
      cell::template take<T>(s, step < e.length, sums, values, fixed, e.states, results, exchanged);
#pragma unroll
      for (int k = 0; k < cell::kExchanged; ++k)
        send(copy, p.column, k * s.units + p.unit, exchanged[k]);
    }
    // Takes elements kAtATime by kAtATime, whose values and sums are on their way together.
    __device__ inline void cells(int step, int copy, bool has_sums) {
      constexpr int kAtATime = kElements < 4 ? kElements : 4;
#pragma unroll
      for (int first = 0; first < kElements; first += kAtATime) {
        value late[C::kKeeps == 0 ? kAtATime : 1][cell::kValues];
        float sums[kAtATime][C::kGates];
#pragma unroll
        for (int i = 0; i < kAtATime; ++i)
          if (C::kKeeps == 0 && step >= 0 && first + i < kElements)
            read_one(spot_of(first + i), own[first + i], step, late[C::kKeeps == 0 ? i : 0]);
#pragma unroll
        for (int i = 0; i < kAtATime; ++i) {
#pragma unroll
          for (float& sum : sums[i]) sum = 0;
          const spot p = spot_of(first + i);
          if (first + i < kElements && p.exists && has_sums) add_up(p, sums[i]);
        }
#pragma unroll
        for (int i = 0; i < kAtATime; ++i) {
          if (first + i >= kElements) continue;
          element<T>& e = own[first + i];
          const spot p = spot_of(first + i);
          if (step < 0) {
            cell::finish(sums[i], e.states);
          } else if (p.exists) {
            float results[cell::kResults];
            if constexpr (C::kKeeps == 2) {
              take(p, e, step, copy, sums[i], e.values, e.results);
            } else {
              if constexpr (C::kKeeps == 1)
                take(p, e, step, copy, sums[i], e.values, results);
              else
                take(p, e, step, copy, sums[i], late[i], results);
              f.store(d, p.batch, p.unit, time(e, step), results);
            }
          }
        }
      }
    }
    __device__ inline void store(int step) const {
      if constexpr (C::kKeeps == 2) {
#pragma unroll
        for (int q = 0; q < kElements; ++q) {
          const spot p = spot_of(q);
          if (p.exists) f.store(d, p.batch, p.unit, time(own[q], step), own[q].results);
        }
      }
    }
    __device__ inline void finish() const {
#pragma unroll
      for (int q = 0; q < kElements; ++q) {
        const spot p = spot_of(q);
        if (!p.exists) continue;
        float states[cell::kStates];
#pragma unroll
        for (int i = 0; i < cell::kStates; ++i)
          states[i] = own[q].length > 0 ? own[q].states[i] : 0;
        f.after(d, p.batch, p.unit, states);
      }
    }

    // ---- all threads
    static __device__ inline void cluster_or_block_sync() {
      if constexpr (C::kSplit > 1)
        cluster_sync();
      else
        __syncthreads();
    }
    static __device__ inline void arrive(int* counter) {
      asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
    }
    // One step's product and cells. The ring's memory holds sums between its barriers.
    template <bool produces>
    __device__ inline void round(int n, int rounds) {
      const int step = C::kGradient ? s.steps - 1 - n : n;
      const int following = C::kGradient ? step - 1 : step + 1;
      const bool has_sums = !C::kGradient || n > 0;
      if (has_sums) {
        if constexpr (produces) {
          if (threadIdx.x == kConsumers) load(n % 2, first_arrivals() + n * blocks());
          warm(step);
          __syncwarp();
          __syncthreads();
        } else {
          float sums[C::kRows / 2];
          product(sums);
          __syncthreads();
          keep(sums);
        }
        turn += C::kChunks;
        cluster_or_block_sync();
      }
      if constexpr (!produces) {
        cells(step, next_copy(n), has_sums);
        fence_for_bulk();
      }
      __syncthreads();
      if (!produces && threadIdx.x == 0 && n + 1 < rounds) arrive(counter(group));
      if constexpr (C::kSplit > 1) {
        __syncwarp();
        cluster_arrive();  // sums have been read
      }
      if constexpr (!produces) {
        if (step >= 0) store(step);
        if (following >= 0 && following < s.steps) read(following);
      }
      if constexpr (C::kSplit > 1) {
        __syncwarp();
        cluster_wait();
      }
    }
    template <bool produces>
    __device__ inline void all() {
      if constexpr (!produces) hold();
      const int rounds = s.steps + (C::kGradient ? 1 : 0);
      while (true) {
        if constexpr (!produces) {
          begin();
          fence_for_bulk();
        }
        __syncthreads();
        if (threadIdx.x == 0) {
          const bool is_first = group == first_group;
          for (int g = is_first ? 0 : group; g < (is_first ? s.first_groups : group + 1); ++g)
            arrive(counter(g));
        }
        if (produces && rounds > 0) {
          // Before what is streamed is asked for.
          if (threadIdx.x == kConsumers) wait(first_arrivals());
          __syncwarp();
        }
        if (!produces && s.steps > 0) read(C::kGradient ? s.steps - 1 : 0);
#pragma unroll 1
        for (int n = 0; n < rounds; ++n) round<produces>(n, rounds);
        if constexpr (!produces) finish();
        group += s.first_groups;
        if (group >= s.groups) return;
      }
    }
    __device__ inline void start() {
      if (threadIdx.x == 0) {
        for (int slot = 0; slot < C::kStages; ++slot) {
          mbarrier_init(full(slot), 1);
          mbarrier_init(empty(slot), C::kTiles);
        }
        mbarrier_init_done();
      }
      cluster_or_block_sync();
      if (is_producer()) {
        give_registers<kProducerRegisters>();
        all<true>();
      } else {
        take_registers<kConsumerRegisters>();
        all<false>();
      }
    }
  };
};

template <class Length, class Weight, class Before, class Fixed, class Read, class Store,
          class After>
struct recurrence_ring_functions {
  const Length& length;
  const Weight& weight;
  const Before& before;
  const Fixed& fixed;
  const Read& read;
  const Store& store;
  const After& after;
};

template <class C, class T, class Length, class Weight, class Before, class Fixed, class Read,
          class Store, class After>
__device__ inline void recurrence_sm90(T* exchange, T* streamed, int* counters,
                                       const recurrence_shape& shape, const Length& length,
                                       const Weight& weight, const Before& before,
                                       const Fixed& fixed, const Read& read, const Store& store,
                                       const After& after) {
  using functions = recurrence_ring_functions<Length, Weight, Before, Fixed, Read, Store, After>;
  const functions f{length, weight, before, fixed, read, store, after};
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  typename recurrence_ring<C>::template run<T, functions> run(
      shape, f, shared_memory, reinterpret_cast<unsigned char*>(exchange),
      reinterpret_cast<unsigned char*>(streamed), counters);
  run.start();
}
