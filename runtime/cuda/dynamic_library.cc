// dlopen with a trail. See dynamic_library.h.
#include "runtime/cuda/dynamic_library.h"

#include <dlfcn.h>
#include <link.h>

#include "ir/base/log.h"

namespace kiln::runtime {

Result<DynamicLibrary> DynamicLibrary::Open(std::string_view what,
                                            std::span<const std::string> candidates,
                                            std::string_view advice) {
  std::string tried;
  for (const std::string& candidate : candidates) {
    void* handle = ::dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* reason = ::dlerror();
      tried +=
          fmt::format("{}{}", tried.empty() ? "" : "; ", reason != nullptr ? reason : candidate);
      continue;
    }
    DynamicLibrary library;
    library.handle_ = handle;
    link_map* map = nullptr;
    bool known = ::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] != '\0';
    library.path_ = known ? map->l_name : candidate;
    LOG(kDebug, "loaded {} from {}", what, library.path_);
    return library;
  }
  return Status::Error(Code::kPrerequisiteMissing, "{} was not found ({}). {}", what, tried,
                       advice);
}

void* DynamicLibrary::Find(const char* symbol) const { return ::dlsym(handle_, symbol); }

}  // namespace kiln::runtime
