#include "api/miopen/activation_plan.h"

#include <bit>

namespace kiln::miopen {
namespace {

using Descriptor = cudnnBackendDescriptor_t;
using Operands = std::vector<Descriptor>;

enum Uid : int64_t { kX = 1, kDy, kResult, kPrior, kAlpha, kBeta, kFirstInner };

struct Attribute {
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t count;
  const void* values;
};

// A finalised descriptor, kept in `made` for whoever destroys it.
cudnnStatus_t Make(std::vector<Descriptor>& made, cudnnBackendDescriptorType_t type,
                   const std::vector<Attribute>& attributes) {
  Descriptor descriptor = nullptr;
  cudnnStatus_t status = cudnnBackendCreateDescriptor(type, &descriptor);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  made.push_back(descriptor);
  for (const Attribute& a : attributes) {
    status = cudnnBackendSetAttribute(descriptor, a.name, a.type, a.count, a.values);
    if (status != CUDNN_STATUS_SUCCESS) return status;
  }
  return cudnnBackendFinalize(descriptor);
}

struct Parameters {
  double relu_upper = -1, relu_slope = 0, elu_alpha = 1;
};

// Builds the operations. After the first failure nothing more is made, and `status` has it.
class Builder {
 public:
  Builder(const Activation& activation, std::vector<Descriptor>& made)
      : activation_(activation), made_(made) {}

  cudnnStatus_t status() const { return status_; }
  const Operands& operations() const { return operations_; }
  const std::vector<std::pair<int64_t, float>>& constants() const { return constants_; }

  // The client's, as large as x; one value of the client's; one that is always the same.
  Descriptor Memory(int64_t uid) {
    return Tensor(uid, *TypeOf(activation_.type), activation_.dims, false, false);
  }
  Descriptor Scalar(int64_t uid) {
    constexpr int kOne[] = {1, 1, 1, 1};
    return Tensor(uid, CUDNN_DATA_FLOAT, kOne, false, true);
  }
  Descriptor Constant(double value) {
    constants_.emplace_back(next_, static_cast<float>(value));
    return Scalar(next_++);
  }

  Descriptor Apply(cudnnPointwiseMode_t mode, const Operands& operands,
                   const Parameters& parameters = {}) {
    const bool is_condition = mode == CUDNN_POINTWISE_CMP_GT;
    const Descriptor y = Tensor(next_++, is_condition ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT,
                                activation_.dims, true, false);
    Write(mode, operands, y, parameters);
    return y;
  }
  // Backward modes have dy before x; a selection its condition last.
  void Write(cudnnPointwiseMode_t mode, const Operands& operands, Descriptor y,
             const Parameters& parameters = {}) {
    const Descriptor pointwise = Mode(mode, parameters);
    const bool is_backward =
        mode >= CUDNN_POINTWISE_RELU_BWD && mode <= CUDNN_POINTWISE_GELU_APPROX_TANH_BWD;
    constexpr cudnnBackendAttributeName_t kForward[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                                        CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                                        CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
    constexpr cudnnBackendAttributeName_t kBackward[] = {CUDNN_ATTR_OPERATION_POINTWISE_DYDESC,
                                                         CUDNN_ATTR_OPERATION_POINTWISE_XDESC};
    std::vector<Attribute> attributes = {
        Reference(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise)};
    for (size_t i = 0; i < operands.size(); ++i)
      attributes.push_back(Reference(is_backward ? kBackward[i] : kForward[i], operands[i]));
    attributes.push_back(Reference(
        is_backward ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
        y));
    operations_.push_back(Add(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, attributes));
  }

 private:
  static Attribute Reference(cudnnBackendAttributeName_t name, const Descriptor& descriptor) {
    return {name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &descriptor};
  }
  Descriptor Add(cudnnBackendDescriptorType_t type, const std::vector<Attribute>& attributes) {
    if (status_ == CUDNN_STATUS_SUCCESS) status_ = Make(made_, type, attributes);
    return status_ == CUDNN_STATUS_SUCCESS ? made_.back() : nullptr;
  }
  Descriptor Mode(cudnnPointwiseMode_t mode, const Parameters& p) {
    constexpr cudnnDataType_t kFloat = CUDNN_DATA_FLOAT;
    std::vector<Attribute> attributes = {
        {CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode},
        {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &kFloat},
        {CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, CUDNN_TYPE_DOUBLE, 1, &p.relu_slope},
        {CUDNN_ATTR_POINTWISE_ELU_ALPHA, CUDNN_TYPE_DOUBLE, 1, &p.elu_alpha}};
    if (p.relu_upper >= 0)
      attributes.push_back(
          {CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, CUDNN_TYPE_DOUBLE, 1, &p.relu_upper});
    return Add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, attributes);
  }
  Descriptor Tensor(int64_t uid, cudnnDataType_t type, const int (&extents)[4], bool is_virtual,
                    bool is_by_value) {
    int64_t dims[4], strides[4], stride = 1;
    for (int d = 4; d-- > 0; stride *= extents[d]) dims[d] = extents[d], strides[d] = stride;
    const int64_t alignment = activation_.aligned ? 16 : activation_.type == miopenFloat ? 4 : 2;
    return Add(CUDNN_BACKEND_TENSOR_DESCRIPTOR,
               {{CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid},
                {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
                {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims},
                {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides},
                {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
                {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual},
                {CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_by_value}});
  }

  const Activation& activation_;
  std::vector<Descriptor>& made_;
  cudnnStatus_t status_ = CUDNN_STATUS_SUCCESS;
  Operands operations_;
  int64_t next_ = kFirstInner;
  std::vector<std::pair<int64_t, float>> constants_;
};

// (alpha + beta * x) ^ power, times `factor`; 0 where the base is not positive.
Descriptor Power(Builder& b, const Activation& a, Descriptor x, double power, double factor) {
  const Descriptor scaled = b.Apply(CUDNN_POINTWISE_MUL, {x, b.Constant(a.beta)});
  const Descriptor base = b.Apply(CUDNN_POINTWISE_ADD, {scaled, b.Constant(a.alpha)});
  const Descriptor raised = b.Apply(CUDNN_POINTWISE_POW, {base, b.Constant(power)});
  const Descriptor value = b.Apply(CUDNN_POINTWISE_MUL, {raised, b.Constant(factor)});
  const Descriptor is_positive = b.Apply(CUDNN_POINTWISE_CMP_GT, {base, b.Constant(0)});
  const Descriptor nothing = b.Apply(CUDNN_POINTWISE_SUB, {x, x});
  return b.Apply(CUDNN_POINTWISE_BINARY_SELECT, {value, nothing, is_positive});
}

Descriptor Forward(Builder& b, const Activation& a, Descriptor x) {
  switch (a.mode) {
    case miopenActivationPASTHRU:
      return x;
    case miopenActivationLOGISTIC:
      return b.Apply(CUDNN_POINTWISE_SIGMOID_FWD, {x});
    case miopenActivationTANH: {
      const Descriptor argument = b.Apply(CUDNN_POINTWISE_MUL, {x, b.Constant(a.alpha)});
      return b.Apply(CUDNN_POINTWISE_MUL,
                     {b.Apply(CUDNN_POINTWISE_TANH_FWD, {argument}), b.Constant(a.beta)});
    }
    case miopenActivationRELU:
      return b.Apply(CUDNN_POINTWISE_RELU_FWD, {x});
    case miopenActivationSOFTRELU:
      return b.Apply(CUDNN_POINTWISE_SOFTPLUS_FWD, {x});
    case miopenActivationABS:
      return b.Apply(CUDNN_POINTWISE_ABS, {x});
    case miopenActivationPOWER:
      return Power(b, a, x, a.power, 1);
    case miopenActivationCLIPPEDRELU:
      return b.Apply(CUDNN_POINTWISE_RELU_FWD, {x}, {.relu_upper = a.alpha});
    case miopenActivationLEAKYRELU:
      return b.Apply(CUDNN_POINTWISE_RELU_FWD, {x}, {.relu_slope = a.alpha});
    case miopenActivationELU:
      return b.Apply(CUDNN_POINTWISE_ELU_FWD, {x}, {.elu_alpha = a.alpha});
  }
  return nullptr;
}

Descriptor Backward(Builder& b, const Activation& a, Descriptor dy, Descriptor x) {
  switch (a.mode) {
    case miopenActivationPASTHRU:
      return dy;
    case miopenActivationLOGISTIC:
      return b.Apply(CUDNN_POINTWISE_SIGMOID_BWD, {dy, x});
    case miopenActivationTANH: {
      const Descriptor argument = b.Apply(CUDNN_POINTWISE_MUL, {x, b.Constant(a.alpha)});
      return b.Apply(CUDNN_POINTWISE_MUL, {b.Apply(CUDNN_POINTWISE_TANH_BWD, {dy, argument}),
                                           b.Constant(a.alpha * a.beta)});
    }
    case miopenActivationRELU:
      return b.Apply(CUDNN_POINTWISE_RELU_BWD, {dy, x});
    case miopenActivationSOFTRELU:
      return b.Apply(CUDNN_POINTWISE_SOFTPLUS_BWD, {dy, x});
    case miopenActivationABS:
      return b.Apply(CUDNN_POINTWISE_RELU_BWD, {dy, x}, {.relu_slope = -1});
    case miopenActivationPOWER:
      return b.Apply(CUDNN_POINTWISE_MUL, {dy, Power(b, a, x, a.power - 1, a.power * a.beta)});
    case miopenActivationCLIPPEDRELU:
      return b.Apply(CUDNN_POINTWISE_RELU_BWD, {dy, x}, {.relu_upper = a.alpha});
    case miopenActivationLEAKYRELU:
      return b.Apply(CUDNN_POINTWISE_RELU_BWD, {dy, x}, {.relu_slope = a.alpha});
    case miopenActivationELU:
      return b.Apply(CUDNN_POINTWISE_ELU_BWD, {dy, x}, {.elu_alpha = a.alpha});
  }
  return nullptr;
}

void Build(Builder& b, const Activation& a) {
  const Descriptor x = b.Memory(kX);
  Descriptor value = a.backward ? Backward(b, a, b.Memory(kDy), x) : Forward(b, a, x);
  if (a.scaled) value = b.Apply(CUDNN_POINTWISE_MUL, {value, b.Scalar(kAlpha)});
  if (a.blended) {
    const Descriptor kept = b.Apply(CUDNN_POINTWISE_MUL, {b.Memory(kPrior), b.Scalar(kBeta)});
    value = b.Apply(CUDNN_POINTWISE_ADD, {value, kept});
  }
  b.Write(CUDNN_POINTWISE_IDENTITY, {value}, b.Memory(kResult));
}

}  // namespace

std::vector<uint64_t> Activation::Key() const {
  std::vector<uint64_t> key;
  for (const double parameter : {alpha, beta, power})
    key.push_back(std::bit_cast<uint64_t>(parameter));
  for (const int number : {int(mode), int(backward), int(scaled), int(blended), int(aligned),
                           int(type), dims[0], dims[1], dims[2], dims[3]})
    key.push_back(static_cast<uint64_t>(number));
  return key;
}

Plan::~Plan() {
  for (size_t i = made_.size(); i-- > 0;) cudnnBackendDestroyDescriptor(made_[i]);
}

// The heuristics' first configuration.
cudnnStatus_t Plan::Choose(cudnnHandle_t handle, Descriptor graph) {
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  cudnnStatus_t status = miopen::Make(
      made_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
      {{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph},
       {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode}});
  if (status != CUDNN_STATUS_SUCCESS) return status;
  const Descriptor heuristics = made_.back();
  Descriptor first = nullptr;
  status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &first);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  made_.push_back(first);
  int64_t count = 0;
  status = cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &first);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  return miopen::Make(
      made_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
      {{CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle},
       {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &first}});
}

cudnnStatus_t Plan::Make(cudnnHandle_t handle, const Activation& activation) {
  activation_ = activation;
  Builder builder(activation_, made_);
  Build(builder, activation_);
  if (builder.status() != CUDNN_STATUS_SUCCESS) return builder.status();
  constants_ = builder.constants();
  const Operands& operations = builder.operations();
  const cudnnStatus_t status =
      miopen::Make(made_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
                   {{CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle},
                    {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                     static_cast<int64_t>(operations.size()), operations.data()}});
  return status == CUDNN_STATUS_SUCCESS ? Choose(handle, made_.back()) : status;
}

cudnnStatus_t Plan::Run(cudnnHandle_t handle, const void* x, const void* dy, void* result,
                        const float* alpha, const float* beta) {
  std::vector<int64_t> uids = {kResult};
  std::vector<const void*> pointers = {result};
  const auto add = [&](int64_t uid, const void* pointer) {
    uids.push_back(uid);
    pointers.push_back(pointer);
  };
  const bool reads_x = !activation_.backward || activation_.mode != miopenActivationPASTHRU;
  if (reads_x) add(kX, x);
  if (activation_.backward) add(kDy, dy);
  if (activation_.scaled) add(kAlpha, alpha);
  if (activation_.blended) {
    add(kPrior, result);
    add(kBeta, beta);
  }
  for (const auto& [uid, value] : constants_) add(uid, &value);
  const auto count = static_cast<int64_t>(uids.size());
  std::vector<Descriptor> pack;
  cudnnStatus_t status = miopen::Make(
      pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
      {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids.data()},
       {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data()}});
  if (status == CUDNN_STATUS_SUCCESS)
    status = cudnnBackendExecute(handle, made_.back(), pack.back());
  for (const Descriptor descriptor : pack) cudnnBackendDestroyDescriptor(descriptor);
  return status;
}

}  // namespace kiln::miopen
