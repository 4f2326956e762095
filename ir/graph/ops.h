// The op table of the tensor graph: what each operation verifies, infers and computes.
#pragma once

#include <span>
#include <string_view>

#include "ir/graph/graph.h"

namespace kiln::graph {

enum Trait : uint32_t {
  kComposite = 1,
  kContraction = 2,
  kElementwise = 4,
  kReduction = 8,
  kView = 16,
  kWindow = 32,
  kRecurrence = 64,
  kSegments = 128,
  kPeers = 256
};

// The arguments of an Eval function: the values of the operands, each in row-major order of its
// dims, and where to put the results (f64, not rounded: the caller rounds to the tensor's dtype).
struct EvalArgs {
  const Graph& graph;
  const Node& node;
  std::span<const std::vector<double>* const> inputs;  // null where absent
  std::span<std::vector<double>* const> outputs;       // null where absent; sized by the caller
};

struct GraphOpInfo {
  std::string_view mnemonic;
  int min_inputs, max_inputs, min_outputs, max_outputs;
  uint32_t traits;
  Status (*verify)(const Graph&, const Node&);
  Status (*infer)(Graph&, const Node&);  // output dims and strides where empty
  void (*eval)(const EvalArgs&);
};

const GraphOpInfo& Info(GraphOp op);
std::optional<GraphOp> GraphOpFromText(std::string_view mnemonic);
Attrs DefaultAttrs(GraphOp op);  // the alternative that the op's nodes hold
inline bool Has(const Node& node, Trait trait) { return Info(node.op).traits & trait; }

#define GRAPH_OP(Name, ...)                                  \
  Status Verify##Name(const Graph& graph, const Node& node); \
  Status Infer##Name(Graph& graph, const Node& node);        \
  void Eval##Name(const EvalArgs& args);
#include "ir/graph/graph_ops.def"
#undef GRAPH_OP

// True for modes that read bool as it is and may write it: comparisons, logical modes, identity and
// binary_select, also the two that it selects from. The others read it as the numbers 0 and 1, as
// clients that multiply by a mask want.
bool TakesBool(PointwiseMode mode);

// True if a reshape from x to y is a view of x's memory: both address the same elements, in
// whatever order of dims. Otherwise it keeps the row-major order of the elements.
bool ReshapeKeepsMemory(const Tensor& x, const Tensor& y);

// One spatial dim of a resampling: output place p reads the input's places base(p) + t for taps t,
// base(p) = floor((step * p + offset) / unit). `unit` is 1 for pooling; what the division leaves,
// in units, is the weight of a bilinear tap 1.
struct ResampleAxis {
  size_t dim = 0;  // of the tensors
  int64_t in = 0, out = 0;
  int64_t step = 1, offset = 0, unit = 1, taps = 1;
};
// y's extents by the lengths; the lists must have one entry a spatial dim.
Dims ResampleOutputDims(const ResampleAttrs& attrs, const Dims& x);
std::vector<ResampleAxis> ResampleAxes(const ResampleAttrs& attrs, const Dims& x, const Dims& y);

// The value of a tap in the padding.
enum class PaddingTap : uint8_t { kSkipped, kZero, kNegInf, kEdge };
PaddingTap PaddingTapOf(const ResampleAttrs& attrs);

// The distance of the band's places from the matrix's on the main diagonal: ops_band.cc.
int64_t BandShift(const BandAttrs& attrs, int64_t rank);

// The extents of the blocks on each dim of x, 1 where every element has a scale of its own.
Result<Dims> BlockSizes(const Dims& block_size, const Tensor& x, const Tensor& scale);

}  // namespace kiln::graph
