#include "api/legacy/descriptors/ctc_descriptor.h"

#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace {

// Only the type is checked, as 9.19 does; the other numbers are checked where a loss is computed.
Status Set(void* object, const CtcLossDesc& values) {
  ASSIGN_OR_RETURN(CtcLossDesc * desc, Get<CtcLossDesc>(object));
  if (values.type != CUDNN_DATA_FLOAT && values.type != CUDNN_DATA_DOUBLE)
    return Status::Error(Code::kNotSupported, "compType is {}: float and double are possible",
                         values.type);
  *desc = values;
  return {};
}

Status Read(const void* object, int* type, int* normalization, int* gradient, int* max_label) {
  ASSIGN_OR_RETURN(const CtcLossDesc* desc, Get<CtcLossDesc>(object));
  Store(type, desc->type);
  Store(normalization, desc->normalization);
  Store(gradient, desc->gradient);
  Store(max_label, desc->max_label);
  return {};
}

}  // namespace

Status CreateCTCLossDescriptor(void** out) { return CreateDescriptor<CtcLossDesc>(out); }
Status DestroyCTCLossDescriptor(void* object) { return DestroyDescriptor<CtcLossDesc>(object); }

Status SetCTCLossDescriptor(void* object, int type) {
  return Set(object, CtcLossDesc{.type = type});
}

Status SetCTCLossDescriptorEx(void* object, int type, int normalization, int gradient) {
  return Set(object,
             CtcLossDesc{.type = type, .normalization = normalization, .gradient = gradient});
}

Status SetCTCLossDescriptor_v8(void* object, int type, int normalization, int gradient,
                               int max_label) {
  return Set(object, CtcLossDesc{type, normalization, gradient, max_label});
}

Status SetCTCLossDescriptor_v9(void* object, int type, int normalization, int gradient,
                               int max_label) {
  return Set(object, CtcLossDesc{type, normalization, gradient, max_label});
}

Status GetCTCLossDescriptor(void* object, int* type) {
  return Read(object, type, nullptr, nullptr, nullptr);
}

Status GetCTCLossDescriptorEx(void* object, int* type, int* normalization, int* gradient) {
  return Read(object, type, normalization, gradient, nullptr);
}

Status GetCTCLossDescriptor_v8(void* object, int* type, int* normalization, int* gradient,
                               int* max_label) {
  return Read(object, type, normalization, gradient, max_label);
}

Status GetCTCLossDescriptor_v9(void* object, int* type, int* normalization, int* gradient,
                               int* max_label) {
  return Read(object, type, normalization, gradient, max_label);
}

}  // namespace kiln::api::legacy
