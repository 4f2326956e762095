// The folders in which the Python of this environment has its packages, read from the file system:
// no program is started. Called by `kiln doctor` (clients.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::cli {

struct PythonSites {
  std::vector<std::string> folders;  // site-packages and dist-packages, in the order of imports
  std::string interpreter;           // resolved of links; empty where there is none
  std::string trouble;               // why the python3 of PATH could not be followed
};

// The sites of $VIRTUAL_ENV, $CONDA_PREFIX and the python3 of PATH.
PythonSites SitesOfEnvironment();

// Paths below the folder that match, sorted.
std::vector<std::string> GlobPaths(const std::string& folder, const std::string& pattern);

// The version of a distribution by its METADATA, "?" where it does not say; empty where the folder
// does not have it. The name is in lower case, with underscores.
std::string DistributionVersion(const std::string& folder, std::string_view distribution);

}  // namespace kiln::cli
