// Reductions by a client's own operator (attributes of 9.27), by descriptors on either device,
// against plain loops over the elements in order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/numerics/later_attributes.h"

namespace {

using client::Desc;
using kiln::testing::Count;
using kiln::testing::Ints;
using kiln::testing::LaterAttributes;
using kiln::testing::Numbers;
using kiln::testing::Values;

// One operation of a sub-graph: y = mode(x, b, t) by uids of its tensors.
struct Step {
  cudnnPointwiseMode_t mode;
  std::vector<int64_t> in;
  int64_t out;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;  // of the result
  double clip = 0;                          // of a relu: to as much on either side of 0
};

// Uids in the sub-graph: accumulators from 101 on, current elements from 201 on.
struct Case {
  Ints dims;                  // of x
  std::vector<int64_t> over;  // dims to reduce
  std::vector<Step> steps;
  std::vector<int64_t> outputs;
  std::vector<double> init;
  std::vector<cudnnDataType_t> types;  // of x and y
  // In place: the accumulators, then the current elements.
  std::function<void(Values&, const Values&)> combine;
  std::vector<cudnnDataType_t> compute = {};
  bool integers = false;  // values that tie
  double scalar = 0;      // tensor 301, by value, where a step reads it
};

class UserReduction : public LaterAttributes {
 protected:
  // The sub-graph, whose tensors have one element and are virtual.
  static Desc Body(const Case& c) {
    std::vector<Desc> operations;
    std::map<int64_t, cudnnDataType_t> types;
    for (size_t i = 0; i < c.types.size(); ++i)
      types[101 + static_cast<int64_t>(i)] = types[201 + static_cast<int64_t>(i)] =
          c.compute.empty() ? c.types[i] : c.compute[i];
    for (const Step& step : c.steps) types[step.out] = step.type;
    types[301] = CUDNN_DATA_FLOAT;
    const Ints ones(c.dims.size(), 1);
    const auto tensor = [&](int64_t uid) {
      return client::Tensor(
          uid, ones, {.type = types.at(uid), .is_virtual = uid != 301, .by_value = uid == 301});
    };
    std::vector<const Desc*> list;
    for (const Step& step : c.steps) {
      Desc mode(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
      mode.Set(CUDNN_ATTR_POINTWISE_MODE, step.mode)
          .Set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
      if (step.clip != 0)
        mode.Set(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, -step.clip)
            .Set(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, step.clip);
      mode.Finalize();
      Desc op(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
      op.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, mode)
          .Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensor(step.in[0]))
          .Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensor(step.out));
      if (step.in.size() > 1) op.Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensor(step.in[1]));
      if (step.in.size() > 2) op.Set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, tensor(step.in[2]));
      op.Finalize();
      EXPECT_EQ(op.status(), CUDNN_STATUS_SUCCESS) << op.error();
      operations.push_back(std::move(op));
    }
    std::vector<cudnnBackendDescriptor_t> raws;
    for (const Desc& op : operations) raws.push_back(op.raw());
    Desc graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    EXPECT_EQ(
        cudnnBackendSetAttribute(graph.raw(), CUDNN_ATTR_OPERATIONGRAPH_OPS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(raws), raws.data()),
        CUDNN_STATUS_SUCCESS);
    graph.Finalize();
    EXPECT_EQ(graph.status(), CUDNN_STATUS_SUCCESS) << graph.error();
    return graph;
  }

  static Ints Reduced(const Case& c) {
    Ints dims = c.dims;
    for (const int64_t d : c.over) dims[static_cast<size_t>(d)] = 1;
    return dims;
  }

  static Desc Operation(const Case& c, const std::vector<Desc>& x, const std::vector<Desc>& y) {
    const Desc body = Body(c);
    std::vector<int64_t> accumulators, currents;
    std::vector<std::vector<char>> bytes;
    std::vector<void*> init;
    for (size_t i = 0; i < c.types.size(); ++i) {
      accumulators.push_back(101 + static_cast<int64_t>(i));
      currents.push_back(201 + static_cast<int64_t>(i));
    }
    for (size_t i = 0; i < c.init.size(); ++i) {
      bytes.emplace_back(8);
      kiln::StoreValue(kiln::testing::TypeOf(c.types[i]), c.init[i], bytes.back().data());
      init.push_back(bytes.back().data());
    }
    const auto all = [](Desc& op, cudnnBackendAttributeName_t name, const std::vector<Desc>& of) {
      std::vector<cudnnBackendDescriptor_t> raws;
      for (const Desc& t : of) raws.push_back(t.raw());
      EXPECT_EQ(cudnnBackendSetAttribute(op.raw(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                         std::ssize(raws), raws.data()),
                CUDNN_STATUS_SUCCESS);
    };
    Desc op(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    all(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    all(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    op.Set(CUDNN_ATTR_OPERATION_REDUCTION_DIMS, c.over)
        .Set(CUDNN_ATTR_OPERATION_REDUCTION_INIT_VALUES, init)
        .Set(CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH, body)
        .Set(CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH_ACCUMULATOR_UIDS, accumulators)
        .Set(CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH_CURRENT_UIDS, currents)
        .Set(CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH_OUTPUT_UIDS, c.outputs);
    if (!c.compute.empty())
      op.Set(CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH_COMPUTE_TYPES, c.compute);
    op.Finalize();
    return op;
  }

  void Check(const Case& c) {
    const size_t count = c.types.size();
    std::vector<Values> values;
    std::vector<Desc> x, y;
    for (size_t i = 0; i < count; ++i) {
      Values v = Numbers(c.dims, 3 + static_cast<int>(i), 1.5);
      for (size_t at = 0; at < v.size(); ++at) {
        if (c.integers) v[at] = std::round(3 * v[at]);
        // The second of a tuple of a float and an integer is a place.
        if (c.types[i] == CUDNN_DATA_INT32) v[at] = static_cast<double>(at);
      }
      x.push_back(Put(static_cast<int64_t>(1 + i), c.dims, c.types[i], &v));
      y.push_back(Put(static_cast<int64_t>(11 + i), Reduced(c), c.types[i], nullptr));
      values.push_back(std::move(v));
    }
    if (c.scalar != 0) Scalar(301, c.scalar);
    Run(Operation(c, x, y));
    if (HasFatalFailure()) return;
    std::vector<Values> expected(count);
    ForEachResult(c, values, expected);
    for (size_t i = 0; i < count; ++i) {
      Values magnitude;
      for (const double v : expected[i])
        magnitude.push_back(c.types[i] == CUDNN_DATA_INT32  ? 0
                            : c.types[i] == CUDNN_DATA_HALF ? 2 + std::abs(v)
                                                            : 0.02 * (1 + std::abs(v)));
      Expect(static_cast<int64_t>(11 + i), "y", expected[i], magnitude);
    }
  }

  // Walks y row by row, and over the elements of each in the order of the dims.
  static void ForEachResult(const Case& c, const std::vector<Values>& x,
                            std::vector<Values>& results) {
    const Ints of_y = Reduced(c);
    const Ints strides = client::Packed(c.dims);
    const auto walk = [](const Ints& extents, const std::function<void(const Ints&)>& body) {
      Ints at(extents.size(), 0);
      for (int64_t n = Count(extents); n-- > 0;) {
        body(at);
        for (size_t d = extents.size(); d-- > 0 && ++at[d] == extents[d];) at[d] = 0;
      }
    };
    Ints inner(c.dims.size(), 1);
    for (const int64_t d : c.over) inner[static_cast<size_t>(d)] = c.dims[static_cast<size_t>(d)];
    walk(of_y, [&](const Ints& at) {
      Values sum = c.init;
      walk(inner, [&](const Ints& within) {
        int64_t place = 0;
        for (size_t d = 0; d < at.size(); ++d) place += (at[d] + within[d]) * strides[d];
        Values current;
        for (const Values& v : x) current.push_back(v[static_cast<size_t>(place)]);
        c.combine(sum, current);
      });
      for (size_t i = 0; i < results.size(); ++i) results[i].push_back(sum[i]);
    });
  }
};

Case SumOfSquares() {
  return {.dims = {5, 7, 11},
          .over = {1},
          .steps = {{CUDNN_POINTWISE_MUL, {201, 201}, 1}, {CUDNN_POINTWISE_ADD, {101, 1}, 2}},
          .outputs = {2},
          .init = {2},
          .types = {CUDNN_DATA_FLOAT},
          .combine = [](Values& a, const Values& x) { a[0] += x[0] * x[0]; }};
}

// The largest element and the first place where it is.
Case ArgMax() {
  return {.dims = {3, 5, 37},
          .over = {2},
          .steps = {{CUDNN_POINTWISE_CMP_GE, {101, 201}, 1, CUDNN_DATA_BOOLEAN},
                    {CUDNN_POINTWISE_BINARY_SELECT, {101, 201, 1}, 2},
                    {CUDNN_POINTWISE_BINARY_SELECT, {102, 202, 1}, 3, CUDNN_DATA_INT32}},
          .outputs = {2, 3},
          .init = {-1000, -1},
          .types = {CUDNN_DATA_FLOAT, CUDNN_DATA_INT32},
          .combine =
              [](Values& a, const Values& x) {
                if (a[0] < x[0]) a = x;
              },
          .integers = true};
}

// Not associative: each step halves what came before.
Case Fading() {
  return {.dims = {4, 9},
          .over = {1},
          .steps = {{CUDNN_POINTWISE_MUL, {101, 301}, 1}, {CUDNN_POINTWISE_ADD, {1, 201}, 2}},
          .outputs = {2},
          .init = {1},
          .types = {CUDNN_DATA_FLOAT},
          .combine = [](Values& a, const Values& x) { a[0] = 0.5 * a[0] + x[0]; },
          .scalar = 0.5};
}

TEST_F(UserReduction, SumsOfWhatAMapMakes) { Check(SumOfSquares()); }
TEST_F(UserReduction, OverDimsThatLieApart) {
  Case c = SumOfSquares();
  c.over = {0, 2};
  Check(c);
}
TEST_F(UserReduction, OverAllDims) {
  Case c = SumOfSquares();
  c.over = {0, 1, 2};
  Check(c);
}
TEST_F(UserReduction, TwoSumsOfOneElement) {
  Check({.dims = {6, 130},
         .over = {1},
         .steps = {{CUDNN_POINTWISE_ADD, {101, 201}, 1}, {CUDNN_POINTWISE_MAX, {102, 202}, 2}},
         .outputs = {1, 2},
         .init = {0, -100},
         .types = {CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT},
         .combine = [](Values& a, const Values& x) {
           a[0] += x[0];
           a[1] = std::max(a[1], x[1]);
         }});
}
TEST_F(UserReduction, OfHalvesInFloats) {
  Check({.dims = {2, 70},
         .over = {1},
         .steps = {{CUDNN_POINTWISE_ADD, {201, 101}, 1}},
         .outputs = {1},
         .init = {0.5},
         .types = {CUDNN_DATA_HALF},
         .combine = [](Values& a, const Values& x) { a[0] += x[0]; },
         .compute = {CUDNN_DATA_FLOAT}});
}

TEST_F(UserReduction, TheFirstOfTheLargest) { Check(ArgMax()); }
TEST_F(UserReduction, TheFirstOfTheLargestAlongTheFirstDim) {
  Case c = ArgMax();
  c.over = {0, 1};
  Check(c);
}
TEST_F(UserReduction, TheFirstOfTheLargestOfMany) {
  Case c = ArgMax();
  c.dims = {2, 1500};
  c.over = {1};
  Check(c);
}
TEST_F(UserReduction, TheLastOfTheLargest) {
  Case c = ArgMax();
  c.steps[0].mode = CUDNN_POINTWISE_CMP_GT;
  c.combine = [](Values& a, const Values& x) {
    if (!(a[0] > x[0])) a = x;
  };
  Check(c);
}
TEST_F(UserReduction, OfOneElement) {
  Case c = ArgMax();
  c.dims = {3, 1};
  c.over = {1};
  Check(c);
}

// Mean and squared distances: (n, m, s) and (n', m', s') with d = m' - m and N = n + n' make
// (N, m + d n'/N, s + s' + d d n n'/N). x is (1, value, 0) for each element: weights and distances
// that a client has.
TEST_F(UserReduction, MeanAndSquaredDistances) {
  Case c{.dims = {3, 65},
         .over = {1},
         .steps = {{CUDNN_POINTWISE_ADD, {101, 201}, 1},
                   {CUDNN_POINTWISE_SUB, {202, 102}, 2},
                   {CUDNN_POINTWISE_DIV, {201, 1}, 3},
                   {CUDNN_POINTWISE_MUL, {2, 3}, 4},
                   {CUDNN_POINTWISE_ADD, {102, 4}, 5},
                   {CUDNN_POINTWISE_MUL, {2, 4}, 6},
                   {CUDNN_POINTWISE_MUL, {6, 101}, 7},
                   {CUDNN_POINTWISE_ADD, {103, 203}, 8},
                   {CUDNN_POINTWISE_ADD, {8, 7}, 9}},
         .outputs = {1, 5, 9},
         .init = {3, 0.25, 1},
         .types = {CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT},
         .combine = [](Values& a, const Values& x) {
           const double n = a[0] + x[0], d = x[1] - a[1];
           a = {n, a[1] + d * x[0] / n, a[2] + x[2] + d * d * a[0] * x[0] / n};
         }};
  // Weights must not cancel: of whatever sign, they are made positive by the reduction's map.
  c.steps.insert(c.steps.begin(), {CUDNN_POINTWISE_ABS, {201}, 10});
  for (Step& step : c.steps)
    if (step.out != 10)
      for (int64_t& in : step.in)
        if (in == 201) in = 10;
  const auto combine = c.combine;
  c.combine = [combine](Values& a, const Values& x) { combine(a, {std::abs(x[0]), x[1], x[2]}); };
  Check(c);
}

TEST_F(UserReduction, InOrderWhereTheOperatorIsNotAssociative) { Check(Fading()); }
TEST_F(UserReduction, InOrderOverAThousandElements) {
  Case c = Fading();
  c.dims = {5, 200, 5};
  c.over = {1, 2};
  Check(c);
}

// A sum that is cut off at each step.
Case Saturating(double clip) {
  return {.dims = {6, 30},
          .over = {1},
          .steps = {{CUDNN_POINTWISE_ADD, {101, 201}, 1},
                    {CUDNN_POINTWISE_RELU_FWD, {1}, 2, CUDNN_DATA_FLOAT, clip}},
          .outputs = {2},
          .init = {0},
          .types = {CUDNN_DATA_FLOAT},
          .combine = [clip](Values& a, const Values& x) {
            a[0] = std::min(std::max(a[0] + x[0], -clip), clip);
          }};
}
TEST_F(UserReduction, InOrderWhereEachStepIsCutOff) { Check(Saturating(2)); }

TEST_F(UserReduction, OrderedOperatorsOfManyElementsAreRefused) {
  for (Case c : {Fading(), Saturating(3e7)}) {
    c.dims = {2, 50000};
    std::vector<Desc> x, y;
    x.push_back(client::Tensor(1, c.dims));
    y.push_back(client::Tensor(11, {2, 1}));
    const Desc op = Operation(c, x, y);
    ASSERT_EQ(op.status(), CUDNN_STATUS_SUCCESS) << op.error();
    const Desc graph = client::Graph(handle_, {&op});
    EXPECT_EQ(graph.status(), CUDNN_STATUS_NOT_SUPPORTED);
    EXPECT_NE(graph.error().find("a reduction of 50000 elements keeps their order"),
              std::string::npos)
        << graph.error();
  }
}

TEST_F(UserReduction, MistakesAreSentences) {
  struct Row {
    std::function<void(Case&)> spoil;
    const char* words;
  };
  const Row rows[] = {
      {[](Case& c) { c.over = {2, 1}; }, "dim 1 to reduce behind 2"},
      {[](Case& c) { c.over = {1, 1}; }, "dim 1 to reduce behind 1"},
      {[](Case& c) { c.over = {3}; }, "dim 3 to reduce behind -1"},
      {[](Case& c) { c.over = {-1}; }, "dim -1 to reduce"},
      {[](Case& c) { c.over = {}; }, "no dims to reduce"},
      {[](Case& c) { c.init = {}; }, "0 initial values for 1 results"},
      {[](Case& c) { c.outputs = {77}; }, "no tensor 77, its output"},
      {[](Case& c) { c.outputs = {}; }, "0 outputs for 1 results"},
      {[](Case& c) { c.compute = {CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT}; },
       "2 compute types for 1 results"},
  };
  for (const Row& row : rows) {
    Case c = SumOfSquares();
    row.spoil(c);
    if (c.compute.size() > 1) c.types = {CUDNN_DATA_FLOAT};
    std::vector<Desc> x, y;
    x.push_back(client::Tensor(1, c.dims));
    y.push_back(client::Tensor(11, {5, 1, 11}));
    const Desc op = Operation(c, x, y);
    EXPECT_EQ(op.status(), CUDNN_STATUS_BAD_PARAM);
    EXPECT_NE(op.error().find(row.words), std::string::npos)
        << op.error() << " has no " << row.words;
  }
  const Case c = SumOfSquares();
  std::vector<Desc> x, y;
  x.push_back(client::Tensor(1, c.dims));
  y.push_back(client::Tensor(11, {5, 7, 1}));
  const Desc other = Operation(c, x, y);
  EXPECT_EQ(other.status(), CUDNN_STATUS_BAD_PARAM);
  EXPECT_NE(other.error().find("with 1 for the reduced dims"), std::string::npos) << other.error();
  Desc early(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  float zero = 0;
  early.Set(CUDNN_ATTR_OPERATION_REDUCTION_INIT_VALUES, static_cast<void*>(&zero));
  EXPECT_EQ(early.status(), CUDNN_STATUS_BAD_PARAM);
  EXPECT_NE(early.error().find("y is not set yet"), std::string::npos) << early.error();
}

TEST_F(UserReduction, WhatIsSetIsReadBack) {
  const Case c = SumOfSquares();
  std::vector<Desc> x, y;
  x.push_back(client::Tensor(1, c.dims));
  y.push_back(client::Tensor(11, {5, 1, 11}));
  const Desc op = Operation(c, x, y);
  ASSERT_EQ(op.status(), CUDNN_STATUS_SUCCESS) << op.error();
  int64_t value = 0;
  EXPECT_EQ(op.Get(CUDNN_ATTR_OPERATION_REDUCTION_DIMS, &value), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(op.Get(CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH_CURRENT_UIDS, &value),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(value, 201);
  void* at = nullptr;
  EXPECT_EQ(op.Get(CUDNN_ATTR_OPERATION_REDUCTION_INIT_VALUES, &at), CUDNN_STATUS_SUCCESS);
  EXPECT_NE(at, nullptr);
}

}  // namespace
