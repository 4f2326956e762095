#include "api/session/compile_notice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "ir/base/log.h"
#include "ir/graph/ops.h"
#include "runtime/cuda/cuda_compiler.h"

namespace kiln::api {
namespace {

std::string Operations(const graph::Graph& graph) {
  constexpr size_t kNamed = 4;
  std::vector<std::string> names;
  for (const graph::Node& node : graph.nodes) {
    std::string name(graph::Info(node.op).mnemonic);
    if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
  }
  const size_t more = names.size() > kNamed ? names.size() - kNamed : 0;
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "), more > 0 ? ", …" : "");
}

}  // namespace

CompileNotice::CompileNotice(const graph::Graph& graph, size_t kernels)
    : graph_(graph), kernels_(kernels), begin_(std::chrono::steady_clock::now()) {}

CompileNotice::~CompileNotice() {
  if (kernels_ == 0) return;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin_;
  static std::atomic<bool> told = false;
  if (took.count() < kSecondsWorthALine || told.exchange(true)) return;
  const runtime::DiskCache& disk = runtime::ProcessKernelCache().disk();
  LOG(kWarn, "{}", Text(graph_, kernels_, took.count(), disk.usable() ? disk.directory() : ""));
}

std::string CompileNotice::Text(const graph::Graph& graph, size_t kernels, double seconds,
                                const std::string& folder) {
  const std::string waited =
      fmt::format("a plan of {} waited {:.1f} s for {} kernel{} to be compiled (this is said once)",
                  Operations(graph), seconds, kernels, kernels == 1 ? "" : "s");
  if (folder.empty())
    return fmt::format(
        "{}; there is no folder to keep kernels in, so that the next process waits again: "
        "KILN_CACHE_DIR names one, `kiln doctor` says more",
        waited);
  return fmt::format(
      "{}; kernels are kept in {} for the next process: run the program once where it is "
      "installed, or take that folder along (KILN_CACHE_DIR), and nothing is compiled",
      waited, folder);
}

}  // namespace kiln::api
