// Which kernels a list of graphs needs on the boards of an architecture: what `kiln pack build`
// compiles, and `kiln pack explain` looks for.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ir/base/result.h"
#include "ir/program.h"

namespace kiln::cli {

struct PackPlanOptions {
  std::vector<std::string> lists, archs, boards;
  std::vector<int64_t> batches;  // empty: each graph's own
  bool first_only = false;
  int jobs = 0;  // 0: one for each core

  // --arch, --board, --batch, --first and --jobs.
  void AddTo(CLI::App& command);
};

struct PackPlans {
  std::vector<KernelSource> kernels;  // by architecture and entry, each once
  size_t graphs = 0;                  // with each batch
  std::vector<std::string> refused;   // sentences: no board takes the graph
};

// Errors: a list or graph that cannot be read, an architecture or board that does not exist, or
// that is not one of devices. `step(done, of)` is called from any thread, in no order.
Result<PackPlans> PlanForPack(const PackPlanOptions& options,
                              const std::function<void(size_t done, size_t of)>& step);

// Threads for --jobs.
int PackJobs(int jobs);

}  // namespace kiln::cli
