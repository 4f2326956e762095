// Fused operations: a constant pack says what is computed of which tensors, a plan is made of it,
// and a variant pack has the pointers of one execution. Reference 6.1.3 and 6.2.3 to 6.2.19; the
// parameters of the last two operations, of which the reference has no tables, are NVIDIA's 9.19's.
//
//   fused_packs.cc    the packs and their attributes
//   fused_ops.cc      plans: checks, operands, execution
//   fused_graphs.cc   the graph of each operation
#pragma once

#include <array>

#include "api/legacy/descriptors/modes.h"
#include "api/legacy/descriptors/window.h"
#include "api/legacy/plans/call.h"

namespace kiln::api::legacy {

inline constexpr size_t kFusedOps = CUDNN_FUSED_DACTIVATION_FORK_DBATCHNORM + 1;
inline constexpr size_t kConstLabels = CUDNN_PARAM_BN_DBIAS_PLACEHOLDER + 1;
inline constexpr size_t kPointers = CUDNN_PTR_BN_DBIAS + 1;

struct FusedConstPack {
  static constexpr uint64_t kTag = 0x6b696c6e'666f6370;  // "kilnfocp"
  static constexpr std::string_view kName = "cudnnFusedOpsConstParamPack_t";

  int32_t op = 0;
  int32_t bn_mode = CUDNN_BATCHNORM_PER_ACTIVATION;
  // By label: descriptors that are set, and cudnnFusedOpsPointerPlaceHolder_t as the client has it.
  std::array<bool, kConstLabels> is_set = {};
  std::array<int32_t, kConstLabels> placeholders = {};
  std::array<TensorDesc, kConstLabels> tensors = {};  // filters too
  FilterDesc w, dw;
  ConvolutionDesc conv;
  ActivationDesc activation;
};

struct FusedVariantPack {
  static constexpr uint64_t kTag = 0x6b696c6e'666f7670;  // "kilnfovp"
  static constexpr std::string_view kName = "cudnnFusedOpsVariantParamPack_t";

  int32_t op = 0;
  std::array<void*, kPointers> pointers = {};
  size_t workspace_bytes = 0;
  int64_t count = 0;
  double factor = 0, epsilon = 0;
};

struct FusedPlan {
  static constexpr uint64_t kTag = 0x6b696c6e'666f706c;  // "kilnfopl"
  static constexpr std::string_view kName = "cudnnFusedOpsPlan_t";

  int32_t op = 0;
  bool is_made = false;
  int64_t workspace_bytes = 0;
  FusedConstPack pack;
};

// A tensor that an operation may have: the label of its placeholder, of its descriptor, of its
// pointer.
struct FusedTensorRow {
  int placeholder, desc, pointer;
};
std::span<const FusedTensorRow> FusedTensors();
// Whether the operation has the label of a constant or a variant pack.
bool HasConstLabel(int op, int label);
bool HasVariantLabel(int op, int label);

// The operands of an execution, by the labels of their placeholders; those without a slot are not
// there.
struct FusedOperands {
  std::array<Operand, kConstLabels> tensors = {};
  // Memory that is read and written is two operands: these are what is written.
  Operand next_mean, next_variance;
  Scalar count, factor, epsilon;

  const Operand& operator[](int placeholder) const {
    return tensors[static_cast<size_t>(placeholder)];
  }
  bool Has(int placeholder) const { return (*this)[placeholder].slot >= 0; }
};

Status MakeFusedGraph(CallGraph& g, const FusedConstPack& pack, const FusedOperands& operands);

}  // namespace kiln::api::legacy
