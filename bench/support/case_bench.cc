// Plans and packs for the benchmarks, and their command line.
#include "bench/support/case_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <utility>

#include "tests/support/cases_rank.h"
#include "tests/support/nvidia_library.h"

namespace kiln::bench {

namespace {

// The first config that makes a plan, from the `first`-th on.
std::unique_ptr<Plan> FirstPlan(const Graph& graph, testing::ClientError* error, size_t first = 0) {
  for (size_t i = first; i < graph.configs(); ++i) {
    if (auto plan = graph.MakePlan(i, error)) return plan;
  }
  return nullptr;
}

// Its contractions and functions are less exact than the oracle asks of ours; wrong elements are
// far off.
std::string CheckNvidiaNumbers(const Cudnn& cudnn, Device& device, const Case& small) {
  constexpr oracle::Tolerance kTolerance{.scale = 16, .output_ulps = 1};
  testing::CaseRunner runner(cudnn, device, small);
  testing::ClientError error = runner.PrepareThoroughly();
  if (!error.ok()) error = runner.AddEngines();
  const auto before = testing::MakeData(small, 1);
  testing::CaseData after;
  for (size_t i = 0; i < runner.configs(); ++i) {
    error = runner.Run(i, before, &after);
    if (!error.ok()) continue;
    const std::string wrong =
        testing::CheckRun(small, before, after, testing::Evaluate(small, before), kTolerance);
    return wrong.empty() ? "" : "wrong: " + wrong;
  }
  return error.text;
}

}  // namespace

std::unique_ptr<CaseBench> CaseBench::Make(const Cudnn& cudnn, const Case& c, std::string* error,
                                           const PlanChoice& choice) {
  auto bench = std::make_unique<CaseBench>();
  bench->cudnn_ = &cudnn;
  testing::ClientError failed;
  bench->graph_ = Graph::Build(cudnn, c, &failed);
  if (bench->graph_)
    failed =
        choice.engine < 0 ? bench->graph_->Heuristics() : bench->graph_->AddEngine(choice.engine);
  if (failed.ok()) bench->plan_ = FirstPlan(*bench->graph_, &failed, choice.first);
  *error = bench->plan_ ? "" : failed.text.empty() ? "there is no such plan" : failed.text;
  return bench->plan_ ? std::move(bench) : nullptr;
}

std::unique_ptr<CaseBench> CaseBench::MakeForNvidia(const Cudnn& cudnn, Device& device,
                                                    const Case& c, const Case& small,
                                                    std::string* error) {
  const std::vector<Case> forms = testing::FormsForNvidia(c);
  const std::vector<Case> small_forms = testing::FormsForNvidia(small);
  std::string first;
  for (size_t i = 0; i < forms.size(); ++i) {
    auto bench = std::make_unique<CaseBench>();
    bench->cudnn_ = &cudnn;
    testing::ClientError failed;
    bench->graph_ = Graph::Build(cudnn, forms[i], &failed);
    if (bench->graph_) failed = bench->graph_->AllHeuristics();
    if (failed.ok()) bench->plan_ = FirstPlan(*bench->graph_, &failed);
    if (!bench->plan_ && bench->graph_ && bench->graph_->AddEngines().ok())
      bench->plan_ = FirstPlan(*bench->graph_, &failed);
    *error = bench->plan_ ? CheckNvidiaNumbers(cudnn, device, small_forms[i]) : failed.text;
    if (error->empty()) return bench;
    if (first.empty()) first = *error;
  }
  *error = first;
  return nullptr;
}

std::string CaseBench::Bind(const testing::Pack& pack) {
  pointers_ = pack;
  testing::ClientError error;
  pack_ = pack.Make(*cudnn_, &error);
  return error.text;
}

cudnnStatus_t CaseBench::LaunchWithNewPack() const {
  testing::ClientError error;
  const auto pack = pointers_.Make(*cudnn_, &error);
  if (!error.ok()) return error.status;
  return cudnn_->execute(cudnn_->handle(), plan_->descriptor().get(), pack.get());
}

Case ParseOrExit(const char* line) {
  std::string error;
  auto parsed = testing::ParseCase(line, &error);
  if (!parsed) {
    std::fprintf(stderr, "%s\n", error.c_str());
    std::exit(2);
  }
  return *std::move(parsed);
}

std::string CheckNumbers(const Cudnn& cudnn, Device& device, const Case& small) {
  testing::CaseRunner runner(cudnn, device, small);
  if (const auto error = runner.Prepare(); !error.ok()) return error.text;
  const auto before = testing::MakeData(small, 1);
  testing::CaseData after;
  if (const auto error = runner.Run(0, before, &after); !error.ok()) return error.text;
  return testing::CheckRun(small, before, after, testing::Evaluate(small, before));
}

Options Options::Parse(int argc, char** argv) {
  const auto& defaults = testing::TestOptions::Get();
  Options options{.out = {},
                  .commit = "unknown",
                  .date = {},
                  .cudnn = defaults.cudnn,
                  .nvidia = defaults.nvidia,
                  .filter = {}};
  std::array<char, 32> today{};
  const std::time_t now = std::time(nullptr);
  std::strftime(today.data(), today.size(), "%Y-%m-%d", std::gmtime(&now));
  options.date = today.data();
  std::string repeats, plan, engine;
  const std::pair<const char*, std::string*> flags[] = {
      {"--out", &options.out},       {"--commit", &options.commit},
      {"--date", &options.date},     {"--cudnn", &options.cudnn},
      {"--nvidia", &options.nvidia}, {"--filter", &options.filter},
      {"--repeats", &repeats},       {"--plan", &plan},
      {"--engine", &engine}};
  for (int i = 1; i < argc; ++i) {
    bool known = false;
    for (const auto& [flag, slot] : flags) {
      if (i + 1 < argc && std::strcmp(argv[i], flag) == 0) {
        *slot = argv[++i];
        known = true;
        break;
      }
    }
    if (known) continue;
    std::fprintf(stderr,
                 "unknown argument '%s'; known are --out --commit --date --cudnn --nvidia --filter "
                 "--repeats --plan --engine, each with a value\n",
                 argv[i]);
    std::exit(2);
  }
  options.nvidia = options.nvidia == "none" ? "" : testing::NvidiaLibraryPath(options.nvidia);
  if (!repeats.empty()) options.repeats = std::max(3, std::atoi(repeats.c_str()));
  if (!plan.empty()) options.plan.first = static_cast<size_t>(std::max(0, std::atoi(plan.c_str())));
  if (!engine.empty()) options.plan.engine = std::atoi(engine.c_str());
  return options;
}

std::string JsonText(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

bool WriteResults(const Options& options, const std::string& name, const std::string& device,
                  size_t nvidia_version, const std::string& rows) {
  if (options.out.empty()) return true;
  std::error_code ignored;
  const auto folder = std::filesystem::path(options.out).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  // Whole at any time: a run that is cut off leaves the rows that it has measured.
  const std::string unfinished = options.out + ".part";
  std::ofstream out(unfinished);
  out << fmt::format(
      "{{\n  \"benchmark\": {},\n  \"commit\": {},\n  \"date\": {},\n  \"device\": {},\n  "
      "\"nvidia_version\": {},\n  \"rows\": [\n{}\n  ]\n}}\n",
      JsonText(name), JsonText(options.commit), JsonText(options.date), JsonText(device),
      nvidia_version, rows);
  out.close();
  std::error_code error;
  std::filesystem::rename(unfinished, options.out, error);
  if (!out.fail() && !error) return true;
  std::filesystem::remove(unfinished, error);
  std::fprintf(stderr, "cannot write %s\n", options.out.c_str());
  return false;
}

}  // namespace kiln::bench
