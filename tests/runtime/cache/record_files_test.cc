// Record files: many processes append, a cut-off line costs itself alone, replacing is whole.
#include "runtime/cache/record_files.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "tests/runtime/cache/temporary_folder.h"

namespace kiln::runtime {
namespace {

TEST(RecordFiles, ManyProcessesAppend) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/new/records.txt";
  constexpr int kProcesses = 8, kLines = 200;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (int i = 0; i < kLines; ++i) {
        const std::string line = fmt::format("{} {} {}", p, i, std::string(600 + p, 'x'));
        if (!AppendRecordLine(file, line).ok()) ::_exit(1);
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const auto lines = ReadRecordLines(file);
  ASSERT_TRUE(lines.ok()) << lines.status().message();
  std::map<int, int> next;
  for (const std::string& line : *lines) {
    int p = -1, i = -1;
    ASSERT_EQ(std::sscanf(line.c_str(), "%d %d ", &p, &i), 2) << line;
    EXPECT_EQ(line, fmt::format("{} {} {}", p, i, std::string(600 + p, 'x')));
    EXPECT_EQ(i, next[p]++);
  }
  EXPECT_EQ(lines->size(), size_t{kProcesses * kLines});
}

TEST(RecordFiles, ALineThatWasCutOffIsClosed) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/records.txt";
  std::ofstream(file) << "# a comment\nwhole\n\ncut of";
  ASSERT_TRUE(AppendRecordLine(file, "next").ok());
  ASSERT_TRUE(AppendRecordLine(file, "last").ok());
  EXPECT_EQ(*ReadRecordLines(file), (std::vector<std::string>{"whole", "cut of", "next", "last"}));
}

TEST(RecordFiles, AreListedAndReplaced) {
  const TemporaryFolder folder;
  EXPECT_TRUE(RecordFiles(folder.path() + "/nothing").empty());
  for (const char* name : {"b.txt", "a.txt", "c.json"})
    ASSERT_TRUE(ReplaceFile(fmt::format("{}/in/{}", folder.path(), name), "one\n").ok());
  ASSERT_TRUE(ReplaceFile(folder.path() + "/in/a.txt", "two\n").ok());
  EXPECT_EQ(RecordFiles(folder.path() + "/in"),
            (std::vector{folder.path() + "/in/a.txt", folder.path() + "/in/b.txt"}));
  EXPECT_EQ(*ReadRecordLines(folder.path() + "/in/a.txt"), std::vector<std::string>{"two"});
  EXPECT_FALSE(ReadRecordLines(folder.path() + "/nothing").ok());
  const auto left = std::distance(std::filesystem::directory_iterator(folder.path() + "/in"),
                                  std::filesystem::directory_iterator());
  EXPECT_EQ(left, 3) << "no staging file stays";
}

}  // namespace
}  // namespace kiln::runtime
