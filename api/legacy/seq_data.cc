// cudnnSeqDataDescriptor_t: the sequences of multi-head attention. Reference 7.2.7, 7.2.12, 7.2.34
// and 7.2.53.
#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace {

Status NotThere(std::string_view function) {
  return Status::Error(Code::kNotSupported, "{} is not in this library yet", function);
}

}  // namespace

Status CreateSeqDataDescriptor(void**) { return NotThere("cudnnCreateSeqDataDescriptor"); }

Status DestroySeqDataDescriptor(void*) { return NotThere("cudnnDestroySeqDataDescriptor"); }

Status GetSeqDataDescriptor(void*, int*, int*, int, int*, int*, size_t*, size_t, int*, void*) {
  return NotThere("cudnnGetSeqDataDescriptor");
}

Status SetSeqDataDescriptor(void*, int, int, const int*, const int*, size_t, const int*, void*) {
  return NotThere("cudnnSetSeqDataDescriptor");
}

}  // namespace kiln::api::legacy
