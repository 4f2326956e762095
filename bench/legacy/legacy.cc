// Calls of the legacy API beside NVIDIA's cuDNN, on large tensors, and what each costs the host.
//
//   legacy --out legacy.json [--commit HASH] [--filter pooling] [--nvidia libcudnn.so.9|none]
//
// Both libraries first make each call once on the same data; what they wrote, or a sample of it,
// must be the same. Then they are timed in rounds: ours, a device-to-device copy that moves as many
// bytes, NVIDIA's, with a flush of the L2 before each. The median over the rounds counts. Bytes are
// the floor: what a call must read and write once. Then the host's time for a repeated call: the
// median over batches that the device's queue holds.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "bench/legacy/call.h"
#include "bench/support/case_time.h"

namespace kiln::bench {
namespace {

struct Row {
  std::string name, error, nvidia_error, difference;
  int64_t bytes = 0;
  Timing ours, copy, nvidia;
  double host = 0, nvidia_host = 0;  // microseconds
};

// A call on one library, and what it wrote.
struct Side {
  std::unique_ptr<CallSetup> setup;
  Launch launch;
  std::vector<Sample> results;
};

class Legacy {
 public:
  Legacy(const Libraries& libraries, const Options& options)
      : libraries_(libraries),
        device_(*libraries.device),
        options_(options),
        rounds_(device_, *libraries.ours) {}

  Row Measure(const LegacyCall& call) {
    Row row{.name = call.name};
    CallMemory memory(device_);
    Side ours, theirs;
    row.error = Make(call, *libraries_.ours, memory, ours);
    row.bytes = memory.Bytes();
    if (!row.error.empty()) return row;
    if (libraries_.nvidia) {
      memory.Reset();
      row.nvidia_error = Make(call, *libraries_.nvidia, memory, theirs);
    }
    const bool beside = libraries_.nvidia && row.nvidia_error.empty();
    if (beside) row.difference = Difference(ours.results, theirs.results, call);
    const auto half = static_cast<size_t>(row.bytes / 2);
    const testing::Buffer from(device_, half), to(device_, half);
    const auto copy = [&] {
      device_.CopyAsync(to.data(), from.data(), half);
      return CUDNN_STATUS_SUCCESS;
    };
    std::vector<Rounds::Entry> entries = {{.launch = ours.launch}, {.launch = copy}};
    if (beside) entries.push_back({.launch = theirs.launch});
    row.error = rounds_.Run(entries, options_.repeats);
    row.ours = Summarise(entries[0].times);
    row.copy = Summarise(entries[1].times);
    row.host = HostMicroseconds(device_, ours.launch, row.ours.median);
    if (!beside) return row;
    row.nvidia = Summarise(entries[2].times);
    row.nvidia_host = HostMicroseconds(device_, theirs.launch, row.nvidia.median);
    return row;
  }

 private:
  // Makes the call once; a sentence where the library cannot.
  std::string Make(const LegacyCall& call, const Cudnn& cudnn, CallMemory& memory, Side& side) {
    side.setup = std::make_unique<CallSetup>(cudnn, device_, memory);
    side.launch = call.make(*side.setup);
    if (!memory.ok()) return "device memory is out";
    if (!side.setup->error().empty()) return side.setup->error();
    const cudnnStatus_t status = side.launch();
    if (status != CUDNN_STATUS_SUCCESS) return cudnn.ErrorOf(status, call.name.c_str()).text;
    if (std::string error = device_.Synchronize(); !error.empty()) return error;
    side.results = memory.Results();
    return "";
  }

  const Libraries& libraries_;
  testing::GpuDevice& device_;
  const Options& options_;
  Rounds rounds_;
};

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

void Print(const Row& row) {
  std::string nvidia = FirstLine(row.nvidia_error);
  if (row.nvidia.median > 0)
    nvidia = fmt::format("NVIDIA {:8.1f} us, ratio {:5.2f}, host {:5.2f} us", row.nvidia.median,
                         row.nvidia.median / row.ours.median, row.nvidia_host);
  if (row.error.empty())
    std::printf("%-58s %7.1f MB %8.1f us %5.1f %% of copy, host %5.2f us  %s %s\n",
                row.name.c_str(), static_cast<double>(row.bytes) * 1e-6, row.ours.median,
                100 * row.copy.median / row.ours.median, row.host, nvidia.c_str(),
                row.difference.c_str());
  else
    std::printf("%-58s %s\n", row.name.c_str(), row.error.c_str());
  std::fflush(stdout);
}

std::string Json(const Row& row) {
  return fmt::format(
      "    {{\"name\": {}, \"bytes\": {}, \"error\": {}, \"difference\": {}, \"kiln\": {}, "
      "\"copy\": {}, \"nvidia\": {}, \"nvidia_error\": {}, \"kiln_host_us\": {:.3f}, "
      "\"nvidia_host_us\": {:.3f}}}",
      JsonText(row.name), row.bytes, JsonText(row.error), JsonText(row.difference), Json(row.ours),
      Json(row.copy), Json(row.nvidia), JsonText(FirstLine(row.nvidia_error)), row.host,
      row.nvidia_host);
}

int Main(int argc, char** argv) {
  const Options options = Options::Parse(argc, argv);
  const auto libraries = Libraries::Open(options);
  if (!libraries) return 2;
  Legacy legacy(*libraries, options);
  std::string rows;
  bool failed = false;
  for (const LegacyCall& call : LegacyCalls()) {
    if (call.name.find(options.filter) == std::string::npos) continue;
    const Row row = legacy.Measure(call);
    Print(row);
    failed |= !row.error.empty() || !row.difference.empty();
    rows += (rows.empty() ? "" : ",\n") + Json(row);
    if (!WriteResults(options, "legacy", libraries->device->name(), libraries->nvidia_version(),
                      rows))
      return 2;
  }
  return failed;
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::Main(argc, argv); }
