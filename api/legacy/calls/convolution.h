// Convolutions as the legacy API calls them. Three directions over the same tensors:
//
//   forward          (x, w)  -> y       cudnnConvolutionForward
//   backward data    (dy, w) -> dx      cudnnConvolutionBackwardData
//   backward filter  (x, dy) -> dw      cudnnConvolutionBackwardFilter
//
// An algorithm is a promise of how much workspace is wanted, and of the same result: the first of
// each direction needs the least (none, but for vectors of channels), the second as much as is
// fastest. The others name a way of computing. WINOGRAD_NONFUSED has plans of its own where the
// winograd engines take the problem; all else that is named has the second's plans, for the
// problems of convolution_conditions.h.
#pragma once

#include <optional>

#include "api/legacy/descriptors/window.h"
#include "api/legacy/plans/call.h"

namespace kiln::api::legacy {

enum class ConvDirection : uint8_t { kForward, kBackwardData, kBackwardFilter };

// A row is what differs between directions. Algorithms are numbers of the direction's own
// enumeration.
struct DirectionRow {
  const char* function;
  graph::GraphOp op;
  int algorithms;       // of the enumeration
  int results;          // that Get and Find may return in 9.19, which lists two for each math type
  int least_workspace;  // the algorithm that needs the least
  int any_workspace;    // and the one that may take any
  int winograd;         // and the one that is Winograd's products
};
const DirectionRow& RowOf(ConvDirection direction);

// The descriptors of one call. The filter is described as a tensor.
struct ConvProblem {
  ConvDirection direction;
  TensorDesc x, w, y;  // dx, dw, dy where they are results
  ConvolutionDesc conv;
  FilterDesc filter;
};
Result<ConvProblem> ProblemOf(ConvDirection direction, void* x, void* w, void* conv, void* y);

// The descriptor with each setting that cannot matter at its plain value: along an axis where the
// filter has one place dilation is 1, and a filter of one place in all is not mirrored. Clients set
// CUDNN_CONVOLUTION, which is 0, for 1x1 filters without thinking of it.
ConvolutionDesc PlainOf(const ConvolutionDesc& conv, const Lengths& filter);

struct ConvOperands {
  Operand x, w, y;
};
struct ConvPointers {
  const void *x = nullptr, *w = nullptr, *y = nullptr;
};

// The call's key begins with what this adds.
ConvOperands AddTo(Call& call, const ConvProblem& problem, int algorithm,
                   const ConvPointers& pointers);

// Error: the reference does not know the combination, and 9.19 the algorithm for it.
Status Check(const ConvProblem& problem, int algorithm);
// The algorithm whose plans are the named one's: itself, or the one with any workspace.
int PlannedAs(const ConvProblem& problem, int algorithm);

// The convolution, unscaled, in its compute type; the graph's wishes are the algorithm's plans'.
Result<graph::TensorId> Convolve(CallGraph& g, const ConvProblem& problem, int algorithm,
                                 const ConvOperands& operands);
// The convolution by an algorithm that has plans of its own, for a problem that is checked.
Result<graph::TensorId> ConvolveAs(CallGraph& g, const ConvProblem& problem, int planned,
                                   const ConvOperands& operands);
// The convolution of a graph's tensors, in the order of the direction's operands; the problem is
// checked.
graph::TensorId Convolve(CallGraph& g, const ConvProblem& problem, graph::TensorId first,
                         graph::TensorId second);
// The least workspace that a client which asked for the algorithm's may have been told.
Result<int64_t> MinReportedWorkspace(Handle& handle, const ConvProblem& problem, int algorithm);
// The graph of a convolution with alpha and beta.
Status MakeConvolution(CallGraph& g, const ConvProblem& problem, int algorithm,
                       const ConvOperands& operands, const Blend& blend);

}  // namespace kiln::api::legacy
