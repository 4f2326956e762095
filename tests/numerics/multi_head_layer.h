// A client of the library's multi-head attention: descriptors, buffers and sequences of a problem,
// as cudnnMultiHeadAttnForward and its gradients want them. Sequences are poisoned (NaN) where they
// are padding and before they are written, and guarded on both sides.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/numerics/multi_head_oracle.h"
#include "tests/support/legacy_run.h"

namespace kiln::testing {

// Properties of a problem beside its numbers.
struct LayerOptions {
  cudnnDataType_t type = CUDNN_DATA_FLOAT, compute = CUDNN_DATA_FLOAT;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  bool one_to_one = false;
  std::array<int, 3> axes = {1, 2, 0};  // of time 0, batch 1 and beam 2, the outermost first
  int spare = 0;                        // by how much the layer's maxima are above the problem
  cudnnDropoutDescriptor_t attn_dropout = nullptr, post_dropout = nullptr;
};

// Sequences on the device.
class Sequences {
 public:
  Sequences(LegacyClient& client, Device& device, const LayerOptions& options, int batch, int beam,
            int steps, int width, const std::vector<int>& lengths);

  cudnnSeqDataDescriptor_t desc() const { return desc_; }
  uint8_t* data() const { return buffer_->data() + kGuard; }
  // Values of [batch][beam][step][element], rounded to the type on the way; NaN in padding.
  void Write(const Vector& values, bool poison_padding = true);
  void Poison();
  Vector Read() const;
  // A sentence where memory around them was written.
  std::string CheckGuards() const;

  static constexpr size_t kGuard = 256;

 private:
  int64_t PlaceOf(int b, int beam, int t, int i) const;
  std::vector<uint8_t> Download() const;

  Device& device_;
  oracle::DType type_;
  int batch_, beam_, steps_, width_;
  std::array<int64_t, 3> strides_;  // of time, batch, beam
  std::vector<int> lengths_;
  std::unique_ptr<Buffer> buffer_;
  size_t bytes_ = 0;
  cudnnSeqDataDescriptor_t desc_ = nullptr;
};

class AttentionLayer {
 public:
  AttentionLayer(LegacyClient& client, Device& device, cudnnHandle_t handle, const MultiHead& m,
                 const LayerOptions& options, bool trains);

  // The error of the last failing call, or of buffers that could not be sized.
  const std::string& error() const { return error_; }
  void Write(const MultiHeadData& data);
  bool Forward(int step, bool trains);
  bool BackwardData();
  bool BackwardWeights(bool adds);

  Sequences q, k, v, residual, out, dout, dq, dk, dv;
  Vector Weights() const { return DownloadElements(*weights_); }
  Vector WeightGradients() const { return DownloadElements(*dweights_); }
  void WriteWeightGradients(const Vector& values) { Upload(*dweights_, values); }
  cudnnAttnDescriptor_t desc() const { return desc_; }
  size_t weight_bytes() const { return weight_bytes_; }
  size_t work_bytes() const { return work_bytes_; }
  size_t reserve_bytes() const { return reserve_bytes_; }

 private:
  bool Done(const char* what, cudnnStatus_t status);
  Vector DownloadElements(const Buffer& buffer) const;
  void Upload(const Buffer& buffer, const Vector& values);

  LegacyClient& client_;
  Device& device_;
  cudnnHandle_t handle_;
  const MultiHead m_;
  const oracle::DType type_;
  int64_t weight_elements_ = 0;
  cudnnAttnDescriptor_t desc_ = nullptr;
  size_t weight_bytes_ = 0, work_bytes_ = 0, reserve_bytes_ = 0;
  std::unique_ptr<Buffer> weights_, dweights_, work_, reserve_, query_lengths_, key_lengths_;
  std::string error_;
};

// The values as the type has them.
Vector Rounded(cudnnDataType_t type, Vector values);

}  // namespace kiln::testing
