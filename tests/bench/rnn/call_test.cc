// The calls of bench/rnn: names, phases, and the algorithm that PyTorch asks for.
#include "bench/rnn/call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace kiln::bench {
namespace {

TEST(RnnCallTest, NamesAreUniqueAndPhasesHaveAVariant) {
  std::set<std::string> names, families;
  for (const NetworkCall& call : NetworkCalls()) {
    SCOPED_TRACE(call.name);
    EXPECT_TRUE(names.insert(call.name).second);
    families.insert(call.name.substr(0, call.name.find('/')));
    EXPECT_FALSE(call.phases.empty());
    ASSERT_EQ(call.chosen.size(), call.phases.size());
    for (const size_t variant : call.chosen) EXPECT_LT(variant, call.variants.size());
  }
  EXPECT_EQ(families,
            (std::set<std::string>{"attention", "baseline", "ctc", "deepbench", "types"}));
  EXPECT_GE(names.size(), 100u);
}

// The variants chosen for a call by its name: forward in training, then backward.
std::vector<std::string> ChosenIn(const std::string& name) {
  const std::vector<NetworkCall> calls = NetworkCalls();
  const auto at = std::ranges::find(calls, name, &NetworkCall::name);
  if (at == calls.end()) return {};
  return {at->variants[at->chosen[1]], at->variants[at->chosen[2]]};
}

TEST(RnnCallTest, PyTorchsAlgorithm) {
  using Names = std::vector<std::string>;
  const Names standard = {"standard", "standard"}, persistent = {"static", "static"};
  EXPECT_EQ(ChosenIn("baseline/lstm_f16_T50_B64_H512"), persistent);
  EXPECT_EQ(ChosenIn("baseline/tanh_f16_T100_B64_H1024"), persistent);
  // Two layers, one sequence, a gated unit, another type, more than 1024 units.
  EXPECT_EQ(ChosenIn("baseline/lstm_f16_T100_B64_H1024_L2"), standard);
  EXPECT_EQ(ChosenIn("baseline/lstm_f16_T256_B1_H1024"), standard);
  EXPECT_EQ(ChosenIn("baseline/gru_f16_T50_B64_H512"), standard);
  EXPECT_EQ(ChosenIn("types/tanh_bf16_T100_B64_H1024"), standard);
  EXPECT_EQ(ChosenIn("baseline/lstm_f16_T25_B32_H1536"), standard);
}

}  // namespace
}  // namespace kiln::bench
