#include "compiler/passes/canonicalise.h"

#include "compiler/passes/dead_code.h"

namespace kiln::compiler {

Result<bool> Canonicalise(Module& module, const PassContext&) {
  RETURN_IF_ERROR(graph::Normalize(module.graph));
  RETURN_IF_ERROR(graph::InferShapes(module.graph));
  RETURN_IF_ERROR(graph::Verify(module.graph));
  return RemoveDeadNodes(module.graph);
}

}  // namespace kiln::compiler
