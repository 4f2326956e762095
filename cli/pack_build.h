// kiln pack build: plans, compiles what is missing, writes the pack.
#pragma once

#include <string>

#include "cli/pack_plans.h"
#include "ir/base/result.h"

namespace kiln::cli {

struct PackBuildOptions {
  PackPlanOptions plans;
  std::string output;
};

// Compiled kernels are kept in OUTPUT.partial, a kernel cache, until the pack is written: a build
// that was stopped goes on there, and several may work on one pack. Progress goes to stderr.
Status BuildPack(const PackBuildOptions& options);

// Writes the file at once, readable by everybody.
Status WritePack(const std::string& path, const std::string& bytes);

}  // namespace kiln::cli
