#include "api/session/leading_groups.h"

#include "api/session/graph_traits.h"
#include "ir/graph/ops.h"

namespace kiln::api {

Result<std::shared_ptr<const compiler::Groups>> LeadingGroups::Get(const graph::Graph& graph,
                                                                   compiler::Inputs inputs,
                                                                   int64_t engine) const {
  if (!MayHoldWholes(graph)) engine = -1;
  std::string key =
      fmt::format("{} {}\n", static_cast<int>(inputs), engine) + graph::CanonicalText(graph);
  if (auto known = groups_.Find(key)) return known;
  ASSIGN_OR_RETURN(compiler::Groups groups,
                   compiler::GroupsOf(graph, target_, inputs, static_cast<int>(engine),
                                      compiler::Picks::kToFindTheLeading));
  auto made = std::make_shared<const compiler::Groups>(std::move(groups));
  groups_.Insert(std::move(key), made);
  return std::shared_ptr<const compiler::Groups>(std::move(made));
}

}  // namespace kiln::api
