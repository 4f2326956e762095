#pragma once
// attention_loaded_sm90<Config>(memory, shape, query, key, value, score, inside, factor, limits,
// weight, finish, rows, first, store): attention_sm90 for operands and results that tensor maps
// cannot read or write, as they lie in pages or one sequence behind another. query, key, value and
// store are those of attention_sm80 (attention_sm80.cuh), and start asynchronous copies.
//
//   producer group      each of 128 threads copies its pieces of q, of a block of k or of v, into
//                       the places where tensor maps would put them (128-byte rows, swizzled), and
//                       says so once they are there: when it has started the next, or before it
//                       waits for room
//   consumer groups     as before; results go from the staging to memory piece by piece
//
// A thread that waited for its copies orders them before wgmma, which reads by the async proxy,
// with a fence of its own.
using attention_loaded_shape = attention_shape;

template <class C, class Query, class Key, class Value>
struct attention_by_threads {
  using skeleton = attention<C>;
  using place = typename skeleton::place;
  static constexpr int kThreads = 128;
  static constexpr bool kHidesTails = true;
  const Query& query;
  const Key& key;
  const Value& value;
  unsigned start;  // address of the shared memory
  int from;        // and its element of `memory`
  const attention_shape& s;
  int seen_end = 0;      // of the tile
  unsigned pending = 0;  // the barrier of what was started last

  __device__ inline bool leads() const { return threadIdx.x % kThreads == 0; }
  __device__ inline void begin(int seen) { seen_end = seen; }
  __device__ inline void say(unsigned barrier) const {
    fence_for_copies();
    mbarrier_arrive(barrier);
  }
  __device__ inline void settle() {
    if (pending == 0) return;
    wait_async<0>();
    say(pending);
    pending = 0;
  }
  // What consumers wait for may be what makes room here.
  __device__ inline void wait(unsigned barrier, unsigned parity) {
    if (mbarrier_try(barrier, parity)) return;
    settle();
    mbarrier_wait(barrier, parity);
  }
  __device__ inline void started(unsigned full) {
    commit_async();
    if (pending != 0) {
      wait_async<1>();
      say(pending);
    }
    pending = full;
  }
  template <int rows, int columns, class Load>
  __device__ inline void load(unsigned to, unsigned full, const Load& of, int batch, int row) {
    load_panels<rows, columns, kThreads, true>(from + int(to - start) / 2, threadIdx.x % kThreads,
                                               of, batch, row);
    started(full);
  }
  __device__ inline void keys(unsigned to, unsigned full, const place& p, int row) {
    load<C::kKeys, C::kDepth>(to, full, key, p.batch, row);
  }
  __device__ inline void values(unsigned to, unsigned full, const place& p, int row) {
    const auto seen = [&](int at, int batch, int key_row, int column) {
      value(at, batch, !C::kTails || key_row < seen_end ? key_row : s.keys, column);
    };
    load<C::kKeys, C::kWidth>(to, full, seen, p.batch, row);
  }
  __device__ inline void queries(unsigned to, unsigned full, const place& p, int row) {
    load<64, C::kDepth>(to, full, query, p.batch, row);
  }
  __device__ inline void end(unsigned full) {
    settle();
    say(full);
  }
};

// 64 by 64 results from the staging, a piece of 8 at a time.
template <class T, class Store>
struct attention_to_memory {
  T* memory;
  const attention_shape& s;
  const Store& put;
  unsigned start;
  int from;

  __device__ inline void wait(bool) const {}  // the group's barrier says that it has been read
  __device__ inline void store(bool, unsigned staging, int column, int first_row, int batch, int,
                               int) const {
    const T* at = memory + from + int(staging - start) / 2;
    const int thread = threadIdx.x % 128;
#pragma unroll 1
    for (int n = thread; n < 64 * 8; n += 128) {
      const int row = n / 8, chunk = n % 8;
      if (first_row + row >= s.queries || column + chunk * 8 >= s.columns) continue;
      __align__(16) T values[8];
      copy<16>(values, at + row * 64 + (chunk ^ row % 8) * 8);
      put(values, batch, first_row + row, column + chunk * 8);
    }
  }
  __device__ inline void end(bool) const {}
};

template <class C, class T, class Query, class Key, class Value, class Score, class Inside,
          class Factor, class Limits, class Weight, class Finish, class Rows, class First,
          class Store>
__device__ inline void attention_loaded_sm90(T* memory, const attention_shape& shape,
                                             const Query& query, const Key& key, const Value& value,
                                             const Score& score, const Inside& inside,
                                             const Factor& factor, const Limits& limits,
                                             const Weight& weight, const Finish& finish,
                                             const Rows& rows, const First& first,
                                             const Store& store) {
  using functions = attention_functions<Score, Inside, Factor, Limits, Weight, Finish, Rows, First>;
  using skeleton = attention<C>;
  static_assert(C::kBytes == skeleton::kBytes + 1024);
  const unsigned address = shared_address(memory), start = (address + 1023) & ~1023u;
  const int from = int(start - address) / 2;
  skeleton::run(start,
                attention_by_threads<C, Query, Key, Value>{query, key, value, start, from, shape},
                attention_to_memory<T, Store>{memory, shape, store, start, from}, shape,
                functions{score, inside, factor, limits, weight, finish, rows, first});
}
