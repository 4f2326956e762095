// Recurrent networks, CTC losses and multi-head attention beside NVIDIA's cuDNN, and what each call
// costs the host.
//
//   rnn --out rnn.json [--commit HASH] [--filter baseline] [--nvidia libcudnn.so.9|none]
//
// Ours and each algorithm of NVIDIA's first make all calls of a problem on the same data; what they
// wrote, or a sample of it, must be the same. Then they are timed in rounds, one after the other,
// with a flush of the L2 before each call; the median counts. What takes several times as long as
// the best of its phase, and long, is timed by its second call alone. A ratio is NVIDIA's time over
// ours: of the algorithm that PyTorch asks for, and of the fastest.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>

#include "bench/rnn/call.h"
#include "bench/support/case_time.h"

namespace kiln::bench {
namespace {

// A call is timed in rounds unless it takes longer than both.
constexpr double kLongMicroseconds = 20000, kTimesTheBest = 3;

// One library's calls, with one algorithm.
struct Side {
  std::unique_ptr<CallSetup> setup;
  std::vector<Launch> launches;
  std::vector<std::string> errors;  // of each phase
  std::vector<double> first;        // microseconds of its second call
  std::vector<Timing> times;
  std::vector<Sample> results;
  bool complete = false;
};

struct Row {
  const NetworkCall* call;
  std::string error;
  std::vector<Timing> ours;
  std::vector<double> host;                       // microseconds
  std::vector<std::vector<Timing>> nvidia;        // by variant and phase
  std::vector<std::vector<std::string>> refused;  // the same
  std::vector<std::string> differences;           // by variant

  double Best(size_t phase) const {
    double best = 0;
    for (const auto& variant : nvidia)
      if (variant[phase].median > 0)
        best = best > 0 ? std::min(best, variant[phase].median) : variant[phase].median;
    return best;
  }
  // The median of PyTorch's choice, or of the first variant where that declines.
  double Chosen(size_t phase) const {
    if (nvidia.empty()) return 0;
    const double chosen = nvidia[call->chosen[phase]][phase].median;
    return chosen > 0 ? chosen : nvidia[0][phase].median;
  }
};

class Networks {
 public:
  Networks(const Libraries& libraries, const Options& options)
      : libraries_(libraries),
        device_(*libraries.device),
        options_(options),
        rounds_(device_, *libraries.ours) {}

  Row Measure(const NetworkCall& call) {
    Row row{.call = &call};
    CallMemory memory(device_);
    std::vector<Side> sides(1);
    Make(call, *libraries_.ours, memory, 0, sides[0]);
    for (const std::string& error : sides[0].errors)
      if (row.error.empty()) row.error = error;
    if (!row.error.empty()) return row;
    if (libraries_.nvidia) {
      for (size_t v = 0; v < call.variants.size(); ++v) {
        memory.Reset();
        Make(call, *libraries_.nvidia, memory, v, sides.emplace_back());
        row.differences.push_back(DifferenceOf(call, sides[0], sides.back()));
        row.refused.push_back(sides.back().errors);
      }
    }
    row.error = Time(call, sides);
    row.ours = sides[0].times;
    for (size_t p = 0; p < call.phases.size(); ++p)
      row.host.push_back(HostMicroseconds(device_, sides[0].launches[p], row.ours[p].median));
    for (size_t v = 1; v < sides.size(); ++v) row.nvidia.push_back(sides[v].times);
    return row;
  }

 private:
  void Make(const NetworkCall& call, const Cudnn& cudnn, CallMemory& memory, size_t variant,
            Side& side) {
    const size_t phases = call.phases.size();
    side.errors.resize(phases);
    side.first.resize(phases);
    side.times.resize(phases);
    side.setup = std::make_unique<CallSetup>(cudnn, device_, memory);
    side.launches = call.make(*side.setup, variant);
    std::string error = memory.ok() ? side.setup->error() : "device memory is out";
    bool failed = false;
    for (size_t p = 0; p < phases; ++p) {
      if (error.empty()) error = Once(cudnn, call, side, p);
      side.errors[p] = error;
      failed |= !error.empty();
      if (call.are_independent && side.setup->error().empty()) error.clear();
    }
    side.complete = !failed;
    if (side.complete) side.results = memory.Results();
    for (size_t p = 0; p < phases; ++p)
      if (side.errors[p].empty()) side.first[p] = Clocked(side.launches[p]);
  }

  std::string Once(const Cudnn& cudnn, const NetworkCall& call, const Side& side, size_t phase) {
    const cudnnStatus_t status = side.launches[phase]();
    if (status != CUDNN_STATUS_SUCCESS) return cudnn.ErrorOf(status, call.name.c_str()).text;
    return device_.Synchronize();
  }

  double Clocked(const Launch& launch) {
    device_.RecordBegin();
    launch();
    device_.RecordEnd();
    return device_.ElapsedMicroseconds();
  }

  static std::string DifferenceOf(const NetworkCall& call, const Side& ours, const Side& theirs) {
    if (!ours.complete || !theirs.complete) return "";
    return Difference(ours.results, theirs.results,
                      {.name = call.name, .make = {}, .tolerance = call.tolerance});
  }

  std::string Time(const NetworkCall& call, std::vector<Side>& sides) {
    std::vector<Rounds::Entry> entries;
    std::vector<Timing*> places;
    for (Side& side : sides) {
      for (size_t p = 0; p < call.phases.size(); ++p) {
        if (!side.errors[p].empty()) continue;
        double best = side.first[p];
        for (const Side& other : sides)
          if (other.errors[p].empty()) best = std::min(best, other.first[p]);
        const double time = side.first[p];
        side.times[p] = {.median = time, .low = time, .high = time};
        if (time > kLongMicroseconds && time > kTimesTheBest * best) continue;
        entries.push_back({.launch = side.launches[p]});
        places.push_back(&side.times[p]);
      }
    }
    const std::string error = rounds_.Run(entries, options_.repeats);
    for (size_t i = 0; i < entries.size(); ++i) *places[i] = Summarise(entries[i].times);
    return error;
  }

  const Libraries& libraries_;
  testing::GpuDevice& device_;
  const Options& options_;
  Rounds rounds_;
};

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

void Print(const Row& row) {
  std::printf("%s\n", row.call->name.c_str());
  if (!row.error.empty()) std::printf("  %s\n", row.error.c_str());
  for (size_t p = 0; p < row.ours.size(); ++p) {
    std::string theirs;
    for (size_t v = 0; v < row.nvidia.size(); ++v)
      if (row.nvidia[v][p].median > 0)
        theirs += fmt::format(" {} {:.1f}", row.call->variants[v], row.nvidia[v][p].median);
    const double ours = row.ours[p].median;
    std::string step;
    if (row.call->steps > 0)
      step = fmt::format("{:7.2f} a step", ours / static_cast<double>(row.call->steps));
    std::printf("  %-20s %9.1f us%s, host %6.2f, ratio %6.2f, to the best %6.2f; NVIDIA%s\n",
                row.call->phases[p].c_str(), ours, step.c_str(), row.host[p], row.Chosen(p) / ours,
                row.Best(p) / ours, theirs.c_str());
  }
  for (size_t v = 0; v < row.differences.size(); ++v)
    if (!row.differences[v].empty())
      std::printf("  beside %s: %s\n", row.call->variants[v].c_str(), row.differences[v].c_str());
  std::fflush(stdout);
}

std::string Json(const Row& row) {
  const NetworkCall& call = *row.call;
  std::string phases;
  for (size_t p = 0; p < row.ours.size(); ++p) {
    std::string variants;
    for (size_t v = 0; v < row.nvidia.size(); ++v)
      variants += fmt::format("{}{}: {}", v == 0 ? "" : ", ", JsonText(call.variants[v]),
                              Json(row.nvidia[v][p]));
    phases += fmt::format(
        "{}\n      {{\"name\": {}, \"kiln\": {}, \"kiln_host_us\": {:.3f}, \"torch\": {}, "
        "\"nvidia\": {{{}}}}}",
        p == 0 ? "" : ",", JsonText(call.phases[p]), Json(row.ours[p]), row.host[p],
        JsonText(call.variants[call.chosen[p]]), variants);
  }
  std::string differences;
  for (size_t v = 0; v < row.differences.size(); ++v)
    differences += fmt::format("{}{}: {}", v == 0 ? "" : ", ", JsonText(call.variants[v]),
                               JsonText(FirstLine(row.differences[v])));
  return fmt::format(
      "    {{\"name\": {}, \"steps\": {}, \"error\": {}, \"differences\": {{{}}}, \"phases\": "
      "[{}]}}",
      JsonText(call.name), call.steps, JsonText(FirstLine(row.error)), differences, phases);
}

// Geometric means of ratios by family and phase.
class Means {
 public:
  void Add(const Row& row) {
    const std::string family = row.call->name.substr(0, row.call->name.find('/'));
    for (size_t p = 0; p < row.ours.size(); ++p) {
      const double ours = row.ours[p].median;
      if (ours <= 0 || row.Best(p) <= 0) continue;
      Mean& mean = means_[family + " " + row.call->phases[p]];
      mean.logs += std::log(row.Chosen(p) / ours);
      mean.best_logs += std::log(row.Best(p) / ours);
      const double least = row.Best(p) / ours;
      mean.least = mean.count++ == 0 ? least : std::min(mean.least, least);
    }
  }
  void Print() const {
    for (const auto& [name, m] : means_)
      std::printf("%-34s ratio %6.2f, to the best %6.2f, least %6.2f, of %d\n", name.c_str(),
                  std::exp(m.logs / m.count), std::exp(m.best_logs / m.count), m.least, m.count);
  }

 private:
  struct Mean {
    double logs = 0, best_logs = 0, least = 0;
    int count = 0;
  };
  std::map<std::string, Mean> means_;
};

int Main(int argc, char** argv) {
  const Options options = Options::Parse(argc, argv);
  const auto libraries = Libraries::Open(options);
  if (!libraries) return 2;
  Networks networks(*libraries, options);
  Means means;
  std::string rows;
  bool failed = false;
  for (const NetworkCall& call : NetworkCalls()) {
    if (call.name.find(options.filter) == std::string::npos) continue;
    const Row row = networks.Measure(call);
    Print(row);
    means.Add(row);
    failed |= !row.error.empty() || (!row.differences.empty() && !row.differences[0].empty());
    rows += (rows.empty() ? "" : ",\n") + Json(row);
    if (!WriteResults(options, "rnn", libraries->device->name(), libraries->nvidia_version(), rows))
      return 2;
  }
  means.Print();
  return failed;
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::Main(argc, argv); }
