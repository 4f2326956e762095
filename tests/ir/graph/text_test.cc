// Printer and parser: the identity on random graphs of every op, the sample of graph.h, canonical
// text, and the place and the word of every syntax error.
#include "ir/graph/text.h"

#include <gtest/gtest.h>

#include "ir/graph/builder.h"
#include "ir/graph/graph.h"
#include "ir/graph/ops.h"
#include "tests/support/random_graph.h"

namespace kiln::graph {
namespace {

void ExpectSameTensor(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.uid, b.uid) << a.name;
  EXPECT_EQ(a.dtype, b.dtype) << a.name;
  EXPECT_EQ(a.dims, b.dims) << a.name;
  EXPECT_EQ(a.strides, b.strides) << a.name;
  EXPECT_EQ(a.alignment, b.alignment) << a.name;
  EXPECT_EQ(a.is_virtual, b.is_virtual) << a.name;
  EXPECT_EQ(a.by_value, b.by_value) << a.name;
  EXPECT_EQ(a.value, b.value) << a.name;
}

// Field by field, so that something the printer forgets is seen.
void ExpectSame(const Graph& a, const Graph& b) {
  EXPECT_EQ(a.name, b.name);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  for (size_t i = 0; i < a.tensors.size(); ++i) ExpectSameTensor(a.tensors[i], b.tensors[i]);
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    EXPECT_EQ(a.nodes[i].op, b.nodes[i].op);
    EXPECT_EQ(a.nodes[i].inputs, b.nodes[i].inputs);
    EXPECT_EQ(a.nodes[i].outputs, b.nodes[i].outputs);
    EXPECT_EQ(a.nodes[i].compute, b.nodes[i].compute);
    EXPECT_EQ(a.nodes[i].name, b.nodes[i].name);
    ASSERT_EQ(a.nodes[i].attrs.index(), b.nodes[i].attrs.index());
    std::visit(
        [&]<class A>(const A& attrs) {
          EXPECT_TRUE(FieldsEqual(attrs, std::get<A>(b.nodes[i].attrs)));
        },
        a.nodes[i].attrs);
  }
}

TEST(Text, PrintParsePrintIsTheIdentityForEveryOp) {
#define GRAPH_OP(Name, ...) GraphOp::k##Name,
  for (const GraphOp op : {
#include "ir/graph/graph_ops.def"
       }) {
#undef GRAPH_OP
    for (uint64_t seed = 0; seed < 60; ++seed) {
      const Graph graph =
          RandomGraph(seed, {.nodes = 2, .ops = {op}, .empty_tensors = seed % 3 == 0});
      const std::string text = Print(graph);
      const auto again = Parse(text);
      ASSERT_TRUE(again.ok()) << again.status().message() << "\n" << text;
      ExpectSame(graph, *again);
      ASSERT_EQ(Print(*again), text);
    }
  }
}

TEST(Text, PrintParsePrintIsTheIdentityForMixedGraphs) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const std::string text = Print(RandomGraph(seed, {.nodes = 8}));
    const auto again = Parse(text);
    ASSERT_TRUE(again.ok()) << again.status().message() << "\n" << text;
    ASSERT_EQ(Print(*again), text);
    ASSERT_TRUE(Verify(*again).ok());
  }
}

TEST(Text, EveryDoubleSurvives) {
  for (const double value :
       {0.1, 1.0 / 3, 5e-324, -1.7976931348623157e308, 3.4028234663852886e+38, 0.0,
        std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
    GraphBuilder b("doubles");
    b.Output(b.Pointwise(PointwiseMode::kAdd,
                         {b.Input("x", DType::kF32, {4}), b.Constant("c", DType::kF64, value)}),
             "y", DType::kF32);
    const auto graph = b.Finish();
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    const auto again = Parse(Print(*graph));
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(again->tensors[1].value, value);
  }
}

TEST(Parse, ReadsWhatPeopleWrite) {
  const auto graph = Parse(R"(
    # strides, uids and compute types may be left out
    graph "a name" {
      tensor %x f16 [2,3]  tensor %b f32 [1,1] by_value value=-0x1.8p-1
      tensor %y f32 virtual
      %y = pointwise(%x, %b) mode=add name="the \"sum\" \x41"
    })");
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_EQ(graph->name, "a name");
  EXPECT_EQ(graph->tensors[0].strides, (Dims{3, 1}));
  EXPECT_EQ(graph->tensors[1].value, -0.75);
  EXPECT_TRUE(graph->tensors[2].dims.empty());
  EXPECT_EQ(graph->nodes[0].compute, DType::kF32);
  EXPECT_EQ(graph->nodes[0].name, "the \"sum\" A");
}

// A geometry that is not named is the plain one, whatever the number of spatial dims.
TEST(Parse, FillsGeometriesBySpatialDim) {
  const auto conv = Parse(R"(graph g {
    tensor %x f16 [2,8,9,9,9]  tensor %w f16 [4,8,3,3,3]  tensor %y f16 [2,4,7,4,7]
    %y = conv_fprop(%x, %w) stride=[1,2,1]
  })");
  ASSERT_TRUE(conv.ok()) << conv.status().message();
  const auto& geometry = conv->nodes[0].As<ConvAttrs>();
  EXPECT_EQ(geometry.pre_padding, Dims({0, 0, 0}));
  EXPECT_EQ(geometry.post_padding, Dims({0, 0, 0}));
  EXPECT_EQ(geometry.stride, Dims({1, 2, 1}));
  EXPECT_EQ(geometry.dilation, Dims({1, 1, 1}));
  const auto pool = Parse(R"(graph g {
    tensor %x f32 [2,8,9]  tensor %y f32 [2,8,7]
    %y = resample_fwd(%x) mode=maxpool window=[3]
  })");
  ASSERT_TRUE(pool.ok()) << pool.status().message();
  EXPECT_EQ(pool->nodes[0].As<ResampleAttrs>().stride, Dims({1}));
  EXPECT_EQ(pool->nodes[0].As<ResampleAttrs>().unit, Dims({1}));
}

TEST(Parse, NamesThePlaceAndTheWordOfAnError) {
  struct Case {
    const char* text;
    const char* message;
  };
  for (const Case& c : {
           Case{"", "1:1: expected 'graph', found the end"},
           {"graph g", "1:8: expected '{', found the end"},
           {"graph g {\n  tensor x f32 [1]\n}", "2:10: expected a tensor's name, as %x, found 'x'"},
           {"graph g {\n  tensor %x [1]\n}", "2:10: %x has no data type"},
           {"graph g {\n  tensor %x f32 [1] f16\n}", "2:21: 'data type' is given twice"},
           {"graph g {\n  tensor %x f32 [1,]\n}", "2:20: expected a whole number, found ']'"},
           {"graph g {\n  tensor %x f32 [1;2]\n}", "2:19: ';' has no meaning here"},
           {"graph g {\n  tensor %x f32 [99999999999999999999]\n}",
            "2:18: expected a whole number, found '99999999999999999999'"},
           {"graph g {\n  tensor %x f32 [1] colour=3\n}",
            "2:21: 'colour' is no property of a tensor: a data type, [extents], uid, strides, "
            "align, virtual, by_value, value"},
           {"graph g {\n  tensor %x f32 [1]\n  tensor %x f32 [1]\n}", "3:10: a second tensor %x"},
           {"graph g {\n  %y = pointwise(%x)\n}", "2:3: no tensor %y above"},
           {"graph g {\n  tensor %y f32\n  %y = poolwise()\n}",
            "3:8: expected an operation, found 'poolwise'; the nearest is pointwise"},
           {"graph g {\n  tensor %y f32\n  %y = pointwise(%y) mode=gelu\n}",
            "3:27: expected one of its names, found 'gelu'; the nearest are gelu_fwd, "
            "gelu_approx_tanh_fwd, gelu_bwd, gelu_approx_tanh_bwd"},
           {"graph g {\n  tensor %y f32\n  %y = iota() compute=f33\n}",
            "3:23: expected a data type, found 'f33'; the nearest is f32"},
           {"graph g {\n  tensor %y f32\n  %y = iota() axes=0\n}",
            "3:15: 'axes' is no attribute of iota: compute, name, axis; the nearest is axis"},
           {"graph g {\n  tensor %y f32\n  %y = conv(%y)\n}",
            "3:8: expected an operation, found 'conv'; the nearest are conv_fprop, conv_dgrad, "
            "conv_wgrad"},
           {"graph g {\n  tensor %y f32\n  %y = gelu_fwd(%y)\n}",
            "3:8: expected an operation, found 'gelu_fwd', which is a mode of pointwise: %y = "
            "pointwise(%x) mode=gelu_fwd"},
           {"graph g {\n  tensor %image f32\n  %y = iota(%imag)\n}", "3:3: no tensor %y above"},
           {"graph g {\n  tensor %image f32\n  %imagee = iota()\n}",
            "3:3: no tensor %imagee above; the nearest: %image"},
           {"graph g {\n  tenser %y f32\n}",
            "2:3: expected 'tensor', a node or '}', found 'tenser'; the nearest is tensor"},
           {"graph g {\n  tensor %y f32\n  %y = iota() axis=1.5\n}",
            "3:20: expected a whole number, found '1.5'"},
           {"graph g {\n  tensor %y f32\n  %y = iota() name=\"x\n}",
            "3:20: the string has no end on its line"},
           {"graph g {\n} }", "2:3: expected nothing after '}', found '}'"},
           {"graph g {\n  tensor %x f32 [1] value=abc\n}", "2:27: expected a number, found 'abc'"},
       }) {
    const auto graph = Parse(c.text);
    ASSERT_FALSE(graph.ok()) << c.text;
    EXPECT_EQ(graph.status().message(), c.message) << c.text;
  }
}

// Each name of a kind is read as the enumerator of its place, and one more is none.
template <class E>
void ExpectNames(size_t count) {
  const std::vector<std::string_view> names = NamesOf<E>();
  EXPECT_EQ(names.size(), count);
  for (size_t i = 0; i < names.size(); ++i) {
    E value{};
    EXPECT_TRUE(FromText(names[i], value)) << names[i];
    EXPECT_EQ(static_cast<size_t>(value), i) << names[i];
  }
}

TEST(NamesOf, AreThoseThatTheParserReads) {
  ExpectNames<PointwiseMode>(52);
  ExpectNames<ReductionMode>(9);
  ExpectNames<ResampleMode>(5);
  ExpectNames<PaddingMode>(3);
  ExpectNames<NormMode>(6);
  ExpectNames<RngDistribution>(3);
  ExpectNames<MoeMode>(3);
  ExpectNames<Combine>(4);
  for (const std::string_view name : NamesOf<ScalarOp>())
    EXPECT_TRUE(ScalarOpFromText(name)) << name;
  for (const std::string_view name : NamesOf<DType>()) EXPECT_TRUE(DTypeFromText(name)) << name;
  for (const std::string_view name : NamesOf<GraphOp>()) EXPECT_TRUE(GraphOpFromText(name)) << name;
}

TEST(Parse, SurvivesEveryTruncationAndManyChangesOfALegalText) {
  const std::string text = Print(RandomGraph(7, {.nodes = 6}));
  for (size_t n = 0; n < text.size() - 2; ++n) EXPECT_FALSE(Parse(text.substr(0, n)).ok()) << n;
  uint64_t state = 1;
  for (int i = 0; i < 4000; ++i) {
    std::string damaged = text;
    for (int k = 0; k < 3; ++k) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      damaged[(state >> 33) % damaged.size()] = static_cast<char>(state >> 25);
    }
    auto graph = Parse(damaged);
    if (graph.ok()) (void)Legalize(*graph);
  }
}

TEST(CanonicalText, ForgetsNamesUidsAndStridesOfExtentOne) {
  const char* kOne = R"(graph a {
    tensor %p uid=10 f32 [4,1] strides=[1,9]  tensor %q uid=20 f32 [4,1] strides=[1,1]
    tensor %v uid=30 f32 [4,1] virtual  tensor %r uid=40 f32 [4,1]
    %v = pointwise(%p, %q) mode=add name="first"
    %r = pointwise(%v) mode=exp })";
  const char* kOther = R"(graph b {
    tensor %out uid=1 f32 [4,1]  tensor %in uid=2 f32 [4,1] strides=[1,1]
    tensor %in2 uid=3 f32 [4,1] strides=[1,4]  tensor %t f32 [4,1] virtual
    %t = pointwise(%in, %in2) mode=add
    %out = pointwise(%t) mode=exp })";
  const auto one = Parse(kOne), other = Parse(kOther);
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(CanonicalText(*one), CanonicalText(*other));
  const auto canonical = Parse(CanonicalText(*one));
  ASSERT_TRUE(canonical.ok());
  EXPECT_TRUE(Verify(*canonical).ok()) << Verify(*canonical).message();
}

TEST(CanonicalText, KeepsWhatChangesTheKernel) {
  const std::string base =
      "graph g { tensor %x uid=1 f32 [4,2] tensor %y uid=2 f32 [4,2] %y = pointwise(%x) mode=exp }";
  const auto canonical = [](std::string text) { return CanonicalText(*Parse(text)); };
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"uid=2 f32", "uid=2 f16"},
           {"mode=exp", "mode=log"},
           {"mode=exp", "mode=exp alpha1=2"},
           {"%y uid=2 f32 [4,2]", "%y uid=2 f32 [4,2] strides=[1,4]"},
           {"uid=1 f32 [4,2]", "uid=1 f32 [4,2] align=4"},
           {"mode=exp", "mode=exp compute=f64"},
           {"uid=2", "uid=1"}}) {
    std::string changed = base;
    changed.replace(changed.find(from), from.size(), to);
    EXPECT_NE(canonical(base), canonical(changed)) << changed;
  }
}

}  // namespace
}  // namespace kiln::graph
