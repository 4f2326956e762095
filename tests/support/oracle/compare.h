// Compares memory that a library wrote with what the oracle expects, element by element.
//
// The oracle gives each element as a value v with an error bound e (see oracle.h for how e grows
// with the compute type and the reduction length). An element stored in dtype T is right when
//     Round_T(v - e') <= actual <= Round_T(v + e'),   e' = scale * e + output_ulps * ulp_T(v),
// which is exact for exact operations (e = 0), keeps integer and fp8 saturation, and asks NaN for
// NaN and infinity for infinity. An element with infinite e is unconstrained; too many of those
// fail as well, so that no comparison passes for want of an expectation.
#pragma once

#include <cstdint>
#include <string>

#include "tests/support/oracle/tensor.h"

namespace kiln::oracle {

struct Tolerance {
  double scale = 1;
  double output_ulps = 0;
  double max_unconstrained = 0.05;  // fraction of elements
};

struct Comparison {
  int64_t elements = 0, wrong = 0, unconstrained = 0;
  double worst_ratio = 0;  // |actual - expected| over what is allowed; above 1 is wrong
  Dims worst_index;
  double expected = 0, actual = 0, ulps = 0;
  std::string error;  // a sentence, empty when all is right

  bool ok() const { return error.empty(); }
  std::string Summary() const;  // the worst element in words, right or wrong
};

Comparison Compare(const Dense& expected, const Image& actual, const Tolerance& tolerance = {});

// Two libraries' outputs, where each may err by what `expected` allows.
Comparison CompareImages(const Dense& expected, const Image& left, const Image& right,
                         const Tolerance& tolerance);

}  // namespace kiln::oracle
