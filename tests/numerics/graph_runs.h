// A graph on a device against the interpreter.
#pragma once

#include <cstdint>
#include <string>

#include "ir/graph/eval.h"
#include "ir/graph/graph.h"
#include "runtime/device.h"

namespace kiln::testing {

enum class Outcome : uint8_t { kRight, kRefused, kWrong };

struct GraphRun {
  Outcome outcome = Outcome::kRight;
  std::string text;  // what is wrong, or why it was refused
  int kernels = 0;
  int64_t elements = 0, finite = 0;  // of the outputs
};

// Compiles, runs, compares every output, and that inputs were left alone. Safe from many threads.
GraphRun RunGraph(runtime::Device& device, const graph::Graph& graph, graph::TensorValues inputs,
                  uint64_t seed);
// On RandomInputs.
GraphRun RunGraph(runtime::Device& device, const graph::Graph& graph, uint64_t seed);

}  // namespace kiln::testing
