// Convolutions and matrix products on our libcudnn and NVIDIA's, side by side in one process.
//
//   contract [--json OUT] [--only REGEX] [--no-nvidia] [--seconds-per-problem 1] …    --help: all
//
// Problems are the lines of tests/cases/bench_contract.txt. For each, every plan that a library
// offers is made ahead by many threads; ours are checked, all are looked at, and the best of each
// side are timed in turns together with each side's first choice. Matrix products meet cuBLAS too.
// What a library refuses is a row with its reason. Exit status 1: a row of ours is wrong or has no
// time; 2: nothing could be measured.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>

#include "bench/contract/measure.h"
#include "bench/contract/parallel.h"
#include "bench/support/supervise.h"
#include "tests/support/nvidia_library.h"
#include "tests/support/runner.h"

namespace kiln::bench {
namespace {

struct Settings {
  std::string list, only, json, cudnn, nvidia, cublas, commit = "unknown", date;
  bool no_nvidia = false, no_cublas = false, dry_run = false;
  int jobs = Cores(), batch = 64;
  double stop_after = 1e9;
  PlanMakers::Settings plans;
  MeasureSettings measure;
};

// A flag: how its value is taken, null for one that has none.
struct Flag {
  const char *name, *meaning;
  std::function<void(const char*)> take;
  bool has_value = true;
};

std::vector<Flag> FlagsOf(Settings& s) {
  const auto text = [](std::string& to) { return [&to](const char* v) { to = v; }; };
  const auto on = [](bool& to) { return [&to](const char*) { to = true; }; };
  const auto count = [](auto& to, int least) {
    return [&to, least](const char* v) {
      to = static_cast<std::remove_reference_t<decltype(to)>>(std::max(least, std::atoi(v)));
    };
  };
  const auto number = [](double& to) { return [&to](const char* v) { to = std::atof(v); }; };
  return {
      {"--list", "FILE of problems; default tests/cases/bench_contract.txt", text(s.list)},
      {"--only", "REGEX on section/name", text(s.only)},
      {"--json", "OUT: the rows, for bench/report/report.py", text(s.json)},
      {"--seconds-per-problem", "S for looking at plans, and half of it for timing; default 1",
       number(s.measure.seconds)},
      {"--stop-after", "S: no problem begins later; the JSON has those before",
       number(s.stop_after)},
      {"--rounds", "N times of each finalist at most; default 20", count(s.measure.rounds, 5)},
      {"--rest-us", "US to wait before each launch of the finalists", number(s.measure.rest_us)},
      {"--no-nvidia", "ours alone", on(s.no_nvidia), false},
      {"--no-cublas", "no cuBLAS", on(s.no_cublas), false},
      {"--cudnn", "PATH of our library", text(s.cudnn)},
      {"--nvidia", "PATH of NVIDIA's; default the newest found", text(s.nvidia)},
      {"--cublas", "PATH of libcublasLt.so", text(s.cublas)},
      {"--our-plans", "N plans of ours a problem; default 32", count(s.plans.most_ours, 1)},
      {"--nvidia-plans", "N of NVIDIA's; default 48", count(s.plans.most_nvidia, 1)},
      {"--jobs", "N threads that make plans; default all cores", count(s.jobs, 1)},
      {"--batch", "N problems whose plans are made together; default 64", count(s.batch, 1)},
      {"--commit", "HASH for the JSON", text(s.commit)},
      {"--date", "YYYY-MM-DD for the JSON; default today", text(s.date)},
      {"--dry-run", "the problems with their floors, without a GPU", on(s.dry_run), false}};
}

// False after a message: the exit status is then 2.
bool Parse(int argc, char** argv, Settings& s) {
  const auto flags = FlagsOf(s);
  for (int i = 1; i < argc; ++i) {
    const auto flag =
        std::ranges::find_if(flags, [&](const Flag& f) { return argv[i] == std::string(f.name); });
    const bool known = flag != flags.end();
    if (!known || (flag->has_value && i + 1 == argc)) {
      if (argv[i] != std::string("--help")) {
        std::fprintf(stderr, "%s '%s'; known are\n", known ? "no value after" : "unknown argument",
                     argv[i]);
      }
      for (const Flag& f : flags) std::fprintf(stderr, "  %-22s %s\n", f.name, f.meaning);
      return false;
    }
    flag->take(flag->has_value ? argv[++i] : nullptr);
  }
  const auto& defaults = testing::TestOptions::Get();
  if (s.list.empty()) s.list = defaults.cases + "/bench_contract.txt";
  if (s.cudnn.empty()) s.cudnn = defaults.cudnn;
  if (s.nvidia.empty()) s.nvidia = defaults.nvidia;
  if (s.date.empty()) {
    std::array<char, 32> today{};
    const std::time_t now = std::time(nullptr);
    std::strftime(today.data(), today.size(), "%Y-%m-%d", std::gmtime(&now));
    s.date = today.data();
  }
  return true;
}

std::optional<std::vector<Problem>> LoadChosen(const Settings& s) {
  ProblemList list = LoadProblems(s.list);
  for (const std::string& error : list.errors) std::fprintf(stderr, "%s\n", error.c_str());
  if (!list.errors.empty()) return std::nullopt;
  if (s.only.empty()) return std::move(list.problems);
  try {
    const std::regex only(s.only);
    std::erase_if(list.problems,
                  [&](const Problem& p) { return !std::regex_search(p.Name(), only); });
  } catch (const std::regex_error& error) {
    std::fprintf(stderr, "--only '%s': %s\n", s.only.c_str(), error.what());
    return std::nullopt;
  }
  if (list.problems.empty()) {
    std::fprintf(stderr, "--only '%s' names no problem of %s\n", s.only.c_str(), s.list.c_str());
    return std::nullopt;
  }
  return std::move(list.problems);
}

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The part that runs in a child: everything that touches the device.
class Session {
 public:
  Session(const Settings& settings, const std::vector<Problem>& problems, const Progress& progress,
          double start)
      : settings_(settings), problems_(problems), progress_(progress), start_(start) {}

  int Run(const Attempt& attempt) {
    if (!Open()) return 2;
    std::vector<const Problem*> left;
    for (const Problem& problem : problems_) {
      if (!attempt.finished.contains(problem.Name())) left.push_back(&problem);
    }
    const size_t batch = attempt.careful ? 1 : static_cast<size_t>(settings_.batch);
    for (size_t begin = 0; begin < left.size(); begin += batch) {
      const size_t end = std::min(begin + batch, left.size());
      if (IsLate()) break;
      if (attempt.careful) progress_.Begin(left[begin]->Name());
      if (!RunBatch({left.begin() + static_cast<ptrdiff_t>(begin),
                     left.begin() + static_cast<ptrdiff_t>(end)}))
        return kStartAgain;
    }
    return kDone;
  }

 private:
  // The longest that a problem, and the making of a batch's plans, may take.
  static constexpr unsigned kProblemLimit = 90, kBatchLimit = 900;

  bool Open() {
    std::string error;
    device_ = testing::OpenGpuDevice(&error);
    if (device_) makers_ = PlanMakers::Open(*device_, settings_.plans, &error);
    if (makers_) watch_ = Stopwatch::Make(*device_, makers_->ours(), &error);
    if (!watch_) return std::fprintf(stderr, "%s\n", error.c_str()), false;
    if (!settings_.no_cublas) blas_ = Blas::Open(settings_.cublas, settings_.plans.nvidia, &error);
    const std::string no_blas = settings_.no_cublas ? "left out" : error;
    measurer_ = std::make_unique<Measurer>(*device_, *watch_, blas_.get(), settings_.measure);
    const size_t nvidia = makers_->nvidia() ? makers_->nvidia()->version() : 0;
    std::printf("%s, driver %s; ours %s; NVIDIA's %s (%zu); cuBLAS %s\n", device_->name().c_str(),
                device_->DriverVersion().c_str(), settings_.plans.ours.c_str(),
                settings_.plans.nvidia.c_str(), nvidia,
                blas_ ? blas_->path().c_str() : no_blas.c_str());
    progress_.Meta(fmt::format(
        R"("device": {}, "driver": {}, "nvidia_version": {}, "cublas_version": {}, "kiln_version": {})",
        JsonText(device_->name()), JsonText(device_->DriverVersion()), nvidia,
        blas_ ? blas_->version() : 0, makers_->ours().version()));
    return true;
  }

  bool IsLate() const { return Seconds() - start_ > settings_.stop_after; }

  // False where the device is lost.
  bool RunBatch(const std::vector<const Problem*>& problems) {
    const double begin = Seconds();
    alarm(kBatchLimit);
    const auto offers = makers_->Make(problems, [&](int64_t done, int64_t count) {
      if (done % 8 != 0 && done != count) return;
      std::printf("  plans for %lld of %lld, %.1f s\n", static_cast<long long>(done),
                  static_cast<long long>(count), Seconds() - begin);
      std::fflush(stdout);
    });
    for (size_t i = 0; i < problems.size(); ++i) {
      const Problem& problem = *problems[i];
      if (IsLate()) return true;
      progress_.Begin(problem.Name());
      alarm(kProblemLimit);
      const Row row = measurer_->Measure(problem, offers[i]);
      alarm(0);
      progress_.Row(problem.Name(), ToJson(problem, row));
      std::printf("%s\n", ToText(problem, row).c_str());
      std::fflush(stdout);
      if (!row.fault.empty()) return false;
    }
    return true;
  }

  const Settings& settings_;
  const std::vector<Problem>& problems_;
  const Progress& progress_;
  const double start_;
  std::unique_ptr<testing::GpuDevice> device_;
  std::unique_ptr<PlanMakers> makers_;
  std::unique_ptr<Stopwatch> watch_;
  std::unique_ptr<Blas> blas_;
  std::unique_ptr<Measurer> measurer_;
};

bool Write(const Settings& s, const Progress::State& state) {
  if (s.json.empty()) return true;
  std::error_code ignored;
  const auto folder = std::filesystem::path(s.json).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  std::ofstream out(s.json);
  out << fmt::format("{{\n  \"benchmark\": \"contract\", \"commit\": {}, \"date\": {},\n  {},\n",
                     JsonText(s.commit), JsonText(s.date),
                     state.meta.empty() ? R"("device": "none", "nvidia_version": 0)" : state.meta);
  out << "  \"rows\": [\n";
  for (size_t i = 0; i < state.rows.size(); ++i)
    out << "    " << state.rows[i] << (i + 1 < state.rows.size() ? ",\n" : "\n");
  out << "  ]\n}\n";
  out.close();
  if (!out.fail()) return true;
  std::fprintf(stderr, "cannot write %s\n", s.json.c_str());
  return false;
}

void PrintFloors(const std::vector<Problem>& problems) {
  for (const Problem& p : problems) {
    std::printf("%-48s %10.3f GFLOP %9.1f MB floor %9.1f us\n", p.Name().c_str(), p.flops * 1e-9,
                static_cast<double>(p.bytes) * 1e-6, p.FloorMicroseconds());
  }
}

int Main(int argc, char** argv) {
  Settings settings;
  if (!Parse(argc, argv, settings)) return 2;
  const auto problems = LoadChosen(settings);
  if (!problems) return 2;
  if (settings.dry_run) return PrintFloors(*problems), 0;
  // Candidates are asked for their version in children, so before any device is open.
  settings.plans.ours = settings.cudnn;
  if (!settings.no_nvidia) settings.plans.nvidia = testing::NvidiaLibraryPath(settings.nvidia);
  settings.plans.threads = settings.jobs;
  const std::string rows = settings.json.empty() ? fmt::format("/tmp/contract.{}.rows", getpid())
                                                 : settings.json + ".rows";
  std::error_code ignored;
  std::filesystem::remove(rows, ignored);
  if (const auto folder = std::filesystem::path(rows).parent_path(); !folder.empty())
    std::filesystem::create_directories(folder, ignored);
  const Progress progress(rows);
  const double start = Seconds();
  const int status = Supervise(
      progress,
      [&](const Attempt& attempt) {
        return Session(settings, *problems, progress, start).Run(attempt);
      },
      [&](const std::string& name, const std::string& why) {
        const auto problem =
            std::ranges::find_if(*problems, [&](const Problem& p) { return p.Name() == name; });
        return LostRow(*problem, why);
      });
  const Progress::State state = progress.Read();
  const bool written = state.rows.empty() || Write(settings, state);
  if (written) std::filesystem::remove(rows, ignored);
  if (!written || status != kDone) return 2;
  const auto bad = std::ranges::count_if(state.rows, [](const std::string& row) {
    return row.find("\"wrong\": \"\"") == std::string::npos ||
           row.find("\"fault\": \"\"") == std::string::npos ||
           row.find("\"kiln\": {\"first\": null, \"best\": null") != std::string::npos;
  });
  std::printf("%zu of %zu problems, %lld wrong, lost or not timed\n", state.rows.size(),
              problems->size(), static_cast<long long>(bad));
  return bad > 0;
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::Main(argc, argv); }
