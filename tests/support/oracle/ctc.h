// The CTC loss and its gradient from the definition: sums of products of probabilities over paths,
// in long double and not as logarithms. Nothing is shared with the library.
#pragma once

#include <cstdint>
#include <vector>

namespace kiln::oracle {

// A batch: probs [T,N,A], labels one sample behind the other, both lengths by sample.
struct CtcBatch {
  int64_t frames = 1, samples = 1, symbols = 1;
  std::vector<double> probs;  // logits, or probabilities without softmax
  std::vector<int> labels, label_lengths, input_lengths;
  bool softmax = true;
  bool skip_infeasible = false;
  int64_t max_label = 0;
};

struct CtcLoss {
  std::vector<double> costs;      // [N]
  std::vector<double> gradients;  // [T,N,A]
};

// `before`: what gradients held, which samples that no path fits keep where those are skipped.
CtcLoss Ctc(const CtcBatch& batch, const std::vector<double>& before);

// The loss by every one of the A^T paths; for a handful of frames.
CtcLoss CtcByPaths(const CtcBatch& batch, const std::vector<double>& before);

}  // namespace kiln::oracle
