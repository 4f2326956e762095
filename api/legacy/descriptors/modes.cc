#include "api/legacy/descriptors/modes.h"

#include <algorithm>

#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace {

Status CheckNan(int nan) { return CheckEnum(nan, CUDNN_PROPAGATE_NAN, "cudnnNanPropagation_t"); }

Status CheckComputeType(int type, std::initializer_list<int> known, std::string_view what) {
  if (std::ranges::find(known, type) != known.end()) return {};
  return Status::Error(Code::kBadParam, "data type {} is no compute type of {}", type, what);
}

// A NaN is in no range that it could be compared with, and passes, as in NVIDIA's library.
Status CheckLeast(double value, double least, std::string_view what) {
  if (!(value < least)) return {};
  return Status::Error(Code::kBadParam, "{} is {}; the least is {}", what, value, least);
}

}  // namespace

// ---- activation

Status CreateActivationDescriptor(void** out) { return CreateDescriptor<ActivationDesc>(out); }
Status DestroyActivationDescriptor(void* object) {
  return DestroyDescriptor<ActivationDesc>(object);
}

Status SetActivationDescriptor(void* object, int mode, int nan, double coefficient) {
  ASSIGN_OR_RETURN(ActivationDesc * activation, Get<ActivationDesc>(object));
  RETURN_IF_ERROR(CheckEnum(mode, CUDNN_ACTIVATION_SWISH, "cudnnActivationMode_t"));
  RETURN_IF_ERROR(CheckNan(nan));
  activation->mode = mode;
  activation->nan = nan;
  activation->coefficient = coefficient;
  return {};
}

Status GetActivationDescriptor(void* object, int* mode, int* nan, double* coefficient) {
  ASSIGN_OR_RETURN(const ActivationDesc* activation, Get<ActivationDesc>(object));
  Store(mode, activation->mode);
  Store(nan, activation->nan);
  Store(coefficient, activation->coefficient);
  return {};
}

Status SetActivationDescriptorSwishBeta(void* object, double beta) {
  ASSIGN_OR_RETURN(ActivationDesc * activation, Get<ActivationDesc>(object));
  activation->swish_beta = beta;
  return {};
}

Status GetActivationDescriptorSwishBeta(void* object, double* beta) {
  ASSIGN_OR_RETURN(const ActivationDesc* activation, Get<ActivationDesc>(object));
  RETURN_IF_ERROR(NotNull(beta, "the place for swish_beta"));
  *beta = activation->swish_beta;
  return {};
}

// ---- LRN

Status CreateLRNDescriptor(void** out) { return CreateDescriptor<LrnDesc>(out); }
Status DestroyLRNDescriptor(void* object) { return DestroyDescriptor<LrnDesc>(object); }

Status SetLRNDescriptor(void* object, unsigned window, double alpha, double beta, double k) {
  ASSIGN_OR_RETURN(LrnDesc * lrn, Get<LrnDesc>(object));
  if (window < CUDNN_LRN_MIN_N || window > CUDNN_LRN_MAX_N)
    return Status::Error(Code::kBadParam, "lrnN is {}; {} to {} are possible", window,
                         CUDNN_LRN_MIN_N, CUDNN_LRN_MAX_N);
  RETURN_IF_ERROR(CheckLeast(beta, CUDNN_LRN_MIN_BETA, "lrnBeta"));
  RETURN_IF_ERROR(CheckLeast(k, CUDNN_LRN_MIN_K, "lrnK"));
  *lrn = {.window = window, .alpha = alpha, .beta = beta, .k = k};
  return {};
}

Status GetLRNDescriptor(void* object, unsigned* window, double* alpha, double* beta, double* k) {
  ASSIGN_OR_RETURN(const LrnDesc* lrn, Get<LrnDesc>(object));
  Store(window, lrn->window);
  Store(alpha, lrn->alpha);
  Store(beta, lrn->beta);
  Store(k, lrn->k);
  return {};
}

// ---- op tensor

Status CreateOpTensorDescriptor(void** out) { return CreateDescriptor<OpTensorDesc>(out); }
Status DestroyOpTensorDescriptor(void* object) { return DestroyDescriptor<OpTensorDesc>(object); }

Status SetOpTensorDescriptor(void* object, int op, int compute, int nan) {
  ASSIGN_OR_RETURN(OpTensorDesc * desc, Get<OpTensorDesc>(object));
  RETURN_IF_ERROR(CheckEnum(op, CUDNN_OP_TENSOR_NOT, "cudnnOpTensorOp_t"));
  RETURN_IF_ERROR(CheckComputeType(
      compute, {CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16},
      "cudnnOpTensor"));
  RETURN_IF_ERROR(CheckNan(nan));
  *desc = {.op = op, .compute = compute, .nan = nan};
  return {};
}

Status GetOpTensorDescriptor(void* object, int* op, int* compute, int* nan) {
  ASSIGN_OR_RETURN(const OpTensorDesc* desc, Get<OpTensorDesc>(object));
  Store(op, desc->op);
  Store(compute, desc->compute);
  Store(nan, desc->nan);
  return {};
}

// ---- reduce tensor

Status CreateReduceTensorDescriptor(void** out) { return CreateDescriptor<ReduceTensorDesc>(out); }
Status DestroyReduceTensorDescriptor(void* object) {
  return DestroyDescriptor<ReduceTensorDesc>(object);
}

Status SetReduceTensorDescriptor(void* object, int op, int compute, int nan, int indices,
                                 int index_type) {
  ASSIGN_OR_RETURN(ReduceTensorDesc * desc, Get<ReduceTensorDesc>(object));
  RETURN_IF_ERROR(CheckEnum(op, CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS, "cudnnReduceTensorOp_t"));
  RETURN_IF_ERROR(CheckComputeType(compute, {CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF},
                                   "cudnnReduceTensor"));
  RETURN_IF_ERROR(CheckNan(nan));
  RETURN_IF_ERROR(
      CheckEnum(indices, CUDNN_REDUCE_TENSOR_FLATTENED_INDICES, "cudnnReduceTensorIndices_t"));
  RETURN_IF_ERROR(CheckEnum(index_type, CUDNN_8BIT_INDICES, "cudnnIndicesType_t"));
  *desc = {.op = op, .compute = compute, .nan = nan, .indices = indices, .index_type = index_type};
  return {};
}

Status GetReduceTensorDescriptor(void* object, int* op, int* compute, int* nan, int* indices,
                                 int* index_type) {
  ASSIGN_OR_RETURN(const ReduceTensorDesc* desc, Get<ReduceTensorDesc>(object));
  Store(op, desc->op);
  Store(compute, desc->compute);
  Store(nan, desc->nan);
  Store(indices, desc->indices);
  Store(index_type, desc->index_type);
  return {};
}

// ---- spatial transformer

Status CreateSpatialTransformerDescriptor(void** out) {
  return CreateDescriptor<SpatialTransformerDesc>(out);
}
Status DestroySpatialTransformerDescriptor(void* object) {
  return DestroyDescriptor<SpatialTransformerDesc>(object);
}

Status SetSpatialTransformerNdDescriptor(void* object, int sampler, int type, int rank,
                                         const int* dims) {
  ASSIGN_OR_RETURN(SpatialTransformerDesc * desc, Get<SpatialTransformerDesc>(object));
  RETURN_IF_ERROR(CheckEnum(sampler, CUDNN_SAMPLER_BILINEAR, "cudnnSamplerType_t"));
  RETURN_IF_ERROR(CheckEnum(type, CUDNN_DATA_INT8, "data type of a spatial transformer"));
  if (type == CUDNN_DATA_INT8)
    return Status::Text(Code::kNotSupported, "no spatial transformer has data of type INT8");
  if (dims == nullptr) return Status::Text(Code::kBadParam, "dimA is NULL");
  if (rank < 0 || rank > CUDNN_DIM_MAX)
    return Status::Error(Code::kBadParam, "{} dims; 0 to {} are possible", rank, CUDNN_DIM_MAX);
  SpatialTransformerDesc made = {.type = type, .rank = rank};
  std::copy_n(dims, rank, made.dims.begin());
  *desc = made;
  return {};
}

}  // namespace kiln::api::legacy
