#include "api/prefetch/known_networks.h"

#include <algorithm>

#include "ir/base/log.h"
#include "ir/graph/batch.h"
#include "runtime/cache/file_io.h"

namespace kiln::api {
namespace {

constexpr size_t kGraphsToKnow = 2;

std::string KeyOf(const graph::Graph& graph) {
  return graph::CanonicalText(graph::WithBatch(graph, 1));
}

}  // namespace

Result<std::vector<graph::Graph>> ReadNetwork(const std::string& file) {
  ASSIGN_OR_RETURN(const std::string text, runtime::ReadFile(file));
  // A graph ends with the line "}".
  constexpr std::string_view kEnd = "\n}\n";
  std::vector<graph::Graph> graphs;
  for (size_t at = 0; text.find_first_not_of(" \n", at) != text.npos;) {
    const size_t end = std::min(text.find(kEnd, at), text.size() - kEnd.size()) + kEnd.size();
    Result<graph::Graph> graph = graph::Parse(std::string_view(text).substr(at, end - at));
    if (!graph.ok())
      return std::move(graph).status().Within(fmt::format("{}, graph {}", file, graphs.size() + 1));
    graphs.push_back(*std::move(graph));
    at = end;
  }
  return graphs;
}

void KnownNetworks::ReadOnce() {
  if (std::exchange(is_read_, true)) return;
  for (const std::string& file : files_) {
    Result<std::vector<graph::Graph>> graphs = ReadNetwork(file);
    if (!graphs.ok()) {
      LOG(kWarn, "network: {}", graphs.status().message());
      continue;
    }
    for (size_t i = 0; i < graphs->size(); ++i)
      places_.emplace(KeyOf((*graphs)[i]), Place{networks_.size(), i});
    networks_.push_back(*std::move(graphs));
  }
}

std::vector<graph::Graph> KnownNetworks::Beside(const graph::Graph& graph) {
  const std::lock_guard lock(mutex_);
  ReadOnce();
  const int64_t batch = graph::BatchOf(graph);
  const auto [begin, end] = places_.equal_range(KeyOf(graph));
  std::vector<graph::Graph> beside;
  for (auto at = begin; at != end; ++at) {
    const auto [network, position] = at->second;
    std::set<size_t>& met = met_[{network, batch}];
    if (met.size() >= kGraphsToKnow || !met.insert(position).second || met.size() < kGraphsToKnow)
      continue;
    const std::vector<graph::Graph>& graphs = networks_[network];
    for (size_t i = 1; i < graphs.size(); ++i)
      beside.push_back(graph::WithBatch(graphs[(position + i) % graphs.size()], batch));
  }
  return beside;
}

}  // namespace kiln::api
