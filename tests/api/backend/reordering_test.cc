// Tensors whose memory is in another order than their strides say: what an identity reads from them
// and writes to them.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <utility>

#include "tests/api/client.h"
#include "tests/api/fake_session.h"

namespace {

using namespace client;
using kiln::api::kFakeWorkspace;

struct Reordered {
  cudnnBackendTensorReordering_t order{};
  std::vector<int64_t> dims;  // as they are declared
  std::vector<int64_t> seen;  // by operations
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int64_t vectors = 1;
};

Desc Make(const Reordered& r) {
  Desc t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  t.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, int64_t{1})
      .Set(CUDNN_ATTR_TENSOR_DATA_TYPE, r.type)
      .Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16})
      .Set(CUDNN_ATTR_TENSOR_DIMENSIONS, r.dims)
      .Set(CUDNN_ATTR_TENSOR_STRIDES, Packed(r.dims));
  if (r.vectors > 1)
    t.Set(CUDNN_ATTR_TENSOR_VECTOR_COUNT, r.vectors)
        .Set(CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION, int64_t{1});
  EXPECT_EQ(cudnnBackendSetAttribute(t.raw(), CUDNN_ATTR_TENSOR_REORDERING_MODE,
                                     CUDNN_TYPE_TENSOR_REORDERING_MODE, 1, &r.order),
            CUDNN_STATUS_SUCCESS);
  t.Finalize();
  return t;
}

Desc GraphOf(cudnnHandle_t handle, const Reordered& r, bool writes) {
  Desc reordered = Make(r), plain = Tensor(2, r.seen, {.type = r.type});
  Desc move = Pointwise(CUDNN_POINTWISE_IDENTITY, writes ? plain : reordered, nullptr,
                        writes ? reordered : plain);
  return Graph(handle, {&move});
}

// `place` says where in memory the element is that operations see at a row-major place.
template <class T>
void ExpectOrder(const Reordered& r, const std::function<size_t(int64_t)>& place) {
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  size_t count = 1;
  for (const int64_t extent : r.seen) count *= static_cast<size_t>(extent);
  for (const bool writes : {false, true}) {
    Desc graph = GraphOf(handle, r, writes);
    ASSERT_EQ(graph.status(), CUDNN_STATUS_SUCCESS) << graph.error();
    Desc plan = Plan(handle, Results(Heuristics(graph, CUDNN_HEUR_MODE_FALLBACK)).at(0));
    std::vector<T> stored(count), seen(count);
    for (size_t i = 0; i < count; ++i) (writes ? seen : stored)[i] = static_cast<T>(i * 7 % 251);
    alignas(256) char workspace[kFakeWorkspace];
    Desc pack = Pack({1, 2}, {stored.data(), seen.data()}, workspace);
    ASSERT_EQ(cudnnBackendExecute(handle, plan.raw(), pack.raw()), CUDNN_STATUS_SUCCESS)
        << LastError();
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(stored[place(static_cast<int64_t>(i))], seen[i]) << i << " writes " << writes;
  }
  cudnnDestroy(handle);
}

// Scales as tensor cores read them, 128 rows by 4 together.
TEST(Reordering, TilesOfScales) {
  constexpr int64_t kRows = 256, kColumns = 8;
  const std::vector<int64_t> dims = {1, kRows, kColumns};
  ExpectOrder<float>(
      {.order = CUDNN_TENSOR_REORDERING_F8_128x4, .dims = dims, .seen = dims}, [](int64_t i) {
        const int64_t m = i / kColumns, k = i % kColumns;
        const int64_t tile = m / 128 * (kColumns / 4) + k / 4;
        return static_cast<size_t>(tile * 512 + m % 32 * 16 + m % 128 / 32 * 4 + k % 4);
      });
}

// Filters as cudnnReorderFilterAndBias leaves them: of 64 outputs and 64 inputs, 3x2 taps.
TEST(Reordering, Int8x32Filters) {
  constexpr int64_t kOutputs = 64, kInputs = 64, kTaps = 6;
  const auto place = [](int64_t at) {
    const int64_t tap = at % kTaps, i = at / kTaps % kInputs, o = at / kTaps / kInputs;
    int64_t to = i / 32;
    to = to * kTaps + tap;
    to = to * (kOutputs / 8) + o / 8;
    to = to * 2 + o % 2;
    to = to * 8 + i % 32 / 4;
    to = to * 4 + o % 8 / 2;
    return static_cast<size_t>(to * 4 + i % 4);
  };
  Reordered filter{.order = CUDNN_TENSOR_REORDERING_INT8x32,
                   .dims = {kOutputs, kInputs / 32, 3, 2},
                   .seen = {kOutputs, kInputs, 3, 2},
                   .type = CUDNN_DATA_INT8,
                   .vectors = 32};
  ExpectOrder<int8_t>(filter, place);
  filter.dims = filter.seen;
  filter.vectors = 1;
  ExpectOrder<int8_t>(filter, place);
}

TEST(Reordering, Int8x32Biases) {
  const std::vector<int64_t> dims = {1, 96, 1, 1};
  ExpectOrder<float>(
      {.order = CUDNN_TENSOR_REORDERING_INT8x32, .dims = dims, .seen = dims}, [](int64_t o) {
        return static_cast<size_t>(o / 32 * 32 + o % 8 / 4 * 16 + o % 32 / 8 * 4 + o % 4);
      });
}

// F16x16 is what one graph stores and another reads: our order is that of the strides.
TEST(Reordering, F16x16IsTheOrderOfTheStrides) {
  const std::vector<int64_t> dims = {2, 3, 16, 32};
  ExpectOrder<float>({.order = CUDNN_TENSOR_REORDERING_F16x16, .dims = dims, .seen = dims},
                     [](int64_t i) { return static_cast<size_t>(i); });
}

TEST(Reordering, ChannelsThatFitNoFragmentAreRefusedInWords) {
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  const std::vector<int64_t> dims = {40, 32, 1, 1};
  const Reordered filter{.order = CUDNN_TENSOR_REORDERING_INT8x32, .dims = dims, .seen = dims};
  const Desc graph = GraphOf(handle, filter, false);
  EXPECT_EQ(graph.status(), CUDNN_STATUS_NOT_SUPPORTED_LAYOUT);
  EXPECT_NE(graph.error().find("no multiple of 32"), std::string::npos) << graph.error();
  cudnnDestroy(handle);
}

}  // namespace
