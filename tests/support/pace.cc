#include "tests/support/pace.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <map>
#include <string>

namespace kiln::testing {
namespace {

// Milliseconds for work like a compiler's that has nothing of Kiln's: short strings into a map. The
// least of five.
double YardstickMilliseconds() {
  constexpr int kStrings = 10000;
  double least = std::numeric_limits<double>::infinity();
  for (int run = 0; run < 5; ++run) {
    const double begin = ThreadSeconds();
    std::map<std::string, std::string> map;
    for (int i = 0; i < kStrings; ++i)
      map.emplace(std::to_string(i * 7919 % 10007),
                  std::string(40, static_cast<char>('a' + i % 7)));
    if (map.size() != kStrings) std::abort();
    least = std::min(least, 1e3 * (ThreadSeconds() - begin));
  }
  return least;
}

}  // namespace

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double Pace() {
  constexpr double kUsual = 2;
  return std::max(1.0, YardstickMilliseconds() / kUsual);
}

}  // namespace kiln::testing
