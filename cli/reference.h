// The right answer of a graph: random inputs, the f64 interpreter's results, and how far a right
// answer may be from them. Used by `kiln run`.
//
// The allowance is not one number for a graph. The interpreter runs a second time with every result
// disturbed by what its compute type and the length of its sums permit, and the difference shows
// what such errors grow to by the time they reach each output element, through whatever comes
// after.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "cli/random_inputs.h"
#include "ir/graph/eval.h"
#include "ir/graph/graph.h"

namespace kiln::cli {

struct Reference {
  graph::TensorValues values;                  // of every tensor
  std::vector<graph::TensorValues> disturbed;  // the further runs; of outputs
};

// Called before each node of each run of the interpreter.
using NodeObserver = std::function<void(const graph::Node& node)>;

Result<Reference> Interpret(const graph::Graph& graph, graph::TensorValues inputs, uint64_t seed,
                            const NodeObserver& observer = {});

// Adds one more disturbed run. Comparisons, roundings to integers and the ends of a type's range
// are steps: the more runs, the surer it is seen which elements stand on one.
Status DisturbAgain(const graph::Graph& graph, uint64_t seed, Reference& reference,
                    const NodeObserver& observer = {});

// The element that is worst in relation to what it may be off by.
struct Comparison {
  int64_t element = -1;  // row-major; -1 for a tensor without elements
  double got = 0, want = 0, error = 0, allowed = 0;
  int64_t wrong = 0;  // elements that are further off than allowed
  int64_t nans = 0;   // elements that should be NaN
  int64_t elements = 0;
  bool ok() const { return wrong == 0; }
};

Comparison Compare(const graph::Graph& graph, graph::TensorId output, const Reference& reference,
                   const std::vector<double>& got);

// Compares, and looks again at elements that seem wrong, with further disturbed runs as long as
// they tell something. Results that are right cost no run.
Result<Comparison> CompareClosely(const graph::Graph& graph, graph::TensorId output, uint64_t seed,
                                  const std::vector<double>& got, Reference& reference,
                                  const NodeObserver& observer = {});

// The place of a row-major element as "[2,0,13]".
std::string ElementText(const graph::Tensor& tensor, int64_t element);

}  // namespace kiln::cli
