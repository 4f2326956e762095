// Multi-head attention and its descriptor. Reference 7.2.3, 7.2.8, 7.2.14
// to 7.2.16, 7.2.35, 7.2.43, 8.2.15 and 8.2.16.
#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace {

Status NotThere(std::string_view function) {
  return Status::Error(Code::kNotSupported, "{} is not in this library yet", function);
}

}  // namespace

Status CreateAttnDescriptor(void**) { return NotThere("cudnnCreateAttnDescriptor"); }

Status DestroyAttnDescriptor(void*) { return NotThere("cudnnDestroyAttnDescriptor"); }

Status GetAttnDescriptor(void*, unsigned int*, int*, double*, int*, int*, int*, void**, void**,
                         int*, int*, int*, int*, int*, int*, int*, int*, int*, int*, int*) {
  return NotThere("cudnnGetAttnDescriptor");
}

Status GetMultiHeadAttnBuffers(void*, void*, size_t*, size_t*, size_t*) {
  return NotThere("cudnnGetMultiHeadAttnBuffers");
}

Status GetMultiHeadAttnWeights(void*, void*, int, size_t, const void*, void*, void**) {
  return NotThere("cudnnGetMultiHeadAttnWeights");
}

Status MultiHeadAttnBackwardData(void*, void*, const int*, const int*, const int*, const int*,
                                 void*, const void*, void*, void*, const void*, void*, void*,
                                 const void*, void*, void*, const void*, size_t, const void*,
                                 size_t, void*, size_t, void*) {
  return NotThere("cudnnMultiHeadAttnBackwardData");
}

Status MultiHeadAttnBackwardWeights(void*, void*, int, void*, const void*, void*, const void*,
                                    void*, const void*, void*, const void*, size_t, const void*,
                                    void*, size_t, void*, size_t, void*) {
  return NotThere("cudnnMultiHeadAttnBackwardWeights");
}

Status MultiHeadAttnForward(void*, void*, int, const int*, const int*, const int*, const int*,
                            void*, const void*, const void*, void*, const void*, void*, const void*,
                            void*, void*, size_t, const void*, size_t, void*, size_t, void*) {
  return NotThere("cudnnMultiHeadAttnForward");
}

Status SetAttnDescriptor(void*, unsigned int, int, double, int, int, int, void*, void*, int, int,
                         int, int, int, int, int, int, int, int, int) {
  return NotThere("cudnnSetAttnDescriptor");
}

}  // namespace kiln::api::legacy
