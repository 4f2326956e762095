#pragma once
// attention_loaded_sm90<Config>(memory, shape, query, query_place, query_piece, key, …, value, …,
// score, inside, factor, limits, weight, random, finish, rows, first, store, store_place,
// store_piece): attention_sm90 for operands and results that tensor maps cannot read or write, as
// they lie in pages or one sequence behind another. query, key, value and store are those of
// attention_sm80 (attention_sm80.cuh), which start asynchronous copies; here for rows that lie
// badly alone. Beside them, with numbers of the index type:
//
//   name_place(batch, row, result out)   the element that the row begins with; -1: it is zeroes
//                                        (is stored nowhere); -2: name itself moves it, by pieces
//   name_piece(to, place, column)        starts the copy of 8 elements of such a row, or writes
//                                        zeroes; of the result name_piece(values, place, column)
//
//   producer group      two warps copy q and k, two copy v, each 16 rows of a block at a time, into
//                       the places where tensor maps would put them (128-byte rows, swizzled); each
//                       thread says so once its copies are there: when it has started the next, or
//                       before it waits for room, so that keys do not wait for values
//   consumer groups     as before; results go from the staging to memory piece by piece
//
// Where a row lies is a chain of loads (a length, an entry of a page table). A lane finds the place
// of one row, for the block that comes next while this one's copies are under way, and those that
// copy the row get it by a shuffle. A thread that waited for its copies orders them before wgmma,
// which reads by the async proxy, with a fence of its own.

#include "codegen/cuda/device/attention/attention_rows.cuh"
#include "codegen/cuda/device/attention/attention_sm90.cuh"
#include "codegen/cuda/device/attention/panels.cuh"
#include "codegen/cuda/device/ptx/copy.cuh"
#include "codegen/cuda/device/ptx/copy_async.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"
#include "codegen/cuda/device/ptx/tma.cuh"

using attention_loaded_shape = attention_shape;

template <class Place, class Piece, class Apart>
struct attention_moves {
  const Place& place;
  const Piece& piece;
  const Apart& apart;
};

template <int is_wide>
struct attention_place {
  using number = int;
};
template <>
struct attention_place<1> {
  using number = long long;
};

// The places of a warp's part of `rows` rows of `columns` elements: of every second 16 rows, two
// times 16 to a number of each lane.
template <class C, int rows, int columns, bool has_apart>
struct attention_row_places {
  using number = typename attention_place<C::kWidePlaces>::number;
  using shape = panels<rows, columns>;
  static constexpr int kSixteens = rows / 16, kOwn = (kSixteens + 1) / 2, kHeld = (kOwn + 1) / 2;
  static_assert(kHeld <= 3);
  // No array: its elements would be chosen by address, and be in memory.
  number held_0, held_1, held_2;

  __device__ inline number held(int h) const { return h == 0 ? held_0 : h == 1 ? held_1 : held_2; }

  static __device__ inline int lane() { return threadIdx.x % 32; }
  static __device__ inline int first_of(int i) { return 16 * (int(threadIdx.x / 32 % 2) + 2 * i); }

  template <class Place>
  __device__ inline void find(const Place& place, int batch, int first, int seen_end, int none) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int row = first + first_of(2 * h + lane() / 16) + lane() % 16;
      number result[1];
      place(batch, row < seen_end ? row : none, result);
      if (h == 0) held_0 = result[0];
      if (h == 1) held_1 = result[0];
      if (h == 2) held_2 = result[0];
    }
  }
  template <class Moves>
  __device__ inline void copy(const Moves& move, int to, int batch, int first, int seen_end,
                              int none) const {
    bool apart = false;
#pragma unroll
    for (int h = 0; h < kHeld; ++h) apart |= held(h) == -2;
    if (has_apart && __any_sync(~0u, apart)) {
#pragma unroll 1
      for (int n = lane(); n < kOwn * 16 * shape::kOfRow; n += 32) {
        const int row = first_of(n / (16 * shape::kOfRow)) + n / shape::kOfRow % 16;
        const int chunk = n % shape::kOfRow, at = first + row;
        if (row < rows)
          move.apart(to + shape::at(row, chunk), batch, at < seen_end ? at : none, chunk * 8);
      }
      return;
    }
    // One after the other: places of all of them at once would take too many registers.
#pragma unroll 1
    for (int i = 0; i < kOwn; ++i) {
      if (kSixteens % 2 != 0 && first_of(i) >= rows) break;
      const number own = held(i / 2);
      const int block = to + first_of(i) * (shape::kChunks * 8);
#pragma unroll
      for (int n = 0; n < shape::kOfRow / 2; ++n) {
        const int at = n * 32 + lane(), row = at / shape::kOfRow, chunk = at % shape::kOfRow;
        move.piece(block + shape::at(row, chunk), __shfl_sync(~0u, own, i % 2 * 16 + row),
                   chunk * 8);
      }
    }
  }
};

// The asynchronous copies that 64 threads have started, and the barriers that they tell when these
// are there.
struct attention_copies {
  static constexpr int kThreads = 64;
  unsigned start;        // address of the shared memory
  int from;              // and its element of `memory`
  unsigned pending = 0;  // the barrier of what was started last

  __device__ inline bool leads() const { return threadIdx.x % kThreads == 0; }
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
  // Waits for room, after all own copies where there is none yet: consumers may be waiting for
  // these before they make room. Lanes that came first would ask again and again, and the leader
  // would have no turn.
  __device__ inline void wait(unsigned barrier, unsigned parity) {
    __syncwarp();
    if (mbarrier_try(barrier, parity)) return;
    settle();
    mbarrier_wait(barrier, parity);
  }
  // Is called after commit_async(): tells of the group before it once that is there.
  __device__ inline void started(unsigned full) {
    if (pending != 0) {
      wait_async<1>();
      say(pending);
    }
    pending = full;
  }
  __device__ inline void end(unsigned full) {
    settle();
    say(full);
  }
  __device__ inline int element(unsigned to) const { return from + int(to - start) / 2; }
};

template <class C, class Query, class Key>
struct attention_key_copies : attention_copies {
  using place = typename attention<C>::place;
  using range = typename attention<C>::range;
  static constexpr bool kHasKeys = true, kHasValues = false;
  const Query& query;
  const Key& key;
  const attention_shape& s;
  attention_row_places<C, C::kKeys, C::kDepth, (C::kApart & 2) != 0> next = {};  // block's rows

  __device__ inline attention_key_copies(const attention_copies& copies, const Query& query,
                                         const Key& key, const attention_shape& s)
      : attention_copies(copies), query(query), key(key), s(s) {}
  __device__ inline void find(const place& p, int row) {
    next.find(key.place, p.batch, max(row, 0), s.keys, s.keys);
  }
  __device__ inline void begin(const place& p, const range& r) { find(p, (r.end - 1) * C::kKeys); }
  __device__ inline void keys(unsigned to, unsigned full, const place& p, int row) {
    next.copy(key, element(to), p.batch, row, s.keys, s.keys);
    commit_async();
    find(p, row - C::kKeys);
    started(full);
  }
  __device__ inline void queries(unsigned to, unsigned full, const place& p, int row) {
    attention_row_places<C, 64, C::kDepth, (C::kApart & 1) != 0> places;
    places.find(query.place, p.batch, row, s.queries, s.queries);
    places.copy(query, element(to), p.batch, row, s.queries, s.queries);
    commit_async();
    started(full);
  }
};

template <class C, class Value>
struct attention_value_copies : attention_copies {
  using place = typename attention<C>::place;
  using range = typename attention<C>::range;
  static constexpr bool kHasKeys = false, kHasValues = true;
  const Value& value;
  const attention_shape& s;
  int seen_end = 0;  // of the tile
  attention_row_places<C, C::kKeys, C::kWidth, (C::kApart & 4) != 0> next = {};

  __device__ inline attention_value_copies(const attention_copies& copies, const Value& value,
                                           const attention_shape& s)
      : attention_copies(copies), value(value), s(s) {}
  __device__ inline void find(const place& p, int row) {
    next.find(value.place, p.batch, max(row, 0), seen_end, s.keys);
  }
  __device__ inline void begin(const place& p, const range& r) {
    seen_end = C::kTails ? r.seen_end : s.keys;
    find(p, (r.end - 1) * C::kKeys);
  }
  __device__ inline void values(unsigned to, unsigned full, const place& p, int row) {
    next.copy(value, element(to), p.batch, row, seen_end, s.keys);
    commit_async();
    find(p, row - C::kKeys);
    started(full);
  }
};

template <class C, class Query, class Key, class Value>
struct attention_by_threads {
  static constexpr int kKeyThreads = 64, kValueThreads = 64, kQueryThreads = 64;
  static constexpr bool kHidesTails = true;
  const Query& query;
  const Key& key;
  const Value& value;
  attention_copies copies;
  const attention_shape& s;

  template <class Run>
  __device__ __forceinline__ void produce(unsigned thread, const Run& run) const {
    if (thread < kKeyThreads)
      run(attention_key_copies<C, Query, Key>(copies, query, key, s));
    else
      run(attention_value_copies<C, Value>(copies, value, s));
  }
};

// 64 by 64 results from the staging, a piece of 8 at a time: a thread has a piece of every 16th
// row.
template <class C, class T, class Store>
struct attention_to_memory {
  using number = typename attention_place<C::kWidePlaces>::number;
  T* memory;
  const attention_shape& s;
  const Store& put;
  unsigned start;
  int from;

  struct places {
    number of[4];
  };
  __device__ inline places find(int batch, int first_row) const {
    places p;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first_row + threadIdx.x % 128 / 8 + 16 * i;
      number result[1];
      put.place(batch, min(row, s.queries - 1), result);
      p.of[i] = row < s.queries ? result[0] : -1;
    }
    return p;
  }
  __device__ inline void wait(bool) const {}  // the group's barrier says that it has been read
  __device__ inline void store(bool, unsigned staging, int column, int first_row, int batch, int,
                               int, const places& p) const {
    const T* at = memory + from + int(staging - start) / 2;
    const int chunk = threadIdx.x % 8;
    if (column + chunk * 8 >= s.columns) return;
    bool apart = false;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = threadIdx.x % 128 / 8 + 16 * i;
      __align__(16) T values[8];
      copy<16>(values, at + row * 64 + (chunk ^ row % 8) * 8);
      put.piece(values, p.of[i], column + chunk * 8);
      apart |= p.of[i] == -2;
    }
    if constexpr ((C::kApart & 8) != 0) {
      if (!apart) return;
#pragma unroll 1
      for (int row = threadIdx.x % 128 / 8; row < min(64, s.queries - first_row); row += 16) {
        __align__(16) T values[8];
        copy<16>(values, at + row * 64 + (chunk ^ row % 8) * 8);
        put.apart(values, batch, first_row + row, column + chunk * 8);
      }
    }
  }
  __device__ inline void end(bool) const {}
};

template <class C, class T, class Query, class QueryPlace, class QueryPiece, class Key,
          class KeyPlace, class KeyPiece, class Value, class ValuePlace, class ValuePiece,
          class Score, class Inside, class Factor, class Limits, class Weight, class Random,
          class Finish, class Rows, class First, class Store, class StorePlace, class StorePiece>
__device__ inline void attention_loaded_sm90(
    T* memory, const attention_shape& shape, const Query& query, const QueryPlace& query_place,
    const QueryPiece& query_piece, const Key& key, const KeyPlace& key_place,
    const KeyPiece& key_piece, const Value& value, const ValuePlace& value_place,
    const ValuePiece& value_piece, const Score& score, const Inside& inside, const Factor& factor,
    const Limits& limits, const Weight& weight, const Random& random, const Finish& finish,
    const Rows& rows, const First& first, const Store& store, const StorePlace& store_place,
    const StorePiece& store_piece) {
  using functions =
      attention_functions<Score, Inside, Factor, Limits, Weight, Random, Finish, Rows, First>;
  using skeleton = attention<C>;
  using queries = attention_moves<QueryPlace, QueryPiece, Query>;
  using keys = attention_moves<KeyPlace, KeyPiece, Key>;
  using values = attention_moves<ValuePlace, ValuePiece, Value>;
  using results = attention_moves<StorePlace, StorePiece, Store>;
  static_assert(C::kBytes == skeleton::kBytes + 1024);
  const unsigned address = shared_address(memory), start = (address + 1023) & ~1023u;
  const int from = int(start - address) / 2;
  const queries of_q = {query_place, query_piece, query};
  const keys of_k = {key_place, key_piece, key};
  const values of_v = {value_place, value_piece, value};
  const results of_result = {store_place, store_piece, store};
  skeleton::run(
      start, attention_by_threads<C, queries, keys, values>{of_q, of_k, of_v, {start, from}, shape},
      attention_to_memory<C, T, results>{memory, shape, of_result, start, from}, nullptr, shape,
      functions{score, inside, factor, limits, weight, random, finish, rows, first});
}
