#include "tests/numerics/legacy_cases.h"

#include <vector>

namespace kiln::testing {

std::vector<LegacyCase> AllLegacyCases(const std::string& filter) {
  std::vector<LegacyCase> all;
  for (const auto& family :
       {TensorOpCases(), ReductionCases(), ActivationCases(), PoolingCases(), ConvolutionCases(),
        NormCases(), DropoutCases(), TransformCases(), FusedCases(), FoldingCases(), SoftmaxCases(),
        LrnCases(), SpatialCases(), MisuseCases(), MultiHeadAttentionCases()})
    all.insert(all.end(), family.begin(), family.end());
  std::erase_if(all, [&](const LegacyCase& c) { return c.name.find(filter) == std::string::npos; });
  return all;
}

}  // namespace kiln::testing
