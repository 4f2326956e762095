#pragma once
// Words that GPUs of a group read in one another's memory, and waits that end. ir/peers.h has the
// layout of a buffer: for each number two words, of even and odd calls, of the f32 in the low half
// and the number of its call in the high one. So a word that carries the awaited call carries its
// number too, and no flag beside it has to be ordered with it.
//
// PTX ISA "ld.acquire", "st.release" of system scope, and "%globaltimer".

struct peer_shape {
#define WIDE(name) long long name;
#define NUMBER(name) int name;
#include "codegen/cuda/device/peers/peers.def"
};

__device__ inline unsigned long long peer_load(const unsigned long long* word) {
  unsigned long long v;
  asm volatile("ld.acquire.sys.global.b64 %0, [%1];" : "=l"(v) : "l"(word) : "memory");
  return v;
}
__device__ inline int peer_load(const int* flag) {
  int v;
  asm volatile("ld.acquire.sys.global.b32 %0, [%1];" : "=r"(v) : "l"(flag) : "memory");
  return v;
}
__device__ inline long long peer_load(const long long* flag) {
  return (long long)peer_load((const unsigned long long*)flag);
}

__device__ inline void peer_store(unsigned long long* word, unsigned long long v) {
  asm volatile("st.release.sys.global.b64 [%0], %1;" ::"l"(word), "l"(v) : "memory");
}
__device__ inline void peer_store(int* flag, int v) {
  asm volatile("st.release.sys.global.b32 [%0], %1;" ::"l"(flag), "r"(v) : "memory");
}
__device__ inline void peer_store(long long* flag, long long v) {
  peer_store((unsigned long long*)flag, (unsigned long long)v);
}

__device__ inline unsigned long long peer_word(float value, unsigned call) {
  return (unsigned long long)call << 32 | __float_as_uint(value);
}
__device__ inline unsigned peer_call(unsigned long long word) { return (unsigned)(word >> 32); }
__device__ inline float peer_value(unsigned long long word) {
  return __uint_as_float((unsigned)word);
}

// A wait of at most `limit` nanoseconds. Where an earlier wait was too long and nobody has taken
// the fault yet, it is a short one: a peer that is gone costs the limit once.
struct peer_clock {
  static constexpr long long kShort = 20000;
  const int* fault;
  long long limit, began = 0;
  bool has_asked = false;

  __device__ inline bool is_over() {
    long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)::"memory");
    if (began == 0) began = now;
    if (!has_asked && now - began > kShort) {
      has_asked = true;
      if (peer_load(fault) != 0) limit = 0;
    }
    return now - began > limit;
  }
};
