// Graphs with one small group, for tests of tuning.
#pragma once

#include "compiler/compile.h"
#include "ir/graph/builder.h"

namespace kiln::api {

inline graph::Graph SmallMatmul(int64_t m) {
  graph::GraphBuilder b("matmul");
  const auto x = b.Input("a", DType::kF32, {1, m, 40}), z = b.Input("b", DType::kF32, {1, 40, 70});
  b.Output(b.Apply(graph::GraphOp::kMatmul, {x, z}, graph::MatmulAttrs{}), "y", DType::kF32);
  return *b.Finish();
}

inline graph::Graph SmallRelu(int64_t n) {
  graph::GraphBuilder b("relu");
  b.Output(b.Pointwise(graph::PointwiseMode::kReluFwd, {b.Input("x", DType::kF32, {n})}), "y",
           DType::kF32);
  return *b.Finish();
}

inline compiler::Group GroupOf(const graph::Graph& graph, const Target& target) {
  return **compiler::LeadingGroupOf(graph, target);
}

}  // namespace kiln::api
