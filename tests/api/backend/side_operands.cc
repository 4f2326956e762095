#include "tests/api/backend/side_operands.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace kiln::testing {
namespace {

constexpr auto kHalf = CUDNN_DATA_HALF;
constexpr auto kInt32 = CUDNN_DATA_INT32;

// Channels innermost.
Ints ChannelsLast(const Ints& dims) {
  Ints strides(dims.size(), 1);
  int64_t stride = dims[1];
  for (size_t d = dims.size(); d-- > 2; stride *= dims[d]) strides[d] = stride;
  strides[0] = stride;
  return strides;
}
ObjectTensor Image(Ints dims, cudnnDataType_t type = kHalf) {
  Ints strides = ChannelsLast(dims);
  return {.dims = std::move(dims), .type = type, .strides = std::move(strides)};
}
ObjectTensor Uid(ObjectTensor tensor, int64_t uid) {
  tensor.uid = uid;
  return tensor;
}
ObjectTensor Scalar(Ints dims) { return {.dims = std::move(dims), .by_value = true}; }

Numbers Ints64(std::vector<double> v) { return {CUDNN_TYPE_INT64, std::move(v)}; }
Numbers Float(double v) { return {CUDNN_TYPE_FLOAT, {v}}; }

// Operands that are of other extents together, in the last operation of a graph.
struct Side {
  std::string name;
  std::vector<int> attributes;
};
struct Base {
  std::string name;
  std::vector<Object> graph;
  std::vector<Side> sides;
};

Object Convolution(ObjectTensor x, ObjectTensor w, ObjectTensor y) {
  const Object conv = {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
                       {{CUDNN_ATTR_CONVOLUTION_COMP_TYPE, Type(CUDNN_DATA_FLOAT)},
                        {CUDNN_ATTR_CONVOLUTION_CONV_MODE,
                         Numbers{CUDNN_TYPE_CONVOLUTION_MODE, {CUDNN_CROSS_CORRELATION}}},
                        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, Int64(2)},
                        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, Ints64({1, 1})},
                        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, Ints64({1, 1})},
                        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, Ints64({1, 1})},
                        {CUDNN_ATTR_CONVOLUTION_DILATIONS, Ints64({1, 1})}}};
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
          {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, std::move(x)},
           {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, std::move(w)},
           {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, std::move(y)},
           {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, std::vector{conv}},
           {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, Float(1)},
           {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, Float(0)}}};
}

Object Pointwise(cudnnPointwiseMode_t mode, std::vector<Attribute> operands) {
  const Object math = {
      CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
      {{CUDNN_ATTR_POINTWISE_MODE, Numbers{CUDNN_TYPE_POINTWISE_MODE, {double(mode)}}},
       {CUDNN_ATTR_POINTWISE_MATH_PREC, Type(CUDNN_DATA_FLOAT)}}};
  operands.push_back({CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, std::vector{math}});
  return {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, std::move(operands)};
}

Object Matmul(ObjectTensor a, ObjectTensor b, ObjectTensor c) {
  const Object math = {CUDNN_BACKEND_MATMUL_DESCRIPTOR,
                       {{CUDNN_ATTR_MATMUL_COMP_TYPE, Type(CUDNN_DATA_FLOAT)}}};
  return {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
          {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, std::move(a)},
           {CUDNN_ATTR_OPERATION_MATMUL_BDESC, std::move(b)},
           {CUDNN_ATTR_OPERATION_MATMUL_CDESC, std::move(c)},
           {CUDNN_ATTR_OPERATION_MATMUL_DESC, std::vector{math}}}};
}

const Ints kX = {8, 64, 16, 16}, kChannels = {1, 64, 1, 1}, kOne = {1, 1, 1, 1};

// gen_stats of a convolution's result, which is how NVIDIA's engines have it.
Base GenStats() {
  enum : int {
    Sum = CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC,
    Sq = CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC
  };
  const ObjectTensor y = Uid(Image(kX), 7);
  return {"gen_stats",
          {Convolution(Image({8, 32, 16, 16}), Image({64, 32, 3, 3}), y),
           {CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR,
            {{CUDNN_ATTR_OPERATION_GENSTATS_MODE,
              Numbers{CUDNN_TYPE_GENSTATS_MODE, {CUDNN_GENSTATS_SUM_SQSUM}}},
             {CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, Type(CUDNN_DATA_FLOAT)},
             {CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y},
             {Sum, Image(kChannels, CUDNN_DATA_FLOAT)},
             {Sq, Image(kChannels, CUDNN_DATA_FLOAT)}}}},
          {{"sum", {Sum}}, {"sq_sum", {Sq}}, {"sum+sq_sum", {Sum, Sq}}}};
}

Base BnFinalize() {
  Object op = {
      CUDNN_BACKEND_OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR,
      {{CUDNN_ATTR_OPERATION_BN_FINALIZE_STATS_MODE,
        Numbers{CUDNN_TYPE_BN_FINALIZE_STATS_MODE, {CUDNN_BN_FINALIZE_STATISTICS_TRAINING}}},
       {CUDNN_ATTR_OPERATION_BN_FINALIZE_MATH_PREC, Type(CUDNN_DATA_FLOAT)},
       {CUDNN_ATTR_OPERATION_BN_FINALIZE_EPSILON_DESC, Scalar(kOne)},
       {CUDNN_ATTR_OPERATION_BN_FINALIZE_EXP_AVERATE_FACTOR_DESC, Scalar(kOne)},
       {CUDNN_ATTR_OPERATION_BN_FINALIZE_ACCUM_COUNT_DESC,
        ObjectTensor{.dims = kOne, .type = CUDNN_DATA_INT64, .by_value = true}}}};
  std::vector<Side> sides;
  Side all = {"all", {}};
  for (const auto& [name, attribute] :
       {std::pair{"sum", CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SUM_DESC},
        {"sq_sum", CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SQ_SUM_DESC},
        {"scale", CUDNN_ATTR_OPERATION_BN_FINALIZE_SCALE_DESC},
        {"bias", CUDNN_ATTR_OPERATION_BN_FINALIZE_BIAS_DESC},
        {"prev_mean", CUDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_MEAN_DESC},
        {"prev_var", CUDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_VAR_DESC},
        {"updated_mean", CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_MEAN_DESC},
        {"updated_var", CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_VAR_DESC},
        {"saved_mean", CUDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_MEAN_DESC},
        {"saved_inv_std", CUDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_INV_STD_DESC},
        {"eq_scale", CUDNN_ATTR_OPERATION_BN_FINALIZE_EQ_SCALE_DESC},
        {"eq_bias", CUDNN_ATTR_OPERATION_BN_FINALIZE_EQ_BIAS_DESC}}) {
    op.attributes.push_back({attribute, Image(kChannels, CUDNN_DATA_FLOAT)});
    sides.push_back({name, {attribute}});
    all.attributes.push_back(attribute);
  }
  sides.push_back(all);
  sides.push_back({"epsilon", {CUDNN_ATTR_OPERATION_BN_FINALIZE_EPSILON_DESC}});
  sides.push_back({"factor", {CUDNN_ATTR_OPERATION_BN_FINALIZE_EXP_AVERATE_FACTOR_DESC}});
  sides.push_back({"count", {CUDNN_ATTR_OPERATION_BN_FINALIZE_ACCUM_COUNT_DESC}});
  return {"bn_finalize", {op}, sides};
}

Object NormObject(cudnnBackendDescriptorType_t kind, int mode_name, cudnnBackendNormMode_t mode,
                  std::vector<Attribute> more) {
  more.push_back({mode_name, Numbers{CUDNN_TYPE_NORM_MODE, {double(mode)}}});
  return {kind, std::move(more)};
}

Base NormForward(std::string name, cudnnBackendNormMode_t mode, const Ints& x, const Ints& weights,
                 const Ints& stats, bool inference = false) {
  enum : int {
    Mean = CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC,
    Inv = CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC,
    Scale = CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC,
    Bias = CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC,
    Epsilon = CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC,
    Factor = CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC,
    InMean = CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC,
    InVar = CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC,
    OutMean = CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC,
    OutVar = CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC
  };
  const bool rms = mode == CUDNN_RMS_NORM, runs = mode == CUDNN_BATCH_NORM && !inference;
  const ObjectTensor s = Image(stats, CUDNN_DATA_FLOAT), w = Image(weights, CUDNN_DATA_FLOAT);
  Base base = {std::move(name), {}, {{"scale", {Scale}}, {"inv_variance", {Inv}}}};
  std::vector<Attribute> attributes = {
      {CUDNN_ATTR_OPERATION_NORM_FWD_PHASE,
       Numbers{CUDNN_TYPE_NORM_FWD_PHASE,
               {double(inference ? CUDNN_NORM_FWD_INFERENCE : CUDNN_NORM_FWD_TRAINING)}}},
      {CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, Image(x)},
      {CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, Image(x)},
      {Scale, w},
      {Inv, s}};
  if (!inference) {
    attributes.push_back({Epsilon, Scalar(Ints(x.size(), 1))});
    base.sides.push_back({"epsilon", {Epsilon}});
  }
  if (!rms) {
    attributes.push_back({Bias, w});
    attributes.push_back({Mean, s});
    base.sides.push_back({"bias", {Bias}});
    base.sides.push_back({"scale+bias", {Scale, Bias}});
    base.sides.push_back({"mean", {Mean}});
    base.sides.push_back({"mean+inv_variance", {Mean, Inv}});
  }
  if (runs) {
    attributes.push_back({Factor, Scalar(Ints(x.size(), 1))});
    for (const int name : {int{InMean}, int{InVar}, int{OutMean}, int{OutVar}})
      attributes.push_back({name, s});
    base.sides.push_back({"factor", {Factor}});
    base.sides.push_back({"running_in", {InMean, InVar}});
    base.sides.push_back({"running_out", {OutMean, OutVar}});
    base.sides.push_back({"running", {InMean, InVar, OutMean, OutVar}});
  }
  base.graph = {NormObject(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR,
                           CUDNN_ATTR_OPERATION_NORM_FWD_MODE, mode, std::move(attributes))};
  return base;
}

Base NormBackward(std::string name, cudnnBackendNormMode_t mode, const Ints& x, const Ints& weights,
                  const Ints& stats) {
  enum : int {
    Mean = CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC,
    Inv = CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC,
    Scale = CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC,
    Dscale = CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC,
    Dbias = CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC
  };
  const bool rms = mode == CUDNN_RMS_NORM;
  const ObjectTensor s = Image(stats, CUDNN_DATA_FLOAT), w = Image(weights, CUDNN_DATA_FLOAT);
  Base base = {
      std::move(name), {}, {{"scale", {Scale}}, {"inv_variance", {Inv}}, {"dscale", {Dscale}}}};
  std::vector<Attribute> attributes = {{CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, Image(x)},
                                       {CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, Image(x)},
                                       {CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, Image(x)},
                                       {Scale, w},
                                       {Inv, s},
                                       {Dscale, w}};
  if (!rms) {
    attributes.push_back({Mean, s});
    attributes.push_back({Dbias, w});
    base.sides.push_back({"mean", {Mean}});
    base.sides.push_back({"mean+inv_variance", {Mean, Inv}});
    base.sides.push_back({"dbias", {Dbias}});
    base.sides.push_back({"scale+dscale+dbias", {Scale, Dscale, Dbias}});
    base.sides.push_back({"dscale+dbias", {Dscale, Dbias}});
  } else {
    base.sides.push_back({"scale+dscale", {Scale, Dscale}});
  }
  base.graph = {NormObject(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR,
                           CUDNN_ATTR_OPERATION_NORM_BWD_MODE, mode, std::move(attributes))};
  return base;
}

Base BnBwdWeights() {
  Object op = {CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR,
               {{CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, Type(CUDNN_DATA_FLOAT)},
                {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, Image(kX)},
                {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, Image(kX)}}};
  std::vector<Side> sides;
  Side all = {"all", {}};
  for (const auto& [name, attribute] :
       {std::pair{"mean", CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC},
        {"inv_std", CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC},
        {"scale", CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC},
        {"dscale", CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC},
        {"dbias", CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC},
        {"eq_dy_scale", CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC},
        {"eq_x_scale", CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC},
        {"eq_bias", CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS}}) {
    op.attributes.push_back({attribute, Image(kChannels, CUDNN_DATA_FLOAT)});
    sides.push_back({name, {attribute}});
    all.attributes.push_back(attribute);
  }
  sides.push_back(all);
  return {"bn_bwd_weights", {op}, sides};
}

std::vector<Base> Pointwises() {
  enum : int {
    X = CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
    B = CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
    T = CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
    Y = CUDNN_ATTR_OPERATION_POINTWISE_YDESC
  };
  ObjectTensor conv = Uid(Image(kX, CUDNN_DATA_FLOAT), 7);
  conv.is_virtual = true;
  const ObjectTensor mask = Image(kX, CUDNN_DATA_BOOLEAN);
  const Ints product = {4, 64, 128};
  ObjectTensor sum = Uid({.dims = product}, 7);
  sum.is_virtual = true;
  return {
      {"add",
       {Pointwise(CUDNN_POINTWISE_ADD, {{X, Image(kX)}, {B, Image(kChannels)}, {Y, Image(kX)}})},
       {{"b", {B}}}},
      {"conv_bias",
       {Convolution(Image({8, 32, 16, 16}), Image({64, 32, 3, 3}), conv),
        Pointwise(CUDNN_POINTWISE_ADD, {{X, conv}, {B, Image(kChannels)}, {Y, Image(kX)}})},
       {{"b", {B}}}},
      {"matmul_bias",
       {Matmul({.dims = {4, 64, 32}, .type = kHalf}, {.dims = {4, 32, 128}, .type = kHalf}, sum),
        Pointwise(CUDNN_POINTWISE_ADD, {{X, sum},
                                        {B, ObjectTensor{.dims = {1, 1, 128}, .type = kHalf}},
                                        {Y, ObjectTensor{.dims = product, .type = kHalf}}})},
       {{"b", {B}}}},
      {"select",
       {Pointwise(CUDNN_POINTWISE_BINARY_SELECT,
                  {{X, Image(kX)}, {B, Image(kX)}, {T, mask}, {Y, Image(kX)}})},
       {{"b", {B}}, {"mask", {T}}}}};
}

std::vector<Base> Attention() {
  enum : int {
    Stats = CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC,
    Scale = CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC,
    SeqQ = CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC,
    SeqKv = CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC,
    TableK = CUDNN_ATTR_OPERATION_SDPA_FWD_PAGE_TABLE_KDESC,
    TableV = CUDNN_ATTR_OPERATION_SDPA_FWD_PAGE_TABLE_VDESC,
    BStats = CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC,
    BScale = CUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC,
    BSeqQ = CUDNN_ATTR_OPERATION_SDPA_BWD_SEQ_LEN_QDESC,
    BSeqKv = CUDNN_ATTR_OPERATION_SDPA_BWD_SEQ_LEN_KVDESC
  };
  const ObjectTensor q = {.dims = {2, 4, 256, 64}, .type = kHalf};
  const ObjectTensor pages = {.dims = {16, 4, 32, 64}, .type = kHalf};
  const ObjectTensor stats = {.dims = {2, 4, 256, 1}},
                     lengths = {.dims = {2, 1, 1, 1}, .type = kInt32},
                     table = {.dims = {2, 1, 8, 1}, .type = kInt32};
  const auto forward = [&](const ObjectTensor& k, std::vector<Attribute> more) {
    more.insert(more.begin(), {{CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, q},
                               {CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, k},
                               {CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, k},
                               {CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, q},
                               {Scale, Scalar(kOne)}});
    return Object{CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, std::move(more)};
  };
  const Object backward = {CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR,
                           {{CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, q},
                            {CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC, q},
                            {CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, q},
                            {CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC, q},
                            {CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC, q},
                            {CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC, q},
                            {CUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC, q},
                            {CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC, q},
                            {BStats, stats},
                            {BScale, Scalar(kOne)},
                            {BSeqQ, lengths},
                            {BSeqKv, lengths}}};
  return {{"sdpa_fwd",
           {forward(q, {{Stats, stats}, {SeqQ, lengths}, {SeqKv, lengths}})},
           {{"stats", {Stats}},
            {"scale", {Scale}},
            {"seq_q", {SeqQ}},
            {"seq_kv", {SeqKv}},
            {"seq_q+seq_kv", {SeqQ, SeqKv}}}},
          {"sdpa_fwd_paged",
           {forward(pages, {{SeqQ, lengths}, {SeqKv, lengths}, {TableK, table}, {TableV, table}})},
           {{"table_k", {TableK}}, {"table_k+table_v", {TableK, TableV}}}},
          {"sdpa_bwd",
           {backward},
           {{"stats", {BStats}},
            {"scale", {BScale}},
            {"seq_q", {BSeqQ}},
            {"seq_q+seq_kv", {BSeqQ, BSeqKv}}}}};
}

std::vector<Base> Moe() {
  enum : int {
    Mode = CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_MODE,
    First = CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_FIRST_TOKEN_OFFSET_DESC,
    Output = CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_OUTPUT_DESC,
    Index = CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_TOKEN_INDEX_DESC,
    Ks = CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_TOKEN_KS_DESC
  };
  const auto mode = [](double m) {
    return Attribute{Mode, Numbers{CUDNN_TYPE_MOE_GROUPED_MATMUL_MODE, {m}}};
  };
  const auto integers = [](Ints dims) { return ObjectTensor{std::move(dims), kInt32}; };
  const Object none = {
      CUDNN_BACKEND_OPERATION_MOE_GROUPED_MATMUL_DESCRIPTOR,
      {mode(CUDNN_MOE_GROUPED_MATMUL_MODE_NONE),
       {CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_MATH_PREC, Type(CUDNN_DATA_FLOAT)},
       {CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_TOKEN_DESC, ObjectTensor{{1, 256, 64}, kHalf}},
       {CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_WEIGHT_DESC,
        ObjectTensor{{4, 64, 128}, kHalf, {64 * 128, 1, 64}}},
       {First, integers({4, 1, 1})},
       {Output, ObjectTensor{{1, 256, 128}, kHalf}}}};
  const Object gather = With(
      With(With(none, mode(CUDNN_MOE_GROUPED_MATMUL_MODE_GATHER)), {Index, integers({1, 512, 1})}),
      {Output, ObjectTensor{{1, 512, 128}, kHalf}});
  const Object scatter = With(With(With(With(none, mode(CUDNN_MOE_GROUPED_MATMUL_MODE_SCATTER)),
                                        {Index, integers({1, 256, 1})}),
                                   {Ks, integers({1, 256, 1})}),
                              {CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_TOP_K, Int32(2)});
  return {
      {"moe", {none}, {{"first_token", {First}}}},
      {"moe_gather", {gather}, {{"first_token", {First}}, {"index", {Index}}}},
      {"moe_scatter",
       {scatter},
       {{"first_token", {First}}, {"index", {Index}}, {"ks", {Ks}}, {"index+ks", {Index, Ks}}}}};
}

std::vector<Base> Blocks() {
  enum : int {
    DScale = CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_SCALE_DESC,
    QScale = CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_SCALE_DESC
  };
  const Ints x = {1, 128, 256};
  const ObjectTensor scale = {{1, 128, 8}, CUDNN_DATA_FP8_E8M0};
  const Object dequantize = {
      CUDNN_BACKEND_OPERATION_BLOCK_SCALE_DEQUANTIZE_DESCRIPTOR,
      {{CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_XDESC, ObjectTensor{x, CUDNN_DATA_FP8_E4M3}},
       {DScale, scale},
       {CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_YDESC, ObjectTensor{x}},
       {CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_MATH_PREC, Type(CUDNN_DATA_FLOAT)},
       {CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_BLOCK_SIZE, Int32(32)}}};
  const Object quantize = {
      CUDNN_BACKEND_OPERATION_BLOCK_SCALE_QUANTIZE_DESCRIPTOR,
      {{CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_XDESC, ObjectTensor{x}},
       {QScale, scale},
       {CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_YDESC, ObjectTensor{x, CUDNN_DATA_FP8_E4M3}},
       {CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_MATH_PREC, Type(CUDNN_DATA_FLOAT)},
       {CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_BLOCK_SIZE, Int32(32)}}};
  return {{"block_scale_dequantize", {dequantize}, {{"scale", {DScale}}}},
          {"block_scale_quantize", {quantize}, {{"scale", {QScale}}}}};
}

std::vector<Base> Others() {
  enum : int {
    Index = CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC,
    Seed = CUDNN_ATTR_OPERATION_RNG_SEED,
    Offset = CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC,
    Lengths = CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_SEQUENCE_DESC,
    Table = CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_PAGE_TABLE_DESC,
    M = CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC
  };
  const Object pooling = {
      CUDNN_BACKEND_RESAMPLE_DESCRIPTOR,
      {{CUDNN_ATTR_RESAMPLE_MODE, Numbers{CUDNN_TYPE_RESAMPLE_MODE, {CUDNN_RESAMPLE_MAXPOOL}}},
       {CUDNN_ATTR_RESAMPLE_COMP_TYPE, Type(CUDNN_DATA_FLOAT)},
       {CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, Int64(2)},
       {CUDNN_ATTR_RESAMPLE_PADDING_MODE, Numbers{CUDNN_TYPE_PADDING_MODE, {CUDNN_NEG_INF_PAD}}},
       {CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, Ints64({2, 2})},
       {CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, Ints64({0, 0})},
       {CUDNN_ATTR_RESAMPLE_POST_PADDINGS, Ints64({0, 0})},
       {CUDNN_ATTR_RESAMPLE_STRIDES, Ints64({2, 2})}}};
  const Ints pooled = {8, 64, 8, 8};
  const Object resample = {CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR,
                           {{CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, Image(kX)},
                            {CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, Image(pooled)},
                            {Index, Image(pooled, CUDNN_DATA_INT8)},
                            {CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, std::vector{pooling}}}};
  const Object bernoulli = {
      CUDNN_BACKEND_RNG_DESCRIPTOR,
      {{CUDNN_ATTR_RNG_DISTRIBUTION,
        Numbers{CUDNN_TYPE_RNG_DISTRIBUTION, {CUDNN_RNG_DISTRIBUTION_BERNOULLI}}},
       {CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, Numbers{CUDNN_TYPE_DOUBLE, {0.5}}}}};
  const ObjectTensor one = {kOne, CUDNN_DATA_INT64};
  const Object rng = {CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR,
                      {{CUDNN_ATTR_OPERATION_RNG_YDESC, ObjectTensor{{2, 4, 16, 32}}},
                       {CUDNN_ATTR_OPERATION_RNG_DESC, std::vector{bernoulli}},
                       {Seed, one},
                       {Offset, one}}};
  const Object pages = {
      CUDNN_BACKEND_OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR,
      {{CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_CONTAINER_DESC, ObjectTensor{{16, 4, 32, 64}, kHalf}},
       {CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_YDESC, ObjectTensor{{2, 4, 256, 64}, kHalf}},
       {Lengths, ObjectTensor{{2, 1, 1, 1}, kInt32}},
       {Table, ObjectTensor{{2, 1, 8, 1}, kInt32}}}};
  const ObjectTensor square = {{2, 3, 64, 64}, kHalf};
  const Object matmul =
      With(Matmul(square, square, square), {M, ObjectTensor{{2, 1, 1, 1}, kInt32}});
  return {{"resample_fwd", {resample}, {{"index", {Index}}}},
          {"rng", {rng}, {{"seed", {Seed}}, {"offset", {Offset}}, {"seed+offset", {Seed, Offset}}}},
          {"paged_cache_load", {pages}, {{"lengths", {Lengths}}, {"table", {Table}}}},
          {"matmul", {matmul}, {{"m_override", {M}}}}};
}

std::vector<Base> Bases() {
  const Ints rows = {512, 256, 1, 1}, row_weights = {1, 256, 1, 1}, row_stats = {512, 1, 1, 1},
             of_images = {8, 64, 1, 1};
  std::vector<Base> bases = {
      GenStats(),
      BnFinalize(),
      NormForward("batch_norm", CUDNN_BATCH_NORM, kX, kChannels, kChannels),
      NormForward("batch_norm_inference", CUDNN_BATCH_NORM, kX, kChannels, kChannels, true),
      NormForward("layer_norm", CUDNN_LAYER_NORM, rows, row_weights, row_stats),
      NormForward("layer_norm_inference", CUDNN_LAYER_NORM, rows, row_weights, row_stats, true),
      NormForward("rms_norm", CUDNN_RMS_NORM, rows, row_weights, row_stats),
      NormForward("instance_norm", CUDNN_INSTANCE_NORM, kX, kChannels, of_images),
      NormBackward("batch_norm_bwd", CUDNN_BATCH_NORM, kX, kChannels, kChannels),
      NormBackward("layer_norm_bwd", CUDNN_LAYER_NORM, rows, row_weights, row_stats),
      NormBackward("rms_norm_bwd", CUDNN_RMS_NORM, rows, row_weights, row_stats),
      NormBackward("instance_norm_bwd", CUDNN_INSTANCE_NORM, kX, kChannels, of_images),
      BnBwdWeights()};
  for (std::vector<Base> more : {Pointwises(), Attention(), Moe(), Blocks(), Others()})
    bases.insert(bases.end(), more.begin(), more.end());
  return bases;
}

struct Variant {
  std::string name;
  Ints dims;
};

// Other ranks, and each extent as 1, halved, doubled; of the extents that are 1, as 2.
std::vector<Variant> VariantsOf(const Ints& dims) {
  std::vector<Variant> variants = {{"as_usual", dims}, {"ones", Ints(dims.size(), 1)}};
  const auto changed = [&](size_t d, int64_t extent) {
    Ints other = dims;
    other[d] = extent;
    return other;
  };
  Ints other = dims;
  other.insert(other.begin(), 1);
  variants.push_back({"one_before", other});
  other = dims;
  other.push_back(1);
  variants.push_back({"one_behind", other});
  int64_t count = 1;
  for (const int64_t extent : dims) count *= extent;
  variants.push_back({"flat", {count}});
  if (dims.size() > 1) {
    variants.push_back({"without_first", Ints(dims.begin() + 1, dims.end())});
    variants.push_back({"without_last", Ints(dims.begin(), dims.end() - 1)});
    variants.push_back({"reversed", Ints(dims.rbegin(), dims.rend())});
  }
  for (size_t d = 0; d < dims.size(); ++d) {
    const std::string at = "dim" + std::to_string(d);
    variants.push_back({at + "_doubled", changed(d, dims[d] * 2)});
    if (dims[d] == 1) continue;
    variants.push_back({at + "_one", changed(d, 1)});
    variants.push_back({at + "_halved", changed(d, dims[d] / 2)});
    variants.push_back({at + "_and_one", changed(d, dims[d] + 1)});
  }
  std::vector<Variant> different;
  for (Variant& v : variants)
    if (std::ranges::none_of(different, [&](const Variant& seen) { return seen.dims == v.dims; }))
      different.push_back(std::move(v));
  return different;
}

// The operand with other extents, in the order of dims that it had.
ObjectTensor Of(const ObjectTensor& usual, const Ints& dims) {
  ObjectTensor tensor = usual;
  tensor.dims = dims;
  const bool is_image = usual.dims.size() > 2 && usual.strides == ChannelsLast(usual.dims);
  tensor.strides = is_image && dims.size() > 2 ? ChannelsLast(dims) : Ints{};
  return tensor;
}

}  // namespace

std::vector<SideQuestion> SideQuestions() {
  std::vector<SideQuestion> questions;
  for (const Base& base : Bases()) {
    for (const Side& side : base.sides) {
      const auto usual = [&](int name) {
        const auto found = std::ranges::find(base.graph.back().attributes, name, &Attribute::name);
        return std::get<ObjectTensor>(found->value);
      };
      for (const Variant& variant : VariantsOf(usual(side.attributes.front()).dims)) {
        SideQuestion question = {base.name, side.name, variant.name, variant.dims, base.graph};
        for (const int name : side.attributes)
          question.graph.back() =
              With(question.graph.back(), {name, Of(usual(name), variant.dims)});
        questions.push_back(std::move(question));
      }
    }
  }
  return questions;
}

SideAnswer Ask(const Library& library, const SideQuestion& question, const std::string& device) {
  ObjectClient client(library);
  const auto name = [&](cudnnStatus_t status) {
    return std::string(library.error_string(status)).substr(std::string("CUDNN_STATUS_").size());
  };
  SideAnswer answer;
  std::vector<Raw> operations;
  for (const Object& object : question.graph) operations.push_back(client.Make(object));
  answer.operation = name(client.status);
  if (client.status != CUDNN_STATUS_SUCCESS) return answer;
  Raw graph = client.Create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  client.Set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
             static_cast<int64_t>(operations.size()), operations.data());
  client.Finalize(graph);
  answer.graph = name(client.status);
  if (client.status != CUDNN_STATUS_SUCCESS || device.empty()) return answer;
  answer.plans = 0;
  Raw properties = client.Create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  client.Set(properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
             static_cast<int64_t>(device.size() + 1), device.c_str());
  client.Finalize(properties);
  for (const int mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    ObjectClient asking(library);
    Raw heuristics = asking.Create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    asking.Set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
               &graph);
    asking.Set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    asking.Set(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
               &properties);
    asking.Finalize(heuristics);
    if (asking.status != CUDNN_STATUS_SUCCESS) {
      ++answer.refused;
      continue;
    }
    std::vector<Raw> configs(16);
    for (Raw& config : configs) config = asking.Create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    int64_t count = 0;
    library.get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                static_cast<int64_t>(configs.size()), &count, configs.data());
    answer.plans += static_cast<int>(std::max<int64_t>(count, 0));
  }
  return answer;
}

}  // namespace kiln::testing
