// The parts of `decompose` that stand in files of their own. Called by
// decompose.cc only.
#pragma once

#include "ir/graph/graph.h"

namespace kiln::compiler {

struct PassContext;

// Each appends to `g` the primitives that the node stands for.
void DecomposeReshape(graph::Graph& g, graph::Node node);
void DecomposeNormForward(graph::Graph& g, const graph::Node& node);
void DecomposeNormBackward(graph::Graph& g, const graph::Node& node);
void DecomposeBnBwdWeights(graph::Graph& g, const graph::Node& node);
void DecomposeBlockScaleDequantize(graph::Graph& g, const graph::Node& node);
void DecomposeBlockScaleQuantize(graph::Graph& g, const graph::Node& node);
void DecomposeRng(graph::Graph& g, const graph::Node& node);
void DecomposeExpandBandMatrix(graph::Graph& g, const graph::Node& node);
void DecomposeContractBandMatrix(graph::Graph& g, const graph::Node& node);
void DecomposeMoeGroupedMatmul(graph::Graph& g, const graph::Node& node);
void DecomposeRnnForward(graph::Graph& g, const graph::Node& node);
void DecomposeRnnBackwardData(graph::Graph& g, const graph::Node& node);
void DecomposeRnnBackwardWeights(graph::Graph& g, const graph::Node& node,
                                 const PassContext& context);

}  // namespace kiln::compiler
