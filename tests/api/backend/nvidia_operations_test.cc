// Single operations on ours and on NVIDIA's libcudnn.so.9: as nvidia_parity_test.cc, for operations
// that are lists of attributes. A row is an operation with its attributes; its status is that of
// the first call that fails, of finalize at the last.
#include <cudnn.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/api/backend/nvidia_client.h"
#include "tests/api/backend/operation_object.h"
#include "tests/support/nvidia_library.h"

namespace {

using kiln::testing::Attribute;
using kiln::testing::Int32;
using kiln::testing::Int64;
using kiln::testing::Ints;
using kiln::testing::Library;
using kiln::testing::Numbers;
using kiln::testing::Object;
using kiln::testing::Type;
using kiln::testing::With;
using kiln::testing::Without;
using Client = kiln::testing::ObjectClient;
using Tensor = kiln::testing::ObjectTensor;

struct Row {
  std::string name;
  Object object;
  const char* why_ours_differs = nullptr;
};

constexpr auto kMissing = "ours says BAD_PARAM of every attribute that is missing";
constexpr auto kWrongType = "ours says ATTRIBUTE_TYPE of every value of a wrong type";

std::vector<Row> BlockScaleRows() {
  enum : int {
    DX = CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_XDESC,
    DScale = CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_SCALE_DESC,
    DY = CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_YDESC,
    DPrec = CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_MATH_PREC,
    DBlock = CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_BLOCK_SIZE,
    QX = CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_XDESC,
    QScale = CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_SCALE_DESC,
    QY = CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_YDESC,
    QPrec = CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_MATH_PREC,
    QBlock = CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_BLOCK_SIZE
  };
  const Ints x = {1, 2, 9, 64}, scale = {1, 2, 9, 2};
  const Object dequantize = {CUDNN_BACKEND_OPERATION_BLOCK_SCALE_DEQUANTIZE_DESCRIPTOR,
                             {{DX, Tensor{x, CUDNN_DATA_FP8_E4M3}},
                              {DScale, Tensor{scale, CUDNN_DATA_FP8_E8M0}},
                              {DY, Tensor{x}},
                              {DPrec, Type(CUDNN_DATA_FLOAT)},
                              {DBlock, Int32(32)}}};
  const Object quantize = {CUDNN_BACKEND_OPERATION_BLOCK_SCALE_QUANTIZE_DESCRIPTOR,
                           {{QX, Tensor{x}},
                            {QScale, Tensor{scale, CUDNN_DATA_FP8_E8M0}},
                            {QY, Tensor{x, CUDNN_DATA_FP8_E4M3}},
                            {QPrec, Type(CUDNN_DATA_FLOAT)},
                            {QBlock, Int32(32)}}};
  std::vector<Row> rows = {
      {"dequantize", dequantize},
      {"dequantize_two_sizes", With(dequantize, {DBlock, Numbers{CUDNN_TYPE_INT32, {1, 32}}})},
      {"dequantize_three_sizes", With(dequantize, {DBlock, Numbers{CUDNN_TYPE_INT32, {1, 1, 32}}})},
      {"dequantize_i64_size", With(dequantize, {DBlock, Int64(32)}), kWrongType},
      {"dequantize_without_size", Without(dequantize, DBlock)},
      {"dequantize_without_type", Without(dequantize, DPrec)},
      {"dequantize_without_x", Without(dequantize, DX), kMissing},
      {"dequantize_without_scale", Without(dequantize, DScale), kMissing},
      {"dequantize_without_y", Without(dequantize, DY), kMissing},
      {"dequantize_f32_scale", With(dequantize, {DScale, Tensor{scale}})},
      {"quantize", quantize},
      {"quantize_matrix",
       With(With(With(quantize, {QX, Tensor{{9, 64}}}), {QY, Tensor{{9, 64}, CUDNN_DATA_FP8_E5M2}}),
            {QScale, Tensor{{9, 2}, CUDNN_DATA_FP8_E4M3}})},
      {"quantize_i64_size", With(quantize, {QBlock, Int64(32)}), kWrongType},
      {"quantize_without_type", Without(quantize, QPrec)},
      {"quantize_without_x", Without(quantize, QX), kMissing},
      {"quantize_without_y", Without(quantize, QY), kMissing},
      {"quantize_without_scale", Without(quantize, QScale), kMissing},
      {"quantize_to_f32", With(quantize, {QY, Tensor{x}})},
      {"quantize_to_fp4", With(quantize, {QY, Tensor{x, CUDNN_DATA_FP4_E2M1}})},
      {"quantize_to_int4", With(quantize, {QY, Tensor{x, CUDNN_DATA_INT4}})},
      {"dequantize_fp4", With(dequantize, {DX, Tensor{x, CUDNN_DATA_FP4_E2M1}})},
      {"dequantize_int4", With(dequantize, {DX, Tensor{x, CUDNN_DATA_INT4}})},
      {"quantize_f32_scales", With(quantize, {QScale, Tensor{scale}})},
      {"quantize_few_scales", With(quantize, {QScale, Tensor{{1, 2, 9, 1}, CUDNN_DATA_FP8_E8M0}})},
      {"quantize_other_y", With(quantize, {QY, Tensor{{1, 2, 9, 32}, CUDNN_DATA_FP8_E4M3}})},
  };
  return rows;
}

std::vector<Row> MatmulRows() {
  enum : int {
    A = CUDNN_ATTR_OPERATION_MATMUL_ADESC,
    B = CUDNN_ATTR_OPERATION_MATMUL_BDESC,
    C = CUDNN_ATTR_OPERATION_MATMUL_CDESC,
    Math = CUDNN_ATTR_OPERATION_MATMUL_DESC,
    M = CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC,
    N = CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC,
    K = CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC
  };
  const Object math = {CUDNN_BACKEND_MATMUL_DESCRIPTOR,
                       {{CUDNN_ATTR_MATMUL_COMP_TYPE, Type(CUDNN_DATA_FLOAT)}}};
  const auto padded = [&](Numbers value) {
    return std::vector<Object>{With(math, {CUDNN_ATTR_MATMUL_PADDING_VALUE, std::move(value)})};
  };
  const Ints square = {2, 3, 16, 16};
  const Object matmul = {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
                         {{A, Tensor{square}},
                          {B, Tensor{square}},
                          {C, Tensor{square}},
                          {Math, std::vector<Object>{math}}}};
  std::vector<Row> rows = {
      {"matmul", matmul},
      {"matmul_padding_double", With(matmul, {Math, padded({CUDNN_TYPE_DOUBLE, {3}})})},
      {"matmul_padding_float", With(matmul, {Math, padded({CUDNN_TYPE_FLOAT, {3}})})},
      {"matmul_without_a", Without(matmul, A), kMissing},
      {"matmul_without_c", Without(matmul, C), kMissing},
  };
  for (const auto& [name, type] : {std::pair{"fp4", CUDNN_DATA_FP4_E2M1},
                                   {"int4", CUDNN_DATA_INT4},
                                   {"uint4", CUDNN_DATA_UINT4},
                                   {"uint32", CUDNN_DATA_UINT32},
                                   {"complex_fp32", CUDNN_DATA_COMPLEX_FP32},
                                   {"complex_fp64", CUDNN_DATA_COMPLEX_FP64}}) {
    const Tensor tensor{square, type};
    const Object of_type = With(With(With(matmul, {A, tensor}), {B, tensor}), {C, tensor});
    const Object own = With(math, {CUDNN_ATTR_MATMUL_COMP_TYPE, Type(type)});
    rows.push_back({std::string("matmul_") + name, of_type});
    rows.push_back({std::string("matmul_in_") + name, With(of_type, {Math, std::vector{own}})});
  }
  for (const int name : {int{M}, int{N}, int{K}}) {
    const auto row = [&](const char* text, Tensor tensor, const char* why = nullptr) {
      rows.push_back({"matmul_override_" + std::to_string(name) + text,
                      With(matmul, {name, std::move(tensor)}), why});
    };
    row("_i32", {{2, 1, 1, 1}, CUDNN_DATA_INT32});
    row("_i64", {{2, 1, 1, 1}, CUDNN_DATA_INT64});
    row("_f32", {{2, 1, 1, 1}}, "ours takes counts that are integers");
    row("_of_heads", {{2, 3, 1, 1}, CUDNN_DATA_INT32}, "ours has an override for each matrix, too");
    row("_of_all", {{1, 1, 1, 1}, CUDNN_DATA_INT32}, "ours has one override for all, too");
  }
  return rows;
}

// Reductions of complex numbers; of the other modes ours takes more, of real numbers too.
std::vector<Row> ReductionRows() {
  std::vector<Row> rows;
  for (const auto& [name, mode] : {std::pair{"add", CUDNN_REDUCE_TENSOR_ADD},
                                   {"mul", CUDNN_REDUCE_TENSOR_MUL},
                                   {"min", CUDNN_REDUCE_TENSOR_MIN},
                                   {"max", CUDNN_REDUCE_TENSOR_MAX},
                                   {"amax", CUDNN_REDUCE_TENSOR_AMAX}})
    for (const auto type : {CUDNN_DATA_COMPLEX_FP32, CUDNN_DATA_COMPLEX_FP64})
      for (const auto compute : {type, CUDNN_DATA_FLOAT}) {
        const Object math = {CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
                             {{CUDNN_ATTR_REDUCTION_OPERATOR,
                               Numbers{CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, {double(mode)}}},
                              {CUDNN_ATTR_REDUCTION_COMP_TYPE, Type(compute)}}};
        rows.push_back({std::string("reduce_") + name + "_of_" + std::to_string(type) + "_in_" +
                            std::to_string(compute),
                        {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
                         {{CUDNN_ATTR_OPERATION_REDUCTION_XDESC, Tensor{{2, 3, 4, 5}, type}},
                          {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, Tensor{{2, 3, 4, 1}, type}},
                          {CUDNN_ATTR_OPERATION_REDUCTION_DESC, std::vector{math}}}}});
      }
  return rows;
}

std::vector<Row> RngRows() {
  enum : int {
    Distribution = CUDNN_ATTR_RNG_DISTRIBUTION,
    Probability = CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY,
    Low = CUDNN_ATTR_RNG_UNIFORM_DIST_MINIMUM,
    High = CUDNN_ATTR_RNG_UNIFORM_DIST_MAXIMUM,
    Mean = CUDNN_ATTR_RNG_NORMAL_DIST_MEAN,
    Deviation = CUDNN_ATTR_RNG_NORMAL_DIST_STANDARD_DEVIATION,
    Y = CUDNN_ATTR_OPERATION_RNG_YDESC,
    Seed = CUDNN_ATTR_OPERATION_RNG_SEED,
    Math = CUDNN_ATTR_OPERATION_RNG_DESC,
    Offset = CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC
  };
  const auto number = [](double v) { return Numbers{CUDNN_TYPE_DOUBLE, {v}}; };
  const auto rng = [&](cudnnRngDistribution_t type, std::vector<Attribute> more) {
    more.push_back({Distribution, Numbers{CUDNN_TYPE_RNG_DISTRIBUTION, {double(type)}}});
    return Object{CUDNN_BACKEND_RNG_DESCRIPTOR, std::move(more)};
  };
  constexpr auto kBernoulli = CUDNN_RNG_DISTRIBUTION_BERNOULLI,
                 kUniform = CUDNN_RNG_DISTRIBUTION_UNIFORM, kNormal = CUDNN_RNG_DISTRIBUTION_NORMAL;
  const Object mask = rng(kBernoulli, {{Probability, number(0.5)}});
  const Tensor one = {{1, 1, 1, 1}, CUDNN_DATA_INT64};
  const Object operation = {
      CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR,
      {{Y, Tensor{{2, 3, 4, 5}}}, {Math, std::vector<Object>{mask}}, {Seed, one}, {Offset, one}}};
  constexpr auto kEarlier = "ours refuses, when it is made, an operation that cannot be used";
  return {
      {"bernoulli", mask},
      {"bernoulli_without_probability", rng(kBernoulli, {})},
      {"bernoulli_certain", rng(kBernoulli, {{Probability, number(1)}})},
      {"bernoulli_above_1", rng(kBernoulli, {{Probability, number(1.5)}})},
      {"bernoulli_below_0", rng(kBernoulli, {{Probability, number(-0.5)}})},
      {"bernoulli_float", rng(kBernoulli, {{Probability, Numbers{CUDNN_TYPE_FLOAT, {0.5}}}})},
      {"no_distribution", Without(mask, Distribution)},
      {"uniform", rng(kUniform, {{Low, number(0)}, {High, number(1)}})},
      {"uniform_without_limits", rng(kUniform, {})},
      {"uniform_of_nothing", rng(kUniform, {{Low, number(2)}, {High, number(1)}})},
      {"normal", rng(kNormal, {{Mean, number(0)}, {Deviation, number(1)}})},
      {"normal_without_deviation", rng(kNormal, {{Mean, number(0)}})},
      {"normal_of_negative_deviation", rng(kNormal, {{Mean, number(0)}, {Deviation, number(-1)}})},
      {"rng", operation},
      {"rng_without_seed", Without(operation, Seed)},
      {"rng_without_offset", Without(operation, Offset)},
      {"rng_seed_by_number", With(operation, {Seed, Int64(5)})},
      {"rng_seed_i32_number", With(operation, {Seed, Int32(5)}), kWrongType},
      {"rng_seed_i32", With(operation, {Seed, Tensor{{1, 1, 1, 1}, CUDNN_DATA_INT32}})},
      {"rng_offset_i32", With(operation, {Offset, Tensor{{1, 1, 1, 1}, CUDNN_DATA_INT32}})},
      {"rng_two_seeds", With(operation, {Seed, Tensor{{2, 1, 1, 1}, CUDNN_DATA_INT64}})},
      {"rng_two_offsets", With(operation, {Offset, Tensor{{2, 1, 1, 1}, CUDNN_DATA_INT64}})},
      {"rng_half", With(operation, {Y, Tensor{{2, 3, 4, 5}, CUDNN_DATA_HALF}})},
      {"rng_without_y", Without(operation, Y), kEarlier},
      {"rng_without_distribution", Without(operation, Math), kEarlier},
  };
}

std::vector<Row> BandRows() {
  enum : int {
    X = CUDNN_ATTR_OPERATION_EXPAND_BAND_MATRIX_XDESC,
    Y = CUDNN_ATTR_OPERATION_EXPAND_BAND_MATRIX_YDESC,
    Lower = CUDNN_ATTR_OPERATION_EXPAND_BAND_MATRIX_LOWER_BANDWIDTH,
    Upper = CUDNN_ATTR_OPERATION_EXPAND_BAND_MATRIX_UPPER_BANDWIDTH,
    Axis = CUDNN_ATTR_OPERATION_EXPAND_BAND_MATRIX_AXIS,
    Pad = CUDNN_ATTR_OPERATION_EXPAND_BAND_MATRIX_PAD_VALUE
  };
  constexpr int kContract =
      int{CUDNN_ATTR_OPERATION_CONTRACT_BAND_MATRIX_XDESC} - int{X};  // from one to the other
  static_assert(int{CUDNN_ATTR_OPERATION_CONTRACT_BAND_MATRIX_PAD_VALUE} == Pad + kContract);
  const auto band = [](bool expands, const Ints& x, const Ints& y, double lower, double upper,
                       double axis) {
    const int from = expands ? 0 : kContract;
    return Object{expands ? CUDNN_BACKEND_OPERATION_EXPAND_BAND_MATRIX_DESCRIPTOR
                          : CUDNN_BACKEND_OPERATION_CONTRACT_BAND_MATRIX_DESCRIPTOR,
                  {{X + from, Tensor{x}},
                   {Y + from, Tensor{y}},
                   {Lower + from, Int64(lower)},
                   {Upper + from, Int64(upper)},
                   {Axis + from, Int64(axis)}}};
  };
  const Ints stored = {2, 3, 8, 5}, square = {2, 3, 8, 8};
  std::vector<Row> rows;
  for (const bool expands : {true, false}) {
    const int from = expands ? 0 : kContract;
    const auto row = [&](const char* name, const Ints& a, const Ints& b, double lower, double upper,
                         double axis) {
      rows.push_back({std::string(expands ? "expand_" : "contract_") + name,
                      band(expands, expands ? a : b, expands ? b : a, lower, upper, axis)});
    };
    row("square", stored, square, 2, 2, 3);
    row("lower", stored, square, 4, 0, 3);
    row("wide", stored, {2, 3, 8, 12}, 2, 2, 3);
    row("columns", {2, 3, 5, 8}, square, 2, 2, 2);
    row("matrix", {5, 8}, {8, 8}, 2, 2, 0);
    row("other_batch", stored, {2, 4, 8, 8}, 2, 2, 3);
    row("other_axis", stored, square, 2, 2, 2);
    row("few", {2, 3, 8, 4}, square, 2, 2, 3);
    row("swapped", square, stored, 2, 2, 3);
    row("negative", stored, square, -1, 5, 3);
    row("axis_beyond", stored, square, 2, 2, 4);
    row("axis_of_batches", {5, 2, 3, 8}, {8, 2, 3, 8}, 2, 2, 0);
    const Object whole =
        band(expands, expands ? stored : square, expands ? square : stored, 2, 2, 3);
    for (const int name : {int{X}, int{Y}, int{Lower}, int{Upper}, int{Axis}})
      rows.push_back({"without_" + std::to_string(name + from), Without(whole, name + from)});
    rows.push_back({"pad", With(whole, {Pad + from, Numbers{CUDNN_TYPE_FLOAT, {1.5}}})});
    rows.push_back({"pad_double", With(whole, {Pad + from, Numbers{CUDNN_TYPE_DOUBLE, {1.5}}})});
  }
  return rows;
}

std::vector<Row> MoeRows() {
  enum : int {
    Mode = CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_MODE,
    Prec = CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_MATH_PREC,
    Token = CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_TOKEN_DESC,
    Weight = CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_WEIGHT_DESC,
    First = CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_FIRST_TOKEN_OFFSET_DESC,
    Output = CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_OUTPUT_DESC,
    Index = CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_TOKEN_INDEX_DESC,
    Ks = CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_TOKEN_KS_DESC,
    TopK = CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_TOP_K
  };
  const auto mode = [](double m) {
    return Attribute{Mode, Numbers{CUDNN_TYPE_MOE_GROUPED_MATMUL_MODE, {m}}};
  };
  const auto integers = [](Ints dims) { return Tensor{std::move(dims), CUDNN_DATA_INT32}; };
  const auto bf16 = [](Ints dims) { return Tensor{std::move(dims), CUDNN_DATA_BFLOAT16}; };
  const Object none = {CUDNN_BACKEND_OPERATION_MOE_GROUPED_MATMUL_DESCRIPTOR,
                       {mode(CUDNN_MOE_GROUPED_MATMUL_MODE_NONE),
                        {Prec, Type(CUDNN_DATA_FLOAT)},
                        {Token, bf16({1, 32, 16})},
                        {Weight, bf16({4, 16, 24})},
                        {First, integers({4, 1, 1})},
                        {Output, bf16({1, 32, 24})}}};
  const Object gather = With(
      With(With(none, mode(CUDNN_MOE_GROUPED_MATMUL_MODE_GATHER)), {Index, integers({1, 64, 1})}),
      {Output, bf16({1, 64, 24})});
  const Object scatter = With(With(With(With(none, mode(CUDNN_MOE_GROUPED_MATMUL_MODE_SCATTER)),
                                        {Index, integers({1, 32, 1})}),
                                   {Ks, integers({1, 32, 1})}),
                              {TopK, Int32(2)});
  return {
      {"moe", none},
      {"moe_without_mode", Without(none, Mode)},
      {"moe_without_type", Without(none, Prec)},
      {"moe_without_token", Without(none, Token)},
      {"moe_without_weight", Without(none, Weight)},
      {"moe_without_first", Without(none, First)},
      {"moe_without_output", Without(none, Output)},
      {"moe_first_of_rank_1", With(none, {First, integers({4})})},
      {"moe_first_and_end", With(none, {First, integers({5, 1, 1})})},
      {"moe_first_i64", With(none, {First, Tensor{{4, 1, 1}, CUDNN_DATA_INT64}})},
      {"moe_matrices", With(none, {Token, bf16({32, 16})})},
      {"moe_other_depth", With(none, {Weight, bf16({4, 17, 24})})},
      {"moe_other_columns", With(none, {Output, bf16({1, 32, 25})})},
      {"moe_other_rows", With(none, {Output, bf16({1, 33, 24})})},
      {"moe_batches", With(With(none, {Token, bf16({2, 32, 16})}), {Output, bf16({2, 32, 24})})},
      {"moe_top_k_i64", With(none, {TopK, Int64(2)}), kWrongType},
      {"gather", gather},
      {"gather_without_index", Without(gather, Index)},
      {"gather_with_k", With(gather, {Ks, integers({1, 64, 1})})},
      {"gather_index_of_rank_1", With(gather, {Index, integers({64})})},
      {"scatter", scatter},
      {"scatter_without_index", Without(scatter, Index)},
      {"scatter_without_k", Without(scatter, Ks)},
      {"scatter_other_index", With(scatter, {Index, integers({1, 64, 1})})},
  };
}

std::vector<Row> SignalRows() {
  const Object signal = {
      CUDNN_BACKEND_OPERATION_SIGNAL_DESCRIPTOR,
      {{CUDNN_ATTR_OPERATION_SIGNAL_MODE, Numbers{CUDNN_TYPE_SIGNAL_MODE, {CUDNN_SIGNAL_WAIT}}},
       {CUDNN_ATTR_OPERATION_SIGNAL_FLAGDESC, Tensor{{1}, CUDNN_DATA_INT32}},
       {CUDNN_ATTR_OPERATION_SIGNAL_VALUE, Int64(1)},
       {CUDNN_ATTR_OPERATION_SIGNAL_XDESC, Tensor{{2, 3}}},
       {CUDNN_ATTR_OPERATION_SIGNAL_YDESC, Tensor{{2, 3}}}}};
  std::vector<Row> rows = {
      {"signal", signal},
      {"signal_i32_value", With(signal, {CUDNN_ATTR_OPERATION_SIGNAL_VALUE, Int32(1)})}};
  for (const Attribute& attribute : signal.attributes)
    rows.push_back(
        {"signal_without_" + std::to_string(attribute.name), Without(signal, attribute.name)});
  return rows;
}

std::vector<Row> VectorRows() {
  constexpr auto kNoVectors = "ours refuses counts that are no vectors for every type";
  constexpr auto kNoDim = "the reference demands the vectorized dimension";
  const auto tensor = [](cudnnDataType_t type, double count, double dim) {
    return Object{CUDNN_BACKEND_TENSOR_DESCRIPTOR,
                  {{CUDNN_ATTR_TENSOR_UNIQUE_ID, Int64(1)},
                   {CUDNN_ATTR_TENSOR_DATA_TYPE, Type(type)},
                   {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, Int64(16)},
                   {CUDNN_ATTR_TENSOR_DIMENSIONS, Numbers{CUDNN_TYPE_INT64, {2, 4, 8, 8}}},
                   {CUDNN_ATTR_TENSOR_STRIDES, Numbers{CUDNN_TYPE_INT64, {256, 64, 8, 1}}},
                   {CUDNN_ATTR_TENSOR_VECTOR_COUNT, Int64(count)},
                   {CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION, Int64(dim)}}};
  };
  std::vector<Row> rows;
  for (const cudnnDataType_t type : {CUDNN_DATA_INT8, CUDNN_DATA_UINT8, CUDNN_DATA_FLOAT}) {
    for (const double count : {-1, 0, 1, 2, 3, 4, 8, 32}) {
      rows.push_back({"vectors_of_" + std::to_string(count) + "_" + std::to_string(type),
                      tensor(type, count, 1),
                      type == CUDNN_DATA_FLOAT && count <= 0 ? kNoVectors : nullptr});
    }
  }
  const Object vectors = tensor(CUDNN_DATA_INT8, 4, 1);
  rows.push_back({"vectors_along_5", tensor(CUDNN_DATA_INT8, 4, 5)});
  rows.push_back(
      {"vectors_along_nothing", Without(vectors, CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION), kNoDim});
  rows.push_back({"a_dim_without_vectors", Without(vectors, CUDNN_ATTR_TENSOR_VECTOR_COUNT)});
  return rows;
}

TEST(NvidiaOperations, StatusesAgreeOrTheReasonIsKnown) {
  const std::string path = kiln::testing::NvidiaLibraryPath("");
  if (path.empty()) GTEST_SKIP() << "NVIDIA's libcudnn.so.9 is not installed";
  const Library theirs(path), ours("api/libcudnn.so.9");
  ASSERT_TRUE(ours.loaded()) << dlerror();
  if (!theirs.loaded()) GTEST_SKIP() << path << " does not load: " << dlerror();
  if (theirs.version() / 100 != 919) GTEST_SKIP() << path << " is version " << theirs.version();
  ASSERT_NE(theirs.create, ours.create) << "one library stands for both";
  for (const auto& rows : {BlockScaleRows(), MatmulRows(), ReductionRows(), RngRows(), BandRows(),
                           MoeRows(), SignalRows(), VectorRows()}) {
    for (const Row& row : rows) {
      SCOPED_TRACE(row.name);
      Client on_theirs(theirs), on_ours(ours);
      on_theirs.Make(row.object);
      on_ours.Make(row.object);
      const std::string nvidia = theirs.error_string(on_theirs.status),
                        kiln = theirs.error_string(on_ours.status);
      if (row.why_ours_differs == nullptr) {
        EXPECT_EQ(kiln, nvidia);
      } else {
        EXPECT_NE(kiln, nvidia) << "a reason is given, and there is no difference: "
                                << row.why_ours_differs;
      }
    }
  }
}

}  // namespace
