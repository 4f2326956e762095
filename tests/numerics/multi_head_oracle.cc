#include "tests/numerics/multi_head_oracle.h"

#include <algorithm>
#include <cmath>

namespace kiln::testing {
namespace {

// One head's vectors of one query and its keys, and the gradients that come back.
class Loops {
 public:
  Loops(const MultiHead& m, const MultiHeadData& d) : m_(m), d_(d), places_(PlacesOf(m)) {}

  Vector Forward() {
    Vector out(static_cast<size_t>(m_.batch) * m_.beam * m_.steps * m_.OutputSize());
    ForEachQuery([&](int b, int beam, int t) {
      double* const y = &out[Query(b, beam, t, m_.OutputSize())];
      const bool is_padding = t >= m_.query_lengths[b * m_.beam + beam];
      for (int o = 0; o < m_.OutputSize() && !is_padding; ++o)
        if (places_.bias[3] >= 0) y[o] += d_.weights[places_.bias[3] + o];
      for (int h = 0; h < m_.heads && !is_padding; ++h) {
        const Head head = HeadOf(b, beam, t, h);
        AddOutput(h, head.out, y);
      }
      for (int o = 0; o < m_.OutputSize(); ++o) {
        if (m_.output_factor && !is_padding) y[o] *= m_.output_factor(b, beam, t, o);
        if (m_.residual) y[o] += d_.residual[Query(b, beam, t, m_.OutputSize()) + o];
      }
    });
    return out;
  }

  MultiHeadGradients Backward(const Vector& dout) {
    g_.q.assign(d_.q.size(), 0);
    g_.k.assign(d_.k.size(), 0);
    g_.v.assign(d_.v.size(), 0);
    g_.weights.assign(d_.weights.size(), 0);
    ForEachQuery([&](int b, int beam, int t) {
      if (t >= m_.query_lengths[b * m_.beam + beam]) return;
      Vector dy(&dout[Query(b, beam, t, m_.OutputSize())],
                &dout[Query(b, beam, t, m_.OutputSize())] + m_.OutputSize());
      for (int o = 0; o < m_.OutputSize(); ++o) {
        if (m_.output_factor) dy[o] *= m_.output_factor(b, beam, t, o);
        if (places_.bias[3] >= 0) g_.weights[places_.bias[3] + o] += dy[o];
      }
      for (int h = 0; h < m_.heads; ++h) BackwardHead(b, beam, t, h, dy);
    });
    return g_;
  }

 private:
  struct Head {
    int first = 0, last = 0;          // keys
    Vector q, out, weights, factors;  // weights after the softmax; what they are multiplied by
    std::vector<Vector> k, v;         // of the keys
  };

  template <class F>
  void ForEachQuery(F&& f) {
    for (int b = 0; b < m_.batch; ++b)
      for (int beam = 0; beam < m_.beam; ++beam)
        for (int t = 0; t < m_.steps; ++t) f(b, beam, t);
  }
  size_t Query(int b, int beam, int t, int width) const {
    return ((static_cast<size_t>(b) * m_.beam + beam) * m_.steps + t) * width;
  }
  size_t Key(int b, int s, int width) const {
    return (static_cast<size_t>(b) * m_.keys + s) * width;
  }
  double Weight(int what, int head, int row, int column) const {
    return d_.weights[places_.matrix[what] + WeightPlaces::Of(m_, what, head, row, column)];
  }

  Vector Project(int what, int head, const double* x) const {
    if (m_.projected[what] == 0) return Vector(x, x + m_.size[what]);
    Vector y(m_.projected[what]);
    for (int p = 0; p < m_.projected[what]; ++p) {
      if (places_.bias[what] >= 0)
        y[p] = d_.weights[places_.bias[what] + head * m_.projected[what] + p];
      for (int i = 0; i < m_.size[what]; ++i) y[p] += Weight(what, head, p, i) * x[i];
    }
    return y;
  }
  // dx and the weights' gradients, from that of a projection.
  void BackProject(int what, int head, const double* x, const Vector& dy, double* dx) {
    if (m_.projected[what] == 0) {
      for (int i = 0; i < m_.size[what]; ++i) dx[i] += dy[i];
      return;
    }
    for (int p = 0; p < m_.projected[what]; ++p) {
      if (places_.bias[what] >= 0)
        g_.weights[places_.bias[what] + head * m_.projected[what] + p] += dy[p];
      for (int i = 0; i < m_.size[what]; ++i) {
        dx[i] += Weight(what, head, p, i) * dy[p];
        g_.weights[places_.matrix[what] + WeightPlaces::Of(m_, what, head, p, i)] += dy[p] * x[i];
      }
    }
  }

  Head HeadOf(int b, int beam, int t, int h) const {
    Head head;
    head.q = Project(0, h, &d_.q[Query(b, beam, t, m_.size[0])]);
    head.first = std::max(m_.lo[t], 0);
    head.last = std::min(m_.hi[t], m_.key_lengths[b]);
    head.out.assign(m_.Width(2), 0);
    double most = -INFINITY, sum = 0;
    for (int s = head.first; s < head.last; ++s) {
      head.k.push_back(Project(1, h, &d_.k[Key(b, s, m_.size[1])]));
      head.v.push_back(Project(2, h, &d_.v[Key(b, s, m_.size[2])]));
      double score = 0;
      for (int i = 0; i < m_.Width(0); ++i) score += head.q[i] * head.k.back()[i];
      head.weights.push_back(m_.scale * score);
      most = std::max(most, m_.scale * score);
      head.factors.push_back(m_.weight_factor ? m_.weight_factor(b, h, beam, t, s) : 1);
    }
    for (double& w : head.weights) sum += w = std::exp(w - most);
    for (size_t j = 0; j < head.weights.size(); ++j) {
      head.weights[j] /= sum;
      for (int i = 0; i < m_.Width(2); ++i)
        head.out[i] += head.weights[j] * head.factors[j] * head.v[j][i];
    }
    return head;
  }

  void AddOutput(int h, const Vector& out, double* y) const {
    if (m_.projected[3] == 0) {
      std::copy(out.begin(), out.end(), y + h * m_.Width(2));
      return;
    }
    for (int o = 0; o < m_.projected[3]; ++o)
      for (int i = 0; i < m_.Width(2); ++i) y[o] += Weight(3, h, o, i) * out[i];
  }

  Vector BackOutput(int h, const Vector& out, const Vector& dy) {
    Vector dh(m_.Width(2));
    for (int i = 0; i < m_.Width(2); ++i) {
      if (m_.projected[3] == 0) {
        dh[i] = dy[h * m_.Width(2) + i];
        continue;
      }
      for (int o = 0; o < m_.projected[3]; ++o) {
        dh[i] += Weight(3, h, o, i) * dy[o];
        g_.weights[places_.matrix[3] + WeightPlaces::Of(m_, 3, h, o, i)] += dy[o] * out[i];
      }
    }
    return dh;
  }

  void BackwardHead(int b, int beam, int t, int h, const Vector& dy) {
    const Head head = HeadOf(b, beam, t, h);
    const Vector dh = BackOutput(h, head.out, dy);
    Vector dweights(head.weights.size()), dq(m_.Width(0));
    double mean = 0;
    for (size_t j = 0; j < dweights.size(); ++j) {
      for (int i = 0; i < m_.Width(2); ++i) dweights[j] += dh[i] * head.v[j][i];
      dweights[j] *= head.factors[j];
      mean += dweights[j] * head.weights[j];
    }
    for (size_t j = 0; j < dweights.size(); ++j) {
      const double dscore = head.weights[j] * (dweights[j] - mean) * m_.scale;
      const int s = head.first + static_cast<int>(j);
      Vector dk(m_.Width(1)), dv(m_.Width(2));
      for (int i = 0; i < m_.Width(0); ++i) {
        dq[i] += dscore * head.k[j][i];
        dk[i] = dscore * head.q[i];
      }
      for (int i = 0; i < m_.Width(2); ++i) dv[i] = head.weights[j] * head.factors[j] * dh[i];
      const size_t k = Key(b, s, m_.size[1]), v = Key(b, s, m_.size[2]);
      BackProject(1, h, &d_.k[k], dk, &g_.k[k]);
      BackProject(2, h, &d_.v[v], dv, &g_.v[v]);
    }
    const size_t q = Query(b, beam, t, m_.size[0]);
    BackProject(0, h, &d_.q[q], dq, &g_.q[q]);
  }

  const MultiHead& m_;
  const MultiHeadData& d_;
  const WeightPlaces places_;
  MultiHeadGradients g_;
};

}  // namespace

int64_t WeightPlaces::Of(const MultiHead& m, int what, int head, int row, int column) {
  const int64_t rows = m.projected[what];
  // q, k, v: columns of all heads' rows. The output: columns of its rows, head by head.
  if (what < 3) return column * m.heads * rows + head * rows + row;
  return (int64_t{head} * m.Width(2) + column) * rows + row;
}

WeightPlaces PlacesOf(const MultiHead& m) {
  WeightPlaces places;
  for (int what = 0; what < 4; ++what) {
    if (m.projected[what] == 0) continue;
    places.matrix[what] = places.end;
    places.end += int64_t{m.heads} * m.projected[what] * (what < 3 ? m.size[what] : m.Width(2));
  }
  for (int what = 0; what < 4; ++what) {
    if (!m.biases || m.projected[what] == 0) continue;
    places.bias[what] = places.end;
    places.end += int64_t{what < 3 ? m.heads : 1} * m.projected[what];
  }
  return places;
}

Vector MultiHeadForward(const MultiHead& m, const MultiHeadData& data) {
  return Loops(m, data).Forward();
}

MultiHeadGradients MultiHeadBackward(const MultiHead& m, const MultiHeadData& data,
                                     const Vector& dout) {
  return Loops(m, data).Backward(dout);
}

}  // namespace kiln::testing
