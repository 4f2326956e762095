// Recurrent networks on streams of a GPU, whose loops are launches of blocks that wait for one
// another: calls that were captured are replayed on new data, and two networks run on two streams
// at once.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/numerics/rnn_network.h"

namespace kiln::testing {
namespace {

constexpr cudnnStatus_t kOk = CUDNN_STATUS_SUCCESS;

// The driver's own functions; each returns a CUresult.
struct StreamFunctions {
  int (*Create)(void** stream, unsigned flags);
  int (*Destroy)(void* stream);
  int (*Synchronize)(void* stream);
  int (*BeginCapture)(void* stream, int mode);
  int (*EndCapture)(void* stream, void** graph);
  int (*Instantiate)(void** exec, void* graph, unsigned long long flags);
  int (*Launch)(void* exec, void* stream);
  int (*DestroyExec)(void* exec);
  int (*DestroyGraph)(void* graph);

  bool Load() {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == nullptr) return false;
    const auto find = [&](const char* name, auto& function) {
      *reinterpret_cast<void**>(&function) = dlsym(driver, name);
      return function != nullptr;
    };
    return find("cuStreamCreate", Create) && find("cuStreamDestroy_v2", Destroy) &&
           find("cuStreamSynchronize", Synchronize) &&
           find("cuStreamBeginCapture_v2", BeginCapture) &&
           find("cuStreamEndCapture", EndCapture) &&
           find("cuGraphInstantiateWithFlags", Instantiate) && find("cuGraphLaunch", Launch) &&
           find("cuGraphExecDestroy", DestroyExec) && find("cuGraphDestroy", DestroyGraph);
  }
};

// Takes the persistent engine: two layers of whole fragments, in a type of tensor cores. Sequences
// end early, so that the lengths of the host travel with the call.
RnnConfig Persistent(cudnnRNNMode_t cell, uint64_t seed) {
  return {.cell = cell,
          .type = CUDNN_DATA_HALF,
          .steps = 12,
          .batch = 4,
          .lengths = {12, 9, 9, 3},
          .input = 64,
          .hidden = 64,
          .projected = 64,
          .layers = 2,
          .seed = seed};
}

// All that a training step calls.
void Train(RnnNetworkRun& run) {
  ASSERT_EQ(run.Forward(CUDNN_FWD_MODE_TRAINING), kOk);
  ASSERT_EQ(run.BackwardData(), kOk);
  ASSERT_EQ(run.BackwardWeights(CUDNN_WGRAD_MODE_ADD), kOk);
}
void Check(const RnnNetworkRun& run) {
  EXPECT_EQ(run.CheckForward(), "");
  EXPECT_EQ(run.CheckBackwardData(), "");
  EXPECT_EQ(run.CheckWeightGradients(1), "");
}

using Part = RnnMemory RnnNetworkRun::*;
constexpr Part kOperands[] = {&RnnNetworkRun::x,   &RnnNetworkRun::w,  &RnnNetworkRun::hx,
                              &RnnNetworkRun::cx,  &RnnNetworkRun::dy, &RnnNetworkRun::dhy,
                              &RnnNetworkRun::dcy, &RnnNetworkRun::dw};
constexpr Part kResults[] = {&RnnNetworkRun::y,  &RnnNetworkRun::hy,  &RnnNetworkRun::cy,
                             &RnnNetworkRun::dx, &RnnNetworkRun::dhx, &RnnNetworkRun::dcx,
                             &RnnNetworkRun::dw};

class RnnStreams : public ::testing::TestWithParam<cudnnRNNMode_t> {
 protected:
  void SetUp() override {
    std::string error;
    device_ = OpenTestDevice(&error);
    ASSERT_TRUE(device_ && device_->is_gpu()) << error;
    ASSERT_TRUE(cuda_.Load());
    for (int i = 0; i < 2; ++i) {
      constexpr unsigned kNonBlocking = 1;
      ASSERT_EQ(cuda_.Create(&streams_[i], kNonBlocking), 0);
      ASSERT_EQ(RNN_CALL(cudnnCreate, &handles_[i]), kOk);
      ASSERT_EQ(RNN_CALL(cudnnSetStream, handles_[i], static_cast<cudaStream_t>(streams_[i])), kOk);
    }
  }
  void TearDown() override {
    for (int i = 0; i < 2; ++i) {
      RNN_CALL(cudnnDestroy, handles_[i]);
      cuda_.Destroy(streams_[i]);
    }
  }
  std::unique_ptr<RnnNetworkRun> Network(int i, uint64_t seed) {
    auto run = std::make_unique<RnnNetworkRun>(*device_, handles_[i], Persistent(GetParam(), seed));
    EXPECT_EQ(device_->Synchronize(), "");  // its operands are there, on whatever stream
    return run;
  }

  std::unique_ptr<Device> device_;
  StreamFunctions cuda_{};
  void* streams_[2] = {};
  cudnnHandle_t handles_[2] = {};
};

TEST_P(RnnStreams, CapturedCallsAreReplayedOnNewData) {
  const auto captured = Network(0, 1);
  Train(*captured);  // makes plans and kernels
  ASSERT_EQ(cuda_.Synchronize(streams_[0]), 0);
  void *graph = nullptr, *exec = nullptr;
  constexpr int kGlobal = 0;
  ASSERT_EQ(cuda_.BeginCapture(streams_[0], kGlobal), 0);
  Train(*captured);
  ASSERT_EQ(cuda_.EndCapture(streams_[0], &graph), 0);
  ASSERT_EQ(cuda_.Instantiate(&exec, graph, 0), 0);
  for (const uint64_t seed : {2, 3}) {
    SCOPED_TRACE(seed);
    const auto wanted = Network(0, seed);
    for (const Part part : kResults) {
      RnnMemory& memory = (*captured).*part;
      memory.Put(std::vector<double>(static_cast<size_t>(memory.elements()), 77));
    }
    for (const Part part : kOperands) ((*captured).*part).Put(((*wanted).*part).Get());
    ASSERT_EQ(device_->Synchronize(), "");
    ASSERT_EQ(cuda_.Launch(exec, streams_[0]), 0);
    ASSERT_EQ(cuda_.Synchronize(streams_[0]), 0);
    for (const Part part : kResults) {
      // A cell that has no state of its own leaves it as it was.
      const bool is_of_cell = part == &RnnNetworkRun::cy || part == &RnnNetworkRun::dcx;
      if (is_of_cell && !wanted->config.IsLstm()) continue;
      ((*wanted).*part).Put(((*captured).*part).Get());
    }
    Check(*wanted);
  }
  EXPECT_EQ(cuda_.DestroyExec(exec), 0);
  EXPECT_EQ(cuda_.DestroyGraph(graph), 0);
}

// Loops that wait for blocks of their own which do not run would wait forever.
TEST_P(RnnStreams, TwoNetworksRunOnTwoStreams) {
  constexpr int kTimes = 20;
  const std::unique_ptr<RnnNetworkRun> networks[] = {Network(0, 4), Network(1, 5)};
  for (int n = 0; n < kTimes; ++n)
    for (const auto& run : networks) {
      ASSERT_EQ(run->Forward(CUDNN_FWD_MODE_TRAINING), kOk);
      ASSERT_EQ(run->BackwardData(), kOk);
    }
  for (const auto& run : networks) ASSERT_EQ(run->BackwardWeights(CUDNN_WGRAD_MODE_ADD), kOk);
  for (void* const stream : streams_) ASSERT_EQ(cuda_.Synchronize(stream), 0);
  for (const auto& run : networks) Check(*run);
}

std::string NameOf(const ::testing::TestParamInfo<cudnnRNNMode_t>& info) {
  constexpr const char* kNames[] = {"Relu", "Tanh", "Lstm", "Gru"};
  return kNames[info.param];
}
INSTANTIATE_TEST_SUITE_P(Cells, RnnStreams,
                         ::testing::Values(CUDNN_RNN_TANH, CUDNN_LSTM, CUDNN_GRU), NameOf);

}  // namespace
}  // namespace kiln::testing
