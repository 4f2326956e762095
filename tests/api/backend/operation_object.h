// Backend descriptors as data: a kind and its attributes, made on a library by `ObjectClient`. For
// tests that ask two libraries the same.
#pragma once

#include <cudnn.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/api/backend/nvidia_client.h"

namespace kiln::testing {

struct ObjectTensor {
  Ints dims;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  Ints strides = {};  // dense where there are none
  int64_t uid = 0;    // 0: one of its own
  bool is_virtual = false, by_value = false;
};
struct Numbers {
  int type;  // cudnnBackendAttributeType_t of CUDNN's numbers and enumerations
  std::vector<double> values;
};

// A descriptor to make: its kind and its attributes, which are tensors, numbers or other
// descriptors.
struct Object;
struct Attribute {
  int name;
  std::variant<ObjectTensor, Numbers, std::vector<Object>> value;
};
struct Object {
  cudnnBackendDescriptorType_t kind;
  std::vector<Attribute> attributes;
};

inline Numbers Int64(double v) { return {CUDNN_TYPE_INT64, {v}}; }
inline Numbers Int32(double v) { return {CUDNN_TYPE_INT32, {v}}; }
inline Numbers Type(cudnnDataType_t type) { return {CUDNN_TYPE_DATA_TYPE, {double(type)}}; }

// The object without an attribute, or with another value of it.
inline Object Without(Object object, int name) {
  std::erase_if(object.attributes, [&](const Attribute& a) { return a.name == name; });
  return object;
}
inline Object With(Object object, Attribute attribute) {
  object = Without(std::move(object), attribute.name);
  object.attributes.push_back(std::move(attribute));
  return object;
}

class ObjectClient {
 public:
  explicit ObjectClient(const Library& library) : lib_(library) {}
  ~ObjectClient() {
    for (Raw raw : made_) lib_.destroy(raw);
  }

  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;  // the first that is no success

  Raw Make(const Object& object) {
    Raw d = Create(object.kind);
    for (const auto& [name, value] : object.attributes) {
      if (status != CUDNN_STATUS_SUCCESS) return d;
      if (const auto* tensor = std::get_if<ObjectTensor>(&value)) {
        Raw t = MakeTensor(*tensor);
        Set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t);
      } else if (const auto* numbers = std::get_if<Numbers>(&value)) {
        SetNumbers(d, name, *numbers);
      } else {
        for (const Object& inner : std::get<std::vector<Object>>(value)) {
          Raw i = Make(inner);
          if (status == CUDNN_STATUS_SUCCESS) Set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &i);
        }
      }
    }
    Finalize(d);
    return d;
  }

  Raw Create(cudnnBackendDescriptorType_t kind) {
    Raw d = nullptr;
    Check(lib_.create(kind, &d));
    if (d != nullptr) made_.push_back(d);
    return d;
  }
  void Set(Raw d, int name, int type, int64_t count, const void* data) {
    if (status != CUDNN_STATUS_SUCCESS) return;
    Check(lib_.set(d, static_cast<cudnnBackendAttributeName_t>(name),
                   static_cast<cudnnBackendAttributeType_t>(type), count, data));
  }
  void Finalize(Raw d) {
    if (status == CUDNN_STATUS_SUCCESS) Check(lib_.finalize(d));
  }

 private:
  void Check(cudnnStatus_t s) {
    if (status == CUDNN_STATUS_SUCCESS) status = s;
  }
  template <class T>
  void SetAs(Raw d, int name, const Numbers& n) {
    const std::vector<T> values(n.values.begin(), n.values.end());
    Set(d, name, n.type, static_cast<int64_t>(values.size()), values.data());
  }
  void SetNumbers(Raw d, int name, const Numbers& n) {
    switch (n.type) {
      case CUDNN_TYPE_INT64:
        return SetAs<int64_t>(d, name, n);
      case CUDNN_TYPE_FLOAT:
        return SetAs<float>(d, name, n);
      case CUDNN_TYPE_DOUBLE:
        return SetAs<double>(d, name, n);
      case CUDNN_TYPE_BOOLEAN:
        return SetAs<char>(d, name, n);
      default:
        return SetAs<int32_t>(d, name, n);  // enumerations too
    }
  }
  Raw MakeTensor(const ObjectTensor& tensor) {
    const auto numbers = [](const Ints& v) {
      return Numbers{CUDNN_TYPE_INT64, std::vector<double>(v.begin(), v.end())};
    };
    Ints strides = tensor.strides;
    if (strides.empty()) {
      strides.assign(tensor.dims.size(), 1);
      for (size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * tensor.dims[i];
    }
    const auto uid = static_cast<double>(tensor.uid != 0 ? tensor.uid : 1000 + ++uid_);
    Object object = {CUDNN_BACKEND_TENSOR_DESCRIPTOR,
                     {{CUDNN_ATTR_TENSOR_UNIQUE_ID, Int64(uid)},
                      {CUDNN_ATTR_TENSOR_DATA_TYPE, Type(tensor.type)},
                      {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, Int64(16)},
                      {CUDNN_ATTR_TENSOR_DIMENSIONS, numbers(tensor.dims)},
                      {CUDNN_ATTR_TENSOR_STRIDES, numbers(strides)}}};
    for (const auto& [is, name] : {std::pair{tensor.is_virtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL},
                                   {tensor.by_value, CUDNN_ATTR_TENSOR_IS_BY_VALUE}})
      if (is) object.attributes.push_back({name, Numbers{CUDNN_TYPE_BOOLEAN, {1}}});
    return Make(object);
  }

  const Library& lib_;
  std::vector<Raw> made_;
  int64_t uid_ = 0;
};

}  // namespace kiln::testing
