// Samples of block scales: whole and short blocks on either dim or both, in both directions.
#include "ir/base/check.h"
#include "ir/graph/builder.h"
#include "tests/compiler/sample_graphs.h"

namespace kiln::compiler {
namespace {

struct Text {
  const char* name;
  const char* body;
};

constexpr Text kTexts[] = {
    {"dequantize_rows",
     "tensor %x uid=1 e4m3 [2,5,64] strides=[320,64,1]\n tensor %s uid=2 e8m0 [2,5,2] "
     "strides=[10,2,1]\n tensor %y uid=3 f32 [2,5,64] strides=[320,64,1]\n"
     "%y = block_scale_dequantize(%x, %s) compute=f32 block_size=[32]\n"},
    {"dequantize_short_columns",
     "tensor %x uid=1 bf16 [50,6] strides=[1,52]\n tensor %s uid=2 f32 [2,6] strides=[6,1]\n"
     "tensor %y uid=3 bf16 [50,6] strides=[6,1]\n"
     "%y = block_scale_dequantize(%x, %s) compute=f32 block_size=[32]\n"},
    {"dequantize_both_short",
     "tensor %x uid=1 f16 [11,13] strides=[13,1]\n tensor %s uid=2 f32 [3,2] strides=[2,1]\n"
     "tensor %y uid=3 f32 [11,13] strides=[13,1]\n"
     "%y = block_scale_dequantize(%x, %s) compute=f32 block_size=[5,7]\n"},
    {"dequantized_product",
     "tensor %x uid=1 e4m3 [1,20,64] strides=[1280,64,1]\n"
     "tensor %s uid=2 e8m0 [1,20,2] strides=[40,2,1]\n"
     "tensor %a f32 [1,20,64] virtual\n"
     "tensor %w uid=4 e4m3 [1,64,24] strides=[1536,1,64]\n"
     "tensor %t uid=5 e8m0 [1,2,24] strides=[48,1,2]\n"
     "tensor %b f32 [1,64,24] virtual\n"
     "tensor %y uid=7 f32 [1,20,24] strides=[480,24,1]\n"
     "%a = block_scale_dequantize(%x, %s) compute=f32 block_size=[32]\n"
     "%b = block_scale_dequantize(%w, %t) compute=f32 block_size=[32]\n"
     "%y = matmul(%a, %b) compute=f32 padding_value=0\n"},
    {"quantize_rows",
     "tensor %x uid=1 f32 [5,64] strides=[64,1]\n tensor %y uid=2 e4m3 [5,64] strides=[64,1]\n"
     "tensor %s uid=3 e8m0 [5,2] strides=[2,1]\n"
     "%y, %s = block_scale_quantize(%x) compute=f32 block_size=[32]\n"},
    {"quantize_short_columns",
     "tensor %x uid=1 f16 [50,6] strides=[6,1]\n tensor %y uid=2 e5m2 [50,6] strides=[1,50]\n"
     "tensor %s uid=3 e8m0 [2,6] strides=[6,1]\n"
     "%y, %s = block_scale_quantize(%x) compute=f32 block_size=[32]\n"},
    {"quantize_to_e4m3_scales",
     "tensor %x uid=1 f32 [5,48] strides=[48,1]\n tensor %y uid=2 e4m3 [5,48] strides=[48,1]\n"
     "tensor %s uid=3 e4m3 [5,3] strides=[3,1]\n"
     "%y, %s = block_scale_quantize(%x) compute=f32 block_size=[16]\n"},
};

}  // namespace

std::vector<SampleGraph> BlockScaleSamples() {
  std::vector<SampleGraph> samples;
  for (const Text& text : kTexts) {
    auto parsed = graph::Parse(fmt::format("graph {} {{\n{}}}\n", text.name, text.body));
    CHECK(parsed.ok(), "{}: {}", text.name, parsed.status().message());
    const Status legal = graph::Legalize(*parsed);
    CHECK(legal.ok(), "{}: {}", text.name, legal.message());
    samples.push_back({.name = text.name, .graph = *std::move(parsed)});
  }
  return samples;
}

}  // namespace kiln::compiler
