// The GNU build id of the library or program that this code is linked into: a cache-key field for
// payloads that depend on our own code and not on their source text alone, as the CPU plug-in's
// objects do.
#pragma once

#include <string>

namespace kiln::runtime {

// The build id in lower-case hex; "none" where the linker wrote no build id.
std::string BuildId();

}  // namespace kiln::runtime
