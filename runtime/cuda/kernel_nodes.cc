// Adding, finding and changing kernel nodes. See kernel_nodes.h.
#include "runtime/cuda/kernel_nodes.h"

namespace kiln::runtime {
namespace {

// The one node that `ask` lists; null where it lists none, and an error where it lists several side
// by side.
template <class Ask>
Result<CuGraphNode> OnlyOne(const Driver& driver, const char* function, Ask&& ask) {
  size_t count = 0;
  RETURN_IF_ERROR(driver.Check(ask(nullptr, &count), function));
  if (count == 0) return CuGraphNode{nullptr};
  if (count > 1) {
    return Status::Error(Code::kCudaGraphMismatch,
                         "the CUDA graph has {} nodes side by side; a plan's stand in a row",
                         count);
  }
  CuGraphNode node = nullptr;
  RETURN_IF_ERROR(driver.Check(ask(&node, &count), function));
  return node;
}

}  // namespace

bool HasKernelNodes(const Driver& driver) {
  return driver.GraphAddKernelNode != nullptr && driver.GraphKernelNodeGetParams != nullptr &&
         driver.GraphKernelNodeSetParams != nullptr && driver.GraphGetRootNodes != nullptr &&
         driver.GraphNodeGetDependentNodes != nullptr;
}

Result<CuGraphNode> AddKernelNode(const Driver& driver, CuGraph graph, CuGraphNode after,
                                  const CuKernelNodeParams& params) {
  CuGraphNode node = nullptr;
  RETURN_IF_ERROR(driver.Check(
      driver.GraphAddKernelNode(&node, graph, &after, after == nullptr ? 0 : 1, &params),
      "cuGraphAddKernelNode"));
  return node;
}

Status MakeCooperative(const Driver& driver, CuGraphNode node) {
  if (driver.GraphKernelNodeSetAttribute == nullptr)
    return Status::Text(Code::kNotSupported,
                        "the driver has no cuGraphKernelNodeSetAttribute, by which blocks of a "
                        "node run together");
  const CuLaunchAttribute attribute{.id = CuLaunchAttribute::kCooperative, .value = {1}};
  return driver.Check(driver.GraphKernelNodeSetAttribute(node, attribute.id, attribute.value),
                      "cuGraphKernelNodeSetAttribute");
}

Result<std::vector<CuGraphNode>> NodeChain(const Driver& driver, CuGraph graph) {
  std::vector<CuGraphNode> chain;
  ASSIGN_OR_RETURN(CuGraphNode node,
                   OnlyOne(driver, "cuGraphGetRootNodes", [&](CuGraphNode* nodes, size_t* count) {
                     return driver.GraphGetRootNodes(graph, nodes, count);
                   }));
  while (node != nullptr) {
    chain.push_back(node);
    ASSIGN_OR_RETURN(
        node, OnlyOne(driver, "cuGraphNodeGetDependentNodes", [&](CuGraphNode* nodes, size_t* n) {
          return driver.GraphNodeGetDependentNodes(chain.back(), nodes, n);
        }));
  }
  return chain;
}

CuFunction FunctionOf(const Driver& driver, CuGraphNode node) {
  CuKernelNodeParams params{};
  return driver.GraphKernelNodeGetParams(node, &params) == kCuSuccess ? params.function : nullptr;
}

}  // namespace kiln::runtime
