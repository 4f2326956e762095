// A client of kiln/miopen.h: tensors in the device's memory, poisoned around their elements, with
// MIOpen's descriptors; and the names of the functions that were called.
#pragma once

#include <gtest/gtest.h>
#include <kiln/miopen.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/support/legacy_run.h"

namespace kiln::testing {

// Functions that the program's tests called: they must be all that the header declares.
std::set<std::string>& CalledFunctions();

// MIOPEN(Create, &handle) calls miopenCreate. A macro, as the function's name is wanted as well.
#define MIOPEN(function, ...) \
  (::kiln::testing::CalledFunctions().insert("miopen" #function), miopen##function(__VA_ARGS__))

class MiopenTensor {
 public:
  MiopenTensor(LegacyClient& client, Device& device, oracle::Dims dims, uint64_t seed,
               const std::string& fill, miopenDataType_t type);
  ~MiopenTensor();
  MiopenTensor(const MiopenTensor&) = delete;
  MiopenTensor& operator=(const MiopenTensor&) = delete;

  miopenTensorDescriptor_t desc() const { return desc_; }
  void* data() const { return memory_.data(); }
  const oracle::Dims& dims() const { return memory_.dims(); }
  Dense Before() const { return memory_.Before(); }
  std::string Check(const Dense& expected) const { return memory_.Check(expected, 1); }
  std::string CheckUnchanged() const { return memory_.CheckUnchanged(); }

 private:
  LegacyTensor memory_;
  miopenTensorDescriptor_t desc_ = nullptr;
};

// A call that succeeded, when the device is done with it.
struct Done {
  Done(miopenStatus_t status);  // NOLINT: what calls give
};
struct Outcome {
  Done call;
  std::vector<std::string> errors;
};

// With a handle on the device.
class MiopenTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  std::unique_ptr<MiopenTensor> Tensor(oracle::Dims dims, const std::string& fill = "uniform",
                                       miopenDataType_t type = miopenFloat);
  // A call succeeded, and the checks found nothing: Expect({call, {checks}}). The braces have the
  // call done first.
  static void Expect(const Outcome& outcome);

  std::unique_ptr<Device> device_;
  std::unique_ptr<LegacyClient> client_;
  miopenHandle_t handle_ = nullptr;
  uint64_t seed_ = 0;
};

inline constexpr float kZero = 0, kOne = 1, kHalf = 0.5f, kTwo = 2;
// Factors of results, as calls take them.
struct MiopenFactors {
  float alpha, beta;
};
inline constexpr MiopenFactors kMiopenFactors[] = {{1, 0}, {0.5f, 2}};

}  // namespace kiln::testing
