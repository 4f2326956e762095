// HeuristicList: which of a ranking's candidates a list of heuristics holds. Clients build every
// configuration of a list when they time (PyTorch with benchmark on times the instant list and the
// fallback), and each costs a compiler's run; others filter by notes, and take the first that is
// left.
//
//   instant    the best, and behind it the best of those that promise more than all before it:
//              inputs that are not rounded, products that are not Winograd's, sums in one order;
//              and no tensor cores, where operands are f32 or i8: clients that want none for these
//              take no plan whose note says tensor cores, exact as it may be
//   A, B       kWidely candidates, and of each other engine the best that is not slow, or that
//              promises more
//   fallback   as instant, of exact candidates: mostly the same plan, which is there then
#pragma once

#include <map>
#include <vector>

#include "api/session/session.h"
#include "compiler/engines/engine.h"

namespace kiln::api {

class HeuristicList {
 public:
  HeuristicList(RankMode mode, bool may_want_no_tensor_cores);

  // True if the list wants the candidate behind those that were added. Candidates come in their
  // order; one that is wanted may still be left out, and counts once it is added.
  bool Wants(const compiler::Candidate& candidate);
  void Add(const compiler::Candidate& candidate);

 private:
  static constexpr size_t kWidely = 16;
  // A candidate is slow that takes more times as long as the first that treats inputs alike.
  static constexpr double kSlow = 4;

  bool PromisesMore(const compiler::Engine& engine) const;

  const RankMode mode_;
  const bool may_want_no_tensor_cores_;
  std::vector<int> taken_;                      // engines
  std::map<compiler::Inputs, double> fastest_;  // seconds of the first candidate
};

}  // namespace kiln::api
