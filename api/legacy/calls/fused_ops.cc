// cudnnMakeFusedOpsPlan and cudnnFusedOpsExecute: both add the same to a call's key, so that the
// plan whose workspace the client was told of is the one that runs.
#include "api/legacy/calls/fused_ops.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace {

constexpr int kAlignment = 16;  // of CUDNN_PTR_16B_ALIGNED

bool IsThere(const FusedConstPack& pack, const FusedTensorRow& row) {
  return HasConstLabel(pack.op, row.placeholder) &&
         pack.placeholders[static_cast<size_t>(row.placeholder)] != CUDNN_PTR_NULL &&
         pack.is_set[static_cast<size_t>(row.desc)];
}

int PromisedAlignment(const FusedConstPack& pack, const FusedTensorRow& row) {
  if (pack.placeholders[static_cast<size_t>(row.placeholder)] == CUDNN_PTR_16B_ALIGNED)
    return kAlignment;
  const TensorDesc& desc = pack.tensors[static_cast<size_t>(row.desc)];
  return std::min(ElementBytes(desc.type) / VectorOf(desc.type), kAlignment);
}

// The tensors that the operation cannot be without, by placeholder.
std::span<const int> RequiredOf(int op) {
  static constexpr int kForward[] = {CUDNN_PARAM_XDATA_PLACEHOLDER, CUDNN_PARAM_WDATA_PLACEHOLDER,
                                     CUDNN_PARAM_YDATA_PLACEHOLDER};
  static constexpr int kWgrad[] = {CUDNN_PARAM_XDATA_PLACEHOLDER, CUDNN_PARAM_DWDATA_PLACEHOLDER,
                                   CUDNN_PARAM_DYDATA_PLACEHOLDER};
  static constexpr int kTraining[] = {CUDNN_PARAM_YSUM_PLACEHOLDER, CUDNN_PARAM_YSQSUM_PLACEHOLDER};
  static constexpr int kInference[] = {
      CUDNN_PARAM_BN_SCALE_PLACEHOLDER, CUDNN_PARAM_BN_BIAS_PLACEHOLDER,
      CUDNN_PARAM_BN_RUNNING_MEAN_PLACEHOLDER, CUDNN_PARAM_BN_RUNNING_VAR_PLACEHOLDER};
  static constexpr int kAdd[] = {CUDNN_PARAM_XDATA_PLACEHOLDER, CUDNN_PARAM_YDATA_PLACEHOLDER};
  static constexpr int kBackward[] = {
      CUDNN_PARAM_XDATA_PLACEHOLDER,         CUDNN_PARAM_DYDATA_PLACEHOLDER,
      CUDNN_PARAM_DXDATA_PLACEHOLDER,        CUDNN_PARAM_BN_SCALE_PLACEHOLDER,
      CUDNN_PARAM_BN_SAVED_MEAN_PLACEHOLDER, CUDNN_PARAM_BN_SAVED_INVSTD_PLACEHOLDER};
  static constexpr std::span<const int> kRequired[] = {kForward, kWgrad, kTraining, kInference,
                                                       kForward, kAdd,   kBackward};
  static_assert(std::size(kRequired) == kFusedOps);
  return kRequired[op];
}

Status CheckPack(const FusedConstPack& pack) {
  for (const FusedTensorRow& row : FusedTensors()) {
    if (!HasConstLabel(pack.op, row.placeholder)) continue;
    RETURN_IF_ERROR(CheckEnum(pack.placeholders[static_cast<size_t>(row.placeholder)],
                              CUDNN_PTR_16B_ALIGNED, "cudnnFusedOpsPointerPlaceHolder_t"));
    const auto required = RequiredOf(pack.op);
    const bool is_required = std::ranges::find(required, row.placeholder) != required.end();
    if (is_required && !IsThere(pack, row))
      return Status::Error(Code::kBadParam,
                           "fused operation {} needs parameter {}, and the descriptor {}", pack.op,
                           row.placeholder, row.desc);
  }
  if (HasConstLabel(pack.op, CUDNN_PARAM_CONV_DESC) &&
      !pack.is_set[static_cast<size_t>(CUDNN_PARAM_CONV_DESC)])
    return Status::Error(Code::kBadParam, "fused operation {} needs a convolution descriptor",
                         pack.op);
  if (!HasConstLabel(pack.op, CUDNN_PARAM_BN_MODE)) return {};
  RETURN_IF_ERROR(
      CheckEnum(pack.bn_mode, CUDNN_BATCHNORM_SPATIAL_PERSISTENT, "cudnnBatchNormMode_t"));
  if (pack.bn_mode == CUDNN_BATCHNORM_PER_ACTIVATION)
    return Status::Text(Code::kNotSupported,
                        "CUDNN_PARAM_BN_MODE is CUDNN_BATCHNORM_PER_ACTIVATION; the spatial modes "
                        "are possible");
  return {};
}

Status CheckPointers(const FusedConstPack& pack, const FusedVariantPack& pointers) {
  for (const FusedTensorRow& row : FusedTensors()) {
    if (!HasConstLabel(pack.op, row.placeholder)) continue;
    const void* const pointer = pointers.pointers[static_cast<size_t>(row.pointer)];
    const int placeholder = pack.placeholders[static_cast<size_t>(row.placeholder)];
    if ((pointer == nullptr) != (placeholder == CUDNN_PTR_NULL))
      return Status::Error(Code::kBadParam, "pointer {} is {}, its placeholder is {}", row.pointer,
                           fmt::ptr(pointer), placeholder);
    if (!IsThere(pack, row)) continue;
    const int alignment = PromisedAlignment(pack, row);
    if (reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(alignment) != 0)
      return Status::Error(Code::kBadParam, "pointer {} is {}; {} bytes of alignment were promised",
                           row.pointer, fmt::ptr(pointer), alignment);
  }
  return {};
}

FusedOperands AddTo(Call& call, const FusedConstPack& pack, const FusedVariantPack& values) {
  call.Add(pack.op);
  if (HasConstLabel(pack.op, CUDNN_PARAM_CONV_DESC)) {
    call.Add(pack.conv);
    call.Add(pack.op == CUDNN_FUSED_SCALE_BIAS_ACTIVATION_WGRAD ? pack.dw : pack.w);
  }
  call.Add(pack.is_set[static_cast<size_t>(CUDNN_PARAM_ACTIVATION_DESC)]);
  call.Add(pack.activation);
  FusedOperands operands;
  for (const FusedTensorRow& row : FusedTensors()) {
    const bool is_there = IsThere(pack, row);
    call.Add(is_there);
    if (!is_there) continue;
    const auto add = [&] {
      return call.Memory(pack.tensors[static_cast<size_t>(row.desc)],
                         values.pointers[static_cast<size_t>(row.pointer)],
                         PromisedAlignment(pack, row));
    };
    operands.tensors[static_cast<size_t>(row.placeholder)] = add();
    const bool updates = pack.op == CUDNN_FUSED_BN_FINALIZE_STATISTICS_TRAINING;
    if (updates && row.placeholder == CUDNN_PARAM_BN_RUNNING_MEAN_PLACEHOLDER)
      operands.next_mean = add();
    if (updates && row.placeholder == CUDNN_PARAM_BN_RUNNING_VAR_PLACEHOLDER)
      operands.next_variance = add();
  }
  operands.count = call.Whole(&values.count);
  operands.factor = call.Double(&values.factor);
  operands.epsilon = call.Double(&values.epsilon);
  return operands;
}

Status CheckEpsilon(const FusedConstPack& pack, double epsilon) {
  if (!HasVariantLabel(pack.op, CUDNN_SCALAR_DOUBLE_BN_EPSILON) || epsilon >= CUDNN_BN_MIN_EPSILON)
    return {};
  return Status::Error(Code::kBadParam, "epsilon is {}; the least is {}", epsilon,
                       CUDNN_BN_MIN_EPSILON);
}

}  // namespace

Status MakeFusedOpsPlan(void* handle, void* plan, void* const_pack, size_t* bytes) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(FusedPlan * made, Get<FusedPlan>(plan));
  ASSIGN_OR_RETURN(const FusedConstPack* pack, Get<FusedConstPack>(const_pack));
  RETURN_IF_ERROR(NotNull(bytes, "the place for the size of the workspace"));
  if (made->op != pack->op)
    return Status::Error(Code::kBadParam, "a plan of fused operation {} and a pack of {}", made->op,
                         pack->op);
  RETURN_IF_ERROR(CheckPack(*pack));
  Call call(*h, "cudnnFusedOpsExecute");
  const FusedOperands operands = AddTo(call, *pack, {});
  ASSIGN_OR_RETURN(made->workspace_bytes, call.WorkspaceBytes([&](CallGraph& g) {
    return MakeFusedGraph(g, *pack, operands);
  }));
  made->pack = *pack;
  made->is_made = true;
  *bytes = static_cast<size_t>(made->workspace_bytes);
  return {};
}

Status FusedOpsExecute(void* handle, void* plan, void* variant_pack) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const FusedPlan* made, Get<FusedPlan>(plan));
  ASSIGN_OR_RETURN(const FusedVariantPack* values, Get<FusedVariantPack>(variant_pack));
  if (!made->is_made || made->op != values->op)
    return Status::Error(Code::kBadParam, "a {} plan of fused operation {} and a pack of {}",
                         made->is_made ? "made" : "missing", made->op, values->op);
  RETURN_IF_ERROR(CheckPointers(made->pack, *values));
  RETURN_IF_ERROR(CheckEpsilon(made->pack, values->epsilon));
  void* const workspace = values->pointers[static_cast<size_t>(CUDNN_PTR_WORKSPACE)];
  if (static_cast<int64_t>(values->workspace_bytes) < made->workspace_bytes ||
      (workspace == nullptr && made->workspace_bytes > 0))
    return Status::Error(Code::kSizeInsufficient, "a workspace of {} bytes at {}; {} are needed",
                         values->workspace_bytes, fmt::ptr(workspace), made->workspace_bytes);
  Call call(*h, "cudnnFusedOpsExecute");
  const FusedOperands operands = AddTo(call, made->pack, *values);
  return call.Run({.data = workspace,
                   .bytes = static_cast<int64_t>(values->workspace_bytes),
                   .is_parameter = true},
                  [&](CallGraph& g) { return MakeFusedGraph(g, made->pack, operands); });
}

}  // namespace kiln::api::legacy
