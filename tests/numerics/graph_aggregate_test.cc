// cudnnGnnAggSimple{Forward,Backward} on either device, against plain loops over the edges of each
// destination: sums, means, maxima and minima with their positions, and what they add to gradients.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "tests/numerics/graph_calls.h"
#include "tests/support/runner.h"

namespace kiln::testing {
namespace {

using oracle::Dims;
using oracle::Value;

struct Problem {
  Csc graph;
  int node = 0, edge = 0, concat = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnGnnAggOp_t op = CUDNN_GNN_AGG_SUM;
  bool is_reversed = false;

  int width() const { return node + edge + concat; }
  int aggregated() const { return node + edge; }
  bool has_positions() const { return op == CUDNN_GNN_AGG_MAX || op == CUDNN_GNN_AGG_MIN; }
  cudnnDataType_t index() const { return graph.is_wide ? CUDNN_DATA_INT64 : CUDNN_DATA_INT32; }
  std::string Text() const {
    return fmt::format("{}; {}+{}+{} features of type {}, op {}{}", graph.Text(), node, edge,
                       concat, static_cast<int>(type), static_cast<int>(op),
                       is_reversed ? ", reversed" : "");
  }
};

constexpr double kRoundoff = 0x1p-24;

// The element that column c of a destination reads at edge e: a row of the node's or of the edge's
// table.
struct Read {
  int64_t row;
  double value;
};
Read ReadAt(const Problem& p, const std::vector<double>& node, const std::vector<double>& edge,
            int64_t e, int c) {
  const bool of_node = c < p.node;
  const int64_t row = of_node ? p.graph.Source(e) : p.graph.Row(e);
  const int width = of_node ? p.node : p.edge;
  const int64_t at = row * width + (of_node ? c : c - p.node);
  return {row, (of_node ? node : edge)[static_cast<size_t>(at)]};
}

struct Expected {
  std::vector<Value> output;
  std::vector<double> positions;
};

Expected Aggregate(const Problem& p, const std::vector<double>& node,
                   const std::vector<double>& edge, const std::vector<double>& concat) {
  Expected x;
  for (int64_t n = 0; n < p.graph.destinations; ++n) {
    const int64_t begin = p.graph.offsets[static_cast<size_t>(n)],
                  end = p.graph.offsets[static_cast<size_t>(n + 1)];
    for (int c = 0; c < p.aggregated(); ++c) {
      double sum = 0, magnitude = 0, best = 0;
      int64_t position = -1;
      for (int64_t e = begin; e < end; ++e) {
        const Read read = ReadAt(p, node, edge, e, c);
        sum += read.value;
        magnitude += std::fabs(read.value);
        const bool wins = p.op == CUDNN_GNN_AGG_MAX ? read.value > best : read.value < best;
        if (position >= 0 && !wins) continue;
        best = read.value;
        position = read.row;
      }
      const auto count = static_cast<double>(std::max<int64_t>(end - begin, 1));
      Value v = {sum, kRoundoff * count * magnitude};
      if (p.op == CUDNN_GNN_AGG_MEAN)
        v = {v.v / count, v.e / count + kRoundoff * magnitude / count};
      if (p.has_positions()) v = {best, 0};
      x.output.push_back(v);
      x.positions.push_back(static_cast<double>(position));
    }
    for (int c = 0; c < p.concat; ++c)
      x.output.push_back({concat[static_cast<size_t>(n * p.concat + c)], 0});
  }
  return x;
}

struct Gradients {
  std::vector<Value> node, edge, concat;
};

// Each contribution is added to what was there.
Gradients Differentiate(const Problem& p, const std::vector<double>& dy,
                        const std::vector<double>& positions, const std::vector<double>& node,
                        const std::vector<double>& edge) {
  struct Sum {
    double v, magnitude;
    int terms = 0;
  };
  std::vector<Sum> sums[2];
  for (const double v : node) sums[0].push_back({v, std::fabs(v)});
  for (const double v : edge) sums[1].push_back({v, std::fabs(v)});
  Gradients g;
  for (int64_t n = 0; n < p.graph.destinations; ++n) {
    const int64_t begin = p.graph.offsets[static_cast<size_t>(n)],
                  end = p.graph.offsets[static_cast<size_t>(n + 1)];
    const auto count = static_cast<double>(std::max<int64_t>(end - begin, 1));
    for (int c = 0; c < p.aggregated(); ++c) {
      const bool of_node = c < p.node;
      const int width = of_node ? p.node : p.edge, column = of_node ? c : c - p.node;
      const double d = dy[static_cast<size_t>(n * p.width() + c)];
      const auto add = [&](int64_t row, double value) {
        Sum& sum = sums[of_node ? 0 : 1][static_cast<size_t>(row * width + column)];
        sum.v += value;
        sum.magnitude += std::fabs(value);
        ++sum.terms;
      };
      if (p.has_positions()) {
        const double at = positions[static_cast<size_t>(n * p.aggregated() + c)];
        if (at >= 0) add(static_cast<int64_t>(at), d);
        continue;
      }
      for (int64_t e = begin; e < end; ++e)
        add(of_node ? p.graph.Source(e) : p.graph.Row(e),
            p.op == CUDNN_GNN_AGG_MEAN ? d / count : d);
    }
    for (int c = 0; c < p.concat; ++c)
      g.concat.push_back({dy[static_cast<size_t>(n * p.width() + p.aggregated() + c)], 0});
  }
  const auto values = [](const std::vector<Sum>& all) {
    std::vector<Value> out;
    for (const Sum& sum : all) out.push_back({sum.v, kRoundoff * (sum.terms + 2) * sum.magnitude});
    return out;
  };
  g.node = values(sums[0]);
  g.edge = values(sums[1]);
  return g;
}

class GraphAggregateTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string error;
    device_ = OpenTestDevice(&error);
    ASSERT_NE(device_, nullptr) << error;
    library_ = dlopen(TestOptions::Get().cudnn.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
  }
  static void TearDownTestSuite() { device_.reset(); }
  static cudaStream_t stream() { return static_cast<cudaStream_t>(device_->stream()); }

  static std::unique_ptr<Tensor> Of(const Problem& p, int64_t rows, int columns,
                                    std::optional<uint64_t> seed) {
    if (columns == 0) return nullptr;
    const std::vector<double> values = Numbers(seed.value_or(0), rows * columns, 4);
    return std::make_unique<Tensor>(*device_, p.type, Dims{rows, columns},
                                    seed ? &values : nullptr);
  }
  static void* Data(const std::unique_ptr<Tensor>& t) { return t == nullptr ? nullptr : t->data(); }
  static std::vector<double> Values(const std::unique_ptr<Tensor>& t) {
    return t == nullptr ? std::vector<double>() : t->values();
  }
  static std::string Unchanged(const std::unique_ptr<Tensor>& t) {
    return t == nullptr ? "" : t->CheckUnchanged();
  }

  static cudnnStatus_t Forward(const Problem& p, const cudnnGnnCscGraph_t* graph, const void* node,
                               const void* edge, const void* concat, void* output,
                               void* positions) {
    LegacyClient client(library_);
    return KILN_CALL(client, cudnnGnnAggSimpleForward, stream(), graph, node, edge, concat, output,
                     positions, p.node, p.edge, p.concat, p.type, p.op);
  }
  static cudnnStatus_t Backward(const Problem& p, const cudnnGnnCscGraph_t* graph, const void* dy,
                                const void* positions, void* node, void* edge, void* concat) {
    LegacyClient client(library_);
    return KILN_CALL(client, cudnnGnnAggSimpleBackward, stream(), graph, dy, positions, node, edge,
                     concat, p.node, p.edge, p.concat, p.type, p.op);
  }

  static void TestForward(const Problem& p) {
    const Csc& g = p.graph;
    const DeviceCsc graph(*device_, g, p.is_reversed);
    const auto node = Of(p, g.sources, p.node, 3), edge = Of(p, g.edges(), p.edge, 4),
               concat = Of(p, g.destinations, p.concat, 5),
               output = Of(p, g.destinations, p.width(), {});
    const Tensor positions(*device_, p.index(), {g.destinations, p.aggregated()});
    ASSERT_EQ(Forward(p, graph.get(), Data(node), Data(edge), Data(concat), Data(output),
                      p.has_positions() ? positions.data() : nullptr),
              CUDNN_STATUS_SUCCESS)
        << p.Text() << ": " << WordsOf(library_);
    EXPECT_EQ(device_->Synchronize(), "");
    const Expected expected = Aggregate(p, Values(node), Values(edge), Values(concat));
    EXPECT_EQ(output->Check(expected.output), "") << p.Text();
    if (p.has_positions()) {
      EXPECT_EQ(positions.After(), expected.positions) << p.Text();
    } else {
      EXPECT_EQ(positions.CheckUnchanged(), "") << p.Text();
    }
    EXPECT_EQ(graph.CheckUnchanged() + Unchanged(node) + Unchanged(edge) + Unchanged(concat), "");
  }

  static void TestBackward(const Problem& p) {
    const Csc& g = p.graph;
    const DeviceCsc graph(*device_, g, p.is_reversed);
    const auto node = Of(p, g.sources, p.node, 13), edge = Of(p, g.edges(), p.edge, 14),
               concat = Of(p, g.destinations, p.concat, {}),
               dy = Of(p, g.destinations, p.width(), 15);
    const std::vector<double> where =
        Aggregate(p, Numbers(3, g.sources * p.node, 4), Numbers(4, g.edges() * p.edge, 4),
                  Numbers(5, g.destinations * p.concat, 4))
            .positions;
    const Tensor positions(*device_, p.index(), {g.destinations, p.aggregated()}, &where);
    ASSERT_EQ(Backward(p, graph.get(), Data(dy), p.has_positions() ? positions.data() : nullptr,
                       Data(node), Data(edge), Data(concat)),
              CUDNN_STATUS_SUCCESS)
        << p.Text() << ": " << WordsOf(library_);
    EXPECT_EQ(device_->Synchronize(), "");
    const Gradients expected = Differentiate(p, Values(dy), where, Values(node), Values(edge));
    const auto check = [&](const std::unique_ptr<Tensor>& t, const std::vector<Value>& values) {
      return t == nullptr ? "" : t->Check(values);
    };
    EXPECT_EQ(check(node, expected.node), "") << "nodes of " << p.Text();
    EXPECT_EQ(check(edge, expected.edge), "") << "edges of " << p.Text();
    EXPECT_EQ(check(concat, expected.concat), "") << "concat of " << p.Text();
    EXPECT_EQ(graph.CheckUnchanged() + dy->CheckUnchanged() + positions.CheckUnchanged(), "");
  }

  inline static std::unique_ptr<Device> device_;
  inline static void* library_ = nullptr;
};

constexpr cudnnDataType_t kTypes[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16};

// Every operation with every kind of graph; widths and types take turns.
std::vector<Problem> Problems() {
  struct Widths {
    int node, edge, concat;
  };
  constexpr Widths kWidths[] = {{8, 0, 0},   {5, 3, 2},  {0, 7, 0},
                                {16, 24, 8}, {33, 0, 1}, {1, 1, 0}};
  std::vector<Problem> problems;
  for (int i = 0; i < 48; ++i) {
    const Widths& w = kWidths[static_cast<size_t>(i) % std::size(kWidths)];
    const bool has_rows = i / 4 % 2 == 1, is_wide = i / 8 % 2 == 1;
    problems.push_back({.graph = RandomCsc(static_cast<uint64_t>(i), 11, i % 5 == 0 ? 17 : 7,
                                           i % 7 == 0 ? 40 : 6, has_rows, is_wide),
                        .node = w.node,
                        .edge = w.edge,
                        .concat = w.concat,
                        .type = kTypes[(i + i / 12) % 3],
                        .op = static_cast<cudnnGnnAggOp_t>(i % 4),
                        .is_reversed = i / 16 % 2 == 1});
  }
  return problems;
}

TEST_F(GraphAggregateTest, ForwardIsWhatTheLoopsSay) {
  for (const Problem& p : Problems()) TestForward(p);
}

TEST_F(GraphAggregateTest, BackwardAddsWhatTheLoopsSay) {
  for (const Problem& p : Problems()) TestBackward(p);
}

TEST_F(GraphAggregateTest, FewProblemsOfEachType) {
  for (const cudnnDataType_t type : kTypes) {
    for (const cudnnGnnAggOp_t op : {CUDNN_GNN_AGG_MEAN, CUDNN_GNN_AGG_MAX}) {
      for (const bool is_reversed : {false, true}) {
        const Problem p = {.graph = RandomCsc(5, 9, 6, 7, is_reversed, is_reversed),
                           .node = 16,
                           .edge = 8,
                           .concat = 8,
                           .type = type,
                           .op = op,
                           .is_reversed = is_reversed};
        TestForward(p);
        TestBackward(p);
      }
    }
  }
}

// The device adds up a million terms no worse than a loop: many edges of one destination.
TEST_F(GraphAggregateTest, OneDestinationMayHaveAllEdges) {
  Problem p = {.graph = RandomCsc(1, 50, 1, 1, false, false), .node = 12};
  p.graph.offsets = {0, 3000};
  p.graph.indices.clear();
  for (int64_t e = 0; e < 3000; ++e) p.graph.indices.push_back(e * 7 % 50);
  TestForward(p);
  TestBackward(p);
}

TEST_F(GraphAggregateTest, WithoutEdgesThereAreZeroes) {
  Problem p = {.graph = RandomCsc(1, 4, 3, 0, false, false), .node = 5, .edge = 2, .concat = 1};
  for (const cudnnGnnAggOp_t op : {CUDNN_GNN_AGG_MEAN, CUDNN_GNN_AGG_MIN}) {
    p.op = op;
    TestForward(p);
    TestBackward(p);
  }
  cudnnGnnCscGraph_t none = {.nSrcNodes = 4, .idxType = CUDNN_DATA_INT32};
  p.op = CUDNN_GNN_AGG_SUM;
  const Tensor node(*device_, CUDNN_DATA_FLOAT, {4, 5});
  EXPECT_EQ(Forward(p, &none, node.data(), nullptr, nullptr, nullptr, nullptr),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(Backward(p, &none, nullptr, nullptr, node.data(), nullptr, nullptr),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(node.CheckUnchanged(), "");
}

// A NaN is the maximum and the minimum, and stays where it is read.
TEST_F(GraphAggregateTest, WhatIsNoNumberReachesItsReadersAlone) {
  Csc g = {.sources = 3, .destinations = 2, .offsets = {0, 3, 4}, .indices = {0, 1, 2, 2}};
  const DeviceCsc graph(*device_, g, false);
  const std::vector<double> x = {1, NAN, 3};
  for (const cudnnGnnAggOp_t op :
       {CUDNN_GNN_AGG_SUM, CUDNN_GNN_AGG_MEAN, CUDNN_GNN_AGG_MAX, CUDNN_GNN_AGG_MIN}) {
    const Problem p = {.graph = g, .node = 1, .op = op};
    const Tensor node(*device_, p.type, {3, 1}, &x), output(*device_, p.type, {2, 1}),
        positions(*device_, p.index(), {2, 1});
    ASSERT_EQ(Forward(p, graph.get(), node.data(), nullptr, nullptr, output.data(),
                      p.has_positions() ? positions.data() : nullptr),
              CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(device_->Synchronize(), "");
    EXPECT_TRUE(std::isnan(output.After()[0]));
    EXPECT_EQ(output.After()[1], 3);
    if (!p.has_positions()) continue;
    EXPECT_EQ(positions.After(), (std::vector<double>{1, 2}));
  }
}

TEST_F(GraphAggregateTest, MisuseIsRefusedInWords) {
  const Problem good = {.graph = RandomCsc(2, 5, 4, 3, false, false),
                        .node = 2,
                        .edge = 3,
                        .concat = 1,
                        .op = CUDNN_GNN_AGG_MAX};
  const DeviceCsc graph(*device_, good.graph, false);
  const Csc& g = good.graph;
  const auto node = Of(good, g.sources, 2, 1), edge = Of(good, g.edges(), 3, 2),
             concat = Of(good, g.destinations, 1, 3), output = Of(good, g.destinations, 6, {});
  const Tensor positions(*device_, CUDNN_DATA_INT32, {g.destinations, 5});
  struct Row {
    void (*spoil)(Problem&, cudnnGnnCscGraph_t&);
    cudnnStatus_t status;
    const char* words;
  };
  const Row rows[] = {
      {[](Problem& p, cudnnGnnCscGraph_t&) { p.node = -2; }, CUDNN_STATUS_BAD_PARAM,
       "nodeFeatDim is -2"},
      {[](Problem& p, cudnnGnnCscGraph_t&) { p.node = 0; }, CUDNN_STATUS_BAD_PARAM,
       "is there, and nodeFeatDim is 0"},
      {[](Problem& p, cudnnGnnCscGraph_t&) { p.node = p.edge = 0; }, CUDNN_STATUS_BAD_PARAM,
       "are both 0"},
      {[](Problem& p, cudnnGnnCscGraph_t&) { p.type = CUDNN_DATA_DOUBLE; }, CUDNN_STATUS_BAD_PARAM,
       "dataType is 1"},
      {[](Problem& p, cudnnGnnCscGraph_t&) { p.op = static_cast<cudnnGnnAggOp_t>(4); },
       CUDNN_STATUS_BAD_PARAM, "cudnnGnnAggOp_t"},
      {[](Problem&, cudnnGnnCscGraph_t& c) { c.idxType = CUDNN_DATA_FLOAT; },
       CUDNN_STATUS_BAD_PARAM, "idxType is 0"},
      {[](Problem&, cudnnGnnCscGraph_t& c) { c.nDstNodes = -1; }, CUDNN_STATUS_BAD_PARAM,
       "nDstNodes is -1"},
      {[](Problem&, cudnnGnnCscGraph_t& c) { c.cscOffsets = nullptr; }, CUDNN_STATUS_BAD_PARAM,
       "cscOffsets is NULL"},
      {[](Problem&, cudnnGnnCscGraph_t& c) { c.cscIndices = nullptr; }, CUDNN_STATUS_BAD_PARAM,
       "cscIndices is NULL"},
      {[](Problem&, cudnnGnnCscGraph_t& c) { c.nIndices = int64_t{1} << 40; },
       CUDNN_STATUS_NOT_SUPPORTED, "nIndices is 1099511627776"},
  };
  for (const Row& row : rows) {
    Problem p = good;
    cudnnGnnCscGraph_t spoiled = *graph.get();
    row.spoil(p, spoiled);
    EXPECT_EQ(Forward(p, &spoiled, node->data(), edge->data(), concat->data(), output->data(),
                      positions.data()),
              row.status)
        << row.words;
    EXPECT_NE(WordsOf(library_).find(row.words), std::string::npos) << row.words;
    EXPECT_EQ(Backward(p, &spoiled, output->data(), positions.data(), node->data(), edge->data(),
                       concat->data()),
              row.status)
        << row.words;
    EXPECT_NE(WordsOf(library_).find(row.words), std::string::npos) << row.words;
  }
  EXPECT_EQ(Forward(good, graph.get(), node->data(), edge->data(), concat->data(), output->data(),
                    nullptr),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_NE(WordsOf(library_).find("outPositions is NULL"), std::string::npos);
  EXPECT_EQ(output->CheckUnchanged() + node->CheckUnchanged() + positions.CheckUnchanged(), "");
}

}  // namespace
}  // namespace kiln::testing
