// Every case of tests/cases through the public C API of the built library, against the oracle.
//
// Fresh random data from a printed seed (KILN_TEST_SEED=… repeats a run, KILN_TEST_FILTER=… picks
// cases by a part of file:list/name). Outputs are poisoned first; a case that the library refuses
// fails. Cases of the smoke lists run engine configs from all over the heuristics' list, others the
// first. KILN_DEVICE=cpu runs on the host. numerics_cpu_test and numerics_gpu_test are both this
// program.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "tests/support/runner.h"

namespace kiln::testing {
namespace {

// The most configs of a case that run; evenly picked where the heuristics give more.
constexpr size_t kMostConfigs = 8;

struct Environment {
  std::unique_ptr<Device> device;
  std::unique_ptr<Cudnn> cudnn;
};

class CaseTest : public ::testing::Test {
 public:
  CaseTest(const Environment& environment, const Case& c) : environment_(environment), case_(c) {}

  void TestBody() override {
    const uint64_t seed = TestOptions::Get().seed;
    SCOPED_TRACE(case_.text + "\nKILN_TEST_SEED=" + std::to_string(seed));
    CaseRunner runner(*environment_.cudnn, *environment_.device, case_);
    const ClientError error = runner.Prepare();
    if (case_.expects_bad_param) {
      EXPECT_TRUE(error.is_bad_param())
          << "expected a bad-parameter status, got " << error.status << " " << error.text;
      return;
    }
    ASSERT_TRUE(error.ok()) << error.text;
    const CaseData before = MakeData(case_, seed);
    // Exact operands, and f32 ones rounded to TF32, for configs that say so.
    std::map<double, std::map<int, oracle::Dense>> expected;
    const size_t configs = case_.list == "smoke" ? runner.configs() : 1;
    const size_t step = std::max<size_t>(configs / kMostConfigs, 1);
    for (size_t i = 0; i < configs; i += step) {
      CaseData after;
      const ClientError failed = runner.Run(i, before, &after);
      ASSERT_TRUE(failed.ok()) << "engine config " << i << ": " << failed.text;
      const EvaluateOptions precision = runner.PrecisionOf(i);
      auto& wanted = expected[precision.contraction_operand_roundoff];
      if (wanted.empty()) wanted = Evaluate(case_, before, precision);
      EXPECT_EQ(CheckRun(case_, before, after, wanted), "") << "engine config " << i;
    }
  }

 private:
  const Environment& environment_;
  const Case& case_;
};

int Main() {
  const TestOptions& options = TestOptions::Get();
  static Environment environment;
  static const CaseFile file = LoadAllCases(options);
  for (const std::string& error : file.errors) std::fprintf(stderr, "%s\n", error.c_str());
  if (!file.errors.empty() || file.cases.empty()) return 2;
  std::string error;
  environment.device = OpenTestDevice(&error);
  if (environment.device)
    environment.cudnn = Cudnn::Open(options.cudnn, environment.device->stream(), &error);
  if (!environment.cudnn) {
    std::fprintf(stderr, "library '%s': %s\n", options.cudnn.c_str(), error.c_str());
    return 2;
  }
  std::printf("%s on %s, KILN_TEST_SEED=%llu\n", options.cudnn.c_str(),
              environment.device->name().c_str(), static_cast<unsigned long long>(options.seed));
  for (const Case& c : file.cases) {
    const std::string suite = c.file.substr(0, c.file.find('.')) + "_" + c.list;
    ::testing::RegisterTest(suite.c_str(), c.name.c_str(), nullptr, nullptr, c.file.c_str(), c.line,
                            [&c]() -> ::testing::Test* { return new CaseTest(environment, c); });
  }
  const int result = RUN_ALL_TESTS();
  environment.cudnn.reset();
  return result;
}

}  // namespace
}  // namespace kiln::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return kiln::testing::Main();
}
