// Times of graphs on large tensors, in turns: what `bandwidth` and `attention` share.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/support/case_bench.h"

namespace kiln::bench {

struct Timing {
  double median = 0, low = 0, high = 0;  // microseconds; low and high are the quartiles
};

Timing Summarise(std::vector<double> times);
std::string Json(const Timing& timing);  // null where nothing was timed

// Microseconds that a call costs its thread; 0 where one fails. `device_time` is the call's own on
// the device: a batch is over after some milliseconds, so that no call waits for the queue.
double HostMicroseconds(testing::GpuDevice& device, const std::function<cudnnStatus_t()>& launch,
                        double device_time);

// Random numbers of a floating type.
struct RandomNumbers {
  double low = -1, high = 1;
  uint32_t seed = 1;
  size_t count = 1 << 21;  // then they repeat
};
void FillWithRandom(testing::GpuDevice& device, oracle::DType dtype, uint8_t* to, size_t bytes,
                    const RandomNumbers& numbers = {});

// Contents of inputs: a byte pattern that is an ordinary number in every floating type, or, where
// they have 16 bits, numbers from -1 to 1. Data that toggle cost power, and power costs clocks.
enum class Fill : uint8_t { kPattern, kRandom };

// Device memory of a large case, without host copies of it.
class LargeMemory {
 public:
  LargeMemory(testing::GpuDevice& device, const Case& c, int64_t workspace_bytes,
              Fill fill = Fill::kPattern);
  bool ok() const { return ok_; }
  const testing::Pack& pack() const { return pack_; }

 private:
  std::vector<testing::Buffer> buffers_;
  std::deque<std::array<uint8_t, 8>> scalars_;  // on the host
  testing::Pack pack_;
  bool ok_ = true;
};

// Runs one thing after the other, round by round. Before each the L2 is flushed by reading four
// times its size: what is left there is clean. After a fill it would hold dirty lines, whose
// writing back would be charged to whatever is timed next.
class Rounds {
 public:
  Rounds(testing::GpuDevice& device, const Cudnn& ours);

  struct Entry {
    std::function<cudnnStatus_t()> launch;
    std::vector<double> times = {};
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;  // after a failure it is not run again
  };
  // Three rounds warm up. Returns what the device says of it all.
  std::string Run(std::vector<Entry>& entries, int rounds);

 private:
  testing::GpuDevice& device_;
  const Case flush_case_;
  const LargeMemory flush_memory_;
  std::unique_ptr<CaseBench> flush_;
};

// A device and the libraries to compare on it.
struct Libraries {
  std::unique_ptr<testing::GpuDevice> device;
  std::unique_ptr<Cudnn> ours, nvidia;  // NVIDIA's may be absent

  // Prints what it found. Null, and the reason on stderr, where the device or ours is not there.
  static std::unique_ptr<Libraries> Open(const Options& options);
  size_t nvidia_version() const { return nvidia ? nvidia->version() : 0; }
};

// A graph in both libraries: checked at small extents first, then timed in turns on the same
// memory.
class Comparison {
 public:
  Comparison(const Libraries& libraries, const Options& options)
      : libraries_(libraries), options_(options), rounds_(*libraries.device, *libraries.ours) {}

  struct Graph {
    const Case &large, &small;
    const Case& for_nvidia;  // `small`, as far as NVIDIA's library gives out what it says
    Fill fill = Fill::kPattern;
    std::function<cudnnStatus_t()> other = {};  // is timed, too, between the two
  };
  struct Times {
    std::string error, nvidia_error;
    Timing ours, other, nvidia;
  };
  Times Measure(const Graph& graph);

 private:
  const Libraries& libraries_;
  const Options& options_;
  Rounds rounds_;
};

}  // namespace kiln::bench
