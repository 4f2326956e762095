#pragma once
// recurrence_sm80<Config>(memory, exchange, counters, shape, length, weight, before, read, store,
// after): the skeleton of a recurrent layer's loop over time, and of its gradient, on mma.sync.
// recurrence_shape.cuh has its numbers, recurrence_cells.cuh what one unit does with its sums.
//
//   block      kUnits units of one direction and kColumns = 8 * kColumnTiles sequences, through all
//              steps; `parts` blocks share the units of a group of sequences
//   warp       a share of the depth: kChunks chunks of 64 bytes of each row of its matrix, kHeld of
//              them in registers from the first step to the last, the others in shared memory
//
//   for step … {
//     wait until all parts have arrived                   counter of the group, thread 0 asks
//     sums of the warp += matrix x exchange[step % 2]     fragments straight from the L2 cache
//     sums of the warps → shared memory; barrier
//     units: add them up, cell, exchange[(step + 1) % 2] = new states; barrier; arrive
//     store what the step has made, read what the next one needs
//   }
//
// Row unit * kGates + gate of the matrix is a gate of a unit; of a gradient kGates is 1, and depth
// counts the gates of all units. A lane takes 16 bytes of depth of rows g and g + 8 at a time, with
// g = lane / 4, and of column g: which products an mma adds does not matter, if both operands
// agree.
//
//   exchange   [2][directions][columns of all groups][pitch], zero from `depth` on
//   counters   a line of 128 bytes for each direction and group, 0 at first
//
// All blocks of the grid have to be resident together: it is launched cooperatively. Stores to
// `exchange` are ordered before the arrival by the block's barrier and the counter's release; loads
// are behind its acquire, and go past L1. A block writes a copy only after all parts have arrived
// that read it one step earlier.
//
// Functions, of direction d:
//   length(batch, result out)                          steps of a sequence
//   weight(d, unit, gate, depth, values out)           16 bytes of a row of the matrix
//   before(d, batch, unit, states out)                 at the first step
//   read(d, batch, unit, time, step, values out)       what a cell needs
//   store(d, batch, unit, time, results)               what it has made; zeroes behind the end
//   after(d, batch, unit, states)                      at the last step; 0 of those without steps
template <class C>
struct recurrence_block {
  static constexpr int kThreads = 32 * C::kWarps;
  static constexpr int kColumns = 8 * C::kColumnTiles;
  static constexpr int kPitch = 16 * C::kRowTiles + 4;  // of sums of a column, free of conflicts
  static constexpr int kElementBytes = C::kType == 2 ? 4 : 2;
  static constexpr int kVector = 16 / kElementBytes;
  static constexpr int kPasses = C::kColumnTiles / C::kPass;
  static constexpr int kLoads = kPasses * C::kChunks;  // of kPass fragments each
  static constexpr int kInShared = C::kChunks - C::kHeld;
  static constexpr int kSums = C::kWarps * kColumns * kPitch;  // floats
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

  // What a thread has of one unit of one sequence.
  struct element {
    int batch, unit, length, at;  // at: of sums in shared memory
    bool exists;
    float states[cell::kStates], values[cell::kValues], results[cell::kResults];

    __device__ inline bool is_inside(int step) const { return exists && step < length; }
    __device__ inline int time(int step, int d) const {
      return d == 1 && step < length ? length - 1 - step : step;
    }
  };

  template <class T, class F>
  struct run {
    const recurrence_shape& s;
    const F& f;
    float* const memory;
    T* const exchange;
    int* const counters;
    int part, group, d;
    uint4 held[C::kHeld > 0 ? C::kHeld : 1][C::kRowTiles][2];
    element own[kElements];

    __device__ inline run(const recurrence_shape& s, const F& f, float* memory, T* exchange,
                          int* counters)
        : s(s), f(f), memory(memory), exchange(exchange), counters(counters) {
      const int block = blockIdx.x;
      part = block % s.parts;
      group = block / s.parts % s.first_groups;
      d = block / s.parts / s.first_groups;
    }

    __device__ inline int* counter() const { return counters + (d * s.groups + group) * 32; }
    __device__ inline T* row(int copy, int column) const {
      return exchange + ((long long)(copy * s.directions + d) * s.groups * kColumns +
                         group * kColumns + column) *
                            s.pitch;
    }
    __device__ inline uint4* in_shared(int chunk, int tile, int half) const {
      const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
      return reinterpret_cast<uint4*>(memory + kSums) +
             (((warp * kInShared + chunk) * C::kRowTiles + tile) * 2 + half) * 32 + lane;
    }

    // The block's matrix, once.
    __device__ inline uint4 weights(int chunk, int tile, int half) const {
      const int lane = threadIdx.x % 32, row = 16 * tile + 8 * half + lane / 4;
      const int unit = part * C::kUnits + row / C::kGates;
      const int depth = ((threadIdx.x / 32 * C::kChunks + chunk) * 4 + lane % 4) * kVector;
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
    __device__ inline void hold() {
#pragma unroll
      for (int j = 0; j < C::kHeld; ++j)
#pragma unroll
        for (int i = 0; i < C::kRowTiles; ++i)
#pragma unroll
          for (int half = 0; half < 2; ++half) held[j][i][half] = weights(j, i, half);
#pragma unroll 1
      for (int j = 0; j < kInShared; ++j)
#pragma unroll 1
        for (int i = 0; i < C::kRowTiles; ++i)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            *in_shared(j, i, half) = weights(C::kHeld + j, i, half);
    }

    // ---- a group of sequences
    __device__ inline void exchange_state(int copy, const element& e, int k, float value) const {
      T* const to = row(copy, e.at / kPitch) + k;
      if constexpr (C::kType == 2)
        *to = __uint_as_float(round_tf32(__float_as_uint(value)));
      else
        *to = T(value);
    }
    __device__ inline void begin() {
#pragma unroll
      for (int q = 0; q < kElements; ++q) {
        element& e = own[q];
        const int n = threadIdx.x + q * kThreads, column = n / C::kUnits, unit = n % C::kUnits;
        e.batch = group * kColumns + column;
        e.unit = part * C::kUnits + unit;
        e.at = column * kPitch + unit * C::kGates;
        e.exists = column < kColumns && e.batch < s.batch && e.unit < s.units;
        e.length = 0;
#pragma unroll
        for (float& state : e.states) state = 0;
        if (!e.exists) continue;
        int length[1];
        f.length(e.batch, length);
        e.length = length[0];
        f.before(d, e.batch, e.unit, e.states);
        if constexpr (!C::kGradient) exchange_state(0, e, e.unit, e.states[0]);
      }
      // What no unit writes, and every product reads.
      if (part == s.parts - 1)
        for (int n = threadIdx.x; n < 2 * kColumns * (s.pitch - s.depth); n += kThreads) {
          const int column = n / (s.pitch - s.depth);
          row(column / kColumns, column % kColumns)[s.depth + n % (s.pitch - s.depth)] = T(0.f);
        }
      arrive(counter());
    }
    __device__ inline void read(int step) {
#pragma unroll
      for (element& e : own)
        if (e.is_inside(step)) f.read(d, e.batch, e.unit, e.time(step, d), step, e.values);
      // Here, while others arrive: a compiler would move the loads to where they are used.
#pragma unroll
      for (element& e : own)
#pragma unroll
        for (float& value : e.values) asm volatile("" : "+f"(value));
    }

    // The sums of the block's warps, each in its own place.
    __device__ inline void product(int copy) const {
      const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
      const T* const from = row(copy, g) + (warp * C::kChunks * 4 + t) * kVector;
      float* const to = memory + (warp * kColumns + 2 * t) * kPitch + g;
      uint4 right[C::kAhead][C::kPass];
      float sums[C::kRowTiles][C::kPass][4];
      const auto load = [&](int n) {
#pragma unroll
        for (int p = 0; p < C::kPass; ++p)
          right[n % C::kAhead][p] =
              load_exchanged(from + (long long)(n / C::kChunks * C::kPass + p) * 8 * s.pitch +
                             n % C::kChunks * 4 * kVector);
      };
#pragma unroll
      for (int n = 0; n < C::kAhead && n < kLoads; ++n) load(n);
#pragma unroll
      for (int n = 0; n < kLoads; ++n) {
        const int j = n % C::kChunks, pass = n / C::kChunks;
        if (j == 0)
#pragma unroll
          for (int i = 0; i < C::kRowTiles; ++i)
#pragma unroll
            for (int p = 0; p < C::kPass; ++p)
#pragma unroll
              for (float& sum : sums[i][p]) sum = 0;
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
        if (j == C::kChunks - 1)
#pragma unroll
          for (int i = 0; i < C::kRowTiles; ++i)
#pragma unroll
            for (int p = 0; p < C::kPass; ++p)
#pragma unroll
              for (int e = 0; e < 4; ++e)
                to[((pass * C::kPass + p) * 8 + e % 2) * kPitch + 16 * i + 8 * (e / 2)] =
                    sums[i][p][e];
      }
    }
    __device__ inline void add_up(const element& e, float* sums) const {
#pragma unroll
      for (int gate = 0; gate < C::kGates; ++gate) sums[gate] = 0;
#pragma unroll
      for (int warp = 0; warp < C::kWarps; ++warp) {
        const float* const from = memory + warp * kColumns * kPitch + e.at;
        if constexpr (C::kGates == 4) {
          const float4 v = *reinterpret_cast<const float4*>(from);
          sums[0] += v.x, sums[1] += v.y, sums[2] += v.z, sums[3] += v.w;
        } else {
#pragma unroll
          for (int gate = 0; gate < C::kGates; ++gate) sums[gate] += from[gate];
        }
      }
    }

    // The units' share of a step; `copy` is where their states go.
    __device__ inline void cells(int step, int copy, bool has_sums) {
#pragma unroll
      for (element& e : own) {
        if (!e.exists) continue;
        float sums[C::kGates];
        if (has_sums)
          add_up(e, sums);
        else
#pragma unroll
          for (float& sum : sums) sum = 0;
        if (step < 0) {
          cell::finish(sums, e.states);
          continue;
        }
        float exchanged[cell::kExchanged];
        cell::template take<T>(s, e.is_inside(step), sums, e.values, e.states, e.results,
                               exchanged);
#pragma unroll
        for (int k = 0; k < cell::kExchanged; ++k)
          exchange_state(copy, e, k * s.units + e.unit, exchanged[k]);
      }
    }
    __device__ inline void store(int step) const {
#pragma unroll
      for (const element& e : own)
        if (e.exists) f.store(d, e.batch, e.unit, e.time(step, d), e.results);
    }

    // All steps of the group. A gradient's last product is of what its first step has left.
    __device__ inline void steps() {
      const int rounds = s.steps + (C::kGradient ? 1 : 0);
#pragma unroll 1
      for (int n = 0; n < rounds; ++n) {
        const int step = C::kGradient ? s.steps - 1 - n : n;
        const int following = C::kGradient ? step - 1 : step + 1;
        const bool has_sums = !C::kGradient || n > 0;
        if (has_sums) {
          wait(counter(), (n + 1) * s.parts);
          product(n % 2);
          __syncthreads();
        }
        cells(step, (n + 1) % 2, has_sums);
        if (n + 1 < rounds) arrive(counter());
        if (step >= 0) store(step);
        if (following >= 0 && following < s.steps) read(following);
      }
#pragma unroll
      for (element& e : own) {
        if (!e.exists) continue;
        if (e.length <= 0)
#pragma unroll
          for (float& state : e.states) state = 0;
        f.after(d, e.batch, e.unit, e.states);
      }
    }

    __device__ inline void all() {
      const int first = C::kGradient ? s.steps - 1 : 0;
      begin();
      hold();
      while (true) {
        if (s.steps > 0) read(first);
        steps();
        group += s.first_groups;
        if (group >= s.groups) return;
        __syncthreads();  // sums have been read
        begin();
      }
    }
  };
};

template <class Length, class Weight, class Before, class Read, class Store, class After>
struct recurrence_functions {
  const Length& length;
  const Weight& weight;
  const Before& before;
  const Read& read;
  const Store& store;
  const After& after;
};

template <class C, class T, class Length, class Weight, class Before, class Read, class Store,
          class After>
__device__ inline void recurrence_sm80(float* memory, T* exchange, int* counters,
                                       const recurrence_shape& shape, const Length& length,
                                       const Weight& weight, const Before& before, const Read& read,
                                       const Store& store, const After& after) {
  using functions = recurrence_functions<Length, Weight, Before, Read, Store, After>;
  const functions f{length, weight, before, read, store, after};
  typename recurrence_block<C>::template run<T, functions> run(shape, f, memory, exchange,
                                                               counters);
  run.all();
}
