// Random legal graphs made from the op table, for fuzz tests of everything that takes a graph:
// text, passes, evaluation, code generation. A seed always gives the same graph, on every machine.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph/eval.h"
#include "ir/graph/graph.h"

namespace kiln::graph {

struct RandomGraphOptions {
  int nodes = 5;                   // at most; some steps of the generator find nothing to do
  std::vector<GraphOp> ops = {};   // the ops to choose from; empty is all of them
  std::vector<DType> dtypes = {};  // of the tensors that carry numbers; empty is all but bool
  int64_t max_extent = 17;
  int64_t max_elements = 4096;  // of one tensor
  bool empty_tensors = false;   // some extents are 0
  // Extents of 8, 16, 32 …, narrow floats and channels innermost: what tensor cores take.
  bool aligned = false;
  bool layouts = false;  // elements that share memory, and channels in vectors
  // Only what the C interface has words for; ApiOps() beside it.
  bool api = false;
};

// The operations that are descriptors of the C interface.
std::vector<GraphOp> ApiOps();

// Legal (Legalize has been run): odd extents, broadcast operands, permuted and padded strides,
// operands that see one place of memory in several, channels in vectors of 4 and 32, several
// results, virtual and non-virtual intermediates, by-value scalars and constants.
Graph RandomGraph(uint64_t seed, const RandomGraphOptions& options = {});

// Options for graphs of the whole table, sometimes of a few operations only; 1 to 40 nodes, mostly
// few.
RandomGraphOptions MixedOptions(uint64_t seed);
// Options for graphs of the C interface's operations alone.
RandomGraphOptions ApiOptions(uint64_t seed);

// Values for every tensor that a caller must pass: small numbers that every dtype holds exactly,
// positive ones with `positive`; the overrides of a matmul lie within its extents.
TensorValues RandomInputs(const Graph& graph, uint64_t seed, bool positive = false);

}  // namespace kiln::graph
