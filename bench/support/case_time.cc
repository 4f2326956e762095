#include "bench/support/case_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>

namespace kiln::bench {
namespace {

namespace oracle = kiln::oracle;

constexpr const char* kFlushGraph = "flush: reduce_add(x:f32[65536,1024]) -> y:f32[1,1]";

}  // namespace

void FillWithRandom(testing::GpuDevice& device, oracle::DType dtype, uint8_t* to, size_t bytes,
                    const RandomNumbers& from) {
  const auto element = static_cast<size_t>(oracle::Row(dtype).bytes);
  std::vector<uint8_t> numbers(std::min(bytes, from.count * element));
  std::mt19937 random(from.seed);
  std::uniform_real_distribution<double> uniform(from.low, from.high);
  for (size_t at = 0; at + element <= numbers.size(); at += element)
    oracle::Encode(dtype, uniform(random), numbers.data() + at);
  device.CopyIn(to, numbers.data(), numbers.size());
  for (size_t done = numbers.size(); done < bytes; done *= 2)
    device.CopyAsync(to + done, to, std::min(done, bytes - done));
}

Timing Summarise(std::vector<double> times) {
  if (times.empty()) return {};
  std::ranges::sort(times);
  const auto at = [&](double q) {
    return times[static_cast<size_t>(q * static_cast<double>(times.size() - 1))];
  };
  return {.median = at(0.5), .low = at(0.25), .high = at(0.75)};
}

double HostMicroseconds(testing::GpuDevice& device, const std::function<cudnnStatus_t()>& launch,
                        double device_time) {
  constexpr int kBatches = 9, kMostCalls = 16;
  constexpr double kBatchMicroseconds = 6000;
  const int calls =
      std::clamp(static_cast<int>(kBatchMicroseconds / std::max(device_time, 1.0)), 1, kMostCalls);
  std::vector<double> times;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i)
      if (launch() != CUDNN_STATUS_SUCCESS) return 0;
    const std::chrono::duration<double, std::micro> passed =
        std::chrono::steady_clock::now() - start;
    times.push_back(passed.count() / calls);
    device.Synchronize();
  }
  return Summarise(times).median;
}

std::string Json(const Timing& t) {
  return t.median > 0
             ? fmt::format("{{\"median_us\": {:.3f}, \"q25_us\": {:.3f}, \"q75_us\": {:.3f}}}",
                           t.median, t.low, t.high)
             : "null";
}

LargeMemory::LargeMemory(testing::GpuDevice& device, const Case& c, int64_t workspace_bytes,
                         Fill fill) {
  for (const auto& tensor : c.tensors) {
    if (tensor.is_virtual) continue;
    if (tensor.by_value) {
      auto& scalar = scalars_.emplace_back();
      oracle::Encode(tensor.dtype, *tensor.by_value, scalar.data());
      pack_.uids.push_back(tensor.uid);
      pack_.pointers.push_back(scalar.data());
      continue;
    }
    const int element = oracle::Row(tensor.dtype).bytes;
    const auto bytes = static_cast<size_t>(oracle::Count(tensor.dims) * element);
    auto& buffer = buffers_.emplace_back(device, bytes);
    ok_ &= buffer.data() != nullptr;
    if (ok_ && fill == Fill::kRandom && element == 2)
      FillWithRandom(device, tensor.dtype, buffer.data(), bytes);
    else if (ok_)
      device.FillAsync(buffer.data(), 0x3b, bytes);
    pack_.uids.push_back(tensor.uid);
    pack_.pointers.push_back(buffer.data());
  }
  auto& workspace = buffers_.emplace_back(device, static_cast<size_t>(workspace_bytes));
  ok_ &= workspace.data() != nullptr;
  pack_.workspace = workspace.data();
}

Rounds::Rounds(testing::GpuDevice& device, const Cudnn& ours)
    : device_(device),
      flush_case_(ParseOrExit(kFlushGraph)),
      flush_memory_(device, flush_case_, 1 << 20) {
  std::string error;
  flush_ = CaseBench::Make(ours, flush_case_, &error);
  if (flush_) error = flush_->Bind(flush_memory_.pack());
  if (!error.empty()) std::fprintf(stderr, "flush: %s\n", error.c_str()), std::exit(2);
}

std::string Rounds::Run(std::vector<Entry>& entries, int rounds) {
  for (int i = -3; i < rounds; ++i) {
    for (Entry& entry : entries) {
      if (entry.status != CUDNN_STATUS_SUCCESS) continue;
      flush_->Launch();
      device_.RecordBegin();
      entry.status = entry.launch();
      device_.RecordEnd();
      const double time = device_.ElapsedMicroseconds();
      if (i >= 0 && entry.status == CUDNN_STATUS_SUCCESS) entry.times.push_back(time);
    }
  }
  return device_.Synchronize();
}

std::unique_ptr<Libraries> Libraries::Open(const Options& options) {
  auto all = std::make_unique<Libraries>();
  std::string error, no_nvidia = "not found";
  all->device = testing::OpenGpuDevice(&error);
  if (!all->device) return std::fprintf(stderr, "%s\n", error.c_str()), nullptr;
  const auto stream = all->device->stream();
  if (!options.nvidia.empty()) all->nvidia = Cudnn::Open(options.nvidia, stream, &no_nvidia);
  all->ours = Cudnn::Open(options.cudnn, stream, &error);
  if (!all->ours) {
    std::fprintf(stderr, "library '%s': %s\n", options.cudnn.c_str(), error.c_str());
    return nullptr;
  }
  std::printf("%s, ours %s, NVIDIA's %s\n", all->device->name().c_str(), options.cudnn.c_str(),
              all->nvidia ? options.nvidia.c_str() : no_nvidia.c_str());
  return all;
}

Comparison::Times Comparison::Measure(const Graph& graph) {
  testing::GpuDevice& device = *libraries_.device;
  const Cudnn* nvidia = libraries_.nvidia.get();
  Times times;
  times.error = CheckNumbers(*libraries_.ours, device, graph.small);
  if (!times.error.empty()) return times;
  const auto ours = CaseBench::Make(*libraries_.ours, graph.large, &times.error, options_.plan);
  if (!ours) return times;
  const auto theirs = nvidia ? CaseBench::MakeForNvidia(*nvidia, device, graph.large,
                                                        graph.for_nvidia, &times.nvidia_error)
                             : nullptr;
  const int64_t workspace =
      std::max(ours->workspace_bytes(), theirs ? theirs->workspace_bytes() : 0);
  const LargeMemory memory(device, graph.large, workspace, graph.fill);
  if (!memory.ok()) return times.error = "device memory is out", times;
  times.error = ours->Bind(memory.pack());
  if (theirs) times.nvidia_error = theirs->Bind(memory.pack());
  if (!times.error.empty()) return times;
  std::vector<Rounds::Entry> entries = {{.launch = [&] { return ours->Launch(); }}};
  if (graph.other) entries.push_back({.launch = graph.other});
  if (theirs) entries.push_back({.launch = [&] { return theirs->Launch(); }});
  times.error = rounds_.Run(entries, options_.repeats);
  if (entries[0].status != CUDNN_STATUS_SUCCESS) times.error = ours->Describe(entries[0].status);
  times.ours = Summarise(entries[0].times);
  if (graph.other) times.other = Summarise(entries[1].times);
  if (!theirs) return times;
  const Rounds::Entry& last = entries.back();
  if (last.status != CUDNN_STATUS_SUCCESS)
    times.nvidia_error = theirs->Describe(last.status);
  else
    times.nvidia = Summarise(last.times);
  return times;
}

}  // namespace kiln::bench
