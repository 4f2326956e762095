// Statuses of the operations and attributes that 9.20 and later added: softmax, the mask of a
// diagonal band, transposition, slice, modes of a reshape, rotary embedding, the gradient of a
// grouped matmul's weights, constant values, multipliers of ragged offsets, types. Each row is one
// use or one mistake with the status that NVIDIA's 9.28 gives; ours gives the same, or the row says
// why not. Where that library is installed it is asked, too.
#include <cudnn.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
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
  const char* nvidia;  // its status, without CUDNN_STATUS_
  std::function<void(Client&)> run;
  const char* ours = nullptr;  // where it is another one
  const char* why_ours_differs = nullptr;
};

constexpr auto kMore = "ours takes more ranks and broadcasts";
constexpr auto kEarlier = "ours refuses what NVIDIA's accepts here and has no use for";
constexpr auto kEnum = "values outside an enumeration are refused, as in every other attribute";

// Tensors of an operation by attribute, as uids count from 1.
struct Operand {
  int attribute;
  Ints dims;
  int type = CUDNN_DATA_FLOAT;
};

Raw WithTensors(Client& c, int kind, const std::vector<Operand>& operands) {
  Raw op = c.Make(kind);
  int64_t uid = 0;
  for (const Operand& operand : operands)
    c.SetDesc(op, operand.attribute, c.Tensor(++uid, operand.dims, operand.type));
  return op;
}

const Ints kX = {2, 3, 8, 16}, kRows = {2, 3, 8, 1}, kOne = {1, 1, 1, 1};

// ---- softmax

enum Softmax : int {
  X = CUDNN_ATTR_OPERATION_SOFTMAX_XDESC,
  Y = CUDNN_ATTR_OPERATION_SOFTMAX_YDESC,
  Stats = CUDNN_ATTR_OPERATION_SOFTMAX_STATS_DESC,
  Max = CUDNN_ATTR_OPERATION_SOFTMAX_MAX_DESC,
  Sum = CUDNN_ATTR_OPERATION_SOFTMAX_SUM_EXP_DESC,
  Sink = CUDNN_ATTR_OPERATION_SOFTMAX_SINK_DESC,
  Log2 = CUDNN_ATTR_OPERATION_SOFTMAX_STATS_LOG2,
};

auto OfSoftmax(std::vector<Operand> operands, bool log2 = false) {
  return [=](Client& c) {
    Raw op = WithTensors(c, CUDNN_BACKEND_OPERATION_SOFTMAX_DESCRIPTOR, operands);
    if (log2) c.SetRaw(op, Log2, CUDNN_TYPE_BOOLEAN, 1, &log2);
    c.Finalize(op);
  };
}

std::vector<Row> SoftmaxRows() {
  return {
      {"softmax", "SUCCESS", OfSoftmax({{X, kX}, {Y, kX}})},
      {"softmax_all", "SUCCESS",
       OfSoftmax(
           {{X, kX}, {Y, kX}, {Stats, kRows}, {Max, kRows}, {Sum, kRows}, {Sink, {1, 3, 1, 1}}},
           true)},
      {"softmax_without_x", "BAD_PARAM_NOT_FINALIZED", OfSoftmax({{Y, kX}})},
      {"softmax_without_y", "BAD_PARAM_NOT_FINALIZED", OfSoftmax({{X, kX}})},
      {"softmax_other_y", "BAD_PARAM", OfSoftmax({{X, kX}, {Y, {2, 3, 8, 15}}})},
      {"softmax_stats_of_all", "BAD_PARAM", OfSoftmax({{X, kX}, {Y, kX}, {Stats, kX}})},
      {"softmax_max_of_all", "BAD_PARAM", OfSoftmax({{X, kX}, {Y, kX}, {Max, kX}})},
      {"softmax_sum_of_all", "BAD_PARAM", OfSoftmax({{X, kX}, {Y, kX}, {Sum, kX}})},
      {"softmax_sink_of_others", "BAD_PARAM", OfSoftmax({{X, kX}, {Y, kX}, {Sink, {1, 5, 1, 1}}})},
      {"softmax_sink_of_all", "BAD_PARAM", OfSoftmax({{X, kX}, {Y, kX}, {Sink, kOne}}), "SUCCESS",
       kMore},
      {"softmax_log2_of_nothing", "BAD_PARAM", OfSoftmax({{X, kX}, {Y, kX}}, true)},
      {"softmax_two_dims", "BAD_PARAM", OfSoftmax({{X, {5, 8}}, {Y, {5, 8}}}), "SUCCESS", kMore},
      {"softmax_log2_as_int", "BAD_PARAM_ATTRIBUTE_TYPE",
       [](Client& c) { c.SetInt(c.Make(CUDNN_BACKEND_OPERATION_SOFTMAX_DESCRIPTOR), Log2, 1); }},
      {"softmax_two_log2", "BAD_PARAM",
       [](Client& c) {
         const bool both[] = {true, true};
         c.SetRaw(c.Make(CUDNN_BACKEND_OPERATION_SOFTMAX_DESCRIPTOR), Log2, CUDNN_TYPE_BOOLEAN, 2,
                  both);
       }},
      {"softmax_two_x", "BAD_PARAM",
       [](Client& c) {
         Raw both[] = {c.Tensor(1, kX), c.Tensor(2, kX)};
         c.SetRaw(c.Make(CUDNN_BACKEND_OPERATION_SOFTMAX_DESCRIPTOR), X,
                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 2, both);
       }},
  };
}

// ---- mask

enum Mask : int {
  MaskX = CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_XDESC,
  MaskY = CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_YDESC,
  Fill = CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_BDESC,
  LenQ = CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_SEQ_LEN_QDESC,
  LenKv = CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_SEQ_LEN_KVDESC,
  CuQ = CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_CU_SEQ_LEN_QDESC,
  CuKv = CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_CU_SEQ_LEN_KVDESC,
  Left = CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_LEFT_BOUND_DESC,
  Shift = CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_SHIFT_RIGHT_BOUND_DESC,
};

auto OfMask(std::vector<Operand> operands, int comparison = CUDNN_POINTWISE_CMP_GE) {
  return [=](Client& c) {
    Raw op = WithTensors(c, CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR, operands);
    c.SetEnum(op, CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE,
              CUDNN_TYPE_POINTWISE_MODE, comparison);
    c.Finalize(op);
  };
}

auto MaskAnd(std::vector<Operand> more, int comparison = CUDNN_POINTWISE_CMP_GE) {
  std::vector<Operand> operands = {{MaskX, kX}, {MaskY, kX}, {Fill, kOne}};
  operands.insert(operands.end(), more.begin(), more.end());
  return OfMask(operands, comparison);
}

std::vector<Row> MaskRows() {
  constexpr int kInt = CUDNN_DATA_INT32;
  const Ints lengths = {2, 1, 1, 1}, cumulated = {3, 1, 1, 1};
  return {
      {"mask", "SUCCESS", MaskAnd({})},
      {"mask_without_x", "BAD_PARAM_NOT_FINALIZED", OfMask({{MaskY, kX}, {Fill, kOne}})},
      {"mask_without_y", "BAD_PARAM_NOT_FINALIZED", OfMask({{MaskX, kX}, {Fill, kOne}})},
      {"mask_without_fill", "BAD_PARAM_NOT_FINALIZED", OfMask({{MaskX, kX}, {MaskY, kX}})},
      {"mask_without_comparison", "SUCCESS",
       [](Client& c) {
         c.Finalize(WithTensors(c, CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR,
                                {{MaskX, kX}, {MaskY, kX}, {Fill, kOne}}));
       }},
      {"mask_that_adds", "SUCCESS", MaskAnd({}, CUDNN_POINTWISE_ADD), "BAD_PARAM", kEarlier},
      {"mask_other_y", "BAD_PARAM", OfMask({{MaskX, kX}, {MaskY, {2, 3, 8, 15}}, {Fill, kOne}})},
      {"mask_left", "SUCCESS", MaskAnd({{Left, kOne, kInt}})},
      {"mask_shift", "SUCCESS", MaskAnd({{Shift, kOne, kInt}})},
      {"mask_left_and_shift", "BAD_PARAM", MaskAnd({{Left, kOne, kInt}, {Shift, kOne, kInt}})},
      {"mask_left_of_float", "SUCCESS", MaskAnd({{Left, kOne}})},
      {"mask_left_of_others", "BAD_PARAM", MaskAnd({{Left, {3, 1, 1, 1}, kInt}})},
      {"mask_lengths", "SUCCESS", MaskAnd({{LenQ, lengths, kInt}, {LenKv, lengths, kInt}})},
      {"mask_lengths_of_others", "BAD_PARAM", MaskAnd({{LenQ, cumulated, kInt}})},
      {"mask_cumulated", "SUCCESS", MaskAnd({{CuQ, cumulated, kInt}, {CuKv, cumulated, kInt}})},
      {"mask_both_lengths", "BAD_PARAM", MaskAnd({{LenQ, lengths, kInt}, {CuQ, cumulated, kInt}})},
      {"mask_two_dims", "BAD_PARAM", OfMask({{MaskX, {5, 8}}, {MaskY, {5, 8}}, {Fill, {1, 1}}}),
       "SUCCESS", kMore},
      {"mask_comparison_as_int", "BAD_PARAM_ATTRIBUTE_TYPE",
       [](Client& c) {
         c.SetInt(c.Make(CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR),
                  CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE, 303);
       }},
  };
}

// ---- views

using Lists = std::vector<std::pair<int, Ints>>;

auto OfView(int kind, int x, int y, Ints from, Ints to, Lists lists,
            int y_type = CUDNN_DATA_FLOAT) {
  return [=](Client& c) {
    Raw op = WithTensors(c, kind, {{x, from}, {y, to, y_type}});
    for (const auto& [attribute, values] : lists) c.SetInts(op, attribute, values);
    c.Finalize(op);
  };
}

auto OfTranspose(Ints from, Ints to, Lists lists, int y_type = CUDNN_DATA_FLOAT) {
  return OfView(CUDNN_BACKEND_OPERATION_TRANSPOSE_DESCRIPTOR, CUDNN_ATTR_OPERATION_TRANSPOSE_XDESC,
                CUDNN_ATTR_OPERATION_TRANSPOSE_YDESC, std::move(from), std::move(to),
                std::move(lists), y_type);
}

std::vector<Row> TransposeRows() {
  constexpr int P = CUDNN_ATTR_OPERATION_TRANSPOSE_PERMUTATION;
  const Ints cube = {3, 3, 3};
  return {
      {"transpose", "SUCCESS", OfTranspose({2, 3, 4}, {4, 2, 3}, {{P, {2, 0, 1}}})},
      {"transpose_other_y", "BAD_PARAM", OfTranspose({2, 3, 4}, {4, 3, 2}, {{P, {2, 0, 1}}})},
      {"transpose_by_nothing", "BAD_PARAM", OfTranspose(cube, cube, {})},
      {"transpose_one_dim_twice", "BAD_PARAM", OfTranspose(cube, cube, {{P, {0, 1, 1}}})},
      {"transpose_a_dim_that_is_not", "BAD_PARAM", OfTranspose(cube, cube, {{P, {0, 1, 3}}})},
      {"transpose_too_few", "BAD_PARAM", OfTranspose(cube, cube, {{P, {0, 1}}})},
      {"transpose_types", "BAD_PARAM", OfTranspose(cube, cube, {{P, {0, 2, 1}}}, CUDNN_DATA_HALF)},
  };
}

auto OfSlice(Ints to, Lists lists, int y_type = CUDNN_DATA_FLOAT) {
  return OfView(CUDNN_BACKEND_OPERATION_SLICE_DESCRIPTOR, CUDNN_ATTR_OPERATION_SLICE_XDESC,
                CUDNN_ATTR_OPERATION_SLICE_YDESC, {5, 8}, std::move(to), std::move(lists), y_type);
}

std::vector<Row> SliceRows() {
  constexpr int S = CUDNN_ATTR_OPERATION_SLICE_START_INDICES,
                L = CUDNN_ATTR_OPERATION_SLICE_LIMIT_INDICES,
                T = CUDNN_ATTR_OPERATION_SLICE_STRIDES;
  const Ints zeros = {0, 0}, all = {5, 8}, ones = {1, 1};
  return {
      {"slice", "SUCCESS", OfSlice({3, 4}, {{S, zeros}, {L, all}, {T, {2, 2}}})},
      {"slice_without_strides", "BAD_PARAM", OfSlice(all, {{S, zeros}, {L, all}})},
      {"slice_without_starts", "BAD_PARAM", OfSlice(all, {{L, all}, {T, ones}})},
      {"slice_without_limits", "BAD_PARAM", OfSlice(all, {{S, zeros}, {T, ones}})},
      {"slice_beyond", "BAD_PARAM", OfSlice({5, 9}, {{S, zeros}, {L, {5, 9}}, {T, ones}})},
      {"slice_before", "BAD_PARAM", OfSlice({6, 8}, {{S, {-1, 0}}, {L, all}, {T, ones}})},
      {"slice_backwards", "BAD_PARAM", OfSlice({5, 2}, {{S, {0, 6}}, {L, {5, 4}}, {T, ones}})},
      {"slice_stands", "BAD_PARAM", OfSlice(all, {{S, zeros}, {L, all}, {T, {1, 0}}})},
      {"slice_other_y", "BAD_PARAM", OfSlice({5, 3}, {{S, zeros}, {L, all}, {T, {1, 2}}})},
      {"slice_too_few", "BAD_PARAM", OfSlice(all, {{S, {0}}, {L, all}, {T, ones}})},
      {"slice_types", "BAD_PARAM",
       OfSlice(all, {{S, zeros}, {L, all}, {T, ones}}, CUDNN_DATA_HALF)},
  };
}

auto OfReshape(Ints to, int mode, int y_type = CUDNN_DATA_FLOAT) {
  return [=](Client& c) {
    Raw op = WithTensors(c, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
                         {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, {4, 6}},
                          {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to, y_type}});
    c.SetEnum(op, CUDNN_ATTR_OPERATION_RESHAPE_MODE, CUDNN_TYPE_RESHAPE_MODE, mode);
    if (c.status == CUDNN_STATUS_SUCCESS) c.Finalize(op);
  };
}

std::vector<Row> ReshapeRows() {
  return {
      {"reshape_view", "SUCCESS", OfReshape({24}, CUDNN_RESHAPE_VIEW_ONLY)},
      {"reshape_logical", "SUCCESS", OfReshape({24}, CUDNN_RESHAPE_LOGICAL)},
      {"reshape_of_no_mode", "SUCCESS", OfReshape({24}, 2), "BAD_PARAM", kEnum},
      {"reshape_count", "BAD_PARAM", OfReshape({25}, CUDNN_RESHAPE_LOGICAL)},
      {"reshape_types", "SUCCESS", OfReshape({24}, CUDNN_RESHAPE_LOGICAL, CUDNN_DATA_HALF),
       "BAD_PARAM", kEarlier},
      {"reshape_mode_as_int", "BAD_PARAM",
       [](Client& c) {
         c.SetInt(c.Make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR),
                  CUDNN_ATTR_OPERATION_RESHAPE_MODE, 1);
       },
       "BAD_PARAM_ATTRIBUTE_TYPE", "ours says which mistake it is"},
  };
}

// ---- rotary embedding

struct RopeNames {
  int kind, x, y, freqs, scale, rope_dim;
};
constexpr RopeNames kRope = {
    CUDNN_BACKEND_OPERATION_ROPE_FWD_DESCRIPTOR, CUDNN_ATTR_OPERATION_ROPE_FWD_XDESC,
    CUDNN_ATTR_OPERATION_ROPE_FWD_YDESC,         CUDNN_ATTR_OPERATION_ROPE_FWD_FREQSDESC,
    CUDNN_ATTR_OPERATION_ROPE_FWD_OUTPUT_SCALE,  CUDNN_ATTR_OPERATION_ROPE_FWD_ROPE_DIM};
constexpr RopeNames kRopeGrad = {
    CUDNN_BACKEND_OPERATION_ROPE_BWD_DESCRIPTOR, CUDNN_ATTR_OPERATION_ROPE_BWD_DYDESC,
    CUDNN_ATTR_OPERATION_ROPE_BWD_DXDESC,        CUDNN_ATTR_OPERATION_ROPE_BWD_FREQSDESC,
    CUDNN_ATTR_OPERATION_ROPE_BWD_OUTPUT_SCALE,  CUDNN_ATTR_OPERATION_ROPE_BWD_ROPE_DIM};

struct RopeUse {
  Ints x = {2, 4, 8, 64}, y = {2, 4, 8, 64}, freqs = {8, 1, 1, 64};
  int type = CUDNN_DATA_BFLOAT16, y_type = CUDNN_DATA_BFLOAT16, freqs_type = CUDNN_DATA_FLOAT;
  int64_t rope_dim = -1;  // not set
  int without = 0;        // an attribute
};

auto OfRope(const RopeNames& names, const RopeUse& use) {
  return [=](Client& c) {
    std::vector<Operand> operands;
    for (const Operand& operand : {Operand{names.x, use.x, use.type},
                                   {names.y, use.y, use.y_type},
                                   {names.freqs, use.freqs, use.freqs_type}})
      if (operand.attribute != use.without) operands.push_back(operand);
    Raw op = WithTensors(c, names.kind, operands);
    if (use.rope_dim != -1) c.SetInt(op, names.rope_dim, use.rope_dim);
    c.Finalize(op);
  };
}

std::vector<Row> RopeRows(const RopeNames& n) {
  constexpr auto kDouble = "ours says which mistake it is";
  const auto scaled = [=](int type, const void* value, int64_t count) {
    return [=](Client& c) { c.SetRaw(c.Make(n.kind), n.scale, type, count, value); };
  };
  static constexpr float kScales[] = {0.5F, 2};
  static constexpr double kWide = 0.5;
  return {
      {"rope", "SUCCESS", OfRope(n, {})},
      {"rope_part", "SUCCESS", OfRope(n, {.freqs = {8, 1, 1, 32}, .rope_dim = 32})},
      {"rope_part_of_more_angles", "SUCCESS", OfRope(n, {.rope_dim = 32})},
      {"rope_of_0_is_all", "SUCCESS", OfRope(n, {.rope_dim = 0})},
      {"rope_more_places", "SUCCESS", OfRope(n, {.freqs = {100, 1, 1, 64}})},
      {"rope_floats", "SUCCESS", OfRope(n, {.type = CUDNN_DATA_FLOAT, .y_type = CUDNN_DATA_FLOAT})},
      {"rope_narrow_angles", "SUCCESS", OfRope(n, {.freqs_type = CUDNN_DATA_BFLOAT16})},
      {"rope_of_matrices", "SUCCESS",
       OfRope(n, {.x = {8, 8, 64}, .y = {8, 8, 64}, .freqs = {8, 1, 64}})},
      {"rope_scale", "SUCCESS", scaled(CUDNN_TYPE_FLOAT, kScales, 1)},
      {"rope_two_scales", "BAD_PARAM", scaled(CUDNN_TYPE_FLOAT, kScales, 2)},
      {"rope_scale_as_double", "BAD_PARAM", scaled(CUDNN_TYPE_DOUBLE, &kWide, 1),
       "BAD_PARAM_ATTRIBUTE_TYPE", kDouble},
      {"rope_without_x", "BAD_PARAM", OfRope(n, {.without = n.x})},
      {"rope_without_y", "BAD_PARAM", OfRope(n, {.without = n.y})},
      {"rope_without_angles", "BAD_PARAM", OfRope(n, {.without = n.freqs})},
      {"rope_of_minus_2", "BAD_PARAM", OfRope(n, {.rope_dim = -2})},
      {"rope_of_31", "BAD_PARAM", OfRope(n, {.rope_dim = 31})},
      {"rope_of_128", "BAD_PARAM", OfRope(n, {.freqs = {8, 1, 1, 128}, .rope_dim = 128})},
      {"rope_few_angles", "BAD_PARAM", OfRope(n, {.freqs = {8, 1, 1, 32}})},
      {"rope_of_odd", "BAD_PARAM", OfRope(n, {.x = {2, 4, 8, 63}, .y = {2, 4, 8, 63}})},
      {"rope_other_y", "BAD_PARAM", OfRope(n, {.y = {2, 4, 8, 62}})},
      {"rope_other_places", "BAD_PARAM", OfRope(n, {.y = {2, 4, 7, 64}})},
      {"rope_types", "BAD_PARAM", OfRope(n, {.y_type = CUDNN_DATA_FLOAT})},
      {"rope_few_places", "SUCCESS", OfRope(n, {.freqs = {7, 1, 1, 64}}), "BAD_PARAM",
       "angles of places would be read where there are none"},
      {"rope_angles_along_places", "SUCCESS", OfRope(n, {.freqs = {1, 1, 8, 64}}), "BAD_PARAM",
       kEarlier},
      {"rope_angles_of_heads", "SUCCESS", OfRope(n, {.freqs = {8, 4, 1, 64}}), "BAD_PARAM",
       kEarlier},
      {"rope_integers", "SUCCESS", OfRope(n, {.type = CUDNN_DATA_INT8, .y_type = CUDNN_DATA_INT8}),
       "BAD_PARAM", kEarlier},
      {"rope_integer_angles", "SUCCESS", OfRope(n, {.freqs_type = CUDNN_DATA_INT32}), "BAD_PARAM",
       kEarlier},
      {"rope_dim_as_float", "BAD_PARAM",
       [=](Client& c) { c.SetRaw(c.Make(n.kind), n.rope_dim, CUDNN_TYPE_FLOAT, 1, kScales); },
       "BAD_PARAM_ATTRIBUTE_TYPE", kDouble},
  };
}

// ---- the gradient of a grouped matmul's weights

struct MoeUse {
  Ints token = {1, 32, 16}, doutput = {1, 32, 24}, first = {4, 1, 1}, dweight = {4, 16, 24};
  int first_type = CUDNN_DATA_INT32;
  int without = 0;
};

auto OfMoe(const MoeUse& use) {
  return [=](Client& c) {
    std::vector<Operand> operands;
    for (const Operand& operand :
         {Operand{CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_TOKEN_DESC, use.token},
          {CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_DOUTPUT_DESC, use.doutput},
          {CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_FIRST_TOKEN_OFFSET_DESC, use.first,
           use.first_type},
          {CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_DWEIGHT_DESC, use.dweight}})
      if (operand.attribute != use.without) operands.push_back(operand);
    c.Finalize(WithTensors(c, CUDNN_BACKEND_OPERATION_MOE_GROUPED_MATMUL_BWD_DESCRIPTOR, operands));
  };
}

std::vector<Row> MoeRows() {
  return {
      {"moe", "SUCCESS", OfMoe({})},
      {"moe_long_offsets", "SUCCESS", OfMoe({.first_type = CUDNN_DATA_INT64})},
      {"moe_batches", "SUCCESS", OfMoe({.first = {8, 1, 1}})},
      {"moe_without_token", "BAD_PARAM",
       OfMoe({.without = CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_TOKEN_DESC})},
      {"moe_without_doutput", "BAD_PARAM",
       OfMoe({.without = CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_DOUTPUT_DESC})},
      {"moe_without_offsets", "BAD_PARAM",
       OfMoe({.without = CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_FIRST_TOKEN_OFFSET_DESC})},
      {"moe_without_dweight", "BAD_PARAM",
       OfMoe({.without = CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_DWEIGHT_DESC})},
      {"moe_offsets_of_rank_1", "BAD_PARAM", OfMoe({.first = {4}})},
      {"moe_offsets_and_end", "SUCCESS", OfMoe({.first = {5, 1, 1}}), "BAD_PARAM", kEarlier},
      {"moe_other_experts", "SUCCESS", OfMoe({.dweight = {3, 16, 24}}), "BAD_PARAM", kEarlier},
      {"moe_float_offsets", "SUCCESS", OfMoe({.first_type = CUDNN_DATA_FLOAT}), "BAD_PARAM",
       kEarlier},
      {"moe_matrices", "BAD_PARAM", OfMoe({.token = {32, 16}})},
      {"moe_two_batches", "BAD_PARAM", OfMoe({.token = {2, 32, 16}, .doutput = {2, 32, 24}})},
      {"moe_other_depth", "BAD_PARAM", OfMoe({.dweight = {4, 17, 24}})},
      {"moe_other_columns", "BAD_PARAM", OfMoe({.dweight = {4, 16, 25}})},
      {"moe_other_rows", "BAD_PARAM", OfMoe({.doutput = {1, 33, 24}})},
      {"moe_type_as_int", "BAD_PARAM",
       [](Client& c) {
         c.SetInt(c.Make(CUDNN_BACKEND_OPERATION_MOE_GROUPED_MATMUL_BWD_DESCRIPTOR),
                  CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_MATH_PREC, 0);
       },
       "BAD_PARAM_ATTRIBUTE_TYPE", "ours says which mistake it is"},
  };
}

// ---- tensors

using More = std::function<void(Client&, Raw)>;

auto OfTensor(More more, Ints dims = kOne, int type = CUDNN_DATA_FLOAT) {
  return [=](Client& c) {
    Raw t = c.Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    c.SetInt(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1);
    c.SetEnum(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    c.SetInt(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16);
    c.SetInts(t, CUDNN_ATTR_TENSOR_DIMENSIONS, dims);
    c.SetInts(t, CUDNN_ATTR_TENSOR_STRIDES, Ints(dims.size(), 1));
    more(c, t);
    if (c.status == CUDNN_STATUS_SUCCESS) c.Finalize(t);
  };
}

void ByValue(Client& c, Raw t) {
  const bool yes = true;
  c.SetRaw(t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
}

void Constant(Client& c, Raw t) {
  static const float value = 2.5f;
  const void* const at = &value;
  c.SetRaw(t, CUDNN_ATTR_TENSOR_CONSTANT_VALUE, CUDNN_TYPE_VOID_PTR, 1, &at);
}

auto Ragged(bool with_offsets, int64_t multiplier) {
  return OfTensor(
      [=](Client& c, Raw t) {
        if (with_offsets)
          c.SetDesc(t, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC,
                    c.Tensor(9, {3, 1, 1, 1}, CUDNN_DATA_INT32));
        c.SetInt(t, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_MULTIPLIER, multiplier);
      },
      {2, 1, 4, 8});
}

std::vector<Row> TensorRows() {
  const auto nothing = [](Client&, Raw) {};
  const auto both = [](Client& c, Raw t) { ByValue(c, t), Constant(c, t); };
  return {
      {"constant", "SUCCESS", OfTensor(both)},
      {"constant_in_memory", "BAD_PARAM", OfTensor(Constant)},
      {"constant_of_many", "BAD_PARAM", OfTensor(both, {2, 1, 1, 1})},
      {"constant_as_int", "BAD_PARAM_ATTRIBUTE_TYPE", OfTensor([](Client& c, Raw t) {
         ByValue(c, t);
         c.SetInt(t, CUDNN_ATTR_TENSOR_CONSTANT_VALUE, 1);
       })},
      {"constant_at_null", "BAD_PARAM_NULL_POINTER", OfTensor([](Client& c, Raw t) {
         ByValue(c, t);
         const void* const at = nullptr;
         c.SetRaw(t, CUDNN_ATTR_TENSOR_CONSTANT_VALUE, CUDNN_TYPE_VOID_PTR, 1, &at);
       })},
      {"constant_of_none", "BAD_PARAM",
       [=](Client& c) {
         Raw t = c.Tensor(1, kOne);
         void* at = nullptr;
         c.Get(t, CUDNN_ATTR_TENSOR_CONSTANT_VALUE, CUDNN_TYPE_VOID_PTR, 1, &at);
       }},
      {"ragged_multiplier", "SUCCESS", Ragged(true, 64)},
      {"ragged_multiplier_of_nothing", "BAD_PARAM", Ragged(false, 64)},
      {"ragged_multiplier_of_1_of_nothing", "SUCCESS", Ragged(false, 1)},
      {"ragged_multiplier_of_0", "BAD_PARAM", Ragged(true, 0)},
      {"byte_boolean", "SUCCESS", OfTensor(nothing, {2, 1, 1, 1}, CUDNN_DATA_BYTE_BOOLEAN)},
      {"fp8_e5m3", "SUCCESS", OfTensor(nothing, {2, 1, 1, 1}, CUDNN_DATA_FP8_E5M3)},
  };
}

std::string NameOf(const Library& library, cudnnStatus_t status) {
  return std::string(library.error_string(status)).substr(std::string("CUDNN_STATUS_").size());
}

TEST(NvidiaParts, StatusesAreThoseOf928OrTheReasonIsKnown) {
  const Library ours("api/libcudnn.so.9");
  ASSERT_TRUE(ours.loaded()) << dlerror();
  const std::string path = kiln::testing::NvidiaLibraryPath("");
  const bool is_there = !path.empty() && kiln::testing::ProbeVersion(path) / 100 == 928;
  const Library theirs(is_there ? path : "api/libcudnn.so.9");
  for (const auto& rows : {SoftmaxRows(), MaskRows(), TransposeRows(), SliceRows(), ReshapeRows(),
                           RopeRows(kRope), RopeRows(kRopeGrad), MoeRows(), TensorRows()}) {
    for (const Row& row : rows) {
      SCOPED_TRACE(row.name);
      Client client(ours);
      row.run(client);
      EXPECT_EQ(NameOf(ours, client.status), row.ours == nullptr ? row.nvidia : row.ours);
      EXPECT_EQ(row.ours != nullptr, row.why_ours_differs != nullptr);
      if (!is_there) continue;
      Client other(theirs);
      row.run(other);
      EXPECT_EQ(NameOf(theirs, other.status), row.nvidia) << "NVIDIA's";
    }
  }
}

// An attribute that was not set reads as its default, and a rope dim of 0 as what it stands for.
TEST(NvidiaParts, RopeReadsBack) {
  const Library ours("api/libcudnn.so.9");
  ASSERT_TRUE(ours.loaded()) << dlerror();
  for (const RopeNames& n : {kRope, kRopeGrad}) {
    Client c(ours);
    Raw op = WithTensors(c, n.kind,
                         {{n.x, {2, 4, 8, 64}}, {n.y, {2, 4, 8, 64}}, {n.freqs, {8, 1, 1, 64}}});
    c.SetInt(op, n.rope_dim, 0);
    c.Finalize(op);
    ASSERT_EQ(c.status, CUDNN_STATUS_SUCCESS);
    int64_t rope_dim = -1;
    float scale = -1;
    EXPECT_EQ(c.Get(op, n.rope_dim, CUDNN_TYPE_INT64, 1, &rope_dim), 1);
    EXPECT_EQ(c.Get(op, n.scale, CUDNN_TYPE_FLOAT, 1, &scale), 1);
    EXPECT_EQ(c.status, CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(rope_dim, 64);
    EXPECT_EQ(scale, 1.0F);
    c.SetInt(op, n.rope_dim, 32);
    EXPECT_NE(c.status, CUDNN_STATUS_SUCCESS) << "a finalized operation stands";
  }
}

}  // namespace
