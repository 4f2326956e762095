// A child of fork, of a process whose threads were using the library: on the CPU device it goes on
// as if nothing had happened, on a GPU every call that would need CUDA fails in words; nothing
// hangs, and the parent's threads go on.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "api/lifecycle/fork_gate.h"
#include "ir/base/env.h"
#include "tests/api/legacy/legacy_status.h"

namespace kiln::api {
namespace {

constexpr unsigned kSecondsToHang = 60;

bool OnCpu() { return std::string(std::getenv("KILN_DEVICE")) == "cpu"; }

// relu of n numbers: a new n is a new plan, a new kind of n a new kernel.
class Relu {
 public:
  Relu(int n, cudnnActivationMode_t mode) : n_(n), x_(static_cast<size_t>(n)), y_(x_.size(), 7) {
    for (int i = 0; i < n; ++i) x_[static_cast<size_t>(i)] = static_cast<float>(i % 7 - 3);
    cudnnCreateTensorDescriptor(&tensor_);
    cudnnSetTensor4dDescriptor(tensor_, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 1, n);
    cudnnCreateActivationDescriptor(&activation_);
    cudnnSetActivationDescriptor(activation_, mode, CUDNN_NOT_PROPAGATE_NAN, 1e9);
  }
  ~Relu() {
    cudnnDestroyTensorDescriptor(tensor_);
    cudnnDestroyActivationDescriptor(activation_);
  }
  Relu(const Relu&) = delete;
  cudnnStatus_t Run(cudnnHandle_t handle) {
    const float one = 1, zero = 0;
    return cudnnActivationForward(handle, activation_, &one, tensor_, x_.data(), &zero, tensor_,
                                  y_.data());
  }
  bool IsRight() const {
    for (int i = 0; i < n_; ++i)
      if (y_[static_cast<size_t>(i)] != std::max(x_[static_cast<size_t>(i)], 0.0f)) return false;
    return true;
  }

 private:
  int n_;
  std::vector<float> x_, y_;
  cudnnTensorDescriptor_t tensor_ = nullptr;
  cudnnActivationDescriptor_t activation_ = nullptr;
};

// A network of one unit that adds up its inputs: y = 1, 2, 3, … of as many ones.
class Sums {
 public:
  explicit Sums(int steps)
      : steps_(steps), x_(static_cast<size_t>(steps), 1), y_(x_.size(), -7), weights_(2, 1) {
    const std::array<int, 3> state = {1, 1, 1};
    cudnnCreateRNNDescriptor(&rnn_);
    cudnnSetRNNDescriptor_v8(rnn_, CUDNN_RNN_ALGO_STANDARD, CUDNN_RNN_RELU, CUDNN_RNN_NO_BIAS,
                             CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT,
                             CUDNN_DATA_FLOAT, CUDNN_FMA_MATH, 1, 1, 1, 1, nullptr, 0);
    cudnnCreateRNNDataDescriptor(&data_);
    cudnnSetRNNDataDescriptor(data_, CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED,
                              steps, 1, 1, &steps_, nullptr);
    cudnnCreateTensorDescriptor(&state_);
    cudnnSetTensorNdDescriptor(state_, CUDNN_DATA_FLOAT, 3, state.data(), state.data());
  }
  ~Sums() {
    cudnnDestroyTensorDescriptor(state_);
    cudnnDestroyRNNDataDescriptor(data_);
    cudnnDestroyRNNDescriptor(rnn_);
  }
  Sums(const Sums&) = delete;
  cudnnStatus_t Run(cudnnHandle_t handle) {
    size_t work = 0;
    const cudnnStatus_t sized =
        cudnnGetRNNTempSpaceSizes(handle, rnn_, CUDNN_FWD_MODE_INFERENCE, data_, &work, nullptr);
    if (sized != kOk) return sized;
    work_.resize(work);
    return cudnnRNNForward(handle, rnn_, CUDNN_FWD_MODE_INFERENCE, &steps_, data_, x_.data(), data_,
                           y_.data(), state_, nullptr, nullptr, state_, nullptr, nullptr,
                           weights_.size() * sizeof(float), weights_.data(), work, work_.data(), 0,
                           nullptr);
  }
  bool IsRight() const {
    for (size_t t = 0; t < y_.size(); ++t)
      if (y_[t] != static_cast<float>(t + 1)) return false;
    return true;
  }

 private:
  int steps_;
  std::vector<float> x_, y_, weights_;
  std::vector<std::byte> work_;
  cudnnRNNDescriptor_t rnn_ = nullptr;
  cudnnRNNDataDescriptor_t data_ = nullptr;
  cudnnTensorDescriptor_t state_ = nullptr;
};

std::string LastError() {
  char sentence[256] = "";
  cudnnGetLastErrorString(sentence, sizeof sentence);
  return sentence;
}

// The exit status of a child that runs `body`; 99 where it hangs.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kSecondsToHang);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

// 0 where all is as it should be.
int UseInChild(cudnnHandle_t of_parent, int n) {
  if (!OnCpu()) {
    cudnnHandle_t own = nullptr;
    Relu relu(n, CUDNN_ACTIVATION_RELU);
    if (relu.Run(of_parent) != CUDNN_STATUS_NOT_INITIALIZED) return 1;
    if (Sums(n % 9 + 1).Run(of_parent) != CUDNN_STATUS_NOT_INITIALIZED) return 9;
    if (LastError().find("fork") == std::string::npos) return 2;
    if (cudnnCreate(&own) != CUDNN_STATUS_NOT_INITIALIZED) return 3;
    return cudnnDestroy(of_parent) == kOk ? 0 : 4;
  }
  for (const cudnnActivationMode_t mode : {CUDNN_ACTIVATION_RELU, CUDNN_ACTIVATION_CLIPPED_RELU}) {
    Relu relu(n, mode);
    if (relu.Run(of_parent) != kOk || !relu.IsRight()) return 5;
  }
  Sums sums(n % 9 + 1);
  if (sums.Run(of_parent) != kOk || !sums.IsRight()) return 10;
  cudnnHandle_t own = nullptr;
  if (cudnnCreate(&own) != kOk) return 6;
  Relu relu(n + 1, CUDNN_ACTIVATION_RELU);
  if (relu.Run(own) != kOk || !relu.IsRight()) return 7;
  return cudnnDestroy(own) == kOk ? 0 : 8;
}

class ForkTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ::setenv("KILN_CACHE_DIR", (std::string(std::getenv("TEST_TMPDIR")) + "/cache").c_str(), 1);
    ResetEnvForTest();
  }
};

// First, since later ones have opened the device.
TEST_F(ForkTest, AChildOfAProcessThatUsedNothingIsFree) {
  const int status = InChild([] {
    cudnnHandle_t handle = nullptr;
    if (cudnnCreate(&handle) != kOk) return 1;
    Relu relu(100, CUDNN_ACTIVATION_RELU);
    return relu.Run(handle) == kOk && (!OnCpu() || relu.IsRight()) ? 0 : 2;
  });
  EXPECT_EQ(status, 0);
}

// In a process that has used nothing: forks while threads make their first calls.
TEST_F(ForkTest, AmidFirstCalls) {
  const auto make = [] {
    for (int i = 0; i < 2000; ++i) {
      cudnnTensorDescriptor_t tensor = nullptr;
      cudnnCreateTensorDescriptor(&tensor);
      cudnnDestroyTensorDescriptor(tensor);
    }
    return 0;
  };
  for (int i = 0; i < 20; ++i) {
    const int status = InChild([&] {
      std::vector<std::thread> threads;
      for (int t = 0; t < 4; ++t) threads.emplace_back(make);
      int sum = 0;
      for (int k = 0; k < 5; ++k) sum += InChild(make);
      for (std::thread& thread : threads) thread.join();
      return sum == 0 ? 0 : 1;
    });
    ASSERT_EQ(status, 0);
  }
}

TEST_F(ForkTest, AmidThreadsThatUseTheLibrary) {
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), kOk);
  Relu before(64, CUDNN_ACTIVATION_RELU);
  ASSERT_EQ(before.Run(handle), kOk);
  std::atomic<bool> stop = false;
  std::atomic<int> calls = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      cudnnHandle_t own = nullptr;
      EXPECT_EQ(cudnnCreate(&own), kOk);
      // New plans all the time, and descriptors, which other threads' lists of cells get.
      for (int n = 1; !stop; ++n) {
        Relu relu(n % 500 + 1 + t, CUDNN_ACTIVATION_RELU);
        EXPECT_EQ(relu.Run(own), kOk);
        EXPECT_TRUE(!OnCpu() || relu.IsRight());
        Sums sums(n % 5 + 1 + t);
        EXPECT_EQ(sums.Run(own), kOk);
        EXPECT_TRUE(!OnCpu() || sums.IsRight());
        ++calls;
      }
      EXPECT_EQ(cudnnDestroy(own), kOk);
    });
  }
  for (int i = 0; i < 25; ++i) {
    const int so_far = calls;
    EXPECT_EQ(InChild([&] { return UseInChild(handle, 700 + i); }), 0) << "child " << i;
    while (calls == so_far && !HasFailure()) std::this_thread::yield();  // they go on
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(before.Run(handle), kOk);
  EXPECT_EQ(cudnnDestroy(handle), kOk);
}

// A thread that stays inside (here in a callback of the log) and only goes on after the fork.
TEST_F(ForkTest, WhereAThreadStaysInsideTheChildSaysSo) {
  SetForkPatienceForTest(50);
  static std::atomic<bool> is_inside, may_go;
  is_inside = may_go = false;
  const auto wait = [](cudnnSeverity_t, void*, const cudnnDebug_t*, const char*) {
    is_inside = true;
    while (!may_go) std::this_thread::yield();
  };
  ASSERT_EQ(cudnnSetCallback(1u << CUDNN_SEV_ERROR, nullptr, wait), kOk);
  std::thread thread([] { cudnnSetStream(nullptr, nullptr); });
  while (!is_inside) std::this_thread::yield();
  EXPECT_EQ(InChild([] {
              cudnnHandle_t handle = nullptr;
              if (cudnnCreate(&handle) != CUDNN_STATUS_NOT_INITIALIZED) return 1;
              return LastError().find("another thread was inside") != std::string::npos ? 0 : 2;
            }),
            0);
  may_go = true;
  thread.join();
  ASSERT_EQ(cudnnSetCallback(0, nullptr, nullptr), kOk);
  SetForkPatienceForTest(10000);
}

// The thread that forks from a callback is inside itself.
TEST_F(ForkTest, FromACallback) {
  static int status;
  status = -1;
  const auto fork_here = [](cudnnSeverity_t, void*, const cudnnDebug_t*, const char*) {
    if (status == -1) status = InChild([] { return 0; });
  };
  ASSERT_EQ(cudnnSetCallback(1u << CUDNN_SEV_ERROR, nullptr, fork_here), kOk);
  cudnnSetStream(nullptr, nullptr);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(cudnnSetCallback(0, nullptr, nullptr), kOk);
}

}  // namespace
}  // namespace kiln::api
