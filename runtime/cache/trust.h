// Trust: code is run from the kernel cache, so nobody else may be able to put any there. A folder
// is trusted where only its owner may change it, and the owner is this process' user or root.
// Called by Folder for every component of a path.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>

#include "ir/base/status.h"

namespace kiln::runtime {

// The place of a component in a path. All but the last are on the way: they may have the sticky bit
// (/tmp), which keeps others from replacing what is in them.
enum class PathPart : uint8_t { kOnTheWay, kLast };

struct Identity {
  uid_t user = 0;
  // True if an owner may be root under a name that this user namespace does not have. Containers
  // without privileges show files of the host's root so.
  std::function<bool(uid_t)> is_unnamed;
  // True if the group has one member: the user that it is named after.
  std::function<bool(gid_t)> is_private;
};

// The identity of this process, by its effective ids.
Identity OwnIdentity();

// Success, or Code::kNotSupported with who else could change the folder (or symbolic link).
Status CheckTrust(const struct stat& info, const std::string& path, PathPart part,
                  const Identity& identity);

}  // namespace kiln::runtime
