#pragma once
// Philox4x32-7 (Salmon et al., SC11): philox_words(counter, seed, offset) has the four words of
// counter {counter, offset} under key seed. Place p of a tensor has word p % 4 of counter p / 4, so
// that four neighbours share one call: philox(place, seed, offset) is that word alone.
struct random_words {
  unsigned x, y, z, w;
};
__device__ inline random_words philox_words(unsigned long long counter, long long seed,
                                            long long offset) {
  unsigned c0 = unsigned(counter), c1 = unsigned(counter >> 32);
  unsigned c2 = unsigned(offset), c3 = unsigned((unsigned long long)(offset) >> 32);
  unsigned k0 = unsigned(seed), k1 = unsigned((unsigned long long)(seed) >> 32);
  for (int round = 0; round < 7; ++round) {
    const unsigned h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
    const unsigned h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
    c0 = h1 ^ c1 ^ k0;
    c1 = l1;
    c2 = h0 ^ c3 ^ k1;
    c3 = l0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}
__device__ inline long long philox(long long place, long long seed, long long offset) {
  const random_words words = philox_words((unsigned long long)(place) >> 2, seed, offset);
  const unsigned word = unsigned(place) & 3u;
  return (long long)(word == 0 ? words.x : word == 1 ? words.y : word == 2 ? words.z : words.w);
}
