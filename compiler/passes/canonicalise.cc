#include "compiler/passes/canonicalise.h"

#include "compiler/passes/dead_code.h"
#include "ir/graph/builder.h"

namespace kiln::compiler {

Result<bool> Canonicalise(Module& module, const PassContext&) {
  RETURN_IF_ERROR(graph::Legalize(module.graph));
  return RemoveDeadNodes(module.graph);
}

}  // namespace kiln::compiler
