// The results of a benchmark: whole JSON after each row, and a sentence where they cannot be kept.
#include "bench/support/case_bench.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace kiln::bench {
namespace {

Options To(const std::filesystem::path& out) {
  Options options;
  options.out = out.string();
  options.commit = "0123abc";
  options.date = "2026-11-22";
  return options;
}

TEST(CaseBench, ResultsAreWholeAfterEachRow) {
  const auto out = std::filesystem::path(::testing::TempDir()) / "new_folder" / "rows.json";
  std::string rows;
  for (int row = 0; row < 3; ++row) {
    ASSERT_TRUE(WriteResults(To(out), "bandwidth", "a \"GPU\"", 91900, rows));
    const auto json = nlohmann::json::parse(std::ifstream(out));
    EXPECT_EQ(json["rows"].size(), static_cast<size_t>(row));
    EXPECT_EQ(json["device"], "a \"GPU\"");
    EXPECT_EQ(json["commit"], "0123abc");
    rows += std::string(rows.empty() ? "" : ",\n") + R"({"name": "add"})";
  }
  std::filesystem::remove_all(out.parent_path());
}

TEST(CaseBench, ResultsThatCannotBeKeptAreAnError) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "a_folder.json";
  std::filesystem::create_directories(folder / "full");
  EXPECT_FALSE(WriteResults(To(folder), "bandwidth", "a GPU", 91900, ""));
  EXPECT_TRUE(std::filesystem::is_directory(folder / "full"));
  EXPECT_FALSE(std::filesystem::exists(folder.string() + ".part"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace kiln::bench
