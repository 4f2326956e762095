#include "compiler/engines/recurrence/call.h"

#include <algorithm>

#include "compiler/engines/recurrence/functions.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/kernel/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

int64_t TypeNumber(const RecurrencePlan& p) {
  if (p.fma) return 3;
  return p.shape.type == DType::kF16 ? 0 : p.shape.type == DType::kBF16 ? 1 : 2;
}

}  // namespace

Status HasRecurrence(const Group& group) {
  const auto loops = std::ranges::count_if(group.graph.nodes, [](const graph::Node& node) {
    return node.op == graph::GraphOp::kRecurrence || node.op == graph::GraphOp::kRecurrenceGrad;
  });
  if (group.kind == GroupKind::kRecurrence && loops == 1) return {};
  if (loops > 1)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "the group has {} recurrences, and it runs one at a time", loops);
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
  const auto number = [&](const ShapeMember& member, int64_t value) {
    AddShapeMember(b, call, member, value);
  };
  number(recurrence::steps, shape.steps);
  number(recurrence::batch, shape.batch);
  number(recurrence::units, shape.hidden);
  number(recurrence::depth, numbers.depth);
  number(recurrence::pitch, numbers.pitch);
  number(recurrence::parts, numbers.parts);
  number(recurrence::groups, numbers.groups);
  number(recurrence::first_groups, numbers.first_groups);
  number(recurrence::directions, shape.directions);
  if (!shape.attrs.clip) return;
  AddShapeMember(call, recurrence::clip_low, tile::Float(shape.attrs.clip_lower));
  AddShapeMember(call, recurrence::clip_high, tile::Float(shape.attrs.clip_upper));
}

void AddRecurrenceProduct(const RecurrenceProduct& p, ConfigMember ProductMember::* which,
                          tile::Call& call) {
  const std::pair<ProductMember, int> constants[] = {
      {recurrence::Units, p.units},        {recurrence::RowTiles, p.row_tiles},
      {recurrence::RowWarps, p.row_warps}, {recurrence::Chunks, p.chunks},
      {recurrence::Held, p.held},          {recurrence::InShared, p.in_shared},
      {recurrence::Stages, p.stages},      {recurrence::Pass, p.pass},
      {recurrence::Ahead, p.ahead}};
  for (const auto& [member, value] : constants) call.config.push_back({member.*which, value});
}

void AddRecurrenceConfig(const KernelBuilder& b, const RecurrencePlan& p, tile::Call& call) {
  const RecurrenceShape& shape = p.shape;
  call.config = {
      {recurrence::kGradient, shape.is_grad ? 1 : 0},
      {recurrence::kCell, static_cast<int64_t>(shape.attrs.cell)},
      {recurrence::kClips, RecurrenceClips(shape)},
      {recurrence::kType, TypeNumber(p)},
      {recurrence::kGates, p.of_units().gates},
      {recurrence::kColumnTiles, p.columns / 8},
      {recurrence::kWarps, p.warps},
      {recurrence::kNumbered, p.numbered ? 1 : 0},
      {recurrence::kClustered, p.clustered ? 1 : 0},
      {recurrence::kValuesAreStates, RecurrenceValueType(b.graph(), shape) == shape.type ? 1 : 0},
      {recurrence::kProjected, shape.is_projected ? 1 : 0},
      {recurrence::kStack, shape.stages > 1 ? 1 : 0}};
  AddRecurrenceProduct(p.of_units(), &ProductMember::units, call);
}

int64_t RecurrenceClips(const RecurrenceShape& shape) {
  if (!shape.attrs.clip) return 0;
  return shape.attrs.clip_propagates_nan ? 2 : 1;
}

}  // namespace kiln::compiler
