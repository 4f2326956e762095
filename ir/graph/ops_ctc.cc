// Connectionist temporal classification: the loss of unaligned labels, and its gradient.
//
//   ctc_loss   probs [T,N,A], labels i32 [total], label_lengths i32 [N], input_lengths i32 [N],
//              [before] [T,N,A]  ->  costs [N], [gradients] [T,N,A]
//
// Symbol 0 is the blank. The labels of all samples stand one behind the other; sample n has L of
// them and R that need a blank before them: an equal one stands before, or they are 0, which is the
// blank as a symbol of its own. y(t,k) = softmax of probs over k, or probs where they are
// probabilities already. With the path's states s = 0 .. 2L, whose symbols are
// l(s) = 0, label 0, 0, label 1, …, 0, and frames t = 0 .. input_lengths[n]-1:
//
//   alpha(t,s) = y(t,l(s)) * (alpha(t-1,s) + alpha(t-1,s-1) + [skips(s)] alpha(t-1,s-2))
//   beta(t,s)  = sum of y(t+1,l(r)) * beta(t+1,r) over r = s, s+1 and, where skips(s+2), s+2
//   skips(s)   = l(s) is neither 0 nor l(s-2)
//   P          = alpha of the last frame, in the last two states;  costs[n] = -ln P
//   g(t,k)     = sum of alpha(t,s) * beta(t,s) / P over l(s) = k, the share of the paths that are
//   at
//                symbol k in frame t
//   gradients  = y - g of logits; of probabilities -g / y (0 where g is 0) for symbols of the path,
//                and y for others. NaN where P is 0 or NaN; 0 in frames behind the input.
//
// A sample that no path fits, L + R > input_lengths[n], costs 0; its gradient is 0, or `before`
// where infeasible samples are skipped. One whose label has symbols outside 0 .. A-1, or more than
// max_label of them, or whose input is longer than T, costs NaN and has gradient 0; so have those
// behind a label length that cannot be, since nobody knows where their labels begin.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/graph/ops.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

constexpr size_t kProbs = 0, kLabels = 1, kLabelLengths = 2, kInputLengths = 3, kBefore = 4;
constexpr size_t kCosts = 0, kGradients = 1;
constexpr int64_t kMostLabel = int64_t{1} << 23;
constexpr double kZero = -std::numeric_limits<double>::infinity();  // as a logarithm
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Status CheckFloats(const Tensor& t, const char* name) {
  if (IsFloat(t.dtype) && SizeOf(t.dtype) >= 2) return {};
  return Status::Error(Code::kUnsupportedDataType, "{} %{} is {}, none of f64, f32, f16, bf16",
                       name, t.name, Info(t.dtype).text);
}

Status CheckIntegers(const Tensor* t, const char* name) {
  if (t == nullptr) return Status::Error(Code::kBadParam, "the {} are absent", name);
  if (t->rank() == 1 && t->dtype == DType::kI32) return {};
  return Status::Error(Code::kShapeMismatch, "the {} %{} are {} {}, not i32 of rank 1", name,
                       t->name, Info(t->dtype).text, Shape(*t));
}

// The sum of two probabilities, all as logarithms.
double LogAdd(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return kNan;
  const double larger = std::max(a, b);
  if (std::isinf(larger)) return larger;
  return larger + std::log1p(std::exp(std::min(a, b) - larger));
}

// One sample: logarithms of probabilities by frame and symbol, and its path.
class Sample {
 public:
  Sample(std::vector<std::vector<double>> log_y, std::span<const int64_t> label)
      : log_y_(std::move(log_y)), symbols_(2 * label.size() + 1) {
    for (size_t i = 0; i < label.size(); ++i) symbols_[2 * i + 1] = label[i];
  }

  void Run() {
    const size_t states = symbols_.size(), frames = log_y_.size();
    alpha_.assign(frames, std::vector<double>(states, kZero));
    beta_ = alpha_;
    for (size_t t = 0; t < frames; ++t) {
      for (size_t s = 0; s < states; ++s) {
        const double y = LogY(t, s);
        if (t == 0) {
          if (s < 2) alpha_[t][s] = y;
          continue;
        }
        double sum = alpha_[t - 1][s];
        if (s > 0) sum = LogAdd(sum, alpha_[t - 1][s - 1]);
        if (Skips(s)) sum = LogAdd(sum, alpha_[t - 1][s - 2]);
        alpha_[t][s] = sum + y;
      }
    }
    for (size_t t = frames; t-- > 0;) {
      for (size_t s = 0; s < states; ++s) {
        if (t + 1 == frames) {
          if (s + 2 >= states) beta_[t][s] = 0;
          continue;
        }
        double sum = kZero;
        for (size_t r = s; r < std::min(s + 3, states); ++r)
          if (r < s + 2 || Skips(r)) sum = LogAdd(sum, beta_[t + 1][r] + LogY(t + 1, r));
        beta_[t][s] = sum;
      }
    }
    log_p_ = 0;
    if (frames == 0) return;
    log_p_ = alpha_.back()[states - 1];
    if (states > 1) log_p_ = LogAdd(log_p_, alpha_.back()[states - 2]);
  }

  double Cost() const { return 0 - log_p_; }

  void Gradient(size_t t, bool softmax, double* to) const {
    std::vector<double> share(log_y_[t].size(), 0);
    std::vector<char> on_path(share.size(), 0);
    for (size_t s = 0; s < symbols_.size(); ++s) {
      const auto k = static_cast<size_t>(symbols_[s]);
      share[k] += std::exp(alpha_[t][s] + beta_[t][s] - log_p_);
      on_path[k] = 1;
    }
    for (size_t k = 0; k < share.size(); ++k) {
      const double y = std::exp(log_y_[t][k]);
      to[k] = softmax ? y - share[k] : y;
      if (!softmax && on_path[k]) to[k] = share[k] == 0 ? 0 : -share[k] / y;
      if (!(log_p_ > kZero)) to[k] = kNan;
    }
  }

 private:
  double LogY(size_t t, size_t s) const { return log_y_[t][static_cast<size_t>(symbols_[s])]; }
  bool Skips(size_t s) const {
    return s >= 2 && symbols_[s] != 0 && symbols_[s] != symbols_[s - 2];
  }

  std::vector<std::vector<double>> log_y_, alpha_, beta_;
  std::vector<int64_t> symbols_;
  double log_p_ = 0;
};

// ln y of one frame.
std::vector<double> LogProbabilities(const double* row, int64_t count, bool softmax) {
  std::vector<double> y(row, row + count);
  if (!softmax) {
    for (double& v : y) v = std::log(v);
    return y;
  }
  double largest = kZero, sum = 0;
  for (const double v : y) largest = std::isnan(v) || v > largest ? v : largest;
  for (const double v : y) sum += std::exp(v - largest);
  for (double& v : y) v = v - largest - std::log(sum);
  return y;
}

enum class Fit : uint8_t { kFits, kInfeasible, kInvalid };

Fit FitOf(std::span<const int64_t> label, int64_t symbols, int64_t frames) {
  int64_t needed = static_cast<int64_t>(label.size());
  for (size_t i = 0; i < label.size(); ++i) {
    if (label[i] < 0 || label[i] >= symbols) return Fit::kInvalid;
    needed += i > 0 && (label[i] == 0 || label[i] == label[i - 1]);
  }
  return needed > frames ? Fit::kInfeasible : Fit::kFits;
}

}  // namespace

Status VerifyCtcLoss(const Graph& graph, const Node& node) {
  if (node.compute != DType::kF32 && node.compute != DType::kF64)
    return Status::Error(Code::kUnsupportedDataType, "compute type {} is none of f32, f64",
                         Info(node.compute).text);
  const auto& a = node.As<CtcLossAttrs>();
  const Tensor *probs = InputOf(graph, node, kProbs),
               *gradients = OutputOf(graph, node, kGradients),
               *before = InputOf(graph, node, kBefore);
  if (probs == nullptr || probs->rank() != 3 || NumElements(probs->dims) == 0)
    return Status::Text(Code::kShapeMismatch, "its first operand is no [T,N,A] with elements");
  RETURN_IF_ERROR(CheckFloats(*probs, "probs"));
  RETURN_IF_ERROR(CheckIntegers(InputOf(graph, node, kLabels), "labels"));
  for (const size_t lengths : {kLabelLengths, kInputLengths}) {
    const char* const name = lengths == kLabelLengths ? "label lengths" : "input lengths";
    RETURN_IF_ERROR(CheckIntegers(InputOf(graph, node, lengths), name));
    RETURN_IF_ERROR(ExpectDims(*InputOf(graph, node, lengths), {probs->dims[1]}, name));
  }
  if (a.max_label < 0 || a.max_label > kMostLabel)
    return Status::Error(Code::kBadParam, "max_label is {}: 0 to {} are possible", a.max_label,
                         kMostLabel);
  const Tensor& costs = *OutputOf(graph, node, kCosts);
  RETURN_IF_ERROR(CheckFloats(costs, "costs"));
  RETURN_IF_ERROR(ExpectDims(costs, {probs->dims[1]}, "a cost for each sample"));
  if (gradients != nullptr) {
    RETURN_IF_ERROR(CheckFloats(*gradients, "gradients"));
    RETURN_IF_ERROR(ExpectDims(*gradients, probs->dims, "the gradient of probs"));
  }
  const bool keeps = a.skip_infeasible && gradients != nullptr;
  if (keeps != (before != nullptr))
    return Status::Text(Code::kBadParam,
                        "`before` is an operand where there are gradients and infeasible samples "
                        "are skipped, and nowhere else");
  if (!keeps) return {};
  RETURN_IF_ERROR(CheckFloats(*before, "before"));
  return ExpectDims(*before, probs->dims, "gradients as they were before");
}

Status InferCtcLoss(Graph& graph, const Node& node) {
  const Tensor* probs = InputOf(graph, node, kProbs);
  if (probs == nullptr || probs->rank() != 3) return {};  // Verify has the sentence
  SetDims(graph[node.outputs[kCosts]], {probs->dims[1]}, nullptr);
  if (OutputOf(graph, node, kGradients) != nullptr)
    SetDims(graph[node.outputs[kGradients]], probs->dims, probs);
  return {};
}

void EvalCtcLoss(const EvalArgs& args) {
  const auto& a = args.node.As<CtcLossAttrs>();
  const Dims& dims = InputOf(args.graph, args.node, kProbs)->dims;
  const int64_t frames = dims[0], samples = dims[1], symbols = dims[2];
  const std::vector<double>&probs = *args.inputs[kProbs], &all_labels = *args.inputs[kLabels];
  std::vector<double>* const gradients =
      args.outputs.size() > kGradients ? args.outputs[kGradients] : nullptr;
  int64_t begin = 0;
  bool is_known = true;  // where the sample's labels begin
  for (int64_t n = 0; n < samples; ++n) {
    const auto row = [&](int64_t t) { return (t * samples + n) * symbols; };
    const auto length = static_cast<int64_t>((*args.inputs[kLabelLengths])[static_cast<size_t>(n)]);
    const auto input = static_cast<int64_t>((*args.inputs[kInputLengths])[static_cast<size_t>(n)]);
    const bool can_be = length >= 0 && length <= a.max_label;
    is_known = is_known && can_be && begin + length <= static_cast<int64_t>(all_labels.size());
    std::vector<int64_t> label;
    for (int64_t i = 0; is_known && i < length; ++i)
      label.push_back(static_cast<int64_t>(all_labels[static_cast<size_t>(begin + i)]));
    begin += label.size();
    Fit fit = Fit::kInvalid;
    if (is_known && input >= 0 && input <= frames) fit = FitOf(label, symbols, input);
    if (gradients != nullptr) {
      const bool keeps = fit == Fit::kInfeasible && a.skip_infeasible;
      for (int64_t t = 0; t < frames; ++t)
        for (int64_t k = row(t); k < row(t) + symbols; ++k)
          (*gradients)[static_cast<size_t>(k)] =
              keeps ? (*args.inputs[kBefore])[static_cast<size_t>(k)] : 0;
    }
    double& cost = (*args.outputs[kCosts])[static_cast<size_t>(n)];
    cost = fit == Fit::kInvalid ? kNan : 0;
    if (fit != Fit::kFits) continue;
    std::vector<std::vector<double>> log_y;
    for (int64_t t = 0; t < input; ++t)
      log_y.push_back(LogProbabilities(probs.data() + row(t), symbols, a.softmax));
    Sample sample(std::move(log_y), label);
    sample.Run();
    cost = sample.Cost();
    for (int64_t t = 0; gradients != nullptr && t < input; ++t)
      sample.Gradient(static_cast<size_t>(t), a.softmax, gradients->data() + row(t));
  }
}

}  // namespace kiln::graph
