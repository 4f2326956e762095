// Whole recurrent networks in f64, from the formulas of cuDNN's reference: one sequence at a time,
// each as long as it is, one layer and direction after the other. The weight space is walked matrix
// by matrix, in the order that the reference gives.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace kiln::oracle {

struct RnnNetwork {
  enum class Cell { kRelu, kTanh, kLstm, kGru } cell = Cell::kTanh;
  bool input_bias = true, recurrent_bias = true;
  int64_t layers = 1, directions = 1, input = 1, hidden = 1, projected = 1;
  bool skip_input = false;
  bool clips = false, clip_keeps_nan = false;
  double clip_low = 0, clip_high = 0;
  double fill = 0;                                                   // of padding
  std::function<double(double)> round = [](double x) { return x; };  // a state, to its type
};

// Row-major: x [T][B][input], w the weight space, hx [L*D][B][projected], cx [L*D][B][hidden];
// empty hx, cx: zeros. masks: of each layer but the last, factors of its y, [T][B][D*projected];
// empty: no dropout.
struct RnnOperands {
  int64_t steps = 0, batch = 0;
  std::vector<int64_t> lengths;  // one a sequence
  std::vector<double> x, w, hx, cx;
  std::vector<std::vector<double>> masks;
};

struct RnnResults {
  std::vector<double> y, hy, cy;
};

// Empty: zeros.
struct RnnSlopes {
  std::vector<double> dy, dhy, dcy;
};
struct RnnGradients {
  std::vector<double> dx, dhx, dcx, dw;
};

int64_t RnnWeights(const RnnNetwork& net);  // elements
RnnResults RunRnn(const RnnNetwork& net, const RnnOperands& in);
// `slopes`: derivatives of the loss to y, hy and cy. States and cells are those of RunRnn.
RnnGradients RunRnnBackward(const RnnNetwork& net, const RnnOperands& in, const RnnSlopes& slopes);

}  // namespace kiln::oracle
