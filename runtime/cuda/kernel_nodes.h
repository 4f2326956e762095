// Kernel nodes of the driver's graphs: one behind the other, as a plan's launches are. Called by
// the CUDA device.
#pragma once

#include <vector>

#include "runtime/cuda/driver.h"

namespace kiln::runtime {

// Whether the driver is new enough (12.0).
bool HasKernelNodes(const Driver& driver);

// `after`: null for the first node.
Result<CuGraphNode> AddKernelNode(const Driver& driver, CuGraph graph, CuGraphNode after,
                                  const CuKernelNodeParams& params);
// All blocks of the node run at a time.
Status MakeCooperative(const Driver& driver, CuGraphNode node);
// From the one that waits for none to the one that none waits for. An error where nodes stand side
// by side.
Result<std::vector<CuGraphNode>> NodeChain(const Driver& driver, CuGraph graph);
// Null where the node is not a kernel's.
CuFunction FunctionOf(const Driver& driver, CuGraphNode node);

}  // namespace kiln::runtime
