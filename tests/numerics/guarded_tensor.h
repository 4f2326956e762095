// A tensor of the device that a test of calls without descriptors hands over as a pointer.
#pragma once

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/support/legacy_run.h"

namespace kiln::testing {

// A tensor of the device between guards; results begin as poison.
class GuardedTensor {
 public:
  GuardedTensor(Device& device, cudnnDataType_t type, const oracle::Dims& dims,
                const oracle::Dims& strides, std::optional<uint64_t> seed)
      : device_(device), before_(oracle::Image::Poisoned(ElementOf(type), dims, strides, 7)) {
    if (seed) {
      std::mt19937_64 random(*seed);
      std::uniform_real_distribution<double> uniform(-2, 2);
      std::vector<double> values(static_cast<size_t>(oracle::Count(dims)));
      for (double& value : values) value = uniform(random);
      before_.Store(values);
    }
    buffer_.emplace(device, before_.bytes.size());
    device.CopyIn(buffer_->data(), before_.bytes.data(), before_.bytes.size());
  }
  void* data() const { return buffer_->data() + oracle::Image::kGuard; }
  double operator()(const oracle::Dims& index) const { return before_.At(index); }
  std::string Check(const Dense& expected) const {
    oracle::Image after = before_;
    device_.CopyOut(after.bytes.data(), buffer_->data(), after.bytes.size());
    if (std::string error = oracle::CheckGaps(before_, after); !error.empty()) return error;
    return oracle::Compare(expected, after).error;
  }
  std::string CheckUnchanged() const {
    oracle::Image after = before_;
    device_.CopyOut(after.bytes.data(), buffer_->data(), after.bytes.size());
    return oracle::CheckUnchanged(before_, after);
  }

 private:
  Device& device_;
  oracle::Image before_;
  std::optional<Buffer> buffer_;
};

}  // namespace kiln::testing
