// The words of a refusal, and who gets them: cuDNN's log has each with its reason; Kiln's own the
// first of each kind, on stderr, at KILN_LOG=warn. The tests are of either generation, in processes
// of their own, since both logs are of a process.
#include "api/lifecycle/refusals.h"

#include <cudnn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/api/fake_session.h"

namespace kiln::api {
namespace {

using Novelty = Refusals::Novelty;

TEST(KindOfReason, NumbersAndQuotedWordsDoNotCount) {
  const auto same = [](const char* a, const char* b) {
    EXPECT_EQ(KindOfReason(a), KindOfReason(b)) << a << "\n" << b;
  };
  same("filter has 32 channels, input has 64", "filter has 3 channels, input has 128");
  same("q 2x4x128x64 and v 2x4x64 do not fit", "q 1x1x1 and v 8 do not fit");
  same("strides [4, 2, 1] overlap", "strides [1] overlap");
  same("alpha is 0.5", "alpha is 1.25e-3");
  same("unknown mode 'fast'", "unknown mode 'slow mode'");
  EXPECT_NE(KindOfReason("x is 3"), KindOfReason("y is 3"));
  EXPECT_NE(KindOfReason("q's and k's heads"), KindOfReason("q's and v's heads"));
  EXPECT_EQ(KindOfReason("an open ' 7"), "an open ' #");
  EXPECT_EQ(KindOfReason(""), "");
}

Status BadParam(const std::string& text) { return Status::Text(Code::kBadParam, text); }

TEST(Refusals, AKindIsFunctionStatusAndReason) {
  Refusals refusals;
  EXPECT_EQ(refusals.Note("cudnnA", BadParam("x is 1")), Novelty::kNew);
  EXPECT_EQ(refusals.Note("cudnnA", BadParam("x is 2")), Novelty::kKnown);
  EXPECT_EQ(refusals.Note("cudnnA", BadParam("y is 2")), Novelty::kNew);
  EXPECT_EQ(refusals.Note("cudnnB", BadParam("x is 1")), Novelty::kNew);
  EXPECT_EQ(refusals.Note("cudnnA", Status::Text(Code::kNotSupported, "x is 1")), Novelty::kNew);
}

TEST(Refusals, MemoryAndLinesAreBounded) {
  Refusals refusals;
  size_t shown = 0, last = 0;
  const auto word = [](int i) { return std::string(static_cast<size_t>(i % 40 + 1), 'a'); };
  for (int i = 0; i < 40; ++i) {
    const Novelty novelty = refusals.Note("cudnnA", BadParam(word(i)));
    shown += novelty != Novelty::kKnown;
    last += novelty == Novelty::kLastOfFunction;
  }
  EXPECT_EQ(shown, Refusals::kMostOfFunction);
  EXPECT_EQ(last, 1u);
  for (int f = 0; f < 40; ++f)
    for (int i = 0; i < 40; ++i)
      shown += refusals.Note("cudnn" + word(f), BadParam(word(i))) != Novelty::kKnown;
  EXPECT_EQ(shown, Refusals::kMostKinds);
}

TEST(Refusals, OfManyThreadsOneIsTheFirst) {
  Refusals refusals;
  std::atomic<int> shown = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 1000; ++i)
          shown += refusals.Note("cudnnA", BadParam("x is " + std::to_string(i))) == Novelty::kNew;
      });
  }
  EXPECT_EQ(shown, 1);
}

std::string ReadAll(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Refused three times for one reason and once for another; one call is right.
void Refused() {
  cudnnTensorDescriptor_t tensor = nullptr;
  if (cudnnCreateTensorDescriptor(&tensor) != CUDNN_STATUS_SUCCESS) _exit(2);
  for (const int channels : {-1, -2, -17}) {
    if (cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, channels, 3,
                                   3) == CUDNN_STATUS_SUCCESS)
      _exit(3);
  }
  if (cudnnSetTensor4dDescriptor(nullptr, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 3, 3, 3) ==
      CUDNN_STATUS_SUCCESS)
    _exit(4);
  cudnnDestroyTensorDescriptor(tensor);
}

// The stderr of a process with these variables.
std::string StderrOf(const std::vector<std::pair<const char*, const char*>>& variables) {
  const std::string path = ::testing::TempDir() + "/stderr";
  const pid_t child = fork();
  if (child == 0) {
    for (const auto& [name, value] : variables) setenv(name, value, 1);
    setenv("REFUSED", "1", 1);
    unsetenv("TEST_PREMATURE_EXIT_FILE");
    dup2(open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600), 2);
    execl("/proc/self/exe", "refusals_test", nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  return ReadAll(path);
}

constexpr const char* kCall = "cudnnSetTensor4dDescriptor() returned CUDNN_STATUS_BAD_PARAM";

TEST(Warning, TheFirstOfEachKindIsTold) {
  const std::string text = StderrOf({});
  EXPECT_EQ(Count(text, kCall), 2u) << text;
  EXPECT_EQ(Count(text, "warning]"), 2u) << text;
  EXPECT_EQ(Count(text, "-1"), 1u) << "the reason names the value: " << text;
  EXPECT_EQ(Count(text, "-2"), 0u) << text;
}

TEST(Warning, NobodyIsToldWhoDoesNotWantTo) {
  EXPECT_EQ(StderrOf({{"KILN_LOG", "error"}}), "");
  EXPECT_EQ(StderrOf({{"KILN_LOG", "off"}}), "");
}

TEST(Warning, CudnnsLogHasEachWithItsReasonAndIsEnough) {
  const std::string text = StderrOf({{"CUDNN_LOGLEVEL_DBG", "1"}, {"CUDNN_LOGDEST_DBG", "stderr"}});
  EXPECT_EQ(Count(text, kCall), 4u) << text;
  EXPECT_EQ(Count(text, "E! CuDNN"), 4u) << text;
  for (const char* value : {"-1", "-2", "-17"}) EXPECT_GE(Count(text, value), 1u) << value << text;
}

}  // namespace
}  // namespace kiln::api

int main(int argc, char** argv) {
  if (std::getenv("REFUSED") != nullptr) {
    kiln::api::Refused();
    return 0;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
