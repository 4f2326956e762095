// The library as linked, on the CPU device, under clients that are careless or many: extents that
// no memory holds, tensors without elements, one uid for two tensors, executions with pieces
// missing, eight threads at once. What a single call of the interface refuses is tests/api/backend;
// here are whole graphs, compiled and run.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/api/client.h"

namespace {

using namespace client;

constexpr int64_t kHuge = int64_t{1} << 62;

class Handle {
 public:
  Handle() { EXPECT_EQ(cudnnCreate(&raw_), CUDNN_STATUS_SUCCESS) << LastError(); }
  ~Handle() { cudnnDestroy(raw_); }
  Handle(const Handle&) = delete;
  cudnnHandle_t raw() const { return raw_; }

 private:
  cudnnHandle_t raw_ = nullptr;
};

// The heuristics' first configuration as a plan; the first refusal on the way is in `error`.
struct Planned {
  std::unique_ptr<Desc> plan;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  std::string error;
  int64_t workspace = 0;
};

Planned MakePlan(const Handle& handle, const Desc& graph) {
  Planned out;
  const auto failed = [&](cudnnStatus_t status, const std::string& error) {
    if (status == CUDNN_STATUS_SUCCESS) return false;
    out.status = status;
    out.error = error;
    return true;
  };
  if (failed(graph.status(), graph.error())) return out;
  Desc heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A)
      .Finalize();
  if (failed(heuristics.status(), heuristics.error())) return out;
  Desc config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = config.raw();
  int64_t count = 0;
  const cudnnStatus_t got =
      cudnnBackendGetAttribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw);
  if (failed(got, LastError()) ||
      (count == 0 && failed(CUDNN_STATUS_NOT_SUPPORTED, "no configuration")))
    return out;
  Desc plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle.raw())
      .Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config)
      .Finalize();
  if (failed(plan.status(), plan.error())) return out;
  EXPECT_EQ(cudnnBackendGetAttribute(plan.raw(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                     CUDNN_TYPE_INT64, 1, nullptr, &out.workspace),
            CUDNN_STATUS_SUCCESS);
  out.plan = std::make_unique<Desc>(std::move(plan));
  return out;
}

// y = mode(x + b), x and y of `dims`.
Desc SumGraph(const Handle& handle, const std::vector<int64_t>& dims,
              cudnnPointwiseMode_t mode = CUDNN_POINTWISE_RELU_FWD, int64_t output_uid = 3) {
  const Desc x = Tensor(1, dims), b = Tensor(2, dims), y = Tensor(output_uid, dims);
  const Desc sum = Tensor(100, dims, {.is_virtual = true});
  const Desc add = Pointwise(CUDNN_POINTWISE_ADD, x, &b, sum);
  const Desc last = Pointwise(mode, sum, nullptr, y);
  return Graph(handle.raw(), {&add, &last});
}

struct Problem {
  explicit Problem(size_t n) : x(n + 8), b(n + 8), y(n + 8, -77.0f) {
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 16;
      b[i] = static_cast<float>(static_cast<int>(i * 53 % 97) - 48) / 16;
    }
  }
  // 16-byte aligned starts, which tensors promise, as clients' allocators give them.
  static float* At(std::vector<float>& v) {
    return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(v.data()) + 15) / 16 * 16);
  }
  std::vector<void*> pointers() { return {At(x), At(b), At(y)}; }
  std::vector<float> x, b, y;
};

const std::vector<int64_t> kUids = {1, 2, 3};

// ---- extents

TEST(Extents, AbsurdOnesAreRefusedWithASentence) {
  const std::vector<std::vector<int64_t>> kAbsurd = {{kHuge, kHuge, kHuge},
                                                     {int64_t{1} << 32, int64_t{1} << 32, 2},
                                                     {INT64_MAX, 1, 1},
                                                     {1, INT64_MAX, 2},
                                                     {-1, 4, 4},
                                                     {4, INT64_MIN, 4},
                                                     {kHuge, 4, 1}};
  for (const auto& dims : kAbsurd) {
    Desc t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    std::vector<int64_t> strides(dims.size(), 1);
    for (size_t i = dims.size(); i-- > 1;) {
      strides[i - 1] =
          static_cast<int64_t>(static_cast<uint64_t>(strides[i]) * static_cast<uint64_t>(dims[i]));
    }
    t.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, int64_t{1})
        .Set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT)
        .Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16})
        .Set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims)
        .Set(CUDNN_ATTR_TENSOR_STRIDES, strides)
        .Finalize();
    EXPECT_NE(t.status(), CUDNN_STATUS_SUCCESS) << dims[0] << " " << dims[1] << " " << dims[2];
    EXPECT_GT(t.error().size(), 10u);
  }
}

// 2^33 and 2^40 elements: no such memory is touched before an execution.
TEST(Extents, LargerThan32BitsArePlannedWithoutMemory) {
  const Handle handle;
  for (const std::vector<int64_t>& dims :
       {std::vector<int64_t>{1 << 13, 1 << 10, 1 << 10}, {1 << 20, 1 << 10, 1 << 10}}) {
    const Planned planned = MakePlan(handle, SumGraph(handle, dims));
    EXPECT_TRUE(planned.plan) << planned.error;
  }
}

TEST(Extents, WithoutElementsNothingIsWrittenOrNothingIsPlanned) {
  const Handle handle;
  const Planned planned = MakePlan(handle, SumGraph(handle, {4, 0, 8}));
  if (!planned.plan) {
    EXPECT_GT(planned.error.size(), 10u);
    return;
  }
  Problem problem(64);
  std::vector<char> workspace(static_cast<size_t>(planned.workspace) + 1);
  const Desc pack = Pack(kUids, problem.pointers(), workspace.data());
  EXPECT_EQ(cudnnBackendExecute(handle.raw(), planned.plan->raw(), pack.raw()),
            CUDNN_STATUS_SUCCESS)
      << LastError();
  EXPECT_TRUE(std::all_of(problem.y.begin(), problem.y.end(), [](float v) { return v == -77.0f; }));
}

// ---- uids

TEST(Uids, OneForTwoUnlikeTensorsIsRefused) {
  const Handle handle;
  const Desc x = Tensor(1, {4, 4, 8}), y = Tensor(2, {4, 4, 8}),
             sum = Tensor(3, {4, 4, 8}, {.is_virtual = true});
  const Desc narrow = Tensor(1, {1, 1, 8});
  const Desc add = Pointwise(CUDNN_POINTWISE_ADD, x, &narrow, sum);
  const Desc relu = Pointwise(CUDNN_POINTWISE_RELU_FWD, sum, nullptr, y);
  const Desc graph = Graph(handle.raw(), {&add, &relu});
  EXPECT_NE(graph.status(), CUDNN_STATUS_SUCCESS);
  EXPECT_NE(graph.error().find('1'), std::string::npos) << graph.error();
}

TEST(Uids, ATensorWrittenTwiceIsRefused) {
  const Handle handle;
  const Desc x = Tensor(1, {4, 4, 8}), y = Tensor(2, {4, 4, 8});
  const Desc a = Pointwise(CUDNN_POINTWISE_RELU_FWD, x, nullptr, y);
  const Desc b = Pointwise(CUDNN_POINTWISE_TANH_FWD, x, nullptr, y);
  const Desc graph = Graph(handle.raw(), {&a, &b});
  EXPECT_NE(graph.status(), CUDNN_STATUS_SUCCESS);
  EXPECT_GT(graph.error().size(), 10u);
}

TEST(Uids, ACycleIsRefused) {
  const Handle handle;
  const Desc u = Tensor(1, {4, 4, 8}, {.is_virtual = true}),
             v = Tensor(2, {4, 4, 8}, {.is_virtual = true});
  const Desc a = Pointwise(CUDNN_POINTWISE_RELU_FWD, u, nullptr, v);
  const Desc b = Pointwise(CUDNN_POINTWISE_TANH_FWD, v, nullptr, u);
  const Desc graph = Graph(handle.raw(), {&a, &b});
  EXPECT_NE(graph.status(), CUDNN_STATUS_SUCCESS);
}

// ---- execution

class Execution : public testing::Test {
 protected:
  void SetUp() override {
    planned_ = MakePlan(handle_, SumGraph(handle_, {4, 4, 8}));
    ASSERT_TRUE(planned_.plan) << planned_.error;
    workspace_.resize(static_cast<size_t>(planned_.workspace) + 1);
  }
  cudnnStatus_t Run(const std::vector<int64_t>& uids, const std::vector<void*>& pointers) {
    const Desc pack = Pack(uids, pointers, workspace_.data());
    EXPECT_EQ(pack.status(), CUDNN_STATUS_SUCCESS) << pack.error();
    return cudnnBackendExecute(handle_.raw(), planned_.plan->raw(), pack.raw());
  }
  void ExpectRefusal(cudnnStatus_t status) {
    EXPECT_NE(status, CUDNN_STATUS_SUCCESS);
    EXPECT_GT(LastError().size(), 10u);
    EXPECT_TRUE(
        std::all_of(problem_.y.begin(), problem_.y.end(), [](float v) { return v == -77.0f; }));
  }

  Handle handle_;
  Planned planned_;
  Problem problem_{128};
  std::vector<char> workspace_;
};

TEST_F(Execution, WithoutATensorIsRefused) {
  for (size_t missing = 0; missing < kUids.size(); ++missing) {
    std::vector<int64_t> uids = kUids;
    std::vector<void*> pointers = problem_.pointers();
    uids.erase(uids.begin() + static_cast<std::ptrdiff_t>(missing));
    pointers.erase(pointers.begin() + static_cast<std::ptrdiff_t>(missing));
    ExpectRefusal(Run(uids, pointers));
  }
}

TEST_F(Execution, WithANullPointerIsRefused) {
  for (size_t null = 0; null < kUids.size(); ++null) {
    std::vector<void*> pointers = problem_.pointers();
    pointers[null] = nullptr;
    ExpectRefusal(Run(kUids, pointers));
  }
}

TEST_F(Execution, WithAPointerBelowThePromisedAlignmentIsRefused) {
  std::vector<void*> pointers = problem_.pointers();
  pointers[0] = static_cast<char*>(pointers[0]) + 4;
  ExpectRefusal(Run(kUids, pointers));
}

TEST_F(Execution, UidsInAnyOrderAndMoreThanThereAre) {
  const auto p = problem_.pointers();
  EXPECT_EQ(Run({9, 3, 1, 77, 2, -5}, {nullptr, p[2], p[0], &problem_, p[1], nullptr}),
            CUDNN_STATUS_SUCCESS)
      << LastError();
  const float* x = static_cast<float*>(p[0]);
  const float* b = static_cast<float*>(p[1]);
  const float* y = static_cast<float*>(p[2]);
  for (int i = 0; i < 128; ++i) EXPECT_EQ(y[i], std::max(x[i] + b[i], 0.0f)) << i;
}

TEST(Workspace, AnywhereIsRightAndNoneIsRefused) {
  const Handle handle;
  // The sum of all elements, then a second pass over x: the mean must be stored between two
  // kernels.
  const std::vector<int64_t> dims = {1, 64, 500}, one = {1, 1, 1};
  const Desc x = Tensor(1, dims), y = Tensor(2, dims),
             total = Tensor(100, one, {.is_virtual = true});
  Desc mode(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  mode.Set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_REDUCE_TENSOR_ADD)
      .Set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .Finalize();
  Desc reduce(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  reduce.Set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)
      .Set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, total)
      .Set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, mode)
      .Finalize();
  const Desc subtract = Pointwise(CUDNN_POINTWISE_SUB, x, &total, y);
  const Planned planned = MakePlan(handle, Graph(handle.raw(), {&reduce, &subtract}));
  ASSERT_TRUE(planned.plan) << planned.error;
  ASSERT_GT(planned.workspace, 0);
  std::vector<float> in(64 * 500 + 8, 0.25f), out(64 * 500 + 8, -1.0f);
  std::vector<unsigned char> workspace(static_cast<size_t>(planned.workspace) + 256, 0xA5);
  const std::vector<void*> pointers = {Problem::At(in), Problem::At(out)};
  for (size_t offset : {size_t{0}, size_t{1}, size_t{4}, size_t{24}}) {
    const Desc pack = Pack({1, 2}, pointers, workspace.data() + offset);
    const cudnnStatus_t status = cudnnBackendExecute(handle.raw(), planned.plan->raw(), pack.raw());
    if (status != CUDNN_STATUS_SUCCESS) {
      EXPECT_NE(reinterpret_cast<uintptr_t>(workspace.data() + offset) % 16, 0u) << LastError();
      continue;
    }
    EXPECT_EQ(Problem::At(out)[31999], 0.25f - 8000.0f) << offset;
    EXPECT_EQ(workspace[offset + static_cast<size_t>(planned.workspace)], 0xA5);
  }
  const Desc none = Pack({1, 2}, pointers, nullptr);
  EXPECT_NE(cudnnBackendExecute(handle.raw(), planned.plan->raw(), none.raw()),
            CUDNN_STATUS_SUCCESS);
}

// ---- threads

float Apply(cudnnPointwiseMode_t mode, float v) {
  switch (mode) {
    case CUDNN_POINTWISE_RELU_FWD:
      return std::max(v, 0.0f);
    case CUDNN_POINTWISE_ABS:
      return std::abs(v);
    case CUDNN_POINTWISE_NEG:
      return -v;
    case CUDNN_POINTWISE_CEIL:
      return std::ceil(v);
    default:
      return v;
  }
}

// Each thread has a handle; all start together, on graphs that are all the same or all their own.
void BuildAndRunOnThreads(bool same) {
  constexpr int kThreads = 8;
  constexpr std::array kModes = {CUDNN_POINTWISE_RELU_FWD, CUDNN_POINTWISE_ABS, CUDNN_POINTWISE_NEG,
                                 CUDNN_POINTWISE_CEIL};
  std::barrier start(kThreads);
  std::vector<std::jthread> threads;
  for (int id = 0; id < kThreads; ++id) {
    threads.emplace_back([&, id] {
      const Handle handle;
      const cudnnPointwiseMode_t mode = kModes[same ? 0 : static_cast<size_t>(id) % kModes.size()];
      const int64_t rows = same ? 37 : 20 + id;
      const auto n = static_cast<size_t>(rows * 64);
      start.arrive_and_wait();
      for (int round = 0; round < 4; ++round) {
        const Planned planned = MakePlan(handle, SumGraph(handle, {2, rows, 32}, mode));
        ASSERT_TRUE(planned.plan) << planned.error;
        Problem problem(n);
        std::vector<char> workspace(static_cast<size_t>(planned.workspace) + 1);
        const auto p = problem.pointers();
        const Desc pack = Pack(kUids, p, workspace.data());
        for (int again = 0; again < 5; ++again) {
          ASSERT_EQ(cudnnBackendExecute(handle.raw(), planned.plan->raw(), pack.raw()),
                    CUDNN_STATUS_SUCCESS)
              << LastError();
        }
        for (size_t i = 0; i < n; ++i) {
          ASSERT_EQ(static_cast<float*>(p[2])[i],
                    Apply(mode, static_cast<float*>(p[0])[i] + static_cast<float*>(p[1])[i]))
              << "thread " << id << ", element " << i;
        }
      }
    });
  }
}

TEST(Threads, BuildAndRunTheSameGraph) { BuildAndRunOnThreads(true); }
TEST(Threads, BuildAndRunDifferentGraphs) { BuildAndRunOnThreads(false); }

// ---- cost

// A frontend creates two million descriptors in a test run. The bound is for a machine that others
// use too.
TEST(Cost, OfCreateAndDestroyForEveryKind) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRounds = 100000;
  for (int kind = 0; kind < 44; ++kind) {
    cudnnBackendDescriptor_t raw = nullptr;
    const auto type = static_cast<cudnnBackendDescriptorType_t>(kind);
    if (cudnnBackendCreateDescriptor(type, &raw) != CUDNN_STATUS_SUCCESS) continue;
    cudnnBackendDestroyDescriptor(raw);
    double best = 1e9;
    for (int repeat = 0; repeat < 5; ++repeat) {
      const auto begin = Clock::now();
      for (int i = 0; i < kRounds; ++i) {
        cudnnBackendCreateDescriptor(type, &raw);
        cudnnBackendDestroyDescriptor(raw);
      }
      best = std::min(
          best, std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / kRounds);
    }
    std::printf("create and destroy kind %2d: %.0f ns\n", kind, best);
    EXPECT_LT(best, 200) << "kind " << kind << ": 100 ns for each call";
  }
}

}  // namespace
