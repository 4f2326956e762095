// A call of the legacy API, ready to be made again and again on one library: what bench/legacy
// times.
#pragma once

#include <cudnn.h>

#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/client.h"
#include "tests/support/device_memory.h"
#include "tests/support/oracle/tensor.h"

namespace kiln::bench {

using oracle::Dims;

// A tensor of a call, without gaps.
struct Shape {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  Dims dims = {};
  bool channels_last = false;

  int64_t Count() const { return oracle::Count(dims); }
  size_t Bytes() const;
};

oracle::DType ElementOf(cudnnDataType_t type);

// A sample of what a call wrote, by the name of the memory.
struct Sample {
  std::string name;
  size_t element_bytes;
  std::vector<double> values;
};

// Device memory that both libraries' calls share.
class CallMemory {
 public:
  explicit CallMemory(testing::GpuDevice& device) : device_(device) {}

  enum class Role : uint8_t {
    kIn,
    kOut,
    kBoth,
    kAside,  // does not count: a call could do without it, or it is made beforehand
  };
  struct Region {
    std::string name;
    Shape shape;
    Role role;
    double low, high;  // of random numbers
    testing::Buffer buffer;
  };
  // The memory of a name, which is the same for each library that asks. Memory that is only written
  // is poisoned.
  void* Get(const std::string& name, const Shape& shape, Role role, double low, double high);
  void Reset();
  // Bytes that a call must move: each input once, each output once.
  int64_t Bytes() const;
  std::vector<Sample> Results() const;
  bool ok() const { return ok_; }

 private:
  void Fill(const Region& region);

  testing::GpuDevice& device_;
  std::deque<Region> regions_;
  bool ok_ = true;
};

// Descriptors and memory that a call is made with on one library. The first failure stays.
class CallSetup {
 public:
  CallSetup(const testing::Cudnn& cudnn, testing::GpuDevice& device, CallMemory& memory);
  ~CallSetup();
  CallSetup(const CallSetup&) = delete;
  CallSetup& operator=(const CallSetup&) = delete;

  cudnnHandle_t handle() const { return cudnn_.handle(); }
  const std::string& error() const { return error_; }

  // A function of the library, of whatever type the header has it.
  template <class F>
  F* Find(const char* name) {
    return reinterpret_cast<F*>(Symbol(name));
  }
  // A call beside the one that is timed.
  template <class F, class... Args>
  void Do(const char* name, Args... args) {
    F* const function = Find<F>(name);
    if (error_.empty()) Check(function(args...), name);
  }
  // A descriptor that lives as long as this.
  template <class D>
  D New(const std::string& kind) {
    D object = nullptr;
    Do<cudnnStatus_t(D*)>(("cudnnCreate" + kind + "Descriptor").c_str(), &object);
    auto* const destroy = Find<cudnnStatus_t(D)>(("cudnnDestroy" + kind + "Descriptor").c_str());
    if (error_.empty()) undo_.push_back([destroy, object] { destroy(object); });
    return object;
  }
  cudnnTensorDescriptor_t Tensor(const Shape& shape);

  void* In(const std::string& name, const Shape& shape, double low = -1, double high = 1) {
    return memory_.Get(name, shape, CallMemory::Role::kIn, low, high);
  }
  void* Out(const std::string& name, const Shape& shape) {
    return memory_.Get(name, shape, CallMemory::Role::kOut, 0, 0);
  }
  void* Both(const std::string& name, const Shape& shape, double low = -1, double high = 1) {
    return memory_.Get(name, shape, CallMemory::Role::kBoth, low, high);
  }
  void* Aside(const std::string& name, const Shape& shape, double low = -1, double high = 1) {
    return memory_.Get(name, shape, CallMemory::Role::kAside, low, high);
  }
  // Memory of this library alone: workspaces and what it keeps from call to call.
  void* Own(size_t bytes);
  // Integers of the call: lengths and labels.
  const int* Given(const std::vector<int>& values);

  const float* one() const { return &kOne; }
  const float* zero() const { return &kZero; }

 private:
  static constexpr float kOne = 1, kZero = 0;

  void* Symbol(const char* name);
  void Check(cudnnStatus_t status, const char* call);

  const testing::Cudnn& cudnn_;
  testing::GpuDevice& device_;
  CallMemory& memory_;
  void* library_;
  std::string error_;
  std::deque<testing::Buffer> buffers_;
  std::vector<std::function<void()>> undo_;
};

// Makes a helper call; finds a function. Macros, since a name and its type are wanted at once.
#define KILN_DO(setup, function, ...) (setup).Do<decltype(function)>(#function, __VA_ARGS__)
#define KILN_FIND(setup, function) (setup).Find<decltype(function)>(#function)

using Launch = std::function<cudnnStatus_t()>;

struct LegacyCall {
  std::string name;  // family/what
  std::function<Launch(CallSetup&)> make;
  bool is_random = false;  // then the share of zeroes is compared
  // Factor on the differences that count: sums of millions that nearly cancel have few right
  // digits, in NVIDIA's library fewer than in ours.
  double tolerance = 1;
};

// The difference of what two libraries made of the same, in words; empty for none that counts.
std::string Difference(const std::vector<Sample>& ours, const std::vector<Sample>& theirs,
                       const LegacyCall& call);

std::vector<LegacyCall> LegacyCalls();
// The parts of it.
std::vector<LegacyCall> WindowCalls();
std::vector<LegacyCall> NormCalls();
std::vector<LegacyCall> TensorCalls();
std::vector<LegacyCall> SpatialCalls();

}  // namespace kiln::bench
