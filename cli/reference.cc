#include "cli/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "ir/graph/norm.h"
#include "ir/graph/ops.h"
#include "ir/graph/sdpa.h"

namespace kiln::cli {
namespace {

using graph::Graph;
using graph::Node;
using graph::Tensor;
using graph::TensorId;
using graph::TensorValues;

// Half the distance from 1 to the next number: the relative error of one rounding. 0 for exact
// types.
double RoundingError(DType type) {
  switch (type) {
    case DType::kF64:
      return 0x1p-53;
    case DType::kF32:
      return 0x1p-24;
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    case DType::kE4M3:
      return 0x1p-4;
    case DType::kE5M2:
      return 0x1p-3;
    case DType::kE8M0:
      return 1;  // rounds up
    case DType::kE2M1:
      return 0x1p-2;
    case DType::kI4:
    case DType::kU4:
    case DType::kI8:
    case DType::kU8:
    case DType::kU32:
    case DType::kC64:
    case DType::kC128:
    case DType::kI32:
    case DType::kI64:
    case DType::kBool:
    case DType::kB1:
      return 0;
  }
  return 0;
}

// The smallest step that a float type can make, which a tiny result is rounded to.
double SmallestStep(DType type) {
  switch (type) {
    case DType::kF16:
      return 0x1p-24;
    case DType::kE4M3:
      return 0x1p-9;
    case DType::kE5M2:
      return 0x1p-16;
    case DType::kE8M0:
      return 0x1p-127;
    case DType::kE2M1:
      return 0x1p-1;
    default:
      // f32 and bf16 have the smallest normal number here, below which a GPU may flush; integers
      // differ by nothing but a rounding of their own.
      return IsFloat(type) ? 0x1p-126 : 0;
  }
}

bool IsAttention(const Node& node) {
  return node.op == graph::GraphOp::kSdpaFwd || node.op == graph::GraphOp::kSdpaBwd;
}

bool IsNetwork(const Node& node) {
  return node.op == graph::GraphOp::kRnnForward || node.op == graph::GraphOp::kRnnBackwardData ||
         node.op == graph::GraphOp::kRnnBackwardWeights;
}

// The number of products or terms that are summed for one element of a node's result.
int64_t SumLength(const Graph& graph, const Node& node) {
  const auto per = [&](size_t operand, size_t dim) {
    const Dims& dims = graph[node.inputs[operand]].dims;
    return std::max<int64_t>(NumElements(dims) / std::max<int64_t>(dims[dim], 1), 1);
  };
  switch (node.op) {
    case graph::GraphOp::kConvFprop:  // channels and filter places
      return per(1, 0);
    case graph::GraphOp::kConvDgrad:  // filters and filter places
    case graph::GraphOp::kConvWgrad:  // images and output places
      return per(1, 1);
    case graph::GraphOp::kMatmul:
      return std::max<int64_t>(graph[node.inputs[0]].dims.back(), 1);
    case graph::GraphOp::kResampleFwd:
    case graph::GraphOp::kResampleBwd: {  // taps of a window; outputs that read an element
      const auto& a = node.As<graph::ResampleAttrs>();
      int64_t taps = 1;
      for (size_t s = 0; s < a.window.size(); ++s)
        taps *= a.window[s] / a.unit[s] * std::max<int64_t>(a.unit[s] / a.stride[s] + 1, 1);
      return std::max<int64_t>(taps, 1);
    }
    default:
      break;
  }
  if (node.inputs.empty() || node.inputs[0] == graph::kAbsent) return 1;
  if (node.op == graph::GraphOp::kCtcLoss) return graph[node.inputs[0]].dims[0];  // frames
  if (node.op == graph::GraphOp::kSegmentReduce) {  // all places may be one segment's
    const bool has_rows = node.inputs.size() > 2 && node.inputs[2] != graph::kAbsent;
    return std::max<int64_t>(graph[node.inputs[has_rows ? 2 : 0]].dims[0], 1);
  }
  if (node.op == graph::GraphOp::kScatterAdd) {  // all may meet in one place
    const auto pairs = static_cast<int64_t>(node.inputs.size() / 2);
    return std::max<int64_t>(pairs * NumElements(graph[node.inputs[1]].dims), 1);
  }
  if (IsAttention(node))  // dot products, and sums over keys
    return graph[node.inputs[0]].dims.back() + graph::SdpaKeys(graph, graph::SdpaOperandsOf(node));
  if (node.op == graph::GraphOp::kNormForward || node.op == graph::GraphOp::kNormBackward ||
      node.op == graph::GraphOp::kBnBwdWeights) {
    const auto view = graph::NormViewOf(graph, node);
    return view ? NumElements(view->x) / std::max<int64_t>(NumElements(view->stats), 1) : 1;
  }
  if (node.op != graph::GraphOp::kReduction && node.op != graph::GraphOp::kReduce &&
      node.op != graph::GraphOp::kGenStats)
    return 1;
  const int64_t results = std::max<int64_t>(NumElements(graph[node.outputs[0]].dims), 1);
  return std::max<int64_t>(NumElements(graph[node.inputs[0]].dims) / results, 1);
}

double RootMeanSquare(const std::vector<double>& values) {
  double sum = 0;
  int64_t count = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    sum += value * value;
    ++count;
  }
  return count == 0 ? 0 : std::sqrt(sum / static_cast<double>(count));
}

// The size of what cancels inside a node, where that may be more than its results: a normal
// number's mean and deviation; a bias less the mean, of batch norm; in attention's gradients the
// difference of two dot products of dy, which is nothing where a query sees one key; in CTC
// logarithms of the probabilities of paths.
double Cancelled(const Graph& graph, const Node& node, const TensorValues& values) {
  if (node.op == graph::GraphOp::kRng) {
    const auto& a = node.As<graph::RngAttrs>();
    const bool is_normal = a.distribution == graph::RngDistribution::kNormal;
    return is_normal ? std::abs(a.mean) + 3 * a.deviation : 0;
  }
  if (node.op == graph::GraphOp::kCtcLoss) {
    const Dims& dims = graph[node.inputs[0]].dims;
    return static_cast<double>(dims[0]) * std::log1p(static_cast<double>(dims[2]));
  }
  if (node.op == graph::GraphOp::kBnFinalize) {
    constexpr size_t kBias = 3;
    const bool has_bias = kBias < node.inputs.size() && node.inputs[kBias] != graph::kAbsent;
    return has_bias ? RootMeanSquare(values.at(node.inputs[kBias])) : 0;
  }
  if (node.op != graph::GraphOp::kSdpaBwd) return 0;
  const auto size = [&](size_t operand) { return RootMeanSquare(values.at(node.inputs[operand])); };
  const double depth = static_cast<double>(graph[node.inputs[graph::sdpa_bwd::kV]].dims.back());
  return depth * size(graph::sdpa_bwd::kDo) * size(graph::sdpa_bwd::kV) *
         std::max(size(graph::sdpa_bwd::kQ), size(graph::sdpa_bwd::kK));
}

// Adds the step or takes it off, by the element's own bit of the seed.
double EitherWay(double value, double step, uint64_t seed, size_t element) {
  return value + ((Mix(seed + element) & 1) != 0 ? step : -step);
}

// A loop over time goes on from states that may have rounded to the other side, and errors of its
// steps add up as random ones do.
double LoopError(const Graph& graph, const Node& node) {
  const Dims& data = graph[node.inputs[0]].dims;
  int64_t steps = data[0], terms = graph[node.inputs[1]].dims.back();
  if (IsNetwork(node)) {
    const auto& a = node.As<graph::RnnAttrs>();
    steps *= a.layers;
    terms = a.hidden + data.back();
    if (node.op == graph::GraphOp::kRnnBackwardWeights)  // sums over all rows
      terms += NumElements(data) / std::max<int64_t>(data.back(), 1);
  }
  const double sum = RoundingError(node.compute) * (3 + std::sqrt(static_cast<double>(terms)));
  return std::sqrt(static_cast<double>(std::max<int64_t>(steps, 1))) *
         (sum + RoundingError(graph[node.outputs[0]].dtype));
}

// Errors of a sum grow with the root of its length, in steps that the partial sums' size sets. The
// other roundings are those of the functions that one node may hold.
double ComputeError(const Graph& graph, const Node& node) {
  if (Has(node, graph::kRecurrence) || IsNetwork(node)) return LoopError(graph, node);
  const double roundings = 3 + std::sqrt(static_cast<double>(SumLength(graph, node)));
  // Weights may take q's type before they are summed with v, a gradient's scores, too.
  const double weights = IsAttention(node) ? 2 * RoundingError(graph[node.inputs[0]].dtype) : 0;
  return RoundingError(node.compute) * roundings + weights;
}

// The size of the terms that an element may be the sum of: in a loop over time the largest value of
// a step goes into all values of the next.
double TypicalSize(const Node& node, const std::vector<double>& values) {
  if (!Has(node, graph::kRecurrence) && !IsNetwork(node)) return RootMeanSquare(values);
  double largest = 0;
  for (const double v : values)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  return largest;
}

void Disturb(const Graph& graph, const Node& node, const Tensor& tensor, double cancelled,
             uint64_t seed, std::vector<double>& values) {
  const double step = ComputeError(graph, node);
  if (step == 0 || !IsFloat(tensor.dtype)) return;
  const double typical = std::max(TypicalSize(node, values), cancelled);
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i]))
      values[i] = EitherWay(values[i], step * std::max(std::abs(values[i]), typical), seed, i);
  }
}

// An intermediate of a narrow type may round to the other side, and a right answer then goes on
// from there. Its readers see that, whether it is an output too or not.
void Flip(const Tensor& tensor, uint64_t seed, std::vector<double>& values) {
  const double step = RoundingError(tensor.dtype);
  if (step == 0) return;
  const double typical = RootMeanSquare(values), smallest = SmallestStep(tensor.dtype);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    const double size = std::max(std::abs(values[i]), typical);
    values[i] = EitherWay(values[i], std::max(step * size, smallest), seed, i);
  }
}

Status RunNode(const Graph& graph, const Node& node, TensorValues& values) {
  Graph alone = {.name = graph.name, .tensors = graph.tensors, .nodes = {node}};
  return graph::Evaluate(alone, values);
}

// Tensor cores of sm_90 add products of 8-bit floats with about 14 bits: a step's error is up to
// 2^-13 of the partial sum, which is at most the sum of the products' magnitudes.
Status DisturbFp8Sum(const Graph& graph, const Node& node, uint64_t seed, TensorValues& values) {
  constexpr double kSumError = 0x1p-13;
  const auto is_fp8 = [&](TensorId id) {
    return IsFloat(graph[id].dtype) && Info(graph[id].dtype).bits == 8;
  };
  if (!Has(node, graph::kContraction) || !is_fp8(node.inputs[0]) || !is_fp8(node.inputs[1]))
    return {};
  Graph wide = graph;
  wide[node.outputs[0]].dtype = DType::kF64;
  TensorValues magnitudes;
  for (const TensorId id : node.inputs) {
    if (id == graph::kAbsent) continue;
    magnitudes[id] = values.at(id);
    for (double& value : magnitudes[id]) value = std::abs(value);
  }
  RETURN_IF_ERROR(RunNode(wide, node, magnitudes));
  const std::vector<double>& most = magnitudes.at(node.outputs[0]);
  std::vector<double>& sums = values.at(node.outputs[0]);
  for (size_t i = 0; i < sums.size(); ++i) {
    if (std::isfinite(most[i]))
      sums[i] += (Mix(seed + i) & 1) != 0 ? kSumError * most[i] : -kSumError * most[i];
  }
  return {};
}

bool Multiplies(const Node& node) {
  using graph::ReductionMode;
  if (node.op == graph::GraphOp::kReduce)
    return node.As<graph::ReduceAttrs>().combine == graph::Combine::kMul;
  if (node.op != graph::GraphOp::kReduction) return false;
  const ReductionMode mode = node.As<graph::ReductionAttrs>().mode;
  return mode == ReductionMode::kMul || mode == ReductionMode::kMulNoZeros;
}

// The order of a product's factors is free. Where those above 1 leave the type's range together, an
// order may bring them to infinity before a zero, or what is small, brings them back: then any
// number is right, and NaN.
Status OpenProducts(const Graph& graph, const Node& node, TensorValues& values) {
  if (!Multiplies(node) || !IsFloat(node.compute)) return {};
  const double largest = ArithmeticType(node.compute) == DType::kF64
                             ? std::numeric_limits<double>::max()
                             : static_cast<double>(std::numeric_limits<float>::max());
  Graph wide = graph;
  wide[node.outputs[0]].dtype = DType::kF64;
  const TensorId x = node.inputs[0];
  wide[x].dtype = DType::kF64;
  TensorValues factors = {{x, values.at(x)}};
  for (double& value : factors[x]) value = std::abs(value) > 1 ? std::abs(value) : 1;
  RETURN_IF_ERROR(RunNode(wide, node, factors));
  const std::vector<double>& most = factors.at(node.outputs[0]);
  std::vector<double>& products = values.at(node.outputs[0]);
  for (size_t i = 0; i < products.size(); ++i)
    if (most[i] > largest && std::isfinite(products[i]))
      products[i] = std::numeric_limits<double>::quiet_NaN();
  return {};
}

// A norm is one node, whose variance has the error of its sum before epsilon is added to it. An
// epsilon below zero (random data is) may leave next to nothing of both, and then that error is
// most of what is left: the run has an epsilon that is off by it. Results that are no norm by
// statistics of its own, or without deviations, are left as they are.
Status DisturbVariance(const Graph& graph, const Node& node, uint64_t seed, TensorValues& values) {
  using graph::NormForwardIn, graph::NormForwardOut;
  if (node.op != graph::GraphOp::kNormForward) return {};
  const TensorId epsilon = graph::In(node, NormForwardIn::kEpsilon);
  const auto view = graph::NormViewOf(graph, node);
  const bool has_own = graph::In(node, NormForwardIn::kInvVariance) == graph::kAbsent;
  if (epsilon == graph::kAbsent || !has_own || !view) return {};
  Graph wide = graph;
  Node with_inverse = node;
  const auto at = static_cast<size_t>(NormForwardOut::kInvVariance);
  if (with_inverse.outputs.size() <= at) with_inverse.outputs.resize(at + 1, graph::kAbsent);
  with_inverse.outputs[at] = wide.AddTensor(
      {.name = "inverse", .dtype = DType::kF64, .dims = view->stats_dims, .is_virtual = true});
  TensorValues own = values;
  RETURN_IF_ERROR(RunNode(wide, with_inverse, own));
  const double before = graph[epsilon].is_constant() ? *graph[epsilon].value : own.at(epsilon)[0];
  std::vector<double> variances;
  for (const double inverse : own.at(with_inverse.outputs[at]))
    variances.push_back(1 / (inverse * inverse) - before);
  const double roundings = 3 + std::sqrt(static_cast<double>(SumLength(graph, node)));
  const double step = RoundingError(node.compute) * roundings * RootMeanSquare(variances);
  const double after = before + ((Mix(seed) & 1) != 0 ? step : -step);
  if (graph[epsilon].is_constant())
    wide[epsilon].value = after;
  else
    own[epsilon] = {after};
  for (const TensorId id : node.outputs) own.erase(id);
  RETURN_IF_ERROR(RunNode(wide, node, own));
  for (const TensorId id : node.outputs)
    if (id != graph::kAbsent) values[id] = std::move(own[id]);
  return {};
}

// Integers that are made of floats round where the float, with its own error, is: beside a border
// to either side.
Status DisturbIntegers(const Graph& graph, const Node& node, uint64_t seed, TensorValues& values) {
  constexpr uint32_t kPlain = graph::kContraction | graph::kElementwise | graph::kReduction;
  const bool is_plain = node.op == graph::GraphOp::kPointwise ||
                        node.op == graph::GraphOp::kReduction ||
                        (Info(node.op).traits & kPlain) != 0;
  const TensorId y = node.outputs[0];
  if (!is_plain || y == graph::kAbsent || !IsInteger(graph[y].dtype) || !IsFloat(node.compute))
    return {};
  Graph wide = graph;
  wide[y].dtype = DType::kF64;
  TensorValues unrounded;
  for (const TensorId id : node.inputs)
    if (id != graph::kAbsent) unrounded[id] = values.at(id);
  RETURN_IF_ERROR(RunNode(wide, node, unrounded));
  Disturb(wide, node, wide[y], 0, seed, unrounded.at(y));
  std::vector<double>& rounded = values.at(y);
  for (size_t i = 0; i < rounded.size(); ++i)
    rounded[i] = RoundTo(graph[y].dtype, unrounded.at(y)[i]);
  return {};
}

// One disturbed run, node by node. Values are dropped behind their last reader.
class DisturbedRun {
 public:
  DisturbedRun(const Graph& graph, const TensorValues& exact, uint64_t seed,
               const NodeObserver& observer)
      : graph_(graph),
        exact_(exact),
        observer_(observer),
        stream_(Mix(seed ^ 0xd157)),
        readers_(graph.tensors.size(), 0) {
    for (const Node& node : graph.nodes)
      for (const TensorId id : node.inputs)
        if (id != graph::kAbsent) ++readers_[static_cast<size_t>(id)];
  }

  // The outputs' values.
  Result<TensorValues> Run() {
    for (const Node& node : graph_.nodes) RETURN_IF_ERROR(RunOne(node));
    return std::move(outputs_);
  }

 private:
  // A node that no error reaches yet has the exact run's results.
  Status RunOne(const Node& node) {
    if (observer_) observer_(node);
    bool is_reached = false;
    for (const TensorId id : node.inputs) {
      if (id == graph::kAbsent) continue;
      is_reached = is_reached || reached_.contains(id);
      if (!values_.contains(id) && exact_.contains(id)) values_[id] = exact_.at(id);
    }
    TensorValues unrounded = RoundWideOperands(node);
    is_reached = is_reached || !unrounded.empty();
    for (const TensorId id : node.outputs) {
      if (id != graph::kAbsent && !is_reached) values_[id] = exact_.at(id);
    }
    if (is_reached) RETURN_IF_ERROR(RunNode(graph_, node, values_));
    RETURN_IF_ERROR(DisturbVariance(graph_, node, stream_, values_));
    RETURN_IF_ERROR(DisturbIntegers(graph_, node, stream_, values_));
    for (auto& [id, values] : unrounded) values_[id] = std::move(values);
    const double cancelled = Cancelled(graph_, node, values_);
    const uint64_t before = stream_;
    for (const TensorId id : node.outputs) {
      if (id == graph::kAbsent) continue;
      Disturb(graph_, node, graph_[id], cancelled, stream_ = Mix(stream_), values_[id]);
      reached_.insert(id);
    }
    RETURN_IF_ERROR(DisturbFp8Sum(graph_, node, stream_, values_));
    RETURN_IF_ERROR(OpenProducts(graph_, node, values_));
    Keep(node, before);
    return {};
  }

  // Operands of a type wider than the node computes with are rounded as they are read, and what is
  // summed of them may cancel. Returns them as they were.
  TensorValues RoundWideOperands(const Node& node) {
    TensorValues unrounded;
    const double step = RoundingError(node.compute);
    for (const TensorId id : node.inputs) {
      if (id == graph::kAbsent || unrounded.contains(id) || !IsFloat(graph_[id].dtype)) continue;
      if (RoundingError(graph_[id].dtype) >= step) continue;
      unrounded[id] = values_.at(id);
      const uint64_t stream = Mix(stream_ ^ static_cast<uint64_t>(id));
      std::vector<double>& values = values_.at(id);
      for (size_t i = 0; i < values.size(); ++i)
        if (std::isfinite(values[i]))
          values[i] = EitherWay(values[i], step * std::abs(values[i]), stream, i);
    }
    return unrounded;
  }

  void Keep(const Node& node, uint64_t stream) {
    for (const TensorId id : node.outputs) {
      if (id == graph::kAbsent) continue;
      if (!graph_[id].is_virtual) outputs_[id] = values_[id];
      Flip(graph_[id], stream = Mix(stream), values_[id]);
      if (readers_[static_cast<size_t>(id)] == 0) values_.erase(id);
    }
    for (const TensorId id : node.inputs)
      if (id != graph::kAbsent && --readers_[static_cast<size_t>(id)] == 0) values_.erase(id);
  }

  const Graph& graph_;
  const TensorValues& exact_;
  const NodeObserver& observer_;
  uint64_t stream_;
  std::vector<int64_t> readers_;  // nodes' operands that still read a tensor
  std::set<TensorId> reached_;
  TensorValues values_, outputs_;
};

// The size of the disturbance in relation to the values, over the whole tensor.
double RelativeGrowth(const std::vector<double>& want, const std::vector<double>& disturbed,
                      double typical) {
  std::vector<double> ratios;
  for (size_t i = 0; i < want.size(); ++i) {
    const double size = std::max(std::abs(want[i]), typical);
    if (size > 0 && std::isfinite(want[i]) && std::isfinite(disturbed[i]))
      ratios.push_back((disturbed[i] - want[i]) / size);
  }
  return RootMeanSquare(ratios);
}

bool IsRight(DType type, double got, double want, double allowed) {
  if (got == want || (std::isnan(want) && std::isnan(got))) return true;
  // At the border of the type's range the largest number and infinity are neighbours.
  if (std::isinf(got) && std::isfinite(want))
    return RoundTo(type, want + std::copysign(allowed, got)) == got;
  if (std::isinf(want) && std::isfinite(got)) {
    constexpr double kNearTheBorder = 0x1p-6;
    return RoundTo(type, got * (1 + kNearTheBorder)) == want;
  }
  return std::abs(got - want) <= allowed;
}

// The error of one rounding to the tensor's type. Two numbers that lie on either side of a border
// between neighbours end up a step apart, be they ever so close before.
double RoundingStep(const Tensor& tensor, DType compute, double want) {
  if (IsFloat(tensor.dtype))
    return 2 * RoundingError(tensor.dtype) * std::abs(want) + SmallestStep(tensor.dtype);
  return IsInteger(tensor.dtype) && IsFloat(compute) ? 1 : 0;
}

}  // namespace

Result<Reference> Interpret(const Graph& graph, TensorValues inputs, uint64_t seed,
                            const NodeObserver& observer) {
  Reference reference{.values = std::move(inputs), .disturbed = {}};
  RETURN_IF_ERROR(graph::Evaluate(graph, reference.values, observer));
  RETURN_IF_ERROR(DisturbAgain(graph, seed, reference, observer));
  return reference;
}

Status DisturbAgain(const Graph& graph, uint64_t seed, Reference& reference,
                    const NodeObserver& observer) {
  ASSIGN_OR_RETURN(TensorValues run, DisturbedRun(graph, reference.values, seed, observer).Run());
  reference.disturbed.push_back(std::move(run));
  return {};
}

namespace {

// The distance that disturbed runs bring an element; `is_open` where infinity or NaN is near.
struct Movement {
  double distance = 0;
  bool is_open = false;
};

Movement MovementOf(const Reference& reference, TensorId output, size_t element) {
  const double want = reference.values.at(output)[element];
  Movement movement;
  for (const TensorValues& run : reference.disturbed) {
    const double disturbed = run.at(output)[element];
    if (std::isfinite(disturbed) && std::isfinite(want))
      movement.distance = std::max(movement.distance, std::abs(disturbed - want));
    else if (disturbed != want && std::isnan(disturbed) != std::isnan(want))
      movement.is_open = true;
    else
      movement.is_open = movement.is_open || std::isfinite(disturbed) != std::isfinite(want);
  }
  return movement;
}

}  // namespace

Comparison Compare(const Graph& graph, TensorId output, const Reference& reference,
                   const std::vector<double>& got) {
  constexpr double kSafety = 4;  // one disturbed run shows a typical error, not the largest
  const DType type = graph[output].dtype;
  const graph::NodeId writer = graph::Producers(graph)[static_cast<size_t>(output)];
  const DType compute = graph.nodes[static_cast<size_t>(writer)].compute;
  const std::vector<double>& want = reference.values.at(output);
  const double typical = RootMeanSquare(want);
  double growth = 0;
  for (const TensorValues& run : reference.disturbed)
    growth = std::max(growth, RelativeGrowth(want, run.at(output), typical));
  Comparison worst{.elements = static_cast<int64_t>(want.size())};
  double worst_ratio = -1;
  for (size_t i = 0; i < want.size(); ++i) {
    const Movement movement = MovementOf(reference, output, i);
    double allowed = 0;
    if (std::isfinite(want[i])) {
      const double size = std::max(std::abs(want[i]), typical);
      allowed = RoundingStep(graph[output], compute, want[i]) +
                kSafety * (movement.distance + growth * size);
    }
    const double error = got[i] == want[i] ? 0 : std::abs(got[i] - want[i]);
    const bool right = movement.is_open || IsRight(type, got[i], want[i], allowed);
    worst.wrong += right ? 0 : 1;
    worst.nans += std::isnan(want[i]) ? 1 : 0;
    double ratio = error > 0 && allowed > 0 ? error / allowed : 0;
    if (!right) ratio = std::numeric_limits<double>::infinity();
    if (ratio <= worst_ratio) continue;
    worst_ratio = ratio;
    worst.element = static_cast<int64_t>(i);
    worst.got = got[i];
    worst.want = want[i];
    worst.error = error;
    worst.allowed = allowed;
  }
  return worst;
}

Result<Comparison> CompareClosely(const Graph& graph, TensorId output, uint64_t seed,
                                  const std::vector<double>& got, Reference& reference,
                                  const NodeObserver& observer) {
  constexpr size_t kMostRuns = 25;
  constexpr size_t kRunsALook = 4;
  // Rounding brings few elements to a step, and each run shows some of them. Many wrong ones of
  // which further runs explain none are a wrong kernel's.
  constexpr int64_t kFew = 16;
  Comparison found = Compare(graph, output, reference, got);
  for (uint64_t run = 1; !found.ok() && reference.disturbed.size() < kMostRuns; ++run) {
    RETURN_IF_ERROR(DisturbAgain(graph, seed + run, reference, observer));
    if (run % kRunsALook != 0) continue;
    const int64_t before = found.wrong;
    found = Compare(graph, output, reference, got);
    if (found.wrong == before && before > kFew) break;
  }
  return found;
}

std::string ElementText(const Tensor& tensor, int64_t element) {
  std::string text;
  for (size_t d = tensor.dims.size(); d-- > 0;) {
    text = fmt::format("{}{}{}", element % tensor.dims[d], text.empty() ? "" : ",", text);
    element /= tensor.dims[d];
  }
  return "[" + text + "]";
}

}  // namespace kiln::cli
