// The plan that a case is compiled to: for tests of which engines take it.
#pragma once

#include <string>

#include "compiler/compile.h"
#include "tests/support/cases.h"

namespace kiln::compiler {

// Failures are the running test's.
graph::Graph GraphOf(const testing::Case& c);
// "add(x:f16[2], b:f16[2]) -> y:f16"
graph::Graph GraphOf(const std::string& line);

// For sm_90a: the engines of a graph's groups in launch order ("rows, pointwise"), and how many
// kernels are launched.
std::string EnginesOf(const graph::Graph& g);
size_t KernelsOf(const graph::Graph& g);
// Text of the first kernel of a graph's plan.
std::string SourceOf(const graph::Graph& g);

}  // namespace kiln::compiler
