#include "cli/pack_plans.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "api/prefetch/known_networks.h"
#include "api/session/planned_kernels.h"
#include "cli/choices.h"
#include "cli/graph_file.h"
#include "cli/graph_list.h"
#include "ir/base/threads.h"
#include "ir/board.h"
#include "ir/graph/batch.h"
#include "ir/target.h"

namespace kiln::cli {
namespace {

struct NamedGraph {
  std::string name;
  graph::Graph graph;
};

// All boards of the architecture, since their models and records choose differently; the described
// chip where the table has none. Devices ask for the last row of their architecture alone: a pack
// of sm_90 would never be found.
Status AddTargets(const std::string& arch, std::vector<Target>& targets) {
  ASSIGN_OR_RETURN(const Target described, TargetFromArch(arch));
  if (!described.is_cuda()) {
    return Status::Text(Code::kInvalidValue,
                        "--arch cpu: packs hold kernels of GPUs; the CPU compiles as it loads");
  }
  const size_t before = targets.size();
  for (const Board& board : Boards()) {
    if (board.sm_version != described.sm_version) continue;
    ASSIGN_OR_RETURN(Target target, TargetFromBoard(board.name));
    if (target.arch != described.arch) {
      return Status::Error(Code::kInvalidValue,
                           "--arch {}: on such a GPU the library asks for kernels of {}", arch,
                           target.arch);
    }
    targets.push_back(std::move(target));
  }
  if (targets.size() == before) targets.push_back(described);
  return {};
}

Result<std::vector<Target>> TargetsOf(const PackPlanOptions& options) {
  std::vector<Target> targets;
  for (const std::string& board : options.boards) {
    ASSIGN_OR_RETURN(Target target, TargetFromBoard(board));
    const bool is_wanted = options.archs.empty() ||
                           std::ranges::find(options.archs, target.arch) != options.archs.end();
    if (!is_wanted) {
      return Status::Error(Code::kInvalidValue, "--board {}: it has {}, and --arch names {}", board,
                           target.arch, fmt::join(options.archs, ", "));
    }
    targets.push_back(std::move(target));
  }
  if (!targets.empty()) return targets;
  for (const std::string& arch : options.archs) RETURN_IF_ERROR(AddTargets(arch, targets));
  if (targets.empty())
    return Status::Text(Code::kInvalidValue, "name an architecture by --arch, or a --board");
  return targets;
}

// A graph, or those of a network (*.kiln with several).
Result<std::vector<NamedGraph>> GraphsOf(const std::string& argument) {
  std::vector<NamedGraph> graphs;
  if (argument.ends_with(".kiln")) {
    if (Result<std::vector<graph::Graph>> network = api::ReadNetwork(argument);
        network.ok() && network->size() > 1) {
      for (graph::Graph& graph : *network)
        graphs.push_back({fmt::format("{}, graph {}", argument, graphs.size() + 1), graph});
      return graphs;
    }
  }
  ASSIGN_OR_RETURN(graph::Graph graph, ReadGraph(argument));
  graphs.push_back({argument, std::move(graph)});
  return graphs;
}

// The graph with each batch. One image cannot be told from other extents of 1: such a graph stays.
void AddBatches(const NamedGraph& one, const std::vector<int64_t>& batches,
                std::vector<NamedGraph>& all) {
  if (batches.empty() || graph::BatchOf(one.graph) <= 1) {
    all.push_back(one);
    return;
  }
  for (const int64_t batch : batches)
    all.push_back(
        {fmt::format("{} at batch {}", one.name, batch), graph::WithBatch(one.graph, batch)});
}

Result<std::vector<NamedGraph>> ReadAll(const PackPlanOptions& options) {
  std::vector<NamedGraph> all;
  for (const std::string& list : options.lists) {
    ASSIGN_OR_RETURN(const std::vector<std::string> arguments, ExpandGraphList(list));
    for (const std::string& argument : arguments) {
      ASSIGN_OR_RETURN(const std::vector<NamedGraph> graphs, GraphsOf(argument));
      for (const NamedGraph& one : graphs) AddBatches(one, options.batches, all);
    }
  }
  return all;
}

// Kernels that threads add, each kept once.
class Collected {
 public:
  void Add(std::vector<KernelSource> kernels) {
    const std::lock_guard lock(mutex_);
    for (KernelSource& kernel : kernels) {
      auto key = std::pair(kernel.arch, kernel.entry);
      kernels_.try_emplace(std::move(key), std::move(kernel));
    }
  }
  std::vector<KernelSource> Take() {
    std::vector<KernelSource> kernels;
    for (auto& [key, kernel] : kernels_) kernels.push_back(std::move(kernel));
    return kernels;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, KernelSource> kernels_;
};

using Planners = std::vector<std::unique_ptr<api::PlannedKernels>>;

// Success where any board takes the graph. Another batch may have made an illegal one of it.
Status PlanOn(const Planners& planners, const graph::Graph& graph, api::PlannedFor clients,
              Collected& collected) {
  RETURN_IF_ERROR(graph::Verify(graph));
  bool is_taken = false;
  Status refusal;
  for (const auto& planner : planners) {
    Result<std::vector<KernelSource>> kernels = planner->Of(graph, clients);
    is_taken = is_taken || kernels.ok();
    if (kernels.ok()) {
      collected.Add(*std::move(kernels));
    } else {
      refusal = kernels.status();
    }
  }
  return is_taken ? Status() : refusal;
}

}  // namespace

void PackPlanOptions::AddTo(CLI::App& command) {
  AnswerQuestion(command.add_option("--arch", archs, "sm_80, sm_90a, sm_100a …; may be repeated")
                     ->type_name("ARCH")
                     ->allow_extra_args(false),
                 [] { return TargetFromArch("?").status().message(); });
  AnswerQuestion(
      command.add_option("--board", boards, "such a board alone, rather than all of --arch")
          ->type_name("NAME")
          ->allow_extra_args(false),
      [] { return TargetFromBoard("?").status().message(); });
  command
      .add_option("--batch", batches,
                  "images in the place of a graph's own, if it has several: 1,16,64,256")
      ->type_name("N,N…")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  command.add_flag("--first", first_only,
                   "for clients that take the first plan offered, not for those that time all");
  command.add_option("--jobs", jobs, "threads; 0 is one for each core")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
}

int PackJobs(int jobs) { return jobs > 0 ? jobs : Cores(); }

Result<PackPlans> PlanForPack(const PackPlanOptions& options,
                              const std::function<void(size_t done, size_t of)>& step) {
  ASSIGN_OR_RETURN(const std::vector<Target> targets, TargetsOf(options));
  ASSIGN_OR_RETURN(const std::vector<NamedGraph> graphs, ReadAll(options));
  Planners planners;
  for (const Target& target : targets)
    planners.push_back(std::make_unique<api::PlannedKernels>(target));
  const auto clients =
      options.first_only ? api::PlannedFor::kFirstChoice : api::PlannedFor::kWholeList;
  Collected collected;
  std::vector<std::string> refusals(graphs.size());
  std::atomic<size_t> done = 0;
  ForEachTogether(graphs.size(), PackJobs(options.jobs), [&](size_t i) {
    const Status taken = PlanOn(planners, graphs[i].graph, clients, collected);
    if (!taken.ok()) refusals[i] = fmt::format("{}: {}", graphs[i].name, taken.message());
    step(++done, graphs.size());
  });
  PackPlans plans{.kernels = collected.Take(), .graphs = graphs.size(), .refused = {}};
  for (std::string& refusal : refusals)
    if (!refusal.empty()) plans.refused.push_back(std::move(refusal));
  return plans;
}

}  // namespace kiln::cli
