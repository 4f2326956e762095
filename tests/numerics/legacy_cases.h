// Cases of legacy_test: one call each, with what it must give.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/support/legacy_run.h"

namespace kiln::testing {

// Client, device and handle that a case runs with.
struct LegacyContext {
  LegacyClient& client;
  Device& device;
  cudnnHandle_t handle;

  LegacyTensor Tensor(const Layout& layout, const oracle::Dims& dims, uint64_t seed,
                      const std::string& fill = "uniform") const {
    return LegacyTensor(client, device, layout, dims, fill, seed);
  }
  // Waits for the device; a sentence where the call or the device failed.
  std::string Done(cudnnStatus_t status) const;
};

struct LegacyCase {
  std::string name;
  std::function<std::string(const LegacyContext&)> run;  // a sentence where it is wrong
  bool not_nvidia = false;                               // where 9.19 declines
};

// Factors of results: those that leave things out, and others.
struct Factors {
  double alpha, beta;
};
inline constexpr Factors kFactors[] = {{1, 0}, {0.5, 0}, {1, 1}, {-2, 0.25}};

std::string Text(const Layout& layout);
std::string Text(const oracle::Dims& dims);
std::string Text(const Factors& factors);

// The first that is no empty one.
std::string FirstOf(std::initializer_list<std::string> errors);

std::vector<LegacyCase> TensorOpCases();
std::vector<LegacyCase> ReductionCases();
std::vector<LegacyCase> ActivationCases();
std::vector<LegacyCase> PoolingCases();
std::vector<LegacyCase> ConvolutionCases();
std::vector<LegacyCase> NormCases();
std::vector<LegacyCase> DropoutCases();
std::vector<LegacyCase> TransformCases();
std::vector<LegacyCase> FusedCases();
std::vector<LegacyCase> FoldingCases();
std::vector<LegacyCase> SoftmaxCases();
std::vector<LegacyCase> LrnCases();
std::vector<LegacyCase> MisuseCases();
std::vector<LegacyCase> SpatialCases();
std::vector<LegacyCase> MultiHeadAttentionCases();

// All of them whose names hold `filter`.
std::vector<LegacyCase> AllLegacyCases(const std::string& filter);

}  // namespace kiln::testing
