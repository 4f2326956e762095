// CUDNN_BACKEND_RNG_DESCRIPTOR and its operation; attributes of 9.19.
#pragma once

#include "api/backend/operation.h"

namespace kiln::api {

// A seed by value, or a tensor of one element.
struct Seed {
  int64_t value = 0;
  Ref<TensorDesc> tensor;
};
template <>
struct Member<Seed> {
  static constexpr uint64_t kTypes =
      uint64_t{1} << CUDNN_TYPE_INT64 | uint64_t{1} << CUDNN_TYPE_BACKEND_DESCRIPTOR;
  static Status Set(Seed& member, const AttrIn& in, int64_t limit);
  static Status Get(const Seed& member, const AttrOut& out);
};

struct RngDesc : DescriptorOf<CUDNN_BACKEND_RNG_DESCRIPTOR> {
  cudnnRngDistribution_t distribution = CUDNN_RNG_DISTRIBUTION_BERNOULLI;
  double mean = -1, deviation = -1, maximum = -1, minimum = -1, probability = -1;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
};

struct OperationRngDesc : OperationOf<CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR> {
  Ref<RngDesc> rng;
  Ref<TensorDesc> y, offset;
  Seed seed;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

}  // namespace kiln::api
