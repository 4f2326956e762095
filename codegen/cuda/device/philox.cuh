#pragma once
// Philox4x32-10 (Salmon et al., SC11): word place % 4 of counter {place / 4, offset} under key
// seed.
__device__ inline long long philox(long long place, long long seed, long long offset) {
  const unsigned long long counter = (unsigned long long)(place) >> 2;
  unsigned c0 = unsigned(counter), c1 = unsigned(counter >> 32);
  unsigned c2 = unsigned(offset), c3 = unsigned((unsigned long long)(offset) >> 32);
  unsigned k0 = unsigned(seed), k1 = unsigned((unsigned long long)(seed) >> 32);
  for (int round = 0; round < 10; ++round) {
    const unsigned h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
    const unsigned h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
    c0 = h1 ^ c1 ^ k0;
    c1 = l1;
    c2 = h0 ^ c3 ^ k1;
    c3 = l0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const unsigned word = unsigned(place) & 3u;
  return (long long)(word == 0 ? c0 : word == 1 ? c1 : word == 2 ? c2 : c3);
}
