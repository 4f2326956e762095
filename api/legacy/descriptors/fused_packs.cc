#include "api/legacy/descriptors/fused_packs.h"

#include <cstring>

#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace {

enum class Kind : uint8_t { kTensor, kFilter, kConvolution, kActivation, kBnMode, kPlaceholder };

using Ops = uint8_t;  // a bit for each cudnnFusedOps_t
constexpr Ops Of(std::initializer_list<int> ops) {
  Ops bits = 0;
  for (const int op : ops) bits |= static_cast<Ops>(1 << op);
  return bits;
}

struct ConstRow {
  Kind kind;
  Ops ops;
};
// The labels by cudnnFusedOpsConstParamLabel_t.
constexpr ConstRow kConstRows[] = {
    {Kind::kTensor, Of({0, 1, 4, 5, 6})},       // X
    {Kind::kPlaceholder, Of({0, 1, 4, 5, 6})},  //
    {Kind::kBnMode, Of({0, 1, 2, 3, 5, 6})},    //
    {Kind::kTensor, Of({0, 1, 2, 3, 4, 5})},    // BN_EQSCALEBIAS
    {Kind::kPlaceholder, Of({0, 1, 2, 3, 4, 5})},
    {Kind::kPlaceholder, Of({0, 1, 2, 3, 5})},
    {Kind::kActivation, Of({0, 1, 4, 5, 6})},  //
    {Kind::kConvolution, Of({0, 1, 4})},       //
    {Kind::kFilter, Of({0, 4})},               // W
    {Kind::kPlaceholder, Of({0, 4})},          //
    {Kind::kFilter, Of({1})},                  // DW
    {Kind::kPlaceholder, Of({1})},             //
    {Kind::kTensor, Of({0, 4, 5})},            // Y
    {Kind::kPlaceholder, Of({0, 4, 5})},       //
    {Kind::kTensor, Of({1, 6})},               // DY
    {Kind::kPlaceholder, Of({1, 6})},          //
    {Kind::kTensor, Of({0, 2})},               // YSTATS
    {Kind::kPlaceholder, Of({0, 2})},          //
    {Kind::kPlaceholder, Of({0, 2})},          //
    {Kind::kTensor, Of({2, 3, 6})},            // BN_SCALEBIAS_MEANVAR
    {Kind::kPlaceholder, Of({2, 3, 6})},       //
    {Kind::kPlaceholder, Of({2, 3, 6})},       //
    {Kind::kPlaceholder, Of({2, 6})},          // BN_SAVED_MEAN
    {Kind::kPlaceholder, Of({2, 6})},          //
    {Kind::kPlaceholder, Of({2, 3})},          // BN_RUNNING_MEAN
    {Kind::kPlaceholder, Of({2, 3})},          //
    {Kind::kTensor, Of({4, 5})},               // Z
    {Kind::kPlaceholder, Of({4, 5})},          //
    {Kind::kTensor, Of({4, 5})},               // BN_Z_EQSCALEBIAS
    {Kind::kPlaceholder, Of({4, 5})},          //
    {Kind::kPlaceholder, Of({4, 5})},          //
    {Kind::kTensor, Of({5, 6})},               // ACTIVATION_BITMASK
    {Kind::kPlaceholder, Of({5, 6})},          //
    {Kind::kTensor, Of({6})},                  // DX
    {Kind::kPlaceholder, Of({6})},             //
    {Kind::kTensor, Of({6})},                  // DZ
    {Kind::kPlaceholder, Of({6})},             //
    {Kind::kPlaceholder, Of({6})},             // BN_DSCALE
    {Kind::kPlaceholder, Of({6})},             // BN_DBIAS
};
static_assert(std::size(kConstRows) == kConstLabels);

constexpr FusedTensorRow kTensors[] = {
    {CUDNN_PARAM_XDATA_PLACEHOLDER, CUDNN_PARAM_XDESC, CUDNN_PTR_XDATA},
    {CUDNN_PARAM_BN_EQSCALE_PLACEHOLDER, CUDNN_PARAM_BN_EQSCALEBIAS_DESC, CUDNN_PTR_BN_EQSCALE},
    {CUDNN_PARAM_BN_EQBIAS_PLACEHOLDER, CUDNN_PARAM_BN_EQSCALEBIAS_DESC, CUDNN_PTR_BN_EQBIAS},
    {CUDNN_PARAM_WDATA_PLACEHOLDER, CUDNN_PARAM_WDESC, CUDNN_PTR_WDATA},
    {CUDNN_PARAM_DWDATA_PLACEHOLDER, CUDNN_PARAM_DWDESC, CUDNN_PTR_DWDATA},
    {CUDNN_PARAM_YDATA_PLACEHOLDER, CUDNN_PARAM_YDESC, CUDNN_PTR_YDATA},
    {CUDNN_PARAM_DYDATA_PLACEHOLDER, CUDNN_PARAM_DYDESC, CUDNN_PTR_DYDATA},
    {CUDNN_PARAM_YSUM_PLACEHOLDER, CUDNN_PARAM_YSTATS_DESC, CUDNN_PTR_YSUM},
    {CUDNN_PARAM_YSQSUM_PLACEHOLDER, CUDNN_PARAM_YSTATS_DESC, CUDNN_PTR_YSQSUM},
    {CUDNN_PARAM_BN_SCALE_PLACEHOLDER, CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC, CUDNN_PTR_BN_SCALE},
    {CUDNN_PARAM_BN_BIAS_PLACEHOLDER, CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC, CUDNN_PTR_BN_BIAS},
    {CUDNN_PARAM_BN_SAVED_MEAN_PLACEHOLDER, CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC,
     CUDNN_PTR_BN_SAVED_MEAN},
    {CUDNN_PARAM_BN_SAVED_INVSTD_PLACEHOLDER, CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC,
     CUDNN_PTR_BN_SAVED_INVSTD},
    {CUDNN_PARAM_BN_RUNNING_MEAN_PLACEHOLDER, CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC,
     CUDNN_PTR_BN_RUNNING_MEAN},
    {CUDNN_PARAM_BN_RUNNING_VAR_PLACEHOLDER, CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC,
     CUDNN_PTR_BN_RUNNING_VAR},
    {CUDNN_PARAM_ZDATA_PLACEHOLDER, CUDNN_PARAM_ZDESC, CUDNN_PTR_ZDATA},
    {CUDNN_PARAM_BN_Z_EQSCALE_PLACEHOLDER, CUDNN_PARAM_BN_Z_EQSCALEBIAS_DESC,
     CUDNN_PTR_BN_Z_EQSCALE},
    {CUDNN_PARAM_BN_Z_EQBIAS_PLACEHOLDER, CUDNN_PARAM_BN_Z_EQSCALEBIAS_DESC, CUDNN_PTR_BN_Z_EQBIAS},
    {CUDNN_PARAM_ACTIVATION_BITMASK_PLACEHOLDER, CUDNN_PARAM_ACTIVATION_BITMASK_DESC,
     CUDNN_PTR_ACTIVATION_BITMASK},
    {CUDNN_PARAM_DXDATA_PLACEHOLDER, CUDNN_PARAM_DXDESC, CUDNN_PTR_DXDATA},
    {CUDNN_PARAM_DZDATA_PLACEHOLDER, CUDNN_PARAM_DZDESC, CUDNN_PTR_DZDATA},
    {CUDNN_PARAM_BN_DSCALE_PLACEHOLDER, CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC, CUDNN_PTR_BN_DSCALE},
    {CUDNN_PARAM_BN_DBIAS_PLACEHOLDER, CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC, CUDNN_PTR_BN_DBIAS},
};

struct ScalarRow {
  int label;
  Ops ops;
  size_t offset, bytes;
};
constexpr ScalarRow kScalars[] = {
    {CUDNN_SCALAR_SIZE_T_WORKSPACE_SIZE_IN_BYTES, Of({0, 1, 2, 3, 4, 5, 6}),
     offsetof(FusedVariantPack, workspace_bytes), sizeof(size_t)},
    {CUDNN_SCALAR_INT64_T_BN_ACCUMULATION_COUNT, Of({2}), offsetof(FusedVariantPack, count),
     sizeof(int64_t)},
    {CUDNN_SCALAR_DOUBLE_BN_EXP_AVG_FACTOR, Of({2}), offsetof(FusedVariantPack, factor),
     sizeof(double)},
    {CUDNN_SCALAR_DOUBLE_BN_EPSILON, Of({2, 3, 6}), offsetof(FusedVariantPack, epsilon),
     sizeof(double)},
};

bool Has(Ops ops, int op) { return (ops >> op & 1) != 0; }

Status CheckOp(int op) { return CheckEnum(op, static_cast<int>(kFusedOps) - 1, "cudnnFusedOps_t"); }

Status CheckConstLabel(int op, int label) {
  if (HasConstLabel(op, label)) return {};
  return Status::Error(Code::kBadParam, "fused operation {} has no constant parameter {}", op,
                       label);
}

Status CheckVariantLabel(int op, int label) {
  if (HasVariantLabel(op, label)) return {};
  return Status::Error(Code::kBadParam, "fused operation {} has no variant parameter {}", op,
                       label);
}

const ScalarRow* ScalarOf(int label) {
  for (const ScalarRow& row : kScalars) {
    if (row.label == label) return &row;
  }
  return nullptr;
}

// An object that knows its operation.
template <class D>
Status CreateFor(void** out, int op) {
  RETURN_IF_ERROR(CheckOp(op));
  RETURN_IF_ERROR(CreateDescriptor<D>(out));
  ASSIGN_OR_RETURN(D * object, Get<D>(*out));
  object->op = op;
  return {};
}

// The client's descriptor to or from the pack's copy of it.
template <class D>
Status Load(D& copy, const void* desc) {
  ASSIGN_OR_RETURN(const D* from, Get<D>(desc));
  copy = *from;
  return {};
}
template <class D>
Status Give(const D& copy, void* desc) {
  ASSIGN_OR_RETURN(D * to, Get<D>(desc));
  *to = copy;
  return {};
}

FilterDesc& FilterAt(FusedConstPack& pack, int label) {
  return label == CUDNN_PARAM_WDESC ? pack.w : pack.dw;
}

Status SetDescriptor(FusedConstPack& pack, int label, Kind kind, const void* desc) {
  const auto at = static_cast<size_t>(label);
  if (desc == nullptr) {
    pack.is_set[at] = false;
    return {};
  }
  switch (kind) {
    case Kind::kTensor:
      RETURN_IF_ERROR(Load(pack.tensors[at], desc));
      break;
    case Kind::kFilter: {
      RETURN_IF_ERROR(Load(FilterAt(pack, label), desc));
      ASSIGN_OR_RETURN(pack.tensors[at], Described(FilterAt(pack, label)));
      break;
    }
    case Kind::kConvolution:
      RETURN_IF_ERROR(Load(pack.conv, desc));
      break;
    default:
      RETURN_IF_ERROR(Load(pack.activation, desc));
  }
  pack.is_set[at] = true;
  return {};
}

Status GetDescriptor(FusedConstPack& pack, int label, Kind kind, void* desc) {
  switch (kind) {
    case Kind::kTensor:
      return Give(pack.tensors[static_cast<size_t>(label)], desc);
    case Kind::kFilter:
      return Give(FilterAt(pack, label), desc);
    case Kind::kConvolution:
      return Give(pack.conv, desc);
    default:
      return Give(pack.activation, desc);
  }
}

// The number behind a mode or a placeholder; none behind a descriptor.
int32_t* NumberAt(FusedConstPack& pack, int label, Kind kind) {
  if (kind == Kind::kBnMode) return &pack.bn_mode;
  if (kind == Kind::kPlaceholder) return &pack.placeholders[static_cast<size_t>(label)];
  return nullptr;
}

}  // namespace

std::span<const FusedTensorRow> FusedTensors() { return kTensors; }

bool HasConstLabel(int op, int label) {
  return label >= 0 && label < static_cast<int>(kConstLabels) && Has(kConstRows[label].ops, op);
}

bool HasVariantLabel(int op, int label) {
  if (label == CUDNN_PTR_WORKSPACE) return true;
  if (const ScalarRow* scalar = ScalarOf(label)) return Has(scalar->ops, op);
  for (const FusedTensorRow& row : kTensors) {
    if (row.pointer == label) return HasConstLabel(op, row.placeholder);
  }
  return false;
}

// ---- constant packs

Status CreateFusedOpsConstParamPack(void** out, int op) {
  return CreateFor<FusedConstPack>(out, op);
}
Status DestroyFusedOpsConstParamPack(void* object) {
  return DestroyDescriptor<FusedConstPack>(object);
}

Status SetFusedOpsConstParamPackAttribute(void* object, int label, const void* param) {
  ASSIGN_OR_RETURN(FusedConstPack * pack, Get<FusedConstPack>(object));
  RETURN_IF_ERROR(CheckConstLabel(pack->op, label));
  const Kind kind = kConstRows[label].kind;
  int32_t* const number = NumberAt(*pack, label, kind);
  if (number == nullptr) return SetDescriptor(*pack, label, kind, param);
  *number = 0;
  if (param != nullptr) std::memcpy(number, param, sizeof *number);
  return {};
}

Status GetFusedOpsConstParamPackAttribute(void* object, int label, void* param, int* is_null) {
  ASSIGN_OR_RETURN(FusedConstPack * pack, Get<FusedConstPack>(object));
  RETURN_IF_ERROR(NotNull(param, "the place for the parameter"));
  RETURN_IF_ERROR(NotNull(is_null, "isNULL"));
  *is_null = 0;
  RETURN_IF_ERROR(CheckConstLabel(pack->op, label));
  const Kind kind = kConstRows[label].kind;
  if (const int32_t* number = NumberAt(*pack, label, kind)) {
    std::memcpy(param, number, sizeof *number);
    return {};
  }
  *is_null = !pack->is_set[static_cast<size_t>(label)];
  return *is_null != 0 ? Status() : GetDescriptor(*pack, label, kind, param);
}

// ---- variant packs

Status CreateFusedOpsVariantParamPack(void** out, int op) {
  return CreateFor<FusedVariantPack>(out, op);
}
Status DestroyFusedOpsVariantParamPack(void* object) {
  return DestroyDescriptor<FusedVariantPack>(object);
}

Status SetFusedOpsVariantParamPackAttribute(void* object, int label, void* value) {
  ASSIGN_OR_RETURN(FusedVariantPack * pack, Get<FusedVariantPack>(object));
  RETURN_IF_ERROR(CheckVariantLabel(pack->op, label));
  const ScalarRow* const scalar = ScalarOf(label);
  if (scalar == nullptr) {
    pack->pointers[static_cast<size_t>(label)] = value;
    return {};
  }
  char* const place = reinterpret_cast<char*>(pack) + scalar->offset;
  if (value == nullptr) {
    std::memset(place, 0, scalar->bytes);
  } else {
    std::memcpy(place, value, scalar->bytes);
  }
  return {};
}

Status GetFusedOpsVariantParamPackAttribute(void* object, int label, void* value) {
  ASSIGN_OR_RETURN(const FusedVariantPack* pack, Get<FusedVariantPack>(object));
  RETURN_IF_ERROR(NotNull(value, "the place for the parameter"));
  RETURN_IF_ERROR(CheckVariantLabel(pack->op, label));
  if (const ScalarRow* scalar = ScalarOf(label)) {
    std::memcpy(value, reinterpret_cast<const char*>(pack) + scalar->offset, scalar->bytes);
    return {};
  }
  std::memcpy(value, &pack->pointers[static_cast<size_t>(label)], sizeof(void*));
  return {};
}

// ---- plans

Status CreateFusedOpsPlan(void** out, int op) { return CreateFor<FusedPlan>(out, op); }
Status DestroyFusedOpsPlan(void* object) { return DestroyDescriptor<FusedPlan>(object); }

}  // namespace kiln::api::legacy
