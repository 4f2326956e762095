#include "api/legacy/descriptors/dropout_descriptor.h"

#include "api/legacy/descriptors/tensor.h"
#include "api/legacy/functions.h"
#include "api/lifecycle/handle.h"

namespace kiln::api::legacy {

Status FillDropout(DropoutDesc& desc, float dropout, void* states, size_t bytes,
                   unsigned long long seed) {
  if (states != nullptr && bytes < kDropoutStateBytes)
    return Status::Error(Code::kInvalidValue, "{} bytes of states; {} are needed", bytes,
                         kDropoutStateBytes);
  if (!(dropout >= 0 && dropout <= 1))
    return Status::Error(Code::kBadParam, "dropout is {}; 0 to 1 are possible", dropout);
  desc.dropout = dropout;
  if (states == nullptr) return {};
  desc.states = states;
  desc.seed = seed;
  return {};
}

Status CreateDropoutDescriptor(void** out) { return CreateDescriptor<DropoutDesc>(out); }
Status DestroyDropoutDescriptor(void* object) { return DestroyDescriptor<DropoutDesc>(object); }

Status DropoutGetStatesSize(void* handle, size_t* bytes) {
  RETURN_IF_ERROR(HandleFrom(handle).status());
  RETURN_IF_ERROR(NotNull(bytes, "the place for the size"));
  *bytes = kDropoutStateBytes;
  return {};
}

Status DropoutGetReserveSpaceSize(void* x_desc, size_t* bytes) {
  RETURN_IF_ERROR(Get<TensorDesc>(x_desc).status());
  RETURN_IF_ERROR(NotNull(bytes, "the place for the size"));
  *bytes = kDropoutStateBytes;
  return {};
}

Status RestoreDropoutDescriptor(void* object, void* handle, float dropout, void* states,
                                size_t bytes, unsigned long long seed) {
  ASSIGN_OR_RETURN(DropoutDesc * desc, Get<DropoutDesc>(object));
  RETURN_IF_ERROR(HandleFrom(handle).status());
  return FillDropout(*desc, dropout, states, bytes, seed);
}

Status GetDropoutDescriptor(void* object, void* handle, float* dropout, void** states,
                            unsigned long long* seed) {
  ASSIGN_OR_RETURN(const DropoutDesc* desc, Get<DropoutDesc>(object));
  RETURN_IF_ERROR(HandleFrom(handle).status());
  Store(dropout, desc->dropout);
  if (states != nullptr) *states = desc->states;
  Store(seed, desc->seed);
  return {};
}

}  // namespace kiln::api::legacy
