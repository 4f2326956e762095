#include "runtime/cache/own_folder.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>

namespace kiln::runtime {

std::string OwnFolder() {
  Dl_info info;
  char resolved[PATH_MAX];
  if (::dladdr(reinterpret_cast<void*>(&OwnFolder), &info) == 0 || info.dli_fname == nullptr)
    return {};
  const char* path = ::realpath(info.dli_fname, resolved) != nullptr ? resolved : info.dli_fname;
  const std::string file = path;
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : file.substr(0, slash);
}

}  // namespace kiln::runtime
