// The recurrent layers that bench/rnn times.
#pragma once

#include <cudnn.h>

#include <string>
#include <vector>

namespace kiln::bench {

struct RecurrentShape {
  cudnnRNNMode_t cell = CUDNN_LSTM;
  cudnnDataType_t type = CUDNN_DATA_HALF;
  int steps = 1, batch = 1, input = 1, hidden = 1, layers = 1, projected = 0;
  bool bidirectional = false;
  bool exact = false;  // f32 that is not rounded to TF32
  bool inference_alone = false;

  int Directions() const { return bidirectional ? 2 : 1; }
};

struct NamedShape {
  std::string name;
  RecurrentShape shape;
};
// baseline/: the networks that cuDNN 9.19 was measured on through PyTorch. deepbench/: those of
// Baidu's DeepBench, one layer in f16, batches of 1 and 4 in inference alone. types/: some of them
// in the types that these two leave out.
std::vector<NamedShape> RecurrentShapes();

}  // namespace kiln::bench
