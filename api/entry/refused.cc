// Functions of generation 9 that programs look up, and that Kiln has no kernels for: rows of
// api/spec/functions.tsv that are `refused`. Each call is refused with a sentence, whatever it is
// given; a row that becomes `y` gets an entry of its own.
#include "api/entry/entry.h"

namespace api = kiln::api;

#if CUDNN_MAJOR == 9

namespace {

// Unused while every function of the newest release has kernels.
[[maybe_unused]] kiln::Status NotYet() {
  return kiln::Status::Text(kiln::Code::kNotSupported,
                            "Kiln has no kernels for this function yet; it is exported for "
                            "programs that look it up");
}

}  // namespace

extern "C" {

#include "api/spec/refused_entries.inc"

}  // extern "C"

#endif
