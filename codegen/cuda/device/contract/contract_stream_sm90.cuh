#pragma once
// contract_stream_sm90<Config>(left, right, parts, stamps, shape, store), or
// contract_stream_sm90<Config>(left, right, out, parts, stamps, shape, rows, apply): contract_sm90
// whose tiles' steps are dealt evenly. A worker (a cluster) has as many neighbouring steps of the
// sums over k of all tiles as any other, one tile's behind another's, and makes them from the last
// to the first:
//
//   tile       0           1           2
//   steps   0 1 2 3 4 | 0 1 2 3 4 | 0 1 2 3 4
//   worker  0 0 0 0 1   1 1 1 2 2   2 2 3 3 3
//
// The worker of a tile's last step finishes it: it adds the parts of those before it to its own, in
// their order, and stores the result. A worker's part of a tile that another one finishes is the
// first thing that it makes, and it waits only for workers with lower numbers, which start no
// later: so all come to an end on any number of SMs.
//
//   parts    accumulators, as threads hold them: [block][group][4 neighbours][thread]
//   stamps   [block][group]: whether the part lies there
//
// The workspace comes as it is, so that a part is stamped with a number of 64 bits which says which
// launch made it, and which is taken away by the only one who waits for it: no stamp is left by a
// launch that has ended, and none of one that was cut off is like that of another.

#include "codegen/cuda/device/contract/contract_shape_sm90.cuh"
#include "codegen/cuda/device/contract/contract_sm90.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"

using contract_stream_shape = contract_shape;

__device__ inline long long stamp_of_launch() {
  unsigned long long launch;
  asm volatile("mov.u64 %0, %%gridid;" : "=l"(launch));
  return static_cast<long long>((launch ^ 0x6b696c6e'73746d70) * 0x9e3779b97f4a7c15);
}
__device__ inline void put_stamp(long long* at, long long stamp) {
  asm volatile("st.release.gpu.global.s64 [%0], %1;" ::"l"(at), "l"(stamp) : "memory");
}
__device__ inline void take_stamp(long long* at, long long stamp) {
  long long found;
  do asm volatile("ld.acquire.gpu.global.s64 %0, [%1];" : "=l"(found) : "l"(at) : "memory");
  while (found != stamp);
  *at = 0;
}

template <class T, class Output>
struct stream_output {
  using C = typename T::config;
  using value = typename C::accumulator;
  struct alignas(16) four {
    value v[4];
  };
  static constexpr int kFoursOfBlock = T::kColumns / 8, kFours = T::kBlocks * kFoursOfBlock;

  Output output;
  four* parts;
  long long* stamps;

  static __device__ inline int slot(int worker, unsigned rank, unsigned group) {
    return (worker * C::kCluster + static_cast<int>(rank)) * T::kGroups + static_cast<int>(group);
  }
  __device__ inline four* part(int slot, unsigned thread) const {
    return parts + static_cast<long long>(slot) * (128 * kFours) + thread;
  }

  __device__ inline void put(const typename T::accumulators& acc, int slot, unsigned group,
                             unsigned thread) const {
    four* const to = part(slot, thread);
#pragma unroll
    for (int i = 0; i < T::kBlocks; ++i)
#pragma unroll
      for (int f = 0; f < kFoursOfBlock; ++f) {
        const value* from = acc[i] + 4 * f;
        to[(i * kFoursOfBlock + f) * 128] = {{from[0], from[1], from[2], from[3]}};
      }
    __threadfence();
    named_barrier_sync(1 + group, 128);
    if (thread == 0) put_stamp(stamps + slot, stamp_of_launch());
  }

  __device__ inline void add(typename T::accumulators& acc, int slot, unsigned group,
                             unsigned thread) const {
    if (thread == 0) take_stamp(stamps + slot, stamp_of_launch());
    named_barrier_sync(1 + group, 128);
    const four* const from = part(slot, thread);
    constexpr int kAtOnce = kFours % 4 == 0 ? 4 : kFours % 2 == 0 ? 2 : 1;  // registers are few
#pragma unroll
    for (int first = 0; first < kFours; first += kAtOnce) {
      four read[kAtOnce];
#pragma unroll
      for (int f = 0; f < kAtOnce; ++f) read[f] = from[(first + f) * 128];
#pragma unroll
      for (int f = 0; f < kAtOnce; ++f)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          acc[(first + f) / kFoursOfBlock][(first + f) % kFoursOfBlock * 4 + e] += read[f].v[e];
    }
  }

  __device__ inline void operator()(typename T::accumulators& acc, const contract_shape& s,
                                    const typename T::place& p, int group_left, int group_right,
                                    unsigned char* memory, unsigned char* staging, unsigned group,
                                    unsigned thread, unsigned rank) const {
    if (p.steps == 0) return;
    if (p.first_step + p.steps < s.k_steps)
      return put(acc, slot(p.worker, rank, group), group, thread);
    const int first = p.first_of_worker - p.first_step;  // of the tile, among all steps
    for (int worker = p.worker, from = p.first_of_worker; from > first;) {
      from = T::first_step_of(s, --worker);
      add(acc, slot(worker, rank, group), group, thread);
    }
    output(acc, s, p, group_left, group_right, memory, staging, group, thread, rank);
  }
  __device__ inline void finish(unsigned thread) const { output.finish(thread); }
};

template <class T, class Part, class Output>
__device__ inline void contract_stream(const tensor_map& left, const tensor_map& right, Part* parts,
                                       long long* stamps, const contract_shape& s, Output output) {
  using streamed = stream_output<T, Output>;
  T::run(left, right, s,
         streamed{output, reinterpret_cast<typename streamed::four*>(parts), stamps});
}

template <class C, class Part, class Store>
__device__ inline void contract_stream_sm90(const tensor_map& left, const tensor_map& right,
                                            Part* parts, long long* stamps,
                                            const contract_shape& shape, const Store& store) {
  using output = typename contract<C>::template staged_output<Store>;
  contract_stream<contract<C>>(left, right, parts, stamps, shape, output{store});
}

template <class C, class Part, class Rows, class Apply>
__device__ inline void contract_stream_sm90(const tensor_map& left, const tensor_map& right,
                                            const tensor_map& out, Part* parts, long long* stamps,
                                            const contract_shape& shape, const Rows& rows,
                                            const Apply& apply) {
  using send = typename contract<C>::send_matrix;
  using output = typename contract<C>::template direct_output<send, Rows, Apply>;
  contract_stream<contract<C>>(left, right, parts, stamps, shape, output{{out}, rows, apply});
}
