// The mode tables against the enums of the C interface.
#include "ir/graph/attrs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace kiln::graph {
namespace {

// Enumerators of one type of api/spec/enums.tsv, by their last listed value.
std::map<std::string, int> EnumOf(const std::string& type, const std::string& prefix) {
  std::ifstream file("api/spec/enums.tsv");
  std::map<std::string, int> values;
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, '\t');) cells.push_back(cell);
    if (cells.size() < 3 || cells[0] != type || !cells[1].starts_with(prefix)) continue;
    std::string name = cells[1].substr(prefix.size());
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    values[name] = std::stoi(cells.back());
  }
  return values;
}

TEST(PointwiseMode, TableIsTheEnum) {
  const auto modes = EnumOf("cudnnPointwiseMode_t", "CUDNN_POINTWISE_");
  ASSERT_GE(modes.size(), 50u);
  for (const auto& [name, value] : modes) {
    const auto by_text = PointwiseModeFromText(name);
    ASSERT_TRUE(by_text.has_value()) << name;
    EXPECT_EQ(Info(*by_text).cudnn_value, value) << name;
    EXPECT_EQ(PointwiseModeFromCudnn(value), by_text) << name;
    EXPECT_EQ(Info(*by_text).is_backward, name.ends_with("_bwd")) << name;
  }
  EXPECT_FALSE(PointwiseModeFromCudnn(999).has_value());
  EXPECT_FALSE(PointwiseModeFromText("relu").has_value());
}

TEST(NormMode, ValuesAreTheEnums) {
  const auto modes = EnumOf("cudnnBackendNormMode_t", "CUDNN_");
  ASSERT_EQ(modes.size(), 6u);
  for (const auto& [name, value] : modes) {
    ASSERT_TRUE(name.ends_with("_norm")) << name;
    const auto mode = NormModeFromText(name.substr(0, name.size() - 5));
    ASSERT_TRUE(mode.has_value()) << name;
    EXPECT_EQ(static_cast<int>(*mode), value) << name;
    EXPECT_EQ(std::string(Text(*mode)) + "_norm", name);
  }
  EXPECT_FALSE(NormModeFromText("layer_norm").has_value());
}

TEST(ReductionMode, ValuesAreTheEnums) {
  const auto modes = EnumOf("cudnnReduceTensorOp_t", "CUDNN_REDUCE_TENSOR_");
  ASSERT_EQ(modes.size(), 9u);
  for (const auto& [name, value] : modes) {
    const auto mode = ReductionModeFromText(name);
    ASSERT_TRUE(mode.has_value()) << name;
    EXPECT_EQ(static_cast<int>(*mode), value) << name;
    EXPECT_EQ(Text(*mode), name);
  }
}

TEST(Combine, IdentitiesAreNeutral) {
  for (const Combine combine : {Combine::kAdd, Combine::kMul, Combine::kMin, Combine::kMax}) {
    EXPECT_EQ(CombineFromText(Text(combine)), combine);
    for (const double x : {-3.5, 0.0, 7.0})
      EXPECT_EQ(EvalScalar(ScalarOf(combine), IdentityOf(combine), x), x);
  }
}

}  // namespace
}  // namespace kiln::graph
