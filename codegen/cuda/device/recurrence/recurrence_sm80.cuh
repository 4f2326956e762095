#pragma once
// recurrence_sm80<Config>(memory, exchange, streamed, counters, shape, length, weight, before,
// fixed, read, store, after): the skeleton of a recurrent layer's loop over time, and of its
// gradient, on mma.sync. recurrence_shape.cuh has its numbers, recurrence_cells.cuh what one unit
// does with its sums.
//
//   block      kUnits units of one direction and kColumns = 8 * kColumnTiles sequences, through all
//              steps; `parts` blocks share the units of a group of sequences
//   warp       one of kRowWarps shares of the rows and a share of the depth: kChunks chunks of 64
//              bytes of each row of its matrix, kHeld of them in registers from the first step to
//              the last, kInShared in shared memory. The others are streamed: the first step writes
//              them to `streamed` as fragments, and each step copies them, with the states that
//              they meet, into a ring of kStages chunks. A lane copies what it will read itself, so
//              that no other waits for it.
//
//   for step … {
//     wait until all parts have arrived                   counter of the group, thread 0 asks
//     sums of the warp += matrix x exchange[step % 2]     fragments straight from the L2 cache
//     sums of the warps → shared memory; barrier
//     units: add them up, cell, exchange[(step + 1) % 2] = new states; barrier; arrive
//     store what the step has made, read what the next one needs
//   }
//
// kType: f16, bf16, f32 rounded to TF32 (what is exchanged, too), or f32 on FMA units.
//
// Row unit * kGates + gate of the matrix is a gate of a unit; of a gradient kGates is 1, and depth
// counts the gates of all units. A lane takes 16 bytes of depth of rows g and g + 8 at a time, with
// g = lane / 4, and of column g: which products an mma adds does not matter, if both operands
// agree.
//
// With kNumbered nothing is counted. Each 4 bytes of states come with the number of the step that
// they are for, in one store of 8 bytes, and a lane asks for what it needs until all of it has its
// number: a step is one way to the L2 cache and back. Twice as many bytes are exchanged, so that is
// for small groups. Numbers are 0 at first, which a small kernel before sees to.
//
// With kClustered, sm_90 on, the parts of a group are a cluster. Units store what they send into
// the shared memory of each, 16 bytes at a time that count on a barrier there, and nothing is
// exchanged through memory. Groups need not be resident together then.
//
//   exchange   [2][directions][columns of all groups][pitch], zero from `depth` on; with numbers
//              twice that
//   streamed   [blocks][warps][streamed chunks][fragments][lanes] of 16 bytes
//   counters   a line of 128 bytes for each direction and group, 0 at first
//
// All blocks of the grid have to be resident together: it is launched cooperatively. Stores to
// `exchange` are ordered before the arrival by the block's barrier and the counter's release; loads
// are behind its acquire, and go past L1. A block writes a copy only after all parts have arrived
// that read it one step earlier.
//
// Functions, of direction d, or stage of a stack (kStack, recurrence_stack_sm80.cuh):
//   length(batch, result out)                          steps of a sequence
//   weight(d, unit, gate, depth, values out)           16 bytes of a row of the matrix; with
//   kTurned
//                                                      of two units at one depth
//   before(d, batch, unit, states out)                 at the first step
//   fixed(d, unit, values out)                         biases
//   read(d, batch, unit, time, step, values out)       what a cell needs, as it lies in memory
//   store(d, batch, unit, time, results)               what it has made; zeroes behind the end
//   after(d, batch, unit, states)                      at the last step; 0 of those without steps

#include "codegen/cuda/device/ptx/copy.cuh"
#include "codegen/cuda/device/ptx/copy_async.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"
#include "codegen/cuda/device/ptx/mma.cuh"
#include "codegen/cuda/device/recurrence/recurrence_cells.cuh"
#include "codegen/cuda/device/recurrence/recurrence_shape.cuh"
#include "codegen/cuda/device/recurrence/recurrence_weights.cuh"

template <class C>
struct recurrence_block {
  static constexpr int kThreads = 32 * C::kWarps;
  static constexpr int kColumns = 8 * C::kColumnTiles;
  static constexpr int kDepthWarps = C::kWarps / C::kRowWarps;
  static constexpr int kRows = 16 * C::kRowTiles * C::kRowWarps;
  static constexpr int kPitch = kRows + 4;  // of sums of a column, free of conflicts
  static constexpr int kElementBytes = C::kType >= 2 ? 4 : 2;
  static constexpr bool kIsFma = C::kType == 3;
  static constexpr int kVector = 16 / kElementBytes;
  static constexpr int kPasses = C::kColumnTiles / C::kPass;
  static constexpr int kResident = C::kHeld + C::kInShared, kStreamed = C::kChunks - kResident;
  static constexpr int kLoads = kPasses * kResident;              // of kPass fragments each
  static constexpr int kRingChunk = 2 * C::kRowTiles + C::kPass;  // 16 bytes a lane each
  static constexpr int kSums = kDepthWarps * kColumns * kPitch;   // floats
  static constexpr int kRing = kStreamed > 0 ? C::kWarps* C::kStages* kRingChunk * 128 : 0;
  // Sums lie where the ring was; with numbers those of two steps, for want of another barrier.
  static constexpr int kCountedWork = kSums > kRing ? kSums : kRing;
  static constexpr int kWork = C::kNumbered || C::kClustered ? 2 * kSums : kCountedWork;
  static constexpr int kMatrix = C::kInShared * C::kWarps * C::kRowTiles * 256;  // floats
  static constexpr long long kStreamedPieces = 64ll * C::kWarps * kStreamed * C::kRowTiles;
  static constexpr int kElements = (C::kUnits * kColumns + kThreads - 1) / kThreads;
  using cell = recurrence_cell<C>;

  // ---- one product of a warp: 16 rows, 8 columns, half a chunk
  static __device__ inline void multiply(float* acc, unsigned a0, unsigned a1, unsigned a2,
                                         unsigned a3, unsigned b0, unsigned b1) {
    if constexpr (C::kType == 0)
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else if constexpr (C::kType == 1)
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else
      asm volatile(
          "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
  static __device__ inline void multiply_chunk(float* acc, const uint4& low, const uint4& high,
                                               const uint4& right) {
    multiply(acc, low.x, high.x, low.y, high.y, right.x, right.y);
    multiply(acc, low.z, high.z, low.w, high.w, right.z, right.w);
  }

  // ---- between blocks
  static __device__ inline uint4 load_exchanged(const void* from) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
  }
  // 16 bytes of states with their numbers, each word of states in 64 bits that are read and written
  // at once.
  struct numbered {
    unsigned long long v[4];

    __device__ inline void load(const void* from) {
#pragma unroll
      for (int i = 0; i < 4; i += 2)
        asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
                     : "=l"(v[i]), "=l"(v[i + 1])
                     : "l"(static_cast<const char*>(from) + 8 * i)
                     : "memory");
    }
    __device__ inline bool is_for(int number) const {
      bool all = true;
#pragma unroll
      for (const unsigned long long word : v) all = all && int(word >> 32) == number;
      return all;
    }
    __device__ inline uint4 states() const {
      return make_uint4(unsigned(v[0]), unsigned(v[1]), unsigned(v[2]), unsigned(v[3]));
    }
  };
  static __device__ inline void wait(const int* counter, int arrivals) {
    if (threadIdx.x == 0) {
      int arrived;
      do {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                     : "=r"(arrived)
                     : "l"(counter)
                     : "memory");
      } while (arrived < arrivals);
    }
    __syncthreads();
  }
  static __device__ inline void arrive(int* counter) {
    __syncthreads();
    if (threadIdx.x == 0)
      asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
  }

  // A value that has been asked for by now: a compiler would move the load to where it is used.
  static __device__ inline void ask(float& value) { asm volatile("" : "+f"(value)); }
  template <class T>
  static __device__ inline void ask(T& value) {
    asm volatile("" : "+h"(value.bits));
  }

  // A thread's share of one unit of one sequence.
  template <class T>
  struct element {
    int batch, unit, length, at;  // at: of sums in shared memory
    bool exists;
    float states[cell::kStates], fixed[cell::kFixed], results[cell::kResults];
    typename cell::template value<T> values[cell::kValues];

    __device__ inline bool is_inside(int step) const { return exists && step < length; }
    __device__ inline int time(int step, int d) const {
      return !C::kStack && d == 1 && step < length ? length - 1 - step : step;
    }
  };

  // The memory in which a run works: shared memory, and the memory that all blocks share.
  template <class T>
  struct places {
    float *work, *matrix, *states;  // states: of FMA units, and of clusters
    T *exchange, *sent;             // what it reads, and where its states go
    uint4* streamed;
    int* counters;
  };

  template <class T, class F>
  struct run {
    const recurrence_shape& s;
    const F& f;
    const places<T> at;
    const int sent_pitch;
    float* work;  // that of the step
    int part, group, d;
    unsigned phases = 0;  // of a cluster's barriers, a bit each
    uint4 held[C::kHeld > 0 ? C::kHeld : 1][C::kRowTiles][2];
    using own_element = element<T>;
    own_element own[kElements];

    __device__ inline run(const recurrence_shape& s, const F& f, const places<T>& at,
                          int sent_pitch)
        : s(s), f(f), at(at), sent_pitch(sent_pitch), work(at.work) {
      const int block = blockIdx.x;
      part = block % s.parts;
      group = block / s.parts % s.first_groups;
      d = block / s.parts / s.first_groups;
    }

    __device__ inline int* counter() const { return at.counters + (d * s.groups + group) * 32; }
    // True if all units of the block are behind the last one, as those of a projection may be.
    __device__ inline bool is_idle() const { return C::kProjected && part * C::kUnits >= s.units; }
    __device__ inline int row_elements() const { return (C::kNumbered ? 2 : 1) * s.pitch; }
    __device__ inline T* row_of(T* states, int pitch, int copy, int column) const {
      return states + ((long long)(copy * s.directions + d) * s.groups * kColumns +
                       group * kColumns + column) *
                          ((C::kNumbered ? 2 : 1) * pitch);
    }
    __device__ inline T* row(int copy, int column) const {
      if constexpr (C::kClustered)
        return reinterpret_cast<T*>(at.states) + (copy * kColumns + column) * s.pitch;
      else
        return row_of(at.exchange, s.pitch, copy, column);
    }
    static __device__ inline int depth_warp() { return threadIdx.x / 32 % kDepthWarps; }
    static __device__ inline int row_warp() { return threadIdx.x / 32 / kDepthWarps; }
    __device__ inline uint4* in_shared(int chunk, int tile, int half) const {
      const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
      return reinterpret_cast<uint4*>(at.matrix) +
             (((warp * C::kInShared + chunk) * C::kRowTiles + tile) * 2 + half) * 32 + lane;
    }
    __device__ inline uint4* in_memory(int chunk, int fragment) const {
      const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
      return at.streamed +
             (((long long)(blockIdx.x * C::kWarps + warp) * kStreamed + chunk) * 2 * C::kRowTiles +
              fragment) *
                 32 +
             lane;
    }
    __device__ inline uint4* in_ring(int chunk, int fragment) const {
      const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
      return reinterpret_cast<uint4*>(at.work) +
             ((warp * C::kStages + chunk % C::kStages) * kRingChunk + fragment) * 32 + lane;
    }

    // Loads the block's matrix, once.
    __device__ inline uint4 weights(int chunk, int tile, int half) const {
      const int lane = threadIdx.x % 32;
      const int row = kIsFma ? 32 * (tile / 2) + lane
                             : 16 * (row_warp() * C::kRowTiles + tile) + 8 * half + lane / 4;
      const int piece = kIsFma ? tile % 2 * 2 + half : lane % 4;
      const int depth = ((depth_warp() * C::kChunks + chunk) * 4 + piece) * kVector;
      if constexpr (C::kTurned) {
        return turned_weights<T>(f, d, part * C::kUnits + row - lane / 4,
                                 min(s.units, (part + 1) * C::kUnits), depth - piece * kVector,
                                 s.depth);
      } else {
        const int unit = part * C::kUnits + row / C::kGates;
        // Something is read in any case: behind branches loads come one after the other.
        const bool exists = row < C::kGates * C::kUnits && unit < s.units && depth < s.depth;
        __align__(16) T values[kVector];
        uint4 v;
        f.weight(d, exists ? unit : 0, row % C::kGates, exists ? depth : 0, values);
        copy<16>(&v, reinterpret_cast<const uint4*>(values));
        if constexpr (C::kType == 2)
          v = make_uint4(round_tf32(v.x), round_tf32(v.y), round_tf32(v.z), round_tf32(v.w));
        return exists ? v : make_uint4(0, 0, 0, 0);
      }
    }
    // Registers last, so that what is on its way elsewhere has room.
    __device__ inline void hold() {
#pragma unroll 1
      for (int n = 0; n < kStreamed; ++n)
#pragma unroll 4
        for (int i = 0; i < 2 * C::kRowTiles; ++i)
          *in_memory(n, i) = weights(kResident + n, i / 2, i % 2);
#pragma unroll 1
      for (int j = 0; j < C::kInShared; ++j)
#pragma unroll 4
        for (int i = 0; i < 2 * C::kRowTiles; ++i)
          *in_shared(j, i / 2, i % 2) = weights(C::kHeld + j, i / 2, i % 2);
#pragma unroll
      for (int j = 0; j < C::kHeld; ++j)
#pragma unroll
        for (int i = 0; i < C::kRowTiles; ++i)
#pragma unroll
          for (int half = 0; half < 2; ++half) held[j][i][half] = weights(j, i, half);
    }

    // ---- the ring. Matrices may be asked for before the states are there.
    __device__ inline void stream_matrix(int chunk) const {
#pragma unroll
      for (int i = 0; i < 2 * C::kRowTiles; ++i)
        copy_async<16>(in_ring(chunk, i), in_memory(chunk, i), true);
    }
    __device__ inline void stream_states(int chunk, const T* from) const {
#pragma unroll
      for (int p = 0; p < C::kPass; ++p)
        copy_async<16>(in_ring(chunk, 2 * C::kRowTiles + p),
                       reinterpret_cast<const uint4*>(from + (long long)p * 8 * s.pitch +
                                                      (kResident + chunk) * 4 * kVector),
                       true);
    }
    // Starts the ring. It may be called where nobody needs the sums of the step before any more.
    __device__ inline void begin_stream() const {
      if constexpr (kStreamed > 0) {
        if (is_idle()) return;
#pragma unroll 1
        for (int n = 0; n < C::kStages; ++n) stream_matrix(n);
      }
    }
    template <class Sums>
    __device__ inline void multiply_streamed(Sums& sums, const T* from) const {
#pragma unroll 1
      for (int n = 0; n < kStreamed; ++n) {
        wait_async<C::kStages - 1>();
        uint4 right[C::kPass];
#pragma unroll
        for (int p = 0; p < C::kPass; ++p) right[p] = *in_ring(n, 2 * C::kRowTiles + p);
#pragma unroll
        for (int i = 0; i < C::kRowTiles; ++i) {
          const uint4 low = *in_ring(n, 2 * i), high = *in_ring(n, 2 * i + 1);
#pragma unroll
          for (int p = 0; p < C::kPass; ++p) multiply_chunk(sums[i][p], low, high, right[p]);
        }
        if (n + C::kStages < kStreamed) {
          stream_matrix(n + C::kStages);
          stream_states(n + C::kStages, from);
        }
        commit_async();
      }
      __syncthreads();  // the others' rings are where sums go
    }

    // ---- between the blocks of a cluster
    __device__ inline unsigned sent_barrier(int copy) const {
      return shared_address(at.states) + 2 * kColumns * s.pitch * kElementBytes + 8 * copy;
    }
    __device__ inline void expect_sent(int copy) const {
      const unsigned columns = min(kColumns, s.batch - group * kColumns);
      mbarrier_expect(sent_barrier(copy), columns * s.depth * kElementBytes);
    }
    // Writes zeroes where nobody sends anything, and starts barriers, before anybody sends.
    __device__ inline void open_exchange() const {
      uint4* const states = reinterpret_cast<uint4*>(at.states);
      for (int n = threadIdx.x; n < 2 * kColumns * s.pitch / kVector; n += kThreads)
        states[n] = make_uint4(0, 0, 0, 0);
      if (threadIdx.x == 0) {
        mbarrier_init(sent_barrier(0), 1);
        mbarrier_init(sent_barrier(1), 1);
        mbarrier_init_done();
        expect_sent(0);
        expect_sent(1);
      }
      cluster_sync();
    }
    // A block sends states of the next step behind its barrier, so that nothing comes to a copy
    // that is still read.
    __device__ inline void wait_for_sent(int copy) {
      mbarrier_wait_in_cluster(sent_barrier(copy), phases >> copy & 1);
      phases ^= 1u << copy;
      if (threadIdx.x == 0) expect_sent(copy);
    }
    // The values of kVector neighbouring units, of which each lane then sends all to other blocks.
    static __device__ inline uint4 gather(float value) {
      const int lane = threadIdx.x % 32, first = lane / kVector * kVector;
      constexpr int kLanesOfWord = kVector / 4;
      unsigned word = C::kType == 2 ? round_tf32(__float_as_uint(value)) : __float_as_uint(value);
      if constexpr (C::kType < 2) {
        const unsigned own = T(value).bits, other = __shfl_xor_sync(0xffffffff, own, 1);
        word = lane % 2 == 0 ? own | other << 16 : other | own << 16;
      }
      return make_uint4(__shfl_sync(0xffffffff, word, first),
                        __shfl_sync(0xffffffff, word, first + kLanesOfWord),
                        __shfl_sync(0xffffffff, word, first + 2 * kLanesOfWord),
                        __shfl_sync(0xffffffff, word, first + 3 * kLanesOfWord));
    }
    __device__ inline void send(int copy, const own_element& e, int k, float value) const {
      const uint4 piece = gather(value);
      if (!e.exists) return;
      const unsigned to = shared_address(row(copy, e.at / kPitch) + k - e.unit % kVector);
      for (int peer = threadIdx.x % kVector; peer < s.parts; peer += kVector)
        store_to_block(to, piece, sent_barrier(copy), peer);
    }

    // ---- a group of sequences
    // Element k of the state of a column; all lanes of a warp are here. Of 16 bits the even one of
    // two neighbouring units stores both.
    __device__ inline void exchange_state(int copy, const own_element& e, int k, float value,
                                          int number) const {
      if constexpr (C::kClustered) return send(copy, e, k, value);
      T* const to = row_of(at.sent, sent_pitch, copy, e.at / kPitch);
      if constexpr (C::kNumbered) {
        unsigned word = round_tf32(__float_as_uint(value));
        bool stores = e.exists;
        if constexpr (C::kType < 2) {
          word = T(value).bits;
          word |= __shfl_down_sync(0xffffffff, word, 1) << 16;
          stores = e.exists && e.unit % 2 == 0;
        }
        if (stores)
          asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to + 2 * k),
                       "l"((unsigned long long)(unsigned(number)) << 32 | word)
                       : "memory");
      } else if (e.exists) {
        if constexpr (C::kType == 2)
          to[k] = __uint_as_float(round_tf32(__float_as_uint(value)));
        else
          to[k] = T(value);
      }
    }
    __device__ inline void begin() {
      if constexpr (C::kClustered) open_exchange();
#pragma unroll
      for (int q = 0; q < kElements; ++q) {
        own_element& e = own[q];
        const int n = threadIdx.x + q * kThreads, column = n / C::kUnits, unit = n % C::kUnits;
        e.batch = group * kColumns + column;
        e.unit = part * C::kUnits + unit;
        e.at = column * kPitch + unit * C::kGates;
        e.exists = column < kColumns && e.batch < s.batch && e.unit < s.units;
        e.length = 0;
#pragma unroll
        for (float& state : e.states) state = 0;
        if (e.exists) {
          int length[1];
          f.length(e.batch, length);
          e.length = length[0];
          f.before(d, e.batch, e.unit, e.states);
          if constexpr (!C::kGradient) f.fixed(d, e.unit, e.fixed);
        }
        if constexpr (cell::kBegins)
          if (!C::kClustered || s.steps > 0) exchange_state(0, e, e.unit, e.states[0], 1);
      }
      if constexpr (!C::kNumbered && !C::kClustered) {
        // Zeroes the end of rows, which no unit writes and every product reads.
        constexpr int kCopies = C::kProjected ? 1 : 2;
        if (part == s.parts - 1)
          for (int n = threadIdx.x; n < kCopies * kColumns * (s.pitch - s.depth); n += kThreads) {
            const int column = n / (s.pitch - s.depth);
            row(column / kColumns, column % kColumns)[s.depth + n % (s.pitch - s.depth)] = T(0.f);
          }
      }
    }
    __device__ inline void read(int step) {
#pragma unroll
      for (own_element& e : own)
        if (e.is_inside(step)) f.read(d, e.batch, e.unit, e.time(step, d), step, e.values);
#pragma unroll
      for (own_element& e : own)
#pragma unroll
        for (auto& value : e.values) ask(value);
    }

    // The sums of the block's warps, each in its own place.
    template <class Sums>
    __device__ inline void keep(const Sums& sums, int pass) const {
      const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
      float* const to =
          work + (depth_warp() * kColumns + 2 * t) * kPitch + 16 * C::kRowTiles * row_warp() + g;
#pragma unroll
      for (int i = 0; i < C::kRowTiles; ++i)
#pragma unroll
        for (int p = 0; p < C::kPass; ++p)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            to[((pass * C::kPass + p) * 8 + e % 2) * kPitch + 16 * i + 8 * (e / 2)] = sums[i][p][e];
    }
    // Multiplies in f32, on FMA units: a lane has a row of each 32, and a warp its depth of all
    // columns beside it in shared memory, which all lanes read together.
    __device__ inline void product_in_f32(int parity) const {
      constexpr int kPieces = kColumns * C::kChunks * 4, kTiles = C::kRowTiles / 2;
      const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
      const T* const from = row(parity, 0) + depth_warp() * C::kChunks * 16;
      float* const states = at.states + warp * kPieces * 4;
#pragma unroll
      for (int n = lane; n < kPieces; n += 32)
        copy_async<16>(
            reinterpret_cast<uint4*>(states + n * 4),
            reinterpret_cast<const uint4*>(from + (long long)(n / (C::kChunks * 4)) * s.pitch +
                                           n % (C::kChunks * 4) * 4),
            true);
      commit_async();
      wait_async<0>();
      __syncwarp();
#pragma unroll 1
      for (int pass = 0; pass < C::kColumnTiles; ++pass) {
        float sums[kTiles][8];
#pragma unroll
        for (int i = 0; i < kTiles; ++i)
#pragma unroll
          for (float& sum : sums[i]) sum = 0;
#pragma unroll
        for (int n = 0; n < 4 * C::kChunks; ++n) {
          const int j = n / 4, q = n % 4;
          float left[kTiles][4];
#pragma unroll
          for (int i = 0; i < kTiles; ++i)
            copy<16>(reinterpret_cast<uint4*>(left[i]),
                     j < C::kHeld ? &held[j < C::kHeld ? j : 0][2 * i + q / 2][q % 2]
                                  : in_shared(j - C::kHeld, 2 * i + q / 2, q % 2));
#pragma unroll
          for (int c = 0; c < 8; ++c) {
            float right[4];
            copy<16>(
                reinterpret_cast<uint4*>(right),
                reinterpret_cast<const uint4*>(states + ((pass * 8 + c) * C::kChunks * 4 + n) * 4));
#pragma unroll
            for (int i = 0; i < kTiles; ++i)
#pragma unroll
              for (int k = 0; k < 4; ++k) sums[i][c] = __fmaf_rn(left[i][k], right[k], sums[i][c]);
          }
        }
        float* const to = work + (depth_warp() * kColumns + pass * 8) * kPitch + lane;
#pragma unroll
        for (int i = 0; i < kTiles; ++i)
#pragma unroll
          for (int c = 0; c < 8; ++c) to[c * kPitch + 32 * i] = sums[i][c];
      }
    }
    // Multiplies states that come with their numbers. Nobody writes behind the depth, nor columns
    // behind the last sequence.
    __device__ inline void product_of_numbered(int copy, int number) const {
      const int lane = threadIdx.x % 32;
      const int first = (depth_warp() * C::kChunks * 4 + lane % 4) * kVector;
      const T* const from = row(copy, lane / 4) + 2 * first;
      numbered right[C::kColumnTiles][C::kChunks];
      const auto is_there = [&](int p, int j) {
        return group * kColumns + 8 * p + lane / 4 < s.batch && first + j * 4 * kVector < s.depth;
      };
      const auto load = [&](int p, int j) {
        right[p][j].load(from + (long long)p * 8 * row_elements() + j * 8 * kVector);
      };
      const auto is_late = [&](int p, int j) {
        return is_there(p, j) && !right[p][j].is_for(number);
      };
      // Asking for much keeps others from writing: then one piece is asked for until it is there.
      const bool is_much = min(kColumns, s.batch - group * kColumns) * C::kChunks > kColumns;
      if (is_much) {
        do {
          if (is_there(0, 0)) load(0, 0);
        } while (__any_sync(0xffffffff, is_late(0, 0)));
      }
#pragma unroll
      for (int p = 0; p < C::kColumnTiles; ++p)
#pragma unroll
        for (int j = 0; j < C::kChunks; ++j)
          if ((!is_much || p > 0 || j > 0) && is_there(p, j)) load(p, j);
      bool is_any_late;
      do {
        is_any_late = false;
#pragma unroll
        for (int p = 0; p < C::kColumnTiles; ++p)
#pragma unroll
          for (int j = 0; j < C::kChunks; ++j)
            if (is_late(p, j)) {
              load(p, j);
              is_any_late = true;
            }
      } while (__any_sync(0xffffffff, is_any_late));
      float sums[C::kRowTiles][C::kPass][4];
#pragma unroll
      for (int p = 0; p < C::kColumnTiles; ++p) {
#pragma unroll
        for (int i = 0; i < C::kRowTiles; ++i)
#pragma unroll
          for (float& sum : sums[i][0]) sum = 0;
#pragma unroll
        for (int j = 0; j < C::kChunks; ++j) {
          const uint4 states = is_there(p, j) ? right[p][j].states() : make_uint4(0, 0, 0, 0);
#pragma unroll
          for (int i = 0; i < C::kRowTiles; ++i)
            multiply_chunk(sums[i][0], held[j][i][0], held[j][i][1], states);
        }
        keep(sums, p);
      }
    }
    __device__ inline void product(int copy) const {
      const int lane = threadIdx.x % 32;
      const T* const from =
          row(copy, lane / 4) + (depth_warp() * C::kChunks * 4 + lane % 4) * kVector;
      uint4 right[C::kAhead][C::kPass];
      float sums[C::kRowTiles][C::kPass][4];
      const auto clear = [&] {
#pragma unroll
        for (int i = 0; i < C::kRowTiles; ++i)
#pragma unroll
          for (int p = 0; p < C::kPass; ++p)
#pragma unroll
            for (float& sum : sums[i][p]) sum = 0;
      };
      const auto load = [&](int n) {
#pragma unroll
        for (int p = 0; p < C::kPass; ++p) {
          const T* const piece = from + (long long)(n / kResident * C::kPass + p) * 8 * s.pitch +
                                 n % kResident * 4 * kVector;
          if constexpr (C::kClustered)
            right[n % C::kAhead][p] = *reinterpret_cast<const uint4*>(piece);
          else
            right[n % C::kAhead][p] = load_exchanged(piece);
        }
      };
      if constexpr (kStreamed > 0) {
        static_assert(kPasses == 1 && C::kStages <= kStreamed);
#pragma unroll 1
        for (int n = 0; n < C::kStages; ++n) {
          stream_states(n, from);
          commit_async();
        }
        clear();
      }
      if constexpr (kResident > 0) {
#pragma unroll
        for (int n = 0; n < C::kAhead && n < kLoads; ++n) load(n);
#pragma unroll
        for (int n = 0; n < kLoads; ++n) {
          const int j = n % kResident;
          if (j == 0) clear();
#pragma unroll
          for (int i = 0; i < C::kRowTiles; ++i) {
            uint4 left[2];
#pragma unroll
            for (int half = 0; half < 2; ++half)
              left[half] = j < C::kHeld ? held[j < C::kHeld ? j : 0][i][half]
                                        : *in_shared(j - C::kHeld, i, half);
#pragma unroll
            for (int p = 0; p < C::kPass; ++p)
              multiply_chunk(sums[i][p], left[0], left[1], right[n % C::kAhead][p]);
          }
          if (n + C::kAhead < kLoads) load(n + C::kAhead);
          if (kStreamed == 0 && j == kResident - 1) keep(sums, n / kResident);
        }
      }
      if constexpr (kStreamed > 0) {
        multiply_streamed(sums, from);
        keep(sums, 0);
      }
    }
    __device__ inline void add_up(const own_element& e, float* sums) const {
#pragma unroll
      for (int gate = 0; gate < C::kGates; ++gate) sums[gate] = 0;
#pragma unroll
      for (int warp = 0; warp < kDepthWarps; ++warp) {
        const float* const from = work + warp * kColumns * kPitch + e.at;
        if constexpr (C::kGates == 4) {
          const float4 v = *reinterpret_cast<const float4*>(from);
          sums[0] += v.x, sums[1] += v.y, sums[2] += v.z, sums[3] += v.w;
        } else {
#pragma unroll
          for (int gate = 0; gate < C::kGates; ++gate) sums[gate] += from[gate];
        }
      }
    }

    // The units' share of a step; `copy` is where their states go, for the step `number`. Blocks of
    // a cluster may have left behind the last one.
    __device__ inline void cells(int step, int copy, int number, bool has_sums,
                                 bool is_last = false) {
#pragma unroll
      for (own_element& e : own) {
        float sums[C::kGates], exchanged[cell::kExchanged] = {};
#pragma unroll
        for (float& sum : sums) sum = 0;
        if (e.exists && has_sums) add_up(e, sums);
        if (step < 0) {
          cell::finish(sums, e.states);
          continue;
        }
        if (e.exists)
          cell::template take<T>(s, e.is_inside(step), sums, e.values, e.fixed, e.states, e.results,
                                 exchanged);
#pragma unroll
        for (int k = 0; k < cell::kExchanged; ++k)
          if (!C::kClustered || !is_last)
            exchange_state(copy, e, k * s.units + e.unit, exchanged[k], number);
      }
    }
    __device__ inline void store(int step) const {
#pragma unroll
      for (const own_element& e : own)
        if (e.exists) f.store(d, e.batch, e.unit, e.time(step, d), e.results);
    }

    // The sums of what the other blocks have sent, for all threads.
    __device__ inline void multiply_sent(int copy, int number, int arrivals) {
      if constexpr (C::kNumbered) {
        if (!is_idle()) product_of_numbered(copy, number);
      } else {
        if constexpr (C::kClustered)
          wait_for_sent(copy);
        else
          wait(counter(), arrivals);
        if (!is_idle()) {
          if constexpr (kIsFma)
            product_in_f32(copy);
          else
            product(copy);
        }
      }
      __syncthreads();
    }
    // Does behind the arrival what others do not wait for.
    __device__ inline void between(int step, int following) {
      if (step >= 0) store(step);
      if (following >= 0 && following < s.steps) read(following);
    }

    // All steps of the group; a gradient's last round is a product of what its first step has left.
    __device__ inline void steps() {
      const int rounds = s.steps + (C::kGradient ? 1 : 0);
      if (!C::kGradient && rounds > 0) begin_stream();
#pragma unroll 1
      for (int n = 0; n < rounds; ++n) {
        const int step = C::kGradient ? s.steps - 1 - n : n;
        const bool has_sums = !C::kGradient || n > 0;
        if constexpr (C::kNumbered || C::kClustered) work = at.work + n % 2 * kSums;
        if (has_sums) multiply_sent(n % 2, n + 1, (n + 1) * s.parts);
        cells(step, next_copy(n), n + 2, has_sums, n + 1 == rounds);
        if (n + 1 < rounds) {
          announce();
          begin_stream();
        }
        between(step, C::kGradient ? step - 1 : step + 1);
      }
    }
    __device__ inline void finish() const {
#pragma unroll
      for (const own_element& e : own) {
        if (!e.exists) continue;
        float states[cell::kStates];
#pragma unroll
        for (int i = 0; i < cell::kStates; ++i) states[i] = e.length > 0 ? e.states[i] : 0;
        f.after(d, e.batch, e.unit, states);
      }
    }
    // Says that what the block has sent is there.
    __device__ inline void announce() const {
      if constexpr (!C::kNumbered && !C::kClustered) arrive(counter());
    }
    __device__ inline void all() {
      begin();
      announce();
      hold();
      while (true) {
        if (s.steps > 0) read(C::kGradient ? s.steps - 1 : 0);
        steps();
        finish();
        if constexpr (C::kClustered) return;
        group += s.first_groups;
        if (group >= s.groups) return;
        __syncthreads();  // sums have been read
        begin();
        announce();
      }
    }
  };
};

template <class Length, class Weight, class Before, class Fixed, class Read, class Store,
          class After>
struct recurrence_functions {
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
__device__ inline void recurrence_sm80(float* memory, T* exchange, T* streamed, int* counters,
                                       const recurrence_shape& shape, const Length& length,
                                       const Weight& weight, const Before& before,
                                       const Fixed& fixed, const Read& read, const Store& store,
                                       const After& after) {
  using functions = recurrence_functions<Length, Weight, Before, Fixed, Read, Store, After>;
  const functions f{length, weight, before, fixed, read, store, after};
  using block = recurrence_block<C>;
  float* const matrix = memory + block::kWork;
  typename block::template run<T, functions> run(
      shape, f,
      {memory, matrix, matrix + block::kMatrix, exchange, exchange,
       reinterpret_cast<uint4*>(streamed), counters},
      shape.pitch);
  run.all();
}
