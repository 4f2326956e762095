// signal_set and signal_wait as kernels.
#include <limits>

#include "compiler/engines/peers/kernels.h"
#include "compiler/kernel/peers_members.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/kernel/vectors.h"
#include "ir/peers.h"

namespace kiln::compiler {
namespace {

using graph::Node;
using graph::TensorId;
using tile::Block;
using tile::Call;
using tile::Expr;

constexpr int kThreads = 256, kSignalThreads = 32;
constexpr int kIsSet = 0;  // scratch: what the wait has seen

int64_t ValueOf(const Node& node) { return node.As<graph::SignalAttrs>().value; }

// element(out, index) for each element of y.
Lowered ForEachElement(KernelBuilder& b, const Target& target, TensorId y,
                       const std::function<void(Block&, const Index&)>& element) {
  if (target.is_cuda()) return LowerByElements(b, y, kThreads, {}, element);
  Dims order;
  for (int64_t d = 0; d < b.graph()[y].rank(); ++d) order.push_back(d);
  return LowerByChunks(b, y, order, tile::Bind::kSerial, element);
}

// A kernel of one thread that runs a skeleton.
Lowered OneThread(KernelBuilder& b, Call call) {
  Lowered lowered;
  b.Finish(CallOfBlocks(b, 1, std::move(call)), {1, 1, 1}, kSignalThreads, lowered);
  return lowered;
}

// flag = value, on devices whose flags are ordinary numbers.
Lowered PlainSet(const Group& group, const Target& target, TensorId flag) {
  KernelBuilder b(group, target, "peers, a flag is set");
  return ForEachElement(b, target, flag, [&](Block& out, const Index& index) {
    const Expr value = b.WideArg("value", ValueOf(group.graph.nodes.back()));
    out.push_back({tile::Store{b.Pointer(flag), b.Offset(flag, index),
                               tile::Cast(group.graph[flag].dtype, value)}});
  });
}

// NaN, or 0 where there is none.
Expr NothingOf(DType type) {
  if (IsFloat(type)) return tile::Float(std::numeric_limits<double>::quiet_NaN(), type);
  return type == DType::kBool ? tile::Bool(false) : tile::Int(0, type);
}

// y = x where is_set(out), else NaN or 0.
using EmitIsSet = std::function<Expr(KernelBuilder&, Block&)>;
Lowered CopyIf(const Group& group, const Target& target, const EmitIsSet& is_set) {
  const Node& node = group.graph.nodes.back();
  const TensorId x = node.inputs[0], y = node.outputs[0];
  KernelBuilder b(group, target, "peers, what was waited for");
  return ForEachElement(b, target, y, [&](Block& out, const Index& index) {
    const DType type = group.graph[y].dtype;
    const Expr value = ValueScope(b, out).Value(x, index);
    const Expr nothing = NothingOf(value->type);
    const Expr kept = tile::Select(is_set(b, out), value, nothing);
    out.push_back({tile::Store{b.Pointer(y), b.Offset(y, index), tile::Cast(type, kept)}});
  });
}

}  // namespace

bool WaitsForPeers(const Target& target) {
  return target.is_cuda() && target.sm_version >= 80 && !target.minimal_launch;
}

Lowered LowerPeerCopy(const Group& group, const Target& target, TensorId x, TensorId y) {
  KernelBuilder b(group, target, "peers, a copy");
  return ForEachElement(b, target, y, [&](Block& out, const Index& index) {
    const Expr value = ValueScope(b, out).Value(x, index);
    out.push_back(
        {tile::Store{b.Pointer(y), b.Offset(y, index), tile::Cast(group.graph[y].dtype, value)}});
  });
}

Result<Lowered> LowerSignalSet(const Group& group, const Target& target) {
  const Node& node = group.graph.nodes.back();
  const TensorId flag = node.outputs[0];
  Lowered lowered;
  if (node.outputs.size() > 1 && node.outputs[1] != graph::kAbsent)
    Append(lowered, LowerPeerCopy(group, target, node.inputs[0], node.outputs[1]));
  if (!WaitsForPeers(target)) {
    Append(lowered, PlainSet(group, target, flag));
    return lowered;
  }
  KernelBuilder b(group, target, "peers, a flag is set");
  for (const char* reserved : {"bx", "shape"}) b.Name(reserved);
  Call call{.skeleton = "peer_signal", .maps = {}, .buffers = {b.Pointer(flag)}};
  AddShapeMember(call, peers::value, b.WideArg("value", ValueOf(node)));
  Append(lowered, OneThread(b, std::move(call)));
  return lowered;
}

Result<Lowered> LowerSignalWait(const Group& group, const Target& target) {
  const Node& node = group.graph.nodes.back();
  const TensorId flag = node.inputs[1];
  if (!WaitsForPeers(target))
    return CopyIf(group, target, [&](KernelBuilder& b, Block& out) {
      const Index first(group.graph[flag].dims.size(), b.Idx(0));
      const Expr value = tile::Cast(DType::kI64, ValueScope(b, out).Value(flag, first));
      return tile::Op(ScalarOp::kEq, {value, b.WideArg("value", ValueOf(node))});
    });
  Lowered lowered;
  KernelBuilder b(group, target, "peers, a wait for a flag");
  for (const char* reserved : {"bx", "shape"}) b.Name(reserved);
  Call call{.skeleton = "peer_wait",
            .maps = {},
            .buffers = {b.Fault(), b.SharedPointer(flag), b.Scratch(kIsSet, DType::kI32, false)}};
  call.config = {{peers::kSignalFault, kSignalFault}};
  AddShapeMember(call, peers::limit, b.PeerLimit());
  AddShapeMember(call, peers::value, b.WideArg("value", ValueOf(node)));
  Append(lowered, OneThread(b, std::move(call)));
  Append(lowered, CopyIf(group, target, [&](KernelBuilder& copy, Block& out) {
           const std::string seen = copy.Scratch(kIsSet, DType::kI32, true);
           const Expr is_set = copy.Let(out, "is_set", tile::Load(seen, DType::kI32, copy.Idx(0)));
           return tile::Op(ScalarOp::kNe, {is_set, tile::Int(0)});
         }));
  lowered.scratch_bytes = {16};
  return lowered;
}

}  // namespace kiln::compiler
