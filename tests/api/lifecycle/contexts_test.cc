// Contexts that die under a client's handles and plans, over a driver that runs nothing and knows
// which context a function was loaded in (//tests/support/cuda_standin): each way to launch goes on
// in the next context, with old handles and new ones, and nothing of a dead context is used.
#include <cudnn.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "tests/api/client.h"

namespace {

using namespace client;

// The driver's functions, and what it tells of itself.
void* Driver() {
  static void* const driver = dlopen(std::getenv("KILN_LIBCUDA"), RTLD_NOW);
  return driver;
}
template <class R, class... Args>
R Call(const char* function, Args... args) {
  return reinterpret_cast<R (*)(Args...)>(dlsym(Driver(), function))(args...);
}
void Reset() { Call<void>("standinReset"); }
void* NewContext() {
  void* context = nullptr;
  Call<int>("cuCtxCreate_v2", &context, 0u, 0);
  return context;
}
void Destroy(void* context) { Call<int>("cuCtxDestroy_v2", context); }
void SetCurrent(void* context) { Call<int>("cuCtxSetCurrent", context); }
void* Primary() {
  void* context = nullptr;
  Call<int>("cuDevicePrimaryCtxRetain", &context, 0);
  return context;
}
int Modules() { return Call<int>("standinModules"); }

Desc Relu(cudnnHandle_t handle) {
  Desc x = Tensor(1, {1, 8, 64}), y = Tensor(2, {1, 8, 64});
  Desc op = Pointwise(CUDNN_POINTWISE_RELU_FWD, x, nullptr, y);
  Desc graph = Graph(handle, {&op});
  Desc plan = Plan(handle, Results(Heuristics(graph, CUDNN_HEUR_MODE_INSTANT)).at(0));
  EXPECT_EQ(plan.status(), CUDNN_STATUS_SUCCESS) << plan.error();
  return plan;
}

class Contexts : public testing::Test {
 protected:
  void SetUp() override {
    SetCurrent(nullptr);
    Reset();
    ASSERT_EQ(cudnnCreate(&handle_), CUDNN_STATUS_SUCCESS) << LastError();
    cudnnCreateTensorDescriptor(&x_);
    cudnnSetTensor4dDescriptor(x_, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 2, 4, 64);
    cudnnCreateActivationDescriptor(&relu_);
    cudnnSetActivationDescriptor(relu_, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0);
  }
  void TearDown() override {
    EXPECT_EQ(Call<long>("standinStaleCalls"), 0) << "something of a dead context was used";
    EXPECT_EQ(cudnnDestroy(handle_), CUDNN_STATUS_SUCCESS);
    cudnnDestroyTensorDescriptor(x_);
    cudnnDestroyActivationDescriptor(relu_);
    SetCurrent(nullptr);
  }

  void Launches(cudnnStatus_t status) {
    EXPECT_EQ(status, CUDNN_STATUS_SUCCESS) << LastError();
    EXPECT_GT(Call<long>("standinNewLaunches"), 0);
  }
  // A legacy call.
  void Activate(cudnnHandle_t handle) {
    const float one = 1, zero = 0;
    Launches(cudnnActivationForward(handle, relu_, &one, x_, memory_, &zero, x_, memory_));
  }
  void Execute(cudnnHandle_t handle, const Desc& plan) {
    const Desc pack = Pack({1, 2}, {memory_, memory_}, nullptr);
    Launches(cudnnBackendExecute(handle, plan.raw(), pack.raw()));
  }
  // Every way to launch, with handles and plans from before and new ones.
  void All(const Desc& plan) {
    Activate(handle_);
    Execute(handle_, plan);
    cudnnHandle_t next = nullptr;
    ASSERT_EQ(cudnnCreate(&next), CUDNN_STATUS_SUCCESS) << LastError();
    Activate(next);
    Execute(next, plan);
    Execute(next, Relu(next));
    EXPECT_EQ(cudnnDestroy(next), CUDNN_STATUS_SUCCESS);
  }

  cudnnHandle_t handle_ = nullptr;
  cudnnTensorDescriptor_t x_ = nullptr;
  cudnnActivationDescriptor_t relu_ = nullptr;
  alignas(256) float memory_[512] = {};
};

TEST_F(Contexts, ADeviceReset) {
  SetCurrent(Primary());
  const Desc plan = Relu(handle_);
  All(plan);
  for (int i = 0; i < 3; ++i) {
    Reset();
    Primary();  // the client's cudaMalloc
    All(plan);
  }
}

TEST_F(Contexts, ADeviceResetThatNobodyFollowedByACall) {
  const Desc plan = Relu(handle_);
  All(plan);
  Reset();
  All(plan);
  SetCurrent(Primary());
  Reset();
  All(plan);
}

TEST_F(Contexts, SeveralOfOneDevice) {
  void* const contexts[] = {Primary(), NewContext(), NewContext()};
  SetCurrent(contexts[0]);
  const Desc plan = Relu(handle_);
  All(plan);
  for (void* context : contexts) {
    SetCurrent(context);
    All(plan);
  }
  const int loaded = Modules();
  for (int turn = 0; turn < 9; ++turn) {
    SetCurrent(contexts[turn % 3]);
    All(plan);
  }
  EXPECT_EQ(Modules(), loaded) << "each context has all of it";
  // A thread without a context takes the primary one.
  std::thread([&] { All(plan); }).join();
  EXPECT_EQ(Modules(), loaded);
}

int64_t ResidentKilobytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * 4;
}

TEST_F(Contexts, AThousandThatComeAndGo) {
  SetCurrent(Primary());
  const Desc plan = Relu(handle_);
  All(plan);
  int64_t before = 0;
  for (int i = 0; i < 1000; ++i) {
    if (i == 100) before = ResidentKilobytes();
    void* const context = NewContext();
    Activate(handle_);
    Execute(handle_, plan);
    Destroy(context);
  }
  EXPECT_LE(ResidentKilobytes() - before, 256);
  All(plan);
}

}  // namespace
