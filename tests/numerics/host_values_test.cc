// Values of the host's in memory of the device, by launches alone.
#include "api/legacy/plans/host_values.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "include/v9/cudnn_graph.h"
#include "tests/support/device_memory.h"

namespace kiln::api::legacy {
namespace {

constexpr int32_t kPoison = 0x5a5a5a5a;

class HostValuesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string error;
    device_ = testing::OpenTestDevice(&error);
    ASSERT_NE(device_, nullptr) << error;
    ASSERT_EQ(cudnnCreate(&handle_), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnnSetStream(handle_, static_cast<cudaStream_t>(device_->stream())),
              CUDNN_STATUS_SUCCESS);
    const Result<Handle*> object = HandleFrom(handle_);
    ASSERT_TRUE(object.ok()) << object.status().message();
    object_ = *object;
  }
  void TearDown() override {
    if (handle_ != nullptr) cudnnDestroy(handle_);
  }

  std::unique_ptr<testing::Device> device_;
  cudnnHandle_t handle_ = nullptr;
  Handle* object_ = nullptr;
};

// Values by how they travel: labels of few symbols, of many, and any.
int32_t ValueAt(int64_t i, int64_t count, const char* kind) {
  const auto any = static_cast<int32_t>(i * 2654435761 - 77);
  switch (*kind) {
    case 's':
      return i == count / 2 ? 255 : any & 255;
    case 'm':
      return i == count / 2 ? 65535 : any & 65535;
    case 'l':  // lengths before labels
      return i < 5 ? 500 + static_cast<int32_t>(i) : any & 31;
    case 'b':  // the least that does not travel with as many
      return i == count - 1 ? 65536 : any & 255;
    default:
      return i == 0 ? std::numeric_limits<int32_t>::min() : i == count - 1 ? -1 : any;
  }
}

// Neighbours in one word, extremes and signs; the caller's array changes behind the call.
TEST_F(HostValuesTest, AreThereAndNothingAroundThem) {
  constexpr int64_t kLaunchValues = 120;
  for (const char* const kind : {"small", "medium", "lengths", "border", "any"}) {
    for (const int64_t count : {1, 2, 3, 119, 120, 121, 240, 241, 360, 479, 480, 481, 1000}) {
      SCOPED_TRACE(kind);
      std::vector<int32_t> values(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = ValueAt(i, count, kind);
      std::vector<int32_t> expected = values;
      expected.resize(
          static_cast<size_t>((count + kLaunchValues - 1) / kLaunchValues * kLaunchValues));
      const int64_t bytes = HostValuesBytes(count);
      ASSERT_GE(bytes, static_cast<int64_t>(expected.size()) * 4);
      std::vector<int32_t> memory(static_cast<size_t>(bytes / 4) + 4, kPoison);
      const testing::Buffer place(*device_, memory.size() * 4);
      device_->CopyIn(place.data(), memory.data(), memory.size() * 4);
      const Status status = WriteHostValues(*object_, values, place.data() + 8);
      ASSERT_TRUE(status.ok()) << status.message();
      std::ranges::fill(values, 0);
      device_->CopyOut(memory.data(), place.data(), memory.size() * 4);
      for (const size_t i : {size_t{0}, size_t{1}, memory.size() - 2, memory.size() - 1})
        EXPECT_EQ(memory[i], kPoison) << i << " of " << count;
      memory.erase(memory.begin(), memory.begin() + 2);
      memory.resize(expected.size());
      EXPECT_EQ(memory, expected) << count;
    }
  }
}

TEST_F(HostValuesTest, OfNoneNothingIsWritten) {
  EXPECT_EQ(HostValuesBytes(0), 0);
  EXPECT_TRUE(WriteHostValues(*object_, {}, nullptr).ok());
}

}  // namespace
}  // namespace kiln::api::legacy
