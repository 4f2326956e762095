// KnownNetworks: graphs that a known application runs together, so that its first step need not
// wait for a compiler at each of them. A network is a file NAME.kiln beside tuning records, graphs
// one after the other in the order in which the application meets them, at any batch
// (tools/gen_network.py makes it of what KILN_CAPTURE left; docs/tuning.md).
//
// Two graphs of a network are taken for the network: one may be another's too. Called by the
// session, on a thread that nobody waits for. Safe from many threads.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/base/result.h"
#include "ir/graph/graph.h"

namespace kiln::api {

class KnownNetworks {
 public:
  explicit KnownNetworks(std::vector<std::string> files) : files_(std::move(files)) {}

  bool empty() const { return files_.empty(); }

  // The graphs that a client will ask for next which builds a plan of this one and has no kernels
  // for it: the rest of its network with its batch, soonest first, once for each batch.
  std::vector<graph::Graph> Beside(const graph::Graph& graph);

 private:
  struct Place {
    size_t network, position;
    auto operator<=>(const Place&) const = default;
  };

  void ReadOnce();

  const std::vector<std::string> files_;
  std::mutex mutex_;  // guards what follows
  bool is_read_ = false;
  std::vector<std::vector<graph::Graph>> networks_;
  std::multimap<std::string, Place> places_;                    // by text without the batch
  std::map<std::pair<size_t, int64_t>, std::set<size_t>> met_;  // positions, of network and batch
};

// The graphs of a network's file, or what is wrong with it.
Result<std::vector<graph::Graph>> ReadNetwork(const std::string& file);

}  // namespace kiln::api
