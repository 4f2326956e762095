// The graph of an activation of kiln/miopen.h, forward or backward, and its plan. cuDNN's
// activations are fewer and have fewer parameters, so that all of MIOpen's are made of the backend
// interface's pointwise operations.
#pragma once

#include <utility>
#include <vector>

#include "api/miopen/objects.h"

namespace kiln::miopen {

// result = alpha * f(operands) + beta * result. Forward f reads x; backward it reads dy and x.
struct Activation {
  miopenActivationMode_t mode = miopenActivationPASTHRU;
  double alpha = 0, beta = 0, power = 0;  // the mode's
  bool backward = false;
  bool scaled = false,
       blended = false;  // whether the result's alpha is other than 1, its beta than 0
  bool aligned = false;  // all pointers to 16 bytes
  miopenDataType_t type = miopenFloat;
  int dims[4] = {};

  // Equal for equal plans: numbers by their bits, since NaN is one too.
  std::vector<uint64_t> Key() const;
};

class Plan {
 public:
  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan();

  cudnnStatus_t Make(cudnnHandle_t handle, const Activation& activation);
  // Forward `dy` is not read.
  cudnnStatus_t Run(cudnnHandle_t handle, const void* x, const void* dy, void* result,
                    const float* alpha, const float* beta);

 private:
  cudnnStatus_t Choose(cudnnHandle_t handle, cudnnBackendDescriptor_t graph);

  Activation activation_;
  std::vector<cudnnBackendDescriptor_t> made_;        // in order, the plan last
  std::vector<std::pair<int64_t, float>> constants_;  // by uid
};

}  // namespace kiln::miopen
