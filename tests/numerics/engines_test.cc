// Every engine that takes the leading group of a case of tests/cases/contract.txt, columns.txt,
// rows.txt, window.txt, attention.txt, sdpa.txt, sdpa_hidden.txt, decode.txt or block_mask.txt,
// with a sample of its configurations, against the oracle: outputs and workspace poisoned, gaps,
// guards and inputs checked. engines_cpu_test and engines_gpu_test are both this program.
//
// KILN_TEST_SEED=… repeats a run, KILN_TEST_FILTER=… picks cases; KILN_TEST_ENGINES=a,b only these
// engines, KILN_TEST_RANDOM=… that many random configurations. A filter or engines that nothing
// runs for are a failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "compiler/compile.h"
#include "compiler/engines/registry.h"
#include "runtime/device_select.h"
#include "tests/numerics/engine_runs.h"
#include "tests/support/case_graph.h"
#include "tests/support/runner.h"

namespace kiln::testing {
namespace {

constexpr int kMostMessages = 30;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// body(0) … body(count - 1), on all cores.
void InParallel(size_t count, const std::function<void(size_t)>& body) {
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
    threads.emplace_back([&] {
      for (size_t i = next++; i < count; i = next++) body(i);
    });
  for (std::thread& thread : threads) thread.join();
}

std::string Setting(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

std::vector<std::string> SplitAt(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

struct Tally {
  int cases = 0, runs = 0, failures = 0;
};

class EnginesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const TestOptions& options = TestOptions::Get();  // takes its variables away
    for (const char* name :
         {"/contract.txt", "/columns.txt", "/rows.txt", "/window.txt", "/attention.txt",
          "/sdpa.txt", "/sdpa_hidden.txt", "/decode.txt", "/block_mask.txt"}) {
      CaseFile file = LoadCases(options.cases + name);
      std::ranges::move(file.errors, std::back_inserter(file_.errors));
      std::ranges::move(file.cases, std::back_inserter(file_.cases));
    }
    std::erase_if(file_.cases, [&](const Case& c) {
      return c.expects_bad_param || c.Label().find(options.filter) == std::string::npos;
    });
    // The library under test reports every KILN_* name that it does not know.
    engines_ = SplitAt(Setting("KILN_TEST_ENGINES", ""), ',');
    random_ = std::atoi(Setting("KILN_TEST_RANDOM", "-1").c_str());
    unsetenv("KILN_TEST_ENGINES");
    unsetenv("KILN_TEST_RANDOM");
  }

  void SetUp() override {
    for (const std::string& error : file_.errors) ADD_FAILURE() << error;
    ASSERT_FALSE(file_.cases.empty())
        << "no case's file:list/name has '" << TestOptions::Get().filter << "' in it";
    for (const std::string& name : engines_)
      ASSERT_GE(compiler::EngineIndex(name), 0) << "no engine is named '" << name << "'";
    const auto device = runtime::DefaultDevice();
    ASSERT_TRUE(device.ok()) << device.status().message();
    device_ = *device;
    if (random_ >= 0) sample_.random = random_;
  }

  std::vector<std::unique_ptr<CaseRuns>> MakeRuns(size_t most) const {
    std::vector<std::unique_ptr<CaseRuns>> runs(std::min(most, file_.cases.size()));
    InParallel(runs.size(), [&](size_t i) {
      runs[i] =
          std::make_unique<CaseRuns>(*device_, file_.cases[i], TestOptions::Get().seed, i, sample_);
      std::erase_if(runs[i]->runs(), [](const EngineRun& run) {
        return !IsAskedFor(static_cast<size_t>(run.engine));
      });
    });
    return runs;
  }

  static bool IsAskedFor(size_t engine) {
    return engines_.empty() ||
           std::ranges::find(engines_, compiler::Engines()[engine].name) != engines_.end();
  }

  static void Prepare(std::vector<std::unique_ptr<CaseRuns>>& cases) {
    struct Job {
      CaseRuns* of;
      EngineRun* run;  // null: the oracle
    };
    std::vector<Job> jobs;
    for (const auto& c : cases) {
      if (!c->error().empty() || c->runs().empty()) continue;
      jobs.push_back({c.get(), nullptr});
      for (EngineRun& run : c->runs()) jobs.push_back({c.get(), &run});
    }
    InParallel(jobs.size(), [&](size_t i) {
      if (jobs[i].run == nullptr)
        jobs[i].of->Evaluate();
      else
        jobs[i].of->Compile(*jobs[i].run);
    });
  }

  static void Print(const std::map<int, Tally>& tallies) {
    for (const auto& [engine, tally] : tallies)
      fmt::print("{:<22} {:4} cases, {:5} configurations, {:4} failures\n",
                 compiler::Engines()[static_cast<size_t>(engine)].name, tally.cases, tally.runs,
                 tally.failures);
  }

  // On the GPU that all engines are for, all of them ran.
  void CheckCoverage(const std::map<int, Tally>& tallies) const {
    const Target& target = device_->target();
    const bool all = target.is_cuda() && target.sm_version == 90 && !target.minimal_launch;
    if (!all || !engines_.empty() || !TestOptions::Get().filter.empty()) return;
    for (size_t e = 0; e < compiler::Engines().size(); ++e) {
      const std::string_view name = compiler::Engines()[e].name;
      if (name.starts_with("recurrence_")) continue;  // recurrence_gpu_test's
      if (name == "pointwise" || name == "reduce" || compiler::Engines()[e].on_request) continue;
      EXPECT_TRUE(tallies.contains(static_cast<int>(e))) << name << " takes none of the cases";
    }
  }

  inline static CaseFile file_;
  inline static std::vector<std::string> engines_;  // empty: all
  inline static int random_ = -1;
  runtime::Device* device_ = nullptr;
  Sample sample_;
};

// Kernels that a GPU would run can be compiled anywhere, NVRTC apart: no case is refused for one.
TEST_F(EnginesTest, EveryCaseOfAllFilesHasKernels) {
  const CaseFile all = LoadAllCases(TestOptions::Get());
  for (const char* arch : {"sm_80", "sm_90a", "sm_100a"}) {
    const Target target = *TargetFromArch(arch);
    std::mutex mutex;
    std::atomic<size_t> without_graph = 0;
    InParallel(all.cases.size(), [&](size_t i) {
      const Case& c = all.cases[i];
      const Result<graph::Graph> graph = ToGraph(c);
      if (!graph.ok() || !Verify(*graph).ok()) {
        ++without_graph;  // an operation that is made through the C interface alone
        return;
      }
      const Status status = compiler::Compile(*graph, target).status();
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(status.ok()) << arch << " " << c.Label() << ": " << status.message();
    });
    EXPECT_LE(without_graph, all.cases.size() / 20);
  }
}

// Configurations that a GPU would run can be planned anywhere.
TEST_F(EnginesTest, EveryConfigurationHasAPlan) {
  bool is_run = false;  // on either: an engine may be for one
  for (const char* arch : {"sm_80", "sm_90a"}) {
    const Target target = *TargetFromArch(arch);
    std::map<int, Tally> tallies;
    std::set<std::string> texts;
    std::mutex mutex;
    InParallel(file_.cases.size(), [&](size_t i) {
      const Case& c = file_.cases[i];
      const Result<graph::Graph> graph = ToGraph(c);
      const auto group = graph.ok() ? compiler::LeadingGroupOf(*graph, target)
                                    : Result<std::optional<compiler::Group>>(graph.status());
      const std::lock_guard lock(mutex);
      ASSERT_TRUE(group.ok() && group->has_value()) << c.Label() << group.status().message();
      for (size_t e = 0; e < compiler::Engines().size(); ++e) {
        const compiler::Engine& engine = compiler::Engines()[e];
        if (!IsAskedFor(e) || !compiler::Supports(engine, **group, target).ok()) continue;
        Tally& tally = tallies[static_cast<int>(e)];
        ++tally.cases;
        for (const std::vector<int>& knobs :
             SampleKnobs(engine, **group, target, TestOptions::Get().seed + e, i, Sample{})) {
          const auto plan = compiler::Compile(
              *graph, target, ChoiceOf({.engine = static_cast<int>(e), .knobs = knobs}));
          EXPECT_TRUE(plan.ok()) << c.text << "\n  " << engine.name << " "
                                 << compiler::KnobText(engine, knobs) << "\n  "
                                 << plan.status().message();
          ++tally.runs;
          tally.failures += plan.ok() ? 0 : 1;
          if (!plan.ok()) continue;
          for (const KernelSource& kernel : plan->program.kernels) texts.insert(kernel.entry);
        }
      }
    });
    fmt::print("{}: {} cases, {} kernels\n", arch, file_.cases.size(), texts.size());
    Print(tallies);
    is_run |= !tallies.empty();
    if (!TestOptions::Get().filter.empty() || !engines_.empty()) continue;
    int configurations = 0;
    for (const auto& [engine, tally] : tallies) configurations += tally.runs;
    EXPECT_GT(configurations, 1000);
  }
  EXPECT_TRUE(is_run) << "nothing runs for what was asked for";
}

// The harness itself: it finds results that were not written, and accepts right ones.
TEST_F(EnginesTest, PoisonIsNoResult) {
  auto cases = MakeRuns(1);
  Prepare(cases);
  CaseRuns& c = *cases[0];
  ASSERT_EQ(c.error(), "");
  if (c.runs().empty() && !engines_.empty())
    GTEST_SKIP() << "no engine asked for has the first case";
  ASSERT_FALSE(c.runs().empty());
  const EngineRun& run = c.runs()[0];
  ASSERT_EQ(run.failure, "");
  EXPECT_NE(c.Check(run, c.data()), "") << "poison passes for a result";
  ASSERT_TRUE(c.Run(c.runs()[0]));
  EXPECT_EQ(run.failure, "");
}

TEST_F(EnginesTest, AgreeWithTheOracle) {
  const double begin = Now();
  auto cases = MakeRuns(file_.cases.size());
  const double listed = Now();
  Prepare(cases);
  const double prepared = Now();
  std::map<int, Tally> tallies;
  int messages = 0;
  bool lost = false;
  for (size_t i = 0; i < cases.size() && !lost; ++i) {
    CaseRuns& c = *cases[i];
    EXPECT_EQ(c.error(), "") << c.problem().Label();
    std::map<int, bool> seen;
    for (EngineRun& run : c.runs()) {
      lost = !c.Run(run);
      Tally& tally = tallies[run.engine];
      tally.cases += seen.try_emplace(run.engine, true).second;
      ++tally.runs;
      if (!run.failure.empty()) {
        ++tally.failures;
        if (messages++ < kMostMessages)
          ADD_FAILURE() << c.problem().text << "\n  " << run.Name() << "\n  " << run.failure;
      }
      if (lost) break;
    }
    cases[i].reset();
  }
  if (lost) ADD_FAILURE() << "the device is lost: nothing after this ran";
  if (messages > kMostMessages)
    ADD_FAILURE() << messages - kMostMessages << " more failures are not shown";
  Print(tallies);
  fmt::print(
      "{}: {} cases, listed in {:.1f} s, compiled in {:.1f} s, run in {:.1f} s; "
      "KILN_TEST_SEED={}\n",
      device_->target().name, cases.size(), listed - begin, prepared - listed, Now() - prepared,
      TestOptions::Get().seed);
  EXPECT_FALSE(tallies.empty()) << "none of the " << cases.size() << " cases is taken by "
                                << (engines_.empty() ? "any engine" : "the engines asked for");
  CheckCoverage(tallies);
}

}  // namespace
}  // namespace kiln::testing
