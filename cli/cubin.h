// A cubin's ELF header: whether code is for an architecture. Called by `kiln pack verify`.
#pragma once

#include <string_view>

#include "ir/base/result.h"

namespace kiln::cli {

// Error: the bytes are no cubin, or one of another chip than `arch` ("sm_90a") names. The letter
// behind the number is nowhere in the header.
Status CheckCubin(std::string_view cubin, std::string_view arch);

}  // namespace kiln::cli
