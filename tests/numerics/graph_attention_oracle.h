// Graph attention by plain loops, GAT and GATv2, and its gradient: over doubles, or over numbers
// that carry a bound on the error of f32 arithmetic in any order of summation.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "tests/numerics/graph_calls.h"

namespace kiln::testing {

// A number and how far a computation in f32 may be from it.
struct Bounded {
  static constexpr double kRoundoff = 0x1p-24;

  double v = 0, e = 0;
  Bounded() = default;
  Bounded(double value) : v(value) {}  // exact
  Bounded(double value, double error) : v(value), e(error) {}

  // Sums may come in any order, so that a partial one may be as large as what it is made of.
  Bounded operator+(const Bounded& b) const {
    return {v + b.v, e + b.e + kRoundoff * (std::fabs(v) + std::fabs(b.v))};
  }
  Bounded operator-(const Bounded& b) const { return *this + Bounded(-b.v, b.e); }
  Bounded operator*(const Bounded& b) const {
    return {v * b.v,
            std::fabs(v) * b.e + std::fabs(b.v) * e + e * b.e + kRoundoff * std::fabs(v * b.v)};
  }
  Bounded operator/(const Bounded& b) const {
    const double least = std::max(std::fabs(b.v) - b.e, 1e-30), q = v / b.v;
    return {q, (e + std::fabs(q) * b.e) / least + 4 * kRoundoff * std::fabs(q)};
  }
};

inline double ValueOf(double x) { return x; }
inline double ValueOf(const Bounded& x) { return x.v; }
// f(x) with a slope of at most `slope` there, by a function that errs by a few roundings.
inline double Function(double f, double, double) { return f; }
inline Bounded Function(double f, const Bounded& x, double slope) {
  return {f, slope * x.e * 1.01 + 8 * Bounded::kRoundoff * (std::fabs(f) + 1)};
}
inline double ExpOf(double x) { return std::exp(x); }
inline Bounded ExpOf(const Bounded& x) {
  const double f = std::exp(x.v);
  return {f, f * (std::expm1(x.e) + Bounded::kRoundoff * (8 + 2 * std::fabs(x.v)))};
}
// A number that an implementation may have rounded to another type on its way.
inline double Rounded(double x, double) { return x; }
inline Bounded Rounded(const Bounded& x, double roundoff) {
  return {x.v, x.e + roundoff * std::fabs(x.v) + (roundoff > Bounded::kRoundoff ? 0x1p-24 : 0)};
}

struct AttentionProblem {
  Csc graph;
  bool is_v2 = false;
  int heads = 1, head = 1, edge_head = 0;  // features of a head; GATv2's edges have those of nodes
  cudnnGnnActivationOp_t activation = CUDNN_GNN_ACT_LEAKY_RELU;
  float alpha = 0.25f;
  bool concatenates = true, has_mask = false, has_attention = false, is_reversed = false,
       shares_gradient = false;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnDataType_t rows_gradient = CUDNN_DATA_FLOAT, weights_gradient = CUDNN_DATA_FLOAT;

  int node() const { return heads * head; }
  int edge() const { return heads * edge_head; }
  int result() const { return concatenates ? node() : head; }
  int weights() const { return is_v2 ? node() : 2 * node() + edge(); }
  std::string Text() const {
    return fmt::format(
        "{}; {} of {} heads of {} features, {} of edges, activation {}{}{}{}{}{}, type {}",
        graph.Text(), is_v2 ? "GATv2" : "GAT", heads, head, edge_head, static_cast<int>(activation),
        concatenates ? "" : ", mean", has_mask ? ", mask" : "", has_attention ? ", attention" : "",
        is_reversed ? ", reversed" : "", shares_gradient ? ", one gradient" : "",
        static_cast<int>(type));
  }
};

template <class T>
struct AttentionData {
  std::vector<T> src, dst, edge, weights, mask;
};

// By head and row, and by row.
template <class T>
struct AttentionScores {
  std::vector<T> logits, shares, activated;
};

template <class T>
struct AttentionGradient {
  std::vector<T> src, dst, edge, weights, logits, shares;
};

template <class T>
class AttentionOracle {
 public:
  AttentionOracle(const AttentionProblem& p, const AttentionData<T>& x, double roundoff = 0)
      : p_(p), g_(p.graph), x_(x), roundoff_(roundoff) {}

  std::vector<T> Forward(AttentionScores<T>& s) const {
    const auto scores = static_cast<size_t>(g_.edges() * p_.heads);
    s.logits.assign(scores, T(0));
    s.shares.assign(scores, T(0));
    s.activated.assign(p_.is_v2 ? static_cast<size_t>(g_.edges() * p_.node()) : 0, T(0));
    g_.EachEdge([&](int64_t n, int64_t e) {
      for (int h = 0; h < p_.heads; ++h)
        s.logits[Score(h, e)] = p_.is_v2 ? LogitV2(s, n, e, h) : Logit(n, e, h);
    });
    for (int h = 0; h < p_.heads; ++h) {
      for (int64_t n = 0; n < g_.destinations; ++n) {
        double most = -1e300;
        Into(n, [&](int64_t e) { most = std::max(most, ValueOf(s.logits[Score(h, e)])); });
        T sum(0);
        Into(n, [&](int64_t e) { sum = sum + ExpOf(s.logits[Score(h, e)] - T(most)); });
        Into(n, [&](int64_t e) {
          s.shares[Score(h, e)] = ExpOf(s.logits[Score(h, e)] - T(most)) / sum;
        });
      }
    }
    std::vector<T> y(static_cast<size_t>(g_.destinations * p_.result()), T(0));
    g_.EachEdge([&](int64_t n, int64_t e) {
      for (int h = 0; h < p_.heads; ++h) {
        for (int j = 0; j < p_.head; ++j) {
          T& to = y[static_cast<size_t>(n * p_.result() + (p_.concatenates ? h * p_.head : 0) + j)];
          to = to + Weight(s, h, e) * Src(e, h, j);
        }
      }
    });
    if (!p_.concatenates)
      for (T& value : y) value = value * T(1.0 / p_.heads);
    return y;
  }

  AttentionGradient<T> Backward(const AttentionScores<T>& s, const std::vector<T>& dy,
                                const std::vector<T>& attention) const {
    AttentionGradient<T> d;
    const auto zero = [](int64_t count) {
      return std::vector<T>(static_cast<size_t>(count), T(0));
    };
    d.logits = d.shares = zero(g_.edges() * p_.heads);
    d.src = zero(g_.sources * p_.node());
    d.dst = zero(g_.destinations * p_.node());
    d.edge = zero(g_.edges() * (p_.is_v2 && p_.edge() > 0 ? p_.node() : p_.edge()));
    d.weights = zero(p_.weights());
    const auto dy_at = [&](int64_t n, int h, int j) {
      const int at = p_.concatenates ? h * p_.head + j : j;
      const T value = dy[static_cast<size_t>(n * p_.result() + at)];
      return p_.concatenates ? value : value * T(1.0 / p_.heads);
    };
    for (int h = 0; h < p_.heads; ++h) {
      for (int64_t n = 0; n < g_.destinations; ++n) {
        T sum(0);
        Into(n, [&](int64_t e) {
          T dot = p_.has_attention ? attention[Score(h, e)] : T(0);
          for (int j = 0; j < p_.head; ++j) dot = dot + dy_at(n, h, j) * Src(e, h, j);
          d.shares[Score(h, e)] = p_.has_mask ? dot * x_.mask[Score(h, e)] : dot;
          sum = sum + s.shares[Score(h, e)] * d.shares[Score(h, e)];
        });
        Into(n, [&](int64_t e) {
          d.logits[Score(h, e)] = s.shares[Score(h, e)] * (d.shares[Score(h, e)] - sum);
        });
      }
    }
    g_.EachEdge([&](int64_t n, int64_t e) {
      for (int h = 0; h < p_.heads; ++h) {
        for (int j = 0; j < p_.head; ++j)
          Add(d.src, Source(e, h, j), Weight(s, h, e) * dy_at(n, h, j));
        if (p_.is_v2)
          BackwardV2(s, d, n, e, h);
        else
          BackwardV1(s, d, n, e, h);
      }
    });
    return d;
  }

  // Places of elements in the oracle's arrays.
  size_t Score(int h, int64_t e) const { return static_cast<size_t>(h * g_.edges() + g_.Row(e)); }

 private:
  template <class Body>
  void Into(int64_t n, Body&& body) const {
    for (int64_t e = g_.offsets[static_cast<size_t>(n)]; e < g_.offsets[static_cast<size_t>(n + 1)];
         ++e)
      body(e);
  }
  static void Add(std::vector<T>& to, size_t at, const T& value) { to[at] = to[at] + value; }
  size_t Source(int64_t e, int h, int j) const {
    return static_cast<size_t>(g_.Source(e) * p_.node() + h * p_.head + j);
  }
  size_t Node(int64_t n, int h, int j) const {
    return static_cast<size_t>(n * p_.node() + h * p_.head + j);
  }
  size_t Edge(int64_t e, int h, int j, int width) const {
    return static_cast<size_t>((g_.Row(e) * p_.heads + h) * width + j);
  }
  size_t W(int first, int h, int j, int width) const {
    return static_cast<size_t>(first + h * width + j);
  }
  T Src(int64_t e, int h, int j) const { return x_.src[Source(e, h, j)]; }
  T Weight(const AttentionScores<T>& s, int h, int64_t e) const {
    const T share = s.shares[Score(h, e)];
    return p_.has_mask ? share * x_.mask[Score(h, e)] : share;
  }

  T Logit(int64_t n, int64_t e, int h) const {
    T sum(0);
    for (int j = 0; j < p_.head; ++j)
      sum = sum + Src(e, h, j) * x_.weights[W(0, h, j, p_.head)] +
            x_.dst[Node(n, h, j)] * x_.weights[W(p_.node(), h, j, p_.head)];
    for (int j = 0; j < p_.edge_head; ++j)
      sum = sum +
            x_.edge[Edge(e, h, j, p_.edge_head)] * x_.weights[W(2 * p_.node(), h, j, p_.edge_head)];
    return Activated(sum);
  }

  T LogitV2(AttentionScores<T>& s, int64_t n, int64_t e, int h) const {
    T sum(0);
    for (int j = 0; j < p_.head; ++j) {
      T before = Src(e, h, j) + x_.dst[Node(n, h, j)];
      if (p_.edge_head > 0) before = before + x_.edge[Edge(e, h, j, p_.head)];
      T& activated = s.activated[Edge(e, h, j, p_.head)];
      activated = Activated(before);
      sum = sum + Rounded(activated, roundoff_) * x_.weights[W(0, h, j, p_.head)];
    }
    return sum;
  }

  T Activated(const T& x) const {
    const double v = ValueOf(x), a = p_.alpha;
    switch (p_.activation) {
      case CUDNN_GNN_ACT_RELU:
        return Function(std::max(v, 0.0), x, 1);
      case CUDNN_GNN_ACT_SIGMOID:
        return Function(1 / (1 + std::exp(-v)), x, 0.25);
      case CUDNN_GNN_ACT_TANH:
        return Function(std::tanh(v), x, 1);
      case CUDNN_GNN_ACT_ELU:
        return Function(v > 0 ? v : std::expm1(v), x, 1);
      case CUDNN_GNN_ACT_SCALAR:
        return x * T(a);
      case CUDNN_GNN_ACT_LEAKY_RELU:
        return Function(v > 0 ? v : a * v, x, std::max(1.0, a));
      default:
        return x;
    }
  }

  // The derivative of the activation where its result is y.
  T SlopeAt(const T& y) const {
    const double v = ValueOf(y);
    switch (p_.activation) {
      case CUDNN_GNN_ACT_RELU:
        return T(v > 0 ? 1 : 0);
      case CUDNN_GNN_ACT_SIGMOID:
        return y * (T(1) - y);
      case CUDNN_GNN_ACT_TANH:
        return T(1) - y * y;
      case CUDNN_GNN_ACT_ELU:
        return v > 0 ? T(1) : y + T(1);
      case CUDNN_GNN_ACT_SCALAR:
        return T(p_.alpha);
      case CUDNN_GNN_ACT_LEAKY_RELU:
        return T(v > 0 ? 1 : p_.alpha);
      default:
        return T(1);
    }
  }

  void BackwardV1(const AttentionScores<T>& s, AttentionGradient<T>& d, int64_t n, int64_t e,
                  int h) const {
    const T before = d.logits[Score(h, e)] * SlopeAt(s.logits[Score(h, e)]);
    for (int j = 0; j < p_.head; ++j) {
      const size_t w = W(0, h, j, p_.head), w_dst = W(p_.node(), h, j, p_.head);
      Add(d.src, Source(e, h, j), before * x_.weights[w]);
      Add(d.dst, Node(n, h, j), before * x_.weights[w_dst]);
      Add(d.weights, w, before * Src(e, h, j));
      Add(d.weights, w_dst, before * x_.dst[Node(n, h, j)]);
    }
    for (int j = 0; j < p_.edge_head; ++j) {
      const size_t w = W(2 * p_.node(), h, j, p_.edge_head), at = Edge(e, h, j, p_.edge_head);
      Add(d.edge, at, before * x_.weights[w]);
      Add(d.weights, w, before * x_.edge[at]);
    }
  }

  void BackwardV2(const AttentionScores<T>& s, AttentionGradient<T>& d, int64_t n, int64_t e,
                  int h) const {
    const T dlogit = d.logits[Score(h, e)];
    for (int j = 0; j < p_.head; ++j) {
      const size_t at = Edge(e, h, j, p_.head), w = W(0, h, j, p_.head);
      const T before = dlogit * x_.weights[w] * SlopeAt(s.activated[at]);
      Add(d.src, Source(e, h, j), before);
      Add(d.dst, Node(n, h, j), before);
      if (p_.edge_head > 0) Add(d.edge, at, before);
      Add(d.weights, w, dlogit * s.activated[at]);
    }
  }

  const AttentionProblem& p_;
  const Csc& g_;
  const AttentionData<T>& x_;
  const double roundoff_;
};

}  // namespace kiln::testing
