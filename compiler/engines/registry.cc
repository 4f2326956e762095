// Every engine, in the order that plans and caches know.
#include "compiler/engines/registry.h"

#include <algorithm>

#include "compiler/engines/attention/engines.h"
#include "compiler/engines/columns/engine.h"
#include "compiler/engines/contract_grouped/engine.h"
#include "compiler/engines/contract_mma/engine.h"
#include "compiler/engines/contract_simt/engine.h"
#include "compiler/engines/contract_wgmma/engine.h"
#include "compiler/engines/conv_direct/engine.h"
#include "compiler/engines/conv_first_layer/engine.h"
#include "compiler/engines/conv_halo/engine.h"
#include "compiler/engines/ctc/engine.h"
#include "compiler/engines/peers/engine.h"
#include "compiler/engines/pointwise/engine.h"
#include "compiler/engines/recurrence/engine.h"
#include "compiler/engines/recurrence/sm80.h"
#include "compiler/engines/recurrence/sm90.h"
#include "compiler/engines/recurrence/stack_sm80.h"
#include "compiler/engines/recurrence/steps.h"
#include "compiler/engines/reduce/engine.h"
#include "compiler/engines/rows/engine.h"
#include "compiler/engines/segments/engine.h"
#include "compiler/engines/window/engine.h"
#include "compiler/engines/winograd/engine.h"

namespace kiln::compiler {

std::span<const Engine> Engines() {
  // Append only: plans' JSON and kernel caches hold the position, and the API's global indices of a
  // graph's engines follow the order.
  static const Engine kEngines[] = {kPointwiseEngine,
                                    kReduceEngine,
                                    kContractSimtEngine,
                                    kContractMmaEngine,
                                    kWgmmaSm90Engine,
                                    kConvDirectEngine,
                                    kConvFirstLayerEngine,
                                    kContractMmaTf32Engine,
                                    kContractMmaAtomicEngine,
                                    kConvHaloSm90Engine,
                                    kWgmmaSm90Tf32Engine,
                                    kWindowEngine,
                                    kRowsEngine,
                                    kWgmmaSm903xTf32Engine,
                                    kColumnsEngine,
                                    kAttentionSm90Engine,
                                    kAttentionGradSm90Engine,
                                    kAttentionGradSm90AtomicEngine,
                                    kAttentionSm80Engine,
                                    kAttentionGradSm80Engine,
                                    kAttentionGradSm80AtomicEngine,
                                    kWinogradEngine,
                                    kWinogradSm90Engine,
                                    kRecurrenceEngine,
                                    kCtcEngine,
                                    kRecurrenceSm80Engine,
                                    kRecurrenceSm80Tf32Engine,
                                    kAttentionDecodeEngine,
                                    kRecurrenceSm80F32Engine,
                                    kRecurrenceSm90Engine,
                                    kRecurrenceSm90Tf32Engine,
                                    kAttentionBytesSm90Engine,
                                    kAttentionSm80Tf32Engine,
                                    kAttentionSm80F32Engine,
                                    kAttentionGradSm80Tf32Engine,
                                    kAttentionGradSm80F32Engine,
                                    kRecurrenceStackSm80Engine,
                                    kRecurrenceStackSm80Tf32Engine,
                                    kContractGroupedSm90Engine,
                                    kRecurrenceStepsEngine,
                                    kRecurrenceStepsTf32Engine,
                                    kSegmentsEngine,
                                    kPeersEngine};
  return kEngines;
}

int EngineIndex(std::string_view name) {
  const auto engines = Engines();
  const auto it =
      std::ranges::find(engines, name, [](const Engine& e) { return std::string_view(e.name); });
  return it == engines.end() ? -1 : static_cast<int>(it - engines.begin());
}

}  // namespace kiln::compiler
