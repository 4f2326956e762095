// The cost of a training step of ResNet-50 before it runs: distinct kernels, NVRTC's time, and the
// host time of plans whose kernels are known. No GPU is needed.
//
//   compile_cost [--images N,N…] [--cases FILE | --network FILE] [--sources DIR] [--no-nvrtc]
//                [--plans]
//
// --network takes the graphs of another application (docs/tuning.md) for the step.
// The first batch size counts; of each other one it says which kernels are not among those of the
// first. Times are CPU time of the calling thread, so that a busy machine shows less.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>

#include "bench/steps/step_plans.h"
#include "runtime/cuda/cuda_compiler.h"
#include "runtime/cuda/nvrtc.h"
#include "tests/support/pace.h"

namespace kiln::bench {
namespace {

struct Options {
  std::vector<int64_t> images = {64, 32, 96, 128, 256, 16};
  std::string cases = "tests/cases/bench_contract.txt";
  std::string network;  // in the place of the cases
  std::string sources;  // folder for the texts
  bool nvrtc = true, plans = false;
};

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

double Median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<int64_t>(values.size() / 2));
  return values[values.size() / 2];
}

void ReportModel(const StepPlans& step) {
  double logs = 0, worst = 1;
  for (const StepPlan& plan : step.plans) {
    const double ratio = plan.seconds / plan.least_seconds;
    logs += std::log(ratio);
    worst = std::max(worst, ratio);
  }
  fmt::print(
      "  modelled time of the choice over the least: {:.4f} in the geometric mean, {:.3f} at "
      "most\n",
      std::exp(logs / static_cast<double>(step.plans.size())), worst);
}

// Compiles all kernels into a cache of their own, and takes them from there as another process
// would.
void ReportKernels(const StepPlans& step) {
  if (const auto nvrtc = runtime::ProcessNvrtc(); !nvrtc.ok())
    return fmt::print("  {}\n", nvrtc.status().message());
  std::string folder = std::filesystem::temp_directory_path() / "kiln_compile_cost_XXXXXX";
  CHECK(mkdtemp(folder.data()) != nullptr, "{} cannot be made", folder);
  const auto time = [&](bool shows) {
    runtime::KernelCache cache({.root = folder});
    runtime::CudaCompiler compiler(cache);
    std::vector<double> times;
    for (const auto& [entry, kernel] : step.kernels) {
      const double begin = testing::ThreadSeconds();
      const auto result = compiler.Compile(kernel);
      times.push_back(1e3 * (testing::ThreadSeconds() - begin));
      CHECK(result.ok(), "{}", result.status().message());
      if (shows)
        fmt::print("  {:7.1f} ms  {:6} bytes of text {:6} of cubin  {}  {}\n", times.back(),
                   kernel.text.size(), result->payload->size(), entry,
                   kernel.text.substr(0, kernel.text.find('\n')));
    }
    fmt::print("  a kernel {}: {:.2f} ms in the median, {:.2f} at most, {:.1f} all together\n",
               shows ? "by NVRTC" : "from disk", Median(times), *std::ranges::max_element(times),
               std::accumulate(times.begin(), times.end(), 0.0));
  };
  time(true);
  time(false);
  std::filesystem::remove_all(folder);
}

// Reports the plans of `step` that have kernels which are not in `known`, or all plans.
void ReportPlans(const StepPlans& step, const std::set<std::string>& known, bool all) {
  std::map<std::string, int> uses;
  for (const StepPlan& plan : step.plans)
    for (const std::string& kernel : plan.kernels) ++uses[kernel];
  for (const StepPlan& plan : step.plans) {
    std::string kernels;
    bool is_new = false;
    for (const std::string& kernel : plan.kernels) {
      const bool is_known = known.contains(kernel);
      kernels += fmt::format(" {}{} x{}", is_known || all ? "" : "new ", kernel, uses[kernel]);
      is_new = is_new || !is_known;
    }
    if (all || is_new)
      fmt::print("  {:16} {} {} {:.2f} us {:.3f}{}\n", plan.name, plan.engine, plan.knobs,
                 1e6 * plan.seconds, plan.seconds / plan.least_seconds, kernels);
  }
}

int Run(const Options& options) {
  std::set<std::string> known;
  for (const int64_t images : options.images) {
    const std::string& list = options.network.empty() ? options.cases : options.network;
    const auto problems = options.network.empty() ? StepProblems(ReadAll(list), images)
                                                  : NetworkProblems(list, images);
    CHECK(problems.ok(), "{}", problems.status().message());
    CHECK(!problems->empty(), "no problems in {}", list);
    const auto step = PlanStep(*problems, H200());
    CHECK(step.ok(), "{}", step.status().message());
    fmt::print("N = {}: {} problems, {} kernels\n", images, problems->size(), step->kernels.size());
    ReportModel(*step);
    const bool is_first = known.empty();
    if (options.plans || !is_first) ReportPlans(*step, known, options.plans);
    for (const auto& [entry, kernel] : step->kernels) {
      if (is_first) known.insert(entry);
      if (!options.sources.empty())
        std::ofstream(options.sources + "/" + entry + ".cu") << kernel.text;
    }
    if (!is_first) continue;
    const auto ranking = RankMilliseconds(*problems, H200());
    CHECK(ranking.ok(), "{}", ranking.status().message());
    const auto times = PlanMilliseconds(*problems);
    const auto slowest = std::ranges::max_element(times);
    fmt::print(
        "  host time of a plan: {:.2f} ms in the median, {:.2f} at most, of {}; of all {:.1f}, of "
        "their rankings {:.2f}\n",
        Median(times), *slowest, (*problems)[static_cast<size_t>(slowest - times.begin())].name,
        std::accumulate(times.begin(), times.end(), 0.0), *ranking);
    if (options.nvrtc) ReportKernels(*step);
  }
  return 0;
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) {
  kiln::bench::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const bool has_value = i + 1 < argc;
    if (arg == "--no-nvrtc") {
      options.nvrtc = false;
    } else if (arg == "--plans") {
      options.plans = true;
    } else if (arg == "--cases" && has_value) {
      options.cases = argv[++i];
    } else if (arg == "--network" && has_value) {
      options.network = argv[++i];
    } else if (arg == "--sources" && has_value) {
      options.sources = argv[++i];
    } else if (arg == "--images" && has_value) {
      options.images.clear();
      std::stringstream list(argv[++i]);
      for (std::string number; std::getline(list, number, ',');)
        options.images.push_back(std::strtoll(number.c_str(), nullptr, 10));
    } else {
      fmt::print(stderr, "unknown option {}\n", arg);
      return 2;
    }
  }
  return kiln::bench::Run(options);
}
