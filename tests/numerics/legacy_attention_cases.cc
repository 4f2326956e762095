// cudnnMultiHeadAttn…: a layer in inference, of one step, in training, and its gradients.
// multi_head_attention_test has many more.
#include <climits>
#include <cmath>

#include "tests/numerics/legacy_cases.h"
#include "tests/numerics/multi_head_layer.h"

namespace kiln::testing {
namespace {

// Values of either sign up to `largest`, the same everywhere. Weights are small: scores of many
// units would make the softmax sensitive to what half rounds.
Vector Values(size_t count, int seed, cudnnDataType_t type, double largest = 1) {
  Vector values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = largest * std::sin(static_cast<double>(i * 7 + 1) * seed);
  return Rounded(type, std::move(values));
}

std::string Difference(const std::string& name, const Vector& is, const Vector& should,
                       double tolerance) {
  double largest = 1;
  for (const double x : should) largest = std::max(largest, std::abs(x));
  for (size_t i = 0; i < should.size(); ++i)
    if (!(std::abs(is[i] - should[i]) <= tolerance * largest))
      return name + "[" + std::to_string(i) + "] is " + std::to_string(is[i]) + ", not " +
             std::to_string(should[i]);
  return "";
}

std::string RunLayer(cudnnDataType_t type, bool has_rule, double tolerance,
                     const LegacyContext& c) {
  MultiHead m = {.heads = 2,
                 .batch = 2,
                 .steps = 5,
                 .keys = 9,
                 .size = {16, 16, 16},
                 .projected = {8, 8, 8, 16},
                 .biases = true,
                 .residual = true,
                 .scale = 0.5,
                 .query_lengths = {5, 3},
                 .key_lengths = {9, 6}};
  for (int t = 0; t < m.steps; ++t) {
    m.lo.push_back(has_rule ? 0 : t * 2 % 3);
    m.hi.push_back(has_rule ? t + 1 : 9 - t % 2);
  }
  const size_t queries = 2 * 5 * 16, keys = 2 * 9 * 16;
  const MultiHeadData data = {
      .q = Values(queries, 1, type),
      .k = Values(keys, 2, type),
      .v = Values(keys, 3, type),
      .residual = Values(queries, 4, type),
      .weights = Values(static_cast<size_t>(PlacesOf(m).end), 5, type, 0.25)};
  LayerOptions options = {.type = type,
                          .compute = type == CUDNN_DATA_DOUBLE ? type : CUDNN_DATA_FLOAT,
                          .math = CUDNN_FMA_MATH};
  if (type == CUDNN_DATA_HALF) options.math = CUDNN_DEFAULT_MATH;
  AttentionLayer layer(c.client, c.device, c.handle, m, options, true);
  if (!layer.error().empty()) return layer.error();
  auto tensor = c.client.New<cudnnTensorDescriptor_t>("Tensor");
  void* address = nullptr;
  KILN_CALL(c.client, cudnnGetMultiHeadAttnWeights, c.handle, layer.desc(), CUDNN_MH_ATTN_O_BIASES,
            layer.weight_bytes(), static_cast<const void*>(&data), tensor, &address);
  layer.Write(data);
  const Vector out = MultiHeadForward(m, data), dout = Values(out.size(), 6, type);
  layer.dout.Write(dout);
  const MultiHeadGradients gradients = MultiHeadBackward(m, data, dout);
  if (!layer.Forward(-1, false)) return layer.error();
  std::string error = Difference("out", layer.out.Read(), out, tolerance);
  layer.out.Write(out, false);
  if (!layer.Forward(m.steps - 1, false)) return layer.error();
  if (error.empty()) error = Difference("the last step", layer.out.Read(), out, tolerance);
  if (!layer.Forward(-1, true) || !layer.BackwardData() || !layer.BackwardWeights(false) ||
      !layer.BackwardWeights(true))
    return layer.error();
  Vector twice = gradients.weights;
  for (double& value : twice) value *= 2;
  return FirstOf({error, Difference("out in training", layer.out.Read(), out, tolerance),
                  Difference("dq", layer.dq.Read(), gradients.q, tolerance),
                  Difference("dk", layer.dk.Read(), gradients.k, tolerance),
                  Difference("dv", layer.dv.Read(), gradients.v, tolerance),
                  Difference("dw", layer.WeightGradients(), twice, tolerance)});
}

LegacyCase Layer(const std::string& name, cudnnDataType_t type, bool has_rule, double tolerance) {
  return {"multi_head_attention/" + name,
          [=](const LegacyContext& c) { return RunLayer(type, has_rule, tolerance, c); }};
}

}  // namespace

std::vector<LegacyCase> MultiHeadAttentionCases() {
  return {Layer("f32", CUDNN_DATA_FLOAT, true, 2e-5), Layer("f64", CUDNN_DATA_DOUBLE, false, 1e-12),
          Layer("f16", CUDNN_DATA_HALF, true, 1e-2),
          Layer("f16_no_rule", CUDNN_DATA_HALF, false, 1e-2)};
}

}  // namespace kiln::testing
