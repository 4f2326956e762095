#pragma once
// Barriers in shared memory, clusters and named barriers, sm_90 on. PTX ISA "mbarrier", "barrier".
// Arrivals have their default scope (.cta), remote ones too: only the async proxy touches the tiles
// that they guard, and a release of cluster scope costs a third of the speed.
__device__ inline unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
__device__ inline bool elect_one() {
  unsigned elected;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 %0, 1, 0, p; }"
               : "=r"(elected));
  return elected != 0;
}
__device__ inline void mbarrier_init(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
__device__ inline void mbarrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives, and says how many bytes of loads the phase waits for.
__device__ inline void mbarrier_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ inline void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// The barrier at the same place of another block of the cluster.
__device__ inline void mbarrier_arrive_at(unsigned barrier, unsigned block) {
  asm volatile(
      "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1;"
      "  mbarrier.arrive.shared::cluster.b64 _, [remote]; }" ::"r"(barrier),
      "r"(block)
      : "memory");
}
__device__ inline void mbarrier_wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra.uni ready;\n"
      "bra.uni again;\n"
      "ready: }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// True if the phase is over; does not wait much.
__device__ inline bool mbarrier_try(unsigned barrier, unsigned parity) {
  unsigned done;
  asm volatile(
      "{ .reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.b32 %0, 1, 0, p; }"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}
// The barrier of a cluster, in two halves for work in between. All threads of a warp are together
// where they arrive, and where they wait.
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
__device__ inline void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}
__device__ inline unsigned cluster_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// 16 bytes to the same place of another block of the cluster, whose barrier counts them when they
// are there; who waits for it by mbarrier_wait_in_cluster sees them. PTX ISA "st.async".
__device__ inline void store_to_block(unsigned address, const uint4& v, unsigned barrier,
                                      unsigned block) {
  asm volatile(
      "{ .reg .b32 remote, counts; mapa.shared::cluster.u32 remote, %0, %6;"
      "  mapa.shared::cluster.u32 counts, %5, %6;"
      "  st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
      "[remote], {%1, %2, %3, %4}, [counts]; }" ::"r"(address),
      "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier), "r"(block)
      : "memory");
}
__device__ inline void mbarrier_wait_in_cluster(unsigned barrier, unsigned parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@done bra.uni ready;\n"
      "bra.uni again;\n"
      "ready: }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// 16 bytes at the same place of another block of the cluster.
__device__ inline uint4 load_from_block(unsigned address, unsigned block) {
  uint4 v;
  asm volatile(
      "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %4, %5;"
      "  ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [remote]; }"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "r"(address), "r"(block)
      : "memory");
  return v;
}
__device__ inline void named_barrier_sync(unsigned id, unsigned threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void named_barrier_arrive(unsigned id, unsigned threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
