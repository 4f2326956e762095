#include "tests/support/oracle/rnn.h"

#include <cmath>
#include <map>

namespace kiln::oracle {
namespace {

using Vector = std::vector<double>;
using Cell = RnnNetwork::Cell;

int GatesOf(Cell cell) { return cell == Cell::kLstm ? 4 : cell == Cell::kGru ? 3 : 1; }

struct Part {
  int64_t at = 0, rows = 0, cols = 0;
};

// Every matrix and bias of the space by pseudo-layer and linear layer.
struct Space {
  std::map<std::pair<int64_t, int>, Part> matrices, biases;
  int64_t end = 0;

  explicit Space(const RnnNetwork& net) {
    const int gates = GatesOf(net.cell);
    for (int64_t pl = 0; pl < net.layers * net.directions; ++pl) {
      const bool first = pl < net.directions;
      const int64_t in = first ? net.input : net.projected * net.directions;
      for (int lin = 0; lin < 2 * gates; ++lin) {
        if (lin < gates && first && net.skip_input) continue;
        Add(matrices[{pl, lin}], net.hidden, lin < gates ? in : net.projected);
      }
      if (net.projected < net.hidden) Add(matrices[{pl, 2 * gates}], net.projected, net.hidden);
    }
    for (int64_t pl = 0; pl < net.layers * net.directions; ++pl)
      for (int lin = 0; lin < 2 * gates; ++lin)
        if (lin < gates ? net.input_bias : net.recurrent_bias)
          Add(biases[{pl, lin}], net.hidden, 1);
  }
  void Add(Part& part, int64_t rows, int64_t cols) {
    part = {end, rows, cols};
    end += rows * cols;
  }
};

double Logistic(double v) { return 1.0 / (1.0 + std::exp(-v)); }

// Values of one cell at one step.
struct Step {
  Vector x, h_before, c_before, c, h, r;  // r: h after the projection
  Vector gate[4];                         // activated
  Vector reset_in;                        // R5 h + b, of a GRU
};

// One direction of one layer, for one sequence.
class Direction {
 public:
  Direction(const RnnNetwork& net, const Space& space, const Vector& w, int64_t pl)
      : net_(net), space_(space), w_(w), pl_(pl), gates_(GatesOf(net.cell)) {}

  // xs in the order in which this direction reads them.
  std::vector<Step> Forward(const std::vector<Vector>& xs, Vector h, Vector c) const {
    std::vector<Step> steps;
    for (const Vector& x : xs) {
      Step s;
      s.x = x;
      s.h_before = h;
      s.c_before = c;
      Vector input[4], state[4];
      for (int g = 0; g < gates_; ++g) {
        input[g] = Product(g, x);
        state[g] = Product(gates_ + g, h);
        AddBias(g, input[g]);
        AddBias(gates_ + g, state[g]);
      }
      s.h.resize(net_.hidden);
      s.c.resize(net_.hidden);
      for (int g = 0; g < 4; ++g) s.gate[g].resize(net_.hidden);
      for (int64_t j = 0; j < net_.hidden; ++j) Activate(s, input, state, j);
      if (net_.cell == Cell::kGru) s.reset_in = state[2];
      for (double& v : s.h) v = net_.round(v);
      s.r = s.h;
      if (net_.projected < net_.hidden) {
        s.r = Product(2 * gates_, s.h);
        for (double& v : s.r) v = net_.round(v);
      }
      h = s.r;
      c = s.c;
      steps.push_back(std::move(s));
    }
    return steps;
  }

  // dr: of each step's result. dh, dc go in as slopes of the last state and come out as those of
  // the first. Returns dx of each step; adds to dw.
  std::vector<Vector> Backward(const std::vector<Step>& steps, const std::vector<Vector>& dr,
                               Vector& dh, Vector& dc, Vector& dw) const {
    std::vector<Vector> dx(steps.size());
    for (size_t t = steps.size(); t-- > 0;) {
      const Step& s = steps[t];
      Vector out = dr[t];
      for (size_t i = 0; i < out.size(); ++i) out[i] += dh[i];
      Vector d_hidden = out;
      if (net_.projected < net_.hidden) {
        Outer(2 * gates_, out, s.h, dw);
        d_hidden.assign(net_.hidden, 0);
        Back(2 * gates_, out, d_hidden);
      }
      Vector d_in[4], d_state[4];
      Vector past(net_.projected, 0);
      Slopes(s, d_hidden, dc, d_in, d_state, past);
      dx[t].assign(s.x.size(), 0);
      for (int g = 0; g < gates_; ++g) {
        Outer(g, d_in[g], s.x, dw);
        Outer(gates_ + g, d_state[g], s.h_before, dw);
        BiasSlope(g, d_in[g], dw);
        BiasSlope(gates_ + g, d_state[g], dw);
        Back(g, d_in[g], dx[t]);
        Back(gates_ + g, d_state[g], past);
      }
      dh = past;
    }
    return dx;
  }

 private:
  double Clip(double c) const {
    if (!net_.clips) return c;
    if (std::isnan(c)) return net_.clip_keeps_nan ? c : net_.clip_low;
    return c < net_.clip_low ? net_.clip_low : c > net_.clip_high ? net_.clip_high : c;
  }
  double ClipSlope(double c) const {
    return net_.clips && !(c >= net_.clip_low && c <= net_.clip_high) ? 0 : 1;
  }

  void Activate(Step& s, const Vector* input, const Vector* state, int64_t j) const {
    const auto sum = [&](int g) { return input[g][j] + state[g][j]; };
    switch (net_.cell) {
      case Cell::kRelu:
        s.h[j] = sum(0) > 0 ? sum(0) : 0;
        break;
      case Cell::kTanh:
        s.h[j] = std::tanh(sum(0));
        break;
      case Cell::kLstm: {
        const double i = Logistic(sum(0)), f = Logistic(sum(1)), g = std::tanh(sum(2)),
                     o = Logistic(sum(3));
        s.gate[0][j] = i;
        s.gate[1][j] = f;
        s.gate[2][j] = g;
        s.gate[3][j] = o;
        s.c[j] = f * Clip(s.c_before[j]) + i * g;
        s.h[j] = o * std::tanh(Clip(s.c[j]));
        break;
      }
      case Cell::kGru: {
        const double r = Logistic(sum(0)), z = Logistic(sum(1)),
                     n = std::tanh(input[2][j] + r * state[2][j]);
        s.gate[0][j] = r;
        s.gate[1][j] = z;
        s.gate[2][j] = n;
        s.h[j] = (1 - z) * n + z * s.h_before[j];
        break;
      }
    }
  }

  void Slopes(const Step& s, const Vector& dh, Vector& dc, Vector* d_in, Vector* d_state,
              Vector& past) const {
    for (int g = 0; g < gates_; ++g) d_in[g].resize(net_.hidden);
    for (int64_t j = 0; j < net_.hidden; ++j) {
      switch (net_.cell) {
        case Cell::kRelu:
          d_in[0][j] = s.h[j] > 0 ? dh[j] : 0;
          break;
        case Cell::kTanh:
          d_in[0][j] = dh[j] * (1 - s.h[j] * s.h[j]);
          break;
        case Cell::kLstm: {
          const double i = s.gate[0][j], f = s.gate[1][j], g = s.gate[2][j], o = s.gate[3][j];
          const double th = std::tanh(Clip(s.c[j]));
          const double d = dc[j] + dh[j] * o * (1 - th * th) * ClipSlope(s.c[j]);
          d_in[0][j] = d * g * i * (1 - i);
          d_in[1][j] = d * Clip(s.c_before[j]) * f * (1 - f);
          d_in[2][j] = d * i * (1 - g * g);
          d_in[3][j] = dh[j] * th * o * (1 - o);
          dc[j] = d * f * ClipSlope(s.c_before[j]);
          break;
        }
        case Cell::kGru: {
          const double r = s.gate[0][j], z = s.gate[1][j], n = s.gate[2][j];
          d_in[2][j] = dh[j] * (1 - z) * (1 - n * n);
          d_in[1][j] = dh[j] * (s.h_before[j] - n) * z * (1 - z);
          d_in[0][j] = d_in[2][j] * s.reset_in[j] * r * (1 - r);
          past[j] += dh[j] * z;
          break;
        }
      }
    }
    for (int g = 0; g < gates_; ++g) d_state[g] = d_in[g];
    for (int64_t j = 0; j < net_.hidden && net_.cell == Cell::kGru; ++j)
      d_state[2][j] *= s.gate[0][j];
  }

  // The matrix of a linear layer; absent ones are the identity (SKIP_INPUT).
  const Part* Find(int lin) const {
    const auto at = space_.matrices.find({pl_, lin});
    return at == space_.matrices.end() ? nullptr : &at->second;
  }
  Vector Product(int lin, const Vector& v) const {
    const Part* m = Find(lin);
    if (m == nullptr) return v;
    Vector out(m->rows, 0);
    for (int64_t r = 0; r < m->rows; ++r)
      for (int64_t c = 0; c < m->cols; ++c) out[r] += w_[m->at + r * m->cols + c] * v[c];
    return out;
  }
  void Back(int lin, const Vector& d, Vector& to) const {
    const Part* m = Find(lin);
    if (m == nullptr) {
      for (size_t i = 0; i < d.size(); ++i) to[i] += d[i];
      return;
    }
    for (int64_t r = 0; r < m->rows; ++r)
      for (int64_t c = 0; c < m->cols; ++c) to[c] += w_[m->at + r * m->cols + c] * d[r];
  }
  void Outer(int lin, const Vector& d, const Vector& v, Vector& dw) const {
    const Part* m = Find(lin);
    if (m == nullptr) return;
    for (int64_t r = 0; r < m->rows; ++r)
      for (int64_t c = 0; c < m->cols; ++c) dw[m->at + r * m->cols + c] += d[r] * v[c];
  }
  void AddBias(int lin, Vector& to) const {
    const auto at = space_.biases.find({pl_, lin});
    if (at == space_.biases.end()) return;
    for (int64_t j = 0; j < net_.hidden; ++j) to[j] += w_[at->second.at + j];
  }
  void BiasSlope(int lin, const Vector& d, Vector& dw) const {
    const auto at = space_.biases.find({pl_, lin});
    if (at == space_.biases.end()) return;
    for (int64_t j = 0; j < net_.hidden; ++j) dw[at->second.at + j] += d[j];
  }

  const RnnNetwork& net_;
  const Space& space_;
  const Vector& w_;
  int64_t pl_;
  int gates_;
};

// One sequence through all layers.
class Sequence {
 public:
  Sequence(const RnnNetwork& net, const RnnOperands& in, const Space& space, int64_t b)
      : net_(net), in_(in), space_(space), b_(b), length_(in.lengths[b]) {}

  // Runs the steps of each pseudo-layer in its own order.
  void Forward() {
    std::vector<Vector> xs;
    for (int64_t t = 0; t < length_; ++t) xs.push_back(Row(in_.x, t, net_.input));
    for (int64_t l = 0; l < net_.layers; ++l) {
      std::vector<Vector> ys(length_, Vector(net_.directions * net_.projected));
      for (int64_t d = 0; d < net_.directions; ++d) {
        const int64_t pl = l * net_.directions + d;
        std::vector<Vector> ordered = Ordered(xs, d);
        steps_.push_back(Direction(net_, space_, in_.w, pl)
                             .Forward(ordered, State(in_.hx, pl, net_.projected),
                                      State(in_.cx, pl, net_.hidden)));
        for (int64_t k = 0; k < length_; ++k)
          for (int64_t p = 0; p < net_.projected; ++p)
            ys[d == 0 ? k : length_ - 1 - k][d * net_.projected + p] = steps_.back()[k].r[p];
      }
      if (l + 1 < net_.layers && !in_.masks.empty()) Mask(l, ys);
      xs = std::move(ys);
    }
    last_ = std::move(xs);
  }

  void Store(RnnResults& out) const {
    const int64_t width = net_.directions * net_.projected;
    for (int64_t t = 0; t < in_.steps; ++t)
      for (int64_t i = 0; i < width; ++i)
        out.y[(t * in_.batch + b_) * width + i] = t < length_ ? last_[t][i] : net_.fill;
    for (int64_t pl = 0; pl < net_.layers * net_.directions; ++pl) {
      const auto& steps = steps_[pl];
      for (int64_t p = 0; p < net_.projected; ++p)
        out.hy[(pl * in_.batch + b_) * net_.projected + p] =
            length_ > 0 ? steps.back().r[p] : net_.fill;
      for (int64_t j = 0; j < net_.hidden; ++j)
        out.cy[(pl * in_.batch + b_) * net_.hidden + j] =
            length_ > 0 ? steps.back().c[j] : net_.fill;
    }
  }

  void Backward(const RnnSlopes& slopes, RnnGradients& out) const {
    std::vector<Vector> dy;
    for (int64_t t = 0; t < length_; ++t)
      dy.push_back(Row(slopes.dy, t, net_.directions * net_.projected));
    for (int64_t l = net_.layers - 1; l >= 0; --l) {
      const int64_t width = l == 0 ? net_.input : net_.directions * net_.projected;
      std::vector<Vector> dx(length_, Vector(width, 0));
      for (int64_t d = 0; d < net_.directions; ++d) {
        const int64_t pl = l * net_.directions + d;
        std::vector<Vector> dr;
        for (int64_t k = 0; k < length_; ++k) {
          const Vector& row = dy[d == 0 ? k : length_ - 1 - k];
          dr.emplace_back(row.begin() + d * net_.projected, row.begin() + (d + 1) * net_.projected);
        }
        Vector dh = State(slopes.dhy, pl, net_.projected), dc = State(slopes.dcy, pl, net_.hidden);
        const std::vector<Vector> back =
            Direction(net_, space_, in_.w, pl).Backward(steps_[pl], dr, dh, dc, out.dw);
        for (int64_t k = 0; k < length_; ++k)
          for (int64_t i = 0; i < width; ++i) dx[d == 0 ? k : length_ - 1 - k][i] += back[k][i];
        for (int64_t p = 0; p < net_.projected; ++p)
          out.dhx[(pl * in_.batch + b_) * net_.projected + p] = length_ > 0 ? dh[p] : net_.fill;
        for (int64_t j = 0; j < net_.hidden; ++j)
          out.dcx[(pl * in_.batch + b_) * net_.hidden + j] = length_ > 0 ? dc[j] : net_.fill;
      }
      if (l > 0 && !in_.masks.empty()) Mask(l - 1, dx);
      dy = std::move(dx);
    }
    for (int64_t t = 0; t < in_.steps; ++t)
      for (int64_t i = 0; i < net_.input; ++i)
        out.dx[(t * in_.batch + b_) * net_.input + i] = t < length_ ? dy[t][i] : net_.fill;
  }

 private:
  Vector Row(const Vector& data, int64_t t, int64_t width) const {
    if (data.empty()) return Vector(width, 0);
    const auto first = data.begin() + (t * in_.batch + b_) * width;
    return Vector(first, first + width);
  }
  Vector State(const Vector& states, int64_t pl, int64_t width) const {
    if (states.empty()) return Vector(width, 0);
    const auto first = states.begin() + (pl * in_.batch + b_) * width;
    return Vector(first, first + width);
  }
  static std::vector<Vector> Ordered(const std::vector<Vector>& xs, int64_t d) {
    if (d == 0) return xs;
    return {xs.rbegin(), xs.rend()};
  }
  void Mask(int64_t layer, std::vector<Vector>& rows) const {
    for (int64_t t = 0; t < length_; ++t) {
      const Vector mask = Row(in_.masks[layer], t, net_.directions * net_.projected);
      for (size_t i = 0; i < mask.size(); ++i) rows[t][i] = net_.round(rows[t][i] * mask[i]);
    }
  }

  const RnnNetwork& net_;
  const RnnOperands& in_;
  const Space& space_;
  int64_t b_, length_;
  std::vector<std::vector<Step>> steps_;
  std::vector<Vector> last_;
};

}  // namespace

int64_t RnnWeights(const RnnNetwork& net) { return Space(net).end; }

RnnResults RunRnn(const RnnNetwork& net, const RnnOperands& in) {
  const Space space(net);
  const int64_t states = net.layers * net.directions * in.batch;
  RnnResults out{.y = Vector(in.steps * in.batch * net.directions * net.projected),
                 .hy = Vector(states * net.projected),
                 .cy = Vector(states * net.hidden)};
  for (int64_t b = 0; b < in.batch; ++b) {
    Sequence sequence(net, in, space, b);
    sequence.Forward();
    sequence.Store(out);
  }
  return out;
}

RnnGradients RunRnnBackward(const RnnNetwork& net, const RnnOperands& in, const RnnSlopes& slopes) {
  const Space space(net);
  const int64_t states = net.layers * net.directions * in.batch;
  RnnGradients out{.dx = Vector(in.steps * in.batch * net.input),
                   .dhx = Vector(states * net.projected),
                   .dcx = Vector(states * net.hidden),
                   .dw = Vector(space.end, 0)};
  for (int64_t b = 0; b < in.batch; ++b) {
    Sequence sequence(net, in, space, b);
    sequence.Forward();
    sequence.Backward(slopes, out);
  }
  return out;
}

}  // namespace kiln::oracle
