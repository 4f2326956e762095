// Cases on NVIDIA's libcudnn.so.9 and on ours, side by side in one process on one GPU.
//
// Each case is offered to NVIDIA's in the forms of cases_rank.h, to every engine config that it has
// for it, until one runs; then ours runs that form, with the first config that it gives. The test
// fails where ours is not what the oracle expects, and where the two differ in a case that
// tests/cases/nvidia_differs.txt does not list. NVIDIA's contractions may round f32 operands to
// TF32 and its functions may be approximate: the bounds are widened for the comparison of the two,
// not for ours with the oracle. What NVIDIA refuses is only reported.
//
//   KILN_TEST_NVIDIA=/path/libcudnn.so.9   else the newest found; another build of ours, on the CPU
//                                          too, shows what a change does to results
//   KILN_TEST_FILTER, KILN_TEST_SEED       as in numerics_test.cc
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/numerics/differences.h"
#include "tests/support/cases_rank.h"
#include "tests/support/nvidia_library.h"
#include "tests/support/runner.h"

namespace kiln::testing {
namespace {

constexpr oracle::Tolerance kNvidiaTolerance{
    .scale = 16, .output_ulps = 1, .max_unconstrained = 0.05};

struct Parity {
  std::unique_ptr<Device> device;
  std::unique_ptr<Cudnn> ours, nvidia;
  KnownDifferences known;
  ParityReport report;
  std::string fault;  // of the device: nothing can run in this process after one
};

class ParityTest : public ::testing::Test {
 public:
  ParityTest(Parity& parity, const Case& c) : parity_(parity), case_(c) {}

  void TestBody() override {
    if (!parity_.fault.empty()) {
      parity_.report.Add(Outcome::kNotRun, case_, "");
      GTEST_SKIP() << parity_.fault;
    }
    const uint64_t seed = TestOptions::Get().seed;
    SCOPED_TRACE(case_.text + "\nKILN_TEST_SEED=" + std::to_string(seed));
    if (case_.expects_bad_param) return CompareRefusals();
    const std::vector<Case> forms = FormsForNvidia(case_);
    // First by itself, so that a fault in NVIDIA's run cannot be taken for ours.
    CaseData ours;
    if (!CheckOurs(forms[0], seed, &ours)) return;
    if (parity_.known.Crashes(case_.Label()))
      return parity_.report.Add(Outcome::kNvidiaRefuses, case_, "crashes");
    ClientError first_refusal;
    for (size_t i = 0; i < forms.size(); ++i) {
      const CaseData before = MakeData(forms[i], seed);
      CaseData theirs;
      const ClientError refused = RunNvidia(forms[i], before, &theirs);
      if (!parity_.fault.empty()) return;
      if (refused.ok()) {
        if (i > 0 && !CheckOurs(forms[i], seed, &ours)) return;
        return CompareResults(forms[i], before, ours, theirs);
      }
      if (i == 0) first_refusal = refused;
    }
    parity_.report.Add(Outcome::kNvidiaRefuses, case_, BriefRefusal(first_refusal.text));
  }

 private:
  bool CheckOurs(const Case& form, uint64_t seed, CaseData* ours) {
    const CaseData before = MakeData(form, seed);
    CaseRunner runner(*parity_.ours, *parity_.device, form);
    ClientError error = runner.Prepare();
    if (error.ok()) error = runner.Run(0, before, ours);
    const std::string wrong =
        error.ok() ? CheckRun(form, before, *ours, Evaluate(form, before, runner.PrecisionOf(0)))
                   : error.text;
    EXPECT_EQ(wrong, "") << "ours against the oracle";
    if (!wrong.empty()) parity_.report.Add(Outcome::kOursDiffers, case_, "    " + wrong + "\n");
    return wrong.empty();
  }

  // The first engine config that runs: those of the heuristics, then every engine. Gives the first
  // refusal.
  ClientError RunNvidia(const Case& form, const CaseData& before, CaseData* after) {
    CaseRunner runner(*parity_.nvidia, *parity_.device, form);
    ClientError first = runner.PrepareThoroughly();
    if (!first.ok() && !first.is_not_supported()) return first;
    for (const bool every_engine : {false, true}) {
      const size_t begin = every_engine ? runner.configs() : 0;
      if (every_engine && !runner.AddEngines().ok()) break;
      for (size_t i = begin; i < runner.configs(); ++i) {
        const ClientError error = runner.Run(i, before, after);
        if (error.ok()) return {};
        if (first.ok()) first = error;
        if (HasFault(error.text)) return error;
      }
    }
    return first;
  }

  // An access outside of memory, say, stays in the context: later calls of ours would report it.
  bool HasFault(const std::string& during) {
    const std::string fault = parity_.device->Synchronize();
    if (fault.empty()) return false;
    parity_.fault = fmt::format("the device is lost since NVIDIA ran {}: {}", case_.Label(), fault);
    parity_.report.Add(Outcome::kNotRun, case_, parity_.fault);
    ADD_FAILURE() << parity_.fault << " (" << during << ")";
    return true;
  }

  void CompareResults(const Case& form, const CaseData& before, const CaseData& ours,
                      const CaseData& theirs) {
    const auto wide = Evaluate(form, before, {.contraction_operand_roundoff = kTf32Roundoff});
    const std::string difference =
        DescribeDifferences(form, before, ours, theirs, wide, kNvidiaTolerance);
    if (!difference.empty()) {
      parity_.report.Add(Outcome::kNvidiaDiffers, case_, difference);
      EXPECT_TRUE(parity_.known.reasons.contains(case_.Label()))
          << "NVIDIA's differs from ours:\n"
          << difference << "add it to tests/cases/" << kDifferencesFile
          << " with the reason, or change ours and the oracle";
      return;
    }
    const std::string outside = CheckRun(form, before, theirs, wide, kNvidiaTolerance);
    parity_.report.Add(outside.empty() ? Outcome::kAgrees : Outcome::kAgreesOutsideOracle, case_,
                       outside.empty() ? "" : "    " + outside + "\n");
  }

  void CompareRefusals() {
    const Case form = FormsForNvidia(case_)[0];
    const ClientError ours = CaseRunner(*parity_.ours, *parity_.device, form).Prepare();
    EXPECT_TRUE(ours.is_bad_param()) << ours.text;
    if (!ours.is_bad_param()) {
      parity_.report.Add(Outcome::kOursDiffers, case_, "    accepted\n");
      return;
    }
    if (parity_.known.Crashes(case_.Label()))
      return parity_.report.Add(Outcome::kNvidiaRefuses, case_, "crashes");
    const ClientError theirs = CaseRunner(*parity_.nvidia, *parity_.device, form).Prepare();
    if (theirs.is_bad_param()) {
      parity_.report.Add(Outcome::kRefusedAlike, case_, "");
    } else {
      parity_.report.Add(
          Outcome::kNvidiaAccepts, case_,
          fmt::format("    NVIDIA's status is {}\n", static_cast<int>(theirs.status)));
    }
  }

  Parity& parity_;
  const Case& case_;
};

// The list of tests/cases; a line that names no case is an error, unless only some cases were
// loaded.
bool LoadKnownDifferences(const TestOptions& options, const CaseFile& file, Parity& parity) {
  const std::string path = options.cases + "/" + kDifferencesFile;
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  parity.known = ParseKnownDifferences(text.str());
  auto& errors = parity.known.errors;
  if (!in) errors.push_back("cannot be read");
  std::set<std::string> labels;
  for (const Case& c : file.cases) labels.insert(c.Label());
  for (const auto& [label, reason] : parity.known.reasons) {
    if (options.filter.empty() && !labels.contains(label))
      errors.push_back(fmt::format("{} is no case", label));
  }
  for (const std::string& error : errors)
    std::fprintf(stderr, "%s: %s\n", path.c_str(), error.c_str());
  return errors.empty();
}

bool OpenLibraries(const TestOptions& options, Parity& parity) {
  // Before the device: candidates are asked for their version in children of this process.
  std::string path = options.nvidia;
  if (path.empty()) {
    for (const NvidiaLibrary& library : FindNvidiaLibraries()) {
      std::printf("found NVIDIA's %s (%zu)\n", library.path.c_str(), library.version);
      if (path.empty()) path = library.path;
    }
  }
  std::string error;
  parity.device = OpenTestDevice(&error);
  // NVIDIA's first: its loader finds its own parts by name and must not meet ours.
  if (parity.device) parity.nvidia = Cudnn::Open(path, parity.device->stream(), &error);
  if (parity.nvidia) parity.ours = Cudnn::Open(options.cudnn, parity.device->stream(), &error);
  if (!parity.ours) {
    std::fprintf(stderr, "ours '%s', NVIDIA's '%s': %s\n", options.cudnn.c_str(), path.c_str(),
                 error.c_str());
    return false;
  }
  std::printf("ours %s (%zu), NVIDIA's %s (%zu), on %s, KILN_TEST_SEED=%llu\n",
              options.cudnn.c_str(), parity.ours->version(), path.c_str(), parity.nvidia->version(),
              parity.device->name().c_str(), static_cast<unsigned long long>(options.seed));
  return true;
}

int Main() {
  const TestOptions& options = TestOptions::Get();
  static Parity parity;
  static const CaseFile file = LoadAllCases(options);
  for (const std::string& error : file.errors) std::fprintf(stderr, "%s\n", error.c_str());
  if (!file.errors.empty() || file.cases.empty()) return 2;
  if (!LoadKnownDifferences(options, file, parity) || !OpenLibraries(options, parity)) return 2;
  for (const Case& c : file.cases) {
    const std::string suite = c.file.substr(0, c.file.find('.')) + "_" + c.list;
    ::testing::RegisterTest(suite.c_str(), c.name.c_str(), nullptr, nullptr, c.file.c_str(), c.line,
                            [&c]() -> ::testing::Test* { return new ParityTest(parity, c); });
  }
  const int result = RUN_ALL_TESTS();
  parity.report.Print(parity.known);
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
