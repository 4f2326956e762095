// Parts that the example programs share: calls that must succeed, memory where cuDNN computes,
// descriptors that destroy themselves, and random numbers that are the same everywhere.
//
// Memory is the host's where Kiln runs on the CPU (KILN_DEVICE=cpu, or no GPU), else the first
// GPU's. The CUDA driver is opened at run time, so that one binary serves both and needs no CUDA
// toolkit to be built.
#pragma once

#include <cudnn.h>
#include <dlfcn.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace example {

[[noreturn]] inline void Fail(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}

// CHECK(cudnnCreate(&handle)): the call succeeds, or the program ends with what the library says
// about it.
inline void Check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char sentence[512] = "";
#if CUDNN_MAJOR >= 9
  cudnnGetLastErrorString(sentence, sizeof(sentence));
#endif
  Fail(std::string(call) + ": " + cudnnGetErrorString(status) + "\n" + sentence);
}
#define CHECK(call) ::example::Check(call, #call)

// The device where the library computes. One object a program, made before cudnnCreate: it makes
// the GPU's context current.
class Device {
 public:
  Device() {
    const char* wanted = std::getenv("KILN_DEVICE");
    if (wanted != nullptr && std::strcmp(wanted, "cpu") == 0) return;
    const std::string error = OpenGpu();
    if (error.empty()) return;
    if (wanted != nullptr && std::strcmp(wanted, "cuda") == 0) Fail(error);
    setenv("KILN_DEVICE", "cpu", 1);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }

  void* Allocate(size_t bytes) const {
    void* memory = nullptr;
    bytes = (bytes + kAlignment) / kAlignment * kAlignment;
    if (!is_gpu_) {
      memory = std::aligned_alloc(kAlignment, bytes);
    } else if (cuMemAlloc_v2(&memory, bytes) != 0) {
      memory = nullptr;
    }
    if (memory == nullptr) Fail(name_ + " has no " + std::to_string(bytes) + " bytes left");
    return memory;
  }
  void Free(void* memory) const {
    if (is_gpu_) {
      Must(cuMemFree_v2(memory), "cuMemFree");
    } else {
      std::free(memory);
    }
  }
  // Copies wait for everything that was launched before: the handle uses the default stream.
  void CopyIn(void* device, const void* host, size_t bytes) const {
    if (is_gpu_) {
      Must(cuMemcpyHtoD_v2(device, host, bytes), "cuMemcpyHtoD");
    } else {
      std::memcpy(device, host, bytes);
    }
  }
  void CopyOut(void* host, const void* device, size_t bytes) const {
    if (is_gpu_) {
      Must(cuMemcpyDtoH_v2(host, device, bytes), "cuMemcpyDtoH");
    } else {
      std::memcpy(host, device, bytes);
    }
  }
  void Synchronize() const {
    if (is_gpu_) Must(cuCtxSynchronize(), "cuCtxSynchronize");
  }

 private:
  static constexpr size_t kAlignment = 256;

  // The driver's functions, with pointers for CUdeviceptr, which is an integer of the same size.
  std::string OpenGpu() {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == nullptr) return dlerror();
    int (*cuInit)(unsigned), (*cuDeviceGetName)(char*, int, int), (*cuCtxSetCurrent)(void*),
        (*cuDevicePrimaryCtxRetain)(void**, int);
    const auto find = [&](const char* symbol, auto& function) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(driver, symbol));
      return function != nullptr;
    };
    if (!find("cuInit", cuInit) || !find("cuDeviceGetName", cuDeviceGetName) ||
        !find("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain) ||
        !find("cuCtxSetCurrent", cuCtxSetCurrent) || !find("cuMemAlloc_v2", cuMemAlloc_v2) ||
        !find("cuMemFree_v2", cuMemFree_v2) || !find("cuMemcpyHtoD_v2", cuMemcpyHtoD_v2) ||
        !find("cuMemcpyDtoH_v2", cuMemcpyDtoH_v2) || !find("cuCtxSynchronize", cuCtxSynchronize))
      return "libcuda.so.1 lacks a function";
    void* context = nullptr;
    char name[256] = "";
    if (cuInit(0) != 0) return "the CUDA driver finds no GPU";
    if (cuDevicePrimaryCtxRetain(&context, 0) != 0 || cuCtxSetCurrent(context) != 0)
      return "the GPU gives no context";
    cuDeviceGetName(name, sizeof(name), 0);
    name_ = name;
    is_gpu_ = true;
    return "";
  }
  static void Must(int result, const char* call) {
    if (result != 0) Fail(std::string(call) + " failed with " + std::to_string(result));
  }

  bool is_gpu_ = false;
  std::string name_ = "the CPU";
  int (*cuMemAlloc_v2)(void**, size_t) = nullptr;
  int (*cuMemFree_v2)(void*) = nullptr;
  int (*cuMemcpyHtoD_v2)(void*, const void*, size_t) = nullptr;
  int (*cuMemcpyDtoH_v2)(void*, const void*, size_t) = nullptr;
  int (*cuCtxSynchronize)() = nullptr;
};

// Numbers in the device's memory.
template <class T>
class Array {
 public:
  Array(const Device& device, size_t size)
      : device_(&device), size_(size), data_(device.Allocate(size * sizeof(T))) {}
  Array(const Device& device, const std::vector<T>& values) : Array(device, values.size()) {
    Set(values);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { device_->Free(data_); }

  void* data() const { return data_; }
  size_t size() const { return size_; }
  void Set(const std::vector<T>& values) {
    if (values.size() != size_) Fail("an array gets values of another number");
    device_->CopyIn(data_, values.data(), size_ * sizeof(T));
  }
  std::vector<T> Get() const {
    std::vector<T> values(size_);
    device_->CopyOut(values.data(), data_, size_ * sizeof(T));
    return values;
  }

 private:
  const Device* device_;
  size_t size_;
  void* data_;
};

// Scratch memory, which every call may use in turn: it grows to what the greediest asks for.
class Workspace {
 public:
  explicit Workspace(const Device& device) : device_(&device) {}
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    if (data_ != nullptr) device_->Free(data_);
  }
  void Grow(size_t bytes) {
    if (bytes <= bytes_) return;
    if (data_ != nullptr) device_->Free(data_);
    data_ = device_->Allocate(bytes);
    bytes_ = bytes;
  }
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  const Device* device_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Descriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>
template <class T, auto create, auto destroy>
class Descriptor {
 public:
  Descriptor() { Check(create(&handle_), "creating a descriptor"); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { destroy(handle_); }
  operator T() const { return handle_; }  // as the C functions take it

 private:
  T handle_ = nullptr;
};
using Handle = Descriptor<cudnnHandle_t, cudnnCreate, cudnnDestroy>;
using FilterDescriptor =
    Descriptor<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor>;
using ConvolutionDescriptor =
    Descriptor<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor,
               cudnnDestroyConvolutionDescriptor>;
using PoolingDescriptor = Descriptor<cudnnPoolingDescriptor_t, cudnnCreatePoolingDescriptor,
                                     cudnnDestroyPoolingDescriptor>;
using ActivationDescriptor =
    Descriptor<cudnnActivationDescriptor_t, cudnnCreateActivationDescriptor,
               cudnnDestroyActivationDescriptor>;

// Seconds since it was made.
class Clock {
 public:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

struct Shape {
  int n, c, h, w;
  size_t size() const { return size_t(n) * c * h * w; }
};

// A dense NCHW tensor of floats: descriptor and memory.
class Tensor {
 public:
  Tensor(const Device& device, Shape shape) : shape_(shape), array_(device, shape.size()) {
    CHECK(cudnnSetTensor4dDescriptor(desc_, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, shape.n, shape.c,
                                     shape.h, shape.w));
  }
  cudnnTensorDescriptor_t desc() const { return desc_; }
  void* data() const { return array_.data(); }
  const Shape& shape() const { return shape_; }
  void Set(const std::vector<float>& values) { array_.Set(values); }
  std::vector<float> Get() const { return array_.Get(); }

 private:
  Shape shape_;
  Descriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>
      desc_;
  Array<float> array_;
};

// SplitMix64: small, and the same numbers with every standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  int Below(int n) { return int(Next() % uint64_t(n)); }
  float Uniform(float low, float high) {
    return low + (high - low) * float(Next() >> 40) * 0x1p-24f;
  }
  // The sum of uniform numbers is nearly normal; its variance here is 1.
  float Normal() {
    float sum = 0;
    for (int i = 0; i < 12; ++i) sum += Uniform(-0.5f, 0.5f);
    return sum;
  }
  std::vector<float> Normals(size_t count, float deviation) {
    std::vector<float> values(count);
    for (float& value : values) value = deviation * Normal();
    return values;
  }

 private:
  uint64_t state_;
};

}  // namespace example
