// Graphs in all three forms with bytes and numbers of theirs changed: the tool's way from a text to
// a plan and to the interpreter's values refuses each with a sentence, or takes it. "Internal
// error" is no answer to an input, and neither is an exception.
//
// KILN_TEST_SEED=… is the first seed less one, KILN_TEST_MUTATIONS=… how many of each text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "cli/memory.h"
#include "cli/reference.h"
#include "compiler/compile.h"
#include "ir/graph/import.h"

namespace kiln::cli {
namespace {

int64_t Setting(const char* name, int64_t otherwise) {
  const char* const value = std::getenv(name);
  const int64_t read = value == nullptr ? otherwise : std::atoll(value);
  unsetenv(name);  // the library reports every KILN_* name that it does not know
  return read;
}

// Numbers at the ends of ranges, words of the three forms, and what is neither.
constexpr const char* kPieces[] = {"-1",
                                   "0",
                                   "1",
                                   "2",
                                   "3",
                                   "7",
                                   "9223372036854775807",
                                   "-9223372036854775808",
                                   "4294967296",
                                   "274877906944",
                                   "18446744073709551616",
                                   "65537",
                                   "1e400",
                                   "nan",
                                   "inf",
                                   "-inf",
                                   "0x1p-1074",
                                   "null",
                                   "[]",
                                   "{}",
                                   "[1]",
                                   "\"\"",
                                   "true",
                                   "\x1b[2J",
                                   "\xff",
                                   "_",
                                   "%x",
                                   "virtual",
                                   "by_value",
                                   "value=1",
                                   "uid=-1",
                                   "uid=1",
                                   "f16",
                                   "i8",
                                   "bool",
                                   "e4m3",
                                   "c64",
                                   "i4",
                                   "compute=i32",
                                   "strides=[0,0]",
                                   "[0,4]",
                                   "align=0",
                                   "matmul",
                                   "reduction",
                                   "reshape",
                                   "concat",
                                   "mode=max"};

struct Mutator {
  std::mt19937_64 random;
  size_t Below(size_t n) { return n == 0 ? 0 : random() % n; }

  // A number or a word of the text, as [first, past the last).
  std::pair<size_t, size_t> Token(const std::string& text) {
    const auto is_word = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
    };
    size_t first = Below(text.size());
    while (first > 0 && is_word(text[first - 1])) --first;
    size_t last = first;
    while (last < text.size() && is_word(text[last])) ++last;
    return {first, std::max(last, std::min(first + 1, text.size()))};
  }

  std::string Mutate(std::string text) {
    for (size_t i = 1 + Below(3); i > 0; --i) {
      const auto [first, last] = Token(text);
      const std::string piece = kPieces[Below(std::size(kPieces))];
      switch (Below(6)) {
        case 0:
        case 1:
        case 2:
          text.replace(first, last - first, piece);
          break;
        case 3: {  // another word of the same text
          const auto [from, to] = Token(text);
          text.replace(first, last - first, text.substr(from, to - from));
          break;
        }
        case 4:
          text.erase(first, last - first);
          break;
        default:
          text.insert(first, piece + " ");
          break;
      }
    }
    return text;
  }
};

// The fault of a status, in words; empty where it has none.
std::string WrongWith(const Status& status) {
  if (status.ok()) return "";
  if (status.code() == Code::kInternal) return "internal: " + status.message();
  if (status.message().empty()) return "no sentence";
  return "";
}

std::string Try(const std::string& text) {
  constexpr int64_t kMostBytes = int64_t{16} << 20;
  constexpr size_t kMostNodes = 64;
  const Result<graph::Graph> graph = graph::ImportAny(text);
  if (!graph.ok()) return WrongWith(graph.status());
  for (const graph::TensorId id : graph::Inputs(*graph))
    if ((*graph)[id].uid < 0) return "an input has no uid";
  if (graph->nodes.size() > kMostNodes) return "";
  for (const char* arch : {"cpu", "sm_90a"}) {
    const auto plan = compiler::Compile(*graph, *TargetFromArch(arch));
    if (const std::string wrong = WrongWith(plan.status()); !plan.ok() && !wrong.empty())
      return wrong;
  }
  if (RunBytes(*graph, 0, true) > kMostBytes || CheckBytes(*graph) > kMostBytes) return "";
  const auto reference = Interpret(*graph, RandomInputs(*graph, {}), 1);
  return reference.ok() ? "" : WrongWith(reference.status());
}

std::string TryAndCatch(const std::string& text) {
  try {
    return Try(text);
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const auto& entry : std::filesystem::directory_iterator("examples/graphs")) {
    const auto extension = entry.path().extension();
    if (extension != ".kiln" && extension != ".json") continue;
    std::ifstream file(entry.path());
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  constexpr int kLines = 40;
  std::ifstream recorded("tests/data/recorded_graphs.jsonl");
  int count = 0;
  for (std::string line; std::getline(recorded, line) && count < kLines; ++count)
    seeds.push_back(line);
  std::ranges::sort(seeds);
  return seeds;
}

TEST(MutatedGraphs, AreTakenOrRefusedInASentence) {
  unsetenv("KILN_ABORT_ON_CHECK");  // a failed check is to be caught, and shown with its input
  const int64_t first = Setting("KILN_TEST_SEED", 0);
  const int64_t mutations = Setting("KILN_TEST_MUTATIONS", 12);
  const std::vector<std::string> seeds = Seeds();
  ASSERT_GT(seeds.size(), 20u);
  int failures = 0;
  for (size_t s = 0; s < seeds.size() && failures < 8; ++s) {
    EXPECT_EQ(TryAndCatch(seeds[s]), "") << seeds[s];
    for (int64_t m = 0; m < mutations; ++m) {
      const auto seed = static_cast<uint64_t>(first + m) * 1000003 + s;
      const std::string text = Mutator{std::mt19937_64(seed)}.Mutate(seeds[s]);
      const std::string wrong = TryAndCatch(text);
      if (wrong.empty()) continue;
      ++failures;
      ADD_FAILURE() << "seed " << seed << ": " << wrong << "\n" << text;
    }
  }
}

}  // namespace
}  // namespace kiln::cli
