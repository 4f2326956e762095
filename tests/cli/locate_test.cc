// Places of mistakes: paths in JSON, tensors and operations in text, and texts that end anywhere.
#include "cli/locate.h"

#include <gtest/gtest.h>

#include <string>

namespace kiln::cli {
namespace {

// The place of `mark` in a text of one line.
int64_t ColumnOf(std::string_view text, std::string_view mark) {
  return static_cast<int64_t>(text.find(mark)) + 1;
}

TEST(SplitPlace, TakesThePlaceOffTheFront) {
  std::string sentence = "12:3: expected ','";
  EXPECT_EQ(SplitPlace(sentence), (Place{12, 3}));
  EXPECT_EQ(sentence, "expected ','");
}

TEST(SplitPlace, LeavesOtherSentencesAlone) {
  for (const char* text :
       {"", "12", "12:", "12:3", "12:3:", "%x: has no extents", "12:x: y", "nodes: 3"}) {
    std::string sentence = text;
    EXPECT_FALSE(SplitPlace(sentence)) << text;
    EXPECT_EQ(sentence, text);
  }
}

TEST(Locate, FollowsJsonPaths) {
  const std::string text =
      R"({"skip": {"a": [1, {"nodes": "}]"}], "b": "\"{"}, "nodes": [{"x": 1}, {"in": {"A.b::Y": [4, 5]}}]})";
  const auto column = [&](std::string_view sentence) {
    const auto place = Locate(text, sentence);
    return place ? place->column : -1;
  };
  EXPECT_EQ(column("nodes[1].in.A.b::Y[1]: is 5"), ColumnOf(text, "5]}}"));
  EXPECT_EQ(column("relu: nodes[0].x: is 1"), ColumnOf(text, "1}, {\"in"));
  EXPECT_EQ(column("skip.b: is odd"), ColumnOf(text, R"("\"{")"));
}

TEST(Locate, GivesTheDeepestValueThatExists) {
  const std::string text = R"({"nodes": [{"x": 1}]})";
  EXPECT_EQ(Locate(text, "nodes[0].y: is missing")->column, ColumnOf(text, "{\"x"));
  EXPECT_EQ(Locate(text, "nodes[7].y: is missing")->column, ColumnOf(text, "[{"));
  EXPECT_FALSE(Locate(text, "tensors: is missing"));
}

TEST(Locate, CountsLines) {
  EXPECT_EQ(Locate("{\n  \"nodes\": [1,\n    2]}", "nodes[1]: is 2"), (Place{3, 5}));
}

TEST(Locate, FindsTensorsAndOperationsOfText) {
  const std::string text =
      "# %y = not here, nor tensor %y\n"
      "graph g {\n"
      "  tensor %x f32 [1]\n"
      "  tensor %y f32 [1]\n"
      "  tensor %yy f32 [1]\n"
      "  %yy, %y = gen_stats(%x) compute=f32\n"
      "}\n";
  EXPECT_EQ(Locate(text, "%y: has no extents"), (Place{4, 10}));
  EXPECT_EQ(Locate(text, "%x: has no extents"), (Place{3, 10}));
  EXPECT_EQ(Locate(text, "%yy, %y = gen_stats: has 3 inputs"), (Place{6, 3}));
  EXPECT_EQ(Locate(text, "\"n\" (%y = gen_stats): has 3 inputs"), (Place{6, 8}));
  EXPECT_FALSE(Locate(text, "the graph has a cycle"));
  EXPECT_FALSE(Locate(text, "%z: is absent"));
}

TEST(Locate, FindsNamesInJson) {
  const std::string text = R"({"tensors": {"1": {"name": "image"}}})";
  EXPECT_EQ(Locate(text, "%image: alignment 3")->column, ColumnOf(text, "\"image\""));
}

// Whatever the text and the sentence: no crash, and a place inside the text.
TEST(Locate, SurvivesTextThatIsCutOff) {
  const std::string text = R"({"nodes": [{"in": {"X": "a\"b", "Y": [1, {"Z": 2}]}}]})";
  for (size_t length = 0; length <= text.size(); ++length) {
    for (const char* sentence :
         {"nodes[0].in.Y[1].Z: x", "nodes[0].in.X: x", "%X: y", "nodes[: x"}) {
      const auto place = Locate(std::string_view(text).substr(0, length), sentence);
      EXPECT_LE(place ? place->column : 0, static_cast<int64_t>(length) + 2);
    }
  }
}

}  // namespace
}  // namespace kiln::cli
