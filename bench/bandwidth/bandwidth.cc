// Bandwidth of pointwise graphs, reductions, norms and softmax on large tensors, most of 134 MB and
// more, through the public backend API.
//
//   bandwidth --out bandwidth.json [--commit HASH] [--filter add/f16] [--plan 0] [--nvidia
//   libcudnn.so.9|none]
//
// Each graph first runs at small extents against the oracle, then is timed in rounds: our kernel, a
// device-to-device copy that moves the same bytes, and NVIDIA's cuDNN for the same graph, one after
// the other, with a buffer larger than L2 written before each. The median over the rounds counts.
// NVIDIA's has the graph in the first of the ranks of cases_rank.h that it takes and computes
// rightly. Bytes are the floor: each input read once, each output written once; a copy of n bytes
// moves 2n.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "bench/bandwidth/list.h"
#include "bench/support/case_time.h"

namespace kiln::bench {
namespace {

struct Row {
  std::string name, dtype;
  int64_t bytes = 0;
  Comparison::Times times;  // `other` is a copy
};

Case Instantiate(const GraphRow& row, const std::string& dtype, int64_t n) {
  std::string error;
  auto parsed = testing::ParseCase(CaseOf(row, dtype, n), &error);
  if (!parsed) {
    std::fprintf(stderr, "%s\n", error.c_str());
    std::exit(2);
  }
  return *std::move(parsed);
}

class Bandwidth {
 public:
  Bandwidth(const Libraries& libraries, const Options& options)
      : device_(*libraries.device), comparison_(libraries, options) {}

  Row Measure(const GraphRow& graph, const std::string& dtype) {
    const Case large = Instantiate(graph, dtype, dtype == "f32" ? graph.large / 2 : graph.large);
    const Case small = Instantiate(graph, dtype, graph.small);
    const auto half = static_cast<size_t>(large.Bytes() / 2);
    const testing::Buffer from(device_, half), to(device_, half);
    const auto copy = [&] {
      device_.CopyAsync(to.data(), from.data(), half);
      return CUDNN_STATUS_SUCCESS;
    };
    return {.name = graph.name,
            .dtype = dtype,
            .bytes = large.Bytes(),
            .times = comparison_.Measure(
                {.large = large, .small = small, .for_nvidia = small, .other = copy})};
  }

 private:
  testing::GpuDevice& device_;
  Comparison comparison_;
};

double GigabytesPerSecond(int64_t bytes, const Timing& t) {
  return t.median > 0 ? static_cast<double>(bytes) / t.median * 1e-3 : 0;
}

void Print(const Row& row) {
  if (!row.times.error.empty())
    return void(std::printf("%-29s %-5s %s\n", row.name.c_str(), row.dtype.c_str(),
                            row.times.error.c_str()));
  const double ours = GigabytesPerSecond(row.bytes, row.times.ours),
               copy = GigabytesPerSecond(row.bytes, row.times.other);
  std::printf("%-29s %-5s %8.1f MB %8.1f us %7.0f GB/s %6.1f %% of copy   NVIDIA %s\n",
              row.name.c_str(), row.dtype.c_str(), static_cast<double>(row.bytes) * 1e-6,
              row.times.ours.median, ours, 100 * ours / copy,
              row.times.nvidia.median > 0
                  ? fmt::format("{:.1f} us", row.times.nvidia.median).c_str()
                  : row.times.nvidia_error.substr(0, row.times.nvidia_error.find('\n')).c_str());
  std::fflush(stdout);
}

std::string Json(const Row& row) {
  return fmt::format(
      "    {{\"name\": {}, \"dtype\": {}, \"bytes\": {}, \"error\": {}, \"kiln\": {}, \"copy\": "
      "{}, \"nvidia\": {}, \"nvidia_error\": {}}}",
      JsonText(row.name), JsonText(row.dtype), row.bytes, JsonText(row.times.error),
      Json(row.times.ours), Json(row.times.other), Json(row.times.nvidia),
      JsonText(row.times.nvidia_error));
}

int Main(int argc, char** argv) {
  const Options options = Options::Parse(argc, argv);
  const auto libraries = Libraries::Open(options);
  if (!libraries) return 2;
  Bandwidth bandwidth(*libraries, options);
  std::string rows;
  const auto write = [&] {
    return WriteResults(options, "bandwidth", libraries->device->name(),
                        libraries->nvidia_version(), rows);
  };
  if (!write()) return 2;
  bool failed = false;
  for (const GraphRow& graph : BandwidthGraphs()) {
    for (const std::string& dtype : TypesOf(graph)) {
      const std::string label = fmt::format("{}/{}", graph.name, dtype);
      if (label.find(options.filter) == std::string::npos) continue;
      const Row row = bandwidth.Measure(graph, dtype);
      Print(row);
      failed |= !row.times.error.empty();
      rows += (rows.empty() ? "" : ",\n") + Json(row);
      if (!write()) return 2;
    }
  }
  return failed;
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::Main(argc, argv); }
