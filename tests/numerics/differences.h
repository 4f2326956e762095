// Statements of nvidia_parity_gpu_test about a case: the list of known differences, the elements
// that show a difference, and the report at the end.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/evaluate.h"

namespace kiln::testing {

// tests/cases/nvidia_differs.txt: a case's label and why it may differ. '#' begins a comment line.
// Where the reason begins with "crashes", NVIDIA's ends the process and is not asked.
struct KnownDifferences {
  std::map<std::string, std::string> reasons;
  bool Crashes(const std::string& label) const {
    const auto found = reasons.find(label);
    return found != reasons.end() && found->second.starts_with("crashes");
  }
  std::vector<std::string> errors;  // with line numbers
};
KnownDifferences ParseKnownDifferences(std::string_view text);

// The result of comparing what both wrote, where each may err by what `expected` allows. Empty when
// alike; else a line for each tensor that differs and below it a few elements, chosen so that each
// shows another kind of operands or of disagreement: operands, the oracle's value, ours, NVIDIA's.
std::string DescribeDifferences(const Case& c, const CaseData& before, const CaseData& ours,
                                const CaseData& nvidia,
                                const std::map<int, oracle::Dense>& expected,
                                const oracle::Tolerance& tolerance);

// A library's refusal in one line: its status and the first reason in its text.
std::string BriefRefusal(const std::string& text);

enum class Outcome {
  kAgrees,
  kAgreesOutsideOracle,  // alike, but NVIDIA's result is outside the oracle's tolerance
  kNvidiaRefuses,
  kNvidiaDiffers,  // while ours is what the oracle expects
  kOursDiffers,
  kRefusedAlike,   // cases that must be refused
  kNvidiaAccepts,  // what the reference forbids
  kNotRun,         // after a fault of the device
  kCount
};

// Collects outcomes while the tests run and prints the summary, the differences with their
// elements, and the refusals by reason.
class ParityReport {
 public:
  void Add(Outcome outcome, const Case& c, const std::string& detail);
  void Print(const KnownDifferences& known) const;

 private:
  struct Entry {
    std::string label, text, detail;
  };
  std::array<std::vector<Entry>, static_cast<size_t>(Outcome::kCount)> entries_;
};

}  // namespace kiln::testing
