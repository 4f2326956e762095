#include "tests/compiler/growth_graphs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ir/graph/builder.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphBuilder;
using graph::GraphOp;
using graph::TensorId;
using M = graph::PointwiseMode;
using R = graph::ReductionMode;

constexpr DType kF32 = DType::kF32;

Graph Finished(GraphBuilder& b) {
  Result<Graph> g = b.Finish();
  EXPECT_TRUE(g.ok()) << g.status().message();
  return g.ok() ? *std::move(g) : Graph();
}

// One node of a chain of values near 1, so that long chains stay finite.
TensorId Step(GraphBuilder& b, int i, TensorId x) {
  return b.Pointwise(i % 3 == 0 ? M::kAbs : i % 3 == 1 ? M::kTanhFwd : M::kNeg, {x});
}

Graph Chain(int nodes, const Dims& dims) {
  GraphBuilder b("chain");
  TensorId x = b.Input("x", kF32, dims);
  for (int i = 0; i < nodes; ++i) x = Step(b, i, x);
  b.Output(x, "y", kF32);
  return Finished(b);
}

Graph ChainInMemory(int nodes, const Dims& dims) {
  GraphBuilder b("chain_in_memory");
  TensorId x = b.Input("x", kF32, dims);
  for (int i = 0; i < nodes; ++i) {
    x = Step(b, i, x);
    b.Output(x, "y", kF32);
  }
  return Finished(b);
}

Graph ChainOfCasts(int nodes, const Dims& dims) {
  GraphBuilder b("chain_of_casts");
  TensorId x = b.Input("x", kF32, dims);
  for (int i = 0; i < nodes; ++i)
    x = b.Pointwise(M::kIdentity, {x}, {.dtype = i % 2 == 0 ? DType::kF16 : kF32});
  b.Output(b.Pointwise(M::kAbs, {x}), "y", kF32);
  return Finished(b);
}

// x, x x, (x x)(x x), …: each value is read twice, so that there are 2^nodes ways back.
TensorId Doubled(GraphBuilder& b, int nodes, TensorId x) {
  for (int i = 0; i < nodes; ++i) x = b.Pointwise(M::kMul, {x, x});
  return x;
}

Graph DoublingBeforeSoftmax(int nodes, const Dims& dims) {
  GraphBuilder b("doubling_before_softmax");
  const TensorId x = Doubled(b, nodes, b.Input("x", kF32, dims));
  const Dims row = {1, dims[1]};
  const TensorId e =
      b.Pointwise(M::kExp, {b.Pointwise(M::kSub, {x, b.Reduction(R::kMax, x, row)})});
  b.Output(b.Pointwise(M::kDiv, {e, b.Reduction(R::kAdd, e, row)}), "y", kF32);
  return Finished(b);
}

Graph DoublingBetweenProducts(int nodes, const Dims& dims) {
  GraphBuilder b("doubling_between_products");
  const Dims q = {1, dims[0], dims[1]}, k = {1, dims[1], dims[0]};
  const TensorId scores = b.Apply(GraphOp::kMatmul, {b.Input("q", kF32, q), b.Input("k", kF32, k)},
                                  graph::MatmulAttrs{});
  const TensorId y = b.Apply(GraphOp::kMatmul, {Doubled(b, nodes, scores), b.Input("v", kF32, q)},
                             graph::MatmulAttrs{});
  b.Output(y, "y", kF32);
  return Finished(b);
}

// A condition that is read twice by each step, as the mask of a softmax between two products.
Graph DoublingMask(int nodes, const Dims& dims) {
  GraphBuilder b("doubling_mask");
  const Dims q = {1, dims[0], dims[1]}, k = {1, dims[1], dims[0]}, s = {1, dims[0], dims[0]};
  const TensorId scores = b.Apply(GraphOp::kMatmul, {b.Input("q", kF32, q), b.Input("k", kF32, k)},
                                  graph::MatmulAttrs{});
  const auto index = [&](int64_t axis) {
    return b.Apply(GraphOp::kPointwise, {scores},
                   graph::PointwiseAttrs{.mode = M::kGenIndex, .axis = axis},
                   {.dtype = DType::kI32, .compute = DType::kI32});
  };
  TensorId column = index(2);
  for (int i = 0; i < nodes / 2; ++i)
    column = b.Pointwise(M::kAdd, {column, column}, {.dtype = DType::kI32, .compute = DType::kI32});
  TensorId visible = b.Pointwise(M::kCmpGe, {index(1), column}, {.dtype = DType::kBool});
  for (int i = 0; i < nodes / 2; ++i)
    visible = b.Pointwise(M::kLogicalAnd, {visible, visible},
                          {.dtype = DType::kBool, .compute = DType::kBool});
  const TensorId fill = b.Constant("fill", kF32, -std::numeric_limits<double>::infinity(), 3);
  const TensorId masked = b.Pointwise(M::kBinarySelect, {scores, fill, visible});
  const Dims row = {1, s[1], 1};
  const TensorId e =
      b.Pointwise(M::kExp, {b.Pointwise(M::kSub, {masked, b.Reduction(R::kMax, masked, row)})});
  const TensorId p = b.Pointwise(M::kDiv, {e, b.Reduction(R::kAdd, e, row)});
  b.Output(b.Apply(GraphOp::kMatmul, {p, b.Input("v", kF32, q)}, graph::MatmulAttrs{}), "y", kF32);
  return Finished(b);
}

Graph ManyOutputs(int nodes, const Dims& dims) {
  GraphBuilder b("many_outputs");
  const TensorId x = b.Input("x", kF32, dims);
  for (int i = 0; i < nodes; ++i) b.Output(Step(b, i, x), "y", kF32);
  return Finished(b);
}

Graph WideSum(int nodes, const Dims& dims) {
  GraphBuilder b("wide_sum");
  TensorId x = b.Input("x", kF32, dims);
  for (int i = 0; i < nodes; ++i) x = b.Pointwise(M::kAdd, {x, b.Input("x", kF32, dims)});
  b.Output(x, "y", kF32);
  return Finished(b);
}

Graph TreeOfSums(int nodes, const Dims& dims) {
  GraphBuilder b("tree_of_sums");
  std::vector<TensorId> values;
  for (int i = 0; i <= nodes; ++i) values.push_back(b.Input("x", kF32, dims));
  for (size_t i = 0; i + 1 < values.size(); i += 2)
    values.push_back(b.Pointwise(M::kAdd, {values[i], values[i + 1]}));
  b.Output(values.back(), "y", kF32);
  return Finished(b);
}

Graph Reductions(int nodes, const Dims& dims, const char* name, bool alternates) {
  GraphBuilder b(name);
  TensorId x = b.Input("x", kF32, dims);
  for (int i = 0; i < nodes / 2; ++i) {
    const Dims to = alternates && i % 2 == 1 ? Dims{1, dims[1]} : Dims{dims[0], 1};
    x = b.Pointwise(M::kSub, {x, b.Reduction(R::kAvg, x, to)});
  }
  b.Output(x, "y", kF32);
  return Finished(b);
}
Graph ChainOfReductions(int nodes, const Dims& dims) {
  return Reductions(nodes, dims, "chain_of_reductions", false);
}
Graph RowsAndColumns(int nodes, const Dims& dims) {
  return Reductions(nodes, dims, "rows_and_columns", true);
}

Graph Independent(int nodes, const Dims& dims) {
  GraphBuilder b("independent");
  for (int i = 0; i < nodes; ++i) b.Output(Step(b, i, b.Input("x", kF32, dims)), "y", kF32);
  return Finished(b);
}

Graph IndependentReductions(int nodes, const Dims& dims) {
  GraphBuilder b("independent_reductions");
  for (int i = 0; i < nodes; ++i)
    b.Output(b.Reduction(R::kAdd, b.Input("x", kF32, dims), {dims[0], 1}), "y", kF32);
  return Finished(b);
}

Graph Softmaxes(int nodes, const Dims& dims) {
  GraphBuilder b("softmaxes");
  TensorId x = b.Input("x", kF32, dims);
  const Dims row = {dims[0], 1};
  for (int i = 0; i < nodes / 5; ++i) {
    const TensorId e =
        b.Pointwise(M::kExp, {b.Pointwise(M::kSub, {x, b.Reduction(R::kMax, x, row)})});
    x = b.Pointwise(M::kDiv, {e, b.Reduction(R::kAdd, e, row)});
    if (i % 2 == 1) b.Output(x, "y", kF32);
  }
  b.Output(b.Pointwise(M::kNeg, {x}), "last", kF32);
  return Finished(b);
}

// One chain of rows that has more maps between its two reductions than a group takes.
Graph LongRowChain(int nodes, const Dims& dims) {
  GraphBuilder b("long_row_chain");
  TensorId x = b.Input("x", kF32, dims);
  const Dims row = {dims[0], 1};
  x = b.Pointwise(M::kSub, {x, b.Reduction(R::kMax, x, row)});
  for (int i = 0; i < nodes; ++i) x = Step(b, i, x);
  const TensorId e = b.Pointwise(M::kExp, {x});
  b.Output(b.Pointwise(M::kDiv, {e, b.Reduction(R::kAdd, e, row)}), "y", kF32);
  return Finished(b);
}

Graph Ladder(int nodes, const Dims& dims) {
  GraphBuilder b("ladder");
  TensorId left = b.Input("left", kF32, dims), right = b.Input("right", kF32, dims);
  for (int i = 0; i < nodes / 2; ++i) {
    const TensorId next = b.Pointwise(M::kMin, {left, right});
    right = b.Pointwise(M::kMax, {left, right});
    left = next;
  }
  b.Output(left, "y", kF32);
  b.Output(right, "z", kF32);
  return Finished(b);
}

// Convolution, relu, convolution, sum, relu.
Graph Residual(int nodes, const Dims& dims) {
  GraphBuilder b("residual");
  const int64_t c = 8;
  const Dims x_dims = {1, c, dims[0], dims[1]};
  const Dims x_strides = {c * dims[0] * dims[1], 1, c * dims[1], c}, w_strides = {c, 1, c, c};
  const graph::ConvAttrs attrs{
      .pre_padding = {0, 0}, .post_padding = {0, 0}, .stride = {1, 1}, .dilation = {1, 1}};
  const auto conv = [&](TensorId x) {
    const TensorId w = b.Input("w", DType::kF16, {c, c, 1, 1}, w_strides);
    return b.Apply(GraphOp::kConvFprop, {x, w}, attrs,
                   {.dtype = kF32, .dims = x_dims, .strides = x_strides});
  };
  const graph::ResultOptions half{.dtype = DType::kF16, .dims = x_dims, .strides = x_strides};
  TensorId x = b.Input("x", DType::kF16, x_dims, x_strides);
  for (int i = 0; i < nodes / 5; ++i) {
    const TensorId y = conv(b.Pointwise(M::kReluFwd, {conv(x)}, half));
    x = b.Pointwise(M::kReluFwd, {b.Pointwise(M::kAdd, {y, x})}, half);
  }
  b.Output(x, "y", DType::kF16);
  return Finished(b);
}

// Pooling in a row, with maps between.
Graph Windows(int nodes, const Dims& dims) {
  GraphBuilder b("windows");
  TensorId x = b.Input("x", kF32, {1, 1, dims[0], dims[1]});
  const graph::ResampleAttrs attrs{.mode = graph::ResampleMode::kAvgIncludePadding,
                                   .window = {3, 3},
                                   .stride = {1, 1},
                                   .pre_padding = {1, 1},
                                   .post_padding = {1, 1},
                                   .unit = {1, 1}};
  for (int i = 0; i < nodes / 3; ++i) {
    x = b.Apply(GraphOp::kResampleFwd, {x}, attrs, {.dims = {1, 1, dims[0], dims[1]}});
    x = b.Pointwise(M::kMul, {x, x});
    x = b.Pointwise(M::kTanhFwd, {x});
  }
  b.Output(x, "y", kF32);
  return Finished(b);
}

constexpr GrowthShape kShapes[] = {
    {"chain", Chain},
    {"chain_in_memory", ChainInMemory},
    {"chain_of_casts", ChainOfCasts},
    {"doubling_before_softmax", DoublingBeforeSoftmax},
    {"doubling_between_products", DoublingBetweenProducts},
    {"doubling_mask", DoublingMask},
    {"many_outputs", ManyOutputs},
    {"wide_sum", WideSum},
    {"tree_of_sums", TreeOfSums},
    {"chain_of_reductions", ChainOfReductions},
    {"rows_and_columns", RowsAndColumns},
    {"independent", Independent},
    {"independent_reductions", IndependentReductions},
    {"softmaxes", Softmaxes},
    {"long_row_chain", LongRowChain},
    {"ladder", Ladder},
    {"residual", Residual},
    {"windows", Windows},
};

}  // namespace

std::span<const GrowthShape> GrowthShapes() { return kShapes; }

Graph GrowthGraph(std::string_view name, int nodes, const Dims& dims) {
  const auto* shape = std::ranges::find(kShapes, name, &GrowthShape::name);
  EXPECT_NE(shape, std::end(kShapes)) << name;
  return shape == std::end(kShapes) ? Graph() : shape->make(nodes, dims);
}

}  // namespace kiln::compiler
