// A compute call of the legacy API on one library: tensors in the device's memory, poisoned around
// and between their elements, and what the call must leave there.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/device_memory.h"
#include "tests/support/legacy_client.h"
#include "tests/support/oracle/compare.h"
#include "tests/support/oracle/oracle.h"

namespace kiln::testing {

using oracle::Dense;

// The layout of a tensor in memory.
struct Layout {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  enum Order : uint8_t {
    kNchw,
    kNhwc,
    kGaps,     // NCHW with room between rows and images
    kVectors,  // NCHW_VECT_C
  } order = kNchw;
  int misaligned = 0;  // elements by which the memory begins late
};

oracle::DType ElementOf(cudnnDataType_t type);
// Float, or double where the tensor is of doubles: what scaling factors are.
oracle::DType FactorType(cudnnDataType_t type);

// Factors of a call as the client keeps them.
class Factor {
 public:
  Factor(double value, cudnnDataType_t type_of)
      : double_(value),
        float_(static_cast<float>(value)),
        is_double_(FactorType(type_of) == oracle::DType::kF64) {}
  const void* get() const { return is_double_ ? static_cast<const void*>(&double_) : &float_; }

 private:
  double double_;
  float float_;
  bool is_double_;
};

class LegacyTensor {
 public:
  LegacyTensor(LegacyClient& client, Device& device, const Layout& layout, oracle::Dims dims,
               const std::string& fill, uint64_t seed);

  cudnnTensorDescriptor_t desc() const { return desc_; }
  void* data() const { return buffer_->data() + oracle::Image::kGuard + offset_; }
  const oracle::Dims& dims() const { return dims_; }
  // Values of the tensor before the call.
  Dense Before() const { return Logical(image_); }
  // Empty where the tensor holds `expected` and nothing around it was written: else a sentence.
  std::string Check(const Dense& expected, double ulps = 0) const;
  std::string CheckUnchanged() const;

 private:
  Dense Logical(const oracle::Image& image) const;
  Dense InMemory(const Dense& logical) const;
  oracle::Image Download() const;

  Device* device_;
  Layout layout_;
  oracle::Dims dims_;
  oracle::Image image_;  // as it was before the call
  int64_t offset_ = 0;   // bytes behind the guard
  std::unique_ptr<Buffer> buffer_;
  cudnnTensorDescriptor_t desc_;
};

// alpha * result + beta * prior, in the compute type.
Dense Blended(const Dense& result, double alpha, double beta, const Dense& prior,
              oracle::DType compute);
// The values along extents of 1 again and again.
Dense Broadcast(const Dense& x, const oracle::Dims& dims);

}  // namespace kiln::testing
