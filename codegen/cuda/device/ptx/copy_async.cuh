#pragma once
// copy_async<bytes>(to, from, valid): starts a copy of 4, 8 or 16 bytes from global to shared
// memory that goes past registers (and, of 16, past L1), or writes zeros without reading where
// `valid` is false. commit_async() closes a group of them, wait_async<n>() waits until at most n
// groups of this thread are under way; a barrier then shows them to the others. PTX ISA "cp.async",
// sm_80 on.
template <int bytes = 16, class T>
__device__ inline void copy_async(T* to, const T* from, bool valid) {
  const unsigned at = unsigned(__cvta_generic_to_shared(to));
  const int read = valid ? bytes : 0;
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(read)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(at), "l"(from), "r"(read),
                 "n"(bytes)
                 : "memory");
}
__device__ inline void commit_async() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int groups>
__device__ inline void wait_async() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}
