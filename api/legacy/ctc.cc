// The CTC loss and its descriptor. Reference 8.2.2 to 8.2.5, 8.2.9 to 8.2.13 and 8.2.25 to 8.2.27.
#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace {

Status NotThere(std::string_view function) {
  return Status::Error(Code::kNotSupported, "{} is not in this library yet", function);
}

}  // namespace

Status CTCLoss(void*, void*, const void*, const int*, const int*, const int*, void*, void*, void*,
               int, void*, void*, size_t) {
  return NotThere("cudnnCTCLoss");
}

Status CTCLoss_v8(void*, int, void*, void*, const void*, const int*, const int*, const int*, void*,
                  void*, void*, size_t, void*) {
  return NotThere("cudnnCTCLoss_v8");
}

Status CreateCTCLossDescriptor(void**) { return NotThere("cudnnCreateCTCLossDescriptor"); }

Status DestroyCTCLossDescriptor(void*) { return NotThere("cudnnDestroyCTCLossDescriptor"); }

Status GetCTCLossDescriptor(void*, int*) { return NotThere("cudnnGetCTCLossDescriptor"); }

Status GetCTCLossDescriptorEx(void*, int*, int*, int*) {
  return NotThere("cudnnGetCTCLossDescriptorEx");
}

Status GetCTCLossDescriptor_v8(void*, int*, int*, int*, int*) {
  return NotThere("cudnnGetCTCLossDescriptor_v8");
}

Status GetCTCLossDescriptor_v9(void*, int*, int*, int*, int*) {
  return NotThere("cudnnGetCTCLossDescriptor_v9");
}

Status GetCTCLossWorkspaceSize(void*, void*, void*, const int*, const int*, const int*, int, void*,
                               size_t*) {
  return NotThere("cudnnGetCTCLossWorkspaceSize");
}

Status GetCTCLossWorkspaceSize_v8(void*, int, void*, void*, void*, size_t*) {
  return NotThere("cudnnGetCTCLossWorkspaceSize_v8");
}

Status SetCTCLossDescriptor(void*, int) { return NotThere("cudnnSetCTCLossDescriptor"); }

Status SetCTCLossDescriptorEx(void*, int, int, int) {
  return NotThere("cudnnSetCTCLossDescriptorEx");
}

Status SetCTCLossDescriptor_v8(void*, int, int, int, int) {
  return NotThere("cudnnSetCTCLossDescriptor_v8");
}

Status SetCTCLossDescriptor_v9(void*, int, int, int, int) {
  return NotThere("cudnnSetCTCLossDescriptor_v9");
}

}  // namespace kiln::api::legacy
