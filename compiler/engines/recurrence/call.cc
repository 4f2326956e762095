#include "compiler/engines/recurrence/call.h"

#include <algorithm>

#include "compiler/engines/recurrence/functions.h"
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

void AddRecurrenceProduct(const RecurrenceProduct& p, const char* prefix, tile::Call& call) {
  const std::pair<const char*, int> constants[] = {
      {"Units", p.units},   {"RowTiles", p.row_tiles}, {"RowWarps", p.row_warps},
      {"Chunks", p.chunks}, {"Held", p.held},          {"InShared", p.in_shared},
      {"Stages", p.stages}, {"Pass", p.pass},          {"Ahead", p.ahead}};
  for (const auto& [name, value] : constants)
    call.config.push_back({fmt::format("{}{}", prefix, name), value});
}

void AddRecurrenceConfig(const KernelBuilder& b, const RecurrencePlan& p, tile::Call& call) {
  const RecurrenceShape& shape = p.shape;
  call.config = {{"kGradient", shape.is_grad ? 1 : 0},
                 {"kCell", static_cast<int64_t>(shape.attrs.cell)},
                 {"kClips", RecurrenceClips(shape)},
                 {"kType", TypeNumber(p)},
                 {"kGates", p.of_units().gates},
                 {"kColumnTiles", p.columns / 8},
                 {"kWarps", p.warps},
                 {"kNumbered", p.numbered ? 1 : 0},
                 {"kClustered", p.clustered ? 1 : 0},
                 {"kValuesAreStates", RecurrenceValueType(b.graph(), shape) == shape.type ? 1 : 0},
                 {"kProjected", shape.is_projected ? 1 : 0},
                 {"kStack", shape.stages > 1 ? 1 : 0}};
  AddRecurrenceProduct(p.of_units(), "k", call);
}

int64_t RecurrenceClips(const RecurrenceShape& shape) {
  if (!shape.attrs.clip) return 0;
  return shape.attrs.clip_propagates_nan ? 2 : 1;
}

}  // namespace kiln::compiler
