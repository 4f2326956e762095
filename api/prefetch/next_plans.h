// NextPlans guesses which configurations of a graph a client will build after the one that it
// builds now. Clients that time (PyTorch with benchmark on, cudnn-frontend's autotuning) build
// every configuration that heuristics offered, one after the other; each would wait for a compiler
// of its own while the other cores sleep. Others build the first one and are done.
//
// So a graph's second configuration tells that the client is timing; after a graph of that kind the
// next graph's first one does. Called by the session where a build needs a compiler at all; the
// guess costs work if it is wrong, and nothing else. Safe from many threads.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/session/recent.h"
#include "api/session/session.h"

namespace kiln::api {

class NextPlans {
 public:
  // Keeps what heuristics answered for the graph, best first; of several answers the first counts.
  void Offered(const std::string& graph, std::shared_ptr<const std::vector<EngineConfig>> configs);

  // The configurations to compile together with `config`, which is to be built now: none, or the
  // offered ones that come behind it, once for each graph.
  std::vector<EngineConfig> After(const std::string& graph, const EngineConfig& config);

 private:
  static constexpr size_t kGraphsKept = 512;

  std::mutex mutex_;
  Recent<std::vector<EngineConfig>> offered_{kGraphsKept};
  std::string graph_;         // the last one that something was built for
  EngineConfig first_;        // of it
  bool is_timed_ = false;     // it had a second configuration
  bool was_timed_ = false;    // so had the graph before it
  bool is_answered_ = false;  // After has named what comes behind
};

}  // namespace kiln::api
