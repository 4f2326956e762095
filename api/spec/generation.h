// A generation is what differs between libcudnn.so.8 and libcudnn.so.9. Each library links exactly
// one definition of ThisGeneration (api/entry/status_map.cc, compiled against its own public
// header).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ir/base/status.h"

namespace kiln::api {

struct Generation {
  int major, minor, patch;             // of the public headers
  int64_t version;                     // CUDNN_VERSION
  std::span<const int> status_values;  // by Code
  int PublicStatus(Code code) const { return status_values[static_cast<size_t>(code)]; }
  std::string_view (*status_name)(int public_status);
};

const Generation& ThisGeneration();

// The version that this library says it is: that of its headers, or of generation 9 the one that
// KILN_CUDNN_VERSION asks for. Clients branch on it; nothing in Kiln does.
struct SaidVersion {
  int major, minor, patch;
  int64_t number;  // cudnnGetVersion
};
SaidVersion VersionThatIsSaid();

}  // namespace kiln::api
