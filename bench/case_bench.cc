// Plans and packs for the benchmarks, and their command line.
#include "bench/case_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

namespace kiln::bench {

std::unique_ptr<CaseBench> CaseBench::Make(const Cudnn& cudnn, const Case& c, std::string* error) {
  auto bench = std::make_unique<CaseBench>();
  bench->cudnn_ = &cudnn;
  testing::ClientError failed;
  bench->graph_ = Graph::Build(cudnn, c, &failed);
  if (bench->graph_) failed = bench->graph_->Heuristics();
  for (size_t i = 0; failed.ok() && !bench->plan_ && i < bench->graph_->configs(); ++i) {
    testing::ClientError unfit;
    bench->plan_ = bench->graph_->MakePlan(i, &unfit);
    if (!bench->plan_ && i + 1 == bench->graph_->configs()) failed = unfit;
  }
  *error = failed.text;
  return bench->plan_ ? std::move(bench) : nullptr;
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
  std::string repeats;
  const std::pair<const char*, std::string*> flags[] = {
      {"--out", &options.out},     {"--commit", &options.commit}, {"--date", &options.date},
      {"--cudnn", &options.cudnn}, {"--nvidia", &options.nvidia}, {"--filter", &options.filter},
      {"--repeats", &repeats}};
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
                 "--repeats, each with a value\n",
                 argv[i]);
    std::exit(2);
  }
  if (!repeats.empty()) options.repeats = std::max(3, std::atoi(repeats.c_str()));
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

}  // namespace kiln::bench
