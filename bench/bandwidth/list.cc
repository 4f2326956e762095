#include "bench/bandwidth/list.h"

#include <utility>

namespace kiln::bench {
namespace {

constexpr const char* kLayerNorm =
    "norm_forward(x:{T}[{N},{C}], _, _, scale:{T}[1,{C}], bias:{T}[1,{C}], eps:f32[1,1]=1e-5) -> "
    "y:{T}, m:f32[{N},1], v:f32[{N},1] mode=layer";
constexpr const char* kLayerNormBackward =
    "norm_backward(x:{T}[{N},{C}], dy:{T}[{N},{C}], m:f32[{N},1], v:f32[{N},1]!pos, "
    "scale:{T}[1,{C}]) -> dx:{T}, ds:{T}, db:{T} mode=layer";
constexpr const char* kRmsNorm =
    "norm_forward(x:{T}[{N},{C}], _, _, scale:{T}[1,{C}], _, eps:f32[1,1]=1e-5) -> y:{T}, _, "
    "v:f32[{N},1] mode=rms";
constexpr const char* kRmsNormBackward =
    "norm_backward(x:{T}[{N},{C}], dy:{T}[{N},{C}], _, v:f32[{N},1]!pos, scale:{T}[1,{C}]) -> "
    "dx:{T}, ds:{T} mode=rms";
constexpr const char* kSoftmax =
    "reduce_max(x:{T}[{N},{C}]) -> %m:f32[{N},1]; sub(x, %m) -> %d:f32; exp(%d) -> %e:f32; "
    "reduce_add(%e) -> %s:f32[{N},1]; div(%e, %s) -> y:{T}";
constexpr const char* kSoftmaxBackward =
    "mul(dy:{T}[{N},{C}], y:{T}[{N},{C}]) -> %p:f32; reduce_add(%p) -> %s:f32[{N},1]; sub(dy, %s) "
    "-> %d:f32; mul(%d, y) -> dx:{T}";
// Statistics of channels; images are [{N},{C},{H},{H}], and {L} is their layout.
constexpr const char* kBatchNorm =
    "norm_forward(x:{T}[{N},{C},{H},{H}]{L}, _, _, scale:f32[1,{C},1,1]{L}, "
    "bias:f32[1,{C},1,1]{L}, "
    "eps:f32[1,1,1,1]=1e-5, f:f32[1,1,1,1]=0.1, rm:f32[1,{C},1,1]{L}, rv:f32[1,{C},1,1]{L}!pos) -> "
    "y:{T}{L}, m:f32[1,{C},1,1]{L}, v:f32[1,{C},1,1]{L}, nm:f32[1,{C},1,1]{L}, "
    "nv:f32[1,{C},1,1]{L} "
    "mode=batch";
constexpr const char* kBatchNormBackward =
    "norm_backward(x:{T}[{N},{C},{H},{H}]{L}, dy:{T}[{N},{C},{H},{H}]{L}, m:f32[1,{C},1,1]{L}, "
    "v:f32[1,{C},1,1]{L}!pos, scale:f32[1,{C},1,1]{L}) -> dx:{T}{L}, ds:f32, db:f32 mode=batch";
constexpr const char* kMaxPool3 =
    "maxpool(x:{T}[{N},{C},{H},{H}]{L}) -> y:{T}{L}, i:i8{L} window=3 stride=2 pad=1 "
    "padding=neg_inf";
constexpr const char* kMaxPool3Backward =
    "maxpool_bwd(dy:{T}[{N},{C},{P},{P}]{L}, i:i8[{N},{C},{P},{P}]{L}!int) -> "
    "dx:{T}[{N},{C},{H},{H}]{L} window=3 stride=2 pad=1 padding=neg_inf";
constexpr const char* kMaxPool2 =
    "maxpool(x:{T}[{N},{C},{H},{H}]{L}) -> y:{T}{L}, i:i8{L} window=2 stride=2 padding=neg_inf";
constexpr const char* kMaxPool2Backward =
    "maxpool_bwd(dy:{T}[{N},{C},{P},{P}]{L}, i:i8[{N},{C},{P},{P}]{L}!int) -> "
    "dx:{T}[{N},{C},{H},{H}]{L} window=2 stride=2 padding=neg_inf";
constexpr const char* kAvgPool2 =
    "avgpool(x:{T}[{N},{C},{H},{H}]{L}) -> y:{T}{L} window=2 stride=2";
constexpr const char* kAvgPool2Backward =
    "avgpool_bwd(dy:{T}[{N},{C},{P},{P}]{L}) -> dx:{T}[{N},{C},{H},{H}]{L} window=2 stride=2";
constexpr const char* kAvgPool3 =
    "avgpool(x:{T}[{N},{C},{H},{H}]{L}) -> y:{T}{L} window=3 stride=2 pad=1";
constexpr const char* kAvgPool3Backward =
    "avgpool_bwd(dy:{T}[{N},{C},{P},{P}]{L}) -> dx:{T}[{N},{C},{H},{H}]{L} window=3 stride=2 pad=1";
constexpr const char* kTranspose = "identity(x:{T}[{N},{C}]) -> y:{T}@col";
// The end of a transformer's block: dropout(gelu(x + b)) + residual, with the mask of a tensor.
constexpr const char* kDropoutChain =
    "add(x:{T}[{N},{C}], b:{T}[1,{C}]) -> %t:f32; gelu_fwd(%t) -> %g:f32; mul(%g, k:bool[{N},{C}]) "
    "-> %k:f32; mul(%k, s:f32[1,1]=1.1111111) -> %d:f32; add(%d, r:{T}[{N},{C}]) -> y:{T}";

// Dropout with a mask of random numbers that nobody stores.
constexpr const char* kRandomDropoutChain =
    "add(x:{T}[{N},{C}], b:{T}[1,{C}]) -> %t:f32; gelu_fwd(%t) -> %g:f32; rng() -> "
    "%k:f32[{N},{C}] probability=0.9 seed=42; mul(%g, %k) -> %m:f32; mul(%m, s:f32[1,1]=1.1111111) "
    "-> %d:f32; add(%d, r:{T}[{N},{C}]) -> y:{T}";
constexpr const char* kGlobalAverage =
    "avgpool(x:{T}[{N},{C},{H},{H}]{L}) -> y:{T}{L} window=7 stride=1";
// The end of a residual block.
constexpr const char* kAddRelu =
    "add(x:{T}[{N},{C},{H},{H}]{L}, r:{T}[{N},{C},{H},{H}]{L}) -> %t:f32{L}; relu_fwd(%t) -> "
    "y:{T}{L}";

constexpr GraphRow kGraphs[] = {
    {"add", "add(x:{T}[{N},1024], b:{T}[{N},1024]) -> y:{T}", 262144, 7},
    {"relu", "relu_fwd(x:{T}[{N},1024]) -> y:{T}", 262144, 7},
    {"scale_bias_relu",
     "mul(x:{T}[{N},64,56,56]@nhwc, s:{T}[1,64,1,1]@nhwc) -> %t:f32@nhwc; add(%t, "
     "b:{T}[1,64,1,1]@nhwc) -> %u:f32@nhwc; "
     "relu_fwd(%u) -> y:{T}@nhwc",
     1344, 1},
    {"scale_bias_relu_nchw",
     "mul(x:{T}[{N},64,56,56], s:{T}[1,64,1,1]) -> %t:f32; add(%t, b:{T}[1,64,1,1]) -> %u:f32; "
     "relu_fwd(%u) -> y:{T}",
     1344, 1},
    {"bias_gelu", "add(x:{T}[{N},4096], b:{T}[1,4096]) -> %t:f32; gelu_fwd(%t) -> y:{T}", 65536, 3},
    {"cast_to_f32", "identity(x:{T}[{N},1024]) -> y:f32", 262144, 7},
    {"cast_to_bf16", "identity(x:{T}[{N},1024]) -> y:bf16", 262144, 7},
    {"nhwc_to_nchw", "identity(x:{T}[{N},256,28,28]@nhwc) -> y:{T}", 1344, 1},
    {"nchw_to_nhwc", "identity(x:{T}[{N},256,28,28]) -> y:{T}@nhwc", 1344, 1},
    {"reduce_add_row", "reduce_add(x:{T}[{N},4096]) -> y:f32[{N},1]", 65536, 5},
    {"reduce_max_row", "reduce_max(x:{T}[{N},4096]) -> y:{T}[{N},1]", 65536, 5},
    {"reduce_add_column", "reduce_add(x:{T}[{N},4096]) -> y:f32[1,4096]", 65536, 17},
    {"reduce_max_column", "reduce_max(x:{T}[{N},4096]) -> y:{T}[1,4096]", 65536, 17},
    {"reduce_add_full", "reduce_add(x:{T}[{N},4096]) -> y:f32[1,1]", 65536, 5},
    {"reduce_amax_full", "reduce_amax(x:{T}[{N},4096]) -> y:f32[1,1]", 65536, 5},
    {"reduce_add_middle", "reduce_add(x:{T}[{N},512,256]) -> y:f32[{N},1,256]", 2048, 2},
    {"reduce_add_channel", "reduce_add(x:{T}[{N},64,56,56]@nhwc) -> y:f32[1,64,1,1]@nhwc", 1344, 1},
    {"layer_norm_16384x4096", kLayerNorm, 16384, 3, "bf16", 4096},
    {"layer_norm_16384x16384", kLayerNorm, 16384, 2, "bf16", 16384},
    {"layer_norm_65536x1024", kLayerNorm, 65536, 5, "bf16", 1024},
    {"layer_norm_1024x12288", kLayerNorm, 1024, 2, "bf16", 12288},
    {"rms_norm_16384x16384", kRmsNorm, 16384, 2, "bf16", 16384},
    {"rms_norm_16384x4096", kRmsNorm, 16384, 3, "bf16", 4096},
    {"rms_norm_8192x8192", kRmsNorm, 8192, 3, "bf16", 8192},
    {"rms_norm_4096x16384", kRmsNorm, 4096, 2, "bf16", 16384},
    {"rms_norm_8192x5120", kRmsNorm, 8192, 3, "bf16", 5120},
    {"rms_norm_65536x1024", kRmsNorm, 65536, 5, "bf16", 1024},
    {"rms_norm_131072x128", kRmsNorm, 131072, 9, "bf16", 128},
    {"rms_norm_8192x4096", kRmsNorm, 8192, 3, "bf16", 4096},
    {"rms_norm_4096x6144", kRmsNorm, 4096, 3, "bf16", 6144},
    {"rms_norm_4096x8192", kRmsNorm, 4096, 3, "bf16", 8192},
    {"rms_norm_4096x2048", kRmsNorm, 4096, 3, "bf16", 2048},
    {"rms_norm_2048x4096", kRmsNorm, 2048, 3, "bf16", 4096},
    {"rms_norm_16384x128", kRmsNorm, 16384, 9, "bf16", 128},
    {"rms_norm_8192x128", kRmsNorm, 8192, 9, "bf16", 128},
    {"softmax_16384x4096", kSoftmax, 16384, 3, "bf16", 4096},
    {"softmax_16384x8192", kSoftmax, 16384, 3, "bf16", 8192},
    {"softmax_16384x16384", kSoftmax, 16384, 2, "bf16", 16384},
    {"softmax_65536x1024", kSoftmax, 65536, 5, "bf16", 1024},
    {"softmax_grad_16384x4096", kSoftmaxBackward, 16384, 3, "bf16", 4096},
    {"softmax_grad_16384x8192", kSoftmaxBackward, 16384, 3, "bf16", 8192},
    {"softmax_grad_16384x16384", kSoftmaxBackward, 16384, 2, "bf16", 16384},
    {"softmax_grad_65536x1024", kSoftmaxBackward, 65536, 5, "bf16", 1024},
    {"layer_norm_grad_16384x4096", kLayerNormBackward, 16384, 3, "bf16", 4096},
    {"layer_norm_grad_16384x16384", kLayerNormBackward, 16384, 270, "bf16", 16384},
    {"layer_norm_grad_1024x12288", kLayerNormBackward, 1024, 2, "bf16", 12288},
    {"layer_norm_grad_65536x1024", kLayerNormBackward, 65536, 5, "bf16", 1024},
    {"rms_norm_grad_16384x4096", kRmsNormBackward, 16384, 3, "bf16", 4096},
    {"rms_norm_grad_8192x8192", kRmsNormBackward, 8192, 3, "bf16", 8192},
    {"rms_norm_grad_16384x16384", kRmsNormBackward, 16384, 2, "bf16", 16384},
    {"rms_norm_grad_4096x16384", kRmsNormBackward, 4096, 2, "bf16", 16384},
    {"rms_norm_grad_8192x5120", kRmsNormBackward, 8192, 3, "bf16", 5120},
    {"rms_norm_grad_65536x1024", kRmsNormBackward, 65536, 5, "bf16", 1024},
    {"rms_norm_grad_131072x128", kRmsNormBackward, 131072, 9, "bf16", 128},
    {"rms_norm_grad_8192x4096", kRmsNormBackward, 8192, 3, "bf16", 4096},
    {"rms_norm_grad_4096x6144", kRmsNormBackward, 4096, 3, "bf16", 6144},
    {"rms_norm_grad_4096x8192", kRmsNormBackward, 4096, 3, "bf16", 8192},
    {"rms_norm_grad_4096x2048", kRmsNormBackward, 4096, 3, "bf16", 2048},
    {"rms_norm_grad_2048x4096", kRmsNormBackward, 2048, 3, "bf16", 4096},
    {"rms_norm_grad_16384x128", kRmsNormBackward, 16384, 9, "bf16", 128},
    {"rms_norm_grad_8192x128", kRmsNormBackward, 8192, 9, "bf16", 128},
    {"batch_norm_256x64x112x112_nhwc", kBatchNorm, 256, 1, "f16", 64, 112, "@nhwc"},
    {"batch_norm_grad_256x64x112x112_nhwc", kBatchNormBackward, 256, 1, "f16", 64, 112, "@nhwc"},
    {"batch_norm_256x256x56x56_nhwc", kBatchNorm, 256, 1, "f16", 256, 56, "@nhwc"},
    {"batch_norm_grad_256x256x56x56_nhwc", kBatchNormBackward, 256, 1, "f16", 256, 56, "@nhwc"},
    {"batch_norm_256x1024x14x14_nhwc", kBatchNorm, 256, 3, "f16", 1024, 14, "@nhwc"},
    {"batch_norm_grad_256x1024x14x14_nhwc", kBatchNormBackward, 256, 3, "f16", 1024, 14, "@nhwc"},
    {"batch_norm_32x256x56x56_nhwc", kBatchNorm, 32, 1, "f16", 256, 56, "@nhwc"},
    {"batch_norm_grad_32x256x56x56_nhwc", kBatchNormBackward, 32, 1, "f16", 256, 56, "@nhwc"},
    {"batch_norm_256x64x112x112_nchw", kBatchNorm, 256, 1, "f16", 64, 112, ""},
    {"batch_norm_grad_256x64x112x112_nchw", kBatchNormBackward, 256, 1, "f16", 64, 112, ""},
    {"batch_norm_256x256x56x56_nchw", kBatchNorm, 256, 1, "f16", 256, 56, ""},
    {"batch_norm_grad_256x256x56x56_nchw", kBatchNormBackward, 256, 1, "f16", 256, 56, ""},
    {"batch_norm_256x1024x14x14_nchw", kBatchNorm, 256, 3, "f16", 1024, 14, ""},
    {"batch_norm_grad_256x1024x14x14_nchw", kBatchNormBackward, 256, 3, "f16", 1024, 14, ""},
    {"batch_norm_32x256x56x56_nchw", kBatchNorm, 32, 1, "f16", 256, 56, ""},
    {"batch_norm_grad_32x256x56x56_nchw", kBatchNormBackward, 32, 1, "f16", 256, 56, ""},
    {"max_pool_3x3_nhwc", kMaxPool3, 256, 1, "f16", 64, 112, "@nhwc"},
    {"max_pool_3x3_grad_nhwc", kMaxPool3Backward, 256, 1, "f16", 64, 112, "@nhwc"},
    {"max_pool_2x2_nhwc", kMaxPool2, 256, 1, "f16", 64, 112, "@nhwc"},
    {"max_pool_2x2_grad_nhwc", kMaxPool2Backward, 256, 1, "f16", 64, 112, "@nhwc"},
    {"avg_pool_3x3_nhwc", kAvgPool3, 256, 1, "f16", 64, 112, "@nhwc"},
    {"avg_pool_3x3_grad_nhwc", kAvgPool3Backward, 256, 1, "f16", 64, 112, "@nhwc"},
    {"avg_pool_2x2_nhwc", kAvgPool2, 256, 1, "f16", 64, 112, "@nhwc"},
    {"avg_pool_2x2_grad_nhwc", kAvgPool2Backward, 256, 1, "f16", 64, 112, "@nhwc"},
    {"avg_pool_7x7_nhwc", kGlobalAverage, 1024, 1, "f16", 2048, 7, "@nhwc"},
    {"max_pool_3x3_nchw", kMaxPool3, 256, 1, "f16", 64, 112, ""},
    {"max_pool_3x3_grad_nchw", kMaxPool3Backward, 256, 1, "f16", 64, 112, ""},
    {"max_pool_2x2_nchw", kMaxPool2, 256, 1, "f16", 64, 112, ""},
    {"max_pool_2x2_grad_nchw", kMaxPool2Backward, 256, 1, "f16", 64, 112, ""},
    {"avg_pool_3x3_nchw", kAvgPool3, 256, 1, "f16", 64, 112, ""},
    {"avg_pool_3x3_grad_nchw", kAvgPool3Backward, 256, 1, "f16", 64, 112, ""},
    {"avg_pool_2x2_nchw", kAvgPool2, 256, 1, "f16", 64, 112, ""},
    {"avg_pool_2x2_grad_nchw", kAvgPool2Backward, 256, 1, "f16", 64, 112, ""},
    {"avg_pool_7x7_nchw", kGlobalAverage, 1024, 1, "f16", 2048, 7, ""},
    {"transpose_16384x8192", kTranspose, 16384, 72, "f16", 8192},
    {"transpose_16384x8192", kTranspose, 32768, 72, "f32", 8192},
    {"transpose_16384x8192", kTranspose, 16384, 72, "i8", 8192},
    {"bias_gelu_dropout_add", kDropoutChain, 16384, 3, "bf16", 4096},
    {"bias_gelu_rng_add", kRandomDropoutChain, 16384, 3, "bf16", 4096},
    {"add_relu_nhwc", kAddRelu, 256, 1, "f16", 256, 56, "@nhwc"},
};

}  // namespace

std::span<const GraphRow> BandwidthGraphs() { return kGraphs; }

std::vector<std::string> TypesOf(const GraphRow& row) {
  if (row.only != nullptr) return {row.only};
  return {"f16", "bf16", "f32"};
}

std::string CaseOf(const GraphRow& row, const std::string& type, int64_t n) {
  std::string text = row.graph;
  const std::pair<std::string, std::string> places[] = {{"{T}", type},
                                                        {"{N}", std::to_string(n)},
                                                        {"{C}", std::to_string(row.columns)},
                                                        {"{H}", std::to_string(row.image)},
                                                        {"{P}", std::to_string(row.image / 2)},
                                                        {"{L}", row.layout}};
  for (const auto& [from, to] : places)
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;)
      text.replace(at, from.size(), to);
  return std::string(row.name) + ": " + text;
}

}  // namespace kiln::bench
