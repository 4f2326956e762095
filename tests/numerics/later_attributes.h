// The common part of tests of the backend's later attributes: tensors in memory by uid, one
// operation's graph run by the heuristics' first choice, and comparison with loops in f64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ir/dtype.h"
#include "tests/api/client.h"
#include "tests/support/device_memory.h"

namespace kiln::testing {

using client::Desc;
using Ints = std::vector<int64_t>;
using Values = std::vector<double>;

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline int64_t Count(const Ints& dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= d;
  return n;
}

inline DType TypeOf(cudnnDataType_t type) {
  return type == CUDNN_DATA_HALF           ? DType::kF16
         : type == CUDNN_DATA_BFLOAT16     ? DType::kBF16
         : type == CUDNN_DATA_DOUBLE       ? DType::kF64
         : type == CUDNN_DATA_INT32        ? DType::kI32
         : type == CUDNN_DATA_INT64        ? DType::kI64
         : type == CUDNN_DATA_BYTE_BOOLEAN ? DType::kBool
                                           : DType::kF32;
}

// Tensors in memory by uid, and a graph's run.
class LaterAttributes : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string error;
    device_ = OpenTestDevice(&error);
    ASSERT_NE(device_, nullptr) << error;
    ASSERT_EQ(cudnnCreate(&handle_), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnnSetStream(handle_, static_cast<cudaStream_t>(device_->stream())),
              CUDNN_STATUS_SUCCESS);
  }
  void TearDown() override {
    memory_.clear();
    if (handle_ != nullptr) cudnnDestroy(handle_);
  }

  struct Memory {
    DType type;
    Ints dims;
    std::unique_ptr<Buffer> buffer;
    std::vector<char> host;  // by value
  };

  // A tensor with values, which are rounded to its type; NaN where they are empty.
  Desc Put(int64_t uid, const Ints& dims, cudnnDataType_t type, Values* values) {
    Memory m{.type = TypeOf(type), .dims = dims, .buffer = nullptr, .host = {}};
    const auto size = static_cast<size_t>(SizeOf(m.type));
    std::vector<char> bytes(static_cast<size_t>(Count(dims)) * size, '\xff');
    for (size_t i = 0; values != nullptr && i < values->size(); ++i) {
      StoreValue(m.type, (*values)[i], bytes.data() + i * size);
      (*values)[i] = LoadValue(m.type, bytes.data() + i * size);
    }
    m.buffer = std::make_unique<Buffer>(*device_, bytes.size());
    device_->CopyIn(m.buffer->data(), bytes.data(), bytes.size());
    memory_[uid] = std::move(m);
    return client::Tensor(uid, dims, {.type = type});
  }
  Desc Scalar(int64_t uid, double value) {
    Memory m{.type = DType::kF32, .dims = {1}, .buffer = nullptr, .host = std::vector<char>(4)};
    StoreValue(m.type, value, m.host.data());
    memory_[uid] = std::move(m);
    return client::Tensor(uid, {1, 1, 1, 1}, {.by_value = true});
  }
  Values Read(int64_t uid) const {
    const Memory& m = memory_.at(uid);
    const auto size = static_cast<size_t>(SizeOf(m.type));
    std::vector<char> bytes(static_cast<size_t>(Count(m.dims)) * size);
    device_->CopyOut(bytes.data(), m.buffer->data(), bytes.size());
    Values values;
    for (size_t i = 0; i < bytes.size(); i += size)
      values.push_back(LoadValue(m.type, bytes.data() + i));
    return values;
  }

  void Run(const Desc& operation) {
    ASSERT_EQ(operation.status(), CUDNN_STATUS_SUCCESS) << operation.error();
    const Desc graph = client::Graph(handle_, {&operation});
    ASSERT_EQ(graph.status(), CUDNN_STATUS_SUCCESS) << graph.error();
    const std::vector<Desc> configs = client::Results(client::Heuristics(graph, CUDNN_HEUR_MODE_A));
    ASSERT_FALSE(configs.empty()) << client::LastError();
    const Desc plan = client::Plan(handle_, configs[0]);
    ASSERT_EQ(plan.status(), CUDNN_STATUS_SUCCESS) << plan.error();
    int64_t bytes = 0;
    ASSERT_EQ(plan.Get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, &bytes), CUDNN_STATUS_SUCCESS);
    const Buffer workspace(*device_, static_cast<size_t>(bytes));
    std::vector<int64_t> uids;
    std::vector<void*> pointers;
    for (auto& [uid, m] : memory_) {
      uids.push_back(uid);
      pointers.push_back(m.buffer != nullptr ? static_cast<void*>(m.buffer->data())
                                             : static_cast<void*>(m.host.data()));
    }
    const Desc pack = client::Pack(uids, pointers, workspace.data());
    ASSERT_EQ(cudnnBackendExecute(handle_, plan.raw(), pack.raw()), CUDNN_STATUS_SUCCESS)
        << client::LastError();
    ASSERT_EQ(device_->Synchronize(), "");
  }

  // `magnitude`: what the sum that makes an element adds up to without signs.
  void Expect(int64_t uid, const char* name, const Values& expected,
              const Values& magnitude) const {
    const Values actual = Read(uid);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      if (actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]))) continue;
      const double allowed = std::ldexp(magnitude[i], -9) + 1e-6;
      ASSERT_LE(std::abs(actual[i] - expected[i]), allowed)
          << name << "[" << i << "] is " << actual[i] << ", not " << expected[i];
    }
  }

  std::unique_ptr<Device> device_;
  cudnnHandle_t handle_ = nullptr;
  std::map<int64_t, Memory> memory_;
};

inline Values Numbers(const Ints& dims, int seed, double scale = 1) {
  Values values;
  uint64_t state = static_cast<uint64_t>(seed) * 2654435761u + 12345;
  for (int64_t i = 0; i < Count(dims); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    values.push_back((static_cast<double>(state >> 40) / (1 << 23) - 1) * scale);
  }
  return values;
}

}  // namespace kiln::testing
