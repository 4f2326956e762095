// The f64 interpreter of the tensor graph: each node by its Eval function, each tensor rounded to
// its dtype. Slow and plain; passes are checked by evaluating before and after, `kiln run` checks
// results against it.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "ir/graph/graph.h"

namespace kiln::graph {

// Values in row-major order of the dims, whatever the strides are. Keyed by tensor.
using TensorValues = std::map<TensorId, std::vector<double>>;

// Computes every tensor that is not in `values` yet. Errors: an input is missing or has the wrong
// size. `observer` is called before each node.
Status Evaluate(const Graph& graph, TensorValues& values,
                const std::function<void(const Node&)>& observer = {});

// Memory image of a tensor (MemoryBytes of it; padding between elements is left as it is, but
// for the bits of a byte that a packed type leaves over, which become 0), and back.
void Pack(const Tensor& tensor, const std::vector<double>& values, std::vector<std::byte>& memory);
std::vector<double> Unpack(const Tensor& tensor, const std::byte* memory);

// True if each element has its own place in memory. The answer is false where that cannot be
// counted out quickly.
bool IsInjective(const Tensor& tensor);

}  // namespace kiln::graph
