// Operands and results of random graphs whose memory has another order than their extents: views
// that see one place several times, and vectorised layouts, [N, C/4, H, W, 4] of NCHW in vectors of
// 4, as the C interface's tensors become them.
#include <algorithm>

#include "tests/support/random_generator.h"

namespace kiln::graph {
namespace {

// Length of the vectors of channels, dim 1.
int64_t VectorOf(const Dims& dims) { return dims[1] % 32 == 0 ? 32 : 4; }

// Extents with the channels as two dims, and the order in which memory has them: vectors innermost.
struct Split {
  Dims dims, memory, to_memory, from_memory;
};

Split SplitOf(const Dims& dims) {
  const int64_t rank = std::ssize(dims), vector = VectorOf(dims);
  Split s{.dims = dims, .memory = dims};
  s.dims[1] = s.memory[1] = dims[1] / vector;
  s.dims.insert(s.dims.begin() + 2, vector);
  s.memory.push_back(vector);
  for (int64_t d = 0; d < rank; ++d) {
    s.from_memory.push_back(d);
    if (d == 1) s.from_memory.push_back(rank);
  }
  s.to_memory.resize(s.from_memory.size());
  for (size_t d = 0; d < s.from_memory.size(); ++d)
    s.to_memory[static_cast<size_t>(s.from_memory[d])] = static_cast<int64_t>(d);
  return s;
}

}  // namespace

// Some dims step over nothing, or windows of a row overlap.
Dims Generator::SharedStrides(const Dims& dims) {
  Dims strides = PackedStrides(dims);
  if (dims.size() >= 2 && Chance(30)) {
    strides[dims.size() - 2] = 1;
    return strides;
  }
  for (int64_t& stride : strides)
    if (Chance(40)) stride = 0;
  return strides;
}

bool Generator::HasVectors(const Dims& dims) {
  return dims.size() >= 2 && dims.size() <= 5 && dims[1] > 0 && dims[1] % 4 == 0;
}

TensorId Generator::FromVectors(const Dims& dims, DType dtype) {
  const Split split = SplitOf(dims);
  const TensorId memory = builder_.Input("vectors", dtype, split.memory);
  const TensorId turned =
      builder_.Apply(GraphOp::kTranspose, {memory},
                     TransposeAttrs{.permutation = split.from_memory}, {.dtype = dtype});
  return builder_.Apply(GraphOp::kReshape, {turned}, ReshapeAttrs{},
                        {.dtype = dtype, .dims = dims, .strides = PackedStrides(dims)});
}

// Results that nobody reads, now and then.
void Generator::StoreInVectors() {
  const auto consumers = Consumers(builder_.graph());
  const auto producers = Producers(builder_.graph());
  for (size_t t = 0; t < consumers.size(); ++t) {
    const Tensor result = builder_.graph().tensors[t];
    const bool fits = producers[t] >= 0 && consumers[t].empty() && result.is_virtual &&
                      !IsBool(result.dtype) && HasVectors(result.dims);
    if (!fits || !Chance(20)) continue;
    const Split split = SplitOf(result.dims);
    const TensorId halves = builder_.Apply(
        GraphOp::kReshape, {static_cast<TensorId>(t)}, ReshapeAttrs{},
        {.dtype = result.dtype, .dims = split.dims, .strides = PackedStrides(split.dims)});
    builder_.Apply(GraphOp::kTranspose, {halves}, TransposeAttrs{.permutation = split.to_memory},
                   {.dtype = result.dtype});
  }
}

}  // namespace kiln::graph
