// Random numbers by counter: element i, in row-major order of the extents whatever the strides are,
// is a function of i, the seed and the offset alone. word(i) is PhiloxWord (ir/scalar.h), w(i) its
// upper 24 bits, h(i) half i % 2 of word(i / 2), the low one first: Bernoulli numbers are
// what attention draws by the million, and take 16 bits each.
//
//   bernoulli  1 where h(i) * 2^-16 < probability, else 0; the probability is rounded to f32 first,
//              so that graphs which give it as float and as double make one mask
//   uniform    minimum + (maximum - minimum) * 2^-24 * w(i)
//   normal     mean + deviation * r * cos(t) for even i, sin(t) for odd, where j = i - i % 2,
//              r = sqrt(-2 log((w(j) + 1) * 2^-24)), t = 2 pi * 2^-24 * w(j + 1)
#include <cmath>
#include <numbers>

#include "ir/graph/ops.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {

Status VerifyRng(const Graph& graph, const Node& node) {
  if (node.compute != DType::kF32 && node.compute != DType::kF64)
    return Status::Error(Code::kUnsupportedDataType, "compute type {} is none of f32, f64",
                         Info(node.compute).text);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Tensor* t = InputOf(graph, node, i);
    if (t == nullptr) continue;
    if (NumElements(t->dims) != 1)
      return Status::Error(Code::kShapeMismatch, "{} must have one element", Shape(*t));
    if (!IsInteger(t->dtype))
      return Status::Error(Code::kUnsupportedDataType, "{} of {} is no integer", Shape(*t),
                           Info(t->dtype).text);
  }
  const auto& a = node.As<RngAttrs>();
  if (a.distribution == RngDistribution::kBernoulli && !(a.probability >= 0 && a.probability <= 1))
    return Status::Error(Code::kBadParam, "{} is no probability", a.probability);
  if (a.distribution == RngDistribution::kUniform && !(a.minimum <= a.maximum))
    return Status::Error(Code::kBadParam, "nothing lies from {} to {}", a.minimum, a.maximum);
  if (a.distribution == RngDistribution::kNormal && !(a.deviation >= 0))
    return Status::Error(Code::kBadParam, "{} is no standard deviation", a.deviation);
  return {};
}

Status InferRng(Graph& graph, const Node& node) {
  Tensor& y = graph[node.outputs[0]];
  if (y.dims.empty())
    return Status::Error(Code::kBadParam, "%{} has no extents: rng's output says them", y.name);
  SetDims(y, {}, nullptr);
  return {};
}

void EvalRng(const EvalArgs& args) {
  const auto& a = args.node.As<RngAttrs>();
  const auto input = [&](size_t i, int64_t otherwise) {
    const bool present = i < args.inputs.size() && args.inputs[i] != nullptr;
    return present ? static_cast<int64_t>((*args.inputs[i])[0]) : otherwise;
  };
  const int64_t seed = input(0, a.seed), offset = input(1, 0);
  const auto word = [&](int64_t i) {
    return static_cast<double>(PhiloxWord(i, seed, offset) >> 8) * 0x1p-24;
  };
  const auto half = [&](int64_t i) {
    return static_cast<double>(PhiloxWord(i / 2, seed, offset) >> i % 2 * 16 & 0xffff);
  };
  std::vector<double>& y = *args.outputs[0];
  for (int64_t i = 0; i < static_cast<int64_t>(y.size()); ++i) {
    double& value = y[static_cast<size_t>(i)];
    switch (a.distribution) {
      case RngDistribution::kBernoulli:
        value = half(i) * 0x1p-16 < static_cast<double>(static_cast<float>(a.probability)) ? 1 : 0;
        break;
      case RngDistribution::kUniform:
        value = a.minimum + (a.maximum - a.minimum) * word(i);
        break;
      case RngDistribution::kNormal: {
        const int64_t pair = i - i % 2;
        const double radius = std::sqrt(-2 * std::log(word(pair) + 0x1p-24));
        const double angle = 2 * std::numbers::pi * word(pair + 1);
        value = a.mean + a.deviation * radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
        break;
      }
    }
  }
}

}  // namespace kiln::graph
