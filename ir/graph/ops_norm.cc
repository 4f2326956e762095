// Normalisation: `norm_forward`, `norm_backward` (all of cudnnBackendNormMode_t) and
// `bn_bwd_weights`. n is the number of elements that one statistic is made of:
//
//   mean = Σx / n                             RMS: 0
//   inv_variance = 1 / sqrt(Σ(x - mean)² / n + epsilon)
//   y = (x - mean) * inv_variance * scale + bias
//   next_mean = (1 - f) * running_mean + f * mean
//   next_var = (1 - f) * running_var + f * variance * n / max(1, n - 1)
//
// Backward, with x̂ = (x - mean) * inv_variance and g = dy * scale:
//
//   dx = inv_variance * (g - Σg / n - x̂ * Σ(g * x̂) / n)         RMS: without Σg / n
//   dscale = Σ dy * x̂      dbias = Σ dy         over the dims that scale has not
//
// bn_bwd_weights gives the same dx as eq_dy_scale * dy + eq_x_scale * x + eq_bias.
//
// A batch norm with the buffers of two or more peers has the statistics of all their batches, which
// have equal extents: n is the number of all elements, and dscale and dbias are sums over all GPUs,
// as if one had the whole batch. The words of a buffer (ir/peers.h), C of each:
//
//   forward    mean of this GPU's x; mean of its squared distances from the mean of all
//   backward   dbias, dscale
//
// With one buffer the statistics are those of this GPU's x, and the buffer is not touched.
#include <algorithm>
#include <cmath>

#include "ir/graph/loops.h"
#include "ir/graph/norm.h"
#include "ir/graph/ops.h"
#include "ir/graph/peers.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

using FwdIn = NormForwardIn;
using FwdOut = NormForwardOut;
using BwdIn = NormBackwardIn;
using BwdOut = NormBackwardOut;
using WeightsIn = BnBwdWeightsIn;
using WeightsOut = BnBwdWeightsOut;

const Tensor* At(const Graph& graph, TensorId id) { return id == kAbsent ? nullptr : &graph[id]; }

NormMode ModeOf(const Node& node) {
  if (node.op == GraphOp::kNormForward) return node.As<NormForwardAttrs>().mode;
  if (node.op == GraphOp::kNormBackward) return node.As<NormBackwardAttrs>().mode;
  return NormMode::kBatch;
}

// A tensor of statistics, whether operand or result.
const Tensor* StatsOf(const Graph& graph, const Node& node) {
  const auto first = [&](std::initializer_list<TensorId> ids) -> const Tensor* {
    for (const TensorId id : ids)
      if (id != kAbsent && !graph[id].dims.empty()) return &graph[id];
    return nullptr;
  };
  if (node.op == GraphOp::kNormForward) {
    return first({In(node, FwdIn::kMean), In(node, FwdIn::kInvVariance), Out(node, FwdOut::kMean),
                  Out(node, FwdOut::kInvVariance)});
  }
  if (node.op == GraphOp::kNormBackward)
    return first({In(node, BwdIn::kMean), In(node, BwdIn::kInvVariance)});
  return nullptr;
}

// 1 where one of the weights has an extent, else x's.
Dims StatsByWeights(const Graph& graph, const Node& node, const Dims& x, bool keep_batch) {
  const bool forward = node.op == GraphOp::kNormForward;
  const Tensor* scale = At(graph, forward ? In(node, FwdIn::kScale) : In(node, BwdIn::kScale));
  const Tensor* bias = At(graph, forward ? In(node, FwdIn::kBias) : Out(node, BwdOut::kDbias));
  Dims stats = x;
  if (scale == nullptr && bias == nullptr) std::fill(stats.begin() + 1, stats.end(), 1);
  for (const Tensor* weights : {scale, bias}) {
    if (weights == nullptr) continue;
    const size_t rank = weights->dims.size();
    for (size_t i = 1; i <= std::min(rank, x.size()); ++i) {
      const size_t d = x.size() - i;
      if (weights->dims[rank - i] != 1 && !(keep_batch && d == 0)) stats[d] = 1;
    }
  }
  return stats;
}

std::optional<NormView> GroupView(const Dims& x, const Tensor* stats) {
  if (stats == nullptr || stats->dims.size() != x.size()) return std::nullopt;
  const int64_t groups = stats->dims[1];
  if (groups < 1 || x[1] % groups != 0) return std::nullopt;
  NormView view{.x = x, .stats = Dims(x.size() + 1, 1), .stats_dims = Dims(x.size(), 1)};
  view.x[1] = x[1] / groups;
  view.x.insert(view.x.begin() + 1, groups);
  view.stats[0] = view.stats_dims[0] = x[0];
  view.stats[1] = view.stats_dims[1] = groups;
  return view;
}

// For each element of the row-major extents `dims`, the element of the operand that broadcasts to
// them.
std::vector<size_t> Spread(const Dims& dims, const Dims& operand) {
  std::vector<size_t> at;
  at.reserve(static_cast<size_t>(NumElements(dims)));
  const std::array<Dims, 1> steps = {BroadcastSteps(operand, dims)};
  ForEachRow<1>(dims, steps, [&](const auto& first, int64_t count, const auto& step) {
    for (int64_t i = 0; i < count; ++i) at.push_back(static_cast<size_t>(first[0] + i * step[0]));
  });
  return at;
}

// The values of an optional operand, one for each element of x.
class Operand {
 public:
  Operand(const EvalArgs& args, TensorId id, size_t index, const Dims& x, double otherwise)
      : otherwise_(otherwise) {
    if (id == kAbsent) return;
    values_ = args.inputs[index];
    at_ = Spread(x, args.graph[id].dims);
  }
  double operator[](size_t i) const { return values_ ? (*values_)[at_[i]] : otherwise_; }

 private:
  const std::vector<double>* values_ = nullptr;
  std::vector<size_t> at_;
  double otherwise_;
};

template <class E>
Operand MakeOperand(const EvalArgs& args, E operand, const Dims& x, double otherwise) {
  return {args, In(args.node, operand), static_cast<size_t>(operand), x, otherwise};
}
template <class E>
const std::vector<double>* Values(const EvalArgs& args, E operand) {
  return In(args.node, operand) == kAbsent ? nullptr : args.inputs[static_cast<size_t>(operand)];
}
template <class E>
std::vector<double>* Written(const EvalArgs& args, E result) {
  return Out(args.node, result) == kAbsent ? nullptr : args.outputs[static_cast<size_t>(result)];
}

// ---- verify

Status CheckOperandTypes(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(CheckCompute(node, false));
  RETURN_IF_ERROR(RejectBool(graph, node));
  if (!IsInteger(node.compute)) return {};
  return Status::Error(Code::kUnsupportedDataType, "{} divides: compute type {} does not serve",
                       Info(node.op).mnemonic, Info(node.compute).text);
}

// The statistics of x, or why there are none.
Result<NormView> CheckedView(const Graph& graph, const Node& node) {
  const Tensor& x = graph[node.inputs[0]];
  const NormMode mode = ModeOf(node);
  const bool by_channels =
      mode == NormMode::kBatch || mode == NormMode::kInstance || mode == NormMode::kGroup;
  if (by_channels && x.rank() < 2)
    return Status::Error(Code::kShapeMismatch, "{} has no channel dim", Shape(x));
  if (mode == NormMode::kGroup && x.dims.size() >= kMaxRank) {
    return Status::Error(Code::kUnsupportedShape, "{} has {} dims; a group norm takes up to {}",
                         Shape(x), x.rank(), kMaxRank - 1);
  }
  const Tensor* stats = StatsOf(graph, node);
  const std::optional<NormView> view = NormViewOf(graph, node);
  if (view.has_value()) return *view;
  if (stats == nullptr) {
    return Status::Text(Code::kBadParam,
                        "a group norm has its number of groups from the extents of mean and "
                        "inv_variance, and both are absent");
  }
  return Status::Error(Code::kShapeMismatch, "the statistics {} do not divide the channels of {}",
                       Shape(*stats), Shape(x));
}

Status CheckStats(const Graph& graph, const Node& node, const NormView& view, const Dims& x,
                  std::initializer_list<TensorId> ids) {
  const std::string because = fmt::format("a {} norm of {}", Text(ModeOf(node)), DimsText(x));
  for (const TensorId id : ids) {
    if (id == kAbsent) continue;
    const Tensor& t = graph[id];
    RETURN_IF_ERROR(ExpectDims(t, view.stats_dims, because));
  }
  // Extents of statistics that came from a tensor are x's or 1.
  for (size_t d = 0; d < view.x.size(); ++d) {
    if (view.stats[d] == 1 || view.stats[d] == view.x[d]) continue;
    return Status::Error(Code::kShapeMismatch,
                         "statistics of extents {} do not belong to {}, of extents {}",
                         DimsText(view.stats_dims), graph[node.inputs[0]].name, DimsText(x));
  }
  return {};
}

Status CheckBroadcasts(const Graph& graph, const Dims& x, std::initializer_list<TensorId> ids) {
  for (const TensorId id : ids) {
    if (id == kAbsent) continue;
    const Tensor& t = graph[id];
    bool fits = t.dims.size() <= x.size();
    for (size_t i = 1; fits && i <= t.dims.size(); ++i) {
      const int64_t extent = t.dims[t.dims.size() - i];
      fits = extent == 1 || extent == x[x.size() - i];
    }
    if (!fits)
      return Status::Error(Code::kShapeMismatch, "{} does not broadcast to x, {}", Shape(t),
                           DimsText(x));
  }
  return {};
}

Status CheckScalar(const Graph& graph, TensorId id, const char* what) {
  if (id == kAbsent || NumElements(graph[id].dims) == 1) return {};
  return Status::Error(Code::kShapeMismatch, "{} {} must have one element", what, Shape(graph[id]));
}

Status Want(TensorId id, const char* what, const char* why) {
  if (id != kAbsent) return {};
  return Status::Error(Code::kBadParam, "{} needs {}, which is absent", why, what);
}

Status Refuse(TensorId id, const char* what, const char* why) {
  if (id == kAbsent) return {};
  return Status::Error(Code::kBadParam, "{} has no {}", why, what);
}

// Checks the operands that a forward norm must and must not have.
Status CheckForwardOperands(const Node& node) {
  const auto& attrs = node.As<NormForwardAttrs>();
  const TensorId mean = In(node, FwdIn::kMean), inv = In(node, FwdIn::kInvVariance);
  const bool given = mean != kAbsent || inv != kAbsent;
  if (attrs.mode == NormMode::kRms) {
    RETURN_IF_ERROR(Refuse(mean, "mean", "an RMS norm"));
    RETURN_IF_ERROR(Refuse(Out(node, FwdOut::kMean), "mean", "an RMS norm"));
  } else if (given) {
    RETURN_IF_ERROR(Want(mean, "mean", "inv_variance"));
  }
  if (given) RETURN_IF_ERROR(Want(inv, "inv_variance", "mean"));
  if (!given)
    RETURN_IF_ERROR(Want(In(node, FwdIn::kEpsilon), "epsilon", "a norm that computes statistics"));
  if (!attrs.inference && given) {
    return Status::Text(Code::kBadParam,
                        "mean and inv_variance are results of the training phase, not operands");
  }
  for (const FwdOut out :
       {FwdOut::kMean, FwdOut::kInvVariance, FwdOut::kNextMean, FwdOut::kNextVar}) {
    if (attrs.inference) RETURN_IF_ERROR(Refuse(Out(node, out), "such result", "inference"));
  }
  if (attrs.mode != NormMode::kBatch) {
    for (const FwdIn in : {FwdIn::kFactor, FwdIn::kRunningMean, FwdIn::kRunningVar, FwdIn::kPeers})
      RETURN_IF_ERROR(Refuse(In(node, in), "running statistics", "a norm other than batch norm"));
    for (const FwdOut out : {FwdOut::kNextMean, FwdOut::kNextVar})
      RETURN_IF_ERROR(Refuse(Out(node, out), "running statistics", "a norm other than batch norm"));
  }
  if (Out(node, FwdOut::kNextMean) != kAbsent) {
    RETURN_IF_ERROR(Want(In(node, FwdIn::kFactor), "exp_avg_factor", "the next running mean"));
    RETURN_IF_ERROR(Want(In(node, FwdIn::kRunningMean), "the one before", "the next running mean"));
  }
  if (Out(node, FwdOut::kNextVar) == kAbsent) return {};
  RETURN_IF_ERROR(Want(In(node, FwdIn::kFactor), "exp_avg_factor", "the next running variance"));
  return Want(In(node, FwdIn::kRunningVar), "the one before", "the next running variance");
}

// An error unless the norm can have sums over GPUs; `weights` are those that it has.
Status CheckMeeting(const Graph& graph, const Node& node, const NormView& view,
                    std::initializer_list<TensorId> weights) {
  if (!MeetsPeers(node)) return {};
  constexpr int64_t kNumbersOfChannel = 2;
  if (ModeOf(node) != NormMode::kBatch)
    return Status::Error(Code::kBadParam, "a norm of mode {} has no peers; only batch norm has",
                         Text(ModeOf(node)));
  if (node.compute != DType::kF32)
    return Status::Error(Code::kUnsupportedDataType, "peers add up f32, not {}",
                         Info(node.compute).text);
  for (const TensorId id : weights)
    if (id != kAbsent)
      RETURN_IF_ERROR(ExpectDims(graph[id], view.stats_dims, "the weights of a norm with peers"));
  return CheckPeers(graph, PeersOf(node), kNumbersOfChannel * NumElements(view.stats));
}

}  // namespace

void MoveStatisticsToInputs(Node& node) {
  node.inputs.resize(std::max(node.inputs.size(), static_cast<size_t>(FwdIn::kScale)), kAbsent);
  for (const auto& [out, in] :
       {std::pair{FwdOut::kMean, FwdIn::kMean}, {FwdOut::kInvVariance, FwdIn::kInvVariance}}) {
    if (static_cast<size_t>(out) >= node.outputs.size()) continue;
    node.inputs[static_cast<size_t>(in)] =
        std::exchange(node.outputs[static_cast<size_t>(out)], kAbsent);
  }
  while (!node.inputs.empty() && node.inputs.back() == kAbsent) node.inputs.pop_back();
  while (!node.outputs.empty() && node.outputs.back() == kAbsent) node.outputs.pop_back();
}

std::optional<NormView> NormViewOf(const Graph& graph, const Node& node) {
  const Dims& x = graph[node.inputs[0]].dims;
  const NormMode mode = ModeOf(node);
  const Tensor* stats = StatsOf(graph, node);
  if (x.empty()) return std::nullopt;
  switch (mode) {
    case NormMode::kGroup:
      return x.size() < 2 || x.size() >= kMaxRank ? std::nullopt : GroupView(x, stats);
    case NormMode::kBatch:
    case NormMode::kInstance: {
      if (x.size() < 2) return std::nullopt;
      Dims dims(x.size(), 1);
      dims[1] = x[1];
      if (mode == NormMode::kInstance) dims[0] = x[0];
      return NormView{.x = x, .stats = dims, .stats_dims = dims};
    }
    default:
      break;
  }
  const Dims dims = stats != nullptr && stats->dims.size() == x.size()
                        ? stats->dims
                        : StatsByWeights(graph, node, x, mode == NormMode::kAdaLayer);
  return NormView{.x = x, .stats = dims, .stats_dims = dims};
}

Status VerifyNormForward(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(CheckOperandTypes(graph, node));
  RETURN_IF_ERROR(CheckForwardOperands(node));
  const Tensor& x = graph[node.inputs[0]];
  RETURN_IF_ERROR(ExpectDims(graph[node.outputs[0]], x.dims, fmt::format("{}", Shape(x))));
  ASSIGN_OR_RETURN(const NormView view, CheckedView(graph, node));
  RETURN_IF_ERROR(CheckStats(
      graph, node, view, x.dims,
      {In(node, FwdIn::kMean), In(node, FwdIn::kInvVariance), In(node, FwdIn::kRunningMean),
       In(node, FwdIn::kRunningVar), Out(node, FwdOut::kMean), Out(node, FwdOut::kInvVariance),
       Out(node, FwdOut::kNextMean), Out(node, FwdOut::kNextVar)}));
  RETURN_IF_ERROR(
      CheckBroadcasts(graph, x.dims, {In(node, FwdIn::kScale), In(node, FwdIn::kBias)}));
  RETURN_IF_ERROR(CheckMeeting(graph, node, view, {}));
  RETURN_IF_ERROR(CheckScalar(graph, In(node, FwdIn::kEpsilon), "epsilon"));
  return CheckScalar(graph, In(node, FwdIn::kFactor), "exp_avg_factor");
}

Status InferNormForward(Graph& graph, const Node& node) {
  const Tensor x = graph[node.inputs[0]];
  SetDims(graph[node.outputs[0]], x.dims, &x);
  const std::optional<NormView> view = NormViewOf(graph, node);
  for (size_t i = 1; view.has_value() && i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kAbsent) SetDims(graph[node.outputs[i]], view->stats_dims, &x);
  }
  return {};  // where there is no view, Verify has the sentence
}

Status VerifyNormBackward(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(CheckOperandTypes(graph, node));
  const TensorId dy = In(node, BwdIn::kDy), mean = In(node, BwdIn::kMean);
  const bool is_rms = ModeOf(node) == NormMode::kRms;
  RETURN_IF_ERROR(Want(dy, "dy", "a gradient"));
  RETURN_IF_ERROR(Want(In(node, BwdIn::kInvVariance), "inv_variance", "a norm's gradient"));
  if (!is_rms) RETURN_IF_ERROR(Want(mean, "mean", "a norm's gradient"));
  if (is_rms) RETURN_IF_ERROR(Refuse(mean, "mean", "an RMS norm"));
  const Tensor& x = graph[node.inputs[0]];
  for (const TensorId id : {dy, node.outputs[0]})
    RETURN_IF_ERROR(ExpectDims(graph[id], x.dims, fmt::format("{}", Shape(x))));
  ASSIGN_OR_RETURN(const NormView view, CheckedView(graph, node));
  RETURN_IF_ERROR(CheckStats(graph, node, view, x.dims, {mean, In(node, BwdIn::kInvVariance)}));
  RETURN_IF_ERROR(CheckBroadcasts(
      graph, x.dims,
      {In(node, BwdIn::kScale), Out(node, BwdOut::kDscale), Out(node, BwdOut::kDbias)}));
  RETURN_IF_ERROR(CheckMeeting(
      graph, node, view,
      {In(node, BwdIn::kScale), Out(node, BwdOut::kDscale), Out(node, BwdOut::kDbias)}));
  return CheckScalar(graph, In(node, BwdIn::kEpsilon), "epsilon");
}

Status InferNormBackward(Graph& graph, const Node& node) {
  const Tensor x = graph[node.inputs[0]];
  SetDims(graph[node.outputs[0]], x.dims, &x);
  const TensorId scale = In(node, BwdIn::kScale);
  if (scale == kAbsent) return {};
  const Tensor like = graph[scale];
  for (const TensorId id : {Out(node, BwdOut::kDscale), Out(node, BwdOut::kDbias)}) {
    if (id != kAbsent) SetDims(graph[id], like.dims, &like);
  }
  return {};
}

Status VerifyBnBwdWeights(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(CheckOperandTypes(graph, node));
  const Tensor& x = graph[node.inputs[0]];
  const TensorId dy = In(node, WeightsIn::kDy), scale = In(node, WeightsIn::kScale);
  RETURN_IF_ERROR(Want(dy, "dy", "a gradient"));
  RETURN_IF_ERROR(Want(In(node, WeightsIn::kMean), "mean", "bn_bwd_weights"));
  RETURN_IF_ERROR(Want(In(node, WeightsIn::kInvStd), "inv_std", "bn_bwd_weights"));
  RETURN_IF_ERROR(ExpectDims(graph[dy], x.dims, fmt::format("{}", Shape(x))));
  ASSIGN_OR_RETURN(const NormView view, CheckedView(graph, node));
  for (const TensorId id : {In(node, WeightsIn::kMean), In(node, WeightsIn::kInvStd), scale})
    RETURN_IF_ERROR(CheckStats(graph, node, view, x.dims, {id}));
  bool any = false;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kAbsent) continue;
    any = true;
    RETURN_IF_ERROR(CheckStats(graph, node, view, x.dims, {node.outputs[i]}));
    if (i >= static_cast<size_t>(WeightsOut::kEqDyScale))
      RETURN_IF_ERROR(Want(scale, "scale", "an equivalent factor"));
  }
  return any ? Status() : Status::Text(Code::kBadParam, "bn_bwd_weights writes nothing");
}

Status InferBnBwdWeights(Graph& graph, const Node& node) {
  const std::optional<NormView> view = NormViewOf(graph, node);
  if (!view.has_value()) return {};  // Verify has the sentence
  const Tensor x = graph[node.inputs[0]];
  for (const TensorId id : node.outputs) {
    if (id != kAbsent) SetDims(graph[id], view->stats_dims, &x);
  }
  return {};
}

namespace {

// ---- eval

struct Statistics {
  std::vector<double> mean, inv_variance, variance;  // one each
  double count = 0;
};

// Averages over the GPUs of a norm's numbers, which begin with `first` in the buffers.
std::vector<double> AverageOverPeers(const EvalArgs& args, const std::vector<double>& mine,
                                     int64_t first) {
  std::vector<double> average = SumOverPeers(args, mine, first);
  for (double& value : average) value /= static_cast<double>(PeersOf(args.node).size());
  return average;
}

Statistics ComputeStatistics(const EvalArgs& args, const NormView& view,
                             const std::vector<size_t>& of) {
  const std::vector<double>& x = *args.inputs[0];
  const auto stats = static_cast<size_t>(NumElements(view.stats));
  Statistics s{.mean = std::vector<double>(stats, 0),
               .inv_variance = {},
               .variance = std::vector<double>(stats, 0),
               .count = stats == 0 ? 0 : static_cast<double>(x.size() / stats)};
  const bool is_rms = ModeOf(args.node) == NormMode::kRms;
  for (size_t i = 0; !is_rms && i < x.size(); ++i) s.mean[of[i]] += x[i];
  for (double& mean : s.mean) mean = is_rms ? 0 : mean / s.count;
  if (MeetsPeers(args.node)) s.mean = AverageOverPeers(args, s.mean, 0);
  for (size_t i = 0; i < x.size(); ++i) {
    const double centred = x[i] - s.mean[of[i]];
    s.variance[of[i]] += centred * centred;
  }
  const double epsilon = (*Values(args, FwdIn::kEpsilon))[0];
  for (double& variance : s.variance) variance /= s.count;
  if (MeetsPeers(args.node)) {
    s.variance = AverageOverPeers(args, s.variance, std::ssize(s.variance));
    s.count *= static_cast<double>(PeersOf(args.node).size());
  }
  for (const double variance : s.variance) {
    s.inv_variance.push_back(1 / std::sqrt(variance + epsilon));
  }
  return s;
}

void UpdateRunning(const EvalArgs& args, const Statistics& s) {
  const std::vector<double>* factor = Values(args, FwdIn::kFactor);
  const double f = factor == nullptr ? 0 : (*factor)[0];
  const auto blend = [&](FwdIn previous, FwdOut next, const std::vector<double>& now, double by) {
    std::vector<double>* out = Written(args, next);
    if (out == nullptr) return;
    const std::vector<double>& before = *Values(args, previous);
    for (size_t i = 0; i < out->size(); ++i) (*out)[i] = (1 - f) * before[i] + f * (now[i] * by);
  };
  blend(FwdIn::kRunningMean, FwdOut::kNextMean, s.mean, 1);
  blend(FwdIn::kRunningVar, FwdOut::kNextVar, s.variance, s.count / std::max(1.0, s.count - 1));
}

// Per channel or statistic: the sums that the gradients are made of.
struct Sums {
  std::vector<double> g, g_xhat;
};

// dbias and dscale of all GPUs, for each channel.
struct BackwardSums {
  std::vector<double> dbias, dscale;
};
BackwardSums SumsOverPeers(const EvalArgs& args, const std::vector<double>& xhat,
                           const std::vector<size_t>& channel_of) {
  const std::vector<double>& dy = *Values(args, BwdIn::kDy);
  const size_t channels = Values(args, BwdIn::kInvVariance)->size();
  BackwardSums mine{.dbias = std::vector<double>(channels, 0),
                    .dscale = std::vector<double>(channels, 0)};
  for (size_t i = 0; i < dy.size(); ++i) {
    mine.dbias[channel_of[i]] += dy[i];
    mine.dscale[channel_of[i]] += dy[i] * xhat[i];
  }
  return {.dbias = SumOverPeers(args, mine.dbias, 0),
          .dscale = SumOverPeers(args, mine.dscale, static_cast<int64_t>(channels))};
}

}  // namespace

void EvalNormForward(const EvalArgs& args) {
  const NormView view = *NormViewOf(args.graph, args.node);
  const Dims& dims = args.graph[args.node.inputs[0]].dims;
  const std::vector<double>& x = *args.inputs[0];
  const std::vector<size_t> of = Spread(view.x, view.stats);
  Statistics s;
  if (const std::vector<double>* given = Values(args, FwdIn::kInvVariance)) {
    const std::vector<double>* mean = Values(args, FwdIn::kMean);
    s.inv_variance = *given;
    s.mean = mean != nullptr ? *mean : std::vector<double>(given->size(), 0);
  } else {
    s = ComputeStatistics(args, view, of);
    UpdateRunning(args, s);
  }
  const Operand scale = MakeOperand(args, FwdIn::kScale, dims, 1),
                bias = MakeOperand(args, FwdIn::kBias, dims, 0);
  for (size_t i = 0; i < x.size(); ++i) {
    (*args.outputs[0])[i] = (x[i] - s.mean[of[i]]) * s.inv_variance[of[i]] * scale[i] + bias[i];
  }
  if (std::vector<double>* mean = Written(args, FwdOut::kMean)) *mean = s.mean;
  if (std::vector<double>* inv = Written(args, FwdOut::kInvVariance)) *inv = s.inv_variance;
}

void EvalNormBackward(const EvalArgs& args) {
  const NormView view = *NormViewOf(args.graph, args.node);
  const Dims& dims = args.graph[args.node.inputs[0]].dims;
  const std::vector<double>&x = *args.inputs[0], &dy = *Values(args, BwdIn::kDy);
  const std::vector<double>* mean = Values(args, BwdIn::kMean);
  const std::vector<double>& inv = *Values(args, BwdIn::kInvVariance);
  const std::vector<size_t> of = Spread(view.x, view.stats);
  const Operand scale = MakeOperand(args, BwdIn::kScale, dims, 1);
  Sums sums{.g = std::vector<double>(inv.size(), 0), .g_xhat = std::vector<double>(inv.size(), 0)};
  std::vector<double> xhat(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    xhat[i] = (x[i] - (mean != nullptr ? (*mean)[of[i]] : 0)) * inv[of[i]];
    sums.g[of[i]] += dy[i] * scale[i];
    sums.g_xhat[of[i]] += dy[i] * scale[i] * xhat[i];
  }
  double n = inv.empty() ? 0 : static_cast<double>(x.size() / inv.size());
  const bool meets = MeetsPeers(args.node);
  if (meets) {
    const BackwardSums all = SumsOverPeers(args, xhat, of);
    n *= static_cast<double>(PeersOf(args.node).size());
    const std::vector<double>* const weights = Values(args, BwdIn::kScale);
    for (size_t c = 0; c < inv.size(); ++c) {
      const double by = weights != nullptr ? (*weights)[c] : 1;
      sums.g[c] = all.dbias[c] * by;
      sums.g_xhat[c] = all.dscale[c] * by;
    }
    if (std::vector<double>* out = Written(args, BwdOut::kDscale)) *out = all.dscale;
    if (std::vector<double>* out = Written(args, BwdOut::kDbias)) *out = all.dbias;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const double through_mean = mean != nullptr ? sums.g[of[i]] / n : 0;
    (*args.outputs[0])[i] =
        inv[of[i]] * (dy[i] * scale[i] - through_mean - xhat[i] * sums.g_xhat[of[i]] / n);
  }
  const auto gradient = [&](BwdOut result, bool of_scale) {
    std::vector<double>* out = Written(args, result);
    if (out == nullptr || meets) return;
    std::ranges::fill(*out, 0);
    const std::vector<size_t> at = Spread(dims, args.graph[Out(args.node, result)].dims);
    for (size_t i = 0; i < x.size(); ++i) (*out)[at[i]] += dy[i] * (of_scale ? xhat[i] : 1);
  };
  gradient(BwdOut::kDscale, true);
  gradient(BwdOut::kDbias, false);
}

void EvalBnBwdWeights(const EvalArgs& args) {
  const NormView view = *NormViewOf(args.graph, args.node);
  const std::vector<double>&x = *args.inputs[0], &dy = *Values(args, WeightsIn::kDy);
  const std::vector<double>&mean = *Values(args, WeightsIn::kMean),
        &inv = *Values(args, WeightsIn::kInvStd);
  const std::vector<double>* scale = Values(args, WeightsIn::kScale);
  const std::vector<size_t> of = Spread(view.x, view.stats);
  Sums sums{.g = std::vector<double>(inv.size(), 0), .g_xhat = std::vector<double>(inv.size(), 0)};
  for (size_t i = 0; i < x.size(); ++i) {
    sums.g[of[i]] += dy[i];
    sums.g_xhat[of[i]] += dy[i] * (x[i] - mean[of[i]]) * inv[of[i]];
  }
  const double n = inv.empty() ? 0 : static_cast<double>(x.size() / inv.size());
  const auto put = [&](WeightsOut result, size_t c, double value) {
    if (std::vector<double>* out = Written(args, result)) (*out)[c] = value;
  };
  for (size_t c = 0; c < inv.size(); ++c) {
    const double by_dy = (scale != nullptr ? (*scale)[c] : 1) * inv[c];
    const double by_x = -by_dy * inv[c] * sums.g_xhat[c] / n;
    put(WeightsOut::kDscale, c, sums.g_xhat[c]);
    put(WeightsOut::kDbias, c, sums.g[c]);
    put(WeightsOut::kEqDyScale, c, by_dy);
    put(WeightsOut::kEqXScale, c, by_x);
    put(WeightsOut::kEqBias, c, -by_dy * sums.g[c] / n - by_x * mean[c]);
  }
}

}  // namespace kiln::graph
