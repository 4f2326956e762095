// Descriptor calls on ours and on NVIDIA's libcudnn.so.9, which need no GPU. Each row is a sequence
// that ends in one status. The two must be equal, or the row says why ours differs; a row that
// gives a reason and does not differ fails too. Skipped where NVIDIA's library is not installed.
//
// Not here: NULL descriptors, values outside an enumeration of types, and an empty ENGINECFG, on
// which NVIDIA's 9.19 crashes.
#include <cudnn.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/api/backend/nvidia_client.h"
#include "tests/support/nvidia_library.h"

namespace {

using kiln::testing::Client;
using kiln::testing::Ints;
using kiln::testing::Library;
using kiln::testing::Raw;

struct Row {
  std::string name;
  std::function<void(Client&)> run;
  const char* why_ours_differs = nullptr;
};

// Reasons that several rows share.
constexpr auto kDocumented = "the reference documents the status that ours gives";
constexpr auto kEarlier =
    "ours refuses what NVIDIA's accepts here and refuses, or misreads, when it is used";

// A set of operands as a row of norms changes it: some attributes are left off, and others stand in
// the place of theirs.
using Operands = Client::Operands;
Operands But(Operands operands, const Ints& without, const Operands& instead = {}) {
  for (const int64_t name : without) operands.erase(static_cast<int>(name));
  for (const auto& [name, dims] : instead) operands[name] = dims;
  return operands;
}

const Ints kX = {8, 32, 16, 16}, kPerChannel = {1, 32, 1, 1}, kPerSample = {8, 1, 1, 1},
           kImage = {1, 32, 16, 16}, kOther = {8, 32, 16, 8}, kScalar = {1}, kNotByValue = {0};

// Every attribute of both directions, each left off in turn, and what does not go together.
std::vector<Row> NormRows() {
  enum : int {
    X = CUDNN_ATTR_OPERATION_NORM_FWD_XDESC,
    Mean = CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC,
    Inv = CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC,
    Scale = CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC,
    Bias = CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC,
    Epsilon = CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC,
    Factor = CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC,
    RunningMean = CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC,
    RunningVar = CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC,
    NextMean = CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC,
    NextVar = CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC,
    Y = CUDNN_ATTR_OPERATION_NORM_FWD_YDESC
  };
  const Operands layer = {{X, kX},         {Mean, kPerSample}, {Inv, kPerSample},
                          {Scale, kImage}, {Bias, kImage},     {Epsilon, kScalar},
                          {Y, kX}};
  const Operands batch = {{X, kX},
                          {Mean, kPerChannel},
                          {Inv, kPerChannel},
                          {Scale, kPerChannel},
                          {Bias, kPerChannel},
                          {Epsilon, kScalar},
                          {Factor, kScalar},
                          {RunningMean, kPerChannel},
                          {RunningVar, kPerChannel},
                          {NextMean, kPerChannel},
                          {NextVar, kPerChannel},
                          {Y, kX}};
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, int mode, int phase, Operands operands,
                       int64_t peers = 0) {
    rows.push_back({name, [=](Client& c) { c.NormForward(mode, phase, operands, peers); }});
  };
  constexpr int kTraining = CUDNN_NORM_FWD_TRAINING, kInference = CUDNN_NORM_FWD_INFERENCE;
  for (const auto& [name, dims] : layer) {
    for (const int phase : {kTraining, kInference}) {
      add("norm_layer_without_one_" + std::to_string(name), CUDNN_LAYER_NORM, phase,
          But(layer, {name}));
      add("norm_layer_other_extents_" + std::to_string(name), CUDNN_LAYER_NORM, phase,
          But(layer, {}, {{name, kOther}}));
    }
    add("norm_rms_without_one_" + std::to_string(name), CUDNN_RMS_NORM, kTraining,
        But(layer, {name}));
  }
  for (const auto& [name, dims] : batch)
    add("norm_batch_without_one_" + std::to_string(name), CUDNN_BATCH_NORM, kTraining,
        But(batch, {name}));
  for (int mode = 0; mode <= CUDNN_ADA_LAYER_NORM; ++mode) {
    add("norm_mode_" + std::to_string(mode), mode, kTraining, layer);
    add("norm_mode_inference_" + std::to_string(mode), mode, kInference, But(layer, {Mean, Inv}));
    add("norm_mode_running_" + std::to_string(mode), mode, kTraining, batch);
    add("norm_mode_peers_" + std::to_string(mode), mode, kTraining, layer, 2);
  }
  const Operands given = But(batch, {Factor, RunningMean, RunningVar, NextMean, NextVar, Epsilon});
  add("norm_batch_inference", CUDNN_BATCH_NORM, kInference, given);
  add("norm_batch_inference_without_mean", CUDNN_BATCH_NORM, kInference, But(given, {Mean}));
  add("norm_batch_inference_without_inv", CUDNN_BATCH_NORM, kInference, But(given, {Inv}));
  add("norm_batch_inference_bare", CUDNN_BATCH_NORM, kInference,
      But(given, {Mean, Inv, Scale, Bias}));
  add("norm_batch_inference_peers", CUDNN_BATCH_NORM, kInference, given, 2);
  add("norm_batch_inference_running", CUDNN_BATCH_NORM, kInference, batch);
  add("norm_batch_running_unlike", CUDNN_BATCH_NORM, kTraining,
      But(batch, {}, {{RunningMean, kPerSample}}));
  add("norm_epsilon_not_by_value", CUDNN_LAYER_NORM, kTraining,
      But(layer, {}, {{Epsilon, kNotByValue}}));
  add("norm_bias_alone", CUDNN_LAYER_NORM, kTraining, But(layer, {Scale, Epsilon}));
  constexpr auto kEnum = "values outside an enumeration are refused, as in every other attribute";
  for (const auto& [mode, phase] : {std::pair{9, 1}, {-1, 1}, {0, 7}}) {
    rows.push_back({"norm_no_mode",
                    [=](Client& c) {
                      Raw d = c.Make(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
                      const bool of_mode = phase != 7;
                      c.SetEnum(d,
                                of_mode ? CUDNN_ATTR_OPERATION_NORM_FWD_MODE
                                        : CUDNN_ATTR_OPERATION_NORM_FWD_PHASE,
                                of_mode ? CUDNN_TYPE_NORM_MODE : CUDNN_TYPE_NORM_FWD_PHASE,
                                of_mode ? mode : phase);
                    },
                    kEnum});
  }
  return rows;
}

std::vector<Row> NormBackwardRows() {
  enum : int {
    X = CUDNN_ATTR_OPERATION_NORM_BWD_XDESC,
    Mean = CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC,
    Inv = CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC,
    Dy = CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC,
    Scale = CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC,
    Epsilon = CUDNN_ATTR_OPERATION_NORM_BWD_EPSILON_DESC,
    Dscale = CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC,
    Dbias = CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC,
    Dx = CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC
  };
  const Operands layer = {{X, kX},         {Mean, kPerSample}, {Inv, kPerSample}, {Dy, kX},
                          {Scale, kImage}, {Dscale, kImage},   {Dbias, kImage},   {Dx, kX}};
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, int mode, Operands operands, int64_t peers = 0) {
    rows.push_back({name, [=](Client& c) { c.NormBackward(mode, operands, peers); }});
  };
  for (int mode = 0; mode <= CUDNN_ADA_LAYER_NORM; ++mode) {
    add("norm_backward_mode_" + std::to_string(mode), mode, layer);
    add("norm_backward_mode_no_mean_" + std::to_string(mode), mode, But(layer, {Mean}));
    add("norm_backward_mode_peers_" + std::to_string(mode), mode,
        But(layer, {}, {{Epsilon, kScalar}}), 2);
  }
  for (const auto& [name, dims] : layer) {
    add("norm_backward_without_one_" + std::to_string(name), CUDNN_LAYER_NORM, But(layer, {name}));
    add("norm_backward_other_extents_" + std::to_string(name), CUDNN_LAYER_NORM,
        But(layer, {}, {{name, kOther}}));
  }
  add("norm_backward_rms_without_inv", CUDNN_RMS_NORM, But(layer, {Mean, Inv}));
  add("norm_backward_without_scales", CUDNN_LAYER_NORM, But(layer, {Scale, Dscale}));
  add("norm_backward_dx_alone", CUDNN_LAYER_NORM, But(layer, {Scale, Dscale, Dbias}));
  add("norm_backward_epsilon_not_by_value", CUDNN_LAYER_NORM,
      But(layer, {}, {{Epsilon, kNotByValue}}));
  // Finalising the weights' gradient checks nothing; the operation graph does.
  Operands weights;
  for (int name = CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC;
       name <= CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS; ++name)
    weights[name] = kPerChannel;
  weights[CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC] = kX;
  weights[CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC] = kX;
  const auto add_weights = [&](const std::string& name, const Operands& operands) {
    rows.push_back({name, [=](Client& c) {
                      c.Norm(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR, operands,
                             {{CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
                               CUDNN_DATA_FLOAT}});
                    }});
  };
  add_weights("bn_bwd_weights", weights);
  for (const auto& [name, dims] : weights) {
    add_weights("bn_bwd_weights_without_one_" + std::to_string(name), But(weights, {name}));
    add_weights("bn_bwd_weights_other_extents_" + std::to_string(name),
                But(weights, {}, {{name, kOther}}));
  }
  return rows;
}

std::vector<Row> Rows() {
  const Ints d4 = {2, 3, 4, 5};
  return {
      {"tensor", [=](Client& c) { c.Tensor(1, d4); }},
      {"tensor_finalized_twice", [=](Client& c) { c.Finalize(c.Tensor(1, d4)); }},
      {"tensor_zero_extent", [](Client& c) { c.Tensor(1, {2, 0, 3}); }, kDocumented},
      {"tensor_negative_extent", [](Client& c) { c.Tensor(1, {2, -1, 3}); }},
      {"tensor_zero_stride",
       [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_FLOAT, 16, {0, 1, 1, 1}); }},
      {"tensor_negative_stride",
       [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_FLOAT, 16, {60, 20, 5, -1}); }},
      {"tensor_absurd_extents",
       [](Client& c) { c.Tensor(1, {1LL << 62, 4, 4}, CUDNN_DATA_FLOAT, 16, {1, 1, 1}); },
       kEarlier},
      {"tensor_eight_dimensions", [](Client& c) { c.Tensor(1, Ints(8, 1)); }},
      {"tensor_nine_dimensions", [](Client& c) { c.Tensor(1, Ints(9, 1)); }},
      {"tensor_fewer_strides",
       [](Client& c) { c.Tensor(1, {1, 2, 3}, CUDNN_DATA_FLOAT, 16, {1, 1}); }},
      {"tensor_alignment_3", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_FLOAT, 3); }},
      {"tensor_alignment_0", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_FLOAT, 0); }},
      {"tensor_alignment_12", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_FLOAT, 12); }},
      {"tensor_int8x4", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_INT8x4); }},
      {"tensor_int8x32", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_INT8x32, 32); }},
      {"tensor_of_a_compute_type",
       [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_FAST_FLOAT_FOR_FP8); }},
      {"tensor_boolean", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_BOOLEAN); }},
      {"tensor_fp4", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_FP4_E2M1); }},
      {"tensor_fp4_odd_rows", [](Client& c) { c.Tensor(1, {4, 5}, CUDNN_DATA_FP4_E2M1, 1); }},
      {"tensor_fp4_odd_pitch",
       [](Client& c) { c.Tensor(1, {4, 5}, CUDNN_DATA_FP4_E2M1, 3, {7, 1}); }},
      {"tensor_fp4_alignment_0", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_FP4_E2M1, 0); }},
      {"tensor_int4", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_INT4, 1); }},
      {"tensor_uint4", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_UINT4, 1); }},
      {"tensor_uint32", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_UINT32); }},
      {"tensor_uint32_alignment_2", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_UINT32, 2); }},
      {"tensor_complex_fp32", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_COMPLEX_FP32, 8); }},
      {"tensor_complex_fp32_alignment_4",
       [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_COMPLEX_FP32, 4); }},
      {"tensor_complex_fp64", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_COMPLEX_FP64); }},
      {"tensor_complex_fp64_alignment_8",
       [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_COMPLEX_FP64, 8); }},
      {"tensor_complex_fp32_by_value", [](Client& c) { c.ByValue(1, CUDNN_DATA_COMPLEX_FP32); }},
      {"tensor_complex_fp64_by_value", [](Client& c) { c.ByValue(1, CUDNN_DATA_COMPLEX_FP64); }},
      {"tensor_negative_uid", [=](Client& c) { c.Tensor(-5, d4); }},
      {"set_attribute_of_other_kind",
       [](Client& c) {
         c.SetInt(c.Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1);
       }},
      {"set_unknown_attribute",
       [](Client& c) { c.SetInt(c.Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), 99999, 1); }},
      {"set_wrong_type",
       [](Client& c) {
         c.SetEnum(c.Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_TENSOR_UNIQUE_ID,
                   CUDNN_TYPE_DATA_TYPE, 0);
       }},
      {"set_two_of_one",
       [](Client& c) {
         c.SetInts(c.Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_TENSOR_UNIQUE_ID, {1, 2});
       }},
      {"set_none_of_one",
       [](Client& c) {
         int64_t v = 0;
         c.SetRaw(c.Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_TENSOR_UNIQUE_ID,
                  CUDNN_TYPE_INT64, 0, &v);
       }},
      {"set_after_finalize",
       [=](Client& c) { c.SetInt(c.Tensor(1, d4), CUDNN_ATTR_TENSOR_UNIQUE_ID, 2); }, kDocumented},
      {"get_before_finalize",
       [](Client& c) {
         int64_t v = 0;
         c.Get(c.Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_TENSOR_UNIQUE_ID,
               CUDNN_TYPE_INT64, 1, &v);
       }},
      {"get_fewer_than_there_are",
       [=](Client& c) {
         int64_t v[2] = {};
         EXPECT_EQ(c.Get(c.Tensor(1, d4), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 2, v), 2);
         EXPECT_EQ(v[1], 3);
       }},
      {"get_more_than_there_are",
       [=](Client& c) {
         int64_t v[8] = {};
         EXPECT_EQ(c.Get(c.Tensor(1, d4), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 8, v), 4);
       }},
      {"get_the_count",
       [=](Client& c) {
         EXPECT_EQ(
             c.Get(c.Tensor(1, d4), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 0, nullptr), 4);
       }},
      {"get_without_a_count",
       [=](Client& c) {
         int64_t v[4] = {};
         c.Get(c.Tensor(1, d4), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, v, false);
         EXPECT_EQ(v[3], 5);
       }},
      {"get_negative_count",
       [=](Client& c) {
         int64_t v = 0;
         c.Get(c.Tensor(1, d4), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, -1, &v);
       }},
      {"get_wrong_type",
       [=](Client& c) {
         int64_t v = 0;
         c.Get(c.Tensor(1, d4), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_DATA_TYPE, 1, &v);
       }},
      {"get_attribute_of_other_kind",
       [=](Client& c) {
         int64_t v = 0;
         c.Get(c.Tensor(1, d4), CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &v);
       }},
      {"get_four_of_one",
       [=](Client& c) {
         int64_t v[4] = {};
         c.Get(c.Tensor(1, d4), CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 4, v);
       },
       "the reference has the least of both counts written"},
      {"create_unknown_kind", [](Client& c) { c.Make(999); }, kDocumented},
      {"convolution", [](Client& c) { c.Convolution(); }},
      {"convolution_array_lengths", [](Client& c) { c.Convolution({0, 0}, {1, 1}, {1, 1}, 3); }},
      {"convolution_zero_stride", [](Client& c) { c.Convolution({0, 0}, {0, 1}); }},
      {"convolution_zero_dilation", [](Client& c) { c.Convolution({0, 0}, {1, 1}, {1, 0}); }},
      {"convolution_negative_padding", [](Client& c) { c.Convolution({-1, 0}); }},
      {"convolution_zero_dims", [](Client& c) { c.Convolution({0, 0}, {1, 1}, {1, 1}, 0); }},
      {"conv_op",
       [](Client& c) { c.ConvForward({8, 32, 16, 16}, {64, 32, 3, 3}, {8, 64, 14, 14}); }},
      {"conv_op_groups",
       [](Client& c) { c.ConvForward({8, 32, 16, 16}, {64, 16, 3, 3}, {8, 64, 14, 14}); }},
      {"conv_op_group_dimension",
       [](Client& c) { c.ConvForward({8, 2, 16, 16, 16}, {2, 32, 16, 3, 3}, {8, 2, 32, 14, 14}); }},
      {"conv_op_extent",
       [](Client& c) { c.ConvForward({8, 32, 16, 16}, {64, 32, 3, 3}, {8, 64, 15, 14}); }},
      {"conv_op_channels",
       [](Client& c) { c.ConvForward({8, 32, 16, 16}, {64, 31, 3, 3}, {8, 64, 14, 14}); }},
      {"conv_op_rank",
       [](Client& c) { c.ConvForward({8, 32, 16}, {64, 32, 3, 3}, {8, 64, 14, 14}); }},
      {"conv_op_batch",
       [](Client& c) { c.ConvForward({8, 32, 16, 16}, {64, 32, 3, 3}, {7, 64, 14, 14}); }},
      {"conv_op_filters",
       [](Client& c) { c.ConvForward({8, 32, 16, 16}, {64, 32, 3, 3}, {8, 63, 14, 14}); }},
      {"conv_op_window",
       [](Client& c) { c.ConvForward({8, 32, 2, 2}, {64, 32, 3, 3}, {8, 64, 1, 1}); }},
      {"conv_op_empty",
       [](Client& c) {
         c.Finalize(c.Make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR));
       }},
      {"alpha_of_integers",
       [](Client& c) {
         c.SetInt(c.Make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR),
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1);
       },
       "a wrong type is BAD_PARAM_ATTRIBUTE_TYPE for every attribute"},
      {"alpha_of_doubles",
       [](Client& c) {
         double v = 1;
         c.SetRaw(c.Make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR),
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_DOUBLE, 1, &v);
       }},
      {"set_unfinalized_tensor",
       [](Client& c) {
         c.SetDesc(c.Make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR),
                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                   c.Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR));
       },
       kEarlier},
      {"set_null_tensor",
       [](Client& c) {
         c.SetDesc(c.Make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR),
                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, nullptr);
       },
       "ours names the finer status BAD_PARAM_NULL_POINTER"},
      {"pointwise", [=](Client& c) { c.Pointwise(CUDNN_POINTWISE_ADD, d4, d4, d4); }},
      {"pointwise_broadcast",
       [=](Client& c) { c.Pointwise(CUDNN_POINTWISE_ADD, d4, {1, 3, 1, 1}, d4); }},
      {"pointwise_both_broadcast",
       [=](Client& c) { c.Pointwise(CUDNN_POINTWISE_ADD, {2, 1, 4, 5}, {1, 3, 1, 1}, d4); }},
      {"pointwise_rank", [=](Client& c) { c.Pointwise(CUDNN_POINTWISE_ADD, d4, {3, 4, 5}, d4); }},
      {"pointwise_without_b", [=](Client& c) { c.Pointwise(CUDNN_POINTWISE_ADD, d4, {}, d4); }},
      {"pointwise_surplus_b",
       [=](Client& c) { c.Pointwise(CUDNN_POINTWISE_RELU_FWD, d4, d4, d4); }},
      {"pointwise_extent",
       [=](Client& c) { c.Pointwise(CUDNN_POINTWISE_ADD, d4, d4, {2, 3, 4, 6}); }, kDocumented},
      {"pointwise_smaller_output",
       [=](Client& c) { c.Pointwise(CUDNN_POINTWISE_ADD, d4, d4, {1, 3, 4, 5}); }, kDocumented},
      {"pointwise_backward_without_dx",
       [=](Client& c) { c.Pointwise(CUDNN_POINTWISE_RELU_BWD, d4, d4, d4); }},
      {"matmul", [](Client& c) { c.Matmul({2, 3, 4}, {2, 4, 5}, {2, 3, 5}); }},
      {"matmul_rank_2", [](Client& c) { c.Matmul({3, 4}, {4, 5}, {3, 5}); }},
      {"matmul_broadcast", [](Client& c) { c.Matmul({1, 3, 4}, {2, 4, 5}, {2, 3, 5}); }},
      {"matmul_grouped_heads",
       [](Client& c) { c.Matmul({2, 8, 3, 4}, {2, 2, 4, 5}, {2, 8, 3, 5}); }},
      {"matmul_k", [](Client& c) { c.Matmul({2, 3, 4}, {2, 5, 5}, {2, 3, 5}); }},
      {"matmul_m", [](Client& c) { c.Matmul({2, 3, 4}, {2, 4, 5}, {2, 4, 5}); }},
      {"matmul_batch", [](Client& c) { c.Matmul({3, 3, 4}, {2, 4, 5}, {2, 3, 5}); }},
      {"matmul_mixed_ranks", [](Client& c) { c.Matmul({2, 3, 4}, {4, 5}, {2, 3, 5}); },
       "mismatched ranks are BAD_PARAM in ours, as in every other operation"},
      {"reduction", [](Client& c) { c.Reduction({2, 3, 4}, {2, 1, 4}); }},
      {"reduction_of_runs", [](Client& c) { c.Reduction({2, 6, 4}, {2, 2, 4}); }},
      {"reduction_extent", [](Client& c) { c.Reduction({2, 3, 4}, {2, 2, 4}); }},
      {"reduction_rank", [](Client& c) { c.Reduction({2, 3, 4}, {2, 3}); }},
      {"reshape", [](Client& c) { c.Reshape({2, 3, 4}, {6, 4}); }},
      {"reshape_elements", [](Client& c) { c.Reshape({2, 3, 4}, {6, 5}); }},
      {"concat", [](Client& c) { c.Concat({2, 3, 4}, {2, 5, 4}, {2, 8, 4}, 1); }},
      {"concat_in_place", [](Client& c) { c.Concat({2, 3, 4}, {2, 5, 4}, {2, 8, 4}, 1, 0); }},
      {"concat_sum", [](Client& c) { c.Concat({2, 3, 4}, {2, 5, 4}, {2, 9, 4}, 1); }},
      {"concat_axis", [](Client& c) { c.Concat({2, 3, 4}, {2, 5, 4}, {2, 8, 4}, 5); }},
      {"concat_other_extent", [](Client& c) { c.Concat({2, 3, 4}, {1, 5, 4}, {2, 8, 4}, 1); }},
      {"concat_in_place_index", [](Client& c) { c.Concat({2, 3, 4}, {2, 5, 4}, {2, 8, 4}, 1, 7); }},
      {"sdpa_fwd", [](Client& c) { c.SdpaForward({}); }},
      {"sdpa_fwd_f32", [](Client& c) { c.SdpaForward({.type = CUDNN_DATA_FLOAT}); }},
      {"sdpa_fwd_without_q", [](Client& c) { c.SdpaForward({.q = {}}); }},
      {"sdpa_fwd_without_k", [](Client& c) { c.SdpaForward({.k = {}}); }},
      {"sdpa_fwd_without_v", [](Client& c) { c.SdpaForward({.v = {}}); }},
      {"sdpa_fwd_without_o", [](Client& c) { c.SdpaForward({.o = {}}); }},
      {"sdpa_fwd_grouped_heads",
       [](Client& c) { c.SdpaForward({.k = {2, 2, 24, 32}, .v = {2, 1, 24, 32}}); }},
      {"sdpa_fwd_heads",
       [](Client& c) { c.SdpaForward({.k = {2, 3, 24, 32}, .v = {2, 3, 24, 32}}); }},
      {"sdpa_fwd_batches", [](Client& c) { c.SdpaForward({.k = {3, 4, 24, 32}}); }},
      {"sdpa_fwd_depth", [](Client& c) { c.SdpaForward({.k = {2, 4, 24, 31}}); }},
      {"sdpa_fwd_keys", [](Client& c) { c.SdpaForward({.v = {2, 4, 23, 32}}); }},
      {"sdpa_fwd_rows", [](Client& c) { c.SdpaForward({.o = {2, 4, 17, 32}}); }},
      {"sdpa_fwd_width", [](Client& c) { c.SdpaForward({.o = {2, 4, 16, 31}}); }},
      {"sdpa_fwd_rank", [](Client& c) { c.SdpaForward({.q = {4, 16, 32}}); }},
      {"sdpa_fwd_stats", [](Client& c) { c.SdpaForward({.stats = {2, 4, 16, 1}}); }},
      {"sdpa_fwd_stats_rows", [](Client& c) { c.SdpaForward({.stats = {2, 4, 17, 1}}); }},
      {"sdpa_fwd_scale", [](Client& c) { c.SdpaForward({.scale = {1}}); }},
      {"sdpa_fwd_two_scales", [](Client& c) { c.SdpaForward({.scale = {1, 1, 1, 2}}); }},
      {"sdpa_fwd_lengths",
       [](Client& c) { c.SdpaForward({.seq_q = {2, 1, 1, 1}, .seq_kv = {2, 1, 1, 1}}); }},
      {"sdpa_fwd_lengths_of_keys", [](Client& c) { c.SdpaForward({.seq_kv = {2, 1, 1, 1}}); }},
      {"sdpa_fwd_lengths_i64",
       [](Client& c) { c.SdpaForward({.seq_kv = {2, 1, 1, 1}, .length_type = CUDNN_DATA_INT64}); }},
      {"sdpa_fwd_lengths_f32",
       [](Client& c) { c.SdpaForward({.seq_kv = {2, 1, 1, 1}, .length_type = CUDNN_DATA_FLOAT}); }},
      {"sdpa_fwd_three_lengths", [](Client& c) { c.SdpaForward({.seq_kv = {3, 1, 1, 1}}); }},
      {"sdpa_fwd_paged",
       [](Client& c) {
         c.SdpaForward({.k = {10, 4, 8, 32},
                        .v = {10, 4, 8, 32},
                        .table_k = {2, 1, 3, 1},
                        .table_v = {2, 1, 3, 1}});
       }},
      {"sdpa_fwd_paged_i64",
       [](Client& c) {
         c.SdpaForward({.k = {10, 4, 8, 32},
                        .v = {10, 4, 8, 32},
                        .table_k = {2, 1, 3, 1},
                        .table_v = {2, 1, 3, 1},
                        .index_type = CUDNN_DATA_INT64});
       }},
      {"sdpa_fwd_one_page_table",
       [](Client& c) {
         c.SdpaForward({.k = {10, 4, 8, 32}, .v = {10, 4, 8, 32}, .table_k = {2, 1, 3, 1}});
       }},
      {"sdpa_fwd_other_pages",
       [](Client& c) {
         c.SdpaForward({.k = {10, 4, 8, 32},
                        .v = {10, 4, 8, 32},
                        .table_k = {2, 1, 4, 1},
                        .table_v = {2, 1, 3, 1}});
       }},
      {"sdpa_fwd_block_mask", [](Client& c) { c.SdpaForward({.block_mask = {2, 4, 1, 1}}); }},
      {"sdpa_fwd_block_mask_heads", [](Client& c) { c.SdpaForward({.block_mask = {1, 1, 1, 1}}); }},
      {"sdpa_fwd_block_mask_batches",
       [](Client& c) { c.SdpaForward({.block_mask = {1, 4, 1, 1}}); }},
      {"sdpa_fwd_block_mask_rank", [](Client& c) { c.SdpaForward({.block_mask = {4, 1, 1}}); }},
      {"sdpa_fwd_block_mask_larger",
       [](Client& c) { c.SdpaForward({.block_mask = {2, 4, 3, 2}}); }},
      {"sdpa_fwd_block_mask_int8",
       [](Client& c) {
         c.SdpaForward({.block_mask = {2, 4, 1, 1}, .mask_type = CUDNN_DATA_INT8});
       }},
      {"sdpa_fwd_block_mask_float",
       [](Client& c) {
         c.SdpaForward({.block_mask = {2, 4, 1, 1}, .mask_type = CUDNN_DATA_FLOAT});
       }},
      {"sdpa_fwd_block_mask_and_stats",
       [](Client& c) { c.SdpaForward({.stats = {2, 4, 16, 1}, .block_mask = {2, 4, 1, 1}}); }},
      {"sdpa_bwd", [](Client& c) { c.SdpaBackward({}); }},
      {"sdpa_bwd_without_stats", [](Client& c) { c.SdpaBackward({.stats = {}}); }},
      {"sdpa_bwd_without_do", [](Client& c) { c.SdpaBackward({.grad = {}}); }},
      {"sdpa_bwd_without_dv", [](Client& c) { c.SdpaBackward({.dv = {}}); }},
      {"sdpa_bwd_rows", [](Client& c) { c.SdpaBackward({.dq = {2, 4, 17, 32}}); }},
      {"sdpa_bwd_heads", [](Client& c) { c.SdpaBackward({.k = {2, 3, 24, 32}}); }},
      {"sdpa_bwd_lengths",
       [](Client& c) { c.SdpaBackward({.scale = {1}, .seq_kv = {2, 1, 1, 1}}); }},
      {"paged", [](Client& c) { c.PagedCacheLoad({}); }},
      {"paged_without_container", [](Client& c) { c.PagedCacheLoad({.container = {}}); }},
      {"paged_without_y", [](Client& c) { c.PagedCacheLoad({.y = {}}); }},
      {"paged_without_lengths", [](Client& c) { c.PagedCacheLoad({.lengths = {}}); }},
      {"paged_without_table", [](Client& c) { c.PagedCacheLoad({.table = {}}); }},
      {"paged_transposed", [](Client& c) { c.PagedCacheLoad({.y = {2, 4, 32, 24}}); },
       "the extents say that places lie along the last dim; no stride must be 1"},
      {"paged_fewer_places", [](Client& c) { c.PagedCacheLoad({.y = {2, 4, 20, 32}}); }},
      {"paged_more_places", [](Client& c) { c.PagedCacheLoad({.y = {2, 4, 30, 32}}); }},
      {"paged_depth", [](Client& c) { c.PagedCacheLoad({.y = {2, 4, 24, 31}}); }},
      {"paged_heads", [](Client& c) { c.PagedCacheLoad({.y = {2, 3, 24, 32}}); }},
      {"paged_batches", [](Client& c) { c.PagedCacheLoad({.y = {3, 4, 24, 32}}); }},
      {"paged_casts", [](Client& c) { c.PagedCacheLoad({.y_type = CUDNN_DATA_FLOAT}); }},
      {"paged_table_i64", [](Client& c) { c.PagedCacheLoad({.table_type = CUDNN_DATA_INT64}); }},
      {"paged_lengths_i64", [](Client& c) { c.PagedCacheLoad({.length_type = CUDNN_DATA_INT64}); }},
      {"paged_lengths_f32", [](Client& c) { c.PagedCacheLoad({.length_type = CUDNN_DATA_FLOAT}); }},
      {"paged_table_rank", [](Client& c) { c.PagedCacheLoad({.table = {2, 1, 3}}); }},
      {"paged_table_last", [](Client& c) { c.PagedCacheLoad({.table = {2, 1, 1, 3}}); }},
      {"paged_rank",
       [](Client& c) {
         c.PagedCacheLoad({.container = {10, 4, 8, 32, 1}, .y = {2, 4, 24, 32, 1}});
       }},
      {"graph_without_a_handle",
       [](Client& c) {
         c.Graph({c.ConvForward({8, 32, 16, 16}, {64, 32, 3, 3}, {8, 64, 14, 14})});
       }},
      {"graph_empty",
       [](Client& c) { c.Finalize(c.Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)); }},
      {"graph_with_an_operation_twice",
       [](Client& c) {
         Raw op = c.ConvForward({8, 32, 16, 16}, {64, 32, 3, 3}, {8, 64, 14, 14});
         c.Graph({op, op});
       }},
      {"graph_set_read_only",
       [](Client& c) {
         c.SetInt(c.Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR),
                  CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, 1);
       }},
      {"graph_null_handle",
       [](Client& c) {
         cudnnHandle_t null = nullptr;
         c.SetRaw(c.Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                  CUDNN_TYPE_HANDLE, 1, &null);
       }},
      {"plan_empty",
       [](Client& c) { c.Finalize(c.Make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)); }},
      {"pack", [](Client& c) { c.Pack({1, 2}, {&c, &c}); }},
      {"pack_counts", [](Client& c) { c.Pack({1, 2, 3}, {&c, &c}); }},
      {"pack_uid_twice", [](Client& c) { c.Pack({1, 1}, {&c, nullptr}); },
       "one uid with two pointers is a mistake: which is meant?"},
      {"pack_intermediates",
       [](Client& c) {
         void* pointer = nullptr;
         c.SetRaw(c.Make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR),
                  CUDNN_ATTR_VARIANT_PACK_INTERMEDIATES, CUDNN_TYPE_VOID_PTR, 1, &pointer);
       }},
      {"pack_two_workspaces",
       [](Client& c) {
         void* pointers[2] = {};
         c.SetRaw(c.Make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR), CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                  CUDNN_TYPE_VOID_PTR, 2, pointers);
       }},
      {"knob_info_set",
       [](Client& c) {
         c.SetEnum(c.Make(CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR), CUDNN_ATTR_KNOB_INFO_TYPE,
                   CUDNN_TYPE_KNOB_TYPE, 2);
       }},
      {"knob_info_finalize",
       [](Client& c) { c.Finalize(c.Make(CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR)); }, kDocumented},
      {"layout_info_set",
       [](Client& c) {
         c.SetInt(c.Make(CUDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR), CUDNN_ATTR_LAYOUT_INFO_TENSOR_UID,
                  2);
       }},
  };
}

// Kernel caches of a graph that is for any device.
std::vector<Row> KernelCacheRows() {
  enum : int {
    Graph = CUDNN_ATTR_KERNEL_CACHE_OPERATION_GRAPH,
    IsCached = CUDNN_ATTR_KERNEL_CACHE_IS_ENGINECFG_KERNEL_CACHED,
    Json = CUDNN_ATTR_KERNEL_CACHE_JSON_REPRESENTATION,
  };
  const auto cache = [](Client& c, const std::string& json = "") {
    Raw graph = c.Graph({c.ConvForward({8, 32, 16, 16}, {64, 32, 3, 3}, {8, 64, 14, 14})});
    Raw made = c.Make(CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR);
    c.SetDesc(made, Graph, graph);
    if (!json.empty())
      c.SetRaw(made, Json, CUDNN_TYPE_CHAR, static_cast<int64_t>(json.size()), json.data());
    c.Finalize(made);
    return made;
  };
  constexpr auto kNoGraph = "ours is a name for what the process has, and needs no graph";
  constexpr auto kFormat = "ours says that the text is of another library";
  return {
      {"kernel_cache", [=](Client& c) { cache(c); }},
      {"kernel_cache_without_a_graph",
       [](Client& c) { c.Finalize(c.Make(CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR)); }, kNoGraph},
      {"kernel_cache_json_size",
       [=](Client& c) { c.Get(cache(c), Json, CUDNN_TYPE_CHAR, 0, nullptr); }},
      {"kernel_cache_json_damaged", [=](Client& c) { cache(c, "[1"); }},
      {"kernel_cache_json_of_nobody", [=](Client& c) { cache(c, "{}"); }, kFormat},
      {"kernel_cache_asked_of_nothing",
       [=](Client& c) {
         void* config = nullptr;
         c.Get(cache(c), IsCached, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
       }},
      {"kernel_cache_asked_by_a_boolean",
       [=](Client& c) {
         bool known = false;
         c.Get(cache(c), IsCached, CUDNN_TYPE_BOOLEAN, 1, &known);
       }},
      {"kernel_cache_told",
       [](Client& c) {
         void* config = nullptr;
         c.SetRaw(c.Make(CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR), IsCached,
                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
       }},
      {"device_of_no_json",
       [](Client& c) {
         Raw device = c.Make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
         c.SetRaw(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 2, "[1");
         c.Finalize(device);
       }},
      {"engine_of_few_multiprocessors",
       [](Client& c) {
         const int32_t count = 16;
         c.SetRaw(c.Make(CUDNN_BACKEND_ENGINE_DESCRIPTOR), CUDNN_ATTR_ENGINE_SM_COUNT_TARGET,
                  CUDNN_TYPE_INT32, 1, &count);
       }},
  };
}

TEST(NvidiaParity, StatusesAgreeOrTheReasonIsKnown) {
  const std::string path = kiln::testing::NvidiaLibraryPath("");
  if (path.empty()) GTEST_SKIP() << "NVIDIA's libcudnn.so.9 is not installed";
  Library theirs(path), ours("api/libcudnn.so.9");
  ASSERT_TRUE(ours.loaded()) << dlerror();
  if (!theirs.loaded()) GTEST_SKIP() << path << " does not load: " << dlerror();
  ASSERT_EQ(ours.version(), size_t{CUDNN_VERSION});
  if (theirs.version() / 100 != 919) GTEST_SKIP() << path << " is version " << theirs.version();
  ASSERT_NE(theirs.create, ours.create) << "one library stands for both";
  std::vector<Row> rows = Rows();
  for (const auto& more : {NormRows(), NormBackwardRows(), KernelCacheRows()})
    rows.insert(rows.end(), more.begin(), more.end());
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    Client on_theirs(theirs), on_ours(ours);
    row.run(on_theirs);
    row.run(on_ours);
    std::string nvidia = theirs.error_string(on_theirs.status),
                kiln = theirs.error_string(on_ours.status);
    if (row.why_ours_differs == nullptr) {
      EXPECT_EQ(kiln, nvidia);
    } else {
      EXPECT_NE(kiln, nvidia) << "a reason is given, and there is no difference: "
                              << row.why_ours_differs;
    }
  }
}

}  // namespace
