// Values of the host's in memory of the device, by launches alone.
#include "api/legacy/host_values.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "include/v9/cudnn_graph.h"

namespace kiln::api::legacy {
namespace {

constexpr int32_t kPoison = 0x5a5a5a5a;

class HostValuesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudnnCreate(&handle_), CUDNN_STATUS_SUCCESS);
    const Result<Handle*> object = HandleFrom(handle_);
    ASSERT_TRUE(object.ok()) << object.status().message();
    object_ = *object;
  }
  void TearDown() override { cudnnDestroy(handle_); }

  cudnnHandle_t handle_ = nullptr;
  Handle* object_ = nullptr;
};

// Values by how they travel: labels of few symbols, of many, and any.
int32_t ValueAt(int64_t i, int64_t count, const char* kind) {
  const auto any = static_cast<int32_t>(i * 2654435761 - 77);
  switch (*kind) {
    case 's':
      return i == count / 2 ? 127 : any & 127;
    case 'm':
      return i == count / 2 ? 32767 : any & 32767;
    case 'l':  // lengths before labels
      return i < 5 ? 500 + static_cast<int32_t>(i) : any & 31;
    case 'b':  // the least that does not travel with as many
      return i == count - 1 ? 128 : any & 127;
    default:
      return i == 0 ? std::numeric_limits<int32_t>::min() : i == count - 1 ? -1 : any;
  }
}

// Neighbours in one word, extremes and signs; the caller's array changes behind the call.
TEST_F(HostValuesTest, AreThereAndNothingAroundThem) {
  for (const char* const kind : {"small", "medium", "lengths", "border", "any"}) {
    for (const int64_t count : {1, 2, 3, 119, 120, 121, 240, 241, 479, 480, 481, 1000}) {
      SCOPED_TRACE(kind);
      std::vector<int32_t> values(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = ValueAt(i, count, kind);
      const std::vector<int32_t> expected = values;
      const int64_t bytes = HostValuesBytes(count);
      ASSERT_GE(bytes, count * 4);
      const auto words = static_cast<size_t>(bytes / 4);
      alignas(8) static int32_t memory[2048];
      ASSERT_LT(words + 4, std::size(memory));
      std::ranges::fill(memory, kPoison);
      const Status status = WriteHostValues(*object_, values, memory + 2);
      ASSERT_TRUE(status.ok()) << status.message();
      std::ranges::fill(values, 0);
      EXPECT_EQ(memory[1], kPoison);
      EXPECT_EQ(memory[2 + words], kPoison) << count;
      for (size_t i = 0; i < words; ++i)
        ASSERT_EQ(memory[2 + i], i < expected.size() ? expected[i] : 0) << i << " of " << count;
    }
  }
}

TEST_F(HostValuesTest, OfNoneNothingIsWritten) {
  EXPECT_EQ(HostValuesBytes(0), 0);
  EXPECT_TRUE(WriteHostValues(*object_, {}, nullptr).ok());
}

}  // namespace
}  // namespace kiln::api::legacy
