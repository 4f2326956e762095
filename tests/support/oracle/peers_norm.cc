#include "tests/support/oracle/peers_norm.h"

#include <cmath>

namespace kiln::oracle {
namespace {

using Values = std::vector<double>;

// For each channel, the sum of term(i) over the elements of one part.
template <class F>
Values ChannelSums(const NormExtents& e, F&& term) {
  Values sums(e.channels, 0);
  for (size_t i = 0; i < e.size(); ++i) sums[e.ChannelOf(i)] += term(i);
  return sums;
}

Values Divided(Values values, double by) {
  for (double& v : values) v /= by;
  return values;
}

Values Sum(const std::vector<Values>& all) {
  Values sum(all[0].size(), 0);
  for (const Values& one : all)
    for (size_t i = 0; i < one.size(); ++i) sum[i] += one[i];
  return sum;
}

}  // namespace

WholeNorm ForwardOf(const NormExtents& e, const std::vector<Values>& x, const Values& scale,
                    const Values& bias, const RunningStatistics& running) {
  const auto part = static_cast<double>(e.batch * e.places);
  const double all = part * static_cast<double>(x.size());
  WholeNorm norm;
  std::vector<Values> sums, distances;
  for (const Values& of_rank : x)
    sums.push_back(ChannelSums(e, [&](size_t i) { return of_rank[i]; }));
  norm.mean = Divided(Sum(sums), all);
  for (const Values& of_rank : x)
    distances.push_back(ChannelSums(
        e, [&](size_t i) { return std::pow(of_rank[i] - norm.mean[e.ChannelOf(i)], 2); }));
  norm.variance = Divided(Sum(distances), all);
  for (size_t r = 0; r < x.size(); ++r)
    norm.of_rank.push_back(
        {.mean = Divided(sums[r], part), .from_all = Divided(distances[r], part)});
  for (size_t c = 0; c < e.channels; ++c) {
    norm.inv.push_back(1 / std::sqrt(norm.variance[c] + running.epsilon));
    if (running.mean.empty()) continue;
    const double f = running.factor, unbiased = norm.variance[c] * all / (all - 1);
    norm.next_mean.push_back((1 - f) * running.mean[c] + f * norm.mean[c]);
    norm.next_variance.push_back((1 - f) * running.variance[c] + f * unbiased);
  }
  for (const Values& of_rank : x) {
    Values& y = norm.y.emplace_back(e.size());
    for (size_t i = 0; i < e.size(); ++i) {
      const size_t c = e.ChannelOf(i);
      y[i] = (of_rank[i] - norm.mean[c]) * norm.inv[c] * scale[c] + bias[c];
    }
  }
  return norm;
}

WholeGradient BackwardOf(const NormExtents& e, const std::vector<Values>& x,
                         const std::vector<Values>& dy, const Values& scale,
                         const WholeNorm& norm) {
  const double all = static_cast<double>(e.batch * e.places * x.size());
  const auto normalised = [&](size_t r, size_t i) {
    const size_t c = e.ChannelOf(i);
    return (x[r][i] - norm.mean[c]) * norm.inv[c];
  };
  WholeGradient g;
  for (size_t r = 0; r < x.size(); ++r) {
    g.dbias_of_rank.push_back(ChannelSums(e, [&](size_t i) { return dy[r][i]; }));
    g.dscale_of_rank.push_back(
        ChannelSums(e, [&](size_t i) { return dy[r][i] * normalised(r, i); }));
  }
  g.dbias = Sum(g.dbias_of_rank);
  g.dscale = Sum(g.dscale_of_rank);
  for (size_t r = 0; r < x.size(); ++r) {
    Values& dx = g.dx.emplace_back(e.size());
    for (size_t i = 0; i < e.size(); ++i) {
      const size_t c = e.ChannelOf(i);
      const double through = g.dbias[c] / all + normalised(r, i) * g.dscale[c] / all;
      dx[i] = norm.inv[c] * scale[c] * (dy[r][i] - through);
    }
  }
  return g;
}

}  // namespace kiln::oracle
