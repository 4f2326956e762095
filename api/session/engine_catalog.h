// EngineCatalog: which engines take a graph, and what each says of itself for it. Descriptors of
// engines and of their knobs are read from here.
//
// Safe from many threads: what is kept has its own lock.
#pragma once

#include <vector>

#include "api/session/leading_groups.h"
#include "api/session/session.h"
#include "runtime/device.h"

namespace kiln::api {

class EngineCatalog {
 public:
  // `device`: null where plans are made for a device that is not here. `groups` must outlive it.
  EngineCatalog(const Target& target, const runtime::Device* device, const LeadingGroups& groups)
      : target_(target), device_(device), groups_(groups) {}

  // Session::EnginesOf.
  std::vector<int64_t> EnginesOf(const graph::Graph& graph) const;
  // Session::Describe.
  Result<EngineFacts> Describe(const graph::Graph& graph, int64_t index) const;
  // Error: the engine declines the group that leads plans which ask for it; the sentence says why.
  Status Takes(const graph::Graph& graph, int64_t index) const;

 private:
  static constexpr size_t kGraphsKept = 512;

  Result<EngineFacts> FactsOfCompilersChoice(const graph::Graph& graph) const;
  Result<EngineFacts> FactsOfEngine(const graph::Graph& graph, int64_t index) const;
  bool HasGraphs() const;

  const Target target_;
  const runtime::Device* const device_;
  const LeadingGroups& groups_;
  mutable Recent<std::vector<int64_t>> engines_of_{kGraphsKept};
};

}  // namespace kiln::api
