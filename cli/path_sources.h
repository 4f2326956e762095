// The files that a PathSource (frameworks.h) stands for.
#pragma once

#include <string>
#include <vector>

#include "cli/frameworks.h"
#include "cli/loader.h"

namespace kiln::cli {

// The file that is opened, or nothing.
std::string FileOf(PathSource source, const std::vector<std::string>& sites,
                   const LoaderSettings& settings);

}  // namespace kiln::cli
