// Norms of f32 data far from zero, by interpretation of what either target runs: the mean and the
// deviation of 1000 +- 0.01 are those of an f64 sum over the same elements, to ten times what
// rounding the mean to f32 costs. A mean that is off by d makes squared distances d^2 larger; the
// nearest f32 is off by up to half a unit in its last place.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "compiler/engines/registry.h"
#include "tests/compiler/case_plans.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using graph::Graph;

graph::TensorId IdOf(const Graph& g, const std::string& name) {
  return static_cast<graph::TensorId>(std::ranges::find(g.tensors, name, &graph::Tensor::name) -
                                      g.tensors.begin());
}

constexpr double kEpsilon = 1e-12;

struct Data {
  double mean, deviation;
};
constexpr Data kData[] = {{1000, 0.01}, {-31000, 0.5}, {1, 1e-4}, {0, 1}};

// A norm over some dims of x, as a case line with {} in the place of x's layout.
struct Norm {
  const char* name;
  const char* line;
  std::vector<bool> reduced;
};

// Row-major places of `dims`; statistics of the reduced dims, one for each place of the others.
struct Statistics {
  std::vector<double> mean, inverse;
};
Statistics StatisticsOf(const Dims& dims, const std::vector<bool>& reduced,
                        const std::vector<double>& x, double epsilon) {
  int64_t kept = 1, length = 1;
  for (size_t d = 0; d < dims.size(); ++d) (reduced[d] ? length : kept) *= dims[d];
  const auto group_of = [&](size_t i) {
    int64_t rest = static_cast<int64_t>(i), group = 0, weight = 1;
    for (size_t d = dims.size(); d-- > 0; rest /= dims[d])
      if (!reduced[d]) {
        group += rest % dims[d] * weight;
        weight *= dims[d];
      }
    return static_cast<size_t>(group);
  };
  std::vector<double> sum(kept), squares(kept);
  for (size_t i = 0; i < x.size(); ++i) sum[group_of(i)] += x[i];
  const auto n = static_cast<double>(length);
  for (size_t i = 0; i < x.size(); ++i)
    squares[group_of(i)] += std::pow(x[i] - sum[group_of(i)] / n, 2);
  Statistics result;
  for (int64_t k = 0; k < kept; ++k) {
    result.mean.push_back(sum[k] / n);
    result.inverse.push_back(1 / std::sqrt(squares[k] / n + epsilon));
  }
  return result;
}

// True if the element at a row-major place is the first of its group.
bool IsFirst(const Dims& dims, const std::vector<bool>& reduced, size_t place) {
  auto rest = static_cast<int64_t>(place);
  for (size_t d = dims.size(); d-- > 0; rest /= dims[d])
    if (reduced[d] && rest % dims[d] != 0) return false;
  return true;
}

void ExpectNear(const Norm& norm, const char* layout, const char* arch, const Data& data,
                const std::vector<KnobSetting>& knobs, const char* engine) {
  const Graph g = GraphOf(fmt::format(fmt::runtime(norm.line), fmt::arg("layout", layout)));
  graph::TensorValues inputs = graph::RandomInputs(g, 7, true);
  const graph::TensorId x = IdOf(g, "x");
  std::mt19937 random(20261125);
  std::normal_distribution<double> around(data.mean, data.deviation);
  for (double& v : inputs[x]) v = static_cast<float>(around(random));
  inputs[IdOf(g, "eps")] = {kEpsilon};
  const Statistics want = StatisticsOf(g[x].dims, norm.reduced, inputs[x], kEpsilon);
  EngineChoice choice;
  if (engine != nullptr) choice = {.engine = EngineIndex(engine), .knobs = knobs};
  const Result<TileRun> run = RunTiles(g, *TargetFromArch(arch), inputs, choice);
  ASSERT_TRUE(run.ok()) << run.status().message();
  const double rounded = Spacing(DType::kF32, data.mean) / 2 / data.deviation;
  const auto& mean = run->outputs.at(IdOf(g, "m"));
  const auto& inverse = run->outputs.at(IdOf(g, "v"));
  ASSERT_EQ(mean.size(), want.mean.size());
  double worst_mean = 0, worst_inverse = 0;
  for (size_t i = 0; i < mean.size(); ++i) {
    worst_mean = std::max(worst_mean, std::abs(mean[i] - want.mean[i]) / data.deviation);
    worst_inverse = std::max(worst_inverse, std::abs(inverse[i] / want.inverse[i] - 1));
  }
  EXPECT_LE(worst_mean, 10 * rounded + 1e-6);
  EXPECT_LE(worst_inverse, 10 * rounded * rounded / 2 + 2e-6);
}

const Norm kNorms[] = {
    {"batch",
     "norm_forward(x:f32[9,6,20,20]{layout}, _, _, scale:f32[1,6,1,1], bias:f32[1,6,1,1], "
     "eps:f32[1,1,1,1]=1e-12) -> y:f32{layout}, m:f32[1,6,1,1], v:f32[1,6,1,1] mode=batch",
     {true, false, true, true}},
    {"instance",
     "norm_forward(x:f32[3,8,30,30]{layout}, _, _, scale:f32[1,8,1,1], bias:f32[1,8,1,1], "
     "eps:f32[1,1,1,1]=1e-12) -> y:f32{layout}, m:f32[3,8,1,1], v:f32[3,8,1,1] mode=instance",
     {false, false, true, true}},
    {"layer",
     "norm_forward(x:f32[5,12,9,13]{layout}, _, _, scale:f32[1,12,9,13], bias:f32[1,12,9,13], "
     "eps:f32[1,1,1,1]=1e-12) -> y:f32{layout}, m:f32[5,1,1,1], v:f32[5,1,1,1] mode=layer",
     {false, true, true, true}},
    {"long rows",
     "norm_forward(x:f32[2,7000,1,1]{layout}, _, _, scale:f32[1,7000,1,1], bias:f32[1,7000,1,1], "
     "eps:f32[1,1,1,1]=1e-12) -> y:f32{layout}, m:f32[2,1,1,1], v:f32[2,1,1,1] mode=layer",
     {false, true, true, true}},
    {"few channels",
     "norm_forward(x:f32[2,3,60,61]{layout}, _, _, scale:f32[1,3,1,1], bias:f32[1,3,1,1], "
     "eps:f32[1,1,1,1]=1e-12) -> y:f32{layout}, m:f32[1,3,1,1], v:f32[1,3,1,1] mode=batch",
     {true, false, true, true}},
};

TEST(StatisticsTest, FarFromZero) {
  for (const Norm& norm : kNorms)
    for (const char* layout : {"", "@nhwc"})
      for (const char* arch : {"sm_90a", "cpu"})
        for (const Data& data : kData) {
          SCOPED_TRACE(fmt::format("{}{} on {}: {} +- {}", norm.name, layout, arch, data.mean,
                                   data.deviation));
          ExpectNear(norm, layout, arch, data, {}, nullptr);
        }
}

// However columns and rows are shared, also by plans that need no workspace.
TEST(StatisticsTest, FarFromZeroWithEveryKnob) {
  for (const char* engine : {"columns", "rows"}) {
    const Engine& row = Engines()[EngineIndex(engine)];
    const bool is_columns = std::string(engine) == "columns";
    for (const Norm& norm : {kNorms[is_columns ? 0 : 2], kNorms[is_columns ? 4 : 3]})
      for (const char* layout : {"", "@nhwc"}) {
        if (!is_columns && std::string(layout) == "@nhwc") continue;
        for (const KnobRow& knob : row.knobs)
          for (const int value : knob.domain) {
            SCOPED_TRACE(
                fmt::format("{} {}{}: {}={}", engine, norm.name, layout, knob.name, value));
            ExpectNear(norm, layout, "sm_90a", kData[0], {{knob.name, value}}, engine);
          }
      }
  }
}

// A first element that lies far from all others costs nothing that the variance tells.
TEST(StatisticsTest, FirstElementOutlies) {
  const Graph g = GraphOf(
      "norm_forward(x:f32[4000,4], _, _, scale:f32[1,4], bias:f32[1,4], eps:f32[1]=1e-12) -> "
      "y:f32, m:f32[1,4], v:f32[1,4] mode=batch");
  graph::TensorValues inputs = graph::RandomInputs(g, 7, true);
  const graph::TensorId x = IdOf(g, "x");
  std::mt19937 random(3);
  std::normal_distribution<double> around(1000, 0.01);
  for (double& v : inputs[x]) v = static_cast<float>(around(random));
  inputs[IdOf(g, "eps")] = {kEpsilon};
  for (size_t c = 0; c < 4; ++c) inputs[x][c] = 0;
  const Statistics want = StatisticsOf(g[x].dims, {true, false}, inputs[x], kEpsilon);
  for (const char* arch : {"sm_90a", "cpu"}) {
    const Result<TileRun> run = RunTiles(g, *TargetFromArch(arch), inputs);
    ASSERT_TRUE(run.ok()) << run.status().message();
    for (size_t c = 0; c < 4; ++c) {
      EXPECT_NEAR(run->outputs.at(IdOf(g, "m"))[c], want.mean[c], 2e-4) << arch;
      EXPECT_NEAR(run->outputs.at(IdOf(g, "v"))[c] / want.inverse[c], 1, 2e-6) << arch;
    }
  }
}

// Means beside zero are as near as sums around zero make them, wherever the first element lies.
TEST(StatisticsTest, MeansBesideZero) {
  for (const Norm& norm : {kNorms[0], kNorms[2]})
    for (const char* layout : {"", "@nhwc"}) {
      SCOPED_TRACE(fmt::format("{}{}", norm.name, layout));
      const Graph g = GraphOf(fmt::format(fmt::runtime(norm.line), fmt::arg("layout", layout)));
      graph::TensorValues inputs = graph::RandomInputs(g, 7, true);
      const graph::TensorId x = IdOf(g, "x");
      std::mt19937 random(11);
      std::normal_distribution<double> around(0, 1);
      for (size_t i = 0; i < inputs[x].size(); ++i)
        inputs[x][i] = IsFirst(g[x].dims, norm.reduced, i) ? 3 : static_cast<float>(around(random));
      inputs[IdOf(g, "eps")] = {kEpsilon};
      const Statistics want = StatisticsOf(g[x].dims, norm.reduced, inputs[x], kEpsilon);
      const Result<TileRun> run = RunTiles(g, *TargetFromArch("sm_90a"), inputs);
      ASSERT_TRUE(run.ok()) << run.status().message();
      double worst = 0;
      for (size_t k = 0; k < want.mean.size(); ++k)
        worst = std::max(worst, std::abs(run->outputs.at(IdOf(g, "m"))[k] - want.mean[k]));
      EXPECT_LE(worst, 0x1p-27);
    }
}

// Groups that begin with an infinity, NaN or a huge number have the formula's mean: a distance from
// such an element overflows, or is NaN in every place.
TEST(StatisticsTest, FirstElementIsHuge) {
  const double largest = std::numeric_limits<float>::max(), infinity = HUGE_VAL;
  for (const Norm& norm : kNorms)
    for (const char* layout : {"", "@nhwc"})
      for (const char* arch : {"sm_90a", "cpu"}) {
        const Graph g = GraphOf(fmt::format(fmt::runtime(norm.line), fmt::arg("layout", layout)));
        const graph::TensorId x = IdOf(g, "x");
        for (const double first :
             {infinity, -infinity, std::nan(""), largest, -largest, 0x1p65, -0x1p63}) {
          SCOPED_TRACE(fmt::format("{}{} on {}: {}", norm.name, layout, arch, first));
          graph::TensorValues inputs = graph::RandomInputs(g, 7, true);
          std::ranges::fill(inputs[x], 1);
          size_t groups = 0;
          for (size_t i = 0; i < inputs[x].size(); ++i)
            if (IsFirst(g[x].dims, norm.reduced, i)) {
              inputs[x][i] = first;
              ++groups;
            }
          const Result<TileRun> run = RunTiles(g, *TargetFromArch(arch), inputs);
          ASSERT_TRUE(run.ok()) << run.status().message();
          const auto& mean = run->outputs.at(IdOf(g, "m"));
          ASSERT_EQ(mean.size(), groups);
          const auto length = static_cast<double>(inputs[x].size() / groups);
          const double want = (first + (length - 1)) / length;
          for (const double m : mean) {
            if (std::isfinite(want))
              EXPECT_NEAR(m / want, 1, 1e-5);
            else
              EXPECT_TRUE(std::isnan(want) ? std::isnan(m) : m == want) << m;
          }
        }
      }
}

}  // namespace
}  // namespace kiln::compiler
