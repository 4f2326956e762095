// Batch-norm statistics as separate graph operations: `gen_stats` (per-channel sum and sum of
// squares) and `bn_finalize` (from these to mean, inverse deviation, the equivalent scale and bias,
// running statistics).
//
//   mean = sum / count                      updated_mean = (1 - f) * prev_mean + f * mean
//   var = max(0, sq_sum / count - mean²)    updated_var = (1 - f) * prev_var + f * unbiased
//   inv_std = 1 / sqrt(var + epsilon)       unbiased = var * count / max(1, count - 1)
//   eq_scale = scale * inv_std              eq_bias = bias - mean * eq_scale
//
// In inference mode mean and var are prev_mean and prev_var, and the sums and the count are not
// read.
#include <algorithm>
#include <array>
#include <cmath>

#include "ir/graph/loops.h"
#include "ir/graph/ops.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

enum Input : size_t {
  kSum,
  kSqSum,
  kScale,
  kBias,
  kPrevMean,
  kPrevVar,
  kEpsilon,
  kFactor,
  kCount,
  kInputs
};
enum Output : size_t {
  kUpdatedMean,
  kUpdatedVar,
  kSavedMean,
  kSavedInvStd,
  kEqScale,
  kEqBias,
  kOutputs
};
constexpr const char* kInputNames[] = {"sum",     "sq_sum",         "scale",
                                       "bias",    "prev_mean",      "prev_var",
                                       "epsilon", "exp_avg_factor", "accum_count"};
constexpr const char* kOutputNames[] = {"updated_mean",  "updated_var", "saved_mean",
                                        "saved_inv_std", "eq_scale",    "eq_bias"};

bool IsScalarInput(size_t input) { return input >= kEpsilon; }

// The inputs that an output is computed from.
std::vector<Input> NeedsOf(size_t output, bool inference) {
  std::vector<Input> needs =
      inference ? std::vector<Input>{kPrevMean, kPrevVar} : std::vector<Input>{kSum, kCount};
  if (!inference && output != kUpdatedMean && output != kSavedMean) needs.push_back(kSqSum);
  switch (output) {
    case kUpdatedMean:
      needs.insert(needs.end(), {kPrevMean, kFactor});
      break;
    case kUpdatedVar:
      needs.insert(needs.end(), {kPrevVar, kFactor});
      break;
    case kSavedInvStd:
      needs.push_back(kEpsilon);
      break;
    case kEqScale:
      needs.insert(needs.end(), {kScale, kEpsilon});
      break;
    case kEqBias:
      needs.insert(needs.end(), {kScale, kBias, kEpsilon});
      break;
    default:
      break;
  }
  return needs;
}

Dims ChannelDims(const Tensor& x) {
  Dims dims(x.dims.size(), 1);
  dims[1] = x.dims[1];
  return dims;
}

// The tensor whose extents the per-channel operands share: the first one that is there.
const Tensor* Channels(const Graph& graph, const Node& node) {
  for (size_t i = 0; i < kEpsilon; ++i) {
    if (const Tensor* t = InputOf(graph, node, i)) return t;
  }
  return nullptr;
}

struct Statistics {
  double mean, var, unbiased;
};

}  // namespace

Status VerifyGenStats(const Graph& graph, const Node& node) {
  const Tensor& x = *InputOf(graph, node, 0);
  RETURN_IF_ERROR(CheckCompute(node, false));
  RETURN_IF_ERROR(RejectBool(graph, node));
  if (x.rank() < 2) return Status::Error(Code::kShapeMismatch, "{} has no channel dim", Shape(x));
  for (size_t i = 0; i < 2; ++i) {
    const Tensor* y = OutputOf(graph, node, i);
    if (y == nullptr)
      return Status::Error(Code::kBadParam, "gen_stats writes both the sum and the sum of squares");
    RETURN_IF_ERROR(ExpectDims(*y, ChannelDims(x), fmt::format("gen_stats of {}", Shape(x))));
  }
  return {};
}

Status InferGenStats(Graph& graph, const Node& node) {
  const Tensor& x = graph[node.inputs[0]];
  if (x.rank() < 2) return {};  // Verify has the sentence
  for (const TensorId id : node.outputs) {
    if (id != kAbsent) SetDims(graph[id], ChannelDims(x), &x);
  }
  return {};
}

void EvalGenStats(const EvalArgs& args) {
  const Dims& dims = InputOf(args.graph, args.node, 0)->dims;
  std::vector<double>& sum = *args.outputs[0];
  std::vector<double>& square = *args.outputs[1];
  std::ranges::fill(sum, 0);
  std::ranges::fill(square, 0);
  Dims channel_step(dims.size(), 0);
  channel_step[1] = 1;
  const std::array<Dims, 2> steps = {PackedStrides(dims), channel_step};
  ForEachRow<2>(
      dims, steps,
      [&](const std::array<int64_t, 2>& at, int64_t count, const std::array<int64_t, 2>& step) {
        for (int64_t i = 0; i < count; ++i) {
          const double x = (*args.inputs[0])[static_cast<size_t>(at[0] + i * step[0])];
          const auto channel = static_cast<size_t>(at[1] + i * step[1]);
          sum[channel] += x;
          square[channel] += x * x;
        }
      });
}

Status VerifyBnFinalize(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(CheckCompute(node, false));
  RETURN_IF_ERROR(RejectBool(graph, node));
  if (IsInteger(node.compute)) {
    return Status::Error(Code::kUnsupportedDataType,
                         "bn_finalize divides: compute type {} does not serve",
                         Info(node.compute).text);
  }
  const bool inference = node.As<BnFinalizeAttrs>().inference;
  const Tensor* channels = Channels(graph, node);
  if (channels == nullptr)
    return Status::Error(Code::kBadParam, "bn_finalize has no per-channel input");
  for (size_t i = 0; i < kInputs; ++i) {
    const Tensor* t = InputOf(graph, node, i);
    if (t == nullptr) continue;
    if (!IsScalarInput(i)) {
      RETURN_IF_ERROR(ExpectDims(*t, channels->dims, fmt::format("{}", Shape(*channels))));
    } else if (NumElements(t->dims) != 1) {
      return Status::Error(Code::kShapeMismatch, "{} {} must have one element", kInputNames[i],
                           Shape(*t));
    }
  }
  bool any = false;
  for (size_t i = 0; i < kOutputs; ++i) {
    const Tensor* t = OutputOf(graph, node, i);
    if (t == nullptr) continue;
    any = true;
    RETURN_IF_ERROR(ExpectDims(*t, channels->dims, fmt::format("{}", Shape(*channels))));
    for (const Input need : NeedsOf(i, inference)) {
      if (InputOf(graph, node, need) != nullptr) continue;
      return Status::Error(Code::kBadParam, "{} needs {}, which is absent", kOutputNames[i],
                           kInputNames[need]);
    }
    if (inference && i < kSavedMean) {
      return Status::Error(Code::kBadParam, "{} is not computed in inference mode",
                           kOutputNames[i]);
    }
  }
  if (!any) return Status::Error(Code::kBadParam, "bn_finalize writes nothing");
  return {};
}

Status InferBnFinalize(Graph& graph, const Node& node) {
  const Tensor* channels = Channels(graph, node);
  if (channels == nullptr) return {};  // Verify has the sentence
  const Tensor like = *channels;
  for (const TensorId id : node.outputs) {
    if (id != kAbsent) SetDims(graph[id], like.dims, &like);
  }
  return {};
}

void EvalBnFinalize(const EvalArgs& args) {
  const bool inference = args.node.As<BnFinalizeAttrs>().inference;
  const auto at = [&](Input input, size_t channel) {
    if (input >= args.inputs.size() || args.inputs[input] == nullptr) return 0.0;
    return (*args.inputs[input])[IsScalarInput(input) ? 0 : channel];
  };
  const auto put = [&](Output output, size_t channel, double value) {
    if (output < args.outputs.size() && args.outputs[output] != nullptr)
      (*args.outputs[output])[channel] = value;
  };
  const auto statistics = [&](size_t c) -> Statistics {
    if (inference) return {at(kPrevMean, c), at(kPrevVar, c), at(kPrevVar, c)};
    const double count = at(kCount, c);
    const double mean = at(kSum, c) / count;
    const double var = std::max(0.0, at(kSqSum, c) / count - mean * mean);
    return {mean, var, var * count / std::max(1.0, count - 1)};
  };
  const auto channels = static_cast<size_t>(NumElements(Channels(args.graph, args.node)->dims));
  for (size_t c = 0; c < channels; ++c) {
    const auto [mean, var, unbiased] = statistics(c);
    const double inv_std = 1 / std::sqrt(var + at(kEpsilon, c));
    const double factor = at(kFactor, c);
    const double eq_scale = at(kScale, c) * inv_std;
    put(kUpdatedMean, c, (1 - factor) * at(kPrevMean, c) + factor * mean);
    put(kUpdatedVar, c, (1 - factor) * at(kPrevVar, c) + factor * unbiased);
    put(kSavedMean, c, mean);
    put(kSavedInvStd, c, inv_std);
    put(kEqScale, c, eq_scale);
    put(kEqBias, c, at(kBias, c) - mean * eq_scale);
  }
}

}  // namespace kiln::graph
