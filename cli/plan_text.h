// A compiled plan for people: what the caller passes, the workspace, and each launch with its
// arguments under the names that the kernel's source has for them.
#pragma once

#include <string>

#include "compiler/compile.h"

namespace kiln::cli {

// Prints the plan of a `module` as the last pass left it.
std::string PlanText(const compiler::Module& module, const Target& target);

}  // namespace kiln::cli
