#include "compiler/engines/recurrence_call.h"

#include <algorithm>

#include "compiler/engines/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {

Status HasRecurrence(const Group& group) {
  const bool is_loop = std::ranges::any_of(group.graph.nodes, [](const graph::Node& node) {
    return node.op == graph::GraphOp::kRecurrence || node.op == graph::GraphOp::kRecurrenceGrad;
  });
  if (group.kind == GroupKind::kRecurrence && is_loop) return {};
  return Status::Error(Code::kUnsupportedGraphPattern, "the group has no recurrence");
}

Status RunsBlocksTogether(const Target& target) {
  if (!target.minimal_launch) return {};
  return Status::Error(Code::kArchMismatch,
                       "KILN_LAUNCH=minimal has no launches whose blocks run together");
}

void AddRecurrenceZeroes(const Group& group, const Target& target, const std::string& what,
                         int scratch, int64_t words, Lowered& lowered) {
  KernelBuilder b(group, target, what, DType::kI32);
  for (const char* name : {"i", "bx", "tx"}) b.Name(name);
  const std::string zeroed = b.Scratch(scratch, DType::kI32, false);
  tile::Block body;
  body.push_back({tile::Store{zeroed, tile::Var("i", DType::kI32), b.Idx(0)}});
  Append(lowered, LaunchItems(b, std::move(body), words, 128));
}

void AddRecurrenceNumbers(KernelBuilder& b, const RecurrenceShape& shape,
                          const RecurrenceNumbers& numbers, tile::Call& call) {
  const auto number = [&](const char* name, int64_t value) {
    call.shape.push_back({name, b.Arg(name, value)});
  };
  number("steps", shape.steps);
  number("batch", shape.batch);
  number("units", shape.hidden);
  number("depth", numbers.depth);
  number("pitch", numbers.pitch);
  number("parts", numbers.parts);
  number("groups", numbers.groups);
  number("first_groups", numbers.first_groups);
  number("directions", shape.directions);
  if (!shape.attrs.clip) return;
  call.shape.push_back({"clip_low", tile::Float(shape.attrs.clip_lower)});
  call.shape.push_back({"clip_high", tile::Float(shape.attrs.clip_upper)});
}

int64_t RecurrenceClips(const RecurrenceShape& shape) {
  if (!shape.attrs.clip) return 0;
  return shape.attrs.clip_propagates_nan ? 2 : 1;
}

}  // namespace kiln::compiler
