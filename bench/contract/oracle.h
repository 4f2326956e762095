// Single elements of a problem's outputs, from the definition in f64.
//
// The full oracle (tests/support/oracle) computes whole tensors, which for the sizes of the bench
// takes hours; an element is one sum. Values come from ProblemData, bounds follow the oracle's
// rules (oracle.h), with one addition for operands that the hardware narrows: TF32, and fp8's short
// accumulators.
#pragma once

#include <optional>

#include "bench/contract/data.h"
#include "tests/support/oracle/oracle.h"

namespace kiln::bench {

class SampleOracle {
 public:
  SampleOracle(const Problem& problem, const ProblemData& data);

  // Products that one element of an output costs; infinite where the oracle has no rule.
  double CostOf(int tensor) const;
  // Before the output is rounded to its data type.
  oracle::Value At(int tensor, const oracle::Dims& index) const;

 private:
  struct Place;
  oracle::Value Read(int tensor, const oracle::Dims& index) const;  // as an operand: rounded
  oracle::Value Pointwise(const testing::CaseOp& op, const oracle::Dims& index) const;
  oracle::Value Matmul(const testing::CaseOp& op, const oracle::Dims& index) const;
  oracle::Value Fprop(const testing::CaseOp& op, const oracle::Dims& index) const;
  oracle::Value Dgrad(const testing::CaseOp& op, const oracle::Dims& index) const;
  oracle::Value Wgrad(const testing::CaseOp& op, const oracle::Dims& index) const;
  oracle::Value GenStats(const testing::CaseOp& op, int tensor, const oracle::Dims& index) const;
  const testing::CaseTensor& Tensor(int index) const {
    return case_.tensors[static_cast<size_t>(index)];
  }
  const testing::CaseOp* ProducerOf(int tensor) const;

  const testing::Case& case_;
  const ProblemData& data_;
  bool keeps_f32_;
};

}  // namespace kiln::bench
