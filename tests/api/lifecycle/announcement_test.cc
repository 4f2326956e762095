// The line of the first call, however many threads are the first.
#include "api/lifecycle/announcement.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "api/lifecycle/logging.h"

namespace kiln::api {
namespace {

// The environment is read at the first call.
[[maybe_unused]] const int kIsSet = setenv("KILN_LOG", "info", 1) + setenv("KILN_DEVICE", "cpu", 1);

TEST(Announcement, NamesTheFileTheVersionAndTheDevice) {
  char path[PATH_MAX] = {};
  ASSERT_GT(readlink("/proc/self/exe", path, sizeof path - 1), 0);
  const std::string text = Announcement();
  EXPECT_EQ(text.find(std::string("Kiln is called: ") + path + " as cuDNN 9."), 0u) << text;
  EXPECT_TRUE(text.ends_with(", for the device of KILN_DEVICE=cpu")) << text;
}

// All of them find that the log was not set up yet.
TEST(Announcement, IsLoggedOnce) {
  ::testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([] { internal::InitLogging(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(ApiLogEnabled());
  const std::string text = ::testing::internal::GetCapturedStderr();
  const size_t first = text.find("Kiln is called: ");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("Kiln is called: ", first + 1), std::string::npos) << text;
}

}  // namespace
}  // namespace kiln::api
