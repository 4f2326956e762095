// The workspace as clients count it. A program wants its workspace aligned; a client gives memory
// that begins anywhere. So the client gives a little more, and everything that the session says or
// is told of bytes passes through these functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ir/program.h"
#include "runtime/executable.h"

namespace kiln::api {

// The bytes that a client gives for a program that needs so many.
inline int64_t WithAlignment(int64_t bytes) {
  return bytes == 0 ? 0 : bytes + runtime::kWorkspaceAlignment - 1;
}
// The most that a program may need where clients give so much; -1, no limit, stays -1.
inline int64_t WithoutAlignment(int64_t bytes) {
  return bytes < 0 ? -1 : std::max<int64_t>(0, bytes - runtime::kWorkspaceAlignment + 1);
}
inline int64_t WorkspaceBytes(const Program& program) {
  return WithAlignment(program.workspace_bytes);
}

}  // namespace kiln::api
