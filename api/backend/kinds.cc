// The table of descriptor kinds: every kind of the interface, at the place that is its number.
// tests/api/backend/rows_test.cc demands that each attribute of the interface is in a row of its
// kind or in the test's list of reasons.
#include "api/backend/band.h"
#include "api/backend/block_scale.h"
#include "api/backend/convolution.h"
#include "api/backend/descriptor.h"
#include "api/backend/execution_plan.h"
#include "api/backend/matmul.h"
#include "api/backend/moe.h"
#include "api/backend/norm.h"
#include "api/backend/pointwise.h"
#include "api/backend/reduction.h"
#include "api/backend/resample.h"
#include "api/backend/rng.h"
#include "api/backend/rope.h"
#include "api/backend/sdpa.h"
#include "api/backend/signal.h"
#include "api/backend/softmax.h"
#include "api/backend/statistics.h"
#include "api/backend/views.h"

namespace kiln::api {

std::span<const Kind> AllKinds() {
  constexpr bool kReadOnly = true;
  static const Kind kKinds[] = {
      KindOf<PointwiseDesc>(),
      KindOf<ConvolutionDesc>(),
      KindOf<EngineDesc>(),
      KindOf<EngineConfigDesc>(),
      KindOf<EngineHeurDesc>(),
      KindOf<ExecutionPlanDesc>(),
      KindOf<IntermediateInfoDesc>(kReadOnly),
      KindOf<KnobChoiceDesc>(),
      KindOf<KnobInfoDesc>(kReadOnly),
      KindOf<LayoutInfoDesc>(kReadOnly),
      KindOf<ConvolutionForwardDesc>(),
      KindOf<ConvolutionBwdFilterDesc>(),
      KindOf<ConvolutionBwdDataDesc>(),
      KindOf<OperationPointwiseDesc>(),
      KindOf<GenStatsDesc>(),
      KindOf<OperationGraphDesc>(),
      KindOf<VariantPackDesc>(),
      KindOf<TensorDesc>(),
      KindOf<MatmulDesc>(),
      KindOf<OperationMatmulDesc>(),
      KindOf<BnFinalizeDesc>(),
      KindOf<ReductionDesc>(),
      KindOf<OperationReductionDesc>(),
      KindOf<BnBwdWeightsDesc>(),
      KindOf<ResampleDesc>(),
      KindOf<ResampleFwdDesc>(),
      KindOf<ResampleBwdDesc>(),
      KindOf<ConcatDesc>(),
      KindOf<SignalDesc>(),
      KindOf<NormForwardDesc>(),
      KindOf<NormBackwardDesc>(),
      KindOf<ReshapeDesc>(),
      KindOf<RngDesc>(),
      KindOf<OperationRngDesc>(),
      KindOf<KernelCacheDesc>(),
      KindOf<PagedCacheLoadDesc>(),
      KindOf<BlockScaleQuantizeDesc>(),
      KindOf<BlockScaleDequantizeDesc>(),
      KindOf<DevicePropDesc>(),
      KindOf<ExpandBandMatrixDesc>(),
      KindOf<ContractBandMatrixDesc>(),
      KindOf<SdpaForwardDesc>(),
      KindOf<MoeGroupedMatmulDesc>(),
      KindOf<SdpaBackwardDesc>(),
      KindOf<DiagonalBandMaskDesc>(),
      KindOf<SoftmaxDesc>(),
      KindOf<TransposeDesc>(),
      KindOf<SliceDesc>(),
      KindOf<MoeGroupedMatmulBwdDesc>(),
      KindOf<RopeForwardDesc>(),
      KindOf<RopeBackwardDesc>(),
  };
  return kKinds;
}

}  // namespace kiln::api
