// The bench list: problems from a case file, with the work that each means.
//
// A problem is a line of the case language (tests/support/cases.h) with at least one contraction
// and dense tensors. Its section says what it counts towards in reports; in a section whose name
// ends in `fp32` only plans that keep f32 operands count, elsewhere TF32 is allowed.
//
// The floor is what one H200 could do at best: arithmetic at 790 TFLOP/s for f16 and bf16 (what its
// power budget leaves of 989), half of it for TF32, twice for fp8 and int8, 60 for f32, and each
// tensor once through memory at 4.3 TB/s.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/support/cases.h"

namespace kiln::bench {

constexpr double kBytesPerSecond = 4.3e12;

struct Problem {
  testing::Case graph;
  double flops = 0;
  int64_t bytes = 0;
  double flops_per_second = 0;  // the roof for its data type
  bool keeps_f32 = false;

  const std::string& section() const { return graph.list; }
  std::string Name() const { return graph.list + "/" + graph.name; }
  double FloorMicroseconds() const;
};

struct ProblemList {
  std::vector<Problem> problems;
  std::vector<std::string> errors;  // file:line:column: message
};

ProblemList ParseProblems(const std::string& file_name, std::string_view text);
ProblemList LoadProblems(const std::string& path);

// conv_fprop, conv_dgrad, conv_wgrad or matmul.
bool IsContraction(const testing::CaseOp& op);
// Products that one element of the contraction's result is the sum of, padding included.
double TermsOf(const testing::Case& c, const testing::CaseOp& op);

}  // namespace kiln::bench
