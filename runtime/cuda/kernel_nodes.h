// Kernel nodes of the driver's graphs: one behind the other, as a plan's launches are. Called by
// the CUDA device.
#pragma once

#include <vector>

#include "runtime/cuda/driver.h"

namespace kiln::runtime {

// True if the driver is new enough for kernel nodes (12.0).
bool HasKernelNodes(const Driver& driver);

// Adds a kernel node behind `after`, which is null for the first node.
Result<CuGraphNode> AddKernelNode(const Driver& driver, CuGraph graph, CuGraphNode after,
                                  const CuKernelNodeParams& params);
// Makes all blocks of the node run at the same time.
Status MakeCooperative(const Driver& driver, CuGraphNode node);
// The nodes in the order of their dependencies. An error where nodes stand side by side.
Result<std::vector<CuGraphNode>> NodeChain(const Driver& driver, CuGraph graph);
// The function that the node launches; null where it is not a kernel node.
CuFunction FunctionOf(const Driver& driver, CuGraphNode node);

}  // namespace kiln::runtime
