// kiln/miopen.h on the public interface of libcudnn.so.9: what its handles and descriptors are, and
// what all of its functions have in common. A tensor descriptor is also a filter's, as MIOpen has
// no other.
#pragma once

#include <kiln/miopen.h>

#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <vector>

#define KILN_EXPORT __attribute__((visibility("default")))

namespace kiln::miopen {

class Plan;  // an activation's (activation_plan.h)

// A cudnn object that lives as long as the descriptor that has it.
template <class T, auto create, auto destroy>
class Object {
 public:
  Object() : status_(create(&object_)) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  ~Object() {
    if (status_ == CUDNN_STATUS_SUCCESS) destroy(object_);
  }
  cudnnStatus_t status() const { return status_; }
  operator T() const { return object_; }

 private:
  T object_ = nullptr;
  cudnnStatus_t status_;
};

}  // namespace kiln::miopen

struct miopenHandle {
  kiln::miopen::Object<cudnnHandle_t, cudnnCreate, cudnnDestroy> object;
  std::map<std::vector<uint64_t>, std::unique_ptr<kiln::miopen::Plan>> plans;
  miopenHandle();
  ~miopenHandle();
};

struct miopenTensorDescriptor {
  kiln::miopen::Object<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor,
                       cudnnDestroyTensorDescriptor>
      object;
  kiln::miopen::Object<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor,
                       cudnnDestroyFilterDescriptor>
      filter;
  miopenDataType_t type = miopenFloat;
  int dims[4] = {};  // 0: not set
  size_t Elements() const { return size_t(dims[0]) * dims[1] * dims[2] * dims[3]; }
};

struct miopenConvolutionDescriptor {
  kiln::miopen::Object<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor,
                       cudnnDestroyConvolutionDescriptor>
      object;
  miopenConvolutionMode_t mode = miopenConvolution;
  int pad[2] = {}, stride[2] = {1, 1}, dilation[2] = {1, 1};
};

struct miopenPoolingDescriptor {
  kiln::miopen::Object<cudnnPoolingDescriptor_t, cudnnCreatePoolingDescriptor,
                       cudnnDestroyPoolingDescriptor>
      object;
  miopenPoolingMode_t mode = miopenPoolingMax;
  int window[2] = {}, pad[2] = {}, stride[2] = {};
};

struct miopenLRNDescriptor {
  kiln::miopen::Object<cudnnLRNDescriptor_t, cudnnCreateLRNDescriptor, cudnnDestroyLRNDescriptor>
      object;
  miopenLRNMode_t mode = miopenLRNCrossChannel;
  unsigned n = 0;
  double alpha = 0, beta = 0, k = 0;
};

struct miopenActivationDescriptor {
  miopenActivationMode_t mode = miopenActivationPASTHRU;
  double alpha = 0, beta = 0, power = 0;
};

namespace kiln::miopen {

miopenStatus_t StatusOf(cudnnStatus_t status);
inline miopenStatus_t StatusOf(miopenStatus_t status) { return status; }

// The types that tensors may have.
std::optional<cudnnDataType_t> TypeOf(miopenDataType_t type);

inline bool IsSet(const miopenTensorDescriptor& tensor) { return tensor.dims[0] > 0; }
inline bool IsThere(const void* pointer) { return pointer != nullptr; }
inline bool IsThere(const miopenTensorDescriptor* tensor) {
  return tensor != nullptr && IsSet(*tensor);
}

// Call is what every function runs inside: pointers that it needs are there and tensors set, else
// the parameter is bad; what its body answers is told as MIOpen tells it; no exception leaves.
template <class Body, class... Pointers>
miopenStatus_t Call(Body&& body, const Pointers*... needed) noexcept {
  if (!(IsThere(needed) && ...)) return miopenStatusBadParm;
  try {
    return StatusOf(body());
  } catch (const std::bad_alloc&) {
    return miopenStatusAllocFailed;
  } catch (...) {
    return miopenStatusUnknownError;
  }
}

// Creates and destroys descriptors, and handles.
template <class T>
miopenStatus_t Create(T** result) noexcept {
  return Call(
      [&] {
        auto made = std::make_unique<T>();
        if constexpr (requires { made->object; }) {
          if (made->object.status() != CUDNN_STATUS_SUCCESS) return StatusOf(made->object.status());
        }
        *result = made.release();
        return miopenStatusSuccess;
      },
      result);
}
template <class T>
miopenStatus_t Destroy(T* object) noexcept {
  if (object == nullptr) return miopenStatusBadParm;
  delete object;
  return miopenStatusSuccess;
}

// The number that a program passed for an enumeration, which may be none of its constants.
template <class E>
bool IsBelow(E value, int end) {
  const auto number = static_cast<std::underlying_type_t<E>>(value);
  return number >= 0 && static_cast<long long>(number) < end;
}

}  // namespace kiln::miopen
