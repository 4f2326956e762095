// Networks of recurrent layers in f64 (what they take is in ops_rnn.cc, the loop over time in
// ops_recurrence.cc).
//
//   xg    = W x + bW by steps, for each direction of a layer; x itself, for each gate, where the
//           first layer skips its input
//   a     = R h + bR, of which the cell makes the next h; the layer's y has both directions side by
//           side, and is the next layer's x: with dropout, and a reserve, as 0 with that
//           probability, else divided by what is left of 1
//   dx    = Wᵀ dgates over both directions
//   dW    = sum over steps of dgates xᵀ, dR the same with the state before the step, db of dgates
//           alone; a matrix of projection has dprojected hiddenᵀ
//
// Results behind the ends of sequences are `padding`; data are not read there. Numbers of
// dropout are those of `rng` over [L-1,T,B,D*P].
#include <algorithm>
#include <cmath>

#include "ir/graph/ops.h"
#include "ir/graph/rnn.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

namespace fwd = rnn_forward;
namespace bwd = rnn_backward_data;
namespace wgt = rnn_backward_weights;

std::span<const double> Operand(const EvalArgs& args, size_t i) {
  if (i >= args.inputs.size() || args.inputs[i] == nullptr) return {};
  return *args.inputs[i];
}
std::vector<double>* ResultAt(const EvalArgs& args, size_t i) {
  return i < args.outputs.size() ? args.outputs[i] : nullptr;
}
Values From(std::span<const double> values, int64_t offset) {
  return values.empty() || offset < 0 ? nullptr : values.data() + offset;
}
double* From(std::vector<double>* values, int64_t offset) {
  return values == nullptr || values->empty() || offset < 0 ? nullptr : values->data() + offset;
}

// A network at the extents of a call; data as [T,B,width].
class Network {
 public:
  Network(const EvalArgs& args, const Tensor& data, size_t lengths_operand, DType compute)
      : a_(args.node.As<RnnAttrs>()),
        type_(data.dtype),
        compute_(compute),
        lengths_(Operand(args, lengths_operand)),
        e_(RnnExtentsOf(a_, data, InputOf(args.graph, args.node, lengths_operand))) {}

  const RnnAttrs& attrs() const { return a_; }
  const RnnExtents& extents() const { return e_; }
  int64_t directions() const { return DirectionsOf(a_); }
  int64_t rows() const { return e_.steps * e_.batch; }
  int64_t y_width() const { return directions() * a_.projected; }
  double scale() const { return a_.dropout < 1 ? 1 / (1 - a_.dropout) : 0; }
  DType type() const { return type_; }
  Values lengths() const { return From(lengths_, 0); }
  bool IsInside(int64_t row) const {
    return row / e_.batch < LengthOf(lengths(), row % e_.batch, e_.steps);
  }

  // Visits rows of [T,B] in order with the row of memory that each has, -1 where it has none.
  template <class F>
  void ForEachRow(F&& visit) const {
    int64_t packed = 0;
    for (int64_t row = 0; row < rows(); ++row) {
      const bool has_row = !e_.packed || IsInside(row);
      visit(row, !has_row ? -1 : e_.packed ? packed++ : row);
    }
  }
  std::vector<double> Unpacked(std::span<const double> data, int64_t width) const {
    std::vector<double> all(static_cast<size_t>(rows() * width), 0);
    const auto memory_rows = width == 0 ? 0 : static_cast<int64_t>(data.size()) / width;
    ForEachRow([&](int64_t row, int64_t from) {
      if (from >= 0 && from < memory_rows)
        std::copy_n(data.data() + from * width, width, all.data() + row * width);
    });
    return all;
  }
  void Pack(const std::vector<double>& all, int64_t width, std::vector<double>& data) const {
    std::ranges::fill(data, 0);
    const auto memory_rows = width == 0 ? 0 : static_cast<int64_t>(data.size()) / width;
    ForEachRow([&](int64_t row, int64_t to) {
      if (to >= 0 && to < memory_rows)
        std::copy_n(all.data() + row * width, width, data.data() + to * width);
    });
  }

  // The padding of data [T,B,width], and of states of sequences without steps.
  void PadData(std::vector<double>& all, int64_t width) const {
    for (int64_t row = 0; row < rows(); ++row)
      if (!IsInside(row)) std::fill_n(all.begin() + row * width, width, a_.padding);
  }
  void PadStates(std::vector<double>* states) const {
    if (states == nullptr || e_.batch == 0) return;
    const int64_t count = a_.layers * directions() * e_.batch,
                  width = static_cast<int64_t>(states->size()) / count;
    for (int64_t s = 0; s < count; ++s)
      if (LengthOf(lengths(), s % e_.batch, e_.steps) == 0)
        std::fill_n(states->begin() + s * width, width, a_.padding);
  }

  LoopShape Shape() const {
    return {.attrs = LoopAttrs(a_),
            .steps = e_.steps,
            .batch = e_.batch,
            .directions = directions(),
            .hidden = a_.hidden,
            .projected = a_.projected,
            .is_projected = IsProjected(a_),
            .type = type_};
  }

  // The `count` matrices from `id` on of both directions of a layer, one behind the other.
  std::vector<double> Matrices(std::span<const double> w, int64_t input, int64_t layer, int64_t id,
                               int64_t count) const {
    std::vector<double> all;
    for (int64_t d = 0; d < directions(); ++d) {
      const RnnPlace at = RnnMatrixPlace(a_, input, layer * directions() + d, id);
      if (at.offset < 0) continue;
      const double* first = w.data() + at.offset;
      all.insert(all.end(), first, first + count * at.rows * at.columns);
    }
    return all;
  }
  std::vector<double> Biases(std::span<const double> w, int64_t input, int64_t layer,
                             int64_t id) const {
    std::vector<double> all;
    for (int64_t d = 0; d < directions(); ++d) {
      const RnnPlace at = RnnBiasPlace(a_, input, layer * directions() + d, id);
      if (at.offset < 0) continue;
      const double* first = w.data() + at.offset;
      all.insert(all.end(), first, first + gates() * a_.hidden);
    }
    return all;
  }
  int64_t gates() const { return BlocksOf(a_.cell).gates; }

  // xg of a layer, [T,B,D,G*H].
  std::vector<double> InputProducts(std::span<const double> w, const std::vector<double>& x,
                                    int64_t input, int64_t layer) const {
    const int64_t width = LayerInput(a_, input, layer),
                  columns = directions() * gates() * a_.hidden;
    const std::vector<double> matrices = Matrices(w, input, layer, 0, gates()),
                              bias = Biases(w, input, layer, 0);
    std::vector<double> xg(static_cast<size_t>(rows() * columns));
    for (int64_t row = 0; row < rows(); ++row) {
      for (int64_t c = 0; c < columns; ++c) {
        double sum = matrices.empty() ? x[row * width + c % a_.hidden] : 0;
        for (int64_t i = 0; i < width && !matrices.empty(); ++i)
          sum += matrices[c * width + i] * x[row * width + i];
        sum = RoundTo(compute_, sum);
        xg[row * columns + c] = bias.empty() ? sum : RoundTo(compute_, sum + bias[c]);
      }
    }
    return xg;
  }

  // y with dropout: the input of the next layer.
  std::vector<double> Dropped(const double* y, const double* mask) const {
    std::vector<double> x(y, y + rows() * y_width());
    for (size_t i = 0; i < x.size() && mask != nullptr; ++i)
      x[i] = RoundTo(type_, x[i] * RoundTo(compute_, mask[i] * scale()));
    return x;
  }

 private:
  const RnnAttrs& a_;
  DType type_, compute_;
  std::span<const double> lengths_;
  RnnExtents e_;
};

void FillMask(const EvalArgs& args, const Network& net, int64_t layer, double* mask) {
  const auto number = [&](size_t i) {
    const std::span<const double> values = Operand(args, i);
    return values.empty() ? int64_t{0} : static_cast<int64_t>(values[0]);
  };
  const int64_t seed = number(fwd::kSeed), offset = number(fwd::kOffset),
                count = net.rows() * net.y_width();
  const double kept = static_cast<double>(static_cast<float>(1 - net.attrs().dropout));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t place = layer * count + i;
    const int64_t half = PhiloxWord(place / 2, seed, offset) >> place % 2 * 16 & 0xffff;
    mask[i] = static_cast<double>(half) * 0x1p-16 < kept ? 1 : 0;
  }
}

}  // namespace

void EvalRnnForward(const EvalArgs& args) {
  const Network net(args, *InputOf(args.graph, args.node, fwd::kX), fwd::kLengths,
                    args.node.compute);
  const RnnAttrs& a = net.attrs();
  const RnnExtents& e = net.extents();
  const std::span<const double> w = Operand(args, fwd::kW);
  std::vector<double>* reserve = ResultAt(args, fwd::kReserve);
  const int64_t states = net.directions() * e.batch;
  std::vector<double> x = net.Unpacked(Operand(args, fwd::kX), e.width);
  for (int64_t l = 0; l < a.layers; ++l) {
    const std::vector<double> xg = net.InputProducts(w, x, e.width, l),
                              r = net.Matrices(w, e.width, l, net.gates(), net.gates()),
                              bias = net.Biases(w, e.width, l, net.gates()),
                              projection = net.Matrices(w, e.width, l, 2 * net.gates(), 1);
    std::vector<double> y(static_cast<size_t>(net.rows() * net.y_width()));
    const RnnReservePlaces at = RnnReserveOf(a, e.steps, e.batch, l);
    const int64_t h_at = l * states * a.projected, c_at = l * states * a.hidden;
    RunLoop(net.Shape(),
            {.xg = xg.data(),
             .r = r.data(),
             .bias = From(bias, 0),
             .hx = From(Operand(args, fwd::kHx), h_at),
             .cx = From(Operand(args, fwd::kCx), c_at),
             .projection = From(projection, 0),
             .lengths = net.lengths()},
            {.y = y.data(),
             .hy = From(ResultAt(args, fwd::kHy), h_at),
             .cy = From(ResultAt(args, fwd::kCy), c_at),
             .gates = From(reserve, at.gates),
             .cells = From(reserve, at.cells),
             .hidden = From(reserve, at.hidden)});
    const bool drops = reserve != nullptr && at.mask >= 0;
    if (drops) FillMask(args, net, l, From(reserve, at.mask));
    if (double* kept = From(reserve, at.y)) std::ranges::copy(y, kept);
    x = l + 1 < a.layers ? net.Dropped(y.data(), drops ? From(reserve, at.mask) : nullptr) : y;
  }
  net.PadData(x, net.y_width());
  net.PadStates(ResultAt(args, fwd::kHy));
  net.PadStates(ResultAt(args, fwd::kCy));
  net.Pack(x, net.y_width(), *args.outputs[fwd::kY]);
}

namespace {

// The gradient of a layer's input, [T,B,width].
std::vector<double> InputGradient(const Network& net, std::span<const double> w,
                                  const double* dgates, int64_t input, int64_t layer) {
  const RnnAttrs& a = net.attrs();
  const int64_t width = LayerInput(a, input, layer), gates = net.gates(),
                stored = BlocksOf(a.cell).gradients, directions = net.directions();
  const std::vector<double> matrices = net.Matrices(w, input, layer, 0, gates);
  std::vector<double> dx(static_cast<size_t>(net.rows() * width), 0);
  for (int64_t row = 0; row < net.rows(); ++row) {
    for (int64_t c = 0; c < directions * gates * a.hidden; ++c) {
      const int64_t d = c / (gates * a.hidden), unit = c % (gates * a.hidden);
      const double g = dgates[(row * directions + d) * stored * a.hidden + unit];
      if (matrices.empty()) dx[row * width + c % a.hidden] += g;
      for (int64_t i = 0; i < width && !matrices.empty(); ++i)
        dx[row * width + i] += g * matrices[c * width + i];
    }
  }
  return dx;
}

}  // namespace

void EvalRnnBackwardData(const EvalArgs& args) {
  const Network net(args, *InputOf(args.graph, args.node, bwd::kY), bwd::kLengths,
                    args.node.compute);
  const RnnAttrs& a = net.attrs();
  const RnnExtents& e = net.extents();
  const int64_t input = OutputOf(args.graph, args.node, bwd::kDx)->dims.back(),
                states = net.directions() * e.batch;
  const std::span<const double> w = Operand(args, bwd::kW), reserve = Operand(args, bwd::kReserve);
  std::vector<double>& gradients = *args.outputs[bwd::kGradients];
  const std::vector<double> last = net.Unpacked(Operand(args, bwd::kY), net.y_width());
  std::vector<double> dy = net.Unpacked(Operand(args, bwd::kDy), net.y_width());
  for (int64_t l = a.layers - 1; l >= 0; --l) {
    const RnnReservePlaces at = RnnReserveOf(a, e.steps, e.batch, l);
    const RnnGradientPlaces to = RnnGradientsOf(a, e.steps, e.batch, l);
    const std::vector<double> r = net.Matrices(w, input, l, net.gates(), net.gates()),
                              projection = net.Matrices(w, input, l, 2 * net.gates(), 1);
    const int64_t h_at = l * states * a.projected, c_at = l * states * a.hidden;
    RunLoopGrad(net.Shape(),
                {.dy = dy.data(),
                 .r = r.data(),
                 .gates = From(reserve, at.gates),
                 .y = at.y >= 0 ? From(reserve, at.y) : last.data(),
                 .cells = From(reserve, at.cells),
                 .hx = From(Operand(args, bwd::kHx), h_at),
                 .cx = From(Operand(args, bwd::kCx), c_at),
                 .dhy = From(Operand(args, bwd::kDhy), h_at),
                 .dcy = From(Operand(args, bwd::kDcy), c_at),
                 .projection = From(projection, 0),
                 .lengths = net.lengths()},
                {.dgates = From(&gradients, to.dgates),
                 .dhx = From(ResultAt(args, bwd::kDhx), h_at),
                 .dcx = From(ResultAt(args, bwd::kDcx), c_at),
                 .dprojected = From(&gradients, to.dprojected)});
    dy = InputGradient(net, w, From(&gradients, to.dgates), input, l);
    if (l == 0) continue;
    const int64_t mask = RnnReserveOf(a, e.steps, e.batch, l - 1).mask;
    for (size_t i = 0; i < dy.size(); ++i) {
      if (mask >= 0) dy[i] *= reserve[mask + i] * net.scale();
      dy[i] = RoundTo(net.type(), dy[i]);
    }
  }
  net.PadData(dy, input);
  net.PadStates(ResultAt(args, bwd::kDhx));
  net.PadStates(ResultAt(args, bwd::kDcx));
  net.Pack(dy, input, *args.outputs[bwd::kDx]);
}

namespace {

// The gradients of a layer's weights, added to dw. Those of gates are 0 behind the ends of
// sequences; what they are multiplied with there counts as 0.
class WeightGradient {
 public:
  WeightGradient(const Network& net, int64_t input, int64_t layer, std::vector<double>& dw)
      : net_(net), a_(net.attrs()), input_(input), layer_(layer), dw_(dw) {}

  // Adds the gradient of matrix `id` from block `block` of dgates and the matrix' operand, of which
  // `state(row, column)` is an element.
  template <class F>
  void Matrix(const double* gradient, int64_t blocks, int64_t block, int64_t d, int64_t id,
              int64_t units, const F& state) {
    const RnnPlace at = RnnMatrixPlace(a_, input_, layer_ * net_.directions() + d, id);
    for (int64_t row = 0; row < net_.rows() && at.offset >= 0; ++row) {
      const double* g = gradient + ((row * net_.directions() + d) * blocks + block) * units;
      for (int64_t j = 0; j < at.rows; ++j)
        for (int64_t i = 0; i < at.columns; ++i)
          dw_[at.offset + j * at.columns + i] += g[j] * state(row, i);
    }
  }
  void Bias(const double* gradient, int64_t blocks, int64_t block, int64_t d, int64_t id) {
    const RnnPlace at = RnnBiasPlace(a_, input_, layer_ * net_.directions() + d, id);
    for (int64_t row = 0; row < net_.rows() && at.offset >= 0; ++row) {
      const double* g = gradient + ((row * net_.directions() + d) * blocks + block) * a_.hidden;
      for (int64_t j = 0; j < at.rows; ++j) dw_[at.offset + j] += g[j];
    }
  }

 private:
  const Network& net_;
  const RnnAttrs& a_;
  int64_t input_, layer_;
  std::vector<double>& dw_;
};

// The state of direction d before the step at `row`.
double StateBefore(const Network& net, const double* y, Values hx, int64_t row, int64_t d,
                   int64_t p) {
  const int64_t batch = net.extents().batch, time = row / batch, b = row % batch,
                length = LengthOf(net.lengths(), b, net.extents().steps),
                before = d == 1 ? time + 1 : time - 1, projected = net.attrs().projected;
  if (time >= length) return 0;
  if (before >= 0 && before < length)
    return y[(before * batch + b) * net.y_width() + d * projected + p];
  return hx ? hx[(d * batch + b) * projected + p] : 0;
}

}  // namespace

void EvalRnnBackwardWeights(const EvalArgs& args) {
  const Tensor& data = *InputOf(args.graph, args.node, wgt::kX);
  const Network net(args, data, wgt::kLengths, args.node.compute);
  const RnnAttrs& a = net.attrs();
  const RnnExtents& e = net.extents();
  const std::span<const double> reserve = Operand(args, wgt::kReserve),
                                gradients = Operand(args, wgt::kGradients);
  const std::vector<double> last = net.Unpacked(Operand(args, wgt::kY), net.y_width());
  std::vector<double> x = net.Unpacked(Operand(args, wgt::kX), e.width);
  std::vector<double>& dw = *args.outputs[wgt::kDw];
  std::ranges::fill(dw, 0);
  const int64_t gates = net.gates(), blocks = BlocksOf(a.cell).gradients;
  for (int64_t l = 0; l < a.layers; ++l) {
    const RnnReservePlaces at = RnnReserveOf(a, e.steps, e.batch, l);
    const RnnGradientPlaces from = RnnGradientsOf(a, e.steps, e.batch, l);
    const double *y = at.y >= 0 ? From(reserve, at.y) : last.data(),
                 *dgates = From(gradients, from.dgates);
    Values hx = From(Operand(args, wgt::kHx), l * net.directions() * e.batch * a.projected);
    const int64_t width = LayerInput(a, e.width, l);
    WeightGradient gradient(net, e.width, l, dw);
    for (int64_t d = 0; d < net.directions(); ++d) {
      for (int64_t g = 0; g < gates; ++g) {
        const int64_t block = a.cell == RnnCell::kGru && g == 2 ? 3 : g;
        gradient.Matrix(dgates, blocks, g, d, g, a.hidden, [&](int64_t row, int64_t i) {
          return l > 0 || net.IsInside(row) ? x[row * width + i] : 0;
        });
        gradient.Matrix(dgates, blocks, block, d, gates + g, a.hidden,
                        [&](int64_t row, int64_t p) { return StateBefore(net, y, hx, row, d, p); });
        gradient.Bias(dgates, blocks, g, d, g);
        gradient.Bias(dgates, blocks, block, d, gates + g);
      }
      if (!IsProjected(a)) continue;
      const double* hidden = From(reserve, at.hidden);
      gradient.Matrix(From(gradients, from.dprojected), 1, 0, d, 2 * gates, a.projected,
                      [&](int64_t row, int64_t j) {
                        return hidden[(row * net.directions() + d) * a.hidden + j];
                      });
    }
    x = net.Dropped(y, at.mask >= 0 ? From(reserve, at.mask) : nullptr);
  }
  const std::span<const double> before = Operand(args, wgt::kBefore);
  for (size_t i = 0; i < before.size(); ++i) dw[i] += before[i];
}

}  // namespace kiln::graph
