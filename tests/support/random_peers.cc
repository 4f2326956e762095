// Random graphs: sums over peers of one, and flags that have their value. Operations of the
// generator (random_generator.h) that other devices take part in, by themselves.
#include "ir/peers.h"
#include "tests/support/random_generator.h"

namespace kiln::graph {

// A group of one, whose buffer nobody touches: with two the others would have to be played.
void Generator::AddPeerReduce() {
  const auto number = [&] {
    return builder_.Pointwise(PointwiseMode::kIdentity, {Number()}, {.dtype = DType::kF32});
  };
  std::vector<TensorId> inputs = {number(), Chance(40) ? number() : kAbsent}, outputs;
  int64_t count = 0;
  for (const TensorId x : inputs) {
    if (x == kAbsent) continue;
    count += NumElements(At(x).dims);
    outputs.push_back(VirtualOf("sum", At(x).dims, DType::kF32));
  }
  const int64_t first = Below(3);
  const int64_t floats = (first + count) * kPeerBytesPerNumber / SizeOf(DType::kF32) + 1 + Below(5);
  inputs.push_back(builder_.Input("memory_peer", DType::kF32, {floats}));
  AddNode(GraphOp::kPeerReduce, std::move(inputs), std::move(outputs), DType::kF32,
          PeerReduceAttrs{.first = first});
}

void Generator::AddSignalSet() {
  const SignalAttrs attrs{.value = Below(100) - 50};
  const DType flag_type = Pick({DType::kI32, DType::kI64});
  const TensorId flag = VirtualOf("memory_flag", {1}, flag_type);
  std::vector<TensorId> inputs, outputs = {flag};
  if (Chance(80)) {
    const DType type = Pick({DType::kF32, DType::kF16, DType::kBF16, DType::kI32});
    inputs.push_back(builder_.Pointwise(PointwiseMode::kIdentity, {Number()}, {.dtype = type}));
    if (Chance(80)) outputs.push_back(VirtualOf("passed", At(inputs[0]).dims, type));
  }
  AddNode(GraphOp::kSignalSet, std::move(inputs), std::move(outputs), DType::kF32, attrs);
  builder_.Output(flag, "memory_flag", flag_type);
}

// RandomInputs gives the flag its value, or nobody would.
void Generator::AddSignalWait() {
  const Dims dims = RandomDims(1 + Below(4));
  const DType type = Pick({DType::kF32, DType::kF16, DType::kI32, DType::kI8});
  const TensorId x = builder_.Input("memory_x", type, dims),
                 flag = builder_.Input("memory_flag", Pick({DType::kI32, DType::kI64}), {1});
  AddNode(GraphOp::kSignalWait, {x, flag}, {VirtualOf("passed", dims, type)}, DType::kF32,
          SignalAttrs{.value = Below(100) - 50});
}

}  // namespace kiln::graph
