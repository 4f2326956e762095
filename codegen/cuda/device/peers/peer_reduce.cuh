#pragma once
// peer_reduce<Config>(fault, buffer…, shape, read, store): sums over GPUs, a thread for each
// number.
//
//   own call      1 + the later of the calls in the two words of the own buffer
//   publish       own word of that call's parity <- number, call
//   wait          until the word of each other rank carries the call; all are read side by side
//   sum           in the order of the ranks, so that all GPUs have the same bits
//
// Buffers stand in the order of the ranks, kRanks of them; each is read by all and written by its
// own rank alone. After the limit the sum is NaN, and `fault` says which rank is missing.
//
// Functions: read(i, number out), store(i, sum).

#include "codegen/cuda/device/peers/peer_words.cuh"

template <int kRanks>
struct peer_buffers {
  unsigned long long* words[kRanks];
  int size = 0;
  __device__ inline void add(float* buffer) { words[size++] = (unsigned long long*)buffer; }
  template <class T>
  __device__ inline void add(const T&) {}  // what stands behind the buffers
};

template <int kPlace, class First, class... Rest>
__device__ inline const auto& peer_argument(const First& first, const Rest&... rest) {
  if constexpr (kPlace == 0)
    return first;
  else
    return peer_argument<kPlace - 1>(rest...);
}

template <class C, class... Arguments>
__device__ inline void peer_reduce(int* fault, const Arguments&... arguments) {
  peer_buffers<C::kRanks> buffers;
  (buffers.add(arguments), ...);
  const peer_shape& s = peer_argument<C::kRanks>(arguments...);
  const auto& read = peer_argument<C::kRanks + 1>(arguments...);
  const auto& store = peer_argument<C::kRanks + 2>(arguments...);

  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= s.count) return;
  float number[1];
  read(i, number);
  const long long at = 2 * (s.first + i);
  unsigned long long* own = nullptr;
#pragma unroll
  for (int r = 0; r < C::kRanks; ++r)
    if (r == s.rank) own = buffers.words[r] + at;
  const unsigned even = peer_call(peer_load(own)), odd = peer_call(peer_load(own + 1));
  const unsigned call = 1 + ((int)(even - odd) > 0 ? even : odd);
  const unsigned long long published = peer_word(number[0], call);
  peer_store(own + call % 2, published);

  unsigned long long words[C::kRanks];
#pragma unroll
  for (int r = 0; r < C::kRanks; ++r) words[r] = r == s.rank ? published : ~published;
  peer_clock clock{fault, s.limit};
  bool is_complete;
  do {
    is_complete = true;
#pragma unroll
    for (int r = 0; r < C::kRanks; ++r)
      if (peer_call(words[r]) != call) words[r] = peer_load(buffers.words[r] + at + call % 2);
#pragma unroll
    for (int r = 0; r < C::kRanks; ++r) is_complete = is_complete && peer_call(words[r]) == call;
  } while (!is_complete && !clock.is_over());

  float sum = peer_value(words[0]);
#pragma unroll
  for (int r = 1; r < C::kRanks; ++r) sum += peer_value(words[r]);
  if (!is_complete) {
    sum = __int_as_float(0x7fc00000);
#pragma unroll
    for (int r = C::kRanks - 1; r >= 0; --r)
      if (peer_call(words[r]) != call) peer_store(fault, C::kFirstRankFault + r);
  }
  store(i, sum);
}
