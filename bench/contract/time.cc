// The L2 is flushed by reading four times its size, so that no dirty line is left whose writing
// back would be charged to the next launch. The launch is queued while that goes on, so that the
// host's time is not measured.
#include "bench/contract/time.h"

#include <unistd.h>

#include <algorithm>

#include "tests/support/oracle/tensor.h"

namespace kiln::bench {

Timing Summarise(std::vector<double> times) {
  if (times.empty()) return {};
  std::ranges::sort(times);
  const auto at = [&](double q) {
    return times[static_cast<size_t>(q * static_cast<double>(times.size() - 1) + 0.5)];
  };
  return {.median = at(0.5), .p10 = at(0.1), .p90 = at(0.9)};
}

std::unique_ptr<Stopwatch> Stopwatch::Make(testing::GpuDevice& device, const testing::Cudnn& ours,
                                           std::string* error) {
  std::unique_ptr<Stopwatch> watch(
      new Stopwatch(device, ParseOrExit("flush: reduce_add(x:f32[65536,1024]) -> y:f32[1,1]")));
  watch->flush_ = CaseBench::Make(ours, watch->flush_case_, error);
  if (!watch->flush_) return nullptr;
  testing::Pack pack;
  for (const auto& tensor : watch->flush_case_.tensors) {
    const auto bytes = static_cast<size_t>(4 * oracle::Count(tensor.dims));
    auto& buffer = watch->buffers_.emplace_back(device, bytes);
    if (buffer.data() == nullptr) return *error = "no device memory to flush with", nullptr;
    device.FillAsync(buffer.data(), 0, bytes);
    pack.uids.push_back(tensor.uid);
    pack.pointers.push_back(buffer.data());
  }
  pack.workspace =
      watch->buffers_.emplace_back(device, static_cast<size_t>(watch->flush_->workspace_bytes()))
          .data();
  *error = watch->flush_->Bind(pack);
  return error->empty() ? std::move(watch) : nullptr;
}

double Stopwatch::Once(Runner& runner) {
  flush_->Launch();
  device_.RecordBegin();
  runner.error = runner.launch();
  device_.RecordEnd();
  const double microseconds = device_.ElapsedMicroseconds();
  return runner.error.empty() ? microseconds : 0;
}

void Stopwatch::Look(Runner& runner, int repeats, double* best) {
  // The very first launch may load the kernel.
  Once(runner);
  const double first = runner.error.empty() ? Once(runner) : 0;
  if (!runner.error.empty()) return;
  runner.times.assign(1, first);
  if (*best > 0 && first > 3 * *best) return;
  runner.times.clear();
  for (int i = 0; i < repeats && runner.error.empty(); ++i) runner.times.push_back(Once(runner));
  if (!runner.error.empty()) return runner.times.clear();
  if (*best == 0 || runner.Median() < *best) *best = runner.Median();
}

void Stopwatch::Alternate(const std::vector<Runner*>& runners, int rounds, double rest_us) {
  for (Runner* runner : runners) runner->times.clear();
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < runners.size(); ++i) {
      // The order turns round by round: nobody always follows the same one.
      Runner& runner = *runners[(i + static_cast<size_t>(round)) % runners.size()];
      if (!runner.error.empty()) continue;
      if (rest_us > 0) usleep(static_cast<useconds_t>(rest_us));
      const double time = Once(runner);
      if (runner.error.empty()) runner.times.push_back(time);
    }
  }
}

}  // namespace kiln::bench
