// Sentences for people: why partition made a node a group of its own. Groups are numbered as
// partition leaves them.
#pragma once

#include <string>
#include <vector>

#include "compiler/passes/group_draft.h"

namespace kiln::compiler {

// The reason why a node opens a group; `latest` is the last group that it waits for.
std::string WhyAnchors(const graph::Graph& g, const std::vector<GroupDraft>& groups,
                       graph::NodeId n, int latest);
// The reason why a map is stored: why it joins neither the last group that it waits for nor
// another.
std::string WhyNotAfter(const graph::Graph& g, const std::vector<GroupDraft>& groups,
                        graph::NodeId n, int latest);

}  // namespace kiln::compiler
