#include "api/backend/rng.h"

#include "ir/shape.h"

namespace kiln::api {
namespace {

constexpr AttrRow kRngRows[] = {
    Attr<&RngDesc::distribution>(CUDNN_ATTR_RNG_DISTRIBUTION, Use::kOptional),
    Attr<&RngDesc::mean>(CUDNN_ATTR_RNG_NORMAL_DIST_MEAN, Use::kOptional),
    Attr<&RngDesc::deviation>(CUDNN_ATTR_RNG_NORMAL_DIST_STANDARD_DEVIATION, Use::kOptional),
    Attr<&RngDesc::maximum>(CUDNN_ATTR_RNG_UNIFORM_DIST_MAXIMUM, Use::kOptional),
    Attr<&RngDesc::minimum>(CUDNN_ATTR_RNG_UNIFORM_DIST_MINIMUM, Use::kOptional),
    Attr<&RngDesc::probability>(CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, Use::kOptional),
};

constexpr AttrRow kOperationRows[] = {
    Attr<&OperationRngDesc::y>(CUDNN_ATTR_OPERATION_RNG_YDESC),
    Attr<&OperationRngDesc::seed>(CUDNN_ATTR_OPERATION_RNG_SEED, Use::kOptional),
    Attr<&OperationRngDesc::rng>(CUDNN_ATTR_OPERATION_RNG_DESC),
    Attr<&OperationRngDesc::offset>(CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC, Use::kOptional),
};

Status CheckScalar(const char* name, const Ref<TensorDesc>& tensor) {
  if (tensor == nullptr || NumElements(tensor->dims) == 1) return {};
  return Status::Error(Code::kBadParam, "the {} is {}; one number is wanted", name, tensor->Text());
}

}  // namespace

Status Member<Seed>::Set(Seed& member, const AttrIn& in, int64_t limit) {
  Seed loaded;
  RETURN_IF_ERROR(in.type == CUDNN_TYPE_INT64
                      ? Member<int64_t>::Set(loaded.value, in, limit)
                      : Member<Ref<TensorDesc>>::Set(loaded.tensor, in, limit));
  member = std::move(loaded);
  return {};
}

Status Member<Seed>::Get(const Seed& member, const AttrOut& out) {
  if (out.type == CUDNN_TYPE_INT64) return Member<int64_t>::Get(member.value, out);
  return Member<Ref<TensorDesc>>::Get(member.tensor, out);
}

std::span<const AttrRow> RngDesc::Rows() { return kRngRows; }
std::span<const AttrRow> OperationRngDesc::Rows() { return kOperationRows; }

Status RngDesc::Finalize() {
  switch (distribution) {
    case CUDNN_RNG_DISTRIBUTION_BERNOULLI:
      if (probability >= 0 && probability <= 1) return {};
      return Status::Error(Code::kBadParam, "{} is no probability", probability);
    case CUDNN_RNG_DISTRIBUTION_UNIFORM:
      if (minimum <= maximum) return {};
      return Status::Error(Code::kBadParam, "nothing lies from {} to {}", minimum, maximum);
    case CUDNN_RNG_DISTRIBUTION_NORMAL:
      if (deviation >= 0) return {};
      return Status::Error(Code::kBadParam, "{} is no standard deviation", deviation);
  }
  return {};
}

Status OperationRngDesc::Finalize() {
  RETURN_IF_ERROR(CheckScalar("seed", seed.tensor));
  return CheckScalar("offset", offset);
}

Status OperationRngDesc::Import(GraphImport& import) const {
  graph::RngAttrs attrs{.distribution = static_cast<graph::RngDistribution>(rng->distribution)};
  if (seed.tensor == nullptr) attrs.seed = seed.value;
  switch (attrs.distribution) {  // what other distributions are given means nothing
    case graph::RngDistribution::kBernoulli:
      attrs.probability = rng->probability;
      break;
    case graph::RngDistribution::kUniform:
      attrs.minimum = rng->minimum;
      attrs.maximum = rng->maximum;
      break;
    case graph::RngDistribution::kNormal:
      attrs.mean = rng->mean;
      attrs.deviation = rng->deviation;
      break;
  }
  const cudnnDataType_t compute =
      y->data_type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  return import.Add(graph::GraphOp::kRng, {seed.tensor.get(), offset.get()}, {y.get()}, compute,
                    attrs);
}

}  // namespace kiln::api
