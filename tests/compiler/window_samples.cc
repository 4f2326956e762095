// Samples of resampling: every mode with every padding, both directions, in layouts that vectors
// fit and others.
#include <fmt/format.h>

#include "ir/base/check.h"
#include "ir/graph/builder.h"
#include "tests/compiler/sample_graphs.h"

namespace kiln::compiler {
namespace {

struct Layout {
  const char* name;
  Dims (*strides)(const Dims& dims);
};

constexpr Layout kLayouts[] = {{"rows", [](const Dims& dims) { return PackedStrides(dims); }},
                               {"channels", [](const Dims& dims) {  // innermost
                                  Dims order = PackedStrides(dims);
                                  for (int64_t& stride : order) stride *= dims[1];
                                  order[0] = NumElements(dims) / dims[0];
                                  order[1] = 1;
                                  return order;
                                }}};

std::string TensorText(const char* name, const char* dtype, const Dims& dims,
                       const Layout& layout) {
  return fmt::format("  tensor %{} uid={} {} [{}] strides=[{}]\n", name, int{name[0]} + name[1],
                     dtype, fmt::join(dims, ","), fmt::join(layout.strides(dims), ","));
}

struct Problem {
  const char* mode;
  const char* padding;
  Dims x, y, window, stride, pad, unit;
};

// Extents of y are those that pooling gives, and some for interpolation.
const Problem kProblems[] = {
    {"maxpool", "neg_inf_pad", {2, 8, 7, 9}, {2, 8, 4, 5}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
    {"maxpool", "zero_pad", {1, 4, 5, 6}, {1, 4, 4, 7}, {2, 2}, {2, 1}, {2, 1}, {1, 1}},
    {"maxpool", "edge_val_pad", {1, 4, 4, 4}, {1, 4, 6, 6}, {3, 3}, {1, 1}, {2, 2}, {1, 1}},
    {"maxpool", "neg_inf_pad", {2, 3, 11}, {2, 3, 1}, {4}, {13}, {0}, {1}},
    {"avgpool_include_padding",
     "zero_pad",
     {1, 8, 3, 4, 5},
     {1, 8, 2, 2, 3},
     {2, 2, 2},
     {2, 2, 2},
     {1, 0, 1},
     {1, 1, 1}},
    {"avgpool_include_padding",
     "edge_val_pad",
     {1, 4, 5, 5},
     {1, 4, 3, 3},
     {3, 3},
     {2, 2},
     {1, 1},
     {1, 1}},
    {"avgpool_exclude_padding",
     "zero_pad",
     {2, 8, 7, 9},
     {2, 8, 5, 6},
     {3, 3},
     {2, 2},
     {2, 2},
     {1, 1}},
    {"bilinear", "edge_val_pad", {1, 8, 5, 4}, {1, 8, 10, 8}, {4, 4}, {1, 1}, {1, 1}, {2, 2}},
    {"bilinear", "zero_pad", {1, 3, 5, 4}, {1, 3, 9, 5}, {6, 6}, {2, 2}, {2, 1}, {3, 3}},
    {"nearest", "edge_val_pad", {1, 4, 5, 4}, {1, 4, 10, 8}, {2, 2}, {1, 1}, {1, 1}, {2, 2}},
};

SampleGraph SampleOf(const std::string& name, const std::string& body) {
  Result<graph::Graph> parsed = graph::Parse(fmt::format("graph g {{\n{}}}\n", body));
  CHECK(parsed.ok(), "{}: {}\n{}", name, parsed.status().message(), body);
  const Status verified = graph::Legalize(*parsed);
  CHECK(verified.ok(), "{}: {}", name, verified.message());
  return {.name = name, .graph = *std::move(parsed)};
}

}  // namespace

std::vector<SampleGraph> WindowSamples() {
  std::vector<SampleGraph> samples;
  for (const Problem& p : kProblems) {
    for (const Layout& layout : kLayouts) {
      const std::string attrs = fmt::format(
          "compute=f32 mode={} padding={} propagate_nan window=[{}] stride=[{}] "
          "pre_padding=[{}] post_padding=[{}] unit=[{}]\n",
          p.mode, p.padding, fmt::join(p.window, ","), fmt::join(p.stride, ","),
          fmt::join(p.pad, ","), fmt::join(p.pad, ","), fmt::join(p.unit, ","));
      const std::string name =
          fmt::format("{}_{}_{}_{}", p.mode, p.padding, p.window.size(), layout.name);
      const bool is_max = std::string_view(p.mode) == "maxpool";
      const std::string x = TensorText("x", "f16", p.x, layout),
                        y = TensorText("y", "f16", p.y, layout),
                        i = is_max ? TensorText("i", "i8", p.y, layout) : "",
                        dy = TensorText("dy", "f16", p.y, layout),
                        dx = TensorText("dx", "f16", p.x, layout);
      samples.push_back(SampleOf(name, fmt::format("{}{}{}  %y{} = resample_fwd(%x) {}", x, y, i,
                                                   is_max ? ", %i" : "", attrs)));
      samples.push_back(
          SampleOf(name + "_plain", fmt::format("{}{}  %y = resample_fwd(%x) {}", x, y, attrs)));
      samples.push_back(
          SampleOf(name + "_fused",
                   fmt::format("{}{}{}  tensor %r f32 virtual\n  tensor %p f32 [{}] virtual\n"
                               "  %r = pointwise(%x) compute=f32 mode=relu_fwd\n"
                               "  %p{} = resample_fwd(%r) {}"
                               "  %y = pointwise(%p) compute=f32 mode=neg\n",
                               x, y, i, fmt::join(p.y, ","), is_max ? ", %i" : "", attrs)));
      samples.push_back(SampleOf(
          name + "_bwd", fmt::format("{}{}{}  %dx = resample_bwd(%dy{}) {}", is_max ? x : "", dy,
                                     dx, is_max ? ", _, %x" : "", attrs)));
    }
  }
  return samples;
}

}  // namespace kiln::compiler
