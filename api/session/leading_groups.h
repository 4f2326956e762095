// LeadingGroups: the groups of a graph as plans that ask for an engine have them, with the one that
// leads the plan. Engines are asked about this group, and candidates are configurations of it.
// Grouping costs a run of passes, and a client asks many things of one graph, so that the groups of
// recent graphs are kept.
//
// Safe from many threads: what is kept has its own lock.
#pragma once

#include "api/session/recent.h"
#include "compiler/compile.h"

namespace kiln::api {

class LeadingGroups {
 public:
  explicit LeadingGroups(const Target& target) : target_(target) {}

  // `engine`: -1 for plans that ask for none.
  Result<std::shared_ptr<const compiler::Groups>> Get(const graph::Graph& graph,
                                                      compiler::Inputs inputs,
                                                      int64_t engine) const;

  // Null where nothing is computed.
  static const compiler::Group* Leading(const compiler::Groups& groups) {
    return groups.leading < 0 ? nullptr : &groups.all[static_cast<size_t>(groups.leading)];
  }

 private:
  static constexpr size_t kGraphsKept = 512;

  const Target target_;
  mutable Recent<compiler::Groups> groups_{kGraphsKept};
};

}  // namespace kiln::api
