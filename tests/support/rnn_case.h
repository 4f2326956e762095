// Recurrent networks as test cases: a descriptor, its graphs with inputs, and the same for the
// oracle. Padding of operands is NaN. Used by the tests of the interpreter and of the compiler.
#pragma once

#include <string>
#include <vector>

#include "ir/graph/eval.h"
#include "ir/graph/graph.h"
#include "tests/support/oracle/rnn.h"

namespace kiln::testing {

enum class RnnLayout { kTimeMajor, kBatchMajor, kPacked };

struct RnnCase {
  graph::RnnAttrs attrs;
  DType type = DType::kF64;
  int64_t steps = 1, batch = 1, input = 1;
  std::vector<int64_t> lengths = {};  // empty: no operand, all T
  RnnLayout layout = RnnLayout::kTimeMajor;
  bool has_hx = false, has_cx = false, has_dhy = false, has_dcy = false;
  bool wants_states = true;  // hy, cy, dhx, dcx
  bool has_before = false;   // dw is added to
  uint64_t seed = 1;         // of values

  std::string Text() const;
  int64_t Length(int64_t b) const { return lengths.empty() ? steps : lengths[b]; }
};

RnnCase RandomRnnCase(uint64_t seed);

// A graph of a case; ids of its tensors, kAbsent where they are not there.
struct RnnGraph {
  graph::Graph graph;
  graph::TensorId x = -1, w = -1, hx = -1, cx = -1, dy = -1, dhy = -1, dcy = -1, before = -1;
  graph::TensorId y = -1, hy = -1, cy = -1, dx = -1, dhx = -1, dcx = -1, dw = -1;
  graph::TensorId reserve = -1, gradients = -1;
  graph::TensorValues inputs;
};
// rnn_forward without a reserve; or all three nodes.
RnnGraph InferenceGraph(const RnnCase& c);
RnnGraph TrainingGraph(const RnnCase& c);

struct RnnExpected {
  oracle::RnnResults results;
  oracle::RnnGradients gradients;
};
// Results of the oracle for the graph's inputs; rows as they lie in the graph's tensors.
RnnExpected Expect(const RnnCase& c, const RnnGraph& g, bool training);

// Empty, or the worst element of the graph's outputs that is further from the oracle's than
// `tolerance` allows, in units of the tensor's largest magnitude.
std::string CompareRnn(const RnnCase& c, const RnnGraph& g, const graph::TensorValues& got,
                       bool training, double tolerance);
// The error that roundings of states, gates and gradients to the case's type may amount to.
double RnnTolerance(const RnnCase& c);

}  // namespace kiln::testing
