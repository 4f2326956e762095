#include "compiler/passes/group_reasons.h"

#include <fmt/format.h>

#include "ir/graph/ops.h"

namespace kiln::compiler {

using graph::Graph;
using graph::NodeId;

std::string WhyAnchors(const Graph& g, const std::vector<GroupDraft>& groups, NodeId n,
                       int latest) {
  const graph::Node& node = g.nodes[n];
  const std::string_view op = graph::Info(node.op).mnemonic;
  if (latest == kNoGroup)
    return groups.empty() ? std::string() : fmt::format("a {} anchors a group", op);
  if (Has(node, graph::kReduction) && groups[latest].kind == GroupKind::kContract) {
    return fmt::format(
        "its reduction cannot join group {}: tiles of that contraction hold too little of each "
        "sum, or hold it in another shape",
        latest);
  }
  return fmt::format("a {} anchors a group, and waits for all of group {}", op, latest);
}

std::string WhyNotAfter(const Graph& g, const std::vector<GroupDraft>& groups, NodeId n,
                        int latest) {
  const Dims& dims = g[g.nodes[n].outputs[0]].dims;
  const std::string text = fmt::format("[{}]", fmt::join(dims, ","));
  if (latest == kNoGroup)
    return groups.empty() ? std::string() : fmt::format("no other group stores {}", text);
  const GroupDraft& draft = groups[latest];
  if (draft.pattern != kNoPattern)
    return fmt::format("group {} is one engine's from beginning to end, and stores what this reads",
                       latest);
  if (draft.is_closed) return fmt::format("group {} walks what it reads", latest);
  if (draft.domain != dims)
    return fmt::format("stores {}, and group {}, which it waits for, stores [{}]", text, latest,
                       fmt::join(draft.domain, ","));
  return fmt::format("reads values of group {} at other places than its own", latest);
}

}  // namespace kiln::compiler
