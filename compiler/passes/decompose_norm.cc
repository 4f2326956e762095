// Norms as primitives, by the formulas of ir/graph/ops_norm.cc. The variance is the mean of squared
// distances from the mean, in two passes over x: the difference of two large sums would cancel. A
// group norm sees x with its channels split in [groups, channels of a group], a view.
//
// Of a batch norm with peers each GPU makes the mean m and the variance of its own part, as one
// alone would, so that x is read no more often; then the mean μ over all GPUs, and the variance
// over all as the mean of the GPUs' variance + (m - μ)², which are distances from μ.
#include <algorithm>
#include <utility>

#include "compiler/passes/decompose_parts.h"
#include "compiler/passes/primitive_writer.h"
#include "ir/graph/norm.h"
#include "ir/graph/peers.h"

namespace kiln::compiler {
namespace {

using graph::Combine;
using graph::Graph;
using graph::GraphOp;
using graph::kAbsent;
using graph::Node;
using graph::NormMode;
using graph::NormView;
using graph::TensorId;

using FwdIn = graph::NormForwardIn;
using FwdOut = graph::NormForwardOut;
using BwdIn = graph::NormBackwardIn;
using BwdOut = graph::NormBackwardOut;
using WeightsIn = graph::BnBwdWeightsIn;
using WeightsOut = graph::BnBwdWeightsOut;

class NormWriter {
 public:
  NormWriter(Graph& g, const Node& node)
      : g_(g),
        w_(g, ArithmeticType(node.compute), g[node.inputs[0]].name),
        view_(*graph::NormViewOf(g, node)),
        x_dims_(g[node.inputs[0]].dims) {
    const int64_t stats = NumElements(view_.stats);
    count_ =
        stats == 0 ? 0 : static_cast<double>(NumElements(view_.x)) / static_cast<double>(stats);
    if (!graph::MeetsPeers(node)) return;
    const std::span<const TensorId> peers = graph::PeersOf(node);
    peers_.assign(peers.begin(), peers.end());
  }

  PrimitiveWriter& w() { return w_; }
  // Elements of a statistic, on this GPU and on all.
  double count() const { return count_; }
  double total_count() const { return count_ * std::max<double>(1, std::size(peers_)); }
  bool has_peers() const { return !peers_.empty(); }
  TensorId Count() { return w_.Number(count_, kLaunchNumberUid); }
  TensorId TotalCount() { return w_.Number(total_count(), kLaunchNumberUid); }

  // Over the GPUs, of numbers of which each channel has one; the buffers' first `part` times as
  // many are others'.
  TensorId AverageOverPeers(TensorId mine, int64_t part) {
    const TensorId sum =
        w_.PeerReduce(mine, kAbsent, peers_, part * NumElements(view_.stats)).first;
    return w_.Mul(sum, w_.Number(1 / static_cast<double>(peers_.size())));
  }
  std::pair<TensorId, TensorId> SumsOverPeers(TensorId mine, TensorId second) {
    return w_.PeerReduce(mine, second, peers_, 0);
  }

  // A client's tensor, x or statistics, as the view has it: its channels split.
  TensorId Viewed(TensorId id) {
    if (!IsGrouped()) return id;
    graph::Tensor t = g_[id];
    const int64_t groups = view_.stats[1], channels = t.dims[1] / groups;
    t.strides.insert(t.strides.begin() + 1, t.strides[1] * channels);
    t.dims[1] = channels;
    t.dims.insert(t.dims.begin() + 1, groups);
    t.uid = -1;
    t.is_virtual = true;
    const TensorId y = g_.AddTensor(std::move(t));
    DecomposeReshape(g_, {.op = GraphOp::kReshape,
                          .inputs = {id},
                          .outputs = {y},
                          .compute = w_.compute(),
                          .attrs = graph::ReshapeAttrs{},
                          .name = ""});
    return y;
  }
  // Values that this writer made, between x's extents and the view's.
  TensorId ToView(TensorId made) { return IsGrouped() ? w_.Reshape(made, view_.x) : made; }
  TensorId FromView(TensorId made) { return IsGrouped() ? w_.Reshape(made, x_dims_) : made; }

  // The sum over the elements that one statistic is made of, and their average. One alone needs no
  // reduction, for which a kernel would wait.
  TensorId Total(TensorId x) {
    return g_[x].dims == view_.stats ? w_.Cast(x, w_.compute())
                                     : w_.Reduce(Combine::kAdd, x, view_.stats);
  }
  TensorId Average(TensorId x) { return w_.Div(Total(x), Count()); }

  // True if tensors have the extents of statistics (batch norm's weights); absent ones do.
  bool IsOfStatistics(std::initializer_list<TensorId> tensors) const {
    return !IsGrouped() && std::ranges::all_of(tensors, [&](TensorId id) {
      return id == kAbsent || g_[id].dims == view_.stats;
    });
  }
  // The sum over the elements of each statistic, which is stored, too, where `out` is not absent.
  TensorId Sum(TensorId x, TensorId out) { return Keep(Total(x), out); }

  // Sums to the extents of `out`, which may have fewer dims.
  void SumInto(TensorId x, TensorId out) {
    if (out == kAbsent) return;
    const Dims dims = g_[out].dims;
    Dims padded(x_dims_.size() - dims.size(), 1);
    padded.insert(padded.end(), dims.begin(), dims.end());
    TensorId sum = w_.Reduce(Combine::kAdd, x, padded);
    if (padded != dims) sum = w_.Reshape(sum, dims);
    w_.Write(sum, out);
  }

  // Stores statistics where the client wants them. Later readers take what is returned: the
  // client's tensor where it is of the compute type, and the value is then stored once only.
  TensorId Keep(TensorId stats, TensorId out) {
    if (out == kAbsent) return stats;
    if (!IsGrouped() && g_[out].dtype == w_.compute()) {
      w_.Write(stats, out);
      return out;
    }
    g_.AddNode({.op = GraphOp::kMap,
                .inputs = {IsGrouped() ? w_.Reshape(stats, view_.stats_dims) : stats},
                .outputs = {out},
                .compute = w_.compute(),
                .attrs = graph::MapAttrs{.identity = true},
                .name = ""});
    return stats;
  }

 private:
  bool IsGrouped() const { return view_.x.size() != x_dims_.size(); }

  Graph& g_;
  PrimitiveWriter w_;
  NormView view_;
  Dims x_dims_;
  double count_;
  std::vector<TensorId> peers_;  // buffers of all GPUs; none where this one is alone
};

// (1 - f) * previous + f * now
void WriteRunning(NormWriter& norm, TensorId previous, TensorId now, TensorId factor,
                  TensorId out) {
  PrimitiveWriter& w = norm.w();
  w.Write(w.Add(w.Mul(w.Sub(w.Number(1), factor), previous), w.Mul(factor, now)), out);
}

struct Normalised {
  TensorId xhat, inv;
};

struct OverPeers {
  TensorId mean, variance;
};
OverPeers StatisticsOverPeers(NormWriter& norm, TensorId x) {
  PrimitiveWriter& w = norm.w();
  const TensorId own_mean = norm.Average(x), from_own = w.Sub(x, own_mean);
  const TensorId own_variance = norm.Average(w.Mul(from_own, from_own));
  const TensorId mean = norm.AverageOverPeers(own_mean, 0), off = w.Sub(own_mean, mean);
  const TensorId from_mean = w.Add(own_variance, w.Mul(off, off));
  return {.mean = mean, .variance = norm.AverageOverPeers(from_mean, 1)};
}

// x̂ of the statistics that are x's own; stores them and what follows from them.
Normalised NormaliseByOwn(NormWriter& norm, const Node& node, TensorId x) {
  PrimitiveWriter& w = norm.w();
  const bool is_rms = node.As<graph::NormForwardAttrs>().mode == NormMode::kRms;
  TensorId centred = x, mean = kAbsent, variance = kAbsent;
  if (norm.has_peers()) {
    const OverPeers all = StatisticsOverPeers(norm, x);
    mean = norm.Keep(all.mean, Out(node, FwdOut::kMean));
    variance = all.variance;
    centred = w.Sub(x, mean);
  } else {
    if (!is_rms) {
      mean = norm.Keep(norm.Average(x), Out(node, FwdOut::kMean));
      centred = w.Sub(x, mean);
    }
    variance = norm.Average(w.Mul(centred, centred));
  }
  const TensorId raw = w.Map(ScalarOp::kRsqrt, {w.Add(variance, In(node, FwdIn::kEpsilon))});
  const TensorId inv = norm.Keep(raw, Out(node, FwdOut::kInvVariance));
  const TensorId factor = In(node, FwdIn::kFactor);
  if (const TensorId out = Out(node, FwdOut::kNextMean); out != kAbsent)
    WriteRunning(norm, In(node, FwdIn::kRunningMean), mean, factor, out);
  if (const TensorId out = Out(node, FwdOut::kNextVar); out != kAbsent) {
    const double unbiased = norm.total_count() / std::max(1.0, norm.total_count() - 1);
    WriteRunning(norm, In(node, FwdIn::kRunningVar),
                 w.Mul(variance, w.Number(unbiased, kLaunchNumberUid)), factor, out);
  }
  return {.xhat = w.Mul(centred, inv), .inv = inv};
}

// x̂ of statistics that are operands; mean may be absent.
Normalised NormaliseByGiven(NormWriter& norm, TensorId x, TensorId mean, TensorId inv) {
  PrimitiveWriter& w = norm.w();
  const TensorId factor = norm.Viewed(inv);
  const TensorId centred = mean == kAbsent ? x : w.Sub(x, norm.Viewed(mean));
  return {.xhat = w.Mul(centred, factor), .inv = factor};
}

}  // namespace

void DecomposeNormForward(Graph& g, const Node& node) {
  NormWriter norm(g, node);
  PrimitiveWriter& w = norm.w();
  const TensorId x = norm.Viewed(node.inputs[0]);
  const TensorId given = In(node, FwdIn::kInvVariance);
  const Normalised by = given != kAbsent ? NormaliseByGiven(norm, x, In(node, FwdIn::kMean), given)
                                         : NormaliseByOwn(norm, node, x);
  TensorId y = norm.FromView(by.xhat);
  if (const TensorId scale = In(node, FwdIn::kScale); scale != kAbsent) y = w.Mul(y, scale);
  if (const TensorId bias = In(node, FwdIn::kBias); bias != kAbsent) y = w.Add(y, bias);
  w.Write(y, node.outputs[0]);
}

void DecomposeNormBackward(Graph& g, const Node& node) {
  NormWriter norm(g, node);
  PrimitiveWriter& w = norm.w();
  const TensorId dy = In(node, BwdIn::kDy), scale = In(node, BwdIn::kScale);
  const TensorId mean = In(node, BwdIn::kMean);
  const Normalised by =
      NormaliseByGiven(norm, norm.Viewed(node.inputs[0]), mean, In(node, BwdIn::kInvVariance));
  const TensorId dscale = Out(node, BwdOut::kDscale), dbias = Out(node, BwdOut::kDbias);
  if (norm.has_peers()) {
    const auto [sum, product] = norm.SumsOverPeers(norm.Total(dy), norm.Total(w.Mul(dy, by.xhat)));
    norm.Keep(sum, dbias);
    norm.Keep(product, dscale);
    const auto weighted = [&](TensorId x) { return scale == kAbsent ? x : w.Mul(x, scale); };
    TensorId inner = w.Sub(weighted(dy), w.Div(weighted(sum), norm.TotalCount()));
    inner = w.Sub(inner, w.Mul(by.xhat, w.Div(weighted(product), norm.TotalCount())));
    w.Write(w.Mul(inner, by.inv), node.outputs[0]);
    return;
  }
  if (scale != kAbsent && norm.IsOfStatistics({scale, dscale, dbias})) {
    // dy * scale - (Σdy / n + x̂ * Σ(dy * x̂) / n) * scale: the sums are the other results.
    const TensorId sum = mean == kAbsent && dbias == kAbsent ? kAbsent : norm.Sum(dy, dbias);
    const TensorId product = norm.Sum(w.Mul(dy, by.xhat), dscale);
    TensorId inner = w.Mul(dy, scale);
    if (mean != kAbsent) inner = w.Sub(inner, w.Div(w.Mul(sum, scale), norm.Count()));
    inner = w.Sub(inner, w.Mul(by.xhat, w.Div(w.Mul(product, scale), norm.Count())));
    w.Write(w.Mul(inner, by.inv), node.outputs[0]);
    return;
  }
  const TensorId through = scale == kAbsent ? norm.Viewed(dy) : norm.ToView(w.Mul(dy, scale));
  // g - Σg / n - x̂ * Σ(g * x̂) / n
  TensorId inner = through;
  if (mean != kAbsent) inner = w.Sub(inner, norm.Average(through));
  inner = w.Sub(inner, w.Mul(by.xhat, norm.Average(w.Mul(through, by.xhat))));
  w.Write(norm.FromView(w.Mul(inner, by.inv)), node.outputs[0]);
  if (dscale != kAbsent) norm.SumInto(w.Mul(dy, norm.FromView(by.xhat)), dscale);
  norm.SumInto(dy, dbias);
}

void DecomposeBnBwdWeights(Graph& g, const Node& node) {
  NormWriter norm(g, node);
  PrimitiveWriter& w = norm.w();
  const TensorId dy = In(node, WeightsIn::kDy), scale = In(node, WeightsIn::kScale);
  const TensorId mean = In(node, WeightsIn::kMean);
  const Normalised by = NormaliseByGiven(norm, node.inputs[0], mean, In(node, WeightsIn::kInvStd));
  const auto sum = [&](TensorId x, TensorId out) {
    const Dims dims = g[mean].dims;
    return norm.Keep(w.Reduce(Combine::kAdd, x, dims), out);
  };
  const TensorId eq_dy_scale = Out(node, WeightsOut::kEqDyScale),
                 eq_x_scale = Out(node, WeightsOut::kEqXScale),
                 eq_bias = Out(node, WeightsOut::kEqBias);
  const TensorId dscale = sum(w.Mul(dy, by.xhat), Out(node, WeightsOut::kDscale));
  const TensorId dbias = sum(dy, Out(node, WeightsOut::kDbias));
  if (scale == kAbsent) return;
  const TensorId by_dy = norm.Keep(w.Mul(scale, by.inv), eq_dy_scale);
  const TensorId per_x = w.Div(w.Mul(w.Mul(by_dy, by.inv), dscale), norm.Count());
  if (eq_x_scale != kAbsent) w.Write(w.Map(ScalarOp::kNeg, {per_x}), eq_x_scale);
  if (eq_bias == kAbsent) return;
  const TensorId per_dy = w.Div(w.Mul(by_dy, dbias), norm.Count());
  w.Write(w.Sub(w.Mul(per_x, mean), per_dy), eq_bias);
}

}  // namespace kiln::compiler
