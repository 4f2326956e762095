// Red zones: each write outside of the buffer is found, with its place, and only once.
#include "runtime/red_zones.h"

#include <gtest/gtest.h>

#include "tests/runtime/fake_device.h"

namespace kiln::runtime {
namespace {

TEST(RedZones, FindWritesOutside) {
  FakeDevice device;
  for (const int64_t bytes : {0, 1, 100, 4096}) {
    Result<GuardedBuffer> buffer = GuardedBuffer::Make(device, bytes);
    ASSERT_TRUE(buffer.ok());
    auto* memory = static_cast<char*>(buffer->get());
    std::fill_n(memory, bytes, '\0');
    EXPECT_TRUE(buffer->CheckZones("y").ok()) << "inside is allowed";
    for (const int64_t at : {int64_t{-65536}, int64_t{-1}, bytes, bytes + 65535}) {
      memory[at] ^= 1;
      const Status found = buffer->CheckZones("y");
      EXPECT_EQ(found.code(), Code::kUnexpectedValue) << at;
      const std::string place =
          at < 0 ? fmt::format("{} bytes before", -at) : fmt::format("{} bytes behind", at - bytes);
      EXPECT_NE(found.message().find(place), std::string::npos) << found.message();
      EXPECT_TRUE(buffer->CheckZones("y").ok()) << "the pattern was put back";
    }
  }
}

}  // namespace
}  // namespace kiln::runtime
