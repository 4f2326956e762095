// Side operands with other extents than usual: ours takes what NVIDIA's library takes, but where
// the table below says why not. The answers of NVIDIA's 9.19 are side_operands.tsv, which
// `ask_side_operands` writes.
#include "tests/api/backend/side_operands.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace kiln::testing {
namespace {

// Rows of the record by SideQuestion::Key.
std::map<std::string, SideAnswer> Record() {
  std::map<std::string, SideAnswer> record;
  std::ifstream file("tests/api/backend/side_operands.tsv");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::vector<std::string> fields;
    std::istringstream in(line);
    for (std::string field; std::getline(in, field, '\t');) fields.push_back(field);
    EXPECT_EQ(fields.size(), 7U) << line;
    if (fields.size() != 7) continue;
    record[fields[0] + "\t" + fields[1] + "\t" + fields[2]] = {
        .operation = fields[4], .graph = fields[5], .plans = std::stoi(fields[6])};
  }
  return record;
}

// Rows in which ours differs: `pattern` is that of the key, with blanks in the place of tabs.
struct Exception {
  const char* pattern;
  const char* why;
};
constexpr const char* kIgnores =
    "NVIDIA's engines read and write as many elements as x has channels or rows, whatever is "
    "declared: these are others, and what was meant is not clear";
constexpr const char* kIgnoresBroadcast =
    "NVIDIA's engines take any extents for a broadcast operand whose own are neither x's nor 1";
constexpr Exception kExceptions[] = {
    {"gen_stats .* (ones|dim[023]_doubled)", kIgnores},
    {"(batch|instance)_norm(_bwd)? (scale|mean).* (dim[023]_doubled|dim1_halved)", kIgnores},
    {"batch_norm_bwd mean\\+inv_variance ones", kIgnores},
    {"instance_norm(_bwd)? mean\\+inv_variance (ones|reversed|dim.*)", kIgnores},
    {"layer_norm_inference mean\\+inv_variance (without_first|dim0_halved|dim[123]_doubled)",
     kIgnores},
    {"(conv_bias|matmul_bias) b (reversed|dim._doubled|dim._halved|dim._and_one)",
     kIgnoresBroadcast},
    {"select mask (reversed|dim._halved)", kIgnoresBroadcast},
};

const char* ReasonOf(const std::string& key) {
  std::string text = key;
  for (char& c : text)
    if (c == '\t') c = ' ';
  for (const Exception& e : kExceptions)
    if (std::regex_match(text, std::regex(e.pattern))) return e.why;
  return nullptr;
}

TEST(SideOperands, WhatNvidiaTakesIsTaken) {
  const Library ours("api/libcudnn.so.9");
  ASSERT_TRUE(ours.loaded()) << dlerror();
  const auto record = Record();
  int taken = 0;
  for (const SideQuestion& question : SideQuestions()) {
    const auto found = record.find(question.Key());
    ASSERT_NE(found, record.end()) << question.Key() << " is not in the record: ask again";
    const SideAnswer answer = Ask(ours, question, "");
    if (question.variant == "as_usual" && found->second.graph == "SUCCESS") {
      EXPECT_EQ(answer.graph, "SUCCESS") << question.Key() << ": " << answer.operation;
    }
    if (!found->second.IsTaken()) continue;
    ++taken;
    if (const char* why = ReasonOf(question.Key()); why != nullptr) {
      EXPECT_NE(answer.graph, "SUCCESS")
          << question.Key() << ": a reason is given, and there is no difference: " << why;
      continue;
    }
    EXPECT_EQ(answer.operation, "SUCCESS") << question.Key();
    EXPECT_EQ(answer.graph, "SUCCESS") << question.Key();
  }
  EXPECT_GT(taken, 300) << "the record has become short";
}

// On a GPU that is only described.
constexpr const char* kDevice =
    R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],
"regsPerBlock":65536,"multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,
"maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,
"maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":6,"isTccDriver":0,
"supportCoopLaunch":1,"totalGlobalMem":150109880320,"smClockRateKHz":1980000,
"memClockRateKHz":3201000,"l2CacheSize":62914560,"cudaDeviceId":0,"deviceVer":900,
"driverVer":13000,"deviceName":"NVIDIA H200"})";

TEST(SideOperands, EveryModeOfTheHeuristicsHasPlansForWhatIsUsual) {
  const Library ours("api/libcudnn.so.9");
  ASSERT_TRUE(ours.loaded()) << dlerror();
  std::string last;
  for (const SideQuestion& question : SideQuestions()) {
    if (question.variant != "as_usual" || question.operation == last) continue;
    last = question.operation;
    const SideAnswer answer = Ask(ours, question, kDevice);
    if (answer.graph != "SUCCESS") continue;
    EXPECT_EQ(answer.refused, 0) << question.operation;
    EXPECT_GT(answer.plans, 0) << question.operation;
  }
}

}  // namespace
}  // namespace kiln::testing
