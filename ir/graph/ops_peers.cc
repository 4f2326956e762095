// Work between the GPUs of a group: sums over their buffers, and flags.
//
//   peer_reduce  x, [second], buffers…  ->  y, [second_y]
//   signal_set   [x]                    ->  flag, [y]
//   signal_wait  x, flag                ->  y
//
// peer_reduce: y[i] is the sum of all ranks' x[i], in the order of the ranks, so that all have the
// same bits; likewise second_y. x has the numbers `first`, first + 1, … of the buffers (ir/peers.h)
// and second those behind. Which buffer is this rank's own follows from where it lies when the plan
// runs. With one buffer y is x, and the buffer is not touched.
//
// signal_set: y = x, then flag = value; a GPU that sees the value sees y as well. Without y the
// flag is set after x was computed.
// signal_wait: y = x, which is read once flag = value.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ir/graph/norm.h"
#include "ir/graph/peers.h"
#include "ir/graph/verify_util.h"
#include "ir/peers.h"
#include "ir/shape.h"

namespace kiln::graph {
namespace {

constexpr size_t kX = static_cast<size_t>(PeerReduceIn::kX),
                 kSecond = static_cast<size_t>(PeerReduceIn::kSecond);
constexpr size_t kSetFlag = 0, kSetY = 1;    // results of signal_set
constexpr size_t kWaitX = 0, kWaitFlag = 1;  // operands of signal_wait
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The operand from which on a node has buffers.
size_t FirstPeer(const Node& node) {
  if (node.op == GraphOp::kNormForward) return static_cast<size_t>(NormForwardIn::kPeers);
  if (node.op == GraphOp::kNormBackward) return static_cast<size_t>(NormBackwardIn::kPeers);
  if (node.op == GraphOp::kPeerReduce) return static_cast<size_t>(PeerReduceIn::kPeers);
  return node.inputs.size();
}

// A word of a buffer as the two f32 that it is in the interpreter.
struct Word {
  double value;
  uint32_t call;
};
Word WordAt(const std::vector<double>& buffer, size_t word) {
  const double value = buffer[2 * word], call = buffer[2 * word + 1];
  return {.value = value, .call = std::bit_cast<uint32_t>(static_cast<float>(call))};
}

// Numbers wrap around: the later of two calls is less than half of all numbers ahead.
uint32_t LaterCall(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) > 0 ? a : b; }

Status CheckNumbers(const Tensor* t, const char* name) {
  if (t == nullptr) return Status::Error(Code::kBadParam, "{} is absent", name);
  if (t->dtype == DType::kF32) return {};
  return Status::Error(Code::kUnsupportedDataType, "{} %{} is {}; peers add up f32", name, t->name,
                       Info(t->dtype).text);
}

Status CheckPair(const Tensor* x, const Tensor* y, const char* name) {
  RETURN_IF_ERROR(CheckNumbers(x, name));
  RETURN_IF_ERROR(CheckNumbers(y, "its sum"));
  return ExpectDims(*y, x->dims, "the sum of as many numbers");
}

Status CheckFlag(const Tensor* flag, int64_t value) {
  if (flag == nullptr) return Status::Text(Code::kBadParam, "the flag is absent");
  if (flag->dtype != DType::kI32 && flag->dtype != DType::kI64)
    return Status::Error(Code::kUnsupportedDataType, "the flag %{} is {}, not i32 or i64",
                         flag->name, Info(flag->dtype).text);
  if (NumElements(flag->dims) != 1 || flag->is_virtual || flag->by_value || flag->is_constant())
    return Status::Error(Code::kBadParam, "the flag {} is no single number in memory",
                         Shape(*flag));
  if (flag->dtype == DType::kI32 && value != static_cast<int32_t>(value))
    return Status::Error(Code::kBadParam, "the value {} does not fit the i32 flag %{}", value,
                         flag->name);
  return {};
}

// A signal passes on whole bytes of real numbers.
Status CheckPassed(const Tensor& x, const Tensor& y) {
  if (IsPacked(x.dtype) || IsComplex(x.dtype) || x.dtype == DType::kU32)
    return Status::Error(Code::kUnsupportedDataType, "a signal passes no {}, which %{} is",
                         Info(x.dtype).text, x.name);
  if (x.dims == y.dims && x.dtype == y.dtype) return {};
  return Status::Error(Code::kShapeMismatch, "{} {} is passed on as {} {}", Info(x.dtype).text,
                       Shape(x), Info(y.dtype).text, Shape(y));
}

}  // namespace

std::span<const TensorId> PeersOf(const Node& node) {
  const size_t first = FirstPeer(node);
  return first < node.inputs.size() ? std::span(node.inputs).subspan(first)
                                    : std::span<const TensorId>();
}

bool MeetsPeers(const Node& node) {
  const bool is_forward = node.op == GraphOp::kNormForward;
  if (!is_forward && node.op != GraphOp::kNormBackward) return false;
  if (is_forward && In(node, NormForwardIn::kInvVariance) != kAbsent) return false;
  return PeersOf(node).size() > 1;
}

Status CheckPeers(const Graph& graph, std::span<const TensorId> peers, int64_t count) {
  if (peers.size() > static_cast<size_t>(kMostPeers))
    return Status::Error(Code::kNotSupported, "{} buffers of peers; {} are possible", peers.size(),
                         kMostPeers);
  for (size_t i = 0; i < peers.size(); ++i) {
    if (peers[i] == kAbsent)
      return Status::Error(Code::kBadParam, "the buffer of rank {} is absent", i);
    const Tensor& t = graph[peers[i]];
    if (t.dtype != DType::kF32)
      return Status::Error(Code::kUnsupportedDataType, "the peers' buffer %{} is {}, not f32",
                           t.name, Info(t.dtype).text);
    if (t.is_virtual || t.by_value || t.is_constant())
      return Status::Error(Code::kBadParam, "the peers' buffer %{} is no memory", t.name);
    for (const TensorId other : peers.first(i)) {
      if (other != peers[i] && graph[other].uid != t.uid) continue;
      return Status::Error(Code::kBadParam, "the peers' buffer %{} is that of two ranks", t.name);
    }
    if (SpanElements(t.dims, t.strides) != NumElements(t.dims))
      return Status::Error(Code::kUnsupportedLayout, "the peers' buffer {} has gaps", Shape(t));
    const int64_t bytes = NumElements(t.dims) * SizeOf(t.dtype);
    if (bytes < count * kPeerBytesPerNumber)
      return Status::Error(Code::kSizeInsufficient,
                           "the peers' buffer {} has {} bytes; {} numbers need {}", Shape(t), bytes,
                           count, count * kPeerBytesPerNumber);
    if (t.alignment < kPeerAlignment)
      return Status::Error(Code::kMisalignedPointer,
                           "the peers' buffer %{} is aligned to {} bytes; {} are needed", t.name,
                           t.alignment, kPeerAlignment);
  }
  return {};
}

std::vector<double> SumOverPeers(const EvalArgs& args, const std::vector<double>& mine,
                                 int64_t first) {
  const size_t from = FirstPeer(args.node), ranks = args.inputs.size() - from;
  if (ranks < 2) return mine;
  std::vector<double> sums = mine;
  for (size_t i = 0; i < mine.size(); ++i) {
    const size_t copies = 2 * (static_cast<size_t>(first) + i);
    const std::vector<double>& own = *args.inputs[from];
    const uint32_t call = 1 + LaterCall(WordAt(own, copies).call, WordAt(own, copies + 1).call);
    for (size_t r = 1; r < ranks; ++r) {
      const Word word = WordAt(*args.inputs[from + r], copies + call % 2);
      sums[i] += word.call == call ? word.value : kNan;
    }
  }
  return sums;
}

Status VerifyPeerReduce(const Graph& graph, const Node& node) {
  if (node.compute != DType::kF32)
    return Status::Error(Code::kUnsupportedDataType, "peers add up f32, not {}",
                         Info(node.compute).text);
  const Tensor *x = InputOf(graph, node, kX), *second = InputOf(graph, node, kSecond);
  RETURN_IF_ERROR(CheckPair(x, OutputOf(graph, node, 0), "x"));
  int64_t count = NumElements(x->dims);
  if ((second == nullptr) != (OutputOf(graph, node, 1) == nullptr))
    return Status::Text(Code::kBadParam, "second and its sum are both there or neither is");
  if (second != nullptr) {
    RETURN_IF_ERROR(CheckPair(second, OutputOf(graph, node, 1), "second"));
    count += NumElements(second->dims);
  }
  const int64_t first = node.As<PeerReduceAttrs>().first;
  if (first < 0 || first > kMaxElements)
    return Status::Error(Code::kBadParam, "its numbers begin with {}", first);
  if (PeersOf(node).empty()) return Status::Text(Code::kBadParam, "no rank has a buffer");
  return CheckPeers(graph, PeersOf(node), first + count);
}

Status InferPeerReduce(Graph& graph, const Node& node) {
  for (const size_t i : {kX, kSecond}) {
    const Tensor* const x = InputOf(graph, node, i);
    if (x == nullptr || i >= node.outputs.size() || node.outputs[i] == kAbsent) continue;
    const Tensor like = *x;
    SetDims(graph[node.outputs[i]], like.dims, &like);
  }
  return {};
}

void EvalPeerReduce(const EvalArgs& args) {
  int64_t first = args.node.As<PeerReduceAttrs>().first;
  for (const size_t i : {kX, kSecond}) {
    if (i >= args.outputs.size() || args.outputs[i] == nullptr) continue;
    *args.outputs[i] = SumOverPeers(args, *args.inputs[i], first);
    first += static_cast<int64_t>(args.inputs[i]->size());
  }
}

Status VerifySignalSet(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(CheckCompute(node, true));
  RETURN_IF_ERROR(CheckFlag(OutputOf(graph, node, kSetFlag), node.As<SignalAttrs>().value));
  const Tensor *x = InputOf(graph, node, kX), *y = OutputOf(graph, node, kSetY);
  if (y == nullptr) return {};
  if (x == nullptr) return Status::Text(Code::kBadParam, "y is there without x");
  return CheckPassed(*x, *y);
}

Status InferSignalSet(Graph& graph, const Node& node) {
  SetDims(graph[node.outputs[kSetFlag]], {1}, nullptr);
  if (node.inputs.empty() || node.inputs[kX] == kAbsent || node.outputs.size() <= kSetY) return {};
  const Tensor x = graph[node.inputs[kX]];
  if (node.outputs[kSetY] != kAbsent) SetDims(graph[node.outputs[kSetY]], x.dims, &x);
  return {};
}

void EvalSignalSet(const EvalArgs& args) {
  (*args.outputs[kSetFlag])[0] = static_cast<double>(args.node.As<SignalAttrs>().value);
  if (args.outputs.size() > kSetY && args.outputs[kSetY] != nullptr)
    *args.outputs[kSetY] = *args.inputs[kX];
}

Status VerifySignalWait(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(CheckCompute(node, true));
  RETURN_IF_ERROR(CheckFlag(InputOf(graph, node, kWaitFlag), node.As<SignalAttrs>().value));
  const Tensor* const x = InputOf(graph, node, kWaitX);
  if (x == nullptr) return Status::Text(Code::kBadParam, "x is absent");
  if (x->is_virtual || x->by_value || x->is_constant())
    return Status::Error(Code::kBadParam, "nobody else writes {}: there is nothing to wait for",
                         Shape(*x));
  return CheckPassed(*x, *OutputOf(graph, node, 0));
}

Status InferSignalWait(Graph& graph, const Node& node) {
  const Tensor* const x = InputOf(graph, node, kWaitX);
  if (x == nullptr) return {};
  const Tensor like = *x;
  SetDims(graph[node.outputs[0]], like.dims, &like);
  return {};
}

// A flag that has another value is a wait that timed out: NaN, or 0 where there is none.
void EvalSignalWait(const EvalArgs& args) {
  std::vector<double>& y = *args.outputs[0];
  y = *args.inputs[kWaitX];
  const bool is_set =
      (*args.inputs[kWaitFlag])[0] == static_cast<double>(args.node.As<SignalAttrs>().value);
  const bool has_nan = IsFloat(OutputOf(args.graph, args.node, 0)->dtype);
  if (!is_set) std::ranges::fill(y, has_nan ? kNan : 0);
}

}  // namespace kiln::graph
