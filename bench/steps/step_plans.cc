#include "bench/steps/step_plans.h"

#include <algorithm>

#include "api/prefetch/known_networks.h"
#include "api/session/session.h"
#include "compiler/engines/candidates.h"
#include "compiler/engines/registry.h"
#include "ir/graph/batch.h"
#include "ir/graph/ops.h"
#include "tests/support/case_graph.h"
#include "tests/support/pace.h"

namespace kiln::bench {
namespace {

constexpr std::string_view kDirections[] = {"fprop", "dgrad", "wgrad"};

// The case with another batch size: in every tensor that has the list's.
testing::Case WithImages(const testing::Case& c, int64_t images) {
  constexpr std::string_view kListed = "[256,";
  std::string text = c.text;
  const std::string wanted = fmt::format("[{},", images);
  // Filters of 256 channels look alike: images are the operands that are not called w or dw.
  for (size_t at = text.find(kListed); at != text.npos; at = text.find(kListed, at + 1)) {
    const size_t name = text.find_last_of(" (", at) + 1;
    const std::string_view tensor =
        std::string_view(text).substr(name, text.find(':', name) - name);
    if (tensor == "w" || tensor == "dw") continue;
    text.replace(at, kListed.size(), wanted);
  }
  std::string error;
  auto changed = testing::ParseCase(text, &error);
  CHECK(changed.has_value(), "{}: {}", text, error);
  return *std::move(changed);
}

}  // namespace

Result<std::vector<StepProblem>> StepProblems(std::string_view cases, int64_t images) {
  const testing::CaseFile file = testing::ParseCases("cases", cases);
  std::vector<StepProblem> problems;
  for (const std::string_view direction : kDirections) {
    for (const testing::Case& c : file.List(fmt::format("resnet50_{}_n256", direction))) {
      ASSIGN_OR_RETURN(graph::Graph graph, testing::ToGraph(WithImages(c, images)));
      problems.push_back({fmt::format("{}/{}", direction, c.name), std::move(graph)});
    }
  }
  return problems;
}

Result<std::vector<StepProblem>> NetworkProblems(const std::string& file, int64_t images) {
  ASSIGN_OR_RETURN(std::vector<graph::Graph> graphs, api::ReadNetwork(file));
  std::vector<StepProblem> problems;
  for (graph::Graph& graph : graphs) {
    const std::string name =
        fmt::format("{} {}", problems.size(), graph::Info(graph.nodes[0].op).mnemonic);
    problems.push_back({name, graph::WithBatch(std::move(graph), images)});
  }
  return problems;
}

Result<StepPlans> PlanStep(const std::vector<StepProblem>& problems, const Target& target) {
  StepPlans step;
  for (const StepProblem& problem : problems) {
    ASSIGN_OR_RETURN(const std::optional<compiler::Group> group,
                     compiler::LeadingGroupOf(problem.graph, target));
    CHECK(group.has_value(), "{} computes something", problem.name);
    const std::vector<compiler::Candidate> ranked = compiler::RankCandidates(*group, target);
    const compiler::Candidate& first = ranked.front();
    const compiler::Engine& engine = compiler::Engines()[static_cast<size_t>(first.engine)];
    compiler::EngineChoice choice{.engine = first.engine, .knobs = {}};
    for (size_t k = 0; k < first.knobs.size(); ++k)
      choice.knobs.push_back({engine.knobs[k].name, first.knobs[k]});
    ASSIGN_OR_RETURN(const compiler::CompiledPlan compiled,
                     compiler::Compile(problem.graph, target, choice));
    StepPlan plan{.name = problem.name,
                  .engine = engine.name,
                  .knobs = KnobText(engine, first.knobs),
                  .kernels = {},
                  .seconds = first.seconds,
                  .least_seconds = compiler::LeastSeconds(ranked)};
    for (const Launch& launch : compiled.program.launches) {
      const KernelSource& kernel = compiled.program.kernels[static_cast<size_t>(launch.kernel)];
      plan.kernels.push_back(kernel.entry);
      step.kernels.try_emplace(kernel.entry, kernel);
    }
    step.plans.push_back(std::move(plan));
  }
  return step;
}

Result<double> RankMilliseconds(const std::vector<StepProblem>& problems, const Target& target) {
  double all = 0;
  for (const StepProblem& problem : problems) {
    ASSIGN_OR_RETURN(const std::optional<compiler::Group> group,
                     compiler::LeadingGroupOf(problem.graph, target));
    CHECK(group.has_value(), "{} computes something", problem.name);
    double runs[5];
    for (double& run : runs) {
      const double begin = testing::ThreadSeconds();
      const auto ranked = compiler::RankCandidates(*group, target);
      CHECK(!ranked.empty(), "{} has no engine", problem.name);
      run = 1e3 * (testing::ThreadSeconds() - begin);
    }
    all += *std::ranges::min_element(runs);
  }
  return all;
}

std::vector<double> PlanMilliseconds(const std::vector<StepProblem>& problems) {
  std::vector<double> all;
  for (const StepProblem& problem : problems) {
    double runs[5];
    for (double& run : runs) {
      const auto session = api::NewSessionFor(H200());
      const double begin = testing::ThreadSeconds();
      const auto ranked = session->Rank(problem.graph, {.mode = api::RankMode::kA});
      CHECK(ranked.ok(), "{}: {}", problem.name, ranked.status().message());
      const auto facts = session->Describe(problem.graph, ranked->front().engine);
      CHECK(facts.ok(), "{}: {}", problem.name, facts.status().message());
      const auto plan = session->Build(problem.graph, ranked->front(), {});
      CHECK(plan.ok(), "{}: {}", problem.name, plan.status().message());
      run = 1e3 * (testing::ThreadSeconds() - begin);
    }
    all.push_back(*std::ranges::min_element(runs));
  }
  return all;
}

Target H200() { return *TargetFromBoard("NVIDIA H200"); }

}  // namespace kiln::bench
