// Times of plans by events of the driver, one launch at a time, with the L2 flushed before each.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/support/case_bench.h"
#include "tests/support/device_memory.h"

namespace kiln::bench {

struct Timing {
  double median = 0, p10 = 0, p90 = 0;  // microseconds; median 0: not timed
};
Timing Summarise(std::vector<double> times);

// One plan as the clock sees it. `launch` gives an error in words, or empty.
struct Runner {
  std::function<std::string()> launch;
  std::string error;          // what ended its timing
  std::vector<double> times;  // microseconds
  double Median() const { return Summarise(times).median; }
};

class Stopwatch {
 public:
  // Null where our library cannot flush.
  static std::unique_ptr<Stopwatch> Make(testing::GpuDevice& device, const testing::Cudnn& ours,
                                         std::string* error);
  // One time; 0, and runner.error says why, where the launch failed.
  double Once(Runner& runner);

  // A first look: two runs to warm up, then `repeats` times; none of them where the second run took
  // more than three times `best`, and that run's time then stands for all.
  void Look(Runner& runner, int repeats, double* best);
  // In turns, so that clock and heat are the same for all; times so far are dropped. `rest_us`
  // passes before each launch.
  void Alternate(const std::vector<Runner*>& runners, int rounds, double rest_us);

 private:
  Stopwatch(testing::GpuDevice& device, testing::Case flush_case)
      : device_(device), flush_case_(std::move(flush_case)) {}

  testing::GpuDevice& device_;
  testing::Case flush_case_;
  std::unique_ptr<CaseBench> flush_;
  std::vector<testing::Buffer> buffers_;
};

}  // namespace kiln::bench
