// A case against the oracle: makes its data, computes what the outputs must be.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/cases.h"
#include "tests/support/oracle/compare.h"
#include "tests/support/oracle/oracle.h"

namespace kiln::testing {

// Memory of every tensor of a case that has some: inputs filled, outputs poisoned (or filled, where
// beta reads them). Indexed by tensor; virtual ones have no bytes.
struct CaseData {
  std::vector<oracle::Image> images;
};
CaseData MakeData(const Case& c, uint64_t seed);

// Row-major values of one fill: uniform, pos, unit, small, int, ones, zeros, nan, inf, special,
// wide, huge, bool, mask and row_mask (runs of what hides keys), index (0, 1, 2 …).
std::vector<double> FillValues(const std::string& fill, DType dtype, int64_t count, uint64_t seed);
bool IsFill(const std::string& fill);

// Roundoff of an f32 number rounded to TF32, which has 10 bits of mantissa.
inline constexpr double kTf32Roundoff = 0x1p-11;

struct EvaluateOptions {
  double contraction_operand_roundoff = 0;  // kTf32Roundoff where f32 contractions may run as TF32
};

// True if an operation is a resampling, and its geometry; `spatial` dims behind N and C.
bool IsWindow(const CaseOp& op);
oracle::Window WindowOf(const CaseOp& op, size_t spatial);
Dims WindowOutputDims(const CaseOp& op, const Dims& x);

// The expected value of each non-virtual result, by tensor index.
std::map<int, oracle::Dense> Evaluate(const Case& c, const CaseData& data,
                                      const EvaluateOptions& options = {});

// Checks a run: outputs against the oracle, gaps of outputs, inputs unchanged. Empty when all is
// right.
std::string CheckRun(const Case& c, const CaseData& before, const CaseData& after,
                     const std::map<int, oracle::Dense>& expected,
                     const oracle::Tolerance& tolerance = {});

}  // namespace kiln::testing
