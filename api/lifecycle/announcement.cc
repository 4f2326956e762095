#include "api/lifecycle/announcement.h"

#include <fmt/format.h>

#include "api/spec/generation.h"
#include "ir/base/env.h"
#include "runtime/cache/own_folder.h"

namespace kiln::api {

std::string Announcement() {
  const SaidVersion version = VersionThatIsSaid();
  return fmt::format("Kiln is called: {} as cuDNN {}.{}.{}, for the device of KILN_DEVICE={}",
                     runtime::OwnFile(), version.major, version.minor, version.patch,
                     GetEnv(Env::kDevice));
}

}  // namespace kiln::api
