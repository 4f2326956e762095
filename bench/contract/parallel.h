// A loop over all cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace kiln::bench {

// Runs body(item, thread) for items 0 … count - 1, each once, on `threads` threads.
template <typename Body>
void ParallelFor(int64_t count, int threads, const Body& body) {
  std::atomic<int64_t> next = 0;
  const auto work = [&](int thread) {
    for (int64_t item = next++; item < count; item = next++) body(item, thread);
  };
  const int used = static_cast<int>(std::clamp<int64_t>(count, 1, std::max(1, threads)));
  std::vector<std::thread> others;
  for (int thread = 1; thread < used; ++thread) others.emplace_back(work, thread);
  work(0);
  for (std::thread& other : others) other.join();
}

inline int Cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

}  // namespace kiln::bench
