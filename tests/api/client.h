// A small client of the backend API for tests: descriptors that destroy themselves, attributes by
// type.
#pragma once

#include <cudnn.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace client {

inline std::string LastError() {
  char text[4096];
  cudnnGetLastErrorString(text, sizeof(text));
  return text;
}

template <class T>
struct TypeOf;
#define KILN_CLIENT_TYPE(T, TAG)      \
  template <>                         \
  struct TypeOf<T> {                  \
    static constexpr auto kTag = TAG; \
  }
KILN_CLIENT_TYPE(int64_t, CUDNN_TYPE_INT64);
KILN_CLIENT_TYPE(int32_t, CUDNN_TYPE_INT32);
KILN_CLIENT_TYPE(bool, CUDNN_TYPE_BOOLEAN);
KILN_CLIENT_TYPE(float, CUDNN_TYPE_FLOAT);
KILN_CLIENT_TYPE(double, CUDNN_TYPE_DOUBLE);
KILN_CLIENT_TYPE(void*, CUDNN_TYPE_VOID_PTR);
KILN_CLIENT_TYPE(char, CUDNN_TYPE_CHAR);
KILN_CLIENT_TYPE(cudnnHandle_t, CUDNN_TYPE_HANDLE);
KILN_CLIENT_TYPE(cudnnDataType_t, CUDNN_TYPE_DATA_TYPE);
KILN_CLIENT_TYPE(cudnnConvolutionMode_t, CUDNN_TYPE_CONVOLUTION_MODE);
KILN_CLIENT_TYPE(cudnnPointwiseMode_t, CUDNN_TYPE_POINTWISE_MODE);
KILN_CLIENT_TYPE(cudnnNanPropagation_t, CUDNN_TYPE_NAN_PROPOGATION);
KILN_CLIENT_TYPE(cudnnBackendHeurMode_t, CUDNN_TYPE_HEUR_MODE);
KILN_CLIENT_TYPE(cudnnBackendKnobType_t, CUDNN_TYPE_KNOB_TYPE);
KILN_CLIENT_TYPE(cudnnReduceTensorOp_t, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE);
KILN_CLIENT_TYPE(cudnnGenStatsMode_t, CUDNN_TYPE_GENSTATS_MODE);
KILN_CLIENT_TYPE(cudnnBackendNumericalNote_t, CUDNN_TYPE_NUMERICAL_NOTE);
KILN_CLIENT_TYPE(cudnnBackendBehaviorNote_t, CUDNN_TYPE_BEHAVIOR_NOTE);
KILN_CLIENT_TYPE(cudnnBackendLayoutType_t, CUDNN_TYPE_LAYOUT_TYPE);
KILN_CLIENT_TYPE(cudnnBackendNormMode_t, CUDNN_TYPE_NORM_MODE);
KILN_CLIENT_TYPE(cudnnBackendNormFwdPhase_t, CUDNN_TYPE_NORM_FWD_PHASE);
KILN_CLIENT_TYPE(cudnnSignalMode_t, CUDNN_TYPE_SIGNAL_MODE);
#undef KILN_CLIENT_TYPE

class Desc {
 public:
  explicit Desc(cudnnBackendDescriptorType_t kind) {
    status_ = cudnnBackendCreateDescriptor(kind, &raw_);
  }
  ~Desc() {
    if (raw_ != nullptr) cudnnBackendDestroyDescriptor(raw_);
  }
  Desc(Desc&& other) noexcept
      : raw_(std::exchange(other.raw_, nullptr)),
        status_(other.status_),
        error_(std::move(other.error_)) {}

  cudnnBackendDescriptor_t raw() const { return raw_; }
  // The first failure of Set and Finalize, with its sentence.
  cudnnStatus_t status() const { return status_; }
  const std::string& error() const { return error_; }

  template <class T>
  Desc& Set(cudnnBackendAttributeName_t name, const std::vector<T>& values) {
    return Note(cudnnBackendSetAttribute(raw_, name, TypeOf<T>::kTag,
                                         static_cast<int64_t>(values.size()), values.data()));
  }
  template <class T>
  Desc& Set(cudnnBackendAttributeName_t name, T value) {
    return Note(cudnnBackendSetAttribute(raw_, name, TypeOf<T>::kTag, 1, &value));
  }
  Desc& Set(cudnnBackendAttributeName_t name, const Desc& value) {
    cudnnBackendDescriptor_t raw = value.raw();
    return Note(cudnnBackendSetAttribute(raw_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw));
  }
  Desc& Set(cudnnBackendAttributeName_t name, std::initializer_list<const Desc*> values) {
    std::vector<cudnnBackendDescriptor_t> raws;
    for (const Desc* value : values) raws.push_back(value->raw());
    return Note(cudnnBackendSetAttribute(raw_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                         static_cast<int64_t>(raws.size()), raws.data()));
  }
  Desc& Finalize() { return Note(cudnnBackendFinalize(raw_)); }

  template <class T>
  cudnnStatus_t Get(cudnnBackendAttributeName_t name, T* value) const {
    return cudnnBackendGetAttribute(raw_, name, TypeOf<T>::kTag, 1, nullptr, value);
  }

 private:
  Desc& Note(cudnnStatus_t status) {
    if (status != CUDNN_STATUS_SUCCESS && status_ == CUDNN_STATUS_SUCCESS) {
      status_ = status;
      error_ = LastError();
    }
    return *this;
  }

  cudnnBackendDescriptor_t raw_ = nullptr;
  cudnnStatus_t status_ = CUDNN_STATUS_SUCCESS;
  std::string error_;
};

inline std::vector<int64_t> Packed(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

struct TensorOptions {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  bool is_virtual = false;
  bool by_value = false;
  int64_t alignment = 16;
};

inline Desc Tensor(int64_t uid, const std::vector<int64_t>& dims, TensorOptions options = {}) {
  Desc t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  t.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, uid)
      .Set(CUDNN_ATTR_TENSOR_DATA_TYPE, options.type)
      .Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, options.alignment)
      .Set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims)
      .Set(CUDNN_ATTR_TENSOR_STRIDES, Packed(dims))
      .Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, options.is_virtual)
      .Set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, options.by_value)
      .Finalize();
  return t;
}

inline Desc Convolution(int64_t spatial_dims, int64_t padding = 0, int64_t stride = 1) {
  auto all = [&](int64_t v) { return std::vector<int64_t>(static_cast<size_t>(spatial_dims), v); };
  Desc c(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  c.Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, spatial_dims)
      .Set(CUDNN_ATTR_CONVOLUTION_DILATIONS, all(1))
      .Set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, all(stride))
      .Set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, all(padding))
      .Set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, all(padding))
      .Finalize();
  return c;
}

inline Desc ConvForward(const Desc& x, const Desc& w, const Desc& y, const Desc& convolution,
                        float beta = 0) {
  Desc op(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  op.Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x)
      .Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w)
      .Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y)
      .Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution)
      .Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0f)
      .Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, beta)
      .Finalize();
  return op;
}

// The parameters' descriptor dies before the operation is returned, as frontends do it.
inline Desc Pointwise(cudnnPointwiseMode_t mode, const Desc& x, const Desc* b, const Desc& y) {
  Desc parameters(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  parameters.Set(CUDNN_ATTR_POINTWISE_MODE, mode)
      .Set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)
      .Finalize();
  Desc op(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  op.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, parameters)
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  if (b != nullptr) op.Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  op.Finalize();
  return op;
}

inline Desc Graph(cudnnHandle_t handle, std::initializer_list<const Desc*> operations) {
  Desc graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (handle != nullptr) graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations).Finalize();
  return graph;
}

inline Desc Heuristics(const Desc& graph, cudnnBackendHeurMode_t mode) {
  Desc heur(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heur.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .Set(CUDNN_ATTR_ENGINEHEUR_MODE, mode)
      .Finalize();
  return heur;
}

// Configurations of heuristics, the count asked for first; none where asking fails.
inline std::vector<Desc> Results(const Desc& heur) {
  const auto get = [&](int64_t requested, int64_t& count, cudnnBackendDescriptor_t* raws) {
    return cudnnBackendGetAttribute(heur.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, requested, &count, raws);
  };
  int64_t count = 0, written = 0;
  if (get(0, count, nullptr) != CUDNN_STATUS_SUCCESS) return {};
  std::vector<Desc> configs;
  std::vector<cudnnBackendDescriptor_t> raws;
  for (int64_t i = 0; i < count; ++i)
    raws.push_back(configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).raw());
  const bool got = get(count, written, raws.data()) == CUDNN_STATUS_SUCCESS && written == count;
  return got ? std::move(configs) : std::vector<Desc>();
}

inline Desc Plan(cudnnHandle_t handle, const Desc& config) {
  Desc plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (handle != nullptr) plan.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle);
  plan.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config).Finalize();
  return plan;
}

inline Desc Pack(const std::vector<int64_t>& uids, const std::vector<void*>& pointers,
                 void* workspace) {
  Desc pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, uids)
      .Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers)
      .Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
      .Finalize();
  return pack;
}

}  // namespace client
