#include "api/session/capture.h"

#include <filesystem>
#include <set>

#include "ir/base/hash.h"
#include "ir/base/log.h"
#include "ir/graph/ops.h"
#include "runtime/cache/record_files.h"

namespace kiln::api {
namespace {

constexpr size_t kDigits = 16;

// "conv_fprop_pointwise": operations in order, each once.
std::string NameOf(const graph::Graph& graph) {
  constexpr size_t kLongest = 60;
  std::set<std::string_view> seen;
  std::string name;
  for (const graph::Node& node : graph.nodes) {
    const std::string_view mnemonic = graph::Info(node.op).mnemonic;
    if (!seen.insert(mnemonic).second || name.size() + mnemonic.size() > kLongest) continue;
    name += fmt::format("{}{}", name.empty() ? "" : "_", mnemonic);
  }
  return name.empty() ? "graph" : name;
}

}  // namespace

void CaptureGraph(const std::string& folder, const graph::Graph& graph) {
  const std::string hash = HashBytes(graph::CanonicalText(graph)).Hex().substr(0, kDigits);
  const std::string file = fmt::format("{}/{}-{}.kiln", folder, NameOf(graph), hash);
  std::error_code error;
  if (std::filesystem::exists(file, error)) return;
  const Status written = runtime::ReplaceFile(file, graph::Print(graph));
  if (!written.ok()) LOG(kWarn, "capture: {}", written.message());
}

}  // namespace kiln::api
