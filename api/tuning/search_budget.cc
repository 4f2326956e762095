#include "api/tuning/search_budget.h"

#include <algorithm>

namespace kiln::api {
namespace {

double SecondsFor(double problem_seconds, double compile_seconds, const BudgetRules& rules) {
  const bool is_small = problem_seconds < rules.small_problem;
  return std::min(rules.runs * problem_seconds + rules.compile_share * compile_seconds,
                  is_small ? rules.most_for_small : rules.most);
}

}  // namespace

SearchBudget::SearchBudget(double problem_seconds, double compile_seconds, Clock clock,
                           const BudgetRules& rules)
    : compile_seconds_(compile_seconds),
      clock_(std::move(clock)),
      begin_(clock_()),
      seconds_(SecondsFor(problem_seconds, compile_seconds, rules)) {}

SearchScope SearchBudget::ScopeOf(const ReadyKernels& ready, int wanted) const {
  const double left = this->left();
  if (left <= 0) return {};
  if (compile_seconds_ <= left) return {.is_worthwhile = true, .worth_compiling = wanted};
  return {.is_worthwhile = ready.reference && ready.candidates > 1, .worth_compiling = 0};
}

}  // namespace kiln::api
