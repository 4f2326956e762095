#include "cli/random_inputs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "ir/graph/ops.h"
#include "ir/graph/rnn.h"

namespace kiln::cli {
namespace {

using graph::Graph;
using graph::Node;
using graph::Tensor;
using graph::TensorId;
using graph::TensorValues;

double Uniform(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

double RandomValue(DType type, const RandomOptions& options, uint64_t bits) {
  const double at = Uniform(bits);
  switch (Info(type).kind) {
    case DTypeKind::kFloat:
      return RoundTo(type, options.low + (options.high - options.low) * at);
    case DTypeKind::kInt:
      return std::floor(at * 9) - 4;
    case DTypeKind::kUint:
      return std::floor(at * 9);
    case DTypeKind::kBool:
      return at < 0.5 ? 0 : 1;
    case DTypeKind::kComplex:  // split before
      break;
  }
  return 0;
}

// Offsets of a ragged tensor count up: each batch has three quarters of the longest one's elements,
// of the smallest tensor that they serve.
void SetOffsets(const Graph& graph, const Node& node, TensorValues& values) {
  const bool is_load = node.op == graph::GraphOp::kRaggedLoad;
  if (!is_load && node.op != graph::GraphOp::kRaggedStore) return;
  const auto found = values.find(node.inputs[1]);
  if (found == values.end() || found->second.size() < 2) return;
  std::vector<double>& offsets = found->second;
  Dims dims = graph[is_load ? node.outputs[0] : node.inputs[0]].dims;
  dims[0] = 1;
  const int64_t each = (SpanElements(dims, node.As<graph::RaggedAttrs>().strides) * 3 + 3) / 4;
  const bool is_set = offsets[0] == 0 && offsets[1] > 0;
  const double length =
      is_set ? std::min(offsets[1], static_cast<double>(each)) : static_cast<double>(each);
  for (size_t b = 0; b < offsets.size(); ++b) offsets[b] = static_cast<double>(b) * length;
}

// Segments have equally many places; their rows are any of x's, or each of them once.
void SetSegments(const Graph& graph, const Node& node, uint64_t seed, TensorValues& values) {
  const bool reduces = node.op == graph::GraphOp::kSegmentReduce;
  if (!reduces && node.op != graph::GraphOp::kSegmentIds) return;
  const size_t first = reduces ? 1 : 0;
  const TensorId rows = first + 1 < node.inputs.size() ? node.inputs[first + 1] : graph::kAbsent;
  const int64_t extent = graph[reduces ? node.inputs[0] : node.outputs[0]].dims[0],
                places = rows == graph::kAbsent ? extent : graph[rows].dims[0];
  if (const auto found = values.find(node.inputs[first]); found != values.end()) {
    std::vector<double>& offsets = found->second;
    const int64_t segments = std::max<int64_t>(std::ssize(offsets) - 1, 1);
    for (size_t n = 0; n < offsets.size(); ++n)
      offsets[n] = static_cast<double>(static_cast<int64_t>(n) * places / segments);
  }
  const auto found = values.find(rows);
  if (found == values.end()) return;
  for (size_t i = 0; i < found->second.size(); ++i) {
    const uint64_t random = Mix(seed + i);
    found->second[i] = static_cast<double>(i);
    if (!reduces)
      std::swap(found->second[i], found->second[random % (i + 1)]);
    else if (extent > 0)
      found->second[i] = static_cast<double>(random % static_cast<uint64_t>(extent));
  }
}

// A flag that is waited for has its value.
void SetFlag(const Node& node, TensorValues& values) {
  if (node.op != graph::GraphOp::kSignalWait) return;
  if (const auto flag = values.find(node.inputs[1]); flag != values.end())
    std::ranges::fill(flag->second, static_cast<double>(node.As<graph::SignalAttrs>().value));
}

// A network's data have as many sequences as `lengths` has elements, and no more steps than
// `most`; those of packed data sum up to `rows` and fall.
void SetSequenceLengths(int64_t most, int64_t rows, bool is_packed, uint64_t seed,
                        std::vector<double>& lengths) {
  const auto count = std::ssize(lengths);
  int64_t rest = rows - count, before = most - 1;  // each has a step
  for (int64_t b = 0; b < count; ++b) {
    const auto at = static_cast<size_t>(b);
    if (!is_packed) {
      lengths[at] = static_cast<double>(
          b == 0 ? most
                 : most - static_cast<int64_t>(Mix(seed + at) % static_cast<uint64_t>(most + 1)));
      continue;
    }
    // Half more than those behind it have in the mean, so that the last one's are never too many.
    const int64_t left = count - b, share = (3 * rest + 2 * left - 1) / (2 * left);
    const int64_t more = b == 0 ? before : std::max<int64_t>(std::min({share, before, rest}), 0);
    lengths[at] = static_cast<double>(1 + more);
    rest -= more;
    before = more;
  }
}

// The operand of lengths of an operation on sequences; kAbsent where it has none.
TensorId LengthsOf(const Node& node) {
  using graph::GraphOp;
  static constexpr std::pair<GraphOp, size_t> kPlaces[] = {
      {GraphOp::kRnnForward, graph::rnn_forward::kLengths},
      {GraphOp::kRnnBackwardData, graph::rnn_backward_data::kLengths},
      {GraphOp::kRnnBackwardWeights, graph::rnn_backward_weights::kLengths},
      {GraphOp::kRecurrence, graph::recurrence::kLengths},
      {GraphOp::kRecurrenceGrad, graph::recurrence_grad::kLengths}};
  const auto* const place = std::ranges::find(kPlaces, node.op, &std::pair<GraphOp, size_t>::first);
  if (place == std::end(kPlaces) || place->second >= node.inputs.size()) return graph::kAbsent;
  return node.inputs[place->second];
}

void SetLengths(const Graph& graph, const Node& node, uint64_t seed, TensorValues& values) {
  const auto found = values.find(LengthsOf(node));
  if (found == values.end()) return;
  const bool is_loop = Has(node, graph::kRecurrence);
  const int64_t packed_steps =
      is_loop ? node.As<graph::RecurrenceAttrs>().steps : node.As<graph::RnnAttrs>().steps;
  const int64_t rows = graph[node.inputs[0]].dims[0];
  SetSequenceLengths(packed_steps > 0 ? packed_steps : rows, rows, packed_steps > 0, seed,
                     found->second);
}

// Labels that paths fit, of symbols that there are, and probabilities above zero: costs are NaN
// otherwise, whatever a kernel does. Every eighth sample's input is too short for its label.
class CtcInputs {
 public:
  CtcInputs(const Graph& graph, const Node& node, uint64_t seed, TensorValues& values)
      : attrs_(node.As<graph::CtcLossAttrs>()), seed_(seed) {
    const Dims& dims = graph[node.inputs[0]].dims;
    frames_ = dims[0];
    samples_ = dims[1];
    symbols_ = dims[2];
    type_ = graph[node.inputs[0]].dtype;
    for (size_t i = 0; i < operands_.size(); ++i) {
      const auto found = values.find(node.inputs[i]);
      if (found != values.end()) operands_[i] = &found->second;
    }
  }

  void Set() {
    auto& [probs, labels, label_lengths, input_lengths] = operands_;
    if (probs != nullptr && !attrs_.softmax) {
      for (double& p : *probs) p = RoundTo(type_, std::clamp(std::abs(p), 0x1p-6, 1.0));
    }
    const int64_t room = labels == nullptr ? 0 : std::ssize(*labels) / samples_;
    for (int64_t n = 0; n < samples_; ++n) {
      int64_t input = frames_ - Draw(n, frames_ / 4 + 1);
      const int64_t label =
          Draw(n + samples_, std::min({room, attrs_.max_label, (input + 1) / 2}) + 1);
      if (n % 8 == 7 && label > 0) input = label - 1;
      if (label_lengths != nullptr)
        (*label_lengths)[static_cast<size_t>(n)] = static_cast<double>(label);
      if (input_lengths != nullptr)
        (*input_lengths)[static_cast<size_t>(n)] = static_cast<double>(input);
    }
    for (int64_t i = 0; labels != nullptr && i < std::ssize(*labels); ++i)
      (*labels)[static_cast<size_t>(i)] =
          symbols_ == 1 ? 0 : static_cast<double>(1 + Draw(i + 2 * samples_, symbols_ - 1));
  }

 private:
  int64_t Draw(int64_t place, int64_t count) const {
    return static_cast<int64_t>(Mix(seed_ + static_cast<uint64_t>(place)) %
                                static_cast<uint64_t>(std::max<int64_t>(count, 1)));
  }

  const graph::CtcLossAttrs attrs_;
  const uint64_t seed_;
  int64_t frames_ = 0, samples_ = 0, symbols_ = 0;
  DType type_{};
  std::array<std::vector<double>*, 4> operands_ = {};  // null: no input of the graph
};

// Elements that share a place take what the memory holds there, as kernels do.
void ShareByPlace(const Tensor& tensor, std::vector<double>& elements) {
  if (graph::IsInjective(tensor)) return;
  std::vector<std::byte> memory;
  graph::Pack(tensor, elements, memory);
  elements = graph::Unpack(tensor, memory.data());
}

}  // namespace

TensorValues RandomInputs(const Graph& graph, const RandomOptions& options) {
  TensorValues values;
  for (const TensorId id : graph::Inputs(graph)) {
    const Tensor& tensor = graph[id];
    const uint64_t stream = Mix(Mix(options.seed) ^ static_cast<uint64_t>(tensor.uid));
    std::vector<double>& elements = values[id];
    elements.resize(static_cast<size_t>(NumElements(tensor.dims)));
    for (size_t i = 0; i < elements.size(); ++i)
      elements[i] = RandomValue(tensor.dtype, options, Mix(stream + i));
  }
  for (const Node& node : graph.nodes) {
    SetOffsets(graph, node, values);
    SetSegments(graph, node, options.seed, values);
    SetFlag(node, values);
    SetLengths(graph, node, options.seed, values);
    if (node.op == graph::GraphOp::kCtcLoss) CtcInputs(graph, node, options.seed, values).Set();
  }
  for (auto& [id, elements] : values) ShareByPlace(graph[id], elements);
  return values;
}

}  // namespace kiln::cli
