// Choosing a device: what is asked for, what is there, and what is said where it is not. Each case
// runs in a child, since a process opens its devices once.
#include "runtime/device_select.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <map>

#include "ir/base/env.h"
#include "runtime/cpu_plugin.h"

namespace kiln::runtime {
namespace {

using Environment = std::map<std::string, std::string>;

// The text that `body` returns in a process that has `environment`.
std::string Ask(const Environment& environment, const std::function<std::string()>& body) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  pid_t child = ::fork();
  if (child == 0) {
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    ResetEnvForTest();
    std::string answer = body();
    bool written =
        ::write(ends[1], answer.data(), answer.size()) == static_cast<ssize_t>(answer.size());
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    answer.append(buffer, static_cast<size_t>(n));
  ::close(ends[0]);
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? answer
                                                       : fmt::format("died with {}", status);
}

std::string DefaultDeviceError() {
  auto device = DefaultDevice();
  return device.ok() ? "found " + (*device)->target().name : device.status().message();
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const Environment kNothing = {{"KILN_LIBCUDA", "/nowhere/libcuda.so.1"},
                              {"KILN_CPU_PLUGIN", "/nowhere/cpu.so"},
                              {"KILN_NVRTC", "/nowhere/libnvrtc.so"}};

Environment With(Environment environment, const std::string& name, const std::string& value) {
  environment[name] = value;
  return environment;
}

std::string TestLibrary(const std::string& name) {
  return fmt::format("{}/{}/tests/runtime/{}", std::getenv("TEST_SRCDIR"),
                     std::getenv("TEST_WORKSPACE"), name);
}

TEST(DeviceSelectTest, NothingThereNamesBoth) {
  std::string error = Ask(kNothing, DefaultDeviceError);
  EXPECT_TRUE(Contains(error, "no device to run on")) << error;
  EXPECT_TRUE(Contains(error, "/nowhere/libcuda.so.1")) << error;
  EXPECT_TRUE(Contains(error, "/nowhere/cpu.so")) << error;
}

TEST(DeviceSelectTest, AWishIsNotReplaced) {
  std::string cuda = Ask(With(kNothing, "KILN_DEVICE", "cuda"), DefaultDeviceError);
  EXPECT_TRUE(Contains(cuda, "/nowhere/libcuda.so.1")) << cuda;
  EXPECT_FALSE(Contains(cuda, "/nowhere/cpu.so")) << cuda;
  std::string cpu = Ask(With(kNothing, "KILN_DEVICE", "cpu"), DefaultDeviceError);
  EXPECT_TRUE(Contains(cpu, "/nowhere/cpu.so")) << cpu;
  EXPECT_FALSE(Contains(cpu, "libcuda")) << cpu;
}

TEST(DeviceSelectTest, ALibraryThatIsNoPlugInIsNamed) {
  std::string library = TestLibrary("libnot_a_plugin.so");
  std::string error =
      Ask({{"KILN_CPU_PLUGIN", library}, {"KILN_DEVICE", "cpu"}}, DefaultDeviceError);
  EXPECT_TRUE(Contains(error, "does not export KilnCpuDeviceCreate")) << error;
  EXPECT_TRUE(Contains(error, "libnot_a_plugin.so")) << error;
}

TEST(DeviceSelectTest, ThePlugInsReasonIsPassedOn) {
  std::string library = TestLibrary("librefusing_plugin.so");
  std::string error =
      Ask({{"KILN_CPU_PLUGIN", library}, {"KILN_DEVICE", "cpu"}}, DefaultDeviceError);
  EXPECT_TRUE(Contains(error, "this processor has no abacus")) << error;
}

TEST(DeviceSelectTest, ThePlugInIsLookedForBesideTheLibrary) {
  std::string candidates = Ask({}, [] {
    std::string all;
    for (const std::string& candidate : CpuPluginCandidates()) all += candidate + "\n";
    return all;
  });
  EXPECT_TRUE(Contains(candidates, "/tests/runtime/libkiln_cpu.so\n")) << candidates;
  EXPECT_TRUE(Contains(candidates, "/tests/runtime/../lib/libkiln_cpu.so\n")) << candidates;
  EXPECT_TRUE(Contains(candidates, "\nlibkiln_cpu.so\n")) << candidates;
}

// The folders are the library's own and the system's.
TEST(DeviceSelectTest, WithRaisedPrivilegesNoVariableNamesCode) {
  const std::string text = Ask(kNothing, [] {
    SetPrivilegedForTest(true);
    std::string all;
    for (const std::string& candidate : CpuPluginCandidates()) all += candidate + "\n";
    return all + DefaultDeviceError();
  });
  EXPECT_TRUE(Contains(text, "libkiln_cpu.so")) << text;
  EXPECT_FALSE(Contains(text, "/nowhere")) << text;
}

TEST(DeviceSelectTest, DoctorSaysWhatIsMissingAndWhy) {
  std::string report =
      Ask(With(With(kNothing, "KILN_CACHE_DIR", "/proc/none"), "KILN_DEVICE", "cpu"), [] {
        std::string all;
        for (const DoctorLine& line : Doctor()) {
          all += fmt::format("{} {}: {}\n", line.state == DoctorLine::State::kGood ? "+" : "-",
                             line.subject, line.detail);
        }
        return all;
      });
  for (const char* part :
       {"- CUDA driver: the CUDA driver was not found", "- NVRTC: NVRTC was not found",
        "- kernel cache: in memory only: cannot create /proc/none",
        "- CPU plug-in: the CPU plug-in was not found", "- device: "}) {
    EXPECT_TRUE(Contains(report, part)) << part << "\nin\n" << report;
  }
}

}  // namespace
}  // namespace kiln::runtime
