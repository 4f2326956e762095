// A child that dies costs the problem on which it died, and no other.
#include "bench/support/supervise.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace kiln::bench {
namespace {

std::string PathFor(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

std::string Lost(const std::string& name, const std::string& why) { return name + ": " + why; }

// Runs problems a, b, c in order; `fate` decides what happens in each.
template <typename Fate>
int RunThree(const Progress& progress, const Fate& fate) {
  const auto work = [&](const Attempt& attempt) {
    for (const char* name : {"a", "b", "c"}) {
      if (attempt.finished.contains(name)) continue;
      progress.Begin(name);
      if (const int status = fate(name); status != kDone) return status;
      progress.Row(name, std::string("{") + name + "}");
    }
    return kDone;
  };
  return Supervise(progress, work, Lost);
}

TEST(Supervise, GoesOnBehindAProblemThatKillsTheProcess) {
  const Progress progress(PathFor("killed"));
  progress.Meta("m");
  const int status = RunThree(progress, [](const std::string& name) {
    if (name == "b") raise(SIGKILL);
    return kDone;
  });
  EXPECT_EQ(status, kDone);
  const auto state = progress.Read();
  EXPECT_EQ(state.meta, "m");
  EXPECT_EQ(state.rows, (std::vector<std::string>{"{a}", "b: the process died: Killed", "{c}"}));
}

TEST(Supervise, StartsAgainOnRequest) {
  const Progress progress(PathFor("again"));
  EXPECT_EQ(
      RunThree(progress, [](const std::string& name) { return name == "a" ? kStartAgain : kDone; }),
      kDone);
  EXPECT_EQ(progress.Read().rows,
            (std::vector<std::string>{"a: the process ended with status 75", "{b}", "{c}"}));
}

TEST(Supervise, OtherStatusesEndIt) {
  const Progress progress(PathFor("ends"));
  EXPECT_EQ(RunThree(progress, [](const std::string& name) { return name == "b" ? 2 : kDone; }), 2);
  EXPECT_EQ(progress.Read().rows, (std::vector<std::string>{"{a}"}));
}

// Between problems nobody is to blame: once more with care, then no more.
TEST(Supervise, DoesNotStartForEver) {
  const Progress progress(PathFor("between"));
  const std::string log = PathFor("attempts");
  const auto work = [&](const Attempt& attempt) {
    Progress(log).Meta(attempt.careful ? "careful" : "bold");
    raise(SIGSEGV);
    return kDone;
  };
  EXPECT_EQ(Supervise(progress, work, Lost), 2);
  EXPECT_EQ(Progress(log).Read().meta, "careful");
}

TEST(Supervise, AHangEndsWithItsAlarm) {
  const Progress progress(PathFor("hang"));
  EXPECT_EQ(RunThree(progress,
                     [](const std::string& name) {
                       if (name == "c") alarm(1), pause();
                       return kDone;
                     }),
            kDone);
  EXPECT_EQ(progress.Read().rows.at(2), "c: no end within the time limit");
}

}  // namespace
}  // namespace kiln::bench
