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

#include "bench/bandwidth_list.h"
#include "bench/case_time.h"

namespace kiln::bench {
namespace {

struct Row {
  std::string name, dtype, error, nvidia_error;
  int64_t bytes = 0;
  Timing ours, copy, nvidia;
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
  Bandwidth(testing::GpuDevice& device, const Cudnn& ours, const Cudnn* nvidia,
            const Options& options)
      : device_(device),
        ours_(ours),
        nvidia_(nvidia),
        repeats_(options.repeats),
        plan_(options.plan),
        rounds_(device, ours) {}

  Row Measure(const GraphRow& graph, const std::string& dtype) {
    const bool wide = dtype == "f32";
    const Case large = Instantiate(graph, dtype, wide ? graph.large / 2 : graph.large);
    Row row;
    row.name = graph.name;
    row.dtype = dtype;
    row.bytes = large.Bytes();
    const Case small = Instantiate(graph, dtype, graph.small);
    row.error = CheckNumbers(ours_, device_, small);
    if (!row.error.empty()) return row;
    const auto ours = CaseBench::Make(ours_, large, &row.error, plan_);
    if (!ours) return row;
    const auto theirs =
        nvidia_ ? CaseBench::MakeForNvidia(*nvidia_, device_, large, small, &row.nvidia_error)
                : nullptr;
    const int64_t workspace =
        std::max(ours->workspace_bytes(), theirs ? theirs->workspace_bytes() : 0);
    const LargeMemory memory(device_, large, workspace);
    if (!memory.ok()) return row.error = "device memory is out", row;
    row.error = ours->Bind(memory.pack());
    if (theirs) row.nvidia_error = theirs->Bind(memory.pack());
    if (row.error.empty()) Time(row, *ours, theirs.get());
    return row;
  }

 private:
  void Time(Row& row, const CaseBench& ours, const CaseBench* theirs) {
    const auto half = static_cast<size_t>(row.bytes / 2);
    const testing::Buffer from(device_, half), to(device_, half);
    std::vector<Rounds::Entry> entries = {{.launch = [&] { return ours.Launch(); }},
                                          {.launch = [&] {
                                            device_.CopyAsync(to.data(), from.data(), half);
                                            return CUDNN_STATUS_SUCCESS;
                                          }}};
    if (theirs) entries.push_back({.launch = [&] { return theirs->Launch(); }});
    row.error = rounds_.Run(entries, repeats_);
    if (entries[0].status != CUDNN_STATUS_SUCCESS) row.error = ours.Describe(entries[0].status);
    row.ours = Summarise(entries[0].times);
    row.copy = Summarise(entries[1].times);
    if (!theirs) return;
    if (entries[2].status != CUDNN_STATUS_SUCCESS)
      row.nvidia_error = theirs->Describe(entries[2].status);
    else
      row.nvidia = Summarise(entries[2].times);
  }

  testing::GpuDevice& device_;
  const Cudnn& ours_;
  const Cudnn* nvidia_;
  int repeats_;
  size_t plan_;
  Rounds rounds_;
};

double GigabytesPerSecond(int64_t bytes, const Timing& t) {
  return t.median > 0 ? static_cast<double>(bytes) / t.median * 1e-3 : 0;
}

void Print(const Row& row) {
  if (!row.error.empty())
    return void(
        std::printf("%-29s %-5s %s\n", row.name.c_str(), row.dtype.c_str(), row.error.c_str()));
  const double ours = GigabytesPerSecond(row.bytes, row.ours),
               copy = GigabytesPerSecond(row.bytes, row.copy);
  std::printf("%-29s %-5s %8.1f MB %8.1f us %7.0f GB/s %6.1f %% of copy   NVIDIA %s\n",
              row.name.c_str(), row.dtype.c_str(), static_cast<double>(row.bytes) * 1e-6,
              row.ours.median, ours, 100 * ours / copy,
              row.nvidia.median > 0
                  ? fmt::format("{:.1f} us", row.nvidia.median).c_str()
                  : row.nvidia_error.substr(0, row.nvidia_error.find('\n')).c_str());
  std::fflush(stdout);
}

std::string Json(const Row& row) {
  return fmt::format(
      "    {{\"name\": {}, \"dtype\": {}, \"bytes\": {}, \"error\": {}, \"kiln\": {}, \"copy\": "
      "{}, \"nvidia\": {}, \"nvidia_error\": {}}}",
      JsonText(row.name), JsonText(row.dtype), row.bytes, JsonText(row.error), Json(row.ours),
      Json(row.copy), Json(row.nvidia), JsonText(row.nvidia_error));
}

int Main(int argc, char** argv) {
  const Options options = Options::Parse(argc, argv);
  std::string error;
  const auto device = testing::OpenGpuDevice(&error);
  if (!device) return std::fprintf(stderr, "%s\n", error.c_str()), 2;
  std::string no_nvidia = "not found";
  std::unique_ptr<Cudnn> nvidia;
  if (!options.nvidia.empty()) nvidia = Cudnn::Open(options.nvidia, device->stream(), &no_nvidia);
  const auto ours = Cudnn::Open(options.cudnn, device->stream(), &error);
  if (!ours)
    return std::fprintf(stderr, "library '%s': %s\n", options.cudnn.c_str(), error.c_str()), 2;
  std::printf("%s, ours %s, NVIDIA's %s\n", device->name().c_str(), options.cudnn.c_str(),
              nvidia ? options.nvidia.c_str() : no_nvidia.c_str());
  Bandwidth bandwidth(*device, *ours, nvidia.get(), options);
  std::string rows;
  bool failed = false;
  for (const GraphRow& graph : BandwidthGraphs()) {
    for (const std::string& dtype : TypesOf(graph)) {
      const std::string label = fmt::format("{}/{}", graph.name, dtype);
      if (label.find(options.filter) == std::string::npos) continue;
      const Row row = bandwidth.Measure(graph, dtype);
      Print(row);
      failed |= !row.error.empty();
      rows += (rows.empty() ? "" : ",\n") + Json(row);
    }
  }
  const size_t version = nvidia ? nvidia->version() : 0;
  if (!WriteResults(options, "bandwidth", device->name(), version, rows)) return 2;
  return failed;
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::Main(argc, argv); }
