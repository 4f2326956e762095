#include "tests/support/oracle/ctc.h"

#include <cmath>
#include <functional>
#include <limits>

namespace kiln::oracle {
namespace {

using Real = long double;
using Matrix = std::vector<std::vector<Real>>;

// Probability of a sample's paths, and the part of it at each symbol of a frame.
struct Paths {
  Real total = 0;
  Matrix through;
};

// Probabilities of the sample's frames.
Matrix Probabilities(const CtcBatch& batch, int64_t n) {
  Matrix y;
  for (int64_t t = 0; t < batch.input_lengths[static_cast<size_t>(n)]; ++t) {
    const double* row = batch.probs.data() + (t * batch.samples + n) * batch.symbols;
    std::vector<Real> frame(row, row + batch.symbols);
    if (batch.softmax) {
      Real most = -std::numeric_limits<Real>::infinity(), sum = 0;
      for (const Real x : frame) most = x > most ? x : most;
      for (Real& x : frame) sum += x = std::exp(x - most);
      for (Real& x : frame) x /= sum;
    }
    y.push_back(std::move(frame));
  }
  return y;
}

// Prefixes and suffixes of paths over the label with a blank around each symbol.
Paths BySums(const Matrix& y, const std::vector<int>& label, int64_t symbols) {
  std::vector<size_t> path = {0};
  for (const int symbol : label) {
    path.push_back(static_cast<size_t>(symbol));
    path.push_back(0);
  }
  const size_t frames = y.size(), states = path.size();
  const auto joins = [&](size_t from, size_t to) {
    if (to == from || to == from + 1) return true;
    return to == from + 2 && path[to] != 0 && path[to] != path[from];
  };
  Matrix before(frames, std::vector<Real>(states, 0)), after = before;
  for (size_t t = 0; t < frames; ++t)
    for (size_t to = 0; to < states; ++to)
      for (size_t from = to < 2 ? 0 : to - 2; from <= to; ++from) {
        if (t == 0 ? from != to || to > 1 : !joins(from, to)) continue;
        before[t][to] += (t == 0 ? 1 : before[t - 1][from]) * y[t][path[to]];
      }
  for (size_t t = frames; t-- > 0;)
    for (size_t from = 0; from < states; ++from) {
      if (t + 1 == frames) after[t][from] = from + 2 >= states ? 1 : 0;
      for (size_t to = from; t + 1 < frames && to < states && to <= from + 2; ++to)
        if (joins(from, to)) after[t][from] += y[t + 1][path[to]] * after[t + 1][to];
    }
  Paths all;
  all.total = frames == 0 ? 1 : 0;
  for (size_t s = states < 2 ? 0 : states - 2; frames > 0 && s < states; ++s)
    all.total += before[frames - 1][s];
  all.through.assign(frames, std::vector<Real>(static_cast<size_t>(symbols), 0));
  for (size_t t = 0; t < frames; ++t)
    for (size_t s = 0; s < states; ++s) all.through[t][path[s]] += before[t][s] * after[t][s];
  return all;
}

// The label that a path of symbols is read as. A label may have no symbol 0 here.
std::vector<int> ReadAs(const std::vector<int>& path) {
  std::vector<int> label;
  for (size_t t = 0; t < path.size(); ++t)
    if (path[t] != 0 && (t == 0 || path[t] != path[t - 1])) label.push_back(path[t]);
  return label;
}

Paths ByEnumeration(const Matrix& y, const std::vector<int>& label, int64_t symbols) {
  Paths all;
  all.through.assign(y.size(), std::vector<Real>(static_cast<size_t>(symbols), 0));
  std::vector<int> path(y.size(), 0);
  while (true) {
    if (ReadAs(path) == label) {
      Real product = 1;
      for (size_t t = 0; t < path.size(); ++t) product *= y[t][static_cast<size_t>(path[t])];
      all.total += product;
      for (size_t t = 0; t < path.size(); ++t)
        all.through[t][static_cast<size_t>(path[t])] += product;
    }
    size_t t = 0;
    while (t < path.size() && ++path[t] == symbols) path[t++] = 0;
    if (t == path.size()) return all;
  }
}

using Walk = Paths (*)(const Matrix&, const std::vector<int>&, int64_t);

// The fewest frames that the label can be read from.
int64_t FramesNeeded(const std::vector<int>& label) {
  auto frames = static_cast<int64_t>(label.size());
  for (size_t i = 1; i < label.size(); ++i)
    if (label[i] == label[i - 1] || label[i] == 0) ++frames;
  return frames;
}

CtcLoss Sum(const CtcBatch& batch, const std::vector<double>& before, Walk walk) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  CtcLoss loss;
  loss.gradients.assign(static_cast<size_t>(batch.frames * batch.samples * batch.symbols), 0);
  size_t begin = 0;
  bool lost = false;  // where labels begin
  for (int64_t n = 0; n < batch.samples; ++n) {
    const int count = batch.label_lengths[static_cast<size_t>(n)],
              frames = batch.input_lengths[static_cast<size_t>(n)];
    lost = lost || count < 0 || count > batch.max_label ||
           begin + static_cast<size_t>(count) > batch.labels.size();
    std::vector<int> label;
    if (!lost)
      label.assign(batch.labels.begin() + static_cast<int64_t>(begin),
                   batch.labels.begin() + static_cast<int64_t>(begin) + count);
    begin += label.size();
    bool wrong = lost || frames < 0 || frames > batch.frames;
    for (const int symbol : label) wrong = wrong || symbol < 0 || symbol >= batch.symbols;
    const bool fits = !wrong && FramesNeeded(label) <= frames;
    loss.costs.push_back(wrong ? kNan : 0);
    const auto place = [&](int64_t t, int64_t k) {
      return static_cast<size_t>((t * batch.samples + n) * batch.symbols + k);
    };
    if (!wrong && !fits && batch.skip_infeasible)
      for (int64_t t = 0; t < batch.frames; ++t)
        for (int64_t k = 0; k < batch.symbols; ++k)
          loss.gradients[place(t, k)] = before[place(t, k)];
    if (!fits) continue;
    const Matrix y = Probabilities(batch, n);
    const Paths paths = walk(y, label, batch.symbols);
    loss.costs.back() = static_cast<double>(0 - std::log(paths.total));
    for (int64_t t = 0; t < frames; ++t) {
      for (int64_t k = 0; k < batch.symbols; ++k) {
        const Real p = y[static_cast<size_t>(t)][static_cast<size_t>(k)],
                   share =
                       paths.through[static_cast<size_t>(t)][static_cast<size_t>(k)] / paths.total;
        bool on_path = k == 0;
        for (const int symbol : label) on_path = on_path || symbol == k;
        Real value = batch.softmax ? p - share : p;
        if (!batch.softmax && on_path) value = share == 0 ? 0 : -share / p;
        if (!(paths.total > 0)) value = kNan;
        loss.gradients[place(t, k)] = static_cast<double>(value);
      }
    }
  }
  return loss;
}

}  // namespace

CtcLoss Ctc(const CtcBatch& batch, const std::vector<double>& before) {
  return Sum(batch, before, BySums);
}

CtcLoss CtcByPaths(const CtcBatch& batch, const std::vector<double>& before) {
  return Sum(batch, before, ByEnumeration);
}

}  // namespace kiln::oracle
