// Records as text: print and parse are inverse, damage is found, merging is a union, and nothing is
// used that does not fit this build or the group.
#include "compiler/tune/record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "compiler/compile.h"
#include "compiler/engines/registry.h"
#include "ir/graph/builder.h"

namespace kiln::compiler {
namespace {

Group MatmulGroup(int64_t m) {
  graph::GraphBuilder b("matmul");
  const auto x = b.Input("a", DType::kF32, {1, m, 40}), z = b.Input("b", DType::kF32, {1, 40, 24});
  b.Output(b.Apply(graph::GraphOp::kMatmul, {x, z}, graph::MatmulAttrs{}), "y", DType::kF32);
  auto group = LeadingGroupOf(*b.Finish(), *TargetFromArch("sm_90a"));
  return **group;
}

Record Sample(std::string problem_digit, std::string knobs, double microseconds) {
  Record r;
  r.problem = {.hash = std::string(32, problem_digit[0]),
               .device = "NVIDIA H200",
               .multiprocessors = 132,
               .work = "conv_fprop x:f16:1x2"};
  r.engine = "contract_simt";
  r.version = 1;
  r.knobs = std::move(knobs);
  r.microseconds = microseconds;
  r.spread = 0.01;
  r.date = "2026-11-22T04:00:00Z";
  r.library = "abcdef";
  return r;
}

Record Rejected(std::string problem_digit, std::string knobs) {
  Record r = Sample(std::move(problem_digit), std::move(knobs), 0);
  r.spread = 0;
  r.rejected = "element 3 is wrong";
  return r;
}

TEST(Record, PrintAndParseAreInverse) {
  std::vector<Record> records = {Sample("a", "tile_m=64,tile_n=64", 12.345), Sample("b", "", 1e-3),
                                 Rejected("c", "x=1")};
  records[0].confirmed = true;
  for (const Record& record : records) {
    const std::string line = ToLine(record);
    EXPECT_EQ(std::ranges::count(line, '\n'), 0);
    const Result<Record> parsed = ParseRecord(line);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message() << "\n" << line;
    EXPECT_EQ(*parsed, record) << line;
  }
}

TEST(Record, ValuesCannotBreakTheLine) {
  Record record = Rejected("a", "x=1");
  record.rejected = "two\nlines\tand=tabs";
  const Result<Record> parsed = ParseRecord(ToLine(record));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->rejected, "two lines and=tabs");
}

TEST(Record, EveryChangedByteIsFound) {
  const std::string line = ToLine(Sample("a", "tile_m=64", 12.5));
  for (size_t i = 0; i < line.size(); ++i) {
    std::string damaged = line;
    damaged[i] ^= 1;
    EXPECT_FALSE(ParseRecord(damaged).ok()) << damaged;
  }
  for (size_t n = 0; n < line.size(); ++n)
    EXPECT_FALSE(ParseRecord(std::string_view(line).substr(0, n)).ok()) << n;
}

TEST(Record, AWholeLineBehindOneThatWasCutOffIsRead) {
  const Record record = Sample("a", "tile_m=64", 12.5);
  const std::string line = ToLine(record);
  for (size_t n : {size_t{1}, size_t{14}, size_t{40}, line.size() - 1}) {
    const Result<Record> parsed = ParseRecord(line.substr(0, n) + line);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(*parsed, record);
  }
}

// Lines whose sum fits, with anything in them: refused with a sentence, or read.
TEST(Record, AnyTextIsRefusedOrRead) {
  constexpr unsigned kSeed = 20261122;
  std::mt19937 random(kSeed);
  const std::string line = ToLine(Sample("a", "tile_m=64,tile_n=128", 12.5));
  int read = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = line.substr(0, line.rfind("\tsum="));
    for (unsigned k = 0; k < 1 + random() % 3; ++k) {
      const size_t at = 14 + random() % (text.size() - 14);
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 20);
          break;
        case 2:
          text.insert(at, text.substr(14, random() % 60));
          break;
        default:
          text.insert(at, 1, "\t=/,.-e9"[random() % 8]);
      }
      if (text.size() < 40) break;
    }
    const Result<Record> parsed = ParseRecord(Sealed(text));
    parsed.ok() ? ++read : ++refused;
    if (!parsed.ok()) {
      EXPECT_GT(parsed.status().message().size(), 10u);
      continue;
    }
    EXPECT_TRUE(parsed->is_rejected() || parsed->microseconds > 0) << text;
    const Result<Record> again = ParseRecord(ToLine(*parsed));
    ASSERT_TRUE(again.ok()) << again.status().message() << "\n" << ToLine(*parsed);
    EXPECT_EQ(ToLine(*again), ToLine(*parsed));
    (void)CandidateOf(*parsed, MatmulGroup(8), *TargetFromArch("sm_90a"));
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 100);
}

TEST(Record, OnlyOneIsConfirmed) {
  const std::string line = ToLine(Sample("a", "tile_m=64", 12.5));
  const std::string text = line.substr(0, line.rfind("\tsum="));
  const struct {
    const char* field;
    bool is_read, confirmed;
  } cases[] = {{"", true, false},
               {"\tconfirmed=0", true, false},
               {"\tconfirmed=1", true, true},
               {"\tconfirmed=", false, false},
               {"\tconfirmed=no", false, false}};
  for (const auto& c : cases) {
    const Result<Record> parsed = ParseRecord(Sealed(text + c.field));
    ASSERT_EQ(parsed.ok(), c.is_read) << c.field;
    if (parsed.ok()) {
      EXPECT_EQ(parsed->confirmed, c.confirmed) << c.field;
    }
  }
}

TEST(Merge, IsAUnionWhoseOrderOfInputsDoesNotShow) {
  Record confirmed = Sample("a", "x=1", 11);
  confirmed.confirmed = true;
  std::vector<Record> all = {Sample("b", "x=1", 5),  Sample("a", "x=1", 10), confirmed,
                             Sample("a", "x=2", 12), Rejected("a", "x=3"),   Sample("a", "x=3", 9)};
  const std::vector<Record> want = {Sample("a", "x=3", 9), confirmed, Sample("a", "x=2", 12),
                                    Rejected("a", "x=3"), Sample("b", "x=1", 5)};
  std::ranges::sort(all, {}, ToLine);
  int orders = 0;
  do {
    const std::vector<Record> merged = Merge(all);
    ASSERT_EQ(merged, want);
    std::vector<Record> twice = merged;
    twice.insert(twice.end(), all.begin(), all.end());
    ASSERT_EQ(Merge(twice), want);
    ++orders;
  } while (std::ranges::next_permutation(all, {}, ToLine).found);
  EXPECT_EQ(orders, 720);
}

TEST(Problem, DependsOnExtentsStridesAndDeviceAlone) {
  Target target = *TargetFromArch("sm_90a");
  const Problem a = ProblemOf(MatmulGroup(8), target);
  EXPECT_EQ(a, ProblemOf(MatmulGroup(8), target));
  EXPECT_NE(a.hash, ProblemOf(MatmulGroup(9), target).hash);
  Group renamed = MatmulGroup(8);
  renamed.graph.name = "other";
  EXPECT_EQ(a.hash, ProblemOf(renamed, target).hash);
  Group strided = MatmulGroup(8);
  strided.graph.tensors[0].strides[1] += 8;
  EXPECT_NE(a.hash, ProblemOf(strided, target).hash);
  ++target.multiprocessors;
  EXPECT_NE(a.hash, ProblemOf(MatmulGroup(8), target).hash);
  EXPECT_NE(a.work.find("1x8x40"), std::string::npos) << a.work;
}

TEST(CandidateOf, RefusesInWordsWhatCannotBeUsed) {
  const Target target = *TargetFromArch("sm_90a");
  const Group group = MatmulGroup(8);
  const Candidate candidate = RankCandidates(group, target).front();
  const Record good = RecordOf(ProblemOf(group, target), candidate);
  const Result<Candidate> back = CandidateOf(good, group, target);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(*back, candidate);
  const auto refusal = [&](auto change) {
    Record record = good;
    change(record);
    const Result<Candidate> result = CandidateOf(record, group, target);
    return result.ok() ? "" : result.status().message();
  };
  EXPECT_NE(refusal([](Record& r) { r.engine = "abacus"; }).find("abacus"), std::string::npos);
  EXPECT_NE(refusal([](Record& r) { ++r.version; }).find("version"), std::string::npos);
  const std::string knob{Engines()[static_cast<size_t>(candidate.engine)].knobs[0].name};
  EXPECT_NE(refusal([&](Record& r) { r.knobs = knob + "=63"; }).find("63"), std::string::npos);
  EXPECT_NE(refusal([](Record& r) { r.knobs = "depth=1"; }).find("depth"), std::string::npos);
  EXPECT_NE(refusal([&](Record& r) { r.knobs = knob; }), "");
  EXPECT_NE(refusal([](Record& r) { r.rejected = "wrong"; }), "");
  EXPECT_NE(refusal([](Record& r) {
              r.engine = "pointwise";
              r.knobs = "";
            }),
            "");
}

}  // namespace
}  // namespace kiln::compiler
