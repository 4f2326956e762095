// The legacy API as the core has it: a function for each row of api/spec/legacy.tsv, of the
// exported one's name without "cudnn". Enumerations are the client's numbers, which may be none of
// the constants; descriptors and handles are whatever pointers it passed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ir/base/status.h"

namespace kiln::api::legacy {

#include "api/spec/legacy_functions.inc"

}  // namespace kiln::api::legacy
