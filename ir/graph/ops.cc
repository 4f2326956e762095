// The op table, made from graph_ops.def: each row points at the three functions that the op's
// family defines.
#include "ir/graph/ops.h"

#include <algorithm>
#include <iterator>

namespace kiln::graph {
namespace {

constexpr GraphOpInfo kOps[] = {
#define GRAPH_OP(Name, mnemonic, Attrs, min_inputs, max_inputs, min_outputs, max_outputs, traits) \
  {mnemonic, min_inputs,   max_inputs,  min_outputs, max_outputs,                                 \
   traits,   Verify##Name, Infer##Name, Eval##Name},
#include "ir/graph/graph_ops.def"
#undef GRAPH_OP
};

}  // namespace

const GraphOpInfo& Info(GraphOp op) { return kOps[static_cast<size_t>(op)]; }

std::optional<GraphOp> GraphOpFromText(std::string_view mnemonic) {
  const auto* row = std::ranges::find(kOps, mnemonic, &GraphOpInfo::mnemonic);
  if (row == std::end(kOps)) return std::nullopt;
  return GraphOp(row - std::begin(kOps));
}

Attrs DefaultAttrs(GraphOp op) {
  switch (op) {
#define GRAPH_OP(Name, mnemonic, AttrsType, ...) \
  case GraphOp::k##Name:                         \
    return AttrsType{};
#include "ir/graph/graph_ops.def"
#undef GRAPH_OP
  }
  return {};
}

}  // namespace kiln::graph
