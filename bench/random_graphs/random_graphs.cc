// random_graphs: counts how many random graphs of the backend API a library takes: ours and
// NVIDIA's are given the same.
//
//   random_graphs --out random_graphs.json [--repeats GRAPHS] [--cudnn …] [--nvidia …|none]
//                 [--filter kiln|nvidia]
//
// Graphs are those of ApiOptions (tests/support/random_graph.h), seeds 1 to --repeats, 2000 where
// it is not said; those of which the cases' language has no word are left out for both. A graph is
// taken where it is finalised, the heuristics give a configuration, and one of the first three
// becomes a plan. Nothing is executed: that ours are right as well is what
// tests/numerics/random_graphs_test.cc sees. Work is done in child processes: a library may crash.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <thread>

#include "bench/support/case_bench.h"
#include "bench/support/supervise.h"
#include "tests/support/device_memory.h"
#include "tests/support/graph_case.h"
#include "tests/support/nvidia_library.h"
#include "tests/support/random_graph.h"
#include "tests/support/spelled.h"

namespace kiln::bench {
namespace {

using testing::ClientError;

constexpr int64_t kGraphs = 2000;
constexpr size_t kConfigs = 3;
constexpr double kSeconds = 600;  // of a library, or RANDOM_GRAPHS_SECONDS; the rest is not asked

struct Problem {
  uint64_t seed = 0;
  size_t operations = 0;  // attention counts as one
  Case problem;
};

std::vector<Problem> MakeProblems(int64_t graphs) {
  std::vector<Problem> problems;
  for (int64_t i = 1; i <= graphs; ++i) {
    const auto seed = static_cast<uint64_t>(i);
    const graph::Graph g = graph::RandomGraph(seed, graph::ApiOptions(seed));
    if (g.nodes.empty()) continue;
    if (auto c = testing::ToCase(g); c.ok())
      problems.push_back(
          {.seed = seed, .operations = c->ops.size(), .problem = testing::SpelledOut(*c)});
  }
  return problems;
}

// The place where the library refuses: graph, heuristics, plan; or "taken". `why` gets its words.
std::string Ask(const Cudnn& cudnn, const Case& c, std::string& why) {
  ClientError error;
  const std::unique_ptr<testing::Graph> graph = testing::Graph::Build(cudnn, c, &error);
  if (graph != nullptr) error = graph->Heuristics();
  why = error.text;
  if (graph == nullptr) return "graph";
  if (!error.ok() || graph->configs() == 0) return "heuristics";
  for (size_t config = 0; config < std::min(graph->configs(), kConfigs); ++config) {
    if (graph->MakePlan(config, &error) != nullptr) return "taken";
    why = error.text;
  }
  return "plan";
}

// A row is "STAGE operations".
int AskAll(const std::string& library, const std::vector<Problem>& problems, size_t first,
           size_t step, const Progress& progress, const Attempt& attempt) {
  std::string error;
  const auto device = testing::OpenTestDevice(&error);
  const auto cudnn = device == nullptr ? nullptr : Cudnn::Open(library, device->stream(), &error);
  if (cudnn == nullptr) {
    std::fprintf(stderr, "%s: %s\n", library.c_str(), error.c_str());
    return 2;
  }
  const auto begin = std::chrono::steady_clock::now();
  const double seconds = std::getenv("RANDOM_GRAPHS_SECONDS") == nullptr
                             ? kSeconds
                             : std::atof(std::getenv("RANDOM_GRAPHS_SECONDS"));
  for (size_t i = first; i < problems.size(); i += step) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    if (passed.count() > seconds) break;
    const std::string name = std::to_string(problems[i].seed);
    if (attempt.finished.contains(name)) continue;
    progress.Begin(name);
    alarm(20);
    std::string why;
    const std::string stage = Ask(*cudnn, problems[i].problem, why);
    alarm(0);
    progress.Row(name, fmt::format("{} {}", stage, problems[i].operations));
    if (stage != "taken" && i % 50 == 0)
      fmt::print("{}: seed {} refused at {}: {}\n", library, name, stage, why);
  }
  return kDone;
}

struct Count {
  int64_t graphs = 0, taken = 0;
  std::map<std::string, int64_t> refused;  // by stage

  void Add(const std::string& stage) {
    ++graphs;
    if (stage == "taken")
      ++taken;
    else
      ++refused[stage];
  }
};

const char* SizeOf(int64_t operations) {
  return operations == 1 ? "1" : operations <= 4 ? "2-4" : operations <= 10 ? "5-10" : "11-40";
}

std::string RowText(const std::string& library, const std::string& size, const Count& count) {
  std::string refused;
  for (const auto& [stage, number] : count.refused)
    refused += fmt::format("{}\"{}\": {}", refused.empty() ? "" : ", ", stage, number);
  fmt::print("{:6} {:5} operations: {} of {} taken\n", library, size, count.taken, count.graphs);
  return fmt::format(
      "    {{\"library\": \"{}\", \"operations\": \"{}\", \"graphs\": {}, \"taken\": {}, "
      "\"refused\": {{{}}}}}",
      library, size, count.graphs, count.taken, refused);
}

// Rows of a library: all graphs, then by their number of operations.
std::string CountAll(const std::string& name, const std::string& library,
                     const std::vector<Problem>& problems) {
  const auto processes = std::max(1u, std::thread::hardware_concurrency());
  const auto folder = std::filesystem::temp_directory_path();
  const auto path = [&, parent = getpid()](unsigned p) {
    return folder / fmt::format("random_graphs.{}.{}.{}", parent, name, p);
  };
  std::vector<pid_t> children;
  for (unsigned p = 0; p < processes; ++p) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      const Progress progress(path(p));
      _exit(Supervise(
          progress,
          [&](const Attempt& attempt) {
            return AskAll(library, problems, p, processes, progress, attempt);
          },
          [](const std::string&, const std::string&) { return std::string("died 0"); }));
    }
    if (child > 0) children.push_back(child);
  }
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  Count all;
  std::map<std::string, Count> by_size;
  for (unsigned p = 0; p < processes; ++p) {
    for (const std::string& row : Progress(path(p)).Read().rows) {
      const size_t space = row.find(' ');
      const std::string stage = row.substr(0, space);
      all.Add(stage);
      if (const int64_t operations = std::atoll(row.c_str() + space); operations > 0)
        by_size[SizeOf(operations)].Add(stage);
    }
    std::filesystem::remove(path(p));
  }
  std::string rows = RowText(name, "all", all);
  for (const auto& [size, count] : by_size) rows += ",\n" + RowText(name, size, count);
  return rows;
}

int Main(int argc, char** argv) {
  Options options = Options::Parse(argc, argv);
  const int64_t graphs = options.repeats == Options().repeats ? kGraphs : options.repeats;
  const std::vector<Problem> problems = MakeProblems(graphs);
  fmt::print("{} graphs of {} seeds\n", problems.size(), graphs);
  const size_t version = options.nvidia.empty() ? 0 : testing::ProbeVersion(options.nvidia);
  std::string rows;
  for (const auto& [name, library] :
       {std::pair("kiln", options.cudnn), std::pair("nvidia", options.nvidia)}) {
    if (library.empty() || std::string(name).find(options.filter) == std::string::npos) continue;
    rows += (rows.empty() ? "" : ",\n") + CountAll(name, library, problems);
  }
  std::string error;
  const auto device = testing::OpenTestDevice(&error);
  return WriteResults(options, "random_graphs", device ? device->name() : error, version, rows) ? 0
                                                                                                : 2;
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::Main(argc, argv); }
