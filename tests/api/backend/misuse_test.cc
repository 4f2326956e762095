// Misuse of the backend API: each row is one mistake, the status of 9.19 that it must give, and a
// piece of the sentence that must explain it. Statuses are documented in the reference (5.2
// and 9.2) or, where it is silent, those that NVIDIA's library gives
// (tests/api/backend/nvidia_parity_test.cc).
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/api/client.h"
#include "tests/api/fake_session.h"

namespace {

using namespace client;

struct Outcome {
  cudnnStatus_t status;
  std::string error;
};

Outcome Of(const Desc& desc) { return {desc.status(), desc.error()}; }
Outcome Now(cudnnStatus_t status) { return {status, LastError()}; }

Desc TensorWith(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides,
                cudnnDataType_t type = CUDNN_DATA_FLOAT, int64_t alignment = 16) {
  Desc t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  t.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, int64_t{1})
      .Set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment)
      .Set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims)
      .Set(CUDNN_ATTR_TENSOR_STRIDES, strides)
      .Finalize();
  return t;
}

Desc ConvWith(cudnnBackendAttributeName_t name, const std::vector<int64_t>& values) {
  Desc c(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  std::vector<int64_t> ones = {1, 1};
  c.Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2})
      .Set(CUDNN_ATTR_CONVOLUTION_DILATIONS, ones)
      .Set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, ones)
      .Set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, ones)
      .Set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, ones)
      .Set(name, values)
      .Finalize();
  return c;
}

Desc Conv3x3(const std::vector<int64_t>& x, const std::vector<int64_t>& w,
             const std::vector<int64_t>& y) {
  return ConvForward(Tensor(1, x), Tensor(2, w), Tensor(3, y), Convolution(2));
}

Desc Matmul(const std::vector<int64_t>& a, const std::vector<int64_t>& b,
            const std::vector<int64_t>& c) {
  Desc parameters(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  parameters.Set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).Finalize();
  Desc op(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  op.Set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, Tensor(1, a))
      .Set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, Tensor(2, b))
      .Set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, Tensor(3, c))
      .Set(CUDNN_ATTR_OPERATION_MATMUL_DESC, parameters)
      .Finalize();
  return op;
}

// Angles of three places, eight each.
Desc Rope(const Desc& x, const Desc& y, int64_t rope_dim) {
  Desc op(CUDNN_BACKEND_OPERATION_ROPE_FWD_DESCRIPTOR);
  op.Set(CUDNN_ATTR_OPERATION_ROPE_FWD_XDESC, x)
      .Set(CUDNN_ATTR_OPERATION_ROPE_FWD_YDESC, y)
      .Set(CUDNN_ATTR_OPERATION_ROPE_FWD_FREQSDESC, Tensor(9, {3, 1, 8}))
      .Set(CUDNN_ATTR_OPERATION_ROPE_FWD_ROPE_DIM, rope_dim)
      .Finalize();
  return op;
}

Desc Concat(const std::vector<int64_t>& a, const std::vector<int64_t>& b,
            const std::vector<int64_t>& y, int64_t axis, int64_t inplace = -1) {
  Desc ta = Tensor(1, a), tb = Tensor(2, b), ty = Tensor(3, y);
  Desc op(CUDNN_BACKEND_OPERATION_CONCAT_DESCRIPTOR);
  op.Set(CUDNN_ATTR_OPERATION_CONCAT_AXIS, axis)
      .Set(CUDNN_ATTR_OPERATION_CONCAT_INPUT_DESCS, {&ta, &tb})
      .Set(CUDNN_ATTR_OPERATION_CONCAT_INPLACE_INDEX, inplace)
      .Set(CUDNN_ATTR_OPERATION_CONCAT_OUTPUT_DESC, ty)
      .Finalize();
  return op;
}

Desc GenStats(const std::vector<int64_t>& x, const std::vector<int64_t>& sum) {
  Desc op(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
  op.Set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM)
      .Set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT)
      .Set(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, Tensor(1, x))
      .Set(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, Tensor(2, sum))
      .Set(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, Tensor(3, sum))
      .Finalize();
  return op;
}

Desc Add(const std::vector<int64_t>& x, const std::vector<int64_t>& b,
         const std::vector<int64_t>& y) {
  Desc tb = Tensor(2, b);
  return Pointwise(CUDNN_POINTWISE_ADD, Tensor(1, x), &tb, Tensor(3, y));
}

Outcome SetOn(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
              cudnnBackendAttributeType_t type, int64_t count, const void* data) {
  return Now(cudnnBackendSetAttribute(d, name, type, count, data));
}

// A graph y = -x with its plan, for mistakes at execution.
struct Negation {
  cudnnHandle_t handle = nullptr;
  std::vector<Desc> keep;
  alignas(256) char workspace[kiln::api::kFakeWorkspace] = {};
  alignas(16) float x[4] = {1, 2, 3, 4}, y[5] = {};

  Negation() {
    cudnnCreate(&handle);
    Desc neg = Pointwise(CUDNN_POINTWISE_NEG, Tensor(1, {4}), nullptr, Tensor(2, {4}));
    Desc graph = Graph(handle, {&neg});
    Desc engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    engine.Set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph)
        .Set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, int64_t{2})
        .Finalize();
    Desc config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    config.Set(CUDNN_ATTR_ENGINECFG_ENGINE, engine).Finalize();
    Desc plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle)
        .Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config)
        .Finalize();
    keep.push_back(std::move(plan));
  }
  ~Negation() { cudnnDestroy(handle); }
  Outcome Run(const Desc& pack) {
    return Now(cudnnBackendExecute(handle, keep[0].raw(), pack.raw()));
  }
};

struct Row {
  const char* name;
  cudnnStatus_t status;
  const char* sentence;
  std::function<Outcome()> mistake;
};

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
constexpr auto kBad = CUDNN_STATUS_BAD_PARAM;

const std::vector<Row>& Rows() {
  static const std::vector<Row> rows = {
      // The descriptor itself.
      {"create_unknown_kind", CUDNN_STATUS_NOT_SUPPORTED, "descriptor type 999",
       [] {
         cudnnBackendDescriptor_t d = nullptr;
         return Now(
             cudnnBackendCreateDescriptor(static_cast<cudnnBackendDescriptorType_t>(999), &d));
       }},
      {"create_negative_kind", CUDNN_STATUS_NOT_SUPPORTED, "descriptor type -1",
       [] {
         cudnnBackendDescriptor_t d = nullptr;
         return Now(
             cudnnBackendCreateDescriptor(static_cast<cudnnBackendDescriptorType_t>(-1), &d));
       }},
      {"create_null_place", CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "is NULL",
       [] { return Now(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, nullptr)); }},
      {"finalize_null", CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "is NULL",
       [] { return Now(cudnnBackendFinalize(nullptr)); }},
      {"destroy_null", CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "is NULL",
       [] { return Now(cudnnBackendDestroyDescriptor(nullptr)); }},
      {"destroy_twice", kBad, "was destroyed",
       [] {
         cudnnBackendDescriptor_t d = nullptr;
         cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &d);
         cudnnBackendDestroyDescriptor(d);
         return Now(cudnnBackendDestroyDescriptor(d));
       }},
      {"use_after_destroy", kBad, "was destroyed",
       [] {
         cudnnBackendDescriptor_t d = nullptr;
         cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &d);
         cudnnBackendDestroyDescriptor(d);
         return Now(cudnnBackendFinalize(d));
       }},
      {"foreign_pointer", kBad, "no backend descriptor",
       [] {
         alignas(64) char foreign[64] = {};
         return Now(cudnnBackendFinalize(foreign));
       }},
      {"handle_as_descriptor", kBad, "no backend descriptor",
       [] {
         Negation n;
         return Now(cudnnBackendFinalize(n.handle));
       }},
      {"finalize_twice", kBad, "finalized already",
       [] {
         Desc t = Tensor(1, {2});
         return Now(cudnnBackendFinalize(t.raw()));
       }},
      {"finalize_without_required", kBad, "CUDNN_ATTR_TENSOR_UNIQUE_ID is required",
       [] { return Of(Desc(CUDNN_BACKEND_TENSOR_DESCRIPTOR).Finalize()); }},
      {"finalize_read_only_kind", CUDNN_STATUS_NOT_SUPPORTED, "comes finalized from the library",
       [] { return Of(Desc(CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR).Finalize()); }},
      // Setting attributes.
      {"set_after_finalize", CUDNN_STATUS_NOT_INITIALIZED, "cannot be set any more",
       [] { return Of(Tensor(1, {2}).Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, int64_t{2})); }},
      {"set_attribute_of_other_kind", kBad, "has no attribute CUDNN_ATTR_MATMUL_COMP_TYPE",
       [] {
         return Of(Desc(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
                       .Set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT));
       }},
      {"set_unknown_attribute", kBad, "attribute 99999",
       [] {
         int64_t v = 1;
         Desc d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
         return SetOn(d.raw(), static_cast<cudnnBackendAttributeName_t>(99999), CUDNN_TYPE_INT64, 1,
                      &v);
       }},
      {"set_wrong_type", CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
       "has type CUDNN_TYPE_INT64, not CUDNN_TYPE_DATA_TYPE",
       [] {
         return Of(Desc(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
                       .Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_DATA_FLOAT));
       }},
      {"set_absurd_type", CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "attribute type 1000",
       [] {
         int64_t v = 1;
         Desc d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
         return SetOn(d.raw(), CUDNN_ATTR_TENSOR_UNIQUE_ID,
                      static_cast<cudnnBackendAttributeType_t>(1000), 1, &v);
       }},
      {"set_two_of_one", kBad, "takes one element, not 2",
       [] {
         return Of(Desc(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
                       .Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, std::vector<int64_t>{1, 2}));
       }},
      {"set_negative_count", kBad, "-1",
       [] {
         int64_t v = 1;
         Desc d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
         return SetOn(d.raw(), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, -1, &v);
       }},
      {"set_huge_count", kBad, "at most 8",
       [] {
         int64_t v = 1;
         Desc d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
         return SetOn(d.raw(), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, kHuge, &v);
       }},
      {"set_null_array", CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "is NULL",
       [] {
         Desc d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
         return SetOn(d.raw(), CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, nullptr);
       }},
      {"set_read_only", kBad, "is read-only",
       [] {
         return Of(Desc(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
                       .Set(CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, int64_t{1}));
       }},
      {"set_on_read_only_kind", CUDNN_STATUS_NOT_SUPPORTED, "filled by the library",
       [] {
         return Of(Desc(CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR)
                       .Set(CUDNN_ATTR_KNOB_INFO_MAXIMUM_VALUE, int64_t{1}));
       }},
      {"set_illegal_enum", kBad, "55 is no value",
       [] {
         return Of(Desc(CUDNN_BACKEND_POINTWISE_DESCRIPTOR)
                       .Set(CUDNN_ATTR_POINTWISE_MODE, static_cast<cudnnPointwiseMode_t>(55)));
       }},
      {"set_null_handle", CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "handle is NULL",
       [] {
         return Of(Desc(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
                       .Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, cudnnHandle_t{nullptr}));
       }},
      {"set_destroyed_handle", kBad, "no cuDNN handle",
       [] {
         cudnnHandle_t handle = nullptr;
         cudnnCreate(&handle);
         cudnnDestroy(handle);
         return Of(Desc(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
                       .Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle));
       }},
      {"set_unfinalized_descriptor", CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "is not finalized",
       [] {
         Desc op(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
         return Of(
             op.Set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, Desc(CUDNN_BACKEND_TENSOR_DESCRIPTOR)));
       }},
      {"set_descriptor_of_wrong_kind", CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
       "CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR",
       [] {
         Desc op(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
         return Of(op.Set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, Convolution(2)));
       }},
      {"set_null_descriptor", CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "is NULL",
       [] {
         Desc op(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
         cudnnBackendDescriptor_t null = nullptr;
         return SetOn(op.raw(), CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                      1, &null);
       }},
      {"set_refused_attribute", CUDNN_STATUS_NOT_SUPPORTED, "no engine has intermediates",
       [] {
         return Of(Desc(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
                       .Set(CUDNN_ATTR_VARIANT_PACK_INTERMEDIATES, static_cast<void*>(nullptr)));
       }},
      // Reading attributes.
      {"get_before_finalize", CUDNN_STATUS_NOT_INITIALIZED, "is not finalized",
       [] {
         int64_t v = 0;
         return Now(Desc(CUDNN_BACKEND_TENSOR_DESCRIPTOR).Get(CUDNN_ATTR_TENSOR_UNIQUE_ID, &v));
       }},
      {"get_wrong_type", CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "CUDNN_TYPE_INT64",
       [] {
         float v = 0;
         return Now(Tensor(1, {2}).Get(CUDNN_ATTR_TENSOR_UNIQUE_ID, &v));
       }},
      {"get_into_nothing", CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "neither",
       [] {
         Desc t = Tensor(1, {2});
         return Now(cudnnBackendGetAttribute(t.raw(), CUDNN_ATTR_TENSOR_DIMENSIONS,
                                             CUDNN_TYPE_INT64, 0, nullptr, nullptr));
       }},
      {"get_negative_count", kBad, "-1",
       [] {
         Desc t = Tensor(1, {2});
         int64_t count = 0, v = 0;
         return Now(cudnnBackendGetAttribute(t.raw(), CUDNN_ATTR_TENSOR_DIMENSIONS,
                                             CUDNN_TYPE_INT64, -1, &count, &v));
       }},
      {"get_into_descriptor_of_wrong_kind", CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
       "the value is a",
       [] {
         Desc conv = Conv3x3({1, 2, 3, 3}, {4, 2, 3, 3}, {1, 4, 1, 1});
         cudnnBackendDescriptor_t place = conv.raw();
         return Now(cudnnBackendGetAttribute(conv.raw(), CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, nullptr, &place));
       }},
      {"get_into_null_descriptor", CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
       "a descriptor that the caller made",
       [] {
         Desc conv = Conv3x3({1, 2, 3, 3}, {4, 2, 3, 3}, {1, 4, 1, 1});
         cudnnBackendDescriptor_t place = nullptr;
         return Now(cudnnBackendGetAttribute(conv.raw(), CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, nullptr, &place));
       }},
      // Tensors.
      {"tensor_zero_extent", kBad, "dimension 1 has extent 0",
       [] { return Of(TensorWith({2, 0}, {1, 1})); }},
      {"tensor_negative_extent", kBad, "dimension 0 has extent -3",
       [] { return Of(TensorWith({-3, 2}, {2, 1})); }},
      {"tensor_negative_stride", kBad, "dimension 1 has stride -1",
       [] { return Of(TensorWith({2, 2}, {2, -1})); }},
      {"tensor_absurd_extents", kBad, "more memory than there is",
       [] { return Of(TensorWith({kHuge, kHuge, kHuge}, {1, 1, 1})); }},
      {"tensor_absurd_strides", kBad, "more memory than there is",
       [] { return Of(TensorWith({kHuge, 2}, {kHuge, kHuge})); }},
      {"tensor_rank_mismatch", kBad, "3 dimensions and 2 strides",
       [] { return Of(TensorWith({1, 2, 3}, {1, 1})); }},
      {"tensor_no_dimensions", kBad, "has no dimensions", [] { return Of(TensorWith({}, {})); }},
      {"tensor_nine_dimensions", kBad, "at most 8",
       [] { return Of(TensorWith(std::vector<int64_t>(9, 1), std::vector<int64_t>(9, 1))); }},
      {"tensor_alignment", kBad, "alignment of 2 bytes",
       [] { return Of(TensorWith({2}, {1}, CUDNN_DATA_FLOAT, 2)); }},
      {"tensor_alignment_zero", kBad, "alignment of 0 bytes",
       [] { return Of(TensorWith({2}, {1}, CUDNN_DATA_FLOAT, 0)); }},
      {"tensor_int8x4", CUDNN_STATUS_NOT_SUPPORTED, "CUDNN_ATTR_TENSOR_VECTOR_COUNT",
       [] { return Of(TensorWith({2}, {1}, CUDNN_DATA_INT8x4)); }},
      {"tensor_int8x32", CUDNN_STATUS_NOT_SUPPORTED, "CUDNN_ATTR_TENSOR_VECTOR_COUNT",
       [] { return Of(TensorWith({2}, {1}, CUDNN_DATA_INT8x32, 32)); }},
      {"tensor_compute_type", kBad, "type of computations",
       [] { return Of(TensorWith({2}, {1}, CUDNN_DATA_FAST_FLOAT_FOR_FP8)); }},
      {"tensor_by_value_virtual", kBad, "must not be virtual",
       [] { return Of(Tensor(1, {1}, {.is_virtual = true, .by_value = true})); }},
      // Convolutions.
      {"conv_array_length", kBad, "3 dilations for 2 spatial dimensions",
       [] { return Of(ConvWith(CUDNN_ATTR_CONVOLUTION_DILATIONS, {1, 1, 1})); }},
      {"conv_zero_stride", kBad, "0 among the filter strides",
       [] { return Of(ConvWith(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {1, 0})); }},
      {"conv_zero_dilation", kBad, "0 among the dilations",
       [] { return Of(ConvWith(CUDNN_ATTR_CONVOLUTION_DILATIONS, {0, 1})); }},
      {"conv_negative_padding", kBad, "-1 among the pre-paddings",
       [] { return Of(ConvWith(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {-1, 0})); }},
      {"conv_absurd_padding", kBad, "among the post-paddings",
       [] { return Of(ConvWith(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {kHuge, kHuge})); }},
      {"conv_channels", kBad, "no multiple of the filter's 3",
       [] { return Of(Conv3x3({1, 4, 5, 5}, {4, 3, 3, 3}, {1, 4, 3, 3})); }},
      {"conv_batch", kBad, "differ in the batch",
       [] { return Of(Conv3x3({2, 4, 5, 5}, {4, 4, 3, 3}, {1, 4, 3, 3})); }},
      {"conv_filters", kBad, "has 5 channels",
       [] { return Of(Conv3x3({1, 4, 5, 5}, {4, 4, 3, 3}, {1, 5, 3, 3})); }},
      {"conv_groups", kBad, "3 outputs for 2 groups",
       [] { return Of(Conv3x3({1, 4, 5, 5}, {3, 2, 3, 3}, {1, 3, 3, 3})); }},
      {"conv_spatial", kBad, "gives 3",
       [] { return Of(Conv3x3({1, 4, 5, 5}, {4, 4, 3, 3}, {1, 4, 3, 4})); }},
      {"conv_window_too_large", kBad, "gives 0",
       [] { return Of(Conv3x3({1, 4, 2, 2}, {4, 4, 3, 3}, {1, 4, 1, 1})); }},
      {"conv_rank", kBad, "must all have 4 or 5",
       [] { return Of(Conv3x3({1, 4, 5}, {4, 4, 3, 3}, {1, 4, 3, 3})); }},
      // Other operations.
      {"pointwise_rank", kBad, "of 1 dimensions", [] { return Of(Add({2, 3}, {3}, {2, 3})); }},
      {"pointwise_broadcast", kBad, "does not broadcast",
       [] { return Of(Add({2, 3}, {2, 2}, {2, 3})); }},
      {"pointwise_output_smaller", kBad, "does not broadcast",
       [] { return Of(Add({2, 3}, {2, 3}, {1, 3})); }},
      {"pointwise_missing_b", kBad, "CUDNN_POINTWISE_ADD needs b",
       [] { return Of(Pointwise(CUDNN_POINTWISE_ADD, Tensor(1, {2}), nullptr, Tensor(3, {2}))); }},
      {"pointwise_missing_t", kBad, "needs t",
       [] {
         Desc b = Tensor(2, {2});
         return Of(Pointwise(CUDNN_POINTWISE_BINARY_SELECT, Tensor(1, {2}), &b, Tensor(3, {2})));
       }},
      {"pointwise_backward_without_dx", kBad, "needs dx",
       [] {
         return Of(Pointwise(CUDNN_POINTWISE_RELU_BWD, Tensor(1, {2}), nullptr, Tensor(3, {2})));
       }},
      {"matmul_k", kBad, "K=4", [] { return Of(Matmul({2, 3, 4}, {2, 5, 6}, {2, 3, 6})); }},
      {"matmul_batch", kBad, "batch dimension 0",
       [] { return Of(Matmul({3, 3, 4}, {2, 4, 5}, {3, 3, 5})); }},
      {"matmul_rank", kBad, "one rank", [] { return Of(Matmul({2, 3, 4}, {4, 5}, {2, 3, 5})); }},
      {"concat_axis", kBad, "axis 5", [] { return Of(Concat({2, 3}, {2, 4}, {2, 7}, 5)); }},
      {"concat_negative_axis", kBad, "axis -1",
       [] { return Of(Concat({2, 3}, {2, 4}, {2, 7}, -1)); }},
      {"concat_sum", kBad, "have 7 along axis 1",
       [] { return Of(Concat({2, 3}, {2, 4}, {2, 8}, 1)); }},
      {"concat_other_extent", kBad, "elsewhere than on axis 1",
       [] { return Of(Concat({2, 3}, {1, 4}, {2, 7}, 1)); }},
      {"concat_inplace", kBad, "in-place index 2",
       [] { return Of(Concat({2, 3}, {2, 4}, {2, 7}, 1, 2)); }},
      {"rope_odd_part", kBad, "5 elements to turn; of tensor 1 (2x3x8)",
       [] { return Of(Rope(Tensor(1, {2, 3, 8}), Tensor(2, {2, 3, 8}), 5)); }},
      {"rope_no_places", kBad, "no dim of places",
       [] { return Of(Rope(Tensor(1, {8}), Tensor(2, {8}), 8)); }},
      {"rope_in_place", CUDNN_STATUS_NOT_SUPPORTED, "does not turn elements where they lie",
       [] {
         Desc rope = Rope(Tensor(1, {2, 3, 8}), Tensor(1, {2, 3, 8}), 4);
         return Of(Graph(nullptr, {&rope}));
       }},
      {"rope_places", kBad, "first at least 4, the places of tensor 1 (2x4x8)",
       [] { return Of(Rope(Tensor(1, {2, 4, 8}), Tensor(2, {2, 4, 8}), 4)); }},
      {"gen_stats_channels", kBad, "no dimension of channels",
       [] { return Of(GenStats({6}, {6})); }},
      // Graphs.
      {"graph_without_operations", kBad, "no operations", [] { return Of(Graph(nullptr, {})); }},
      {"graph_of_a_tensor", CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
       "CUDNN_BACKEND_TENSOR_DESCRIPTOR",
       [] {
         Desc t = Tensor(1, {2});
         return Of(Graph(nullptr, {&t}));
       }},
      {"graph_with_overlapping_uids", CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
       "share a uid but differ",
       [] {
         Desc a = Pointwise(CUDNN_POINTWISE_NEG, Tensor(1, {2}), nullptr, Tensor(2, {2}));
         Desc b = Pointwise(CUDNN_POINTWISE_NEG, Tensor(2, {3}), nullptr, Tensor(3, {3}));
         return Of(Graph(nullptr, {&a, &b}));
       }},
      // Plans and execution.
      {"plan_without_config", CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "ENGINE_CONFIG is required",
       [] { return Of(Desc(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR).Finalize()); }},
      {"pack_counts", kBad, "2 uids and 1 data pointers",
       [] { return Of(Pack({1, 2}, {nullptr}, nullptr)); }},
      {"pack_overlapping_uids", CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "uid 1 has two",
       [] {
         int a = 0, b = 0;
         return Of(Pack({1, 1}, {&a, &b}, nullptr));
       }},
      {"execute_missing_tensor", kBad, "no pointer for tensor 2",
       [] {
         Negation n;
         return n.Run(Pack({1}, {n.x}, n.workspace));
       }},
      {"execute_empty_pack", kBad, "no pointer for tensor 1",
       [] {
         Negation n;
         return n.Run(Pack({}, {}, n.workspace));
       }},
      {"execute_null_pointer", CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "of tensor 1 is NULL",
       [] {
         Negation n;
         return n.Run(Pack({1, 2}, {nullptr, n.y}, n.workspace));
       }},
      {"execute_misaligned", CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "promised 16 bytes",
       [] {
         Negation n;
         return n.Run(Pack({1, 2}, {n.x, n.y + 1}, n.workspace));
       }},
      {"execute_without_workspace", CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
       "needs 256 bytes of workspace",
       [] {
         Negation n;
         return n.Run(Pack({1, 2}, {n.x, n.y}, nullptr));
       }},
      {"execute_unfinalized_pack", CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "VARIANT_PACK",
       [] {
         Negation n;
         return n.Run(Desc(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
       }},
      {"execute_plan_as_pack", CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
       "where a CUDNN_BACKEND_VARIANT_PACK",
       [] {
         Negation n;
         return n.Run(n.keep[0]);
       }},
      {"execute_null_handle", CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "handle is NULL",
       [] {
         Negation n;
         Desc pack = Pack({1, 2}, {n.x, n.y}, n.workspace);
         return Now(cudnnBackendExecute(nullptr, n.keep[0].raw(), pack.raw()));
       }},
      {"execute_override_rank", CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "has 1 dimensions",
       [] {
         Negation n;
         std::vector<std::vector<int64_t>> lists = {{2, 2}};
         Desc pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
         pack.Set(CUDNN_ATTR_VARIANT_PACK_OVERRIDE_UNIQUE_IDS, std::vector<int64_t>{1});
         for (auto name :
              {CUDNN_ATTR_VARIANT_PACK_OVERRIDE_SHAPES, CUDNN_ATTR_VARIANT_PACK_OVERRIDE_STRIDES}) {
           cudnnBackendSetAttribute(pack.raw(), name, CUDNN_TYPE_VOID_PTR, 1, &lists);
         }
         pack.Finalize();
         return n.Run(pack);
       }},
  };
  return rows;
}

class Misuse : public testing::TestWithParam<size_t> {};

TEST_P(Misuse, GivesItsStatusAndSaysWhy) {
  const Row& row = Rows()[GetParam()];
  Outcome outcome = row.mistake();
  EXPECT_STREQ(cudnnGetErrorString(outcome.status), cudnnGetErrorString(row.status))
      << outcome.error;
  EXPECT_NE(outcome.error.find(row.sentence), std::string::npos) << "says: " << outcome.error;
}

INSTANTIATE_TEST_SUITE_P(All, Misuse, testing::Range(size_t{0}, Rows().size()),
                         [](const auto& info) { return std::string(Rows()[info.param].name); });

}  // namespace
