// The packs and the plan of fused operations as objects of the client: which labels each operation
// has, and what a pack holds under a label. The calls (calls/fused_ops.h) read them.
// Reference 6.1.3 and 6.2.3 to 6.2.19.
#pragma once

#include <array>
#include <span>

#include "api/legacy/descriptors/modes.h"
#include "api/legacy/descriptors/window.h"

namespace kiln::api::legacy {

inline constexpr size_t kFusedOps = CUDNN_FUSED_DACTIVATION_FORK_DBATCHNORM + 1;
inline constexpr size_t kConstLabels = CUDNN_PARAM_BN_DBIAS_PLACEHOLDER + 1;
inline constexpr size_t kPointers = CUDNN_PTR_BN_DBIAS + 1;

struct FusedConstPack {
  static constexpr uint64_t kTag = 0x6b696c6e'666f6370;  // "kilnfocp"
  static constexpr std::string_view kName = "cudnnFusedOpsConstParamPack_t";

  int32_t op = 0;
  int32_t bn_mode = CUDNN_BATCHNORM_PER_ACTIVATION;
  // The descriptors that are set, by label, and cudnnFusedOpsPointerPlaceHolder_t as the client has
  // it.
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
// True if the operation has the label of a constant or a variant pack.
bool HasConstLabel(int op, int label);
bool HasVariantLabel(int op, int label);

}  // namespace kiln::api::legacy
