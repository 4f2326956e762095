// Random numbers as primitives; the formulas are in ir/graph/ops_rng.cc. The place of an element is
// a row-major reshape of an iota, its bits are one scalar primitive of that, so that numbers are
// made again wherever they are read and need no memory.
#include <cmath>
#include <numbers>

#include "compiler/passes/decompose_parts.h"
#include "compiler/passes/primitive_writer.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::kAbsent;
using graph::Node;
using graph::TensorId;

// A number of 64 bits as constants of an i64 writer, which hold 53 exactly. It is no part of the
// kernel.
TensorId WideNumber(PrimitiveWriter& w, int64_t value) {
  constexpr int64_t kWord = int64_t{1} << 32;
  const auto number = [&](int64_t v) { return w.Number(static_cast<double>(v), kLaunchNumberUid); };
  const int64_t low = value & (kWord - 1), high = (value - low) / kWord;
  if (high == 0) return number(low);
  return w.Add(w.Mul(number(high), number(kWord)), number(low));
}

}  // namespace

void DecomposeRng(Graph& g, const Node& node) {
  const auto& attrs = node.As<graph::RngAttrs>();
  const TensorId y = node.outputs[0];
  const Dims dims = g[y].dims;
  const std::string name = g[y].name;
  PrimitiveWriter bits(g, DType::kI64, name), w(g, node.compute, name);
  const auto input = [&](size_t i, int64_t otherwise) {
    const bool present = i < node.inputs.size() && node.inputs[i] != kAbsent;
    return present ? node.inputs[i] : WideNumber(bits, otherwise);
  };
  // Broadcast from the right, whatever ranks the client's scalars have.
  const TensorId seed = bits.Reshape(bits.Cast(input(0, attrs.seed), DType::kI64), {1});
  const TensorId offset = bits.Reshape(bits.Cast(input(1, 0), DType::kI64), {1});
  TensorId place = bits.Cast(bits.Iota(0, {NumElements(dims)}), DType::kI64);
  if (dims.size() != 1) place = bits.Reshape(place, dims);
  const auto whole_word = [&](TensorId at) {  // the upper 24 bits
    return bits.Div(bits.Map(ScalarOp::kPhilox, {at, seed, offset}), bits.Number(256));
  };
  const auto word = [&](TensorId at) { return w.Cast(whole_word(at), w.compute()); };
  constexpr double kUnit = 0x1p-24, kHalfUnit = 0x1p-16;
  switch (attrs.distribution) {
    case graph::RngDistribution::kBernoulli: {
      const double limit = static_cast<double>(static_cast<float>(attrs.probability)) / kHalfUnit;
      const TensorId word =
          bits.Map(ScalarOp::kPhilox, {bits.Div(place, bits.Number(2)), seed, offset});
      const TensorId even = bits.Map(
          ScalarOp::kEq, {bits.Map(ScalarOp::kMod, {place, bits.Number(2)}), bits.Number(0)});
      const TensorId half =
          bits.Select(even, bits.Map(ScalarOp::kMod, {word, bits.Number(1 / kHalfUnit)}),
                      bits.Div(word, bits.Number(1 / kHalfUnit)));
      // A whole number is below a number where it is below the next whole one.
      const TensorId below = bits.Map(ScalarOp::kLt, {half, bits.Number(std::ceil(limit))});
      return w.Write(w.Select(below, w.Number(1), w.Number(0)), y);
    }
    case graph::RngDistribution::kUniform: {
      const TensorId scale = w.Number((attrs.maximum - attrs.minimum) * kUnit);
      return w.Write(w.Map(ScalarOp::kFma, {word(place), scale, w.Number(attrs.minimum)}), y);
    }
    case graph::RngDistribution::kNormal: {
      const TensorId odd = bits.Map(ScalarOp::kMod, {place, bits.Number(2)});
      const TensorId pair = bits.Sub(place, odd);
      const TensorId first = w.Mul(w.Add(word(pair), w.Number(1)), w.Number(kUnit));
      const TensorId radius =
          w.Map(ScalarOp::kSqrt, {w.Mul(w.Map(ScalarOp::kLog, {first}), w.Number(-2))});
      const TensorId angle =
          w.Mul(word(bits.Add(pair, bits.Number(1))), w.Number(2 * std::numbers::pi * kUnit));
      const TensorId wave =
          w.Select(bits.Map(ScalarOp::kEq, {odd, bits.Number(0)}), w.Map(ScalarOp::kCos, {angle}),
                   w.Map(ScalarOp::kSin, {angle}));
      return w.Write(
          w.Add(w.Mul(w.Mul(radius, wave), w.Number(attrs.deviation)), w.Number(attrs.mean)), y);
    }
  }
}

}  // namespace kiln::compiler
