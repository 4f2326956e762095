// The samples, a function a family; see the header.
#include "tests/compiler/sample_graphs.h"

#include <fmt/format.h>

#include <iterator>

#include "ir/base/check.h"
#include "ir/graph/builder.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using namespace graph;  // NOLINT: made of its words
using M = PointwiseMode;
using R = ReductionMode;

constexpr DType F16 = DType::kF16, BF16 = DType::kBF16, F32 = DType::kF32, F64 = DType::kF64,
                I8 = DType::kI8, I32 = DType::kI32, I64 = DType::kI64, BOOL = DType::kBool;

Dims ChannelsLast(const Dims& dims) {
  Dims like(dims.size());
  for (size_t d = 0; d < dims.size(); ++d)
    like[d] = static_cast<int64_t>(2 * (dims.size() - d) + 1);
  like[1] = 1;
  return PackedStridesLike(dims, like);
}

// One graph while it is written: inputs are named in order, results end in Done.
class Sample {
 public:
  explicit Sample(std::string name) : b_(name), name_(std::move(name)) {}

  TensorId In(DType type, Dims dims, Dims strides = {}) {
    return b_.Input("x", type, std::move(dims), std::move(strides));
  }
  TensorId Scalar(DType type, int64_t rank = 1) { return b_.ByValue("s", type, rank); }
  TensorId Constant(double value, DType type = F32) { return b_.Constant("c", type, value); }
  TensorId Op(M mode, std::vector<TensorId> in, DType compute = F32) {
    return b_.Pointwise(mode, std::move(in), {.dtype = compute, .compute = compute});
  }
  TensorId Op(PointwiseAttrs attrs, std::vector<TensorId> in, DType compute = F32) {
    return b_.Apply(GraphOp::kPointwise, std::move(in), attrs,
                    {.dtype = compute, .compute = compute});
  }
  TensorId Compare(M mode, std::vector<TensorId> in, DType compute = F32) {
    return b_.Pointwise(mode, std::move(in), {.dtype = BOOL, .compute = compute});
  }
  TensorId Reduce(R mode, TensorId x, Dims dims, DType compute = F32) {
    return b_.Reduction(mode, x, std::move(dims), {.dtype = compute, .compute = compute});
  }
  TensorId View(GraphOp op, std::vector<TensorId> in, Attrs attrs, Dims dims = {},
                Dims strides = {}) {
    const DType type = in.empty() ? I32 : b_.graph()[in[0]].dtype;
    return b_.Apply(op, std::move(in), std::move(attrs),
                    {.dtype = type, .dims = std::move(dims), .strides = std::move(strides)});
  }
  TensorId Contract(GraphOp op, std::vector<TensorId> in, Attrs attrs, DType compute = F32,
                    Dims dims = {}) {
    return b_.Apply(op, std::move(in), std::move(attrs),
                    {.dtype = compute, .compute = compute, .dims = std::move(dims)});
  }
  void Out(TensorId id, DType type, Dims strides = {}) {
    b_.Output(id, "y", type, std::move(strides));
  }
  GraphBuilder& builder() { return b_; }

  SampleGraph Done(bool positive = false) {
    Result<Graph> graph = b_.Finish();
    CHECK(graph.ok(), "{}: {}\n{}", name_, graph.status().message(), Print(b_.graph()));
    return {name_, *std::move(graph), positive};
  }

 private:
  GraphBuilder b_;
  std::string name_;
};

SampleGraph OneOp(std::string name, M mode, DType type, Dims dims, std::vector<Dims> strides,
                  Dims out_strides = {}) {
  Sample s(std::move(name));
  std::vector<TensorId> in;
  for (const Dims& st : strides) in.push_back(s.In(type, dims, st));
  s.Out(s.Op(mode, in), type, std::move(out_strides));
  return s.Done();
}

SampleGraph MultiOutput() {
  Sample s("multi_output");
  const TensorId x = s.In(F32, {4, 6, 10}), z = s.In(F16, {6, 1});
  const TensorId a = s.Op(M::kAdd, {x, z}), r = s.Op(M::kReluFwd, {a});
  const TensorId q = s.Op(M::kMul, {a, r});
  s.Out(a, F16);
  s.Out(r, F32, {1, 4, 24});
  s.Out(q, F64);
  return s.Done();
}

SampleGraph ByValue() {
  Sample s("by_value");
  const TensorId x = s.In(F16, {3, 50}), a = s.Scalar(F32, 2), n = s.Scalar(I32), h = s.Scalar(F16),
                 d = s.Scalar(F64);
  const TensorId k = s.Constant(0.5), t = s.Op(M::kMul, {x, a});
  s.Out(s.Op(M::kAdd, {s.Op(M::kSub, {s.Op(M::kMul, {s.Op(M::kAdd, {t, n}), k}), h}), d}), F32);
  return s.Done();
}

SampleGraph InPlace() {
  Sample s("in_place");
  const TensorId x = s.In(F32, {5, 12}), z = s.In(F32, {12});
  const TensorId y = s.Op(M::kMul, {x, z});
  s.Out(y, F32);
  s.builder().graph()[y].uid = s.builder().graph()[x].uid;
  return s.Done();
}

// A transposed tensor with its own alignment of `bytes`.
SampleGraph Aligned(int64_t bytes) {
  Sample s(fmt::format("aligned_{}", bytes));
  const TensorId x = s.In(F16, {4, 48}), y = s.Op(M::kNeg, {x});
  s.builder().graph()[x].alignment = bytes;
  s.Out(y, F16);
  return s.Done();
}

}  // namespace

std::vector<SampleGraph> PointwiseSamples() {
  std::vector<SampleGraph> samples;
  for (const DType type : {F32, F16, I8, F64})
    samples.push_back(
        OneOp(fmt::format("vector_{}", Info(type).text), M::kAdd, type, {8, 64}, {{}, {}}));
  for (const int64_t n : {1, 2, 7, 8, 9, 63, 257, 2049, 4097})
    samples.push_back(OneOp(fmt::format("tail_{}", n), M::kMul, F16, {n}, {{}, {}}));
  samples.push_back(OneOp("strided", M::kAdd, F32, {5, 7, 9}, {{100, 12, 1}, {200, 25, 2}}));
  samples.push_back(OneOp("strided_output", M::kAdd, F32, {5, 7, 9}, {{}, {}}, {100, 12, 1}));
  samples.push_back(OneOp("transpose", M::kAdd, F16, {70, 100}, {{1, 70}, {}}));
  samples.push_back(OneOp("transpose_bytes", M::kAdd, I8, {132, 140}, {{1, 132}, {1, 132}}));
  samples.push_back(OneOp("transpose_few_bytes", M::kAdd, I8, {132, 20}, {{1, 132}, {}}));
  samples.push_back(OneOp("transpose_batch", M::kAdd, F32, {2, 33, 17, 3}, {{1, 102, 6, 2}, {}}));
  samples.push_back(OneOp("transpose_short", M::kAdd, F32, {9, 100}, {{1, 9}, {}}));
  samples.push_back(
      OneOp("nchw_nhwc", M::kIdentity, F32, {2, 20, 5, 7}, {{}}, ChannelsLast({2, 20, 5, 7})));
  samples.push_back(OneOp("channels_last", M::kAdd, F16, {2, 24, 5, 7},
                          {ChannelsLast({2, 24, 5, 7}), ChannelsLast({2, 24, 5, 7})},
                          ChannelsLast({2, 24, 5, 7})));
  samples.push_back(OneOp("ones", M::kAdd, F32, {1, 1, 1}, {{}, {}}));
  samples.push_back(OneOp("stride_zero", M::kAdd, F32, {4, 6}, {{0, 1}, {1, 0}}));
  for (const int64_t bytes : {2, 4, 8}) samples.push_back(Aligned(bytes));
  const std::pair<const char*, Dims> broadcasts[] = {
      {"rows", {6, 1}}, {"columns", {1, 40}}, {"lower_rank", {40}}, {"scalar", {1}}};
  for (const auto& [name, dims] : broadcasts) {
    Sample s(fmt::format("broadcast_{}", name));
    s.Out(s.Op(M::kAdd, {s.In(F16, {6, 40}), s.In(F32, dims)}), F16);
    samples.push_back(s.Done());
  }
  {
    Sample s("outer");  // no operand has the result's extents
    s.Out(s.Op(M::kMul, {s.In(F32, {9, 1}), s.In(F32, {1, 20})}), F32);
    samples.push_back(s.Done());
  }
  {
    Sample s("mixed_types");
    const TensorId a = s.In(F16, {3, 32}), b = s.In(BF16, {3, 32}), c = s.In(DType::kE4M3, {3, 32}),
                   d = s.In(DType::kE5M2, {3, 32});
    const TensorId e = s.In(I8, {3, 32}), f = s.In(DType::kU8, {3, 32}), g = s.In(I32, {3, 32}),
                   h = s.In(I64, {3, 32});
    TensorId t = s.Op(M::kAdd, {a, b});
    for (TensorId x : {c, d, e, f, g, h}) t = s.Op(M::kAdd, {t, x});
    s.Out(t, DType::kE4M3);
    for (const DType y : {DType::kE5M2, BF16, I8, DType::kU8, I32, I64})
      s.Out(s.Op(M::kMul, {t, s.Constant(3)}), y);
    samples.push_back(s.Done());
  }
  {
    Sample s("select");
    const TensorId x = s.In(F32, {4, 19}), y = s.In(F32, {4, 19}), c = s.Compare(M::kCmpLt, {x, y});
    const TensorId m = s.In(BOOL, {4, 1}), both = s.Compare(M::kLogicalAnd, {c, m}, BOOL);
    s.Out(s.Op(M::kBinarySelect, {x, y, both}), F16);
    s.Out(both, BOOL);
    samples.push_back(s.Done());
  }
  {
    Sample s("identity_of_intermediate");  // its producer has another reader
    const TensorId e = s.Op(M::kExp, {s.In(F32, {4, 19})}), i = s.Op(M::kIdentity, {e});
    s.Out(i, F16);
    s.Out(s.Op(M::kNeg, {e}), F32);
    samples.push_back(s.Done());
  }
  samples.push_back(MultiOutput());
  samples.push_back(ByValue());
  samples.push_back(InPlace());
  return samples;
}

std::vector<SampleGraph> PointwiseModeSamples() {
  std::vector<SampleGraph> samples;
  constexpr int kModes = static_cast<int>(M::kBinarySelect) + 1;
  for (int i = 0; i < kModes; ++i) {
    const M mode = M(i);
    const PointwiseModeInfo& info = graph::Info(mode);
    const bool compares = mode >= M::kCmpEq && mode <= M::kCmpLe,
               logical = mode >= M::kLogicalAnd && mode <= M::kLogicalNot;
    for (const DType type : {F32, F64, F16, I32}) {
      for (const bool options : {false, true}) {
        GraphBuilder b(
            fmt::format("{}_{}{}", info.text, kiln::Info(type).text, options ? "_options" : ""));
        const DType in = logical ? BOOL : type, compute = logical ? BOOL : type == F16 ? F32 : type;
        std::vector<TensorId> inputs;
        for (int k = 0; k < info.inputs; ++k)
          inputs.push_back(b.Input("x", k == 2 ? BOOL : in, {3, 37}));
        PointwiseAttrs a{.mode = mode};
        if (options) {
          a.relu_lower = -0.5, a.relu_upper = 6, a.relu_slope = 0.125, a.elu_alpha = 1.5,
          a.softplus_beta = 2, a.swish_beta = 0.75;
          a.propagate_nan = true;
          if (!logical && !compares) a.alpha1 = 2, a.alpha2 = -1;
        }
        if (mode == M::kGenIndex) a.axis = 1;
        const TensorId y =
            b.Apply(GraphOp::kPointwise, inputs, a,
                    {.dtype = compares || logical ? BOOL : type, .compute = compute});
        b.Output(y, "y", b.graph()[y].dtype);
        const bool positive = mode == M::kLog || mode == M::kSqrt || mode == M::kRsqrt ||
                              mode == M::kPow || mode == M::kReciprocal;
        const std::string name = b.graph().name;
        // A graph without an integer form is no sample.
        if (Result<Graph> graph = b.Finish(); graph.ok())
          samples.push_back({name, *std::move(graph), positive && !options});
        else
          CHECK(!IsFloat(type), "{}: {}", name, graph.status().message());
      }
    }
  }
  return samples;
}

std::vector<SampleGraph> ReduceSamples() {
  std::vector<SampleGraph> samples;
  const auto add = [&](std::string name, Dims dims, Dims kept, DType type = F32, Dims strides = {},
                       R mode = R::kAdd) {
    Sample s(std::move(name));
    const DType compute = type == F64 || type == I32 ? type : F32;
    s.Out(s.Reduce(mode, s.In(type, std::move(dims), std::move(strides)), std::move(kept), compute),
          compute);
    samples.push_back(s.Done());
  };
  add("rows", {6, 40}, {6, 1});
  add("rows_long", {3, 3000}, {3, 1}, F16);
  add("rows_many", {300, 5}, {300, 1});
  add("rows_odd", {7, 131}, {7, 1}, F16);
  add("columns", {40, 70}, {1, 70});
  add("columns_odd", {33, 7}, {1, 7}, F16);
  add("columns_wide", {9, 600}, {1, 600});
  add("full", {11, 13, 17}, {1, 1, 1});
  add("full_large", {5000}, {1});
  add("full_one", {1, 1}, {1, 1});
  add("middle", {4, 30, 20}, {4, 1, 20});
  add("outer_inner", {6, 20, 30}, {1, 20, 1});
  add("nothing", {5, 8}, {5, 8});
  add("nothing_after_ones", {5, 1, 8}, {5, 1, 8});
  add("nhwc_channels", {3, 24, 5, 7}, {1, 24, 1, 1}, F16, ChannelsLast({3, 24, 5, 7}));
  add("nchw_channels", {3, 24, 5, 7}, {1, 24, 1, 1}, F16);
  add("nhwc_spatial", {3, 24, 5, 7}, {3, 24, 1, 1}, F32, ChannelsLast({3, 24, 5, 7}));
  add("strided", {6, 10}, {6, 1}, F32, {23, 2});
  add("stride_zero", {6, 10}, {6, 1}, F32, {1, 0});
  add("f64", {9, 50}, {9, 1}, F64);
  add("i32", {9, 50}, {9, 1}, I32);
  for (int mode = 0; mode <= static_cast<int>(R::kMulNoZeros); ++mode) {
    add(fmt::format("rows_{}", Text(R(mode))), {4, 9}, {4, 1}, F32, {}, R(mode));
    add(fmt::format("columns_{}", Text(R(mode))), {9, 4}, {1, 4}, F32, {}, R(mode));
  }
  {
    Sample s("multi_reduce");
    const TensorId x = s.In(F16, {20, 50}), e = s.Op(M::kExp, {x});
    s.Out(s.Reduce(R::kAdd, e, {20, 1}), F32);
    s.Out(s.Reduce(R::kMax, x, {20, 1}), F16);
    s.Out(s.Reduce(R::kMin, x, {20, 1}), F32);
    samples.push_back(s.Done());
  }
  {
    Sample s("prologue_epilogue");
    const TensorId x = s.In(F16, {6, 8, 30}), w = s.In(F32, {1, 1, 30}),
                   bias = s.In(F32, {6, 1, 1});
    const TensorId sum = s.Reduce(R::kAdd, s.Op(M::kMul, {s.Op(M::kReluFwd, {x}), w}), {6, 8, 1});
    s.Out(s.Op(M::kAdd, {s.Op(M::kSigmoidFwd, {sum}), bias}), F16);
    s.Out(sum, F32);
    samples.push_back(s.Done());
  }
  {
    Sample s("softmax");
    const TensorId x = s.In(F32, {8, 40});
    const TensorId e = s.Op(M::kExp, {s.Op(M::kSub, {x, s.Reduce(R::kMax, x, {8, 1})})});
    s.Out(s.Op(M::kDiv, {e, s.Reduce(R::kAdd, e, {8, 1})}), F16);
    samples.push_back(s.Done());
  }
  {
    Sample s("broadcast_reduce");  // the operand's extents come from two inputs
    s.Out(s.Reduce(R::kAdd, s.Op(M::kMul, {s.In(F32, {9, 1}), s.In(F32, {1, 20})}), {9, 1}), F32);
    samples.push_back(s.Done());
  }
  {
    Sample s("reduce_of_scalars");
    s.Out(s.Reduce(R::kAdd, s.Op(M::kAdd, {s.Scalar(F32), s.Constant(2)}), {1}), F32);
    samples.push_back(s.Done());
  }
  {
    Sample s("grouped");  // an extent that divides
    s.Out(s.Reduce(R::kAdd, s.In(F32, {2, 12, 10}), {2, 4, 10}), F32);
    samples.push_back(s.Done());
  }
  {
    Sample s("two_stages_of_reduction");
    const TensorId x = s.In(F32, {6, 10, 14});
    s.Out(s.Reduce(R::kMax, s.Op(M::kMul, {s.Reduce(R::kAdd, x, {6, 10, 1}), s.Constant(0.5)}),
                   {1, 10, 1}),
          F32);
    samples.push_back(s.Done());
  }
  return samples;
}

std::vector<SampleGraph> MatmulSamples() {
  std::vector<SampleGraph> samples;
  const auto add = [&](std::string name, Dims a, Dims b, Dims as = {}, Dims bs = {},
                       DType type = F32, Dims cs = {}) {
    Sample s(std::move(name));
    const DType compute = type == I8 ? I32 : type == F64 ? F64 : F32;
    const TensorId c = s.Contract(
        GraphOp::kMatmul,
        {s.In(type, std::move(a), std::move(as)), s.In(type, std::move(b), std::move(bs))},
        MatmulAttrs{}, compute);
    s.Out(c, compute == F32 ? type : compute, std::move(cs));
    samples.push_back(s.Done());
  };
  add("nn", {2, 20, 30}, {2, 30, 40});
  add("nt", {2, 20, 30}, {2, 30, 40}, {}, {1200, 1, 30});
  add("tn", {2, 20, 30}, {2, 30, 40}, {600, 1, 20});
  add("tt", {2, 20, 30}, {2, 30, 40}, {600, 1, 20}, {1200, 1, 30});
  add("c_transposed", {20, 30}, {30, 40}, {}, {}, F16, {1, 20});
  add("odd", {65, 17}, {17, 3}, {}, {}, F16);
  add("tiles", {1, 130, 33}, {1, 33, 70}, {}, {}, BF16);
  add("vector", {1, 50}, {50, 1});
  add("depth_one", {20, 1}, {1, 30});
  add("broadcast_a", {1, 5, 6}, {3, 6, 7});
  add("broadcast_b", {3, 2, 5, 6}, {3, 1, 6, 7});
  add("repeat_heads", {2, 8, 5, 6}, {2, 2, 6, 7}, {}, {}, F16);
  add("int8", {2, 10, 20}, {2, 20, 10}, {}, {}, I8);
  add("f64", {10, 20}, {20, 10}, {}, {}, F64);
  add("padded", {10, 20}, {20, 10}, {25, 1}, {13, 1});
  for (int mask = 1; mask < 8; ++mask) {
    Sample s(fmt::format("override_{}", mask));
    std::vector<TensorId> in = {s.In(F16, {3, 2, 9, 12}), s.In(F16, {3, 2, 12, 10})};
    for (int i = 0; i < 3; ++i)
      in.push_back((mask >> i) % 2 != 0 ? s.In(I32, {3, i == 1 ? 2 : 1, 1, 1}) : kAbsent);
    s.Out(s.Contract(GraphOp::kMatmul, in, MatmulAttrs{.padding_value = -3}), F32);
    samples.push_back(s.Done());
  }
  {
    Sample s("prologue_epilogue");
    const TensorId a = s.In(I8, {24, 40}), scale = s.In(F16, {24, 1}), b = s.In(F16, {40, 16}),
                   bias = s.In(F16, {1, 16});
    const TensorId c = s.Contract(
        GraphOp::kMatmul, {s.Op(M::kMul, {a, scale}), s.Op(M::kReluFwd, {b})}, MatmulAttrs{});
    const TensorId t = s.Op(M::kAdd, {c, bias});
    s.Out(s.Op(M::kGeluFwd, {t}), F16);
    s.Out(c, BF16);
    samples.push_back(s.Done());
  }
  {
    Sample s("attention");
    const TensorId q = s.In(F16, {1, 4, 12, 8}), k = s.In(F16, {1, 2, 8, 20}, {320, 160, 1, 8}),
                   v = s.In(F16, {1, 2, 20, 8});
    const TensorId p =
        s.Op(M::kMul, {s.Contract(GraphOp::kMatmul, {q, k}, MatmulAttrs{}), s.Scalar(F32, 4)});
    const TensorId e = s.Op(M::kExp, {s.Op(M::kSub, {p, s.Reduce(R::kMax, p, {1, 4, 12, 1})})});
    const TensorId soft = s.Op(M::kDiv, {e, s.Reduce(R::kAdd, e, {1, 4, 12, 1})});
    s.Out(s.Contract(GraphOp::kMatmul, {soft, v}, MatmulAttrs{}), F16);
    samples.push_back(s.Done());
  }
  {
    Sample s("chain");  // the operand of a contraction is another's result
    const TensorId a = s.In(F32, {9, 11}), b = s.In(F32, {11, 13}), c = s.In(F32, {13, 10});
    const TensorId ab = s.Contract(GraphOp::kMatmul, {a, b}, MatmulAttrs{});
    s.Out(s.Contract(GraphOp::kMatmul, {s.Op(M::kReluFwd, {ab}), c}, MatmulAttrs{}), F32);
    samples.push_back(s.Done());
  }
  {
    Sample s("square");  // one tensor is both operands
    const TensorId a = s.In(F32, {12, 12});
    s.Out(s.Contract(GraphOp::kMatmul, {a, a}, MatmulAttrs{}), F32);
    samples.push_back(s.Done());
  }
  return samples;
}

namespace {

struct ConvCase {
  const char* name;
  Dims x, w;  // N C spatial, K C/groups filter
  Dims pre, post, stride, dilation;
  bool flip = false;
  bool channels_last = false;
  DType type = F32;
  double alpha = 1, beta = 0;
};

const ConvCase kConvs[] = {
    {"c1d", {2, 3, 20}, {5, 3, 3}, {1}, {1}, {1}, {1}},
    {"c2d", {2, 3, 9, 11}, {4, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"c2d_nhwc", {2, 3, 9, 11}, {4, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false, true, F16},
    {"c3d", {1, 2, 5, 6, 7}, {3, 2, 3, 1, 2}, {1, 0, 1}, {1, 0, 0}, {1, 2, 1}, {1, 1, 2}},
    {"c3d_ndhwc",
     {1, 2, 5, 6, 7},
     {3, 2, 3, 1, 2},
     {1, 0, 1},
     {1, 0, 0},
     {1, 2, 1},
     {1, 1, 2},
     false,
     true},
    {"pointwise", {2, 8, 5, 5}, {6, 8, 1, 1}, {0, 0}, {0, 0}, {1, 1}, {1, 1}, false, true, F16},
    {"stride", {1, 3, 11, 12}, {4, 3, 3, 3}, {1, 1}, {1, 1}, {2, 3}, {1, 1}},
    {"dilation", {1, 3, 11, 12}, {4, 3, 3, 3}, {2, 2}, {2, 2}, {1, 1}, {2, 2}},
    {"stride_dilation", {1, 2, 13, 14}, {3, 2, 3, 2}, {2, 1}, {1, 2}, {2, 2}, {2, 3}, false, true},
    {"asymmetric", {2, 2, 7, 8}, {3, 2, 3, 3}, {2, 0}, {0, 1}, {1, 1}, {1, 1}},
    {"flip", {2, 2, 7, 8}, {3, 2, 3, 2}, {1, 1}, {1, 1}, {1, 2}, {1, 1}, true},
    {"groups", {2, 6, 7, 8}, {4, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"groups_nhwc", {2, 6, 7, 8}, {9, 2, 3, 3}, {1, 1}, {1, 1}, {2, 1}, {1, 1}, false, true, BF16},
    {"depthwise", {2, 6, 7, 8}, {6, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false, true},
    {"int8", {1, 4, 6, 6}, {4, 4, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false, true, I8},
    {"f64", {1, 2, 6, 6}, {3, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false, false, F64},
    {"alpha_beta",
     {1, 2, 6, 6},
     {3, 2, 3, 3},
     {1, 1},
     {1, 1},
     {1, 1},
     {1, 1},
     false,
     false,
     F32,
     2,
     -0.5},
    {"ones", {1, 1, 1, 1}, {1, 1, 1, 1}, {0, 0}, {0, 0}, {1, 1}, {1, 1}},
    {"wide_padding", {1, 2, 3, 3}, {2, 2, 2, 2}, {3, 4}, {5, 3}, {2, 1}, {1, 1}},
};

SampleGraph Conv(const ConvCase& c, GraphOp op) {
  Sample s(fmt::format("{}_{}", c.name, Info(op).mnemonic));
  Dims y = {c.x[0], c.w[0]};
  for (size_t d = 0; d + 2 < c.x.size(); ++d)
    y.push_back((c.x[d + 2] + c.pre[d] + c.post[d] - c.dilation[d] * (c.w[d + 2] - 1) - 1) /
                    c.stride[d] +
                1);
  const auto strides = [&](const Dims& dims) {
    return c.channels_last ? ChannelsLast(dims) : Dims{};
  };
  const Dims& first = op == GraphOp::kConvDgrad ? y : c.x;
  const Dims& second = op == GraphOp::kConvWgrad ? y : c.w;
  const Dims& result = op == GraphOp::kConvFprop ? y : op == GraphOp::kConvDgrad ? c.x : c.w;
  std::vector<TensorId> in = {s.In(c.type, first, strides(first)),
                              s.In(c.type, second, strides(second))};
  if (c.beta != 0) in.push_back(s.In(c.type, result, strides(result)));
  const DType compute = c.type == I8 ? I32 : c.type == F64 ? F64 : F32;
  const ConvAttrs attrs{.pre_padding = c.pre,
                        .post_padding = c.post,
                        .stride = c.stride,
                        .dilation = c.dilation,
                        .flip = c.flip,
                        .alpha = c.alpha,
                        .beta = c.beta};
  s.Out(s.Contract(op, in, attrs, compute, result), compute == F32 ? c.type : compute,
        strides(result));
  return s.Done();
}

SampleGraph ConvBiasRelu(bool channels_last) {
  Sample s(fmt::format("conv_bias_relu{}", channels_last ? "_nhwc" : ""));
  const Dims xd = {2, 8, 10, 10}, wd = {16, 8, 3, 3}, yd = {2, 16, 10, 10};
  const TensorId x = s.In(F16, xd, channels_last ? ChannelsLast(xd) : Dims{}),
                 w = s.In(F16, wd, channels_last ? ChannelsLast(wd) : Dims{});
  const ConvAttrs attrs{
      .pre_padding = {1, 1}, .post_padding = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
  const TensorId c = s.Contract(GraphOp::kConvFprop, {x, w}, attrs);
  const TensorId z = s.In(F16, yd), bias = s.In(F32, {1, 16, 1, 1});
  s.Out(s.Op(M::kReluFwd, {s.Op(M::kAdd, {s.Op(M::kAdd, {c, z}), bias})}), F16,
        channels_last ? ChannelsLast(yd) : Dims{});
  return s.Done();
}

}  // namespace

std::vector<SampleGraph> ConvSamples() {
  std::vector<SampleGraph> samples;
  for (const ConvCase& c : kConvs)
    for (const GraphOp op : {GraphOp::kConvFprop, GraphOp::kConvDgrad, GraphOp::kConvWgrad})
      samples.push_back(Conv(c, op));
  for (const bool last : {false, true}) samples.push_back(ConvBiasRelu(last));
  {
    Sample s("prologue_padding");  // the padding is zero after the prologue, not before it
    const TensorId x = s.In(F32, {2, 4, 6, 6}), scale = s.In(F32, {1, 4, 1, 1}),
                   shift = s.In(F32, {1, 4, 1, 1});
    const TensorId t = s.Op(M::kAdd, {s.Op(M::kMul, {x, scale}), shift});
    const ConvAttrs attrs{
        .pre_padding = {1, 1}, .post_padding = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
    const TensorId c = s.Contract(GraphOp::kConvFprop, {t, s.In(F32, {5, 4, 3, 3})}, attrs);
    s.Out(c, F32);
    s.Out(s.Reduce(R::kAdd, c, {1, 5, 1, 1}), F32);
    samples.push_back(s.Done());
  }
  return samples;
}

std::vector<SampleGraph> ViewSamples() {
  std::vector<SampleGraph> samples;
  const auto one = [&](std::string name, auto&& make) {
    Sample s(std::move(name));
    make(s);
    samples.push_back(s.Done());
  };
  one("reshape_merge", [](Sample& s) {
    s.Out(
        s.Op(M::kNeg, {s.View(GraphOp::kReshape, {s.In(F32, {4, 5, 6})}, ReshapeAttrs{}, {4, 30})}),
        F32);
  });
  one("reshape_split", [](Sample& s) {
    s.Out(s.Op(M::kAdd, {s.View(GraphOp::kReshape, {s.In(F16, {4, 30})}, ReshapeAttrs{}, {4, 5, 6}),
                         s.In(F16, {4, 5, 6})}),
          F16);
  });
  one("reshape_regroup", [](Sample& s) {
    s.Out(s.Op(M::kNeg, {s.View(GraphOp::kReshape, {s.In(F32, {6, 10})}, ReshapeAttrs{}, {15, 4})}),
          F32);
  });
  one("reshape_transposes", [](Sample& s) {  // the same memory under other strides
    s.Out(s.Op(M::kNeg,
               {s.View(GraphOp::kReshape, {s.In(F32, {6, 10})}, ReshapeAttrs{}, {10, 6}, {1, 10})}),
          F32);
  });
  one("reshape_output", [](Sample& s) {
    s.Out(s.View(GraphOp::kReshape, {s.In(F32, {6, 10})}, ReshapeAttrs{}, {60}), F32);
  });
  one("transpose", [](Sample& s) {
    s.Out(s.Op(M::kNeg,
               {s.View(GraphOp::kTranspose, {s.In(F32, {4, 5, 6})}, TransposeAttrs{{2, 0, 1}})}),
          F32);
  });
  one("slice", [](Sample& s) {
    s.Out(s.Op(M::kNeg,
               {s.View(GraphOp::kSlice, {s.In(F32, {9, 10})}, SliceAttrs{{2, 1}, {1, 3}}, {5, 3})}),
          F32);
  });
  one("concat", [](Sample& s) {
    s.Out(s.View(GraphOp::kConcat, {s.In(F32, {4, 5}), s.In(F32, {4, 1}), s.In(F32, {4, 7})},
                 ConcatAttrs{1}),
          F32);
  });
  one("concat_outer", [](Sample& s) {
    const TensorId a = s.In(F16, {4, 5}), b = s.In(F16, {2, 5});
    s.Out(s.Op(M::kReluFwd, {s.View(GraphOp::kConcat, {s.Op(M::kNeg, {a}), b}, ConcatAttrs{0})}),
          F16);
  });
  one("iota", [](Sample& s) {
    const TensorId x = s.In(F32, {7, 9});
    const TensorId i = s.View(GraphOp::kIota, {}, IotaAttrs{1}, {7, 9});
    s.Out(s.Op(M::kMul, {x, i}), F32);
  });
  one("causal_mask", [](Sample& s) {
    const TensorId x = s.In(F32, {2, 12, 12});
    PointwiseAttrs row{.mode = M::kGenIndex}, col{.mode = M::kGenIndex};
    row.axis = 1, col.axis = 2;
    const TensorId keep = s.Compare(M::kCmpGe, {s.Op(row, {x}, I32), s.Op(col, {x}, I32)}, I32);
    s.Out(s.Op(M::kBinarySelect, {x, s.Constant(-1e9), keep}), F32);
  });
  one("reduce_of_transpose", [](Sample& s) {
    const TensorId t =
        s.View(GraphOp::kTranspose, {s.In(F16, {4, 5, 40})}, TransposeAttrs{{2, 0, 1}});
    s.Out(s.Reduce(R::kAdd, s.Op(M::kExp, {t}), {1, 4, 5}), F32);
  });
  one("reduce_of_slice", [](Sample& s) {
    s.Out(
        s.Reduce(R::kMax,
                 s.View(GraphOp::kSlice, {s.In(F32, {9, 50})}, SliceAttrs{{1, 3}, {2, 1}}, {4, 40}),
                 {4, 1}),
        F32);
  });
  one("reduce_of_concat", [](Sample& s) {
    s.Out(s.Reduce(R::kAdd,
                   s.View(GraphOp::kConcat, {s.In(F32, {6, 9}), s.In(F32, {6, 5})}, ConcatAttrs{1}),
                   {6, 1}),
          F32);
  });
  one("reduce_then_reshape", [](Sample& s) {
    const TensorId r = s.Reduce(R::kAdd, s.In(F32, {6, 20, 10}), {6, 1, 10});
    s.Out(s.Op(M::kNeg, {s.View(GraphOp::kReshape, {r}, ReshapeAttrs{}, {60})}), F32);
  });
  one("matmul_of_views", [](Sample& s) {
    const TensorId a =
        s.View(GraphOp::kTranspose, {s.In(F16, {10, 3, 8})}, TransposeAttrs{{1, 0, 2}});
    const TensorId b = s.View(GraphOp::kSlice, {s.In(F16, {3, 12, 9})},
                              SliceAttrs{{0, 2, 1}, {1, 1, 2}}, {3, 8, 4});
    s.Out(s.Contract(GraphOp::kMatmul, {a, b}, MatmulAttrs{}), F32);
  });
  one("matmul_of_reshape", [](Sample& s) {
    const TensorId a =
        s.View(GraphOp::kReshape, {s.In(F32, {2, 5, 4, 3})}, ReshapeAttrs{}, {10, 12});
    const TensorId c = s.Contract(GraphOp::kMatmul, {a, s.In(F32, {12, 6})}, MatmulAttrs{});
    s.Out(s.View(GraphOp::kReshape, {c}, ReshapeAttrs{}, {2, 5, 6}), F32);
  });
  one("matmul_of_iota", [](Sample& s) {
    const TensorId a = s.In(F32, {9, 12}), i = s.View(GraphOp::kIota, {}, IotaAttrs{1}, {9, 12});
    s.Out(s.Contract(GraphOp::kMatmul, {s.Op(M::kMul, {a, i}), s.In(F32, {12, 5})}, MatmulAttrs{}),
          F32);
  });
  one("conv_of_concat", [](Sample& s) {
    const TensorId x = s.View(GraphOp::kConcat, {s.In(F16, {2, 3, 6, 6}), s.In(F16, {2, 5, 6, 6})},
                              ConcatAttrs{1});
    const ConvAttrs attrs{
        .pre_padding = {1, 1}, .post_padding = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
    s.Out(s.Contract(GraphOp::kConvFprop, {x, s.In(F16, {4, 8, 3, 3})}, attrs), F16);
  });
  one("epilogue_views", [](Sample& s) {
    const TensorId c =
        s.Contract(GraphOp::kMatmul, {s.In(F32, {6, 8}), s.In(F32, {8, 10})}, MatmulAttrs{});
    const TensorId t = s.View(GraphOp::kTranspose, {s.In(F32, {10, 6})}, TransposeAttrs{{1, 0}});
    s.Out(s.Op(M::kAdd, {c, t}), F32);
  });
  one("views_that_cast", [](Sample& s) {
    const TensorId x = s.In(F32, {6, 10});
    const TensorId t = s.View(GraphOp::kTranspose, {s.Op(M::kExp, {x})}, TransposeAttrs{{1, 0}});
    const TensorId u = s.View(GraphOp::kSlice, {t}, SliceAttrs{{1, 0}, {2, 1}}, {4, 6});
    const TensorId v = s.View(GraphOp::kReshape, {u}, ReshapeAttrs{}, {24});
    Graph& g = s.builder().graph();
    g[t].dtype = F16, g[u].dtype = BF16, g[v].dtype = DType::kE5M2;
    s.Out(s.Op(M::kMul, {v, s.Constant(3)}), F32);
  });
  one("reshape_of_gaps", [](Sample& s) {  // the same memory, with gaps, in another order of dims
    const TensorId x = s.In(F32, {11, 4}, {1, 13});
    s.Out(s.Op(M::kNeg, {s.View(GraphOp::kReshape, {x}, ReshapeAttrs{}, {4, 11}, {13, 1})}), F32);
  });
  one("reshape_of_stored_gaps",
      [](Sample& s) {  // as before, of an intermediate that is stored densely
        const TensorId x = s.Reduce(R::kAdd, s.In(F32, {11, 3, 4}), {11, 1, 4});
        s.builder().graph()[x].strides = {1, 1, 13};
        const TensorId y = s.View(GraphOp::kReshape, {x}, ReshapeAttrs{}, {4, 11}, {13, 1});
        s.Out(s.Reduce(R::kMax, y, {4, 1}), F32);
        s.Out(s.Op(M::kNeg, {y}), F32);
      });
  one("reshape_of_rows", [](Sample& s) {  // not the same memory: the order of rows
    const TensorId x = s.In(F32, {6, 4}, {1, 6});
    const TensorId y = s.View(GraphOp::kReshape, {x}, ReshapeAttrs{}, {24}, {2});
    s.Out(s.Reduce(R::kMax, s.View(GraphOp::kReshape, {y}, ReshapeAttrs{}, {3, 8}), {3, 1}), F32);
  });
  one("rope", [](Sample& s) {  // x * cos + concat(-x2, x1) * sin
    const TensorId x = s.In(F16, {2, 7, 8}), cos = s.In(F32, {1, 7, 8}), sin = s.In(F32, {1, 7, 8});
    const TensorId x1 = s.View(GraphOp::kSlice, {x}, SliceAttrs{{0, 0, 0}, {1, 1, 1}}, {2, 7, 4});
    const TensorId x2 = s.View(GraphOp::kSlice, {x}, SliceAttrs{{0, 0, 4}, {1, 1, 1}}, {2, 7, 4});
    const TensorId r = s.View(GraphOp::kConcat, {s.Op(M::kNeg, {x2}, F32), x1}, ConcatAttrs{2});
    s.Out(s.Op(M::kAdd, {s.Op(M::kMul, {x, cos}), s.Op(M::kMul, {r, sin})}), F16);
  });
  return samples;
}

std::vector<SampleGraph> EmptySamples() {
  std::vector<SampleGraph> samples;
  const auto one = [&](std::string name, auto&& make) {
    Sample s("empty_" + std::move(name));
    make(s);
    samples.push_back(s.Done());
  };
  one("pointwise", [](Sample& s) { s.Out(s.Op(M::kNeg, {s.In(F32, {4, 0, 5})}), F32); });
  one("reduce_rows", [](Sample& s) { s.Out(s.Reduce(R::kAdd, s.In(F32, {4, 0}), {4, 1}), F32); });
  one("reduce_columns",
      [](Sample& s) { s.Out(s.Reduce(R::kMax, s.In(F32, {0, 40}), {1, 40}), F32); });
  one("reduce_mean", [](Sample& s) { s.Out(s.Reduce(R::kAvg, s.In(F32, {0, 40}), {1, 40}), F32); });
  one("reduce_kept", [](Sample& s) { s.Out(s.Reduce(R::kAdd, s.In(F32, {0, 40}), {0, 1}), F32); });
  one("matmul_k", [](Sample& s) {
    s.Out(s.Contract(GraphOp::kMatmul, {s.In(F32, {4, 0}), s.In(F32, {0, 6})}, MatmulAttrs{}), F32);
  });
  one("matmul_m", [](Sample& s) {
    s.Out(s.Contract(GraphOp::kMatmul, {s.In(F32, {0, 4}), s.In(F32, {4, 6})}, MatmulAttrs{}), F32);
  });
  one("concat", [](Sample& s) {
    s.Out(s.View(GraphOp::kConcat, {s.In(F32, {4, 0}), s.In(F32, {4, 3}), s.In(F32, {4, 0})},
                 ConcatAttrs{1}),
          F32);
  });
  one("beside_full", [](Sample& s) {
    s.Out(s.Op(M::kNeg, {s.In(F32, {0})}), F32);
    s.Out(s.Op(M::kNeg, {s.In(F32, {5})}), F32);
  });
  one("batch_of_images", [](Sample& s) {
    const ConvAttrs attrs{
        .pre_padding = {1, 1}, .post_padding = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
    s.Out(
        s.Contract(GraphOp::kConvFprop, {s.In(F16, {0, 4, 6, 6}), s.In(F16, {5, 4, 3, 3})}, attrs),
        F16);
  });
  one("wgrad_of_no_images", [](Sample& s) {
    const ConvAttrs attrs{
        .pre_padding = {1, 1}, .post_padding = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
    s.Out(s.Contract(GraphOp::kConvWgrad, {s.In(F16, {0, 4, 6, 6}), s.In(F16, {0, 5, 6, 6})}, attrs,
                     F32, {5, 4, 3, 3}),
          F16);
  });
  return samples;
}

std::vector<SampleGraph> FusedSamples() {
  std::vector<SampleGraph> samples;
  {
    Sample s("layer_norm");
    const TensorId x = s.In(F16, {6, 48}), scale = s.In(F32, {1, 48}), bias = s.In(F32, {1, 48}),
                   eps = s.Scalar(F32, 2);
    const TensorId mean = s.Reduce(R::kAvg, x, {6, 1}), d = s.Op(M::kSub, {x, mean});
    const TensorId var = s.Reduce(R::kAvg, s.Op(M::kMul, {d, d}), {6, 1});
    const TensorId inv = s.Op(M::kRsqrt, {s.Op(M::kAdd, {var, s.Op(M::kAbs, {eps})})});
    s.Out(s.Op(M::kAdd, {s.Op(M::kMul, {s.Op(M::kMul, {d, inv}), scale}), bias}), F16);
    s.Out(mean, F32);
    s.Out(inv, F32);
    samples.push_back(s.Done());
  }
  {
    Sample s("gen_stats_of_conv");
    const ConvAttrs attrs{
        .pre_padding = {1, 1}, .post_padding = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
    const Dims xd = {2, 4, 6, 6}, yd = {2, 8, 6, 6};
    const TensorId y = s.Contract(
        GraphOp::kConvFprop, {s.In(F16, xd, ChannelsLast(xd)), s.In(F16, {8, 4, 3, 3})}, attrs);
    s.Out(y, F16, ChannelsLast(yd));
    Graph& g = s.builder().graph();
    std::vector<TensorId> out;
    for (const char* name : {"sum", "sq_sum"}) {
      Tensor t;
      t.name = name;
      t.is_virtual = true;
      out.push_back(g.AddTensor(std::move(t)));
    }
    Node node;
    node.op = GraphOp::kGenStats;
    node.inputs = {y};
    node.outputs = out;
    node.attrs = GenStatsAttrs{};
    g.AddNode(std::move(node));
    CHECK(InferShapes(g).ok());
    for (TensorId id : out) s.Out(id, F32);
    samples.push_back(s.Done());
  }
  {
    Sample s("shared_prologue");  // one floating value feeds two groups
    const TensorId x = s.In(F32, {10, 12}), t = s.Op(M::kTanhFwd, {x});
    s.Out(s.Reduce(R::kAdd, t, {10, 1}), F32);
    s.Out(s.Reduce(R::kAdd, t, {1, 12}), F32);
    s.Out(s.Contract(GraphOp::kMatmul, {t, s.In(F32, {12, 4})}, MatmulAttrs{}), F32);
    samples.push_back(s.Done());
  }
  {
    Sample s("in_place_two_groups");  // the input is read again after its place is written to by an
                                      // earlier group
    const TensorId x = s.In(F32, {8, 20});
    const TensorId y = s.Op(M::kMul, {x, s.Constant(2)});
    const TensorId total = s.Reduce(R::kAdd, y, {8, 1});
    s.Out(y, F32);
    s.builder().graph()[y].uid = s.builder().graph()[x].uid;
    s.Out(s.Op(M::kAdd, {y, total}), F32);
    samples.push_back(s.Done());
  }
  {
    Sample s("many_groups");
    TensorId x = s.In(F32, {6, 20});
    for (int i = 0; i < 4; ++i) {
      const TensorId m =
          s.Reduce(i % 2 == 0 ? R::kMax : R::kAvg, x, i % 2 == 0 ? Dims{6, 1} : Dims{1, 20});
      x = s.Op(M::kAdd, {s.Op(M::kMul, {x, s.Constant(0.5)}), m});
    }
    s.Out(x, F32);
    samples.push_back(s.Done());
  }
  return samples;
}

std::vector<SampleGraph> AllSamples() {
  std::vector<SampleGraph> all;
  for (const auto family : {PointwiseSamples, PointwiseModeSamples, ReduceSamples, MatmulSamples,
                            ConvSamples, ViewSamples, WindowSamples, BlockScaleSamples,
                            EmptySamples, FusedSamples, RnnSamples, CtcSamples, SegmentSamples})
    for (SampleGraph& sample : family()) all.push_back(std::move(sample));
  return all;
}

}  // namespace kiln::compiler
