// RunTiles: compiles a graph and executes the plan as a device would, with tile::Interpret in the
// place of the device. Memory is bytes, laid out by uid and by the workspace that the plan asks
// for, and starts poisoned; launches run in the plan's order with the arguments that `emit` made.
// No GPU, no LLVM, so it checks passes, engines, partitioning, workspace sharing and argument
// passing wherever tests run.
//
// Checked on the way, all as errors:
//   group by group   results agree with graph::Evaluate of the group's own graph on what lay in
//                    memory before: to one unit in the last place where f64 and the kernel agree on
//                    every step, else within what rounding errors of single steps make of the
//                    reference
//   bounds           every pointer ends where its tensor or scratch buffer does
//   launches         the grid is what the kernel's block loops say; the CPU's text parses back to
//                    the kernel
//   memory           inputs and the gaps of strided tensors are left alone
//
// Skeletons of the device library (tile::Call) run on a GPU only. Where the model chooses one,
// the cheapest engine without takes its place; asked for by a choice, it is an error. Attention
// that one takes whole, and signals, run as they would on a GPU before sm_80.
#pragma once

#include "compiler/compile.h"
#include "ir/graph/eval.h"

namespace kiln::compiler {

struct TileRun {
  graph::TensorValues outputs;  // of the graph that was given
  Module module;                // after emit
  CompiledPlan plan;
  int64_t elements = 0;  // compared group by group
  int64_t loose = 0;     // of them, those that were more than one unit in the last place off
};

// `inputs` has values for graph::Inputs(graph).
Result<TileRun> RunTiles(const graph::Graph& graph, const Target& target,
                         const graph::TensorValues& inputs, const EngineChoice& choice = {});

// True if an engine gets all of an attention of the graph, which is a skeleton, or if the graph has
// signals of other devices, for which there are skeletons alone. RunTiles without a
// choice runs such a graph as on a GPU for which no engine has one.
bool HasWholeSkeletons(const graph::Graph& graph, const Target& target);

// The way to run a group that the interpreter takes: what the model chose, or the cheapest way
// whose kernels call no skeleton. `group` has its engine and knobs.
Candidate Interpretable(const Group& group, const Target& target);

// RunTiles, then its outputs against graph::Evaluate of the graph that was given. `tolerance` is
// relative to the largest magnitude of each output; one unit in the last place of its dtype is
// added.
Result<TileRun> CheckTiles(const graph::Graph& graph, const Target& target,
                           const graph::TensorValues& inputs, const EngineChoice& choice = {},
                           double tolerance = 2e-5);

// CheckTiles for sm_90a and for the CPU; an error says which, and prints the graph.
Status CheckOnBoth(const graph::Graph& graph, const graph::TensorValues& inputs, double tolerance);

// Ok, or the first element of `got` that is not within `tolerance` (as above) of `want`. NaN equals
// NaN.
Status CompareOutput(const graph::Tensor& tensor, const std::vector<double>& got,
                     const std::vector<double>& want, double tolerance);

// Distance of neighbouring values of `type` at `value`; 0 for integers.
double Spacing(DType type, double value);

}  // namespace kiln::compiler
