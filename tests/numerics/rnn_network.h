// A recurrent network as a client of cudnn.h has it, with the memory of its calls on a device, for
// tests of libcudnn.so.8 and .9, and what the oracle says of the same numbers.
#pragma once

#include <cudnn.h>
#include <dlfcn.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/device_memory.h"
#include "tests/support/oracle/dtype.h"
#include "tests/support/oracle/rnn.h"

namespace kiln::testing {

// The library under test, opened once.
void* RnnLibrary();
// A function of it, of whatever type the public header has it.
#define RNN_CALL(function, ...) \
  reinterpret_cast<decltype(&function)>(dlsym(kiln::testing::RnnLibrary(), #function))(__VA_ARGS__)

struct RnnConfig {
  cudnnRNNMode_t cell = CUDNN_LSTM;
  cudnnRNNBiasMode_t bias = CUDNN_RNN_DOUBLE_BIAS;
  cudnnDirectionMode_t direction = CUDNN_UNIDIRECTIONAL;
  cudnnRNNInputMode_t input_mode = CUDNN_LINEAR_INPUT;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnRNNDataLayout_t layout = CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
  cudnnRNNAlgo_t algo = CUDNN_RNN_ALGO_STANDARD;
  int steps = 3, batch = 2;
  std::vector<int> lengths = {};  // empty: all `steps`
  int input = 3, hidden = 5, projected = 5, layers = 1;
  bool has_hx = true, has_cx = true, has_hy = true, has_cy = true;
  bool has_dhy = true, has_dcy = true, has_dhx = true, has_dcx = true;
  bool is_filled = false;  // padding of outputs is 7.5, else none is given
  bool clips = false, clip_keeps_nan = false;
  double clip_low = -0.1, clip_high = 0.1;
  int state_rank = 3;  // of the descriptors of states, padded with ones
  bool tf32 = false;   // else CUDNN_FMA_MATH
  cudnnDropoutDescriptor_t dropout = nullptr;
  uint64_t seed = 1;

  int Directions() const { return direction == CUDNN_BIDIRECTIONAL ? 2 : 1; }
  bool IsLstm() const { return cell == CUDNN_LSTM; }
  int Length(int b) const { return lengths.empty() ? steps : lengths[static_cast<size_t>(b)]; }
  std::string Text() const;
};

// Memory on the device with guards around it, and how its numbers are read.
class RnnMemory {
 public:
  RnnMemory() = default;
  RnnMemory(Device& device, oracle::DType type, int64_t elements);

  void* data() const { return elements_ == 0 ? nullptr : buffer_->data() + kGuard; }
  int64_t elements() const { return elements_; }
  void Put(const std::vector<double>& values);
  std::vector<double> Get() const;
  std::vector<uint8_t> Bytes() const;
  bool GuardsHold() const;

 private:
  static constexpr size_t kGuard = 256;
  Device* device_ = nullptr;
  oracle::DType type_ = oracle::DType::kF32;
  int64_t elements_ = 0;
  std::unique_ptr<Buffer> buffer_;
};

class RnnNetworkRun {
 public:
  RnnNetworkRun(Device& device, cudnnHandle_t handle, const RnnConfig& config);
  ~RnnNetworkRun();
  RnnNetworkRun(const RnnNetworkRun&) = delete;

  // Results that a call should write are what no call writes.
  void Poison();
  // The calls of 8 and 9; statuses of the calls as they come.
  cudnnStatus_t Forward(cudnnForwardMode_t mode);
  cudnnStatus_t BackwardData();
  cudnnStatus_t BackwardWeights(cudnnWgradMode_t mode);

  // Empty, or what is wrong with the results beside the oracle's.
  std::string CheckForward() const;
  std::string CheckBackwardData() const;
  std::string CheckWeightGradients(double times) const;

  const RnnConfig config;
  cudnnRNNDescriptor_t rnn = nullptr;
  cudnnRNNDataDescriptor_t x_desc = nullptr, y_desc = nullptr;
  cudnnTensorDescriptor_t h_desc = nullptr, c_desc = nullptr;
  size_t weight_bytes = 0, work_bytes = 0, reserve_bytes = 0;
  RnnMemory x, y, dy, dx, w, dw, hx, hy, cx, cy, dhy, dhx, dcy, dcx, work, reserve;
  oracle::RnnNetwork network;
  oracle::RnnOperands operands;
  oracle::RnnSlopes slopes;
  std::vector<double> before;  // dw

 private:
  void SetDescriptors();
  void SetOperands();
  // Rows of [T][B][width] in the memory's order; padding is `padding`.
  std::vector<double> Stored(const std::vector<double>& rows, int width, double padding) const;
  std::string Compare(const std::string& name, const RnnMemory& memory,
                      const std::vector<double>& expected) const;
  double Tolerance() const;
  std::vector<double> Random(int64_t n, double scale);
  int64_t Rows() const;

  Device& device_;
  cudnnHandle_t handle_;
  uint64_t random_;
};

// The states that the calls of a run are given; NULL where its network has none.
struct RnnPointers {
  explicit RnnPointers(const RnnNetworkRun& run);
  void *hx, *cx, *hy, *cy, *dhy, *dcy, *dhx, *dcx;
};

}  // namespace kiln::testing
