// The loops of recurrent layers in f64, one sequence and direction after the other. Formulas and
// names are those of ops_recurrence.cc.
#include <algorithm>
#include <cmath>

#include "ir/graph/ops.h"
#include "ir/graph/rnn.h"

namespace kiln::graph {
namespace {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The value of a cell that an LSTM uses, clipped by the attributes; UseSlope is its derivative.
double Use(const RecurrenceAttrs& a, double c) {
  if (!a.clip) return c;
  if (std::isnan(c)) return a.clip_propagates_nan ? c : a.clip_lower;
  return std::clamp(c, a.clip_lower, a.clip_upper);
}
double UseSlope(const RecurrenceAttrs& a, double c) {
  return !a.clip || (c >= a.clip_lower && c <= a.clip_upper) ? 1 : 0;
}

// The place of sequence b of direction d at step s in time and in the kept tensors.
struct Place {
  int64_t time, row;  // row: time, sequence and direction as one index
};
Place PlaceOf(const LoopShape& shape, int64_t s, int64_t b, int64_t d, int64_t length) {
  const int64_t time = d == 1 && s < length ? length - 1 - s : s;
  return {.time = time, .row = (time * shape.batch + b) * shape.directions + d};
}

// sum over columns of matrix[row][column] * state[column].
double Dot(Values matrix, int64_t row, int64_t columns, const std::vector<double>& state) {
  double sum = 0;
  for (int64_t c = 0; c < columns; ++c)
    sum += matrix[row * columns + c] * state[static_cast<size_t>(c)];
  return sum;
}

// One sequence in one direction.
class SequenceLoop {
 public:
  SequenceLoop(const LoopShape& shape, const LoopOperands& in, const LoopResults& out, int64_t b,
               int64_t d)
      : s_(shape),
        in_(in),
        out_(out),
        b_(b),
        d_(d),
        gates_(BlocksOf(shape.attrs.cell).gates),
        kept_(BlocksOf(shape.attrs.cell).kept),
        h_(static_cast<size_t>(shape.projected), 0),
        c_(static_cast<size_t>(shape.hidden), 0) {}

  void Run() {
    const int64_t length = LengthOf(in_.lengths, b_, s_.steps);
    const int64_t state = d_ * s_.batch + b_;
    for (int64_t p = 0; p < s_.projected && in_.hx; ++p) h_[p] = in_.hx[state * s_.projected + p];
    for (int64_t j = 0; j < s_.hidden && in_.cx; ++j) c_[j] = in_.cx[state * s_.hidden + j];
    for (int64_t step = 0; step < s_.steps; ++step) {
      const Place at = PlaceOf(s_, step, b_, d_, length);
      if (step < length)
        Step(at);
      else
        Pad(at);
    }
    for (int64_t p = 0; p < s_.projected && out_.hy; ++p)
      out_.hy[state * s_.projected + p] = length > 0 ? h_[p] : 0;
    for (int64_t j = 0; j < s_.hidden && out_.cy; ++j)
      out_.cy[state * s_.hidden + j] = length > 0 ? c_[j] : 0;
  }

 private:
  void Step(const Place& at) {
    const int64_t rows = gates_ * s_.hidden;
    Values x = in_.xg + at.row * rows;
    std::vector<double> h(static_cast<size_t>(s_.hidden));
    for (int64_t j = 0; j < s_.hidden; ++j) {
      double a[4];
      for (int64_t g = 0; g < gates_; ++g) {
        const int64_t row = d_ * rows + g * s_.hidden + j;
        a[g] = Dot(in_.r, row, s_.projected, h_) + (in_.bias ? in_.bias[row] : 0);
      }
      double kept[4];
      h[j] = RoundTo(s_.type, Cell(x + j, a, j, kept));
      for (int64_t k = 0; k < kept_ && out_.gates; ++k)
        out_.gates[(at.row * kept_ + k) * s_.hidden + j] = kept[k];
      if (out_.cells) out_.cells[at.row * s_.hidden + j] = c_[j];
      if (out_.hidden) out_.hidden[at.row * s_.hidden + j] = h[j];
    }
    if (!s_.is_projected) h_ = h;
    for (int64_t p = 0; p < s_.projected && s_.is_projected; ++p)
      h_[p] = RoundTo(s_.type, Dot(in_.projection, d_ * s_.projected + p, s_.hidden, h));
    for (int64_t p = 0; p < s_.projected && out_.y; ++p) out_.y[at.row * s_.projected + p] = h_[p];
  }

  // The new state of unit j; x has its blocks H apart.
  double Cell(Values x, const double* a, int64_t j, double* kept) {
    const int64_t block = s_.hidden;
    switch (s_.attrs.cell) {
      case RnnCell::kRelu:
        kept[0] = x[0] + a[0];
        if (kept[0] < 0) kept[0] = 0;
        return kept[0];
      case RnnCell::kTanh:
        kept[0] = std::tanh(x[0] + a[0]);
        return kept[0];
      case RnnCell::kLstm:
        for (int64_t g = 0; g < 4; ++g) {
          const double before = x[g * block] + a[g];
          kept[g] = g == 2 ? std::tanh(before) : Sigmoid(before);
        }
        c_[j] = kept[1] * Use(s_.attrs, c_[j]) + kept[0] * kept[2];
        return kept[3] * std::tanh(Use(s_.attrs, c_[j]));
      case RnnCell::kGru:
        kept[0] = Sigmoid(x[0] + a[0]);
        kept[1] = Sigmoid(x[block] + a[1]);
        kept[2] = std::tanh(x[2 * block] + kept[0] * a[2]);
        kept[3] = a[2];
        return (1 - kept[1]) * kept[2] + kept[1] * h_[j];
    }
    return 0;
  }

  void Pad(const Place& at) {
    const auto clear = [&](double* to, int64_t count) {
      if (to != nullptr) std::fill_n(to + at.row * count, count, 0);
    };
    clear(out_.y, s_.projected);
    clear(out_.gates, kept_ * s_.hidden);
    clear(out_.cells, s_.hidden);
    clear(out_.hidden, s_.hidden);
  }

  const LoopShape& s_;
  const LoopOperands& in_;
  const LoopResults& out_;
  int64_t b_, d_, gates_, kept_;
  std::vector<double> h_, c_;
};

// The gradient of one sequence in one direction.
class SequenceGrad {
 public:
  SequenceGrad(const LoopShape& shape, const LoopGradOperands& in, const LoopGradResults& out,
               int64_t b, int64_t d)
      : s_(shape),
        in_(in),
        out_(out),
        b_(b),
        d_(d),
        length_(LengthOf(in.lengths, b, shape.steps)),
        blocks_(BlocksOf(shape.attrs.cell)),
        dh_(static_cast<size_t>(shape.projected), 0),
        dc_(static_cast<size_t>(shape.hidden), 0) {}

  void Run() {
    const int64_t state = d_ * s_.batch + b_;
    for (int64_t p = 0; p < s_.projected && in_.dhy; ++p)
      dh_[p] = in_.dhy[state * s_.projected + p];
    for (int64_t j = 0; j < s_.hidden && in_.dcy; ++j) dc_[j] = in_.dcy[state * s_.hidden + j];
    for (int64_t step = s_.steps - 1; step >= 0; --step) {
      if (step < length_)
        Step(step);
      else
        Pad(PlaceOf(s_, step, b_, d_, length_));
    }
    for (int64_t p = 0; p < s_.projected && out_.dhx; ++p)
      out_.dhx[state * s_.projected + p] = length_ > 0 ? dh_[p] : 0;
    for (int64_t j = 0; j < s_.hidden && out_.dcx; ++j)
      out_.dcx[state * s_.hidden + j] = length_ > 0 ? dc_[j] : 0;
  }

 private:
  void Step(int64_t step) {
    const Place at = PlaceOf(s_, step, b_, d_, length_);
    const int64_t hidden = s_.hidden, count = blocks_.gradients * hidden;
    std::vector<double> dh(static_cast<size_t>(hidden));
    for (int64_t p = 0; p < s_.projected; ++p) dh_[p] += in_.dy[at.row * s_.projected + p];
    if (s_.is_projected)
      Unproject(at, dh);
    else
      dh = dh_;
    std::vector<double> gradient(static_cast<size_t>(count)),
        direct(static_cast<size_t>(hidden), 0);
    for (int64_t j = 0; j < hidden; ++j) {
      double slopes[4];
      direct[j] = Cell(step, at, j, dh[j], slopes);
      for (int64_t k = 0; k < blocks_.gradients; ++k)
        gradient[k * hidden + j] = RoundTo(s_.type, slopes[k]);
    }
    std::ranges::copy(gradient, out_.dgates + at.row * count);
    for (int64_t p = 0; p < s_.projected; ++p) {
      double sum = s_.attrs.cell == RnnCell::kGru ? direct[p] : 0;
      for (int64_t g = 0; g < blocks_.gates; ++g) {
        // A GRU's new gate has another gradient for the state than for the input.
        const int64_t block = s_.attrs.cell == RnnCell::kGru && g == 2 ? 3 : g;
        for (int64_t j = 0; j < hidden; ++j)
          sum += in_.r[((d_ * blocks_.gates + g) * hidden + j) * s_.projected + p] *
                 gradient[block * hidden + j];
      }
      dh_[p] = sum;
    }
  }

  void Unproject(const Place& at, std::vector<double>& dh) {
    for (int64_t p = 0; p < s_.projected; ++p) {
      dh_[p] = RoundTo(s_.type, dh_[p]);
      if (out_.dprojected) out_.dprojected[at.row * s_.projected + p] = dh_[p];
    }
    for (int64_t j = 0; j < s_.hidden; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < s_.projected; ++p)
        sum += in_.projection[(d_ * s_.projected + p) * s_.hidden + j] * dh_[p];
      dh[j] = sum;
    }
  }

  // `values` [T,B,D,width] or the initial state [D,B,width], one step before.
  double Before(Values values, Values initial, int64_t width, int64_t step, int64_t j) const {
    if (step > 0) return values[PlaceOf(s_, step - 1, b_, d_, length_).row * width + j];
    return initial ? initial[(d_ * s_.batch + b_) * width + j] : 0;
  }

  // Fills the gradients of unit j; returns that of the state before which no matrix carries.
  double Cell(int64_t step, const Place& at, int64_t j, double dh, double* slopes) {
    const int64_t hidden = s_.hidden;
    Values kept = in_.gates + at.row * blocks_.kept * hidden + j;
    const auto k = [&](int64_t block) { return kept[block * hidden]; };
    switch (s_.attrs.cell) {
      case RnnCell::kRelu:
        slopes[0] = k(0) > 0 ? dh : 0;
        return 0;
      case RnnCell::kTanh:
        slopes[0] = dh * (1 - k(0) * k(0));
        return 0;
      case RnnCell::kLstm: {
        const double c = in_.cells[at.row * hidden + j];
        const double before = Before(in_.cells, in_.cx, hidden, step, j);
        const double t = std::tanh(Use(s_.attrs, c));
        const double dc = dc_[j] + dh * k(3) * (1 - t * t) * UseSlope(s_.attrs, c);
        slopes[0] = dc * k(2) * k(0) * (1 - k(0));
        slopes[1] = dc * Use(s_.attrs, before) * k(1) * (1 - k(1));
        slopes[2] = dc * k(0) * (1 - k(2) * k(2));
        slopes[3] = dh * t * k(3) * (1 - k(3));
        dc_[j] = dc * k(1) * UseSlope(s_.attrs, before);
        return 0;
      }
      case RnnCell::kGru: {
        const double before = Before(in_.y, in_.hx, hidden, step, j);
        slopes[2] = dh * (1 - k(1)) * (1 - k(2) * k(2));
        slopes[1] = dh * (before - k(2)) * k(1) * (1 - k(1));
        slopes[0] = slopes[2] * k(3) * k(0) * (1 - k(0));
        slopes[3] = slopes[2] * k(0);
        return dh * k(1);
      }
    }
    return 0;
  }

  void Pad(const Place& at) {
    const int64_t count = blocks_.gradients * s_.hidden;
    std::fill_n(out_.dgates + at.row * count, count, 0);
    if (out_.dprojected) std::fill_n(out_.dprojected + at.row * s_.projected, s_.projected, 0);
  }

  const LoopShape& s_;
  const LoopGradOperands& in_;
  const LoopGradResults& out_;
  int64_t b_, d_, length_;
  CellBlocks blocks_;
  std::vector<double> dh_, dc_;
};

}  // namespace

int64_t LengthOf(Values lengths, int64_t b, int64_t steps) {
  if (lengths == nullptr) return steps;
  return std::clamp<int64_t>(static_cast<int64_t>(lengths[b]), 0, steps);
}

void RunLoop(const LoopShape& shape, const LoopOperands& in, const LoopResults& out) {
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t d = 0; d < shape.directions; ++d) SequenceLoop(shape, in, out, b, d).Run();
}

void RunLoopGrad(const LoopShape& shape, const LoopGradOperands& in, const LoopGradResults& out) {
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t d = 0; d < shape.directions; ++d) SequenceGrad(shape, in, out, b, d).Run();
}

}  // namespace kiln::graph
