// Checker: checks that a plan computed what it should, before it is timed.
//
// Every output is downloaded whole. It must hold no poison, about 64 of its elements must be what
// the sampled oracle says, and it must agree with the first result that was right, element by
// element, within what the oracle allows for the samples. Where two results disagree the oracle is
// asked about the element that they disagree on most, so that the right one of them is blamed.
#pragma once

#include <string>
#include <vector>

#include "bench/contract/oracle.h"

namespace kiln::bench {

// Page-locked host memory that grows.
class HostBuffer {
 public:
  explicit HostBuffer(testing::GpuDevice& device) : device_(&device) {}
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  ~HostBuffer();
  uint8_t* AtLeast(size_t bytes);  // null when memory is out
  uint8_t* data() const { return data_; }
  void Swap(HostBuffer& other);

 private:
  testing::GpuDevice* device_;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

struct CheckBuffers {
  explicit CheckBuffers(testing::GpuDevice& device) : actual(device), reference(device) {}
  HostBuffer actual, reference;
};

// Elements of one output and what they must be.
struct Sample {
  oracle::Dims index;
  oracle::Value expected;
};

// Two tensors of n elements: the element that is farthest off, measured in what is allowed.
struct Distance {
  double ratio = 0;  // above 1: too far, or a NaN in `actual`
  int64_t element = -1;
};
Distance Farthest(oracle::DType type, const uint8_t* actual, const uint8_t* reference,
                  int64_t count, double allowed);
// The first NaN, or -1.
int64_t FindNan(oracle::DType type, const uint8_t* values, int64_t count);

class Checker {
 public:
  // Bounds of our results and of others'.
  static constexpr double kOurs = 4, kOthers = 16;

  Checker(testing::GpuDevice& device, CheckBuffers& buffers, const Problem& problem,
          const ProblemData& data);

  // The outputs in memory: empty when they are right, else a sentence. `reference_is_wrong` gets
  // one where it is the earlier result that is wrong. The first right result becomes the reference.
  std::string Check(const ProblemMemory& memory, double scale, std::string* reference_is_wrong);
  bool has_samples() const;

 private:
  struct Output {
    int tensor = -1;
    int64_t begin = 0, bytes = 0;  // in the buffers
    std::vector<Sample> samples;
    double largest_error = 0;  // of the samples, before the scale
  };
  void MakeSamples(Output& output);
  const testing::CaseTensor& TensorOf(const Output& output) const {
    return problem_.graph.tensors[static_cast<size_t>(output.tensor)];
  }
  std::string CheckOutput(const Output& output, double scale, std::string* reference_is_wrong);
  std::string CheckElement(const Output& output, const uint8_t* bytes, const Sample& sample,
                           double scale) const;
  // Root mean square of the samples' errors over that of their values.
  double RelativeError(const Output& output) const;
  std::string Adjudicate(const Output& output, int64_t element, double scale,
                         std::string* reference_is_wrong) const;

  testing::GpuDevice& device_;
  CheckBuffers& buffers_;
  const Problem& problem_;
  SampleOracle oracle_;
  std::vector<Output> outputs_;
  int64_t total_bytes_ = 0;
  bool has_reference_ = false;
};

}  // namespace kiln::bench
