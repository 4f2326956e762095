// Signals and norms of several GPUs through the backend API, over the session that interprets: what
// is imported, what is refused in words, and how a wait that was too long is told.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "tests/api/client.h"
#include "tests/api/fake_session.h"

using namespace client;

namespace {

class PeersTest : public testing::Test {
 protected:
  void SetUp() override { cudnnCreate(&handle_); }
  void TearDown() override { cudnnDestroy(handle_); }

  // The plan of one operation, by the heuristics' first configuration.
  Desc PlanOf(const Desc& operation) {
    return Plan(handle_, Results(Heuristics(Graph(handle_, {&operation}), CUDNN_HEUR_MODE_A))[0]);
  }
  cudnnStatus_t Run(const Desc& plan, const std::vector<int64_t>& uids,
                    const std::vector<void*>& pointers) {
    alignas(256) static std::array<char, kiln::api::kFakeWorkspace> workspace;
    const Desc pack = Pack(uids, pointers, workspace.data());
    return cudnnBackendExecute(handle_, plan.raw(), pack.raw());
  }

  cudnnHandle_t handle_ = nullptr;
};

Desc Signal(cudnnSignalMode_t mode, const Desc* flag, int64_t value, const Desc* x, const Desc* y) {
  Desc signal(CUDNN_BACKEND_OPERATION_SIGNAL_DESCRIPTOR);
  signal.Set(CUDNN_ATTR_OPERATION_SIGNAL_MODE, mode).Set(CUDNN_ATTR_OPERATION_SIGNAL_VALUE, value);
  if (flag != nullptr) signal.Set(CUDNN_ATTR_OPERATION_SIGNAL_FLAGDESC, *flag);
  if (x != nullptr) signal.Set(CUDNN_ATTR_OPERATION_SIGNAL_XDESC, *x);
  if (y != nullptr) signal.Set(CUDNN_ATTR_OPERATION_SIGNAL_YDESC, *y);
  signal.Finalize();
  return signal;
}

TEST_F(PeersTest, ASignalSetsItsFlagAndPassesX) {
  const Desc flag = Tensor(1, {1}, {.type = CUDNN_DATA_INT32}), x = Tensor(2, {2, 3}),
             y = Tensor(3, {2, 3});
  alignas(16) int32_t set = 0;
  alignas(16) std::array<float, 6> in = {1, 2, 3, 4, 5, 6}, out = {};
  const Desc plan = PlanOf(Signal(CUDNN_SIGNAL_SET, &flag, 7, &x, &y));
  ASSERT_EQ(plan.status(), CUDNN_STATUS_SUCCESS) << plan.error();
  ASSERT_EQ(Run(plan, {1, 2, 3}, {&set, in.data(), out.data()}), CUDNN_STATUS_SUCCESS)
      << LastError();
  EXPECT_EQ(set, 7);
  EXPECT_EQ(out, in);
  const Desc alone = PlanOf(Signal(CUDNN_SIGNAL_SET, &flag, -9, nullptr, nullptr));
  ASSERT_EQ(alone.status(), CUDNN_STATUS_SUCCESS) << alone.error();
  ASSERT_EQ(Run(alone, {1}, {&set}), CUDNN_STATUS_SUCCESS) << LastError();
  EXPECT_EQ(set, -9);
}

TEST_F(PeersTest, ASignalWaitsForItsFlag) {
  const Desc flag = Tensor(1, {1}, {.type = CUDNN_DATA_INT64}), x = Tensor(2, {3}),
             y = Tensor(3, {3});
  alignas(16) int64_t set = 5'000'000'000;
  alignas(16) std::array<float, 3> in = {1, 2, 3}, out = {};
  const Desc plan = PlanOf(Signal(CUDNN_SIGNAL_WAIT, &flag, set, &x, &y));
  ASSERT_EQ(plan.status(), CUDNN_STATUS_SUCCESS) << plan.error();
  ASSERT_EQ(Run(plan, {1, 2, 3}, {&set, in.data(), out.data()}), CUDNN_STATUS_SUCCESS)
      << LastError();
  EXPECT_EQ(out, in);
}

TEST_F(PeersTest, SignalsThatSayNothingAreRefused) {
  const Desc flag = Tensor(1, {1}, {.type = CUDNN_DATA_INT32}), x = Tensor(2, {3}),
             y = Tensor(3, {3}), wide = Tensor(4, {2}, {.type = CUDNN_DATA_INT32});
  const auto said = [&](const Desc& signal) {
    EXPECT_EQ(signal.status(), CUDNN_STATUS_SUCCESS) << "as NVIDIA's: " << signal.error();
    const Desc graph = Graph(handle_, {&signal});
    EXPECT_NE(graph.status(), CUDNN_STATUS_SUCCESS);
    return graph.error();
  };
  const auto expect = [&](const Desc& signal, const char* sentence) {
    const std::string error = said(signal);
    EXPECT_NE(error.find(sentence), std::string::npos) << error;
  };
  expect(Signal(CUDNN_SIGNAL_SET, nullptr, 7, &x, &y), "the flag is required and was not set");
  expect(Signal(CUDNN_SIGNAL_WAIT, &flag, 7, nullptr, &y), "x is absent");
  expect(Signal(CUDNN_SIGNAL_WAIT, &flag, 7, &x, nullptr), "y is absent");
  expect(Signal(CUDNN_SIGNAL_WAIT, &x, 7, &x, &y), "not i32 or i64");
  expect(Signal(CUDNN_SIGNAL_SET, &wide, 7, &x, &y), "is no single number in memory");
  expect(Signal(CUDNN_SIGNAL_SET, &flag, int64_t{1} << 40, &x, &y), "does not fit the i32 flag");
}

// One channel, of which this GPU has 1 and 3 and the other one's mean is 6: the mean of all is 4.
TEST_F(PeersTest, ANormHasTheStatisticsOfAllGpus) {
  const std::vector<int64_t> stats = {1, 1, 1, 1};
  const Desc x = Tensor(1, {2, 1, 1, 1}), y = Tensor(2, {2, 1, 1, 1}), mean = Tensor(3, stats),
             inverse = Tensor(4, stats), epsilon = Tensor(5, stats, {.by_value = true}),
             mine = Tensor(6, {2, 4, 1, 1}), other = Tensor(7, {2, 4, 1, 1}),
             small = Tensor(8, {2, 3, 1, 1});
  const auto norm_of = [&](const Desc& second) {
    Desc norm(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    norm.Set(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_BATCH_NORM)
        .Set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_NORM_FWD_TRAINING)
        .Set(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, x)
        .Set(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, mean)
        .Set(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, inverse)
        .Set(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, epsilon)
        .Set(CUDNN_ATTR_OPERATION_NORM_FWD_PEER_STAT_DESCS, {&mine, &second})
        .Set(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, y)
        .Finalize();
    return norm;
  };
  const Desc refused = norm_of(small);
  const Desc graph = Graph(handle_, {&refused});
  EXPECT_NE(graph.error().find("has 24 bytes; 2 numbers need 32"), std::string::npos)
      << graph.error();

  const Desc plan = PlanOf(norm_of(other));
  ASSERT_EQ(plan.status(), CUDNN_STATUS_SUCCESS) << plan.error();
  // Call 1 of both words stands in the second copy of each: 6, and (6 - 4)² + 1 as its variance.
  const float first_call = std::bit_cast<float>(uint32_t{1});
  alignas(16) std::array<float, 8> own = {}, theirs = {0, 0, 6, first_call, 0, 0, 5, first_call};
  alignas(16) std::array<float, 2> in = {1, 3}, out = {};
  alignas(16) float m = 0, i = 0, eps = 0;
  ASSERT_EQ(Run(plan, {1, 2, 3, 4, 5, 6, 7},
                {in.data(), out.data(), &m, &i, &eps, own.data(), theirs.data()}),
            CUDNN_STATUS_SUCCESS)
      << LastError();
  EXPECT_EQ(m, 4);
  EXPECT_NEAR(i, 1 / std::sqrt(5.0), 1e-6);
  EXPECT_NEAR(out[0], -3 / std::sqrt(5.0), 1e-6);
}

TEST_F(PeersTest, AFaultIsToldByTheQuestionForIt) {
  cudnnStatus_t found = CUDNN_STATUS_BAD_PARAM;
  const auto ask = [&] {
    return cudnnQueryRuntimeError(handle_, &found, CUDNN_ERRQUERY_NONBLOCKING, nullptr);
  };
  EXPECT_EQ(ask(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(found, CUDNN_STATUS_SUCCESS);
  kiln::api::SetFakeFault(
      kiln::Status::Text(kiln::Code::kExecutionFailed, "the sums of rank 3 did not come"));
  EXPECT_EQ(ask(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(found, CUDNN_STATUS_EXECUTION_FAILED);
  EXPECT_NE(LastError().find("the sums of rank 3 did not come"), std::string::npos);
  EXPECT_EQ(ask(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(found, CUDNN_STATUS_SUCCESS) << "it is told once";
}

}  // namespace
