// SearchBudget: how long cudnnFind… looks for something faster than the model's choice, and how
// much it compiles for that. A search costs in proportion to what it can win: a problem that takes
// 10 us has little to give, and a client that finds the algorithms of 50 such layers waits for all
// of them before its first step.
//
//   in all = 5,000 runs of the problem + half of what one kernel costs to compile,
//            at most 0.12 s for problems below 50 us (Find searches twice where there is Winograd's
//            form), and 2 s for any
//
// Kernels for a search are compiled side by side, so that they cost one kernel's time, and the
// search is begun only where that much is left. The budget knows no device, and its clock is given.
// Made by the tuner for each search of a Find.
#pragma once

#include <functional>

namespace kiln::api {

struct BudgetRules {
  double runs = 5000;            // of the problem
  double compile_share = 0.5;    // of the seconds of one kernel's compiling
  double small_problem = 50e-6;  // seconds below which a problem is small
  double most_for_small = 0.12;  // seconds of its search
  double most = 2;
};

// ReadyKernels counts what of a search needs no compiler.
struct ReadyKernels {
  bool reference = false;  // with which results are compared
  int candidates = 0;
};

struct SearchScope {
  bool is_worthwhile = false;  // more than one candidate can be looked at
  int worth_compiling = 0;     // candidates, and the reference with them
};

class SearchBudget {
 public:
  using Clock = std::function<double()>;  // seconds, steady

  // `problem_seconds`: one run of all that is searched, by the model; `compile_seconds`: one
  // kernel, about.
  SearchBudget(double problem_seconds, double compile_seconds, Clock clock,
               const BudgetRules& rules = {});

  double seconds() const { return seconds_; }
  // The end of the budget, by the clock.
  double deadline() const { return begin_ + seconds_; }
  double left() const { return deadline() - clock_(); }
  // The scope for one group, whose search would compile `wanted` candidates at most.
  SearchScope ScopeOf(const ReadyKernels& ready, int wanted) const;

 private:
  const double compile_seconds_;
  const Clock clock_;
  const double begin_, seconds_;
};

}  // namespace kiln::api
