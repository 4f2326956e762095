// A tensor that operations describe with its dims in another order, whoever comes first: as
// cudnn-frontend describes keys, to what makes them and to the product that reads them.
#include "api/backend/graph_import.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir/graph/eval.h"

namespace kiln::api {
namespace {

using graph::PointwiseAttrs;
using graph::PointwiseMode;

TensorDesc Described(int64_t uid, const Dims& dims, const Dims& strides) {
  TensorDesc t;
  t.uid = uid;
  t.alignment = 16;
  t.dims.Resize(dims.size());
  t.strides.Resize(dims.size());
  std::ranges::copy(dims, t.dims.begin());
  std::ranges::copy(strides, t.strides.begin());
  return t;
}

Status Negate(GraphImport& import, const TensorDesc& x, const TensorDesc& y) {
  return import.Add(graph::GraphOp::kPointwise, {&x}, {&y}, CUDNN_DATA_FLOAT,
                    PointwiseAttrs{.mode = PointwiseMode::kNeg});
}

// x[2,3] -> t, which is read as [3,2] -> z; the last operation of the client's may come first.
const TensorDesc kX = Described(1, {2, 3}, {3, 1}), kT = Described(2, {2, 3}, {3, 1}),
                 kTurned = Described(2, {3, 2}, {1, 3}), kZ = Described(3, {3, 2}, {2, 1});

graph::TensorId Of(const graph::Graph& g, int64_t uid) {
  const auto found = std::ranges::find(g.tensors, uid, &graph::Tensor::uid);
  EXPECT_NE(found, g.tensors.end());
  return static_cast<graph::TensorId>(found - g.tensors.begin());
}

void ExpectTurned(GraphImport& import) {
  const Result<graph::Graph> g = import.Finish();
  ASSERT_TRUE(g.ok()) << g.status().message();
  graph::TensorValues values = {{Of(*g, 1), {1, 2, 3, 4, 5, 6}}};
  const Status status = graph::Evaluate(*g, values);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(values.at(Of(*g, 3)), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  // t in the order of whoever named it first: the memory is the same.
  const graph::Tensor& t = (*g)[Of(*g, 2)];
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 3; ++j) {
      const int64_t place = t.dims[0] == 2 ? i * t.dims[1] + j : j * t.dims[1] + i;
      EXPECT_EQ(values.at(Of(*g, 2))[static_cast<size_t>(place)], -(3 * i + j + 1));
    }
}

TEST(GraphImport, ReadInAnotherOrder) {
  GraphImport import;
  ASSERT_TRUE(Negate(import, kX, kT).ok());
  ASSERT_TRUE(Negate(import, kTurned, kZ).ok());
  ExpectTurned(import);
}

TEST(GraphImport, WrittenInAnotherOrder) {
  GraphImport import;
  ASSERT_TRUE(Negate(import, kTurned, kZ).ok());
  ASSERT_TRUE(Negate(import, kX, kT).ok());
  ExpectTurned(import);
}

// Other memory, or another type, under one uid stays a mistake.
TEST(GraphImport, OthersShareNoUid) {
  TensorDesc packed = Described(2, {3, 2}, {2, 1}), half = kTurned, wide = kTurned;
  half.data_type = CUDNN_DATA_HALF;
  wide.vector_count = 2;
  for (const TensorDesc& other : {packed, half, wide, Described(2, {6}, {1})}) {
    GraphImport import;
    ASSERT_TRUE(Negate(import, kX, kT).ok());
    EXPECT_EQ(import.Tensor(other).status().code(), Code::kDuplicatedEntries) << other.Text();
  }
}

}  // namespace
}  // namespace kiln::api
