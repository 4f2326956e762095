// The same cases on NVIDIA's libcudnn.so.9 and on ours, side by side in one process on one GPU.
//
// Ours must match the oracle, and NVIDIA's wherever NVIDIA's matches the oracle. Cases that NVIDIA refuses are
// counted and listed. Where NVIDIA's own result lies outside the oracle's tolerance (widened, since its fast
// paths round operands to TF32 and use approximate functions) the case goes into a printed table of
// semantics that differ, which is how we learn what NVIDIA does with NaN, rounding or saturation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/support/runner.h"

namespace kiln::testing {
namespace {

constexpr oracle::Tolerance kNvidiaTolerance{
    .scale = 16, .output_ulps = 1, .max_unconstrained = 0.05};
constexpr double kTf32Roundoff = 0x1p-11;

struct Note {
  std::string label, text;
};

struct Parity {
  std::unique_ptr<GpuDevice> device;
  std::unique_ptr<Cudnn> ours, nvidia;
  std::vector<Note> refused, differing;
  int agreed = 0;
};

class ParityTest : public ::testing::Test {
 public:
  ParityTest(Parity& parity, const Case& c) : parity_(parity), case_(c) {}

  void TestBody() override {
    const uint64_t seed = TestOptions::Get().seed;
    SCOPED_TRACE(case_.text + "\nKILN_TEST_SEED=" + std::to_string(seed));
    if (case_.expects_bad_param) return CompareRefusals();
    const CaseData before = MakeData(case_, seed);
    const auto expected = Evaluate(case_, before);
    CaseData ours;
    const ClientError error = RunFirst(*parity_.ours, before, &ours);
    ASSERT_TRUE(error.ok()) << error.text;
    EXPECT_EQ(CheckRun(case_, before, ours, expected), "") << "ours against the oracle";

    CaseData theirs;
    const ClientError refused = RunFirst(*parity_.nvidia, before, &theirs);
    if (!refused.ok()) {
      parity_.refused.push_back({case_.Label(), refused.text});
      return;
    }
    const auto wide = Evaluate(case_, before, {.contraction_operand_roundoff = kTf32Roundoff});
    if (const std::string text = CheckRun(case_, before, theirs, wide, kNvidiaTolerance);
        !text.empty()) {
      parity_.differing.push_back({case_.Label(), text});
      return;
    }
    for (const auto& [tensor, dense] : wide) {
      const auto i = static_cast<size_t>(tensor);
      const auto comparison =
          oracle::CompareImages(dense, ours.images[i], theirs.images[i], kNvidiaTolerance);
      EXPECT_TRUE(comparison.ok())
          << "ours against NVIDIA's, " << case_.tensors[i].name << ": " << comparison.error;
    }
    ++parity_.agreed;
  }

 private:
  // The first engine config that makes a plan, as clients choose.
  ClientError RunFirst(const Cudnn& cudnn, const CaseData& before, CaseData* after) {
    CaseRunner runner(cudnn, *parity_.device, case_);
    ClientError error = runner.Prepare();
    for (size_t i = 0; error.ok() && i < runner.configs(); ++i) {
      error = runner.Run(i, before, after);
      if (error.ok() || !error.is_not_supported() || i + 1 == runner.configs()) return error;
      error = {};
    }
    return error;
  }

  void CompareRefusals() {
    const ClientError ours = CaseRunner(*parity_.ours, *parity_.device, case_).Prepare();
    const ClientError theirs = CaseRunner(*parity_.nvidia, *parity_.device, case_).Prepare();
    EXPECT_TRUE(ours.is_bad_param()) << ours.text;
    if (theirs.is_bad_param()) {
      ++parity_.agreed;
    } else {
      parity_.differing.push_back(
          {case_.Label(), fmt::format("accepts what the reference forbids ({})",
                                      static_cast<int>(theirs.status))});
    }
  }

  Parity& parity_;
  const Case& case_;
};

void Print(const char* title, const std::vector<Note>& notes) {
  std::printf("\n%s: %zu\n", title, notes.size());
  for (const Note& note : notes)
    std::printf("| %s | %s |\n", note.label.c_str(), note.text.c_str());
}

int Main() {
  const TestOptions& options = TestOptions::Get();
  static Parity parity;
  static const CaseFile file = LoadAllCases(options);
  for (const std::string& error : file.errors) std::fprintf(stderr, "%s\n", error.c_str());
  if (!file.errors.empty() || file.cases.empty()) return 2;
  std::string error;
  parity.device = OpenGpuDevice(&error);
  // NVIDIA's first: its loader finds its own parts by name and must not meet ours.
  if (parity.device) parity.nvidia = Cudnn::Open(options.nvidia, parity.device->stream(), &error);
  if (parity.nvidia) parity.ours = Cudnn::Open(options.cudnn, parity.device->stream(), &error);
  if (!parity.ours) {
    std::fprintf(stderr, "ours '%s', NVIDIA's '%s': %s\n", options.cudnn.c_str(),
                 options.nvidia.c_str(), error.c_str());
    return 2;
  }
  std::printf("ours %s (%zu), NVIDIA's %s (%zu), on %s, KILN_TEST_SEED=%llu\n",
              options.cudnn.c_str(), parity.ours->version(), options.nvidia.c_str(),
              parity.nvidia->version(), parity.device->name().c_str(),
              static_cast<unsigned long long>(options.seed));
  for (const Case& c : file.cases) {
    const std::string suite = c.file.substr(0, c.file.find('.')) + "_" + c.list;
    ::testing::RegisterTest(suite.c_str(), c.name.c_str(), nullptr, nullptr, c.file.c_str(), c.line,
                            [&c]() -> ::testing::Test* { return new ParityTest(parity, c); });
  }
  const int result = RUN_ALL_TESTS();
  Print("NVIDIA refuses", parity.refused);
  Print("NVIDIA means something else", parity.differing);
  std::printf("\nagreed: %d of %zu\n", parity.agreed, file.cases.size());
  parity.ours.reset();
  parity.nvidia.reset();
  return result;
}

}  // namespace
}  // namespace kiln::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return kiln::testing::Main();
}
